/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the systems that are stored and measured: the one whose predicted speed is best at this
 * budget, and those that are near to it. What others need is not packed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/tune/tune.h"

#define SHARE_NEAR 0.005 /* shares differ by rounding to whole experts */
#define NEAR       0.2   /* predictions differ from measurements by about as much */

/* The share of the experts that fits into the budget. */
static int resident_share(struct tune *t, double *share, struct error *error)
{
    struct engine_facts facts;
    if (engine_ask(t, t->model, true, &facts, error) != 0)
        return -1;
    *share = facts.share;
    return facts.min_budget > 0 ? 0
                                : error_set(error, ERR_FAILED, "sluice run --print-memory failed");
}

static void add(struct tune *t, const struct plan *plan, uint32_t c, double share)
{
    const char *preset = preset_at(auto_preset(c))->name;
    enum tune_system system = system_of(c);
    if (system == TUNE_SYSTEMS || !t->system[system].planned || t->candidates == TUNE_CANDIDATES ||
        auto_least_share(plan, c) > share + SHARE_NEAR)
        return;
    double rate = plan_knows(plan, PLAN_drive_bytes_per_s) ? plan->scalar[PLAN_drive_bytes_per_s]
                                                           : t->job.read_bytes_per_s;
    double ns = auto_predicted_ns(plan, c, share, rate), speed = ns > 0 ? 1e9 / ns : 0;
    struct system *s = &t->system[system];
    t->candidate[t->candidates++] =
        (struct candidate){.system = system, .preset = preset, .predicted_per_s = speed};
    if (!s->preset[0] || speed > s->predicted_per_s) {
        s->predicted_per_s = speed;
        snprintf(s->preset, sizeof s->preset, "%s", preset);
    }
}

/* The loss of a planned system may not hold with so few experts resident: no candidate. */
static void leave_unmeasured(struct tune *t)
{
    for (uint32_t i = 0; i < TUNE_SYSTEMS; i++) {
        struct system *s = &t->system[i];
        if (!s->planned || s->preset[0])
            continue;
        s->planned = false;
        snprintf(s->why, sizeof s->why, "its loss was measured with more experts resident");
    }
}

/* UINT32_MAX: none is planned. */
static uint32_t best_of(const struct tune *t)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < TUNE_SYSTEMS; i++)
        if (t->system[i].planned &&
            (best == UINT32_MAX || t->system[i].predicted_per_s > t->system[best].predicted_per_s))
            best = i;
    return best;
}

int stage_choose(struct tune *t, struct error *error)
{
    double share;
    uint32_t best = best_of(t);
    t->candidates = 0;
    if (best == UINT32_MAX)
        return 0;
    struct plan *plan = plan_read(t->plan, error);
    if (!plan || resident_share(t, &share, error) != 0) {
        free(plan);
        return -1;
    }
    for (uint32_t c = 0; c < auto_candidates(); c++)
        add(t, plan, c, share);
    free(plan);
    leave_unmeasured(t);
    best = best_of(t);
    for (uint32_t i = 0; i < TUNE_SYSTEMS; i++) {
        struct system *s = &t->system[i];
        if (!s->planned)
            continue;
        s->stored = s->predicted_per_s >= (1 - NEAR) * t->system[best].predicted_per_s;
        if (!s->stored)
            snprintf(s->why, sizeof s->why, "not measured: %s is predicted to be faster",
                     system_name((enum tune_system)best));
        fprintf(stderr, "sluice tune: %s: loss at most %.2f %%, %.1f tokens/s predicted%s%s\n",
                system_name((enum tune_system)i), s->loss_high, s->predicted_per_s,
                s->stored ? "" : "; ", s->why);
    }
    return 0;
}

bool choose_fewer(struct tune *t)
{
    struct system *slowest = NULL;
    uint32_t stored = 0;
    for (uint32_t i = 0; i < TUNE_SYSTEMS; i++) {
        struct system *s = &t->system[i];
        stored += s->stored;
        if (s->stored && (!slowest || s->predicted_per_s < slowest->predicted_per_s))
            slowest = s;
    }
    if (stored < 2)
        return false;
    slowest->stored = false;
    snprintf(slowest->why, sizeof slowest->why, "not measured: no space to store it, too");
    return true;
}

uint32_t choose_precisions(const struct tune *t, const struct plan *plan)
{
    uint32_t mask = 0;
    bool all = false;
    for (int i = 0; i < TUNE_SYSTEMS; i++) {
        enum tune_system system = (enum tune_system)i;
        if (!t->system[i].stored)
            continue;
        mask |= system_precisions(plan, system);
        all = all || !system_per_expert(system);
    }
    return all ? mask : 0;
}
