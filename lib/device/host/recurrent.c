/* SPDX-License-Identifier: Apache-2.0 */
/* Mixers with a recurrent state. They share the window of a convolution over time; the gated short
 * convolution of LFM2 is little more: threads divide the channels, and the rows of a sequence are
 * steps in the order of their positions. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"
#include "lib/kernels/decays.h"

#define BLOCK       256 /* channels of a step */
#define ALIVE_STEPS 64  /* tokens between two reports of progress */
#define SCAN_WORK   16  /* multiplications that the step of an element with its decay takes */

/* The older inputs of a convolution over time, the oldest first. */
struct window {
    const float *past[MODEL_TAPS_MAX - 1];
    uint32_t taps, channels;
};

/* state: [taps - 1][channels]; none: the sequence begins, with zeros. */
static struct window window_open(struct device_at state, struct device_at zeros, uint32_t taps,
                                 uint32_t channels)
{
    struct window w = {.taps = taps, .channels = channels};
    sl_assert(taps >= 1 && taps <= MODEL_TAPS_MAX);
    for (uint32_t t = 0; t + 1 < taps; t++)
        w.past[t] =
            state.address ? device_floats(state) + (size_t)t * channels : device_floats(zeros);
    return w;
}

/* y of n channels from `channel` on; weights: [taps][channels]. */
static void window_conv(const struct host *h, const struct window *w, const float *now,
                        struct device_at weights, uint32_t channel, uint32_t n, float *y)
{
    const float *x[MODEL_TAPS_MAX];
    for (uint32_t t = 0; t + 1 < w->taps; t++)
        x[t] = w->past[t] + channel;
    x[w->taps - 1] = now + channel;
    h->kernels->conv(x, device_floats(weights) + channel, w->channels, w->taps, n, y);
}

static void window_push(struct window *w, const float *now)
{
    uint32_t past = w->taps - 1;
    for (uint32_t t = 0; t + 1 < past; t++)
        w->past[t] = w->past[t + 1];
    if (past > 0)
        w->past[past - 1] = now;
}

/* To the start of a state. Ascending: in place, an input moves to the front. */
static void window_keep(const struct window *w, uint32_t channel, uint32_t n, float *state)
{
    for (uint32_t t = 0; t + 1 < w->taps; t++)
        memmove(state + (size_t)t * w->channels + channel, w->past[t] + channel, n * sizeof *state);
}

/* ---- the short convolution ---- */

static void run_block(const struct host_run *run, const struct device_sequence *s, uint32_t channel,
                      uint32_t n)
{
    const struct op_short_conv *a = run->a;
    const struct kernel_ops *kernels = run->h->kernels;
    float y[BLOCK];
    struct window window = window_open(s->state, a->zeros, a->taps, a->channels);
    bool any = false;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (&a->sequence[a->row[r].sequence] != s)
            continue;
        float *b = device_floats(a->projected) + r * a->stride;
        float *gate = b + a->channels, *x = gate + a->channels;
        kernels->mul(b + channel, x + channel, n, b + channel); /* the input of the convolution */
        window_conv(run->h, &window, b, a->conv, channel, n, y);
        kernels->mul(gate + channel, y, n, rows_floats(&a->mix, r) + channel);
        window_push(&window, b);
        any = true;
    }
    if (any)
        window_keep(&window, channel, n, device_floats(s->next_state));
}

static void run_channels(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_short_conv *a = run->a;
    uint32_t begin, end;
    pool_share(a->channels, COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t s = 0; s < a->sequences; s++)
        for (uint32_t at = begin; at < end; at += BLOCK)
            run_block(run, &a->sequence[s], at, smaller(end - at, BLOCK));
}

void host_op_short_conv(struct device *d, const struct op_short_conv *a)
{
    host_run_columns(host_of(d), a->channels, a->taps, a->rows, run_channels, a);
}

/* ---- recurrences ----
 *
 * A convolution over time of the rows of q, k and v, then a step of the recurrence of each head
 * (struct recurrent_rule), which reads and writes the recurrent state. The heads of a group, which
 * have the same q and k, are one piece of work, or several if there are more threads than groups.
 * The rows of a sequence are steps in the order of their positions, so a row has the same bits in
 * every chunk. */

