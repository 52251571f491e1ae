/* SPDX-License-Identifier: Apache-2.0 */
/* Vector primitives of the templates in simd/, for AVX-512: 16 lanes, masks for row ends. */
#ifndef SLUICE_KERNELS_AVX512_VEC_H
#define SLUICE_KERNELS_AVX512_VEC_H

#include <immintrin.h>

#include "lib/kernels/internal.h"

#define VL         16
#define HALVES     (16 / VL) /* vectors for 16 lanes */
#define DENSE_COLS 4
#define DENSE_ROWS 6 /* 4 outputs x 6 rows of sums, 6 activations, 1 weight: 31 of 32 registers */

typedef __m512 vf;

static ALWAYS_INLINE __mmask16 vec_mask(uint32_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

static ALWAYS_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static ALWAYS_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static ALWAYS_INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}

static ALWAYS_INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}

static ALWAYS_INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, vec_mask(n), v);
}

static ALWAYS_INLINE vf vh_load(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static ALWAYS_INLINE vf vh_load_n(const void *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vec_mask(n), p));
}

static ALWAYS_INLINE vf vb_load(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

static ALWAYS_INLINE vf vb_load_n(const void *p, uint32_t n)
{
    __m256i h = _mm256_maskz_loadu_epi16(vec_mask(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static ALWAYS_INLINE void vh_store_n(uint16_t *p, vf v, uint32_t n)
{
    __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(p, vec_mask(n), h);
}

/* 16 signed bytes as floats. */
static ALWAYS_INLINE vf vf_from_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

/* The low or high nibbles of 16 bytes, less 8, as floats. */
static ALWAYS_INLINE vf vf_from_nibbles(const void *p, const bool high)
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
    v = high ? _mm512_srli_epi32(v, 4) : _mm512_and_si512(v, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(v, _mm512_set1_epi32(8)));
}

static ALWAYS_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static ALWAYS_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static ALWAYS_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* fma in the first n lanes, c in the others. */
static ALWAYS_INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    return _mm512_mask3_fmadd_ps(a, b, c, vec_mask(n));
}

static ALWAYS_INLINE float vf_first(vf v)
{
    return _mm512_cvtss_f32(v);
}

static ALWAYS_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static ALWAYS_INLINE vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}

static ALWAYS_INLINE float vf_max_lane(vf v)
{
    return _mm512_reduce_max_ps(v);
}

/* Sum of 16 lanes: the upper half is added to the lower half until one lane remains. */
static ALWAYS_INLINE float vf_sum16(const vf v[HALVES])
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The first step of vf_sum16, for vf_sum_rows. */
static ALWAYS_INLINE vf vf_join_halves(const vf v[HALVES])
{
    return v[0];
}

/* Halves the lanes of a and b: [a0+a2, a1+a3, b0+b2, b1+b3] of 128-bit parts. */
static ALWAYS_INLINE vf add_halves(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* The lanes of four vectors, in 128-bit parts [a b c d]. */
static ALWAYS_INLINE vf add_quarters(vf a, vf b, vf c, vf d)
{
    vf ab = add_halves(a, b), cd = add_halves(c, d);
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* Lane i of the result is the sum of the lanes of a[i], in the order of vf_sum16. */
static ALWAYS_INLINE vf vf_sum_rows(const vf a[VL])
{
    vf q[4], t[2];
    UNROLL for (int i = 0; i < 4; i++) q[i] = add_quarters(a[i], a[4 + i], a[8 + i], a[12 + i]);
    UNROLL for (int i = 0; i < 2; i++) t[i] =
        _mm512_add_ps(_mm512_shuffle_ps(q[2 * i], q[2 * i + 1], 0x44),
                      _mm512_shuffle_ps(q[2 * i], q[2 * i + 1], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(t[0], t[1], 0x88), _mm512_shuffle_ps(t[0], t[1], 0xdd));
}

/* exp(x) = 2^n * e^r, |r| <= ln 2 / 2, e^r by its Taylor series up to r^7.
 * NaN stays NaN: max and min then return their second operand. */
static ALWAYS_INLINE vf vf_exp(vf x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x);
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    vf n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    vf r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    vf p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Splits 16 pairs (c, s) into two vectors. */
static ALWAYS_INLINE void vf_pairs(const float *p, vf *c, vf *s)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vf a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    *c = _mm512_permutex2var_ps(a, even, b);
    *s = _mm512_permutex2var_ps(a, _mm512_or_si512(even, _mm512_set1_epi32(1)), b);
}

/* 16 elements times `inverse`, rounded to int8 at q; returns their sum. */
static ALWAYS_INLINE int32_t quantise_half(const float *x, float inverse, int8_t *q)
{
    vf v = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse));
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
    __m512i n = _mm512_cvtps_epi32(v);
    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(n));
    return _mm512_reduce_add_epi32(n);
}

#endif
