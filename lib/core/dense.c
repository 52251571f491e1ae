/* SPDX-License-Identifier: Apache-2.0 */
/* The network that every token of a layer uses: the feed-forward part of a layer without experts, a
 * dense network next to experts, or the shared expert, scaled by the sigmoid of its gate if it has
 * one. The matrices are dense weights, so a shared expert is computed while the requested experts
 * are read; its part is added to the row before theirs. */
#include "lib/core/internal.h"

/* Rows [first, first + rows). */
static void run_block(struct core *c, uint32_t first, uint32_t rows)
{
    const struct core_layer *l = core_layer_now(c);
    const struct device_ops *ops = c->device->ops;
    const struct device_rows in = device_rows_from(&c->scratch.in, first);
    const struct op_gate_up up = {.rows = rows,
                                  .activation = (enum ffn_activation)c->hp.activation,
                                  .limit = model_dense_limit(&c->hp, c->pass.step.layer),
                                  .x = in,
                                  .gate = l->dense[EXPERT_GATE],
                                  .up = l->dense[EXPERT_UP],
                                  .gate_scale = l->dense_scale[EXPERT_GATE],
                                  .up_scale = l->dense_scale[EXPERT_UP],
                                  .y = c->scratch.dense,
                                  .up_y = c->scratch.dense_up};
    const struct op_row_gates gates = {.rows = rows,
                                       .x = in,
                                       .w = l->shared_router,
                                       .forms = form_bit(&l->dense[EXPERT_DOWN]),
                                       .y = c->scratch.dense,
                                       .weight = c->scratch.shared_weight};
    const struct op_add_product down = {
        .rows = rows,
        .x = c->scratch.dense,
        .w = l->dense[EXPERT_DOWN],
        .scale = l->dense_scale[EXPERT_DOWN],
        .factor = core_ffn_factor(c),
        .weight = c->scratch.shared_weight,
        .y = c->scratch.y,
        .into = device_floats_at(c->pass.into, (uint64_t)first * c->hp.hidden)};
    ops->gate_up(c->device, &up);
    ops->row_gates(c->device, &gates);
    ops->add_product(c->device, &down);
}

static void run_network(struct core *c)
{
    device_rows_set(&c->scratch.dense, core_layer_now(c)->dense[EXPERT_GATE].n);
    for (uint32_t first = 0; first < c->pass.step.rows; first += DEVICE_BLOCK_ROWS) {
        uint32_t rows = c->pass.step.rows - first;
        run_block(c, first, rows < DEVICE_BLOCK_ROWS ? rows : DEVICE_BLOCK_ROWS);
    }
}

void core_dense_layer(struct core *c)
{
    core_ffn_norm(c);
    run_network(c);
}

/* ---- sums that are not added to the residual stream at once ---- */

/* The rows of n elements of a sum. */
static void clear(struct core *c, struct device_at y, uint32_t n)
{
    size_t bytes = (size_t)c->pass.step.rows * n * sizeof(float);
    c->device->ops->clear(c->device, &(struct op_clear){.bytes = bytes, .y = y});
}

static bool has_two_parts(const struct core *c)
{
    return core_parts_now(c)->ffn == FFN_DENSE_AND_EXPERTS;
}

/* Where the network of a layer, or its experts, add to. */
static struct device_at sum_of_layer(struct core *c)
{
    bool sums = core_layer_now(c)->ffn_post_norm.address || !core_residual_into(c).address;
    return sums ? c->scratch.sum : c->scratch.x;
}

void core_ffn_begin(struct core *c)
{
    c->pass.into = has_two_parts(c) ? c->scratch.x : sum_of_layer(c);
    if (c->pass.into.address != c->scratch.x.address)
        clear(c, c->scratch.sum, c->hp.hidden);
}

/* What a product reads of rows of floats. */
static void make_forms(struct core *c, const struct device_rows *rows, uint32_t forms)
{
    const struct op_forms made = {.rows = c->pass.step.rows, .forms = forms, .y = *rows};
    c->device->ops->forms(c->device, &made);
}

/* The latents of the rows, and an empty sum of what experts make of them. */
static void begin_latents(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    struct device_rows *y = &c->scratch.expert_in;
    uint32_t rows = c->pass.step.rows;
    const struct device_product down = {.w = l->latent_down,
                                        .scale = l->latent_down_scale,
                                        .y = y->base[FORM_F32],
                                        .y_stride = y->k};
    c->device->ops->products(
        c->device,
        &(struct op_products){.rows = rows, .x = c->scratch.in, .count = 1, .product = &down});
    make_forms(c, y, l->expert_forms);
    clear(c, c->scratch.latent_sum.base[FORM_F32], y->k);
    c->pass.into = c->scratch.latent_sum.base[FORM_F32];
}

