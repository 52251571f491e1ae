/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks that have one scale: AVX2. */
#include "lib/kernels/avx2/dots.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/values.h"

#include "lib/kernels/simd/blocks.h"

kernel_matmul_fn *avx2_block_product(enum tensor_type type)
{
    return block_product(type);
}
