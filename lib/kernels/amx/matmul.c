/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which products tiles compute: those of several rows; the others are those of AVX-512
 * VBMI. */
#include "lib/kernels/internal.h"

#define TILE_ROWS_MIN 11 /* with fewer, the vectors are faster (kernel_bench) */

void amx_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_Q8] = amx_block_matmul,
        [FORM_Q4] = amx_block_matmul,
        [FORM_SUPER] = amx_super_matmul,
    };
    kernel_matmul_fn *product = by_form[kernel_form_of(w->type)];
    if (product == NULL || rows < TILE_ROWS_MIN ||
        (product == amx_block_matmul && !amx_block_fits(w)))
        product = vbmi_matmul;
    product(w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}
