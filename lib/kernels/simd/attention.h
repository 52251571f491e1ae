/* SPDX-License-Identifier: Apache-2.0 */
/* Template of attention over the vector primitives of vec.h; included once per instruction set.
 *
 * A query is one head of one token row. Queries are computed in blocks: for each tile of keys, in
 * ascending order, the products of all queries of the block with its keys, their weights, then the
 * weighted values. So memory is read once per block, and no scores are kept beyond a tile. A block
 * is the heads of one key head in several rows; or, for a single row, of many key heads, whose tiles
 * are adjacent in memory. If a key head has more queries than a register tile, its keys (then its
 * values) are converted to F32 once for all of them; quantised keys never are: their products are
 * of integers (attention_keys.h). */
#include "lib/kernels/kv_layout.h"

#define TILE_QUERIES  (VL / 4) /* queries of a register tile */
#define BLOCK_QUERIES 32       /* of a block at most: 64 KiB of sums, so fewer of large heads */
#define UNPACKED_SIZE 256 /* keys and values of larger heads are not converted for all queries */
#define TILE_KEYS     KERNEL_KEY_TILE
#define KEY_SUMS      8 /* vectors of products with quantised keys */

#include "lib/kernels/simd/attention_keys.h"
#include "lib/kernels/simd/attention_rows.h"

/* Softmax over the keys of a segment so far, and over those of all segments before it. */
struct query {
    const float *q;
    float *out;
    uint32_t positions; /* of its row */
    uint32_t begin;     /* the first key that it attends to */
    uint32_t kv_head;
    float sink; /* if there are sinks */
    float m, l, all_m, all_l;
    float *acc, *all;            /* weighted values, padded to 32 */
    float *p;                    /* [TILE_KEYS] scores, then weights */
    float old;                   /* factor of acc at the current tile */
    uint32_t first, keys;        /* of the current tile it attends to the keys [first, keys) */
    struct key_query *quantised; /* if the keys are */
};

struct query_block {
    enum kv_type type;
    uint32_t size, padded; /* of a query or key head; to a multiple of 32 */
    uint32_t value_size, value_padded;
    uint32_t unpacked;             /* elements of a converted row: the larger padded size */
    size_t key_bytes, value_bytes; /* of a tile of a head */
    float scale, cap;
    uint32_t count, max; /* queries; of them at most */
    struct query query[BLOCK_QUERIES];
    struct query spare; /* fills up a register tile; its values are not used */
    _Alignas(64) float p[BLOCK_QUERIES][TILE_KEYS];
    _Alignas(64) float spare_p[TILE_KEYS];
    struct key_query quantised[BLOCK_QUERIES];
    /* Of quantised values. */
    _Alignas(64) float value_scale[TILE_KEYS * (KERNEL_VALUE_SIZE_MAX / QK)];
    _Alignas(64) uint8_t value_codes[TILE_KEYS * KERNEL_VALUE_SIZE_MAX]; /* if they are keys */
    _Alignas(64) float sums[(2 * BLOCK_QUERIES + 1) * UNPACKED_SIZE];
    /* Keys or values of a tile, rows of their padded size. Only what a head needs is touched. */
    _Alignas(64) float tile[TILE_KEYS * UNPACKED_SIZE];
};

/* ---- products with keys ---- */

/* Sums of `queries` x `keys` products, query by query. Their number in registers is what an
 * instruction set has for it. */
