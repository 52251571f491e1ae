/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of bytes and their dot products, for the templates of blocks: AVX-512 VNNI. */
#ifndef SLUICE_KERNELS_AVX512_BYTES_H
#define SLUICE_KERNELS_AVX512_BYTES_H

#include "lib/kernels/avx512/vec.h"

#define PIECES        4 /* of 16 bytes in a vector */
#define PANEL_VECTORS 2 /* outputs of a panel, in vectors */
#define PANEL_ROWS                                                                                 \
    6 /* of a register tile: 12 integer sums, 12 float sums, 2 weights, 1 activation */
#define WIDE_CORRECTED true
#define WIDE_SHIFT     0 /* codes of eight bits plus 128: the correction of Q8_0's form */

typedef __m512i vq;

static ALWAYS_INLINE vq vq_set1(char c)
{
    return _mm512_set1_epi8(c);
}

static ALWAYS_INLINE vq vq_set_words(int32_t word)
{
    return _mm512_set1_epi32(word);
}

static ALWAYS_INLINE vq vq_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static ALWAYS_INLINE void vq_store(void *p, vq v)
{
    _mm512_storeu_si512(p, v);
}

static ALWAYS_INLINE __m128i piece_at(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* 16 bytes from each address. */
static ALWAYS_INLINE vq vq_pieces(const uint8_t *const p[PIECES])
{
    vq v = _mm512_castsi128_si512(piece_at(p[0]));
    v = _mm512_inserti32x4(v, piece_at(p[1]), 1);
    v = _mm512_inserti32x4(v, piece_at(p[2]), 2);
    return _mm512_inserti32x4(v, piece_at(p[3]), 3);
}

/* Puts equal bytes into every piece. */
static ALWAYS_INLINE vq vq_repeat(const void *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128(p));
}

static ALWAYS_INLINE vq vq_low_nibbles(vq v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

static ALWAYS_INLINE vq vq_high_nibbles(vq v)
{
    return vq_low_nibbles(_mm512_srli_epi16(v, 4));
}

/* In every piece: bytes of `table` by the indices `at`. */
static ALWAYS_INLINE vq vq_lookup(vq table, vq at)
{
    return _mm512_shuffle_epi8(table, at);
}

/* Bytes of `table`, of 16 bytes that are the same in every piece, by the low nibbles of v and by
 * the high ones. A lookup in 64 bytes takes six bits of an index, so the bits above a nibble choose
 * another copy of the table. */
static ALWAYS_INLINE void vq_lookup_nibbles(vq table, vq v, vq *lo, vq *hi)
{
#ifdef __AVX512VBMI__
    *lo = _mm512_permutexvar_epi8(v, table);
    *hi = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table);
#else
    *lo = vq_lookup(table, vq_low_nibbles(v));
    *hi = vq_lookup(table, vq_high_nibbles(v));
#endif
}

static ALWAYS_INLINE vq vq_add(vq a, vq b)
{
    return _mm512_add_epi8(a, b);
}

static ALWAYS_INLINE vq vq_and(vq a, vq b)
{
    return _mm512_and_si512(a, b);
}

static ALWAYS_INLINE vq vq_or(vq a, vq b)
{
    return _mm512_or_si512(a, b);
}

/* In every piece: the first eight bytes of a, then of b. */
static ALWAYS_INLINE vq vq_first_eights(vq a, vq b)
{
    return _mm512_unpacklo_epi64(a, b);
}

/* In every piece: the last eight bytes of a, then of b. */
static ALWAYS_INLINE vq vq_last_eights(vq a, vq b)
{
    return _mm512_unpackhi_epi64(a, b);
}

/* Byte i of piece p: `value` if bit i of bits[p] is set, else 0. */
static ALWAYS_INLINE vq vq_bits(const uint16_t bits[PIECES], char value)
{
    uint64_t mask = (uint64_t)bits[0] | (uint64_t)bits[1] << 16 | (uint64_t)bits[2] << 32 |
                    (uint64_t)bits[3] << 48;
    return _mm512_maskz_mov_epi8(mask, _mm512_set1_epi8(value));
}

/* Signed codes of eight bits in the form that dots_add wants. */
static ALWAYS_INLINE vq vq_wide(vq v)
{
    return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
}

/* ---- dot products: 32-bit lanes are sums of four products ---- */

struct dots {
    __m512i sum;
};

static ALWAYS_INLINE struct dots dots_start(__m512i sum)
{
    return (struct dots){sum};
}

static ALWAYS_INLINE void dots_add(const bool wide, struct dots *d, vq w, vq x)
{
    (void)wide;
    d->sum = _mm512_dpbusd_epi32(d->sum, w, x);
}

