/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of AVX2 as pairs of NEON registers: what the templates of simd/ and avx2/ use of
 * <immintrin.h>, under its names. Same results where the kernels use them; others: conversions of
 * NaN and of numbers beyond int32, shifts by all bits or more, another rounding than to the
 * nearest, zeroed halves of permutations. */
#ifndef SLUICE_KERNELS_AVX2_ON_NEON_H
#define SLUICE_KERNELS_AVX2_ON_NEON_H

#include <arm_neon.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define X86                       static inline __attribute__((always_inline))
#define _MM_FROUND_TO_NEAREST_INT 0
#define _MM_FROUND_NO_EXC         8

typedef uint8x16_t __m128i;
typedef float32x4_t __m128;
typedef struct {
    uint8x16_t lo, hi;
} __m256i;
typedef struct {
    float32x4_t lo, hi;
} __m256;

/* ---- one register under other types ---- */

#define U16(v)    vreinterpretq_u16_u8(v)
#define U32(v)    vreinterpretq_u32_u8(v)
#define U64(v)    vreinterpretq_u64_u8(v)
#define S8(v)     vreinterpretq_s8_u8(v)
#define S16(v)    vreinterpretq_s16_u8(v)
#define S32(v)    vreinterpretq_s32_u8(v)
#define OF_U16(v) vreinterpretq_u8_u16(v)
#define OF_U32(v) vreinterpretq_u8_u32(v)
#define OF_U64(v) vreinterpretq_u8_u64(v)
#define OF_S8(v)  vreinterpretq_u8_s8(v)
#define OF_S16(v) vreinterpretq_u8_s16(v)
#define OF_S32(v) vreinterpretq_u8_s32(v)

/* NAME(a, b) of both halves by `op`: operands of the type TO, the result is turned by FROM. */
#define X86_OF_TWO(NAME, TO, FROM, op)                                                             \
    X86 __m256i NAME(__m256i a, __m256i b)                                                         \
    {                                                                                              \
        return (__m256i){FROM(op(TO(a.lo), TO(b.lo))), FROM(op(TO(a.hi), TO(b.hi)))};              \
    }
#define SAME(v) (v)

X86_OF_TWO(_mm256_and_si256, SAME, SAME, vandq_u8)
X86_OF_TWO(_mm256_or_si256, SAME, SAME, vorrq_u8)
X86_OF_TWO(_mm256_xor_si256, SAME, SAME, veorq_u8)
X86_OF_TWO(_mm256_add_epi8, SAME, SAME, vaddq_u8)
X86_OF_TWO(_mm256_sub_epi8, SAME, SAME, vsubq_u8)
X86_OF_TWO(_mm256_max_epu8, SAME, SAME, vmaxq_u8)
X86_OF_TWO(_mm256_cmpeq_epi8, SAME, SAME, vceqq_u8)
X86_OF_TWO(_mm256_max_epi8, S8, OF_S8, vmaxq_s8)
X86_OF_TWO(_mm256_add_epi16, U16, OF_U16, vaddq_u16)
X86_OF_TWO(_mm256_sub_epi16, U16, OF_U16, vsubq_u16)
X86_OF_TWO(_mm256_mullo_epi16, U16, OF_U16, vmulq_u16)
X86_OF_TWO(_mm256_add_epi32, U32, OF_U32, vaddq_u32)
X86_OF_TWO(_mm256_sub_epi32, U32, OF_U32, vsubq_u32)
X86_OF_TWO(_mm256_max_epi32, S32, OF_S32, vmaxq_s32)
X86_OF_TWO(_mm256_cmpeq_epi32, U32, OF_U32, vceqq_u32)
X86_OF_TWO(_mm256_cmpgt_epi32, S32, OF_U32, vcgtq_s32)
X86_OF_TWO(_mm256_hadd_epi32, U32, OF_U32, vpaddq_u32)
X86_OF_TWO(_mm256_add_epi64, U64, OF_U64, vaddq_u64)
X86_OF_TWO(_mm256_sub_epi64, U64, OF_U64, vsubq_u64)
X86_OF_TWO(_mm256_unpacklo_epi32, U32, OF_U32, vzip1q_u32)
X86_OF_TWO(_mm256_unpackhi_epi32, U32, OF_U32, vzip2q_u32)
X86_OF_TWO(_mm256_unpacklo_epi64, U64, OF_U64, vzip1q_u64)
X86_OF_TWO(_mm256_unpackhi_epi64, U64, OF_U64, vzip2q_u64)

