/* SPDX-License-Identifier: Apache-2.0 */
/* Products with Q8_0 and Q4_0 weights: AVX-512 VNNI.
 *
 * For one row (decode), the terms of each weight row are computed from memory, 16 blocks per
 * vector, whose halves are added to the eight partial sums. For several rows (prefill), the weights
 * of a panel of outputs are transposed once and used for all rows; the lanes are outputs, and the
 * blocks are in the order of struct block_run. */
#include <immintrin.h>

#include "lib/kernels/internal.h"

#include "lib/tensor/tensor_type.h"

#define LANES 16
#define PANEL 32 /* outputs of a panel: two vectors */
#define CHUNK 16 /* blocks of a panel: 16 KiB of weights, half of a 32 KiB L1 cache */
#define TILE                                                                                       \
    6 /* rows of a register tile: 12 integer sums, 12 float sums, 2 weights, 1 activation */
#define ROW_BLOCK 126  /* rows whose activations stay in the L2 cache over all panels */
#define AHEAD     4096 /* bytes of weights prefetched ahead */

/* Sums of one row of activations for a panel: sum i of 2^i parts, and the open one. */
struct sums {
    _Alignas(64) float part[OPEN + 1][PANEL];
};

struct panel {
    _Alignas(
        64) uint8_t q[CHUNK][QK / 4][PANEL * 4]; /* four elements of each output side by side */
    _Alignas(64) float d[CHUNK][PANEL];
};

static ALWAYS_INLINE __m512i load_four(const uint8_t *a, const uint8_t *b, const uint8_t *c,
                                       const uint8_t *d)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)a));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)c), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)d), 3);
}

/* ---- one row ---- */

/* A block is an odd number of 16-bit words. Two overlapping loads and one permutation of 16-bit
 * words collect the first (or last) 16 bytes of four blocks; the scales are taken from the same
 * loads. */
#define RUN8(at) (at), (at) + 1, (at) + 2, (at) + 3, (at) + 4, (at) + 5, (at) + 6, (at) + 7
#define SECOND   32 /* words from this index on are those of the second load */

static const uint16_t q4_words[32] = {RUN8(1), RUN8(10), RUN8(19), RUN8(SECOND + 24)};
static const uint16_t q8_low_words[32] = {RUN8(1), RUN8(18), RUN8(SECOND + 1), RUN8(SECOND + 18)};
static const uint16_t q8_high_words[32] = {RUN8(0), RUN8(17), RUN8(SECOND + 7), RUN8(SECOND + 24)};
/* The four scales, repeated: a mask selects the lanes of the current group. */
static const uint16_t q4_scale_words[16] = {0, 9, 18, 27, 0, 9, 18, 27, 0, 9, 18, 27, 0, 9, 18, 27};
static const uint16_t q8_scale_words[16] = {0, 17, 0, 17, 0, 17, 0, 17, 0, 17, 0, 17, 0, 17, 0, 17};

struct four_blocks {
    __m512i lo, hi; /* unsigned weights: first and last 16 of each block */
};

static ALWAYS_INLINE __m512i words(const uint16_t *p)
{
    return _mm512_loadu_si512(p);
}

static ALWAYS_INLINE __m512i half_words(const uint16_t *p)
{
    return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Four blocks at w; their scales go to the 16-bit lanes 4 * group .. 4 * group + 3 of *d. */
static ALWAYS_INLINE struct four_blocks unpack_four(const bool q8, const uint8_t *w,
                                                    const int group, __m512i *d)
{
    struct four_blocks f;
    __m512i a = _mm512_loadu_si512(w);
    if (q8) {
        const __m512i flip = _mm512_set1_epi8((char)0x80);
        __m512i b = _mm512_loadu_si512(w + 2 * Q8_BYTES);
        __m512i a2 = _mm512_loadu_si512(w + 18);
        __m512i b2 = _mm512_loadu_si512(w + 4 * Q8_BYTES - 64);
        f.lo = _mm512_xor_si512(_mm512_permutex2var_epi16(a, words(q8_low_words), b), flip);
        f.hi = _mm512_xor_si512(_mm512_permutex2var_epi16(a2, words(q8_high_words), b2), flip);
        __m512i at = half_words(q8_scale_words);
        *d = _mm512_mask_permutexvar_epi16(*d, (__mmask32)(3u << (4 * group)), at, a);
        *d = _mm512_mask_permutexvar_epi16(*d, (__mmask32)(12u << (4 * group)), at, b);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        __m512i b = _mm512_loadu_si512(w + 4 * Q4_BYTES - 64);
        __m512i n = _mm512_permutex2var_epi16(a, words(q4_words), b);
        f.lo = _mm512_and_si512(n, low);
        f.hi = _mm512_and_si512(_mm512_srli_epi16(n, 4), low);
        *d = _mm512_mask_permutexvar_epi16(*d, (__mmask32)(15u << (4 * group)),
                                           half_words(q4_scale_words), a);
    }
    return f;
}

/* Dot products of four blocks, each as the sum of four lanes. */
static ALWAYS_INLINE __m512i dot_four(struct four_blocks w, const int8_t *x)
{
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w.lo, _mm512_loadu_si512(x));
    return _mm512_dpbusd_epi32(s, w.hi, _mm512_loadu_si512(x + 64));
}

