/* SPDX-License-Identifier: Apache-2.0 */
/* Mixers with a recurrent state. They share the window of a convolution over time; the gated short
 * convolution of LFM2 is little more: threads divide the channels, and the rows of a sequence are
 * steps in the order of their positions. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

#define BLOCK       256 /* channels of a step */
#define ALIVE_STEPS 64  /* tokens between two reports of progress */

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

/* ---- gated DeltaNet ----
 *
 * Yang, Kautz, Hatamizadeh 2024, as in Qwen3-Next: a convolution over time of the rows of q, k and
 * v, then the gated delta rule in each head, which reads and writes the recurrent state. A k head
 * and the v heads that it serves are one piece of work: their channels, their part of the state.
 * The rows of a sequence are steps in the order of their positions, so a row has the same bits in
 * every chunk. */

/* One k head of one sequence of a pass. */
struct head_group {
    struct host *h;
    const struct op_delta *a;
    const float *before; /* state of the layer, or NULL */
    float *after;
    uint32_t sequence, head;
    float q[KERNEL_HEAD_SIZE_MAX], k[KERNEL_HEAD_SIZE_MAX];
};

static const float *projected_row(const struct op_delta *a, uint32_t row)
{
    return device_floats(a->projected) + row * a->stride;
}

static void conv_silu(const struct head_group *g, const struct window *window, const float *now,
                      uint32_t channel, float *y)
{
    window_conv(g->h, window, now, g->a->conv, channel, g->a->shape.size, y);
    g->h->kernels->silu(y, g->a->shape.size);
}

/* The logits of beta and of the decay are next to each other (one matrix, in groups of the k head),
 * or each of all heads. */
static void gates_of(const struct head_group *g, uint32_t row, uint32_t n, uint32_t v_head,
                     struct kernel_delta *d)
{
    const struct device_delta *s = &g->a->shape;
    const float *gates = projected_row(g->a, row) + s->channels + s->inner;
    uint32_t share = s->v_heads / s->k_heads;
    bool joined = s->beta_alpha;
    float b = gates[joined ? g->head * 2 * share + n : v_head];
    float a = gates[joined ? g->head * 2 * share + share + n : s->v_heads + v_head];
    float biased = a + device_floats(g->a->dt)[v_head];
    host_note(g->h, (const float[]){b, biased}, 2); /* of infinities, beta and decay are 0 or 1 */
    double softplus = biased > 20 ? (double)biased : exact_log(1 + exact_exp((double)biased));
    d->beta = (float)(1 / (1 + exact_exp(-(double)b)));
    d->decay = (float)exact_exp((double)device_floats(g->a->decay)[v_head] * softplus);
}

/* The n-th v head of a k head. */
static uint32_t v_head_of(const struct head_group *g, uint32_t n)
{
    const struct device_delta *s = &g->a->shape;
    return s->order == DELTA_INTERLEAVED ? n * s->k_heads + g->head
                                         : g->head * (s->v_heads / s->k_heads) + n;
}

/* One step of a v head, and its part of the mixer's output. */
static void step_head(const struct head_group *g, const struct window *window, uint32_t row,
                      bool first, uint32_t n)
{
    const struct device_delta *s = &g->a->shape;
    uint32_t size = s->size, v_head = v_head_of(g, n);
    float v[KERNEL_HEAD_SIZE_MAX], out[KERNEL_HEAD_SIZE_MAX];
    const float *now = projected_row(g->a, row);
    conv_silu(g, window, now, (2 * s->k_heads + v_head) * size, v);
    size_t at = (size_t)(s->taps - 1) * s->channels + (size_t)v_head * size * size;
    struct kernel_delta d = {.k = g->k,
                             .q = g->q,
                             .v = v,
                             .keys = size,
                             .values = size,
                             .state = g->after + at,
                             .next = g->after + at,
                             .out = out};
    if (first && g->before)
        d.state = g->before + at;
    else if (first)
        memset(d.next, 0, (size_t)size * size * sizeof *d.next);
    gates_of(g, row, n, v_head, &d);
    g->h->kernels->delta(&d);
    g->h->kernels->rms_norm(out, device_floats(g->a->norm), size, s->eps, out);
    const float *z = now + s->channels + (size_t)v_head * size;
    g->h->kernels->silu_mul(z, out, size, rows_floats(&g->a->mix, row) + (size_t)v_head * size);
}

/* The older inputs that the next pass needs, of the channels of this piece. */
static void keep_window(const struct head_group *g, const struct window *window)
{
    const struct device_delta *s = &g->a->shape;
    uint32_t size = s->size;
    window_keep(window, g->head * size, size, g->after);
    window_keep(window, (s->k_heads + g->head) * size, size, g->after);
    for (uint32_t n = 0; n < s->v_heads / s->k_heads; n++)
        window_keep(window, (2 * s->k_heads + v_head_of(g, n)) * size, size, g->after);
}

static void run_group(struct head_group *g)
{
    const struct op_delta *a = g->a;
    const struct device_delta *s = &a->shape;
    const struct kernel_ops *kernels = g->h->kernels;
    uint32_t size = s->size;
    float eps = 1e-6f / (float)size; /* RMSNorm divides the sum by the size: the L2 norm */
    struct window window =
        window_open(a->sequence[g->sequence].state, a->zeros, s->taps, s->channels);
    uint32_t steps = 0;
    for (uint32_t r = 0; r < a->rows; r++) {
        if (a->row[r].sequence != g->sequence)
            continue;
        const float *now = projected_row(a, r);
        conv_silu(g, &window, now, g->head * size, g->q);
        conv_silu(g, &window, now, (s->k_heads + g->head) * size, g->k);
        kernels->rms_norm(g->q, device_floats(a->q_weight), size, eps, g->q);
        kernels->rms_norm(g->k, device_floats(a->k_weight), size, eps, g->k);
        for (uint32_t n = 0; n < s->v_heads / s->k_heads; n++)
            step_head(g, &window, r, steps == 0, n);
        window_push(&window, now);
        if (steps++ % ALIVE_STEPS == 0)
            host_alive(g->h, a->rows);
    }
    if (steps > 0)
        keep_window(g, &window);
}

static void run_groups(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_delta *a = run->a;
    uint32_t begin, end, heads = a->shape.k_heads;
    pool_share(a->sequences * heads, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++) {
        const struct device_sequence *s = &a->sequence[u / heads];
        struct head_group g = {.h = run->h,
                               .a = a,
                               .before = device_floats(s->state),
                               .after = device_floats(s->next_state),
                               .sequence = u / heads,
                               .head = u % heads};
        run_group(&g);
    }
}

void host_op_delta(struct device *d, const struct op_delta *a)
{
    struct host *h = host_of(d);
    uint64_t work = (uint64_t)a->rows * a->shape.inner * a->shape.size * 4;
    sl_assert(a->shape.size <= KERNEL_HEAD_SIZE_MAX);
    host_run_parts(h, pool_parts(h->pool, work), run_groups, a);
}