/* (not a) and b */
X86 __m256i _mm256_andnot_si256(__m256i a, __m256i b)
{
    return (__m256i){vbicq_u8(b.lo, a.lo), vbicq_u8(b.hi, a.hi)};
}

X86 __m256i _mm256_abs_epi8(__m256i a)
{
    return (__m256i){OF_S8(vabsq_s8(S8(a.lo))), OF_S8(vabsq_s8(S8(a.hi)))};
}

/* Sums of eight absolute differences. */
X86 __m256i _mm256_sad_epu8(__m256i a, __m256i b)
{
    return (__m256i){OF_U64(vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vabdq_u8(a.lo, b.lo))))),
                     OF_U64(vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vabdq_u8(a.hi, b.hi)))))};
}

/* 1 if a and b have no bit in common. */
X86 int _mm256_testz_si256(__m256i a, __m256i b)
{
    return vmaxvq_u8(vorrq_u8(vandq_u8(a.lo, b.lo), vandq_u8(a.hi, b.hi))) == 0;
}

/* ---- products of 16 bits ---- */

X86 uint8x16_t madd_half(uint8x16_t a, uint8x16_t b)
{
    int32x4_t low = vmull_s16(vget_low_s16(S16(a)), vget_low_s16(S16(b)));
    return OF_S32(vpaddq_s32(low, vmull_high_s16(S16(a), S16(b))));
}

X86 __m256i _mm256_madd_epi16(__m256i a, __m256i b)
{
    return (__m256i){madd_half(a.lo, b.lo), madd_half(a.hi, b.hi)};
}

/* ---- shifts: operators of vectors, so that a constant becomes part of the instruction ---- */

#define X86_SHIFT(NAME, type, FROM, operator)                                                      \
    X86 __m256i NAME(__m256i a, const int n)                                                       \
    {                                                                                              \
        return (__m256i){FROM((type)a.lo operator n), FROM((type)a.hi operator n)};                \
    }
X86_SHIFT(_mm256_srli_epi16, uint16x8_t, OF_U16, >>)
X86_SHIFT(_mm256_slli_epi16, uint16x8_t, OF_U16, <<)
X86_SHIFT(_mm256_srli_epi32, uint32x4_t, OF_U32, >>)
X86_SHIFT(_mm256_slli_epi32, uint32x4_t, OF_U32, <<)
X86_SHIFT(_mm256_srai_epi32, int32x4_t, OF_S32, >>)

X86 __m256i _mm256_srlv_epi32(__m256i a, __m256i n)
{
    return (__m256i){OF_U32(vshlq_u32(U32(a.lo), vnegq_s32(S32(n.lo)))),
                     OF_U32(vshlq_u32(U32(a.hi), vnegq_s32(S32(n.hi))))};
}

/* ---- 128 bits ---- */

X86 __m128i _mm_loadu_si128(const __m128i *p)
{
    return vld1q_u8((const uint8_t *)p);
}

X86 void _mm_storeu_si128(__m128i *p, __m128i v)
{
    vst1q_u8((uint8_t *)p, v);
}

X86 __m128i _mm_cvtsi64_si128(long long x)
{
    return vcombine_u8(vcreate_u8((uint64_t)x), vdup_n_u8(0));
}

X86 __m128i _mm_loadl_epi64(const void *p)
{
    return vcombine_u8(vld1_u8(p), vdup_n_u8(0));
}

X86 __m128i _mm_set_epi64x(long long high, long long low)
{
    return vcombine_u8(vcreate_u8((uint64_t)low), vcreate_u8((uint64_t)high));
}

X86 __m128i _mm_set1_epi8(char x)
{
    return vdupq_n_u8((uint8_t)x);
}

X86 __m128i _mm_setr_epi16(short a, short b, short c, short d, short e, short f, short g, short h)
{
    return OF_S16(((int16x8_t){a, b, c, d, e, f, g, h}));
}

X86 __m128i _mm_and_si128(__m128i a, __m128i b)
{
    return vandq_u8(a, b);
}

