/* SPDX-License-Identifier: Apache-2.0 */
/* The network that every token of a layer uses: the feed-forward part of a layer without experts, or
 * the shared expert, scaled by the sigmoid of its gate if it has one. The matrices are dense
 * weights, so a shared expert is computed while the requested experts are read; its part is added to
 * the row before theirs. */
#include "lib/core/internal.h"
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
                     end - begin, core_x(c, c->dense_first + r) + begin);
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

void core_shared_expert(struct core *c)
{
    if (c->hp.shared_inner > 0)
        run_network(c);
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
