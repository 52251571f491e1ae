/* SPDX-License-Identifier: Apache-2.0 */
/* Computes experts and gate weights from router logits, also with a mask. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/exact/elementary.h"
#include "lib/model/limits.h"
#include "lib/policy/access/routing.h"

#define TAKEN (-INFINITY) /* in scratch: below every value of an expert */

static bool usable(const bool *allowed, uint32_t expert)
{
    return !allowed || allowed[expert];
}

/* Probabilities into p, summed in ascending order: the result for a row is bit-identical on every
 * call. Experts outside the set count as if their logit were -infinity: exactly 0. */
static void softmax(const float *logits, const bool *allowed, uint32_t experts, float *p)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < experts; i++)
        top = usable(allowed, i) && logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < experts; i++) {
        p[i] = usable(allowed, i) ? (float)exact_exp((double)(logits[i] - top)) : 0;
        sum += p[i];
    }
    for (uint32_t i = 0; i < experts; i++)
        p[i] /= sum;
}

/* The square root of softplus, which is z to within a float where z is large, and exp(z) where it
 * is small: 1 + exp(z) would lose that. */
static float root_softplus(float z)
{
    double x = (double)z;
    return (float)sqrt(x > 40 ? x : x < -20 ? exact_exp(x) : exact_log(1.0 + exact_exp(x)));
}

static float sigmoid(float z)
{
    return (float)(1.0 / (1.0 + exact_exp(-(double)z)));
}

/* p of every expert; TAKEN outside the set, because a p may underflow to 0 within it, too. */
static void probabilities(const struct model_router *r, const float *logits, const bool *allowed,
                          float *p)
{
    switch ((enum router_gating)r->gating) {
    case ROUTER_SOFTMAX: softmax(logits, allowed, r->experts, p); break;
    case ROUTER_SIGMOID:
        for (uint32_t i = 0; i < r->experts; i++)
            p[i] = sigmoid(logits[i]);
        break;
    case ROUTER_SQRT_SOFTPLUS:
        for (uint32_t i = 0; i < r->experts; i++)
            p[i] = root_softplus(logits[i]);
        break;
    case ROUTER_SPARSE_MIXER:
    case ROUTER_SOFTMAX_AFTER:
    case ROUTER_SIGMOID_AFTER:
        for (uint32_t i = 0; i < r->experts; i++)
            p[i] = logits[i] < -FLT_MAX ? -FLT_MAX : logits[i];
        break;
    }
    for (uint32_t i = 0; i < r->experts; i++)
        p[i] = usable(allowed, i) ? p[i] : TAKEN;
}

static float score_of(const struct model_router *r, const float *p, uint32_t expert)
{
    return r->bias ? p[expert] + r->bias[expert] : p[expert];
}

/* The largest score of [begin, end) that is not taken; ties: lower index; UINT32_MAX: none. NaN
 * compares false with everything, so a damaged row still yields distinct experts. */
static uint32_t take_best(const struct model_router *r, const float *p, uint32_t begin,
                          uint32_t end)
{
    uint32_t best = UINT32_MAX;
    float top = 0;
    for (uint32_t i = begin; i < end; i++) {
        if (p[i] == TAKEN)
            continue;
        float score = score_of(r, p, i);
        if (best == UINT32_MAX || score > top) {
            best = i;
            top = score;
        }
    }
    return best;
}

/* The sum of the two largest scores of a group, the largest with softmax; -infinity if it has no
 * expert of the set. */
static float group_score(const struct model_router *r, float *p, uint32_t begin, uint32_t end)
{
    uint32_t first = take_best(r, p, begin, end);
    if (first == UINT32_MAX)
        return -INFINITY;
    float kept = p[first], score = score_of(r, p, first);
    if (r->gating == ROUTER_SOFTMAX)
        return score;
    p[first] = TAKEN;
    uint32_t second = take_best(r, p, begin, end);
    p[first] = kept;
    return second == UINT32_MAX ? score : score + score_of(r, p, second);
}

/* Marks the experts of all but the best groups as taken. The score of each group is at `score`,
 * which has space for one per expert. */
static void keep_groups(const struct model_router *r, float *p, float *score)
{
    uint32_t size = r->experts / r->groups;
    for (uint32_t g = 0; g < r->groups; g++)
        score[g] = group_score(r, p, g * size, (g + 1) * size);
    for (uint32_t g = 0; g < r->groups; g++) {
        uint32_t better = 0;
        for (uint32_t o = 0; o < r->groups; o++)
            better += score[o] > score[g] || (!(score[o] < score[g]) && o < g);
        for (uint32_t i = g * size; better >= r->groups_used && i < (g + 1) * size; i++)
            p[i] = TAKEN;
    }
}

