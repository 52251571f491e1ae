/* SPDX-License-Identifier: Apache-2.0 */
/* HOBBIT's thresholds (its eviction weights: eviction.c): minimum bytes with a loss of at most P,
 * if every access misses or, with --thresholds capacity, at a capacity.
 *
 * Bytes fall with T1 and T2. For several T2 (share that may be skipped) a bisection finds the
 * minimum T1 that meets P; the best pair is judged on what is held out, and the search repeated for
 * a smaller loss until that keeps to P. */
#include <math.h>
#include <string.h>

#include "procs/tools/plan/papers/thresholds.h"
#include "procs/tools/plan/planning.h"

#include "lib/tensor/precision.h"

#define T1_STEPS 5 /* T1 to 1/16 */

struct precisions {
    enum precision high, low;
    double high_bytes, low_bytes;
};

/* High: native. Low: the precision nearest to 1/4 of its bytes (f16 -> int4, int8 -> int2). */
static struct precisions choose_precisions(const struct planning *p)
{
    struct precisions t = {.high = PRECISION_NATIVE, .low = PRECISION_INT4};
    t.high_bytes = (double)planning_one_expert(p, PRECISION_NATIVE);
    double nearest = 1e300;
    for (enum precision x = PRECISION_INT8; x < PRECISION__COUNT; x++) {
        double bytes = (double)planning_one_expert(p, x);
        if (fabs(bytes - t.high_bytes / 4) < nearest) {
            nearest = fabs(bytes - t.high_bytes / 4);
            t.low = x;
            t.low_bytes = bytes;
        }
    }
    return t;
}

static struct serving serving_of(const struct planning *p, const struct precisions *t, double t1,
                                 double t2)
{
    return (struct serving){.kind = SERVE_POLICY,
                            .method = p->method,
                            .policy = {.rule = PRECISION_RULE_HOBBIT,
                                       .high = t->high,
                                       .low = t->low,
                                       .t1 = (float)t1,
                                       .t2 = (float)t2}};
}

static void store(struct planning *p, const struct threshold_choice *c, const struct precisions *t,
                  const struct judged *judged)
{
    const struct serving_report *r = &judged->report;
    double accesses = (double)(r->need[0] + r->need[1] + r->skipped);
    double *s = p->plan->scalar, cost = thresholds_cost(p, &p->held, r);
    char text[64], when[64];
    s[PLAN_hobbit_t1] = c->t1;
    s[PLAN_hobbit_t2] = c->t2;
    s[PLAN_hobbit_skip_renormalise] = 0;
    s[PLAN_hobbit_method] = p->method;
    s[PLAN_hobbit_dense] = p->dense;
    s[PLAN_hobbit_kv_type] = p->kv_type;
    s[PLAN_hobbit_high] = t->high;
    s[PLAN_hobbit_low] = t->low;
    s[PLAN_hobbit_loss] = judged->loss.value;
    s[PLAN_hobbit_loss_low] = judged->loss.low;
    s[PLAN_hobbit_loss_high] = judged->loss.high;
    s[PLAN_hobbit_share] = p->clock.capacity ? planning_clock_share(p) : (double)NAN;
    s[PLAN_hobbit_share_high] = (double)r->need[0] / accesses;
    s[PLAN_hobbit_share_low] = (double)r->need[1] / accesses;
    planning_note(
        p,
        "hobbit: T1 %.3f, T2 %.2f: %.1f %% high, %.1f %% low (int%d), %.1f %% skipped; %.1f %% "
        "of the bytes, expected loss %s%s",
        c->t1, c->t2, 100 * s[PLAN_hobbit_share_high], 100 * s[PLAN_hobbit_share_low],
        t->low == PRECISION_INT2   ? 2
        : t->low == PRECISION_INT4 ? 4
                                   : 8,
        100 * (double)r->skipped / accesses, 100 * cost, planning_loss(&judged->loss, text),
        thresholds_when(p, when));
    json_object_set_new(p->report, "hobbit",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "t1", c->t1, "t2",
                                  c->t2, "share_high", s[PLAN_hobbit_share_high], "share_low",
                                  s[PLAN_hobbit_share_low], "bytes_share", cost, "loss",
                                  judged->loss.value, "loss_low", judged->loss.low, "loss_high",
                                  judged->loss.high));
}

/* The cheapest pair whose bound on the half that is planned on is at most `limit`; cost 1: none. */
static int search(struct planning *p, const struct precisions *t, double limit,
                  struct threshold_choice *best, struct error *error)
{
    static const double t2s[] = {1.0, 0.95, 0.9};
    const struct serving s = serving_of(p, t, 1, 1);
    *best = (struct threshold_choice){.t1 = 1, .t2 = 1, .cost = 1};
    for (size_t i = 0; i < ARRAY_LEN(t2s); i++)
        if (thresholds_search(p, &s, t2s[i], limit, T1_STEPS, best, error) != 0)
            return -1;
    return 0;
}

/* Lower precisions by rank pay where the last ranks have little weight. */
static void explain_tail(struct planning *p)
{
    double tail = plan_tail_share(p->plan);
    if (!isnan(tail))
        planning_note(p,
                      "hobbit: the lower half of the ranks has %.1f %% of the gate weights: the "
                      "less it has, the more accesses may be low or skipped",
                      100 * tail);
}

static int thresholds(struct planning *p, struct error *error)
{
    struct precisions t = choose_precisions(p);
    struct tightening tight = tightening_start(p->max_loss);
    struct threshold_choice best = {.cost = 1}, now;
    struct judged judged, held;
    explain_tail(p);
    if (thresholds_clock(p, "auto-two-precision-noprefetch", error) != 0)
        return -1;
    do {
        if (search(p, &t, tight.target, &now, error) != 0)
            return -1;
        if (now.cost >= 1)
            break;
        const struct serving s = serving_of(p, &t, now.t1, now.t2);
        planning_note(p, "  T1 %.3f T2 %.2f", now.t1, now.t2);
        if (planning_judge(p, &s, &held, error) != 0)
            return -1;
        if (held.loss.high <= p->max_loss) {
            best = now;
            judged = held;
        }
    } while (tightening_next(&tight, now.loss, held.loss.high));
    if (best.cost >= 1)
        return error_set(error, ERR_NO_PLAN, "no thresholds keep the loss below %.3g %%",
                         100 * p->max_loss);
    store(p, &best, &t, &judged);
    const struct serving s = serving_of(p, &t, best.t1, best.t2);
    return planning_report(p, "hobbit", &s, &judged, error);
}

int plan_hobbit(struct planning *p, struct error *error)
{
    struct precisions t = choose_precisions(p);
    struct serving curve = serving_of(p, &t, 1, 1);
    if (p->curve_only)
        return plan_hobbit_curve(p, &curve, error);
    bool planned = plan_knows(p->plan, PLAN_hobbit_t1) && plan_knows(p->plan, PLAN_hobbit_t2);
    if (p->eviction_only && !planned)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no thresholds; run without --eviction-only first",
                         p->profile_path);
    int status = p->eviction_only ? 0 : thresholds(p, error);
    p->clock.capacity = 0;
    if (status != 0 || plan_hobbit_eviction(p, error) != 0)
        return -1;
    return p->curve ? plan_hobbit_curve(p, &curve, error) : 0;
}
