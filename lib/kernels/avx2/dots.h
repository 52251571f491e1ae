/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of vectors of bytes, for the templates of blocks and super-blocks: AVX2. */
#ifndef SLUICE_KERNELS_AVX2_DOTS_H
#define SLUICE_KERNELS_AVX2_DOTS_H

#include "lib/kernels/avx2/bytes.h"

#define PANEL_VECTORS  2 /* outputs of a panel, in vectors */
#define PANEL_ROWS     4 /* of a register tile */
#define WIDE_CORRECTED false
#define WIDE_SHIFT     NO_SHIFT /* codes of eight bits stay signed: no correction */

/* A sum that is computed here. gcc delays additions of integers, so that a register tile's products
 * are stored to memory before they are added. */
static ALWAYS_INLINE __m256i in_order(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* Signed codes of eight bits in the form that dots_add wants. */
static ALWAYS_INLINE vq vq_wide(vq v)
{
    return v;
}

/* ---- dot products: 32-bit lanes are sums of four products ---- */

struct dots {
    __m256i sum, pairs; /* pairs: 16-bit, not added to sum yet */
};

static ALWAYS_INLINE struct dots dots_start(__m256i sum)
{
    return (struct dots){sum, _mm256_setzero_si256()};
}

/* Codes are unsigned and at most 32, so four sums of two products fit in 16 bits; wide ones are
 * signed, so one does. */
static ALWAYS_INLINE void dots_add(const bool wide, struct dots *d, vq w, vq x)
{
    if (wide) {
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
        d->sum = in_order(_mm256_add_epi32(d->sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
    } else {
        d->pairs = in_order(_mm256_add_epi16(d->pairs, _mm256_maddubs_epi16(w, x)));
    }
}

/* After at most four vectors. */
static ALWAYS_INLINE void dots_fold(const bool wide, struct dots *d)
{
    if (wide)
        return;
    d->sum = _mm256_add_epi32(d->sum, _mm256_madd_epi16(d->pairs, _mm256_set1_epi16(1)));
    d->pairs = _mm256_setzero_si256();
}

/* Adds the four lanes of each piece; the result is in the order of the pieces. */
static ALWAYS_INLINE __m256i dots_join(const struct dots g[4])
{
    return sum_pieces(g[0].sum, g[1].sum, g[2].sum, g[3].sum);
}

/* ---- dot products with scales, for super-blocks ---- */

#define DOT_STARTS false /* the correction is subtracted from the sum of the super-block */
#define DOT_PAIRS  false /* scales of two sub-blocks multiply at once what fits in 16 bits */

/* Words of four elements, of one sub-block, whose products fit in 16 bits: codes are below
 * 1 << code_bits (of wide types, signed), activations are at most 127. */
static ALWAYS_INLINE int dot_words(int sub, int code_bits)
{
    int words = code_bits >= 7 ? 1 : code_bits >= 4 ? 1 << (7 - code_bits) : 8;
    return words < sub / 4 ? words : sub / 4;
}

/* 16-bit lanes. */
static ALWAYS_INLINE vi dot_add(const bool wide, vi dot, vq w, vq x)
{
    if (wide)
        return in_order(_mm256_add_epi16(
            dot, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))));
    return in_order(_mm256_add_epi16(dot, _mm256_maddubs_epi16(w, x)));
}

/* The scales as dot_scale wants them: word h of every lane, twice. */
static ALWAYS_INLINE vi dot_scale_of(vi pairs, const int h)
{
    if (h == 0)
        return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs, 0xa0), 0xa0);
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs, 0xf5), 0xf5);
}

/* sum + products of the 16-bit halves of every lane. */
static ALWAYS_INLINE vi vi_add_pairs(vi sum, vi a, vi b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

static ALWAYS_INLINE vi dot_scale(vi sum, vi dot, vi scale)
{
    return in_order(vi_add_pairs(sum, dot, scale));
}

#endif
