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

void core_recurrence(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    project(c);
    const struct op_recurrence recurrence = {
        .rows = c->pass.step.rows,
        .sequences = c->pass.sequence_count,
        .row = c->scratch.row,
        .sequence = c->pass.at,
        .shape = {.layer = c->model->layer[c->pass.step.layer].recurrent,
                  .order = (enum delta_order)c->hp.delta_order,
                  .joined = l->recurrent.beta_alpha,
                  .eps = c->hp.rms_eps},
        .conv = l->recurrent.conv,
        .conv_bias = l->recurrent.conv_bias,
        .zeros = c->scratch.zeros,
        .dt = l->recurrent.delta_dt,
        .decay = l->recurrent.delta_a,
        .skip = l->recurrent.skip,
        .norm = l->recurrent.delta_norm,
        .q_weight = c->delta_q_weight,
        .k_weight = c->delta_k_weight,
        .stride = c->projected_max,
        .projected = c->scratch.projected,
        .mix = c->scratch.mix,
    };
    c->device->ops->recurrence(c->device, &recurrence);
    core_attention_output(c);
}
