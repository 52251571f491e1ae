/* Lockstep: the model core runs for real, but what is resident, and when, is decided by the
 * simulator's clock (DESIGN.md §5). The core's callbacks drive a sim_cache; whoever owns the
 * weights asks here what the use of an expert is - hit at a tier, late, miss, skipped - and waits
 * for the real bytes as long as it takes. The same model, tokens, knobs and seed give the same
 * decisions and the same text at any real speed, and `sluice sim` the same figures on the trace.
 *
 * Order of calls in a pass: layer_starts, gate_input and logits (decode), routed, answer...,
 * next_counts (prefill), and so for every layer; then token_end. One thread. */
#ifndef SLUICE_DETERMINISTIC_DETERMINISTIC_H
#define SLUICE_DETERMINISTIC_DETERMINISTIC_H

#include "lib/core/weights.h"
#include "lib/kernels/kernels.h"
#include "lib/plan/plan.h"
#include "lib/sim/sim.h"

struct deterministic;

struct deterministic_config {
    const struct model_index *model; /* borrowed */
    const struct kernel_ops *ops;
    struct sim_config sim; /* its plan's arrays are borrowed */
    /* Payload of a dense entry (routers). */
    const void *(*dense)(void *self, uint32_t entry);
    /* Every guess made, for traces; may be NULL. rank counts from 0, descending probability. */
    void (*predicted)(void *self, const struct expert_step *step, uint32_t layer, uint32_t rank,
                      const struct prediction *prediction);
    void *self;
};

/* NULL with ERR_BAD_INPUT (sim_cache_create) or ERR_NO_MEMORY. */
struct deterministic *deterministic_create(const struct deterministic_config *config,
                                           struct error *error);
void deterministic_destroy(struct deterministic *l);

void deterministic_layer_starts(struct deterministic *l, const struct expert_step *step);
void deterministic_gate_input(struct deterministic *l, const struct expert_step *step,
                              const float *x, uint32_t n);
/* Levels of all experts of the layer (residency.h); decode, where the eviction looks at them. */
void deterministic_logits(struct deterministic *l, const uint8_t *levels);
void deterministic_routed(struct deterministic *l, const struct expert_step *step,
                          const struct route *routes);
void deterministic_next_counts(struct deterministic *l, const struct expert_step *step,
                               const float *counts, uint32_t experts);
void deterministic_token_end(struct deterministic *l);

/* What the use of an expert in the layer routed last is. */
const struct sim_access_result *deterministic_result(const struct deterministic *l,
                                                     uint32_t expert);

/* Modelled residency: the order of work in prefill follows it. */
bool deterministic_resident(const struct deterministic *l, uint32_t layer, uint32_t expert);

struct sim_cache *deterministic_cache(struct deterministic *l);

/* A sim_config for this model and these knobs: tiers and their bytes from the index, drive and
 * compute from the plan where it knows them, else a drive of 1 GB/s and a compute of 20 GB/s. */
void deterministic_model(const struct model_index *model, const struct knobs *knobs,
                         const struct plan *plan, uint64_t capacity, struct sim_config *config);

#endif
