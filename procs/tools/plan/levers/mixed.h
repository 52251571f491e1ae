/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: the precisions of the rule mixed-two, for its planner and for the one that plans it
 * together with cache-aware routing. */
#ifndef SLUICE_TOOLS_PLAN_LEVERS_MIXED_H
#define SLUICE_TOOLS_PLAN_LEVERS_MIXED_H

#include "procs/tools/plan/planning.h"

struct mixed {
    struct planning *p;
    uint64_t cells, lowered; /* experts; at the plan's coarsest precision */
    enum precision fine, coarse;
    uint64_t *order;      /* [cells] the numbers of experts, the least important first */
    uint8_t *planned;     /* [cells] edgemoe's precisions, by number */
    uint8_t *high, *low;  /* [layers * experts] */
    uint8_t *high_number; /* [cells] */
};

/* m->p is set; takes edgemoe's precisions from the plan. -1 with ERR_BAD_INPUT: it has none, or not
 * what orders them. `preset` is for the message. mixed_end in both cases. */
int mixed_begin(struct mixed *m, const char *preset, struct error *error);
void mixed_end(struct mixed *m);

/* Whether all experts have one precision: then no share of them can get another one back. */
bool mixed_is_uniform(const struct mixed *m);

/* Sets m->high and m->low: `share` (0..1) of the experts that edgemoe lowered stay lowered, the
 * least important ones; of each expert the lower precision is the next that is clearly smaller. */
void mixed_set(struct mixed *m, double share);

/* These precisions with thresholds; the arrays are borrowed from m. */
struct serving mixed_serving(const struct mixed *m, double t1, double t2);

/* How many experts have each precision as their higher one, as text: "12 experts native, ...". */
const char *mixed_text(const struct mixed *m, char text[128]);

#endif
