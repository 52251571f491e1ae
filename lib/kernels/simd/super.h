/* SPDX-License-Identifier: Apache-2.0 */
/* Template of products with super-blocks of 256; included once per instruction set, after bytes.h,
 * VECTOR_ADD_SCALED and VECTOR_BITS (and VECTOR_PAIRS: sums of two products of bytes; VECTOR_FOURS:
 * adds sums of four products of unsigned and signed bytes). A type is an unpack step: the 256 codes
 * as bytes, their offset, and scales and minimums of 16 elements each.
 *
 * For few rows (decode), vectors run along k; the lanes of the sums are outputs. More rows:
 * super_panel.h. */
#include "lib/kernels/simd/super_unpack.h"

#define OUTPUTS    8     /* whose sums are in a vector of floats */
#define SUPER_FEW  3     /* rows without a panel, at most */
#define SUPER_FAR  16384 /* bytes prefetched ahead into the L2 cache, in the order of memory */
#define SUPER_LEAD 512   /* least distance beyond the start of the last output of a tile */
#define SUPER_NEAR 256   /* into the L1 cache, of an output */

struct super_row { /* a prepared row of activations */
    const int8_t *q;
    const float *d;
    const uint8_t *sums;
};

static ALWAYS_INLINE struct super_row super_row_at(const uint8_t *x, uint32_t k)
{
    return (struct super_row){(const int8_t *)x,
                              (const float *)(const void *)(x + super_scale_offset(k)),
                              x + super_sum_offset(k)};
}

static ALWAYS_INLINE __m256i super_lane_mask(uint32_t n)
{
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - n));
}

/* The F16 numbers at byte `at` of 8 rows. */
static ALWAYS_INLINE __m256 eight_halves(const uint8_t *const row[OUTPUTS], size_t at)
{
    return _mm256_cvtph_ps(_mm_setr_epi16(
        (short)load_u16(row[0] + at), (short)load_u16(row[1] + at), (short)load_u16(row[2] + at),
        (short)load_u16(row[3] + at), (short)load_u16(row[4] + at), (short)load_u16(row[5] + at),
        (short)load_u16(row[6] + at), (short)load_u16(row[7] + at)));
}

/* d of the super-blocks at byte `at` of 8 rows. */
static ALWAYS_INLINE __m256 super_scales(const struct super_type t,
                                         const uint8_t *const row[OUTPUTS], size_t at)
{
    uint16_t half[OUTPUTS];
    if (t.type != TENSOR_IQ1_M)
        return _mm256_mul_ps(eight_halves(row, at + t.d_at), _mm256_set1_ps(t.d_factor));
    for (int i = 0; i < OUTPUTS; i++)
        half[i] = iq1_m_scale(row[i] + at);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)half);
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(t.d_factor));
}

/* In every 128-bit half [a b c d]: the sums of the four lanes of that half. */
static ALWAYS_INLINE __m256i add_four(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/* Lane i of the result is the sum of the lanes of a[i], as a float. */
static ALWAYS_INLINE __m256 eight_sums(const __m256i a[OUTPUTS])
{
    __m256i lo = add_four(a[0], a[1], a[2], a[3]), hi = add_four(a[4], a[5], a[6], a[7]);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_permute2x128_si256(lo, hi, 0x20),
                                               _mm256_permute2x128_si256(lo, hi, 0x31)));
}

static ALWAYS_INLINE __m256i load_32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Sums of two products. */
static ALWAYS_INLINE __m256i super_pairs(__m256i q, __m256i x)
{
#ifdef VECTOR_PAIRS
    return VECTOR_PAIRS(q, x);
#else
    return _mm256_maddubs_epi16(q, x);
#endif
}

/* Lanes whose sums are the dot products of unpacked weights and rows, before minimums; x: the rows,
 * sums: of 16 activations. */
static ALWAYS_INLINE void super_dots(const struct super_type t, const struct super_codes *c,
                                     const int8_t *const x[SUPER_FEW],
                                     const __m256i sums[SUPER_FEW], const int rows,
                                     __m256i dot[SUPER_FEW])
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i acc[SUPER_FEW][2];
    UNROLL for (int r = 0; r < rows; r++)
    {
        __m256i offset = _mm256_madd_epi16(c->scale, sums[r]);
        acc[r][0] = t.offset_bits == NO_OFFSET
                        ? zero
                        : _mm256_sub_epi32(zero, _mm256_slli_epi32(offset, t.offset_bits));
        acc[r][1] = zero;
    }
    UNROLL for (int v = 0; v < 8; v++) UNROLL for (int r = 0; r < rows; r++) acc[r][v % 2] =
        VECTOR_ADD_SCALED(acc[r][v % 2], super_pairs(c->q[v], load_32(x[r] + 32 * v)),
                          c->spread[v]);
    UNROLL for (int r = 0; r < rows; r++) dot[r] = _mm256_add_epi32(acc[r][0], acc[r][1]);
}

/* A super-block of a row in the order of wide codes (super_codes). */
struct super_wide_row {
    __m256i x[8];
    __m256i offset; /* -128 times the sum of each sub-block, in the order of scales */
};

