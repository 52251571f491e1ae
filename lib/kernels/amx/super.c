/* SPDX-License-Identifier: Apache-2.0 */
/* Products of several rows with super-blocks of 256: AMX.
 *
 * The scale of a sub-block is multiplied into its codes when a super-block is unpacked, so that its
 * products are added without a step in between. The result has up to 14 bits: a tile of its low
 * bytes, which are unsigned, and one of its high bytes, which are signed. Types whose result fits
 * into a byte have one tile. All sums are exact, so the bits are those of the other instruction
 * sets.
 *
 * A super-block of the activations is transposed once for a group of panels of 16 outputs. */
#include "lib/kernels/amx/tiles.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/values.h"

/* Byte i is 0xff if bit i is set, else 0. */
#define VECTOR_BITS(bits) _mm256_movm_epi8(bits)

#include "lib/kernels/amx/super_unpack.h"

#define SUPER_PAIRS  (SUPER / 32)
#define ROW_TILES    8 /* at once */
#define GROUP_PANELS 8
#define GROUP_TILES  32 /* panels times tiles of rows, whose sums fit into KERNEL_STACK_BYTES */

/* A super-block of the activations. */
struct super_x {
    _Alignas(64) uint8_t q[ROW_TILES][SUPER_VECTORS][TILE_BYTES / 4][TILE_BYTES];
    /* of types with minimums: sums of sub-blocks in pairs, 16 bits each */
    _Alignas(64) uint8_t pair[ROW_TILES][SUPER_PAIRS][TILE_BYTES];
    _Alignas(64) float d[ROW_TILES][TILE_ROWS];
};

/* The same of a panel of outputs. */
struct super_w {
    _Alignas(64) uint8_t low[TILE_OUTPUTS][SUPER], high[TILE_OUTPUTS][SUPER];
    float d[TILE_OUTPUTS], dmin[TILE_OUTPUTS];
    _Alignas(32) int32_t pair[TILE_OUTPUTS][SUPER_PAIRS]; /* minimums of sub-blocks in pairs */
};

/* Integer sums of two tiles of rows. */
struct super_dots {
    _Alignas(64) tile_ints low[2], high[2];
};

/* Sums of a panel and a tile of rows; before the last super-block of a partial sum, that sum is in
 * place of the result. */
struct super_sums {
    _Alignas(64) tile_tree tree;
};

/* A super-block's place in the sums. */
struct super_step {
    uint32_t part;
    bool first, last; /* super-block of its partial sum */
};

/* Whether codes times scales fit into a signed byte. */
static ALWAYS_INLINE bool is_single(const struct super_type t)
{
    switch (t.type) {
#define UNPACK(name, unit, sub, minimums, code_max, scale_max, min_max, function)                  \
    case TENSOR_##name:                                                                            \
        return (code_max) * (scale_max) <= 127;
#include "lib/tensor/unpack/unpack.tbl.h"
    default: return false;
    }
}

