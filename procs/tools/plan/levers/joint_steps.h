/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan: the levers of mixed-two-resident-first, and their steps. */
#ifndef SLUICE_TOOLS_PLAN_LEVERS_JOINT_STEPS_H
#define SLUICE_TOOLS_PLAN_LEVERS_JOINT_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"

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

/* Judges point i of a way: *good, whether its bound keeps to P. -1 with *error. */
typedef int (*way_judge)(void *user, uint32_t i, bool *good, struct error *error);

/* Looks for the last good point of `from` to count - 1 (at most 32): a bisection that begins with
 * `first` (if in that range), then backwards from the last point, without those that are known,
 * until one is good. Bounds are not monotone: a bisection alone misses good points after bad ones.
 * Of the second kind are at most *more judgements, which goes down by each. If it does not reach 0,
 * the last point for which *good was set is the last good one of the way; else points before those
 * judged, and after that one, may be good, too. -1 with *error of `judge`. */
int way_last_good(uint32_t from, uint32_t count, uint32_t first, uint32_t *more, way_judge judge,
                  void *user, struct error *error);

#endif
