/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by super.h: products with several rows. The codes of one super-block of a
 * panel of outputs are unpacked and transposed once, so that the lanes are outputs, and used for
 * all rows: a tile of rows has the integer sums of one super-block in registers, its partial sums
 * stay in memory. The dot product of a sub-block is multiplied by a vector of scales, one per
 * output. */

#define PANEL          (VL * PANEL_VECTORS)
#define PANEL_ROWS_MAX 66 /* as in blocks_panel.h */
#define SUPER_WORDS    (SUPER / 4)
#define SUPER_SUBS     (SUPER / 16)
#define NARROW_HALF    (1 << 15)  /* half of the range of 16 bits */
#define STARTS_MAX     (24 << 10) /* numbers that the dot products of a call start from */

#ifndef DOT_WRAPS
#define DOT_WRAPS false
static ALWAYS_INLINE void dot_starts(int offset_bits, int words, const uint8_t *x, uint32_t *start)
{
    (void)offset_bits, (void)words, (void)x, (void)start;
}
#endif

struct super_panel {
    _Alignas(64) uint8_t q[SUPER_WORDS][PANEL * 4]; /* four elements of each output */
    /* per sub-block, in the form of dot_scale, or pairs (panel_pairs_scales) */
    _Alignas(64) uint8_t scale[SUPER_SUBS][PANEL * 4];
    _Alignas(64) uint8_t pair[SUPER_SUBS / 2][PANEL * 4]; /* pairs of minimums, or of scales */
    _Alignas(64) float d[PANEL], dmin[PANEL];
};

/* The unpacked super-block of one output, before transposition. */
struct super_line {
    _Alignas(64) uint8_t code[SUPER];
    int16_t scale[SUPER_SUBS], min[SUPER_SUBS];
};

struct super_rows {
    const struct super_panel *panel;
    const uint8_t *x; /* first row, at the super-block */
    size_t x_stride, d_at, sums_at;
    bool first;             /* super-block of its partial sum */
    float (*sums)[PANEL];   /* the partial sum, per row */
    const uint8_t *narrow;  /* per row: find_narrow */
    const uint32_t *starts; /* per row: find_starts */
    size_t starts_stride;
};

/* Sums of a row's activations: times the offset of the codes, which a dot product starts from, and
 * in pairs of sub-blocks. */
struct super_row_sums {
    int32_t start[SUPER_SUBS];
    uint32_t pair[SUPER_SUBS / 2];
};

/* By how much codes in the panel are larger than elements. */
static ALWAYS_INLINE int panel_offset_bits(const struct super_type t)
{
    return t.wide && DOT_STARTS ? 7 : t.offset_bits;
}

/* The largest magnitude of elements: of wide types, more than can be paired. */
static ALWAYS_INLINE int panel_element_max(const struct super_type t)
{
    const int codes = 1 << t.code_bits,
              offset = t.offset_bits == NO_OFFSET ? 0 : 1 << t.offset_bits;
    return offset > codes - 1 - offset ? offset : codes - 1 - offset;
}

/* Whether scales are stored in pairs of sub-blocks, the even one below: a dot product of 16 bits
 * then shares a lane, and a multiplication by scales, with another. */
static ALWAYS_INLINE bool panel_pairs_scales(const struct super_type t)
{
    return DOT_PAIRS && panel_element_max(t) <= 32;
}

/* Whether dot products of a sub-block always have 16 bits; else find_narrow finds out. */
static ALWAYS_INLINE bool panel_is_narrow(const struct super_type t)
{
    return panel_element_max(t) * 127 * t.sub <= INT16_MAX;
}

/* Whether dot products of 16 bits start from corrections: the sums of larger codes may wrap. */
static ALWAYS_INLINE bool panel_wraps(const struct super_type t)
{
    return DOT_WRAPS && t.offset_bits != NO_OFFSET;
}

/* Words of four elements of a dot product. */
static ALWAYS_INLINE int panel_words(const struct super_type t)
{
    return dot_words(t.sub, panel_element_max(t));
}

