/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of bytes and their dot products, for the templates of blocks: AVX2. */
#ifndef SLUICE_KERNELS_AVX2_BYTES_H
#define SLUICE_KERNELS_AVX2_BYTES_H

#include "lib/kernels/avx2/vec.h"

#define PIECES         2 /* of 16 bytes in a vector */
#define PANEL_VECTORS  1 /* outputs of a panel, in vectors */
#define PANEL_ROWS     4 /* of a register tile */
#define WIDE_CORRECTED false
#define WIDE_SHIFT     NO_SHIFT /* codes of eight bits stay signed: no correction */

typedef __m256i vq;

static ALWAYS_INLINE vq vq_set1(char c)
{
    return _mm256_set1_epi8(c);
}

static ALWAYS_INLINE vq vq_set_words(int32_t word)
{
    return _mm256_set1_epi32(word);
}

static ALWAYS_INLINE vq vq_load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static ALWAYS_INLINE void vq_store(void *p, vq v)
{
    _mm256_storeu_si256(p, v);
}

static ALWAYS_INLINE __m128i piece_at(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* 16 bytes from each address. */
static ALWAYS_INLINE vq vq_pieces(const uint8_t *const p[PIECES])
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(piece_at(p[0])), piece_at(p[1]), 1);
}

/* The same bytes in every piece. */
static ALWAYS_INLINE vq vq_repeat(const void *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}

static ALWAYS_INLINE vq vq_low_nibbles(vq v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

static ALWAYS_INLINE vq vq_high_nibbles(vq v)
{
    return vq_low_nibbles(_mm256_srli_epi16(v, 4));
}

/* In every piece: bytes of `table` by the indices `at`. */
static ALWAYS_INLINE vq vq_lookup(vq table, vq at)
{
    return _mm256_shuffle_epi8(table, at);
}

/* Bytes of `table`, of 16 bytes that are the same in every piece, by the low nibbles of v and by the high ones. */
static ALWAYS_INLINE void vq_lookup_nibbles(vq table, vq v, vq *lo, vq *hi)
{
    *lo = vq_lookup(table, vq_low_nibbles(v));
    *hi = vq_lookup(table, vq_high_nibbles(v));
}

static ALWAYS_INLINE vq vq_add(vq a, vq b)
{
    return _mm256_add_epi8(a, b);
}

static ALWAYS_INLINE vq vq_and(vq a, vq b)
{
    return _mm256_and_si256(a, b);
}

static ALWAYS_INLINE vq vq_or(vq a, vq b)
{
    return _mm256_or_si256(a, b);
}

/* In every piece: the first eight bytes of a, then of b. */
static ALWAYS_INLINE vq vq_first_eights(vq a, vq b)
{
    return _mm256_unpacklo_epi64(a, b);
}

/* The same with the last eight. */
static ALWAYS_INLINE vq vq_last_eights(vq a, vq b)
{
    return _mm256_unpackhi_epi64(a, b);
}

/* Byte i of piece p: `value` if bit i of bits[p] is set, else 0. */
static ALWAYS_INLINE vq vq_bits(const uint16_t bits[PIECES], char value)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i v = _mm256_set1_epi32((int)((uint32_t)bits[0] | (uint32_t)bits[1] << 16));
    v = _mm256_and_si256(_mm256_shuffle_epi8(v, spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8(value));
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
        d->sum = _mm256_add_epi32(d->sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    } else {
        d->pairs = _mm256_add_epi16(d->pairs, _mm256_maddubs_epi16(w, x));
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
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(g[0].sum, g[1].sum),
                                 _mm256_unpackhi_epi32(g[0].sum, g[1].sum));
    __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(g[2].sum, g[3].sum),
                                 _mm256_unpackhi_epi32(g[2].sum, g[3].sum));
    __m256i s = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm256_permutevar8x32_epi32(s, order);
}

/* ---- integers ---- */

typedef __m256i vi;

static ALWAYS_INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static ALWAYS_INLINE vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static ALWAYS_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

static ALWAYS_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

static ALWAYS_INLINE vi vi_shift_right(vi a, const int bits)
{
    return _mm256_srai_epi32(a, bits);
}

static ALWAYS_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}

static ALWAYS_INLINE vi vi_shift_left(vi a, const int bits)
{
    return _mm256_slli_epi32(a, bits);
}

