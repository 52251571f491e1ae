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

const struct kernel_ops SET_NAME(ops) = {
#ifdef SLUICE_DOTPROD
    .isa = ISA_DOTPROD,
    .name = "dotprod",
#else
    .isa = ISA_NEON,
    .name = "neon",
#endif
    .activation = simd_activation,
    .matmul = simd_matmul,
    .rms_norm = simd_rms_norm,
    .rope = simd_rope,
    .silu_mul = simd_silu_mul,
    .swiglu_clamped = simd_swiglu_clamped,
    .gelu_mul = simd_gelu_mul,
    .soft_cap = simd_soft_cap,
    .attention = simd_attention,
    .axpy = simd_axpy,
    .conv = simd_conv,
    .silu = simd_silu,
    .sigmoid_mul = simd_sigmoid_mul,
    .mul = simd_mul,
    .delta = simd_delta,
    .to_f16 = simd_to_f16,
    .row_to_f32 = simd_row_to_f32,
};