/* Dot products of a super-block. */
static ALWAYS_INLINE int panel_dots(const struct super_type t)
{
    return SUPER_WORDS / panel_words(t);
}

/* Whether the sums of activations are multiplied by pairs of numbers of the panel. */
static ALWAYS_INLINE bool panel_has_pairs(const struct super_type t)
{
    return t.minimums || (!DOT_STARTS && !DOT_WRAPS && t.offset_bits != NO_OFFSET);
}

/* Scales and pairs of VL outputs, into one side of the panel. */
static ALWAYS_INLINE void pack_scales(const struct super_type t, const uint8_t *const line[VL],
                                      struct super_panel *p, const int side)
{
    const int at = side * VL * 4;
    UNROLL for (int h = 0; h < 2; h++)
    {
        vq v[4]; /* numbers of two times 16 elements */
        vq_transpose(line, offsetof(struct super_line, scale) + (size_t)h * 16, v);
        UNROLL for (int e = 0; e < 4; e++)
        {
            if (panel_pairs_scales(t)) {
                if (t.sub == 16)
                    vq_store(&p->scale[4 * h + e][at], v[e]);
                else if (e % 2 == 0)
                    vq_store(&p->scale[2 * h + e / 2][at], vq_join_words(v[e], v[e + 1]));
            } else if (t.sub == 32) {
                vq_store(&p->scale[4 * h + e][at], dot_scale_of(v[e], 0));
            } else {
                vq_store(&p->scale[8 * h + 2 * e][at], dot_scale_of(v[e], 0));
                vq_store(&p->scale[8 * h + 2 * e + 1][at], dot_scale_of(v[e], 1));
            }
        }
        if (!panel_has_pairs(t))
            continue;
        if (t.minimums)
            vq_transpose(line, offsetof(struct super_line, min) + (size_t)h * 16, v);
        UNROLL for (int e = 0; e < 4; e++)
        {
            if (t.sub == 16)
                vq_store(&p->pair[4 * h + e][at], v[e]);
            else if (e % 2 == 0)
                vq_store(&p->pair[2 * h + e / 2][at], vq_join_words(v[e], v[e + 1]));
        }
    }
}

/* d of VL super-blocks. */
static ALWAYS_INLINE vf panel_d(const struct super_type t, const uint8_t *const block[VL])
{
    const uint8_t *at[VL];
    uint16_t half[VL];
    UNROLL for (int r = 0; r < VL; r++)
    {
        at[r] = block[r] + t.d_at;
        if (t.type == TENSOR_IQ1_M) {
            half[r] = iq1_m_scale(block[r]);
            at[r] = (const uint8_t *)&half[r];
        }
    }
    return vf_mul(vf_halves_at(at), vf_set1(t.d_factor));
}

/* A super-block of VL outputs, unpacked row by row, into one side of the panel. */
static ALWAYS_INLINE void pack_lines(const struct super_type t, const uint8_t *const block[VL],
                                     struct super_panel *p, const int side)
{
    struct super_line lines[VL];
    const uint8_t *line[VL], *min[VL];
    sl_assert(!t.wide); /* their codes are in another order */
    for (int r = 0; r < VL; r++) {
        struct super_codes c;
        super_codes_at(t, block[r], &c);
        UNROLL for (int v = 0; v < 8; v++)
            _mm256_store_si256((__m256i *)(void *)(lines[r].code + 32 * v), c.q[v]);
        _mm256_store_si256((__m256i *)(void *)lines[r].scale, c.scale);
        if (t.minimums)
            _mm256_store_si256((__m256i *)(void *)lines[r].min, c.min);
    }
    UNROLL for (int r = 0; r < VL; r++) line[r] = lines[r].code;
    for (int i = 0; i < SUPER_WORDS / 4; i++) {
        vq v[4];
        vq_transpose(line, (size_t)i * 16, v);
        UNROLL for (int e = 0; e < 4; e++) vq_store(&p->q[4 * i + e][side * VL * 4], v[e]);
    }
    pack_scales(t, line, p, side);
    vf_store(&p->d[side * VL], panel_d(t, block));
    if (t.minimums) {
        UNROLL for (int r = 0; r < VL; r++) min[r] = block[r] + t.dmin_at;
        vf_store(&p->dmin[side * VL], vf_halves_at(min));
    }
}