static ALWAYS_INLINE void products(const enum kv_type type, const int queries, const int keys,
                                   const struct query *const q[TILE_QUERIES],
                                   const struct tile_rows *t, uint32_t size, uint32_t first,
                                   vf sum[VL], const int stride)
{
    vf acc[VL][HALVES];
    UNROLL for (int i = 0; i < queries * keys; i++) UNROLL for (int h = 0; h < HALVES; h++)
        acc[i][h] = vf_set1(0);
    uint32_t d = 0;
    for (; d + 16 <= size; d += 16)
        UNROLL for (int h = 0; h < HALVES; h++)
        {
            vf x[TILE_QUERIES];
            UNROLL for (int i = 0; i < queries; i++) x[i] = vf_load(q[i]->q + d + h * VL);
            UNROLL for (int j = 0; j < keys; j++)
            {
                vf k = row_load(type, t, first + (uint32_t)j, d, h);
                UNROLL for (int i = 0; i < queries; i++) acc[i * keys + j][h] =
                    vf_fma(x[i], k, acc[i * keys + j][h]);
            }
        }
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        uint32_t at = d + (uint32_t)h * VL, n = at < size ? size - at : 0;
        n = n < VL ? n : VL;
        if (n == 0)
            break;
        UNROLL for (int i = 0; i < queries; i++)
        {
            vf x = vf_load_n(q[i]->q + at, n);
            UNROLL for (int j = 0; j < keys; j++) acc[i * keys + j][h] = vf_fma_n(
                x, row_load_n(type, t, first + (uint32_t)j, at, n), acc[i * keys + j][h], n);
        }
    }
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < keys; j++)
        sum[i * stride + j] = vf_join_halves(acc[i * keys + j]);
}

static ALWAYS_INLINE void scores_of_integers(const enum kv_type type, const int queries,
                                             const struct query *const q[TILE_QUERIES],
                                             const struct tile_rows *t, const struct query_block *b,
                                             uint32_t keys)
{
    const struct key_tile tile = {t->base, b->padded};
    const struct key_query *quantised[TILE_QUERIES];
    float *p[TILE_QUERIES];
    UNROLL for (int i = 0; i < queries; i++)
    {
        quantised[i] = q[i]->quantised;
        p[i] = q[i]->p;
    }
    key_scores(type, queries, quantised, &tile, b->scale, keys, p);
    if (queries == 1)
        prefetch_part(t, 0, 1);
}

/* Scores of a register tile of queries with the first `keys` keys of a tile, and some more. */
static ALWAYS_INLINE void tile_scores(const enum kv_type type, const int queries,
                                      const struct query *const q[TILE_QUERIES],
                                      const struct tile_rows *t, const struct query_block *b,
                                      uint32_t keys)
{
    if (kv_is_quantised(type)) {
        scores_of_integers(type, queries, q, t, b, keys);
        return;
    }
    enum { IN_REGISTERS = VL / HALVES };
    const int at_once = VL / queries, pass = IN_REGISTERS / queries;
    for (uint32_t first = 0; first < keys; first += (uint32_t)at_once) {
        vf sum[VL];
        UNROLL for (int j = 0; j < at_once; j += pass)
            products(type, queries, pass, q, t, b->size, first + (uint32_t)j, sum + j, at_once);
        vf score = vf_mul(vf_sum_rows(sum), vf_set1(b->scale));
        _Alignas(64) float lanes[VL];
        vf_store(queries == 1 ? q[0]->p + first : lanes, score);
        UNROLL for (int i = 0; i < queries && queries > 1; i++)
            memcpy(q[i]->p + first, lanes + i * at_once, sizeof(float) * (size_t)at_once);
        if (queries == 1)
            prefetch_part(t, first / (uint32_t)at_once, TILE_KEYS / (uint32_t)at_once);
    }
}

/* cap * tanh(score / cap) */
static void cap_scores(float *p, uint32_t vectors, float cap)
{
    vf c = vf_set1(cap), one = vf_set1(1), two = vf_set1(2);
    for (uint32_t i = 0; i < vectors * VL; i += VL) {
        vf x = vf_div(vf_load(p + i), c);
        vf e = vf_add(vf_exp(vf_add(x, x)), one);
        vf_store(p + i, vf_mul(vf_sub(one, vf_div(two, e)), c));
    }
}

