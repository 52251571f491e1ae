/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the sets of SwapMoE and their importances, and finds the next replacement. */
#include "lib/policy/access/swap.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define SWAP_MAGIC      0x50415753u
#define SWAP_LATE_SHARE 3 /* of the interval */

struct swap_layer {
    uint32_t keep;           /* v */
    uint32_t pairs, handed;  /* of the last update */
    uint16_t *in, *out;      /* [experts] */
    uint64_t *due;           /* [experts]: of each pair, in tokens */
    uint8_t *serving, *want; /* [experts] */
    float *importance;       /* [experts] */
};

struct swap {
    uint32_t magic;
    struct swap_config config; /* its arrays are not retained */
    struct swap_layer *layer;
    float *norm;              /* [layers * experts], or NULL */
    uint8_t *saved;           /* [experts]: the serving set while a layer is updated */
    uint32_t with_experts;    /* layers */
    uint64_t tokens, updates; /* updates made, over all layers */
    bool handed_out;
    struct swap_pair pair; /* the pair in progress */
    uint64_t done;
};

/* ---- making --------------------------------------------------------------------------------- */

/* How many layers have experts. */
static uint32_t count_layers(const struct swap_config *c)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < c->layers; l++)
        n += c->keep[l] > 0;
    return n;
}

static bool config_is_sane(const struct swap_config *c)
{
    if (c->layers == 0 || c->experts == 0 || c->experts > UINT16_MAX || c->interval == 0 ||
        !(c->margin >= 0) || !c->keep)
        return false;
    for (uint32_t l = 0; l < c->layers; l++)
        if (c->keep[l] > 0 && (c->keep[l] < c->top_k || c->keep[l] > c->experts))
            return false;
    return count_layers(c) > 0;
}

/* The layer with experts that has so many of them before it. */
static uint32_t layer_number(const struct swap *s, uint32_t number)
{
    uint32_t layer = 0;
    while (s->layer[layer].keep == 0 || number-- > 0)
        layer++;
    return layer;
}

static bool layer_init(struct swap *s, uint32_t layer)
{
    struct swap_layer *l = &s->layer[layer];
    uint32_t experts = s->config.experts;
    l->keep = s->config.keep[layer];
    l->in = calloc(experts, sizeof *l->in);
    l->out = calloc(experts, sizeof *l->out);
    l->due = calloc(experts, sizeof *l->due);
    l->serving = calloc(experts, 1);
    l->want = calloc(experts, 1);
    l->importance = calloc(experts, sizeof *l->importance);
    return l->in && l->out && l->due && l->serving && l->want && l->importance;
}

/* Marks the `keep` largest; ties: experts that serve, then the lower index. */
static void mark_largest(const struct swap_layer *l, const float *value, uint32_t experts,
                         uint8_t *mark)
{
    memset(mark, 0, experts);
    for (uint32_t n = 0; n < l->keep; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < experts; e++) {
            if (mark[e])
                continue;
            if (best == UINT32_MAX || value[e] > value[best] ||
                (value[e] == value[best] && l->serving[e] && !l->serving[best]))
                best = e;
        }
        mark[best] = 1;
    }
}

struct swap *swap_create(const struct swap_config *config)
{
    struct swap *s = config_is_sane(config) ? calloc(1, sizeof *s) : NULL;
    uint32_t experts = config->experts;
    if (!s)
        return NULL;
    *s =
        (struct swap){.magic = SWAP_MAGIC, .config = *config, .with_experts = count_layers(config)};
    s->updates = s->with_experts;
    size_t all = (size_t)config->layers * experts;
    bool made = (s->layer = calloc(config->layers, sizeof *s->layer)) != NULL &&
                (s->saved = calloc(experts, 1)) != NULL;
    for (uint32_t l = 0; made && l < config->layers; l++)
        made = layer_init(s, l);
    if (made && config->norm) {
        made = (s->norm = malloc(all * sizeof *s->norm)) != NULL;
        if (made)
            memcpy(s->norm, config->norm, all * sizeof *s->norm);
    }
    if (!made) {
        swap_destroy(s);
        return NULL;
    }
    for (uint32_t l = 0; l < config->layers; l++) {
        const float *norm = s->norm ? s->norm + (size_t)l * experts : s->layer[l].importance;
        mark_largest(&s->layer[l], norm, experts, s->layer[l].want);
        memcpy(s->layer[l].serving, s->layer[l].want, experts);
    }
    s->config.keep = NULL;
    s->config.norm = NULL;
    return s;
}