#include "lib/kernels/simd/super_words.h"

/* Super-block g of outputs j .. j + PANEL - 1 (from n on, the last one again). */
static ALWAYS_INLINE void pack_super(const struct super_type t, const struct kernel_matrix *w,
                                     uint32_t j, uint32_t n, uint32_t g, struct super_panel *p)
{
    for (int side = 0; side < PANEL_VECTORS; side++) {
        const uint8_t *block[VL];
        for (uint32_t r = 0; r < VL; r++) {
            uint32_t at = j + (uint32_t)side * VL + r < n ? j + (uint32_t)side * VL + r : n - 1;
            block[r] = (const uint8_t *)w->data + (size_t)at * w->row_bytes + (size_t)g * t.bytes;
            for (size_t line = 0; line < t.bytes; line += 64)
                prefetch_far(block[r] + line, (size_t)PANEL * w->row_bytes);
        }
        if (panel_of_words(t))
            pack_words(t, block, p, side);
        else
            pack_lines(t, block, p, side);
    }
}

/* `narrow`: NARROW_HALF is added to what even sub-blocks start from. */
static ALWAYS_INLINE void row_sums_at(const struct super_type t, const uint8_t *sums,
                                      const bool narrow, struct super_row_sums *a)
{
    __m256i s = load_32(sums), twice = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    __m256i first = t.sub == 32 ? twice : _mm256_cvtepi16_epi32(_mm256_castsi256_si128(s));
    __m256i second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(s, 1));
    if (DOT_STARTS && panel_offset_bits(t) != NO_OFFSET) {
        const __m256i zero = _mm256_set1_epi64x(narrow ? NARROW_HALF : 0);
        first = _mm256_sub_epi32(zero, _mm256_slli_epi32(first, panel_offset_bits(t)));
        second = _mm256_sub_epi32(zero, _mm256_slli_epi32(second, panel_offset_bits(t)));
        _mm256_storeu_si256((__m256i *)(void *)a->start, first);
        if (t.sub == 16)
            _mm256_storeu_si256((__m256i *)(void *)(a->start + 8), second);
    }
    if (panel_has_pairs(t)) { /* the sum of 32 fits, too */
        __m256i two = _mm256_permute4x64_epi64(_mm256_packs_epi32(twice, twice), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)a->pair, t.sub == 32 ? two : s);
    }
}

/* Sums of eight elements, of a sub-block together. */
static ALWAYS_INLINE __m256i add_eights(const struct super_type t, __m256i s)
{
    s = _mm256_add_epi64(s, _mm256_shuffle_epi32(s, 0x4e));
    return t.sub == 16 ? s : _mm256_add_epi64(s, _mm256_permute4x64_epi64(s, 0x4e));
}

/* Whether in each sub-block of a super-block of activations, the sum of the positive numbers and
 * that of the negative ones (of types with an offset, of all magnitudes) are at most `max`. */
static ALWAYS_INLINE bool row_is_below(const struct super_type t, const uint8_t *x, int max)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i top = zero;
    UNROLL for (int i = 0; i < SUPER; i += 32)
    {
        __m256i q = load_32(x + i);
        __m256i all = _mm256_sad_epu8(_mm256_abs_epi8(q), zero);
        __m256i positive = _mm256_sad_epu8(_mm256_max_epi8(q, zero), zero);
        if (t.offset_bits != NO_OFFSET)
            top = _mm256_max_epi32(top, add_eights(t, all));
        else
            top = _mm256_max_epi32(
                top, _mm256_max_epi32(add_eights(t, positive),
                                      add_eights(t, _mm256_sub_epi64(all, positive))));
    }
    return _mm256_testz_si256(_mm256_cmpgt_epi32(top, _mm256_set1_epi32(max)),
                              _mm256_set1_epi32(-1));
}

