/* SPDX-License-Identifier: Apache-2.0 */
/* Template of products with blocks that have one scale (and perhaps a minimum) per 32 elements or
 * more, or one per 16; included once per instruction set, after bytes.h. A type is an unpack step
 * (blocks_unpack.h).
 *
 * For few rows (decode), vectors run along k: STEP blocks at a time give STEP terms of each row,
 * which are added to its eight partial sums, lane p for sum p. More rows: blocks_panel.h. */
#include "lib/kernels/simd/blocks_unpack.h"

#define STEP        (4 * PIECES) /* blocks: one per 32-bit lane of a vector */
#define STEP_GROUPS (STEP / ACT_GROUP)
#define BLOCK_FAR   8192        /* bytes of weights prefetched ahead into the L2 cache */
#define BLOCK_NEAR  2048        /* into the L1 cache */
#define OUTPUTS     8           /* whose partial sums are joined at once */
#define BLOCK_FEW   8           /* rows without a panel, at most */
#define WORDS_BYTES (64u << 10) /* of rows in the order of words */

/* Groups of blocks of a step. */
struct step {
    const uint8_t *group[STEP_GROUPS];
    bool adjacent;
    int vectors; /* of blocks that are computed, of 4: 2 or 4; the terms of the others are any */
};

static ALWAYS_INLINE struct step adjacent_step(const struct block_type t, const uint8_t *w,
                                               const int vectors)
{
    struct step s = {.adjacent = true, .vectors = vectors};
    UNROLL for (int g = 0; g < STEP_GROUPS; g++) s.group[g] = w + (size_t)g * group_bytes(t);
    return s;
}

/* Whether the scales are moved from whole lines. */
static ALWAYS_INLINE bool scales_by_line(const struct block_type t, const struct step s)
{
    return s.adjacent && by_lines(STEP_GROUPS * group_bytes(t));
}

/* A prepared row of activations, from a block on; padded to ACT_PAD blocks. */
struct block_x {
    const int8_t *q;
    const int32_t *corr;
    const float *dx;
    size_t corr_stride; /* from the corrections of first halves to those of last ones */
};

