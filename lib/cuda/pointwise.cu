/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on single elements: a thread per element, neighbouring threads on neighbouring
 * elements. They are limited by memory. exp is the project's (ARITHMETIC.md), not the one of the
 * CUDA library. */
#include "lib/cuda/exact.cuh"

#define POINT_THREADS 256

INLINE float sigmoid_of(float a, float x)
{
    return a / (1.0f + exp_one(0.0f - x));
}

INLINE float swiglu(float gate, float up)
{
    float g = gate > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate; /* NaN stays NaN */
    float u = up > SWIGLU_LIMIT ? SWIGLU_LIMIT : up;
    u = u < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : u;
    return g / (1.0f + exp_one(0.0f - SWIGLU_ALPHA * g)) * (u + 1.0f);
}

INLINE float gelu(float g)
{
    return g / (1.0f + exp_one(g * fmaf(GELU_CUBE, g * g, GELU_SLOPE)));
}

INLINE float limited_above(float x, float limit)
{
    return x > limit ? limit : x; /* NaN stays NaN */
}

INLINE float limited(float x, float limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

INLINE float capped(float x, float cap)
{
    return cap - 2.0f * cap / (1.0f + exp_one(x * (2.0f / cap)));
}

template <int OP> INLINE float point(float a, float b, float value, float second)
{
    switch (OP) {
    case GPU_SILU_MUL: return sigmoid_of(a, a) * b;
    case GPU_SWIGLU_CLAMPED: return swiglu(a, b);
    case GPU_GELU_MUL: return gelu(a) * b;
    case GPU_RELU_MUL: return (a < 0 ? 0 : a) * b;
    case GPU_LIMITED_SILU: {
        float g = limited_above(a, value);
        return sigmoid_of(g, g) * limited(b, value);
    }
    case GPU_SILU_LIMITED: return limited_above(sigmoid_of(a, a), value) * limited(b, value);
    case GPU_SITU_MUL:
        return sigmoid_of(capped(a, value), a) * (second > 0 ? capped(b, second) : b);
    case GPU_SIGMOID_MUL: return sigmoid_of(b, a);
    case GPU_SOFTPLUS_MUL: return (float)exact_softplus((double)a) * b;
    case GPU_MUL: return a * b;
    case GPU_SILU: return sigmoid_of(a, a);
    case GPU_SOFT_CAP: return capped(a, value);
    case GPU_CLAMP: return limited(a, value);
    case GPU_COPY: return a;
    case GPU_SCALE: return a * value;
    case GPU_DIVIDE: return a / value;
    case GPU_LOGISTIC: return (float)(1.0 / (1.0 + exact_exp(-(double)a)));
    default: return fmaf(value, a, b);
    }
}

/* Operations with two operands. */
static __host__ __device__ constexpr bool has_b(int op)
{
    return op <= GPU_MUL || op == GPU_AXPY;
}

template <int OP> __global__ void __launch_bounds__(POINT_THREADS) point_rows(gpu_rows g)
{
    uint32_t i = blockIdx.x * POINT_THREADS + threadIdx.x, row = blockIdx.y;
    if (i >= g.n)
        return;
    float b = has_b(OP) ? g.b[row * g.b_stride + (g.b_is_one ? 0 : i)] : 0.0f;
    float value = OP == GPU_AXPY && g.factor ? g.factor[row] * g.value : g.value;
    g.y[row * g.y_stride + i] = point<OP>(g.a[row * g.a_stride + i * g.a_step], b, value, g.second);
}

template <int OP> static int launch_point(const gpu_rows &rows, void *stream)
{
    gpu_rows g = rows;
    g.a_step = g.a_is_one ? 0 : g.a_step ? g.a_step : 1;
    return LAUNCH((point_rows<OP>), dim3(divide_up(g.n, POINT_THREADS), g.rows),
                  dim3(POINT_THREADS), 0, stream, g);
}

extern "C" int gpu_pointwise_rows(enum gpu_pointwise op, const struct gpu_rows *rows, void *stream)
{
    if (!count_fits(rows->n) || !rows_fit(rows->rows) || (uint32_t)op >= GPU_POINTWISE__COUNT)
        return GPU_UNSUPPORTED;
    if (rows->n == 0 || rows->rows == 0)
        return 0;
    switch (op) {
#define POINT(name)                                                                                \
    case name: return launch_point<name>(*rows, stream);
        POINT(GPU_SILU_MUL)
        POINT(GPU_SWIGLU_CLAMPED)
        POINT(GPU_GELU_MUL)
        POINT(GPU_RELU_MUL)
        POINT(GPU_LIMITED_SILU)
        POINT(GPU_SILU_LIMITED)
        POINT(GPU_SITU_MUL)
        POINT(GPU_SIGMOID_MUL)
        POINT(GPU_SOFTPLUS_MUL)
        POINT(GPU_MUL)
        POINT(GPU_SILU)
        POINT(GPU_SOFT_CAP)
        POINT(GPU_CLAMP)
        POINT(GPU_AXPY)
        POINT(GPU_COPY)
        POINT(GPU_SCALE)
        POINT(GPU_DIVIDE)
        POINT(GPU_LOGISTIC)
    default: return GPU_UNSUPPORTED;
    }
}

/* ---- experts ---- */

#define FINISH_ROWS 8 /* of a block: few jobs have as many rows as the largest one */

INLINE float finished(float v, const float *factor, const float *bias, uint32_t i)
{
    v = factor ? v * *factor : v;
    return bias ? fmaf(1.0f, bias[i], v) : v;
}

template <int OP> __global__ void __launch_bounds__(POINT_THREADS) finish_rows(gpu_finish f)
{
    uint32_t i = blockIdx.x * POINT_THREADS + threadIdx.x, first = blockIdx.y * FINISH_ROWS;
    const gpu_finish_job job = f.jobs[blockIdx.z];
    if (i >= f.n)
        return;
    for (uint32_t row = first; row < job.rows && row < first + FINISH_ROWS; row++) {
        size_t at = (size_t)row * f.n + i;
        float a = finished(job.a[at], job.a_factor, job.a_bias, i);
        if (job.b)
            a = point<OP>(a, finished(job.b[at], job.b_factor, job.b_bias, i), f.value, f.second);
        job.a[at] = a;
    }
}

template <int OP> static int launch_finish(const gpu_finish &f, void *stream)
{
    return LAUNCH((finish_rows<OP>),
                  dim3(divide_up(f.n, POINT_THREADS), divide_up(f.rows, FINISH_ROWS), f.count),
                  dim3(POINT_THREADS), 0, stream, f);
}

extern "C" int gpu_finish_rows(const struct gpu_finish *f, void *stream)
{
    if (!count_fits(f->n) || !rows_fit(f->rows) || !rows_fit(f->count))
        return GPU_UNSUPPORTED;
    if (f->n == 0 || f->rows == 0 || f->count == 0)
        return 0;
    switch (f->op) {
    case GPU_SILU_MUL: return launch_finish<GPU_SILU_MUL>(*f, stream);
    case GPU_SWIGLU_CLAMPED: return launch_finish<GPU_SWIGLU_CLAMPED>(*f, stream);
    case GPU_GELU_MUL: return launch_finish<GPU_GELU_MUL>(*f, stream);
    case GPU_RELU_MUL: return launch_finish<GPU_RELU_MUL>(*f, stream);
    case GPU_LIMITED_SILU: return launch_finish<GPU_LIMITED_SILU>(*f, stream);
    case GPU_SILU_LIMITED: return launch_finish<GPU_SILU_LIMITED>(*f, stream);
    case GPU_SITU_MUL: return launch_finish<GPU_SITU_MUL>(*f, stream);
    default: return GPU_UNSUPPORTED;
    }
}

__global__ void __launch_bounds__(POINT_THREADS) sum_terms(gpu_terms t)
{
    uint32_t i = blockIdx.x * POINT_THREADS + threadIdx.x;
    if (i >= t.n)
        return;
    float *into = t.into + (size_t)blockIdx.y * t.n + i, sum = *into;
    for (uint32_t j = 0; j < t.terms; j++) {
        const gpu_term term = t.term[(size_t)blockIdx.y * t.terms + j];
        if (term.row != GPU_NO_ROW)
            sum = fmaf(term.factor, t.y[(size_t)term.row * t.n + i], sum);
    }
    *into = sum;
}

extern "C" int gpu_add_terms_of_rows(const struct gpu_terms *t, void *stream)
{
    if (!count_fits(t->n) || !rows_fit(t->rows))
        return GPU_UNSUPPORTED;
    if (t->n == 0 || t->rows == 0 || t->terms == 0)
        return 0;
    const gpu_terms terms = *t; /* read before the launch runs */
    return LAUNCH(sum_terms, dim3(divide_up(t->n, POINT_THREADS), t->rows), dim3(POINT_THREADS), 0,
                  stream, terms);
}
