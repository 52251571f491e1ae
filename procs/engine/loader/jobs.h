/* Jobs of a loader and the order of their reads. Pure: no I/O, no shared memory, time is an
 * argument.
 *
 * A job is one LOAD taken: up to three runs of whole pages. Its bytes are handed out in chunks:
 *
 *   jobs_add -> [jobs_pick -> jobs_cut -> (device) -> jobs_complete]* -> job_ended -> jobs_remove
 *
 * A chunk that came back short or with an error goes back to its job and is handed out again, after
 * a pause in case of an error. jobs_fail stops the handing out; the job ends when its last chunk at
 * the device came back. An ended job may be begun again (jobs_restart), once: its bytes arrived and
 * were not what they should be. One that failed may be begun again at another copy of its file
 * (jobs_move).
 *
 * Order: demand before dense before prefetch, first come first served within each. A prefetch chunk
 * is handed out when no chunk of the others is at the device: it would do them side by side, and
 * some tell of all at once when the last is done. Never more than PREFETCH_CHUNKS_MAX are there: a
 * demand finds at most that many in front of it. */
#ifndef SLUICE_ENGINE_LOADER_JOBS_H
#define SLUICE_ENGINE_LOADER_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/channel/messages.h"

#define PREFETCH_CHUNKS_MAX 2
#define CHUNK_TRIES_MAX     4 /* one read and three retries */
#define JOB_NONE            UINT32_MAX

#define LOAD_PRIORITIES (LOAD_DEMAND + 1)

struct chunk {       /* a piece of a run; at the device, or waiting to be tried again */
    struct job *job; /* NULL: free */
    struct chunk *next;
    uint64_t file_offset, arena_offset, bytes;
    uint64_t not_before_ns, submit_ns;
    double place;   /* at the throttle */
    int64_t result; /* once it is `withheld` */
    uint32_t tries; /* failed ones */
    uint16_t priority;
    bool at_device; /* also while it is withheld */
    bool withheld;  /* it came back before its time by the throttle was over */
};

struct job {
    struct job *older, *newer; /* in the queue of its priority */
    struct chunk *again;       /* chunks to be handed out again */
    uint32_t entry;
    uint32_t epoch;
    uint64_t generation;
    uint64_t demand_ns;                   /* of the DEMAND behind it, 0: none */
    uint64_t taken_ns, first_ns, last_ns; /* taken, first submission, last completion */
    uint64_t bytes;                       /* of all runs */
    uint64_t run_cut;                     /* bytes of run[run_at] handed out */
    uint64_t summed;                      /* bytes of run[0] in the checksum (loader_verify.c) */
    uint32_t chunks;                      /* at the device or waiting */
    uint16_t priority, run_at, runs;
    uint16_t copy; /* of what it reads: which one (loader_copies.c) */
    bool active, restarted;
    int status; /* 0, or the errno value it will end with */
    struct msg_run run[MSG_RUNS_MAX];
};

struct jobs {
    uint32_t magic;
    uint32_t capacity, entries, depth;
    uint32_t held;
    uint32_t inflight, inflight_prefetch;
    uint64_t inflight_bytes;
    uint32_t *of_entry; /* place of the entry's job, JOB_NONE */
    struct job *job, *free;
    struct chunk *chunk, *chunk_free;
    struct job *oldest[LOAD_PRIORITIES], *newest[LOAD_PRIORITIES];
};

/* At most `capacity` jobs and `depth` chunks at the device. 0, or -1 when out of memory. */
int jobs_create(struct jobs *jobs, uint32_t entries, uint32_t capacity, uint32_t depth);
void jobs_destroy(struct jobs *jobs);

/* The job of an entry; NULL when there is none. */
struct job *jobs_find(struct jobs *jobs, uint32_t entry);

/* Pre: no job for the entry. NULL when the table is full. */
struct job *jobs_add(struct jobs *jobs, const struct msg_load *load, uint32_t epoch,
                     uint64_t now_ns);

/* Raises a job's priority (never lowers it); its chunks at the device count as the new one's. True
 * when it was lower. */
bool jobs_raise(struct jobs *jobs, struct job *job, uint16_t priority, uint64_t demand_ns);

/* The job whose chunk goes next; NULL when none may. prefetch_paused: something waits for room, and
 * prefetches give way. */
struct job *jobs_pick(struct jobs *jobs, uint64_t now_ns, bool prefetch_paused);

/* Hands out a chunk of at most chunk_bytes. Pre: jobs_pick returned the job. */
struct chunk *jobs_cut(struct jobs *jobs, struct job *job, uint64_t now_ns, uint64_t chunk_bytes);

enum chunk_fate {
    CHUNK_DONE,  /* all its bytes arrived */
    CHUNK_SHORT, /* the rest will be handed out again */
    CHUNK_RETRY, /* an error; will be handed out again after a pause */
    CHUNK_FAILED /* the job fails */
};

/* A chunk came back: result bytes or -errno; file_bytes: size of the file, which a run may pass by
 * less than a page. */
enum chunk_fate jobs_complete(struct jobs *jobs, struct chunk *chunk, int64_t result,
                              uint64_t now_ns, uint64_t file_bytes);

/* The device did not take the chunk: it goes back to its job untried. */
void jobs_put_back(struct jobs *jobs, struct chunk *chunk);

/* The job ends with `status` (an errno value) as soon as nothing of it is at the device. The first
 * status stays. */
void jobs_fail(struct jobs *jobs, struct job *job, int status);

/* Nothing of it is at the device and nothing is left to hand out. */
bool job_ended(const struct job *job);
void jobs_remove(struct jobs *jobs, struct job *job); /* Pre: job_ended */

/* Bytes from the start of run[0] that have all arrived; later ones may have, too. */
uint64_t jobs_arrived(const struct jobs *jobs, const struct job *job);

/* Everything is handed out anew. Pre: job_ended, no status, not restarted before. */
void jobs_restart(struct job *job);

/* A job that ended with a status begins anew at another copy of its file. Pre: job_ended, a status.
 */
void jobs_move(struct job *job, uint16_t copy);

/* Time until a chunk that pauses after an error is due; UINT64_MAX when none pauses. */
uint64_t jobs_pause_ns(const struct jobs *jobs, uint64_t now_ns);

/* Visits every job; the visitor may fail or remove the one it is given. */
void jobs_each(struct jobs *jobs, void (*visit)(struct job *job, void *arg), void *arg);

#endif
