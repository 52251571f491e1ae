/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by super_unpack.h: unpack steps of super-blocks whose elements are points of a
 * grid (IQ1, IQ2, IQ3) or digits to the base 3 (TQ). Codes are 64 (IQ) or 1 (TQ) more than
 * elements. The blocks are described in lib/tensor/unpack/iq.c and ternary.c. */

#define GRID_OFFSET 64

/* Per 32 elements: 16-bit lanes 2 i and 2 i + 1 are 2 s + 1 of 32-bit lane i. */
static ALWAYS_INLINE __m256i odd_scales(__m256i s)
{
    s = _mm256_add_epi32(_mm256_slli_epi32(s, 1), _mm256_set1_epi32(1));
    return _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
}

/* Per 16 elements: 2 s + 1 of the 16 nibbles of eight bytes. */
static ALWAYS_INLINE __m256i odd_nibbles(const uint8_t *p)
{
    __m128i v = _mm_cvtsi64_si128((long long)load_u64(p)), low = _mm_set1_epi8(15);
    __m128i n = _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
    __m256i s = _mm256_cvtepu8_epi16(n);
    return _mm256_add_epi16(_mm256_slli_epi16(s, 1), _mm256_set1_epi16(1));
}

/* Elements with signs, bit i of `signs` for byte i, plus the offset. */
static ALWAYS_INLINE __m256i signed_points(__m256i v, uint32_t signs)
{
    __m256i mask = VECTOR_BITS(signs);
    v = _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask);
    return _mm256_add_epi8(v, _mm256_set1_epi8(GRID_OFFSET));
}

/* Bytes of 7 bits of signs; the eighth makes the number of ones even. Word v: signs of q[v]. */
static ALWAYS_INLINE void even_signs(__m256i s, uint32_t signs[8])
{
    __m256i odd = _mm256_xor_si256(s, masked(_mm256_srli_epi16(s, 4), 15));
    odd = _mm256_xor_si256(odd, masked(_mm256_srli_epi16(odd, 2), 3));
    odd = masked(_mm256_xor_si256(odd, _mm256_srli_epi16(odd, 1)), 1);
    s = _mm256_or_si256(s, _mm256_slli_epi16(odd, 7));
    _mm256_storeu_si256((__m256i *)(void *)signs, s);
}

/* The signs from words of four times 7 bits. */
static ALWAYS_INLINE void even_signs_of(__m256i x, uint32_t signs[8])
{
    __m256i a = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    __m256i b = _mm256_and_si256(_mm256_slli_epi32(x, 1), _mm256_set1_epi32(0x7f00));
    __m256i c = _mm256_and_si256(_mm256_slli_epi32(x, 2), _mm256_set1_epi32(0x7f0000));
    __m256i d = _mm256_and_si256(_mm256_slli_epi32(x, 3), _mm256_set1_epi32(0x7f000000));
    even_signs(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)), signs);
}

static ALWAYS_INLINE __m256i four_points(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm256_setr_epi64x((long long)a, (long long)b, (long long)c, (long long)d);
}

static ALWAYS_INLINE void super_unpack_IQ2_XXS(const uint8_t *p, struct super_codes *c)
{
    /* every second word: four times 7 bits of signs, four of scale */
    __m256 a = _mm256_castsi256_ps(bytes_at(p + 2)), b = _mm256_castsi256_ps(bytes_at(p + 34));
    __m256i rest = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
    uint32_t signs[8];
    rest = _mm256_permute4x64_epi64(rest, 0xd8);
    c->scale = odd_scales(_mm256_srli_epi32(rest, 28));
    even_signs_of(rest, signs);
    UNROLL for (int v = 0; v < 8; v++)
    {
        const uint8_t *g = p + 2 + 8 * v;
        const uint64_t *grid = unpack_grid_iq2_xxs;
        c->q[v] =
            signed_points(four_points(grid[g[0]], grid[g[1]], grid[g[2]], grid[g[3]]), signs[v]);
    }
}

