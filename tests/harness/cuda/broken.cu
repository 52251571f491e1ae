/* SPDX-License-Identifier: Apache-2.0 */
/* Has kernels with deliberate faults, which the harness must report. */
#include "lib/cuda/products/mma.cuh"

extern "C" {
#include "tests/harness/cuda/broken.h"
}

#define COUNT 128

/* At a warp's end, so that lanes of one warp read what those of another wrote. */
INLINE void reverse(const uint32_t *in, uint32_t *out, bool barrier)
{
    uint32_t *s = (uint32_t *)(void *)shared_memory();
    s[threadIdx.x] = in[threadIdx.x];
    if (barrier)
        __syncthreads();
    out[threadIdx.x] = s[COUNT - 1 - threadIdx.x];
}

INLINE void reverse_copies(const uint32_t *in, uint32_t *out)
{
    uint32_t *s = (uint32_t *)(void *)shared_memory();
    copy_4(&s[threadIdx.x], &in[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = s[COUNT - 1 - threadIdx.x];
    copies_wait();
}

INLINE void half_product(void)
{
    const uint32_t a[4] = {0}, b[2] = {0};
    int32_t c[4] = {0};
    if (threadIdx.x % WARP < WARP / 2)
        mma_16_8_32(c, a, b);
}

__global__ void broken_kernel(enum broken kind, const uint32_t *in, uint32_t *out)
{
    uint32_t t = threadIdx.x;
    switch (kind) {
    case BROKEN_HALF_AT_BARRIER:
        if (t < WARP)
            __syncthreads();
        break;
    case BROKEN_TWO_BARRIERS:
        if (t % 2 == 0)
            __syncthreads();
        else
            __syncthreads();
        break;
    case BROKEN_HALF_EXCHANGE:
        if (t % WARP < WARP / 2)
            out[t] = __shfl_xor_sync(ALL, t, 1);
        break;
    case BROKEN_EARLY: reverse_copies(in, out); break;
    case BROKEN_HALF_PRODUCT: half_product(); break;
    case BROKEN_LOAD_BEYOND: load_matrices(out + t, shared_memory() + t % WARP * 32); break;
    case BROKEN_COPY_LEFT: copy_4(shared_memory() + 4 * t, in + t); break;
    case BROKEN_BEYOND_SHARED: shared_memory()[COUNT * 4 + t] = 1; break;
    case BROKEN_UNALIGNED: out[t] = load_as<uint32_t>((const uint8_t *)in + 1); break;
    default: reverse(in, out, kind != BROKEN_NO_BARRIER);
    }
}

extern "C" int broken_run(enum broken kind, const uint32_t *in, uint32_t *out)
{
    void *stream = NULL;
    return LAUNCH(broken_kernel, dim3(1), dim3(COUNT), COUNT * sizeof(uint32_t), stream, kind, in,
                  out);
}
