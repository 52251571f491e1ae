/* SPDX-License-Identifier: Apache-2.0 */
/* Products with super-blocks of 256: AVX-512 VNNI. */
#include "lib/kernels/avx512/bytes.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/values.h"

/* acc + pairs of 16-bit products. */
#define VECTOR_ADD_SCALED(acc, a, b) _mm256_dpwssd_epi32(acc, a, b)

/* acc + sums of four products of unsigned and signed bytes. */
#define VECTOR_FOURS(acc, a, b) _mm256_dpbusd_epi32(acc, a, b)

/* Byte i is 0xff if bit i is set, else 0. */
#define VECTOR_BITS(bits) _mm256_movm_epi8(bits)

#include "lib/kernels/simd/super.h"

void avx512_super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                         const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    super_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
