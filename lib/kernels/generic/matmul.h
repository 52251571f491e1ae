/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Matrix products in plain C: the executable form of ARITHMETIC.md. */

#define ROWS  4   /* rows that share one unpacked piece of a weight row */
#define PIECE 512 /* elements unpacked at a time, a multiple of LANES */
#define HALF  8

static void unpack_dense(const struct kernel_matrix *w, const uint8_t *row, uint32_t at,
                         uint32_t count, float *out)
{
    if (w->type == TENSOR_F32) {
        memcpy(out, row + (size_t)at * 4, (size_t)count * 4);
        return;
    }
    for (uint32_t i = 0; i < count; i += HALF) {
        uint16_t h[HALF] = {0};
        float f[HALF];
        memcpy(h, row + ((size_t)at + i) * 2, (count - i < HALF ? count - i : HALF) * 2);
        if (w->type == TENSOR_F16) {
            UNROLL for (int l = 0; l < HALF; l++) f[l] = f16_to_f32(h[l]);
        } else {
            UNROLL for (int l = 0; l < HALF; l++) f[l] = bf16_to_f32(h[l]);
        }
        memcpy(out + i, f, sizeof f);
    }
}

/* Adds w * x to the sums, element i to sum i mod LANES. */
static void lanes_add(const float *restrict w, const float *restrict x, uint32_t count,
                      float sums[LANES])
{
    float s[LANES];
    memcpy(s, sums, sizeof s);
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        UNROLL for (uint32_t l = 0; l < LANES; l++) s[l] = fmaf(w[i + l], x[i + l], s[l]);
    for (uint32_t l = 0; i + l < count; l++)
        s[l] = fmaf(w[i + l], x[i + l], s[l]);
    memcpy(sums, s, sizeof s);
}

static void dense_output(const struct kernel_matrix *w, uint32_t j, const uint8_t *x,
                         size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    const uint8_t *row = (const uint8_t *)w->data + (size_t)j * w->row_bytes;
    float piece[PIECE], s[ROWS][LANES] = {{0}};
    for (uint32_t at = 0; at < w->k; at += PIECE) {
        uint32_t count = w->k - at < PIECE ? w->k - at : PIECE;
        unpack_dense(w, row, at, count, piece);
        for (uint32_t r = 0; r < rows; r++)
            lanes_add(piece, (const float *)(const void *)(x + r * x_stride) + at, count, s[r]);
    }
    for (uint32_t r = 0; r < rows; r++)
        y[r * y_stride + j] = sum_lanes(s[r]);
}

typedef void output_fn(const struct kernel_matrix *w, uint32_t j, const uint8_t *x, size_t x_stride,
                       uint32_t rows, float *y, size_t y_stride);

/* Every output, for at most `at_once` rows at a time. */
static void for_outputs(output_fn *output, uint32_t at_once, const struct kernel_matrix *w,
                        uint32_t n_begin, uint32_t n_end, const void *x, size_t x_stride,
                        uint32_t rows, float *y, size_t y_stride)
{
    for (uint32_t r = 0; r < rows; r += at_once) {
        uint32_t count = rows - r < at_once ? rows - r : at_once;
        for (uint32_t j = n_begin; j < n_end; j++)
            output(w, j, (const uint8_t *)x + r * x_stride, x_stride, count, y + r * y_stride,
                   y_stride);
    }
}

static void dense_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    for_outputs(dense_output, ROWS, w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
