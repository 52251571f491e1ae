/* SPDX-License-Identifier: Apache-2.0 */
/* Products of several rows with blocks that have one scale per 32 elements or more: AMX.
 *
 * The activations are transposed once for all outputs, the blocks of 16 outputs are unpacked once
 * for all rows of activations. A product of tiles gives the integer sums of a block, vectors
 * multiply them by the scales and add them to one partial sum at a time. All integer sums are
 * exact, so the bits are those of the other instruction sets. */
#include "lib/kernels/amx/tiles.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/values.h"

#include "lib/kernels/simd/blocks_unpack.h"

#define PANEL_BLOCKS 64 /* of 16 outputs, unpacked at once */
#define PANEL_STRIDE                                                                               \
    (PANEL_BLOCKS * QK + 64)      /* no power of two: the rows of a tile are in other cache sets */
#define BATCH        4            /* blocks whose integer sums are computed together */
#define MEMORY_BYTES (188u << 10) /* for activations and partial sums, of KERNEL_STACK_BYTES */

/* A block of 16 rows of activations. */
typedef uint8_t block_tiles[QK / 4][TILE_BYTES];

/* The activations of all rows, in tiles of 16. */
struct block_x {
    uint32_t blocks;         /* of a row */
    block_tiles *q;          /* [tile][block] */
    float (*d)[TILE_ROWS];   /* the same: scales */
    float (*low)[TILE_ROWS]; /* of types with minimums: -1 times the sum of the elements */
    tile_floats (
        *sums)[PARTS]; /* per tile, if the weights are not unpacked at once: partial sums */
};

struct block_w {
    _Alignas(64) uint8_t q[TILE_OUTPUTS][PANEL_STRIDE]; /* signed */
    float d[PANEL_BLOCKS][TILE_OUTPUTS], minimum[PANEL_BLOCKS][TILE_OUTPUTS];
};

struct block_step {
    const struct block_x *x;
    const struct block_w *w;
    uint32_t tile;         /* of the rows */
    uint32_t from, blocks; /* unpacked */
    bool first, last;      /* unpacked blocks of the outputs */
};

/* ---- activations ---- */

static ALWAYS_INLINE size_t tile_memory(const struct block_type t, uint32_t k)
{
    const size_t floats = (size_t)act_blocks(k) * TILE_ROWS * sizeof(float);
    return (size_t)k * TILE_ROWS + floats + (t.minimums ? floats : 0) +
           (k / QK > PANEL_BLOCKS ? PARTS * sizeof(tile_floats) : 0);
}

/* Divides the memory, of `tiles` times tile_memory bytes. */
static ALWAYS_INLINE struct block_x divide(const struct block_type t, uint32_t k, uint32_t tiles,
                                           uint8_t *memory)
{
    struct block_x x = {.blocks = k / QK, .q = (block_tiles *)(void *)memory};
    const size_t scales = (size_t)act_blocks(k) * tiles;
    memory += (size_t)k * TILE_ROWS * tiles;
    x.d = (float(*)[TILE_ROWS])(void *)memory;
    x.low = x.d + (t.minimums ? scales : 0);
    x.sums = (tile_floats(*)[PARTS])(void *)(x.low + scales);
    return x;
}

static ALWAYS_INLINE void transpose_tile(const struct block_type t, const struct tile_rows *r,
                                         uint32_t k, uint32_t tile, const struct block_x *x)
{
    const uint8_t *row[TILE_ROWS];
    block_tiles *q = x->q + (size_t)tile * x->blocks;
    const size_t scales = (size_t)tile * act_blocks(k);
    tile_row_pointers(r, tile, 0, row);
    for (uint32_t b = 0; b < x->blocks; b++) {
        tile_words(row, act_half(b, 0), q[b]);
        tile_words(row, act_half(b, 1), q[b] + 4);
    }
    for (uint32_t b = 0; b < x->blocks; b += 4) {
        vq v[4];
        vq_transpose(row, act_scale_offset(k) + b * sizeof(float), v);
        UNROLL for (int e = 0; e < 4; e++) vq_store(x->d[scales + b + (uint32_t)e], v[e]);
        if (!t.minimums)
            continue;
        vq_transpose(row, act_corr_offset(k) + b * sizeof(int32_t), v);
        UNROLL for (int e = 0; e < 4; e++)
            vf_store(x->low[scales + b + (uint32_t)e], vi_to_float(vi_shift_right(v[e], 7)));
    }
}