/* Adds the products of `words` words from `word` on. */
static ALWAYS_INLINE void add_words(const struct super_type t, const struct super_rows *s, int word,
                                    const int words, const int rows,
                                    vi dot[PANEL_ROWS][PANEL_VECTORS])
{
    UNROLL for (int e = 0; e < words; e++)
    {
        vq w[PANEL_VECTORS];
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++) w[v] =
            vq_load(&s->panel->q[word + e][v * VL * 4]);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vq x =
                vi_set1((int32_t)load_u32(s->x + (size_t)r * s->x_stride + (size_t)(word + e) * 4));
            UNROLL for (int v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
                dot_add(t.wide, dot[r][v], w[v], x);
        }
    }
}

/* The value that the dot product of part i of row r starts from, by row_sums_at or find_starts. */
static ALWAYS_INLINE int32_t dot_start(const struct super_type t, const struct super_rows *s,
                                       const struct super_row_sums *a, int r, int i)
{
    if (panel_wraps(t))
        return (int32_t)s->starts[(size_t)r * s->starts_stride + (size_t)i];
    return DOT_STARTS && panel_offset_bits(t) != NO_OFFSET ? a[r].start[i] : 0;
}

/* Adds the dot products of part i of the super-block, times their scales, to the sums. */
static ALWAYS_INLINE void add_dots(const struct super_type t, const struct super_rows *s,
                                   const struct super_row_sums a[PANEL_ROWS], int i, const int rows,
                                   vi sum[PANEL_ROWS][PANEL_VECTORS])
{
    const int words = panel_words(t);
    vi dot[PANEL_ROWS][PANEL_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
        vi_set1(dot_start(t, s, a, r, i));
    add_words(t, s, i * words, words, rows, dot);
    UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
    {
        const int sub = i * words * 4 / t.sub;
        const bool pairs = panel_pairs_scales(t);
        vi scale = vq_load(&s->panel->scale[pairs ? sub / 2 : sub][v * VL * 4]);
        if (pairs)
            scale = sub % 2 == 0 ? dot_scale_of(scale, 0) : dot_scale_of(scale, 1);
        UNROLL for (int r = 0; r < rows; r++) sum[r][v] = dot_scale(sum[r][v], dot[r][v], scale);
    }
}

/* Adds the products of the sub-blocks 2 i and 2 i + 1, whose dot products have 16 bits: that of the
 * odd one is moved to the high half of its lane, and the even one's is added to the lane. Half of
 * the low half's range is added before and subtracted after, within these bits, so that none is
 * borrowed from the high half. */
static ALWAYS_INLINE void add_narrow(const struct super_type t, const struct super_rows *s,
                                     const struct super_row_sums a[PANEL_ROWS], int i,
                                     const int rows, vi sum[PANEL_ROWS][PANEL_VECTORS])
{
    const int words = t.sub / 4;
    const bool start = panel_offset_bits(t) != NO_OFFSET;
    vi dot[PANEL_ROWS][PANEL_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
        vi_set1(dot_start(t, s, a, r, 2 * i + 1));
    add_words(t, s, (2 * i + 1) * words, words, rows, dot);
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
        vi_add(vi_shift_left(dot[r][v], 16), vi_set1(start ? a[r].start[2 * i] : NARROW_HALF));
    add_words(t, s, 2 * i * words, words, rows, dot);
    UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
    {
        vi scale = vq_load(&s->panel->scale[i][v * VL * 4]);
        UNROLL for (int r = 0; r < rows; r++) sum[r][v] =
            vi_add_pairs(sum[r][v], vi_xor(dot[r][v], vi_set1(NARROW_HALF)), scale);
    }
}

/* Adds a super-block to the partial sum of row r. */
static ALWAYS_INLINE void add_super(const struct super_type t, const struct super_rows *s,
                                    const struct super_row_sums *a, const int r,
                                    const vi sums[PANEL_VECTORS])
{
    vf dx = vf_set1(load_f32(s->x + (size_t)r * s->x_stride + s->d_at));
    UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
    {
        float *acc = &s->sums[r][v * VL];
        vi sum = sums[v], low = vi_set1(0);
        if (panel_has_pairs(t))
            UNROLL for (int i = 0; i < 128 / t.sub; i++) low = vi_add_pairs(
                low, vq_load(&s->panel->pair[i][v * VL * 4]), vi_set1((int32_t)a->pair[i]));
        if (!t.minimums && panel_has_pairs(t))
            sum = vi_sub(sum, vi_shift_left(low, t.offset_bits));
        vf term = vf_mul(vi_to_float(sum), vf_load(&s->panel->d[v * VL]));
        if (t.minimums)
            term = vf_subtract_product(vf_load(&s->panel->dmin[v * VL]), vi_to_float(low), term);
        vf_store(acc, vf_fma(term, dx, s->first ? vf_set1(0) : vf_load(acc)));
    }
}

static ALWAYS_INLINE void super_rows(const struct super_type t, const struct super_rows *s,
                                     const bool narrow, const int rows)
{
    struct super_row_sums a[PANEL_ROWS];
    vi sum[PANEL_ROWS][PANEL_VECTORS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        row_sums_at(t, s->x + (size_t)r * s->x_stride + s->sums_at, narrow, &a[r]);
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[r][v] = vi_set1(0);
    }
    if (narrow)
        for (int i = 0; i < 128 / t.sub; i++)
            add_narrow(t, s, a, i, rows, sum);
    else
        for (int i = 0; i < panel_dots(t); i++)
            add_dots(t, s, a, i, rows, sum);
    UNROLL for (int r = 0; r < rows; r++) add_super(t, s, &a[r], r, sum[r]);
}

static ALWAYS_INLINE void super_rows_any(const struct super_type t, const struct super_rows *s,
                                         const bool narrow, uint32_t rows)
{
    switch (rows) {
    case 1: super_rows(t, s, narrow, 1); return;
    case 2: super_rows(t, s, narrow, 2); return;
    case 3: super_rows(t, s, narrow, 3); return;
    case 4: super_rows(t, s, narrow, 4); return;
#if PANEL_ROWS > 4
    case 5: super_rows(t, s, narrow, 5); return;
    case 6: super_rows(t, s, narrow, 6); return;
#endif
    default: sl_panic("no tile of %u rows", rows);
    }
}

/* Whether dot products of all `rows` rows have 16 bits. */
static ALWAYS_INLINE bool all_narrow(const struct super_rows *s, uint32_t rows)
{
    bool all = true;
    for (uint32_t r = 0; r < rows; r++)
        all &= s->narrow[r] != 0;
    return all;
}

/* All rows of one super-block, in tiles whose heights differ by at most one. */
static ALWAYS_INLINE void super_rows_all(const struct super_type t, struct super_rows s,
                                         uint32_t rows)
{
    for (uint32_t tiles = (rows + PANEL_ROWS - 1) / PANEL_ROWS; tiles > 0; tiles--) {
        uint32_t height = (rows + tiles - 1) / tiles;
        if (panel_pairs_scales(t) && (panel_is_narrow(t) || all_narrow(&s, height)))
            super_rows_any(t, &s, true, height);
        else if (!panel_pairs_scales(t) || !panel_is_narrow(t))
            super_rows_any(t, &s, false, height);
        s.x += height * s.x_stride;
        s.sums += height;
        s.narrow += height;
        s.starts += height * s.starts_stride;
        rows -= height;
    }
}

/* The sums of the first `used` partial sums; the others are zero. */
static ALWAYS_INLINE void join_rows(float sums[PARTS][PANEL_ROWS_MAX][PANEL], uint32_t used,
                                    uint32_t rows, float *y, size_t y_stride, uint32_t outputs)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t at = 0; at < outputs; at += VL) {
            vf p[PARTS];
            UNROLL for (uint32_t i = 0; i < PARTS; i++) p[i] =
                i < used ? vf_load(&sums[i][r][at]) : vf_set1(0);
            vf sum = vf_add(vf_add(vf_add(p[0], p[1]), vf_add(p[2], p[3])),
                            vf_add(vf_add(p[4], p[5]), vf_add(p[6], p[7])));
            vf_store_n(y + r * y_stride + at, sum, outputs - at < VL ? outputs - at : VL);
        }
}

