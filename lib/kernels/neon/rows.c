/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations, attention and the table of kernels: NEON. */
#include "lib/kernels/neon/dots.h"
#include "lib/kernels/neon/set.h"

#include "lib/kernels/simd/rows.h"

/* Past the caches, to an aligned address; a fence orders it. */
#define STORE_FAR(p, v) _mm256_stream_ps(p, v)
#include "lib/kernels/simd/recurrent.h"

#include "lib/base/assert.h"
#include "lib/kernels/simd/attention/attention.h"
#include "lib/kernels/simd/table.h"

static void simd_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                        const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_F32] = SET_NAME(dense_matmul),
        [FORM_SUPER] = SET_NAME(super_matmul),
        [FORM_GROUP] = SET_NAME(group_matmul),
    };
    kernel_matmul_fn *product = by_form[kernel_form_of(w->type)];
    if (product == NULL)
        product = SET_NAME(block_product)(w->type);
    sl_assert(product);
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}

#ifdef SLUICE_DOTPROD
const struct kernel_ops dotprod_ops = SIMD_OPS(ISA_DOTPROD, "dotprod", simd_matmul);
#else
const struct kernel_ops neon_ops = SIMD_OPS(ISA_NEON, "neon", simd_matmul);
#endif
