/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, what is read of a residual that is a bank of sums, and rotary embedding. */
#include "lib/cuda/exact.cuh"

/* ---- norms ----
 *
 * A block per row. The 16 sums of ARITHMETIC.md are 16 threads, each with a chain of n / 16
 * operations; they read from shared memory, which all threads fill with coalesced loads, because a
 * chain of loads from global memory would take most of the time. */

#define NORM_THREADS 256
#define NORM_CHUNK   4096 /* floats in shared memory, a multiple of LANES */

struct norm_args {
    const float *x, *weight;
    float *y;
    size_t x_stride, y_stride;
    uint32_t n;
    float eps;
};

/* The sum of this thread's lane, of x * x as binary32 or of x as binary64. */
INLINE float add_to(float sum, float x)
{
    return fmaf(x, x, sum);
}

INLINE double add_to(double sum, float x)
{
    return sum + (double)x;
}

template <class T> INLINE T lane_sum(const float *x, uint32_t n, float *chunk)
{
    T sum = 0;
    for (uint32_t at = 0; at < n; at += NORM_CHUNK) {
        uint32_t count = n - at < NORM_CHUNK ? n - at : NORM_CHUNK;
        __syncthreads(); /* the chunk before is not read any more */
        for (uint32_t i = threadIdx.x; i < count; i += NORM_THREADS)
            chunk[i] = x[at + i];
        __syncthreads();
        if (threadIdx.x < LANES)
            for (uint32_t i = threadIdx.x; i < count; i += LANES)
                sum = add_to(sum, chunk[i]);
    }
    return sum;
}

__global__ void __launch_bounds__(NORM_THREADS) rms_norm_rows(norm_args a)
{
    float *chunk = (float *)(void *)shared_memory(), *scale = chunk + NORM_CHUNK;
    const float *x = a.x + blockIdx.x * a.x_stride;
    float *y = a.y + blockIdx.x * a.y_stride;
    float sum = lane_sum<float>(x, a.n, chunk);
    if (threadIdx.x < WARP) {
        sum = sum_16(sum);
        if (threadIdx.x == 0)
            *scale = 1.0f / sqrtf(sum / (float)a.n + a.eps);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += NORM_THREADS)
        y[i] = x[i] * *scale * a.weight[i];
}

__global__ void __launch_bounds__(NORM_THREADS) center_rows(norm_args a)
{
    double *lane = (double *)(void *)shared_memory();
    float *chunk = (float *)(void *)(lane + LANES);
    const float *x = a.x + blockIdx.x * a.x_stride;
    float *y = a.y + blockIdx.x * a.y_stride;
    double sum = lane_sum<double>(x, a.n, chunk);
    if (threadIdx.x < LANES)
        lane[threadIdx.x] = sum;
    __syncthreads();
    double mean = 0;
    for (int i = 0; i < LANES; i++)
        mean += lane[i];
    mean = mean / (double)a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += NORM_THREADS)
        y[i] = (float)((double)x[i] - mean);
}

extern "C" int gpu_rms_norm(const float *x, size_t x_stride, const float *weight, uint32_t n,
                            float eps, uint32_t rows, float *y, size_t y_stride, void *stream)
{
    if (!count_fits(n) || !count_fits(rows))
        return GPU_UNSUPPORTED;
    if (n == 0 || rows == 0)
        return 0;
    norm_args a = {x, weight, y, x_stride, y_stride, n, eps};
    return LAUNCH(rms_norm_rows, dim3(rows), dim3(NORM_THREADS), (NORM_CHUNK + 1) * sizeof(float),
                  stream, a);
}

extern "C" int gpu_center(const float *x, size_t x_stride, uint32_t n, uint32_t rows, float *y,
                          size_t y_stride, void *stream)
{
    if (!count_fits(n) || !count_fits(rows))
        return GPU_UNSUPPORTED;
    if (n == 0 || rows == 0)
        return 0;
    norm_args a = {x, NULL, y, x_stride, y_stride, n, 0};
    return LAUNCH(center_rows, dim3(rows), dim3(NORM_THREADS),
                  LANES * sizeof(double) + NORM_CHUNK * sizeof(float), stream, a);
}

/* ---- a bank of sums ---- */

