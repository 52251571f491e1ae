/* SPDX-License-Identifier: Apache-2.0 */
/* Searches T1 for a T2: as it falls, bytes fall and the loss rises. */
#include "procs/tools/plan/papers/thresholds.h"

#include <math.h>
#include <stdio.h>

#include "lib/policy/presets/presets.h"

#define BELOW 0.999

double thresholds_cost(const struct planning *p, const struct offline_text *text,
                       const struct serving_report *report)
{
    const struct model_hparams *h = &offline_index(p->model)->hparams;
    double accesses =
        (double)text->windows * text->window * h->experts_used * hparams_expert_layers(h);
    return (double)report->bytes /
           (accesses * (double)p->native_bytes / (double)planning_experts(p));
}

int thresholds_search(struct planning *p, const struct serving *base, double t2, double limit,
                      uint32_t steps, struct threshold_choice *best, struct error *error)
{
    /* The first rank has at least this share of the weights: below it all others are low. */
    double lowest = fmin(t2, BELOW / offline_index(p->model)->hparams.experts_used);
    double bad = lowest, good = t2; /* at t1 = t2 no access has low precision: only skips cost */
    struct serving s = *base;
    struct measured m;
    for (uint32_t i = 0; i <= steps; i++) {
        double t1 = i == 0 ? t2 : i == 1 ? lowest : (bad + good) / 2;
        char text[64];
        s.policy.t1 = (float)t1;
        s.policy.t2 = (float)t2;
        if (planning_measure(p, &p->text, &s, &m, error) != 0)
            return -1;
        double cost = thresholds_cost(p, &p->text, &m.report);
        planning_note(p, "  T1 %.3f T2 %.2f: %.1f %% of the bytes, loss %s", t1, t2, 100 * cost,
                      planning_loss(&m.loss, text));
        if (m.loss.high > limit) {
            if (i == 0)
                return 0; /* without low precision it exceeds the limit, too */
            bad = t1;
            continue;
        }
        good = t1;
        if (cost < best->cost)
            *best =
                (struct threshold_choice){.t1 = t1, .t2 = t2, .cost = cost, .loss = m.loss.high};
        if (i == 1) /* nothing is cheaper at this T2 */
            return 0;
    }
    return 0;
}

int thresholds_clock(struct planning *p, const char *preset, struct error *error)
{
    p->clock = (struct planning_clock){.capacity = 0};
    if (!p->at_capacity)
        return 0;
    if (knobs_resolve(preset, NULL, NULL, &p->clock.knobs, error) != 0)
        return -1;
    p->clock.capacity = planning_expert_bytes(p, error);
    return p->clock.capacity ? 0 : -1;
}

const char *thresholds_when(const struct planning *p, char text[64])
{
    if (p->clock.capacity)
        snprintf(text, 64, " where %.3g %% of the experts are resident",
                 100 * planning_clock_share(p));
    else
        snprintf(text, 64, " if every access misses");
    return text;
}