/* ---- weights ---- */

/* Codes of four blocks of an output, without their offset. */
static ALWAYS_INLINE void unpack_group(const struct block_type t, const uint8_t *p, uint8_t *q)
{
    const vq offset = vq_set1((char)(act_corr_factor(t.type) / (1 << (t.shift & 7))));
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    vq lo, hi;
    block_unpack(t, p, 0, &lo, &hi);
    if (t.shift != NO_SHIFT) {
        lo = vq_add(lo, offset);
        hi = vq_add(hi, offset);
    }
    vq_store(q, _mm512_permutex2var_epi64(lo, first, hi));
    vq_store(q + 64, _mm512_permutex2var_epi64(lo, last, hi));
}

static ALWAYS_INLINE void unpack_scales(const struct block_type t,
                                        const uint8_t *const group[TILE_OUTPUTS], uint32_t b,
                                        uint32_t at, struct block_w *w)
{
    const uint8_t *scale[TILE_OUTPUTS];
    UNROLL for (int r = 0; r < TILE_OUTPUTS; r++) scale[r] = group[r] + scale_at(t, b);
    vf_store(w->d[at], block_scales(t, scale));
    if (t.minimums)
        vf_store(w->minimum[at], block_minimums(scale));
}

/* Blocks from .. from + count - 1 of outputs j .. j + 15 (from n on, the last one again). */
static ALWAYS_INLINE void unpack_blocks(const struct block_type t, const struct kernel_matrix *m,
                                        uint32_t j, uint32_t n, uint32_t from, uint32_t count,
                                        struct block_w *w)
{
    uint8_t copy[TILE_OUTPUTS][GROUP_BYTES_MAX];
    const uint8_t *group[TILE_OUTPUTS];
    for (uint32_t r = 0; r < TILE_OUTPUTS; r++)
        group[r] = (const uint8_t *)m->data + (size_t)(j + r < n ? j + r : n - 1) * m->row_bytes +
                   scale_at(t, from);
    for (uint32_t b = 0; b < count; b += ACT_GROUP) {
        const uint32_t blocks = count - b < ACT_GROUP ? count - b : ACT_GROUP;
        for (uint32_t r = 0; r < TILE_OUTPUTS; r++) {
            if (blocks < ACT_GROUP) { /* nothing beyond the row is read */
                memset(copy[r], 0, sizeof copy[r]);
                memcpy(copy[r], group[r], scale_at(t, blocks));
                group[r] = copy[r];
            }
            for (size_t line = 0; line < group_bytes(t); line += 64)
                prefetch_far(group[r] + line, TILE_OUTPUTS * (size_t)m->row_bytes);
            unpack_group(t, group[r], w->q[r] + b * QK);
        }
        for (uint32_t i = 0; i < blocks; i++)
            unpack_scales(t, group, i, b + i, w);
        for (uint32_t r = 0; r < TILE_OUTPUTS; r++)
            group[r] += group_bytes(t);
    }
}

/* ---- products ---- */