static ALWAYS_INLINE void super_wide_row_at(const struct super_row *row, uint32_t g,
                                            struct super_wide_row *w)
{
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const int8_t *x = row->q + (size_t)g * SUPER;
    UNROLL for (int v = 0; v < 8; v += 2)
    {
        __m256i a = load_32(x + 32 * v), b = load_32(x + 32 * v + 32);
        w->x[v] = _mm256_permute2x128_si256(a, b, 0x20);
        w->x[v + 1] = _mm256_permute2x128_si256(a, b, 0x31);
    }
    w->offset = _mm256_madd_epi16(load_32(row->sums + (size_t)g * 32), _mm256_set1_epi16(-128));
    w->offset = _mm256_permutevar8x32_epi32(w->offset, order);
}

/* In each half: 32-bit lane i in all lanes. */
static ALWAYS_INLINE __m256i spread_lane(__m256i v, const int i)
{
    return _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x03020100 + 0x04040404 * i));
}

#ifdef VECTOR_FOURS

/* Lanes whose sum is the dot product of unpacked weights of a wide type and a row. */
static ALWAYS_INLINE __m256i super_wide_dot(const struct super_codes *c,
                                            const struct super_wide_row *w)
{
    __m256i acc = _mm256_mullo_epi32(c->scale, w->offset);
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i dot = VECTOR_FOURS(_mm256_setzero_si256(), c->q[2 * i], w->x[2 * i]);
        dot = VECTOR_FOURS(dot, c->q[2 * i + 1], w->x[2 * i + 1]);
        acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(dot, spread_lane(c->scale, i)));
    }
    return acc;
}

#else

/* Sums of two products of signed bytes. */
static ALWAYS_INLINE __m256i super_signed_pairs(__m256i q, __m256i x)
{
#ifdef VECTOR_PAIRS
    return VECTOR_PAIRS(q, x);
#else
    return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
#endif
}

static ALWAYS_INLINE __m256i super_wide_dot(const struct super_codes *c,
                                            const struct super_wide_row *w)
{
    __m256i acc[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i twice = _mm256_or_si256(_mm256_and_si256(c->scale, _mm256_set1_epi32(0xffff)),
                                          _mm256_slli_epi32(c->scale, 16));
    UNROLL for (int v = 0; v < 8; v++) acc[v % 2] = VECTOR_ADD_SCALED(
        acc[v % 2], super_signed_pairs(c->q[v], w->x[v]), spread_lane(twice, v / 2));
    return _mm256_add_epi32(acc[0], acc[1]);
}

#endif

struct super_tile {
    const uint8_t *row[OUTPUTS];
    struct super_row x[SUPER_FEW];
    uint32_t k;
    size_t far; /* bytes prefetched ahead into the L2 cache */
};

/* The outputs of a tile are passed together, so that the first bytes of the last one are needed as
 * soon as those of the first, although they are 7 rows later in the order of memory. */
static ALWAYS_INLINE size_t super_far(uint64_t row_bytes)
{
    size_t far = (OUTPUTS - 1) * (size_t)row_bytes + SUPER_LEAD;
    return far > SUPER_FAR ? far : SUPER_FAR;
}

/* Super-block i of the next 8 in the order of memory, and the one after that of output i at byte
 * `at`. */
static ALWAYS_INLINE void super_prefetch(const struct super_type t, const struct super_tile *s,
                                         size_t at, int i)
{
    for (size_t line = 0; line < t.bytes; line += 64) {
        prefetch_far(s->row[0], s->far + OUTPUTS * at + (size_t)i * t.bytes + line);
        prefetch(s->row[i], SUPER_NEAR + at + line);
    }
}

/* Adds super-block g of 8 outputs and each row to acc. */
static ALWAYS_INLINE void super_step(const struct super_type t, uint32_t g,
                                     const struct super_tile *s, const int rows,
                                     __m256 (*acc)[PARTS])
{
    /* lanes whose sums are dot products, and of minimums */
    __m256i dot[SUPER_FEW][OUTPUTS], low[SUPER_FEW][OUTPUTS];
    const size_t at = (size_t)g * t.bytes;
    struct super_wide_row wide[SUPER_FEW];
    if (t.wide)
        UNROLL for (int r = 0; r < rows; r++) super_wide_row_at(&s->x[r], g, &wide[r]);
    for (int i = 0; i < OUTPUTS; i++) {
        struct super_codes c;
        super_prefetch(t, s, at, i);
        if (t.wide) {
            super_codes_at(t, s->row[i] + at, &c);
            UNROLL for (int r = 0; r < rows; r++) dot[r][i] = super_wide_dot(&c, &wide[r]);
            continue;
        }
        const int8_t *x[SUPER_FEW];
        __m256i sums[SUPER_FEW], out[SUPER_FEW];
        super_unpack(t, s->row[i] + at, &c);
        UNROLL for (int r = 0; r < rows; r++)
        {
            x[r] = s->x[r].q + (size_t)g * SUPER;
            sums[r] = load_32(s->x[r].sums + (size_t)g * 32);
            if (t.minimums)
                low[r][i] = _mm256_madd_epi16(c.min, sums[r]);
        }
        super_dots(t, &c, x, sums, rows, out);
        UNROLL for (int r = 0; r < rows; r++) dot[r][i] = out[r];
    }
    const __m256 d = super_scales(t, s->row, at);
    UNROLL for (int r = 0; r < rows; r++)
    {
        __m256 term = _mm256_mul_ps(eight_sums(dot[r]), d);
        if (t.minimums)
            term = _mm256_fnmadd_ps(eight_halves(s->row, at + t.dmin_at), eight_sums(low[r]), term);
        acc[r][g % PARTS] = _mm256_fmadd_ps(term, _mm256_set1_ps(s->x[r].d[g]), acc[r][g % PARTS]);
    }
}

static ALWAYS_INLINE void super_outputs(const struct super_type t, const struct super_tile *s,
                                        const int rows, float *y, size_t y_stride, uint32_t outputs)
{
    __m256 p[SUPER_FEW][PARTS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int i = 0; i < PARTS; i++) p[r][i] =
        _mm256_setzero_ps();
    for (uint32_t g = 0; g < s->k / SUPER; g++)
        super_step(t, g, s, rows, p);
    UNROLL for (int r = 0; r < rows; r++)
    {
        const __m256 *q = p[r];
        __m256 sum =
            _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(q[0], q[1]), _mm256_add_ps(q[2], q[3])),
                          _mm256_add_ps(_mm256_add_ps(q[4], q[5]), _mm256_add_ps(q[6], q[7])));
        _mm256_maskstore_ps(y + (size_t)r * y_stride, super_lane_mask(outputs), sum);
    }
}

