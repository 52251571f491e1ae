/* Lockstep: the model core runs for real, but what is resident, and when, is decided by the
 * simulator's clock (DESIGN.md §5). The core's callbacks drive a sim_cache; whoever owns the
 * weights asks here what the use of an expert is - hit at a tier, late, miss, skipped - and waits
 * for the real bytes as long as it takes. The same model, tokens, knobs and seed give the same
 * decisions and the same text at any real speed, and `sluice sim` the same figures on the trace.
 *
 * Order of calls in a pass: layer_begins, gate_input and logits (decode), routed, answer...,
 * next_counts (prefill), and so for every layer; then token_end. One thread. */
#ifndef SLUICE_DETERMINISTIC_DETERMINISTIC_H
#define SLUICE_DETERMINISTIC_DETERMINISTIC_H

#include "lib/core/weights.h"
#include "lib/kernels/kernels.h"
#include "lib/plan/plan.h"
#include "lib/sim/sim.h"

struct lockstep;

struct lockstep_config {
    const struct model_index *model; /* borrowed */
    const struct kernel_ops *ops;
    struct sim_config sim; /* its plan's arrays are borrowed */
    /* Payload of a dense entry (routers). */
    const void *(*dense)(void *self, uint32_t entry);
    /* Every guess made, for traces; may be NULL. rank counts from 0, descending probability. */
    void (*guessed)(void *self, const struct expert_step *step, uint32_t layer, uint32_t rank,
                    const struct guess *guess);
    void *self;
};

/* NULL with ERR_BAD_INPUT (sim_cache_create) or ERR_NO_MEMORY. */
struct lockstep *lockstep_create(const struct lockstep_config *config, struct error *error);
void lockstep_destroy(struct lockstep *l);

void lockstep_layer_begins(struct lockstep *l, const struct expert_step *step);
void lockstep_gate_input(struct lockstep *l, const struct expert_step *step, const float *x,
                         uint32_t n);
/* Levels of all experts of the layer (residency.h); decode, where the eviction looks at them. */
void lockstep_logits(struct lockstep *l, const uint8_t *levels);
void lockstep_routed(struct lockstep *l, const struct expert_step *step,
                     const struct route *routes);
void lockstep_next_counts(struct lockstep *l, const struct expert_step *step, const float *counts,
                          uint32_t experts);
void lockstep_token_end(struct lockstep *l);

/* What the use of an expert in the layer routed last is. */
const struct sim_answer *lockstep_answer(const struct lockstep *l, uint32_t expert);

/* Modelled residency: the order of work in prefill follows it. */
bool lockstep_resident(const struct lockstep *l, uint32_t layer, uint32_t expert);

struct sim_cache *lockstep_cache(struct lockstep *l);

/* A sim_config for this model and these knobs: tiers and their bytes from the index, drive and
 * compute from the plan where it knows them, else a drive of 1 GB/s and a compute of 32 GB/s. */
void lockstep_model(const struct model_index *model, const struct knobs *knobs,
                    const struct plan *plan, uint64_t capacity, struct sim_config *config);

#endif
