/* SPDX-License-Identifier: Apache-2.0 */
/* Mixers with a recurrent state; their formulas: lib/device/host/recurrent.c. */
#include "lib/core/internal.h"

/* The projections, next to each other in a row. */
static void project(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_product product[CORE_PROJECTIONS];
    uint32_t count = 0;
    for (uint32_t base = 0; count < CORE_PROJECTIONS && l->recurrent.project[count].data.address;
         count++) {
        product[count] = (struct device_product){.w = l->recurrent.project[count],
                                                 .scale = l->recurrent.project_scale[count],
                                                 .y = device_floats_at(c->scratch.projected, base),
                                                 .y_stride = c->projected_max};
        base += l->recurrent.project[count].n;
    }
    c->device->ops->products(c->device, &(struct op_products){.rows = c->pass.step.rows,
                                                              .x = c->scratch.in,
                                                              .count = count,
                                                              .product = product});
}

void core_shortconv(struct core *c)
{
    const struct layer_recurrent *r = &c->model->layer[c->pass.step.layer].recurrent;
    core_mixer_input(c);
    project(c);
    const struct op_short_conv conv = {.rows = c->pass.step.rows,
                                       .sequences = c->pass.sequence_count,
                                       .row = c->scratch.row,
                                       .sequence = c->pass.at,
                                       .taps = r->taps,
                                       .channels = r->channels,
                                       .conv = core_layer_now(c)->recurrent.conv,
                                       .zeros = c->scratch.zeros,
                                       .stride = c->projected_max,
                                       .projected = c->scratch.projected,
                                       .mix = c->scratch.mix};
    c->device->ops->short_conv(c->device, &conv);
    core_attention_output(c);
}

struct device_delta core_delta_shape(const struct core *c, const struct layer_recurrent *r)
{
    const struct model_hparams *h = &c->hp;
    return (struct device_delta){.size = h->delta_size,
                                 .k_heads = h->delta_k_heads,
                                 .v_heads = h->delta_v_heads,
                                 .inner = h->delta_inner,
                                 .taps = r->taps,
                                 .channels = r->channels,
                                 .order = (enum delta_order)h->delta_order,
                                 .eps = h->rms_eps};
}

void core_deltanet(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    core_mixer_input(c);
    project(c);
    struct op_delta delta = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = core_delta_shape(c, &c->model->layer[c->pass.step.layer].recurrent),
        .conv = l->recurrent.conv,
        .zeros = c->scratch.zeros,
        .dt = l->recurrent.delta_dt,
        .decay = l->recurrent.delta_a,
        .norm = l->recurrent.delta_norm,
        .q_weight = c->delta_q_weight,
        .k_weight = c->delta_k_weight,
        .stride = c->projected_max,
        .projected = c->scratch.projected,
        .mix = c->scratch.mix,
    };
    delta.shape.beta_alpha = l->recurrent.beta_alpha;
    c->device->ops->delta(c->device, &delta);
    core_attention_output(c);
}
