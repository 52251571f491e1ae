/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool: one context and some states, which running sequences share, and kept ones
 * lend. Kept ones yield first, then checkpoints of running ones; which, lib/policy/reuse
 * decides. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_ROOM_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct slots;

/* Room for `bytes` of keys and values in a slot, in all. -1 with ERR_BUSY: running
 * sequences have the rest; it may be tried again when one of them has ended. */
int room_for_rows(struct slots *p, uint32_t slot, uint64_t bytes, struct error *error);

/* The version that the next pass of a slot writes; the one of `end` rows stays. REUSE_NONE: running
 * sequences need all, which happens to checkpoints of windows only. */
uint32_t room_for_version(struct slots *p, uint32_t slot, uint32_t end);

/* An empty slot; without one, a kept one is given up. REUSE_NONE: all run. */
uint32_t room_for_sequence(struct slots *p);

/* Between passes: gives up what was spare memory and is needed by experts now. */
void room_return(struct slots *p);

/* /dev/shm is full, although the pool is not: gives up what is worth least per byte of what is kept
 * but in slot `except`, at most about so many bytes, so that an allocation of them can be tried
 * again. False: nothing is kept. */
bool room_from_kept(struct slots *p, uint32_t except, uint64_t bytes);

/* At most `most` slots are kept, with at most so many bytes. */
void room_limit_kept(struct slots *p, uint32_t most, uint64_t bytes);

#endif
