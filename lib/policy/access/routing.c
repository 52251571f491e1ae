/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "lib/base/assert.h"
#include "lib/exact/elementary.h"
#include "lib/policy/access/routing.h"

#define TAKEN (-1.0f) /* in scratch: below every probability */

/* Probabilities into scratch, summed in ascending order: the result for a row is bit-identical on
 * every call. */
static void softmax(const float *logits, uint32_t experts, float *scratch)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < experts; i++)
        top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < experts; i++) {
        scratch[i] = (float)exact_exp((double)(logits[i] - top));
        sum += scratch[i];
    }
    for (uint32_t i = 0; i < experts; i++)
        scratch[i] /= sum;
}

/* The largest that is not taken; ties: lower index. NaN compares false with everything, so a
 * damaged row still yields distinct experts. */
static uint32_t take_best(float *scratch, uint32_t experts)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < experts; i++) {
        if (scratch[i] == TAKEN)
            continue;
        if (best == UINT32_MAX || scratch[i] > scratch[best])
            best = i;
    }
    return best;
}

static void choose(float *scratch, uint32_t experts, uint32_t top_k, bool norm_top_k,
                   struct route *out)
{
    float sum = 0;
    for (uint32_t k = 0; k < top_k; k++) {
        uint32_t best = take_best(scratch, experts);
        out[k] = (struct route){best, scratch[best]};
        sum += out[k].weight;
        scratch[best] = TAKEN;
    }
    for (uint32_t k = 0; norm_top_k && k < top_k; k++)
        out[k].weight /= sum;
}

void routing_exact(const float *logits, uint32_t experts, uint32_t top_k, bool norm_top_k,
                   float *scratch, struct route *out)
{
    sl_assert(top_k > 0 && top_k <= experts);
    softmax(logits, experts, scratch);
    choose(scratch, experts, top_k, norm_top_k, out);
}

/* Experts outside the set get -infinity, so their probability is exactly 0 and adds nothing. They
 * are excluded from the choice as well, because a softmax may underflow to 0 within the set too. */
uint32_t routing_masked(const float *logits, const bool *allowed, uint32_t experts, uint32_t top_k,
                        bool norm_top_k, float *scratch, struct route *out)
{
    uint32_t set = 0;
    float top = -INFINITY, sum = 0;
    sl_assert(top_k > 0 && top_k <= experts);
    for (uint32_t i = 0; i < experts; i++) {
        set += allowed[i];
        top = allowed[i] && logits[i] > top ? logits[i] : top;
    }
    for (uint32_t i = 0; i < experts; i++) {
        scratch[i] = allowed[i] ? (float)exact_exp((double)(logits[i] - top)) : 0;
        sum += scratch[i];
    }
    for (uint32_t i = 0; i < experts; i++)
        scratch[i] = allowed[i] ? scratch[i] / sum : TAKEN;
    uint32_t count = set < top_k ? set : top_k;
    if (count > 0)
        choose(scratch, experts, count, norm_top_k, out);
    return count;
}