static ALWAYS_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

static ALWAYS_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

/* 0 in place of x. */
static ALWAYS_INLINE vi vi_without(vi a, int32_t x)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(a, _mm256_set1_epi32(x)), a);
}

/* The low 16 bits of every lane are an F16 number. */
static ALWAYS_INLINE vf vf_of_half_bits(vi a)
{
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}

static ALWAYS_INLINE vf vi_to_float(vi a)
{
    return _mm256_cvtepi32_ps(a);
}

static ALWAYS_INLINE vf vi_as_float(vi a)
{
    return _mm256_castsi256_ps(a);
}

/* c - a * b */
static ALWAYS_INLINE vf vf_subtract_product(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* The 16-bit words, the bytes at 8 addresses. */
static ALWAYS_INLINE __m128i words_at(const uint8_t *const p[VL])
{
    return _mm_setr_epi16((short)load_u16(p[0]), (short)load_u16(p[1]), (short)load_u16(p[2]),
                          (short)load_u16(p[3]), (short)load_u16(p[4]), (short)load_u16(p[5]),
                          (short)load_u16(p[6]), (short)load_u16(p[7]));
}

static ALWAYS_INLINE vf vf_halves_at(const uint8_t *const p[VL])
{
    return _mm256_cvtph_ps(words_at(p));
}

/* Single loads are faster. */
static ALWAYS_INLINE bool by_lines(size_t bytes)
{
    (void)bytes;
    return false;
}

static ALWAYS_INLINE vf vf_halves_by_line(const uint8_t *p, const struct scale_places s,
                                          const size_t at)
{
    (void)p, (void)s, (void)at;
    return vf_set1(0);
}

static ALWAYS_INLINE vi vi_words_by_line(const uint8_t *p, const struct scale_places s)
{
    (void)p, (void)s;
    return vi_set1(0);
}

static ALWAYS_INLINE vi vi_bytes_by_line(const uint8_t *p, const struct scale_places s)
{
    (void)p, (void)s;
    return vi_set1(0);
}

static ALWAYS_INLINE vi vi_words_at(const uint8_t *const p[VL])
{
    return _mm256_cvtepu16_epi32(words_at(p));
}

static ALWAYS_INLINE vi vi_bytes_at(const uint8_t *const p[VL])
{
    return _mm256_setr_epi32(*p[0], *p[1], *p[2], *p[3], *p[4], *p[5], *p[6], *p[7]);
}

/* ---- dot products with scales, for super-blocks ---- */

#define DOT_STARTS false /* the correction is subtracted from the sum of the super-block */
#define DOT_PAIRS  false /* scales of two sub-blocks multiply at once what fits in 16 bits */

/* Words of four elements, of one sub-block, whose products fit in 16 bits: codes are below
 * 1 << code_bits (of wide types, signed), activations are at most 127. */
static ALWAYS_INLINE int dot_words(int sub, int code_bits)
{
    int words = code_bits >= 7 ? 1 : code_bits >= 4 ? 1 << (7 - code_bits) : 8;
    return words < sub / 4 ? words : sub / 4;
}

/* 16-bit lanes. */
static ALWAYS_INLINE vi dot_add(const bool wide, vi dot, vq w, vq x)
{
    if (wide)
        return _mm256_add_epi16(dot,
                                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)));
    return _mm256_add_epi16(dot, _mm256_maddubs_epi16(w, x));
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
    return vi_add_pairs(sum, dot, scale);
}

/* The low words of a and, above them, those of b. */
static ALWAYS_INLINE vi vq_join_words(vi a, vi b)
{
    return _mm256_blend_epi16(a, b, 0xaa);
}

/* ---- order of lanes and bytes ---- */

/* Half h (of 8 lanes). */
static ALWAYS_INLINE __m256 vf_eight(vf v, const int h)
{
    (void)h;
    return v;
}

/* 16 bytes at `at` of 8 rows: out[g] is 32-bit word g of every row. */
static ALWAYS_INLINE void vq_transpose(const uint8_t *const row[VL], size_t at, vq out[4])
{
    vq z[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const uint8_t *const p[PIECES] = {row[i] + at, row[4 + i] + at};
        z[i] = vq_pieces(p);
    }
    vq a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
    vq c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

#endif
