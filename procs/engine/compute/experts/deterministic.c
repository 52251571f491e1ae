/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic mode (lib/deterministic): the simulated cache decides which precision serves an
 * access and what is resident; the real bytes are waited for as long as it takes. These functions
 * take the place of those with the same names in experts_source. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/experts/experts.h"

static bool simulated_resident(void *self, uint32_t layer, uint32_t expert)
{
    const struct experts *e = self;
    return deterministic_resident(e->deterministic, layer, expert);
}

static enum access_outcome pin_as_simulated(struct experts *e, const struct expert_step *step,
                                            struct expert_item *item, enum precision_need *need)
{
    static const enum access_outcome outcomes[] = {[SIM_HIT] = ACCESS_HIT,
                                                   [SIM_INFLIGHT] = ACCESS_INFLIGHT,
                                                   [SIM_MISS] = ACCESS_MISS,
                                                   [SIM_SKIPPED] = ACCESS_SKIPPED};
    const struct sim_access_result *result = deterministic_result(e->deterministic, item->expert);
    *need = NEED_SKIP;
    if (result->outcome == SIM_SKIPPED) {
        item->state = ITEM_SKIPPED;
        return ACCESS_SKIPPED;
    }
    struct precision_choice choice = {.need = NEED_HIGH,
                                      .request = result->precision,
                                      .accept_count = 1,
                                      .accept = {result->precision}};
    *need = result->precision == e->precision_policy.low &&
                    e->precision_policy.low != e->precision_policy.high
                ? NEED_LOW
                : NEED_HIGH;
    (void)experts_pin_choice(e, step, item, &choice);
    return outcomes[result->outcome];
}

static void simulated_pin(void *self, const struct expert_step *step, struct expert_item **items,
                          uint32_t count)
{
    experts_pin_items(self, step, items, count, pin_as_simulated);
}

static void simulated_gate_input(void *self, const struct expert_step *step, const float *x,
                                 uint32_t n)
{
    struct experts *e = self;
    deterministic_gate_input(e->deterministic, step, x, n);
    experts_gate_input(self, step, x, n);
}

static void simulated_logits(void *self, const struct expert_step *step, const float *logits,
                             const struct model_router *rule)
{
    struct experts *e = self;
    experts_log_router(e, step, logits, rule);
    for (uint32_t r = 0; r < step->rows && e->logs_logits; r++) {
        if (step->row[r].prefill)
            continue;
        experts_log_levels(e, step->layer, &step->row[r], logits + (size_t)r * rule->experts, rule);
        deterministic_logits(e->deterministic, e->levels);
    }
}

static void simulated_reroute(void *self, const struct expert_step *step, const float *logits,
                              const struct model_router *rule, struct route *routes)
{
    struct experts *e = self;
    experts_log_candidates(e, step, logits, rule, routes);
    uint32_t replaced = deterministic_reroute(e->deterministic, step, logits, rule, routes);
    counter_add(e->child->process, CTR_COMPUTE_rerouted_accesses, replaced);
}

static void simulated_routed(void *self, const struct expert_step *step, const struct route *routes)
{
    struct experts *e = self;
    deterministic_routed(e->deterministic, step, routes);
    experts_routed(self, step, routes);
}

static void simulated_next_counts(void *self, const struct expert_step *step, const float *counts,
                                  uint32_t experts)
{
    struct experts *e = self;
    deterministic_next_counts(e->deterministic, step, counts, experts);
    experts_next_counts(self, step, counts, experts);
}

/* Predictions go into the access log as trace records, so that the simulator can repeat them: after
 * the accesses of the layer in which they were made. */
