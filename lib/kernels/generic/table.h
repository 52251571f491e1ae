/* SPDX-License-Identifier: Apache-2.0 */
/* Template: all generic kernels and their table, named GENERIC_OPS: included once for any processor
 * and once for those with fused multiply-add, where fmaf is an instruction. Same bits. */
#include "lib/kernels/internal.h"
#include "lib/kernels/kv_layout.h"

#include "lib/kernels/generic/scalar.h"

#include "lib/kernels/generic/matmul.h"

#include "lib/kernels/generic/units.h"

#include "lib/kernels/generic/group.h"

#include "lib/kernels/generic/rows.h"

#include "lib/kernels/generic/recurrent.h"

#include "lib/kernels/generic/attention.h"

static void generic_matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end,
                           const void *x, size_t x_stride, uint32_t rows, float *y, size_t y_stride)
{
    static kernel_matmul_fn *const by_form[FORM__COUNT] = {
        [FORM_F32] = dense_matmul,   [FORM_Q8] = unit_matmul,    [FORM_Q4] = unit_matmul,
        [FORM_HALVES] = unit_matmul, [FORM_SUPER] = unit_matmul, [FORM_GROUP] = group_matmul,
    };
    by_form[kernel_form_of(w->type)](w, n_begin, n_end, x, x_stride, rows, y, y_stride);
}

const struct kernel_ops GENERIC_OPS = {
    .isa = ISA_GENERIC,
    .name = "generic",
    .activation = generic_activation,
    .matmul = generic_matmul,
    .rms_norm = generic_rms_norm,
    .rope = generic_rope,
    .silu_mul = generic_silu_mul,
    .swiglu_clamped = generic_swiglu_clamped,
    .gelu_mul = generic_gelu_mul,
    .soft_cap = generic_soft_cap,
    .attention = generic_attention,
    .axpy = generic_axpy,
    .conv = generic_conv,
    .silu = generic_silu,
    .sigmoid_mul = generic_sigmoid_mul,
    .mul = generic_mul,
    .delta = generic_delta,
    .scan = generic_scan,
    .to_f16 = generic_to_f16,
    .row_to_f32 = generic_row_to_f32,
};
