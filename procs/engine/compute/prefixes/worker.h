/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that reads and writes files of prefixes, and what it shares with the runner. Its
 * fields are under `mutex`, but for those of a job that one of both has: the state says who. */
#ifndef SLUICE_ENGINE_COMPUTE_PREFIXES_WORKER_H
#define SLUICE_ENGINE_COMPUTE_PREFIXES_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "procs/engine/compute/prefixes/index.h"
#include "procs/engine/compute/prefixes/prefixes.h"
#include "shm/kv/kv.h"

#define PIECE_BYTES (1u << 20) /* of a file that are read or written at a time */

/*  NONE -> WANTED (runner) -> READS (thread) -> DONE | FAILED -> NONE (runner)
 *  any -> NONE (runner: cancelled, or storage does not answer; the thread then writes no more to
 *  the slot) */
enum load_state { LOAD_NONE, LOAD_WANTED, LOAD_READS, LOAD_DONE, LOAD_FAILED };

struct load {
    enum load_state state;
    uint64_t serial; /* of loads: the next one of the slot has another */
    uint64_t start_ns;
    uint32_t slot, from, version;
    struct prefix_use use;
    struct index_entry entry; /* without tables */
    const _Atomic uint32_t *log;
    uint64_t bytes; /* that were read */
};

/*  NONE -> OPENS (runner) -> WAITS (thread) -> PIECE (runner) -> WAITS ...
 *                                -> ENDS (runner) -> DONE | FAILED (thread) -> NONE (runner)
 *  The runner has the job in NONE, WAITS, DONE and FAILED; `aborted` may be set at any time. */
enum store_state {
    STORE_NONE,
    STORE_OPENS,
    STORE_WAITS,
    STORE_PIECE,
    STORE_ENDS,
    STORE_DONE,
    STORE_FAILED
};

struct store {
    enum store_state state;
    bool aborted;
    char name[PREFIX_NAME_BYTES];
    struct prefix_head head;
    void *tables; /* owned */
    int fd;
    char *piece; /* [PIECE_BYTES], page-aligned */
    uint32_t block;
    uint64_t at, bytes; /* of the piece in its block */
    uint64_t next_ns;   /* of the pace */
    void *hash;         /* XXH3 of the block until `at` */
    uint64_t written;   /* bytes */
    int why;            /* FAILED: an errno; 0: there is no room, or another engine writes */
    /* the runner's */
    uint32_t slot, rows;
    uint64_t content, tag[PREFIX_STATES_MAX];
    uint32_t version[PREFIX_STATES_MAX];
};

struct prefixes {
    struct slots *slots;
    void (*wake)(void *arg);
    void *arg;
    struct prefix_index index;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop;
    uint64_t serial;
    struct load load[KV_SLOTS_MAX];
    struct store store;
    struct load taken; /* the thread's: its copy of the one that it reads */
    char *buffer;      /* the thread's, [PIECE_BYTES], page-aligned */
    double read_bytes_per_ns;
    uint64_t moved_ns; /* when the thread had its last piece, or ended its last job */
    bool stalled;      /* a load has waited too long since, and no other one is begun */
    bool clears;       /* the thread is to remove all files */
    /* the runner's */
    uint64_t stall_ns, pause_until_ns, turn_ns;
    bool failed_before; /* one line for each time that writing fails */
    struct noted {      /* what a slot had when it was looked at last */
        uint32_t used, rows;
        uint64_t since_ns;
        uint64_t delay_ns; /* until it is written; UINT64_MAX: it is not */
    } noted[KV_SLOTS_MAX];
};

int worker_start(struct prefixes *p, struct error *error);
void worker_stop(struct prefixes *p);
void prefixes_lock(struct prefixes *p);
void prefixes_unlock(struct prefixes *p);
double prefixes_rate(struct prefixes *p); /* measured of reads, bytes per ns */
/* With the lock: storage has answered the thread. */
void prefixes_moved(struct prefixes *p);

/* The thread, without the lock. write_*: 0, or an errno value. */
void read_load(struct prefixes *p, const struct load *wanted);
int write_open(struct prefixes *p);
int write_piece(struct prefixes *p);
int write_end(struct prefixes *p);
void write_abort(struct prefixes *p);

#endif
