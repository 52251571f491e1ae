/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction "learned": access probability of an expert per token, from the router logits of all
 * experts, not only of the chosen ones. An expert that was nearly chosen is more likely to be
 * accessed soon than one far below the threshold. After few tokens this is known for every expert,
 * while few have been accessed.
 *
 * A logistic model (logistic.c) whose weights all experts share. Inputs per expert: four running
 * means of the distance of its logit above the threshold of being chosen, the slow count of
 * decayed-frequency, and 1. The usefulness of each input differs between models (with random
 * weights the means carry most, with trained ones the count does), so the weights are learned
 * online. Where there are no logits, the model of counted.c is used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/residency/internal.h"

#define LEVELS_PER_NAT 16.0f
#define MEANS          RESIDENCY_LEARNED_MEANS
#define INPUTS         RESIDENCY_LEARNED_INPUTS

/* Chosen with the constants below on traces of random models (four seeds, 56 and 300 tokens) and of
 * the demo model (four held-out texts, two sampled ones); results are in docs/lab/learned.md. */
static const double half_lives[MEANS] = {1, 4, 16, 64};
static const double first_weights[INPUTS] = {0.1, 0, 0.1, 0, 0.8, -0.1};

/* Older means do not predict the next tokens; a new sequence counts as older. */
#define FRESH_TOKENS (RESIDENCY_SLOW_HALF / 2)

struct residency_learned_expert {
    float mean[MEANS];   /* nats above the threshold */
    float trace[INPUTS]; /* decayed inputs of earlier tokens */
};

struct residency_learned_layer {
    double tokens[MEANS]; /* weight of the means, decayed like them */
    uint64_t at;          /* clock value of its last token */
    bool known;           /* it had a token */
};

struct residency_learned_arriving { /* the logits of a sequence's next step */
    uint8_t *levels;                /* [experts] */
    uint32_t arrived;
    struct residency_step at;
};

struct residency_learned {
    struct residency_learned_expert *expert; /* [layers * experts] */
    struct residency_learned_layer *layer;   /* [layers] */
    struct residency_logistic model;
    uint8_t *levels;                                           /* [SEQUENCES_MAX][experts] */
    struct residency_learned_arriving arriving[SEQUENCES_MAX]; /* by place */
};

/* ---- making --------------------------------------------------------------------------------- */

bool residency_learned_init(struct residency *r)
{
    struct residency_learned *x =
        r->config.eviction == EVICTION_LEARNED ? calloc(1, sizeof *x) : NULL;
    r->learned = x;
    if (!x)
        return r->config.eviction != EVICTION_LEARNED;
    x->expert = calloc(r->experts_all, sizeof *x->expert);
    x->layer = calloc(r->config.layers, sizeof *x->layer);
    x->levels = calloc(SEQUENCES_MAX, r->config.experts);
    for (uint32_t i = 0; x->levels && i < SEQUENCES_MAX; i++)
        x->arriving[i].levels = x->levels + (size_t)i * r->config.experts;
    residency_logistic_init(&x->model, INPUTS, first_weights);
    return x->expert && x->layer && x->levels;
}

void residency_learned_free(struct residency *r)
{
    if (!r->learned)
        return;
    free(r->learned->expert);
    free(r->learned->layer);
    free(r->learned->levels);
    free(r->learned);
}

/* ---- probability ---------------------------------------------------------------------------- */

static void inputs_of(struct residency *r, uint32_t expert, double in[INPUTS])
{
    for (int h = 0; h < MEANS; h++)
        in[h] = (double)r->learned->expert[expert].mean[h];
    in[MEANS] = residency_log_odds(residency_frequency_by(r, expert, COUNT_SLOW));
    in[MEANS + 1] = 1;
}

bool residency_learned_now(const struct residency *r, uint32_t layer)
{
    const struct residency_learned_layer *x = &r->learned->layer[layer];
    return x->known && x->at == residency_clock(r);
}

bool residency_learned_probability(struct residency *r, uint32_t slot, double *probability)
{
    const struct residency_learned_layer *layer = &r->learned->layer[residency_layer_of(r, slot)];
    if (!layer->known || residency_clock(r) - layer->at > FRESH_TOKENS)
        return false;
    double in[INPUTS];
    inputs_of(r, residency_expert_of(r, slot), in);
    *probability = residency_logistic_probability(&r->learned->model, in);
    return true;
}

/* ---- learning ------------------------------------------------------------------------------- */

