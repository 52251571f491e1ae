/* Eviction "rates": how likely a token uses an expert, from two decaying counts of the tokens that
 * did: a fast one that follows the topic, a slow one that knows the model. */
#include <math.h>

#include "lib/policy/residency_internal.h"

/* Chosen on traces of random models (16 layers, 44 and 300 tokens) and of the demo model's held-out
 * texts, where each is within a few tenths of a point of hits of the best of its neighbours:
 * docs/sim.md. */
#define FAST_WEIGHT  0.25
#define PRIOR_TOKENS 2.0 /* what is not known yet counts as that many tokens of even use */

void residency_rates_init(struct residency *r)
{
    for (uint32_t i = 0; i < RESIDENCY_SLOW_HALF; i++)
        r->slow_decay[i] = exp2(-(double)i / RESIDENCY_SLOW_HALF);
}

/* What a count of that age is still worth. No exp2: a search for a victim asks for hundreds. */
static double fast_left(uint64_t tokens)
{
    return tokens < 1000 ? ldexp(1, -(int)tokens) : 0; /* its half-life is one token */
}

static double slow_left(const struct residency *r, uint64_t tokens)
{
    uint64_t halves = tokens / RESIDENCY_SLOW_HALF;
    return halves < 1000 ? ldexp(r->slow_decay[tokens % RESIDENCY_SLOW_HALF], -(int)halves) : 0;
}

/* The count of an expert that each of the last `tokens` tokens used. */
static double fast_full(uint64_t tokens)
{
    return (1 - fast_left(tokens)) / (1 - fast_left(1));
}

static double slow_full(const struct residency *r, uint64_t tokens)
{
    return (1 - slow_left(r, tokens)) / (1 - slow_left(r, 1));
}

static uint64_t age_of(const struct residency *r, const struct residency_record *record)
{
    uint64_t now = residency_tokens_now(r);
    return now > record->counted_at ? now - record->counted_at : 0;
}

void residency_rates_count(const struct residency *r, struct residency_record *record,
                           uint32_t tokens)
{
    /* In prefill it is not known which tokens of the chunk they were: evenly, then. */
    double share = (double)tokens / (double)r->pass_tokens;
    uint64_t age = age_of(r, record);
    record->fast = record->fast * fast_left(age) + share * fast_full(r->pass_tokens);
    record->slow = record->slow * slow_left(r, age) + share * slow_full(r, r->pass_tokens);
    record->counted_at = residency_tokens_now(r);
}

double residency_rate(const struct residency *r, uint32_t slot)
{
    const struct residency_config *c = &r->config;
    const struct residency_record *record = &r->record[residency_expert_of(r, slot)];
    uint64_t age = age_of(r, record), now = residency_tokens_now(r);
    double prior = PRIOR_TOKENS * (c->top_k > 0 ? c->top_k : 1) / c->experts;
    double fast = (record->fast * fast_left(age) + prior) / (fast_full(now) + PRIOR_TOKENS);
    double slow = (record->slow * slow_left(r, age) + prior) / (slow_full(r, now) + PRIOR_TOKENS);
    return FAST_WEIGHT * fast + (1 - FAST_WEIGHT) * slow;
}
