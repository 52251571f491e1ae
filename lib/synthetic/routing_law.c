/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the row of a number of experts. */
#include "lib/synthetic/routing_law.h"

#include <stddef.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

static const struct routing_law laws[] = {
#define LAW(...) {__VA_ARGS__},
#include "lib/synthetic/routing_laws.tbl.h"
};

static double ratio(uint32_t a, uint32_t b)
{
    return a > b ? (double)a / b : (double)b / a;
}

static uint32_t difference(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

const struct routing_law *routing_law_of(uint32_t experts, uint32_t used)
{
    const struct routing_law *best = &laws[0];
    sl_assert(experts > 0);
    for (size_t i = 1; i < ARRAY_LEN(laws); i++) {
        const struct routing_law *law = &laws[i];
        double nearer = ratio(best->experts, experts) - ratio(law->experts, experts);
        uint32_t off = difference(law->used, used), best_off = difference(best->used, used);
        if (nearer > 0 || (law->experts == best->experts && off < best_off))
            best = law;
    }
    return best;
}
