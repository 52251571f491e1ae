/* What a plan says about a system's knobs, as settings that knobs_resolve takes. */
#ifndef SLUICE_POLICY_PRESETS_PLANNED_H
#define SLUICE_POLICY_PRESETS_PLANNED_H

#include "lib/plan/plan.h"

/* "t1=0.6,t2=0.9,...": what the plan knows for this system (number in presets.tbl.h); "" when it
 * knows nothing. Returns buf. */
const char *planned_settings(const struct plan *plan, uint32_t preset, char *buf, size_t bytes);

/* Experts that fit: by their slots into what the quota leaves beside the dense tensors, by their
 * payload under the cap on experts. The largest are reckoned with. */
uint32_t planned_capacity(const struct model_index *m, uint64_t quota, uint64_t cap);

/* Virtual experts of every layer (SwapMoE): the plan's v_i, or without them the same share of every
 * layer, made to fit `capacity` entries in all; top_k <= v[l] <= experts. v: [layers]. -1 with
 * ERR_BAD_INPUT when there is not even room for top_k in each layer. */
int planned_virtual(const struct plan *plan, const struct model_hparams *h, uint32_t capacity,
                    uint32_t *v, struct error *error);

/* The fixed sets of masked routing: of every layer the v[l] experts with the largest norm ("norm")
 * or frequency ("frequency") of the plan. mask: [layers][experts], 1 for those in the set. */
int planned_mask(const struct plan *plan, const char *kind, const struct model_hparams *h,
                 uint32_t capacity, uint8_t *mask, struct error *error);

#endif