static uint32_t left(const struct model_router *r, const float *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->experts; i++)
        n += p[i] != TAKEN;
    return n;
}

/* The weights of the chosen experts, from their p. */
static void weigh(const struct model_router *r, uint32_t count, struct route *out)
{
    float sum = 0, top = -INFINITY;
    if (r->gating == ROUTER_SOFTMAX_AFTER) {
        for (uint32_t k = 0; k < count; k++)
            top = out[k].weight > top ? out[k].weight : top;
        for (uint32_t k = 0; k < count; k++) {
            out[k].weight = (float)exact_exp((double)(out[k].weight - top));
            sum += out[k].weight;
        }
        for (uint32_t k = 0; k < count; k++)
            out[k].weight /= sum;
        sum = 0;
    }
    for (uint32_t k = 0; r->gating == ROUTER_SIGMOID_AFTER && k < count; k++)
        out[k].weight = sigmoid(out[k].weight);
    for (uint32_t k = 0; k < count; k++)
        sum += out[k].weight;
    for (uint32_t k = 0; r->normalise && sum != 0 && k < count; k++)
        out[k].weight /= sum;
    for (uint32_t k = 0; r->scale != 0 && k < count; k++)
        out[k].weight *= r->scale;
}

/* The weight of the best expert among those that are left. One that is better was left out of the
 * choice: the rule would have taken it before. */
static float sparse_weight(const struct model_router *r, const float *p, uint32_t best)
{
    float top = p[best], sum = 0;
    for (uint32_t i = 0; i < r->experts; i++) {
        float size = fabsf(p[i]) > top ? fabsf(p[i]) : top;
        if (p[i] != TAKEN && !(p[i] > top) && !((top - p[i]) / size > ROUTER_SPARSE_NEAR))
            sum += (float)exact_exp((double)(p[i] - top));
    }
    return 1 / sum;
}

uint32_t routing_masked(const struct model_router *r, const float *logits, const bool *allowed,
                        float *scratch, struct route *out)
{
    float *p = scratch;
    sl_assert(r->top_k > 0 && r->top_k <= r->experts);
    probabilities(r, logits, allowed, p);
    uint32_t set = left(r, p);
    uint32_t count = set < r->top_k ? set : r->top_k;
    if (r->groups > 1)
        keep_groups(r, p, scratch + r->experts);
    if (r->groups > 1 && left(r, p) < count) /* the set leaves too few in the best groups */
        probabilities(r, logits, allowed, p);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t best = take_best(r, p, 0, r->experts);
        out[k] = (struct route){best, r->gating == ROUTER_SPARSE_MIXER ? sparse_weight(r, p, best)
                                                                       : p[best]};
        p[best] = TAKEN;
    }
    weigh(r, count, out);
    return count;
}

void routing_weights(const struct model_router *r, const float *logits, uint32_t count,
                     float *scratch, struct route *out)
{
    float *p = scratch;
    probabilities(r, logits, NULL, p);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t e = out[k].expert;
        out[k].weight = r->gating == ROUTER_SPARSE_MIXER ? sparse_weight(r, p, e) : p[e];
        p[e] = TAKEN;
    }
    weigh(r, count, out);
}

void routing_shares(const struct model_router *r, const float *logits, float *weight)
{
    float top = -FLT_MAX;
    probabilities(r, logits, NULL, weight);
    for (uint32_t e = 0; e < r->experts; e++)
        top = weight[e] > top ? weight[e] : top;
    for (uint32_t e = 0; e < r->experts; e++)
        if (r->gating == ROUTER_SIGMOID_AFTER)
            weight[e] = sigmoid(weight[e]);
        else if (r->gating == ROUTER_SOFTMAX_AFTER || r->gating == ROUTER_SPARSE_MIXER)
            weight[e] = (float)exact_exp((double)(weight[e] - top));
}

void routing_table(const struct model_router *r, const float *logits, const uint32_t *table,
                   float *scratch, struct route *out)
{
    float *p = scratch;
    probabilities(r, logits, NULL, p);
    for (uint32_t k = 0; k < r->top_k; k++) {
        uint32_t at = k;
        struct route own = {table[k], p[table[k]]};
        for (; at > 0 && own.weight > out[at - 1].weight; at--)
            out[at] = out[at - 1];
        out[at] = own;
    }
    weigh(r, r->top_k, out);
}

