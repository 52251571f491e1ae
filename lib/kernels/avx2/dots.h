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

#define DOT_STARTS false
#define DOT_PAIRS  false /* scales of two sub-blocks multiply at once what fits in 16 bits */
#define DOT_WRAPS  true  /* dot products of codes with an offset start from dot_starts */

/* Words of four elements, of one sub-block, whose products fit in 16 bits: elements are at most
 * element_max, activations 127. */
static ALWAYS_INLINE int dot_words(int sub, int element_max)
{
    const int fit = INT16_MAX / (2 * 127 * element_max);
    const int words = fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    return words < sub / 4 ? words : sub / 4;
}

/* 16-bit lanes of half as many words: sums of those of adjacent 32-bit lanes. */
static ALWAYS_INLINE __m256i join_lanes(__m256i a, __m256i b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    __m256i sum = _mm256_add_epi16(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                                   _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
    return _mm256_permute4x64_epi64(sum, 0xd8);
}

/* What the dot products of a super-block of activations start from, for each `words` words: minus
 * the offset times the sums of the activations in the two 16-bit lanes. */
static ALWAYS_INLINE void dot_starts(const int offset_bits, const int words, const uint8_t *x,
                                     uint32_t *start)
{
    __m256i v[8];
    UNROLL for (int i = 0; i < 8; i++) v[i] =
        _mm256_maddubs_epi16(_mm256_set1_epi8((char)(1 << offset_bits)), vq_load(x + 32 * i));
    int count = 8;
    UNROLL for (int joined = 1; joined < words; joined *= 2)
    {
        count /= 2;
        UNROLL for (int i = 0; i < count; i++) v[i] = join_lanes(v[2 * i], v[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 8 / words; i++)
        vq_store(start + 8 * i, _mm256_sub_epi16(_mm256_setzero_si256(), v[i]));
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
