/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by attention.h: rows of keys or values of a tile, and prefetching of the next
 * tile. */

/* Rows of a tile: as in memory, or codes in the layout of values. */
struct tile_rows {
    const void *base;
    const uint8_t *next; /* what is needed after it, to prefetch; NULL: none */
    size_t next_bytes;
    uint32_t size;      /* elements from row to row */
    const float *scale; /* of quantised rows: [block][TILE_KEYS] */
};

/* The vector at d + j * VL of a row. Quantised: d is a multiple of 32. */
static ALWAYS_INLINE vf row_load(const enum kv_type type, const struct tile_rows *t, uint32_t row,
                                 uint32_t d, const int j)
{
    size_t i = (size_t)row * t->size + d + (uint32_t)j * VL;
    const bool high = j * VL % QK >= QK / 2;
    switch (type) {
    case KV_TYPE_F16: return vh_load((const uint16_t *)t->base + i);
    case KV_TYPE_Q8_0:
        return vf_mul(vf_from_i8((const int8_t *)t->base + i),
                      vf_set1(t->scale[(d + (uint32_t)j * VL) / QK * TILE_KEYS + row]));
    case KV_TYPE_Q4_0:
        i = i / QK * (QK / 2) + (size_t)(j * VL % (QK / 2));
        return vf_mul(vf_from_nibbles((const uint8_t *)t->base + i, high),
                      vf_set1(t->scale[(d + (uint32_t)j * VL) / QK * TILE_KEYS + row]));
    default: return vf_load((const float *)t->base + i);
    }
}

/* Floats. */
static ALWAYS_INLINE vf row_load_n(const enum kv_type type, const struct tile_rows *t, uint32_t row,
                                   uint32_t at, uint32_t n)
{
    size_t i = (size_t)row * t->size + at;
    return type == KV_TYPE_F16 ? vh_load_n((const uint16_t *)t->base + i, n)
                               : vf_load_n((const float *)t->base + i, n);
}

/* Prefetches part `part` of `parts` of the tile that is needed next. */
static ALWAYS_INLINE void prefetch_part(const struct tile_rows *t, uint32_t part, uint32_t parts)
{
    size_t end = t->next_bytes * (part + 1) / parts;
    for (size_t at = t->next_bytes * part / parts / 64 * 64; t->next && at < end; at += 64)
        prefetch_far(t->next, at);
}

/* Bytes of the tile that is needed next to prefetch with each of `steps`: whole lines; 0: none. */
static ALWAYS_INLINE size_t prefetch_each(const struct tile_rows *t, uint32_t steps)
{
    return t->next ? (t->next_bytes + 64 * (size_t)steps - 1) / (64 * (size_t)steps) * 64 : 0;
}
