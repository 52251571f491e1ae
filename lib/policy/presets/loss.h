/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a preset: whether the model's files can serve it at all, and whether the loss that a
 * plan has measured holds for what would be served.
 *
 * A measured loss holds only under the conditions of its measurement, which the plan records. Each
 * is a row of conditions.tbl.h; any that differs voids the loss, and the error names the first
 * one. */
#ifndef SLUICE_POLICY_PRESETS_LOSS_H
#define SLUICE_POLICY_PRESETS_LOSS_H

#include "lib/plan/plan.h"
#include "lib/policy/access/precision.h"
#include "lib/policy/presets/presets.h"
#include "lib/tensor/kv_type.h"

/* Checks that the model has every precision that these parameters may request (with
 * precision=edgemoe: those in the plan) and the plan what they need, and fills *policy as
 * knobs_precision_policy. plan may be NULL. -1 with ERR_BAD_INPUT: the error names what is missing
 * and the command that makes it. */
int preset_servable(const struct knobs *k, const struct plan *plan, const struct model_index *model,
                    struct precision_policy *policy, struct error *error);

/* Whether the model has the lower precision that the plan (NULL: none) has for each expert, where
 * the rule of these parameters has one. Without it, a higher one is served, which loses less, but
 * the times that the plan predicts do not hold. */
bool preset_low_present(const struct knobs *k, const struct plan *plan,
                        const struct model_index *model);

/* The precision of the dense weights with which the plan measured the loss of these parameters. It
 * is native when the plan has no record of it, or is NULL. */
enum precision preset_planned_dense(const struct knobs *k, const struct plan *plan);

/* The tokens of a chunk with which the plan measured a loss, by its scalar `chunk`. A plan that
 * does not record it was made with 256. */
double preset_measured_chunk(const struct plan *plan, enum plan_scalar chunk);

struct served { /* what an engine serves with; borrowed */
    const struct knobs *knobs;
    const struct precision_policy *policy; /* of preset_servable */
    const struct plan *plan;               /* NULL: none */
    const struct model_index *model;
    double resident_share; /* of the experts' payload bytes, 0..1 */
    uint64_t prefill_chunk, threads;
    enum kv_type kv_type;
    double read_bytes_per_s; /* limit of the bandwidth for an expert; 0: none */
    bool gpu;                /* one computes */
};

/* Sets *loss to the bound of the measured loss on held-out text (0.01: 1 %), or to 0 for a lossless
 * preset. A lossless preset of a store whose dense weights have a lower precision has the loss of
 * these. -1 with ERR_BAD_INPUT when the loss was not measured, or was measured under other
 * conditions. */
int preset_loss(const struct served *s, double *loss, struct error *error);

#endif
