/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the streams of a residual that are mixed by a doubly stochastic matrix (Xie et al.
 * 2026, manifold-constrained hyper-connections). Of the products m of a row, with t = m scale +
 * base, a scale for each of the three kinds:
 *   p_i = sigmoid(t) + eps;  q_j = 2 sigmoid(t)
 *   M_ij = softmax over j of t, + eps;  M_ij /= (sum over i) + eps
 *   then steps - 1 times: M_ij /= (sum over j) + eps;  M_ij /= (sum over i) + eps
 * The number of steps is part of the model: none is left out where M has converged. Without steps
 * there is no M (Hy4; transformers' HYV4HyperConnection): q_j = magnitude sigmoid(t) + eps. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

#define COLUMNS 64 /* of a step */

static float sigmoid(float x)
{
    return (float)(1.0 / (1.0 + exact_exp(-(double)x)));
}

/* In place. */
static void softmax(float *x, uint32_t n, float eps)
{
    double e[MODEL_STREAMS_MAX], sum = 0;
    float most = x[0];
    for (uint32_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += e[i] = exact_exp((double)(x[i] - most));
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(e[i] / sum) + eps;
}

/* Divides the n elements of each line by their sum. Elements are `step` apart, lines `line`. */
static void divide(float *m, uint32_t n, uint32_t step, uint32_t line, float eps)
{
    for (uint32_t l = 0; l < n; l++) {
        float *x = m + (size_t)l * line, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += x[(size_t)i * step];
        sum += eps;
        for (uint32_t i = 0; i < n; i++)
            x[(size_t)i * step] /= sum;
    }
}

static void make_stochastic(float *m, const struct device_mixing *a)
{
    uint32_t n = a->streams;
    for (uint32_t i = 0; i < n; i++)
        softmax(m + (size_t)i * n, n, a->eps);
    divide(m, n, n, 1, a->eps);
    for (uint32_t step = 1; step < a->steps; step++) {
        divide(m, n, 1, n, a->eps);
        divide(m, n, n, 1, a->eps);
    }
}

static void weigh_row(const struct op_stream_weights *a, const float *logit, float *w)
{
    const float *scale = device_floats(a->scale), *base = device_floats(a->base);
    uint32_t n = a->shape.streams;
    size_t all = device_mixing_weights(&a->shape);
    for (size_t i = 0; i < all; i++)
        w[i] = logit[i] * scale[i / n < 2 ? i / n : 2] + base[i];
    for (size_t i = 0; i < n; i++)
        w[i] = sigmoid(w[i]) + a->shape.eps;
    for (size_t i = n; i < 2 * (size_t)n && a->shape.steps == 0 && a->shape.magnitude > 0; i++)
        w[i] = a->shape.magnitude * sigmoid(w[i]) + a->shape.eps;
    if (a->shape.steps == 0)
        return;
    for (size_t i = n; i < 2 * (size_t)n; i++)
        w[i] = 2.0f * sigmoid(w[i]);
    make_stochastic(w + (size_t)2 * n, &a->shape);
}

static void weigh_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_weights *a = run->a;
    size_t all = device_mixing_weights(&a->shape);
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        host_note(run->h, device_floats(a->logits) + r * all, (uint32_t)all);
        weigh_row(a, device_floats(a->logits) + r * all, device_floats(a->weights) + r * all);
    }
}

void host_op_stream_weights(struct device *d, const struct op_stream_weights *a)
{
    sl_assert(a->shape.streams <= MODEL_STREAMS_MAX);
    host_run_rows(host_of(d), a->rows, weigh_rows, a);
}

static void gather_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_gather *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end, n = a->y.k;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const float *x = device_floats(a->x) + (size_t)r * a->streams * n;
        const float *w = a->weights.address ? device_floats(a->weights) + r * a->stride : NULL;
        float *y = rows_floats(&a->y, r);
        memset(y, 0, n * sizeof *y);
        for (uint32_t s = 0; s < a->streams; s++)
            kernels->axpy(w ? w[s] : 1.0f / (float)a->streams, x + (size_t)s * n, n, y);
        kernels->rms_norm(y, device_floats(a->norm), n, a->eps, y);
        host_make_forms(run->h, &a->y, r, a->forms);
    }
}

void host_op_stream_gather(struct device *d, const struct op_stream_gather *a)
{
    host_run_rows(host_of(d), a->rows, gather_rows, a);
}

/* Columns [at, at + n) of a row: x has all streams, w its weights. */
static void mix_columns(const struct host_run *run, size_t row, uint32_t at, uint32_t n)
{
    const struct op_stream_mix *a = run->a;
    uint32_t streams = a->shape.streams;
    const float *w = device_floats(a->weights) + row * device_mixing_weights(&a->shape);
    const float *post = w + streams, *matrix = w + (size_t)2 * streams;
    const float *y = device_floats(a->y) + row * a->n + at;
    float *x = device_floats(a->x) + row * streams * a->n + at;
    float old[MODEL_STREAMS_MAX][COLUMNS];
    for (uint32_t j = 0; j < streams && a->shape.steps == 0; j++)
        run->h->kernels->axpy(post[j], y, n, x + (size_t)j * a->n);
    if (a->shape.steps == 0)
        return;
    for (uint32_t s = 0; s < streams; s++)
        memcpy(old[s], x + (size_t)s * a->n, n * sizeof *x);
    for (uint32_t j = 0; j < streams; j++) {
        float *to = x + (size_t)j * a->n;
        memset(to, 0, n * sizeof *to);
        run->h->kernels->axpy(post[j], y, n, to);
        for (uint32_t i = 0; i < streams; i++)
            run->h->kernels->axpy(matrix[i * streams + j], old[i], n, to);
    }
}

static void mix_parts(void *arg, uint32_t part, uint32_t parts)
{
    const struct host_run *run = arg;
    const struct op_stream_mix *a = run->a;
    uint32_t begin, end;
    pool_share(a->n, COLUMN_UNIT, part, parts, &begin, &end);
    for (size_t r = 0; r < a->rows; r++)
        for (uint32_t at = begin; at < end; at += COLUMNS)
            mix_columns(run, r, at, smaller(end - at, COLUMNS));
}

void host_op_stream_mix(struct device *d, const struct op_stream_mix *a)
{
    sl_assert(a->shape.streams <= MODEL_STREAMS_MAX && device_mixing_kinds(&a->shape) > 1);
    host_run_columns(host_of(d), a->n, a->shape.streams * (a->shape.streams + 1), a->rows,
                     mix_parts, a);
}