/* After at most four vectors. */
static ALWAYS_INLINE void dots_fold(const bool wide, struct dots *d)
{
    (void)wide;
    (void)d;
}

/* Adds the four lanes of each piece; the result is in the order of the pieces. */
static ALWAYS_INLINE __m512i dots_join(const struct dots g[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(g[0].sum, g[1].sum),
                                 _mm512_unpackhi_epi32(g[0].sum, g[1].sum));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(g[2].sum, g[3].sum),
                                 _mm512_unpackhi_epi32(g[2].sum, g[3].sum));
    __m512i s = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return _mm512_permutexvar_epi32(order, s);
}

/* ---- integers ---- */

typedef __m512i vi;

static ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static ALWAYS_INLINE vi vi_shift_right(vi a, const int bits)
{
    return _mm512_srai_epi32(a, (unsigned)bits);
}

static ALWAYS_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

static ALWAYS_INLINE vi vi_shift_left(vi a, const int bits)
{
    return _mm512_slli_epi32(a, (unsigned)bits);
}

static ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

static ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

/* 0 in place of x. */
static ALWAYS_INLINE vi vi_without(vi a, int32_t x)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(a, _mm512_set1_epi32(x)), a);
}

/* The low 16 bits of every lane are an F16 number. */
static ALWAYS_INLINE vf vf_of_half_bits(vi a)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}

static ALWAYS_INLINE vf vi_to_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static ALWAYS_INLINE vf vi_as_float(vi a)
{
    return _mm512_castsi512_ps(a);
}

/* c - a * b */
static ALWAYS_INLINE vf vf_subtract_product(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* The 16-bit words, the bytes at 16 addresses. */
static ALWAYS_INLINE __m256i words_at(const uint8_t *const p[VL])
{
    return _mm256_setr_epi16((short)load_u16(p[0]), (short)load_u16(p[1]), (short)load_u16(p[2]),
                             (short)load_u16(p[3]), (short)load_u16(p[4]), (short)load_u16(p[5]),
                             (short)load_u16(p[6]), (short)load_u16(p[7]), (short)load_u16(p[8]),
                             (short)load_u16(p[9]), (short)load_u16(p[10]), (short)load_u16(p[11]),
                             (short)load_u16(p[12]), (short)load_u16(p[13]), (short)load_u16(p[14]),
                             (short)load_u16(p[15]));
}

static ALWAYS_INLINE vf vf_halves_at(const uint8_t *const p[VL])
{
    return _mm512_cvtph_ps(words_at(p));
}

/* Whether `bytes` of adjacent blocks are few enough that their scales are moved from whole lines
 * faster than loaded one by one. */
static ALWAYS_INLINE bool by_lines(size_t bytes)
{
    return bytes <= 384;
}

/* Which scales begin in the line of 64 bytes, a bit for each. */
static ALWAYS_INLINE uint32_t in_line(const struct scale_places s, const size_t line)
{
    uint32_t mask = 0;
    UNROLL for (uint32_t i = 0; i < VL;
                i++) if (i < s.count && (i / s.per * s.stride + i % s.per * s.inner) / 64 == line)
        mask |= 1u << i;
    return mask;
}

/* 16-bit lane i is the word that has byte `at` of scale i. */
static ALWAYS_INLINE __m256i words_by_line(const uint8_t *p, const struct scale_places s,
                                           const size_t at)
{
    const __m512i lane =
        _mm512_cvtepu8_epi16(_mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                              0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i inner = _mm512_and_si512(lane, _mm512_set1_epi16((short)(s.per - 1)));
    const __m512i block = _mm512_srli_epi16(lane, (unsigned)__builtin_ctz(s.per));
    const __m512i byte =
        _mm512_add_epi16(_mm512_mullo_epi16(block, _mm512_set1_epi16((short)s.stride)),
                         _mm512_mullo_epi16(inner, _mm512_set1_epi16((short)s.inner)));
    const __m512i word = _mm512_srli_epi16(byte, 1);
    const size_t bytes = s.count / s.per * s.stride; /* nothing after the last block is read */
    __m512i words = _mm512_setzero_si512();
    UNROLL for (size_t line = 0; line * 64 < bytes; line++)
    {
        const uint32_t mask = in_line(s, line);
        const size_t left = bytes - line * 64 - at;
        const uint8_t *from = p + at + line * 64;
        if (mask == 0)
            continue;
        __m512i v =
            left >= 64 ? vq_load(from) : _mm512_maskz_loadu_epi16((1u << (left / 2)) - 1u, from);
        words = _mm512_mask_permutexvar_epi16(words, mask, word, v);
    }
    return _mm512_castsi512_si256(words);
}

/* F16 scales, at `at` of an even number of bytes. */
static ALWAYS_INLINE vf vf_halves_by_line(const uint8_t *p, const struct scale_places s,
                                          const size_t at)
{
    return _mm512_cvtph_ps(words_by_line(p, s, at));
}

/* The words by line as integers. */
static ALWAYS_INLINE vi vi_words_by_line(const uint8_t *p, const struct scale_places s)
{
    return _mm512_cvtepu16_epi32(words_by_line(p, s, 0));
}

#ifdef __AVX512VBMI__

/* Byte 0 of the 32-bit lanes whose scale is in the line of 64 bytes. */
static ALWAYS_INLINE uint64_t lanes_in_line(const struct scale_places s, const size_t line)
{
    const uint32_t scales = in_line(s, line);
    uint64_t mask = 0;
    UNROLL for (uint32_t i = 0; i < VL; i++) mask |= (uint64_t)(scales >> i & 1) << (4 * i);
    return mask;
}

/* Scales of one byte; one per block. */
static ALWAYS_INLINE vi vi_bytes_by_line(const uint8_t *p, const struct scale_places s)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i byte = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)s.stride));
    vi bytes = _mm512_maskz_permutexvar_epi8(lanes_in_line(s, 0), byte, vq_load(p));
    UNROLL for (size_t line = 1; line * 64 <= (s.count - 1) * s.stride; line++)
    {
        const size_t left = s.count * s.stride - line * 64; /* nothing after the last block */
        const uint8_t *from = p + line * 64;
        vq v = left >= 64 ? vq_load(from) : _mm512_maskz_loadu_epi8((1ull << left) - 1, from);
        bytes = _mm512_mask_permutexvar_epi8(bytes, lanes_in_line(s, line), byte, v);
    }
    return bytes;
}

