/* SPDX-License-Identifier: Apache-2.0 */
/* What the mixers with a recurrent state share: projections, and the window of a convolution over time. And the
 * gated short convolution of LFM2, which is little more: rows (b | c | x) of the input, c * conv(b * x) of the
 * output; threads divide the channels, and the rows of a sequence are steps in the order of their
 * positions. */
#include "lib/core/internal.h"

#include <math.h>
#include <string.h>

#include "lib/exact/elementary.h"

#define BLOCK 256 /* channels of a step */

/* The projections as one range of columns, next to each other in a row. */
static void project_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    uint32_t begin, end, base = 0;
    pool_share(l->projected, COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t i = 0; i < CORE_PROJECTIONS && l->project[i].data; base += l->project[i++].n) {
        const struct kernel_matrix *w = &l->project[i];
        uint32_t b = begin > base ? begin - base : 0, e = end > base ? end - base : 0;
        e = e < w->n ? e : w->n;
        if (b < e)
            core_product(c, w, l->project_scale[i], b, e, form_row(&c->in, w->type, 0),
                         form_stride(&c->in, w->type), c->step.rows, c->projected + base,
                         c->projected_max);
    }
}

void core_mixer_project(struct core *c)
{
    core_run_columns(c, core_layer_now(c)->projected, c->hp.hidden, c->step.rows, project_columns);
}

static bool begins(const struct core *c, uint32_t sequence)
{
    uint32_t row = 0;
    while (row < c->step.rows && c->row[row].sequence != sequence)
        row++;
    return row == c->step.rows || c->row[row].position == 0;
}

void core_state_of(const struct core *c, uint32_t sequence, const float **before, float **after)
{
    const struct core_sequence *s = &c->sequences[sequence];
    size_t at = c->layer[c->step.layer].state_number * (size_t)model_state_floats(&c->hp);
    *before = begins(c, sequence) ? NULL : (const float *)s->state + at;
    *after = (float *)s->next_state + at;
}

struct core_window core_window_open(const struct core *c, const float *state)
{
    struct core_window window;
    for (uint32_t t = 0; t + 1 < c->hp.conv_taps; t++)
        window.past[t] = state ? state + (size_t)t * model_conv_channels(&c->hp) : c->zeros;
    return window;
}

void core_window_conv(const struct core *c, const struct core_window *window, const float *now,
                      const float *w, uint32_t channel, uint32_t n, float *y)
{
    const float *x[CORE_TAPS_MAX];
    uint32_t taps = c->hp.conv_taps;
    for (uint32_t t = 0; t + 1 < taps; t++)
        x[t] = window->past[t] + channel;
    x[taps - 1] = now + channel;
    c->ops->conv(x, w, model_conv_channels(&c->hp), taps, n, y);
}

void core_window_push(const struct core *c, struct core_window *window, const float *now)
{
    uint32_t past = c->hp.conv_taps - 1;
    for (uint32_t t = 0; t + 1 < past; t++)
        window->past[t] = window->past[t + 1];
    if (past > 0)
        window->past[past - 1] = now;
}

/* Ascending: in place, an input moves to the front. */
void core_window_keep(const struct core *c, const struct core_window *window, uint32_t channel,
                      uint32_t n, float *state)
{
    for (uint32_t t = 0; t + 1 < c->hp.conv_taps; t++)
        memmove(state + (size_t)t * model_conv_channels(&c->hp) + channel,
                window->past[t] + channel, n * sizeof *state);
}

/* ---- the short convolution ---- */

static void run_block(struct core *c, uint32_t sequence, uint32_t channel, uint32_t n)
{
    const struct core_layer *l = core_layer_now(c);
    const float *before;
    float *after, y[BLOCK];
    core_state_of(c, sequence, &before, &after);
    struct core_window window = core_window_open(c, before);
    bool any = false;
    for (uint32_t r = 0; r < c->step.rows; r++) {
        if (c->row[r].sequence != sequence)
            continue;
        float *b = core_mixer_row(c, r), *gate = b + c->hp.hidden, *x = gate + c->hp.hidden;
        c->ops->mul(b + channel, x + channel, n, b + channel); /* the input of the convolution */
        core_window_conv(c, &window, b, l->conv + channel, channel, n, y);
        c->ops->mul(gate + channel, y, n, form_floats(&c->mix, r) + channel);
        core_window_push(c, &window, b);
        any = true;
    }
    if (any)
        core_window_keep(c, &window, channel, n, after);
}

static void run_channels(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->hp.hidden, COLUMN_UNIT, thread, threads, &begin, &end);
    for (uint32_t s = 0; s < c->sequence_count; s++)
        for (uint32_t at = begin; at < end; at += BLOCK)
            run_block(c, s, at, end - at < BLOCK ? end - at : BLOCK);
}

void core_shortconv(struct core *c)
{
    core_mixer_input(c);
    core_mixer_project(c);
    core_run_columns(c, c->hp.hidden, c->hp.conv_taps, c->step.rows, run_channels);
    core_attention_output(c);
}

/* ---- gated DeltaNet ----
 *
 * Yang, Kautz, Hatamizadeh 2024, as in Qwen3-Next: a convolution over time of the rows of q, k and v, then the
 * gated delta rule in each head, which reads and writes the recurrent state. A k head and the v heads that it
 * serves are one piece of work: their channels, their part of the state. The rows of a sequence are steps in
 * the order of their positions, so a row has the same bits in every chunk. */