/* The integer sums of BATCH blocks of a partial sum from b on, as far as the panel has them. */
static ALWAYS_INLINE void batch_products(const struct block_step *s, uint32_t b,
                                         tile_ints dots[BATCH])
{
    block_tiles *x = s->x->q + (size_t)s->tile * s->x->blocks + s->from + b;
    const uint8_t *w = s->w->q[0] + b * QK;
    const uint32_t left = (s->blocks - b + PARTS - 1) / PARTS;
    tiles_written();
    _tile_zero(0);
    _tile_loadd(4, w, PANEL_STRIDE);
    _tile_loadd(6, x, TILE_BYTES);
    _tile_dpbssd(0, 4, 6);
    if (left > 1) {
        _tile_zero(1);
        _tile_loadd(5, w + PARTS * QK, PANEL_STRIDE);
        _tile_loadd(7, x + PARTS, TILE_BYTES);
        _tile_dpbssd(1, 5, 7);
    }
    if (left > 2) {
        _tile_zero(2);
        _tile_loadd(4, w + 2 * PARTS * QK, PANEL_STRIDE);
        _tile_loadd(6, x + 2 * PARTS, TILE_BYTES);
        _tile_dpbssd(2, 4, 6);
    }
    if (left > 3) {
        _tile_zero(3);
        _tile_loadd(5, w + 3 * PARTS * QK, PANEL_STRIDE);
        _tile_loadd(7, x + 3 * PARTS, TILE_BYTES);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, dots[0], TILE_BYTES);
    if (left > 1)
        _tile_stored(1, dots[1], TILE_BYTES);
    if (left > 2)
        _tile_stored(2, dots[2], TILE_BYTES);
    if (left > 3)
        _tile_stored(3, dots[3], TILE_BYTES);
}

/* Adds the terms of block b to its partial sums. */
static ALWAYS_INLINE void add_terms(const bool minimums, const struct block_step *s, uint32_t b,
                                    tile_ints dots, vf acc[TILE_OUTPUTS])
{
    const size_t scales = (size_t)s->tile * act_blocks(s->x->blocks * QK) + s->from + b;
    const float *d = s->w->d[b];
    const vf dx = vf_load(s->x->d[scales]), low = vf_load(s->x->low[scales]);
    UNROLL for (int i = 0; i < TILE_OUTPUTS; i++)
    {
        vf term = vf_mul(vi_to_float(vq_load(dots[i])), vf_set1(d[i]));
        if (minimums)
            term = vf_subtract_product(vf_set1(s->w->minimum[b][i]), low, term);
        acc[i] = vf_fma(term, dx, acc[i]);
    }
}

/* Sums of a tile of rows; in the end, open[TREE]. */
static ALWAYS_INLINE void tile_product(const bool minimums, const struct block_step *s,
                                       tile_tree open)
{
    _Alignas(64) tile_ints dots[BATCH];
    for (uint32_t part = 0; part < PARTS; part++) {
        vf acc[TILE_OUTPUTS];
        UNROLL for (int i = 0; i < TILE_OUTPUTS; i++) acc[i] =
            s->first ? vf_set1(0) : vf_load(s->x->sums[s->tile][part][i]);
        for (uint32_t b = part; b < s->blocks; b += BATCH * PARTS) {
            batch_products(s, b, dots);
            for (uint32_t i = 0; i < BATCH && b + i * PARTS < s->blocks; i++)
                add_terms(minimums, s, b + i * PARTS, dots[i], acc);
        }
        if (s->last)
            UNROLL for (int i = 0; i < TILE_OUTPUTS; i++) tile_close(open, part, i, acc[i]);
        else
            UNROLL for (int i = 0; i < TILE_OUTPUTS; i++)
                vf_store(s->x->sums[s->tile][part][i], acc[i]);
    }
}

/* One copy of the code for all types of a kind. */
static __attribute__((noinline)) void product(const struct block_step *s, tile_floats *open)
{
    tile_product(false, s, open);
}

static __attribute__((noinline)) void product_minimums(const struct block_step *s,
                                                       tile_floats *open)
{
    tile_product(true, s, open);
}