/* The softmax of a query moves on by a tile: scores become weights. */
static void tile_weights(struct query *q, float cap)
{
    float *p = q->p;
    uint32_t vectors = (q->keys + VL - 1) / VL;
    if (cap != 0)
        cap_scores(p, vectors, cap);
    for (uint32_t i = 0; i < q->first; i++) /* their weight is 0: exp(-150) is below all floats */
        p[i] = -INFINITY;
    for (uint32_t i = q->keys; i < vectors * VL; i++)
        p[i] = -INFINITY;
    vf top = vf_set1(q->m), sum[HALVES];
    UNROLL for (int half = 0; half < HALVES; half++) sum[half] = vf_set1(0);
    for (uint32_t i = 0; i < vectors; i++)
        top = vf_max(top, vf_load(p + i * VL));
    float max = vf_max_lane(top);
    for (uint32_t i = 0; i < vectors; i += HALVES) {
        UNROLL for (uint32_t half = 0; half < HALVES; half++)
        {
            if (i + half >= vectors)
                break;
            vf e = vf_exp(vf_sub(vf_load(p + (i + half) * VL), vf_set1(max)));
            vf_store(p + (i + half) * VL, e);
            sum[half] = vf_add(sum[half], e);
        }
    }
    q->old = vf_first(vf_exp(vf_set1(q->m - max)));
    q->l = fmaf(q->l, q->old, vf_sum16(sum));
    q->m = max;
}

/* ---- values ---- */

/* acc = acc * old + sum over the keys [first, end) of p * value, for `width` vectors from element d
 * on; n < VL: the last n elements. With one query, the first vectors prefetch. */
static ALWAYS_INLINE void add_values(const enum kv_type type, const int queries, const int width,
                                     struct query *const q[TILE_QUERIES], const struct tile_rows *t,
                                     uint32_t first, uint32_t end, uint32_t d, uint32_t n)
{
    vf acc[TILE_QUERIES][8];
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < width; j++) acc[i][j] =
        vf_mul(vf_load(q[i]->acc + d + j * VL), vf_set1(q[i]->old));
    const size_t each = queries == 1 && d == 0 ? prefetch_each(t, end - first) : 0;
    size_t at = 0;
    for (uint32_t key = first; key < end; key++) {
        for (size_t stop = at + each; at < stop && at < t->next_bytes; at += 64)
            prefetch_far(t->next, at);
        UNROLL for (int j = 0; j < width; j++)
        {
            vf v = n < VL ? row_load_n(type, t, key, d, n) : row_load(type, t, key, d, j);
            UNROLL for (int i = 0; i < queries; i++) acc[i][j] =
                vf_fma(vf_set1(q[i]->p[key]), v, acc[i][j]);
        }
    }
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < width; j++)
        vf_store(q[i]->acc + d + j * VL, acc[i][j]);
}

static ALWAYS_INLINE void tile_values(const enum kv_type type, const int queries,
                                      struct query *const q[TILE_QUERIES],
                                      const struct tile_rows *t, uint32_t size, uint32_t first,
                                      uint32_t end)
{
    const int wide = queries == 1 ? 8 : 4, narrow = kv_is_quantised(type) ? QK / VL : 1;
    uint32_t d = 0;
    size = kv_is_quantised(type) ? kv_padded(size) : size;
    for (; d + (uint32_t)wide * VL <= size; d += (uint32_t)wide * VL)
        add_values(type, queries, wide, q, t, first, end, d, VL);
    for (; d + (uint32_t)narrow * VL <= size; d += (uint32_t)narrow * VL)
        add_values(type, queries, narrow, q, t, first, end, d, VL);
    if (d < size)
        add_values(type, queries, 1, q, t, first, end, d, size - d);
}

/* ---- a block of queries ---- */

