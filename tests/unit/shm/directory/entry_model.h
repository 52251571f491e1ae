/* SPDX-License-Identifier: Apache-2.0 */
/* The model the checker searches: the processes around the entry word, as small state machines over
 * one plain struct. The word is changed only by functions of shm/directory/entry.c, one atomic
 * operation at a time. shm/README.md describes the same actors under the same names.
 *
 * The model allows more than reality, so that a pass is a stronger result:
 *  - a message, once sent, may arrive at any later time, any number of times, in any order, or
 *    never;
 *  - a read a dead loader left at the device may land any number of times until its page is
 *    punched;
 *  - every process may be killed between any two atomic operations. */
#ifndef SLUICE_TESTS_UNIT_SHM_DIRECTORY_ENTRY_MODEL_H
#define SLUICE_TESTS_UNIT_SHM_DIRECTORY_ENTRY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/shm/directory/entry_ops.h"

#define ENTRIES     2
#define SLOTS_MAX   2
#define CHUNKS_MAX  2
#define LOADERS_MAX 2
#define JOBS        2
#define NONE        0xff

/* ---- bounds and faults of one search */
struct model {
    const char *name;
    const struct entry_ops *ops;
    uint8_t slots, loaders, chunks; /* chunks of an entry; chunk c belongs to loader c % loaders */
    uint8_t generations;            /* maximum of reservations per entry */
    uint8_t kills;                  /* of all processes together */
    bool whole_calls; /* a function of entry.c is one step (else: an atomic operation) */
    bool unreaped;    /* adds a phase (killed, not reaped) in which a loader may do anything */
    bool liveness;    /* store the graph; check that every wait can end */
    uint64_t states_max;
    /* mutants of the order of operations; all false in the protocol */
    bool read_before_pin, publish_before_data, fail_before_completion, absent_before_punch,
        clean_killed, spawn_before_clean, sweep_after_spawn, start_without_flush, take_unchecked,
        no_punch, location_after_reserve, reject_cancelled;
};
extern const struct model *m;

/* ---- the world */
enum read_state { READ_NONE, READ_TODO, READ_CHECKED, READ_FLYING, READ_DETACHED, READ_LANDED };
struct job {
    uint8_t entry; /* NONE: free */
    uint8_t slot, generation, epoch;
    uint8_t failed, dropped;
    uint8_t read[CHUNKS_MAX]; /* enum read_state; NONE for chunks of other loaders */
};
struct call { /* a function of entry.c in progress */
    uint8_t active;
    uint8_t seen; /* packed word */
};
enum loader_phase { LOADER_UP, LOADER_KILLED, LOADER_REAPED };
struct loader {
    uint8_t phase, incarnation;
    uint8_t flush_taken, flush_replied; /* epochs */
    uint8_t call_job;
    struct call call;
    struct job job[JOBS];
};
enum cache_phase { CACHE_DEAD, CACHE_EPOCH, CACHE_FLUSH, CACHE_SETTLE, CACHE_RUN };
enum cache_op {
    OP_IDLE,
    OP_RESERVE,
    OP_LOCATE_LATE, /* mutant location_after_reserve */
    OP_EVICT,
    OP_CANCEL,
    OP_RESET,
    OP_CLEAN_READ, /* pending bits of a reaped loader, entry by entry: read, punch, doom */
    OP_CLEAN_PUNCH,
    OP_CLEAN_CLEAR,
    OP_CLEAN_RESET, /* mutant absent_before_punch */
    OP_START_READ,  /* the same for every entry at a cache's start */
    OP_START_PUNCH,
    OP_START_CLEAR,
    OP_START_RESET,
    OP_START_UNOWNED
};
struct cache {
    uint8_t phase, op, entry, loader, slot;
    uint8_t generation;       /* of the word the operation is about */
    uint8_t owner[SLOTS_MAX]; /* private memory: lost at exit, rebuilt from the directory */
    uint8_t punch_later;      /* slots; mutant absent_before_punch */
    struct call call;
};
enum compute_phase { COMPUTE_UP, COMPUTE_DEAD };
enum compute_stage { STAGE_IDLE, STAGE_CHECKED, STAGE_WAITING, STAGE_READING };
struct compute {
    uint8_t phase, stage, want;
    uint8_t sweep_next; /* entry the supervisor sweeps next; NONE: no sweep in progress */
    struct call sweep;
};
struct world {
    uint8_t word[ENTRIES]; /* packed */
    uint8_t location[ENTRIES];
    uint8_t content[SLOTS_MAX][CHUNKS_MAX]; /* 0: zero or stale, else entry + 1 */
    uint8_t orphans;   /* bit per entry, slot, chunk: a read of a reaped loader that may land */
    uint8_t uncleaned; /* bit per loader: reaped and not yet acknowledged by the cache */
    uint8_t epoch, flush_sent;
    uint8_t kills;
    uint8_t evicted_pinned; /* a step evicted a pinned READY entry */
    struct loader loader[LOADERS_MAX];
    struct cache cache;
    struct compute compute;
    uint64_t sent[LOADERS_MAX]; /* LOADs that may arrive: a bit per entry, slot, gen, epoch, inc */
};

/* ---- words (entry_model_words.c): 8 bits in the model, 64 in entry.c */
uint64_t unpack(uint8_t packed);
uint8_t pack(uint64_t word);
/* Runs one step of a function of entry.c on a word of the model; true when the function returned
 * (its result is in *result). */
enum entry_fn { FN_RESERVE, FN_DONE, FN_FAIL, FN_DOOM, FN_RESET, FN_EVICT, FN_SWEEP };
struct fn_args {
    enum entry_fn fn;
    uint64_t generation;
    uint32_t bits;
};
bool call_step(struct world *w, uint8_t entry, struct call *call, struct fn_args args, int *result);
uint64_t step_read(struct world *w, uint8_t entry);
uint64_t step_pin(struct world *w, uint8_t entry, bool set);

/* ---- actors: takes step `choice` of the actor in *w; false when it is not possible now. Choices
 * are numbered from 0. *what is the text for traces. */
extern const char *what;
extern bool what_is_a_fault; /* the step was a kill, or compute gave up */
unsigned loader_choices(void);
bool loader_step(struct world *w, unsigned loader, unsigned choice);
unsigned storage_choices(void);
bool storage_step(struct world *w, unsigned choice);
unsigned cache_choices(void);
bool cache_step(struct world *w, unsigned choice);
unsigned compute_choices(void);
bool compute_step(struct world *w, unsigned choice);
unsigned supervisor_choices(void); /* kills, reaps, sweeps, spawns */
bool supervisor_step(struct world *w, unsigned choice);

void loader_reap(struct world *w, unsigned loader);
void loader_spawn(struct world *w, unsigned loader);
void punch_slot(struct world *w, uint8_t slot);
unsigned load_bit(uint8_t entry, uint8_t slot, uint8_t generation, uint8_t epoch, uint8_t inc);
uint8_t loader_bits(void); /* pending bits of the loaders that have chunks */
void world_start(struct world *w);
void world_normal(struct world *w);           /* normal form: equal worlds get equal bytes */
const char *world_bad(const struct world *w); /* NULL when every invariant holds */

/* ---- search (entry_model_search.c) */
struct search_result {
    uint64_t states, steps, reading; /* states, transitions, states in which compute reads */
    uint32_t depth;
    const char *violation; /* NULL: none */
    bool complete;         /* false: the search stopped at states_max */
    double seconds;
};
/* Breadth-first over everything reachable. trace: print the steps to a violation. */
void model_search(const struct model *model, bool trace, struct search_result *result);

#endif
