/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: attention to a list of positions.
 *
 * The definition's tiles and segments stay those of the positions, but their listed rows are moved
 * together: up to TILE_KEYS rows of several tiles of a segment become a packed tile in the block,
 * with whose keys all products are made at once. The softmax moves on by parts, which are the rows
 * of a tile. A tile of which most is listed is read where it lies. */

/* A packed tile; packing twice is not needed for values in keys. */
struct packed {
    uint32_t rows, parts;
    uint32_t end[SEGMENT_TILES];  /* of each part */
    uint32_t tile[SEGMENT_TILES]; /* position at which its tile begins */
    uint8_t key[TILE_KEYS];       /* of each row, its number in that tile */
};

static void pack_codes(enum kv_type type, enum kv_side side, uint32_t padded, const uint8_t *tile,
                       uint32_t key, uint8_t *to, uint32_t row)
{
    if (side == KV_SIDE_VALUES)
        memcpy(to + kv_value_row(type, padded, row), tile + kv_value_row(type, padded, key),
               padded / kv_per_byte(type));
    for (uint32_t e = 0; side == KV_SIDE_KEYS && e < padded; e += 4 * kv_per_byte(type))
        memcpy(to + kv_key_word(type, padded, row, e), tile + kv_key_word(type, padded, key, e), 4);
    for (uint32_t b = 0; b < padded / QK; b++)
        memcpy(to + kv_scale_offset(type, padded, b, row),
               tile + kv_scale_offset(type, padded, b, key), 2);
}

static const uint8_t *tile_at(const struct query_block *b, const struct kernel_attention *a,
                              enum kv_side side, uint32_t position)
{
    const uint8_t *base = side == KV_SIDE_KEYS ? a->k : a->v;
    uint32_t size = side == KV_SIDE_KEYS ? b->size : b->value_size;
    uint32_t at = kernel_ring_position(a->ring, position);
    return base ? base + kernel_kv_tile(b->type, a->kv_heads, size, at, b->query[0].kv_head) : NULL;
}

/* The rows of keys or values of a head; returns the packed tile. */
static ALWAYS_INLINE const uint8_t *pack(const enum kv_type type, const enum kv_side side,
                                         struct query_block *b, const struct kernel_attention *a,
                                         const struct packed *g, uint32_t size)
{
    const size_t bytes = size * (type == KV_TYPE_F16 ? sizeof(uint16_t) : sizeof(float));
    uint8_t *to = kv_is_quantised(type) ? b->quantised.packed : b->packed;
    for (uint32_t part = 0, row = 0; part < g->parts; part++) {
        const uint8_t *tile = tile_at(b, a, side, g->tile[part]);
        for (; row < g->end[part]; row++)
            if (kv_is_quantised(type))
                pack_codes(type, side, kv_padded(size), tile, g->key[row], to, row);
            else
                memcpy(to + row * bytes, tile + g->key[row] * bytes, bytes);
    }
    return to;
}

/* The softmax of a query moves on by all parts: scores become weights. */
static void packed_weights(struct query *q, const struct packed *g, float cap)
{
    const uint32_t vectors = (g->rows + VL - 1) / VL;
    _Alignas(64) float top[TILE_KEYS], old[VL] = {0}, lanes[16];
    float m = q->m, *p = q->p;
    if (cap != 0)
        cap_scores(p, vectors, cap);
    for (uint32_t part = 0, begin = 0; part < g->parts; begin = g->end[part++]) {
        float before = m;
        for (uint32_t i = begin; i < g->end[part]; i++)
            m = p[i] > m ? p[i] : m;
        old[part] = before - m;
        for (uint32_t i = begin; i < g->end[part]; i++)
            top[i] = m;
    }
    for (uint32_t i = g->rows; i < vectors * VL; i++) {
        p[i] = 0;
        top[i] = 0;
    }
    for (uint32_t i = 0; i < vectors * VL; i += VL)
        vf_store(p + i, vf_exp(vf_sub(vf_load(p + i), vf_load(top + i))));
    vf_store(q->olds, vf_exp(vf_load(old)));
    for (uint32_t part = 0, i = 0; part < g->parts; part++) {
        vf sum[HALVES];
        memset(lanes, 0, sizeof lanes);
        for (; i < g->end[part]; i++)
            lanes[g->key[i] % 16] += p[i];
        UNROLL for (int half = 0; half < HALVES; half++) sum[half] = vf_load(lanes + half * VL);
        q->l = fmaf(q->l, q->olds[part], vf_sum16(sum));
    }
    q->m = m;
}

