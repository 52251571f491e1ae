/* SPDX-License-Identifier: Apache-2.0 */
/* The shared expert: every token of a layer uses it, scaled by the sigmoid of its own gate. Its
 * matrices are dense weights, so it is computed while the requested experts are read; its part is
 * added to the row before theirs. */
#include "lib/core/internal.h"
#include "lib/exact/elementary.h"

/* Outputs begin .. end - 1 of gate and up, and their product, for the rows of the block. */
static void gate_up_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *gate = &l->shared[EXPERT_GATE], *up = &l->shared[EXPERT_UP];
    uint32_t begin, end, first = c->shared_first, rows = c->shared_rows;
    pool_share(gate->n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_alive(c, thread);
    core_product(c, gate, l->shared_scale[EXPERT_GATE], begin, end,
                 form_row(&c->in, gate->type, first), form_stride(&c->in, gate->type), rows,
                 form_floats(&c->shared, 0), gate->n);
    core_product(c, up, l->shared_scale[EXPERT_UP], begin, end, form_row(&c->in, up->type, first),
                 form_stride(&c->in, up->type), rows, c->shared_up, up->n);
    for (uint32_t r = 0; r < rows; r++) {
        float *at = form_floats(&c->shared, r) + begin;
        c->ops->silu_mul(at, c->shared_up + (size_t)r * up->n + begin, end - begin, at);
    }
}

/* The gate of each row, and the row in the form of the down matrix. */
static void gate_rows(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w = &l->shared_router;
    uint32_t begin, end;
    pool_share(c->shared_rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float logit;
        core_make_forms(c, &c->shared, r, form_bit(&l->shared[EXPERT_DOWN]));
        c->ops->matmul(w, 0, 1, form_row(&c->in, w->type, c->shared_first + r),
                       form_stride(&c->in, w->type), 1, &logit, 1);
        c->shared_weight[r] = (float)(1.0 / (1.0 + exact_exp(-(double)logit)));
    }
}

static void down_columns(void *arg, uint32_t thread, uint32_t threads)
{
    struct core *c = arg;
    const struct core_layer *l = core_layer_now(c);
    const struct kernel_matrix *w = &l->shared[EXPERT_DOWN];
    uint32_t begin, end;
    pool_share(w->n, COLUMN_UNIT, thread, threads, &begin, &end);
    if (begin == end)
        return;
    core_alive(c, thread);
    core_product(c, w, l->shared_scale[EXPERT_DOWN], begin, end, form_row(&c->shared, w->type, 0),
                 form_stride(&c->shared, w->type), c->shared_rows, c->y, w->n);
    for (uint32_t r = 0; r < c->shared_rows; r++)
        c->ops->axpy(c->shared_weight[r], c->y + (size_t)r * w->n + begin, end - begin,
                     core_x(c, c->shared_first + r) + begin);
}

/* No effect for a model without a shared expert. */
void core_shared_expert(struct core *c)
{
    if (c->hp.shared_inner == 0)
        return;
    for (uint32_t first = 0; first < c->step.rows; first += GATHER_ROWS) {
        uint32_t rows = c->step.rows - first;
        c->shared_first = first;
        c->shared_rows = rows < GATHER_ROWS ? rows : GATHER_ROWS;
        core_run_columns(c, 2 * c->hp.shared_inner, c->hp.hidden, c->shared_rows, gate_up_columns);
        core_run_rows(c, c->shared_rows, gate_rows);
        core_run_columns(c, c->hp.hidden, c->hp.shared_inner, c->shared_rows, down_columns);
    }
}