X86 __m128i _mm_srli_epi16(__m128i a, const int n)
{
    return OF_U16((uint16x8_t)a >> n);
}

X86 __m128i _mm_add_epi32(__m128i a, __m128i b)
{
    return OF_U32(vaddq_u32(U32(a), U32(b)));
}

X86 __m128i _mm_unpacklo_epi8(__m128i a, __m128i b)
{
    return vzip1q_u8(a, b);
}

X86 __m128i _mm_packus_epi32(__m128i a, __m128i b)
{
    return OF_U16(vcombine_u16(vqmovun_s32(S32(a)), vqmovun_s32(S32(b))));
}

X86 __m128i _mm_packs_epi16(__m128i a, __m128i b)
{
    return OF_S8(vcombine_s8(vqmovn_s16(S16(a)), vqmovn_s16(S16(b))));
}

X86 int _mm_cvtsi128_si32(__m128i a)
{
    return vgetq_lane_s32(S32(a), 0);
}

#define _mm_shuffle_epi32(a, at)                                                                   \
    OF_U32(__builtin_shufflevector(U32(a), U32(a), (at)&3, (at) >> 2 & 3, (at) >> 4 & 3,           \
                                   (at) >> 6 & 3))

X86 __m128 _mm_add_ps(__m128 a, __m128 b)
{
    return vaddq_f32(a, b);
}

