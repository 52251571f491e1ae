/* SPDX-License-Identifier: Apache-2.0 */
/* Products with sluice's own types: the primitives of simd/group.h in AVX-512 VNNI. */
#include "lib/kernels/avx512/vec.h"

#define SIDES     2
#define TILE      6   /* rows of a register tile: 12 sums, 12 floats, 2 weights, 1 activation */
#define CHUNK     8   /* groups of a panel: 16 KiB of codes */
#define ROW_BLOCK 126 /* rows whose activations stay in the L2 cache over all panels */
#define CODE_BIAS 0   /* codes are used unchanged */

typedef __m512i vi;

static ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_load(const void *p)
{
    return _mm512_load_si512(p);
}

static ALWAYS_INLINE void vi_store(void *p, vi v)
{
    _mm512_store_si512(p, v);
}

static ALWAYS_INLINE vf vf_from_vi(vi v)
{
    return _mm512_cvtepi32_ps(v);
}

static ALWAYS_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static ALWAYS_INLINE __m128i four_words(const uint8_t *const row[4], size_t at)
{
    return _mm_setr_epi32((int)load_u32(row[0] + at), (int)load_u32(row[1] + at),
                          (int)load_u32(row[2] + at), (int)load_u32(row[3] + at));
}

static ALWAYS_INLINE vi join_four(__m128i a, __m128i b, __m128i c, __m128i d)
{
    vi v = _mm512_inserti32x4(_mm512_castsi128_si512(a), b, 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(v, c, 2), d, 3);
}

/* Lane i: four bytes at `at` of row i. */
static ALWAYS_INLINE vi vi_gather(const uint8_t *const row[VL], size_t at)
{
    return join_four(four_words(row, at), four_words(row + 4, at), four_words(row + 8, at),
                     four_words(row + 12, at));
}

/* The low (high) half of every lane, converted from F16 to F32. */
static ALWAYS_INLINE vf vf_low_halves(vi v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

static ALWAYS_INLINE vf vf_high_halves(vi v)
{
    return vf_low_halves(_mm512_srli_epi32(v, 16));
}

/* Dot product of a group of codes and a group of activations: the sum of the lanes. */
static ALWAYS_INLINE vi group_dot(const uint32_t bits, const uint8_t *p, const int8_t *x)
{
    vi w;
    if (bits == 8) {
        w = _mm512_loadu_si512(p);
    } else if (bits == 4) {
        w = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
        w = _mm512_srlv_epi32(w, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4));
        w = _mm512_and_si512(w, _mm512_set1_epi8(15));
    } else {
        w = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
        w = _mm512_srlv_epi32(w, _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6));
        w = _mm512_and_si512(w, _mm512_set1_epi8(3));
    }
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_loadu_si512(x));
}

/* In every 128-bit part [a b c d]: the sums of the four lanes of that part. */
static ALWAYS_INLINE vi sum_four(vi a, vi b, vi c, vi d)
{
    vi ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    vi cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Lane i of the result is the sum of the lanes of a[i]. */
static ALWAYS_INLINE vi vi_sum_rows(const vi a[VL])
{
    vi q0 = sum_four(a[0], a[1], a[2], a[3]), q1 = sum_four(a[4], a[5], a[6], a[7]);
    vi q2 = sum_four(a[8], a[9], a[10], a[11]), q3 = sum_four(a[12], a[13], a[14], a[15]);
    vi lo =
        _mm512_add_epi32(_mm512_shuffle_i32x4(q0, q1, 0x88), _mm512_shuffle_i32x4(q0, q1, 0xdd));
    vi hi =
        _mm512_add_epi32(_mm512_shuffle_i32x4(q2, q3, 0x88), _mm512_shuffle_i32x4(q2, q3, 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(lo, hi, 0x88), _mm512_shuffle_i32x4(lo, hi, 0xdd));
}

static ALWAYS_INLINE __m128i load_16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Transposes 16 bytes at `at` of every row: out[i] is word i of every row. */
static ALWAYS_INLINE void vi_turn_words(const uint8_t *const row[VL], size_t at, vi out[4])
{
    vi z[4];
    UNROLL for (int i = 0; i < 4; i++) z[i] =
        join_four(load_16(row[i] + at), load_16(row[4 + i] + at), load_16(row[8 + i] + at),
                  load_16(row[12 + i] + at));
    vi a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    vi c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/* Unpacks part number `part` of packed codes. */
static ALWAYS_INLINE vi vi_codes(const uint32_t bits, vi v, const uint32_t part)
{
    if (bits == 8)
        return v;
    return _mm512_and_si512(_mm512_srli_epi16(v, part * bits),
                            _mm512_set1_epi8((char)((1 << bits) - 1)));
}

struct sum {
    vi dot;
};

static ALWAYS_INLINE struct sum sum_zero(void)
{
    return (struct sum){_mm512_setzero_si512()};
}

/* Adds word i of a group: four codes of every output times four activations. */
static ALWAYS_INLINE void sum_add(const uint32_t bits, const int i, struct sum *s, vi w, vi v)
{
    (void)bits;
    (void)i;
    s->dot = _mm512_dpbusd_epi32(s->dot, w, v);
}

#include "lib/kernels/simd/group.h"

void avx512_group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    group_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
