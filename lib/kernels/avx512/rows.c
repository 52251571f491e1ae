/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations, attention and the tables of AVX-512, AVX-512 VBMI and AMX. */
#include "lib/kernels/avx512/bytes.h"

#include "lib/kernels/simd/rows.h"

/* Past the caches, to an aligned address; a fence orders it. */
#define STORE_FAR(p, v) _mm512_stream_ps(p, v)
#include "lib/kernels/simd/recurrent.h"

#include "lib/base/assert.h"
#include "lib/kernels/simd/attention/attention.h"
#include "lib/kernels/simd/table.h"

void avx512_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                   size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_F32] = avx512_dense_matmul,
        [FORM_SUPER] = avx512_super_matmul,
        [FORM_GROUP] = avx512_group_matmul,
    };
    kernel_matmul_fn *product = by_form[kernel_form_of(w->type)];
    if (product == NULL)
        product = avx512_block_product(w->type);
    sl_assert(product);
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}

const struct kernel_ops avx512_ops = SIMD_OPS(ISA_AVX512, "avx512", avx512_matmul);
const struct kernel_ops vbmi_ops = SIMD_OPS(ISA_VBMI, "avx512vbmi", vbmi_matmul);
const struct kernel_ops amx_ops = SIMD_OPS(ISA_AMX, "amx", amx_matmul);