/* Adds the four lanes of each block of each group; the result is in the order of the blocks. */
static ALWAYS_INLINE __m512i join_groups(const __m512i g[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(g[0], g[1]), _mm512_unpackhi_epi32(g[0], g[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(g[2], g[3]), _mm512_unpackhi_epi32(g[2], g[3]));
    __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm512_permutexvar_epi32(order, s);
}

/* The terms of the 16 blocks at w, all inside the row. */
static ALWAYS_INLINE __m512 sixteen_terms(const bool q8, const uint8_t *w, const int8_t *x,
                                          const int32_t *corr)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    __m512i g[4], d = _mm512_setzero_si512();
    UNROLL for (int i = 0; i < 4; i++)
    {
        const uint8_t *at = w + (size_t)i * 4 * size;
        g[i] = dot_four(unpack_four(q8, at, i, &d), x + i * GROUP_SIZE);
    }
    __m512i dot = _mm512_add_epi32(join_groups(g), _mm512_loadu_si512(corr));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_cvtph_ps(_mm512_castsi512_si256(d)));
}

/* The same for the first `groups` groups of four blocks; the other terms are zero. Short rows
 * (experts of small models) are mostly such a tail; copying it first took half of the time. */
static ALWAYS_INLINE __m512 some_terms(const bool q8, const uint8_t *w, uint32_t groups,
                                       const int8_t *x, const int32_t *corr)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    __m512i g[4], d = _mm512_setzero_si512();
    UNROLL for (int i = 0; i < 4; i++)
    {
        g[i] = _mm512_setzero_si512();
        if ((uint32_t)i < groups)
            g[i] = dot_four(unpack_four(q8, w + (size_t)i * 4 * size, i, &d), x + i * GROUP_SIZE);
    }
    __m512i dot = _mm512_add_epi32(join_groups(g), _mm512_loadu_si512(corr));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_cvtph_ps(_mm512_castsi512_si256(d)));
}

/* Adds the terms of 16 blocks to the partial sums, the lower half first. */
static ALWAYS_INLINE __m256 add_terms(__m256 acc, __m512 term, const float *dx)
{
    acc = _mm256_fmadd_ps(_mm512_castps512_ps256(term), _mm256_loadu_ps(dx), acc);
    return _mm256_fmadd_ps(_mm512_extractf32x8_ps(term, 1), _mm256_loadu_ps(dx + PARTS), acc);
}

/* The same for the first n blocks. */
static ALWAYS_INLINE __m256 add_some_terms(__m256 acc, __m512 term, const float *dx, uint32_t n)
{
    const uint32_t mask = (1u << n) - 1u;
    acc = _mm256_mask3_fmadd_ps(_mm512_castps512_ps256(term), _mm256_loadu_ps(dx), acc,
                                (__mmask8)(mask & 255u));
    return _mm256_mask3_fmadd_ps(_mm512_extractf32x8_ps(term, 1), _mm256_loadu_ps(dx + PARTS), acc,
                                 (__mmask8)(mask >> PARTS));
}

