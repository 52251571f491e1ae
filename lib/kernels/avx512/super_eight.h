/* SPDX-License-Identifier: Apache-2.0 */
/* One row of activations (decode) with super-blocks of 256: dot products of eight outputs in vectors of 64
 * bytes, for the types whose codes unpack without a table. A vector of codes holds two or four sub-blocks;
 * the activations are put in the same order, once for the eight outputs. */
#ifndef SLUICE_KERNELS_AVX512_SUPER_EIGHT_H
#define SLUICE_KERNELS_AVX512_SUPER_EIGHT_H

#include "lib/kernels/avx512/bytes.h"

#define EIGHT 8

/* A super-block of the activations. */
struct eight_row {
    __m512i x[4]; /* in the order of the codes */
    __m256i sums; /* of 16 elements, int16; with minimums of 32 elements, int32 */
};

/* The same super-block of eight outputs. */
struct eight {
    __m256i dot, low;        /* dot products of the codes, and of the minimums */
    __m256 scale, scale_low; /* their factors */
};

static ALWAYS_INLINE __m256i eight_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* `low` in the words of the low half, `high` in those of the high half. */
static ALWAYS_INLINE __m512i eight_halves_of(const short low, const short high)
{
    return _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
}

/* In every 128-bit piece: the sums of the four lanes of the pieces of a, b, c and d. */
static ALWAYS_INLINE __m512i eight_add_four(const __m512i a[4])
{
    __m512i ab =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
    __m512i cd =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Pieces 0 and 1 added, then pieces 2 and 3. */
static ALWAYS_INLINE __m256i eight_add_halves(__m512i v)
{
    __m512i even = _mm512_shuffle_i64x2(v, v, _MM_SHUFFLE(2, 0, 2, 0));
    __m512i odd = _mm512_shuffle_i64x2(v, v, _MM_SHUFFLE(3, 1, 3, 1));
    return _mm512_castsi512_si256(_mm512_add_epi32(even, odd));
}

/* Lane i: the sum of the lanes of a[i]. */
static ALWAYS_INLINE __m256i eight_join(const __m512i a[EIGHT])
{
    __m512i first = eight_add_four(a), last = eight_add_four(a + 4);
    __m512i even = _mm512_shuffle_i64x2(first, last, _MM_SHUFFLE(2, 0, 2, 0));
    __m512i odd = _mm512_shuffle_i64x2(first, last, _MM_SHUFFLE(3, 1, 3, 1));
    return eight_add_halves(_mm512_add_epi32(even, odd));
}

static ALWAYS_INLINE __m512i eight_add(__m512i sum, __m512i codes, __m512i x, __m512i scale)
{
    return _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(codes, x), scale);
}

/* ---- Q4_K and Q5_K: the nibbles of a vector are sub-blocks n and n + 2, then n + 1 and n + 3 ---- */

static ALWAYS_INLINE struct eight_row eight_row_of_nibbles(const int8_t *x, const uint8_t *sums)
{
    struct eight_row r;
    UNROLL for (int v = 0; v < 4; v++)
    {
        const int8_t *p = x + v / 2 * 128 + v % 2 * 32;
        r.x[v] = _mm512_inserti64x4(_mm512_castsi256_si512(eight_load(p)), eight_load(p + 64), 1);
    }
    r.sums = _mm256_madd_epi16(eight_load(sums), _mm256_set1_epi16(1));
    return r;
}

/* Byte `sub` of the scales in all words of the low half, sub + 2 in those of the high half. */
static ALWAYS_INLINE __m512i eight_spread(__m512i scales, const int sub)
{
    return _mm512_shuffle_epi8(scales,
                               eight_halves_of((short)(0x8000 + sub), (short)(0x8002 + sub)));
}

/* Sixteen where bit `sub` (low half) or sub + 2 (high half) is set. */
static ALWAYS_INLINE __m512i eight_fifth(__m512i codes, __m512i bits, const int sub)
{
    const short low = (short)(0x101 << sub), high = (short)(0x404 << sub);
    __mmask64 set = _mm512_test_epi8_mask(bits, eight_halves_of(low, high));
    return _mm512_mask_add_epi8(codes, set, codes, _mm512_set1_epi8(16));
}

