/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions from router logits, by the rule of the target's router.
 *
 * The share of expert e is the softmax of its margin: its logit z_e less the logit with which it
 * would just be chosen. It is chosen when p(z) + bias_e reaches tau, the K-th largest score of the
 * row:
 *   sigmoid        margin = z_e - logit(tau - bias_e)
 *   softmax        margin = z_e - log(tau - bias_e), but for a constant
 *   sqrt(softplus)   margin = z_e less the logit of tau - bias_e
 *   softmax of K, sigmoid of K   margin = z_e + bias_e
 * Without a bias the second term is a constant, so that the share is the softmax of the logits for
 * every gating; a constant added to all biases changes nothing. Where tau - bias_e is no p, or one
 * that hardly occurs, it is limited: such an expert is chosen almost always or never, and must not
 * take the whole sum. Experts outside the groups that the row uses have no share.
 *
 * Where a table has chosen the experts, the others have the logit -infinity (lib/router/row.h), and
 * are not predicted, whatever the bias; those of the table are certain, and have 1 / K each. */
#include <math.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/prediction/internal.h"

#define RARE 0.25 /* the limit, as a share of the mean p of a softmax */

bool prediction_router_is_plain(const struct model_router *r)
{
    return !r || (r->gating != ROUTER_SIGMOID && r->gating != ROUTER_SIGMOID_AFTER &&
                  r->gating != ROUTER_SQRT_SOFTPLUS && !r->bias && r->groups < 2);
}

/* The softmax of key[] for the experts in out[], in its order. */
static void shares(const float *key, uint32_t experts, struct prediction *out, uint32_t found)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < experts; i++)
        top = key[i] > top ? key[i] : top;
    for (uint32_t i = 0; i < experts; i++)
        sum += isnan(key[i]) ? 0 : expf(key[i] - top);
    for (uint32_t i = 0; i < found; i++) {
        float p = expf(key[out[i].expert] - top) / sum;
        out[i].probability = isfinite(p) ? p : 0;
    }
}

static uint32_t largest(const float *key, uint32_t experts, uint32_t want, struct prediction *out)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < experts; i++)
        found = prediction_keep_best(out, found, want,
                                     (struct prediction){.expert = i, .probability = key[i]});
    return found;
}

/* Of key[], for those that a table has chosen: they have a logit. Their number. */
static uint32_t of_table(const struct prediction_input *in, const float *key, uint32_t want,
                         struct prediction *out)
{
    uint32_t found = 0;
    for (uint32_t e = 0; e < in->experts; e++)
        if (in->logits[e] != -INFINITY)
            found = prediction_keep_best(out, found, want,
                                         (struct prediction){.expert = e, .probability = key[e]});
    for (uint32_t i = 0; i < found; i++)
        out[i].probability = 1 / (float)in->top_k;
    return found;
}

/* Whether a table has chosen: it leaves 1 to K experts a logit. */
static bool by_table(const struct prediction_input *in)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < in->experts; e++)
        n += in->logits[e] != -INFINITY;
    return n > 0 && n <= in->top_k && n < in->experts;
}

/* tau: the K-th largest score. */
static float last_chosen(const float *score, uint32_t experts, uint32_t top_k)
{
    struct prediction best[MODEL_TOP_K_MAX];
    sl_assert(top_k > 0 && top_k <= MODEL_TOP_K_MAX);
    uint32_t found = largest(score, experts, top_k, best);
    return best[found - 1].probability;
}

static float margin(const struct model_router *r, float logit, float bias, float tau)
{
    double rare = RARE / r->experts, p = (double)tau - (double)bias;
    if (r->gating == ROUTER_SOFTMAX_AFTER || r->gating == ROUTER_SIGMOID_AFTER)
        return logit + bias;
    if (r->gating == ROUTER_SQRT_SOFTPLUS)
        return logit - (float)routing_root_logit(p);
    p = p > rare ? p : rare; /* NaN, too */
    p = p < 1 - rare ? p : 1 - rare;
    return logit - (float)(r->gating == ROUTER_SIGMOID ? log(p / (1 - p)) : log(p));
}

uint32_t prediction_by_router(const struct prediction_input *in, uint32_t want,
                              struct prediction *out)
{
    const struct model_router *r = in->router;
    bool certain = by_table(in);
    if (prediction_router_is_plain(r)) {
        if (certain)
            return of_table(in, in->logits, want, out);
        uint32_t plain = largest(in->logits, in->experts, want, out);
        shares(in->logits, in->experts, out, plain);
        return plain;
    }
    sl_assert(r->experts == in->experts);
    float *p = in->scratch, *score = p + in->experts, *key = score + in->experts;
    routing_scores(r, in->logits, key, p, score);
    if (certain)
        return of_table(in, p, want, out);
    uint32_t found = largest(score, in->experts, want, out);
    float tau = last_chosen(score, in->experts, in->top_k);
    for (uint32_t e = 0; e < in->experts; e++)
        key[e] = score[e] == -INFINITY ? -INFINITY
                                       : margin(r, in->logits[e], r->bias ? r->bias[e] : 0, tau);
    shares(key, in->experts, out, found);
    /* The choice decides the order, and lists descend: a share above that of an earlier expert is
     * lowered, so that the sum may be below 1. */
    for (uint32_t i = 1; i < found; i++)
        if (out[i].probability > out[i - 1].probability)
            out[i].probability = out[i - 1].probability;
    return found;
}

/* The weight of an expert that is chosen for p, but for a factor; top: the largest p. */
static float weight_of(const struct model_router *r, float p, float top)
{
    switch ((enum router_gating)r->gating) {
    case ROUTER_SOFTMAX_AFTER: return expf(p - top);
    case ROUTER_SIGMOID_AFTER: return 1 / (1 + expf(-p));
    default: return p;
    }
}

void prediction_gate_weights_before(const struct prediction_input *in, struct prediction *out,
                                    uint32_t count)
{
    const float *p = in->scratch;
    float weight[MODEL_TOP_K_MAX], before[MODEL_TOP_K_MAX], top = -INFINITY;
    uint32_t n = count < in->top_k ? count : in->top_k;
    for (uint32_t i = 0; i < n; i++)
        top = p[out[i].expert] > top ? p[out[i].expert] : top;
    for (uint32_t i = 0; i < n; i++)
        weight[i] = weight_of(in->router, p[out[i].expert], top);
    if (n > 0)
        precision_weights_before(weight, 1, n, before);
    for (uint32_t i = 0; i < count; i++)
        out[i].weight_before = i < n ? before[i] : 1;
}
