/* SPDX-License-Identifier: Apache-2.0 */
/* Router logits as those of a file of `sluice synth`: of expert e in layer l for a token
 *     z = SHARPNESS / sqrt(1 + s^2) * (s * b + n),   n = sqrt(a) * g + sqrt(1 - a) * v
 * with normal numbers b of the expert, g of the token's group and v of the token, s the skew and a
 * the locality of the law (lib/synthetic/routing_law.h). A prediction p layers ahead sees n with
 * noise: sqrt(c) * n + sqrt(1 - c) * w. In layers of a table a token has random experts of its own:
 * groups have none in common, there are no logits, and predictions are right. */
#include "lib/sim/routing.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"
#include "lib/policy/residency/residency.h"
#include "lib/synthetic/routing_law.h"
#include "lib/synthetic/token_stream.h"

#define SEED      1u
#define SEQUENCES 2u
#define SHARPNESS 1.5f /* as the defaults of synth */
#define UPDATE    4.0f /* as the default of synth */
#define VOCAB     50304u
#define AHEAD     2u /* layers, as the default preset */

enum { OF_EXPERT = 1, OF_GROUP, OF_TOKEN, OF_TABLE, OF_PREDICTION };

struct maker {
    const struct routing *r;
    struct trace *t;
    uint64_t capacity;
    bool failed;
    const struct routing_law *law;
    struct token_stream stream;
    uint32_t sequence, position;
    uint32_t *token;      /* [chunk] */
    float *noise, *logit; /* [experts] */
    uint32_t *order;      /* [top_k + 1] */
    float *share;         /* [top_k] */
    struct count {
        uint32_t expert, tokens;
    } * count; /* [experts]: of a chunk */
};

static void add(struct maker *m, const struct trace_record *record)
{
    struct trace *t = m->t;
    if (t->count == m->capacity && !m->failed) {
        uint64_t capacity = m->capacity ? 2 * m->capacity : 1u << 16;
        struct trace_record *grown = realloc(t->records, capacity * sizeof *grown);
        m->failed = !grown;
        if (grown) {
            t->records = grown;
            m->capacity = capacity;
        }
    }
    if (!m->failed)
        t->records[t->count++] = *record;
}

static void add_event(struct maker *m, enum trace_kind kind, uint32_t tokens, bool prefill)
{
    add(m, &(struct trace_record){.sequence = m->sequence,
                                  .position = m->position,
                                  .tokens = tokens,
                                  .kind = (uint8_t)kind,
                                  .prefill = prefill});
}

/* ---- logits ---- */

/* Adds `factor` times the numbers of (kind, layer, id) to x. */
static void add_normals(const struct maker *m, float *x, float factor, uint32_t kind,
                        uint32_t layer, uint64_t id)
{
    struct random random;
    random_seed(&random, SEED, id << 16 | layer << 4 | kind);
    for (uint32_t e = 0; e < m->r->experts; e++)
        x[e] += factor * random_normal(&random);
}

/* The noise n of a token in a layer. */
static void make_noise(struct maker *m, uint32_t layer, uint32_t token)
{
    memset(m->noise, 0, m->r->experts * sizeof *m->noise);
    add_normals(m, m->noise, sqrtf(m->law->locality), OF_GROUP, layer, token / TOKEN_GROUP);
    add_normals(m, m->noise, sqrtf(1 - m->law->locality), OF_TOKEN, layer, token);
}

/* Share of the variance of a layer's gate input that the gate input `ahead` layers before it has,
 * too: what layers add to the residual stream comes later. */
static float seen_before(const struct maker *m, uint32_t layer, uint32_t ahead)
{
    float step = UPDATE / (float)m->r->model_layers;
    float at = 1 + UPDATE * ((float)layer + 0.5f) / (float)m->r->layers;
    return 1 - step * (float)ahead / at;
}

/* Its logits as seen `ahead` layers before; 0: by the router itself. make_noise was called. */
static void make_logits(struct maker *m, uint32_t layer, uint32_t token, uint32_t ahead)
{
    float skew = m->law->skew, seen = seen_before(m, layer, ahead);
    float all = SHARPNESS / sqrtf(1 + skew * skew);
    for (uint32_t e = 0; e < m->r->experts; e++)
        m->logit[e] = all * sqrtf(seen) * m->noise[e];
    add_normals(m, m->logit, all * skew, OF_EXPERT, layer, 0);
    if (ahead > 0)
        add_normals(m, m->logit, all * sqrtf(1 - seen), OF_PREDICTION + ahead, layer, token);
}