/* The partial sums of one output. x, corr and dx are padded to ACT_PAD blocks. */
static ALWAYS_INLINE __m256 row_sums(const bool q8, const uint8_t *w, uint32_t blocks,
                                     const int8_t *x, const int32_t *corr, const float *dx)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    __m256 acc = _mm256_setzero_ps();
    uint32_t b = 0;
    for (; b + LANES <= blocks; b += LANES) {
        UNROLL for (size_t line = 0; line < LANES * size; line += 64)
            prefetch(w + b * size, AHEAD + line);
        acc = add_terms(acc, sixteen_terms(q8, w + b * size, x + (size_t)b * QK, corr + b), dx + b);
    }
    if (b == blocks)
        return acc;
    __m512 term;
    if (blocks % 4 == 0) { /* whole groups: nothing beyond the row is read */
        term = some_terms(q8, w + b * size, (blocks - b) / 4, x + (size_t)b * QK, corr + b);
    } else { /* a copy, so that nothing beyond the row is read */
        uint8_t end[LANES * Q8_BYTES] = {0};
        memcpy(end, w + b * size, (blocks - b) * size);
        term = sixteen_terms(q8, end, x + (size_t)b * QK, corr + b);
    }
    return add_some_terms(acc, term, dx + b, blocks - b);
}

/* Where the partial sums of output i are stored, so that join_parts has the outputs in order. */
static ALWAYS_INLINE size_t parts_at(uint32_t i)
{
    return (size_t)((i & 3u) + i / 8 * 4) * LANES + (i >> 2 & 1u) * PARTS;
}

/* Adjacent pairs of lanes of a, then of b, in every 128-bit part. */
static ALWAYS_INLINE __m512 add_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* The sums of 16 outputs from their partial sums. */
static ALWAYS_INLINE __m512 join_parts(const float *parts)
{
    __m512 z[8];
    UNROLL for (int i = 0; i < 8; i++) z[i] = _mm512_load_ps(parts + i * LANES);
    __m512 c = add_pairs(add_pairs(z[0], z[1]), add_pairs(z[2], z[3]));
    __m512 d = add_pairs(add_pairs(z[4], z[5]), add_pairs(z[6], z[7]));
    return _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
}

static ALWAYS_INLINE void one_row(const bool q8, const struct kernel_matrix *w, uint32_t n_begin,
                                  uint32_t n_end, const uint8_t *x, float *y)
{
    const float *dx = (const float *)(const void *)(x + act_scale_offset(w->k));
    const int32_t *corr = (const int32_t *)(const void *)(x + act_corr_offset(w->k));
    _Alignas(64) float parts[LANES * PARTS] = {0};
    for (uint32_t j = n_begin; j < n_end; j += LANES) {
        uint32_t outputs = n_end - j < LANES ? n_end - j : LANES;
        for (uint32_t i = 0; i < outputs; i++) {
            const uint8_t *row = (const uint8_t *)w->data + (size_t)(j + i) * w->row_bytes;
            _mm256_store_ps(parts + parts_at(i),
                            row_sums(q8, row, w->k / QK, (const int8_t *)x, corr, dx));
        }
        _mm512_mask_storeu_ps(y + j, (__mmask16)((1u << outputs) - 1u), join_parts(parts));
    }
}

/* ---- several rows ---- */

/* Transposes 16 bytes at `off` of 16 outputs: out[g] is 32-bit word g of every output. */
static ALWAYS_INLINE void pack_half(const uint8_t *const row[LANES], size_t off, __m512i out[4])
{
    __m512i z[4];
    UNROLL for (int i = 0; i < 4; i++) z[i] =
        load_four(row[i] + off, row[4 + i] + off, row[8 + i] + off, row[12 + i] + off);
    __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

static ALWAYS_INLINE void pack_block(const bool q8, const uint8_t *const row[LANES], size_t off,
                                     uint8_t q[QK / 4][PANEL * 4], uint32_t side)
{
    __m512i v[8];
    pack_half(row, off + 2, v);
    if (q8) {
        const __m512i flip = _mm512_set1_epi8((char)0x80);
        pack_half(row, off + 18, v + 4);
        UNROLL for (int g = 0; g < 8; g++) v[g] = _mm512_xor_si512(v[g], flip);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        UNROLL for (int g = 0; g < 4; g++)
        {
            v[g + 4] = _mm512_and_si512(_mm512_srli_epi16(v[g], 4), low);
            v[g] = _mm512_and_si512(v[g], low);
        }
    }
    UNROLL for (int g = 0; g < 8; g++) _mm512_store_si512(&q[g][side * 64], v[g]);
}

/* One side (16 outputs) of a panel: the blocks of a run of every row. */
static ALWAYS_INLINE void pack_side(const bool q8, const uint8_t *const row[LANES],
                                    const struct block_run *run, struct panel *p, uint32_t side)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    for (uint32_t i = 0; i < run->count; i++) {
        _Alignas(32) uint16_t d[LANES];
        size_t at = run->block[i] * size;
        for (uint32_t r = 0; r < LANES; r++)
            d[r] = load_u16(row[r] + at);
        pack_block(q8, row, at, p->q[i], side);
        __m256i h = _mm256_load_si256((const __m256i *)(const void *)d);
        _mm512_store_ps(&p->d[i][side * LANES], _mm512_cvtph_ps(h));
    }
}

