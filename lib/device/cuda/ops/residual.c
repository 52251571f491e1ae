/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the residual of several streams, in the steps of lib/device/host/residual.c. */
#include "lib/device/cuda/internal.h"

void cuda_op_stream_begin(struct cuda *c, const struct op_stream_begin *a)
{
    for (uint32_t s = 0; s < a->streams; s++)
        cuda_point(c, GPU_COPY,
                   (struct gpu_rows){.a = device_floats(a->y),
                                     .y = device_floats(a->x) + (size_t)s * a->n,
                                     .a_stride = a->n,
                                     .y_stride = (size_t)a->streams * a->n,
                                     .n = a->n,
                                     .rows = a->rows});
}

void cuda_op_stream_norm(struct cuda *c, const struct op_stream_norm *a)
{
    uint32_t n = a->y.k / a->streams;
    for (uint32_t at = 0; at < a->y.k; at += n)
        cuda_rms(c, device_floats(a->x) + at, a->y.k, device_floats_at(a->weight, at), n, a->eps,
                 a->rows, device_floats(a->y.base[FORM_F32]) + at, a->y.k);
    cuda_forms(c, &a->y, a->rows, a->forms);
}

void cuda_op_silu_rows(struct cuda *c, const struct op_silu_rows *a)
{
    float *y = device_floats(a->y.base[FORM_F32]);
    cuda_point(
        c, GPU_SILU,
        (struct gpu_rows){
            .a = y, .y = y, .a_stride = a->y.k, .y_stride = a->y.k, .n = a->y.k, .rows = a->rows});
    cuda_forms(c, &a->y, a->rows, a->forms);
}

void cuda_op_stream_read(struct cuda *c, const struct op_stream_read *a)
{
    float *gate = device_floats(a->gate), *y = device_floats(a->y.base[FORM_F32]);
    uint32_t n = a->y.k;
    cuda_point(c, GPU_SIGMOID_MUL,
               (struct gpu_rows){.a = gate,
                                 .b = device_floats(a->x.base[FORM_F32]),
                                 .y = gate,
                                 .a_stride = a->x.k,
                                 .b_stride = a->x.k,
                                 .y_stride = a->x.k,
                                 .n = a->x.k,
                                 .rows = a->rows});
    cuda_check(c, c->k->clear(y, (size_t)a->rows * n * sizeof *y, c->stream), "clearing rows");
    for (uint32_t at = 0; at < a->x.k; at += n)
        cuda_axpy(c, 1.0f / (float)a->streams, gate + at, a->x.k, n, a->rows, y, n);
    cuda_forms(c, &a->y, a->rows, a->forms);
}

/* The weights of a stream lie together: a factor per row. */
void cuda_op_stream_add(struct cuda *c, const struct op_stream_add *a)
{
    for (uint32_t s = 0; s < a->streams; s++) {
        float *weights = device_floats(a->weights) + (size_t)s * a->rows;
        float *x = device_floats(a->x) + (size_t)s * a->n;
        size_t stride = (size_t)a->streams * a->n;
        cuda_point(c, GPU_LOGISTIC,
                   (struct gpu_rows){.a = device_floats(a->logits) + s,
                                     .a_step = a->streams,
                                     .y = weights,
                                     .n = a->rows,
                                     .rows = 1});
        cuda_point(c, GPU_AXPY,
                   (struct gpu_rows){.a = device_floats(a->y),
                                     .b = x,
                                     .y = x,
                                     .factor = weights,
                                     .a_stride = a->n,
                                     .b_stride = stride,
                                     .y_stride = stride,
                                     .n = a->n,
                                     .rows = a->rows,
                                     .value = 2.0f});
    }
}

void cuda_op_bank_read(struct cuda *c, const struct op_bank_read *a)
{
    const struct gpu_bank b = {.x = device_floats(a->x),
                               .score = device_floats(a->score),
                               .weights = device_floats(a->weights),
                               .y = device_floats(a->y),
                               .rows = a->rows,
                               .streams = a->streams,
                               .sources = a->sources,
                               .n = a->n,
                               .eps = a->eps};
    cuda_check(c, c->k->bank(&b, c->stream), "a bank of sums");
}

void cuda_op_bank_add(struct cuda *c, const struct op_bank_add *a)
{
    size_t stride = (size_t)a->streams * a->n;
    float *x = device_floats(a->x);
    if (a->ends == 0) {
        cuda_axpy(c, 1.0f, device_floats(a->y), a->n, a->n, a->rows, x, stride);
        return;
    }
    cuda_copy(c, x, stride, a->n, a->rows, x + (size_t)a->ends * a->n, stride);
    cuda_copy(c, device_floats(a->y), a->n, a->n, a->rows, x, stride);
}

/* The core computes n-grams on the host alone (bind.c). */
void cuda_op_ngrams(struct cuda *c, const struct op_ngrams *a)
{
    (void)c, (void)a;
    sl_panic("n-grams on a GPU");
}

/* So are mixed streams (lib/core/residual/mixed.c), and entries (lib/core/compressed). */
void cuda_op_stream_weights(struct cuda *c, const struct op_stream_weights *a)
{
    (void)c, (void)a;
    sl_panic("mixed streams on a GPU");
}

void cuda_op_stream_gather(struct cuda *c, const struct op_stream_gather *a)
{
    (void)c, (void)a;
    sl_panic("mixed streams on a GPU");
}

void cuda_op_stream_mix(struct cuda *c, const struct op_stream_mix *a)
{
    (void)c, (void)a;
    sl_panic("mixed streams on a GPU");
}

void cuda_op_entry_store(struct cuda *c, const struct op_entry_store *a)
{
    (void)c, (void)a;
    sl_panic("entries on a GPU");
}

void cuda_op_entry_pool(struct cuda *c, const struct op_entry_pool *a)
{
    (void)c, (void)a;
    sl_panic("entries on a GPU");
}

void cuda_op_entry_scores(struct cuda *c, const struct op_entry_scores *a)
{
    (void)c, (void)a;
    sl_panic("entries on a GPU");
}

void cuda_op_entry_choice(struct cuda *c, const struct op_entry_choice *a)
{
    (void)c, (void)a;
    sl_panic("entries on a GPU");
}

void cuda_op_entry_attention(struct cuda *c, const struct op_entry_attention *a)
{
    (void)c, (void)a;
    sl_panic("entries on a GPU");
}
