/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what memory is worth to kept prefixes and to experts, and wishes for memory of the
 * experts accordingly (lib/policy/reuse/balance.h): what prompts took from kept rows, what they
 * would have taken from rows that were given up, and how long passes waited for experts. The
 * supervisor moves the memory. The runner thread only. */
#ifndef SLUICE_ENGINE_COMPUTE_SLOTS_WORTH_H
#define SLUICE_ENGINE_COMPUTE_SLOTS_WORTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/policy/reuse/balance.h"

struct slots;
struct kv_request;

/* Prefixes that were given up, which are remembered by hashes of their tokens. */
#define WORTH_GHOSTS 16u

struct ghost {
    uint64_t bytes, cost_ns;
    uint32_t tiles; /* 0: none */
    uint32_t rows, used;
};

struct worth {
    struct balance balance;
    struct ghost ghost[WORTH_GHOSTS];
    uint32_t
        *hash;    /* [WORTH_GHOSTS + 1][tiles of a context]: of the tokens up to each; the last row
                     * is that of the prompt being compared. NULL: nothing is measured */
    bool counted; /* something since the last decision */
    uint64_t next_ns, stall_ns, misses, near_misses; /* next decision; counters at the last one */
};

/* Memory for a context, before compute is READY: WORTH_BYTES(context) at most. -1 with *error. */
#define WORTH_BYTES(context)                                                                       \
    ((uint64_t)(WORTH_GHOSTS + 1) * ((context) / 64 + 1) * sizeof(uint32_t))
int worth_open(struct slots *p, struct error *error);

/* A kept slot is about to lose rows because others need its memory. */
void worth_given_up(struct slots *p, uint32_t slot);

/* Nothing is left of prefixes that were given up. */
void worth_forget(struct slots *p);

/* A prompt will take rows of a kept slot: while all is as before. worth_lacks: it begins with
 * `rows` rows, and might have found more. */
void worth_takes(struct slots *p, uint32_t slot, uint32_t rows);
void worth_lacks(struct slots *p, const struct kv_request *q, const _Atomic uint32_t *log,
                 uint32_t rows);

/* Between passes: decides now and then, and publishes the wish (kv_wanted_bytes). */
void worth_tick(struct slots *p, uint64_t now_ns);

#endif
