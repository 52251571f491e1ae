/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by super.c: unpack steps of super-blocks of 256, in vectors of 64 bytes.
 * Common types have their own, the others that of simd/super_unpack.h. The blocks are described in
 * lib/tensor/unpack/k_quants.c and iq.c. */
#include "lib/kernels/simd/super_unpack.h"

#define SUPER_VECTORS (SUPER / 64)
#define SUPER_UNITS   (SUPER / 16)

/* Unit i of the 16 elements is number order[i] of the super-block: a type's own step leaves the
 * elements in the order in which they are unpacked, and the activations are brought into the same
 * order. */
struct super_wide {
    __m512i q[SUPER_VECTORS]; /* codes plus offset (wide_offset_bits), unsigned */
    __m128i scale;            /* per unit */
};

/* Types with a step of their own, and their order. */
#define SUPER_WIDE_TYPES(X)                                                                        \
    X(Q4_K, order_nibbles)                                                                         \
    X(Q5_K, order_nibbles) X(Q6_K, order_natural) X(IQ4_XS, order_halves)

static const uint8_t order_natural[SUPER_UNITS] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
/* Low nibbles of 64 bytes, then the high ones, which belong to the next 32 elements. */
static const uint8_t order_nibbles[SUPER_UNITS] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                   8, 9, 12, 13, 10, 11, 14, 15};
/* Low nibbles of 16 bytes, then the high ones, which belong to the next 16 elements. */
static const uint8_t order_halves[SUPER_UNITS] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                  8, 10, 12, 14, 9, 11, 13, 15};

static ALWAYS_INLINE const uint8_t *wide_order(const struct super_type t)
{
    switch (t.type) {
#define SUPER_ORDER(NAME, order)                                                                   \
    case TENSOR_##NAME: return order;
        SUPER_WIDE_TYPES(SUPER_ORDER)
    default: return order_natural;
    }
}

/* By how much codes are larger than elements, as a shift. */
static ALWAYS_INLINE int wide_offset_bits(const struct super_type t)
{
    return t.wide ? 7 : t.offset_bits;
}

/* Nibbles of two times 64 bytes. */
static ALWAYS_INLINE void wide_nibbles(const uint8_t *p, struct super_wide *w)
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m512i v = vq_load(p + 64 * i);
        w->q[2 * i] = vq_low_nibbles(v);
        w->q[2 * i + 1] = vq_high_nibbles(v);
    }
}

