/* SPDX-License-Identifier: Apache-2.0 */
/* Says what a plan has for each system. */
#include <math.h>

#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/planned.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/tune/tune.h"

#define PER_EXPERT PLAN_SCALAR__COUNT
#define TWO_EACH   (PLAN_SCALAR__COUNT + 1)
#define AS_MODEL   (PLAN_SCALAR__COUNT + 2)

static const struct {
    const char *name;
    enum precision_rule rule;
    enum routing_rule routing;
    int high, low; /* enum plan_scalar, or one of the above */
    enum plan_scalar loss, last;
} systems[TUNE_SYSTEMS] = {
#define TUNE_SYSTEM(id, name, rule, routing, high, low, loss, last, passes, text, none)            \
    [TUNE_##id] = {name, rule, routing, high, low, loss, last},
#include "procs/tools/tune/systems.tbl.h"
};

const char *system_name(enum tune_system system)
{
    return systems[system].name;
}

enum tune_system system_of(uint32_t candidate)
{
    struct knobs k;
    struct error error;
    int system = 0;
    if (knobs_resolve(preset_at(auto_preset(candidate))->name, NULL, NULL, &k, &error) != 0)
        return TUNE_SYSTEMS;
    while (system < TUNE_SYSTEMS &&
           (systems[system].rule != k.precision || systems[system].routing != k.routing))
        system++;
    return (enum tune_system)system;
}

bool system_begins_with_edgemoe(enum tune_system system)
{
    return systems[system].high == TWO_EACH || systems[system].high == AS_MODEL;
}

/* The arrays of a system whose experts have precisions of their own. */
static struct planned_widths widths_of(const struct plan *plan, enum tune_system system)
{
    const struct knobs k = {.precision = systems[system].rule, .routing = systems[system].routing};
    if (systems[system].high == AS_MODEL)
        return (struct planned_widths){.high = plan_width(plan)};
    return planned_widths(plan, &k);
}

uint32_t system_precisions(const struct plan *plan, enum tune_system system)
{
    struct planned_widths w = widths_of(plan, system);
    uint32_t mask = 0;
    for (size_t i = 0; w.high && i < (size_t)plan->layers * plan->experts; i++)
        mask |= 1u << w.high[i] | (w.low ? 1u << w.low[i] : 0);
    if (!w.high)
        mask = 1u << (uint32_t)plan->scalar[systems[system].high] |
               1u << (uint32_t)plan->scalar[systems[system].low];
    return mask & ~(1u << PRECISION_NATIVE);
}

bool system_per_expert(enum tune_system system)
{
    return systems[system].high == PER_EXPERT;
}

bool system_planned(const struct plan *plan, enum tune_system system, double max_loss)
{
    int high = systems[system].high, low = systems[system].low;
    if (!plan_knows(plan, systems[system].loss) || !plan_knows(plan, systems[system].last) ||
        plan->scalar[systems[system].loss] * 100 > max_loss)
        return false;
    if (high >= PER_EXPERT)
        return widths_of(plan, system).high != NULL;
    return plan_knows(plan, (enum plan_scalar)high) && plan_knows(plan, (enum plan_scalar)low);
}

double system_loss(const struct plan *plan, enum tune_system system)
{
    return fmax(0, plan->scalar[systems[system].loss] * 100);
}

/* With all experts resident each candidate that the plan serves has a prediction. */
bool system_predicted(const struct plan *plan, enum tune_system system)
{
    uint32_t at = PLAN_AUTO_SHARES - 1, bandwidth = PLAN_AUTO_BANDWIDTHS - 1;
    for (uint32_t c = 0; plan_auto_ns(plan) && c < auto_candidates(); c++)
        if (system_of(c) == system && !isnan(plan_auto_ns(plan)[plan_auto_at(at, bandwidth, c)]))
            return true;
    return false;
}
