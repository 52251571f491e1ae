/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by super_panel.h: super-blocks of VL outputs that are transposed before they
 * are unpacked, so that a vector of the panel takes a few operations instead of loads of VL
 * unpacked rows. Steps of the types whose codes depend on bytes of the same position; the others
 * are unpacked row by row (pack_lines). The blocks are described in lib/tensor/unpack/k_quants.c
 * and iq.c. */

#define SUPER_WORD_TYPES(X) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS)

/* Writes four words from `word` on of every output. */
static ALWAYS_INLINE void put_words(struct super_panel *p, const int side, int word, const vq v[4])
{
    UNROLL for (int e = 0; e < 4; e++) vq_store(&p->q[word + e][side * VL * 4], v[e]);
}

/* Bits 4 and 5 of every byte: two bits from bit `from` on. */
static ALWAYS_INLINE vq two_bits_up(vq v, const int from)
{
    return vq_and(from < 4 ? vi_shift_left(v, 4 - from) : vi_shift_right(v, from - 4),
                  vq_set1(0x30));
}

/* Bit 4 of every byte: bit `from`. */
static ALWAYS_INLINE vq one_bit_up(vq v, const int from)
{
    return vq_and(from < 4 ? vi_shift_left(v, 4 - from) : vi_shift_right(v, from - 4),
                  vq_set1(0x10));
}

/* Byte i of every lane. */
static ALWAYS_INLINE vi byte_of(vi v, const int i)
{
    return vi_and(i == 0 ? v : vi_shift_right(v, 8 * i), vi_set1(255));
}

static ALWAYS_INLINE vi low_half(vi v)
{
    return vi_and(v, vi_set1(0xffff));
}

/* Scale of sub-block i, in the low 16 bits of every lane. */
static ALWAYS_INLINE void put_scale(struct super_panel *p, const int side, const int i, vi scale)
{
    vq_store(&p->scale[i][side * VL * 4], dot_scale_of(scale, 0));
}

/* The low 16 bits of a, and above them, those of b. */
static ALWAYS_INLINE vi pair_of(vi a, vi b)
{
    return vq_join_words(a, vi_shift_left(b, 16));
}

/* Scales of sub-blocks 2 i and 2 i + 1, in the low 16 bits of every lane. */
static ALWAYS_INLINE void put_scales(const struct super_type t, struct super_panel *p,
                                     const int side, const int i, vi a, vi b)
{
    if (panel_pairs_scales(t)) {
        vq_store(&p->scale[i][side * VL * 4], pair_of(a, b));
    } else {
        put_scale(p, side, 2 * i, a);
        put_scale(p, side, 2 * i + 1, b);
    }
}

/* Numbers of sub-blocks 2 i and 2 i + 1. */
static ALWAYS_INLINE void put_pair(struct super_panel *p, const int side, const int i, vi a, vi b)
{
    vq_store(&p->pair[i][side * VL * 4], pair_of(a, b));
}

/* d, dmin, six bits of eight scales and eight minimums: the 16 bytes that Q4_K and Q5_K begin
 * with. */
static ALWAYS_INLINE void words_head(const struct super_type t, const uint8_t *const block[VL],
                                     struct super_panel *p, const int side)
{
    const vi low = vq_set1(0x0f), six = vq_set1(0x3f), high = vq_set1(0x30);
    vq v[4];
    vq_transpose(block, 0, v);
    vf_store(&p->d[side * VL], vf_of_half_bits(low_half(v[0])));
    vf_store(&p->dmin[side * VL], vf_of_half_bits(low_half(vi_shift_right(v[0], 16))));
    vi scale[2] = {vi_and(v[1], six),
                   vq_or(vi_and(v[3], low), vi_and(vi_shift_right(v[1], 2), high))};
    vi min[2] = {vi_and(v[2], six), vq_or(vi_and(vi_shift_right(v[3], 4), low),
                                          vi_and(vi_shift_right(v[2], 2), high))};
    UNROLL for (int i = 0; i < 4; i++) put_scales(t, p, side, i, byte_of(scale[i / 2], i % 2 * 2),
                                                  byte_of(scale[i / 2], i % 2 * 2 + 1));
    UNROLL for (int i = 0; i < 4; i++)
        put_pair(p, side, i, byte_of(min[i / 2], i % 2 * 2), byte_of(min[i / 2], i % 2 * 2 + 1));
}

static ALWAYS_INLINE void words_Q4_K(const uint8_t *const block[VL], struct super_panel *p,
                                     const int side)
{
    words_head(super_type_Q4_K, block, p, side);
    for (int i = 0; i < 8; i++) {
        vq v[4], lo[4], hi[4];
        vq_transpose(block, 16 + (size_t)i * 16, v);
        UNROLL for (int e = 0; e < 4; e++)
        {
            lo[e] = vq_low_nibbles(v[e]);
            hi[e] = vq_high_nibbles(v[e]);
        }
        put_words(p, side, i / 2 * 16 + i % 2 * 4, lo);
        put_words(p, side, i / 2 * 16 + i % 2 * 4 + 8, hi);
    }
}

