/* SPDX-License-Identifier: Apache-2.0 */
/* Products with super-blocks of 256: AVX2. */
#include <immintrin.h>

#include "lib/kernels/internal.h"

#include "lib/tensor/tensor_type.h"

/* acc + pairs of 16-bit products. */
#define VECTOR_ADD_SCALED(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))

#include "lib/kernels/simd/super.h"

void avx2_super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                       const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    super_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
