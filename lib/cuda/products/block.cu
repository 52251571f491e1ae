/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the products with types whose blocks have 32 elements and one scale. */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_block_matmul, BLOCK_TYPES)
