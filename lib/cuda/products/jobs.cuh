/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a launch: one, or those of jobs. */
#ifndef SLUICE_CUDA_PRODUCTS_JOBS_CUH
#define SLUICE_CUDA_PRODUCTS_JOBS_CUH

#include "lib/cuda/device.cuh"

/* The product of this block, as if it were the only one. */
INLINE gpu_products of_job(gpu_products p)
{
    if (p.jobs) {
        gpu_job job = p.jobs[blockIdx.z];
        p.w.data = job.w;
        p.y = job.y;
        p.rows = job.rows;
        if (p.index)
            p.index += job.first;
        else
            p.x = (const uint8_t *)p.x + job.first * p.x_stride;
    }
    return p;
}

INLINE const uint8_t *row_of_input(const gpu_products &p, uint32_t row)
{
    return (const uint8_t *)p.x + (p.index ? p.index[row] : row) * p.x_stride;
}

static inline dim3 product_grid(const gpu_products &p, uint32_t outputs, uint32_t rows)
{
    return dim3(divide_up(p.n_end - p.n_begin, outputs), divide_up(p.rows, rows),
                p.jobs ? p.count : 1);
}

#endif
