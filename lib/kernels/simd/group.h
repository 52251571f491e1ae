/* SPDX-License-Identifier: Apache-2.0 */
/* Template of products with sluice's own types over the vector primitives of group.c of each
 * instruction set.
 *
 * The lanes are outputs. For few rows (decode), the groups of VL weight rows are read from memory
 * and each dot product is summed across its lanes. For many rows (prefill), the weights of a panel
 * of outputs are transposed once and used for all rows, the groups in the order of struct
 * block_run. */

#define GROUP_WORDS (GROUP / 4)
#define PANEL       (SIDES * VL) /* outputs of a panel */
#define FEW_ROWS    3            /* up to here, transposing the weights does not pay */
#define GROUP_FAR   16384        /* bytes of weights prefetched ahead into the L2 cache */
#define GROUP_NEAR  4096         /* into the L1 cache */

/* ---- order of the blocks of a row, one partial sum after the other ---- */

/* Kernels of many rows compute all blocks of partial sum 0, then those of sum 1 ..., so that one
 * sum at a time is in registers; sums are added as soon as the tree permits. */
struct block_run {
    uint32_t next, left; /* the first block of the next run; blocks not in a run yet */
    uint32_t count;      /* of this run */
    uint32_t block[32];
};

/* The next `limit` blocks of `blocks`; false after the last. Start: {.left = blocks}. */
static inline bool block_run_next(struct block_run *run, uint32_t blocks, uint32_t limit)
{
    for (run->count = 0; run->count < limit && run->left > 0; run->left--) {
        uint32_t b = run->next;
        run->block[run->count++] = b;
        run->next = b + PARTS < blocks ? b + PARTS : b % PARTS + 1;
    }
    return run->count > 0;
}

/* Sums of one row of activations while its run changes. */
#define OPEN 3 /* index of the sum of the blocks so far; 0 to 2: sums of 1, 2, 4 parts */

/* Properties of the weight type, constant in every inlined copy. */
struct kind {
    uint32_t bits;
    bool grouped;
};

struct grid {
    vf scale, zero;
};

struct operand {
    const int8_t *q;
    const float *d, *s;
};

static ALWAYS_INLINE struct operand operand_of(const uint8_t *x, uint32_t k)
{
    return (struct operand){(const int8_t *)x,
                            (const float *)(const void *)(x + group_scale_offset(k)),
                            (const float *)(const void *)(x + group_sum_offset(k))};
}

/* The F16 pairs (scale, zero) at byte `at` of VL rows. */
static ALWAYS_INLINE struct grid load_grids(const uint8_t *const row[VL], size_t at)
{
    vi pairs = vi_gather(row, at);
    return (struct grid){vf_low_halves(pairs), vf_high_halves(pairs)};
}

/* dot: of the codes minus CODE_BIAS if they have 8 bits. */
static ALWAYS_INLINE vf add_group(const struct kind kind, struct grid grid, vi dot, float s,
                                  float d, vf acc)
{
    if (kind.bits == 8)
        dot = vi_add(dot, vi_set1(CODE_BIAS * (int32_t)s));
    vf t = vf_fnma(grid.zero, vf_set1(s), vf_from_vi(dot));
    return vf_fma(kind.grouped ? vf_mul(t, grid.scale) : t, vf_set1(d), acc);
}

static ALWAYS_INLINE vf add_parts(const vf s[PARTS])
{
    return vf_add(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])),
                  vf_add(vf_add(s[4], s[5]), vf_add(s[6], s[7])));
}

/* The weight rows of outputs j .. j + VL - 1; from n on, the last row again. */
static ALWAYS_INLINE void rows_at(const struct kernel_matrix *w, uint32_t j, uint32_t n,
                                  const uint8_t *row[VL])
{
    for (uint32_t i = 0; i < VL; i++) {
        uint32_t at = j + i < n ? j + i : n - 1;
        row[i] = (const uint8_t *)w->data + (size_t)at * w->row_bytes;
    }
}

/* ---- few rows ---- */

/* VL outputs of one row of activations. Meanwhile prefetches weights ahead, in the order of
 * memory. */
