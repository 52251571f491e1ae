/* SPDX-License-Identifier: Apache-2.0 */
/* Vector primitives of the templates in simd/, for AVX2 + FMA + F16C: 8 lanes. */
#ifndef SLUICE_KERNELS_AVX2_VEC_H
#define SLUICE_KERNELS_AVX2_VEC_H

#include "lib/kernels/internal.h"
#ifdef __aarch64__
#include "lib/kernels/avx2/on_neon.h"
#else
#include <immintrin.h>
#endif

#define VL         8
#define HALVES     (16 / VL) /* vectors for 16 lanes */
#define DENSE_COLS 2
#define DENSE_ROWS 3 /* 2 outputs x 3 rows of two halves, 3 activations, 1 weight: 16 registers */

typedef __m256 vf;

/* Ones in the first n lanes: a window in a table of 8 ones and 8 zeros. */
static ALWAYS_INLINE __m256i vec_mask(uint32_t n)
{
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - n));
}

static ALWAYS_INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

static ALWAYS_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

/* Whole vectors without a mask: a masked store takes 4 ns on some processors (docs/lab/isa.md). */
static ALWAYS_INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return n == VL ? vf_load(p) : _mm256_maskload_ps(p, vec_mask(n));
}

static ALWAYS_INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

static ALWAYS_INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    if (n == VL)
        vf_store(p, v);
    else
        _mm256_maskstore_ps(p, vec_mask(n), v);
}

/* AVX2 has no masked 16-bit load: row ends are copied to a buffer. */
static ALWAYS_INLINE __m128i load_u16_n(const void *p, uint32_t n)
{
    uint16_t part[VL] = {0};
    memcpy(part, p, n * sizeof *part);
    return _mm_loadu_si128((const __m128i *)(const void *)part);
}

static ALWAYS_INLINE vf vh_load(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static ALWAYS_INLINE vf vh_load_n(const void *p, uint32_t n)
{
    return _mm256_cvtph_ps(load_u16_n(p, n));
}

static ALWAYS_INLINE vf bf16_lanes(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static ALWAYS_INLINE vf vb_load(const void *p)
{
    return bf16_lanes(_mm_loadu_si128(p));
}

static ALWAYS_INLINE vf vb_load_n(const void *p, uint32_t n)
{
    return bf16_lanes(load_u16_n(p, n));
}

static ALWAYS_INLINE void vh_store_n(uint16_t *p, vf v, uint32_t n)
{
    __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (n == VL) {
        _mm_storeu_si128((__m128i *)(void *)p, h);
        return;
    }
    uint16_t part[VL];
    _mm_storeu_si128((__m128i *)(void *)part, h);
    memcpy(p, part, n * sizeof *part);
}

/* 8 signed bytes as floats. */
static ALWAYS_INLINE vf vf_from_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}

/* The low or high nibbles of 8 bytes, less 8, as floats. */
static ALWAYS_INLINE vf vf_from_nibbles(const void *p, const bool high)
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
    v = high ? _mm256_srli_epi32(v, 4) : _mm256_and_si256(v, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(8)));
}

static ALWAYS_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static ALWAYS_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static ALWAYS_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static ALWAYS_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static ALWAYS_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* fma in the first n lanes, c in the others. */
static ALWAYS_INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    return _mm256_blendv_ps(c, _mm256_fmadd_ps(a, b, c), _mm256_castsi256_ps(vec_mask(n)));
}

static ALWAYS_INLINE float vf_first(vf v)
{
    return _mm256_cvtss_f32(v);
}

static ALWAYS_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static ALWAYS_INLINE vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

static ALWAYS_INLINE float vf_max_lane(vf v)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* The first step of vf_sum16, for vf_sum_rows. */
static ALWAYS_INLINE vf vf_join_halves(const vf v[HALVES])
{
    return _mm256_add_ps(v[0], v[1]);
}

/* Sum of 16 lanes: the upper half is added to the lower half until one lane remains. */
static ALWAYS_INLINE float vf_sum16(const vf v[HALVES])
{
    vf h = vf_join_halves(v);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

static ALWAYS_INLINE vf add_halves(vf a, vf b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* Lane i of the result is the sum of the lanes of a[i], in the order of vf_sum16. */
static ALWAYS_INLINE vf vf_sum_rows(const vf a[VL])
{
    vf h[4], q[2];
    UNROLL for (int i = 0; i < 4; i++) h[i] = add_halves(a[i], a[4 + i]);
    UNROLL for (int i = 0; i < 2; i++) q[i] =
        _mm256_add_ps(_mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0x44),
                      _mm256_shuffle_ps(h[2 * i], h[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(q[0], q[1], 0x88), _mm256_shuffle_ps(q[0], q[1], 0xdd));
}

static ALWAYS_INLINE vf vf_power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* exp(x) = 2^n * e^r, |r| <= ln 2 / 2, e^r by its Taylor series up to r^7.
 * NaN stays NaN: max and min then return their second operand. */
static ALWAYS_INLINE vf vf_exp(vf x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-150.0f), x);
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    vf n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    vf p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    /* two factors: where the result is subnormal or inf, 2^n alone exceeds the exponent's range */
    __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1);
    p = _mm256_mul_ps(p, vf_power_of_two(half));
    return _mm256_mul_ps(p, vf_power_of_two(_mm256_sub_epi32(e, half)));
}

/* Splits 8 pairs (c, s) into two vectors. */
static ALWAYS_INLINE void vf_pairs(const float *p, vf *c, vf *s)
{
    vf a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    vf lo = _mm256_permute2f128_ps(a, b, 0x20), hi = _mm256_permute2f128_ps(a, b, 0x31);
    *c = _mm256_shuffle_ps(lo, hi, 0x88);
    *s = _mm256_shuffle_ps(lo, hi, 0xdd);
}

/* 16 elements times `inverse`, rounded to int8 at q; returns their sum. */
static ALWAYS_INLINE int32_t quantise_half(const float *x, float inverse, int8_t *q)
{
    __m256i n[2];
    for (int i = 0; i < 2; i++) {
        vf v = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse));
        v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f));
        n[i] = _mm256_cvtps_epi32(v);
    }
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(n[0], n[1]), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)q, _mm_packs_epi16(_mm256_castsi256_si128(words),
                                                           _mm256_extracti128_si256(words, 1)));
    __m256i both = _mm256_add_epi32(n[0], n[1]);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

#endif
