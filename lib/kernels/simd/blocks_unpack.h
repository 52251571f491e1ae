/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by blocks.h: unpack steps of blocks with one scale per 32 elements or more.
 * The blocks are described in lib/tensor/unpack/legacy.c and fp4.c. A type is a row of BLOCK_TYPES,
 * its properties, and a function. A file that defines the list before has products of these types
 * only. */

#ifndef BLOCK_TYPES
#define BLOCK_TYPES(X)                                                                             \
    X(Q4_0) X(Q8_0) X(IQ4_NL) X(MXFP4) X(NVFP4) X(Q4_1) X(Q5_0) X(Q5_1) X(Q1_0) X(Q2_0)
#endif

#define NO_SHIFT (-1)

enum block_scale { SCALE_F16, SCALE_E8M0, SCALE_UE4M3 };

struct block_type {
    enum tensor_type type;
    enum block_scale scale;
    uint32_t elems, bytes;
    int shift;     /* codes are more than elements: add the activation's correction >> shift */
    bool minimums; /* an F16 after the scale */
    bool wide;     /* codes of eight bits (vq_wide); others are unsigned and at most 32 */
    bool halves;   /* a scale, a term and a correction for each 16 elements */
};

/* The functions: codes of PIECES blocks of 32, from block `first` of the four blocks at p on: the
 * first 16 elements of each, and the last 16. */

/* 16 bytes at `at` of each block. */
static ALWAYS_INLINE vq pieces_of(const struct block_type t, const uint8_t *p, const int first,
                                  const size_t at)
{
    const uint8_t *piece[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++) piece[i] = p + (size_t)(first + i) * t.bytes + at;
    return vq_pieces(piece);
}

static ALWAYS_INLINE void nibble_codes(vq v, vq *lo, vq *hi)
{
    *lo = vq_low_nibbles(v);
    *hi = vq_high_nibbles(v);
}

static ALWAYS_INLINE void iq4_codes(vq v, vq *lo, vq *hi)
{
    vq_lookup_nibbles(vq_wide(vq_repeat(unpack_iq4_values)), v, lo, hi);
}

static ALWAYS_INLINE void fp4_codes(vq v, vq *lo, vq *hi)
{
    vq_lookup_nibbles(vq_add(vq_repeat(unpack_fp4_values), vq_set1(16)), v, lo, hi);
}

static ALWAYS_INLINE void nibbles_at(const struct block_type t, const uint8_t *p, const int first,
                                     const size_t at, vq *lo, vq *hi)
{
    nibble_codes(pieces_of(t, p, first, at), lo, hi);
}

/* Adds the fifth bits, 32 of each block. */
static ALWAYS_INLINE void fifth_bits_at(const struct block_type t, const uint8_t *p,
                                        const int first, const size_t at, vq *lo, vq *hi)
{
    uint16_t low[PIECES], high[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        low[i] = load_u16(p + (size_t)(first + i) * t.bytes + at);
        high[i] = load_u16(p + (size_t)(first + i) * t.bytes + at + 2);
    }
    *lo = vq_or(*lo, vq_bits(low, 16));
    *hi = vq_or(*hi, vq_bits(high, 16));
}

#define BLOCK_TYPE(NAME, scale, elems, bytes, shift, minimums, wide)                               \
    static const struct block_type block_type_##NAME = {                                           \
        TENSOR_##NAME, scale, elems, bytes, shift, minimums, wide, scale == SCALE_UE4M3};
BLOCK_TYPE(Q4_0, SCALE_F16, 32, 18, 0, false, false) /* plus 8 */
BLOCK_TYPE(Q8_0, SCALE_F16, 32, 34, WIDE_SHIFT, false, true)
BLOCK_TYPE(IQ4_NL, SCALE_F16, 32, 18, WIDE_SHIFT, false, true)
BLOCK_TYPE(MXFP4, SCALE_E8M0, 32, 17, 3, false, false)  /* plus 16 */
BLOCK_TYPE(NVFP4, SCALE_UE4M3, 64, 36, 0, false, false) /* plus 16 */
BLOCK_TYPE(Q4_1, SCALE_F16, 32, 20, NO_SHIFT, true, false)
BLOCK_TYPE(Q5_0, SCALE_F16, 32, 22, 3, false, false) /* plus 16 */
BLOCK_TYPE(Q5_1, SCALE_F16, 32, 24, NO_SHIFT, true, false)
BLOCK_TYPE(Q1_0, SCALE_F16, 128, 18, 7, false, false) /* plus 1 */
BLOCK_TYPE(Q2_0, SCALE_F16, 64, 18, 7, false, false)  /* plus 1 */

