/* SPDX-License-Identifier: Apache-2.0 */
/* The preset auto: chooses the best candidate of auto.tbl.h for the capacity and storage device at
 * hand. `sluice plan --preset auto` predicts the token time of every candidate over a grid of
 * capacity and read bandwidth (auto_ns of a plan); the choice uses it. Pure functions.
 *
 * Guards: a candidate whose loss exceeds the limit, or was not measured, is excluded; a lossy
 * candidate must be predicted to win by AUTO_LOSSY_GAIN over the best lossless one; a candidate
 * other than the running one must win by AUTO_CHANGE_GAIN. */
#ifndef SLUICE_POLICY_PRESETS_AUTO_H
#define SLUICE_POLICY_PRESETS_AUTO_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/plan/plan.h"

#define AUTO_LOSSY_GAIN  0.03
#define AUTO_CHANGE_GAIN 0.05
#define AUTO_ALIKE       0.01 /* predictions that differ by less are equal */

/* Confirmation: a measurement under a candidate is valid from AUTO_TRIAL_TOKENS tokens on. Then the
 * second best is tried if it is expected to take at most AUTO_TRIAL_MARGIN more than the best. */
#define AUTO_TRIAL_TOKENS 256
#define AUTO_TRIAL_MARGIN 0.10

/* Axes of the grid: capacity for experts as a share of the payload of all experts at the highest
 * precision present; read bandwidth in bytes per second. */
extern const double auto_shares[PLAN_AUTO_SHARES];
extern const double auto_bandwidths[PLAN_AUTO_BANDWIDTHS];

/* The number of candidates. */
uint32_t auto_candidates(void);
/* The number of a candidate's preset in presets.tbl.h. */
uint32_t auto_preset(uint32_t candidate);
/* The candidate that this preset is; UINT32_MAX: it is none. */
uint32_t auto_candidate(uint32_t preset);
bool auto_lossless(uint32_t candidate);

/* The bound of the candidate's measured loss (0.01: one per cent). It is 0 for a lossless one, and
 * NaN when the plan, which may be NULL, does not have it. */
double auto_loss(const struct plan *plan, uint32_t candidate);

/* The smallest resident share that its loss was measured with; NaN: any, or it is lossless. */
double auto_least_share(const struct plan *plan, uint32_t candidate);

/* Whether the candidate's loss is at most `max_loss` (0.01: one per cent); plan may be NULL. */
bool auto_allowed(const struct plan *plan, uint32_t candidate, double max_loss);

/* The predicted time of a decoded token in ns, interpolated logarithmically between the points of
 * the grid; outside it, that of the nearest point. NaN when the plan, which may be NULL, has no
 * prediction. */
double auto_predicted_ns(const struct plan *plan, uint32_t candidate, double share,
                         double bytes_per_s);

/* What a candidate consists of, beginning with a cache and demand: each part with the predicted
 * time of a decoded token with it and without it, the others before it being there. Parts of a
 * candidate that is not predicted are one part together with the next. */
#define AUTO_PARTS_MAX 6
struct auto_part {
    char text[112]; /* "a precision per expert" */
    double ns, without_ns;
};
/* Fills out[AUTO_PARTS_MAX], in that order; returns their number, 0 without predictions. */
uint32_t auto_parts(const struct plan *plan, uint32_t candidate, double share, double bytes_per_s,
                    struct auto_part out[AUTO_PARTS_MAX]);

struct auto_view {
    const struct plan *plan; /* NULL: none */
    uint64_t usable;         /* bit of a candidate: it can run here (precisions, plan) */
    double share, bytes_per_s, max_loss;
    /* [candidates] ns measured here; NaN: too few tokens. NULL: nothing measured */
    const double *measured_ns;
    uint32_t running; /* running candidate; UINT32_MAX: none */
};

struct auto_choice {
    uint32_t candidate;
    double ns;       /* predicted or measured; NaN: no prediction */
    uint32_t second; /* the next best by prediction; UINT32_MAX: none */
    double second_ns;
    bool predicted; /* false: chosen by rule, without predictions */
};

/* Chooses a candidate; without predictions the lossless "auto". */
struct auto_choice auto_choose(const struct auto_view *view);

#endif
