/* SPDX-License-Identifier: Apache-2.0 */
/* The share of the experts that a budget holds, which a measured loss, and the predictions of the
 * preset auto, are for. */
#include <math.h>

#include "lib/model/index/capacity.h"
#include "procs/engine/supervisor/budget/budget.h"
#include "procs/engine/supervisor/supervisor.h"

/* Of the bytes that a plan's shares are of: those of the model that it was made for. A store may
 * have fewer, of lower precisions. */
double budget_share_of(const struct supervisor *s, uint64_t bytes)
{
    double all = (double)s->model->expert_bytes;
    if ((double)bytes >= all) /* nothing is missing, whatever the precisions are */
        return 1;
    bool known = s->plan && plan_knows(s->plan, PLAN_experts_bytes);
    return (double)bytes / (known ? fmax(all, s->plan->scalar[PLAN_experts_bytes]) : all);
}

double budget_share(const struct supervisor *s, uint64_t quota)
{
    return budget_share_of(s, capacity_slot_bytes(s->model, quota, s->budget.experts_max));
}

double budget_share_now(const struct supervisor *s)
{
    const struct budget *b = &s->budget;
    uint64_t quota = b->quota ? b->quota : b->ledger.quota;
    return budget_share(s, b->facts.lent_bytes > 0 ? ledger_unlent(&b->facts).quota : quota);
}
