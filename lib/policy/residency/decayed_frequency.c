/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction "decayed-frequency": access probability of an expert per token, from two decaying counts
 * of the tokens that accessed it: a fast one that follows the topic, a slow one for the model. */
#include <math.h>

#include "lib/policy/residency/internal.h"

/* Chosen on traces of random models (44 and 300 tokens) and of the demo model's held-out texts;
 * docs/lab/eviction.md compares neighbouring values. More weight on the fast count is better on
 * random models and worse on text. */
#define FAST_WEIGHT  0.25
#define PRIOR_TOKENS 2.0 /* prior: so many tokens of uniform access */
/* A new sequence probably has another topic: the counts age as if so many tokens had passed. */
#define SEQUENCE_TOKENS RESIDENCY_SLOW_HALF

void residency_decayed_init(struct residency *r)
{
    for (uint32_t i = 0; i < RESIDENCY_SLOW_HALF; i++)
        r->slow_decay[i] = exp2(-(double)i / RESIDENCY_SLOW_HALF);
    for (uint32_t i = 0; i < RESIDENCY_HALVINGS; i++)
        r->halved[i] = ldexp(1, -(int)i);
    r->decayed_now.clock = UINT64_MAX;
}

/* 2 to the -halvings; 0 beyond the table. */
static double halved(const struct residency *r, uint64_t halvings)
{
    return halvings < RESIDENCY_HALVINGS ? r->halved[halvings] : 0;
}

/* Remaining part of a count of that age. Tabulated: a victim search reads hundreds, and a demand
 * waits for the search. */
static double fast_left(const struct residency *r, uint64_t tokens)
{
    return halved(r, tokens); /* its half-life is one token */
}

static double slow_left(const struct residency *r, uint64_t tokens)
{
    return r->slow_decay[tokens % RESIDENCY_SLOW_HALF] * halved(r, tokens / RESIDENCY_SLOW_HALF);
}

/* The count of an expert that each of the last `tokens` tokens accessed. */
static double fast_full(const struct residency *r, uint64_t tokens)
{
    return (1 - fast_left(r, tokens)) / (1 - fast_left(r, 1));
}

static double slow_full(const struct residency *r, uint64_t tokens)
{
    return (1 - slow_left(r, tokens)) / (1 - slow_left(r, 1));
}

static uint64_t age_of(const struct residency *r, const struct residency_counts *counts)
{
    uint64_t now = residency_clock(r);
    return now > counts->at ? now - counts->at : 0;
}

/* The maximum: the count of an expert that every token accessed. */
static double fast_max(const struct residency *r)
{
    uint64_t since = residency_clock(r) - r->max_counts.at;
    return fast_full(r, since) + r->max_counts.fast * fast_left(r, since) +
           r->more_counts.fast * fast_left(r, age_of(r, &r->more_counts));
}

static double slow_max(const struct residency *r)
{
    uint64_t since = residency_clock(r) - r->max_counts.at;
    return slow_full(r, since) + r->max_counts.slow * slow_left(r, since) +
           r->more_counts.slow * slow_left(r, age_of(r, &r->more_counts));
}

void residency_decayed_sequence(struct residency *r)
{
    double fast = fast_max(r) * fast_left(r, SEQUENCE_TOKENS);
    double slow = slow_max(r) * slow_left(r, SEQUENCE_TOKENS);
    r->gap_tokens += SEQUENCE_TOKENS;
    r->max_counts = (struct residency_counts){.fast = fast, .slow = slow, .at = residency_clock(r)};
    r->more_counts = (struct residency_counts){.at = residency_clock(r)}; /* now in max_counts */
    r->decayed_now.clock = UINT64_MAX;
}

void residency_decayed_more(struct residency *r, uint64_t tokens)
{
    struct residency_counts *more = &r->more_counts;
    uint64_t age = age_of(r, more);
    more->fast = more->fast * fast_left(r, age) + (double)tokens;
    more->slow = more->slow * slow_left(r, age) + (double)tokens;
    more->at = residency_clock(r);
    r->decayed_now.clock = UINT64_MAX;
}

void residency_decayed_count(const struct residency *r, struct residency_counts *counts,
                             uint32_t tokens)
{
    /* In prefill it is unknown which tokens of a chunk access the expert: assume an even spread. */
    uint64_t pass = r->running->pass_tokens, age = age_of(r, counts);
    double share = (double)tokens / (double)pass;
    counts->fast = counts->fast * fast_left(r, age) + share * fast_full(r, pass);
    counts->slow = counts->slow * slow_left(r, age) + share * slow_full(r, pass);
    counts->at = residency_clock(r);
    counts->probability_known = false;
}

/* Factors of all frequencies at one clock value; they depend on `max_counts` and the clock. */
static const struct residency_decayed_now *decayed_now(struct residency *r)
{
    struct residency_decayed_now *n = &r->decayed_now;
    const struct residency_config *c = &r->config;
    if (n->clock == residency_clock(r))
        return n;
    *n = (struct residency_decayed_now){.clock = residency_clock(r),
                                        .version = n->version + 1,
                                        .prior = PRIOR_TOKENS * (c->top_k > 0 ? c->top_k : 1) /
                                                 c->experts,
                                        .fast_whole = fast_max(r) + PRIOR_TOKENS,
                                        .slow_whole = slow_max(r) + PRIOR_TOKENS};
    return n;
}

static double slow_frequency_of(const struct residency *r, const struct residency_decayed_now *n,
                                const struct residency_counts *counts)
{
    return (counts->slow * slow_left(r, age_of(r, counts)) + n->prior) / n->slow_whole;
}

static double frequency_of(const struct residency *r, const struct residency_decayed_now *n,
                           const struct residency_counts *counts)
{
    double fast = (counts->fast * fast_left(r, age_of(r, counts)) + n->prior) / n->fast_whole;
    return FAST_WEIGHT * fast + (1 - FAST_WEIGHT) * slow_frequency_of(r, n, counts);
}

double residency_slow_frequency(struct residency *r, uint32_t expert)
{
    return slow_frequency_of(r, decayed_now(r), &r->record[expert].counts);
}

double residency_access_probability(struct residency *r, uint32_t slot)
{
    const struct residency_decayed_now *n = decayed_now(r);
    struct residency_counts *counts = &r->record[residency_expert_of(r, slot)].counts;
    if (!counts->probability_known || counts->probability_at != n->version) {
        if (!r->learned || !residency_learned_probability(r, slot, &counts->probability))
            counts->probability = frequency_of(r, n, counts);
        counts->probability_at = n->version;
        counts->probability_known = true;
    }
    return counts->probability;
}

static double score(struct residency *r, uint32_t slot)
{
    return -residency_access_probability(r, slot) /
           residency_distance(r, residency_layer_of(r, slot));
}

EVICTION_RULE(EVICTION_DECAYED) = {.score = score};
EVICTION_RULE(EVICTION_LEARNED) = {.score = score}; /* by its own probability: learned.c */
