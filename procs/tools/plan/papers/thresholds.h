/* SPDX-License-Identifier: Apache-2.0 */
/* HOBBIT's thresholds for a serving: the pair that reads the fewest bytes within a loss. What it
 * reads and loses is measured with every access a miss or, with p->clock, token by token with a
 * simulated cache of that capacity. */
#ifndef SLUICE_TOOLS_PLAN_PAPERS_THRESHOLDS_H
#define SLUICE_TOOLS_PLAN_PAPERS_THRESHOLDS_H

#include "procs/tools/plan/planning.h"

struct threshold_choice {
    double t1, t2;
    double cost; /* bytes read, of those that all accesses would read at native precision, 0..1 */
    double loss; /* its bound, on the half that is planned on */
};

/* The cost of what was measured on a text. */
double thresholds_cost(const struct planning *p, const struct offline_text *text,
                       const struct serving_report *report);

/* Searches T1 of `base` (its policy and precisions; t1 and t2 are set) at this T2: T2 itself, the
 * lowest that makes a difference, and if that loses too much, a bisection: steps + 1 measurements.
 * *best is replaced by what costs less within `limit`. -1 with *error of the measurement. */
int thresholds_search(struct planning *p, const struct serving *base, double t2, double limit,
                      uint32_t steps, struct threshold_choice *best, struct error *error);

/* Sets p->clock to the capacity of --budget or --resident-experts, with the parameters of `preset`,
 * if --thresholds asks for it, else to none. -1 with *error of planning_expert_bytes. */
int thresholds_clock(struct planning *p, const char *preset, struct error *error);

/* " if every access misses", or of which share of the experts. */
const char *thresholds_when(const struct planning *p, char text[64]);

#endif
