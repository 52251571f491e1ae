/* SPDX-License-Identifier: Apache-2.0 */
/* The network that every token of a layer uses: the feed-forward part of a layer without experts, a dense
 * network next to experts, or the shared expert, scaled by the sigmoid of its gate if it has one. The matrices are dense
 * weights, so a shared expert is computed while the requested experts are read; its part is added to
 * the row before theirs. */
#include "lib/core/internal.h"

#include <string.h>

#include "lib/exact/elementary.h"

/* Outputs begin .. end - 1 of gate and up, and their product, for the rows of the block. */
static void gate_up_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *gate = &l->dense[EXPERT_GATE], *up = &l->dense[EXPERT_UP];
    uint32_t begin, end, first = c->dense_first, rows = c->dense_rows;
    pool_share(gate->n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_alive(c, thread);
    core_product(c, gate, l->dense_scale[EXPERT_GATE], begin, end,
                 form_row(&c->in, gate->type, first), form_stride(&c->in, gate->type), rows,
                 form_floats(&c->dense, 0), gate->n);
    core_product(c, up, l->dense_scale[EXPERT_UP], begin, end, form_row(&c->in, up->type, first),
                 form_stride(&c->in, up->type), rows, c->dense_up, up->n);
    for (uint32_t r = 0; r < rows; r++) {
        float *at = form_floats(&c->dense, r) + begin;
        core_activate(c, at, c->dense_up + (size_t)r * up->n + begin, end - begin, at);
    }
}

/* The gate of each row, and the row in the form of the down matrix. */
static void gate_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w = &l->shared_router;
    uint32_t begin, end;
    pool_share(c->dense_rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float logit;
        core_make_forms(c, &c->dense, r, form_bit(&l->dense[EXPERT_DOWN]));
        c->shared_weight[r] = 1.0f;
        if (!w->data)
            continue;
        c->ops->matmul(w, 0, 1, form_row(&c->in, w->type, c->dense_first + r),
                       form_stride(&c->in, w->type), 1, &logit, 1);
        c->shared_weight[r] = (float)(1.0 / (1.0 + exact_exp(-(double)logit)));
    }
}

static void down_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w = &l->dense[EXPERT_DOWN];
    uint32_t begin, end;
    pool_share(w->n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_alive(c, thread);
    core_product(c, w, l->dense_scale[EXPERT_DOWN], begin, end, form_row(&c->dense, w->type, 0),
                 form_stride(&c->dense, w->type), c->dense_rows, c->y, w->n);
    for (uint32_t r = 0; r < c->dense_rows; r++)
        c->ops->axpy(c->shared_weight[r] * c->residual, c->y + (size_t)r * w->n + begin,
                     end - begin, core_into(c, c->dense_first + r) + begin);
}

static void run_network(struct core *c)
{
    uint32_t inner = core_layer_now(c)->dense[EXPERT_GATE].n;
    form_rows_set(&c->dense, inner);
    for (uint32_t first = 0; first < c->step.rows; first += GATHER_ROWS) {
        uint32_t rows = c->step.rows - first;
        c->dense_first = first;
        c->dense_rows = rows < GATHER_ROWS ? rows : GATHER_ROWS;
        core_run_columns(c, 2 * inner, c->hp.hidden, c->dense_rows, gate_up_columns);
        core_run_rows(c, c->dense_rows, gate_rows);
        core_run_columns(c, c->hp.hidden, inner, c->dense_rows, down_columns);
    }
}

static void norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        core_ffn_norm(c, r);
}

void core_dense_layer(struct core *c)
{
    core_run_rows(c, c->step.rows, norm_rows);
    run_network(c);
}

/* ---- a dense network next to experts ---- */

static void experts_norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    uint32_t begin, end;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        c->ops->rms_norm(core_x(c, r), l->experts_norm, c->hp.hidden, c->hp.rms_eps,
                         form_floats(&c->in, r));
        core_make_forms(c, &c->in, r, l->expert_forms);
    }
}

void core_while_reading(struct core *c)
{
    size_t bytes = (size_t)c->step.rows * c->hp.hidden * sizeof(float);
    if (c->model->layer[c->step.layer].ffn != FFN_DENSE_AND_EXPERTS) {
        if (c->hp.shared_inner > 0)
            run_network(c);
        return;
    }
    memset(c->sum, 0, bytes);
    c->into = c->sum;
    core_dense_layer(c);
    core_run_rows(c, c->step.rows, experts_norm_rows);
    memset(c->experts_sum, 0, bytes);
    c->into = c->experts_sum;
}

static void join_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    uint32_t begin, end, n = c->hp.hidden;
    pool_share(c->step.rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *x = core_x(c, r);
        float *dense = c->sum + (size_t)r * n, *experts = c->experts_sum + (size_t)r * n;
        c->ops->rms_norm(dense, l->dense_post_norm, n, c->hp.rms_eps, dense);
        c->ops->rms_norm(experts, l->experts_post_norm, n, c->hp.rms_eps, experts);
        c->ops->axpy(1.0f, experts, n, dense);
        c->ops->rms_norm(dense, l->ffn_post_norm, n, c->hp.rms_eps, dense);
        c->ops->axpy(1.0f, dense, n, x);
        for (uint32_t i = 0; l->layer_scale && i < n; i++)
            x[i] *= *l->layer_scale;
    }
}

void core_join_parts(struct core *c)
{
    core_run_rows(c, c->step.rows, join_rows);
}
