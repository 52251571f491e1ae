/* SPDX-License-Identifier: Apache-2.0 */
/* The policy parameters in effect: those of the preset, overridden by the plan, overridden by the
 * user. Supervisor, cache, predictor and compute compute the same result. */
#ifndef SLUICE_ENGINE_CHILD_RUN_KNOBS_H
#define SLUICE_ENGINE_CHILD_RUN_KNOBS_H

#include "config/params.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/presets.h"

/* plan: NULL without one. -1 with ERR_BAD_INPUT and one line: unknown preset or parameter, invalid
 * value, or no plan for a preset that needs one. */
int run_knobs(const struct params *params, uint32_t preset, const struct plan *plan,
              struct knobs *knobs, struct error *error);

/* The plan that inspect appended to the model index (at the next multiple of PLAN_ARRAY_ALIGN);
 * *plan is NULL when there is none. `bytes`: bytes from the index to the segment's end. -1 with
 * ERR_BAD_INPUT when it is damaged. */
int plan_after_index(const struct model_index *model, uint64_t bytes, const struct plan **plan,
                     struct error *error);

#endif