static ALWAYS_INLINE void rows_of_supers(const struct super_type t, const struct kernel_matrix *w,
                                         uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                         size_t x_stride, const int rows, float *y, size_t y_stride)
{
    struct super_tile s = {.k = w->k, .far = super_far(w->row_bytes)};
    for (int r = 0; r < rows; r++)
        s.x[r] = super_row_at(x + (size_t)r * x_stride, w->k);
    for (uint32_t j = n_begin; j < n_end; j += OUTPUTS) {
        uint32_t outputs = n_end - j < OUTPUTS ? n_end - j : OUTPUTS;
        for (uint32_t i = 0; i < OUTPUTS; i++) /* missing outputs repeat the last one */
            s.row[i] =
                (const uint8_t *)w->data + (size_t)(i < outputs ? j + i : n_end - 1) * w->row_bytes;
        super_outputs(t, &s, rows, y + j, y_stride, outputs);
    }
}

static ALWAYS_INLINE void few_supers(const struct super_type t, const struct kernel_matrix *w,
                                     uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                     size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    UNROLL for (int n = 2; n <= SUPER_FEW; n++) if (rows == (uint32_t)n)
        rows_of_supers(t, w, n_begin, n_end, x, x_stride, n, y, y_stride);
}

#include "lib/kernels/simd/super_panel.h"

/* One copy of the code per type, so that its properties are constants. */
#define SUPER_PRODUCT(NAME)                                                                        \
    static __attribute__((noinline)) void super_one_##NAME(const struct kernel_matrix *w,          \
                                                           uint32_t n_begin, uint32_t n_end,       \
                                                           const uint8_t *x, float *y)             \
    {                                                                                              \
        rows_of_supers(super_type_##NAME, w, n_begin, n_end, x, 0, 1, y, 0);                       \
    }                                                                                              \
    static __attribute__((noinline)) void super_few_##NAME(                                        \
        const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const uint8_t *x,         \
        size_t x_stride, uint32_t rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        few_supers(super_type_##NAME, w, n_begin, n_end, x, x_stride, rows, y, y_stride);          \
    }                                                                                              \
    static __attribute__((noinline)) void super_many_##NAME(                                       \
        const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const uint8_t *x,         \
        size_t x_stride, uint32_t rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        super_panels(super_type_##NAME, w, n_begin, n_end, x, x_stride, rows, y, y_stride);        \
    }                                                                                              \
    static void super_product_##NAME(const struct kernel_matrix *w, uint32_t n_begin,              \
                                     uint32_t n_end, const void *x, size_t x_stride,               \
                                     uint32_t rows, float *y, size_t y_stride)                     \
    {                                                                                              \
        if (rows == 1)                                                                             \
            super_one_##NAME(w, n_begin, n_end, x, y);                                             \
        else if (rows <= SUPER_FEW)                                                                \
            super_few_##NAME(w, n_begin, n_end, x, x_stride, rows, y, y_stride);                   \
        else                                                                                       \
            super_many_##NAME(w, n_begin, n_end, x, x_stride, rows, y, y_stride);                  \
    }
SUPER_TYPES(SUPER_PRODUCT)

static void super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    kernel_matmul_fn *product = NULL;
    switch (w->type) {
#define SUPER_CASE(NAME)                                                                           \
    case TENSOR_##NAME: product = super_product_##NAME; break;
        SUPER_TYPES(SUPER_CASE)
    default: sl_panic("type %d has no super-blocks", (int)w->type);
    }
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