/* One k head of one sequence of a pass. */
struct head_group {
    const struct core_layer *layer;
    const float *before; /* state of the layer, or NULL */
    float *after;
    uint32_t sequence, head;
    float q[KERNEL_HEAD_SIZE_MAX], k[KERNEL_HEAD_SIZE_MAX];
};

static void conv_silu(const struct core *c, const struct head_group *g,
                      const struct core_window *window, const float *now, uint32_t channel,
                      float *y)
{
    core_window_conv(c, window, now, g->layer->conv + channel, channel, c->hp.delta_size, y);
    c->ops->silu(y, c->hp.delta_size);
}

/* The logits of beta and of the decay are next to each other (one matrix, in groups of the k head), or
 * each of all heads. */
static void gates_of(const struct core *c, const struct head_group *g, uint32_t row, uint32_t n,
                     uint32_t v_head, struct kernel_delta *d)
{
    const struct core_layer *l = g->layer;
    const float *gates = core_mixer_row(c, row) + model_conv_channels(&c->hp) + c->hp.delta_inner;
    uint32_t share = c->hp.delta_v_heads / c->hp.delta_k_heads;
    bool joined = l->beta_alpha;
    float b = gates[joined ? g->head * 2 * share + n : v_head];
    float a = gates[joined ? g->head * 2 * share + share + n : c->hp.delta_v_heads + v_head];
    float biased = a + l->delta_dt[v_head];
    double softplus = biased > 20 ? (double)biased : exact_log(1 + exact_exp((double)biased));
    d->beta = (float)(1 / (1 + exact_exp(-(double)b)));
    d->decay = (float)exact_exp((double)l->delta_a[v_head] * softplus);
}

/* One step of a v head, and its part of the mixer's output. */
static void step_head(const struct core *c, const struct head_group *g,
                      const struct core_window *window, uint32_t row, bool first, uint32_t n)
{
    const struct model_hparams *h = &c->hp;
    uint32_t size = h->delta_size, v_head;
    if (h->delta_order == DELTA_INTERLEAVED)
        v_head = n * h->delta_k_heads + g->head;
    else
        v_head = g->head * (h->delta_v_heads / h->delta_k_heads) + n;
    float v[KERNEL_HEAD_SIZE_MAX], out[KERNEL_HEAD_SIZE_MAX];
    const float *now = core_mixer_row(c, row);
    conv_silu(c, g, window, now, (2 * h->delta_k_heads + v_head) * size, v);
    size_t at = (size_t)(h->conv_taps - 1) * model_conv_channels(h) + (size_t)v_head * size * size;
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
    gates_of(c, g, row, n, v_head, &d);
    c->ops->delta(&d);
    c->ops->rms_norm(out, g->layer->delta_norm, size, h->rms_eps, out);
    const float *z = now + model_conv_channels(h) + (size_t)v_head * size;
    c->ops->silu_mul(z, out, size, form_floats(&c->mix, row) + (size_t)v_head * size);
}

/* The older inputs that the next pass needs, of the channels of this piece. */
static void keep_window(const struct core *c, const struct head_group *g,
                        const struct core_window *window)
{
    const struct model_hparams *h = &c->hp;
    uint32_t share = h->delta_v_heads / h->delta_k_heads, size = h->delta_size;
    core_window_keep(c, window, g->head * size, size, g->after);
    core_window_keep(c, window, (h->delta_k_heads + g->head) * size, size, g->after);
    for (uint32_t n = 0; n < share; n++) {
        uint32_t v_head = h->delta_order == DELTA_INTERLEAVED ? n * h->delta_k_heads + g->head
                                                              : g->head * share + n;
        core_window_keep(c, window, (2 * h->delta_k_heads + v_head) * size, size, g->after);
    }
}

static void run_group(struct core *c, struct head_group *g)
{
    const struct model_hparams *h = &c->hp;
    uint32_t size = h->delta_size;
    float eps = 1e-6f / (float)size; /* RMSNorm divides the sum by the size: the L2 norm */
    struct core_window window = core_window_open(c, g->before);
    bool first = true;
    for (uint32_t r = 0; r < c->step.rows; r++) {
        if (c->row[r].sequence != g->sequence)
            continue;
        const float *now = core_mixer_row(c, r);
        conv_silu(c, g, &window, now, g->head * size, g->q);
        conv_silu(c, g, &window, now, (h->delta_k_heads + g->head) * size, g->k);
        c->ops->rms_norm(g->q, c->delta_q_weight, size, eps, g->q);
        c->ops->rms_norm(g->k, c->delta_k_weight, size, eps, g->k);
        for (uint32_t n = 0; n < h->delta_v_heads / h->delta_k_heads; n++)
            step_head(c, g, &window, r, first, n);
        core_window_push(c, &window, now);
        first = false;
        core_alive(c, g->head);
    }
    if (!first)
        keep_window(c, g, &window);
}

static void run_groups(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->sequence_count * c->hp.delta_k_heads, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++) {
        struct head_group g = {.layer = core_layer_now(c),
                               .sequence = u / c->hp.delta_k_heads,
                               .head = u % c->hp.delta_k_heads};
        core_state_of(c, g.sequence, &g.before, &g.after);
        run_group(c, &g);
    }
}

void core_deltanet(struct core *c)
{
    uint64_t work = (uint64_t)c->step.rows * c->hp.delta_inner * c->hp.delta_size * 4;
    core_mixer_input(c);
    core_mixer_project(c);
    pool_run_parts(c->pool, pool_parts(c->pool, work), run_groups, c);
    core_attention_output(c);
}