/* The dot products of STEP blocks and each row: vectors along k, whose lanes are joined. */
static ALWAYS_INLINE void step_dots(const struct block_type t, const struct step s,
                                    const struct block_x x[BLOCK_FEW], const int rows,
                                    vi sum[BLOCK_FEW])
{
    struct dots dot[BLOCK_FEW][4];
    UNROLL for (int v = 0; v < 4; v++)
    {
        vq lo, hi;
        const int g = v * PIECES / ACT_GROUP, first = v * PIECES % ACT_GROUP;
        UNROLL for (int r = 0; r < rows; r++) dot[r][v] = dots_start(vi_set1(0));
        if (v >= s.vectors)
            continue;
        block_unpack(t, s.group[g], first, &lo, &hi);
        UNROLL for (int r = 0; r < rows; r++)
        {
            const int8_t *xs = x[r].q + g * GROUP_SIZE + first * 16;
            dots_add(t.wide, &dot[r][v], lo, vq_load(xs));
            dots_add(t.wide, &dot[r][v], hi, vq_load(xs + 16 * ACT_GROUP));
            dots_fold(t.wide, &dot[r][v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        sum[r] = dots_join(dot[r]);
        if (t.shift != NO_SHIFT)
            sum[r] = vi_add(sum[r], vi_shift_right(vi_load(x[r].corr), t.shift));
    }
}

/* The same of several rows in the order of words (words_of_row): a lane is a block, so that nothing
 * is joined. */
static ALWAYS_INLINE void word_dots(const struct block_type t, const uint8_t *const block[VL],
                                    const struct block_x x[BLOCK_FEW], const int rows,
                                    vi sum[BLOCK_FEW])
{
    vq word[8];
    block_words(t, block, word);
    UNROLL for (int r = 0; r < rows; r++)
    {
        struct dots dot = dots_start(
            t.shift != NO_SHIFT ? vi_shift_right(vi_load(x[r].corr), t.shift) : vi_set1(0));
        UNROLL for (int i = 0; i < 8; i++)
        {
            dots_add(t.wide, &dot, word[i], vq_load(x[r].q + i * VL * 4));
            if (i % 4 == 3)
                dots_fold(t.wide, &dot);
        }
        sum[r] = dot.sum;
    }
}

/* Whether so many rows are in the order of words: more than unpacking costs by that. */
static ALWAYS_INLINE bool by_words(const struct block_type t, const int rows)
{
    return block_has_words(t) && rows > (t.wide && !WIDE_CORRECTED ? 2 : 1);
}

/* The terms of STEP blocks and each row, before the activation's scale. */
static ALWAYS_INLINE void step_terms(const struct block_type t, const struct step s,
                                     const struct block_x x[BLOCK_FEW], const int rows,
                                     vf term[BLOCK_FEW])
{
    const uint32_t count = (uint32_t)(s.vectors * PIECES);
    const bool lines = scales_by_line(t, s);
    const uint8_t *block[VL];
    vi sum[BLOCK_FEW];
    UNROLL for (uint32_t b = 0; b < STEP; b++) block[b] =
        s.group[b % count / ACT_GROUP] + scale_at(t, b % ACT_GROUP);
    if (by_words(t, rows))
        word_dots(t, block, x, rows, sum);
    else
        step_dots(t, s, x, rows, sum);
    const vf d = lines ? adjacent_scales(t, s.group[0], count) : block_scales(t, block);
    UNROLL for (int r = 0; r < rows; r++)
    {
        term[r] = vf_mul(vi_to_float(sum[r]), d);
        if (t.minimums) /* low: -1 times the sum of the activations, the correction / 128 */
            term[r] =
                vf_subtract_product(lines ? vf_halves_by_line(s.group[0], scales_of(t, count), 2)
                                          : block_minimums(block),
                                    vi_to_float(vi_shift_right(vi_load(x[r].corr), 7)), term[r]);
    }
}

/* Terms of a type with two scales per block: those of the first halves, and of the last. */
static ALWAYS_INLINE void half_terms(const struct block_type t, const struct step s,
                                     const struct block_x x[BLOCK_FEW], const int rows,
                                     vf term[BLOCK_FEW][2])
{
    const uint32_t count = (uint32_t)(s.vectors * PIECES);
    struct dots dot[BLOCK_FEW][2][4];
    const uint8_t *scale[VL];
    vf d[2];
    UNROLL for (int v = 0; v < 4; v++)
    {
        vq q[2];
        const int g = v * PIECES / ACT_GROUP, first = v * PIECES % ACT_GROUP;
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < 2; h++) dot[r][h][v] =
            dots_start(vi_set1(0));
        if (v >= s.vectors)
            continue;
        block_unpack(t, s.group[g], first, &q[0], &q[1]);
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < 2; h++)
        {
            dots_add(t.wide, &dot[r][h][v], q[h],
                     vq_load(x[r].q + g * GROUP_SIZE + (first + h * ACT_GROUP) * 16));
            dots_fold(t.wide, &dot[r][h][v]);
        }
    }
    UNROLL for (uint32_t b = 0; b < STEP; b++) scale[b] =
        half_scales_at(t, s.group[b % count / ACT_GROUP], b % ACT_GROUP);
    block_half_scales(scales_by_line(t, s) ? vi_words_by_line(s.group[0], scales_of(t, count))
                                           : vi_words_at(scale),
                      d);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < 2; h++) term[r][h] =
        vf_mul(vi_to_float(
                   vi_add(dots_join(dot[r][h]), vi_load(x[r].corr + (size_t)h * x[r].corr_stride))),
               d[h]);
}

static ALWAYS_INLINE __m256i eight_mask(uint32_t n)
{
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - n));
}

/* Adds the terms of the first n blocks to the partial sums. */
static ALWAYS_INLINE __m256 add_some(__m256 acc, vf term, const float *dx, uint32_t n)
{
    UNROLL for (int h = 0; h < VL / PARTS; h++)
    {
        uint32_t here = n < PARTS ? n : PARTS;
        __m256 next = _mm256_fmadd_ps(vf_eight(term, h), _mm256_loadu_ps(dx + h * PARTS), acc);
        acc = _mm256_blendv_ps(acc, next, _mm256_castsi256_ps(eight_mask(here)));
        n -= here;
    }
    return acc;
}

