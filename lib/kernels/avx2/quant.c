/* SPDX-License-Identifier: Apache-2.0 */
/* Products with Q8_0 and Q4_0 weights: AVX2.
 *
 * The lanes are outputs. For one row (decode), the blocks of 8 weight rows are read from memory and
 * each dot product is summed across its lanes. For several rows (prefill), the weights of a panel
 * of outputs are transposed once and used for all rows, the blocks in the order of struct
 * block_run.
 *
 * The byte products are u8 * s8; pairs of them are added to s16 with saturation. Q8_0 uses |w| and
 * x with w's sign (at most 2 * 128 * 127, no saturation). Q4_0 uses the nibble itself and adds the
 * activation's correction at the end. */
#include <immintrin.h>

#include "lib/kernels/internal.h"

#include "lib/tensor/tensor_type.h"

#define LANES     8
#define PANEL     8   /* outputs of a panel */
#define CHUNK     32  /* blocks of a panel: 8 KiB of weights */
#define TILE      4   /* rows of a register tile */
#define ROW_BLOCK 256 /* rows whose sums are kept at once */

/* Sums of one row of activations for a panel: sum i of 2^i parts, and the open one. */
struct sums {
    _Alignas(32) float part[OPEN + 1][PANEL];
};

struct panel {
    _Alignas(32) int8_t q[CHUNK][QK / 4][PANEL * 4]; /* four elements of each output side by side */
    _Alignas(32) float d[CHUNK][PANEL];
};

static ALWAYS_INLINE __m256i load_two(const void *a, const void *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b),
                                   1);
}

static ALWAYS_INLINE __m256i pairs_to_words(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* ---- one row ---- */

/* The F16 scales of a block of 8 outputs. */
static ALWAYS_INLINE __m256 eight_scales(const uint8_t *const row[LANES], size_t off)
{
    return _mm256_cvtph_ps(_mm_setr_epi16(
        (short)load_u16(row[0] + off), (short)load_u16(row[1] + off), (short)load_u16(row[2] + off),
        (short)load_u16(row[3] + off), (short)load_u16(row[4] + off), (short)load_u16(row[5] + off),
        (short)load_u16(row[6] + off), (short)load_u16(row[7] + off)));
}

static ALWAYS_INLINE __m256i twice(const int8_t *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Dot products of one block of 8 outputs. Each of four vectors has 16 bytes of outputs i and 4 + i
 * side by side. Sums of pairs fit in 16 bits until the end: 8 * 2 * 15 * 127 < 2^15. */
static ALWAYS_INLINE __m256i q4_dots(const uint8_t *const row[LANES], size_t off, const int8_t *x)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256i x0 = twice(x), x1 = twice(x + 16 * ACT_GROUP), s[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i w = load_two(row[i] + off, row[4 + i] + off);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
        s[i] = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(w, low), x0),
                                _mm256_maddubs_epi16(high, x1));
    }
    __m256i a =
        _mm256_add_epi16(_mm256_unpacklo_epi32(s[0], s[1]), _mm256_unpackhi_epi32(s[0], s[1]));
    __m256i b =
        _mm256_add_epi16(_mm256_unpacklo_epi32(s[2], s[3]), _mm256_unpackhi_epi32(s[2], s[3]));
    return pairs_to_words(
        _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)));
}

/* Lane i of the result is the sum of the lanes of a[i]. */
static ALWAYS_INLINE __m256i sum_blocks(const __m256i a[LANES])
{
    __m256i lo = _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
    __m256i hi = _mm256_hadd_epi32(_mm256_hadd_epi32(a[4], a[5]), _mm256_hadd_epi32(a[6], a[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(lo, hi, 0x20),
                            _mm256_permute2x128_si256(lo, hi, 0x31));
}

static ALWAYS_INLINE __m256i q8_dots(const uint8_t *const row[LANES], size_t off, const int8_t *x)
{
    __m256i v = load_two(x, x + 16 * ACT_GROUP), s[LANES];
    UNROLL for (int i = 0; i < LANES; i++)
    {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(row[i] + off));
        s[i] = pairs_to_words(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w)));
    }
    return sum_blocks(s);
}

static ALWAYS_INLINE __m256i lane_mask(uint32_t n)
{
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - n));
}

/* The weight rows of outputs j .. j + 7; from n on, the last row again. */
static ALWAYS_INLINE void rows_at(const struct kernel_matrix *w, uint32_t j, uint32_t n,
                                  const uint8_t *row[LANES])
{
    for (uint32_t i = 0; i < LANES; i++)
        row[i] = (const uint8_t *)w->data + (size_t)(j + i < n ? j + i : n - 1) * w->row_bytes;
}

static ALWAYS_INLINE __m256 sum_parts(const __m256 s[PARTS])
{
    return _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])),
                         _mm256_add_ps(_mm256_add_ps(s[4], s[5]), _mm256_add_ps(s[6], s[7])));
}

/* 8 outputs of one row of activations. Meanwhile prefetches the weights of the next 8 outputs,
 * which follow in memory, in the order of memory: 8 separate streams halved the speed. Q8_0 is
 * prefetched to the L2 cache, because the L1 cache cannot hold two times 8 rows. */
