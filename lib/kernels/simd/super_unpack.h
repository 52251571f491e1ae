/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by super.h: unpack steps of super-blocks of 256, in vectors of 32 bytes. The
 * blocks are described in lib/tensor/unpack/k_quants.c, iq.c and ternary.c. A type is a row of
 * SUPER_TYPES, its properties, and a function. */

/* one kind per line: */
/* clang-format off */
#define SUPER_TYPES(X)                                                                             \
    X(Q4_K) X(Q6_K) X(Q5_K) X(Q3_K) X(Q2_K) X(IQ4_XS) /* codes or numbers of values */             \
    X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) /* points of grids */                        \
    X(IQ1_S) X(IQ1_M) X(TQ1_0) X(TQ2_0)
/* clang-format on */

#define NO_OFFSET (-1)

/* Wide types have another order: q[2 i] has elements 0 to 15 of sub-blocks 2 i and 2 i + 1, q[2 i +
 * 1] has elements 16 to 31; scale has int32 lanes of sub-blocks 0, 2, 4, 6, 1, 3, 5 and 7. Their
 * codes are signed or, with VECTOR_FOURS, have an offset of 128. */
struct super_codes {
    __m256i q[8];      /* codes plus offset, in order */
    __m256i scale;     /* int16 per 16 elements */
    __m256i min;       /* the same, of types with minimums */
    __m256i spread[8]; /* scale for each pair of elements of q[i] */
};

struct super_type {
    enum tensor_type type;
    uint32_t bytes;
    size_t d_at, dmin_at;
    float d_factor;  /* a power of two */
    int offset_bits; /* offset = 1 << offset_bits; with it, codes are at most 127 */
    bool minimums;
    bool wide;     /* codes are of eight bits, at least -127; sub-blocks of 32 */
    int sub;       /* elements of a sub-block, 16 or 32: they have one scale */
    int code_bits; /* of codes plus offset */
};

static ALWAYS_INLINE __m256i bytes_at(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static ALWAYS_INLINE __m256i masked(__m256i v, char mask)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(mask));
}

/* Bits `from` and from + 1 of every byte. */
static ALWAYS_INLINE __m256i two_bits(__m256i v, const int from)
{
    return masked(_mm256_srli_epi16(v, from), 3);
}

/* Bit `bit` of every byte, moved to bit `to`. */
static ALWAYS_INLINE __m256i one_bit(__m256i v, const int bit, const int to)
{
    v = bit < to ? _mm256_slli_epi16(v, to - bit) : _mm256_srli_epi16(v, bit - to);
    return masked(v, (char)(1 << to));
}

/* Eight bytes, each for two times 16 elements. */
static ALWAYS_INLINE __m256i eight_twice(uint64_t bytes)
{
    __m128i v = _mm_cvtsi64_si128((long long)bytes);
    return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(v, v));
}

/* Six bits of eight scales and eight minimums in 12 bytes. */
static ALWAYS_INLINE void six_bits(const uint8_t *p, struct super_codes *c)
{
    const uint32_t low = 0x0f0f0f0fu, six = 0x3f3f3f3fu, high = 0x30303030u;
    uint32_t a = load_u32(p), b = load_u32(p + 4), e = load_u32(p + 8);
    uint64_t s = (e & low) | (a >> 2 & high), m = (e >> 4 & low) | (b >> 2 & high);
    c->scale = eight_twice(s << 32 | (a & six));
    c->min = eight_twice(m << 32 | (b & six));
}

static ALWAYS_INLINE void nibbles_of(const uint8_t *p, struct super_codes *c)
{
    UNROLL for (int g = 0; g < 4; g++)
    {
        __m256i v = bytes_at(p + 32 * g);
        c->q[2 * g] = masked(v, 15);
        c->q[2 * g + 1] = masked(_mm256_srli_epi16(v, 4), 15);
    }
}

static ALWAYS_INLINE void super_unpack_Q4_K(const uint8_t *p, struct super_codes *c)
{
    six_bits(p + 4, c);
    nibbles_of(p + 16, c);
}

