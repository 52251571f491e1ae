/* SPDX-License-Identifier: Apache-2.0 */
/* Template, included by blocks.h: products with several rows. The weights of a panel of outputs are
 * unpacked and transposed once, so that the lanes are outputs, and used for all rows. A tile of
 * rows has one partial sum in registers at a time; complete ones are added as far as the tree
 * goes. */

#define PANEL          (VL * PANEL_VECTORS)
#define PANEL_BLOCKS   64 /* of every output: with AVX-512 64 KiB, which stay in the L2 cache */
#define PANEL_ROWS_MAX 66 /* whose partial sums fit into KERNEL_STACK_BYTES */
#define TREE           3  /* open sums: of 1, 2, 4 partial sums */

struct block_panel {
    _Alignas(64) uint8_t q[PANEL_BLOCKS][QK / 4][PANEL * 4]; /* four elements of each output */
    /* more: minimums; of a type with two scales per block, those of the last halves */
    _Alignas(64) float d[PANEL_BLOCKS][PANEL], more[PANEL_BLOCKS][PANEL];
};

struct block_tile {
    const struct block_panel *panel;
    uint32_t blocks;  /* of the panel */
    bool first, last; /* panel of the outputs */
    uint32_t outputs;
    const uint8_t *x; /* first row, at the panel's first block */
    size_t x_stride, d_at, c_at;
    size_t c_stride;             /* from the corrections of first halves to those of last ones */
    float (*sums)[PARTS][PANEL]; /* per row: partial sums between panels */
    float *y;
    size_t y_stride;
};

/* Blocks 4 g .. 4 g + 3 of VL outputs, into one side of the panel. */
static ALWAYS_INLINE void pack_group(const struct block_type t, const uint8_t *const group[VL],
                                     uint32_t g, uint32_t blocks, struct block_panel *p,
                                     const int side)
{
    _Alignas(64) uint8_t codes[VL][GROUP_SIZE]; /* as the activations: first halves, last halves */
    const uint8_t *row[VL];
    UNROLL for (int r = 0; r < VL; r++)
    {
        row[r] = codes[r];
        UNROLL for (int first = 0; first < ACT_GROUP; first += PIECES)
        {
            vq lo, hi;
            block_unpack(t, group[r], first, &lo, &hi);
            vq_store(codes[r] + first * 16, lo);
            vq_store(codes[r] + (first + ACT_GROUP) * 16, hi);
        }
    }
    for (uint32_t b = 0; b < blocks; b++) {
        const uint32_t i = g * ACT_GROUP + b;
        const uint8_t *scale[VL];
        vq v[8];
        vq_transpose(row, b * 16, v);
        vq_transpose(row, (b + ACT_GROUP) * 16, v + 4);
        UNROLL for (int e = 0; e < 8; e++) vq_store(&p->q[i][e][side * VL * 4], v[e]);
        if (t.halves) {
            vf d[2];
            UNROLL for (int r = 0; r < VL; r++) scale[r] = half_scales_at(t, group[r], b);
            block_half_scales(vi_words_at(scale), d);
            vf_store(&p->d[i][side * VL], d[0]);
            vf_store(&p->more[i][side * VL], d[1]);
            continue;
        }
        UNROLL for (int r = 0; r < VL; r++) scale[r] = group[r] + scale_at(t, b);
        vf_store(&p->d[i][side * VL], block_scales(t, scale));
        if (t.minimums)
            vf_store(&p->more[i][side * VL], block_minimums(scale));
    }
}