void swap_destroy(struct swap *s)
{
    if (!s)
        return;
    OBJ_CHECK(s, SWAP_MAGIC);
    for (uint32_t l = 0; s->layer && l < s->config.layers; l++) {
        free(s->layer[l].in);
        free(s->layer[l].out);
        free(s->layer[l].due);
        free(s->layer[l].serving);
        free(s->layer[l].want);
        free(s->layer[l].importance);
    }
    free(s->layer);
    free(s->norm);
    free(s->saved);
    s->magic = 0;
    free(s);
}

static struct swap_layer *layer_at(const struct swap *s, uint32_t layer)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    sl_assert(layer < s->config.layers);
    return &s->layer[layer];
}

void swap_set(struct swap *s, uint32_t layer, const uint8_t *resident)
{
    struct swap_layer *l = layer_at(s, layer);
    uint32_t count = 0;
    for (uint32_t e = 0; e < s->config.experts; e++) {
        l->serving[e] = resident[e] != 0;
        count += l->serving[e];
    }
    sl_assert(count == l->keep);
    l->pairs = l->handed = 0;
    if (s->handed_out && s->pair.layer == layer)
        s->handed_out = false;
}

/* ---- importance ----------------------------------------------------------------------------- */

void swap_choice(struct swap *s, uint32_t layer, uint32_t expert, float value)
{
    struct swap_layer *l = layer_at(s, layer);
    sl_assert(expert < s->config.experts);
    float norm = s->norm ? s->norm[(size_t)layer * s->config.experts + expert] : 1;
    float add = s->config.count_only ? 1 : value * norm;
    if (add > 0) /* neither NaN nor negative: the values come from another process */
        l->importance[expert] += add;
}

float swap_importance(const struct swap *s, uint32_t layer, uint32_t expert)
{
    sl_assert(expert < s->config.experts);
    return layer_at(s, layer)->importance[expert];
}

/* ---- updates ------------------------------------------------------------------------------- */

/* Candidate: the most important expert that is wanted and does not serve; clearing `want` removes
 * it. Victim: the least important that serves and is not wanted; setting `want` removes it. */
static uint32_t next_candidate(const struct swap_layer *l, uint32_t experts)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < experts; e++)
        if (l->want[e] && !l->serving[e] &&
            (best == UINT32_MAX || l->importance[e] > l->importance[best]))
            best = e;
    return best;
}

static uint32_t next_victim(const struct swap_layer *l, uint32_t experts)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < experts; e++)
        if (!l->want[e] && l->serving[e] &&
            (best == UINT32_MAX || l->importance[e] < l->importance[best]))
            best = e;
    return best;
}

/* Minimum importance advantage of a candidate over its victim. */
static float margin_of(const struct swap *s, const struct swap_layer *l)
{
    double sum = 0;
    for (uint32_t e = 0; e < s->config.experts; e++)
        sum += (double)l->importance[e];
    return s->config.margin * (float)(sum / s->config.experts);
}

static bool has_importance(const struct swap *s, const struct swap_layer *l)
{
    for (uint32_t e = 0; e < s->config.experts; e++)
        if (l->importance[e] > 0)
            return true;
    return false;
}

static void exchange(struct swap_layer *l, uint32_t in, uint32_t out)
{
    l->serving[in] = 1;
    l->serving[out] = 0;
}

/* Of the pairs of the last update, those that became due since `from` remain: single tokens would
 * have done them before this update. Older ones had their time, later ones are superseded. At most
 * half of the experts remain, because a layer is updated once per call, and an update has no more
 * pairs. */
static void keep_due(struct swap_layer *l, uint64_t from, uint64_t when)
{
    uint32_t kept = 0;
    for (uint32_t i = l->handed; i < l->pairs; i++) {
        if (l->due[i] <= from || l->due[i] >= when)
            continue;
        exchange(l, l->in[i], l->out[i]);
        l->in[kept] = l->in[i];
        l->out[kept] = l->out[i];
        l->due[kept++] = l->due[i];
    }
    l->pairs = kept;
    l->handed = 0;
}

