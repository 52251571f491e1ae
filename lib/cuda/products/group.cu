/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the products with the types of sluice: a scale per row or per group of 64. */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_group_matmul, GROUP_TYPES)
