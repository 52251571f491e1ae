/* SPDX-License-Identifier: Apache-2.0 */
/* A token of a device that has all experts, keys, values and states: it needs the host for nothing
 * between the embedding and the logits, and the routes of all layers are fetched at the end. And
 * the experts that the device does not have yet, which are given to it as far as nothing has to
 * wait. */
#include "lib/core/internal.h"

#include <string.h>

/* Experts that one pass tries to give and cannot, because the source has them not ready or the
 * device no space now. */
#define TRIES 8

static struct device_at routes_of_layer(const struct core *c)
{
    return device_offset(c->resident.routes.at,
                         (uint64_t)c->pass.step.layer * c->hp.experts_used * sizeof(struct route));
}

static const struct model_entry *entry_of(const struct core *c, uint32_t layer, uint32_t expert)
{
    uint32_t entry = model_entry_expert_precision(c->model, layer, expert, c->resident.precision);
    return entry == ENTRY_NONE ? NULL : &model_index_entries(c->model)[entry];
}

/* The experts of a layer differ in nothing but their elements. */
static bool alike(const struct core *c, uint32_t layer)
{
    const struct model_entry *first = entry_of(c, layer, 0);
    for (uint32_t e = 0; first && e < c->hp.experts; e++) {
        const struct model_entry *other = entry_of(c, layer, e);
        for (int m = 0; m < EXPERT__COUNT; m++)
            if (!other || other->matrix[m].type != first->matrix[m].type ||
                other->matrix[m].row_bytes != first->matrix[m].row_bytes ||
                other->matrix[m].k != first->matrix[m].k ||
                other->matrix[m].n != first->matrix[m].n)
                return false;
    }
    return first != NULL;
}

/* Experts of the model, in the precision that serves; 0: the device cannot have them. */
static uint32_t count_experts(const struct core *c)
{
    uint32_t experts = 0;
    for (uint32_t layer = 0; layer < c->hp.layers; layer++) {
        if (!model_layer_has_experts(c->model, layer))
            continue;
        if (!alike(c, layer))
            return 0;
        experts += c->hp.experts;
    }
    return c->device->keeps >> c->resident.precision & 1 ? experts : 0;
}

/* Whether the source leaves the experts of this sequence to the device, if it has all. What the
 * device records of one token must hold for the next ones: so not if the scale of scores, or where
 * keys begin, follows from the position. What it computes of the routes is the factor of outputs,
 * not of inputs. A layer of n-grams asks the source in any case. */
static bool agreed(struct core *c)
{
    struct core_resident *a = &c->resident;
    enum precision precision;
    if (c->hp.query_scale != 0 || c->hp.window_chunks != 0 || c->hp.weighted_input != 0 ||
        c->hp.ngram_size != 0 || c->device->keeps == 0 || !c->source.whole_on_device ||
        c->source.layer_inputs || c->source.gate_inputs ||
        !c->source.whole_on_device(c->source.self, &precision))
        return false;
    if (!a->counted || precision != a->precision) {
        a->precision = precision;
        a->experts = count_experts(c);
        a->found = 0;
        a->counted = true;
    }
    return a->experts > 0;
}

static uint64_t content_of(const struct core *c, uint32_t layer, uint32_t expert, uint32_t matrix)
{
    return device_content(c->resident.precision, c->hp.layers, layer, c->hp.experts, expert,
                          matrix);
}

/* ---- experts that the device does not have ---- */

/* A device that prefetches has its own rule for what it copies before a use. */
static bool give_expert(struct core *c, uint32_t layer, uint32_t expert)
{
    struct expert_item item = {.expert = expert, .weight = 1}; /* of no token */
    struct expert_step step = c->pass.step;
    step.layer = layer;
    step.routes = NULL;
    if (c->device->prefetches || !c->source.pin_ready ||
        !c->source.pin_ready(c->source.self, &step, &item))
        return false;
    bool kept = false;
    if (item.precision == c->resident.precision) {
        const struct device_expert given = core_expert_of(c, layer, &item);
        kept = c->device->ops->keep(c->device, &given);
    }
    c->source.unpin(c->source.self, &step, &item);
    return kept;
}

void core_fill_device(struct core *c)
{
    struct core_resident *a = &c->resident;
    uint32_t failed = 0, all = c->hp.layers * c->hp.experts;
    if (!agreed(c))
        return;
    uint64_t lost = c->device->ops->lost(c->device);
    a->found = lost == a->lost ? a->found : 0;
    a->lost = lost;
    for (uint32_t i = 0; i < all && a->found < a->experts && failed < TRIES; i++) {
        uint32_t layer = a->next / c->hp.experts, expert = a->next % c->hp.experts;
        a->next = (a->next + 1) % all;
        if (!model_layer_has_experts(c->model, layer))
            continue;
        bool there = c->device->ops->has(c->device, content_of(c, layer, expert, 0)) ||
                     give_expert(c, layer, expert);
        a->found = there ? a->found + 1 : 0;
        failed += !there;
    }
}