static ALWAYS_INLINE void super_unpack_IQ2_XS(const uint8_t *p, struct super_codes *c)
{
    __m256i s = _mm256_packus_epi16(_mm256_srli_epi16(bytes_at(p + 2), 9),
                                    _mm256_srli_epi16(bytes_at(p + 34), 9));
    uint32_t signs[8];
    even_signs(_mm256_permute4x64_epi64(s, 0xd8), signs);
    c->scale = odd_nibbles(p + 66);
    UNROLL for (int v = 0; v < 8; v++)
    {
        const uint64_t *grid = unpack_grid_iq2_xs;
        uint64_t q = load_u64(p + 2 + 8 * v);
        c->q[v] = signed_points(four_points(grid[q & 511], grid[q >> 16 & 511], grid[q >> 32 & 511],
                                            grid[q >> 48 & 511]),
                                signs[v]);
    }
}

static ALWAYS_INLINE void super_unpack_IQ2_S(const uint8_t *p, struct super_codes *c)
{
    c->scale = odd_nibbles(p + 74);
    UNROLL for (int v = 0; v < 8; v++)
    {
        const uint8_t *g = p + 2 + 4 * v;
        const uint64_t *grid = unpack_grid_iq2_s;
        uint32_t h = p[66 + v];
        c->q[v] =
            signed_points(four_points(grid[g[0] | (h << 8 & 0x300)], grid[g[1] | (h << 6 & 0x300)],
                                      grid[g[2] | (h << 4 & 0x300)], grid[g[3] | (h << 2 & 0x300)]),
                          load_u32(p + 34 + 4 * v));
    }
}

static ALWAYS_INLINE __m256i eight_points(const uint32_t *grid, const uint32_t at[8])
{
    return _mm256_setr_epi32((int)grid[at[0]], (int)grid[at[1]], (int)grid[at[2]], (int)grid[at[3]],
                             (int)grid[at[4]], (int)grid[at[5]], (int)grid[at[6]],
                             (int)grid[at[7]]);
}

static ALWAYS_INLINE void super_unpack_IQ3_XXS(const uint8_t *p, struct super_codes *c)
{
    __m256i rest = bytes_at(p + 66);
    uint32_t signs[8];
    c->scale = odd_scales(_mm256_srli_epi32(rest, 28));
    even_signs_of(rest, signs);
    UNROLL for (int v = 0; v < 8; v++)
    {
        uint32_t at[8];
        UNROLL for (int i = 0; i < 8; i++) at[i] = p[2 + 8 * v + i];
        c->q[v] = signed_points(eight_points(unpack_grid_iq3_xxs, at), signs[v]);
    }
}

static ALWAYS_INLINE void super_unpack_IQ3_S(const uint8_t *p, struct super_codes *c)
{
    __m128i s = _mm_cvtsi64_si128((long long)spread_nibbles(load_u32(p + 106)));
    c->scale = odd_scales(_mm256_cvtepu8_epi32(s));
    UNROLL for (int v = 0; v < 8; v++)
    {
        uint32_t at[8], h = p[66 + v];
        UNROLL for (int i = 0; i < 8; i++) at[i] = p[2 + 8 * v + i] | (h << (8 - i) & 256);
        c->q[v] = signed_points(eight_points(unpack_grid_iq3_s, at), load_u32(p + 74 + 4 * v));
    }
}

/* 8 times the points, plus the offset and shifts of one. */
static ALWAYS_INLINE __m256i shifted_points(__m256i points, __m256i offset)
{
    return _mm256_add_epi8(masked(_mm256_slli_epi16(points, 3), (char)0xf8), offset);
}

static ALWAYS_INLINE void super_unpack_IQ1_S(const uint8_t *p, struct super_codes *c)
{
    const uint64_t *grid = unpack_grid_iq1;
    __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 34)));
    c->scale = odd_scales(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7)));
    UNROLL for (int v = 0; v < 8; v++)
    {
        const uint8_t *g = p + 2 + 4 * v;
        uint32_t h = load_u16(p + 34 + 2 * v);
        __m256i points = four_points(grid[g[0] | (h << 8 & 0x700)], grid[g[1] | (h << 5 & 0x700)],
                                     grid[g[2] | (h << 2 & 0x700)], grid[g[3] | (h >> 1 & 0x700)]);
        c->q[v] =
            shifted_points(points, _mm256_set1_epi8((char)(GRID_OFFSET + 1 - (int)(h >> 15) * 2)));
    }
}

