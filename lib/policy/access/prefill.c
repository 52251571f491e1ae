/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the missing experts of a chunk by the chosen order. */
#include "lib/policy/access/prefill.h"

#include <stdbool.h>

typedef bool (*before_fn)(const struct prefill_item *a, const struct prefill_item *b);

static bool more_tokens(const struct prefill_item *a, const struct prefill_item *b)
{
    return a->tokens != b->tokens ? a->tokens > b->tokens : a->expert < b->expert;
}

static bool lower_index(const struct prefill_item *a, const struct prefill_item *b)
{
    return a->expert < b->expert;
}

/* Insertion sort by halving gaps: a layer has at most some thousand experts, and unlike qsort it
 * never allocates. Both orders are total, so stability does not matter. */
static void sort(struct prefill_item *items, uint32_t count, before_fn before)
{
    uint32_t gap = 1;
    while (gap < count / 3)
        gap = gap * 3 + 1;
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < count; i++) {
            struct prefill_item item = items[i];
            uint32_t at = i;
            for (; at >= gap && before(&item, &items[at - gap]); at -= gap)
                items[at] = items[at - gap];
            items[at] = item;
        }
    }
}

static void popularity(struct prefill_item *items, uint32_t count)
{
    sort(items, count, more_tokens);
}

static void by_index(struct prefill_item *items, uint32_t count)
{
    sort(items, count, lower_index);
}

prefill_order_fn prefill_order_of(enum prefill_order order)
{
    return order == PREFILL_ORDER_POPULARITY ? popularity : by_index;
}
