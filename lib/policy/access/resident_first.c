/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses resident experts instead of missing ones that are little better. */
#include "lib/policy/access/resident_first.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/policy/access/precision.h"

/* ---- candidates ------------------------------------------------------------------------------ */

static bool in_exact(const struct route *exact, uint32_t top_k, uint32_t expert)
{
    for (uint32_t i = 0; i < top_k; i++)
        if (exact[i].expert == expert)
            return true;
    return false;
}

/* After those that are at least as good; the exact choice, before `from`, keeps its order. */
static void insert(struct routing_candidate *out, uint32_t from, uint32_t count,
                   struct routing_candidate add)
{
    uint32_t at = count;
    for (; at > from && out[at - 1].margin < add.margin; at--)
        out[at] = out[at - 1];
    out[at] = add;
}

uint32_t resident_first_candidates(const struct model_router *r, const float *logits,
                                   const struct route *exact, float nats, float *scratch,
                                   struct routing_candidate *out)
{
    float *margin = scratch, *score = scratch + r->experts, *more = scratch + 2 * r->experts;
    float least = INFINITY;
    uint32_t count = 0;
    routing_margins(r, logits, more, margin);
    if (r->groups > 1)
        routing_scores(r, logits, more, more + r->experts, score);
    for (; count < r->top_k; count++) {
        out[count] = (struct routing_candidate){exact[count].expert, margin[exact[count].expert]};
        least = out[count].margin < least ? out[count].margin : least;
    }
    for (uint32_t e = 0; e < r->experts; e++) {
        if (logits[e] == -INFINITY || !(margin[e] + nats >= least) ||
            (r->groups > 1 && score[e] == -INFINITY) || in_exact(exact, r->top_k, e))
            continue;
        insert(out, r->top_k, count++, (struct routing_candidate){e, margin[e]});
    }
    return count;
}

/* ---- choice ---------------------------------------------------------------------------------- */

#define STAYS UINT32_MAX

/* The worst missing expert of the exact choice that was not replaced; UINT32_MAX: none. Of equally
 * bad ones the last by rank. */
static uint32_t worst_missing(const struct resident_first *rule, const struct routing_candidate *c,
                              uint32_t top_k, const bool *resident, const bool *replaced)
{
    uint32_t worst = STAYS;
    for (uint32_t i = rule->exact_ranks; i < top_k; i++)
        if (!resident[i] && !replaced[i] && (worst == STAYS || c[i].margin <= c[worst].margin))
            worst = i;
    return worst;
}

uint32_t resident_first_choose(const struct resident_first *rule, const struct routing_candidate *c,
                               uint32_t count, uint32_t top_k, const bool *resident,
                               uint32_t *expert)
{
    bool replaced[MODEL_TOP_K_MAX] = {false};
    uint32_t taken[MODEL_TOP_K_MAX], replacements = 0, n = 0;
    sl_assert(top_k <= MODEL_TOP_K_MAX && top_k <= count);
    for (uint32_t j = top_k; j < count && rule->nats > 0; j++) {
        uint32_t worst = worst_missing(rule, c, top_k, resident, replaced);
        if (worst == STAYS || !(c[j].margin + rule->nats >= c[worst].margin))
            break;
        if (!resident[j])
            continue;
        replaced[worst] = true;
        taken[replacements++] = c[j].expert;
    }
    for (uint32_t i = 0; i < top_k; i++)
        if (!replaced[i])
            expert[n++] = c[i].expert;
    for (uint32_t i = 0; i < replacements; i++)
        expert[n++] = taken[i];
    return replacements;
}

/* ---- a row ----------------------------------------------------------------------------------- */

bool resident_first_work_create(struct resident_first_work *w, uint32_t experts)
{
    w->candidate = calloc(experts, sizeof *w->candidate);
    w->resident = calloc(experts, sizeof *w->resident);
    w->scratch = calloc(RESIDENT_FIRST_SCRATCH(experts), sizeof *w->scratch);
    if (w->candidate && w->resident && w->scratch)
        return true;
    resident_first_work_free(w);
    return false;
}

void resident_first_work_free(struct resident_first_work *w)
{
    free(w->candidate);
    free(w->resident);
    free(w->scratch);
    *w = (struct resident_first_work){0};
}

uint32_t resident_first_row(const struct resident_first *rule, const struct model_router *r,
                            const float *logits, resident_first_asks *asks, void *arg,
                            struct resident_first_work *w, struct route *routes)
{
    float before[MODEL_TOP_K_MAX];
    if (!(rule->nats > 0))
        return 0;
    uint32_t missing = 0, expert[MODEL_TOP_K_MAX], k = r->top_k;
    precision_weights_before(&routes->weight, ROUTE_STRIDE, k, before);
    for (uint32_t i = 0; i < k; i++) {
        w->resident[i] = asks(arg, routes[i].expert, before[i]);
        missing += i >= rule->exact_ranks && !w->resident[i];
    }
    if (missing == 0)
        return 0;
    uint32_t count =
        resident_first_candidates(r, logits, routes, rule->nats, w->scratch, w->candidate);
    for (uint32_t i = k; i < count; i++)
        w->resident[i] = asks(arg, w->candidate[i].expert, before[k - 1]);
    uint32_t replaced = resident_first_choose(rule, w->candidate, count, k, w->resident, expert);
    if (replaced == 0)
        return 0;
    for (uint32_t i = 0; i < k; i++)
        routes[i].expert = expert[i];
    routing_weights(r, logits, k, w->scratch, routes);
    return replaced;
}