static ALWAYS_INLINE void few_outputs(const struct kind kind, const struct kernel_matrix *w,
                                      const uint8_t *const row[VL], const uint8_t *x, float *y,
                                      uint32_t outputs)
{
    const struct group_type type = group_type_of(w->type);
    const size_t bytes = kind.bits * GROUP / 8 + (kind.grouped ? 4 : 0);
    struct operand o = operand_of(x, w->k);
    struct grid grid = {vf_set1(1), vf_set1(0)};
    vf acc[PARTS];
    UNROLL for (int i = 0; i < PARTS; i++) acc[i] = vf_set1(0);
    size_t at = type.head;
    if (!kind.grouped)
        grid = load_grids(row, 0);
    for (uint32_t g = 0; g < w->k / GROUP; g++, at += bytes) {
        vi sum[VL];
        UNROLL for (size_t line = 0; line < VL * bytes; line += 64)
        {
            prefetch_far(row[0], GROUP_FAR + VL * g * bytes + line);
            prefetch(row[0], GROUP_NEAR + VL * g * bytes + line);
        }
        if (kind.grouped)
            grid = load_grids(row, at);
        UNROLL for (int i = 0; i < VL; i++) sum[i] =
            group_dot(kind.bits, row[i] + at + (kind.grouped ? 4 : 0), o.q + (size_t)g * GROUP);
        acc[g % PARTS] = add_group(kind, grid, vi_sum_rows(sum), o.s[g], o.d[g], acc[g % PARTS]);
    }
    vf all = add_parts(acc);
    vf_store_n(y, kind.grouped ? all : vf_mul(all, grid.scale), outputs);
}

static ALWAYS_INLINE void few_rows(const struct kind kind, const struct kernel_matrix *w,
                                   uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                   size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    for (uint32_t j = n_begin; j < n_end; j += VL) {
        const uint8_t *row[VL];
        uint32_t outputs = n_end - j < VL ? n_end - j : VL;
        rows_at(w, j, n_end, row);
        for (uint32_t r = 0; r < rows; r++)
            few_outputs(kind, w, row, x + r * x_stride, y + r * y_stride + j, outputs);
    }
}

/* ---- many rows ---- */

struct panel {
    _Alignas(64) uint8_t q[CHUNK][GROUP_WORDS][PANEL * 4]; /* four codes of each output, adjacent */
    _Alignas(64) float scale[CHUNK][PANEL], zero[CHUNK][PANEL];
};

/* Unpacks and transposes the codes of a group of VL outputs into a panel. */
static ALWAYS_INLINE void pack_group(const uint32_t bits, const uint8_t *const row[VL], size_t at,
                                     uint8_t q[GROUP_WORDS][PANEL * 4], uint32_t side)
{
    const uint32_t words = bits * GROUP / 32; /* 32-bit words of a packed group */
    UNROLL for (uint32_t four = 0; four < GROUP_WORDS; four += 4)
    {
        vi v[4];
        if (four >= words)
            break;
        vi_turn_words(row, at + (size_t)four * 4, v);
        UNROLL for (uint32_t i = 0; i < 16; i++)
        {
            uint32_t part = i / 4, word = four + i % 4;
            if (part < 8 / bits)
                vi_store(&q[part * words + word][side * VL * 4], vi_codes(bits, v[i % 4], part));
        }
    }
}

/* The groups of a run of the outputs from j on. Meanwhile prefetches as many bytes of the next
 * panel, from byte `ahead` of its rows on. */
static ALWAYS_INLINE void pack(const struct kind kind, const struct kernel_matrix *w, uint32_t j,
                               uint32_t n, const struct block_run *run, size_t ahead,
                               struct panel *p)
{
    const struct group_type type = group_type_of(w->type);
    const size_t bytes = kind.bits * GROUP / 8 + (kind.grouped ? 4 : 0);
    ahead += PANEL * (size_t)w->row_bytes;
    for (uint32_t side = 0; side < SIDES; side++) {
        const uint8_t *row[VL];
        rows_at(w, j + side * VL < n ? j + side * VL : n - 1, n, row);
        struct grid grid = load_grids(row, 0);
        for (uint32_t i = 0; i < run->count; i++) {
            size_t at = type.head + run->block[i] * bytes;
            if (kind.grouped)
                grid = load_grids(row, at);
            pack_group(kind.bits, row, at + (kind.grouped ? 4 : 0), p->q[i], side);
            vf_store(&p->scale[i][side * VL], grid.scale);
            vf_store(&p->zero[i][side * VL], grid.zero);
        }
        for (uint32_t i = 0; i < VL; i++)
            for (size_t line = 0; line < run->count * bytes; line += 64)
                prefetch(row[i], ahead + line);
    }
}

