/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bytes: NEON, with the instructions for dot products (ARMv8.2) or without. Both
 * operands are signed: codes that are not are at most 127. */
#ifndef SLUICE_KERNELS_NEON_PRODUCTS_H
#define SLUICE_KERNELS_NEON_PRODUCTS_H

#include "lib/kernels/avx2/on_neon.h"
#include "lib/kernels/internal.h"

/* Sums of two products, which fit in 16 bits, of both halves of a register. */
static ALWAYS_INLINE int16x8_t half_pairs(uint8x16_t w, uint8x16_t x)
{
    int16x8_t low = vmull_s8(vget_low_s8(S8(w)), vget_low_s8(S8(x)));
    return vpaddq_s16(low, vmull_high_s8(S8(w), S8(x)));
}

static ALWAYS_INLINE __m256i byte_pairs(__m256i w, __m256i x)
{
    return (__m256i){OF_S16(half_pairs(w.lo, x.lo)), OF_S16(half_pairs(w.hi, x.hi))};
}

/* sum + products of four bytes of every lane. */
static ALWAYS_INLINE int32x4_t half_dots(int32x4_t sum, uint8x16_t w, uint8x16_t x)
{
#ifdef SLUICE_DOTPROD
    return vdotq_s32(sum, S8(w), S8(x));
#else
    return vpadalq_s16(sum, half_pairs(w, x));
#endif
}

static ALWAYS_INLINE __m256i dots_of(__m256i sum, __m256i w, __m256i x)
{
    return (__m256i){OF_S32(half_dots(S32(sum.lo), w.lo, x.lo)),
                     OF_S32(half_dots(S32(sum.hi), w.hi, x.hi))};
}

#endif
