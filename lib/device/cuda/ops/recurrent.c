/* SPDX-License-Identifier: Apache-2.0 */
/* Mixers with a recurrent state, in the steps of lib/device/host/recurrent.c. Rows are taken in
 * runs of one sequence; a later run of a sequence begins with the state that the run before has
 * left. */
#include "lib/device/cuda/internal.h"

/* Rows [row, row + rows) of a sequence. */
struct run {
    uint32_t row, rows;
    const float *before; /* state; NULL: zeros */
    float *after;
};

static struct run run_from(const struct device_row *row, uint32_t rows, uint32_t at,
                           const struct device_sequence *all)
{
    const struct device_sequence *s = &all[row[at].sequence];
    bool first = true;
    for (uint32_t r = 0; r < at; r++)
        first = first && row[r].sequence != row[at].sequence;
    float *after = device_floats(s->next_state);
    return (struct run){.row = at,
                        .rows = device_run_of(row + at, rows - at),
                        .before = first ? device_floats(s->state) : after,
                        .after = after};
}

static void multiply(struct cuda *c, const float *a, const float *b, size_t stride, uint32_t n,
                     uint32_t rows, float *y, size_t y_stride, size_t b_stride)
{
    cuda_point(c, GPU_MUL,
               (struct gpu_rows){.a = a,
                                 .b = b,
                                 .y = y,
                                 .a_stride = stride,
                                 .b_stride = b_stride,
                                 .y_stride = y_stride,
                                 .n = n,
                                 .rows = rows});
}

/* Over time, of the rows of a run. */
static struct gpu_conv conv_of(const float *x, size_t x_stride, struct device_at weights,
                               uint32_t channels, uint32_t taps, const struct run *r, float *y)
{
    return (struct gpu_conv){.x = x,
                             .past = r->before,
                             .w = device_floats(weights),
                             .y = y,
                             .next = r->after,
                             .x_stride = x_stride,
                             .past_stride = channels,
                             .w_stride = channels,
                             .y_stride = channels,
                             .taps = taps,
                             .n = channels,
                             .rows = r->rows};
}

static void short_conv_run(struct cuda *c, const struct op_short_conv *a, const struct run *r)
{
    uint32_t n = a->channels;
    float *b = device_floats(a->projected) + r->row * a->stride;
    float *y = cuda_scratch_floats(c, (size_t)r->rows * n);
    struct gpu_conv conv = conv_of(b, a->stride, a->conv, n, a->taps, r, y);
    multiply(c, b, b + 2 * (size_t)n, a->stride, n, r->rows, b, a->stride, a->stride);
    cuda_check(c, c->k->conv(&conv, c->stream), "a convolution");
    multiply(c, b + n, y, a->stride, n, r->rows,
             device_floats(a->mix.base[FORM_F32]) + r->row * cuda_stride(&a->mix),
             cuda_stride(&a->mix), n);
}

void cuda_op_short_conv(struct cuda *c, const struct op_short_conv *a)
{
    struct run r;
    for (uint32_t at = 0; at < a->rows; at += r.rows) {
        r = run_from(a->row, a->rows, at, a->sequence);
        short_conv_run(c, a, &r);
    }
}

/* ---- gated DeltaNet ---- */

/* What the convolution makes of a run: q and k of the k heads, normed, [row][k head][size]; v at
 * `stride`. */
struct inputs {
    float *q, *k;
    const float *v;
    size_t stride;
};

static float *norm_heads(struct cuda *c, const struct device_delta *s, const float *x,
                         size_t stride, struct device_at weight, uint32_t rows)
{
    uint32_t n = s->k_heads * s->size;
    float *y = cuda_scratch_floats(c, (size_t)rows * n);
    if (rows > 1) { /* of one row the heads are adjacent already */
        cuda_copy(c, x, stride, n, rows, y, n);
        x = y;
    }
    cuda_rms(c, x, s->size, weight, s->size, 1e-6f / (float)s->size, rows * s->k_heads, y, s->size);
    return y;
}

