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

/* ---- recurrences ---- */

/* What the convolution makes of a run: [row] of q and k of the k heads, of length 1 if the rule has
 * that, and v. */
struct inputs {
    const float *q, *k, *v;
    size_t key_stride, v_stride;
    uint32_t key_step;
};

static float *norm_heads(struct cuda *c, const struct layer_recurrent *l, const float *x,
                         size_t stride, struct device_at weight, uint32_t rows)
{
    uint32_t n = l->groups * l->key_size;
    float *y = cuda_scratch_floats(c, (size_t)rows * n);
    if (rows > 1) { /* of one row the heads are adjacent already */
        cuda_copy(c, x, stride, n, rows, y, n);
        x = y;
    }
    cuda_rms(c, x, l->key_size, weight, l->key_size, 1e-6f / (float)l->key_size, rows * l->groups,
             y, l->key_size);
    return y;
}

static struct inputs convolve(struct cuda *c, const struct op_recurrence *a, const struct run *r)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t n = l->channels;
    float *y = cuda_scratch_floats(c, (size_t)r->rows * n);
    struct gpu_conv conv = conv_of(device_floats(a->projected) + r->row * a->stride + l->conv_at,
                                   a->stride, a->conv, n, l->taps, r, y);
    conv.silu = true;
    conv.bias = device_floats(a->conv_bias);
    cuda_check(c, c->k->conv(&conv, c->stream), "a convolution");
    struct inputs in = {.q = y + l->q_at,
                        .k = y + l->k_at,
                        .v = y + l->v_at,
                        .key_stride = n,
                        .v_stride = n,
                        .key_step = l->key_step};
    if (l->rule.unit) {
        in.q = norm_heads(c, l, in.q, n, a->q_weight, r->rows);
        in.k = norm_heads(c, l, in.k, n, a->k_weight, r->rows);
        in.key_stride = l->groups * l->key_size;
        in.key_step = l->key_size;
    }
    return in;
}

/* Rates and decays of a run, [row][v head], or [row][v head][key channel]. */
static void rates_of(struct cuda *c, const struct op_recurrence *a, const struct run *r,
                     float *rate, float *decay)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t share = device_recurrent_share(l);
    const float *rates = device_floats(a->projected) + r->row * a->stride + l->rates_at;
    struct gpu_delta_gates g = {.b = l->rule.step ? NULL : rates,
                                .a = l->rule.channels ? rates - l->rates_at + l->channels_at
                                                      : rates + (l->rule.step      ? 0
                                                                 : a->shape.joined ? share
                                                                                   : l->heads),
                                .bias = device_floats(a->dt),
                                .a_log = device_floats(a->decay),
                                .rate = rate,
                                .decay = decay,
                                .b_stride = a->stride,
                                .a_stride = a->stride,
                                .heads = l->heads,
                                .rows = r->rows,
                                .keys = l->rule.channels ? l->key_size : 0,
                                .bound = l->rule.bound,
                                .share = a->shape.joined ? share : 0,
                                .interleaved = a->shape.order == DELTA_INTERLEAVED};
    cuda_check(c, c->k->delta_gates(&g, c->stream), "rates");
}

/* The steps of a run: [row][v head][value size]. */
static float *steps(struct cuda *c, const struct op_recurrence *a, const struct run *r,
                    const struct inputs *in)
{
    const struct layer_recurrent *l = &a->shape.layer;
    size_t window = (size_t)(l->taps - 1) * l->channels;
    float *rate = device_floats(a->dt), *decay = device_floats(a->decay);
    float *out = cuda_scratch_floats(c, (size_t)r->rows * l->mixed);
    if (!l->rule.fixed) {
        rate = cuda_scratch_floats(c, (size_t)r->rows * l->heads);
        decay = cuda_scratch_floats(c, (size_t)r->rows * device_recurrent_decays(l));
        rates_of(c, a, r, rate, decay);
    }
    struct gpu_delta d = {.k = in->k,
                          .q = in->q,
                          .v = in->v,
                          .rate = rate,
                          .decay = decay,
                          .skip = device_floats(a->skip),
                          .before = r->before ? r->before + window : NULL,
                          .after = r->after + window,
                          .out = out,
                          .k_stride = in->key_stride,
                          .q_stride = in->key_stride,
                          .v_stride = in->v_stride,
                          .rate_stride = l->rule.fixed ? 0 : l->heads,
                          .decay_stride = l->rule.fixed ? 0 : device_recurrent_decays(l),
                          .out_stride = l->mixed,
                          .key_step = in->key_step,
                          .value_step = l->value_step,
                          .keys = l->key_size,
                          .values = l->value_size,
                          .heads = l->heads,
                          .share = device_recurrent_share(l),
                          .rows = r->rows,
                          .interleaved = a->shape.order == DELTA_INTERLEAVED,
                          .without = !l->rule.delta,
                          .channels = l->rule.channels};
    cuda_check(c, c->k->delta(&d, c->stream), "a recurrence");
    return out;
}

/* Norms of the rows y: of each head, with the same weights, or of several heads. */
static void norm_rows(struct cuda *c, const struct op_recurrence *a, float *y, size_t stride,
                      uint32_t rows)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t n = l->norms > 0 ? l->mixed / l->norms : l->value_size;
    if (l->norms == 0)
        cuda_rms(c, y, n, a->norm, n, a->shape.eps, rows * l->heads, y, n);
    for (uint32_t i = 0; i < l->norms; i++) {
        float *part = y + (size_t)i * n;
        cuda_rms(c, part, stride, device_floats_at(a->norm, (uint64_t)i * n), n, a->shape.eps, rows,
                 part, stride);
    }
}