/* Adds the terms of the halves of the first n blocks. Sums 0, 2, 4, 6 are the low lanes of acc
 * (first halves), the others the high ones: four blocks at a time. */
static ALWAYS_INLINE __m256 add_half_terms(__m256 acc, const vf term[2], const float *dx,
                                           uint32_t n)
{
    UNROLL for (int h = 0; h < VL / PARTS; h++)
    {
        __m256 first = vf_eight(term[0], h), last = vf_eight(term[1], h);
        __m256 d = _mm256_loadu_ps(dx + h * PARTS);
        __m256 terms[2] = {_mm256_permute2f128_ps(first, last, 0x20),
                           _mm256_permute2f128_ps(first, last, 0x31)};
        __m256 scales[2] = {_mm256_permute2f128_ps(d, d, 0x00), _mm256_permute2f128_ps(d, d, 0x11)};
        UNROLL for (int i = 0; i < 2; i++)
        {
            uint32_t here = n < ACT_GROUP ? n : ACT_GROUP;
            __m256i mask = eight_mask(here);
            mask = _mm256_permute2x128_si256(mask, mask, 0);
            acc = _mm256_blendv_ps(acc, _mm256_fmadd_ps(terms[i], scales[i], acc),
                                   _mm256_castsi256_ps(mask));
            n -= here;
        }
    }
    return acc;
}

/* acc + the first n <= STEP blocks of the step. */
static ALWAYS_INLINE void add_step(const struct block_type t, const struct step s,
                                   const struct block_x x[BLOCK_FEW], const int rows,
                                   const uint32_t n, __m256 acc[BLOCK_FEW])
{
    if (t.halves) {
        vf term[BLOCK_FEW][2];
        half_terms(t, s, x, rows, term);
        UNROLL for (int r = 0; r < rows; r++) acc[r] = add_half_terms(acc[r], term[r], x[r].dx, n);
        return;
    }
    vf term[BLOCK_FEW];
    step_terms(t, s, x, rows, term);
    UNROLL for (int r = 0; r < rows; r++) acc[r] = add_some(acc[r], term[r], x[r].dx, n);
}

/* The last n < STEP blocks of the last rows: nothing after them is read. Groups that a row does not
 * have are read from its last part again; of an incomplete group, a copy. */
static ALWAYS_INLINE void end_blocks(const struct block_type t, const uint8_t *w, uint32_t n,
                                     const struct block_x x[BLOCK_FEW], const int rows,
                                     __m256 acc[BLOCK_FEW])
{
    uint8_t copy[GROUP_BYTES_MAX] = {0};
    struct step s = {.adjacent = false, .vectors = 4};
    for (uint32_t g = 0; g < STEP_GROUPS; g++)
        s.group[g] = g * ACT_GROUP + ACT_GROUP <= n ? w + g * group_bytes(t) : copy;
    if (n % ACT_GROUP != 0)
        memcpy(copy, w + n / ACT_GROUP * group_bytes(t), scale_at(t, n % ACT_GROUP));
    add_step(t, s, x, rows, n, acc);
}

/* The last n < STEP blocks of a row. Where the weights end at least a step after, that is read. */
static ALWAYS_INLINE void last_blocks(const struct block_type t, const uint8_t *w,
                                      const uint8_t *end, uint32_t n,
                                      const struct block_x x[BLOCK_FEW], const int rows,
                                      __m256 acc[BLOCK_FEW])
{
    const size_t step_bytes = STEP_GROUPS * group_bytes(t);
    if (n > STEP / 2 && (size_t)(end - w) >= step_bytes)
        add_step(t, adjacent_step(t, w, 4), x, rows, n, acc);
    else if (n <= STEP / 2 && (size_t)(end - w) >= step_bytes / 2)
        add_step(t, adjacent_step(t, w, 2), x, rows, n, acc);
    else
        end_blocks(t, w, n, x, rows, acc);
}

static ALWAYS_INLINE void rows_from(const struct block_x row[BLOCK_FEW], const int rows, uint32_t b,
                                    struct block_x x[BLOCK_FEW])
{
    UNROLL for (int r = 0; r < rows; r++) x[r] = (struct block_x){
        row[r].q + (size_t)b * QK, row[r].corr + b, row[r].dx + b, row[r].corr_stride};
}