/* Finds the rows whose dot products with any element of a sub-block have 16 bits, per
 * super-block. */
static ALWAYS_INLINE void find_narrow(const struct super_type t, const uint8_t *x, size_t x_stride,
                                      uint32_t rows, uint32_t supers,
                                      uint8_t narrow[][PANEL_ROWS_MAX])
{
    const int max = INT16_MAX / panel_element_max(t);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < supers; g++)
            narrow[g][r] = row_is_below(t, x + r * x_stride + (size_t)g * SUPER, max);
}

/* The numbers that dot products start from, per row and super-block. */
static ALWAYS_INLINE void find_starts(const struct super_type t, const uint8_t *x, size_t x_stride,
                                      uint32_t rows, uint32_t supers, uint32_t *starts)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < supers; g++, starts += panel_dots(t))
            dot_starts(t.offset_bits, panel_words(t), x + r * x_stride + (size_t)g * SUPER, starts);
}

/* Rows that are computed together, at most. */
static ALWAYS_INLINE uint32_t panel_rows_max(const struct super_type t, uint32_t supers)
{
    uint32_t fit = STARTS_MAX / (supers * (uint32_t)panel_dots(t));
    return panel_wraps(t) && fit < PANEL_ROWS_MAX ? fit : PANEL_ROWS_MAX;
}