#else

/* Scales of one byte; one per block, of an odd number of bytes. */
static ALWAYS_INLINE vi vi_bytes_by_line(const uint8_t *p, const struct scale_places s)
{
    const __m256i words = words_by_line(p, s, 0);
    return _mm512_cvtepu16_epi32(_mm256_mask_blend_epi16(
        0xaaaa, _mm256_and_si256(words, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(words, 8)));
}

#endif

static ALWAYS_INLINE vi vi_words_at(const uint8_t *const p[VL])
{
    return _mm512_cvtepu16_epi32(words_at(p));
}

static ALWAYS_INLINE vi vi_bytes_at(const uint8_t *const p[VL])
{
    return _mm512_cvtepu8_epi32(
        _mm_setr_epi8((char)*p[0], (char)*p[1], (char)*p[2], (char)*p[3], (char)*p[4], (char)*p[5],
                      (char)*p[6], (char)*p[7], (char)*p[8], (char)*p[9], (char)*p[10],
                      (char)*p[11], (char)*p[12], (char)*p[13], (char)*p[14], (char)*p[15]));
}

/* ---- dot products with scales, for super-blocks: 32-bit lanes ---- */

#define DOT_STARTS true /* a dot product starts from a correction */
#define DOT_PAIRS  true /* scales of two sub-blocks multiply at once what fits in 16 bits */

/* Words of four elements whose dot product has the same scale. */
static ALWAYS_INLINE int dot_words(int sub, int element_max)
{
    (void)element_max;
    return sub / 4;
}

static ALWAYS_INLINE vi dot_add(const bool wide, vi dot, vq w, vq x)
{
    (void)wide;
    return _mm512_dpbusd_epi32(dot, w, x);
}

/* The scales as dot_scale wants them: word h of every lane, sign-extended. */
static ALWAYS_INLINE vi dot_scale_of(vi pairs, const int h)
{
    return _mm512_srai_epi32(h == 0 ? _mm512_slli_epi32(pairs, 16) : pairs, 16);
}

static ALWAYS_INLINE vi dot_scale(vi sum, vi dot, vi scale)
{
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, scale));
}

/* sum + products of the 16-bit halves of every lane. */
static ALWAYS_INLINE vi vi_add_pairs(vi sum, vi a, vi b)
{
    return _mm512_dpwssd_epi32(sum, a, b);
}

/* The low words of a and, above them, those of b. */
static ALWAYS_INLINE vi vq_join_words(vi a, vi b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, b);
}

/* ---- order of lanes and bytes ---- */

/* Half h (of 8 lanes). */
static ALWAYS_INLINE __m256 vf_eight(vf v, const int h)
{
    return h == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1);
}

/* 16 bytes at `at` of 16 rows: out[g] is 32-bit word g of every row. */
static ALWAYS_INLINE void vq_transpose(const uint8_t *const row[VL], size_t at, vq out[4])
{
    vq z[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const uint8_t *const p[PIECES] = {row[i] + at, row[4 + i] + at, row[8 + i] + at,
                                          row[12 + i] + at};
        z[i] = vq_pieces(p);
    }
    vq a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    vq c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

#endif