/* The rows times the gate weights of their expert, of which each has one. */
static void weigh_inputs(struct core *c)
{
    const struct device_rows *y = &c->scratch.expert_in;
    uint32_t rows = c->pass.step.rows;
    for (uint32_t r = 0; r < rows; r++)
        c->scratch.terms[r] = (struct device_term){.factor = c->pass.route[r].weight, .pair = r};
    const struct op_add_terms weigh = {.rows = rows,
                                       .n = y->k,
                                       .terms = 1,
                                       .term = c->scratch.terms,
                                       .y = c->scratch.in.base[FORM_F32],
                                       .into = y->base[FORM_F32]};
    clear(c, y->base[FORM_F32], y->k);
    c->device->ops->add_terms(c->device, &weigh);
    make_forms(c, y, core_layer_now(c)->expert_forms);
}

/* The norm of the sums of experts, if they have one, and what a product reads of them. */
static void finish_latents(struct core *c, uint32_t forms)
{
    const struct device_rows *sum = &c->scratch.latent_sum;
    const struct op_norm norm = {.rows = c->pass.step.rows,
                                 .kind = NORM_RMS,
                                 .eps = c->hp.rms_eps,
                                 .x = sum->base[FORM_F32],
                                 .weight = core_layer_now(c)->latent_norm,
                                 .forms = forms,
                                 .y = *sum};
    if (norm.weight.address)
        c->device->ops->norm(c->device, &norm);
    else
        make_forms(c, sum, forms);
}

static void join_latents(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_add_product up = {.rows = c->pass.step.rows,
                                      .x = c->scratch.latent_sum,
                                      .w = l->latent_up,
                                      .scale = l->latent_up_scale,
                                      .factor = 1.0f, /* experts have that of a part */
                                      .y = c->scratch.y,
                                      .into = sum_of_layer(c)};
    finish_latents(c, form_bit(&l->latent_up));
    c->device->ops->add_product(c->device, &up);
}

/* A dense network next to experts, and their norm. */
static void begin_parts(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_norm norm = {.rows = c->pass.step.rows,
                                 .kind = NORM_RMS,
                                 .eps = c->hp.rms_eps,
                                 .x = c->scratch.x,
                                 .weight = l->experts_norm,
                                 .forms = l->expert_forms,
                                 .y = c->scratch.in};
    clear(c, c->scratch.sum, c->hp.hidden);
    c->pass.into = c->scratch.sum;
    core_dense_layer(c);
    c->device->ops->norm(c->device, &norm);
    clear(c, c->scratch.experts_sum, c->hp.hidden);
    c->pass.into = c->scratch.experts_sum;
}

void core_while_reading(struct core *c)
{
    if (has_two_parts(c))
        begin_parts(c);
    else if (c->hp.shared_inner > 0 || core_reads_early(c)) /* core_ffn_norm was there */
        run_network(c);
    if (c->hp.expert_width > 0)
        begin_latents(c);
    if (c->hp.weighted_input != 0)
        weigh_inputs(c);
}

static void join_parts(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_join join = {.rows = c->pass.step.rows,
                                 .n = c->hp.hidden,
                                 .eps = c->hp.rms_eps,
                                 .dense_weight = l->dense_post_norm,
                                 .experts_weight = l->experts_post_norm,
                                 .weight = l->ffn_post_norm,
                                 .scale = l->layer_scale,
                                 .dense = c->scratch.sum,
                                 .experts = c->scratch.experts_sum,
                                 .x = c->scratch.x};
    c->device->ops->join(c->device, &join);
}

void core_ffn_end(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_add_norm norm = {.rows = c->pass.step.rows,
                                     .n = c->hp.hidden,
                                     .eps = c->hp.rms_eps,
                                     .factor = c->residual,
                                     .weight = l->ffn_post_norm,
                                     .y = c->scratch.sum,
                                     .into = c->scratch.x};
    if (has_two_parts(c)) {
        join_parts(c);
        return;
    }
    if (c->hp.expert_width > 0 && ffn_has_experts((enum layer_ffn)core_parts_now(c)->ffn))
        join_latents(c);
    if (l->ffn_post_norm.address)
        c->device->ops->add_norm(c->device, &norm);
    core_residual_add(c, &l->ffn_site, c->scratch.sum);
}
