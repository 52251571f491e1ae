/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks that have one scale: AVX-VNNI. */
#include "lib/kernels/avxvnni/dots.h"

#include "lib/base/assert.h"
#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/values.h"

#define PANEL_VECTORS 1 /* outputs of a panel, in vectors; with 2, 8 rows were slower */
#define PANEL_ROWS    6 /* of a register tile */
#include "lib/kernels/simd/blocks.h"

kernel_matmul_fn *avxvnni_block_product(enum tensor_type type)
{
    return block_product(type);
}
