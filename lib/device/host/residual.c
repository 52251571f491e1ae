/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a residual of several streams or of a bank of sums, and the rows of a table by
 * n-grams. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

static void begin_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_begin *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (uint32_t s = 0; s < a->streams; s++)
            memcpy(device_floats(a->x) + (r * a->streams + s) * a->n,
                   device_floats(a->y) + r * a->n, a->n * sizeof(float));
}

void host_op_stream_begin(struct device *d, const struct op_stream_begin *a)
{
    host_run_rows(host_of(d), a->rows, begin_rows, a);
}

static void norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_norm *a = run->a;
    uint32_t begin, end, n = a->y.k / a->streams;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const float *x = device_floats(a->x) + (size_t)r * a->y.k;
        for (uint32_t at = 0; at < a->y.k; at += n)
            run->h->kernels->rms_norm(x + at, device_floats(a->weight) + at, n, a->eps,
                                      rows_floats(&a->y, r) + at);
        host_make_forms(run->h, &a->y, r, a->forms);
    }
}

void host_op_stream_norm(struct device *d, const struct op_stream_norm *a)
{
    host_run_rows(host_of(d), a->rows, norm_rows, a);
}

static void silu_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_silu_rows *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        host_note(run->h, rows_floats(&a->y, r), a->y.k); /* silu of -infinity may be a number */
        run->h->kernels->silu(rows_floats(&a->y, r), a->y.k);
        host_make_forms(run->h, &a->y, r, a->forms);
    }
}

void host_op_silu_rows(struct device *d, const struct op_silu_rows *a)
{
    host_run_rows(host_of(d), a->rows, silu_rows, a);
}

static void read_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_read *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end, n = a->y.k;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *gate = device_floats(a->gate) + (size_t)r * a->x.k, *y = rows_floats(&a->y, r);
        host_note(run->h, gate, a->x.k); /* the sigmoid of an infinity is 0 or 1 */
        kernels->sigmoid_mul(gate, rows_floats(&a->x, r), a->x.k, gate);
        memset(y, 0, n * sizeof *y);
        for (uint32_t at = 0; at < a->x.k; at += n)
            kernels->axpy(1.0f / (float)a->streams, gate + at, n, y);
        host_make_forms(run->h, &a->y, r, a->forms);
    }
}

void host_op_stream_read(struct device *d, const struct op_stream_read *a)
{
    host_run_rows(host_of(d), a->rows, read_rows, a);
}

static void add_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_stream_add *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        const float *logit = device_floats(a->logits) + (size_t)r * a->streams;
        host_note(run->h, logit, a->streams);
        for (uint32_t s = 0; s < a->streams; s++) {
            float *weight = device_floats(a->weights) + (size_t)s * a->rows + r;
            *weight = (float)(1.0 / (1.0 + exact_exp(-(double)logit[s])));
            run->h->kernels->axpy(*weight * 2.0f, device_floats(a->y) + (size_t)r * a->n, a->n,
                                  device_floats(a->x) + ((size_t)r * a->streams + s) * a->n);
        }
    }
}

void host_op_stream_add(struct device *d, const struct op_stream_add *a)
{
    host_run_rows(host_of(d), a->rows, add_rows, a);
}

/* x * y, summed as a product with a matrix of one row is. */
static float dot(const struct kernel_ops *kernels, const float *x, const float *y, uint32_t n)
{
    const struct kernel_matrix w = {
        .data = x, .row_bytes = n * sizeof *x, .k = n, .n = 1, .type = TENSOR_F32};
    float sum;
    kernels->matmul(&w, 0, 1, y, n * sizeof *y, 1, &sum, 1);
    return sum;
}

/* ---- a bank of sums ---- */

/* score . RMSNorm(x). space: n floats. */
static float score_of(struct host *h, const struct op_bank_read *a, const float *x, float *space)
{
    h->kernels->rms_norm(x, device_floats(a->ones), a->n, a->eps, space);
    return dot(h->kernels, device_floats(a->score), space, a->n);
}