/* Blocks from .. from + count - 1 of outputs j .. j + PANEL - 1 (from n on, the last one again). */
static ALWAYS_INLINE void pack_panel(const struct block_type t, const struct kernel_matrix *w,
                                     uint32_t j, uint32_t n, uint32_t from, uint32_t count,
                                     struct block_panel *p)
{
    uint8_t copy[VL][GROUP_BYTES_MAX];
    for (int side = 0; side < PANEL_VECTORS; side++) {
        const uint8_t *group[VL];
        for (uint32_t r = 0; r < VL; r++) {
            uint32_t at = j + (uint32_t)side * VL + r < n ? j + (uint32_t)side * VL + r : n - 1;
            group[r] = (const uint8_t *)w->data + (size_t)at * w->row_bytes + scale_at(t, from);
        }
        for (uint32_t g = 0; g * ACT_GROUP < count; g++) {
            uint32_t blocks = count - g * ACT_GROUP < ACT_GROUP ? count % ACT_GROUP : ACT_GROUP;
            for (uint32_t r = 0; r < VL; r++) {
                if (blocks < ACT_GROUP) { /* nothing beyond the row is read */
                    memset(copy[r], 0, sizeof copy[r]);
                    memcpy(copy[r], group[r], scale_at(t, blocks));
                    group[r] = copy[r];
                }
                for (size_t line = 0; line < group_bytes(t); line += 64)
                    prefetch_far(group[r], (size_t)PANEL * w->row_bytes + line);
            }
            pack_group(t, group, g, blocks, p, side);
            for (uint32_t r = 0; r < VL; r++)
                group[r] += group_bytes(t);
        }
    }
}

/* Adds block b of the panel to acc; of a type with two scales per block, that half (otherwise
 * 0). */
static ALWAYS_INLINE void tile_block(const struct block_type t, const struct block_tile *s,
                                     uint32_t b, uint32_t half, const int rows,
                                     vf acc[PANEL_ROWS][PANEL_VECTORS])
{
    const float *scales = half != 0 ? s->panel->more[b] : s->panel->d[b];
    struct dots dot[PANEL_ROWS][PANEL_VECTORS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        vi start = vi_set1(0);
        if (t.shift != NO_SHIFT)
            start = vi_set1((int32_t)load_u32(s->x + (size_t)r * s->x_stride + s->c_at + b * 4 +
                                              half * s->c_stride) >>
                            t.shift);
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++) dot[r][v] = dots_start(start);
    }
    UNROLL for (int e = 0; e < 8; e++)
    {
        if (t.halves && e == 4)
            break;
        vq w[PANEL_VECTORS];
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++) w[v] =
            vq_load(&s->panel->q[b][half * 4 + (uint32_t)e][v * VL * 4]);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vq x = vi_set1((int32_t)load_u32(s->x + (size_t)r * s->x_stride + act_half(b, half) +
                                             (size_t)(e / 4 * 64 + e % 4 * 4)));
            UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            {
                dots_add(t.wide, &dot[r][v], w[v], x);
                if (e % 4 == 3)
                    dots_fold(t.wide, &dot[r][v]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        const uint8_t *x = s->x + (size_t)r * s->x_stride;
        vf dx = vf_set1(load_f32(x + s->d_at + b * 4));
        UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
        {
            vf term = vf_mul(vi_to_float(dot[r][v].sum), vf_load(scales + v * VL));
            if (t.minimums)
                term = vf_subtract_product(
                    vf_load(&s->panel->more[b][v * VL]),
                    vf_set1((float)((int32_t)load_u32(x + s->c_at + b * 4) >> 7)), term);
            acc[r][v] = vf_fma(term, dx, acc[r][v]);
        }
    }
}

/* Partial sum `part` is complete: adds it to those before it as far as the tree goes. */
static ALWAYS_INLINE void close_sum(vf open[TREE], uint32_t part, vf v, float *y, uint32_t lanes)
{
    UNROLL for (int level = 0; level < TREE; level++)
    {
        if ((part >> level & 1u) == 0) {
            open[level] = v;
            return;
        }
        v = vf_add(open[level], v);
    }
    vf_store_n(y, v, lanes);
}

