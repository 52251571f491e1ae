/* SPDX-License-Identifier: Apache-2.0 */
/* Products with F32, F16 and BF16 weights: NEON. */
#include "lib/kernels/avx2/vec.h"
#include "lib/kernels/neon/set.h"

#include "lib/kernels/simd/dense.h"

void SET_NAME(dense_matmul)(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                            const void *x, size_t x_stride, uint32_t rows, float *y,
                            size_t y_stride)
{
    dense_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