static ALWAYS_INLINE void super_unpack_Q5_K(const uint8_t *p, struct super_codes *c)
{
    __m256i fifth = bytes_at(p + 16);
    six_bits(p + 4, c);
    nibbles_of(p + 48, c);
    UNROLL for (int v = 0; v < 8; v++) c->q[v] = _mm256_or_si256(c->q[v], one_bit(fifth, v, 4));
}

static ALWAYS_INLINE void super_unpack_Q6_K(const uint8_t *p, struct super_codes *c)
{
    UNROLL for (int g = 0; g < 2; g++)
    {
        __m256i a = bytes_at(p + 64 * g), b = bytes_at(p + 64 * g + 32);
        __m256i high = bytes_at(p + 128 + 32 * g);
        __m256i low[4] = {masked(a, 15), masked(b, 15), masked(_mm256_srli_epi16(a, 4), 15),
                          masked(_mm256_srli_epi16(b, 4), 15)};
        UNROLL for (int i = 0; i < 4; i++) c->q[4 * g + i] =
            _mm256_or_si256(low[i], _mm256_slli_epi16(two_bits(high, 2 * i), 4));
    }
    c->scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + 192)));
}

static ALWAYS_INLINE void super_unpack_Q3_K(const uint8_t *p, struct super_codes *c)
{
    const uint64_t low = 0x0f0f0f0f0f0f0f0fu;
    const uint32_t two = 0x03030303u;
    __m256i third = bytes_at(p);
    UNROLL for (int g = 0; g < 2; g++)
    {
        __m256i v = bytes_at(p + 32 + 32 * g);
        UNROLL for (int i = 0; i < 4; i++) c->q[4 * g + i] =
            _mm256_or_si256(two_bits(v, 2 * i), one_bit(third, 4 * g + i, 2));
    }
    uint64_t nibbles = load_u64(p + 96);
    uint32_t h = load_u32(p + 104);
    uint64_t first = (uint64_t)(h >> 2 & two) << 32 | (h & two);
    uint64_t second = (uint64_t)(h >> 6 & two) << 32 | (h >> 4 & two);
    __m128i s = _mm_set_epi64x((long long)((nibbles >> 4 & low) | second << 4),
                               (long long)((nibbles & low) | first << 4));
    c->scale = _mm256_sub_epi16(_mm256_cvtepu8_epi16(s), _mm256_set1_epi16(32));
}

static ALWAYS_INLINE void super_unpack_Q2_K(const uint8_t *p, struct super_codes *c)
{
    __m256i s = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    UNROLL for (int g = 0; g < 2; g++)
    {
        __m256i v = bytes_at(p + 16 + 32 * g);
        UNROLL for (int i = 0; i < 4; i++) c->q[4 * g + i] = two_bits(v, 2 * i);
    }
    c->scale = _mm256_and_si256(s, _mm256_set1_epi16(15));
    c->min = _mm256_srli_epi16(s, 4);
}

/* Eight nibbles in bytes, the lowest first. */
static ALWAYS_INLINE uint64_t spread_nibbles(uint32_t nibbles)
{
    uint64_t x = nibbles;
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

/* Signed codes in the form of those of wide types. */
static ALWAYS_INLINE __m256i super_wide_codes(__m256i v)
{
#ifdef VECTOR_FOURS
    v = _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
#endif
    return v;
}

/* A wide type. */
static ALWAYS_INLINE void super_unpack_IQ4_XS(const uint8_t *p, struct super_codes *c)
{
    const __m256i low_at = _mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28);
    const __m256i high_at = _mm256_setr_epi32(12, 16, 20, 24, 14, 18, 22, 26);
    const __m256i table = super_wide_codes(_mm256_broadcastsi128_si256(
        _mm_loadu_si128((const __m128i *)(const void *)unpack_iq4_values)));
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(p + 4)), low_at);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(p)), high_at);
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_and_si256(high, _mm256_set1_epi32(48)); /* at the place of bits 4 and 5 */
    c->scale = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
    UNROLL for (int v = 0; v < 8; v += 2)
    {
        __m256i n = bytes_at(p + 8 + 16 * v);
        c->q[v] = _mm256_shuffle_epi8(table, masked(n, 15));
        c->q[v + 1] = _mm256_shuffle_epi8(table, masked(_mm256_srli_epi16(n, 4), 15));
    }
}

