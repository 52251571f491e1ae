/* SPDX-License-Identifier: Apache-2.0 */
/* Template of products with F32, F16 and BF16 weights over the vector primitives of vec.h; included
 * once per instruction set. Every output is 16 sums over k in ascending order, element i in sum
 * i mod 16, and one tree over them, for any number of rows: the register tile of DENSE_COLS outputs
 * and up to DENSE_ROWS rows only decides which sums are computed together. */
#define ONE_ROW_COLS 4 /* outputs of a tile of one row */
#define DENSE_CACHE                                                                                \
    (256u * 1024) /* bytes of activations that stay in the L2 cache over all outputs */
#define PREFETCH_EACH (2 * VL)
#define DENSE_NEAR    512 /* bytes of a row prefetched ahead into the L1 cache */

struct dense_tile {
    const uint8_t *w[ONE_ROW_COLS];
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

/* The last k % 16 elements. */
static ALWAYS_INLINE void dense_end(const enum tensor_type type, const int rows, const int cols,
                                    const struct dense_tile *t, const float *const xr[DENSE_ROWS],
                                    vf acc[DENSE_ROWS][ONE_ROW_COLS][HALVES])
{
    UNROLL for (int h = 0; h < HALVES; h++)
    {
        uint32_t i = t->k / 16 * 16 + (uint32_t)h * VL;
        uint32_t n = i >= t->k ? 0 : t->k - i < VL ? t->k - i : VL;
        if (n == 0)
            return;
        UNROLL for (int j = 0; j < cols; j++)
        {
            vf w = dense_load_n(type, t->w[j], i, n);
            UNROLL for (int r = 0; r < rows; r++) acc[r][j][h] =
                vf_fma_n(w, vf_load_n(xr[r] + i, n), acc[r][j][h], n);
        }
    }
}

static ALWAYS_INLINE void dense_tile(const enum tensor_type type, const int rows, const int cols,
                                     const struct dense_tile *t)
{
    vf acc[DENSE_ROWS][ONE_ROW_COLS][HALVES], x[DENSE_ROWS];
    const float *xr[DENSE_ROWS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        xr[r] = (const float *)(const void *)(t->x + (size_t)r * t->x_stride);
        UNROLL for (int j = 0; j < cols; j++)
        {
            UNROLL for (int h = 0; h < HALVES; h++) acc[r][j][h] = vf_set1(0);
        }
    }
    for (uint32_t i = 0; i + 16 <= t->k; i += 16) {
        UNROLL for (int h = 0; h < HALVES; h++)
        {
            uint32_t at = i + (uint32_t)h * VL;
            UNROLL for (int r = 0; r < rows; r++) x[r] = vf_load(xr[r] + at);
            UNROLL for (int j = 0; j < cols; j++)
            {
                /* the hardware prefetcher does not follow several rows at once */
                if (t->ahead != 0 && h == 0 && i % PREFETCH_EACH == 0) {
                    prefetch_far(t->w[j], t->ahead + (size_t)i * dense_bytes(type));
                    prefetch(t->w[j], DENSE_NEAR + (size_t)i * dense_bytes(type));
                }
                vf w = dense_load(type, t->w[j], at);
                UNROLL for (int r = 0; r < rows; r++) acc[r][j][h] = vf_fma(w, x[r], acc[r][j][h]);
            }
        }
    }
    dense_end(type, rows, cols, t, xr, acc);
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int j = 0; j < cols; j++)
        {
            if ((uint32_t)j < t->cols)
                t->y[(size_t)r * t->y_stride + (size_t)j] = vf_sum16(acc[r][j]);
        }
    }
}

static ALWAYS_INLINE void dense_rows(const enum tensor_type type, uint32_t rows, bool alone,
                                     const struct dense_tile *t)
{
    switch (rows) {
    case 1:
        if (alone)
            dense_tile(type, 1, ONE_ROW_COLS, t);
        else
            dense_tile(type, 1, DENSE_COLS, t);
        return;
    case 2: dense_tile(type, 2, DENSE_COLS, t); return;
    case 3: dense_tile(type, 3, DENSE_COLS, t); return;
#if DENSE_ROWS > 3
    case 4: dense_tile(type, 4, DENSE_COLS, t); return;
    case 5: dense_tile(type, 5, DENSE_COLS, t); return;
    case 6: dense_tile(type, 6, DENSE_COLS, t); return;
#endif
    default: sl_panic("no tile of %u rows", rows);
    }
}

static void dense_tile_any(enum tensor_type type, uint32_t rows, bool alone,
                           const struct dense_tile *t)
{
    switch (type) {
    case TENSOR_F32: dense_rows(TENSOR_F32, rows, alone, t); return;
    case TENSOR_F16: dense_rows(TENSOR_F16, rows, alone, t); return;
    case TENSOR_BF16: dense_rows(TENSOR_BF16, rows, alone, t); return;
    default: sl_panic("no dense product for type %d", (int)type);
    }
}

static void dense_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    uint32_t fit = DENSE_CACHE / (w->k * 4 + 1) / DENSE_ROWS * DENSE_ROWS;
    uint32_t block = fit > DENSE_ROWS ? fit : DENSE_ROWS;
    const uint32_t cols = rows == 1 ? ONE_ROW_COLS : DENSE_COLS;
    for (uint32_t r0 = 0; r0 < rows; r0 += block) {
        uint32_t r1 = rows - r0 < block ? rows : r0 + block;
        for (uint32_t j = n_begin; j < n_end; j += cols) {
            struct dense_tile t = {.x_stride = x_stride, .y_stride = y_stride, .k = w->k};
            t.cols = n_end - j < cols ? n_end - j : cols;
            for (uint32_t c = 0; c < cols; c++) /* missing outputs repeat the last one */
                t.w[c] = (const uint8_t *)w->data +
                         (size_t)(c < t.cols ? j + c : n_end - 1) * w->row_bytes;
            for (uint32_t r = r0; r < r1; r += DENSE_ROWS) {
                t.x = (const uint8_t *)x + r * x_stride;
                t.y = y + r * y_stride + j;
                t.ahead = r == r0 ? cols * (size_t)w->row_bytes : 0;
                dense_tile_any(w->type, r1 - r < DENSE_ROWS ? r1 - r : DENSE_ROWS, rows == 1, &t);
            }
        }
    }
}
