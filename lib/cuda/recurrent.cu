/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with a recurrent state. */
#include "lib/cuda/exact.cuh"

#define CHANNEL_THREADS 128

/* ---- convolution over time: a thread per channel and row ---- */

/* Row i of the past rows, then those of this pass. */
INLINE float conv_input(const gpu_conv &c, uint32_t i, uint32_t channel)
{
    uint32_t past = c.taps - 1;
    if (i >= past)
        return c.x[(i - past) * c.x_stride + channel];
    return c.past ? c.past[i * c.past_stride + channel] : 0.0f;
}

__global__ void __launch_bounds__(CHANNEL_THREADS) conv_rows(gpu_conv c)
{
    uint32_t i = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    if (i >= c.n)
        return;
    float sum = 0;
    for (uint32_t t = 0; t < c.taps; t++)
        sum = fmaf(c.w[t * c.w_stride + i], conv_input(c, blockIdx.y + t, i), sum);
    if (c.bias)
        sum = fmaf(1.0f, c.bias[i], sum);
    c.y[blockIdx.y * c.y_stride + i] = c.silu ? sum / (1.0f + exp_one(0.0f - sum)) : sum;
}

/* The inputs that the next pass reads. Ascending: in place, an input moves to the front. */
__global__ void __launch_bounds__(CHANNEL_THREADS) conv_keep(gpu_conv c)
{
    uint32_t i = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    for (uint32_t t = 0; i < c.n && t + 1 < c.taps; t++)
        c.next[t * c.past_stride + i] = conv_input(c, c.rows + t, i);
}

extern "C" int gpu_conv_rows(const struct gpu_conv *c, void *stream)
{
    if (c->taps == 0 || !count_fits(c->taps) || !count_fits(c->n) || !rows_fit(c->rows))
        return GPU_UNSUPPORTED;
    if (c->n == 0 || c->rows == 0)
        return 0;
    gpu_conv by_value = *c;
    uint32_t blocks = divide_up(c->n, CHANNEL_THREADS);
    int status =
        LAUNCH(conv_rows, dim3(blocks, c->rows), dim3(CHANNEL_THREADS), 0, stream, by_value);
    if (status == 0 && c->next && c->taps > 1)
        status = LAUNCH(conv_keep, dim3(blocks), dim3(CHANNEL_THREADS), 0, stream, by_value);
    return status;
}

/* ---- recurrences ---- */

INLINE double softplus_of(double x)
{
    return x > 20 ? x : exact_log(1 + exact_exp(x));
}

INLINE double sigmoid_of(double x)
{
    return 1 / (1 + exact_exp(-x));
}

/* A thread per key channel; the first of a head has its rate, too. */
__global__ void __launch_bounds__(CHANNEL_THREADS) delta_channels(gpu_delta_gates g)
{
    uint32_t i = blockIdx.x * CHANNEL_THREADS + threadIdx.x, h = i / g.keys, n = g.heads * g.keys;
    if (i >= n)
        return;
    double biased = (double)(g.a[blockIdx.y * g.a_stride + i] + g.bias[i]);
    double rate = fabs((double)g.a_log[h]), bound = (double)g.bound;
    g.decay[(size_t)blockIdx.y * n + i] = (float)exact_exp(
        bound < 0 ? bound * sigmoid_of(rate * biased) : -rate * softplus_of(biased));
    if (i % g.keys == 0)
        g.rate[(size_t)blockIdx.y * g.heads + h] =
            (float)sigmoid_of((double)g.b[blockIdx.y * g.b_stride + h]);
}

__global__ void __launch_bounds__(CHANNEL_THREADS) delta_gates(gpu_delta_gates g)
{
    uint32_t h = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    if (h >= g.heads)
        return;
    size_t to = (size_t)blockIdx.y * g.heads + h;
    uint32_t at = h;
    if (g.share != 0) {
        uint32_t k_heads = g.heads / g.share, k_head = g.interleaved ? h % k_heads : h / g.share;
        at = k_head * 2 * g.share + (g.interleaved ? h / k_heads : h % g.share);
    }
    float biased = g.a[blockIdx.y * g.a_stride + at] + g.bias[h];
    double softplus = softplus_of((double)biased);
    if (g.b)
        g.rate[to] = (float)sigmoid_of((double)g.b[blockIdx.y * g.b_stride + at]);
    else
        g.rate[to] = (float)(biased < -20 ? exact_exp((double)biased) : softplus);
    g.decay[to] = (float)exact_exp((double)g.a_log[h] * softplus);
}

extern "C" int gpu_delta_gates_rows(const struct gpu_delta_gates *g, void *stream)
{
    if (!count_fits(2 * (uint64_t)g->heads) || !rows_fit(g->rows) ||
        !count_fits((uint64_t)g->heads * g->keys) ||
        (g->share != 0 && (g->keys != 0 || g->heads % g->share != 0)))
        return GPU_UNSUPPORTED;
    if (g->heads == 0 || g->rows == 0)
        return 0;
    gpu_delta_gates by_value = *g;
    if (g->keys != 0)
        return LAUNCH(delta_channels, dim3(divide_up(g->heads * g->keys, CHANNEL_THREADS), g->rows),
                      dim3(CHANNEL_THREADS), 0, stream, by_value);
    return LAUNCH(delta_gates, dim3(divide_up(g->heads, CHANNEL_THREADS), g->rows),
                  dim3(CHANNEL_THREADS), 0, stream, by_value);
}