/* Appends the pairs of an update made at `when`; they are spread over `part` tokens. */
static void add_pairs(const struct swap *s, struct swap_layer *l, uint64_t when, uint64_t part)
{
    uint32_t experts = s->config.experts, first = l->pairs;
    float margin = margin_of(s, l);
    for (uint32_t in; (in = next_candidate(l, experts)) != UINT32_MAX;) {
        uint32_t out = next_victim(l, experts);
        sl_assert(out != UINT32_MAX); /* there are as many victims as candidates */
        if (l->importance[in] - l->importance[out] < margin) /* further pairs differ by less */
            break;
        sl_assert(l->pairs < experts);
        l->in[l->pairs] = (uint16_t)in;
        l->out[l->pairs++] = (uint16_t)out;
        l->want[in] = 0;
        l->want[out] = 1;
    }
    for (uint32_t i = first; i < l->pairs; i++)
        l->due[i] = when + part * (i - first) / (l->pairs - first);
}

/* Updated as if the pair in progress, and those that remain, were done. */
static void update(struct swap *s, uint32_t layer, uint64_t from, uint64_t when)
{
    struct swap_layer *l = layer_at(s, layer);
    uint32_t experts = s->config.experts;
    memcpy(s->saved, l->serving, experts);
    if (s->handed_out && s->pair.layer == layer)
        exchange(l, s->pair.in, s->pair.out);
    keep_due(l, from, when);
    mark_largest(l, l->importance, experts, l->want);
    add_pairs(s, l, when, s->config.amortise ? s->config.interval / s->with_experts : 0);
    memcpy(l->serving, s->saved, experts);
    memset(l->importance, 0, experts * sizeof *l->importance);
}

/* The token at which the n-th update is made; updates rotate over the layers with experts. */
static uint64_t update_time(const struct swap *s, uint64_t n)
{
    uint64_t layers = s->with_experts, f = s->config.interval;
    return n / layers * f + (s->config.amortise ? n % layers * f / layers : 0);
}

/* A chunk can pass several update times of a layer. Its importance arrived at once, so only the
 * first has any; an update without would cancel the pairs of the update before. */
void swap_tokens(struct swap *s, uint32_t tokens)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    uint64_t from = s->tokens;
    s->tokens += tokens;
    for (uint64_t when; (when = update_time(s, s->updates)) <= s->tokens; s->updates++) {
        uint32_t layer = layer_number(s, (uint32_t)(s->updates % s->with_experts));
        if (has_importance(s, &s->layer[layer]))
            update(s, layer, from, when);
    }
}

uint32_t swap_rows_max(uint64_t interval)
{
    uint64_t rows = interval / SWAP_LATE_SHARE;
    return rows > UINT32_MAX ? UINT32_MAX : rows > 1 ? (uint32_t)rows : 1;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Of the next pair of a layer that has one. */
static uint64_t due(const struct swap_layer *l)
{
    return l->due[l->handed];
}

uint64_t swap_idle_tokens(const struct swap *s)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    uint64_t next = update_time(s, s->updates);
    for (uint32_t i = 0; i < s->config.layers; i++) {
        const struct swap_layer *l = &s->layer[i];
        if (l->handed < l->pairs && due(l) < next)
            next = due(l);
    }
    return next > s->tokens ? next - s->tokens : 0;
}

bool swap_next(struct swap *s, struct swap_pair *pair)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < s->config.layers && !s->handed_out; i++) {
        const struct swap_layer *l = &s->layer[i];
        if (l->handed < l->pairs && due(l) <= s->tokens &&
            (best == UINT32_MAX || due(l) < due(&s->layer[best])))
            best = i;
    }
    if (best == UINT32_MAX)
        return false;
    struct swap_layer *l = &s->layer[best];
    *pair = s->pair = (struct swap_pair){best, l->in[l->handed], l->out[l->handed]};
    l->handed++;
    s->handed_out = true;
    return true;
}

void swap_done(struct swap *s)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    if (!s->handed_out) /* swap_set was called in between */
        return;
    struct swap_layer *l = &s->layer[s->pair.layer];
    sl_assert(!l->serving[s->pair.in] && l->serving[s->pair.out]);
    l->serving[s->pair.in] = 1;
    l->serving[s->pair.out] = 0;
    s->handed_out = false;
    s->done++;
}

/* Later pairs assume that this one was done, and may name the same experts: the update is
 * dropped. */
void swap_abandon(struct swap *s)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    if (!s->handed_out)
        return;
    struct swap_layer *l = &s->layer[s->pair.layer];
    l->pairs = l->handed = 0;
    s->handed_out = false;
}

const uint8_t *swap_serving(const struct swap *s, uint32_t layer)
{
    return layer_at(s, layer)->serving;
}

uint64_t swap_pairs_done(const struct swap *s)
{
    OBJ_CHECK(s, SWAP_MAGIC);
    return s->done;
}
