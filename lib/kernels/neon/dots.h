/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of vectors of bytes, for the templates of blocks and super-blocks: NEON. */
#ifndef SLUICE_KERNELS_NEON_DOTS_H
#define SLUICE_KERNELS_NEON_DOTS_H

#include "lib/kernels/avx2/bytes.h"
#include "lib/kernels/neon/products.h"

#define WIDE_CORRECTED false
#define WIDE_SHIFT     NO_SHIFT /* codes of eight bits stay signed: no correction */

/* Signed codes of eight bits in the form that dots_add wants. */
static ALWAYS_INLINE vq vq_wide(vq v)
{
    return v;
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
    d->sum = dots_of(d->sum, w, x);
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

#define DOT_STARTS false /* the correction is subtracted from the sum of the super-block */
#define DOT_PAIRS  false /* a multiplication by scales takes one instruction */

/* Words of four elements whose dot product has the same scale. */
static ALWAYS_INLINE int dot_words(int sub, int element_max)
{
    (void)element_max;
    return sub / 4;
}

static ALWAYS_INLINE vi dot_add(const bool wide, vi dot, vq w, vq x)
{
    (void)wide;
    return dots_of(dot, w, x);
}

/* The scales as dot_scale wants them: word h of every lane, sign-extended. */
static ALWAYS_INLINE vi dot_scale_of(vi pairs, const int h)
{
    return _mm256_srai_epi32(h == 0 ? _mm256_slli_epi32(pairs, 16) : pairs, 16);
}

static ALWAYS_INLINE vi dot_scale(vi sum, vi dot, vi scale)
{
    return (vi){OF_S32(vmlaq_s32(S32(sum.lo), S32(dot.lo), S32(scale.lo))),
                OF_S32(vmlaq_s32(S32(sum.hi), S32(dot.hi), S32(scale.hi)))};
}

/* sum + products of the 16-bit halves of every lane. */
static ALWAYS_INLINE vi vi_add_pairs(vi sum, vi a, vi b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

#endif