/* b where neither is larger, as with NaN. */
X86 __m128 _mm_max_ps(__m128 a, __m128 b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

X86 __m128 _mm_add_ss(__m128 a, __m128 b)
{
    return vcopyq_laneq_f32(a, 0, vaddq_f32(a, b), 0);
}

X86 __m128 _mm_max_ss(__m128 a, __m128 b)
{
    return vcopyq_laneq_f32(a, 0, _mm_max_ps(a, b), 0);
}

X86 __m128 _mm_movehl_ps(__m128 a, __m128 b)
{
    return vcombine_f32(vget_high_f32(b), vget_high_f32(a));
}

X86 __m128 _mm_movehdup_ps(__m128 a)
{
    return vtrn2q_f32(a, a);
}

X86 float _mm_cvtss_f32(__m128 a)
{
    return vgetq_lane_f32(a, 0);
}

/* ---- constants, loads and stores ---- */

X86 __m256i both_of(uint8x16_t v)
{
    return (__m256i){v, v};
}

X86 __m256i _mm256_setzero_si256(void)
{
    return both_of(vdupq_n_u8(0));
}

X86 __m256i _mm256_set1_epi8(char x)
{
    return both_of(vdupq_n_u8((uint8_t)x));
}

X86 __m256i _mm256_set1_epi16(short x)
{
    return both_of(OF_S16(vdupq_n_s16(x)));
}

X86 __m256i _mm256_set1_epi32(int x)
{
    return both_of(OF_S32(vdupq_n_s32(x)));
}

X86 __m256i _mm256_set1_epi64x(long long x)
{
    return both_of(OF_U64(vdupq_n_u64((uint64_t)x)));
}

#define _mm256_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...)                      \
    ((__m256i){OF_S8(((int8x16_t){a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p})),               \
               OF_S8(((int8x16_t){__VA_ARGS__}))})
#define _mm256_setr_epi16(a, b, c, d, e, f, g, h, ...)                                             \
    ((__m256i){OF_S16(((int16x8_t){a, b, c, d, e, f, g, h})), OF_S16(((int16x8_t){__VA_ARGS__}))})
#define _mm256_setr_epi32(a, b, c, d, ...)                                                         \
    ((__m256i){OF_S32(((int32x4_t){a, b, c, d})), OF_S32(((int32x4_t){__VA_ARGS__}))})

X86 __m256i _mm256_setr_epi64x(long long a, long long b, long long c, long long d)
{
    return (__m256i){_mm_set_epi64x(b, a), _mm_set_epi64x(d, c)};
}

X86 __m256i _mm256_loadu_si256(const __m256i *p)
{
    const uint8_t *at = (const uint8_t *)p;
    return (__m256i){vld1q_u8(at), vld1q_u8(at + 16)};
}

X86 void _mm256_storeu_si256(__m256i *p, __m256i v)
{
    uint8_t *at = (uint8_t *)p;
    vst1q_u8(at, v.lo);
    vst1q_u8(at + 16, v.hi);
}

#define _mm256_load_si256  _mm256_loadu_si256
#define _mm256_store_si256 _mm256_storeu_si256

X86 __m256 _mm256_set1_ps(float x)
{
    return (__m256){vdupq_n_f32(x), vdupq_n_f32(x)};
}

X86 __m256 _mm256_setzero_ps(void)
{
    return _mm256_set1_ps(0);
}

X86 __m256 _mm256_loadu_ps(const float *p)
{
    const uint8_t *at = (const uint8_t *)p; /* any alignment */
    return (__m256){vreinterpretq_f32_u8(vld1q_u8(at)), vreinterpretq_f32_u8(vld1q_u8(at + 16))};
}

X86 void _mm256_storeu_ps(float *p, __m256 v)
{
    vst1q_f32(p, v.lo);
    vst1q_f32(p + 4, v.hi);
}

#define _mm256_stream_ps _mm256_storeu_ps

X86 void _mm_sfence(void)
{
    atomic_thread_fence(memory_order_release);
}

/* Lanes whose mask is not negative are not read, and are 0. */
X86 __m256 _mm256_maskload_ps(const float *p, __m256i mask)
{
    float v[8] = {0};
    int32_t use[8];
    if (vmaxvq_s32(vmaxq_s32(S32(mask.lo), S32(mask.hi))) < 0)
        return _mm256_loadu_ps(p);
    _mm256_storeu_si256((__m256i *)(void *)use, mask);
    for (int i = 0; i < 8; i++)
        if (use[i] < 0)
            memcpy(&v[i], (const uint8_t *)p + (size_t)i * sizeof v[i], sizeof v[i]);
    return _mm256_loadu_ps(v);
}

/* Lanes whose mask is not negative are not written. */
X86 void _mm256_maskstore_ps(float *p, __m256i mask, __m256 v)
{
    float from[8];
    int32_t use[8];
    if (vmaxvq_s32(vmaxq_s32(S32(mask.lo), S32(mask.hi))) < 0) {
        _mm256_storeu_ps(p, v);
        return;
    }
    _mm256_storeu_ps(from, v);
    _mm256_storeu_si256((__m256i *)(void *)use, mask);
    for (int i = 0; i < 8; i++)
        if (use[i] < 0)
            p[i] = from[i];
}

/* ---- halves and order of lanes ---- */

X86 __m128i _mm256_castsi256_si128(__m256i a)
{
    return a.lo;
}

X86 __m256i _mm256_castsi128_si256(__m128i a)
{
    return both_of(a);
}

X86 __m128i _mm256_extracti128_si256(__m256i a, const int half)
{
    return half == 0 ? a.lo : a.hi;
}

X86 __m256i _mm256_inserti128_si256(__m256i a, __m128i b, const int half)
{
    return half == 0 ? (__m256i){b, a.hi} : (__m256i){a.lo, b};
}

X86 __m256i _mm256_broadcastsi128_si256(__m128i a)
{
    return both_of(a);
}

X86 __m128 _mm256_castps256_ps128(__m256 a)
{
    return a.lo;
}

X86 __m128 _mm256_extractf128_ps(__m256 a, const int half)
{
    return half == 0 ? a.lo : a.hi;
}

X86 __m256 _mm256_castsi256_ps(__m256i a)
{
    return (__m256){vreinterpretq_f32_u8(a.lo), vreinterpretq_f32_u8(a.hi)};
}

X86 __m256i _mm256_castps_si256(__m256 a)
{
    return (__m256i){vreinterpretq_u8_f32(a.lo), vreinterpretq_u8_f32(a.hi)};
}

/* Half 0 and 1: of a; 2 and 3: of b. */
X86 uint8x16_t half_of(__m256i a, __m256i b, const int which)
{
    return which == 0 ? a.lo : which == 1 ? a.hi : which == 2 ? b.lo : b.hi;
}

X86 __m256i _mm256_permute2x128_si256(__m256i a, __m256i b, const int which)
{
    return (__m256i){half_of(a, b, which & 3), half_of(a, b, which >> 4 & 3)};
}

X86 __m256 _mm256_permute2f128_ps(__m256 a, __m256 b, const int which)
{
    return _mm256_castsi256_ps(
        _mm256_permute2x128_si256(_mm256_castps_si256(a), _mm256_castps_si256(b), which));
}

/* Per half: bytes of `table` by the low four bits of `at`; 0 where its bit 7 is set. */
X86 __m256i _mm256_shuffle_epi8(__m256i table, __m256i at)
{
    const uint8x16_t bits = vdupq_n_u8(0x8f);
    return (__m256i){vqtbl1q_u8(table.lo, vandq_u8(at.lo, bits)),
                     vqtbl1q_u8(table.hi, vandq_u8(at.hi, bits))};
}

#define _mm256_shuffle_epi32(a, at)                                                                \
    ((__m256i){_mm_shuffle_epi32((a).lo, at), _mm_shuffle_epi32((a).hi, at)})

#define X86_SHUFFLE_PS(a, b, at)                                                                   \
    __builtin_shufflevector(a, b, (at)&3, (at) >> 2 & 3, 4 + ((at) >> 4 & 3), 4 + ((at) >> 6 & 3))
#define _mm256_shuffle_ps(a, b, at)                                                                \
    ((__m256){X86_SHUFFLE_PS((a).lo, (b).lo, at), X86_SHUFFLE_PS((a).hi, (b).hi, at)})

#define _mm256_permute4x64_epi64(a, at)                                                            \
    ((__m256i){                                                                                    \
        OF_U64(__builtin_shufflevector(U64((a).lo), U64((a).hi), (at)&3, (at) >> 2 & 3)),          \
        OF_U64(__builtin_shufflevector(U64((a).lo), U64((a).hi), (at) >> 4 & 3, (at) >> 6 & 3))})

#define X86_BLEND_32(a, b, which)                                                                  \
    OF_U32(__builtin_shufflevector(U32(a), U32(b), ((which)&1) * 4, ((which) >> 1 & 1) * 4 + 1,    \
                                   ((which) >> 2 & 1) * 4 + 2, ((which) >> 3 & 1) * 4 + 3))
#define _mm256_blend_epi32(a, b, which)                                                            \
    ((__m256i){X86_BLEND_32((a).lo, (b).lo, which), X86_BLEND_32((a).hi, (b).hi, (which) >> 4)})

/* Bit i of `which`: 16-bit lane i of both halves is that of b. */
X86 uint8x16_t blend_16(uint8x16_t a, uint8x16_t b, const int which)
{
    const uint16x8_t bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return vbslq_u8(OF_U16(vtstq_u16(vdupq_n_u16((uint16_t)which), bit)), b, a);
}

X86 __m256i _mm256_blend_epi16(__m256i a, __m256i b, const int which)
{
    return (__m256i){blend_16(a.lo, b.lo, which), blend_16(a.hi, b.hi, which)};
}

/* Lane i: 32-bit lane at[i] of a. */
X86 __m256i _mm256_permutevar8x32_epi32(__m256i a, __m256i at)
{
    const uint8x16x2_t table = {{a.lo, a.hi}};
    uint32x4_t low = (U32(at.lo) & 7) * 0x04040404u + 0x03020100u;
    uint32x4_t high = (U32(at.hi) & 7) * 0x04040404u + 0x03020100u;
    return (__m256i){vqtbl2q_u8(table, OF_U32(low)), vqtbl2q_u8(table, OF_U32(high))};
}

X86 __m256 _mm256_permutevar8x32_ps(__m256 a, __m256i at)
{
    return _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(_mm256_castps_si256(a), at));
}