/* Sums of one row of activations for a panel: sum i of 2^i parts, and the open one. */
struct sums {
    _Alignas(64) float part[OPEN + 1][PANEL];
};

struct tile {
    const struct panel *panel;
    const struct block_run *run;
    const uint8_t *x; /* first row */
    size_t x_stride;
    uint32_t k;
    uint32_t lanes[SIDES];
    struct sums *sums;
    float *y;
    size_t y_stride;
};

static ALWAYS_INLINE vi activation_word(const int8_t *p)
{
    return vi_set1((int32_t)load_u32(p));
}

static ALWAYS_INLINE void tile_group(const struct kind kind, const struct tile *t, uint32_t i,
                                     const int rows, const struct operand o[TILE],
                                     vf acc[TILE][SIDES])
{
    struct sum sum[TILE][SIDES];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int side = 0; side < SIDES; side++) sum[r][side] = sum_zero();
    }
    const uint32_t g = t->run->block[i];
    UNROLL for (int word = 0; word < GROUP_WORDS; word++)
    {
        vi w[SIDES];
        UNROLL for (int side = 0; side < SIDES; side++) w[side] =
            vi_load(&t->panel->q[i][word][side * VL * 4]);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vi v = activation_word(o[r].q + (size_t)g * GROUP + 4 * word);
            UNROLL for (int side = 0; side < SIDES; side++)
                sum_add(kind.bits, word, &sum[r][side], w[side], v);
        }
    }
    UNROLL for (int side = 0; side < SIDES; side++)
    {
        struct grid grid = {vf_load(&t->panel->scale[i][side * VL]),
                            vf_load(&t->panel->zero[i][side * VL])};
        UNROLL for (int r = 0; r < rows; r++) acc[r][side] =
            add_group(kind, grid, sum[r][side].dot, o[r].s[g], o[r].d[g], acc[r][side]);
    }
}

/* Partial sum `part` of a row is complete: adds it to those before it as far as the tree goes. */
static ALWAYS_INLINE void close_part(const struct kind kind, const struct tile *t, uint32_t r,
                                     uint32_t part, const vf *acc)
{
    vf v[SIDES];
    UNROLL for (int side = 0; side < SIDES; side++) v[side] = acc[side];
    UNROLL for (int level = 0; level < OPEN; level++)
    {
        float *at = t->sums[r].part[level];
        if ((part >> level & 1u) == 0) {
            UNROLL for (int side = 0; side < SIDES; side++) vf_store(at + side * VL, v[side]);
            return;
        }
        UNROLL for (int side = 0; side < SIDES; side++) v[side] =
            vf_add(vf_load(at + side * VL), v[side]);
    }
    UNROLL for (int side = 0; side < SIDES; side++)
    {
        if (!kind.grouped)
            v[side] = vf_mul(v[side], vf_load(&t->panel->scale[0][side * VL]));
        vf_store_n(t->y + r * t->y_stride + side * VL, v[side], t->lanes[side]);
    }
}

/* All groups of the run, for `rows` rows. */
static ALWAYS_INLINE void tile_rows(const struct kind kind, const struct tile *t, const int rows)
{
    vf acc[TILE][SIDES];
    struct operand o[TILE];
    UNROLL for (int r = 0; r < rows; r++)
    {
        o[r] = operand_of(t->x + (size_t)r * t->x_stride, t->k);
        UNROLL for (int side = 0; side < SIDES; side++) acc[r][side] =
            vf_load(t->sums[r].part[OPEN] + side * VL);
    }
    for (uint32_t i = 0; i < t->run->count; i++) {
        const uint32_t g = t->run->block[i];
        if (g < PARTS) {
            UNROLL for (int r = 0; r < rows; r++)
            {
                UNROLL for (int side = 0; side < SIDES; side++) acc[r][side] = vf_set1(0);
            }
        }
        tile_group(kind, t, i, rows, o, acc);
        if (g + PARTS >= t->k / GROUP)
            UNROLL for (int r = 0; r < rows; r++)
                close_part(kind, t, (uint32_t)r, g % PARTS, acc[r]);
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int side = 0; side < SIDES; side++)
            vf_store(t->sums[r].part[OPEN] + side * VL, acc[r][side]);
    }
}

static ALWAYS_INLINE void tile_any(const struct kind kind, const struct tile *t, uint32_t rows)
{
    switch (rows) {
    case 1: tile_rows(kind, t, 1); return;
    case 2: tile_rows(kind, t, 2); return;
    case 3: tile_rows(kind, t, 3); return;
    case 4: tile_rows(kind, t, 4); return;
#if TILE == 6
    case 5: tile_rows(kind, t, 5); return;
    case 6: tile_rows(kind, t, 6); return;
#endif
    default: sl_panic("no tile of %u rows", rows);
    }
}

