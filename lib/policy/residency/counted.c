/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction "learned" where router logits are absent: a logistic model (logistic.c) on the log odds
 * of an expert's three counts and of decayed-frequency's probability, which it has at first. How
 * much each count tells differs between models. The inputs of a step are taken when it begins, its
 * accesses label them when it ends. */
#include <stdlib.h>
#include <string.h>

#include "lib/policy/residency/internal.h"

#define INPUTS RESIDENCY_COUNTED_INPUTS

/* Chosen on the recordings of tests/traces: docs/lab/learned.md. */
static const double first_weights[INPUTS] = {0, 0, 0, 1, 0};

struct residency_counted_layer {
    uint64_t at; /* clock value of its last token */
    bool known;  /* it had a token */
};

struct residency_counted {
    struct residency_logistic model;
    float (*trace)[INPUTS];                /* [layers * experts] */
    struct residency_counted_layer *layer; /* [layers] */
    double (*in)[INPUTS];                  /* [experts]: of the running step */
    bool open;                             /* they are known */
    uint32_t of;                           /* their layer */
    bool learned;                          /* from a round */
};

bool residency_counted_init(struct residency *r)
{
    if (r->config.eviction != EVICTION_LEARNED)
        return true;
    struct residency_counted *x = r->counted = calloc(1, sizeof *x);
    if (!x)
        return false;
    x->trace = calloc(r->experts_all, sizeof *x->trace);
    x->layer = calloc(r->config.layers, sizeof *x->layer);
    x->in = calloc(r->config.experts, sizeof *x->in);
    residency_logistic_init(&x->model, INPUTS, first_weights);
    return x->trace && x->layer && x->in;
}

void residency_counted_free(struct residency *r)
{
    if (!r->counted)
        return;
    free(r->counted->trace);
    free(r->counted->layer);
    free(r->counted->in);
    free(r->counted);
}

static void inputs_of(struct residency *r, uint32_t expert, double in[INPUTS])
{
    for (int c = 0; c < RESIDENCY_COUNTS; c++)
        in[c] = residency_log_odds(residency_frequency_by(r, expert, (enum residency_count)c));
    in[RESIDENCY_COUNTS] = residency_log_odds(residency_decayed_probability(r, expert));
    in[RESIDENCY_COUNTS + 1] = 1;
}

bool residency_counted_probability(struct residency *r, uint32_t slot, double *probability)
{
    double in[INPUTS];
    if (!r->counted->learned)
        return false;
    inputs_of(r, residency_expert_of(r, slot), in);
    *probability = residency_logistic_probability(&r->counted->model, in);
    return true;
}

/* Returns whether this token directly follows the layer's last one. */
static bool follow(const struct residency *r, struct residency_counted_layer *layer)
{
    uint64_t now = residency_clock(r);
    bool follows = layer->known && now - layer->at <= 1; /* 0: of the same round */
    *layer = (struct residency_counted_layer){.at = now, .known = true};
    return follows;
}

void residency_counted_begins(struct residency *r)
{
    struct residency_counted *x = r->counted;
    uint32_t layer = r->now.layer, first = layer * r->config.experts;
    if (!x || residency_learned_now(r, layer))
        return;
    x->open = follow(r, &x->layer[layer]);
    x->of = layer;
    if (!x->open)
        memset(x->trace + first, 0, r->config.experts * sizeof *x->trace);
    for (uint32_t e = 0; x->open && e < r->config.experts; e++)
        inputs_of(r, first + e, x->in[e]);
}

void residency_counted_prompt(struct residency *r)
{
    if (r->counted)
        r->counted->open = false;
}

static bool used_now(const struct residency *r, uint32_t expert)
{
    bool used = false;
    for (uint32_t slot = expert; slot < r->slots; slot += r->experts_all)
        used |= r->node[slot].in_step == r->step;
    return used;
}

void residency_counted_ends(struct residency *r)
{
    struct residency_counted *x = r->counted;
    if (!x || !x->open)
        return;
    x->open = false;
    for (uint32_t e = 0; e < r->config.experts; e++) {
        uint32_t expert = x->of * r->config.experts + e;
        residency_logistic_observe(&x->model, x->in[e], x->trace[expert], used_now(r, expert));
    }
}

void residency_counted_pass(struct residency *r)
{
    if (!r->counted || !residency_logistic_step(&r->counted->model))
        return;
    r->counted->learned = true;
    r->decayed_now.clock = UINT64_MAX;
}