X86 __m256i _mm256_packs_epi32(__m256i a, __m256i b)
{
    return (__m256i){OF_S16(vcombine_s16(vqmovn_s32(S32(a.lo)), vqmovn_s32(S32(b.lo)))),
                     OF_S16(vcombine_s16(vqmovn_s32(S32(a.hi)), vqmovn_s32(S32(b.hi))))};
}

X86 __m256i _mm256_packus_epi16(__m256i a, __m256i b)
{
    return (__m256i){vcombine_u8(vqmovun_s16(S16(a.lo)), vqmovun_s16(S16(b.lo))),
                     vcombine_u8(vqmovun_s16(S16(a.hi)), vqmovun_s16(S16(b.hi)))};
}

/* ---- conversions ---- */

X86 __m256i _mm256_cvtepu8_epi16(__m128i a)
{
    return (__m256i){OF_U16(vmovl_u8(vget_low_u8(a))), OF_U16(vmovl_high_u8(a))};
}

X86 __m256i _mm256_cvtepi8_epi16(__m128i a)
{
    return (__m256i){OF_S16(vmovl_s8(vget_low_s8(S8(a)))), OF_S16(vmovl_high_s8(S8(a)))};
}

X86 __m256i _mm256_cvtepu16_epi32(__m128i a)
{
    return (__m256i){OF_U32(vmovl_u16(vget_low_u16(U16(a)))), OF_U32(vmovl_high_u16(U16(a)))};
}