/* What fold_scales multiplies: scales are bytes, and its products have 16 bits. */
#define UNPACK(name, unit, sub, minimums, code_max, scale_max, min_max, function)                  \
    _Static_assert((scale_max) <= 128 && (code_max) * (scale_max) <= INT16_MAX,                    \
                   "scales of " #name " can be multiplied into its codes");
#include "lib/tensor/unpack/unpack.tbl.h"

/* ---- activations ---- */

/* Sums of 16 elements of 16 rows, in pairs; of types with sub-blocks of 32, sums of 32 in pairs. */
static ALWAYS_INLINE void transpose_sums(const struct super_type t,
                                         const uint8_t *const row[TILE_ROWS], size_t at,
                                         uint8_t pair[SUPER_PAIRS][TILE_BYTES])
{
    const vi one = _mm512_set1_epi16(1);
    UNROLL for (int h = 0; h < 2; h++)
    {
        vq v[4];
        vq_transpose(row, at + (size_t)h * 16, v);
        if (t.sub == 16)
            UNROLL for (int e = 0; e < 4; e++) vq_store(pair[4 * h + e], v[e]);
        else
            UNROLL for (int e = 0; e < 2; e++)
                vq_store(pair[2 * h + e],
                         vq_join_words(_mm512_madd_epi16(v[2 * e], one),
                                       vi_shift_left(_mm512_madd_epi16(v[2 * e + 1], one), 16)));
    }
}

/* Super-block g of all rows. */
static ALWAYS_INLINE void transpose_super(const struct super_type t, const struct tile_rows *r,
                                          uint32_t k, uint32_t g, struct super_x *x)
{
    const uint8_t *order = wide_order(t);
    for (uint32_t tile = 0; tile < r->tiles; tile++) {
        const uint8_t *row[TILE_ROWS];
        tile_row_pointers(r, tile, 0, row);
        for (uint32_t i = 0; i < SUPER / 16; i++)
            tile_words(row, g * SUPER + order[i] * 16u, x->q[tile][i / 4] + i % 4 * 4);
        if (t.minimums)
            transpose_sums(t, row, super_sum_offset(k) + g * 32, x->pair[tile]);
        tile_scales(row, super_scale_offset(k) + g * sizeof(float), x->d[tile]);
    }
}

/* ---- weights ---- */

/* Codes times scales of a super-block of one output. */
static ALWAYS_INLINE void fold_scales(const struct super_type t, const struct super_wide *w,
                                      uint8_t *low, uint8_t *high)
{
    const int bits = wide_offset_bits(t);
    const __m512i first = _mm512_set1_epi16(0xff);
    const __m512i scales = _mm512_broadcast_i32x4(w->scale);
    /* the scale of each lane of 16 bytes in the even bytes, zeros in the others */
    const __m512i lane = _mm512_set_epi64(
        (long long)0x8003800380038003, (long long)0x8003800380038003, (long long)0x8002800280028002,
        (long long)0x8002800280028002, (long long)0x8001800180018001, (long long)0x8001800180018001,
        (long long)0x8000800080008000, (long long)0x8000800080008000);
    UNROLL for (int v = 0; v < SUPER_VECTORS; v++)
    {
        const __m512i at = _mm512_add_epi8(lane, _mm512_set1_epi8((char)(4 * v)));
        __m512i even_scale = _mm512_shuffle_epi8(scales, at);
        __m512i odd_scale = _mm512_slli_epi16(even_scale, 8);
        __m512i even = _mm512_maddubs_epi16(w->q[v], even_scale);
        __m512i odd = _mm512_maddubs_epi16(w->q[v], odd_scale);
        if (bits != NO_OFFSET) {
            __m512i offset = _mm512_maddubs_epi16(vq_set1((char)(1 << bits)), even_scale);
            even = _mm512_sub_epi16(even, offset);
            odd = _mm512_sub_epi16(odd, offset);
        }
        /* a byte of each: of the second operand where the first one is set, else of the third */
        vq_store(low + 64 * v,
                 _mm512_ternarylogic_epi64(first, even, _mm512_slli_epi16(odd, 8), 0xca));
        if (!is_single(t))
            vq_store(high + 64 * v,
                     _mm512_ternarylogic_epi64(first, _mm512_srli_epi16(even, 8), odd, 0xca));
    }
}

static ALWAYS_INLINE vf scales_at(const struct super_type t,
                                  const uint8_t *const block[TILE_OUTPUTS])
{
    const uint8_t *at[TILE_OUTPUTS];
    uint16_t half[TILE_OUTPUTS];
    UNROLL for (int i = 0; i < TILE_OUTPUTS; i++)
    {
        at[i] = block[i] + t.d_at;
        if (t.type == TENSOR_IQ1_M) {
            half[i] = iq1_m_scale(block[i]);
            at[i] = (const uint8_t *)&half[i];
        }
    }
    return vf_mul(vf_halves_at(at), vf_set1(t.d_factor));
}

/* Super-block g of outputs j .. j + 15 (from n on, the last one again). */
static ALWAYS_INLINE void unpack_super(const struct super_type t, const struct kernel_matrix *w,
                                       uint32_t j, uint32_t n, uint32_t g, size_t ahead,
                                       struct super_w *p)
{
    const uint8_t *block[TILE_OUTPUTS];
    for (uint32_t i = 0; i < TILE_OUTPUTS; i++) {
        struct super_wide wide;
        block[i] = (const uint8_t *)w->data + (size_t)(j + i < n ? j + i : n - 1) * w->row_bytes +
                   (size_t)g * t.bytes;
        for (size_t line = 0; line < t.bytes; line += 64)
            prefetch_far(block[i] + line, ahead);
        wide_unpack(t, block[i], &wide, p->pair[i]);
        fold_scales(t, &wide, p->low[i], p->high[i]);
    }
    vf_store(p->d, scales_at(t, block));
    if (t.minimums) {
        UNROLL for (int i = 0; i < TILE_OUTPUTS; i++) block[i] += t.dmin_at;
        vf_store(p->dmin, vf_halves_at(block));
    }
}

/* ---- products ---- */

/* The integer sums of tile `tile` of the rows, and of the next one. */
static ALWAYS_INLINE void super_products(const struct super_type t, const struct super_x *x,
                                         const struct super_w *w, uint32_t tile, const bool two,
                                         struct super_dots *dots)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    tiles_written();
    UNROLL for (int i = 0; i < SUPER_VECTORS; i++)
    {
        _tile_loadd(4, &w->low[0][i * TILE_BYTES], SUPER);
        _tile_loadd(6, x->q[tile][i], TILE_BYTES);
        if (two)
            _tile_loadd(7, x->q[tile + 1][i], TILE_BYTES);
        if (is_single(t)) {
            _tile_dpbssd(0, 4, 6);
            if (two)
                _tile_dpbssd(1, 4, 7);
            continue;
        }
        _tile_loadd(5, &w->high[0][i * TILE_BYTES], SUPER);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbssd(2, 5, 6);
        if (two) {
            _tile_dpbusd(1, 4, 7);
            _tile_dpbssd(3, 5, 7);
        }
    }
    _tile_stored(0, dots->low[0], TILE_BYTES);
    if (!is_single(t))
        _tile_stored(2, dots->high[0], TILE_BYTES);
    if (two)
        _tile_stored(1, dots->low[1], TILE_BYTES);
    if (two && !is_single(t))
        _tile_stored(3, dots->high[1], TILE_BYTES);
}