/* Heads of one group of one sequence of a pass. */
struct head_group {
    struct host *h;
    const struct op_recurrence *a;
    const float *before; /* state of the layer, or NULL */
    float *after;
    uint32_t sequence, head; /* head: of q and k */
    uint32_t first, end;     /* its v heads, by their number in the group */
    float q[KERNEL_HEAD_SIZE_MAX], k[KERNEL_HEAD_SIZE_MAX];
    float decay[KERNEL_HEAD_SIZE_MAX]; /* of a step: one, or one per row of the state */
};

static const float *projected_row(const struct op_recurrence *a, uint32_t row)
{
    return device_floats(a->projected) + row * a->stride;
}

/* The inputs of the convolution. */
static const float *inputs_of(const struct op_recurrence *a, uint32_t row)
{
    return projected_row(a, row) + a->shape.layer.conv_at;
}

static struct window window_of(const struct op_recurrence *a, uint32_t sequence)
{
    const struct layer_recurrent *l = &a->shape.layer;
    return window_open(a->sequence[sequence].state, a->zeros, l->taps, l->channels);
}

static void conv_silu(const struct head_group *g, const struct window *window, const float *now,
                      uint32_t channel, uint32_t n, float *y)
{
    window_conv(g->h, window, now, g->a->conv, channel, n, y);
    if (g->a->conv_bias.address)
        g->h->kernels->axpy(1.0f, device_floats(g->a->conv_bias) + channel, n, y);
    g->h->kernels->silu(y, n);
}

static double softplus_of(double x)
{
    return x > 20 ? x : exact_log(1 + exact_exp(x));
}

static double sigmoid_of(double x)
{
    return 1 / (1 + exact_exp(-x));
}

/* A decay for each row of the state. */
static void channels_of(struct head_group *g, uint32_t row, uint32_t v_head, struct kernel_delta *d)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    const float *in = projected_row(g->a, row), *b = in + l->rates_at + v_head;
    const float *a = in + l->channels_at + (size_t)v_head * l->key_size;
    const float *bias = device_floats(g->a->dt) + (size_t)v_head * l->key_size;
    kernel_decay(g->h->kernels->isa,
                 &(struct kernel_decays){a, bias, l->key_size,
                                         fabs((double)device_floats(g->a->decay)[v_head]),
                                         (double)l->rule.bound, g->decay});
    host_note(g->h, b, 1); /* of infinities, rates and decays are numbers */
    host_note(g->h, a, l->key_size);
    d->rate = (float)sigmoid_of((double)*b);
    d->decay_step = 1;
}

/* Logits of b and of a are next to each other (one matrix, in groups of the k head), or each of all
 * heads; a step has no b. Below -20, log(1 + exp(x)) in double has fewer digits than exp(x). */
static void rates_of(struct head_group *g, uint32_t row, uint32_t n, uint32_t v_head,
                     struct kernel_delta *d)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    if (l->rule.fixed) {
        d->rate = device_floats(g->a->dt)[v_head];
        *g->decay = device_floats(g->a->decay)[v_head];
        return;
    }
    const float *rates = projected_row(g->a, row) + l->rates_at;
    uint32_t share = device_recurrent_share(l), at = v_head, next = l->heads;
    if (g->a->shape.joined) {
        at = g->head * 2 * share + n;
        next = share;
    }
    float b = l->rule.step ? 0 : rates[at];
    float biased = rates[at + (l->rule.step ? 0 : next)] + device_floats(g->a->dt)[v_head];
    host_note(g->h, (const float[]){b, biased}, 2); /* of infinities, rates are 0 or 1 */
    double softplus = softplus_of((double)biased);
    if (l->rule.step)
        d->rate = (float)(biased < -20 ? exact_exp((double)biased) : softplus);
    else
        d->rate = (float)sigmoid_of((double)b);
    *g->decay = (float)exact_exp((double)device_floats(g->a->decay)[v_head] * softplus);
}

/* The n-th v head of a k head. */
static uint32_t v_head_of(const struct device_recurrence *s, uint32_t head, uint32_t n)
{
    return s->order == DELTA_INTERLEAVED ? n * s->layer.groups + head
                                         : head * device_recurrent_share(&s->layer) + n;
}

static void put_gated(const struct host *h, const struct layer_recurrent *l, const float *z,
                      const float *y, uint32_t n, float *out)
{
    (l->rule.sigmoid ? h->kernels->sigmoid_mul : h->kernels->silu_mul)(z, y, n, out);
}