/* Eight scales of six bits in 12 bytes, in the order of order_nibbles. */
static ALWAYS_INLINE __m128i wide_six_bits(const uint8_t *p)
{
    const __m128i twice = _mm_setr_epi8(0, 0, 2, 2, 1, 1, 3, 3, 4, 4, 6, 6, 5, 5, 7, 7);
    uint32_t a = load_u32(p), e = load_u32(p + 8);
    uint64_t s = (e & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
    return _mm_shuffle_epi8(_mm_cvtsi64_si128((long long)(s << 32 | (a & 0x3f3f3f3fu))), twice);
}

static ALWAYS_INLINE void wide_Q4_K(const uint8_t *p, struct super_wide *w)
{
    w->scale = wide_six_bits(p + 4);
    wide_nibbles(p + 16, w);
}

static ALWAYS_INLINE void wide_Q5_K(const uint8_t *p, struct super_wide *w)
{
    const __m512i fifth = _mm512_broadcast_i64x4(bytes_at(p + 16)), bit = vq_set1(0x10);
    w->scale = wide_six_bits(p + 4);
    wide_nibbles(p + 48, w);
    UNROLL for (int v = 0; v < SUPER_VECTORS; v++)
    {
        /* of sub-block s bit s, in the low half of sub-block s and in the high half of s + 2 */
        const int s = v / 2 * 4 + v % 2;
        const __m512i up = _mm512_inserti64x4(_mm512_set1_epi16((short)(s < 4 ? 4 - s : 0)),
                                              _mm256_set1_epi16((short)(s + 2 < 4 ? 2 - s : 0)), 1);
        const __m512i down =
            _mm512_inserti64x4(_mm512_set1_epi16((short)(s > 4 ? s - 4 : 0)),
                               _mm256_set1_epi16((short)(s + 2 > 4 ? s - 2 : 0)), 1);
        __m512i moved = _mm512_srlv_epi16(_mm512_sllv_epi16(fifth, up), down);
        w->q[v] = _mm512_ternarylogic_epi64(w->q[v], moved, bit, 0xf8); /* q | (moved & bit) */
    }
}

static ALWAYS_INLINE void wide_Q6_K(const uint8_t *p, struct super_wide *w)
{
    const __m512i bits = vq_set1(0x30);
    const __m512i up = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    const __m512i down = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
    UNROLL for (int g = 0; g < 2; g++)
    {
        __m512i low = vq_load(p + 64 * g);
        __m512i high = _mm512_broadcast_i64x4(bytes_at(p + 128 + 32 * g));
        w->q[2 * g] =
            _mm512_ternarylogic_epi64(vq_low_nibbles(low), _mm512_sllv_epi16(high, up), bits, 0xf8);
        w->q[2 * g + 1] = _mm512_ternarylogic_epi64(vq_high_nibbles(low),
                                                    _mm512_srlv_epi16(high, down), bits, 0xf8);
    }
    w->scale = _mm_loadu_si128((const __m128i *)(const void *)(p + 192));
}

static ALWAYS_INLINE void wide_IQ4_XS(const uint8_t *p, struct super_wide *w)
{
    const __m512i table = vq_wide(vq_repeat(unpack_iq4_values));
    const __m128i twice = _mm_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7);
    uint64_t high = load_u16(p + 2);
    high = (high | high << 24) & 0x000000ff000000ffu;
    high = (high | high << 12) & 0x000f000f000f000fu;
    high = (high | high << 6) & 0x0303030303030303u;
    __m128i scale = _mm_cvtsi64_si128((long long)(spread_nibbles(load_u32(p + 4)) | high << 4));
    w->scale = _mm_shuffle_epi8(_mm_sub_epi8(scale, _mm_set1_epi8(32)), twice);
    wide_nibbles(p + 8, w);
    UNROLL for (int v = 0; v < SUPER_VECTORS; v++) w->q[v] = vq_lookup(table, w->q[v]);
}

/* A type without a step of its own; `codes` is its super-block. */
static ALWAYS_INLINE void wide_codes(const struct super_codes *codes, struct super_wide *w)
{
    UNROLL for (int v = 0; v < SUPER_VECTORS; v++)
    {
        w->q[v] =
            _mm512_inserti64x4(_mm512_castsi256_si512(codes->q[2 * v]), codes->q[2 * v + 1], 1);
    }
    w->scale = _mm256_cvtepi16_epi8(codes->scale);
}

/* Eight minimums of six bits in 12 bytes, in pairs of 16 bits. */
static ALWAYS_INLINE __m128i six_bits_minimums(const uint8_t *p)
{
    uint32_t b = load_u32(p + 4), e = load_u32(p + 8);
    uint64_t m = (e >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    return _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)(m << 32 | (b & 0x3f3f3f3fu))));
}

/* Unpacks a super-block; of types with minimums, these in pairs of sub-blocks. */
static ALWAYS_INLINE void wide_unpack(const struct super_type t, const uint8_t *p,
                                      struct super_wide *w, int32_t *pair)
{
    switch (t.type) {
#define SUPER_WIDE(NAME, order)                                                                    \
    case TENSOR_##NAME: wide_##NAME(p, w); break;
        SUPER_WIDE_TYPES(SUPER_WIDE)
    default: {
        struct super_codes codes;
        sl_assert(!t.wide); /* their codes are in another order */
        super_codes_at(t, p, &codes);
        wide_codes(&codes, w);
        if (t.minimums) /* of sub-blocks of 16 */
            _mm256_storeu_si256((__m256i *)(void *)pair, codes.min);
        return;
    }
    }
    if (t.minimums)
        _mm_storeu_si128((__m128i *)(void *)pair, six_bits_minimums(p + 4));
}
