/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one layer, and what all mixers begin and end with. */
#include "lib/core/internal.h"

void core_mixer_input(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_norm norm = {.rows = c->step.rows,
                                 .kind = (enum norm_kind)c->hp.norm,
                                 .eps = c->hp.rms_eps,
                                 .x = c->x,
                                 .weight = l->attn_norm,
                                 .bias = l->attn_norm_bias,
                                 .forms = l->in_forms,
                                 .y = c->in};
    device_rows_set(&c->mix, l->mix_size);
    c->device->ops->norm(c->device, &norm);
}

void core_attention_output(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_ops *ops = c->device->ops;
    uint32_t rows = c->step.rows;
    bool gated = c->hp.gated_attention && l->q.data.address;
    bool normed = l->attn_post_norm.address != 0;
    const struct op_gate_heads heads = {.rows = rows,
                                        .shape = l->attention,
                                        .gates = gated ? c->gated_q : (struct device_at){0},
                                        .forms = l->mix_forms,
                                        .mix = c->mix};
    const struct op_add_product product = {.rows = rows,
                                           .x = c->mix,
                                           .w = l->out,
                                           .scale = l->out_scale,
                                           .bias = l->out_bias,
                                           .factor = c->residual,
                                           .y = c->y,
                                           .into = normed ? (struct device_at){0} : c->x};
    const struct op_add_norm norm = {.rows = rows,
                                     .n = c->hp.hidden,
                                     .eps = c->hp.rms_eps,
                                     .factor = c->residual,
                                     .weight = l->attn_post_norm,
                                     .y = c->y,
                                     .into = c->x};
    ops->gate_heads(c->device, &heads);
    ops->add_product(c->device, &product);
    if (normed) /* the result's own norm, which spans all outputs; then it is added */
        ops->add_norm(c->device, &norm);
}

void core_attention(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    core_mixer_input(c);
    const struct op_attention attention = {
        .rows = c->step.rows,
        .sequences = c->sequence_count,
        .row = c->row,
        .sequence = c->at,
        .shape = l->attention,
        .heads = l->heads,
        .x = c->in,
        .w_q = l->q,
        .w_k = l->k,
        .w_v = l->v,
        .q_scale = l->q_scale,
        .k_scale = l->k_scale,
        .v_scale = l->v_scale,
        .q_bias = l->q_bias,
        .k_bias = l->k_bias,
        .v_bias = l->v_bias,
        .q_norm = l->q_norm,
        .k_norm = l->k_norm,
        .ones = c->ones,
        .sinks = l->sinks,
        .angle_stride = c->rope_size,
        .angles = core_angles(c, l->attention.rope_table),
        .q = c->q,
        .gated = c->hp.gated_attention ? c->gated_q : (struct device_at){0},
        .k = c->k,
        .v = c->v,
        .mix = c->mix,
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