/* What eight super-blocks start with: d, dmin, and six bits of eight scales and eight minimums, in bytes. */
struct eight_heads {
    _Alignas(64) uint64_t scale[EIGHT], minimum[EIGHT];
    __m256i halves; /* d, and above it dmin */
};

/* Words `at` of the super-blocks (of four in a, of four in b), each twice. */
static ALWAYS_INLINE __m512i eight_twice_words(__m512i a, __m512i b, const int at)
{
    const __m512i first =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    return _mm512_permutex2var_epi32(a, _mm512_add_epi32(first, _mm512_set1_epi32(at)), b);
}

/* In even words the low six bits of the bytes of `low`; in odd ones bits 6 and 7 of them, moved above the
 * low four bits of the bytes of `high`. */
static ALWAYS_INLINE __m512i eight_six_of(__m512i low, __m512i high)
{
    const __m512i of_low = _mm512_set1_epi64(0x303030303f3f3f3f);
    const __m512i of_high = _mm512_set1_epi64(0x0f0f0f0f00000000);
    low = _mm512_and_si512(_mm512_srlv_epi32(low, _mm512_set1_epi64(0x200000000)), of_low);
    return _mm512_ternarylogic_epi32(low, high, of_high, 0xf8); /* low | (high & of_high) */
}

static ALWAYS_INLINE void eight_heads_of(const uint8_t *const row[EIGHT], size_t at,
                                         struct eight_heads *h)
{
    const uint8_t *const first[PIECES] = {row[0] + at, row[1] + at, row[2] + at, row[3] + at};
    const uint8_t *const last[PIECES] = {row[4] + at, row[5] + at, row[6] + at, row[7] + at};
    __m512i a = vq_pieces(first), b = vq_pieces(last), high = eight_twice_words(a, b, 3);
    vq_store(h->scale, eight_six_of(eight_twice_words(a, b, 1), high));
    vq_store(h->minimum, eight_six_of(eight_twice_words(a, b, 2), _mm512_srli_epi32(high, 4)));
    h->halves = _mm512_cvtepi64_epi32(eight_twice_words(a, b, 0));
}

/* The F16 numbers in the low halves of the lanes. */
static ALWAYS_INLINE __m256 eight_low_halves(__m256i v)
{
    return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(v));
}

/* One output. codes: its nibbles; fifth: their fifth bits, or NULL; scale: eight bytes. */
static ALWAYS_INLINE __m512i eight_nibbles(const uint8_t *codes, const uint8_t *fifth,
                                           uint64_t scale, const struct eight_row *r)
{
    __m512i scales = _mm512_set1_epi64((long long)scale), sum = _mm512_setzero_si512();
    __m512i bits = sum;
    if (fifth)
        bits = _mm512_broadcast_i64x4(eight_load(fifth));
    UNROLL for (int v = 0; v < 4; v++)
    {
        const int sub = v / 2 * 4 + v % 2;
        __m512i q = vq_load(codes + v / 2 * 64);
        q = v % 2 == 0 ? vq_low_nibbles(q) : vq_high_nibbles(q);
        if (fifth)
            q = eight_fifth(q, bits, sub);
        sum = eight_add(sum, q, r->x[v], eight_spread(scales, sub));
    }
    return sum;
}

static ALWAYS_INLINE __m256i eight_minimums(uint64_t minimum, const struct eight_row *r)
{
    __m128i bytes = _mm_loadu_si64(&minimum);
    return _mm256_madd_epi16(_mm256_cvtepu8_epi32(bytes), r->sums);
}

static ALWAYS_INLINE struct eight eight_of_nibbles(const bool five, const uint8_t *const row[EIGHT],
                                                   size_t at, const int8_t *x, const uint8_t *sums)
{
    __m512i dot[EIGHT], low[EIGHT / 2];
    const struct eight_row r = eight_row_of_nibbles(x, sums);
    struct eight_heads h;
    eight_heads_of(row, at, &h);
    UNROLL for (int i = 0; i < EIGHT; i++)
    {
        const uint8_t *p = row[i] + at;
        dot[i] = eight_nibbles(p + (five ? 48 : 16), five ? p + 16 : NULL, h.scale[i], &r);
    }
    UNROLL for (int i = 0; i < EIGHT / 2; i++) low[i] =
        _mm512_inserti64x4(_mm512_castsi256_si512(eight_minimums(h.minimum[i], &r)),
                           eight_minimums(h.minimum[i + 4], &r), 1);
    return (struct eight){.dot = eight_join(dot),
                          .low = eight_add_halves(eight_add_four(low)),
                          .scale = eight_low_halves(h.halves),
                          .scale_low = eight_low_halves(_mm256_srli_epi32(h.halves, 16))};
}

