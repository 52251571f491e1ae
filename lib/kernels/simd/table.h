/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a set whose kernels are the templates of this directory; sets of one file differ in
 * products only. */
#define SIMD_OPS(isa_id, isa_name, product)                                                        \
    {                                                                                              \
        .isa = isa_id, .name = isa_name, .matmul = product, .activation = simd_activation,         \
        .rms_norm = simd_rms_norm, .rope = simd_rope, .silu_mul = simd_silu_mul,                   \
        .swiglu_clamped = simd_swiglu_clamped, .gelu_mul = simd_gelu_mul,                          \
        .soft_cap = simd_soft_cap, .attention = simd_attention, .axpy = simd_axpy,                 \
        .conv = simd_conv, .silu = simd_silu, .sigmoid_mul = simd_sigmoid_mul, .mul = simd_mul,    \
        .delta = simd_delta, .scan = simd_scan, .to_f16 = simd_to_f16,                             \
        .row_to_f32 = simd_row_to_f32,                                                             \
    }
