/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the products with K-quants and IQ4_XS, whose super-blocks have 256 elements. */
#include "lib/cuda/products/product.cuh"

PRODUCT_FAMILY(gpu_super_matmul, SUPER_TYPES)