static ALWAYS_INLINE __m256 eight_outputs(const bool q8, const struct kernel_matrix *w,
                                          const uint8_t *const row[LANES], const uint8_t *x)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    const float *dx = (const float *)(const void *)(x + act_scale_offset(w->k));
    const int32_t *corr = (const int32_t *)(const void *)(x + act_corr_offset(w->k));
    __m256 acc[PARTS];
    UNROLL for (int i = 0; i < PARTS; i++) acc[i] = _mm256_setzero_ps();
    size_t off = 0, ahead = LANES * (size_t)w->row_bytes;
    for (uint32_t b = 0; b < w->k / QK; b++, off += size, ahead += LANES * size) {
        UNROLL for (size_t line = 0; line < LANES * size; line += 64)
        {
            if (q8)
                prefetch_far(row[0], ahead + line);
            else
                prefetch(row[0], ahead + line);
        }
        const int8_t *q = (const int8_t *)x + act_half(b, 0);
        __m256i dot = q8 ? q8_dots(row, off + 2, q) : q4_dots(row, off + 2, q);
        if (!q8)
            dot = _mm256_add_epi32(dot, _mm256_set1_epi32(corr[b]));
        acc[b % PARTS] =
            _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot), eight_scales(row, off)),
                            _mm256_set1_ps(dx[b]), acc[b % PARTS]);
    }
    return sum_parts(acc);
}

static ALWAYS_INLINE void one_row(const bool q8, const struct kernel_matrix *w, uint32_t n_begin,
                                  uint32_t n_end, const uint8_t *x, float *y)
{
    for (uint32_t j = n_begin; j < n_end; j += LANES) {
        const uint8_t *row[LANES];
        rows_at(w, j, n_end, row);
        _mm256_maskstore_ps(y + j, lane_mask(n_end - j < LANES ? n_end - j : LANES),
                            eight_outputs(q8, w, row, x));
    }
}

/* ---- several rows ---- */

/* Transposes 16 bytes at `off` of 8 outputs: out[g] is 32-bit word g of every output. */
static ALWAYS_INLINE void pack_half(const uint8_t *const row[LANES], size_t off, __m256i out[4])
{
    __m256i z[4];
    UNROLL for (int i = 0; i < 4; i++) z[i] = load_two(row[i] + off, row[4 + i] + off);
    __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
    __m256i c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

static ALWAYS_INLINE void pack_block(const bool q8, const uint8_t *const row[LANES], size_t at,
                                     struct panel *p, uint32_t i)
{
    _Alignas(16) uint16_t d[LANES];
    __m256i v[8];
    for (uint32_t r = 0; r < LANES; r++)
        d[r] = load_u16(row[r] + at);
    pack_half(row, at + 2, v);
    if (q8) {
        pack_half(row, at + 18, v + 4);
    } else {
        const __m256i low = _mm256_set1_epi8(15);
        UNROLL for (int g = 0; g < 4; g++)
        {
            v[g + 4] = _mm256_and_si256(_mm256_srli_epi16(v[g], 4), low);
            v[g] = _mm256_and_si256(v[g], low);
        }
    }
    UNROLL for (int g = 0; g < 8; g++) _mm256_store_si256((__m256i *)(void *)p->q[i][g], v[g]);
    _mm256_store_ps(p->d[i], _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)d)));
}

/* The blocks of a run of outputs j .. j + PANEL - 1 (from n on, the last row again). Meanwhile
 * prefetches as many bytes of the next panel, from byte `ahead` of its rows on. */
static ALWAYS_INLINE void pack(const bool q8, const struct kernel_matrix *w, uint32_t j, uint32_t n,
                               const struct block_run *run, size_t ahead, struct panel *p)
{
    const size_t size = q8 ? Q8_BYTES : Q4_BYTES;
    const uint8_t *row[LANES];
    rows_at(w, j, n, row);
    ahead += PANEL * (size_t)w->row_bytes;
    for (uint32_t i = 0; i < LANES; i++)
        for (size_t line = 0; line < run->count * size; line += 64)
            prefetch(row[i], ahead + line);
    for (uint32_t i = 0; i < run->count; i++)
        pack_block(q8, row, run->block[i] * size, p, i);
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
    __m256i mask;
};

static ALWAYS_INLINE __m256i activation_word(const uint8_t *p)
{
    return _mm256_set1_epi32((int)load_u32(p));
}

static ALWAYS_INLINE __m256 activation_scale(const uint8_t *p)
{
    return _mm256_set1_ps(load_f32(p));
}