/* ---- Q6_K: in the order of the elements ---- */

static ALWAYS_INLINE struct eight_row eight_row_in_order(const int8_t *x, const uint8_t *sums)
{
    struct eight_row r = {.sums = eight_load(sums)};
    UNROLL for (int v = 0; v < 4; v++) r.x[v] = vq_load(x + 64 * v);
    return r;
}

/* (a & 15) | (b & 0x30) in every byte. */
static ALWAYS_INLINE __m512i eight_six_bits(__m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi32(vq_low_nibbles(a), b, _mm512_set1_epi8(0x30), 0xf8);
}

static ALWAYS_INLINE __m512i eight_q6(const uint8_t *p, const struct eight_row *r)
{
    __m256i scale = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + 192)));
    __m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(scale, r->sums), 5);
    __m512i scales = _mm512_castsi256_si512(scale);
    __m512i sum = _mm512_zextsi256_si512(_mm256_sub_epi32(_mm256_setzero_si256(), offset));
    UNROLL for (int v = 0; v < 4; v++)
    {
        __m512i q = vq_load(p + v / 2 * 64);
        __m512i high = _mm512_broadcast_i64x4(eight_load(p + 128 + v / 2 * 32));
        if (v % 2 == 0) {
            q = eight_six_bits(q, _mm512_sllv_epi16(high, eight_halves_of(4, 2)));
        } else {
            q = eight_six_bits(_mm512_srli_epi16(q, 4),
                               _mm512_srlv_epi16(high, eight_halves_of(0, 2)));
        }
        __m512i first = _mm512_set1_epi16((short)(4 * v)); /* of the four scales: one per piece */
        __m512i at = _mm512_add_epi16(
            first, _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002,
                                     0x2000200020002, 0x3000300030003, 0x3000300030003));
        sum = eight_add(sum, q, r->x[v], _mm512_permutexvar_epi16(at, scales));
    }
    return sum;
}

/* d of the super-blocks, F16. */
static ALWAYS_INLINE __m256 eight_d(const uint8_t *const row[EIGHT], size_t at)
{
    const uint8_t *const p[EIGHT] = {row[0] + at, row[1] + at, row[2] + at, row[3] + at,
                                     row[4] + at, row[5] + at, row[6] + at, row[7] + at};
    return _mm256_cvtph_ps(_mm_setr_epi16((short)load_u16(p[0]), (short)load_u16(p[1]),
                                          (short)load_u16(p[2]), (short)load_u16(p[3]),
                                          (short)load_u16(p[4]), (short)load_u16(p[5]),
                                          (short)load_u16(p[6]), (short)load_u16(p[7])));
}

static ALWAYS_INLINE struct eight eight_of_q6(const uint8_t *const row[EIGHT], size_t at,
                                              const int8_t *x, const uint8_t *sums)
{
    __m512i dot[EIGHT];
    const struct eight_row r = eight_row_in_order(x, sums);
    UNROLL for (int i = 0; i < EIGHT; i++) dot[i] = eight_q6(row[i] + at, &r);
    return (struct eight){.dot = eight_join(dot), .scale = eight_d(row, at + 208)};
}

/* Super-blocks at byte `at` of the rows, with elements x and their sums. */
static ALWAYS_INLINE struct eight super_eight(enum tensor_type type,
                                              const uint8_t *const row[EIGHT], size_t at,
                                              const int8_t *x, const uint8_t *sums)
{
    return type == TENSOR_Q6_K ? eight_of_q6(row, at, x, sums)
                               : eight_of_nibbles(type == TENSOR_Q5_K, row, at, x, sums);
}

#endif