static struct inputs convolve(struct cuda *c, const struct op_delta *a, const struct run *r)
{
    const struct device_delta *s = &a->shape;
    uint32_t n = s->channels, keys = s->k_heads * s->size;
    float *y = cuda_scratch_floats(c, (size_t)r->rows * n);
    struct gpu_conv conv = conv_of(device_floats(a->projected) + r->row * a->stride, a->stride,
                                   a->conv, n, s->taps, r, y);
    conv.silu = true;
    cuda_check(c, c->k->conv(&conv, c->stream), "a convolution");
    return (struct inputs){.q = norm_heads(c, s, y, n, a->q_weight, r->rows),
                           .k = norm_heads(c, s, y + keys, n, a->k_weight, r->rows),
                           .v = y + 2 * (size_t)keys,
                           .stride = n};
}

/* The steps of a run: [row][v head][size]. */
static float *steps(struct cuda *c, const struct op_delta *a, const struct run *r,
                    const struct inputs *in)
{
    const struct device_delta *s = &a->shape;
    uint32_t share = s->v_heads / s->k_heads, keys = s->k_heads * s->size;
    size_t window = (size_t)(s->taps - 1) * s->channels;
    bool interleaved = s->order == DELTA_INTERLEAVED;
    const float *gates = device_floats(a->projected) + r->row * a->stride + s->channels + s->inner;
    float *beta = cuda_scratch_floats(c, (size_t)r->rows * s->v_heads);
    float *decay = cuda_scratch_floats(c, (size_t)r->rows * s->v_heads);
    float *out = cuda_scratch_floats(c, (size_t)r->rows * s->v_heads * s->size);
    struct gpu_delta_gates g = {.b = gates,
                                .a = gates + (s->beta_alpha ? share : s->v_heads),
                                .bias = device_floats(a->dt),
                                .a_log = device_floats(a->decay),
                                .beta = beta,
                                .decay = decay,
                                .b_stride = a->stride,
                                .a_stride = a->stride,
                                .heads = s->v_heads,
                                .rows = r->rows,
                                .share = s->beta_alpha ? share : 0,
                                .interleaved = interleaved};
    struct gpu_delta d = {.k = in->k,
                          .q = in->q,
                          .v = in->v,
                          .beta = beta,
                          .decay = decay,
                          .before = r->before ? r->before + window : NULL,
                          .after = r->after + window,
                          .out = out,
                          .k_stride = keys,
                          .q_stride = keys,
                          .v_stride = in->stride,
                          .gate_stride = s->v_heads,
                          .out_stride = (size_t)s->v_heads * s->size,
                          .keys = s->size,
                          .values = s->size,
                          .heads = s->v_heads,
                          .share = share,
                          .rows = r->rows,
                          .interleaved = interleaved};
    cuda_check(c, c->k->delta_gates(&g, c->stream), "gates");
    cuda_check(c, c->k->delta(&d, c->stream), "a delta rule");
    return out;
}

void cuda_op_delta(struct cuda *c, const struct op_delta *a)
{
    const struct device_delta *s = &a->shape;
    uint32_t n = s->v_heads * s->size;
    struct run r;
    for (uint32_t at = 0; at < a->rows; at += r.rows) {
        r = run_from(a->row, a->rows, at, a->sequence);
        struct inputs in = convolve(c, a, &r);
        float *out = steps(c, a, &r, &in);
        cuda_rms(c, out, s->size, a->norm, s->size, s->eps, r.rows * s->v_heads, out, s->size);
        cuda_point(c, GPU_SILU_MUL,
                   (struct gpu_rows){
                       .a = device_floats(a->projected) + r.row * a->stride + s->channels,
                       .b = out,
                       .y = device_floats(a->mix.base[FORM_F32]) + r.row * cuda_stride(&a->mix),
                       .a_stride = a->stride,
                       .b_stride = n,
                       .y_stride = cuda_stride(&a->mix),
                       .n = n,
                       .rows = r.rows});
    }
}