static ALWAYS_INLINE void block_unpack_Q4_0(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    nibbles_at(block_type_Q4_0, p, first, 2, lo, hi);
}

static ALWAYS_INLINE void block_unpack_Q8_0(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    *lo = vq_wide(pieces_of(block_type_Q8_0, p, first, 2));
    *hi = vq_wide(pieces_of(block_type_Q8_0, p, first, 18));
}

static ALWAYS_INLINE void block_unpack_IQ4_NL(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    iq4_codes(pieces_of(block_type_IQ4_NL, p, first, 2), lo, hi);
}

static ALWAYS_INLINE void block_unpack_MXFP4(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    fp4_codes(pieces_of(block_type_MXFP4, p, first, 1), lo, hi);
}

static ALWAYS_INLINE void block_unpack_NVFP4(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    const uint8_t *piece[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++) piece[i] =
        p + (size_t)(first + i) / 2 * 36 + 4 + (first + i) % 2 * 16;
    vq low, high;
    fp4_codes(vq_pieces(piece), &low, &high);
    *lo = vq_first_eights(low, high);
    *hi = vq_last_eights(low, high);
}

static ALWAYS_INLINE void block_unpack_Q4_1(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    nibbles_at(block_type_Q4_1, p, first, 4, lo, hi);
}

static ALWAYS_INLINE void block_unpack_Q5_0(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    nibbles_at(block_type_Q5_0, p, first, 6, lo, hi);
    fifth_bits_at(block_type_Q5_0, p, first, 2, lo, hi);
}

static ALWAYS_INLINE void block_unpack_Q5_1(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    nibbles_at(block_type_Q5_1, p, first, 8, lo, hi);
    fifth_bits_at(block_type_Q5_1, p, first, 4, lo, hi);
}

static ALWAYS_INLINE void block_unpack_Q1_0(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    uint16_t low[PIECES], high[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        low[i] = load_u16(p + 2 + 4 * (first + i));
        high[i] = load_u16(p + 4 + 4 * (first + i));
    }
    *lo = vq_bits(low, 2);
    *hi = vq_bits(high, 2);
}

