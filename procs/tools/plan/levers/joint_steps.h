/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: the levers of mixed-two-resident-first, and their steps. */
#ifndef SLUICE_TOOLS_PLAN_LEVERS_JOINT_STEPS_H
#define SLUICE_TOOLS_PLAN_LEVERS_JOINT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

enum lever { WIDTHS, TIER, SKIPPING, ROUTING, LEVERS };

struct point {
    uint32_t at[LEVERS]; /* the step of each lever; the first one, 0, saves and loses nothing */
    double cost, loss;   /* on a quarter of the text; the loss is the mean */
};

/* All of edgemoe's precisions, and no other lever: what its own plan serves. */
struct point point_edgemoe(void);

/* The share (0..1) of the experts that edgemoe lowered and that stay lowered. */
double point_share(const struct point *x);

/* The thresholds of HOBBIT's gate weights, 0..1, of a model with `ranks` experts per token. T1 is
 * at most T2: what is above T2 is left out, whatever T1 is. */
double point_t1(const struct point *x, uint32_t ranks);
double point_t2(const struct point *x);

/* Of cache-aware routing. */
double point_nats(const struct point *x);

/* Moves `lever` to the next step that changes what is served: a T1 that is above T2 is none. false:
 * there is none, and *x is undefined. */
bool point_step(struct point *x, enum lever lever, uint32_t ranks);

#endif
