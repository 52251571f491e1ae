/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values that outlive their sequence: the slots of the KV segment. Those that running
 * sequences do not need keep ended ones; which, lib/policy/reuse decides. A prompt that begins with
 * the tokens of a kept one takes its slot and computes the rest. By row invariance
 * (lib/kernels/kernels.h) the rows have the bits that the prompt itself would get, so the text is
 * the same.
 *
 * Running slots together never have more memory than the pool, which the ledger reserves (room.h,
 * runner/memory.h); kept ones also use spare memory, which experts do not need. With a recurrent
 * state, a prompt continues from one of its checkpoints (state.h). */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_KEPT_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_KEPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

struct slots;
struct kv_request;

#define KEPT_NONE UINT32_MAX /* no slot */

/* At the start of compute: empties slots whose fields contradict each other or the request table,
 * and finishes what a predecessor left. */
void kept_check(struct slots *p);

/* Frees all that a slot has; of a kept one, at least so many bytes of its last rows. */
void kept_empty(struct slots *p, uint32_t slot);
void kept_cut(struct slots *p, uint32_t slot, uint64_t bytes);
/* Frees all kept ones. */
void kept_clear(struct slots *p);

/* Sets the counters of memory: the ledger takes blocks of the segment that they leave out for token
 * logs. */
void kept_publish(const struct slots *p);

/* Whether the request may use kept rows, and leave its own. */
bool kept_may(const struct slots *p, const struct kv_request *q);

/* Whether it is a side request that runs on rows of a conversation, the first kv_slot.rows of the
 * slot: it only adds to them, and kept_end gives them back. */
bool kept_borrows(const struct slots *p, uint32_t slot, const struct kv_request *q);

/* The slot that a request got from a predecessor of this compute; KEPT_NONE: none. */
uint32_t kept_owned(const struct slots *p, const struct kv_request *q);

/* The slot of a RUNNING request: its own after a restart of compute, else the one with the longest
 * usable prefix, else an empty one. Sets kv_valid to the rows that are there. */
uint32_t kept_take(struct slots *p, struct kv_request *q, const _Atomic uint32_t *log);

/* Memory for `tokens` positions; kept slots yield. -1 with *error, and the slot is as before.
 * ERR_BUSY: running sequences have the memory; it may be tried again when one of them has ended. A
 * sequence that runs alone always gets it. */
int kept_resize(struct slots *p, uint32_t slot, uint32_t tokens, struct error *error);

/* Frees what is beyond `tokens` positions. */
void kept_trim(struct slots *p, uint32_t slot, uint32_t tokens);

/* Whether kept_resize would find memory. kept_admits: for a request that has no slot yet, which may
 * share that of a running sequence, and beside which others may take `promised` bytes. */
bool kept_fits(const struct slots *p, uint32_t slot, uint32_t tokens);
bool kept_admits(const struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log,
                 uint32_t tokens, uint64_t promised);

/* Memory of a slot for `tokens` positions that shares `rows` rows with another one: what it has
 * alone. kept_promise: with its states. kept_has_room: whether a new slot finds so many bytes, but
 * its states, beside what running ones have. */
uint64_t kept_bytes_beside(const struct slots *p, uint32_t tokens, uint32_t rows);
uint64_t kept_promise(const struct slots *p, uint32_t tokens, uint32_t rows);
bool kept_has_room(const struct slots *p, uint64_t bytes);

/* Rows from `rows` on will be written: the slot of a RUNNING request no longer shares memory of
 * them. -1 with *error: as kept_resize, and the slot has memory for `rows` rows only. */
int kept_own(struct slots *p, uint32_t slot, uint32_t rows, struct error *error);

/* The request ends: its rows are kept, if they may be (`keep`), else freed. Before the end state of
 * the request is stored. */
void kept_end(struct slots *p, uint32_t slot, const struct kv_request *q,
              const _Atomic uint32_t *log, bool keep);

#endif
