/* SPDX-License-Identifier: Apache-2.0 */
/* State that cannot be cut back (shm/kv/kv.h): which version of the recurrent state a pass reads and writes, and which
 * remain as checkpoints; and the rings of layers with a window. Nothing here applies to a model with neither. Runner
 * thread only.
 *
 * A checkpoint is a version that is not written again, so it costs its memory and that a pass ends there, and of rings a
 * copy of the windows. Without a free version, the one of the last pass is written next, then a checkpoint: of the kept
 * sequence the one with the fewest rows, of the running one that whose neighbours are nearest to each other. Rings
 * themselves are no version: a pass writes into them, and they serve rows down to kv_slot.lowest. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_STATE_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct runner;
struct kv_request;

#define STATE_NONE UINT32_MAX

/* At the start of compute, with valid slots: frees versions that no slot can use. */
void state_check(const struct runner *r);

/* The largest number of rows up to `wanted` to which the slot's state of `rows` rows can be cut. */
uint32_t state_cut(const struct runner *r, uint32_t slot, uint32_t rows, uint32_t wanted);

/* Bytes of the version without which the slot has no state of `rows` rows; 0: it needs none. */
uint64_t state_needed(const struct runner *r, uint32_t slot, uint32_t rows);

/* Frees the slot's versions of more than `rows` rows, and their memory; 0: all. Not during a pass: also what
 * one that failed was writing. */
void state_drop(const struct runner *r, uint32_t slot, uint32_t rows);

/* Of `rows` rows from `position` on, how many a pass may compute: it ends where the next checkpoint is. */
uint32_t state_rows(const struct runner *r, const struct kv_request *q, uint32_t position,
                    uint32_t rows);

/* Before a pass of `rows` rows: the recurrent states that it reads (NULL: the sequence begins, or there is none) and
 * writes; the rings have the window at `position`. -1 with *error: no memory. After it, and before kv_valid is stored:
 * the written version is that of `rows` rows in all. */
struct state_pass {
    const void *before;
    void *after;
    uint32_t version;
};
int state_begin(struct runner *r, uint32_t slot, const struct kv_request *q, uint32_t position,
                uint32_t rows, struct state_pass *pass, struct error *error);
void state_end(const struct runner *r, uint32_t slot, const struct kv_request *q,
               const struct state_pass *pass, uint32_t rows);

/* Of the sequence in the slot, which ends, `rows` rows are kept: marks their state as a checkpoint, and
 * frees those of more rows, then others until those of the slot have at most `bytes`. */
void state_keep(const struct runner *r, uint32_t slot, uint32_t rows, uint64_t bytes);

/* Memory of the slot's versions; STATE_NONE: of all. */
uint64_t state_bytes(const struct runner *r, uint32_t slot);

#endif