/* A head's part of the mixer's output, from y. A norm of several heads, and the gate after it, are
 * made by finish_rows. */
static void put_output(const struct head_group *g, uint32_t row, uint32_t v_head, float *y)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    uint32_t n = l->value_size;
    const float *z = projected_row(g->a, row) + l->gate_at + (size_t)v_head * n;
    float *out = rows_floats(&g->a->mix, row) + (size_t)v_head * n;
    if (l->norms > 0 && !l->rule.gate_first) {
        memcpy(out, y, n * sizeof *y);
        return;
    }
    if (l->norms == 0)
        g->h->kernels->rms_norm(y, device_floats(g->a->norm), n, g->a->shape.eps, y);
    put_gated(g->h, l, z, y, n, out);
}

/* One step of a v head. */
static void step_head(struct head_group *g, const struct window *window, uint32_t row, bool first,
                      uint32_t n)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    uint32_t values = l->value_size, v_head = v_head_of(&g->a->shape, g->head, n);
    float v[KERNEL_HEAD_SIZE_MAX], out[KERNEL_HEAD_SIZE_MAX];
    conv_silu(g, window, inputs_of(g->a, row), l->v_at + v_head * l->value_step, values, v);
    size_t size = (size_t)l->key_size * values;
    size_t at = (size_t)(l->taps - 1) * l->channels + v_head * size;
    struct kernel_delta d = {.k = g->k,
                             .q = g->q,
                             .v = v,
                             .decay = g->decay,
                             .keys = l->key_size,
                             .values = values,
                             .state = g->after + at,
                             .next = g->after + at,
                             .out = out,
                             .without = !l->rule.delta};
    if (first && g->before)
        d.state = g->before + at;
    else if (first)
        memset(d.next, 0, size * sizeof *d.next);
    if (l->rule.channels)
        channels_of(g, row, v_head, &d);
    else
        rates_of(g, row, n, v_head, &d);
    g->h->kernels->delta(&d);
    if (g->a->skip.address)
        g->h->kernels->axpy(device_floats(g->a->skip)[v_head], v, values, out);
    put_output(g, row, v_head, out);
}

static void query_and_key(struct head_group *g, const struct window *window, uint32_t row)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    const struct kernel_ops *kernels = g->h->kernels;
    uint32_t size = l->key_size;
    float eps = 1e-6f / (float)size; /* RMSNorm divides the sum by the size: the L2 norm */
    conv_silu(g, window, inputs_of(g->a, row), l->q_at + g->head * l->key_step, size, g->q);
    conv_silu(g, window, inputs_of(g->a, row), l->k_at + g->head * l->key_step, size, g->k);
    if (!l->rule.unit)
        return;
    kernels->rms_norm(g->q, device_floats(g->a->q_weight), size, eps, g->q);
    kernels->rms_norm(g->k, device_floats(g->a->k_weight), size, eps, g->k);
}

/* The older inputs that the next pass needs, of the channels of q and k of a group. */
static void keep_keys(const struct op_recurrence *a, const struct window *window, uint32_t head,
                      float *state)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t size = l->key_size;
    window_keep(window, l->q_at + head * l->key_step, size, state);
    window_keep(window, l->k_at + head * l->key_step, size, state);
}

/* Several pieces of a group read the older inputs of q and k: finish_rows keeps them. */
static void keep_window(const struct head_group *g, const struct window *window)
{
    const struct layer_recurrent *l = &g->a->shape.layer;
    uint32_t n = l->value_size;
    if (g->end - g->first == device_recurrent_share(l))
        keep_keys(g->a, window, g->head, g->after);
    for (uint32_t i = g->first; i < g->end; i++)
        window_keep(window, l->v_at + v_head_of(&g->a->shape, g->head, i) * l->value_step, n,
                    g->after);
}

static void run_group(struct head_group *g)
{
    const struct op_recurrence *a = g->a;
    struct window window = window_of(a, g->sequence);
    uint32_t steps = 0;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (a->row[r].sequence != g->sequence)
            continue;
        query_and_key(g, &window, r);
        for (uint32_t n = g->first; n < g->end; n++)
            step_head(g, &window, r, steps == 0, n);
        window_push(&window, inputs_of(a, r));
        if (steps++ % ALIVE_STEPS == 0)
            host_alive(g->h, a->rows);
    }
    if (steps > 0)
        keep_window(g, &window);
}