/* All rows of one panel, in tiles whose heights differ by at most one. */
static ALWAYS_INLINE void panel_rows(const struct kind kind, const struct tile *first,
                                     uint32_t rows)
{
    struct tile t = *first;
    for (uint32_t tiles = (rows + TILE - 1) / TILE; tiles > 0; tiles--) {
        uint32_t height = (rows + tiles - 1) / tiles;
        tile_any(kind, &t, height);
        t.x += height * t.x_stride;
        t.y += height * t.y_stride;
        t.sums += height;
        rows -= height;
    }
}

/* Partial sums without groups are zero. */
static ALWAYS_INLINE void close_short_rows(const struct kind kind, const struct tile *t,
                                           uint32_t rows)
{
    vf zero[SIDES];
    for (int side = 0; side < SIDES; side++)
        zero[side] = vf_set1(0);
    for (uint32_t part = t->k / GROUP; part < PARTS; part++)
        for (uint32_t r = 0; r < rows; r++)
            close_part(kind, t, r, part, zero);
}

static ALWAYS_INLINE void many_rows(const struct kind kind, const struct kernel_matrix *w,
                                    uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                    size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    struct panel panel;
    struct sums sums[ROW_BLOCK];
    struct block_run run;
    const uint32_t groups = w->k / GROUP;
    const size_t bytes = kind.bits * GROUP / 8 + (kind.grouped ? 4 : 0);
    struct tile t = {.panel = &panel,
                     .run = &run,
                     .x = x,
                     .x_stride = x_stride,
                     .k = w->k,
                     .sums = sums,
                     .y_stride = y_stride};
    for (uint32_t j = n_begin; j < n_end; j += PANEL) {
        size_t ahead = 0;
        for (uint32_t side = 0; side < SIDES; side++) {
            uint32_t at = j + side * VL, left = at < n_end ? n_end - at : 0;
            t.lanes[side] = left < VL ? left : VL;
        }
        t.y = y + j;
        run = (struct block_run){.left = groups};
        while (block_run_next(&run, groups, CHUNK)) {
            pack(kind, w, j, n_end, &run, ahead, &panel);
            panel_rows(kind, &t, rows);
            ahead += run.count * bytes;
        }
        close_short_rows(kind, &t, rows);
    }
}

static ALWAYS_INLINE void any_rows(const struct kind kind, const struct kernel_matrix *w,
                                   uint32_t n_begin, uint32_t n_end, const uint8_t *x,
                                   size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    if (rows <= FEW_ROWS) {
        few_rows(kind, w, n_begin, n_end, x, x_stride, rows, y, y_stride);
        return;
    }
    for (uint32_t r = 0; r < rows; r += ROW_BLOCK) {
        uint32_t count = rows - r < ROW_BLOCK ? rows - r : ROW_BLOCK;
        many_rows(kind, w, n_begin, n_end, x + r * x_stride, x_stride, count, y + r * y_stride,
                  y_stride);
    }
}

/* One copy of the code per type, so that its number of bits is a constant. */
#define GROUP_PRODUCT(name, bits, grouped)                                                         \
    static __attribute__((noinline)) void name(const struct kernel_matrix *w, uint32_t n_begin,    \
                                               uint32_t n_end, const void *x, size_t x_stride,     \
                                               uint32_t rows, float *y, size_t y_stride)           \
    {                                                                                              \
        any_rows((struct kind){bits, grouped}, w, n_begin, n_end, x, x_stride, rows, y, y_stride); \
    }

GROUP_PRODUCT(product_c8, 8, false)
GROUP_PRODUCT(product_c4, 4, false)
GROUP_PRODUCT(product_c2, 2, false)
GROUP_PRODUCT(product_g4, 4, true)
GROUP_PRODUCT(product_g2, 2, true)

static void group_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    kernel_matmul_fn *product = NULL;
    switch (w->type) {
    case TENSOR_C8: product = product_c8; break;
    case TENSOR_C4: product = product_c4; break;
    case TENSOR_C2: product = product_c2; break;
    case TENSOR_G4: product = product_g4; break;
    case TENSOR_G2: product = product_g2; break;
    default: sl_panic("type %d has no groups", (int)w->type);
    }
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
