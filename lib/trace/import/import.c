/* SPDX-License-Identifier: Apache-2.0 */
/* A recording becomes a trace: its uses are sorted by token, and prompts become chunks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/trace/import/internal.h"

#define EXPERT_BYTES ((uint64_t)1 << 20) /* where nothing says it */

struct maker {
    const struct recording *r;
    struct trace *t;
    uint64_t capacity;
    uint32_t position;
    struct chunk_expert {
        uint32_t tokens, expert;
        float weight, before;
        uint8_t rank;
    } * chunk;       /* those that tokens use in one layer */
    uint32_t count;  /* of these */
    uint32_t *place; /* [experts]: 1 + the index of an expert in `chunk`; 0: it is not there */
};

/* ---- the recording -------------------------------------------------------------------------- */

int recording_add(struct recording *r, const struct use *use, struct error *error)
{
    if (r->count >= TRACE_RECORDS_MAX / 4)
        return error_set(error, ERR_BAD_INPUT, "too many uses of experts");
    if (r->count == r->capacity) {
        uint64_t capacity = r->capacity > 0 ? 2 * r->capacity : 4096;
        struct use *grown = realloc(r->use, capacity * sizeof *grown);
        if (!grown)
            return error_set(error, ERR_NO_MEMORY, "out of memory (recorded routing)");
        r->use = grown;
        r->capacity = capacity;
    }
    r->use[r->count++] = *use;
    return 0;
}

int recording_names_layers(const struct recording *r, struct error *error)
{
    return r->how->dense == 0
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "'dense' is for recordings of warp and stratamoe: this one has the "
                           "numbers of its layers");
}

static int by_order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int in_order(const void *x, const void *y)
{
    const struct use *a = x, *b = y;
    int order = by_order((uint64_t)a->turn << 1 | a->decoded, (uint64_t)b->turn << 1 | b->decoded);
    if (order == 0)
        order = by_order(a->step, b->step);
    return order != 0
               ? order
               : by_order((uint64_t)a->layer << 16 | a->slot, (uint64_t)b->layer << 16 | b->slot);
}

/* Of the uses of a prompt: by layer. */
static int in_layers(const void *x, const void *y)
{
    const struct use *a = x, *b = y;
    int order = by_order(a->layer, b->layer);
    return order != 0 ? order : in_order(x, y);
}

static bool same_pass(const struct use *a, const struct use *b)
{
    return a->turn == b->turn && a->decoded == b->decoded;
}

static bool same_token(const struct use *a, const struct use *b)
{
    return same_pass(a, b) && a->step == b->step;
}

/* Where the layer of a token that begins at use `first` ends. */
static uint64_t layer_end(const struct recording *r, uint64_t first)
{
    uint64_t i = first;
    while (i < r->count && same_token(&r->use[i], &r->use[first]) &&
           r->use[i].layer == r->use[first].layer)
        i++;
    return i;
}

static int check_layer(const struct recording *r, uint64_t first, uint64_t end, struct error *error)
{
    for (uint64_t i = first; i < end; i++)
        for (uint64_t k = first; k < i; k++)
            if (r->use[k].expert == r->use[i].expert || r->use[k].slot == r->use[i].slot)
                return error_set(error, ERR_BAD_INPUT,
                                 "turn %u, step %u: layer %u has expert %u or rank %u twice",
                                 r->use[i].turn, r->use[i].step, r->use[i].layer, r->use[i].expert,
                                 r->use[i].slot);
    return 0;
}

/* Sorts the uses, and finds what the recording did not say. */
static int complete(struct recording *r, struct error *error)
{
    uint32_t layers = 0, experts = 0, top_k = 0;
    if (r->count == 0)
        return error_set(error, ERR_BAD_INPUT, "no token uses an expert");
    qsort(r->use, r->count, sizeof *r->use, in_order);
    for (uint64_t i = 0; i < r->count;) {
        uint64_t end = layer_end(r, i);
        if (end - i > MODEL_TOP_K_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "turn %u, step %u: layer %u has more than %d experts", r->use[i].turn,
                             r->use[i].step, r->use[i].layer, MODEL_TOP_K_MAX);
        if (check_layer(r, i, end, error) != 0)
            return -1;
        layers = r->use[i].layer >= layers ? r->use[i].layer + 1u : layers;
        top_k = end - i > top_k ? (uint32_t)(end - i) : top_k;
        r->has_experts[r->use[i].layer] = true;
        for (; i < end; i++)
            experts = r->use[i].expert >= experts ? r->use[i].expert + 1u : experts;
    }
    r->experts = r->how->experts > 0 ? r->how->experts : r->experts;
    r->expert_bytes = r->how->expert_bytes > 0 ? r->how->expert_bytes : r->expert_bytes;
    r->expert_bytes = r->expert_bytes > 0 ? r->expert_bytes : EXPERT_BYTES;
    r->layers = r->layers > 0 ? r->layers : layers;
    r->top_k = r->top_k > 0 ? r->top_k : top_k;
    if (r->experts == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "the recording does not say how many experts a layer has (it uses %u)",
                         experts);
    if (layers > r->layers || experts > r->experts || top_k > r->top_k)
        return error_set(error, ERR_BAD_INPUT,
                         "%u layers, %u experts and %u of them for a token are used; there are "
                         "%u, %u and %u",
                         layers, experts, top_k, r->layers, r->experts, r->top_k);
    return 0;
}

