/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one layer, and what all mixers begin and end with. */
#include "lib/core/internal.h"

void core_mixer_input(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct core_reading r = {.rows = c->pass.step.rows,
                                   .forms = l->in_forms | (c->hp.parallel ? l->gate_forms : 0),
                                   .y = &c->scratch.in};
    device_rows_set(&c->scratch.mix, l->mix_size);
    core_residual_read(c, &l->mixer_site, &r);
    core_begin_sum(c);
}

void core_begin_sum(struct core *c)
{
    const struct op_scale_rows scale = {.rows = c->pass.step.rows,
                                        .x = c->scratch.in.base[FORM_F32],
                                        .scale = c->scratch.normed_scale,
                                        .y = device_rows_of_floats(c->scratch.x, c->hp.hidden)};
    if (c->hp.normed_scale != 0)
        c->device->ops->scale_rows(c->device, &scale);
}

/* Gates that are a product of their own, with what the mixer read. */
static void project_gates(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_product product = {
        .w = l->gate, .scale = l->gate_scale, .y = c->scratch.gates, .y_stride = l->gate.n};
    c->device->ops->products(c->device, &(struct op_products){.rows = c->pass.step.rows,
                                                              .x = c->scratch.in,
                                                              .count = 1,
                                                              .product = &product});
}

void core_attention_output(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_ops *ops = c->device->ops;
    uint32_t rows = c->pass.step.rows;
    bool gated = l->attention.gate != HEAD_GATE_NONE;
    bool normed = l->attn_post_norm.address != 0;
    const struct op_gate_heads heads = {.rows = rows,
                                        .shape = l->attention,
                                        .gates = gated ? c->scratch.gates : (struct device_at){0},
                                        .forms = l->mix_forms,
                                        .mix = c->scratch.mix};
    const struct op_add_product product = {.rows = rows,
                                           .x = c->scratch.mix,
                                           .w = l->out,
                                           .scale = l->out_scale,
                                           .bias = l->out_bias,
                                           .factor = core_mixer_factor(c),
                                           .y = c->scratch.y,
                                           .into = normed ? (struct device_at){0}
                                                          : core_residual_into(c)};
    const struct op_add_norm norm = {.rows = rows,
                                     .n = c->hp.hidden,
                                     .eps = c->hp.rms_eps,
                                     .factor = c->residual,
                                     .weight = l->attn_post_norm,
                                     .y = c->scratch.y,
                                     .into = c->scratch.x};
    if (gated && l->attention.gate_form != GATE_IN_Q)
        project_gates(c);
    ops->gate_heads(c->device, &heads);
    ops->add_product(c->device, &product);
    if (normed) /* the result's own norm, which spans all outputs; then it is added */
        ops->add_norm(c->device, &norm);
    core_residual_add(c, &l->mixer_site, c->scratch.y);
}

void core_attention(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    bool in_q = l->attention.gate != HEAD_GATE_NONE && l->attention.gate_form == GATE_IN_Q;
    bool unit = c->hp.qk_norm == QK_NORM_ROTATED;
    core_index(c);
    const struct op_attention attention = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = l->attention,
        .heads = l->attn.heads,
        .chosen = core_chosen(c),
        .x = c->scratch.in,
        .w_q = l->q,
        .w_k = l->attn.k,
        .w_v = l->attn.v,
        .q_scale = l->q_scale,
        .k_scale = l->attn.k_scale,
        .v_scale = l->attn.v_scale,
        .q_bias = l->attn.q_bias,
        .k_bias = l->attn.k_bias,
        .v_bias = l->attn.v_bias,
        .q_norm = unit ? c->scratch.ones : l->attn.q_norm,
        .k_norm = unit ? c->scratch.ones : l->attn.k_norm,
        .ones = c->scratch.ones,
        .sinks = l->sinks,
        .angle_stride = c->rope_size,
        .angles = core_angles(c, l->attention.rope_table),
        .q = c->scratch.q,
        .gated = in_q ? c->scratch.gates : (struct device_at){0},
        .k = c->scratch.k,
        .v = c->scratch.v,
        .mix = c->scratch.mix,
    };
    c->device->ops->attention(c->device, &attention);
    core_attention_output(c);
}

/* Of cos and sin; 0: the default of the kernel. */
static double yarn_magnitude(const struct model_hparams *h)
{
    double own = (double)h->rope_magnitude, more = (double)h->rope_attention;
    if (more == 0)
        return own;
    return more * (own != 0 ? own : kernel_yarn_magnitude(0.1, (double)h->rope_factor));
}

/* The rotations of the layers of a kind. Divisors of the angles in the file are those of full
 * layers. */
struct kernel_rope core_rope_of(const struct model_hparams *h, enum layer_kind kind, uint32_t dims)
{
    bool window = kind == LAYER_WINDOW, scaled = !window || h->rope_scale_window == 1;
    float theta = window && h->rope_theta_window != 0 ? h->rope_theta_window : h->rope_theta;
    struct kernel_rope r = {
        .dims = dims, .theta = (double)theta, .magnitude = (double)h->rope_attention};
    if (!scaled || h->rope_scaling == ROPE_UNSCALED || h->rope_scaling == ROPE_SHORT)
        return r;
    r.factor = (double)h->rope_factor;
    r.yarn = h->rope_scaling == ROPE_YARN;
    if (r.yarn)
        r.magnitude = yarn_magnitude(h);
    r.context = (double)h->rope_context;
    r.beta_fast = (double)h->rope_beta_fast;
    r.beta_slow = (double)h->rope_beta_slow;
    r.truncate = h->rope_truncate == 1;
    return r;
}
