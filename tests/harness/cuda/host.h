/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a C++ compiler of the host what nvcc and the CUDA headers give a kernel (fibres.h).
 * Included before the sources of lib/cuda with -include. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_HOST_H
#define SLUICE_TESTS_HARNESS_CUDA_HOST_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/harness/cuda/fibres.h"
#include "tests/harness/cuda/matrix.h"
#include "tests/harness/cuda/memory.h"

#define SLUICE_HARNESS
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline

#define threadIdx fibre_thread
#define blockIdx  fibre_block
#define blockDim  fibre_block_size
#define gridDim   fibre_grid_size

struct dim3 {
    uint32_t x, y, z;
    dim3(uint32_t a, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c)
    {
    }
};

struct int4 {
    int32_t x, y, z, w;
};

struct float4 {
    float x, y, z, w;
};

/* HARNESS_WITHOUT_BARRIERS: tests show that a kernel without its barriers does not pass. */
#ifdef HARNESS_WITHOUT_BARRIERS
#define __syncthreads() ((void)0)
#else
#define __syncthreads() fibres_barrier(__LINE__)
#endif
#define __syncwarp()                 ((void)fibres_exchange(0xffffffffu, 0, fibres_lane(), __LINE__))
#define __shfl_sync(mask, v, lane)   exchange(mask, v, lane, __LINE__)
#define __shfl_xor_sync(mask, v, by) exchange(mask, v, fibres_lane() ^ (uint32_t)(by), __LINE__)
#define harness_shared()             fibres_shared()
#define harness_aligned(p, bytes)    fibres_aligned(p, bytes)

template <class T> static inline T exchange(uint32_t mask, T v, uint32_t from, int line)
{
    uint64_t bits = 0;
    static_assert(sizeof(T) <= sizeof bits, "a register or two");
    memcpy(&bits, &v, sizeof v);
    bits = fibres_exchange(mask, bits, from, line);
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline int32_t __dp4a(int32_t a, int32_t b, int32_t sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (int32_t)(int8_t)(a >> i) * (int32_t)(int8_t)(b >> i);
    return sum;
}

static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(bytes >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

/* ---- tensor cores (lib/cuda/products/mma.cuh) ---- */

static inline void harness_mma(void (*operation)(void *const *), int32_t *c, uint32_t c_count,
                               const uint32_t *a, uint32_t a_count, const uint32_t *b,
                               uint32_t b_count, int line)
{
    matrix_registers r;
    memcpy(r.a, a, a_count * sizeof *a);
    memcpy(r.b, b, b_count * sizeof *b);
    memcpy(r.c, c, c_count * sizeof *c);
    fibres_together(&r, operation, line);
    memcpy(c, r.c, c_count * sizeof *c);
}

static inline void harness_mma_16_8_32(int32_t c[4], const uint32_t a[4], const uint32_t b[2],
                                       int line)
{
    harness_mma(matrix_m16n8k32, c, 4, a, 4, b, 2, line);
}

static inline void harness_mma_16_8_16(int32_t c[4], const uint32_t a[2], uint32_t b, int line)
{
    harness_mma(matrix_m16n8k16, c, 4, a, 2, &b, 1, line);
}

static inline void harness_mma_8_8_16(int32_t c[2], uint32_t a, uint32_t b, int line)
{
    harness_mma(matrix_m8n8k16, c, 2, &a, 1, &b, 1, line);
}

static inline void harness_load_matrices(uint32_t to[4], const void *row, int line)
{
    matrix_loads loads = {row, {0, 0, 0, 0}};
    fibres_together(&loads, matrix_load, line);
    memcpy(to, loads.to, sizeof loads.to);
}

/* ---- the part of the CUDA runtime that the module uses; memory.c ---- */

#define cudaMemcpyHostToDevice           1
#define cudaMemcpyDeviceToHost           2
#define cudaStreamNonBlocking            1
#define cudaEventDisableTiming           2
#define cudaStreamCaptureModeThreadLocal 1
typedef void *cudaStream_t;
typedef void *cudaEvent_t;
typedef void *cudaGraph_t;
typedef void *cudaGraphExec_t;
typedef int cudaError_t;

static inline int cudaSetDevice(int number)
{
    return fake_select(number);
}

static inline int cudaMemGetInfo(size_t *unused, size_t *total)
{
    return fake_memory(unused, total);
}

static inline const char *cudaGetErrorString(int status)
{
    return status == 2 ? "out of memory" : fake_error_text();
}

static inline int cudaMalloc(void **out, size_t bytes)
{
    return fake_allocate(bytes, out);
}

static inline int cudaFree(void *memory)
{
    return fake_release(memory);
}

static inline int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                  cudaStream_t stream)
{
    return kind == cudaMemcpyHostToDevice ? fake_upload(to, from, bytes, stream)
                                          : fake_download(to, from, bytes, stream);
}

static inline int cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return fake_fill(to, value, bytes, stream);
}

static inline int cudaStreamSynchronize(cudaStream_t stream)
{
    return fake_wait(stream);
}

static inline int cudaMallocHost(void **out, size_t bytes)
{
    return fake_host_allocate(bytes, out);
}

static inline int cudaFreeHost(void *memory)
{
    return fake_host_release(memory);
}

static inline int cudaStreamCreateWithFlags(cudaStream_t *out, int)
{
    return fake_make(out);
}

static inline int cudaStreamDestroy(cudaStream_t stream)
{
    return fake_drop(stream);
}

static inline int cudaEventCreateWithFlags(cudaEvent_t *out, int)
{
    return fake_make(out);
}

static inline int cudaEventDestroy(cudaEvent_t event)
{
    return fake_drop(event);
}

static inline int cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return fake_record(event, stream);
}

static inline int cudaEventSynchronize(cudaEvent_t event)
{
    return fake_event_wait(event);
}

static inline int cudaGetLastError()
{
    return fake_last_error();
}

static inline int cudaEventQuery(cudaEvent_t event)
{
    return fake_event_done(event);
}

static inline int cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, int)
{
    return fake_stream_wait(stream, event);
}

static inline int cudaStreamBeginCapture(cudaStream_t stream, int)
{
    return fake_capture_begin(stream);
}

static inline int cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    return fake_capture_end(stream, out);
}

static inline int cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    return fake_graph_copy(graph, out);
}

static inline int cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    return fake_graph_launch(graph, stream);
}

static inline int cudaGraphDestroy(cudaGraph_t graph)
{
    return fake_graph_drop(graph);
}

static inline int cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    return fake_graph_drop(graph);
}

template <class F> static void harness_thread(const void *f)
{
    (*(const F *)f)();
}

/* The result is that of a launch: 0, or 1 (cudaErrorInvalidValue). f is copied byte by byte. */
template <class F>
static int harness_launch(void *stream, dim3 grid, dim3 block, size_t shared, F f)
{
    return fake_launch({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared,
                       harness_thread<F>, &f, sizeof f, stream);
}

#endif
