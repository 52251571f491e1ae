/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the policy parameters in effect from the preset, the plan and the user's settings. */
#include "procs/engine/child/run_knobs.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/planned.h"

#define SETTINGS_BYTES (4 * PARAM_TEXT_BYTES)

static void add(char *settings, const char *name, const char *value)
{
    size_t used = strlen(settings);
    if (*value)
        snprintf(settings + used, SETTINGS_BYTES - used, "%s%s%s%s", used ? "," : "", name,
                 *name ? "=" : "", value);
}

int run_knobs(const struct params *params, uint32_t preset, const struct plan *plan,
              struct knobs *knobs, struct error *error)
{
    char overrides[SETTINGS_BYTES] = "";
    if (preset >= preset_count())
        return error_set(error, ERR_BAD_INPUT, "unknown preset number %u", preset);
    add(overrides, "eviction", params->eviction);
    add(overrides, "prediction", params->prediction);
    add(overrides, "", params->policy);
    if (planned_knobs(plan, preset_at(preset)->name, overrides, knobs, error) != 0)
        return -1;
    if (knobs_need_plan(knobs) && !plan)
        return error_set(error, ERR_BAD_INPUT,
                         "preset '%s' needs a plan (--plan FILE, made by `sluice profile` and "
                         "`sluice plan`)",
                         preset_at(preset)->name);
    return 0;
}

int plan_after_index(const struct model_index *model, uint64_t bytes, const struct plan **plan,
                     struct error *error)
{
    uint64_t at = align_up(model->bytes, PLAN_ARRAY_ALIGN);
    *plan = NULL;
    if (at > bytes || bytes - at < sizeof(struct plan))
        return 0;
    const struct plan *found = (const struct plan *)(const void *)((const char *)model + at);
    if (found->magic == 0) /* the rest of the last page */
        return 0;
    if (found->bytes > bytes - at)
        return error_set(error, ERR_BAD_INPUT, "the plan does not fit");
    if (plan_check(found, found->bytes, error) != 0)
        return -1;
    *plan = found;
    return 0;
}
