/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of simd/group.h that AVX2 and AVX-VNNI share: all but the dot products. */
#ifndef SLUICE_KERNELS_AVX2_GROUP_VEC_H
#define SLUICE_KERNELS_AVX2_GROUP_VEC_H

#include "lib/kernels/avx2/vec.h"

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

/* The codes of a group. */
static ALWAYS_INLINE void load_codes(const uint32_t bits, const uint8_t *p, vi w[2])
{
    const vi mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    if (bits == 8) {
        w[0] = _mm256_loadu_si256((const vi *)(const void *)p);
        w[1] = _mm256_loadu_si256((const vi *)(const void *)(p + 32));
        return;
    }
    vi v;
    if (bits == 4) {
        v = _mm256_loadu_si256((const vi *)(const void *)p);
    } else { /* the second 16 codes are two bits higher */
        v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
        v = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
    }
    w[0] = _mm256_and_si256(v, mask);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
}

/* Part number `part` of packed codes. */
static ALWAYS_INLINE vi codes_of(const uint32_t bits, vi v, const uint32_t part)
{
    if (bits == 8)
        return v;
    return _mm256_and_si256(_mm256_srli_epi16(v, (int)(part * bits)),
                            _mm256_set1_epi8((char)((1 << bits) - 1)));
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

#endif