/* ---- a token ---- */

bool core_pass_is_resident(struct core *c)
{
    struct core_resident *a = &c->resident;
    return c->pass.step.rows == 1 && c->pass.step.decode && c->scratch.row[0].position > 0 &&
           c->pass.sequence_count == 1 && c->pass.sequences->content > 0 && !c->pass.resumed &&
           agreed(c) && a->found == a->experts && c->device->ops->lost(c->device) == a->lost;
}

static void run_experts(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct model_entry *entry = entry_of(c, c->pass.step.layer, 0);
    struct kernel_matrix matrix[EXPERT__COUNT];
    expert_matrices(entry, NULL, matrix);
    core_while_reading(c);
    struct device_routed routed = {.layer = c->pass.step.layer,
                                   .top_k = c->hp.experts_used,
                                   .activation = (enum ffn_activation)c->hp.activation,
                                   .limit = model_expert_limit(&c->hp, c->pass.step.layer),
                                   .x = *core_expert_rows(c),
                                   .routes = routes_of_layer(c),
                                   .gate = c->scratch.gate,
                                   .up = c->scratch.up,
                                   .y = c->scratch.pair_out,
                                   .factor = core_ffn_factor(c),
                                   .into = c->pass.into};
    for (int m = 0; m < EXPERT__COUNT; m++) {
        routed.matrix[m] = device_shape(c->device, matrix[m]);
        routed.scale[m] = l->expert_scales[m];
        routed.bias[m] = l->expert_bias[m];
    }
    c->device->ops->routed_experts(c->device, &routed);
}

static void run_expert_layer(struct core *c)
{
    if (c->hp.router_first) {
        core_ffn_norm(c);
    } else {
        core_gate_norm(c);
        core_run_router(c, routes_of_layer(c));
    }
    run_experts(c);
}

/* As run_layer of pass.c, without the source. */
static void run_layer(struct core *c)
{
    enum layer_ffn ffn = (enum layer_ffn)core_parts_now(c)->ffn;
    core_take_sequences(c);
    core_early_inputs(c);
    if (ffn_has_experts(ffn) && c->hp.router_first)
        core_run_router(c, routes_of_layer(c));
    core_run_mixer(c);
    if (ffn == FFN_NONE)
        return;
    core_ffn_begin(c);
    if (ffn == FFN_DENSE)
        core_dense_layer(c);
    else
        run_expert_layer(c);
    core_ffn_end(c);
}

static void submit_token(struct core *c)
{
    core_residual_begin(c);
    for (uint32_t layer = 0; layer < c->hp.layers; layer++) {
        c->pass.step.layer = layer;
        run_layer(c);
    }
    core_compute_logits(c, 0, 1);
}

/* Uses of experts, as the host finds out about them. */
static void report_uses(struct core *c)
{
    size_t k = c->hp.experts_used;
    const struct route *routes =
        device_fetch(c->device, &c->resident.routes, c->hp.layers * k * sizeof *routes);
    for (uint32_t layer = 0; layer < c->hp.layers; layer++) {
        c->pass.step.layer = layer;
        if (!model_layer_has_experts(c->model, layer))
            continue;
        for (size_t rank = 0; rank < k; rank++)
            c->device->ops->used(c->device,
                                 content_of(c, layer, routes[layer * k + rank].expert, 0));
        c->source.used(c->source.self, &c->pass.step, routes + layer * k);
    }
}

void core_run_resident(struct core *c)
{
    struct core_resident *a = &c->resident;
    const struct device_token token = {.token = c->scratch.row[0].token,
                                       .position = c->scratch.row[0].position,
                                       .sequence = a->sequence,
                                       .content = content_of(c, 0, 0, 0)};
    for (uint32_t layer = 0; layer < c->hp.layers; layer++) {
        c->pass.step.layer = layer;
        core_take_sequences(c);
        a->sequence[layer] = c->pass.at[0];
    }
    core_compute_angles(c);
    if (c->device->ops->token_begins(c->device, &token)) {
        submit_token(c);
        c->device->ops->token_ends(c->device);
    }
    for (uint32_t layer = 0; layer < c->hp.layers && c->source.layer_starts; layer++) {
        c->pass.step.layer = layer;
        c->source.layer_starts(c->source.self, &c->pass.step);
    }
    report_uses(c);
    a->logits_there = true;
}