/* The offset of 8 elements, less or more by one. */
static ALWAYS_INLINE uint64_t shift_of(uint32_t negative)
{
    const uint64_t ones = 0x0101010101010101u;
    return negative ? ones * (GRID_OFFSET - 1) : ones * (GRID_OFFSET + 1);
}

static ALWAYS_INLINE void super_unpack_IQ1_M(const uint8_t *p, struct super_codes *c)
{
    const uint64_t *grid = unpack_grid_iq1;
    /* three bits of every word, moved to its top by a product */
    const __m256i by = _mm256_set1_epi64x(0x0010008004002000);
    const __m256i word =
        _mm256_setr_epi16(0x0100, 0x0100, 0x0100, 0x0100, 0x0302, 0x0302, 0x0302, 0x0302, 0x0504,
                          0x0504, 0x0504, 0x0504, 0x0706, 0x0706, 0x0706, 0x0706);
    __m256i words = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)load_u64(p + 48)), word);
    __m256i s = _mm256_srli_epi16(_mm256_mullo_epi16(words, by), 13);
    c->scale = _mm256_add_epi16(_mm256_slli_epi16(s, 1), _mm256_set1_epi16(1));
    UNROLL for (int v = 0; v < 8; v++)
    {
        const uint8_t *g = p + 4 * v;
        uint32_t h = load_u16(p + 32 + 2 * v);
        __m256i points = four_points(grid[g[0] | (h << 8 & 0x700)], grid[g[1] | (h << 4 & 0x700)],
                                     grid[g[2] | (h & 0x700)], grid[g[3] | (h >> 4 & 0x700)]);
        c->q[v] = shifted_points(points, four_points(shift_of(h & 8), shift_of(h & 0x80),
                                                     shift_of(h & 0x800), shift_of(h & 0x8000)));
    }
}

/* The F16 scale of IQ1_M: the top bits of four words. */
static ALWAYS_INLINE uint16_t iq1_m_scale(const uint8_t *p)
{
    uint64_t w = load_u64(p + 48);
    return (uint16_t)((w >> 12 & 0xf) | (w >> 24 & 0xf0) | (w >> 36 & 0xf00) | (w >> 48 & 0xf000));
}

static ALWAYS_INLINE void super_unpack_TQ2_0(const uint8_t *p, struct super_codes *c)
{
    UNROLL for (int g = 0; g < 2; g++)
    {
        __m256i v = bytes_at(p + 32 * g);
        UNROLL for (int i = 0; i < 4; i++) c->q[4 * g + i] = two_bits(v, 2 * i);
    }
    c->scale = _mm256_set1_epi16(1);
}

/* The first digit to the base 3 of every byte: 3 v / 256. */
static ALWAYS_INLINE __m256i first_digit(__m256i v)
{
    const __m256i one = _mm256_set1_epi8(86), two = _mm256_set1_epi8((char)171);
    __m256i a = _mm256_cmpeq_epi8(_mm256_max_epu8(v, one), v);
    __m256i b = _mm256_cmpeq_epi8(_mm256_max_epu8(v, two), v);
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(a, b));
}

static ALWAYS_INLINE __m256i times_3(__m256i v)
{
    return _mm256_add_epi8(v, _mm256_add_epi8(v, v));
}

static ALWAYS_INLINE void super_unpack_TQ1_0(const uint8_t *p, struct super_codes *c)
{
    __m256i v = bytes_at(p);
    UNROLL for (int g = 0; g < 5; g++)
    {
        c->q[g] = first_digit(v);
        v = times_3(v);
    }
    /* 16 bytes of five digits, side by side with the same times 3; then 4 bytes of four digits */
    __m256i pair =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p + 32)));
    pair = _mm256_blend_epi32(pair, times_3(pair), 0xf0);
    c->q[5] = first_digit(pair);
    pair = times_3(times_3(pair));
    c->q[6] = first_digit(pair);
    pair = times_3(times_3(pair));
    __m256i last = _mm256_set1_epi32((int)load_u32(p + 48)), third = times_3(last);
    __m256i even = _mm256_blend_epi32(last, third, 0xaa); /* words: 1, 3, 1, 3 times */
    __m256i end = _mm256_blend_epi32(even, times_3(times_3(even)), 0xcc);
    c->q[7] = first_digit(_mm256_blend_epi32(pair, end, 0xf0));
    c->scale = _mm256_set1_epi16(1);
}
