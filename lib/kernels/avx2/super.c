/* SPDX-License-Identifier: Apache-2.0 */
/* Products with super-blocks of 256: AVX2. */
#include "lib/kernels/avx2/bytes.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/grids/grids.h"
#include "lib/tensor/unpack/values.h"

/* acc + pairs of 16-bit products. */
#define VECTOR_ADD_SCALED(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))

/* Byte i is 0xff if bit i is set, else 0. */
static inline __attribute__((always_inline)) __m256i vector_bits(uint32_t bits)
{
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}
#define VECTOR_BITS(bits) vector_bits(bits)

#include "lib/kernels/simd/super.h"

void avx2_super_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                       const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    super_matmul(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
