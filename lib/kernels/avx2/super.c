/* SPDX-License-Identifier: Apache-2.0 */
/* Products with super-blocks of 256: AVX2. */
#include "lib/kernels/avx2/dots.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/values.h"

#define VECTOR_ADD_SCALED(acc, a, b) dot_scale(acc, a, b)
#define VECTOR_BITS(bits)            bytes_of_bits(bits)

#include "lib/kernels/simd/super.h"

void avx2_super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                       const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    super_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