/* padded: of the rows of the tile, which may be keys. */
static void load_value_scales(struct query_block *b, const uint8_t *tile, uint32_t padded)
{
    const uint8_t *h = tile + kv_scale_offset(b->type, padded, 0, 0);
    for (uint32_t i = 0; i < b->value_padded / QK * TILE_KEYS; i += VL)
        vf_store(b->value_scale + i, vh_load(h + 2 * (size_t)i));
}

/* The rows [first, keys) of a tile in F32; elements from `size` to the padded size are not used. */
static ALWAYS_INLINE void unpack_tile(const enum kv_type type, struct query_block *b,
                                      const struct tile_rows *t, uint32_t size, uint32_t first,
                                      uint32_t keys)
{
    uint32_t padded = kv_padded(size);
    size = kv_is_quantised(type) ? padded : size;
    for (uint32_t key = first; key < keys; key++) {
        float *f = b->tile + (size_t)key * padded;
        uint32_t d = 0;
        for (; d + QK <= size; d += QK)
            UNROLL for (int j = 0; j < QK / VL; j++)
                vf_store(f + d + j * VL, row_load(type, t, key, d, j));
        for (; d < size; d += VL)
            vf_store(f + d, row_load_n(type, t, key, d, size - d < VL ? size - d : VL));
    }
}

/* The queries of a register tile; the last tile is filled up. */
static uint32_t pick(struct query_block *b, uint32_t first, uint32_t end,
                     struct query *q[TILE_QUERIES])
{
    uint32_t n = end - first < TILE_QUERIES ? end - first : TILE_QUERIES;
    for (uint32_t i = 0; i < TILE_QUERIES; i++)
        q[i] = i < n ? &b->query[first + i] : &b->spare;
    return n;
}

static ALWAYS_INLINE void scores_of_tile(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[TILE_QUERIES];
    uint32_t steps = (end - first + TILE_QUERIES - 1) / TILE_QUERIES;
    for (uint32_t step = 0; step < steps; step++, first += TILE_QUERIES) {
        uint32_t n = pick(b, first, end, q);
        tile_scores(type, TILE_QUERIES, (const struct query *const *)q, t, b, q[n - 1]->keys);
        prefetch_part(t, step, steps);
        for (uint32_t i = 0; i < n; i++)
            tile_weights(q[i], b->cap);
    }
}

/* Adds the values [first, end) to a query alone, if there are any. */
static ALWAYS_INLINE void values_of_query(const enum kv_type type, struct query *q,
                                          const struct tile_rows *t, uint32_t size, uint32_t first,
                                          uint32_t end)
{
    if (first >= end)
        return;
    struct query *one[TILE_QUERIES] = {q};
    struct tile_rows alone = *t;
    alone.next = NULL; /* values_of_tile prefetches */
    tile_values(type, 1, one, &alone, size, first, end);
    q->old = 1; /* acc was multiplied */
}

/* A register tile of queries: keys before those that all attend to (windows), these, and those of
 * later rows. */
static ALWAYS_INLINE void values_of_tile(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[TILE_QUERIES];
    uint32_t steps = (end - first + TILE_QUERIES - 1) / TILE_QUERIES;
    for (uint32_t step = 0; step < steps; step++, first += TILE_QUERIES) {
        uint32_t n = pick(b, first, end, q), from = q[n - 1]->first, common = q[0]->keys;
        bool together = n > 1 && from < common;
        for (uint32_t i = 0; i < n && together; i++)
            values_of_query(type, q[i], t, b->value_size, q[i]->first, from);
        if (together)
            tile_values(type, TILE_QUERIES, q, t, b->value_size, from, common);
        prefetch_part(t, step, steps);
        for (uint32_t i = 0; i < n; i++) {
            if (together)
                q[i]->old = 1;
            values_of_query(type, q[i], t, b->value_size, together ? common : q[i]->first,
                            q[i]->keys);
        }
    }
}

/* The values [first, end) of a tile. v NULL: they are the first elements of the keys k; quantised ones
 * get the layout of values. */
