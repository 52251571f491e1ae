/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of vectors of bytes, for the templates of blocks and super-blocks: AVX-VNNI, in
 * vectors of 32 bytes. */
#ifndef SLUICE_KERNELS_AVXVNNI_DOTS_H
#define SLUICE_KERNELS_AVXVNNI_DOTS_H

#include "lib/kernels/avx2/bytes.h"

#define WIDE_CORRECTED true
#define WIDE_SHIFT     0 /* codes of eight bits plus 128: the correction of Q8_0's form */

/* Signed codes of eight bits in the form that dots_add wants. */
static ALWAYS_INLINE vq vq_wide(vq v)
{
    return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
}

/* ---- dot products: 32-bit lanes are sums of four products ---- */

struct dots {
    __m256i sum;
};

static ALWAYS_INLINE struct dots dots_start(__m256i sum)
{
    return (struct dots){sum};
}

static ALWAYS_INLINE void dots_add(const bool wide, struct dots *d, vq w, vq x)
{
    (void)wide;
    d->sum = _mm256_dpbusd_avx_epi32(d->sum, w, x);
}

static ALWAYS_INLINE void dots_fold(const bool wide, struct dots *d)
{
    (void)wide;
    (void)d;
}

/* Adds the four lanes of each piece; the result is in the order of the pieces. */
static ALWAYS_INLINE __m256i dots_join(const struct dots g[4])
{
    return sum_pieces(g[0].sum, g[1].sum, g[2].sum, g[3].sum);
}

/* ---- dot products with scales, for super-blocks: 32-bit lanes ---- */

#define DOT_STARTS true /* a dot product starts from a correction */
#define DOT_PAIRS  true /* scales of two sub-blocks multiply at once what fits in 16 bits */

/* Words of four elements whose dot product has the same scale. */
static ALWAYS_INLINE int dot_words(int sub, int element_max)
{
    (void)element_max;
    return sub / 4;
}

static ALWAYS_INLINE vi dot_add(const bool wide, vi dot, vq w, vq x)
{
    (void)wide;
    return _mm256_dpbusd_avx_epi32(dot, w, x);
}

/* The scales as dot_scale wants them: word h of every lane, sign-extended. */
static ALWAYS_INLINE vi dot_scale_of(vi pairs, const int h)
{
    return _mm256_srai_epi32(h == 0 ? _mm256_slli_epi32(pairs, 16) : pairs, 16);
}

static ALWAYS_INLINE vi dot_scale(vi sum, vi dot, vi scale)
{
    return _mm256_add_epi32(sum, _mm256_mullo_epi32(dot, scale));
}

/* sum + products of the 16-bit halves of every lane. */
static ALWAYS_INLINE vi vi_add_pairs(vi sum, vi a, vi b)
{
    return _mm256_dpwssd_avx_epi32(sum, a, b);
}

#endif
