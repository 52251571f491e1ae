/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which products AVX-VNNI computes: those with bytes; those with floats are those of
 * AVX2. */
#include "lib/kernels/internal.h"

void avxvnni_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                    size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_F32] = avx2_dense_matmul,
        [FORM_SUPER] = avxvnni_super_matmul,
        [FORM_GROUP] = avxvnni_group_matmul,
    };
    kernel_matmul_fn *product = by_form[kernel_form_of(w->type)];
    if (product == NULL)
        product = avxvnni_block_product(w->type);
    sl_assert(product);
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