/* A thread per column of a head's state: neighbouring threads have neighbouring elements, and the
 * order of the keys is that of the thread's loop. The steps of a sequence follow each other in one
 * launch. The state stays in global memory (64 KiB for 128 x 128: the L2 cache has it); registers
 * would hold it only for a number of keys known at compile time. */
__global__ void __launch_bounds__(CHANNEL_THREADS) delta_steps(gpu_delta d)
{
    float *k = (float *)(void *)shared_memory(), *q = k + d.keys, *decay = q + d.keys;
    uint32_t head = blockIdx.y, j = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    uint32_t k_head = d.interleaved ? head % (d.heads / d.share) : head / d.share;
    size_t state = (size_t)head * d.keys * d.values + j;
    float *next = d.after + state;
    for (uint32_t r = 0; r < d.rows; r++) {
        const float *s = r > 0 ? next : d.before ? d.before + state : NULL;
        const float *decays =
            d.decay + r * d.decay_stride + (size_t)head * (d.channels ? d.keys : 1);
        float rate = d.rate[r * d.rate_stride + head];
        __syncthreads(); /* the keys of the step before are not read any more */
        for (uint32_t i = threadIdx.x; i < d.keys; i += CHANNEL_THREADS) {
            k[i] = d.k[r * d.k_stride + (size_t)k_head * d.key_step + i];
            q[i] = d.q[r * d.q_stride + (size_t)k_head * d.key_step + i];
            decay[i] = decays[d.channels ? i : 0];
        }
        __syncthreads();
        if (j >= d.values)
            continue;
        float recall = 0, out = 0;
        for (uint32_t i = 0; i < d.keys && !d.without; i++)
            recall = fmaf(k[i], (s ? s[(size_t)i * d.values] : 0.0f) * decay[i], recall);
        float v = d.v[r * d.v_stride + (size_t)head * d.value_step + j];
        float u = rate * (d.without ? v : v - recall);
        for (uint32_t i = 0; i < d.keys; i++) {
            size_t at = (size_t)i * d.values;
            float now = fmaf(k[i], u, (s ? s[at] : 0.0f) * decay[i]);
            next[at] = now;
            out = fmaf(q[i], now, out);
        }
        if (d.skip)
            out = fmaf(d.skip[head], v, out);
        d.out[r * d.out_stride + (size_t)head * d.values + j] = out;
    }
}

extern "C" int gpu_delta_rows(const struct gpu_delta *d, void *stream)
{
    if (d->keys > KERNEL_HEAD_SIZE_MAX || !count_fits(d->values) || !rows_fit(d->heads) ||
        d->share == 0 || d->heads % d->share != 0)
        return GPU_UNSUPPORTED;
    if (d->keys == 0 || d->values == 0 || d->heads == 0 || d->rows == 0)
        return 0;
    gpu_delta by_value = *d;
    return LAUNCH(delta_steps, dim3(divide_up(d->values, CHANNEL_THREADS), d->heads),
                  dim3(CHANNEL_THREADS), 3 * d->keys * sizeof(float), stream, by_value);
}

/* As delta_steps, with a step of the column's own. Every thread reads v of its column alone, so out
 * may be v. */
__global__ void __launch_bounds__(CHANNEL_THREADS) scan_steps(gpu_scan g)
{
    float *k = (float *)(void *)shared_memory(), *q = k + g.keys;
    uint32_t head = blockIdx.y, j = blockIdx.x * CHANNEL_THREADS + threadIdx.x;
    size_t column = (size_t)head * g.values + j;
    size_t state = (size_t)head * g.keys * g.values + j;
    for (uint32_t r = 0; r < g.rows; r++) {
        const float *s = r > 0 ? g.after + state : g.before ? g.before + state : NULL;
        __syncthreads(); /* the keys of the step before are not read any more */
        for (uint32_t i = threadIdx.x; i < g.keys; i += CHANNEL_THREADS) {
            k[i] = g.k[r * g.stride + i];
            q[i] = g.q[r * g.stride + i];
        }
        __syncthreads();
        if (j >= g.values)
            continue;
        float step = softplus_one(g.step[r * g.stride + column] + g.bias[column]);
        float v = g.v[r * g.v_stride + column], u = step * v, out = 0;
        for (uint32_t i = 0; i < g.keys; i++) {
            size_t at = (size_t)i * g.values;
            float decay = exp_one(step * g.rates[state + at]);
            float now = fmaf(k[i], u, (s ? s[at] : 0.0f) * decay);
            g.after[state + at] = now;
            out = fmaf(q[i], now, out);
        }
        g.out[r * g.out_stride + column] = g.skip ? fmaf(g.skip[column], v, out) : out;
    }
}

extern "C" int gpu_scan_rows(const struct gpu_scan *s, void *stream)
{
    if (s->keys > KERNEL_HEAD_SIZE_MAX || !count_fits((uint64_t)s->heads * s->values) ||
        !rows_fit(s->heads))
        return GPU_UNSUPPORTED;
    if (s->keys == 0 || s->values == 0 || s->heads == 0 || s->rows == 0)
        return 0;
    gpu_scan by_value = *s;
    return LAUNCH(scan_steps, dim3(divide_up(s->values, CHANNEL_THREADS), s->heads),
                  dim3(CHANNEL_THREADS), 2 * s->keys * sizeof(float), stream, by_value);
}
