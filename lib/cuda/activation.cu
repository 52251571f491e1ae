/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared activations: the bytes that the CPU writes (lib/kernels/internal.h), so a row may be
 * prepared on either side. A warp has the elements of one scale: 32, 64 or 256, next to each other
 * per lane, and finds the maximum by exchanges. The warps after the last unit write the zeros that
 * fill a row up. */
#include "lib/cuda/device.cuh"

#define ACTIVATION_WARPS 4

struct activation_args {
    const float *x;
    uint8_t *out;
    size_t x_stride, out_stride;
    uint32_t k;
    enum kernel_form form;
    int32_t factor; /* of the corrections */
};

/* Quantises EACH elements per lane of one scale. Returns the scale. */
template <int EACH> INLINE float quantise(const float *x, int32_t n[EACH])
{
    float v[EACH], max = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        v[i] = x[(threadIdx.x % WARP) * EACH + i];
        max = fmaxf(max, fabsf(v[i]));
    }
    max = max_of_warp(max);
    bool zero = max < ACT_MIN;
    float inverse = zero ? 0.0f : 127.0f / max;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        n[i] = round_to_i8(v[i] * inverse);
    return zero ? 0.0f : max / 127.0f;
}

INLINE void put_float(uint8_t *row, size_t offset, uint32_t i, float v)
{
    ((float *)(void *)(row + offset))[i] = v;
}

/* A block of 32; after the last one, a block of zeros. */
INLINE void block_unit(const activation_args &a, const float *x, uint32_t b, uint8_t *row)
{
    uint32_t lane = threadIdx.x % WARP, padded = act_blocks(a.k);
    bool there = b < a.k / QK;
    int32_t n[1] = {0};
    float d = there ? quantise<1>(x + (size_t)b * QK, n) : 0;
    row[act_half(b, lane / 16) + lane % 16] = (uint8_t)n[0];
    int32_t half = sum_up<16, 1>(n[0]), other = __shfl_xor_sync(ALL, half, 16);
    int32_t *corrections = (int32_t *)(void *)(row + act_corr_offset(a.k));
    if (lane == 0)
        put_float(row, act_scale_offset(a.k), b, d);
    if (a.form != FORM_HALVES && lane == 0)
        corrections[b] = a.factor * (half + other);
    if (a.form == FORM_HALVES && lane % 16 == 0)
        corrections[lane / 16 * padded + b] = a.factor * half;
}

INLINE void super_unit(const activation_args &a, const float *x, uint32_t g, uint8_t *row)
{
    uint32_t lane = threadIdx.x % WARP, words[2] = {0, 0};
    int32_t n[8], sum = 0;
    float d = quantise<8>(x + (size_t)g * SUPER, n);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        words[i / 4] |= ((uint32_t)n[i] & 255u) << 8 * (i % 4);
        sum += n[i];
    }
    uint32_t *to = (uint32_t *)(void *)(row + (size_t)g * SUPER + lane * 8);
    to[0] = words[0];
    to[1] = words[1];
    sum = sum_up<2, 1>(sum);
    if (lane % 2 == 0)
        ((int16_t *)(void *)(row + super_sum_offset(a.k)))[g * 16 + lane / 2] = (int16_t)sum;
    if (lane == 0)
        put_float(row, super_scale_offset(a.k), g, d);
}

INLINE void group_unit(const activation_args &a, const float *x, uint32_t g, uint8_t *row)
{
    uint32_t lane = threadIdx.x % WARP;
    int32_t n[2];
    float d = quantise<2>(x + (size_t)g * GROUP, n);
    row[g * GROUP + lane * 2] = (uint8_t)n[0];
    row[g * GROUP + lane * 2 + 1] = (uint8_t)n[1];
    int32_t sum = sum_up<WARP, 1>(n[0] + n[1]);
    if (lane == 0) {
        put_float(row, group_scale_offset(a.k), g, d);
        put_float(row, group_sum_offset(a.k), g, (float)sum);
    }
}

/* Zeros from `begin` to the next multiple of 64, the end of the row, by the first warp. */
INLINE void fill_up(size_t begin, uint8_t *row)
{
    if (blockIdx.x == 0 && threadIdx.x < WARP)
        for (size_t i = begin + threadIdx.x; i < (begin + 63) / 64 * 64; i += WARP)
            row[i] = 0;
}

__global__ void __launch_bounds__(WARP *ACTIVATION_WARPS) activation_rows(activation_args a)
{
    uint32_t unit = blockIdx.x * ACTIVATION_WARPS + threadIdx.x / WARP;
    const float *x = a.x + blockIdx.y * a.x_stride;
    uint8_t *row = a.out + blockIdx.y * a.out_stride;
    /* The condition is the same for all lanes of a warp. */
    if (a.form == FORM_SUPER) {
        fill_up(super_sum_offset(a.k) + a.k / 16 * sizeof(int16_t), row);
        if (unit < a.k / SUPER)
            super_unit(a, x, unit, row);
    } else if (a.form == FORM_GROUP) {
        fill_up(group_sum_offset(a.k) + a.k / GROUP * sizeof(float), row);
        if (unit < a.k / GROUP)
            group_unit(a, x, unit, row);
    } else if (unit < act_blocks(a.k)) {
        block_unit(a, x, unit, row);
    }
}

__global__ void __launch_bounds__(256) copy_floats(activation_args a)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.k)
        ((float *)(void *)(a.out + blockIdx.y * a.out_stride))[i] =
            a.x[blockIdx.y * a.x_stride + i];
}

extern "C" int gpu_activation(enum tensor_type type, const float *x, size_t x_stride, uint32_t k,
                              uint32_t rows, void *dst, size_t dst_stride, void *stream)
{
    activation_args a = {x, (uint8_t *)dst, x_stride, dst_stride, k, kernel_form_of(type), 0};
    uint32_t unit = unit_of(a.form);
    size_t align = a.form == FORM_F32 ? sizeof(float) : 64;
    if (a.form == FORM__COUNT || k > KERNEL_K_MAX || k % unit != 0 || !rows_fit(rows) ||
        (uintptr_t)dst % align != 0 || dst_stride % align != 0)
        return GPU_UNSUPPORTED;
    if (k == 0 || rows == 0)
        return 0;
    uint32_t units = a.form == FORM_SUPER || a.form == FORM_GROUP ? k / unit : act_blocks(k);
    if (a.form == FORM_F32)
        return LAUNCH(copy_floats, dim3(divide_up(k, 256), rows), dim3(256), 0, stream, a);
    a.factor = act_corr_factor(type);
    return LAUNCH(activation_rows, dim3(divide_up(units, ACTIVATION_WARPS), rows),
                  dim3(WARP * ACTIVATION_WARPS), 0, stream, a);
}
