/* SPDX-License-Identifier: Apache-2.0 */
/* Text that a plan was not made on. The windows of each domain (each --text file is one) are
 * divided: one half is planned on, the other is held out. What counts of a loss is the bound for a
 * new text of the worst domain. A plan that keeps it on its half is judged on the other. If its
 * bound there exceeds what is allowed, the plan is made again for a smaller one. Pure functions. */
#ifndef SLUICE_TOOLS_PLAN_HELD_H
#define SLUICE_TOOLS_PLAN_HELD_H

#include <stdbool.h>
#include <stdint.h>

#define HELD_DOMAINS_MAX 64
#define HELD_TEXT_TOKENS 4096 /* of a new text; a longer one varies less */

/* The share of new texts whose loss is within the bound, and the confidence that so many are. */
#define HELD_CONFIDENCE 0.95

enum held_role { HELD_UNUSED, HELD_PLANNED, HELD_OUT };

/* Chooses at most `wanted` of the windows (0: all): the same number of each domain, what a domain
 * does not have goes to the others; evenly spread, and of each domain half to plan, half held out,
 * in turns of up to four windows. domain[windows]: ascending. role[windows]: enum held_role. */
void held_divide(const uint16_t *domain, uint32_t windows, uint32_t wanted, uint8_t *role);

struct held_domain {
    uint32_t windows;
    double loss, high; /* relative increase of perplexity: its mean, and the bound for a new text */
};

/* The factor of a one-sided tolerance bound: mean + factor * (standard deviation of a window) is
 * above the mean of a share HELD_CONFIDENCE of the texts of text_windows, with a confidence of
 * HELD_CONFIDENCE, if the mean is that of `windows` and the deviation is known with `freedom`. */
double held_tolerance(uint32_t freedom, uint32_t windows, uint32_t text_windows);

/* delta[windows]: increase of the loss, nats per token of a window. domain[windows] < domains <=
 * HELD_DOMAINS_MAX: windows of a domain are consecutive. text_windows: of a new text. The bound is
 * a one-sided tolerance bound. A prediction interval would hold for 95 % of the texts only on the
 * average of many plans: every other plan would miss it. Windows that are neighbours are alike, as
 * those of a new text are; so the variance is that between turns of windows, where a domain has two
 * and more. The variance of a domain with few of them is drawn towards that of all. Returns the
 * domain with the largest bound; *all: of all windows, with the bound of that domain. false: fewer
 * than two windows, so that nothing is known about the variance. */
bool held_bounds(const double *delta, const uint16_t *domain, uint32_t windows,
                 uint32_t text_windows, uint32_t domains, struct held_domain *out, uint32_t *worst,
                 struct held_domain *all);

/* ---- tightening ---- */

#define TIGHTENING_ROUNDS 6

struct tightening {
    double max;    /* allowed */
    double target; /* bound that the next search may choose, on the text that it plans on */
    double good,
        bad; /* the largest target whose plan was kept, the smallest bound that was not; NAN */
    uint32_t rounds;
};

struct tightening tightening_start(double max_loss);

/* A search with t->target chose a plan with this bound on its text, and `bound` on what is held
 * out. True: search again; the target is new, -INFINITY in the last round if nothing was kept: only
 * what has no loss at all. */
bool tightening_next(struct tightening *t, double own, double bound);

#endif
