/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a trace: frequencies and paths, in the form of a profile. */
#include <stdlib.h>
#include <string.h>

#include "lib/sim/internal.h"

#include "lib/model/limits.h"

#define TABLE_CELLS_MAX ((uint64_t)1 << 26) /* of prev1 and of the pairs' index */
#define PAIR_KEYS_MAX   ((size_t)1 << 25)   /* maximum triples: the first of the trace */

struct profile_path {                    /* of a sequence */
    uint16_t chosen[3][MODEL_TOP_K_MAX]; /* of this layer and the two before */
    uint32_t count[3], layer;
};

struct profile {
    const struct trace_header *h;
    double *accesses; /* [layers * experts] */
    uint64_t tokens;
    uint32_t *prev1;
    uint64_t *key; /* (layer, a, b, c) packed, of every triple */
    size_t keys, capacity;
    struct sequences sequences;
    struct profile_path path[SEQUENCES_MAX]; /* by place */
};

static bool more_keys(struct profile *p)
{
    if (p->keys < p->capacity)
        return true;
    if (p->capacity >= PAIR_KEYS_MAX)
        return false;
    size_t capacity = p->capacity ? p->capacity * 2 : 1u << 16;
    uint64_t *grown = realloc(p->key, capacity * sizeof *grown);
    if (!grown)
        return false;
    p->key = grown;
    p->capacity = capacity;
    return true;
}

/* The layer in chosen[0] is complete. */
static void count_paths(struct profile *p, const struct profile_path *s)
{
    uint32_t e = p->h->experts;
    for (uint32_t c = 0; c < s->count[0]; c++)
        for (uint32_t b = 0; b < s->count[1]; b++) {
            uint64_t row = (uint64_t)s->layer * e;
            if (p->prev1)
                p->prev1[(row + s->chosen[1][b]) * e + s->chosen[0][c]]++;
            for (uint32_t a = 0; a < s->count[2] && p->prev1 && more_keys(p); a++)
                p->key[p->keys++] =
                    ((row + s->chosen[2][a]) * e + s->chosen[1][b]) * e + s->chosen[0][c];
        }
}

static void layer_ends(struct profile *p, struct profile_path *s)
{
    if (s->count[0] > 0)
        count_paths(p, s);
    memcpy(s->chosen[2], s->chosen[1], sizeof s->chosen[1]);
    memcpy(s->chosen[1], s->chosen[0], sizeof s->chosen[0]);
    s->count[2] = s->count[1];
    s->count[1] = s->count[0];
    s->count[0] = 0;
}

static void forget_path(struct profile_path *s)
{
    memset(s->count, 0, sizeof s->count);
    s->layer = UINT32_MAX;
}

static struct profile_path *path_of(struct profile *p, uint32_t sequence)
{
    bool displaced;
    uint32_t place = sequences_find(&p->sequences, sequence);
    if (place != SEQUENCE_NONE)
        return &p->path[place];
    struct profile_path *s = &p->path[sequences_start(&p->sequences, sequence, &displaced)];
    forget_path(s);
    return s;
}

static void take(struct profile *p, const struct trace_record *r)
{
    struct profile_path *s = path_of(p, r->sequence);
    if (r->kind == TRACE_TOKEN_END) {
        layer_ends(p, s);
        forget_path(s);
        p->tokens += r->tokens;
    }
    if (r->kind == TRACE_SEQUENCE_END)
        (void)sequences_end(&p->sequences, r->sequence);
    if (r->kind != TRACE_EXPERT)
        return;
    p->accesses[r->layer * p->h->experts + r->expert] += r->tokens;
    if (r->prefill || r->tokens > 1) /* tokens of a chunk are not distinguished */
        return;
    if (r->layer != s->layer) {
        uint32_t next = s->layer == UINT32_MAX ? 0 : s->layer + 1;
        layer_ends(p, s);
        if (r->layer != expert_layers_next(&p->h->expert_layers, next, p->h->layers))
            forget_path(s);
        s->layer = r->layer;
    }
    if (s->count[0] < MODEL_TOP_K_MAX)
        s->chosen[0][s->count[0]++] = r->expert;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint16_t count16(uint64_t n)
{
    return n < UINT16_MAX ? (uint16_t)n : UINT16_MAX;
}

static void fill_pairs(const struct profile *p, uint32_t *first, struct path_cell *cells)
{
    uint64_t e = p->h->experts, rows = p->h->layers * e * e, row = 0;
    uint32_t n = 0;
    for (size_t i = 0; i < p->keys;) {
        size_t same = i;
        while (same < p->keys && p->key[same] == p->key[i])
            same++;
        for (; row <= p->key[i] / e; row++)
            first[row] = n;
        cells[n++] = (struct path_cell){(uint16_t)(p->key[i] % e), count16(same - i)};
        i = same;
    }
    for (; row <= rows; row++)
        first[row] = n;
}

static size_t distinct(const struct profile *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->keys; i++)
        n += i == 0 || p->key[i] != p->key[i - 1];
    return n;
}

static int deliver(const struct profile *p, struct path_tables *out, void **block)
{
    size_t e = p->h->experts, all = p->h->layers * e, cells = p->prev1 ? all * e : 0;
    size_t pairs = distinct(p);
    float *frequency = calloc(1, all * sizeof(float) + (cells + 1) * sizeof(uint32_t) +
                                     pairs * sizeof(struct path_cell) + cells * sizeof(uint16_t));
    if (!frequency)
        return -1;
    uint32_t *pair_first = (uint32_t *)(void *)(frequency + all);
    struct path_cell *pair_cells = (struct path_cell *)(void *)(pair_first + cells + 1);
    uint16_t *prev1 = (uint16_t *)(void *)(pair_cells + pairs);
    for (size_t i = 0; i < all; i++)
        frequency[i] = p->tokens ? (float)(p->accesses[i] / (double)p->tokens) : 0;
    for (size_t i = 0; i < cells; i++)
        prev1[i] = count16(p->prev1[i]);
    if (cells > 0)
        fill_pairs(p, pair_first, pair_cells);
    *out = (struct path_tables){.layers = p->h->layers,
                                .experts = p->h->experts,
                                .prev1 = cells ? prev1 : NULL,
                                .pair_first = cells ? pair_first : NULL,
                                .pair_cells = cells ? pair_cells : NULL,
                                .frequency = frequency};
    *block = frequency;
    return 0;
}

int sim_profile(const struct trace *t, uint64_t from, uint64_t to, struct path_tables *out,
                void **block, struct error *error)
{
    struct profile p = {.h = &t->header};
    uint64_t e = t->header.experts, all = t->header.layers * e;
    sl_assert(from <= to && to <= t->count);
    p.accesses = calloc(all, sizeof *p.accesses);
    if (all * e <= TABLE_CELLS_MAX)
        p.prev1 = calloc(all * e, sizeof *p.prev1);
    int rv = p.accesses && (p.prev1 || all * e > TABLE_CELLS_MAX) ? 0 : -1;
    for (uint64_t i = from; rv == 0 && i < to; i++)
        take(&p, &t->records[i]);
    if (rv == 0 && p.keys > 0)
        qsort(p.key, p.keys, sizeof *p.key, by_number);
    if (rv == 0)
        rv = deliver(&p, out, block);
    free(p.accesses);
    free(p.prev1);
    free(p.key);
    return rv == 0 ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (profile of a trace)");
}