/* add_values, with a factor of what there is before each part. */
static ALWAYS_INLINE void add_packed_values(const enum kv_type type, const int queries,
                                            const int width, struct query *const q[TILE_QUERIES],
                                            const struct tile_rows *t, const struct packed *g,
                                            uint32_t d, uint32_t n)
{
    vf acc[TILE_QUERIES][8];
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < width; j++) acc[i][j] =
        vf_load(q[i]->acc + d + j * VL);
    for (uint32_t part = 0, key = 0; part < g->parts; part++) {
        UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < width; j++) acc[i][j] =
            vf_mul(acc[i][j], vf_set1(q[i]->olds[part]));
        for (; key < g->end[part]; key++)
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

/* all_values of the packed rows. */
static ALWAYS_INLINE void packed_values(const enum kv_type type, const int queries,
                                        struct query *const q[TILE_QUERIES],
                                        const struct tile_rows *t, const struct packed *g,
                                        uint32_t size)
{
    const int wide = queries == 1 ? 8 : 4, narrow = kv_is_quantised(type) ? QK / VL : 1;
    uint32_t d = 0;
    size = kv_is_quantised(type) ? kv_padded(size) : size;
    for (; d + (uint32_t)wide * VL <= size; d += (uint32_t)wide * VL)
        add_packed_values(type, queries, wide, q, t, g, d, VL);
    for (; d + (uint32_t)narrow * VL <= size; d += (uint32_t)narrow * VL)
        add_packed_values(type, queries, narrow, q, t, g, d, VL);
    if (d < size)
        add_packed_values(type, queries, 1, q, t, g, d, size - d);
}

/* The packed rows for all queries of the block, whose key head is one. */
static ALWAYS_INLINE void add_packed_of(const enum kv_type type, struct query_block *b,
                                        const struct kernel_attention *a, const struct packed *g)
{
    struct query *q[TILE_QUERIES];
    const uint8_t *k = pack(type, KV_SIDE_KEYS, b, a, g, b->size);
    struct tile_rows keys = {.base = k, .size = kv_is_quantised(type) ? b->padded : b->size};
    for (uint32_t i = 0; i < b->count; i += TILE_QUERIES) {
        uint32_t n = pick(b, i, b->count, TILE_QUERIES, q);
        if (n == 1)
            tile_scores(type, 1, (const struct query *const *)q, &keys, b, g->rows);
        else
            tile_scores(type, TILE_QUERIES, (const struct query *const *)q, &keys, b, g->rows);
        for (uint32_t j = 0; j < n; j++)
            packed_weights(q[j], g, b->cap);
    }
    const uint8_t *v = a->v ? pack(type, KV_SIDE_VALUES, b, a, g, b->value_size) : NULL;
    struct tile_rows values = rows_of_values(type, b, k, v, 0, g->rows);
    for (uint32_t i = 0; i < b->count; i += TILE_QUERIES) {
        uint32_t n = pick(b, i, b->count, TILE_QUERIES, q);
        if (n == 1)
            packed_values(type, 1, q, &values, g, b->value_size);
        else
            packed_values(type, TILE_QUERIES, q, &values, g, b->value_size);
    }
}