/* Adds the super-block's terms of a tile of rows. */
static ALWAYS_INLINE void super_terms(const struct super_type t, const struct super_x *x,
                                      const struct super_w *w, uint32_t tile,
                                      const struct super_step *step, tile_ints low, tile_ints high,
                                      struct super_sums *sums)
{
    const int pairs = 128 / t.sub;
    const vf dx = vf_load(x->d[tile]);
    vi pair[SUPER_PAIRS];
    if (t.minimums)
        UNROLL for (int i = 0; i < pairs; i++) pair[i] = vq_load(x->pair[tile][i]);
    for (int output = 0; output < TILE_OUTPUTS; output++) {
        vi dot = vq_load(low[output]);
        if (!is_single(t))
            dot = vi_add(dot, vi_shift_left(vq_load(high[output]), 8));
        vf term = vf_mul(vi_to_float(dot), vf_set1(w->d[output]));
        if (t.minimums) {
            vi minimum = vi_set1(0);
            UNROLL for (int i = 0; i < pairs; i++) minimum =
                vi_add_pairs(minimum, pair[i], vi_set1(w->pair[output][i]));
            term = vf_subtract_product(vf_set1(w->dmin[output]), vi_to_float(minimum), term);
        }
        vf sum = vf_fma(term, dx, step->first ? vf_set1(0) : vf_load(sums->tree[TREE][output]));
        if (step->last)
            tile_close(sums->tree, step->part, output, sum);
        else
            vf_store(sums->tree[TREE][output], sum);
    }
}

static ALWAYS_INLINE void super_panel(const struct super_type t, const struct super_x *x,
                                      const struct super_w *w, uint32_t tiles,
                                      const struct super_step *step, struct super_sums *sums)
{
    struct super_dots dots;
    for (uint32_t i = 0; i < tiles; i += 2) {
        const bool two = i + 1 < tiles;
        if (two)
            super_products(t, x, w, i, true, &dots);
        else
            super_products(t, x, w, i, false, &dots);
        super_terms(t, x, w, i, step, dots.low[0], dots.high[0], &sums[i]);
        if (two)
            super_terms(t, x, w, i + 1, step, dots.low[1], dots.high[1], &sums[i + 1]);
    }
}