/* The panel of outputs j .. j + PANEL - 1 (from n on, the last row again). Meanwhile prefetches as
 * many bytes of the next panel, from byte `ahead` of its rows on. */
static ALWAYS_INLINE void pack(const bool q8, const struct kernel_matrix *w, uint32_t j, uint32_t n,
                               const struct block_run *run, size_t ahead, struct panel *p)
{
    const size_t bytes = run->count * (size_t)(q8 ? Q8_BYTES : Q4_BYTES);
    ahead += PANEL * (size_t)w->row_bytes;
    for (uint32_t side = 0; side < PANEL / LANES; side++) {
        const uint8_t *row[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            uint32_t at = j + side * LANES + i < n ? j + side * LANES + i : n - 1;
            row[i] = (const uint8_t *)w->data + (size_t)at * w->row_bytes;
            for (size_t line = 0; line < bytes; line += 64)
                prefetch(row[i], ahead + line);
        }
        pack_side(q8, row, run, p, side);
    }
}

struct tile {
    const struct panel *panel;
    const struct block_run *run;
    const uint8_t *x; /* first row */
    size_t x_stride, d_at, c_at;
    uint32_t blocks; /* of a weight row */
    struct sums *sums;
    float *y;
    size_t y_stride;
    __mmask16 mask[2];
};

static ALWAYS_INLINE __m512i activation_word(const uint8_t *p)
{
    return _mm512_set1_epi32((int)load_u32(p));
}

static ALWAYS_INLINE __m512 activation_scale(const uint8_t *p)
{
    return _mm512_set1_ps(load_f32(p));
}

/* Adds block i of the run to acc: dot products * weight scales * activation scale. */
static ALWAYS_INLINE void tile_block(const struct tile *t, uint32_t i, const int rows,
                                     const uint8_t *const x[TILE], __m512 acc[TILE][2])
{
    __m512i dot[TILE][2];
    const uint8_t(*q)[PANEL * 4] = t->panel->q[i];
    const uint32_t b = t->run->block[i];
    UNROLL for (int r = 0; r < rows; r++) dot[r][0] = dot[r][1] =
        activation_word(x[r] + t->c_at + b * 4);
    size_t at = act_half(b, 0);
    UNROLL for (int g = 0; g < QK / 4; g++)
    {
        __m512i w0 = _mm512_load_si512(&q[g][0]), w1 = _mm512_load_si512(&q[g][64]);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512i v = activation_word(x[r] + at + (g / 4) * 64 + (g % 4) * 4);
            dot[r][0] = _mm512_dpbusd_epi32(dot[r][0], w0, v);
            dot[r][1] = _mm512_dpbusd_epi32(dot[r][1], w1, v);
        }
    }
    __m512 d0 = _mm512_load_ps(&t->panel->d[i][0]), d1 = _mm512_load_ps(&t->panel->d[i][LANES]);
    UNROLL for (int r = 0; r < rows; r++)
    {
        __m512 dx = activation_scale(x[r] + t->d_at + b * 4);
        acc[r][0] =
            _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][0]), d0), dx, acc[r][0]);
        acc[r][1] =
            _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot[r][1]), d1), dx, acc[r][1]);
    }
}

/* Partial sum `part` of a row is complete: adds it to those before it as far as the tree goes. */
static ALWAYS_INLINE void close_part(struct sums *s, uint32_t part, __m512 v0, __m512 v1,
                                     const struct tile *t, float *y)
{
    UNROLL for (int level = 0; level < OPEN; level++)
    {
        float *at = s->part[level];
        if ((part >> level & 1u) == 0) {
            _mm512_store_ps(at, v0);
            _mm512_store_ps(at + LANES, v1);
            return;
        }
        v0 = _mm512_add_ps(_mm512_load_ps(at), v0);
        v1 = _mm512_add_ps(_mm512_load_ps(at + LANES), v1);
    }
    _mm512_mask_storeu_ps(y, t->mask[0], v0);
    _mm512_mask_storeu_ps(y + LANES, t->mask[1], v1);
}

