/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of bytes, for the templates of blocks: AVX2. Their dot products: dots.h, and
 * avxvnni/dots.h. */
#ifndef SLUICE_KERNELS_AVX2_BYTES_H
#define SLUICE_KERNELS_AVX2_BYTES_H

#include "lib/kernels/avx2/vec.h"

#define PIECES 2 /* of 16 bytes in a vector */

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

/* Puts equal bytes into every piece. */
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

/* Bytes of `table`, of 16 bytes that are the same in every piece, by the low nibbles of v and by
 * the high ones. */
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

/* In every piece: the last eight bytes of a, then of b. */
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

/* Byte i is 0xff if bit i is set, else 0. */
static ALWAYS_INLINE __m256i bytes_of_bits(uint32_t bits)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}
/* The sum of the four lanes of each piece, in the order of the pieces. */
static ALWAYS_INLINE __m256i sum_pieces(__m256i p, __m256i q, __m256i r, __m256i s)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(p, q), _mm256_unpackhi_epi32(p, q));
    __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(r, s), _mm256_unpackhi_epi32(r, s));
    __m256i sum = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm256_permutevar8x32_epi32(sum, order);
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