/* In place. */
static void softmax(float *p, uint32_t count)
{
    float top = p[0], sum = 0;
    for (uint32_t s = 1; s < count; s++)
        top = p[s] > top ? p[s] : top;
    for (uint32_t s = 0; s < count; s++) {
        p[s] = (float)exact_exp((double)(p[s] - top));
        sum += p[s];
    }
    for (uint32_t s = 0; s < count; s++)
        p[s] /= sum;
}

static void bank_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_bank_read *a = run->a;
    uint32_t begin, end, n = a->n;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *x = device_floats(a->x) + r * a->streams * n;
        float *p = device_floats(a->weights) + r * a->streams, *y = device_floats(a->y) + r * n;
        for (uint32_t s = 0; s < a->sources; s++)
            p[s] = score_of(run->h, a, x + (size_t)s * n, y);
        host_note(run->h, p, a->sources); /* an infinity would become a weight of 0 or 1 */
        softmax(p, a->sources);
        memset(y, 0, n * sizeof *y);
        for (uint32_t s = 0; s < a->sources; s++)
            run->h->kernels->axpy(p[s], x + (size_t)s * n, n, y);
    }
}

void host_op_bank_read(struct device *d, const struct op_bank_read *a)
{
    sl_assert(a->sources >= 1 && a->sources <= a->streams);
    host_run_rows(host_of(d), a->rows, bank_rows, a);
}

static void bank_add_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_bank_add *a = run->a;
    uint32_t begin, end, n = a->n;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *y = device_floats(a->y) + r * n;
        float *x = device_floats(a->x) + r * a->streams * n;
        if (a->ends == 0) {
            run->h->kernels->axpy(1.0f, y, n, x);
            continue;
        }
        memcpy(x + (size_t)a->ends * n, x, n * sizeof *x);
        memcpy(x, y, n * sizeof *x);
    }
}

void host_op_bank_add(struct device *d, const struct op_bank_add *a)
{
    sl_assert(a->ends < a->streams);
    host_run_rows(host_of(d), a->rows, bank_add_rows, a);
}

/* ---- n-grams ---- */

#define PAST_MAX ((MODEL_TAPS_MAX - 1) * NGRAM_SIZE_MAX)
#define CHANNELS 256 /* of a step */

/* The gate of a stream: the sigmoid of the signed root of s. */
static float gate_of(float s)
{
    double root = sqrt(fmax(fabs((double)s), 1e-6));
    root = s > 0 ? root : s < 0 ? -root : 0;
    return (float)(1.0 / (1.0 + exact_exp(-root)));
}

/* Adds the gated value to a stream x, and makes the input t of the convolution of it, in place of
 * the key. v: space. */
static void add_value(struct host *h, const struct op_ngrams *a, uint32_t stream,
                      const float *value, float *key, float *v, float *x)
{
    const struct kernel_ops *kernels = h->kernels;
    uint32_t n = a->shape.n;
    size_t at = (size_t)stream * n;
    kernels->rms_norm(key, device_floats(a->key_norm) + at, n, a->shape.eps, key);
    kernels->rms_norm(x, device_floats(a->query_norm) + at, n, a->shape.eps, v);
    float s = dot(kernels, key, v, n) / sqrtf((float)n);
    host_note(h, &s, 1);
    memset(v, 0, n * sizeof *v);
    kernels->axpy(gate_of(s), value, n, v);
    kernels->axpy(1.0f, v, n, x);
    kernels->rms_norm(v, device_floats(a->conv_norm) + at, n, a->shape.eps, key);
}

static void add_values(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_ngrams *a = run->a;
    uint32_t begin, end, streams = a->shape.streams;
    size_t n = a->shape.n;
    pool_share(a->rows * streams, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++)
        add_value(run->h, a, u % streams, device_floats(a->values) + u / streams * n,
                  device_floats(a->keys) + u * n, device_floats(a->space) + u * n,
                  device_floats(a->x) + u * n);
}

