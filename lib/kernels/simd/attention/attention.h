/* SPDX-License-Identifier: Apache-2.0 */
/* Template of attention over the vector primitives of vec.h; included once per instruction set.
 *
 * A query is one head of one token row. Queries are computed in blocks: for each tile of keys, in
 * ascending order, the products of all queries of the block with its keys, their weights, then the
 * weighted values. So memory is read once per block, and no scores are kept beyond a tile. A block
 * is the heads of one key head in several rows; or, for a single row, of many key heads, whose
 * tiles are adjacent in memory. For many queries of a key head, its keys are transposed, so that
 * lanes are keys and no product ends with a sum over lanes (scores.h); for more than a register
 * tile (or with different ranges of keys), its values are converted to F32 once for all (values.h).
 * The products of quantised keys are of integers (keys_int8.h). */
#include "lib/kernels/simd/attention/query.h"

#include "lib/kernels/simd/attention/keys_int8.h"
#include "lib/kernels/simd/attention/rows.h"
#include "lib/kernels/simd/attention/scores.h"
#include "lib/kernels/simd/attention/values.h"

/* A tile of keys and values of a key head, for its queries [first, end); `next`: the keys after
 * them. */
static ALWAYS_INLINE void add_tile_of(const enum kv_type type, struct query_block *b,
                                      uint32_t first, uint32_t end, const uint8_t *k,
                                      const uint8_t *v, const uint8_t *next)
{
    uint32_t keys = b->query[end - 1].keys, from = b->query[first].first;
    struct tile_rows t = {k, v, b->value_bytes, kv_is_quantised(type) ? b->padded : b->size, NULL};
    struct tile_rows values = rows_of_values(type, b, k, v, from, keys);
    values.next = next;
    values.next_bytes = b->key_bytes;
    if (end - first == 1) {
        struct query *q[TILE_QUERIES] = {b->query + first};
        tile_scores(type, 1, (const struct query *const *)q, &t, b, keys);
        tile_weights(q[0], b->cap);
        all_values(type, 1, q, &values, b->value_size, from, keys);
    } else {
        scores_of_tile(type, b, first, end, &t);
        if (end - first <= TILE_QUERIES && b->query[first].keys == keys &&
            b->query[end - 1].first == from)
            values_together(type, b, first, end, &values);
        else
            values_of_tile(type, b, first, end, &values);
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
        memcpy(q->out, q->acc, size * sizeof *q->out);
        q->all_m = q->m;
        q->all_l = q->l;
    } else {
        float max = q->m > q->all_m ? q->m : q->all_m;
        float a = vf_first(vf_exp(vf_set1(q->all_m - max)));
        float b = vf_first(vf_exp(vf_set1(q->m - max)));
        FOR_VECTORS(i, lanes, size)
        {
            vf old = vf_mul(vf_load_n(q->out + i, lanes), vf_set1(a));
            vf_store_n(q->out + i, vf_fma(vf_load_n(q->acc + i, lanes), vf_set1(b), old), lanes);
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
    vf_store_n(q->out + d, vf_div(vf_mul(vf_load_n(q->out + d, lanes), factor), sum), lanes);
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

/* Fills `turned` with the queries of the block, the last register tile with zeros. */
static void turn_queries(struct query_block *b)
{
    static const float none[KERNEL_HEAD_SIZE_MAX];
    const uint32_t steps = (b->size + 15) / 16;
    float *to = b->turned.queries;
    for (uint32_t first = 0; first < b->count; first += MANY_QUERIES) {
        const float *q[MANY_QUERIES];
        UNROLL for (uint32_t i = 0; i < MANY_QUERIES; i++) q[i] =
            first + i < b->count ? b->query[first + i].q : none;
        for (uint32_t lane = 0; lane < 16; lane++)
            for (uint32_t d = lane; d < steps * 16; d += 16, to += MANY_QUERIES)
                UNROLL for (int i = 0; i < MANY_QUERIES; i++) to[i] = d < b->size ? q[i][d] : 0;
    }
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
                        .acc = b->sums + (size_t)i * b->acc_size,
                        .p = b->p[i],
                        .quantised = &b->quantised.query[i]};
    if (kv_is_quantised(b->type))
        quantise_query(b, q->q, q->quantised);
    memset(q->acc, 0, b->acc_size * sizeof *q->acc);
}

#include "lib/kernels/simd/attention/chosen.h"

/* The rows of the heads [begin, end), row by row. */
static void heads_attention(struct query_block *b, const struct kernel_attention *a, uint32_t begin,
                            uint32_t end)
{
    uint32_t heads = end - begin, queries = heads * a->rows;
    for (uint32_t number = 0; number < queries;) {
        for (b->count = 0; b->count < b->max && number < queries; number++)
            add_query(b, a, begin + number % heads, number / heads);
        if (b->turns)
            turn_queries(b);
        block_attention(b, a);
    }
}

/* One row: all heads together, so that keys are read in the order of memory. Several: the heads of
 * one key head. */
static void simd_attention(const struct kernel_attention *a)
{
    attention_check_wide(a);
    const bool listed = a->chosen.count != NULL;
    uint32_t group = a->rows == 1 && !listed ? a->heads : a->heads / a->kv_heads;
    struct query_block b;
    b.size = a->key_size;
    b.value_size = a->value_size;
    b.type = a->kv_type;
    b.padded = kv_padded(a->key_size);
    b.value_padded = kv_padded(a->value_size);
    b.key_bytes = kv_tile_bytes(a->kv_type, a->key_size);
    b.value_bytes = kv_tile_bytes(a->kv_type, a->value_size);
    b.acc_size = (b.value_size + PART_SIZE - 1) / PART_SIZE * PART_SIZE;
    b.max = BLOCK_FLOATS / b.acc_size;
    b.max = b.max < BLOCK_QUERIES ? b.max : BLOCK_QUERIES;
    uint32_t heads = a->heads / a->kv_heads, here = a->head_end - a->head_begin;
    if (b.size <= TURNED_SIZE && b.max > BLOCK_FLOATS / kv_padded(b.size))
        b.max = BLOCK_FLOATS / kv_padded(b.size);
    b.max = b.max / MANY_QUERIES * MANY_QUERIES;
    b.turns = !kv_is_quantised(b.type) && b.size <= TURNED_SIZE && b.max >= TURNED_FROM &&
              a->rows * (heads < here ? heads : here) >= TURNED_FROM && !listed;
    b.scale = a->scale;
    b.cap = a->cap;
    b.spare = (struct query){.q = a->q + (size_t)a->head_begin * b.size,
                             .acc = b.sums + BLOCK_FLOATS,
                             .p = b.spare_p,
                             .quantised = b.quantised.query};
    memset(b.spare.acc, 0, b.acc_size * sizeof *b.sums);
    memset(b.spare_p, 0, sizeof b.spare_p);
    for (uint32_t begin = a->head_begin, end; begin < a->head_end; begin = end) {
        end = (begin / group + 1) * group;
        end = end < a->head_end ? end : a->head_end;
        if (listed)
            chosen_rows(&b, a, begin, end);
        else
            heads_attention(&b, a, begin, end);
    }
}
