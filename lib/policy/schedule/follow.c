/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the sequence that another one waits for, to take rows from it instead of computing
 * them. */
#include "lib/policy/schedule/schedule.h"

/* Fewer rows are computed sooner than waited for. */
static uint32_t least_saved(const struct schedule_pace *pace)
{
    double rows = schedule_pace_pass_rows(pace);
    return rows <= SCHEDULE_FOLLOW_LEAST  ? SCHEDULE_FOLLOW_LEAST
           : rows >= SCHEDULE_FOLLOW_MOST ? SCHEDULE_FOLLOW_MOST
                                          : (uint32_t)rows;
}

/* One with fewer rows than the other would begin with reaches them later. */
static bool may_lead(const struct schedule_leader *l, const struct schedule_follower *f,
                     uint32_t least)
{
    return l->turn < f->turn && (!l->side || f->side) && l->rows >= f->rows && l->gives > l->rows &&
           l->gives - f->rows >= least;
}

uint32_t schedule_leader(const struct schedule_leader *leaders, uint32_t count,
                         const struct schedule_follower *f, const struct schedule_pace *pace)
{
    uint32_t best = SCHEDULE_NONE, least = least_saved(pace);
    for (uint32_t i = 0; i < count; i++) {
        const struct schedule_leader *l = &leaders[i];
        if (!may_lead(l, f, least))
            continue;
        if (best == SCHEDULE_NONE || l->gives > leaders[best].gives ||
            (l->gives == leaders[best].gives && l->turn < leaders[best].turn))
            best = i;
    }
    return best;
}