/* ---- the trace ------------------------------------------------------------------------------ */

/* The records were counted: there is one of each use, and at most three of each token. */
static void add(struct maker *m, const struct trace_record *record)
{
    sl_assert(m->t->count < m->capacity);
    m->t->records[m->t->count++] = *record;
}

static void add_event(struct maker *m, enum trace_kind kind, uint32_t tokens, bool prefill)
{
    add(m, &(struct trace_record){.sequence = 1,
                                  .position = m->position,
                                  .tokens = tokens,
                                  .kind = (uint8_t)kind,
                                  .prefill = prefill});
}

/* The token whose first use is `first`; returns the first use of the next one. */
static uint64_t add_token(struct maker *m, uint64_t first)
{
    const struct recording *r = m->r;
    uint64_t i = first;
    for (; i < r->count && same_token(&r->use[i], &r->use[first]); i++)
        add(m, &(struct trace_record){.sequence = 1,
                                      .position = m->position,
                                      .tokens = 1,
                                      .weight = r->use[i].weight,
                                      .layer = r->use[i].layer,
                                      .expert = r->use[i].expert,
                                      .kind = TRACE_EXPERT,
                                      .rank = (uint8_t)r->use[i].slot});
    add_event(m, TRACE_TOKEN_END, 1, false);
    m->position++;
    return i;
}

/* Most tokens first: the default order in which the engine loads experts of a chunk. */
static int most_tokens_first(const void *x, const void *y)
{
    const struct chunk_expert *a = x, *b = y;
    return a->tokens != b->tokens ? by_order(b->tokens, a->tokens) : by_order(a->expert, b->expert);
}

/* An expert of the chunk's layer, without tokens if it is new there. */
static struct chunk_expert *expert_of(struct maker *m, uint32_t expert)
{
    if (m->place[expert] == 0) {
        m->chunk[m->count++] = (struct chunk_expert){.expert = expert};
        m->place[expert] = m->count;
    }
    return &m->chunk[m->place[expert] - 1];
}

/* One token's uses of a layer, [i, end), join those of the chunk. */
static void count_layer(struct maker *m, uint64_t i, uint64_t end)
{
    float sum = 0, before = 0;
    for (uint64_t k = i; k < end; k++)
        sum += m->r->use[k].weight;
    for (; i < end; i++) {
        const struct use *u = &m->r->use[i];
        struct chunk_expert *e = expert_of(m, u->expert);
        float share = sum > 0 ? before / sum : 0;
        bool is_new = e->tokens++ == 0;
        e->weight = is_new || u->weight > e->weight ? u->weight : e->weight;
        e->before = is_new || share < e->before ? share : e->before;
        e->rank = is_new || u->slot < e->rank ? (uint8_t)u->slot : e->rank;
        before += u->weight;
    }
}

/* The layer of a chunk that begins at use `first`; returns the first use of the next one. */
static uint64_t add_chunk_layer(struct maker *m, uint64_t first, uint64_t end)
{
    const struct recording *r = m->r;
    const uint32_t layer = r->use[first].layer;
    uint64_t i = first;
    for (uint64_t next; i < end && r->use[i].layer == layer; i = next) {
        next = layer_end(r, i);
        count_layer(m, i, next);
    }
    qsort(m->chunk, m->count, sizeof *m->chunk, most_tokens_first);
    for (const struct chunk_expert *e = m->chunk; e < m->chunk + m->count; e++) {
        m->place[e->expert] = 0;
        add(m, &(struct trace_record){.sequence = 1,
                                      .position = m->position,
                                      .tokens = e->tokens,
                                      .weight = e->weight,
                                      .layer = (uint16_t)layer,
                                      .expert = (uint16_t)e->expert,
                                      .kind = TRACE_EXPERT,
                                      .rank = e->rank,
                                      .prefill = 1,
                                      .before = e->before});
    }
    m->count = 0;
    return i;
}

/* The prompt whose uses are in [first, end), which it sorts by layer. */
static void add_chunk(struct maker *m, uint64_t first, uint64_t end)
{
    uint32_t tokens = 0;
    for (uint64_t i = first; i < end; i++)
        tokens += i == first || !same_token(&m->r->use[i], &m->r->use[i - 1]);
    qsort(m->r->use + first, end - first, sizeof *m->r->use, in_layers);
    for (uint64_t i = first; i < end;)
        i = add_chunk_layer(m, i, end);
    add_event(m, TRACE_TOKEN_END, tokens, true);
    m->position += tokens;
}