static ALWAYS_INLINE struct tile_rows rows_of_values(const enum kv_type type, struct query_block *b,
                                                     const uint8_t *k, const uint8_t *v,
                                                     uint32_t first, uint32_t end)
{
    if (!kv_is_quantised(type))
        return (struct tile_rows){.base = v ? v : k, .size = v ? b->value_size : b->size};
    load_value_scales(b, v ? v : k, v ? b->value_padded : b->padded);
    if (!v)
        kv_values_of_keys(type, k, b->padded, b->value_padded, first, end, b->value_codes);
    return (struct tile_rows){
        .base = v ? v : b->value_codes, .size = b->value_padded, .scale = b->value_scale};
}

/* A tile of keys and values of a key head, for its queries [first, end); `next`: the keys after
 * them. */
static ALWAYS_INLINE void add_tile_of(const enum kv_type type, struct query_block *b,
                                      uint32_t first, uint32_t end, const uint8_t *k,
                                      const uint8_t *v, const uint8_t *next)
{
    uint32_t keys = b->query[end - 1].keys, from = b->query[first].first;
    const bool quantised = kv_is_quantised(type);
    struct tile_rows t = {k, v, b->value_bytes, quantised ? b->padded : b->size, NULL};
    struct tile_rows values = rows_of_values(type, b, k, v, from, keys);
    values.next = next;
    values.next_bytes = b->key_bytes;
    if (end - first == 1) {
        struct query *q[TILE_QUERIES] = {b->query + first};
        tile_scores(type, 1, (const struct query *const *)q, &t, b, keys);
        tile_weights(q[0], b->cap);
        tile_values(type, 1, q, &values, b->value_size, from, keys);
    } else if (end - first <= TILE_QUERIES || b->unpacked > UNPACKED_SIZE) {
        scores_of_tile(type, b, first, end, &t);
        values_of_tile(type, b, first, end, &values);
    } else {
        struct tile_rows floats = {b->tile, v, b->value_bytes, b->padded, NULL};
        if (quantised) {
            scores_of_tile(type, b, first, end, &t);
        } else {
            unpack_tile(type, b, &t, b->size, from, keys);
            scores_of_tile(KV_TYPE_F32, b, first, end, &floats);
        }
        floats.next = next;
        floats.next_bytes = b->key_bytes;
        if (v || quantised) { /* otherwise the values are there already */
            floats.size = b->value_padded;
            unpack_tile(type, b, &values, b->value_size, from, keys);
        }
        values_of_tile(KV_TYPE_F32, b, first, end, &floats);
    }
}