/* order[0..k-1]: the experts with the largest logits, in descending order. */
static void choose(struct maker *m)
{
    uint32_t k = m->r->top_k, n = 0;
    for (uint32_t e = 0; e < m->r->experts; e++) {
        uint32_t at = n < k ? n : k;
        while (at > 0 && m->logit[m->order[at - 1]] < m->logit[e])
            at--;
        if (at == k)
            continue;
        n += n < k;
        memmove(m->order + at + 1, m->order + at, (n - 1 - at) * sizeof *m->order);
        m->order[at] = e;
    }
}

static bool by_table(const struct maker *m, uint32_t layer)
{
    return layer < m->r->table_layers;
}

/* order[0..k-1]: what the table of the layer has for the token. */
static void look_up(struct maker *m, uint32_t layer, uint32_t token)
{
    struct random random;
    random_seed(&random, SEED, (uint64_t)token << 16 | layer << 4 | OF_TABLE);
    for (uint32_t n = 0, same; n < m->r->top_k; n += same == n) {
        m->order[n] = (uint32_t)random_below(&random, m->r->experts);
        for (same = 0; m->order[same] != m->order[n];)
            same++;
    }
}

/* The choice of a layer as seen `ahead` layers before, and, unless a table has made it, logits. */
static void route(struct maker *m, uint32_t layer, uint32_t token, uint32_t ahead)
{
    if (by_table(m, layer)) {
        look_up(m, layer, token);
        return;
    }
    make_noise(m, layer, token);
    make_logits(m, layer, token, ahead);
    choose(m);
}

/* share[i]: softmax of order[i] among all experts; those of a table have equal shares. */
static void make_shares(struct maker *m, uint32_t layer)
{
    if (by_table(m, layer)) {
        for (uint32_t i = 0; i < m->r->top_k; i++)
            m->share[i] = 1 / (float)m->r->top_k;
        return;
    }
    float largest = m->logit[m->order[0]], sum = 0;
    for (uint32_t e = 0; e < m->r->experts; e++)
        sum += expf(m->logit[e] - largest);
    for (uint32_t i = 0; i < m->r->top_k; i++)
        m->share[i] = expf(m->logit[m->order[i]] - largest) / sum;
}

/* ---- one decoded token ---- */

static void add_levels(struct maker *m, uint32_t layer)
{
    uint8_t levels[MODEL_EXPERTS_MAX];
    uint32_t experts = m->r->experts;
    residency_logit_levels(m->logit, experts, levels);
    for (uint32_t first = 0; first < experts; first += TRACE_VALUES) {
        uint32_t n = experts - first < TRACE_VALUES ? experts - first : TRACE_VALUES;
        struct trace_record record = {.sequence = m->sequence,
                                      .position = m->position,
                                      .layer = (uint16_t)layer,
                                      .expert = (uint16_t)first,
                                      .rank = (uint8_t)n,
                                      .kind = TRACE_LOGITS};
        for (uint32_t i = 0; i < n; i++)
            (i < TRACE_VALUES_HALF ? record.values : record.more_values - TRACE_VALUES_HALF)[i] =
                levels[first + i];
        add(m, &record);
    }
}

static void add_experts(struct maker *m, uint32_t layer)
{
    make_shares(m, layer);
    for (uint32_t i = 0; i < m->r->top_k; i++)
        add(m, &(struct trace_record){.sequence = m->sequence,
                                      .position = m->position,
                                      .tokens = 1,
                                      .weight = m->share[i],
                                      .layer = (uint16_t)layer,
                                      .expert = (uint16_t)m->order[i],
                                      .kind = TRACE_EXPERT,
                                      .rank = (uint8_t)i});
}

static void add_predictions(struct maker *m, uint32_t from, uint32_t token)
{
    for (uint32_t ahead = 1; ahead <= AHEAD && from + ahead < m->r->layers; ahead++) {
        route(m, from + ahead, token, ahead);
        make_shares(m, from + ahead);
        for (uint32_t i = 0; i < m->r->top_k; i++)
            add(m, &(struct trace_record){.sequence = m->sequence,
                                          .position = m->position,
                                          .weight = m->share[i],
                                          .layer = (uint16_t)(from + ahead),
                                          .from_layer = (uint16_t)from,
                                          .expert = (uint16_t)m->order[i],
                                          .kind = TRACE_PREDICTED,
                                          .rank = (uint8_t)i});
    }
}

static void decode(struct maker *m)
{
    uint32_t token = token_stream_next(&m->stream);
    for (uint32_t layer = 0; layer < m->r->layers; layer++) {
        route(m, layer, token, 0);
        if (!by_table(m, layer))
            add_levels(m, layer);
        add_experts(m, layer);
        add_predictions(m, layer, token);
    }
    add_event(m, TRACE_TOKEN_END, 1, false);
    m->position++;
}