X86 __m256i _mm256_cvtepi16_epi32(__m128i a)
{
    return (__m256i){OF_S32(vmovl_s16(vget_low_s16(S16(a)))), OF_S32(vmovl_high_s16(S16(a)))};
}

X86 __m256i _mm256_cvtepu8_epi32(__m128i a)
{
    return _mm256_cvtepu16_epi32(OF_U16(vmovl_u8(vget_low_u8(a))));
}

X86 __m256i _mm256_cvtepi8_epi32(__m128i a)
{
    return _mm256_cvtepi16_epi32(OF_S16(vmovl_s8(vget_low_s8(S8(a)))));
}

X86 __m256 _mm256_cvtepi32_ps(__m256i a)
{
    return (__m256){vcvtq_f32_s32(S32(a.lo)), vcvtq_f32_s32(S32(a.hi))};
}

/* To the nearest, ties to even. */
X86 __m256i _mm256_cvtps_epi32(__m256 a)
{
    return (__m256i){OF_S32(vcvtnq_s32_f32(a.lo)), OF_S32(vcvtnq_s32_f32(a.hi))};
}

X86 __m256 _mm256_cvtph_ps(__m128i a)
{
    const float16x8_t h = vreinterpretq_f16_u8(a);
    return (__m256){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}

X86 __m128i _mm256_cvtps_ph(__m256 a, const int rounding)
{
    (void)rounding;
    return vreinterpretq_u8_f16(vcombine_f16(vcvt_f16_f32(a.lo), vcvt_f16_f32(a.hi)));
}

/* ---- floats ---- */

#define X86_OF_FLOATS(NAME, op)                                                                    \
    X86 __m256 NAME(__m256 a, __m256 b)                                                            \
    {                                                                                              \
        return (__m256){op(a.lo, b.lo), op(a.hi, b.hi)};                                           \
    }
X86_OF_FLOATS(_mm256_add_ps, vaddq_f32)
X86_OF_FLOATS(_mm256_sub_ps, vsubq_f32)
X86_OF_FLOATS(_mm256_mul_ps, vmulq_f32)
X86_OF_FLOATS(_mm256_div_ps, vdivq_f32)
X86_OF_FLOATS(_mm256_hadd_ps, vpaddq_f32)
X86_OF_FLOATS(_mm256_max_ps, _mm_max_ps)

/* b where neither is smaller, as with NaN. */
X86 __m256 _mm256_min_ps(__m256 a, __m256 b)
{
    return (__m256){vbslq_f32(vcltq_f32(a.lo, b.lo), a.lo, b.lo),
                    vbslq_f32(vcltq_f32(a.hi, b.hi), a.hi, b.hi)};
}

X86 __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c)
{
    return (__m256){vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}

X86 __m256 _mm256_fnmadd_ps(__m256 a, __m256 b, __m256 c)
{
    return (__m256){vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}

X86 __m256 _mm256_andnot_ps(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

X86 __m256 _mm256_round_ps(__m256 a, const int rounding)
{
    (void)rounding; /* to the nearest, ties to even */
    return (__m256){vrndnq_f32(a.lo), vrndnq_f32(a.hi)};
}

/* Lanes of b where the mask is negative. */
X86 __m256 _mm256_blendv_ps(__m256 a, __m256 b, __m256 mask)
{
    return (__m256){vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(mask.lo)), b.lo, a.lo),
                    vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(mask.hi)), b.hi, a.hi)};
}

X86 float _mm256_cvtss_f32(__m256 a)
{
    return vgetq_lane_f32(a.lo, 0);
}

#endif
