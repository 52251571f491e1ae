/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic traces: Zipf popularity, locality, and predictions of a given recall. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/trace/trace.h"

#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

struct maker {
    const struct trace_synthetic *s;
    struct trace *t;
    uint64_t capacity, random;
    double *cumulative;    /* [experts]: of ranks */
    uint16_t *expert_of;   /* [layers][experts]: expert of a rank */
    uint16_t *chosen;      /* [layers][top_k]: of the previous token */
    uint32_t *tokens_with; /* [experts]: of a chunk's layer */
    uint32_t position;
    bool first;
};

void trace_synthetic_defaults(struct trace_synthetic *s)
{
    *s = (struct trace_synthetic){.layers = 8,
                                  .experts = 32,
                                  .top_k = 4,
                                  .skew = 0.5,
                                  .locality = 0.3,
                                  .recall = 0.75,
                                  .prompt = 32,
                                  .tokens = 512,
                                  .sequences = 4,
                                  .expert_bytes = 1u << 20,
                                  .precision_mask = 0xf,
                                  .seed = 1};
}

static double uniform(struct maker *m) /* [0, 1) */
{
    uint64_t z = m->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)((z ^ (z >> 31)) >> 11) / (double)(1ull << 53);
}

static void add(struct maker *m, const struct trace_record *r)
{
    if (m->t->count < m->capacity)
        m->t->records[m->t->count] = *r;
    m->t->count++;
}

static void add_event(struct maker *m, uint32_t sequence, enum trace_kind kind, uint32_t tokens)
{
    add(m, &(struct trace_record){.sequence = sequence,
                                  .position = m->position,
                                  .tokens = tokens,
                                  .kind = (uint8_t)kind,
                                  .prefill = tokens > 1});
}

static uint16_t draw(struct maker *m, uint32_t layer)
{
    double u = uniform(m) * m->cumulative[m->s->experts - 1];
    uint32_t low = 0, high = m->s->experts - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (m->cumulative[middle] > u)
            high = middle;
        else
            low = middle + 1;
    }
    return m->expert_of[layer * m->s->experts + low];
}

static bool among(const uint16_t *list, uint32_t count, uint16_t x)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* Chooses the token's experts of a layer into its row of `chosen`. */
static void route(struct maker *m, uint32_t layer)
{
    uint32_t k = m->s->top_k, n = 0;
    uint16_t *row = m->chosen + (size_t)layer * k, now[MODEL_TOP_K_MAX];
    for (uint32_t i = 0; i < k && !m->first; i++)
        if (uniform(m) < m->s->locality)
            now[n++] = row[i];
    while (n < k) {
        uint16_t expert = draw(m, layer);
        for (uint32_t tries = 0; among(now, n, expert); tries++) /* a steep law repeats its draws */
            expert = tries < 64 ? draw(m, layer) : (uint16_t)((expert + 1u) % m->s->experts);
        now[n++] = expert;
    }
    memcpy(row, now, k * sizeof *row);
}

/* Gate weights fall by half from rank to rank. */
static float weight_of(uint32_t rank, uint32_t k)
{
    return (float)(exp2(-(double)rank) / (2 - exp2(1 - (double)k)));
}

static float before_of(uint32_t rank, uint32_t k)
{
    return (float)((1 - exp2(-(double)rank)) / (1 - exp2(-(double)k)));
}

static void add_predictions(struct maker *m, uint32_t sequence, uint32_t layer)
{
    const struct trace_synthetic *s = m->s;
    uint32_t want = s->predictions ? s->predictions : s->top_k, n = 0;
    uint16_t prediction[MODEL_EXPERTS_MAX];
    for (uint32_t i = 0; i < s->top_k && n < want; i++)
        if (uniform(m) < s->recall)
            prediction[n++] = m->chosen[(size_t)layer * s->top_k + i];
    for (uint32_t tries = 0; n < want && n < s->experts && tries < 64 * want; tries++) {
        uint16_t expert = draw(m, layer);
        if (!among(prediction, n, expert) &&
            !among(m->chosen + (size_t)layer * s->top_k, s->top_k, expert))
            prediction[n++] = expert;
    }
    for (uint32_t i = 0; i < n; i++)
        add(m, &(struct trace_record){.sequence = sequence,
                                      .position = m->position,
                                      .tokens = 1,
                                      .weight = weight_of(i, want),
                                      .layer = (uint16_t)layer,
                                      .expert = prediction[i],
                                      .kind = TRACE_PREDICTED,
                                      .rank = (uint8_t)(i < 255 ? i : 255),
                                      .from_layer = (uint16_t)(layer - 1)});
}

static void add_token(struct maker *m, uint32_t sequence)
{
    uint32_t k = m->s->top_k;
    for (uint32_t l = 0; l < m->s->layers; l++)
        route(m, l);
    for (uint32_t l = 0; l < m->s->layers; l++) {
        for (uint32_t i = 0; i < k; i++)
            add(m, &(struct trace_record){.sequence = sequence,
                                          .position = m->position,
                                          .tokens = 1,
                                          .weight = weight_of(i, k),
                                          .layer = (uint16_t)l,
                                          .expert = m->chosen[(size_t)l * k + i],
                                          .kind = TRACE_EXPERT,
                                          .rank = (uint8_t)i});
        if (l + 1 < m->s->layers && m->s->recall > 0)
            add_predictions(m, sequence, l + 1);
    }
    add_event(m, sequence, TRACE_TOKEN_END, 1);
    m->position++;
    m->first = false;
}

