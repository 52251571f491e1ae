/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks whose codes are looked up: AVX-512 VNNI and VBMI. The other products are
 * those of AVX-512. */
#include "lib/kernels/avx512/bytes.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/values.h"

#define BLOCK_TYPES(X) X(IQ4_NL) X(MXFP4) X(NVFP4)
#include "lib/kernels/simd/blocks.h"

void vbmi_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                 size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    kernel_matmul_fn *product = block_product(w->type);
    if (product == NULL)
        product = avx512_matmul;
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