static void note_prediction(void *self, const struct deterministic_prediction *made,
                            const struct prediction *prediction)
{
    struct experts *e = self;
    struct access_record record = {.sequence = made->row->sequence,
                                   .position = made->row->position,
                                   .tokens = made->rows,
                                   .weight = prediction->probability,
                                   .layer = (uint16_t)made->layer,
                                   .expert = (uint16_t)prediction->expert,
                                   .kind = TRACE_PREDICTED,
                                   .rank =
                                       (uint8_t)(made->rank < UINT8_MAX ? made->rank : UINT8_MAX),
                                   .prefill = made->row->prefill,
                                   .from_layer = (uint16_t)made->from_layer,
                                   .before = prediction->weight_before};
    if (e->predictions_count < e->predictions_max)
        e->predictions[e->predictions_count++] = record;
}

static void log_predictions(struct experts *e)
{
    for (uint32_t i = 0; i < e->predictions_count; i++)
        access_log_append(&e->child->access_log, &e->predictions[i]);
    e->predictions_count = 0;
}

static void simulated_known(void *self, const struct expert_step *step, uint32_t layer,
                            uint32_t row, const uint32_t *tokens)
{
    struct experts *e = self;
    deterministic_known(e->deterministic, step, layer, tokens);
    experts_known(self, step, layer, row, tokens);
}

static void simulated_layer_starts(void *self, const struct expert_step *step)
{
    struct experts *e = self;
    log_predictions(e);
    deterministic_layer_starts(e->deterministic, step);
    experts_layer_starts(self, step);
}

void experts_sequence_starts(struct experts *e, uint32_t sequence)
{
    memset(e->bias_logged, 0, sizeof e->bias_logged);
    if (e->deterministic)
        deterministic_sequence_starts(e->deterministic, sequence);
}

void experts_sequence_ends(struct experts *e, uint32_t sequence)
{
    if (e->deterministic)
        deterministic_sequence_ends(e->deterministic, sequence);
}

void experts_pass_ends(struct experts *e)
{
    uint64_t demand = 0, prefetch = 0;
    if (!e->deterministic)
        return;
    log_predictions(e);
    deterministic_token_end(e->deterministic);
    for (int p = 0; p < SIM_PHASES; p++) {
        const struct sim_stats *f =
            sim_cache_stats(deterministic_cache(e->deterministic), (enum sim_phase)p);
        demand += f->demand_bytes;
        prefetch += f->prefetch_bytes;
    }
    counter_set(e->child->process, CTR_COMPUTE_modelled_demand_bytes, demand);
    counter_set(e->child->process, CTR_COMPUTE_modelled_prefetch_bytes, prefetch);
}

void experts_simulate(struct weights_source *source)
{
    source->resident = simulated_resident;
    source->pin = simulated_pin;
    source->gate_input = simulated_gate_input;
    source->logits = simulated_logits;
    source->reroute = simulated_reroute;
    source->routed = simulated_routed;
    source->next_counts = simulated_next_counts;
    source->layer_starts = simulated_layer_starts;
    if (source->known)
        source->known = simulated_known;
    source->whole_on_device = NULL; /* the simulated cache sees every access */
    source->used = NULL;
}

int experts_make_deterministic(struct experts *e, struct error *error)
{
    struct deterministic_config config = {.model = e->child->model,
                                          .ops = kernel_ops_select(e->child->params->isa),
                                          .dense = experts_dense,
                                          .predicted = note_prediction,
                                          .self = e};
    deterministic_destroy(e->deterministic);
    e->deterministic = NULL;
    if (!e->child->params->deterministic)
        return 0;
    /* at most four layers ahead; memory that no pass uses is not backed */
    e->predictions_max = 4 * e->child->model->hparams.experts * DECODE_ROWS_MAX;
    e->predictions_count = 0;
    if (!e->predictions)
        e->predictions = calloc(e->predictions_max, sizeof *e->predictions);
    if (!e->predictions)
        return error_set(error, ERR_NO_MEMORY, "out of memory (predictions)");
    deterministic_model(e->child->model, &e->knobs, e->child->plan, experts_capacity_bytes(e),
                        &config.sim);
    e->deterministic = deterministic_create(&config, error);
    return e->deterministic ? 0 : -1;
}
