/* SPDX-License-Identifier: Apache-2.0 */
/* Adds ranges to a list, and checks that a list is in order. */
#include "lib/text/ranges.h"

#include <stdlib.h>

#include "lib/base/assert.h"

static struct text_range all = {0, UINT32_MAX};
const struct text_ranges text_ranges_all = {&all, 1};

int text_ranges_add(struct text_ranges *r, size_t from, size_t to)
{
    struct text_range *last = r->count ? &r->at[r->count - 1] : NULL;
    sl_assert(from <= to && to <= UINT32_MAX && (!last || last->to <= from));
    if (from == to)
        return 0;
    if (last && last->to == from) {
        last->to = (uint32_t)to;
        return 0;
    }
    if ((r->count & (r->count - 1)) == 0) { /* full at 0, 1, 2, 4, ... */
        struct text_range *more = reallocarray(r->at, r->count ? 2 * r->count : 1, sizeof *more);
        if (!more)
            return -1;
        r->at = more;
    }
    r->at[r->count++] = (struct text_range){(uint32_t)from, (uint32_t)to};
    return 0;
}

void text_ranges_free(struct text_ranges *r)
{
    free(r->at);
    *r = (struct text_ranges){0};
}

bool text_ranges_valid(const struct text_ranges *r, size_t bytes)
{
    uint64_t minimum = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->at[i].from < minimum || r->at[i].to <= r->at[i].from)
            return false;
        minimum = (uint64_t)r->at[i].to + 1;
    }
    return r->count == 0 || r->at[r->count - 1].to <= bytes;
}
