/* The knobs of a run: the system's preset, over it what the plan found, over that what the user
 * said by name. Supervisor, cache, predictor and compute come to the same answer. */
#ifndef SLUICE_ENGINE_CHILD_RUN_KNOBS_H
#define SLUICE_ENGINE_CHILD_RUN_KNOBS_H

#include "config/params.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/presets.h"

/* plan: NULL without one. -1 with ERR_BAD_INPUT and one line: an unknown system or knob, a bad
 * value, or a system that needs a plan and there is none. */
int run_knobs(const struct params *params, uint32_t system, const struct plan *plan,
              struct knobs *knobs, struct error *error);

/* The plan that inspect put behind the model index (at the next multiple of PLAN_ARRAY_ALIGN);
 * *plan is NULL when there is none. `room`: bytes from the index to the segment's end. -1 with
 * ERR_BAD_INPUT when it is damaged. */
int plan_behind(const struct model_index *model, uint64_t room, const struct plan **plan,
                struct error *error);

#endif