static ALWAYS_INLINE void block_prefetch(const uint8_t *w, const size_t bytes)
{
    UNROLL for (size_t line = 0; line < bytes; line += 64) prefetch_far(w, BLOCK_FAR + line);
    UNROLL for (size_t line = 0; line < bytes; line += 64) prefetch(w, BLOCK_NEAR + line);
}

/* The partial sums of one output and each row. end: of the weights of all. */
static ALWAYS_INLINE void block_sums(const struct block_type t, const uint8_t *w,
                                     const uint8_t *end, uint32_t blocks,
                                     const struct block_x row[BLOCK_FEW], const int rows,
                                     __m256 acc[BLOCK_FEW])
{
    const size_t step_bytes = STEP_GROUPS * group_bytes(t);
    struct block_x x[BLOCK_FEW];
    uint32_t b = 0;
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm256_setzero_ps();
    for (; b + STEP <= blocks; b += STEP, w += step_bytes) {
        block_prefetch(w, step_bytes);
        rows_from(row, rows, b, x);
        if (t.halves) {
            add_step(t, adjacent_step(t, w, 4), x, rows, STEP, acc);
            continue;
        }
        vf term[BLOCK_FEW];
        step_terms(t, adjacent_step(t, w, 4), x, rows, term);
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < VL / PARTS; h++) acc[r] =
            _mm256_fmadd_ps(vf_eight(term[r], h), _mm256_loadu_ps(x[r].dx + h * PARTS), acc[r]);
    }
    if (b < blocks) {
        block_prefetch(w, blocks - b > STEP / 2 ? step_bytes : step_bytes / 2);
        rows_from(row, rows, b, x);
        last_blocks(t, w, end, blocks - b, x, rows, acc);
    }
    if (t.halves)
        UNROLL for (int r = 0; r < rows; r++) acc[r] =
            _mm256_permutevar8x32_ps(acc[r], _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Lane i: ((s_0 + s_1) + (s_2 + s_3)) + ((s_4 + s_5) + (s_6 + s_7)) of s = p[i]. */
static ALWAYS_INLINE __m256 join_sums(const __m256 p[OUTPUTS])
{
    __m256 lo = _mm256_hadd_ps(_mm256_hadd_ps(p[0], p[1]), _mm256_hadd_ps(p[2], p[3]));
    __m256 hi = _mm256_hadd_ps(_mm256_hadd_ps(p[4], p[5]), _mm256_hadd_ps(p[6], p[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(lo, hi, 0x20),
                         _mm256_permute2f128_ps(lo, hi, 0x31));
}

/* Copies a prepared row in the order of words: of STEP blocks the first four elements of each, then
 * the next. */
static ALWAYS_INLINE void words_of_row(const uint8_t *x, uint32_t blocks, int8_t *to)
{
    for (uint32_t b = 0; b < blocks; b += STEP)
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            const uint8_t *block[VL];
            vq word[4];
            UNROLL for (uint32_t i = 0; i < STEP; i++) block[i] = x + act_half(b + i, half);
            vq_transpose(block, 0, word);
            UNROLL for (int i = 0; i < 4; i++, to += VL * 4) vq_store(to, word[i]);
        }
}

static ALWAYS_INLINE void block_rows(const struct block_type t, const struct kernel_matrix *w,
                                     uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                     size_t x_stride, const int rows, float *y, size_t y_stride)
{
    struct block_x row[BLOCK_FEW];
    _Alignas(64) int8_t words[WORDS_BYTES];
    const size_t row_words = (size_t)act_blocks(w->k) * QK;
    const uint8_t *data = w->data;
    const uint8_t *end = data + (size_t)(w->n - 1) * w->row_bytes + w->k / t.elems * t.bytes;
    __m256 sums[BLOCK_FEW][OUTPUTS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < OUTPUTS; i++)
            sums[r][i] = _mm256_setzero_ps();
    for (int r = 0; r < rows; r++, x += x_stride)
        row[r] = (struct block_x){
            .q = (const int8_t *)x,
            .corr = (const int32_t *)(const void *)(x + act_corr_offset(w->k)),
            .dx = (const float *)(const void *)(x + act_scale_offset(w->k)),
            .corr_stride = act_blocks(w->k),
        };
    for (int r = 0; r < rows && by_words(t, rows); r++) {
        words_of_row((const uint8_t *)row[r].q, act_blocks(w->k), words + (size_t)r * row_words);
        row[r].q = words + (size_t)r * row_words;
    }
    for (uint32_t j = n_begin; j < n_end; j += OUTPUTS) {
        uint32_t outputs = n_end - j < OUTPUTS ? n_end - j : OUTPUTS;
        for (uint32_t i = 0; i < outputs; i++) {
            __m256 acc[BLOCK_FEW];
            block_sums(t, data + (size_t)(j + i) * w->row_bytes, end, w->k / QK, row, rows, acc);
            UNROLL for (int r = 0; r < rows; r++) sums[r][i] = acc[r];
        }
        for (int r = 0; r < rows; r++)
            _mm256_maskstore_ps(y + (size_t)r * y_stride + j, eight_mask(outputs),
                                join_sums(sums[r]));
    }
}

/* Rows of the type that are computed without a panel, at most. Where each has two sums per block,
 * more do not fit into registers; out of the order of words, more rows are faster with a panel. */
static ALWAYS_INLINE uint32_t few_max(const struct block_type t)
{
    return t.halves ? 2 : block_has_words(t) ? BLOCK_FEW : 6;
}

/* Whether so many rows of k elements fit into memory for the order of words. */
static ALWAYS_INLINE bool fit_few(const struct block_type t, uint32_t k, uint32_t rows)
{
    return !block_has_words(t) || (size_t)rows * act_blocks(k) * QK <= WORDS_BYTES;
}

static ALWAYS_INLINE void few_rows(const struct block_type t, const struct kernel_matrix *w,
                                   uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                   size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    UNROLL for (int n = 2; n <= (int)few_max(t); n++) if (rows == (uint32_t)n)
        block_rows(t, w, n_begin, n_end, x, x_stride, n, y, y_stride);
}

#include "lib/kernels/simd/blocks_panel.h"

/* One copy of the code per type, so that its properties are constants. */
#define BLOCK_PRODUCT(NAME)                                                                        \
    static __attribute__((noinline)) void block_one_##NAME(const struct kernel_matrix *w,          \
                                                           uint32_t n_begin, uint32_t n_end,       \
                                                           const uint8_t *x, float *y)             \
    {                                                                                              \
        block_rows(block_type_##NAME, w, n_begin, n_end, x, 0, 1, y, 0);                           \
    }                                                                                              \
    static __attribute__((noinline)) void block_few_##NAME(                                        \
        const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const uint8_t *x,         \
        size_t x_stride, uint32_t rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        few_rows(block_type_##NAME, w, n_begin, n_end, x, x_stride, rows, y, y_stride);            \
    }                                                                                              \
    static __attribute__((noinline)) void block_many_##NAME(                                       \
        const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const uint8_t *x,         \
        size_t x_stride, uint32_t rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        block_panels(block_type_##NAME, w, n_begin, n_end, x, x_stride, rows, y, y_stride);        \
    }                                                                                              \
    static void block_product_##NAME(const struct kernel_matrix *w, uint32_t n_begin,              \
                                     uint32_t n_end, const void *x, size_t x_stride,               \
                                     uint32_t rows, float *y, size_t y_stride)                     \
    {                                                                                              \
        if (rows == 1)                                                                             \
            block_one_##NAME(w, n_begin, n_end, x, y);                                             \
        else if (rows <= few_max(block_type_##NAME) && fit_few(block_type_##NAME, w->k, rows))     \
            block_few_##NAME(w, n_begin, n_end, x, x_stride, rows, y, y_stride);                   \
        else                                                                                       \
            block_many_##NAME(w, n_begin, n_end, x, x_stride, rows, y, y_stride);                  \
    }
BLOCK_TYPES(BLOCK_PRODUCT)

/* The product with blocks of `type`, or NULL. */
static kernel_matmul_fn *block_product(enum tensor_type type)
{
    switch (type) {
#define BLOCK_CASE(NAME)                                                                           \
    case TENSOR_##NAME: return block_product_##NAME;
        BLOCK_TYPES(BLOCK_CASE)
    default: return NULL;
    }
}