/* Adds block i of the run to acc: dot products * weight scales * activation scale. */
static ALWAYS_INLINE void tile_block(const bool q8, const struct tile *t, uint32_t i,
                                     const int rows, const uint8_t *const x[TILE], __m256 acc[TILE])
{
    __m256i dot[TILE];
    const uint32_t b = t->run->block[i];
    UNROLL for (int r = 0; r < rows; r++) dot[r] = _mm256_setzero_si256();
    size_t at = act_half(b, 0);
    UNROLL for (int g = 0; g < QK / 4; g++)
    {
        __m256i w = _mm256_load_si256((const __m256i *)(const void *)t->panel->q[i][g]);
        __m256i size = q8 ? _mm256_abs_epi8(w) : w;
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m256i v = activation_word(x[r] + at + (g / 4) * 64 + (g % 4) * 4);
            if (q8) {
                v = _mm256_maddubs_epi16(size, _mm256_sign_epi8(v, w));
                dot[r] = _mm256_add_epi32(dot[r], pairs_to_words(v));
            } else { /* 8 * 2 * 15 * 127 fits 16 bits: widened once per block */
                dot[r] = _mm256_add_epi16(dot[r], _mm256_maddubs_epi16(size, v));
            }
        }
    }
    __m256 d = _mm256_load_ps(t->panel->d[i]);
    UNROLL for (int r = 0; r < rows; r++)
    {
        if (!q8)
            dot[r] =
                _mm256_add_epi32(pairs_to_words(dot[r]), activation_word(x[r] + t->c_at + b * 4));
        acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot[r]), d),
                                 activation_scale(x[r] + t->d_at + b * 4), acc[r]);
    }
}

/* Partial sum `part` of a row is complete: adds it to those before it as far as the tree goes. */
static ALWAYS_INLINE void close_part(struct sums *s, uint32_t part, __m256 v, __m256i mask,
                                     float *y)
{
    UNROLL for (int level = 0; level < OPEN; level++)
    {
        if ((part >> level & 1u) == 0) {
            _mm256_store_ps(s->part[level], v);
            return;
        }
        v = _mm256_add_ps(_mm256_load_ps(s->part[level]), v);
    }
    _mm256_maskstore_ps(y, mask, v);
}

/* All blocks of the run, for `rows` rows. */
static ALWAYS_INLINE void tile_rows(const bool q8, const struct tile *t, const int rows)
{
    __m256 acc[TILE];
    const uint8_t *x[TILE];
    UNROLL for (int r = 0; r < rows; r++)
    {
        x[r] = t->x + (size_t)r * t->x_stride;
        acc[r] = _mm256_load_ps(t->sums[r].part[OPEN]);
    }
    for (uint32_t i = 0; i < t->run->count; i++) {
        const uint32_t b = t->run->block[i];
        if (b < PARTS)
            UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm256_setzero_ps();
        tile_block(q8, t, i, rows, x, acc);
        if (b + PARTS >= t->blocks)
            UNROLL for (int r = 0; r < rows; r++)
                close_part(t->sums + r, b % PARTS, acc[r], t->mask, t->y + (size_t)r * t->y_stride);
    }
    UNROLL for (int r = 0; r < rows; r++) _mm256_store_ps(t->sums[r].part[OPEN], acc[r]);
}

static ALWAYS_INLINE void tile_any(const bool q8, const struct tile *t, uint32_t rows)
{
    switch (rows) {
    case 1: tile_rows(q8, t, 1); return;
    case 2: tile_rows(q8, t, 2); return;
    case 3: tile_rows(q8, t, 3); return;
    case 4: tile_rows(q8, t, 4); return;
    default: sl_panic("no tile of %u rows", rows);
    }
}

/* Partial sums without blocks are zero. */
static void close_short_rows(const struct tile *t, uint32_t rows)
{
    for (uint32_t part = t->blocks; part < PARTS; part++)
        for (uint32_t r = 0; r < rows; r++)
            close_part(t->sums + r, part, _mm256_setzero_ps(), t->mask, t->y + r * t->y_stride);
}

static ALWAYS_INLINE void panel_rows(const bool q8, const struct tile *first, uint32_t rows)
{
    struct tile t = *first;
    for (uint32_t r = 0; r < rows; r += TILE) {
        tile_any(q8, &t, rows - r < TILE ? rows - r : TILE);
        t.x += TILE * t.x_stride;
        t.y += TILE * t.y_stride;
        t.sums += TILE;
    }
}

static ALWAYS_INLINE void many_rows(const bool q8, const struct kernel_matrix *w, uint32_t n_begin,
                                    uint32_t n_end, const uint8_t *x, size_t x_stride,
                                    uint32_t rows, float *y, size_t y_stride)
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
    for (uint32_t j = n_begin; j < n_end; j += PANEL) {
        size_t ahead = 0;
        t.mask = lane_mask(n_end - j < PANEL ? n_end - j : PANEL);
        t.y = y + j;
        run = (struct block_run){.left = blocks};
        while (block_run_next(&run, blocks, CHUNK)) {
            pack(q8, w, j, n_end, &run, ahead, &panel);
            panel_rows(q8, &t, rows);
            ahead += run.count * (size_t)(q8 ? Q8_BYTES : Q4_BYTES);
        }
        close_short_rows(&t, rows);
    }
}

void avx2_quant_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
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
        const uint8_t *xr = (const uint8_t *)x + r * x_stride;
        if (w->type == TENSOR_Q8_0)
            many_rows(true, w, n_begin, n_end, xr, x_stride, count, y + r * y_stride, y_stride);
        else
            many_rows(false, w, n_begin, n_end, xr, x_stride, count, y + r * y_stride, y_stride);
    }
}