/* Pieces of a group: more than one if there are fewer groups than threads. */
static uint32_t pieces_of(const struct host *h, const struct op_recurrence *a)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t pieces = 1, share = device_recurrent_share(l);
    while (a->sequences * l->groups * pieces < h->threads && share % (2 * pieces) == 0)
        pieces *= 2;
    return pieces;
}

static void run_groups(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_recurrence *a = run->a;
    uint32_t begin, end, pieces = pieces_of(run->h, a), heads = a->shape.layer.groups * pieces;
    uint32_t part = device_recurrent_share(&a->shape.layer) / pieces;
    pool_share(a->sequences * heads, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++) {
        const struct device_sequence *s = &a->sequence[u / heads];
        struct head_group g = {.h = run->h,
                               .a = a,
                               .before = device_floats(s->state),
                               .after = device_floats(s->next_state),
                               .sequence = u / heads,
                               .head = u % heads / pieces,
                               .first = u % pieces * part,
                               .end = (u % pieces + 1) * part};
        run_group(&g);
    }
}

/* ---- after the steps of all heads ---- */

static void keep_sequence(const struct op_recurrence *a, uint32_t sequence)
{
    struct window window = window_of(a, sequence);
    uint32_t rows = 0;
    for (uint32_t r = 0; r < a->rows; r++)
        if (a->row[r].sequence == sequence) {
            window_push(&window, inputs_of(a, r));
            rows++;
        }
    for (uint32_t head = 0; rows > 0 && head < a->shape.layer.groups; head++)
        keep_keys(a, &window, head, device_floats(a->sequence[sequence].next_state));
}

/* The norms of several heads, and the gates after them. */
static void finish_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_recurrence *a = run->a;
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t begin, end, norms = l->norms, n = l->mixed / norms;
    pool_share(a->rows * norms, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++) {
        size_t at = (size_t)(u % norms) * n;
        float *y = rows_floats(&a->mix, u / norms) + at;
        run->h->kernels->rms_norm(y, device_floats(a->norm) + at, n, a->shape.eps, y);
        if (!l->rule.gate_first)
            put_gated(run->h, l, projected_row(a, u / norms) + l->gate_at + at, y, n, y);
    }
}

void host_op_recurrence(struct device *d, const struct op_recurrence *a)
{
    struct host *h = host_of(d);
    const struct layer_recurrent *l = &a->shape.layer;
    uint64_t work = (uint64_t)a->rows * l->mixed * l->key_size * 4;
    sl_assert(l->key_size <= KERNEL_HEAD_SIZE_MAX && l->value_size <= KERNEL_HEAD_SIZE_MAX);
    host_run_parts(h, pool_parts(h->pool, work), run_groups, a);
    for (uint32_t s = 0; s < a->sequences && pieces_of(h, a) > 1; s++)
        keep_sequence(a, s);
    if (l->norms > 0)
        host_run_columns(h, l->mixed, 1, a->rows, finish_rows, a);
}

/* ---- a recurrence with decays of elements ---- */

/* v of a block of channels of a sequence. */
static void convolve_block(struct host *h, const struct op_selective_scan *a, uint32_t sequence,
                           uint32_t channel, uint32_t n)
{
    const struct layer_recurrent *l = &a->shape.layer;
    const struct device_sequence *s = &a->sequence[sequence];
    struct window window = window_open(s->state, a->zeros, l->taps, l->channels);
    bool any = false;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (a->row[r].sequence != sequence)
            continue;
        const float *x = device_floats(a->projected) + r * a->stride + l->conv_at;
        float *v = rows_floats(&a->mix, r) + channel;
        window_conv(h, &window, x, a->conv, channel, n, v);
        if (a->conv_bias.address)
            h->kernels->axpy(1.0f, device_floats(a->conv_bias) + channel, n, v);
        h->kernels->silu(v, n);
        window_push(&window, x);
        any = true;
    }
    if (any)
        window_keep(&window, channel, n, device_floats(s->next_state));
}

static void convolve_channels(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_selective_scan *a = run->a;
    uint32_t begin, end;
    pool_share(a->shape.layer.channels, COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t s = 0; s < a->sequences; s++)
        for (uint32_t at = begin; at < end; at += BLOCK)
            convolve_block(run->h, a, s, at, smaller(end - at, BLOCK));
}

