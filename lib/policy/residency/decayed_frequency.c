/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction "decayed-frequency": access probability of an expert per token, from two decaying counts
 * of the tokens that accessed it: a fast one that follows the topic, a slow one for the model. A
 * third one between them is for "learned" (counted.c). */
#include <math.h>

#include "lib/policy/residency/internal.h"

/* Chosen on traces of random models (44 and 300 tokens) and of the demo model's held-out texts;
 * docs/lab/learned.md compares neighbouring values. More weight on the fast count is better on
 * random models and worse on text. */
#define FAST_WEIGHT  0.25
#define PRIOR_TOKENS 2.0 /* prior: so many tokens of uniform access */
/* A new sequence probably has another topic: the counts age as if so many tokens had passed. */
#define SEQUENCE_TOKENS RESIDENCY_SLOW_HALF

static const uint32_t half_lives[RESIDENCY_COUNTS] = {1, 8, RESIDENCY_SLOW_HALF};

void residency_decayed_init(struct residency *r)
{
    for (int c = 0; c < RESIDENCY_COUNTS; c++)
        for (uint32_t i = 0; i < half_lives[c]; i++)
            r->decay[c][i] = exp2(-(double)i / half_lives[c]);
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
static double left(const struct residency *r, int c, uint64_t tokens)
{
    return r->decay[c][tokens % half_lives[c]] * halved(r, tokens / half_lives[c]);
}

/* The count of an expert that each of the last `tokens` tokens accessed. */
static double full(const struct residency *r, int c, uint64_t tokens)
{
    return (1 - left(r, c, tokens)) / (1 - left(r, c, 1));
}

static uint64_t age_of(const struct residency *r, const struct residency_counts *counts)
{
    uint64_t now = residency_clock(r);
    return now > counts->at ? now - counts->at : 0;
}

/* The maximum: the count of an expert that every token accessed. */
static double max_of(const struct residency *r, int c)
{
    uint64_t since = residency_clock(r) - r->max_counts.at;
    return full(r, c, since) + r->max_counts.of[c] * left(r, c, since) +
           r->more_counts.of[c] * left(r, c, age_of(r, &r->more_counts));
}

void residency_decayed_sequence(struct residency *r)
{
    struct residency_counts max = {.at = 0};
    for (int c = 0; c < RESIDENCY_COUNTS; c++)
        max.of[c] = max_of(r, c) * left(r, c, SEQUENCE_TOKENS);
    r->gap_tokens += SEQUENCE_TOKENS;
    max.at = residency_clock(r);
    r->max_counts = max;
    r->more_counts = (struct residency_counts){.at = residency_clock(r)}; /* now in max_counts */
    r->decayed_now.clock = UINT64_MAX;
}

void residency_decayed_more(struct residency *r, uint64_t tokens)
{
    struct residency_counts *more = &r->more_counts;
    uint64_t age = age_of(r, more);
    for (int c = 0; c < RESIDENCY_COUNTS; c++)
        more->of[c] = more->of[c] * left(r, c, age) + (double)tokens;
    more->at = residency_clock(r);
    r->decayed_now.clock = UINT64_MAX;
}

void residency_decayed_count(const struct residency *r, struct residency_counts *counts,
                             uint32_t tokens)
{
    /* In prefill it is unknown which tokens of a chunk access the expert: assume an even spread. */
    uint64_t pass = r->running->pass_tokens, age = age_of(r, counts);
    double share = (double)tokens / (double)pass;
    for (int c = 0; c < RESIDENCY_COUNTS; c++)
        counts->of[c] = counts->of[c] * left(r, c, age) + share * full(r, c, pass);
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
                                                 c->experts};
    for (int i = 0; i < RESIDENCY_COUNTS; i++)
        n->whole[i] = max_of(r, i) + PRIOR_TOKENS;
    return n;
}

static double frequency_by(const struct residency *r, const struct residency_decayed_now *n,
                           const struct residency_counts *counts, int c)
{
    return (counts->of[c] * left(r, c, age_of(r, counts)) + n->prior) / n->whole[c];
}

static double frequency_of(const struct residency *r, const struct residency_decayed_now *n,
                           const struct residency_counts *counts)
{
    return FAST_WEIGHT * frequency_by(r, n, counts, COUNT_FAST) +
           (1 - FAST_WEIGHT) * frequency_by(r, n, counts, COUNT_SLOW);
}

double residency_frequency_by(struct residency *r, uint32_t expert, enum residency_count count)
{
    return frequency_by(r, decayed_now(r), &r->record[expert].counts, count);
}

double residency_decayed_probability(struct residency *r, uint32_t expert)
{
    return frequency_of(r, decayed_now(r), &r->record[expert].counts);
}

double residency_access_probability(struct residency *r, uint32_t slot)
{
    const struct residency_decayed_now *n = decayed_now(r);
    struct residency_counts *counts = &r->record[residency_expert_of(r, slot)].counts;
    if (!counts->probability_known || counts->probability_at != n->version) {
        if (!r->learned || (!residency_learned_probability(r, slot, &counts->probability) &&
                            !residency_counted_probability(r, slot, &counts->probability)))
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
