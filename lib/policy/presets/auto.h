/* The system auto: which of the candidates of auto.tbl.h is best for what there is. `sluice plan
 * --preset auto` predicts the time of a token for every candidate over a grid of room and drive
 * speed (a plan's auto_ns); this picks by it. Pure functions.
 *
 * Guards: what may lose more than is allowed, or whose loss nobody measured, is no candidate; a
 * lossy one must be predicted to win by AUTO_LOSSY_GAIN over the best lossless one; another choice
 * than the one that runs must win by AUTO_CHANGE_GAIN. */
#ifndef SLUICE_POLICY_PRESETS_AUTO_H
#define SLUICE_POLICY_PRESETS_AUTO_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/plan/plan.h"

#define AUTO_LOSSY_GAIN  0.03
#define AUTO_CHANGE_GAIN 0.05
#define AUTO_ALIKE       0.01 /* predictions nearer than this are the same */

/* Confirmation: what was decoded under a candidate counts from so many tokens on; then the second
 * best is tried if it is expected to take at most so much more than the best. */
#define AUTO_TRIAL_TOKENS 256
#define AUTO_TRIAL_MARGIN 0.10

/* The axes of the grid: room for experts as a share of the payload of all of them at the best tier
 * there is; bytes per second. */
extern const double auto_shares[PLAN_AUTO_SHARES];
extern const double auto_devices[PLAN_AUTO_DEVICES];

uint32_t auto_candidates(void);
uint32_t auto_preset(uint32_t candidate); /* its number in presets.tbl.h */
uint32_t auto_candidate(uint32_t preset); /* UINT32_MAX: it is none */
bool auto_lossless(uint32_t candidate);

/* Whether it keeps to `max_loss` (0.01: one per cent); plan may be NULL. */
bool auto_allowed(const struct plan *plan, uint32_t candidate, double max_loss);

/* Predicted ns of a decoded token, between the points of the grid by interpolation of logarithms,
 * beyond it the nearest; NaN when the plan does not say. plan may be NULL. */
double auto_predicted_ns(const struct plan *plan, uint32_t candidate, double share,
                         double bytes_per_s);

struct auto_view {
    const struct plan *plan; /* NULL: none */
    uint64_t usable;         /* bit of a candidate: it can run here (tiers, plan) */
    double share, bytes_per_s, max_loss;
    /* [candidates] what it took here; NaN: not run long enough. NULL: nothing was measured */
    const double *measured_ns;
    uint32_t running; /* the candidate that runs; UINT32_MAX: none yet */
};

struct auto_choice {
    uint32_t candidate;
    double ns;       /* predicted, or measured; NaN: there is no prediction */
    uint32_t second; /* the next best by prediction; UINT32_MAX: none */
    double second_ns;
    bool predicted; /* false: by rule, as there is no plan with predictions */
};

/* There is always one: the lossless "auto" when nothing is known. */
struct auto_choice auto_choose(const struct auto_view *view);

#endif
