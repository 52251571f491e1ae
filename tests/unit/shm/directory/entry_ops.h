/* SPDX-License-Identifier: Apache-2.0 */
/* The entry word's functions as a table, so that the model checker can run the real
 * shm/directory/entry.c and patched copies of it side by side (entry_variant.c makes one table per
 * copy). */
#ifndef SLUICE_TESTS_UNIT_SHM_DIRECTORY_ENTRY_OPS_H
#define SLUICE_TESTS_UNIT_SHM_DIRECTORY_ENTRY_OPS_H

#include "shm/directory/entry.h"

struct entry_ops {
    uint64_t (*read_word)(entry_word *);
    bool (*reserve)(entry_word *, uint32_t, uint64_t *);
    enum shard_result (*done)(entry_word *, uint64_t, unsigned);
    enum shard_result (*fail)(entry_word *, uint64_t, unsigned);
    bool (*wants)(uint64_t, uint64_t, unsigned);
    bool (*pending)(uint64_t, uint64_t, unsigned);
    bool (*doom)(entry_word *, uint64_t, uint32_t);
    bool (*reset)(entry_word *);
    bool (*evict)(entry_word *);
    uint64_t (*pin)(entry_word *, enum entry_pinner);
    uint64_t (*unpin)(entry_word *, enum entry_pinner);
    void (*sweep)(entry_word *, enum entry_pinner);
};

#define ENTRY_VARIANTS(X)                                                                          \
    X(real)                                                                                        \
    X(evict_pinned)                                                                                \
    X(done_revives)                                                                                \
    X(swap_is_a_store)                                                                             \
    X(first_shard_publishes)

#define X(name) extern const struct entry_ops entry_ops_##name;
ENTRY_VARIANTS(X)
#undef X

/* One run of a function of entry.c, at most `budget` atomic operations long. With `replay`, its
 * first load returns the earlier value again; the operation beyond the budget ends the run. */
struct shim_run {
    bool replay;
    unsigned budget;
    uint64_t seen;    /* the last value an operation returned */
    bool unfinished;  /* it requested one more operation */
    uint64_t desired; /* of the requested operation, to compare replays */
};
extern struct shim_run shim;

uint64_t shim_load(entry_word *word);
bool shim_cas(entry_word *word, uint64_t *seen, uint64_t next);
uint64_t shim_or(entry_word *word, uint64_t bits);
uint64_t shim_and(entry_word *word, uint64_t bits);
bool shim_store(entry_word *word, uint64_t next); /* called by the mutant swap_is_a_store */

#endif