/* All outputs of so many rows as the memory is for. */
static ALWAYS_INLINE void block_outputs(const struct block_type t, const struct kernel_matrix *m,
                                        uint32_t n_begin, uint32_t n_end, const struct tile_rows *r,
                                        uint8_t *memory, float *y, size_t y_stride)
{
    if (t.halves)
        sl_panic("AMX has no product with type %d", (int)t.type);
    const struct block_x x = divide(t, m->k, r->tiles, memory);
    struct block_w w;
    _Alignas(64) tile_tree open;
    for (uint32_t tile = 0; tile < r->tiles; tile++)
        transpose_tile(t, r, m->k, tile, &x);
    for (uint32_t j = n_begin; j < n_end; j += TILE_OUTPUTS)
        for (uint32_t from = 0; from < x.blocks; from += PANEL_BLOCKS) {
            struct block_step s = {.x = &x, .w = &w, .from = from, .first = from == 0};
            s.blocks = x.blocks - from < PANEL_BLOCKS ? x.blocks - from : PANEL_BLOCKS;
            s.last = from + s.blocks == x.blocks;
            unpack_blocks(t, m, j, n_end, from, s.blocks, &w);
            for (; s.tile < r->tiles; s.tile++) {
                if (t.minimums)
                    product_minimums(&s, open);
                else
                    product(&s, open);
                if (s.last)
                    tile_store(open[TREE], r, s.tile, y + j, y_stride,
                               n_end - j < TILE_OUTPUTS ? n_end - j : TILE_OUTPUTS);
            }
        }
}

/* One copy of the code per type, so that its properties are constants. */
#define BLOCK_PRODUCT(NAME)                                                                        \
    static void block_outputs_##NAME(const struct kernel_matrix *m, uint32_t n_begin,              \
                                     uint32_t n_end, const struct tile_rows *r, uint8_t *memory,   \
                                     float *y, size_t y_stride)                                    \
    {                                                                                              \
        block_outputs(block_type_##NAME, m, n_begin, n_end, r, memory, y, y_stride);               \
    }
BLOCK_TYPES(BLOCK_PRODUCT)

typedef void block_outputs_fn(const struct kernel_matrix *m, uint32_t n_begin, uint32_t n_end,
                              const struct tile_rows *r, uint8_t *memory, float *y,
                              size_t y_stride);

static const struct block_kind {
    const struct block_type *type;
    block_outputs_fn *outputs;
} * block_kind_of(enum tensor_type type)
{
#define BLOCK_KIND(NAME) {&block_type_##NAME, block_outputs_##NAME},
    static const struct block_kind kinds[] = {BLOCK_TYPES(BLOCK_KIND)};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].type->type == type)
            return &kinds[i];
    sl_panic("type %d has no blocks", (int)type);
}

_Static_assert(MEMORY_BYTES + sizeof(struct block_w) + (TREE + 1 + BATCH) * sizeof(tile_floats) +
                       TILE_OUTPUTS * GROUP_BYTES_MAX + 8192 <=
                   KERNEL_STACK_BYTES,
               "frames of amx_block_matmul and below");

bool amx_block_fits(const struct kernel_matrix *w)
{
    return tile_memory(*block_kind_of(w->type)->type, w->k) <= MEMORY_BYTES;
}

void amx_block_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                      const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    _Alignas(64) uint8_t memory[MEMORY_BYTES];
    const struct block_kind *kind = block_kind_of(w->type);
    const uint32_t at_once = (uint32_t)(MEMORY_BYTES / tile_memory(*kind->type, w->k)) * TILE_ROWS;
    tiles_begin(QK);
    for (uint32_t r = 0; r < rows; r += at_once) {
        const struct tile_rows now = tile_rows_of((const uint8_t *)x + r * x_stride, x_stride,
                                                  rows - r < at_once ? rows - r : at_once);
        kind->outputs(w, n_begin, n_end, &now, memory, y + r * y_stride, y_stride);
    }
    tiles_end();
}
