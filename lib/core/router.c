/* SPDX-License-Identifier: Apache-2.0 */
/* Gate input, router, and the prediction of the next layer during prefill. */
#include "lib/core/internal.h"
#include "lib/policy/access/precision.h"

#include <math.h>
#include <string.h>

#include "lib/model/limits.h"

void core_ffn_norm(struct core *c, uint32_t r)
{
    struct core_layer *l = core_layer_now(c);
    core_norm(c, core_x(c, r), l->ffn_norm, l->ffn_norm_bias, c->hp.hidden, form_floats(&c->in, r));
    core_make_forms(c, &c->in, r, l->gate_forms);
}

/* What a router reads, of a row on. */
static const void *router_input(const struct core *c, const struct kernel_matrix *w, uint32_t row,
                                size_t *stride)
{
    *stride = c->hp.router_first ? c->hp.hidden * sizeof(float) : form_stride(&c->in, w->type);
    return c->hp.router_first ? core_x(c, row) : form_row(&c->in, w->type, row);
}

/* Adds the bias of the logits, if the router has one, to the experts [begin, end). */
static void add_logit_bias(const struct core *c, const struct core_layer *l, uint32_t begin,
                           uint32_t end, float *logits)
{
    if (l->logit_bias)
        c->ops->axpy(1.0f, l->logit_bias + begin, end - begin, logits + begin);
}

static void router_columns(struct core *c, const struct core_layer *l, uint32_t row, uint32_t begin,
                           uint32_t end, float *logits)
{
    size_t stride;
    const void *x = router_input(c, &l->router, row, &stride);
    if (begin == end)
        return;
    c->ops->matmul(&l->router, begin, end, x, stride, 1, logits, l->router.n);
    add_logit_bias(c, l, begin, end, logits);
}

static void route_row(struct core *c, uint32_t r, uint32_t thread)
{
    routing_exact(&core_layer_now(c)->routing, c->router_logits + (size_t)r * c->hp.experts,
                  c->thread[thread].router, c->routes + (size_t)r * c->hp.experts_used);
}

/* Norm and routing of a row by one thread, without a barrier between them. */
static void gate_and_route_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct kernel_matrix *w = &core_layer_now(c)->router;
    uint32_t begin, end;
    size_t stride;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end && !c->hp.router_first; r++)
        core_ffn_norm(c, r);
    const void *x = router_input(c, w, begin, &stride);
    if (begin < end)
        c->ops->matmul(w, 0, w->n, x, stride, end - begin, c->router_logits + (size_t)begin * w->n,
                       w->n);
    for (uint32_t r = begin; r < end; r++) {
        add_logit_bias(c, core_layer_now(c), 0, w->n, c->router_logits + (size_t)r * w->n);
        route_row(c, r, thread);
    }
}

static void router_columns_of_one(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    uint32_t begin, end;
    pool_share(l->router.n, COLUMN_UNIT, thread, threads, &begin, &end);
    router_columns(c, l, 0, begin, end, c->router_logits);
}

/* ---- masked routing (SwapMoE) ---- */

static float norm_of(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

/* Importance of the unmasked choice: |x| * G(x) of each of the row's top-k. */
static void add_importance(struct core *c, uint32_t r)
{
    struct route choice[MODEL_TOP_K_MAX];
    struct model_router probabilities = core_layer_now(c)->routing;
    probabilities.normalise = false;
    routing_exact(&probabilities, c->router_logits + (size_t)r * c->hp.experts, c->thread[0].router,
                  choice);
    float norm = norm_of(c->hp.router_first ? core_x(c, r) : form_floats(&c->in, r), c->hp.hidden);
    for (uint32_t k = 0; k < c->hp.experts_used; k++)
        c->importance[choice[k].expert] += norm * choice[k].weight;
}

static void route_masked(struct core *c, uint32_t r)
{
    uint32_t k = c->hp.experts_used;
    uint32_t n =
        routing_masked(&core_layer_now(c)->routing, c->router_logits + (size_t)r * c->hp.experts,
                       c->allowed, c->thread[0].router, c->routes + (size_t)r * k);
    sl_assert(n == k); /* the source allows at least top-k experts */
}

/* Repeats the exact routing under the mask. */
static void mask_rows(struct core *c)
{
    memset(c->importance, 0, c->hp.experts * sizeof *c->importance);
    for (uint32_t r = 0; r < c->step.rows; r++) {
        if (c->source.choice)
            add_importance(c, r);
        route_masked(c, r);
    }
    if (c->source.choice)
        c->source.choice(c->source.self, &c->step, c->importance);
}

void core_route_again(struct core *c)
{
    sl_assert(c->step.rows == 1 && c->source.mask);
    if (c->source.mask(c->source.self, &c->step, c->allowed))
        route_masked(c, 0);
    else
        route_row(c, 0, 0);
}

static void norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        core_ffn_norm(c, r);
}

static void route_rows(struct core *c)
{
    if (c->step.rows > 1) {
        core_run_rows(c, c->step.rows, gate_and_route_rows);
    } else {
        const struct kernel_matrix *w = &core_layer_now(c)->router;
        if (!c->hp.router_first)
            core_ffn_norm(c, 0);
        if (c->source.gate_input)
            c->source.gate_input(c->source.self, &c->step,
                                 c->hp.router_first ? core_x(c, 0) : form_floats(&c->in, 0),
                                 c->hp.hidden);
        if ((uint64_t)w->n * w->k <= SERIAL_WORK)
            router_columns(c, core_layer_now(c), 0, 0, w->n, c->router_logits);
        else
            pool_run(c->pool, router_columns_of_one, c);
        route_row(c, 0, 0);
        if (c->source.logits)
            c->source.logits(c->source.self, &c->step, c->router_logits, c->hp.experts);
    }
    if (c->source.mask && c->source.mask(c->source.self, &c->step, c->allowed))
        mask_rows(c);
    if (c->source.routed)
        c->source.routed(c->source.self, &c->step, c->routes);
}

void core_route_first(struct core *c)
{
    route_rows(c);
}

void core_experts_gate(struct core *c)
{
    if (c->hp.router_first)
        core_run_rows(c, c->step.rows, norm_rows);
    else
        route_rows(c);
}

/* Routes of the next layer: its router on this layer's gate input. */
static void forecast_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *next = &c->layer[c->step.layer + 1];
    uint32_t n = next->router.n;
    struct model_router routing = next->routing;
    uint32_t begin, end, k = c->hp.experts_used;
    routing.normalise = true;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *logits = c->thread[thread].router + ROUTING_SCRATCH(n);
        router_columns(c, next, r, 0, n, logits);
        routing_exact(&routing, logits, c->thread[thread].router, c->predicted + (size_t)r * k);
    }
}

/* Adds a row's predicted routes to the counts of tokens, and to the minimum of the weights ranked
 * before. */
static void count_row(struct core *c, const struct route *routes)
{
    float *tokens = c->next_counts, *weight_before = c->next_counts + c->hp.experts;
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
    if (c->step.rows == 1 || !c->source.next_counts || c->step.layer + 1 >= c->hp.layers ||
        !model_layer_has_experts(c->model, c->step.layer + 1))
        return;
    core_run_rows(c, c->step.rows, forecast_rows);
    memset(c->next_counts, 0, 2 * c->hp.experts * sizeof *c->next_counts);
    for (uint32_t r = 0; r < c->step.rows; r++)
        count_row(c, c->predicted + (size_t)r * c->hp.experts_used);
    c->source.next_counts(c->source.self, &c->step, c->next_counts, c->hp.experts);
}