/* One chunk: experts by descending number of tokens, the default load order of the engine. */
static void add_prompt(struct maker *m, uint32_t sequence)
{
    const struct trace_synthetic *s = m->s;
    uint32_t k = s->top_k;
    for (uint32_t l = 0; l < s->layers; l++) {
        uint8_t best[MODEL_EXPERTS_MAX];
        bool first = m->first;
        memset(m->tokens_with, 0, s->experts * sizeof *m->tokens_with);
        for (uint32_t token = 0; token < s->prompt; token++, m->first = false) {
            route(m, l);
            for (uint32_t i = 0; i < k; i++) {
                uint16_t e = m->chosen[(size_t)l * k + i];
                if (m->tokens_with[e]++ == 0 || i < best[e])
                    best[e] = (uint8_t)i;
            }
        }
        m->first = first && l + 1 < s->layers;
        for (uint32_t left = s->prompt; left > 0; left--)
            for (uint32_t e = 0; e < s->experts; e++)
                if (m->tokens_with[e] == left)
                    add(m, &(struct trace_record){.sequence = sequence,
                                                  .position = m->position,
                                                  .tokens = left,
                                                  .weight = weight_of(best[e], k),
                                                  .layer = (uint16_t)l,
                                                  .expert = (uint16_t)e,
                                                  .kind = TRACE_EXPERT,
                                                  .rank = best[e],
                                                  .prefill = 1,
                                                  .before = before_of(best[e], k)});
    }
    add_event(m, sequence, TRACE_TOKEN_END, s->prompt);
    m->position += s->prompt;
}

static void make(struct maker *m)
{
    const struct trace_synthetic *s = m->s;
    m->random = s->seed;
    m->t->count = 0;
    for (uint32_t e = 0; e < s->experts; e++)
        m->cumulative[e] = (e > 0 ? m->cumulative[e - 1] : 0) + pow(e + 1, -s->skew);
    for (uint32_t l = 0; l < s->layers; l++) {
        uint16_t *order = m->expert_of + (size_t)l * s->experts;
        for (uint32_t e = 0; e < s->experts; e++) {
            uint32_t at = (uint32_t)(uniform(m) * (e + 1));
            order[e] = order[at];
            order[at] = (uint16_t)e;
        }
    }
    for (uint32_t n = 1; n <= s->sequences; n++) {
        m->position = 0;
        m->first = true;
        add_event(m, n, TRACE_SEQUENCE_START, s->prompt);
        if (s->prompt > 1)
            add_prompt(m, n);
        for (uint32_t i = 0; i < s->tokens; i++)
            add_token(m, n);
        add_event(m, n, TRACE_SEQUENCE_END, 0);
    }
}

static int check(const struct trace_synthetic *s, struct error *error)
{
    if (s->layers == 0 || s->layers > MODEL_LAYERS_MAX || s->experts == 0 ||
        s->experts > MODEL_EXPERTS_MAX || s->top_k == 0 || s->top_k > MODEL_TOP_K_MAX ||
        s->top_k > s->experts || s->predictions > s->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "synthetic trace: layers, experts, top-k or predictions out of range");
    if (!(s->skew >= 0 && s->skew <= 10) || !(s->locality >= 0 && s->locality <= 1) ||
        !(s->recall >= 0 && s->recall <= 1))
        return error_set(error, ERR_BAD_INPUT,
                         "synthetic trace: skew must be 0..10, locality and recall 0..1");
    if (s->sequences == 0 || s->tokens > MODEL_CONTEXT_MAX || s->prompt > MODEL_CONTEXT_MAX ||
        s->tokens + s->prompt == 0)
        return error_set(error, ERR_BAD_INPUT, "synthetic trace: tokens or sequences out of range");
    if (s->expert_bytes < 8 || s->expert_bytes >> 40 || !(s->precision_mask & 1) ||
        s->precision_mask >> PRECISION__COUNT)
        return error_set(error, ERR_BAD_INPUT,
                         "synthetic trace: expert bytes or precisions out of range");
    uint32_t lists = s->top_k + (s->predictions ? s->predictions : s->top_k);
    double records = (double)s->sequences * (s->tokens + 1.0) * s->layers * (lists + 1.0) +
                     (double)s->sequences * s->layers * s->experts;
    if (records > (double)TRACE_RECORDS_MAX / 4)
        return error_set(error, ERR_BAD_INPUT,
                         "synthetic trace: too many records; reduce tokens, sequences or layers");
    return 0;
}

static void set_header(const struct trace_synthetic *s, struct trace_header *h)
{
    trace_header_init(h);
    h->layers = s->layers;
    h->experts = s->experts;
    h->top_k = s->top_k;
    h->precision_mask = s->precision_mask;
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        h->precision_bytes[t] = s->precision_mask >> t & 1 ? s->expert_bytes >> t : 0;
}

int trace_synthesise(const struct trace_synthetic *s, struct trace *out, struct error *error)
{
    *out = (struct trace){0};
    if (check(s, error) != 0)
        return -1;
    set_header(s, &out->header);
    size_t all = (size_t)s->layers * s->experts;
    struct maker m = {.s = s,
                      .t = out,
                      .cumulative = calloc(s->experts, sizeof *m.cumulative),
                      .expert_of = calloc(all, sizeof *m.expert_of),
                      .chosen = calloc((size_t)s->layers * s->top_k, sizeof *m.chosen),
                      .tokens_with = calloc(s->experts, sizeof *m.tokens_with)};
    bool made = m.cumulative && m.expert_of && m.chosen && m.tokens_with;
    if (made) {
        make(&m); /* first run: counts records only */
        m.capacity = out->count;
        out->records = calloc(out->count + 1, sizeof *out->records);
        made = out->records != NULL;
    }
    if (made)
        make(&m);
    free(m.cumulative);
    free(m.expert_of);
    free(m.chosen);
    free(m.tokens_with);
    if (made)
        return 0;
    trace_free(out);
    return error_set(error, ERR_NO_MEMORY, "out of memory (trace)");
}