/* One function per type, so that its loads are fixed. */
#define ADD_TILE(id)                                                                               \
    static __attribute__((noinline)) void add_tile_##id(struct query_block *b, uint32_t first,     \
                                                        uint32_t end, const uint8_t *k,            \
                                                        const uint8_t *v, const uint8_t *next)     \
    {                                                                                              \
        add_tile_of(KV_TYPE_##id, b, first, end, k, v, next);                                      \
    }
#define KV_TYPE(id, name, block, block_bytes) ADD_TILE(id)
#include "lib/tensor/kv_types.tbl.h"

static void add_tile(struct query_block *b, uint32_t first, uint32_t end, const uint8_t *k,
                     const uint8_t *v, const uint8_t *next)
{
    switch (b->type) {
#define KV_TYPE(id, name, block, block_bytes)                                                      \
    case KV_TYPE_##id:                                                                             \
        add_tile_##id(b, first, end, k, v, next);                                                  \
        return;
#include "lib/tensor/kv_types.tbl.h"
    case KV_TYPE__COUNT: break;
    }
    sl_panic("KV type %d", (int)b->type);
}

/* Joins the running softmax of a segment to that of all segments before it. */
static void merge_segment(struct query *q, uint32_t size, bool first)
{
    if (first) {
        memcpy(q->all, q->acc, size * sizeof *q->all);
        q->all_m = q->m;
        q->all_l = q->l;
    } else {
        float max = q->m > q->all_m ? q->m : q->all_m;
        float a = vf_first(vf_exp(vf_set1(q->all_m - max)));
        float b = vf_first(vf_exp(vf_set1(q->m - max)));
        FOR_VECTORS(i, lanes, size)
        {
            vf old = vf_mul(vf_load_n(q->all + i, lanes), vf_set1(a));
            vf_store_n(q->all + i, vf_fma(vf_load_n(q->acc + i, lanes), vf_set1(b), old), lanes);
        }
        q->all_l = fmaf(q->l, b, q->all_l * a);
        q->all_m = max;
    }
    q->m = -INFINITY;
    q->l = 0;
    memset(q->acc, 0, size * sizeof *q->acc);
}

/* The tile at `at` for the queries [first, stop): key head by key head, in the order of memory. */
static void add_tile_of_heads(struct query_block *b, const struct kernel_attention *a,
                              uint32_t first, uint32_t stop, uint32_t at)
{
    const uint8_t *k = a->k, *v = a->v;
    uint32_t here = kernel_ring_position(a->ring, at);
    uint32_t after = kernel_ring_position(a->ring, at + TILE_KEYS);
    for (uint32_t i = first, end; i < stop; i = end) {
        uint32_t head = b->query[i].kv_head;
        size_t from = kernel_kv_tile(b->type, a->kv_heads, b->size, here, head);
        for (end = i + 1; end < stop && b->query[end].kv_head == head;)
            end++;
        size_t next = from + b->key_bytes; /* of the next key head, or in the next tile */
        if (end == stop)
            next = kernel_kv_tile(b->type, a->kv_heads, b->size, after, b->query[0].kv_head);
        bool more = end < stop || at + TILE_KEYS < b->query[i].positions;
        add_tile(b, i, end, k + from,
                 v ? v + kernel_kv_tile(b->type, a->kv_heads, b->value_size, here, head) : NULL,
                 more ? k + next : NULL);
    }
}

/* A sink joins last: a score of the head without a value. */
static void finish_query(const struct query_block *b, struct query *q, bool sinks)
{
    float a = 1;
    if (sinks) {
        float max = q->sink > q->all_m ? q->sink : q->all_m;
        a = vf_first(vf_exp(vf_set1(q->all_m - max)));
        q->all_l = q->all_l * a + vf_first(vf_exp(vf_set1(q->sink - max)));
    }
    vf sum = vf_set1(q->all_l), factor = vf_set1(a);
    FOR_VECTORS(d, lanes, b->value_size)
    vf_store_n(q->out + d, vf_div(vf_mul(vf_load_n(q->all + d, lanes), factor), sum), lanes);
}

/* The rows of a block ascend, so the queries that attend to a tile are adjacent: later ones begin
 * after it, if there is a window, earlier ones ended. */
static void block_attention(struct query_block *b, const struct kernel_attention *a)
{
    uint32_t first = 0, stop = 0, end = b->query[b->count - 1].positions;
    for (uint32_t at = b->query[0].begin / TILE_KEYS * TILE_KEYS; at < end; at += TILE_KEYS) {
        while (b->query[first].positions <= at)
            first++;
        while (stop < b->count && b->query[stop].begin < at + TILE_KEYS)
            stop++;
        for (uint32_t i = first; i < stop; i++) {
            struct query *q = &b->query[i];
            uint32_t left = q->positions - at;
            q->first = q->begin > at ? q->begin - at : 0;
            q->keys = left < TILE_KEYS ? left : TILE_KEYS;
        }
        add_tile_of_heads(b, a, first, stop, at);
        for (uint32_t i = first; i < stop; i++)
            if ((at + TILE_KEYS) % KERNEL_KEY_SEGMENT == 0 ||
                at + TILE_KEYS >= b->query[i].positions)
                merge_segment(&b->query[i], b->value_size,
                              at / KERNEL_KEY_SEGMENT == b->query[i].begin / KERNEL_KEY_SEGMENT);
    }
    for (uint32_t i = 0; i < b->count; i++)
        finish_query(b, &b->query[i], a->sinks != NULL);
}

static void quantise_query(const struct query_block *b, const float *q, struct key_query *out)
{
    _Alignas(64) uint8_t act[KEY_QUERY_BYTES];
    float whole[KERNEL_HEAD_SIZE_MAX];
    if (b->padded != b->size) {
        memset(whole, 0, sizeof whole);
        q = memcpy(whole, q, b->size * sizeof *whole);
    }
    simd_activation(kv_activation_type(b->type), q, b->padded, act);
    key_query_from(act, b->padded, out);
}

/* Adds the query of a head and row to the block. */
static void add_query(struct query_block *b, const struct kernel_attention *a, uint32_t head,
                      uint32_t row)
{
    uint32_t i = b->count++;
    struct query *q = &b->query[i];
    *q = (struct query){.q = a->q + row * a->q_stride + (size_t)head * b->size,
                        .out = a->out + row * a->out_stride + (size_t)head * b->value_size,
                        .positions = a->positions + row,
                        .begin = kernel_attention_begin(a->window, a->positions + row),
                        .sink = a->sinks ? a->sinks[head] : 0,
                        .kv_head = head / (a->heads / a->kv_heads),
                        .m = -INFINITY,
                        .acc = b->sums + (2 * i + 1) * b->value_padded,
                        .all = b->sums + (2 * i + 2) * b->value_padded,
                        .p = b->p[i],
                        .quantised = &b->quantised[i]};
    if (kv_is_quantised(b->type))
        quantise_query(b, q->q, q->quantised);
    memset(q->acc, 0, b->value_padded * sizeof *q->acc);
}

/* The rows of the heads [begin, end), row by row. */
static void heads_attention(struct query_block *b, const struct kernel_attention *a, uint32_t begin,
                            uint32_t end)
{
    uint32_t heads = end - begin, queries = heads * a->rows;
    for (uint32_t number = 0; number < queries;) {
        for (b->count = 0; b->count < b->max && number < queries; number++)
            add_query(b, a, begin + number % heads, number / heads);
        block_attention(b, a);
    }
}

/* One row: all heads together, so that keys are read in the order of memory. Several: the heads of
 * one key head. */
static void simd_attention(const struct kernel_attention *a)
{
    attention_check(a);
    uint32_t group = a->rows == 1 ? a->heads : a->heads / a->kv_heads;
    struct query_block b;
    b.size = a->key_size;
    b.value_size = a->value_size;
    b.type = a->kv_type;
    b.padded = kv_padded(a->key_size);
    b.value_padded = kv_padded(a->value_size);
    b.key_bytes = kv_tile_bytes(a->kv_type, a->key_size);
    b.value_bytes = kv_tile_bytes(a->kv_type, a->value_size);
    b.unpacked = b.padded > b.value_padded ? b.padded : b.value_padded;
    b.max = (sizeof b.sums / sizeof *b.sums / b.value_padded - 1) / 2;
    b.max = b.max < BLOCK_QUERIES ? b.max : BLOCK_QUERIES;
    b.scale = a->scale;
    b.cap = a->cap;
    b.spare = (struct query){.q = a->q, .acc = b.sums, .p = b.spare_p, .quantised = b.quantised};
    memset(b.sums, 0, b.value_padded * sizeof *b.sums);
    memset(b.spare_p, 0, sizeof b.spare_p);
    for (uint32_t begin = a->head_begin, end; begin < a->head_end; begin = end) {
        end = (begin / group + 1) * group;
        end = end < a->head_end ? end : a->head_end;
        heads_attention(&b, a, begin, end);
    }
}
