/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that all kernels use is here: C's definitions of the arithmetic as device functions,
 * loads, warps, launches.
 *
 * A function of a C header becomes one of the device by a declaration with __device__ before the
 * header is read, so formats and formulas exist once. Divisions and square roots round correctly
 * (-prec-div, -prec-sqrt, the defaults), subnormal numbers are kept (-ftz=false), and * and + stay
 * apart (-fmad=false); fmaf is always one operation.
 *
 * The same sources compile as host code (tests/harness/cuda), where SLUICE_HARNESS is defined and
 * the harness stands for the CUDA headers. */
#ifndef SLUICE_CUDA_DEVICE_CUH
#define SLUICE_CUDA_DEVICE_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#pragma nv_diag_suppress 20040 /* declared with __device__, defined without */
#pragma nv_diag_suppress 177   /* functions of a header that this file does not use */
#endif
/* For headers of C11: lib/base/log.h is no C++, so a failed assertion has no message. */
#include <stdlib.h>
#define _Alignas alignas
#define SLUICE_BASE_ASSERT_H
#define sl_assert(condition) ((condition) ? (void)0 : abort())
#define sl_panic(...)        abort()

extern "C" {
#include "lib/cuda/cuda.h"

#define BOTH static inline __host__ __device__
BOTH uint32_t bits_of(float f);
BOTH float float_of(uint32_t u);
BOTH float bf16_to_f32(uint16_t h);
BOTH float f16_to_f32(uint16_t h);
BOTH uint16_t f32_to_f16(float f);
BOTH float exp_one(float x);
BOTH float softplus_one(float x);
BOTH int32_t round_to_i8(float v);
BOTH float sum_lanes(const float s[16]);
BOTH uint32_t act_blocks(uint32_t k);
BOTH size_t act_scale_offset(uint32_t k);
BOTH size_t act_corr_offset(uint32_t k);
BOTH size_t act_half(uint32_t b, uint32_t half);
BOTH size_t super_scale_offset(uint32_t k);
BOTH size_t super_sum_offset(uint32_t k);
BOTH size_t group_scale_offset(uint32_t k);
BOTH size_t group_sum_offset(uint32_t k);
BOTH uint32_t kernel_attention_begin(uint32_t window, uint32_t positions);
BOTH uint32_t kv_padded(uint32_t head_size);
BOTH bool kv_is_quantised(enum kv_type type);
BOTH uint32_t kv_per_byte(enum kv_type type);
BOTH size_t kv_key_word(enum kv_type type, uint32_t padded, uint32_t position, uint32_t e);
BOTH size_t kv_value_row(enum kv_type type, uint32_t padded, uint32_t position);
BOTH size_t kv_scale_offset(enum kv_type type, uint32_t padded, uint32_t block, uint32_t position);
BOTH uint32_t kernel_ring_position(uint32_t ring, uint32_t position);

#include "lib/kernels/internal.h"
#include "lib/kernels/kv_layout.h"

#undef UNROLL
#define UNROLL /* nvcc has another pragma */
#include "lib/kernels/generic/scalar.h"
}

#define WARP   32
#define ALL    0xffffffffu                       /* every lane of a warp */
#define INLINE static __device__ __forceinline__ /* arguments by address stay in registers */

/* ---- what differs between nvcc and the harness ---- */

#ifdef SLUICE_HARNESS
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
    harness_launch(stream, grid, block, shared, [=]() { kernel(__VA_ARGS__); })
#define shared_memory()      harness_shared()
#define CHECK_ALIGNED(p, by) harness_aligned(p, by)
#define half_to_float(h)     f16_to_f32(h)
#define float_to_half(f)     f32_to_f16(f)
#else
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
    (kernel<<<(grid), (block), (shared), (cudaStream_t)(stream)>>>(__VA_ARGS__),                   \
     (int)cudaGetLastError())
#define CHECK_ALIGNED(p, by) ((void)0)

INLINE uint8_t *shared_memory(void)
{
    extern __shared__ __align__(16) uint8_t block_memory[];
    return block_memory;
}