/* The sum of x * scale * w of this thread's lane. */
INLINE float lane_product(const float *x, const float *w, float scale, uint32_t n, float *chunk)
{
    float sum = 0;
    for (uint32_t at = 0; at < n; at += NORM_CHUNK) {
        uint32_t count = n - at < NORM_CHUNK ? n - at : NORM_CHUNK;
        __syncthreads(); /* the chunk before is not read any more */
        for (uint32_t i = threadIdx.x; i < count; i += NORM_THREADS)
            chunk[i] = x[at + i] * scale;
        __syncthreads();
        if (threadIdx.x < LANES)
            for (uint32_t i = threadIdx.x; i < count; i += LANES)
                sum = fmaf(w[at + i], chunk[i], sum);
    }
    return sum;
}

/* A block per source and row: the score of its norm. */
__global__ void __launch_bounds__(NORM_THREADS) bank_scores(gpu_bank b)
{
    float *chunk = (float *)(void *)shared_memory(), *scale = chunk + NORM_CHUNK;
    const float *x = b.x + ((size_t)blockIdx.y * b.streams + blockIdx.x) * b.n;
    float sum = lane_sum<float>(x, b.n, chunk);
    if (threadIdx.x < WARP) {
        sum = sum_16(sum);
        if (threadIdx.x == 0)
            *scale = 1.0f / sqrtf(sum / (float)b.n + b.eps);
    }
    __syncthreads();
    sum = lane_product(x, b.score, *scale, b.n, chunk);
    if (threadIdx.x < WARP) {
        sum = sum_16(sum);
        if (threadIdx.x == 0)
            b.weights[(size_t)blockIdx.y * b.streams + blockIdx.x] = sum;
    }
}

/* Each block computes the softmax of its row again: the scores are few. */
__global__ void __launch_bounds__(NORM_THREADS) bank_sums(gpu_bank b)
{
    float *p = (float *)(void *)shared_memory();
    const float *score = b.weights + (size_t)blockIdx.y * b.streams;
    uint32_t i = blockIdx.x * NORM_THREADS + threadIdx.x;
    float top = score[0], all = 0, sum = 0;
    for (uint32_t s = 1; s < b.sources; s++)
        top = score[s] > top ? score[s] : top;
    for (uint32_t s = threadIdx.x; s < b.sources; s += NORM_THREADS)
        p[s] = (float)exact_exp((double)(score[s] - top));
    __syncthreads();
    if (i >= b.n)
        return;
    for (uint32_t s = 0; s < b.sources; s++)
        all += p[s];
    for (uint32_t s = 0; s < b.sources; s++)
        sum = fmaf(p[s] / all, b.x[((size_t)blockIdx.y * b.streams + s) * b.n + i], sum);
    b.y[(size_t)blockIdx.y * b.n + i] = sum;
}

extern "C" int gpu_bank_rows(const struct gpu_bank *bank, void *stream)
{
    gpu_bank b = *bank;
    if (!count_fits(b.n) || !rows_fit(b.rows) || b.sources == 0 || b.sources > b.streams ||
        b.sources > NORM_CHUNK)
        return GPU_UNSUPPORTED;
    if (b.n == 0 || b.rows == 0)
        return 0;
    int status = LAUNCH(bank_scores, dim3(b.sources, b.rows), dim3(NORM_THREADS),
                        (NORM_CHUNK + 1) * sizeof(float), stream, b);
    if (status != 0)
        return status;
    return LAUNCH(bank_sums, dim3(divide_up(b.n, NORM_THREADS), b.rows), dim3(NORM_THREADS),
                  b.sources * sizeof(float), stream, b);
}

/* ---- rotation: a thread per pair ---- */

#define ROPE_THREADS 128

__global__ void __launch_bounds__(ROPE_THREADS) rotate(gpu_rope r)
{
    uint32_t i = blockIdx.x * ROPE_THREADS + threadIdx.x;
    if (i >= r.n / 2)
        return;
    float *x = r.x + blockIdx.z * r.x_stride + blockIdx.y * r.head_stride;
    const float *table = r.cos_sin + blockIdx.z * r.table_stride;
    float *first = x + (r.pairs ? 2 * i : i), *second = x + (r.pairs ? 2 * i + 1 : i + r.n / 2);
    float c = table[2 * i], s = table[2 * i + 1], a = *first, b = *second;
    *first = a * c - b * s;
    *second = a * s + b * c;
}

extern "C" int gpu_rope_heads(const struct gpu_rope *r, void *stream)
{
    if (!count_fits(r->n) || !rows_fit(r->heads) || !rows_fit(r->rows))
        return GPU_UNSUPPORTED;
    if (r->n < 2 || r->heads == 0 || r->rows == 0)
        return 0;
    gpu_rope by_value = *r;
    return LAUNCH(rotate, dim3(divide_up(r->n / 2, ROPE_THREADS), r->heads, r->rows),
                  dim3(ROPE_THREADS), 0, stream, by_value);
}
