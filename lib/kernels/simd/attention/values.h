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

/* All values [first, end) for queries that attend to all of these keys: one, or a register tile. */
static ALWAYS_INLINE void all_values(const enum kv_type type, const int queries,
                                     struct query *const q[TILE_QUERIES], const struct tile_rows *t,
                                     uint32_t size, uint32_t first, uint32_t end)
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
        vf_store(b->quantised.value_scale + i, vh_load(h + 2 * (size_t)i));
}

/* Queries that attend to the same keys, at most a register tile. */
static ALWAYS_INLINE void values_together(const enum kv_type type, struct query_block *b,
                                          uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[TILE_QUERIES];
    pick(b, first, end, TILE_QUERIES, q);
    prefetch_part(t, 0, 1);
    all_values(type, TILE_QUERIES, q, t, b->value_size, q[0]->first, q[0]->keys);
}

/* ---- many queries: a part of the values is converted to F32 once ---- */

/* acc = acc * factor + sum over `count` rows of a part of p * row. Its callers are not inline: with
 * more variables around, addresses leave the registers. */
static ALWAYS_INLINE void add_part(const int queries, float *const acc[], const float *const p[],
                                   const float factor[], const float *v, uint32_t count)
{
    vf sum[MANY_QUERIES][PART_VECTORS];
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < PART_VECTORS; j++)
        sum[i][j] = vf_mul(vf_load(acc[i] + j * VL), vf_set1(factor[i]));
    for (uint32_t key = 0; key < count; key++, v += PART_SIZE) {
        vf weight[MANY_QUERIES];
        UNROLL for (int i = 0; i < queries; i++) weight[i] = vf_set1(p[i][key]);
        UNROLL for (int j = 0; j < PART_VECTORS; j++)
        {
            vf row = vf_load(v + j * VL);
            UNROLL for (int i = 0; i < queries; i++) sum[i][j] = vf_fma(weight[i], row, sum[i][j]);
        }
    }
    UNROLL for (int i = 0; i < queries; i++) UNROLL for (int j = 0; j < PART_VECTORS; j++)
        vf_store(acc[i] + j * VL, sum[i][j]);
}

static __attribute__((noinline)) void part_of_one(float *acc, const float *p, float factor,
                                                  const float *v, uint32_t count)
{
    add_part(1, &acc, &p, &factor, v, count);
}

static __attribute__((noinline)) void part_of_many(float *const acc[], const float *const p[],
                                                   const float factor[], const float *v,
                                                   uint32_t count)
{
    add_part(MANY_QUERIES, acc, p, factor, v, count);
}

/* A part for a register tile of `n` queries: keys before those that all attend to (windows), these,
 * and those of later rows. */
static void part_of_values(struct query *const q[MANY_QUERIES], uint32_t n, const float *v,
                           uint32_t d)
{
    uint32_t from = q[n - 1]->first, common = q[0]->keys;
    const bool together = n > 1 && from < common;
    float *acc[MANY_QUERIES], factor[MANY_QUERIES];
    const float *p[MANY_QUERIES];
    for (uint32_t i = 0; i < MANY_QUERIES; i++) {
        acc[i] = q[i]->acc + d;
        factor[i] = q[i]->old;
        p[i] = q[i]->p + from;
    }
    for (uint32_t i = 0; i < n && together; i++)
        if (q[i]->first < from) {
            uint32_t first = q[i]->first;
            part_of_one(acc[i], q[i]->p + first, factor[i], v + (size_t)first * PART_SIZE,
                        from - first);
            factor[i] = 1;
        }
    if (together) {
        part_of_many(acc, p, factor, v + (size_t)from * PART_SIZE, common - from);
        for (uint32_t i = 0; i < n; i++)
            factor[i] = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = together ? common : q[i]->first;
        if (first < q[i]->keys)
            part_of_one(acc[i], q[i]->p + first, factor[i], v + (size_t)first * PART_SIZE,
                        q[i]->keys - first);
    }
}

/* The elements [d, d + PART_SIZE) of the rows [first, keys) of a tile in F32; after `size`:
 * zeros. */
static ALWAYS_INLINE void convert_part(const enum kv_type type, struct query_block *b,
                                       const struct tile_rows *t, uint32_t size, uint32_t first,
                                       uint32_t keys, uint32_t d)
{
    const bool whole = d + PART_SIZE <= size;
    for (uint32_t key = first; key < keys; key++) {
        float *to = b->part + (size_t)key * PART_SIZE;
        if (whole)
            UNROLL for (int j = 0; j < PART_VECTORS; j++)
                vf_store(to + j * VL, row_load(type, t, key, d, j));
        else
            for (uint32_t j = 0, at = d; j < PART_SIZE; j += VL, at += VL)
                vf_store(to + j, at >= size ? vf_set1(0)
                                 : at + VL <= size
                                     ? row_load(type, t, key, at / QK * QK, (int)(at % QK / VL))
                                     : row_load_n(type, t, key, at, size - at));
    }
}

static ALWAYS_INLINE void values_of_tile(const enum kv_type type, struct query_block *b,
                                         uint32_t first, uint32_t end, const struct tile_rows *t)
{
    struct query *q[MANY_QUERIES];
    uint32_t size = kv_is_quantised(type) ? b->value_padded : b->value_size;
    uint32_t count = (end - first + MANY_QUERIES - 1) / MANY_QUERIES, step = 0;
    for (uint32_t d = 0; d < size; d += PART_SIZE) {
        convert_part(type, b, t, size, b->query[first].first, b->query[end - 1].keys, d);
        for (uint32_t i = first; i < end; i += MANY_QUERIES) {
            uint32_t n = pick(b, i, end, MANY_QUERIES, q);
            part_of_values(q, n, b->part, d);
            prefetch_part(t, step++, b->acc_size / PART_SIZE * count);
        }
    }
}

/* The values [first, end) of a tile. v NULL: they are the first elements of the keys k; quantised
 * ones get the layout of values. */
static ALWAYS_INLINE struct tile_rows rows_of_values(const enum kv_type type, struct query_block *b,
                                                     const uint8_t *k, const uint8_t *v,
                                                     uint32_t first, uint32_t end)
{
    if (!kv_is_quantised(type))
        return (struct tile_rows){.base = v ? v : k, .size = v ? b->value_size : b->size};
    load_value_scales(b, v ? v : k, v ? b->value_padded : b->padded);
    if (!v)
        kv_values_of_keys(type, k, b->padded, b->value_padded, first, end, b->quantised.codes);
    return (struct tile_rows){.base = v ? v : b->quantised.codes,
                              .size = b->value_padded,
                              .scale = b->quantised.value_scale};
}