#include "lib/kernels/simd/super_grids.h"

/* SUPER_TYPE(NAME, bytes, offset of d, of dmin, factor of d, bits of offset, minimums, wide,
 * elements of a sub-block, bits of a code plus offset) */
#define SUPER_TYPE(NAME, ...)                                                                      \
    static const struct super_type super_type_##NAME = {TENSOR_##NAME, __VA_ARGS__};
SUPER_TYPE(Q4_K, 144, 0, 2, 1, NO_OFFSET, true, false, 32, 4)
SUPER_TYPE(Q5_K, 176, 0, 2, 1, NO_OFFSET, true, false, 32, 5)
SUPER_TYPE(Q6_K, 210, 208, 0, 1, 5, false, false, 16, 6)
SUPER_TYPE(Q3_K, 110, 108, 0, 1, 2, false, false, 16, 3)
SUPER_TYPE(Q2_K, 84, 80, 82, 1, NO_OFFSET, true, false, 16, 2)
SUPER_TYPE(IQ4_XS, 136, 0, 0, 1, NO_OFFSET, false, true, 32, 8)
SUPER_TYPE(IQ2_XXS, 66, 0, 0, 0.125f, 6, false, false, 32, 7)
SUPER_TYPE(IQ2_XS, 74, 0, 0, 0.125f, 6, false, false, 16, 7)
SUPER_TYPE(IQ2_S, 82, 0, 0, 0.125f, 6, false, false, 16, 7)
SUPER_TYPE(IQ3_XXS, 98, 0, 0, 0.25f, 6, false, false, 32, 7)
SUPER_TYPE(IQ3_S, 110, 0, 0, 1, 6, false, false, 32, 7)
SUPER_TYPE(IQ1_S, 50, 0, 0, 0.125f, 6, false, false, 32, 7)
SUPER_TYPE(IQ1_M, 56, 0, 0, 0.125f, 6, false, false, 16, 7) /* d: iq1_m_scale */
SUPER_TYPE(TQ1_0, 54, 52, 0, 1, 0, false, false, 32, 2)
SUPER_TYPE(TQ2_0, 66, 64, 0, 1, 0, false, false, 32, 2)

/* Scale of 16 elements 2 v and 2 v + 1 in all words of the low and of the high half. */
static ALWAYS_INLINE __m256i spread_scale(__m256i twice, const int v)
{
    const short low = (short)(0x0100 + 0x0202 * (2 * v)), high = (short)(low + 0x0202);
    return _mm256_shuffle_epi8(twice,
                               _mm256_setr_epi16(low, low, low, low, low, low, low, low, high, high,
                                                 high, high, high, high, high, high));
}

/* All but `spread`. */
static ALWAYS_INLINE void super_codes_at(const struct super_type t, const uint8_t *p,
                                         struct super_codes *c)
{
    switch (t.type) {
#define SUPER_UNPACK(NAME)                                                                         \
    case TENSOR_##NAME: super_unpack_##NAME(p, c); break;
        SUPER_TYPES(SUPER_UNPACK)
    default: break;
    }
}

static ALWAYS_INLINE void super_unpack(const struct super_type t, const uint8_t *p,
                                       struct super_codes *c)
{
    super_codes_at(t, p, c);
    __m256i first = _mm256_permute2x128_si256(c->scale, c->scale, 0x00);
    __m256i second = _mm256_permute2x128_si256(c->scale, c->scale, 0x11);
    UNROLL for (int v = 0; v < 4; v++)
    {
        c->spread[v] = spread_scale(first, v);
        c->spread[4 + v] = spread_scale(second, v);
    }
}
