/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic mode: the model core runs for real, but the simulator's clock decides what is
 * resident and when (docs/architecture.md). The core's callbacks call a sim_cache; the owner of
 * the weights gets the outcome of each access here - hit at a precision, in flight, miss, skipped -
 * and waits for the real bytes as long as it takes. The same model, tokens, parameters and seed
 * give the same decisions and the same text at any real speed, and `sluice sim` the same statistics
 * on the trace.
 *
 * Order of calls in a pass: known (of layers with a table of experts), layer_starts, gate_input,
 * logits and reroute (if some row decodes), routed, result..., next_counts (if some row is of a
 * prompt), for every layer; then token_end. A sequence's passes are between its sequence_starts and
 * sequence_ends. One thread. */
#ifndef SLUICE_DETERMINISTIC_DETERMINISTIC_H
#define SLUICE_DETERMINISTIC_DETERMINISTIC_H

#include "lib/core/weights.h"
#include "lib/kernels/kernels.h"
#include "lib/plan/plan.h"
#include "lib/sim/sim.h"

struct deterministic;

/* Where and for which a prediction was made. */
struct deterministic_prediction {
    const struct expert_row *row; /* the one that decodes; of a chunk: the first */
    uint32_t rows;                /* that it is for: 1, or those of the pass */
    uint32_t from_layer, layer;   /* the layer that was routed; the one that is predicted */
    uint32_t rank;                /* from 0, descending probability */
};

struct deterministic_config {
    const struct model_index *model; /* borrowed */
    const struct kernel_ops *ops;
    struct sim_config sim; /* its plan's arrays are borrowed */
    /* Payload of a dense entry (routers). */
    const void *(*dense)(void *self, uint32_t entry);
    /* Called for every prediction, for traces; may be NULL. */
    void (*predicted)(void *self, const struct deterministic_prediction *made,
                      const struct prediction *prediction);
    void *self;
};

/* NULL with ERR_BAD_INPUT (sim_cache_create) or ERR_NO_MEMORY. */
struct deterministic *deterministic_create(const struct deterministic_config *config,
                                           struct error *error);
void deterministic_destroy(struct deterministic *l);

void deterministic_sequence_starts(struct deterministic *l, uint32_t sequence);
void deterministic_sequence_ends(struct deterministic *l, uint32_t sequence);
/* weights_source.known: in a pass with rows of one sequence. */
void deterministic_known(struct deterministic *l, const struct expert_step *step, uint32_t layer,
                         const uint32_t *tokens);
void deterministic_layer_starts(struct deterministic *l, const struct expert_step *step);
/* x stays valid until deterministic_routed. */
void deterministic_gate_input(struct deterministic *l, const struct expert_step *step,
                              const float *x, uint32_t n);
/* Levels of all experts of the layer (residency.h): once for each row that decodes, in their order,
 * if the eviction reads logits. */
void deterministic_logits(struct deterministic *l, const uint8_t *levels);
/* With routing resident-first, after the logits: whether an access would be a hit in the simulated
 * cache now. weight_before: of precision.h. */
bool deterministic_serves(struct deterministic *l, const struct expert_step *step, uint32_t expert,
                          float weight_before);
/* With routing resident-first, after the logits: replaces routes of the rows that decode by what is
 * resident in the simulated cache now. logits: [rows][experts]. Returns how many were replaced. */
uint32_t deterministic_reroute(struct deterministic *l, const struct expert_step *step,
                               const float *logits, const struct model_router *rule,
                               struct route *routes);
void deterministic_routed(struct deterministic *l, const struct expert_step *step,
                          const struct route *routes);
void deterministic_next_counts(struct deterministic *l, const struct expert_step *step,
                               const float *counts, uint32_t experts);
void deterministic_token_end(struct deterministic *l);

/* Outcome of the access to an expert in the layer routed last. */
const struct sim_access_result *deterministic_result(const struct deterministic *l,
                                                     uint32_t expert);

/* Modelled residency; it determines the order of work in prefill. */
bool deterministic_resident(const struct deterministic *l, uint32_t layer, uint32_t expert);

struct sim_cache *deterministic_cache(struct deterministic *l);

/* A sim_config for this model and these parameters: precisions and their sizes from the index;
 * storage device and compute from the plan where it has them, otherwise 1 GB/s reads and 20 GB/s
 * compute. */
void deterministic_model(const struct model_index *model, const struct knobs *knobs,
                         const struct plan *plan, uint64_t capacity, struct sim_config *config);

#endif
