/* SPDX-License-Identifier: Apache-2.0 */
/* Gate input, router, and the prediction of the next layer during prefill. */
#include "lib/core/internal.h"
#include "lib/policy/access/precision.h"

#include <string.h>

#include "lib/model/limits.h"

struct device_at core_gate_input(const struct core *c)
{
    if (core_reads_early(c))
        return c->scratch.early.base[FORM_F32];
    if (c->hp.router_first && !c->hp.parallel)
        return c->scratch.x;
    return c->layer[c->pass.step.layer].router_scale.address ? c->scratch.experts_sum
                                                             : c->scratch.in.base[FORM_F32];
}

void core_early_inputs(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    if (c->hp.parallel)
        core_mixer_input(c);
    if (!core_reads_early(c))
        return;
    const struct op_norm norm = {.rows = c->pass.step.rows,
                                 .kind = (enum norm_kind)c->hp.norm,
                                 .eps = c->hp.rms_eps,
                                 .x = c->scratch.x,
                                 .weight = l->experts_norm,
                                 .forms = l->router_forms | l->expert_forms,
                                 .y = c->scratch.early};
    c->device->ops->norm(c->device, &norm);
}

void core_ffn_norm(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    if (c->hp.parallel) /* it is the mixer's */
        return;
    const struct core_reading r = {
        .rows = c->pass.step.rows, .forms = l->gate_forms, .y = &c->scratch.in};
    core_residual_read(c, &l->ffn_site, &r);
    core_begin_sum(c);
}

/* The input of the router: that of the experts, unless the layer has a scale of its own for it.
 * Routers with a scale are F32: no other form. */
void core_gate_norm(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    if (!l->router_scale.address) {
        core_ffn_norm(c);
        return;
    }
    const struct op_gate_norm norm = {.rows = c->pass.step.rows,
                                      .eps = c->hp.rms_eps,
                                      .x = c->scratch.x,
                                      .weight = c->scratch.roots,
                                      .scale = l->router_scale,
                                      .u = c->scratch.experts_sum,
                                      .y = c->scratch.in};
    c->device->ops->gate_norm(c->device, &norm);
}

/* The layer whose experts are predicted is on this device. Of a pass of one row: there is memory
 * for the routes of one more. */
bool core_predicts_next(const struct core *c)
{
    return c->pass.step.rows == 1 && c->pass.step.decode && c->device->prefetches &&
           c->source.pin_ready && core_next_layer(c) < c->end;
}

/* What a router reads. */
static struct device_rows router_input(const struct core *c)
{
    if (core_reads_early(c))
        return c->scratch.early;
    return c->hp.router_first && !c->hp.parallel ? device_rows_of_floats(c->scratch.x, c->hp.hidden)
                                                 : c->scratch.in;
}

static void run_router(struct core *c, const struct core_layer *l, struct model_router rule,
                       struct device_at logits, struct device_at routes)
{
    const struct op_route route = {.rows = c->pass.step.rows,
                                   .row = c->scratch.row,
                                   .table = l->table,
                                   .x = router_input(c),
                                   .w = l->router,
                                   .bias = l->logit_bias,
                                   .rule = rule,
                                   .choice_bias = l->router_bias,
                                   .logits = logits,
                                   .routes = routes};
    c->device->ops->route(c->device, &route);
}

void core_run_router(struct core *c, struct device_at routes)
{
    const struct core_layer *l = core_layer_now(c);
    run_router(c, l, l->routing, c->scratch.router_logits.at, routes);
}

/* With those predicted: one copy. */
static void fetch_routes(struct core *c)
{
    size_t rows = (size_t)c->pass.step.rows + core_predicts_next(c);
    size_t pairs = rows * c->hp.experts_used;
    c->pass.route = device_fetch(c->device, &c->scratch.routes, pairs * sizeof *c->pass.route);
    c->pass.step.routes = c->pass.route;
}

/* ---- masked routing (SwapMoE) ---- */

/* Importance of the unmasked choice. */
static void publish_importance(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_importance importance = {.rows = c->pass.step.rows,
                                             .x = router_input(c),
                                             .logits = c->scratch.router_logits.at,
                                             .rule = l->routing,
                                             .choice_bias = l->router_bias,
                                             .importance = c->scratch.importance.at};
    c->device->ops->importance(c->device, &importance);
    c->source.choice(
        c->source.self, &c->pass.step,
        device_fetch(c->device, &c->scratch.importance, c->hp.experts * sizeof(float)));
}

/* The routes again: among the allowed experts, or among all. */
static void choose(struct core *c, bool masked)
{
    const struct core_layer *l = core_layer_now(c);
    const struct op_choose choice = {.rows = c->pass.step.rows,
                                     .logits = c->scratch.router_logits.at,
                                     .masked = masked ? c->hp.experts : 0,
                                     .allowed = c->scratch.allowed,
                                     .rule = l->routing,
                                     .choice_bias = l->router_bias,
                                     .routes = c->scratch.routes.at};
    c->device->ops->choose(c->device, &choice);
}

void core_route_again(struct core *c)
{
    sl_assert(!c->pass.step.prefill && c->source.mask);
    choose(c, c->source.mask(c->source.self, &c->pass.step, c->scratch.allowed));
    fetch_routes(c);
}

/* Routes of the next layer with experts: its router on this layer's gate input. This layer's own
 * routes are known, so its input of the router and its logits may be overwritten. */
