/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the gates ring, for the predictor. Parameters change between sequences: rows that the
 * preset does not use are not published. */
#include "lib/base/assert.h"
#include "procs/engine/compute/experts/experts.h"

void experts_gate_input(void *self, const struct expert_step *step, const float *x, uint32_t n)
{
    struct experts *e = self;
    experts_log_inputs(e, step, x, n);
    if (e->publishes == PREDICT_LOGITS)
        e->publish = (struct gate_rows){.kind = GATES_INPUT, .inputs = x, .count = n};
}

/* For predictions from chosen experts, tables or the layer alone. */
void experts_routed(void *self, const struct expert_step *step, const struct route *routes)
{
    struct experts *e = self;
    experts_keep_routed(e, step, routes);
    if (step->decode && e->publishes != PREDICT_NOTHING && e->publishes != PREDICT_LOGITS)
        e->publish = (struct gate_rows){.kind = GATES_ROUTES,
                                        .count = e->child->model->hparams.experts_used};
}

void experts_publish_rows(struct experts *e, const struct expert_step *step)
{
    const struct gate_rows *p = &e->publish;
    float chosen[MODEL_TOP_K_MAX];
    sl_assert(e->demand.count == 0); /* the demanded read comes first */
    for (uint32_t r = 0; r < step->rows && p->count > 0; r++) {
        const struct expert_row *row = &step->row[r];
        const float *values = p->kind == GATES_INPUT ? p->inputs + (size_t)r * p->count : chosen;
        if (row->prefill)
            continue;
        for (uint32_t i = 0; i < p->count && p->kind == GATES_ROUTES; i++)
            chosen[i] = (float)step->routes[(size_t)r * p->count + i].expert;
        gates_publish(&e->child->gates,
                      &(struct gates_place){step->layer, row->sequence, row->position, row->token},
                      p->kind, values, p->count);
    }
    e->publish.count = 0;
}

void experts_next_counts(void *self, const struct expert_step *step, const float *counts,
                         uint32_t experts)
{
    struct experts *e = self;
    if (e->predicts_chunks)
        gates_publish(&e->child->gates,
                      &(struct gates_place){.layer = step->layer,
                                            .sequence = step->row->sequence,
                                            .position = step->row->position},
                      GATES_COUNTS, counts, 2 * experts);
}