static ALWAYS_INLINE void tile_rows(const struct block_type t, const struct block_tile *s,
                                    const int rows)
{
    vf open[PANEL_ROWS][PANEL_VECTORS][TREE];
    for (uint32_t part = 0; part < PARTS; part++) {
        vf acc[PANEL_ROWS][PANEL_VECTORS];
        UNROLL for (int r = 0; r < rows; r++)
        {
            UNROLL for (int v = 0; v < PANEL_VECTORS; v++) acc[r][v] =
                s->first ? vf_set1(0) : vf_load(&s->sums[r][part][v * VL]);
        }
        if (t.halves)
            for (uint32_t b = part / 2; b < s->blocks; b += PARTS / 2)
                tile_block(t, s, b, part % 2, rows, acc);
        else
            for (uint32_t b = part; b < s->blocks; b += PARTS)
                tile_block(t, s, b, 0, rows, acc);
        UNROLL for (int r = 0; r < rows; r++)
        {
            UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            {
                uint32_t before = (uint32_t)v * VL;
                uint32_t left = s->outputs > before ? s->outputs - before : 0;
                if (s->last)
                    close_sum(open[r][v], part, acc[r][v], s->y + (size_t)r * s->y_stride + before,
                              left < VL ? left : VL);
                else
                    vf_store(&s->sums[r][part][before], acc[r][v]);
            }
        }
    }
}

static ALWAYS_INLINE void tile_any(const struct block_type t, const struct block_tile *s,
                                   uint32_t rows)
{
    switch (rows) {
    case 1: tile_rows(t, s, 1); return;
    case 2: tile_rows(t, s, 2); return;
    case 3: tile_rows(t, s, 3); return;
    case 4: tile_rows(t, s, 4); return;
#if PANEL_ROWS > 4
    case 5: tile_rows(t, s, 5); return;
    case 6: tile_rows(t, s, 6); return;
#endif
    default: sl_panic("no tile of %u rows", rows);
    }
}

/* All rows of one panel, in tiles whose heights differ by at most one: a tile of one row is
 * slow. */
static ALWAYS_INLINE void tile_all(const struct block_type t, const struct block_tile *first,
                                   uint32_t rows)
{
    uint32_t tiles = (rows + PANEL_ROWS - 1) / PANEL_ROWS;
    for (struct block_tile s = *first; tiles > 0; tiles--) {
        uint32_t height = (rows + tiles - 1) / tiles;
        tile_any(t, &s, height);
        s.x += height * s.x_stride;
        s.y += height * s.y_stride;
        s.sums += height;
        rows -= height;
    }
}

static ALWAYS_INLINE void block_panels(const struct block_type t, const struct kernel_matrix *w,
                                       uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                       size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct block_panel panel;
    float sums[PANEL_ROWS_MAX][PARTS][PANEL];
    const uint32_t blocks = w->k / QK;
    for (uint32_t r = 0, n; r < rows; r += n) {
        n = rows - r < PANEL_ROWS_MAX ? rows - r : PANEL_ROWS_MAX;
        for (uint32_t j = n_begin; j < n_end; j += PANEL) {
            struct block_tile s = {.panel = &panel,
                                   .outputs = n_end - j < PANEL ? n_end - j : PANEL,
                                   .x_stride = x_stride,
                                   .c_stride = act_blocks(w->k) * sizeof(int32_t),
                                   .sums = sums,
                                   .y = y + r * y_stride + j,
                                   .y_stride = y_stride};
            for (uint32_t from = 0; from < blocks; from += PANEL_BLOCKS) {
                s.blocks = blocks - from < PANEL_BLOCKS ? blocks - from : PANEL_BLOCKS;
                s.first = from == 0;
                s.last = from + s.blocks == blocks;
                /* offsets of scales and corrections are those from the panel's first block */
                s.x = x + r * x_stride + act_half(from, 0);
                s.d_at = act_scale_offset(w->k) + from * 4u - act_half(from, 0);
                s.c_at = act_corr_offset(w->k) + from * 4u - act_half(from, 0);
                pack_panel(t, w, j, n_end, from, s.blocks, &panel);
                tile_all(t, &s, n);
            }
        }
    }
}