static ALWAYS_INLINE void words_Q5_K(const uint8_t *const block[VL], struct super_panel *p,
                                     const int side)
{
    words_head(super_type_Q5_K, block, p, side);
    UNROLL for (int half = 0; half < 2; half++)
    {
        vq fifth[4];
        vq_transpose(block, 16 + (size_t)half * 16, fifth);
        UNROLL for (int g = 0; g < 4; g++)
        {
            vq v[4], lo[4], hi[4];
            vq_transpose(block, 48 + (size_t)g * 32 + (size_t)half * 16, v);
            UNROLL for (int e = 0; e < 4; e++)
            {
                lo[e] = vq_or(vq_low_nibbles(v[e]), one_bit_up(fifth[e], 2 * g));
                hi[e] = vq_or(vq_high_nibbles(v[e]), one_bit_up(fifth[e], 2 * g + 1));
            }
            put_words(p, side, g * 16 + half * 4, lo);
            put_words(p, side, g * 16 + half * 4 + 8, hi);
        }
    }
}

static ALWAYS_INLINE void words_Q6_K(const uint8_t *const block[VL], struct super_panel *p,
                                     const int side)
{
    for (int i = 0; i < 4; i++) {
        size_t at = (size_t)(i / 2 * 64 + i % 2 * 16);
        vq a[4], b[4], high[4], out[4][4];
        vq_transpose(block, at, a);
        vq_transpose(block, at + 32, b);
        vq_transpose(block, 128 + (size_t)i * 16, high);
        UNROLL for (int e = 0; e < 4; e++)
        {
            out[0][e] = vq_or(vq_low_nibbles(a[e]), two_bits_up(high[e], 0));
            out[1][e] = vq_or(vq_low_nibbles(b[e]), two_bits_up(high[e], 2));
            out[2][e] = vq_or(vq_high_nibbles(a[e]), two_bits_up(high[e], 4));
            out[3][e] = vq_or(vq_high_nibbles(b[e]), two_bits_up(high[e], 6));
        }
        UNROLL for (int o = 0; o < 4; o++)
            put_words(p, side, i / 2 * 32 + i % 2 * 4 + o * 8, out[o]);
    }
    vq v[4];
    vi scale[SUPER_SUBS];
    vq_transpose(block, 192, v);
    UNROLL for (int i = 0; i < SUPER_SUBS; i++) scale[i] =
        vi_shift_right(vi_shift_left(v[i / 4], 24 - i % 4 * 8), 24);
    UNROLL for (int i = 0; i < SUPER_SUBS / 2; i++)
        put_scales(super_type_Q6_K, p, side, i, scale[2 * i], scale[2 * i + 1]);
    if (panel_has_pairs(super_type_Q6_K))
        UNROLL for (int i = 0; i < SUPER_SUBS / 2; i++)
            put_pair(p, side, i, scale[2 * i], scale[2 * i + 1]);
    vf_store(&p->d[side * VL], panel_d(super_type_Q6_K, block));
}

static ALWAYS_INLINE void words_IQ4_XS(const uint8_t *const block[VL], struct super_panel *p,
                                       const int side)
{
    const vq table = vq_wide(vq_repeat(unpack_iq4_values));
    vq v[4];
    for (int i = 0; i < 8; i++) {
        vq lo[4], hi[4];
        vq_transpose(block, 8 + (size_t)i * 16, v);
        UNROLL for (int e = 0; e < 4; e++) vq_lookup_nibbles(table, v[e], &lo[e], &hi[e]);
        put_words(p, side, i * 8, lo);
        put_words(p, side, i * 8 + 4, hi);
    }
    vq_transpose(block, 0, v); /* d and the high bits, the low bits */
    vf_store(&p->d[side * VL], vf_of_half_bits(low_half(v[0])));
    UNROLL for (int i = 0; i < 8; i++)
    {
        vi low = vi_and(vi_shift_right(v[1], 4 * i), vi_set1(15));
        vi high = vi_and(vi_shift_right(v[0], 16 + 2 * i), vi_set1(3));
        put_scale(p, side, i, vi_sub(vq_or(low, vi_shift_left(high, 4)), vi_set1(32)));
    }
}

/* Whether the type has such a step. */
static ALWAYS_INLINE bool panel_of_words(const struct super_type t)
{
    switch (t.type) {
#define SUPER_HAS_WORDS(NAME) case TENSOR_##NAME:
        SUPER_WORD_TYPES(SUPER_HAS_WORDS)
        return true;
    default: return false;
    }
}

static ALWAYS_INLINE void pack_words(const struct super_type t, const uint8_t *const block[VL],
                                     struct super_panel *p, const int side)
{
    switch (t.type) {
#define SUPER_WORDS_OF(NAME)                                                                       \
    case TENSOR_##NAME: words_##NAME(block, p, side); break;
        SUPER_WORD_TYPES(SUPER_WORDS_OF)
    default: break;
    }
}