/* The inputs before a row, the oldest first. */
struct past {
    const float *row[PAST_MAX];
    uint32_t rows;
};

static struct past past_of(const struct op_ngrams *a, const struct device_sequence *s)
{
    struct past p = {.rows = (a->shape.taps - 1) * a->shape.step};
    size_t channels = (size_t)a->shape.streams * a->shape.n;
    sl_assert(p.rows <= PAST_MAX);
    for (uint32_t t = 0; t < p.rows; t++)
        p.row[t] =
            s->state.address ? device_floats(s->state) + t * channels : device_floats(a->zeros);
    return p;
}

static void past_push(struct past *p, const float *now)
{
    memmove(p->row, p->row + 1, (p->rows - 1) * sizeof *p->row);
    p->row[p->rows - 1] = now;
}

/* Channels [channel, channel + n) of the rows of a sequence. */
static void convolve(const struct host_run *run, const struct device_sequence *s, uint32_t channel,
                     uint32_t n)
{
    const struct op_ngrams *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t taps = a->shape.taps, channels = a->shape.streams * a->shape.n;
    struct past past = past_of(a, s);
    const float *in[MODEL_TAPS_MAX];
    float y[CHANNELS];
    bool any = false;
    for (size_t r = 0; r < a->rows; r++) {
        if (&a->sequence[a->row[r].sequence] != s)
            continue;
        const float *now = device_floats(a->keys) + r * channels;
        for (uint32_t t = 0; t + 1 < taps; t++)
            in[t] = past.row[t * a->shape.step] + channel;
        in[taps - 1] = now + channel;
        kernels->conv(in, device_floats(a->conv) + channel, channels, taps, n, y);
        kernels->silu(y, n);
        kernels->axpy(1.0f, y, n, device_floats(a->x) + r * channels + channel);
        past_push(&past, now);
        any = true;
    }
    /* Ascending: in place, an input moves to the front. */
    for (uint32_t t = 0; any && t < past.rows; t++)
        memmove(device_floats(s->next_state) + (size_t)t * channels + channel,
                past.row[t] + channel, n * sizeof *y);
}

static void convolve_channels(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_ngrams *a = run->a;
    uint32_t begin, end;
    pool_share(a->shape.streams * a->shape.n, COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t s = 0; s < a->sequences; s++)
        for (uint32_t at = begin; at < end; at += CHANNELS)
            convolve(run, &a->sequence[s], at, smaller(end - at, CHANNELS));
}

/* The last tokens of a sequence, the newest first, behind the inputs: whole numbers below 2^24. */
static void keep_tokens(const struct op_ngrams *a, uint32_t sequence)
{
    const struct device_sequence *s = &a->sequence[sequence];
    uint32_t keep = a->shape.step - 1;
    size_t at = (size_t)(a->shape.taps - 1) * a->shape.step * a->shape.streams * a->shape.n;
    float last[NGRAM_SIZE_MAX];
    bool any = false;
    for (uint32_t t = 0; t < keep; t++)
        last[t] = s->state.address ? device_floats(s->state)[at + t] : (float)a->shape.end;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (a->row[r].sequence != sequence)
            continue;
        memmove(last + 1, last, (keep - 1) * sizeof *last);
        last[0] = (float)a->row[r].token;
        any = true;
    }
    if (any)
        memcpy(device_floats(s->next_state) + at, last, keep * sizeof *last);
}

void host_op_ngrams(struct device *d, const struct op_ngrams *a)
{
    struct host *h = host_of(d);
    host_run_rows(h, a->rows * a->shape.streams, add_values, a);
    host_run_columns(h, a->shape.streams * a->shape.n, a->shape.taps, a->rows, convolve_channels,
                     a);
    for (uint32_t s = 0; s < a->sequences; s++)
        keep_tokens(a, s);
}