static void add_all(struct maker *m)
{
    const struct recording *r = m->r;
    enum trace_import_prompt prompt = r->how->prompt;
    add_event(m, TRACE_SEQUENCE_START, 0, false);
    for (uint64_t i = 0; i < r->count;) {
        uint64_t end = i;
        while (end < r->count && same_pass(&r->use[end], &r->use[i]))
            end++;
        if (!r->use[i].decoded && prompt == TRACE_IMPORT_CHUNK)
            add_chunk(m, i, end);
        for (uint64_t k = i; k < end && (r->use[i].decoded || prompt == TRACE_IMPORT_TOKENS);)
            k = add_token(m, k);
        if (i == 0 && !r->use[0].decoded && prompt == TRACE_IMPORT_CHUNK)
            m->t->records[0].tokens = m->position;
        i = end;
    }
    add_event(m, TRACE_SEQUENCE_END, 0, false);
}

static void make_header(const struct recording *r, struct trace_header *h)
{
    trace_header_init(h);
    h->layers = r->layers;
    h->experts = r->experts;
    h->top_k = r->top_k;
    h->precision_mask = 1u << PRECISION_NATIVE;
    h->precision_bytes[PRECISION_NATIVE] = r->expert_bytes;
    for (uint32_t l = 0; l < r->layers; l++)
        if (!r->has_experts[l])
            expert_layers_leave_out(&h->expert_layers, l);
}

static int make(const struct recording *r, struct trace *out, struct error *error)
{
    struct maker m = {.r = r, .t = out, .capacity = 2 * r->count + 2};
    make_header(r, &out->header);
    if (trace_check(&out->header, NULL, 0, error) != 0)
        return -1;
    out->records = malloc(m.capacity * sizeof *out->records);
    m.chunk = calloc(r->experts, sizeof *m.chunk);
    m.place = calloc(r->experts, sizeof *m.place);
    int status = 0;
    if (out->records && m.chunk && m.place)
        add_all(&m);
    else
        status = error_set(error, ERR_NO_MEMORY, "out of memory (trace)");
    free(m.chunk);
    free(m.place);
    if (status == 0 && out->count == 2) /* the start and the end */
        status =
            error_set(error, ERR_BAD_INPUT, "no token is left: the recording has prompts only");
    return status != 0 ? -1 : trace_check(&out->header, out->records, out->count, error);
}

/* Of this engine. */
static int import_trace(const char *text, size_t bytes, const struct trace_import *how,
                        struct trace *out, struct error *error)
{
    if (how->experts > 0 || how->expert_bytes > 0 || how->dense > 0 ||
        how->prompt != TRACE_IMPORT_CHUNK)
        return error_set(error, ERR_BAD_INPUT,
                         "this is a trace of sluice, which says all that the settings say");
    return trace_parse(text, bytes, out, error);
}

int trace_import(const char *text, size_t bytes, const struct trace_import *how, struct trace *out,
                 struct error *error)
{
    static const uint64_t magic = TRACE_MAGIC;
    struct recording r = {.how = how};
    *out = (struct trace){.records = NULL};
    if (bytes >= sizeof magic && memcmp(text, &magic, sizeof magic) == 0)
        return import_trace(text, bytes, how, out, error);
    int status = bytes > 0 && *text == '#' ? import_csv(&r, text, bytes, error)
                                           : import_json(&r, text, bytes, error);
    if (status == 0)
        status = complete(&r, error);
    if (status == 0)
        status = make(&r, out, error);
    free(r.use);
    if (status != 0)
        trace_free(out);
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int read_text(FILE *f, const char *path, char **text, size_t *bytes, struct error *error)
{
    size_t capacity = 1 << 16, n = 0;
    char *grown = malloc(capacity);
    while ((*text = grown) && (n = fread(*text + *bytes, 1, capacity - *bytes, f)) > 0) {
        *bytes += n;
        if (*bytes > TRACE_IMPORT_BYTES_MAX)
            return error_set(error, ERR_BAD_INPUT, "it has more than 1 GiB");
        if (*bytes < capacity)
            continue;
        capacity *= 2;
        if (!(grown = realloc(*text, capacity)))
            break;
    }
    if (!grown)
        return error_set(error, ERR_NO_MEMORY, "out of memory (recorded routing)");
    return ferror(f) ? error_set_errno(error, ERR_IO, errno, "cannot read %.200s", path) : 0;
}

int trace_import_file(const char *path, const struct trace_import *how, struct trace *out,
                      struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    struct error wrong;
    FILE *f = fopen(path, "re");
    *out = (struct trace){.records = NULL};
    if (!f)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", path);
    int status = read_text(f, path, &text, &bytes, error);
    fclose(f);
    if (status == 0 && (status = trace_import(text, bytes, how, out, &wrong)) != 0)
        error_set(error, wrong.code, "%.200s: %.400s", path, wrong.text);
    free(text);
    return status;
}
