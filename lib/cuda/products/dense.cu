/* SPDX-License-Identifier: Apache-2.0 */
/* Products of F32, F16 and BF16. The 16 sums of an output (ARITHMETIC.md) are 16 lanes, each with
 * its own chain of fma; a warp has two outputs, and a step of it reads 2 times 16 neighbouring
 * elements. Up to 4 rows share a weight. Matrices of these types are small in the models that are
 * run (routers, norms, the projections of recurrent layers), so there is no kernel with tiles: more
 * rows are more blocks, which find the weights in the L2 cache. */
#include "lib/cuda/products/jobs.cuh"

struct dense_f32 {
    INLINE float at(const uint8_t *row, uint32_t i)
    {
        return load_as<float>(row + (size_t)i * 4);
    }
};

struct dense_f16 {
    INLINE float at(const uint8_t *row, uint32_t i)
    {
        return load_half(row + (size_t)i * 2);
    }
};

struct dense_bf16 {
    INLINE float at(const uint8_t *row, uint32_t i)
    {
        return bf16_to_f32(load_as<uint16_t>(row + (size_t)i * 2));
    }
};

#define DENSE_WARPS 4

template <class T, int ROWS>
__global__ void __launch_bounds__(WARP *DENSE_WARPS) dense_rows(gpu_products all)
{
    const gpu_products a = of_job(all);
    uint32_t lane = threadIdx.x % LANES, first_row = blockIdx.y * ROWS;
    uint32_t output = a.n_begin + blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
    if (first_row >= a.rows)
        return; /* another job has more rows */
    const uint8_t *row = (const uint8_t *)a.w.data +
                         (size_t)(output < a.n_end ? output : a.n_end - 1) * a.w.row_bytes;
    const float *x[ROWS];
    float sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        uint32_t at = first_row + r < a.rows ? first_row + r : a.rows - 1;
        x[r] = (const float *)(const void *)row_of_input(a, at);
        sum[r] = 0;
    }
#pragma unroll 4
    for (uint32_t i = lane; i < a.w.k; i += LANES) {
        float w = T::at(row, i);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[r] = fmaf(w, x[r][i], sum[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float all_lanes = sum_16(sum[r]);
        if (lane == 0 && output < a.n_end && first_row + r < a.rows)
            a.y[(first_row + r) * a.y_stride + output] = all_lanes;
    }
}

template <class T> static int dense(const gpu_products &p, void *stream)
{
    const uint32_t outputs = DENSE_WARPS * WARP / LANES;
    if (p.rows == 1)
        return LAUNCH((dense_rows<T, 1>), product_grid(p, outputs, 1), dim3(WARP * DENSE_WARPS), 0,
                      stream, p);
    return LAUNCH((dense_rows<T, 4>), product_grid(p, outputs, 4), dim3(WARP * DENSE_WARPS), 0,
                  stream, p);
}

extern "C" int gpu_dense_matmul(const struct gpu_products *p, void *stream)
{
    switch (p->w.type) {
    case TENSOR_F32: return dense<dense_f32>(*p, stream);
    case TENSOR_F16: return dense<dense_f16>(*p, stream);
    case TENSOR_BF16: return dense<dense_bf16>(*p, stream);
    default: return GPU_UNSUPPORTED;
    }
}