static void forecast(struct core *c, struct device_at logits, struct device_at routes)
{
    const struct core_layer *next = &c->layer[core_next_layer(c)];
    struct model_router rule = next->routing;
    uint32_t noted = atomic_load_explicit(&c->device->not_finite, memory_order_relaxed);
    rule.normalise = true;
    if (next->router_scale.address) {
        const struct op_scale_rows scale = {.rows = c->pass.step.rows,
                                            .x = core_gate_input(c),
                                            .scale = next->router_scale,
                                            .y = c->scratch.in};
        c->device->ops->scale_rows(c->device, &scale);
    }
    run_router(c, next, rule, logits, routes);
    /* What is not finite in the next layer is found there. */
    atomic_store_explicit(&c->device->not_finite, noted, memory_order_relaxed);
}

/* In memory of their own: masked routing needs the logits of this layer again. */
static void predict_next(struct core *c)
{
    forecast(c, device_floats_at(c->scratch.router_logits.at, c->hp.experts),
             device_offset(c->scratch.routes.at, c->hp.experts_used * sizeof(struct route)));
}

/* The bias of the choice in host memory; NULL: none. */
static const float *choice_bias(struct core *c)
{
    struct device_at bias = core_layer_now(c)->router_bias;
    uint32_t layer = c->pass.step.layer, experts = c->hp.experts;
    if (!bias.address || c->device->is_host)
        return (const float *)(uintptr_t)bias.address;
    float *at = c->scratch.choice_bias + (size_t)layer * experts;
    if (!c->scratch.has_bias[layer])
        c->device->ops->read(c->device, bias, at, experts * sizeof *at);
    c->scratch.has_bias[layer] = true;
    return at;
}

static struct model_router host_rule(struct core *c)
{
    struct model_router rule = core_layer_now(c)->routing;
    rule.bias = choice_bias(c);
    return rule;
}

static const float *host_logits(struct core *c)
{
    return device_fetch(c->device, &c->scratch.router_logits,
                        (size_t)c->pass.step.rows * c->hp.experts * sizeof(float));
}

static void give_logits(struct core *c)
{
    const struct model_router rule = host_rule(c);
    c->source.logits(c->source.self, &c->pass.step, host_logits(c), &rule);
}

/* Operations read the routes in host memory only, so those of the device may differ. */
static void reroute(struct core *c)
{
    const struct model_router rule = host_rule(c);
    c->source.reroute(c->source.self, &c->pass.step, host_logits(c), &rule, c->pass.route);
}

/* In decode, the gate inputs are given before the router runs, and the logits after it, but where a
 * table chooses: there they do not say which experts are used. */
void core_route_layer(struct core *c)
{
    const struct core_layer *l = core_layer_now(c);
    if (c->pass.step.decode && c->source.gate_input)
        c->source.gate_input(c->source.self, &c->pass.step,
                             core_fetch_rows(c, core_gate_input(c), c->hp.hidden), c->hp.hidden);
    run_router(c, l, l->routing, c->scratch.router_logits.at, c->scratch.routes.at);
    if (c->pass.step.decode && c->source.logits && !l->table.data.address)
        give_logits(c);
    bool masked =
        c->source.mask && c->source.mask(c->source.self, &c->pass.step, c->scratch.allowed);
    if (masked && !l->table.data.address) { /* what a table chooses is routed to */
        if (c->source.choice)
            publish_importance(c);
        choose(c, true);
    }
    if (core_predicts_next(c))
        predict_next(c);
    fetch_routes(c);
    if (c->pass.step.decode && !l->table.data.address && c->source.reroutes &&
        c->source.reroutes(c->source.self))
        reroute(c);
    if (c->source.routed)
        c->source.routed(c->source.self, &c->pass.step, c->pass.route);
}

/* ---- prediction ---- */

/* Adds a row's predicted routes to the counts of tokens, and to the minimum of the weights ranked
 * before. */
static void count_row(struct core *c, const struct route *routes)
{
    float *tokens = c->scratch.next_counts, *weight_before = c->scratch.next_counts + c->hp.experts;
    float before[MODEL_TOP_K_MAX];
    precision_weights_before(&routes->weight, ROUTE_STRIDE, c->hp.experts_used, before);
    for (uint32_t i = 0; i < c->hp.experts_used; i++) {
        uint32_t e = routes[i].expert;
        if (tokens[e] == 0 || before[i] < weight_before[e])
            weight_before[e] = before[i];
        tokens[e] += 1.0f;
    }
}

void core_publish_next(struct core *c)
{
    size_t pairs = (size_t)c->pass.step.rows * c->hp.experts_used;
    if (!c->pass.step.prefill || !c->source.next_counts || core_next_layer(c) == c->hp.layers)
        return;
    forecast(c, c->scratch.router_logits.at, c->scratch.predicted.at);
    const struct route *routes =
        device_fetch(c->device, &c->scratch.predicted, pairs * sizeof(struct route));
    memset(c->scratch.next_counts, 0, 2 * c->hp.experts * sizeof *c->scratch.next_counts);
    for (uint32_t r = 0; r < c->pass.step.rows; r++)
        if (c->scratch.source_row[r].prefill)
            count_row(c, routes + (size_t)r * c->hp.experts_used);
    c->source.next_counts(c->source.self, &c->pass.step, c->scratch.next_counts, c->hp.experts);
}
