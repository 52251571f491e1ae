/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of keys, values and states of the sequences that run, which share the pool (slots/room.h):
 * each takes more of it as it grows.
 *
 * A sequence that cannot grow makes those after it (schedule_turn: in order of arrival, side
 * requests later) give their slots up, the last first; they wait, and compute their tokens again
 * once another one has ended. So the first one always continues, nothing fails, and the text is the
 * same.
 *
 * A sequence that begins like an earlier one, which computes these tokens now, follows it: it has
 * no slot before that one has the rows (schedule_leader), or ends, or gives its memory up. Its
 * memory is promised: no later request gets it. Runner thread only. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_MEMORY_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kv_request;
struct runner;
struct sequence;

/* Whether a request that is queued finds memory for its log, and no sequence that runs waits for
 * some. */
bool memory_admits(const struct runner *r, const struct kv_request *q, const _Atomic uint32_t *log);

/* Whether a sequence without a slot waits for rows that another one computes. */
bool memory_follows(struct runner *r, struct sequence *s);

/* Before a pass: whether the sequence has a slot that can hold its log. False: it waits, or it
 * failed and has no request any more. To be called in order of turn, because it may take the slots
 * of later ones. */
bool memory_ready(struct runner *r, struct sequence *s);

#endif