/* One instruction; exact, subnormal numbers included. */
INLINE float half_to_float(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

INLINE uint16_t float_to_half(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#endif

/* ---- loads ---- */

template <class T> INLINE T load_as(const void *p)
{
    CHECK_ALIGNED(p, sizeof(T));
    return *(const T *)p;
}

/* A scale in F16, at an even address. */
INLINE float load_half(const uint8_t *p)
{
    return half_to_float(load_as<uint16_t>(p));
}

/* ---- warps ---- */

/* Sums of groups of COUNT lanes that are STEP apart, in every one of them: pairs, then pairs of
 * pairs. x + y is y + x, so all lanes have the bits of ((s0 + s1) + (s2 + s3)) + ... */
template <int COUNT, int STEP, class T> INLINE T sum_up(T v)
{
#pragma unroll
    for (int d = STEP; d < COUNT * STEP; d *= 2)
        v = v + __shfl_xor_sync(ALL, v, d);
    return v;
}

/* The sum of 16 lanes: of those 8 apart first, then 4, 2, 1. */
INLINE float sum_16(float v)
{
#pragma unroll
    for (int d = 8; d > 0; d /= 2)
        v = v + __shfl_xor_sync(ALL, v, d);
    return v;
}

INLINE float max_of_warp(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

/* ---- launches ---- */

/* Elements of a prepared activation, or of a row of weights, that belong together. */
static inline uint32_t unit_of(enum kernel_form form)
{
    return form == FORM_F32 ? 1 : form == FORM_SUPER ? SUPER : form == FORM_GROUP ? GROUP : QK;
}

static inline uint32_t divide_up(uint64_t n, uint32_t by)
{
    return (uint32_t)((n + by - 1) / by);
}

/* Numbers of elements, whose sums with numbers of threads fit in 32 bits; and of rows or heads. */
static inline bool count_fits(uint64_t n)
{
    return n <= GPU_COUNT_MAX;
}

static inline bool rows_fit(uint64_t n)
{
    return n <= GPU_ROWS_MAX;
}

/* ---- the functions of the table, by the file that has them ---- */

extern "C" {
/* Product of one family of types; each gives GPU_UNSUPPORTED for the types of the others. */
typedef int gpu_matmul_fn(const struct gpu_products *p, void *stream);
gpu_matmul_fn gpu_dense_matmul, gpu_block_matmul, gpu_super_matmul, gpu_group_matmul;
uint32_t gpu_alignment(enum tensor_type type);
uint64_t gpu_row_bytes(enum tensor_type type, uint32_t k);
bool gpu_rearranged(enum tensor_type type);
int gpu_rearrange(const struct kernel_matrix *w, void *to, size_t to_row_bytes, void *stream);
/* A matrix that products and rows_to_f32 have kernels for. */
bool gpu_matrix_fits(const struct kernel_matrix *w);
int gpu_activation(enum tensor_type type, const float *x, size_t x_stride, uint32_t k,
                   uint32_t rows, void *dst, size_t dst_stride, void *stream);
int gpu_rows_to_f32(const struct kernel_matrix *w, const uint32_t *token, uint32_t rows, float *y,
                    size_t y_stride, void *stream);
int gpu_bank_rows(const struct gpu_bank *b, void *stream);
int gpu_rms_norm(const float *x, size_t x_stride, const float *weight, uint32_t n, float eps,
                 uint32_t rows, float *y, size_t y_stride, void *stream);
int gpu_center(const float *x, size_t x_stride, uint32_t n, uint32_t rows, float *y,
               size_t y_stride, void *stream);
int gpu_add_terms_of_rows(const struct gpu_terms *t, void *stream);
int gpu_finish_rows(const struct gpu_finish *f, void *stream);
int gpu_pointwise_rows(enum gpu_pointwise op, const struct gpu_rows *rows, void *stream);
int gpu_rope_heads(const struct gpu_rope *r, void *stream);
int gpu_kv_store_rows(const struct gpu_kv_store *s, void *stream);
int gpu_route_rows(const struct gpu_route *r, void *stream);
size_t gpu_attention_workspace(const struct kernel_attention *a);
int gpu_attention(const struct kernel_attention *a, void *workspace, void *stream);
int gpu_attention_at(const struct kernel_attention *a, const uint32_t *position, void *workspace,
                     void *stream);
int gpu_jobs_of_routes(const struct gpu_routed *r, void *stream);
int gpu_conv_rows(const struct gpu_conv *c, void *stream);
int gpu_delta_gates_rows(const struct gpu_delta_gates *g, void *stream);
int gpu_delta_rows(const struct gpu_delta *d, void *stream);
int gpu_scan_rows(const struct gpu_scan *s, void *stream);
}

#endif