#define ADD_PACKED(id)                                                                             \
    static __attribute__((noinline)) void add_packed_##id(                                         \
        struct query_block *b, const struct kernel_attention *a, const struct packed *g)           \
    {                                                                                              \
        add_packed_of(KV_TYPE_##id, b, a, g);                                                      \
    }
#define KV_TYPE(id, name, block, block_bytes) ADD_PACKED(id)
#include "lib/tensor/kv_types.tbl.h"

static void add_packed(struct query_block *b, const struct kernel_attention *a,
                       const struct packed *g)
{
    switch (b->type) {
#define KV_TYPE(id, name, block, block_bytes)                                                      \
    case KV_TYPE_##id:                                                                             \
        add_packed_##id(b, a, g);                                                                  \
        return;
#include "lib/tensor/kv_types.tbl.h"
    case KV_TYPE__COUNT: break;
    }
    sl_panic("KV type %d", (int)b->type);
}

/* How many positions of the list are in the tile of the first. */
static uint32_t in_tile(struct chosen_row list)
{
    uint32_t n = 1, next = (list.at[0] / TILE_KEYS + 1) * TILE_KEYS;
    while (n < list.count && list.at[n] < next)
        n++;
    return n;
}

/* Whether the first n positions, of one tile, follow each other and are most of what precedes them
 * in it: scores are made of all keys up to the last one. */
static bool lies_dense(struct chosen_row list, uint32_t n)
{
    return list.at[n - 1] - list.at[0] == n - 1 && 2 * n > list.at[n - 1] % TILE_KEYS + 1;
}

/* The first n positions of the list. What follows is probably a tile, too, if it begins one. */
static void add_dense(struct query_block *b, const struct kernel_attention *a,
                      struct chosen_row list, uint32_t n)
{
    uint32_t at = list.at[0], next = n < list.count ? list.at[n] : 1;
    for (uint32_t i = 0; i < b->count; i++) {
        b->query[i].first = at % TILE_KEYS;
        b->query[i].keys = at % TILE_KEYS + n;
    }
    add_tile(b, 0, b->count, tile_at(b, a, KV_SIDE_KEYS, at), tile_at(b, a, KV_SIDE_VALUES, at),
             next % TILE_KEYS == 0 ? tile_at(b, a, KV_SIDE_KEYS, next) : NULL);
}

/* Takes parts of a segment from the list while they fit and do not lie dense; the first does. */
static struct packed next_packed(struct chosen_row *list)
{
    struct packed g = {0};
    const uint32_t segment = list->at[0] / KERNEL_KEY_SEGMENT;
    while (list->count > 0 && list->at[0] / KERNEL_KEY_SEGMENT == segment) {
        uint32_t n = in_tile(*list);
        if (g.rows + n > TILE_KEYS || (g.rows > 0 && lies_dense(*list, n)))
            break;
        for (uint32_t i = 0; i < n; i++)
            g.key[g.rows + i] = (uint8_t)(list->at[i] % TILE_KEYS);
        g.tile[g.parts] = list->at[0] / TILE_KEYS * TILE_KEYS;
        g.rows += n;
        g.end[g.parts++] = g.rows;
        *list = (struct chosen_row){list->at + n, list->count - n};
    }
    return g;
}

/* The queries of the block, which are heads of one row and one key head. */
static void chosen_attention(struct query_block *b, const struct kernel_attention *a,
                             struct chosen_row list)
{
    bool first = true;
    for (uint32_t i = 0; i < b->count && list.count == 0; i++)
        memset(b->query[i].out, 0, b->value_size * sizeof *b->query[i].out);
    if (list.count == 0)
        return;
    while (list.count > 0) {
        const uint32_t segment = list.at[0] / KERNEL_KEY_SEGMENT, n = in_tile(list);
        if (lies_dense(list, n)) {
            add_dense(b, a, list, n);
            list = (struct chosen_row){list.at + n, list.count - n};
        } else {
            struct packed g = next_packed(&list);
            add_packed(b, a, &g);
        }
        if (list.count > 0 && list.at[0] / KERNEL_KEY_SEGMENT == segment)
            continue;
        for (uint32_t i = 0; i < b->count; i++)
            merge_segment(&b->query[i], b->value_size, first);
        first = false;
    }
    for (uint32_t i = 0; i < b->count; i++)
        finish_query(b, &b->query[i], a->sinks != NULL);
}

/* Rows have lists of their own, so a block is heads of one row. */
static void chosen_rows(struct query_block *b, const struct kernel_attention *a, uint32_t begin,
                        uint32_t end)
{
    for (uint32_t row = 0; row < a->rows; row++) {
        uint32_t from = kernel_attention_begin(a->window, a->positions + row);
        struct chosen_row list = chosen_of(&a->chosen, row, from);
        for (uint32_t head = begin; head < end;) {
            for (b->count = 0; b->count < b->max && head < end; head++)
                add_query(b, a, head, row);
            chosen_attention(b, a, list);
        }
    }
}