/* Pairs of bits of four elements per byte, in the bytes of those elements. */
static ALWAYS_INLINE vq spread_pairs(vq v)
{
    static const uint8_t first[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    static const uint8_t second[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const vq low = vq_set_words(0x0000ffff), high = vq_set_words((int32_t)0xffff0000);
    const vq even = vq_set_words(0x00ff00ff), odd = vq_set_words((int32_t)0xff00ff00);
    v = vq_or(vq_and(vq_low_nibbles(v), low), vq_and(vq_high_nibbles(v), high));
    return vq_or(vq_and(vq_lookup(vq_repeat(first), v), even),
                 vq_and(vq_lookup(vq_repeat(second), v), odd));
}

static ALWAYS_INLINE void block_unpack_Q2_0(const uint8_t *p, const int first, vq *lo, vq *hi)
{
    /* of every second piece, the other half of the same 16 bytes */
#define EACH_FOUR(a, b, c, d) a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d
    static const uint8_t low[64] = {EACH_FOUR(0, 1, 2, 3), EACH_FOUR(8, 9, 10, 11),
                                    EACH_FOUR(0, 1, 2, 3), EACH_FOUR(8, 9, 10, 11)};
    static const uint8_t high[64] = {EACH_FOUR(4, 5, 6, 7), EACH_FOUR(12, 13, 14, 15),
                                     EACH_FOUR(4, 5, 6, 7), EACH_FOUR(12, 13, 14, 15)};
#undef EACH_FOUR
    const uint8_t *piece[PIECES];
    UNROLL for (int i = 0; i < PIECES; i++) piece[i] = p + (size_t)(first + i) / 2 * 18 + 2;
    vq v = vq_pieces(piece);
    *lo = spread_pairs(vq_lookup(v, vq_load(low)));
    *hi = spread_pairs(vq_lookup(v, vq_load(high)));
}

static ALWAYS_INLINE void block_unpack(const struct block_type t, const uint8_t *p, const int first,
                                       vq *lo, vq *hi)
{
    switch (t.type) {
#define BLOCK_UNPACK(NAME)                                                                         \
    case TENSOR_##NAME: block_unpack_##NAME(p, first, lo, hi); break;
        BLOCK_TYPES(BLOCK_UNPACK)
    default: break;
    }
}

/* Whether codes of VL blocks are unpacked as words of four elements of each: after a transposition,
 * every 32-bit lane has a block of its own. */
static ALWAYS_INLINE bool block_has_words(const struct block_type t)
{
    return t.type == TENSOR_Q4_0 || t.type == TENSOR_Q4_1 || t.type == TENSOR_Q8_0 ||
           t.type == TENSOR_IQ4_NL || t.type == TENSOR_MXFP4;
}

/* Word i of the codes of VL blocks. */
static ALWAYS_INLINE void block_words(const struct block_type t, const uint8_t *const block[VL],
                                      vq word[8])
{
    const size_t scale_bytes = t.bytes - (t.type == TENSOR_Q8_0 ? QK : QK / 2);
    vq v[4];
    if (t.type == TENSOR_Q8_0) {
        vq_transpose(block, scale_bytes, word);
        vq_transpose(block, scale_bytes + QK / 2, word + 4);
        UNROLL for (int i = 0; i < 8; i++) word[i] = vq_wide(word[i]);
        return;
    }
    vq_transpose(block, scale_bytes, v);
    UNROLL for (int i = 0; i < 4; i++)
    {
        if (t.type == TENSOR_IQ4_NL)
            iq4_codes(v[i], &word[i], &word[4 + i]);
        else if (t.type == TENSOR_MXFP4)
            fp4_codes(v[i], &word[i], &word[4 + i]);
        else
            nibble_codes(v[i], &word[i], &word[4 + i]);
    }
}

/* The halved scales of the two halves of VL blocks, of pairs of bytes. As F16 with the exponent's
 * bias of 15 instead of 7 they are 2^-8 times the scale. */
static ALWAYS_INLINE void block_half_scales(vi both, vf out[2])
{
    vi scale[2] = {vi_and(both, vi_set1(255)), vi_shift_right(both, 8)};
    UNROLL for (int h = 0; h < 2; h++)
    {
        vi bits = vi_shift_left(vi_and(vi_without(scale[h], 0x7f), vi_set1(0x7f)), 7);
        out[h] = vf_mul(vf_of_half_bits(bits), vf_set1(0x1p7f));
    }
}

/* 2^(e - 128): the larger number is the right one for normal and for subnormal results. */
static ALWAYS_INLINE vf scales_of_exponents(vi e)
{
    return vi_as_float(
        vi_max(vi_shift_left(vi_sub(e, vi_set1(1)), 23), vi_shift_left(vi_add(e, vi_set1(1)), 21)));
}

/* The scales at VL addresses. */
static ALWAYS_INLINE vf block_scales(const struct block_type t, const uint8_t *const p[VL])
{
    return t.scale == SCALE_F16 ? vf_halves_at(p) : scales_of_exponents(vi_bytes_at(p));
}

/* Where those of `count` adjacent blocks of 32 are. */
static ALWAYS_INLINE struct scale_places scales_of(const struct block_type t, const uint32_t count)
{
    return (struct scale_places){
        .stride = t.bytes, .per = t.elems / QK, .inner = t.halves ? 2 : 0, .count = count};
}

static ALWAYS_INLINE vf adjacent_scales(const struct block_type t, const uint8_t *p,
                                        const uint32_t count)
{
    const struct scale_places s = scales_of(t, count);
    return t.scale == SCALE_F16 ? vf_halves_by_line(p, s, 0)
                                : scales_of_exponents(vi_bytes_by_line(p, s));
}

static ALWAYS_INLINE vf block_minimums(const uint8_t *const p[VL])
{
    const uint8_t *at[VL];
    UNROLL for (int i = 0; i < VL; i++) at[i] = p[i] + 2;
    return vf_halves_at(at);
}

#define GROUP_BYTES_MAX 136

/* Bytes of four blocks of 32. */
static ALWAYS_INLINE size_t group_bytes(const struct block_type t)
{
    return (size_t)t.bytes * (GROUP_SIZE / t.elems);
}

/* Where the scale of block b of a row (or of a part that begins with a group) is. */
static ALWAYS_INLINE size_t scale_at(const struct block_type t, uint32_t b)
{
    return (size_t)(b * QK / t.elems) * t.bytes;
}

/* Where the scales of block b are, in a group of a type with two scales per block. */
static ALWAYS_INLINE const uint8_t *half_scales_at(const struct block_type t, const uint8_t *group,
                                                   uint32_t b)
{
    return group + scale_at(t, b) + b % (t.elems / QK) * 2;
}
