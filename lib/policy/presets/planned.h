/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter values from a plan, as settings for knobs_resolve. */
#ifndef SLUICE_POLICY_PRESETS_PLANNED_H
#define SLUICE_POLICY_PRESETS_PLANNED_H

#include "lib/plan/plan.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/access/routing.h"
#include "lib/policy/presets/presets.h"

/* The parameters of a preset by name: its own, then what the plan (NULL: none) has for it, then the
 * user's settings (NULL: none). What two presets of the plan share is taken from the one that these
 * settings make: the rule mixed-two has the values, as it has the precisions (planned_widths), that
 * were planned with the routing, whatever the preset. Errors of knobs_resolve. */
int planned_knobs(const struct plan *plan, const char *preset, const char *overrides,
                  struct knobs *k, struct error *error);

/* The precisions of every expert that the plan (NULL: none) has for the rule of these parameters:
 * arrays of enum precision, [layers * experts], borrowed from it. NULL where it has none, or the
 * rule needs none. mixed-two with routing resident-first has those that were planned with it, or
 * without such a plan those of mixed-two alone. */
struct planned_widths {
    const uint8_t *high, *low; /* low: mixed-two */
};
struct planned_widths planned_widths(const struct plan *plan, const struct knobs *k);

/* Those of one expert; without arrays, both are native. */
static inline struct precision_planned planned_precisions(const struct planned_widths *widths,
                                                          size_t expert)
{
    struct precision_planned p = {PRECISION_NATIVE, PRECISION_NATIVE};
    if (widths->high)
        p.high = p.low = (enum precision)widths->high[expert];
    if (widths->low)
        p.low = (enum precision)widths->low[expert];
    return p;
}

/* Virtual experts of every layer (SwapMoE): the plan's v_i, or without a plan the same share of
 * every layer, scaled to `capacity` entries in all; top_k <= v[l] <= experts, 0 in layers without
 * experts. What rounding down leaves goes to the largest remainders (ties: lower layer). v:
 * [layers]. -1 with ERR_BAD_INPUT when the capacity is below top_k per layer. */
int planned_virtual(const struct plan *plan, const struct model_hparams *h, uint32_t capacity,
                    uint32_t *v, struct error *error);

/* What expert replacement starts with, in the engine, the offline evaluation and the planner:
 * keep[l] virtual experts of every layer, and as its first set the resident experts of the plan if
 * it has that many, else its experts of the highest frequency, without a plan the lowest numbers.
 * One entry of the capacity is spare, for the candidate that is being read, unless all experts fit.
 * keep: [layers], set: [layers][experts]. Errors as of planned_virtual. */
int planned_swap_sets(const struct plan *plan, const struct model_hparams *h, uint32_t capacity,
                      uint32_t *keep, uint8_t *set, struct error *error);
/* Fills `set` as planned_swap_sets does for a plan without sets of its own, for given keep[]. */
void planned_frequent_sets(const struct plan *plan, const struct model_hparams *h,
                           const uint32_t *keep, uint8_t *set);

/* Fills order[count] with the order in which the engine and the simulator preload experts: the
 * highest frequency first (an unknown one counts as 0), ties in order of the index. With frequency
 * NULL all are in order of the index. */
void planned_preload_order(const float *frequency, uint32_t count, uint32_t *order);

/* Whether a preload by frequency takes place, of an expert set of experts_bytes into a capacity of
 * capacity_bytes: always with "frequency"; with "most" where two thirds or more fit, because below
 * that it reads more experts than are accessed later (docs/lab/judge.md). */
bool planned_preload_frequent(enum preload preload, uint64_t capacity_bytes,
                              uint64_t experts_bytes);

/* Makes the fixed sets of masked routing: of every layer the v[l] experts with the largest norm
 * ("norm") or frequency ("frequency") of the plan. mask: [layers][experts], 1 for members of the
 * set. -1 with ERR_BAD_INPUT as of planned_virtual, or when the plan lacks the values. */
int planned_mask(const struct plan *plan, enum routing_mask kind, const struct model_hparams *h,
                 uint32_t capacity, uint8_t *mask, struct error *error);

#endif
