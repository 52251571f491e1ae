/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of experts that a router on the device chose: what the host makes of routes otherwise
 * (lib/device/cuda/ops). */
#include "lib/cuda/device.cuh"

#define ROUTED_THREADS 32

INLINE const float *of_expert(const float *all, uint32_t number, size_t n)
{
    return all ? all + number * n : NULL;
}

/* A thread per rank. */
__global__ void __launch_bounds__(ROUTED_THREADS) make_jobs(gpu_routed r)
{
    for (uint32_t rank = threadIdx.x; rank < r.ranks; rank += ROUTED_THREADS) {
        uint32_t number = r.number[(size_t)rank * r.step];
        const void *const *matrix = r.table + (size_t)number * GPU_MATRICES;
        float *gate = r.gate + (size_t)rank * r.inner, *up = r.up + (size_t)rank * r.inner;
        float *y = r.y + (size_t)rank * r.outputs;
        r.jobs[rank] = {matrix[0], gate, 0, 1};
        r.jobs[r.ranks + rank] = {matrix[1], up, 0, 1};
        r.jobs[2 * r.ranks + rank] = {matrix[2], y, rank, 1};
        r.finish[rank] = {gate,
                          up,
                          of_expert(r.scale[0], number, 1),
                          of_expert(r.scale[1], number, 1),
                          of_expert(r.bias[0], number, r.inner),
                          of_expert(r.bias[1], number, r.inner),
                          1};
        r.finish[r.ranks + rank] = {y,
                                    NULL,
                                    of_expert(r.scale[2], number, 1),
                                    NULL,
                                    of_expert(r.bias[2], number, r.outputs),
                                    NULL,
                                    1};
        r.terms[rank] = {r.weight[(size_t)rank * r.step] * r.factor, rank};
    }
}

extern "C" int gpu_jobs_of_routes(const struct gpu_routed *r, void *stream)
{
    const gpu_routed by_value = *r; /* read before the launch runs */
    if (!rows_fit(r->ranks))
        return GPU_UNSUPPORTED;
    if (r->ranks == 0)
        return 0;
    return LAUNCH(make_jobs, dim3(1), dim3(ROUTED_THREADS), 0, stream, by_value);
}
