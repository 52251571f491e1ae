/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes a cache file: it locks it, reads the heads of its slots, and then copies
 * experts from the arena into slots, with one buffer, idle I/O priority and direct I/O. The
 * loader's thread hands over numbers only and never waits.
 *
 * It reads the arena by its descriptor, not by an address: a page that was punched meanwhile must
 * not come back. The entry word, read before and after, shows that the copy is the expert's: a
 * range is punched only after its entry has left READY or LOADING. */
#ifndef SLUICE_ENGINE_LOADER_CACHE_WRITER_H
#define SLUICE_ENGINE_LOADER_CACHE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "procs/engine/loader/cache/index.h"
#include "procs/engine/loader/cache/slots.h"
#include "shm/directory/entry.h"

#define FILL_RUNS_MAX 3
#define FILLS_MAX     32 /* that wait */

enum writer_state {
    WRITER_STARTING, /* it locks the file and reads heads */
    WRITER_READY,    /* `found` is complete; fills are written */
    WRITER_BUSY,     /* another process has the file */
    WRITER_OTHER,    /* it is no cache file */
    WRITER_FAILED    /* error_number; nothing is written any more, slots may be read */
};

struct fill_run {
    uint64_t arena_offset, bytes;
};

struct fill {
    uint32_t entry, slot;
    uint64_t generation, stamp, bytes;
    entry_word *word;
    uint32_t runs;
    bool evicts; /* the slot has something */
    bool begins; /* no expert: the file begins again without slots, with `identity` in its head;
                  * slot: INDEX_NONE */
    uint64_t identity;
    struct fill_run run[FILL_RUNS_MAX];
};

struct filled {
    uint32_t slot;
    enum { FILL_WRITTEN, FILL_DROPPED, FILL_FAILED } result; /* dropped: the slot is as before */
    uint64_t sum, bytes;
};

struct writer_file {
    int fd;       /* to be written; the writer's */
    int arena_fd; /* borrowed */
    unsigned loader;
    uint32_t slots;
    struct cache_head head; /* sealed */
};

struct writer;

/* Starts the thread. When this returns, it has its priorities and needs no further system calls
 * than those of the profile. NULL with ERR_NO_MEMORY or ERR_FAILED; fd is closed then, too. */
struct writer *writer_start(const struct writer_file *file, struct error *error);

enum writer_state writer_state(const struct writer *w);
int writer_errno(const struct writer *w);        /* of WRITER_FAILED */
uint32_t writer_checked(const struct writer *w); /* heads that were read */
/* Of the file that the slots are of, once it was WRITER_READY and before a fill begins it again. */
uint64_t writer_identity(const struct writer *w);

/* What the slots have, once it was WRITER_READY. The caller frees it; later calls return NULL. */
struct index_found *writer_take_found(struct writer *w, uint32_t *count);

/* Fills that the queue has room for. */
uint32_t writer_room(const struct writer *w);
/* Pre: room. */
void writer_give(struct writer *w, const struct fill *fill);
/* A fill that ended, in the order of their submission. False: none. */
bool writer_take(struct writer *w, struct filled *filled);

#endif