/* Inputs from the previous token, label from this one. */
static void learn(struct residency *r, uint32_t expert, bool used)
{
    double in[INPUTS];
    inputs_of(r, expert, in);
    residency_logistic_observe(&r->learned->model, in, r->learned->expert[expert].trace, used);
}

void residency_learned_pass(struct residency *r)
{
    if (r->learned)
        (void)residency_logistic_step(&r->learned->model);
}

/* ---- logits of a layer ---------------------------------------------------------------------- */

void residency_logit_levels(const float *logits, uint32_t n, uint8_t *levels)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        float below = (max - logits[i]) * LEVELS_PER_NAT + 0.5f;
        levels[i] = below < UINT8_MAX ? (uint8_t)below : UINT8_MAX;
    }
}

/* Twice the level midway between the last chosen and the first not chosen. */
static uint32_t threshold_twice(const struct residency *r, const uint8_t *levels)
{
    const struct residency_config *c = &r->config;
    uint32_t of_level[UINT8_MAX + 1] = {0}, seen = 0, last = 0, next;
    uint32_t chosen = c->top_k > 0 && c->top_k < c->experts ? c->top_k : 1;
    for (uint32_t e = 0; e < c->experts; e++)
        of_level[levels[e]]++;
    for (; seen + of_level[last] < chosen; last++)
        seen += of_level[last];
    next = last;
    if (seen + of_level[last] == chosen)
        for (next++; next < UINT8_MAX && of_level[next] == 0;)
            next++;
    return last + (next > UINT8_MAX ? UINT8_MAX : next);
}

/* Tokens without logits age the means, and so do those a new sequence counts as. Returns whether
 * this token directly follows the last one. */
static bool age_layer(const struct residency *r, struct residency_learned_layer *layer)
{
    uint64_t now = residency_clock(r), age = layer->known ? now - layer->at : 1;
    for (int h = 0; h < MEANS; h++)
        layer->tokens[h] = layer->tokens[h] * exp2(-(double)age / half_lives[h]) + 1;
    bool follows = layer->known && age <= 1; /* 0: another sequence of the same round */
    layer->known = true;
    layer->at = now;
    return follows;
}

static void take_expert(struct residency *r, const struct residency_learned_layer *layer,
                        uint32_t expert, double above, bool follows)
{
    struct residency_learned_expert *x = &r->learned->expert[expert];
    if (follows)
        learn(r, expert, above > 0);
    else
        memset(x->trace, 0, sizeof x->trace);
    for (int h = 0; h < MEANS; h++)
        x->mean[h] += (float)((above - (double)x->mean[h]) / layer->tokens[h]);
    r->record[expert].counts.probability_known = false;
}

static void take_layer(struct residency *r, uint32_t number, const uint8_t *levels)
{
    struct residency_learned_layer *layer = &r->learned->layer[number];
    bool follows = age_layer(r, layer);
    double threshold = threshold_twice(r, levels) / 2.0;
    for (uint32_t e = 0; e < r->config.experts; e++)
        take_expert(r, layer, number * r->config.experts + e,
                    (threshold - levels[e]) / (double)LEVELS_PER_NAT, follows);
}

static bool same_step(const struct residency_step *a, const struct residency_step *b)
{
    return a->sequence == b->sequence && a->position == b->position && a->layer == b->layer;
}

void residency_learned_step(struct residency *r, uint32_t place)
{
    if (!r->learned)
        return;
    struct residency_learned_arriving *x = &r->learned->arriving[place];
    if (x->arrived == 0 || !same_step(&x->at, &r->now))
        return;
    bool complete = x->arrived == r->config.experts;
    x->arrived = 0;
    if (complete)
        take_layer(r, r->now.layer, x->levels);
}

void residency_logits(struct residency *r, const struct residency_step *at, uint32_t first,
                      const uint8_t *levels, uint32_t count)
{
    OBJ_CHECK(r, RESIDENCY_MAGIC);
    sl_assert(at->layer < r->config.layers && first <= r->config.experts &&
              count <= r->config.experts - first);
    if (!r->learned)
        return;
    residency_sequence_starts(r, at->sequence);
    uint32_t place = sequences_find(&r->sequences, at->sequence);
    struct residency_learned_arriving *x = &r->learned->arriving[place];
    if (first == 0)
        *x = (struct residency_learned_arriving){.levels = x->levels, .at = *at};
    if (first != x->arrived || !same_step(&x->at, at)) { /* a piece is missing */
        x->arrived = 0;
        return;
    }
    memcpy(x->levels + first, levels, count);
    x->arrived += count;
}
