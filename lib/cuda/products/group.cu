/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_group_matmul, GROUP_TYPES)