static ALWAYS_INLINE uint32_t group_outputs(uint32_t tiles)
{
    const uint32_t panels = GROUP_TILES / tiles;
    return (panels < GROUP_PANELS ? panels : GROUP_PANELS) * TILE_OUTPUTS;
}

/* Outputs j .. n - 1, group_outputs at most. */
static ALWAYS_INLINE void super_group(const struct super_type t, const struct kernel_matrix *w,
                                      uint32_t j, uint32_t n, const struct tile_rows *r, float *y,
                                      size_t y_stride)
{
    struct super_sums sums[GROUP_TILES]; /* [panel][tile] */
    struct super_x x;
    struct super_w panel;
    const uint32_t supers = w->k / SUPER, panels = (n - j + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    for (uint32_t part = 0; part < PARTS && part < supers; part++)
        for (uint32_t g = part; g < supers; g += PARTS) {
            const struct super_step step = {part, g == part, g + PARTS >= supers};
            const uint32_t next = !step.last                              ? g + PARTS
                                  : part + 1 < PARTS && part + 1 < supers ? part + 1
                                                                          : 0;
            /* from a super-block to the next one of the output; at the end, to the next group's */
            const size_t ahead = (size_t)next * t.bytes - (size_t)g * t.bytes +
                                 (next == 0 ? group_outputs(r->tiles) * (size_t)w->row_bytes : 0);
            transpose_super(t, r, w->k, g, &x);
            for (uint32_t p = 0; p < panels; p++) {
                unpack_super(t, w, j + p * TILE_OUTPUTS, n, g, ahead, &panel);
                super_panel(t, &x, &panel, r->tiles, &step, sums + p * r->tiles);
            }
        }
    for (uint32_t p = 0; p < panels; p++)
        for (uint32_t tile = 0; tile < r->tiles; tile++) {
            for (uint32_t part = supers; part < PARTS; part++) /* which have no super-block */
                for (int output = 0; output < TILE_OUTPUTS; output++)
                    tile_close(sums[p * r->tiles + tile].tree, part, output, vf_set1(0));
            const uint32_t at = j + p * TILE_OUTPUTS;
            tile_store(sums[p * r->tiles + tile].tree[TREE], r, tile, y + at, y_stride,
                       n - at < TILE_OUTPUTS ? n - at : TILE_OUTPUTS);
        }
}

/* One copy of the code per type, so that its properties are constants. */
#define SUPER_PRODUCT(NAME)                                                                        \
    static __attribute__((noinline)) void super_group_##NAME(                                      \
        const struct kernel_matrix *w, uint32_t j, uint32_t n, const struct tile_rows *r,          \
        float *y, size_t y_stride)                                                                 \
    {                                                                                              \
        super_group(super_type_##NAME, w, j, n, r, y, y_stride);                                   \
    }
SUPER_TYPES(SUPER_PRODUCT)

typedef void super_group_fn(const struct kernel_matrix *w, uint32_t j, uint32_t n,
                            const struct tile_rows *r, float *y, size_t y_stride);

static super_group_fn *super_group_of(enum tensor_type type)
{
    switch (type) {
#define SUPER_CASE(NAME)                                                                           \
    case TENSOR_##NAME: return super_group_##NAME;
        SUPER_TYPES(SUPER_CASE)
    default: sl_panic("type %d has no super-blocks", (int)type);
    }
}

void amx_super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                      const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    const uint32_t at_once = ROW_TILES * TILE_ROWS;
    super_group_fn *group = super_group_of(w->type);
    tiles_begin(TILE_BYTES);
    for (uint32_t r = 0; r < rows; r += at_once) {
        const struct tile_rows now = tile_rows_of((const uint8_t *)x + r * x_stride, x_stride,
                                                  rows - r < at_once ? rows - r : at_once);
        const uint32_t outputs = group_outputs(now.tiles);
        for (uint32_t j = n_begin; j < n_end; j += outputs)
            group(w, j, n_end - j < outputs ? n_end : j + outputs, &now, y + r * y_stride,
                  y_stride);
    }
    tiles_end();
}
