/* SPDX-License-Identifier: Apache-2.0 */
/* Template of products with F32, F16 and BF16 weights over the vector primitives of vec.h; included
 * once per instruction set. Every output is one vector sum over k in ascending order, element i in
 * lane i mod VL, and one tree over the lanes, for any number of rows: the register tile of
 * DENSE_COLS outputs and up to DENSE_ROWS rows only decides which sums are computed together. */
#define DENSE_COLS 4
#define DENSE_CACHE                                                                                \
    (256u * 1024) /* bytes of activations that stay in the L2 cache over all outputs */

struct dense_tile {
    const uint8_t *w[DENSE_COLS];
    const uint8_t *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
    uint32_t cols, k;
    size_t ahead; /* distance from a weight to that of the next outputs; 0: no prefetch */
};

static ALWAYS_INLINE size_t dense_bytes(const enum tensor_type type)
{
    return type == TENSOR_F32 ? 4 : 2;
}

static ALWAYS_INLINE vf dense_load(const enum tensor_type type, const uint8_t *w, uint32_t at)
{
    if (type == TENSOR_F32)
        return vf_load((const float *)(const void *)(w + (size_t)at * 4));
    w += (size_t)at * 2;
    return type == TENSOR_F16 ? vh_load(w) : vb_load(w);
}

static ALWAYS_INLINE vf dense_load_n(const enum tensor_type type, const uint8_t *w, uint32_t at,
                                     uint32_t n)
{
    if (type == TENSOR_F32)
        return vf_load_n((const float *)(const void *)(w + (size_t)at * 4), n);
    w += (size_t)at * 2;
    return type == TENSOR_F16 ? vh_load_n(w, n) : vb_load_n(w, n);
}

static ALWAYS_INLINE void dense_tile(const enum tensor_type type, const int rows,
                                     const struct dense_tile *t)
{
    vf acc[DENSE_ROWS][DENSE_COLS], x[DENSE_ROWS];
    const float *xr[DENSE_ROWS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        xr[r] = (const float *)(const void *)(t->x + (size_t)r * t->x_stride);
        UNROLL for (int j = 0; j < DENSE_COLS; j++) acc[r][j] = vf_set1(0);
    }
    uint32_t i = 0;
    for (; i + VL <= t->k; i += VL) {
        UNROLL for (int r = 0; r < rows; r++) x[r] = vf_load(xr[r] + i);
        UNROLL for (int j = 0; j < DENSE_COLS; j++)
        {
            /* the hardware prefetcher does not follow four rows at once */
            if (t->ahead != 0 && i % (2 * VL) == 0)
                prefetch(t->w[j], t->ahead + (size_t)i * dense_bytes(type));
            vf w = dense_load(type, t->w[j], i);
            UNROLL for (int r = 0; r < rows; r++) acc[r][j] = vf_fma(w, x[r], acc[r][j]);
        }
    }
    if (i < t->k) {
        uint32_t n = t->k - i;
        UNROLL for (int r = 0; r < rows; r++) x[r] = vf_load_n(xr[r] + i, n);
        UNROLL for (int j = 0; j < DENSE_COLS; j++)
        {
            vf w = dense_load_n(type, t->w[j], i, n);
            UNROLL for (int r = 0; r < rows; r++) acc[r][j] = vf_fma(w, x[r], acc[r][j]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int j = 0; j < DENSE_COLS; j++)
        {
            if ((uint32_t)j < t->cols)
                t->y[(size_t)r * t->y_stride + (size_t)j] = vf_sum(acc[r][j]);
        }
    }
}

static ALWAYS_INLINE void dense_rows(const enum tensor_type type, uint32_t rows,
                                     const struct dense_tile *t)
{
    switch (rows) {
    case 1: dense_tile(type, 1, t); return;
    case 2: dense_tile(type, 2, t); return;
    case 3: dense_tile(type, 3, t); return;
#if DENSE_ROWS > 3
    case 4: dense_tile(type, 4, t); return;
    case 5: dense_tile(type, 5, t); return;
    case 6: dense_tile(type, 6, t); return;
#endif
    default: sl_panic("no tile of %u rows", rows);
    }
}

static void dense_tile_any(enum tensor_type type, uint32_t rows, const struct dense_tile *t)
{
    switch (type) {
    case TENSOR_F32: dense_rows(TENSOR_F32, rows, t); return;
    case TENSOR_F16: dense_rows(TENSOR_F16, rows, t); return;
    case TENSOR_BF16: dense_rows(TENSOR_BF16, rows, t); return;
    default: sl_panic("no dense product for type %d", (int)type);
    }
}

static void dense_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    uint32_t fit = DENSE_CACHE / (w->k * 4 + 1) / DENSE_ROWS * DENSE_ROWS;
    uint32_t block = fit > DENSE_ROWS ? fit : DENSE_ROWS;
    for (uint32_t r0 = 0; r0 < rows; r0 += block) {
        uint32_t r1 = rows - r0 < block ? rows : r0 + block;
        for (uint32_t j = n_begin; j < n_end; j += DENSE_COLS) {
            struct dense_tile t = {.x_stride = x_stride, .y_stride = y_stride, .k = w->k};
            t.cols = n_end - j < DENSE_COLS ? n_end - j : DENSE_COLS;
            for (uint32_t c = 0; c < DENSE_COLS; c++) /* missing outputs repeat the last one */
                t.w[c] = (const uint8_t *)w->data +
                         (size_t)(c < t.cols ? j + c : n_end - 1) * w->row_bytes;
            for (uint32_t r = r0; r < r1; r += DENSE_ROWS) {
                t.x = (const uint8_t *)x + r * x_stride;
                t.y = y + r * y_stride + j;
                t.ahead = r == r0 ? DENSE_COLS * (size_t)w->row_bytes : 0;
                dense_tile_any(w->type, r1 - r < DENSE_ROWS ? r1 - r : DENSE_ROWS, &t);
            }
        }
    }
}
