/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the time per token of each candidate, corrects it by measurements, and chooses. */
#include "lib/policy/presets/auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"

#define LOSSLESS PLAN_SCALAR__COUNT
#define FALLBACK "auto" /* lossless, and turns its prefetch off where that is faster */

const double auto_shares[PLAN_AUTO_SHARES] = {0.125, 0.1875, 0.25, 0.375, 0.5, 0.75, 1.0};
const double auto_bandwidths[PLAN_AUTO_BANDWIDTHS] = {100e6, 200e6, 500e6, 1000e6, 2000e6, 4000e6};

static const struct {
    const char *preset;
    int loss; /* enum plan_scalar, or LOSSLESS */
    const char *base, *part;
} candidates[] = {
#define AUTO_CANDIDATE(preset, loss, base, part) {preset, loss, base, part},
#include "lib/policy/presets/auto.tbl.h"
};
_Static_assert(ARRAY_LEN(candidates) <= PLAN_AUTO_CANDIDATES, "candidates in a plan");

uint32_t auto_candidates(void)
{
    return ARRAY_LEN(candidates);
}

uint32_t auto_preset(uint32_t candidate)
{
    sl_assert(candidate < ARRAY_LEN(candidates));
    return preset_find(candidates[candidate].preset);
}

uint32_t auto_candidate(uint32_t preset)
{
    uint32_t c = 0;
    while (c < ARRAY_LEN(candidates) && auto_preset(c) != preset)
        c++;
    return c < ARRAY_LEN(candidates) ? c : UINT32_MAX;
}

bool auto_lossless(uint32_t candidate)
{
    sl_assert(candidate < ARRAY_LEN(candidates));
    return candidates[candidate].loss == LOSSLESS;
}

double auto_loss(const struct plan *plan, uint32_t candidate)
{
    if (auto_lossless(candidate))
        return 0;
    return plan ? plan->scalar[candidates[candidate].loss] : (double)NAN;
}

/* The share that is recorded with a loss. */
static int share_of(int loss)
{
    switch (loss) {
    case PLAN_hobbit_loss_high: return PLAN_hobbit_share;
    case PLAN_mixed_loss_high: return PLAN_mixed_share;
    case PLAN_reroute_loss_high: return PLAN_reroute_share;
    case PLAN_joint_loss_high: return PLAN_joint_share;
    case PLAN_swap_loss_high: return PLAN_swap_share;
    case PLAN_drop_loss_high: return PLAN_drop_share;
    default: return PLAN_SCALAR__COUNT;
    }
}

double auto_least_share(const struct plan *plan, uint32_t candidate)
{
    int share = share_of(candidates[candidate].loss);
    return plan && share != PLAN_SCALAR__COUNT ? plan->scalar[share] : (double)NAN;
}

bool auto_allowed(const struct plan *plan, uint32_t candidate, double max_loss)
{
    if (auto_lossless(candidate))
        return true;
    return max_loss > 0 && auto_loss(plan, candidate) <= max_loss; /* not known: false */
}

/* ---- predictions ---------------------------------------------------------------------------- */

/* Grid cell of x on an axis, and the logarithmic position in the cell: 0..1. */
static double grid_position(const double *axis, uint32_t points, double x, uint32_t *at)
{
    *at = 0;
    if (!(x > axis[0]))
        return 0;
    while (*at + 2 < points && x > axis[*at + 1])
        (*at)++;
    if (x >= axis[*at + 1])
        return 1;
    return log(x / axis[*at]) / log(axis[*at + 1] / axis[*at]);
}

