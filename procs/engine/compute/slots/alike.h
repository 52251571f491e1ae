/* SPDX-License-Identifier: Apache-2.0 */
/* Finds how much of a prompt the slots have: those that are kept, and those that run, which will
 * have more of it. The runner thread only. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_ALIKE_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_ALIKE_H

#include <stdatomic.h>
#include <stdint.h>

struct slots;
struct kv_request;

/* How many of the `rows` kept rows are those of a log of `tokens` tokens (at least one): the common
 * prefix. The last token is always computed, for its logits. Pure. */
uint32_t alike_prefix(const _Atomic uint32_t *kept, uint32_t rows, const _Atomic uint32_t *log,
                      uint32_t tokens);

/* How many of the tokens of a request that may use kept rows a slot has rows of. */
uint32_t alike_common(const struct slots *p, uint32_t slot, const struct kv_request *q,
                      const _Atomic uint32_t *log);

/* The rows with which the request would begin now: those of the slot that gives most. */
uint32_t alike_rows(const struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log);

/* More rows than a running slot has, which the request can take when that slot has so many; 0: it
 * computes none of them. alike_await: the request will wait for so many. Its state is kept there,
 * where it must be. */
uint32_t alike_gives(const struct slots *p, uint32_t slot, const struct kv_request *q,
                     const _Atomic uint32_t *log);
void alike_await(struct slots *p, uint32_t slot, uint32_t rows);

#endif
