/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_block_matmul, BLOCK_TYPES)
