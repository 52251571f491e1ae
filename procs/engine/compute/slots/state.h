/* SPDX-License-Identifier: Apache-2.0 */
/* State that cannot be cut back (shm/kv/kv.h): which version of the recurrent state a pass reads
 * and writes, and which remain as checkpoints; and the rings of layers with a window. Nothing here
 * applies to a model with neither.
 *
 * A checkpoint is a version that is not written again, so it costs its memory and that a pass ends
 * there, and of rings a copy of the windows. Which version is written next, and where checkpoints
 * are: lib/policy/reuse. Rings themselves are no version: a pass writes into them, and they serve
 * rows down to kv_slot.lowest. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_STATE_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct slots;
struct kv_request;

#define STATE_NONE UINT32_MAX

/* At the start of compute, with valid slots: frees versions that no slot can use. */
void state_check(struct slots *p);

/* The largest number of rows up to `wanted` to which the slot's state of `rows` rows can be cut. */
uint32_t state_cut(const struct slots *p, uint32_t slot, uint32_t rows, uint32_t wanted);

/* Bytes of the version without which the slot has no state of `rows` rows; 0: it needs none. */
uint64_t state_needed(const struct slots *p, uint32_t slot, uint32_t rows);

/* Frees the slot's versions of more than `rows` rows, and their memory; 0: all. Not during a pass
 * of the slot: also what one that failed was writing. */
void state_drop(struct slots *p, uint32_t slot, uint32_t rows);

/* Nobody has the version any more; its memory stays, or is freed. */
void state_forget(struct slots *p, uint32_t version);
void state_release(struct slots *p, uint32_t version);

/* Of `rows` rows from `position` on, how many a pass may compute: it ends where the next checkpoint
 * is. */
uint32_t state_rows(const struct slots *p, const struct kv_request *q, uint32_t position,
                    uint32_t rows);

/* The largest number of rows up to `wanted`, to which the state of a running sequence that has
 * `rows` can be cut when it has computed so many. state_branch: others will continue from there,
 * so that it becomes a checkpoint where it must be one. */
uint32_t state_will_cut(const struct slots *p, const struct kv_request *q, uint32_t rows,
                        uint32_t wanted);
void state_branch(struct slots *p, uint32_t slot, struct kv_request *q, uint32_t rows);

/* Before a pass of `rows` rows of a slot: the recurrent states that it reads (NULL: the sequence
 * begins, or there is none) and writes; the rings have the window at `position`. -1 with *error: no
 * memory. After it, and before kv_valid is stored: the written version is that of `rows` rows in
 * all. */
struct state_pass {
    const void *before;
    void *after;
    uint32_t version;
};
int state_begin(struct slots *p, uint32_t slot, const struct kv_request *q, uint32_t position,
                uint32_t rows, struct state_pass *pass, struct error *error);
void state_end(struct slots *p, uint32_t slot, const struct kv_request *q,
               const struct state_pass *pass, uint32_t rows);

/* Gives an empty slot, whose rows are copied, what it needs of the other one's state of `rows`
 * rows, to which that one can be cut. state_version: the version of these rows; STATE_NONE. -1 with
 * *error: no memory. */
uint32_t state_version(const struct slots *p, uint32_t slot, uint32_t rows);
int state_copy(struct slots *p, uint32_t from, uint32_t to, uint32_t rows, struct error *error);

/* Memory for a version of the slot, whose sequence waits, that is read from storage; nobody takes
 * it until it is loaded, or dropped. STATE_NONE: there is none. */
uint32_t state_reserve(struct slots *p, uint32_t slot);
/* It is complete: a checkpoint of `rows` rows, and rings are restored from it. */
void state_loaded(struct slots *p, uint32_t slot, uint32_t version, uint32_t rows);

/* Of the sequence in the slot, which ends, `rows` rows are kept: marks their state as a checkpoint,
 * and frees those of more rows, then others until those of the slot have at most `bytes`. */
void state_keep(struct slots *p, uint32_t slot, uint32_t rows, uint64_t bytes);

/* Memory of the slot's versions; STATE_NONE: of all. */
uint64_t state_bytes(const struct slots *p, uint32_t slot);

#endif
