/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations, attention and the tables of AVX2 and AVX-VNNI. */
#include "lib/kernels/avx2/dots.h"

#include "lib/kernels/simd/rows.h"

/* Past the caches, to an aligned address; a fence orders it. */
#define STORE_FAR(p, v) _mm256_stream_ps(p, v)
#include "lib/kernels/simd/recurrent.h"

#include "lib/base/assert.h"
#include "lib/kernels/simd/attention/attention.h"
#include "lib/kernels/simd/table.h"

static void avx2_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                        const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_F32] = avx2_dense_matmul,
        [FORM_SUPER] = avx2_super_matmul,
        [FORM_GROUP] = avx2_group_matmul,
    };
    kernel_matmul_fn *product = by_form[kernel_form_of(w->type)];
    if (product == NULL)
        product = avx2_block_product(w->type);
    sl_assert(product);
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}

const struct kernel_ops avx2_ops = SIMD_OPS(ISA_AVX2, "avx2", avx2_matmul);
const struct kernel_ops avxvnni_ops = SIMD_OPS(ISA_AVXVNNI, "avxvnni", avxvnni_matmul);
