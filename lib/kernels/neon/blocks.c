/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks that have one scale: NEON. */
#include "lib/kernels/neon/dots.h"
#include "lib/kernels/neon/set.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/values.h"

#define PANEL_VECTORS 1 /* outputs of a panel, in vectors of 8 */
#define PANEL_ROWS    4 /* of a register tile: 8 integer sums, 8 float sums, 2 weights, 1 activation */
#include "lib/kernels/simd/blocks.h"

kernel_matmul_fn *SET_NAME(block_product)(enum tensor_type type)
{
    return block_product(type);
}
