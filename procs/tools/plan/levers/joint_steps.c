/* SPDX-License-Identifier: Apache-2.0 */
/* The levers of mixed-two-resident-first, and their steps. */
#include "procs/tools/plan/levers/joint_steps.h"

#include <math.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

#define LOWEST 0     /* T1: all ranks but the first are low */
#define BELOW  0.999 /* of the least weight of the first rank, as thresholds_search */

static const double widths[] = {0, 0.5, 0.75, 1};
static const double tiers[] = {1, 0.85, 0.75, 0.5, 0.375, LOWEST};
static const double skips[] = {1, 0.9, 0.85, 0.8, 0.75};
static const double nats[] = {0, 0.2, 0.4, 0.6, 0.8, 1.2};
static const uint32_t steps[LEVERS] = {ARRAY_LEN(widths), ARRAY_LEN(tiers), ARRAY_LEN(skips),
                                       ARRAY_LEN(nats)};

struct point point_edgemoe(void)
{
    return (struct point){.at = {[WIDTHS] = ARRAY_LEN(widths) - 1}};
}

double point_share(const struct point *x)
{
    return widths[x->at[WIDTHS]];
}

double point_t1(const struct point *x, uint32_t ranks)
{
    double t1 = tiers[x->at[TIER]];
    return t1 > LOWEST ? fmin(t1, point_t2(x)) : BELOW / ranks;
}

double point_t2(const struct point *x)
{
    return skips[x->at[SKIPPING]];
}

double point_nats(const struct point *x)
{
    return nats[x->at[ROUTING]];
}

bool point_step(struct point *x, enum lever lever, uint32_t ranks)
{
    double t1 = point_t1(x, ranks);
    do {
        if (++x->at[lever] >= steps[lever])
            return false;
    } while (lever == TIER && point_t1(x, ranks) >= t1);
    return true;
}

int way_last_good(uint32_t from, uint32_t count, uint32_t first, uint32_t *more, way_judge judge,
                  void *user, struct error *error)
{
    uint32_t good = from, bad = count, next = first + 1, known = 0; /* good: points up to it */
    bool within = false;
    sl_assert(count <= 32);
    if (next <= good || next > bad)
        next = good + (bad - good + 1) / 2;
    for (; good < bad; next = good + (bad - good + 1) / 2) {
        if (judge(user, next - 1, &within, error) != 0)
            return -1;
        known |= UINT32_C(1) << (next - 1);
        *(within ? &good : &bad) = within ? next : next - 1;
    }
    within = false;
    for (uint32_t at = count; at > good && *more > 0 && !within; at--) {
        if (known >> (at - 1) & 1)
            continue;
        if (judge(user, at - 1, &within, error) != 0)
            return -1;
        --*more;
    }
    return 0;
}