/* ---- a chunk of a prompt ---- */

static int most_tokens_first(const void *a, const void *b)
{
    const struct count *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens < y->tokens ? 1 : -1;
    return x->expert < y->expert ? -1 : 1;
}

/* count[0..]: experts that at least one token of the chunk chooses in the layer. Returns their
 * number. */
static uint32_t count_chunk(struct maker *m, uint32_t layer, uint32_t rows, uint32_t ahead)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < m->r->experts; e++)
        m->count[e] = (struct count){.expert = e};
    for (uint32_t i = 0; i < rows; i++) {
        route(m, layer, m->token[i], ahead);
        for (uint32_t k = 0; k < m->r->top_k; k++)
            m->count[m->order[k]].tokens++;
    }
    qsort(m->count, m->r->experts, sizeof *m->count, most_tokens_first);
    while (n < m->r->experts && m->count[n].tokens > 0)
        n++;
    return n;
}

static void add_chunk(struct maker *m, uint32_t layer, uint32_t rows, uint32_t from)
{
    bool accesses = from == layer;
    uint32_t n = count_chunk(m, layer, rows, layer - from);
    for (uint32_t i = 0; i < n; i++)
        add(m, &(struct trace_record){.sequence = m->sequence,
                                      .position = m->position,
                                      .tokens = accesses ? m->count[i].tokens : 0,
                                      .weight = accesses ? 1 : (float)m->count[i].tokens,
                                      .layer = (uint16_t)layer,
                                      .from_layer = accesses ? 0 : (uint16_t)from,
                                      .expert = (uint16_t)m->count[i].expert,
                                      .kind = accesses ? TRACE_EXPERT : TRACE_PREDICTED,
                                      .prefill = 1});
}

static void prefill(struct maker *m, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        m->token[i] = token_stream_next(&m->stream);
    for (uint32_t layer = 0; layer < m->r->layers; layer++) {
        add_chunk(m, layer, rows, layer);
        if (layer + 1 < m->r->layers)
            add_chunk(m, layer + 1, rows, layer);
    }
    add_event(m, TRACE_TOKEN_END, rows, true);
    m->position += rows;
}

/* ---- all of it ---- */

static void make_sequence(struct maker *m)
{
    const struct routing *r = m->r;
    m->position = 0;
    add_event(m, TRACE_SEQUENCE_START, r->prompt, false);
    for (uint32_t done = 0; done < r->prompt && !m->failed; done += r->chunk)
        prefill(m, r->prompt - done < r->chunk ? r->prompt - done : r->chunk);
    for (uint32_t i = 0; i < r->tokens && !m->failed; i++)
        decode(m);
    add_event(m, TRACE_SEQUENCE_END, 0, false);
    m->sequence++;
}

static void make_header(const struct routing *r, struct trace_header *h)
{
    trace_header_init(h);
    h->layers = r->layers;
    h->experts = r->experts;
    h->top_k = r->top_k;
    h->table_layers = r->table_layers;
    h->precision_mask = 1u << PRECISION_NATIVE;
    h->precision_bytes[PRECISION_NATIVE] = r->expert_bytes;
}

int routing_trace(const struct routing *r, struct trace *out, uint64_t *measure,
                  struct error *error)
{
    struct maker m = {.r = r, .t = out, .law = routing_law_of(r->experts, r->top_k)};
    sl_assert(r->top_k > 0 && r->top_k <= r->experts && r->experts <= MODEL_EXPERTS_MAX);
    sl_assert(r->chunk > 0 && r->layers > 0 && r->layers <= r->model_layers);
    sl_assert(r->table_layers <= r->layers);
    *out = (struct trace){.count = 0};
    make_header(r, &out->header);
    token_stream_start(&m.stream, SEED, TOKEN_STREAM_STAY, VOCAB);
    m.token = calloc(r->chunk, sizeof *m.token);
    m.noise = calloc(r->experts, sizeof *m.noise);
    m.logit = calloc(r->experts, sizeof *m.logit);
    m.order = calloc(r->top_k + 1, sizeof *m.order);
    m.share = calloc(r->top_k, sizeof *m.share);
    m.count = calloc(r->experts, sizeof *m.count);
    m.failed = !m.token || !m.noise || !m.logit || !m.order || !m.share || !m.count;
    for (uint32_t s = 0; s < SEQUENCES && !m.failed; s++) {
        *measure = out->count;
        make_sequence(&m);
    }
    free(m.token);
    free(m.noise);
    free(m.logit);
    free(m.order);
    free(m.share);
    free(m.count);
    if (!m.failed)
        return 0;
    trace_free(out);
    return error_set(error, ERR_NO_MEMORY, "out of memory (synthetic routing)");
}
