/* SPDX-License-Identifier: Apache-2.0 */
/* Products with sluice's own types: the primitives of simd/group.h in AVX2.
 *
 * The byte products are u8 * s8; pairs of them are added to s16 with saturation. Products of 4-bit
 * and 2-bit codes are so small that several pairs are added in 16 bits before they are widened (8
 * words of 4-bit codes: 8 * 2 * 15 * 127 < 2^15). 8-bit codes are made signed (minus 128): |w|
 * times x with w's sign, at most 2 * 128 * 127. */
#include "lib/kernels/avx2/group_vec.h"

#define SIDES     1
#define TILE      4   /* rows of a tile: 4 sums, 4 parts, 4 float sums, 1 weight, 1 activation */
#define CHUNK     16  /* groups of a panel: 8 KiB of codes */
#define ROW_BLOCK 120 /* rows whose activations stay in the L2 cache over all panels */
#define CODE_BIAS 128 /* subtracted from 8-bit codes */

static ALWAYS_INLINE vi pairs_to_words(vi pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Products of signed bytes, pairs added to s16. */
static ALWAYS_INLINE vi signed_pairs(vi w, vi x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

static ALWAYS_INLINE vi less_bias(vi w)
{
    return _mm256_xor_si256(w, _mm256_set1_epi8((char)CODE_BIAS));
}

/* Dot product of a group of codes and a group of activations: the sum of the lanes. */
static ALWAYS_INLINE vi group_dot(const uint32_t bits, const uint8_t *p, const int8_t *x)
{
    vi x0 = _mm256_loadu_si256((const vi *)(const void *)x);
    vi x1 = _mm256_loadu_si256((const vi *)(const void *)(x + 32));
    vi w[2];
    load_codes(bits, p, w);
    if (bits == 8)
        return _mm256_add_epi32(pairs_to_words(signed_pairs(less_bias(w[0]), x0)),
                                pairs_to_words(signed_pairs(less_bias(w[1]), x1)));
    return pairs_to_words(
        _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x0), _mm256_maddubs_epi16(w[1], x1)));
}

/* Unpacks part number `part` of packed codes, for sum_add. */
static ALWAYS_INLINE vi vi_codes(const uint32_t bits, vi v, const uint32_t part)
{
    return bits == 8 ? less_bias(v) : codes_of(bits, v, part);
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
