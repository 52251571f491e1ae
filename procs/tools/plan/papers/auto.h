/* sluice plan: what auto.c takes from auto_tiers.c. */
#ifndef SLUICE_TOOLS_PLAN_PAPERS_AUTO_H
#define SLUICE_TOOLS_PLAN_PAPERS_AUTO_H

#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

/* Time of one expert of this model at each tier relative to native, decode, one thread. */
void auto_precision_ratios(struct planning *p, double ratio[PRECISION__COUNT]);

#endif