/* Norm and gate, in the order of the rule. */
static void put_output(struct cuda *c, const struct op_recurrence *a, const struct run *r,
                       float *out)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t n = l->mixed;
    size_t stride = cuda_stride(&a->mix);
    float *mix = device_floats(a->mix.base[FORM_F32]) + r->row * stride;
    if (!l->rule.gate_first)
        norm_rows(c, a, out, n, r->rows);
    cuda_point(c, l->rule.sigmoid ? GPU_SIGMOID_MUL : GPU_SILU_MUL,
               (struct gpu_rows){.a = device_floats(a->projected) + r->row * a->stride + l->gate_at,
                                 .b = out,
                                 .y = mix,
                                 .a_stride = a->stride,
                                 .b_stride = n,
                                 .y_stride = stride,
                                 .n = n,
                                 .rows = r->rows});
    if (l->rule.gate_first)
        norm_rows(c, a, mix, stride, r->rows);
}

void cuda_op_recurrence(struct cuda *c, const struct op_recurrence *a)
{
    struct run r;
    for (uint32_t at = 0; at < a->rows; at += r.rows) {
        r = run_from(a->row, a->rows, at, a->sequence);
        struct inputs in = convolve(c, a, &r);
        put_output(c, a, &r, steps(c, a, &r, &in));
    }
}

/* ---- a recurrence with decays of elements ---- */

/* v of a run. */
static void convolve_run(struct cuda *c, const struct op_selective_scan *a, const struct run *r)
{
    const struct layer_recurrent *l = &a->shape.layer;
    size_t stride = cuda_stride(&a->mix);
    struct gpu_conv conv =
        conv_of(device_floats(a->projected) + r->row * a->stride + l->conv_at, a->stride, a->conv,
                l->channels, l->taps, r, device_floats(a->mix.base[FORM_F32]) + r->row * stride);
    conv.y_stride = stride;
    conv.silu = true;
    conv.bias = device_floats(a->conv_bias);
    cuda_check(c, c->k->conv(&conv, c->stream), "a convolution");
}

/* The first factor of the steps, k, q and the steps, of all rows. */
static void select_rows(struct cuda *c, const struct op_selective_scan *a)
{
    const struct layer_recurrent *l = &a->shape.layer;
    struct device_at none = {0};
    float *in = device_floats(a->projected), *k = in + l->k_at, *q = in + l->q_at;
    cuda_forms(c, &a->mix, a->rows, a->select_forms);
    cuda_product_rows(c, &a->select, none, &a->mix, a->rows, in + l->select_at, a->stride);
    cuda_rms(c, in + l->select_at, a->stride, a->step_norm, l->step_rank, a->shape.eps, a->rows,
             device_floats(a->first.base[FORM_F32]), cuda_stride(&a->first));
    cuda_rms(c, k, a->stride, a->k_norm, l->key_size, a->shape.eps, a->rows, k, a->stride);
    cuda_rms(c, q, a->stride, a->q_norm, l->key_size, a->shape.eps, a->rows, q, a->stride);
    cuda_forms(c, &a->first, a->rows, a->step_forms);
    cuda_product_rows(c, &a->step, none, &a->first, a->rows, in + l->rates_at, a->stride);
}

static void scan_run(struct cuda *c, const struct op_selective_scan *a, const struct run *r)
{
    const struct layer_recurrent *l = &a->shape.layer;
    size_t window = (size_t)(l->taps - 1) * l->channels, stride = cuda_stride(&a->mix);
    const float *in = device_floats(a->projected) + r->row * a->stride;
    float *mix = device_floats(a->mix.base[FORM_F32]) + r->row * stride;
    struct gpu_scan s = {.k = in + l->k_at,
                         .q = in + l->q_at,
                         .v = mix,
                         .step = in + l->rates_at,
                         .bias = device_floats(a->dt),
                         .skip = device_floats(a->skip),
                         .rates = device_floats(a->rates),
                         .before = r->before ? r->before + window : NULL,
                         .after = r->after + window,
                         .out = mix,
                         .stride = a->stride,
                         .v_stride = stride,
                         .out_stride = stride,
                         .keys = l->key_size,
                         .values = l->value_size,
                         .heads = l->heads,
                         .rows = r->rows};
    cuda_check(c, c->k->scan(&s, c->stream), "a recurrence");
    cuda_point(c, GPU_SILU_MUL,
               (struct gpu_rows){.a = in + l->gate_at,
                                 .b = mix,
                                 .y = mix,
                                 .a_stride = a->stride,
                                 .b_stride = stride,
                                 .y_stride = stride,
                                 .n = l->mixed,
                                 .rows = r->rows});
}

void cuda_op_selective_scan(struct cuda *c, const struct op_selective_scan *a)
{
    struct run r;
    for (uint32_t at = 0; at < a->rows; at += r.rows) {
        r = run_from(a->row, a->rows, at, a->sequence);
        convolve_run(c, a, &r);
    }
    select_rows(c, a);
    for (uint32_t at = 0; at < a->rows; at += r.rows) {
        r = run_from(a->row, a->rows, at, a->sequence);
        scan_run(c, a, &r);
    }
}
