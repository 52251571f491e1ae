/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: function of auto_precisions.c for auto.c. */
#ifndef SLUICE_TOOLS_PLAN_PAPERS_AUTO_H
#define SLUICE_TOOLS_PLAN_PAPERS_AUTO_H

#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

/* Compute time of an expert at each precision relative to native: decode, one thread. Kept with
 * what was measured, so that a plan that is made again is the same. -1 with *error. */
int auto_precision_ratios(struct planning *p, double ratio[PRECISION__COUNT], struct error *error);

#endif
