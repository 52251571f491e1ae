/* SPDX-License-Identifier: Apache-2.0 */
/* Products with sluice's own types: the primitives of simd/group.h in AVX2.
 *
 * The byte products are u8 * s8; pairs of them are added to s16 with saturation. Products of 4-bit
 * and 2-bit codes are so small that several pairs are added in 16 bits before they are widened (8
 * words of 4-bit codes: 8 * 2 * 15 * 127 < 2^15). 8-bit codes are made signed (minus 128): |w|
 * times x with w's sign, at most 2 * 128 * 127. */
#include "lib/kernels/avx2/vec.h"

#define SIDES     1
#define TILE      4   /* rows of a tile: 4 sums, 4 parts, 4 float sums, 1 weight, 1 activation */
#define CHUNK     16  /* groups of a panel: 8 KiB of codes */
#define ROW_BLOCK 120 /* rows whose activations stay in the L2 cache over all panels */
#define CODE_BIAS 128 /* subtracted from 8-bit codes */

typedef __m256i vi;

static ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_load(const void *p)
{
    return _mm256_load_si256(p);
}

static ALWAYS_INLINE void vi_store(void *p, vi v)
{
    _mm256_store_si256(p, v);
}

static ALWAYS_INLINE vf vf_from_vi(vi v)
{
    return _mm256_cvtepi32_ps(v);
}

static ALWAYS_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* Lane i: four bytes at `at` of row i. */
static ALWAYS_INLINE vi vi_gather(const uint8_t *const row[VL], size_t at)
{
    return _mm256_setr_epi32((int)load_u32(row[0] + at), (int)load_u32(row[1] + at),
                             (int)load_u32(row[2] + at), (int)load_u32(row[3] + at),
                             (int)load_u32(row[4] + at), (int)load_u32(row[5] + at),
                             (int)load_u32(row[6] + at), (int)load_u32(row[7] + at));
}

/* The low (high) half of every lane, converted from F16 to F32. */
static ALWAYS_INLINE vf vf_low_halves(vi v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

static ALWAYS_INLINE vf vf_high_halves(vi v)
{
    return vf_low_halves(_mm256_srli_epi32(v, 16));
}

static ALWAYS_INLINE vi pairs_to_words(vi pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Products of signed bytes, pairs added to s16. */
static ALWAYS_INLINE vi signed_pairs(vi w, vi x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* Dot product of a group of codes and a group of activations: the sum of the lanes. */
static ALWAYS_INLINE vi group_dot(const uint32_t bits, const uint8_t *p, const int8_t *x)
{
    vi x0 = _mm256_loadu_si256((const vi *)(const void *)x);
    vi x1 = _mm256_loadu_si256((const vi *)(const void *)(x + 32));
    if (bits == 8) {
        const vi flip = _mm256_set1_epi8((char)0x80);
        vi w0 = _mm256_xor_si256(_mm256_loadu_si256((const vi *)(const void *)p), flip);
        vi w1 = _mm256_xor_si256(_mm256_loadu_si256((const vi *)(const void *)(p + 32)), flip);
        return _mm256_add_epi32(pairs_to_words(signed_pairs(w0, x0)),
                                pairs_to_words(signed_pairs(w1, x1)));
    }
    vi w0, w1, mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    if (bits == 4) {
        w0 = _mm256_loadu_si256((const vi *)(const void *)p);
    } else { /* the second 16 codes are two bits higher */
        w0 = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
        w0 = _mm256_srlv_epi32(w0, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
    }
    w1 = _mm256_and_si256(_mm256_srli_epi16(w0, 4), mask);
    w0 = _mm256_and_si256(w0, mask);
    return pairs_to_words(
        _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1)));
}

/* Lane i of the result is the sum of the lanes of a[i]. */
static ALWAYS_INLINE vi vi_sum_rows(const vi a[VL])
{
    vi lo = _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
    vi hi = _mm256_hadd_epi32(_mm256_hadd_epi32(a[4], a[5]), _mm256_hadd_epi32(a[6], a[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(lo, hi, 0x20),
                            _mm256_permute2x128_si256(lo, hi, 0x31));
}

/* Transposes 16 bytes at `at` of every row: out[i] is word i of every row. */
static ALWAYS_INLINE void vi_turn_words(const uint8_t *const row[VL], size_t at, vi out[4])
{
    vi z[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m128i lo = _mm_loadu_si128((const __m128i *)(const void *)(row[i] + at));
        __m128i hi = _mm_loadu_si128((const __m128i *)(const void *)(row[4 + i] + at));
        z[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    }
    vi a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
    vi c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

/* Unpacks part number `part` of packed codes, for sum_add. */
static ALWAYS_INLINE vi vi_codes(const uint32_t bits, vi v, const uint32_t part)
{
    if (bits == 8)
        return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
    return _mm256_and_si256(_mm256_srli_epi16(v, (int)(part * bits)),
                            _mm256_set1_epi8((char)((1 << bits) - 1)));
}

struct sum {
    vi dot, part; /* part: s16 pairs not yet in dot */
};

static ALWAYS_INLINE struct sum sum_zero(void)
{
    return (struct sum){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

/* Adds word i of a group: four codes of every output times four activations. */
static ALWAYS_INLINE void sum_add(const uint32_t bits, const int i, struct sum *s, vi w, vi v)
{
    if (bits == 8) {
        s->dot = _mm256_add_epi32(s->dot, pairs_to_words(signed_pairs(w, v)));
        return;
    }
    s->part = _mm256_add_epi16(s->part, _mm256_maddubs_epi16(w, v));
    if (i % (bits == 4 ? 8 : 16) == (bits == 4 ? 7 : 15)) {
        s->dot = _mm256_add_epi32(s->dot, pairs_to_words(s->part));
        s->part = _mm256_setzero_si256();
    }
}

#include "lib/kernels/simd/group.h"

void avx2_group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                       const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    group_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
