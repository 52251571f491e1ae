/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of experts: gate and up of all, then down of all; and the sum of a row's experts, in rank
 * order, so that the result does not depend on the order of loads. */
#include "lib/core/internal.h"

static bool is_skipped(const struct core *c, size_t pair)
{
    return c->scratch.items[c->scratch.item_of[pair]].state == ITEM_SKIPPED;
}

/* Factor of the weights of a row, to include the share of skipped experts. */
static float skip_scale(const struct core *c, size_t at)
{
    const struct route *routes = c->pass.route + at;
    float all = 0, kept = 0;
    for (uint32_t rank = 0; rank < c->hp.experts_used; rank++) {
        all += routes[rank].weight;
        kept += is_skipped(c, at + rank) ? 0 : routes[rank].weight;
    }
    return kept > 0 && kept < all ? all / kept : 1.0f;
}

static void terms_of_row(struct core *c, uint32_t row)
{
    size_t k = c->hp.experts_used, at = row * k;
    const struct route *routes = c->pass.route + at;
    float factor = core_ffn_factor(c);
    bool inputs = c->hp.weighted_input != 0;
    float scale = core_sequence_of(c, row)->renormalise_skips ? skip_scale(c, at) : 1.0f;
    for (size_t rank = 0; rank < k; rank++) {
        bool skipped = is_skipped(c, at + rank);
        c->scratch.terms[at + rank] =
            (struct device_term){.factor = (inputs ? 1.0f : routes[rank].weight) * scale * factor,
                                 .pair = skipped ? DEVICE_NO_PAIR : c->scratch.pair_of[at + rank]};
    }
}

void core_compute_jobs(struct core *c, bool sums)
{
    const struct device_ops *ops = c->device->ops;
    uint32_t rows = c->pass.step.rows, pairs = rows * c->hp.experts_used;
    if (sums)
        terms_of_row(c, 0);
    const struct op_expert_gate_up up = {.rows = rows,
                                         .n = c->hp.expert_inner,
                                         .activation = (enum ffn_activation)c->hp.activation,
                                         .limit = model_expert_limit(&c->hp, c->pass.step.layer),
                                         .x = *core_expert_rows(c),
                                         .jobs = c->pass.job_count,
                                         .job = c->scratch.jobs,
                                         .pairs = pairs,
                                         .pair_row = c->scratch.pair_row,
                                         .inner_rows = c->scratch.inner_rows,
                                         .gate = c->scratch.gate,
                                         .up = c->scratch.up};
    const struct op_expert_down down = {.rows = rows,
                                        .inner = c->hp.expert_inner,
                                        .n = hparams_expert_width(&c->hp),
                                        .jobs = c->pass.job_count,
                                        .job = c->scratch.jobs,
                                        .inner_rows = c->scratch.inner_rows,
                                        .gate = c->scratch.gate,
                                        .pairs = pairs,
                                        .y = c->scratch.pair_out,
                                        .terms = sums ? c->hp.experts_used : 0,
                                        .term = c->scratch.terms,
                                        .into = c->pass.into};
    ops->expert_gate_up(c->device, &up);
    ops->expert_down(c->device, &down);
}

void core_sum_ranks(struct core *c)
{
    for (uint32_t r = 0; r < c->pass.step.rows; r++)
        terms_of_row(c, r);
    const struct op_add_terms sum = {.rows = c->pass.step.rows,
                                     .n = hparams_expert_width(&c->hp),
                                     .terms = c->hp.experts_used,
                                     .term = c->scratch.terms,
                                     .y = c->scratch.pair_out,
                                     .into = c->pass.into};
    c->device->ops->add_terms(c->device, &sum);
}
