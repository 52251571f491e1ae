/* SPDX-License-Identifier: Apache-2.0 */
/* What the mixers with a recurrent state share: projections, and the window of a convolution over time. And the
 * gated short convolution of LFM2, which is little more: rows (b | c | x) of the input, c * conv(b * x) of the
 * output; threads divide the channels, and the rows of a sequence are steps in the order of their
 * positions. */
#include "lib/core/internal.h"

#include <string.h>

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