void routing_scores(const struct model_router *r, const float *logits, float *scratch, float *p,
                    float *score)
{
    probabilities(r, logits, NULL, p);
    memcpy(score, p, r->experts * sizeof *score);
    if (r->groups > 1)
        keep_groups(r, score, scratch);
    for (uint32_t e = 0; e < r->experts; e++)
        score[e] = score[e] == TAKEN ? -INFINITY : score_of(r, p, e);
}

void routing_exact(const struct model_router *r, const float *logits, float *scratch,
                   struct route *out)
{
    uint32_t count = routing_masked(r, logits, NULL, scratch, out);
    sl_assert(count == r->top_k);
}

/* ---- margins --------------------------------------------------------------------------------- */

/* Midway between the K-th largest score and the next one, if a row may choose that. */
static double threshold_of(const struct model_router *r, const float *score)
{
    float top[MODEL_TOP_K_MAX + 1] = {0}; /* the largest ones, in order */
    uint32_t n = 0;
    for (uint32_t e = 0; e < r->experts; e++) {
        uint32_t at = n;
        while (at > 0 && score[e] > top[at - 1])
            at--;
        if (at > r->top_k)
            continue;
        n += n <= r->top_k;
        memmove(&top[at + 1], &top[at], (n - at - 1) * sizeof *top);
        top[at] = score[e];
    }
    float last = top[r->top_k - 1], next = r->top_k < n ? top[r->top_k] : last;
    return next == TAKEN ? (double)last : ((double)last + (double)next) / 2;
}

#define LEAST_P       1e-6
#define MOST_LOG_ODDS 13.8155095579643 /* of 1 - LEAST_P */

static double log_odds(double p)
{
    double q = p < LEAST_P ? LEAST_P : p > 1 - LEAST_P ? 1 - LEAST_P : p;
    return exact_log(q / (1 - q));
}

double routing_root_logit(double p)
{
    if (!(p > 1e-3)) /* exp(p^2) - 1 is p^2 there */
        return 2 * exact_log(p > LEAST_P ? p : LEAST_P);
    return p > 6 ? p * p : exact_log(exact_exp(p * p) - 1.0);
}

/* p is the logit in some rules, and its log-odds are the logit in another one. */
static bool is_logit(const struct model_router *r)
{
    return r->gating != ROUTER_SOFTMAX && r->gating != ROUTER_SIGMOID &&
           r->gating != ROUTER_SQRT_SOFTPLUS;
}

/* The logit, or the log-odds, of a p that is needed to be chosen. */
static double logit_of_needed(const struct model_router *r, double p)
{
    if (r->gating == ROUTER_SQRT_SOFTPLUS)
        return routing_root_logit(p);
    return is_logit(r) ? p : log_odds(p);
}

static double log_odds_of(const struct model_router *r, float logit, float p)
{
    double z = (double)logit;
    if (r->gating == ROUTER_SQRT_SOFTPLUS)
        return z;
    if (r->gating != ROUTER_SIGMOID)
        return is_logit(r) ? z : log_odds((double)p);
    return z < -MOST_LOG_ODDS ? -MOST_LOG_ODDS : z > MOST_LOG_ODDS ? MOST_LOG_ODDS : z;
}

static float limited(double margin)
{
    return margin < (double)ROUTING_MARGIN_MIN   ? ROUTING_MARGIN_MIN
           : margin > (double)ROUTING_MARGIN_MAX ? ROUTING_MARGIN_MAX
                                                 : (float)margin;
}

void routing_margins(const struct model_router *r, const float *logits, float *scratch,
                     float *margin)
{
    if (!r->bias && r->groups < 2) {
        memcpy(margin, logits, r->experts * sizeof *margin);
        return;
    }
    float *p = scratch, *score = scratch + r->experts, *more = scratch + 2 * r->experts;
    routing_scores(r, logits, more, p, score);
    double threshold = threshold_of(r, score), needed = 0;
    for (uint32_t e = 0; e < r->experts; e++) {
        if (r->bias || e == 0)
            needed = threshold - (r->bias ? (double)r->bias[e] : 0);
        if (r->bias || e == 0)
            needed = logit_of_needed(r, needed);
        margin[e] = limited(log_odds_of(r, logits[e], p[e]) - needed);
        if (score[e] == TAKEN && margin[e] > ROUTING_MARGIN_GROUP)
            margin[e] = ROUTING_MARGIN_GROUP;
    }
}