/* All blocks of the run, for `rows` rows. */
static ALWAYS_INLINE void tile_rows(const struct tile *t, const int rows)
{
    __m512 acc[TILE][2];
    const uint8_t *x[TILE];
    UNROLL for (int r = 0; r < rows; r++)
    {
        x[r] = t->x + (size_t)r * t->x_stride;
        acc[r][0] = _mm512_load_ps(t->sums[r].part[OPEN]);
        acc[r][1] = _mm512_load_ps(t->sums[r].part[OPEN] + LANES);
    }
    for (uint32_t i = 0; i < t->run->count; i++) {
        const uint32_t b = t->run->block[i];
        if (b < PARTS)
            UNROLL for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
        tile_block(t, i, rows, x, acc);
        if (b + PARTS >= t->blocks)
            UNROLL for (int r = 0; r < rows; r++) close_part(
                t->sums + r, b % PARTS, acc[r][0], acc[r][1], t, t->y + (size_t)r * t->y_stride);
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        _mm512_store_ps(t->sums[r].part[OPEN], acc[r][0]);
        _mm512_store_ps(t->sums[r].part[OPEN] + LANES, acc[r][1]);
    }
}

static void tile_any(const struct tile *t, uint32_t rows)
{
    switch (rows) {
    case 1: tile_rows(t, 1); return;
    case 2: tile_rows(t, 2); return;
    case 3: tile_rows(t, 3); return;
    case 4: tile_rows(t, 4); return;
    case 5: tile_rows(t, 5); return;
    case 6: tile_rows(t, 6); return;
    default: sl_panic("no tile of %u rows", rows);
    }
}

/* All rows of one panel, in tiles whose heights differ by at most one: a tile of one row is
 * slow. */
static void panel_rows(const struct tile *first, uint32_t rows)
{
    uint32_t tiles = (rows + TILE - 1) / TILE;
    for (struct tile t = *first; tiles > 0; tiles--) {
        uint32_t height = (rows + tiles - 1) / tiles;
        tile_any(&t, height);
        t.x += height * t.x_stride;
        t.y += height * t.y_stride;
        t.sums += height;
        rows -= height;
    }
}

/* Partial sums without blocks are zero. */
static void close_short_rows(const struct tile *t, uint32_t rows)
{
    const __m512 zero = _mm512_setzero_ps();
    for (uint32_t part = t->blocks; part < PARTS; part++)
        for (uint32_t r = 0; r < rows; r++)
            close_part(t->sums + r, part, zero, zero, t, t->y + r * t->y_stride);
}

static void many_rows(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                      const uint8_t *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct panel panel;
    struct sums sums[ROW_BLOCK];
    struct block_run run;
    const uint32_t blocks = w->k / QK;
    struct tile t = {.panel = &panel,
                     .run = &run,
                     .x = x,
                     .x_stride = x_stride,
                     .d_at = act_scale_offset(w->k),
                     .c_at = act_corr_offset(w->k),
                     .blocks = blocks,
                     .sums = sums,
                     .y_stride = y_stride};
    prefetch_rows(w, n_begin, n_end - n_begin < PANEL ? n_end - n_begin : PANEL);
    for (uint32_t j = n_begin; j < n_end; j += PANEL) {
        uint32_t outputs = n_end - j < PANEL ? n_end - j : PANEL;
        uint32_t mask = outputs == PANEL ? 0xffffffffu : (1u << outputs) - 1u;
        t.mask[0] = (__mmask16)mask;
        t.mask[1] = (__mmask16)(mask >> LANES);
        t.y = y + j;
        size_t ahead = 0;
        run = (struct block_run){.left = blocks};
        while (block_run_next(&run, blocks, CHUNK)) {
            if (w->type == TENSOR_Q8_0)
                pack(true, w, j, n_end, &run, ahead, &panel);
            else
                pack(false, w, j, n_end, &run, ahead, &panel);
            panel_rows(&t, rows);
            ahead += run.count * (size_t)quant_block_bytes(w->type);
        }
        close_short_rows(&t, rows);
    }
}

void avx512_quant_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    if (rows == 1) {
        if (w->type == TENSOR_Q8_0)
            one_row(true, w, n_begin, n_end, x, y);
        else
            one_row(false, w, n_begin, n_end, x, y);
        return;
    }
    for (uint32_t r = 0; r < rows; r += ROW_BLOCK) {
        uint32_t count = rows - r < ROW_BLOCK ? rows - r : ROW_BLOCK;
        many_rows(w, n_begin, n_end, (const uint8_t *)x + r * x_stride, x_stride, count,
                  y + r * y_stride, y_stride);
    }
}