static void form_selecting(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_selective_scan *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        host_make_forms(run->h, &a->mix, r, a->select_forms);
}

static void norm_selected(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_selective_scan *a = run->a;
    const struct layer_recurrent *l = &a->shape.layer;
    const struct kernel_ops *kernels = run->h->kernels;
    uint32_t begin, end, size = l->key_size;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *in = device_floats(a->projected) + r * a->stride;
        float *k = in + l->k_at, *q = in + l->q_at, eps = a->shape.eps;
        kernels->rms_norm(in + l->select_at, device_floats(a->step_norm), l->step_rank, eps,
                          rows_floats(&a->first, r));
        kernels->rms_norm(k, device_floats(a->k_norm), size, eps, k);
        kernels->rms_norm(q, device_floats(a->q_norm), size, eps, q);
        host_note(run->h, k, 2 * (size_t)size); /* q is after k */
        host_make_forms(run->h, &a->first, r, a->step_forms);
    }
}

static void multiply(struct host *h, const struct op_selective_scan *a, const struct device_rows *x,
                     const struct device_matrix *w, uint32_t at)
{
    const struct device_product product = {
        .w = *w, .y = device_floats_at(a->projected, at), .y_stride = a->stride};
    host_op_products(&h->device, &(struct op_products){
                                     .rows = a->rows, .x = *x, .count = 1, .product = &product});
}

/* A step of a head, whose v becomes its part of the mixer's output. */
static void scan_step(struct host *h, const struct op_selective_scan *a, uint32_t row,
                      uint32_t head, const float *state, float *next)
{
    const struct layer_recurrent *l = &a->shape.layer;
    uint32_t n = l->value_size, at = head * n;
    const float *in = device_floats(a->projected) + row * a->stride;
    float *v = rows_floats(&a->mix, row) + at, out[MAMBA_BLOCK];
    const struct kernel_scan scan = {
        .k = in + l->k_at,
        .q = in + l->q_at,
        .v = v,
        .step = in + l->rates_at + at,
        .bias = device_floats(a->dt) + at,
        .skip = a->skip.address ? device_floats(a->skip) + at : NULL,
        .rate = device_floats(a->rates) + (size_t)at * l->key_size,
        .keys = l->key_size,
        .values = n,
        .state = state,
        .next = next,
        .out = out,
    };
    host_note(h, scan.step, n); /* of infinities, decays are 0 or 1 */
    h->kernels->scan(&scan);
    h->kernels->silu_mul(in + l->gate_at + at, out, n, v);
}

static void scan_head(struct host *h, const struct op_selective_scan *a, uint32_t sequence,
                      uint32_t head)
{
    const struct layer_recurrent *l = &a->shape.layer;
    const struct device_sequence *s = &a->sequence[sequence];
    size_t size = (size_t)l->key_size * l->value_size;
    size_t at = (size_t)(l->taps - 1) * l->channels + head * size;
    float *after = device_floats(s->next_state) + at;
    const float *before = s->state.address ? device_floats(s->state) + at : NULL;
    uint32_t steps = 0;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (a->row[r].sequence != sequence)
            continue;
        if (steps == 0 && !before)
            memset(after, 0, size * sizeof *after);
        scan_step(h, a, r, head, steps == 0 && before ? before : after, after);
        if (steps++ % ALIVE_STEPS == 0)
            host_alive(h, a->rows);
    }
}

static void scan_heads(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_selective_scan *a = run->a;
    uint32_t begin, end, heads = a->shape.layer.heads;
    pool_share(a->sequences * heads, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++)
        scan_head(run->h, a, u / heads, u % heads);
}

void host_op_selective_scan(struct device *d, const struct op_selective_scan *a)
{
    struct host *h = host_of(d);
    const struct layer_recurrent *l = &a->shape.layer;
    uint64_t work = (uint64_t)a->rows * l->mixed * l->key_size * SCAN_WORK;
    sl_assert(l->value_size <= MAMBA_BLOCK);
    host_run_columns(h, l->channels, l->taps, a->rows, convolve_channels, a);
    host_run_rows(h, a->rows, form_selecting, a);
    multiply(h, a, &a->mix, &a->select, l->select_at);
    host_run_rows(h, a->rows, norm_selected, a);
    multiply(h, a, &a->first, &a->step, l->rates_at);
    host_run_parts(h, pool_parts(h->pool, work), scan_heads, a);
}
