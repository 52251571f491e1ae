/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the rules of each precision policy, and applies the chosen one to an access. */
#include "lib/policy/access/precision.h"

#include "lib/base/assert.h"
#include "lib/tensor/precision.h"

static void only(struct precision_choice *out, enum precision precision)
{
    *out = (struct precision_choice){
        .need = NEED_HIGH, .request = precision, .accept_count = 1, .accept = {precision}};
}

static void either(enum precision high, enum precision low, struct precision_choice *out,
                   enum precision_need need)
{
    *out = (struct precision_choice){
        .need = need, .request = low, .accept_count = 2, .accept = {high, low}};
    if (high == low)
        out->accept_count = 1;
}

/* HOBBIT's thresholds. A resident high precision always serves: they act on misses. */
static void by_rank(const struct precision_policy *p, enum precision high, enum precision low,
                    const struct precision_input *in, struct precision_choice *out)
{
    if (in->weight_before <= 0 || in->weight_before <= p->t1)
        only(out, high);
    else
        either(high, low, out, in->weight_before <= p->t2 ? NEED_LOW : NEED_SKIP);
}

static void drop(const struct precision_policy *p, const struct precision_input *in,
                 struct precision_choice *out)
{
    only(out, PRECISION_NATIVE);
    if (!in->prefill && in->weight_before > 0 && in->weight_before > p->t2)
        out->need = NEED_SKIP;
}

static void fate(const struct precision_policy *p, const struct precision_input *in,
                 struct precision_choice *out)
{
    bool low =
        in->prefill ? in->popularity >= 1 - p->low_fraction : p->slow_device && !in->predicted;
    if (low)
        either(p->high, p->low, out, NEED_LOW);
    else
        only(out, p->high);
}

void precision_choose(const struct precision_policy *p, const struct precision_input *in,
                      struct precision_choice *out)
{
    switch (p->rule) {
    case PRECISION_RULE_LOSSLESS: only(out, PRECISION_NATIVE); return;
    case PRECISION_RULE_UNIFORM_INT8: only(out, PRECISION_INT8); return;
    case PRECISION_RULE_UNIFORM_INT4: only(out, PRECISION_INT4); return;
    case PRECISION_RULE_UNIFORM_INT2: only(out, PRECISION_INT2); return;
    case PRECISION_RULE_HOBBIT: by_rank(p, p->high, p->low, in, out); return;
    case PRECISION_RULE_EDGEMOE: only(out, in->planned.high); return;
    case PRECISION_RULE_MIXED_TWO: by_rank(p, in->planned.high, in->planned.low, in, out); return;
    case PRECISION_RULE_FATE: fate(p, in, out); return;
    case PRECISION_RULE_DROP: drop(p, in, out); return;
    }
    sl_panic("precision rule %d", (int)p->rule);
}

uint32_t precision_policy_mask(const struct precision_policy *p, uint32_t present)
{
    switch (p->rule) {
    case PRECISION_RULE_DROP:
    case PRECISION_RULE_LOSSLESS: return 1u << PRECISION_NATIVE;
    case PRECISION_RULE_UNIFORM_INT8: return 1u << PRECISION_INT8;
    case PRECISION_RULE_UNIFORM_INT4: return 1u << PRECISION_INT4;
    case PRECISION_RULE_UNIFORM_INT2: return 1u << PRECISION_INT2;
    case PRECISION_RULE_EDGEMOE:
    case PRECISION_RULE_MIXED_TWO: return present;
    case PRECISION_RULE_HOBBIT:
    case PRECISION_RULE_FATE: return 1u << p->high | 1u << p->low;
    }
    sl_panic("precision rule %d", (int)p->rule);
}

void precision_weights_before(const float *weight, size_t stride, uint32_t top_k, float *before)
{
    float all = 0, sum = 0;
    for (uint32_t i = 0; i < top_k; i++)
        all += weight[i * stride];
    for (uint32_t i = 0; i < top_k; i++) {
        before[i] = i > 0 && all > 0 ? sum / all : 0;
        sum += weight[i * stride];
    }
}

/* ---- applied to what is resident ------------------------------------------------------------- */

void precision_limit(struct precision_choice *choice, uint32_t present)
{
    uint32_t count = 0;
    sl_assert(present != 0);
    for (uint32_t i = 0; i < choice->accept_count; i++)
        if (present >> choice->accept[i] & 1)
            choice->accept[count++] = choice->accept[i];
    choice->accept_count = count;
    if (choice->need == NEED_SKIP || present >> choice->request & 1)
        return;
    if (count == 0)
        choice->accept[choice->accept_count++] = (enum precision)__builtin_ctz(present);
    choice->request = choice->accept[choice->accept_count - 1];
}

enum precision_outcome precision_serve(const struct precision_choice *choice,
                                       const enum precision_state state[PRECISION__COUNT],
                                       enum precision *precision)
{
    *precision = choice->accept_count > 0 ? choice->accept[0] : PRECISION_NATIVE;
    for (uint32_t i = 0; i < choice->accept_count; i++)
        if (state[choice->accept[i]] == PRECISION_READY) {
            *precision = choice->accept[i];
            return PRECISION_HIT;
        }
    if (choice->need == NEED_SKIP)
        return PRECISION_SKIPPED;
    *precision = choice->request;
    for (uint32_t i = 0; i < choice->accept_count; i++)
        if (state[choice->accept[i]] == PRECISION_LOADING && choice->accept[i] <= choice->request) {
            *precision = choice->accept[i];
            return PRECISION_INFLIGHT;
        }
    return PRECISION_MISS;
}

bool precision_predict(const struct precision_policy *p, const struct precision_predicted *in,
                       uint32_t present, enum precision *precision)
{
    struct precision_input input = {.weight_before = in->weight_before,
                                    .popularity = precision_popularity(in->at, in->count),
                                    .planned = in->planned,
                                    .prefill = in->prefill,
                                    .predicted = true};
    struct precision_choice choice;
    precision_choose(p, &input, &choice);
    if (choice.need == NEED_SKIP) {
        if (!in->prefill)
            return false;
        choice.need = NEED_LOW;
    }
    precision_limit(&choice, present);
    *precision = choice.request;
    return true;
}
