/* SPDX-License-Identifier: Apache-2.0 */
/* Routers: logits and choices. */
#include <math.h>
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/model/limits.h"
#include "lib/router/row.h"

/* Those of the table for the token of a row. */
static void route_by_table(const struct op_route *a, const struct model_router *rule, uint32_t r,
                           float *scratch)
{
    uint32_t chosen[MODEL_TOP_K_MAX];
    sl_assert(a->table.k == rule->top_k && a->row[r].token < a->table.n);
    memcpy(chosen,
           (const uint8_t *)device_pointer(a->table.data) + a->row[r].token * a->table.row_bytes,
           rule->top_k * sizeof *chosen);
    routing_table(rule, device_floats(a->logits) + (size_t)r * a->w.n, chosen, scratch,
                  (struct route *)device_pointer(a->routes) + (size_t)r * rule->top_k);
}

static void route_row(const struct host_run *run, uint32_t r, uint32_t thread)
{
    const struct op_route *a = run->a;
    struct model_router rule = a->rule;
    rule.bias = device_floats(a->choice_bias);
    host_note(run->h, device_floats(a->logits) + (size_t)r * a->w.n, a->w.n);
    if (a->table.data.address) {
        route_by_table(a, &rule, r, run->h->thread[thread].router);
        return;
    }
    routing_exact(&rule, device_floats(a->logits) + (size_t)r * a->w.n,
                  run->h->thread[thread].router,
                  (struct route *)device_pointer(a->routes) + (size_t)r * rule.top_k);
}

/* Rows by one thread, without a barrier between product and choice. */
static void route_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_route *a = run->a;
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    if (begin == end)
        return;
    float *logits = device_floats(a->logits);
    host_product(run->h, &w, NULL, 0, w.n, rows_row(&a->x, w.type, begin),
                 rows_stride(&a->x, w.type), end - begin, logits + (size_t)begin * w.n, w.n);
    for (uint32_t r = begin; r < end; r++) {
        router_add_bias(run->h->kernels, device_floats(a->bias), 0, w.n, logits + (size_t)r * w.n);
        route_row(run, r, thread);
    }
}

static void columns_of_one(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_route *a = run->a;
    const struct kernel_matrix w = device_kernel_matrix(&a->w);
    uint32_t begin, end;
    pool_share(w.n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    router_logits(run->h->kernels, &w, device_floats(a->bias), begin, end,
                  rows_row(&a->x, w.type, 0), device_floats(a->logits));
}

void host_op_route(struct device *d, const struct op_route *a)
{
    struct host *h = host_of(d);
    struct host_run run = {h, a};
    if (a->rows > 1) {
        host_run_rows(h, a->rows, route_rows, a);
        return;
    }
    if ((uint64_t)a->w.n * a->w.k <= SERIAL_WORK)
        columns_of_one(&run, 0, 1);
    else
        pool_run(h->pool, columns_of_one, &run);
    route_row(&run, 0, 0);
}

void host_op_choose(struct device *d, const struct op_choose *a)
{
    struct host *h = host_of(d);
    struct model_router rule = a->rule;
    rule.bias = device_floats(a->choice_bias);
    for (uint32_t r = 0; r < a->rows; r++) {
        const float *logits = device_floats(a->logits) + (size_t)r * rule.experts;
        uint32_t n =
            routing_masked(&rule, logits, a->masked > 0 ? a->allowed : NULL, h->thread[0].router,
                           (struct route *)device_pointer(a->routes) + (size_t)r * rule.top_k);
        sl_assert(n == rule.top_k); /* at least as many experts are allowed */
    }
}

static float norm_of(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

void host_add_importance(const struct model_router *rule, const float *logits, const float *x,
                         uint32_t n, float *scratch, float *importance)
{
    struct route choice[MODEL_TOP_K_MAX];
    struct model_router probabilities = *rule;
    probabilities.normalise = false;
    routing_exact(&probabilities, logits, scratch, choice);
    float norm = norm_of(x, n);
    for (uint32_t k = 0; k < rule->top_k; k++)
        importance[choice[k].expert] += norm * choice[k].weight;
}

void host_op_importance(struct device *d, const struct op_importance *a)
{
    struct host *h = host_of(d);
    struct model_router rule = a->rule;
    float *importance = device_floats(a->importance);
    rule.bias = device_floats(a->choice_bias);
    memset(importance, 0, a->rule.experts * sizeof *importance);
    for (uint32_t r = 0; r < a->rows; r++)
        host_add_importance(&rule, device_floats(a->logits) + (size_t)r * rule.experts,
                            rows_floats(&a->x, r), a->x.k, h->thread[0].router, importance);
}
