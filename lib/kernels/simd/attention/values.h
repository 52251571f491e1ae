/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: weighted values of a tile. */

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