double auto_predicted_ns(const struct plan *plan, uint32_t candidate, double share,
                         double bytes_per_s)
{
    const float *ns = plan ? plan_auto_ns(plan) : NULL;
    uint32_t s, d;
    double along = grid_position(auto_shares, PLAN_AUTO_SHARES, share, &s), sum = 0;
    double across = grid_position(auto_bandwidths, PLAN_AUTO_BANDWIDTHS, bytes_per_s, &d);
    sl_assert(candidate < ARRAY_LEN(candidates));
    for (uint32_t corner = 0; ns && corner < 4; corner++) {
        bool more_capacity = corner & 1, faster = corner >> 1;
        double weight = (more_capacity ? along : 1 - along) * (faster ? across : 1 - across);
        if (weight <= 0) /* a corner without weight may be NaN */
            continue;
        sum += weight * log((double)ns[plan_auto_at(s + more_capacity, d + faster, candidate)]);
    }
    return ns ? exp(sum) : (double)NAN;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static uint32_t base_of(uint32_t candidate)
{
    const char *base = candidates[candidate].base;
    uint32_t c = 0;
    if (!base)
        return UINT32_MAX;
    while (strcmp(candidates[c].preset, base) != 0)
        c++; /* a test finds every base */
    return c;
}

/* "part" becomes "before and part". */
static void put_before(struct auto_part *part, const char *before)
{
    char text[sizeof part->text];
    memcpy(text, part->text, sizeof text);
    snprintf(part->text, sizeof part->text, "%s%s%.100s", before, text[0] ? " and " : "", text);
}

uint32_t auto_parts(const struct plan *plan, uint32_t candidate, double share, double bytes_per_s,
                    struct auto_part out[AUTO_PARTS_MAX])
{
    struct auto_part part = {.ns = auto_predicted_ns(plan, candidate, share, bytes_per_s)};
    uint32_t count = 0;
    while (count < AUTO_PARTS_MAX && candidate != UINT32_MAX && !isnan(part.ns)) {
        put_before(&part, candidates[candidate].part);
        candidate = base_of(candidate);
        if (candidate == UINT32_MAX)
            break;
        part.without_ns = auto_predicted_ns(plan, candidate, share, bytes_per_s);
        if (isnan(part.without_ns)) /* not planned: what it has counts together with this part */
            continue;
        memmove(out + 1, out, count * sizeof *out);
        out[0] = part;
        count++;
        part = (struct auto_part){.ns = part.without_ns};
    }
    return count;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static bool may(const struct auto_view *v, uint32_t candidate)
{
    return (v->usable >> candidate & 1) && auto_allowed(v->plan, candidate, v->max_loss);
}

static double predicted(const struct auto_view *v, uint32_t candidate)
{
    return auto_predicted_ns(v->plan, candidate, v->share, v->bytes_per_s);
}

static double measured(const struct auto_view *v, uint32_t candidate)
{
    return v->measured_ns ? v->measured_ns[candidate] : (double)NAN;
}

/* Measurements override predictions. The other predictions are scaled by the error of the first
 * measured candidate; otherwise a slow machine would try every candidate. */
static double expected_ns(const struct auto_view *v, uint32_t candidate)
{
    double here = measured(v, candidate), wrong = 1;
    if (!isnan(here))
        return here;
    for (uint32_t c = 0; c < ARRAY_LEN(candidates); c++)
        if (!isnan(measured(v, c)) && !isnan(predicted(v, c))) {
            wrong = measured(v, c) / predicted(v, c);
            break;
        }
    return predicted(v, candidate) * wrong;
}

static uint32_t measured_count(const struct auto_view *v)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < ARRAY_LEN(candidates); c++)
        n += !isnan(measured(v, c));
    return n;
}

/* The best usable candidate except `without`; UINT32_MAX: none is predicted. */
static uint32_t best_of(const struct auto_view *v, bool lossless, uint32_t without, double *best_ns)
{
    uint32_t best = UINT32_MAX;
    *best_ns = INFINITY;
    for (uint32_t c = 0; c < ARRAY_LEN(candidates); c++) {
        double ns = may(v, c) && c != without ? expected_ns(v, c) : (double)NAN;
        if ((lossless && !auto_lossless(c)) || !(ns < *best_ns * (1 - AUTO_ALIKE)))
            continue;
        best = c;
        *best_ns = ns;
    }
    return best;
}

static uint32_t fallback(void)
{
    uint32_t c = 0;
    while (strcmp(candidates[c].preset, FALLBACK) != 0)
        c++;
    return c;
}

/* The running candidate stays unless another is clearly better; during a trial, unless it is
 * clearly worse. */
static bool stays(const struct auto_view *v, const struct auto_choice *best)
{
    if (v->running >= ARRAY_LEN(candidates) || !may(v, v->running))
        return false;
    double ns = expected_ns(v, v->running);
    bool known = !isnan(measured(v, v->running)), other = !isnan(measured(v, best->candidate));
    if (known && other)
        return ns <= best->ns;
    if (!known && other)
        return ns <= best->ns * (1 + AUTO_TRIAL_MARGIN);
    return ns * (1 - AUTO_CHANGE_GAIN) <= best->ns;
}

static void take(struct auto_choice *out, uint32_t candidate, double ns)
{
    out->candidate = candidate;
    out->ns = ns;
}

struct auto_choice auto_choose(const struct auto_view *v)
{
    struct auto_choice out = {.candidate = UINT32_MAX, .second = UINT32_MAX, .predicted = true};
    double lossless_ns;
    uint32_t lossless = best_of(v, true, UINT32_MAX, &lossless_ns);
    out.candidate = best_of(v, false, UINT32_MAX, &out.ns);
    if (out.candidate == UINT32_MAX)
        return (struct auto_choice){.candidate = fallback(),
                                    .ns = (double)NAN,
                                    .second = UINT32_MAX,
                                    .second_ns = (double)NAN};
    if (lossless != UINT32_MAX && !(out.ns < lossless_ns * (1 - AUTO_LOSSY_GAIN)))
        take(&out, lossless, lossless_ns);
    if (stays(v, &out))
        take(&out, v->running, expected_ns(v, v->running));
    out.second = best_of(v, auto_lossless(out.candidate), out.candidate, &out.second_ns);
    if (out.second != UINT32_MAX && measured_count(v) == 1 && !isnan(measured(v, out.candidate)) &&
        out.second_ns <= out.ns * (1 + AUTO_TRIAL_MARGIN))
        take(&out, out.second, out.second_ns);
    return out;
}