static ALWAYS_INLINE void super_panels(const struct super_type t, const struct kernel_matrix *w,
                                       uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                       size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct super_panel panel;
    float sums[PARTS][PANEL_ROWS_MAX][PANEL];
    uint8_t narrow[KERNEL_K_MAX / SUPER][PANEL_ROWS_MAX];
    uint32_t starts[DOT_WRAPS ? STARTS_MAX : 1];
    const uint32_t supers = w->k / SUPER, rows_max = panel_rows_max(t, supers);
    const uint32_t dots = (uint32_t)panel_dots(t);
    sl_assert(w->k <= KERNEL_K_MAX);
    for (uint32_t r = 0, n; r < rows; r += n) {
        n = rows - r < rows_max ? rows - r : rows_max;
        if (panel_wraps(t))
            find_starts(t, x + r * x_stride, x_stride, n, supers, starts);
        if (panel_pairs_scales(t) && !panel_is_narrow(t))
            find_narrow(t, x + r * x_stride, x_stride, n, supers, narrow);
        for (uint32_t j = n_begin; j < n_end; j += PANEL) {
            for (uint32_t g = 0; g < supers; g++) {
                /* offsets of scales and sums are those from the super-block */
                size_t at = (size_t)g * SUPER;
                struct super_rows s = {.panel = &panel,
                                       .x = x + r * x_stride + at,
                                       .x_stride = x_stride,
                                       .d_at = super_scale_offset(w->k) + g * 4u - at,
                                       .sums_at = super_sum_offset(w->k) + g * 32u - at,
                                       .first = g < PARTS,
                                       .sums = sums[g % PARTS],
                                       .narrow = narrow[g],
                                       .starts = starts + (size_t)g * dots,
                                       .starts_stride = (size_t)supers * dots};
                pack_super(t, w, j, n_end, g, &panel);
                super_rows_all(t, s, n);
            }
            join_rows(sums, supers < PARTS ? supers : PARTS, n, y + r * y_stride + j, y_stride,
                      n_end - j < PANEL ? n_end - j : PANEL);
        }
    }
}
