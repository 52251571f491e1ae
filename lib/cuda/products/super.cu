/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_super_matmul, SUPER_TYPES)
