/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill order: in which order the missing experts of a chunk are loaded.
 *  popularity  most tokens first, ties to the lower index (Fate §4.3)
 *  index       ascending */
#ifndef SLUICE_POLICY_ACCESS_PREFILL_H
#define SLUICE_POLICY_ACCESS_PREFILL_H

#include <stdint.h>

#include "lib/policy/choice.h"

#define PREFILL_ORDER_LIST(X)                                                                      \
    X(PREFILL_ORDER_POPULARITY, "popularity")                                                      \
    X(PREFILL_ORDER_INDEX, "index")

enum prefill_order { PREFILL_ORDER_LIST(CHOICE_ID) };

struct prefill_item {
    uint32_t expert;
    uint32_t tokens;
};

/* Sorts items[0..count-1] in place. Never allocates. */
typedef void (*prefill_order_fn)(struct prefill_item *items, uint32_t count);
/* The function that sorts in this order. */
prefill_order_fn prefill_order_of(enum prefill_order order);

#endif
