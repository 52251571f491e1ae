/* SPDX-License-Identifier: Apache-2.0 */
/* mixed-two: EdgeMoE's precision per expert as the higher one, and one step lower by HOBBIT's
 * thresholds, within one loss. The widths that edgemoe's plan has use all of P; so of the experts
 * that it lowered a share gets its higher precision back, the most important ones first, and what
 * that leaves of P is for the thresholds. For each share the lowest T1 within P is searched; the
 * cheapest pair is judged on what is held out, and the search repeated for a smaller loss until
 * that keeps to P. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/levers/mixed.h"
#include "procs/tools/plan/papers/thresholds.h"

#define T1_STEPS 5    /* T1 to 1/16 */
#define STEP     0.75 /* a step lower has at most this share of the bytes */

static const double shares[] = {1, 0.75, 0.5, 0}; /* of the experts that edgemoe lowered */

struct choice {
    struct threshold_choice at;
    double share;
};

static void *zeroed(size_t count, size_t bytes)
{
    void *at = calloc(count, bytes);
    if (!at)
        log_fatal(1, "out of memory (search for precisions)");
    return at;
}

/* The next precision that is clearly smaller; `high` if there is none. */
static enum precision step_below(const struct planning *p, uint64_t place, enum precision high)
{
    uint32_t layer = (uint32_t)(place / p->plan->experts),
             expert = (uint32_t)(place % p->plan->experts);
    uint64_t bytes = offline_expert_bytes(p->model, layer, expert, high, p->method);
    for (enum precision t = high + 1; t < PRECISION__COUNT; t++)
        if ((double)offline_expert_bytes(p->model, layer, expert, t, p->method) <=
            STEP * (double)bytes)
            return t;
    return high;
}

void mixed_set(struct mixed *m, double share)
{
    struct planning *p = m->p;
    uint64_t keep = (uint64_t)llround(share * (double)m->lowered), kept = 0;
    for (uint64_t i = 0; i < m->cells; i++) {
        uint64_t at = m->order[i];
        bool lowered = m->planned[at] == m->coarse && m->coarse != m->fine;
        m->high_number[at] = lowered && kept >= keep ? (uint8_t)m->fine : m->planned[at];
        kept += lowered;
    }
    planning_spread(p, m->high_number, m->high);
    for (uint64_t i = 0; i < m->cells; i++) {
        uint64_t place = planning_place(p, i);
        m->low[place] = (uint8_t)step_below(p, place, (enum precision)m->high[place]);
    }
}

struct serving mixed_serving(const struct mixed *m, double t1, double t2)
{
    return (struct serving){.kind = SERVE_POLICY,
                            .method = m->p->method,
                            .precision = m->high,
                            .low = m->low,
                            .policy = {.rule = PRECISION_RULE_MIXED_TWO,
                                       .high = PRECISION_NATIVE,
                                       .low = PRECISION_NATIVE,
                                       .t1 = (float)t1,
                                       .t2 = (float)t2}};
}

/* The cheapest choice whose bound on the half that is planned on is at most `limit`; cost 1: none.
 * Nothing is skipped: T2 is 1. */
static int search(struct mixed *m, double limit, struct choice *best, struct error *error)
{
    *best = (struct choice){.at = {.t1 = 1, .t2 = 1, .cost = 1}};
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        struct threshold_choice now = best->at;
        if (i > 0 && mixed_is_uniform(m))
            break;
        mixed_set(m, shares[i]);
        planning_note(m->p, "  %.0f %% of edgemoe's experts at %s", 100 * shares[i],
                      precision_name(m->coarse));
        const struct serving s = mixed_serving(m, 1, 1);
        if (thresholds_search(m->p, &s, 1, limit, T1_STEPS, &now, error) != 0)
            return -1;
        if (now.cost < best->at.cost)
            *best = (struct choice){now, shares[i]};
    }
    return 0;
}

bool mixed_is_uniform(const struct mixed *m)
{
    return m->coarse == m->fine;
}

int mixed_begin(struct mixed *m, const char *preset, struct error *error)
{
    struct planning *p = m->p;
    const struct plan *plan = p->plan;
    if (!plan_width(plan) || !plan_importance(plan) || !plan_importance_measured(plan) ||
        isnan(plan_importance(plan)[planning_place(p, 0)]) ||
        !plan_knows(plan, PLAN_edgemoe_loss_high))
        return error_set(error, ERR_BAD_INPUT,
                         "%s begins with edgemoe's precisions; run 'sluice plan --preset edgemoe' "
                         "first",
                         preset);
    m->cells = planning_experts(p);
    m->order = zeroed(m->cells, sizeof *m->order);
    m->planned = zeroed(m->cells, 1);
    m->high_number = zeroed(m->cells, 1);
    m->high = zeroed((size_t)plan->layers * plan->experts, 1);
    m->low = zeroed((size_t)plan->layers * plan->experts, 1);
    m->fine = PRECISION__COUNT - 1;
    m->coarse = PRECISION_NATIVE;
    for (uint64_t i = 0; i < m->cells; i++) {
        enum precision t = (enum precision)plan_width(plan)[planning_place(p, i)];
        m->planned[i] = (uint8_t)t;
        m->fine = t < m->fine ? t : m->fine;
        m->coarse = t > m->coarse ? t : m->coarse;
    }
    for (uint64_t i = 0; i < m->cells; i++)
        m->lowered += m->planned[i] == m->coarse;
    plan_edgemoe_order(p, m->fine, m->coarse, m->order);
    return 0;
}

void mixed_end(struct mixed *m)
{
    free(m->order);
    free(m->planned);
    free(m->high_number);
    free(m->high);
    free(m->low);
}

const char *mixed_text(const struct mixed *m, char text[128])
{
    uint64_t at[PRECISION__COUNT] = {0};
    for (uint64_t i = 0; i < m->cells; i++)
        at[m->high[planning_place(m->p, i)]]++;
    snprintf(text, 128,
             "%" PRIu64 " experts native, %" PRIu64 " int8, %" PRIu64 " int4, %" PRIu64 " int2",
             at[PRECISION_NATIVE], at[PRECISION_INT8], at[PRECISION_INT4], at[PRECISION_INT2]);
    return text;
}

/* The precisions of the choice are set. */
static int store(struct mixed *m, const struct choice *c, const struct judged *judged,
                 struct error *error)
{
    struct planning *p = m->p;
    size_t all = (size_t)p->plan->layers * p->plan->experts;
    uint64_t arrays = plan_array_bit(PLAN_ARRAY_mixed_high) | plan_array_bit(PLAN_ARRAY_mixed_low);
    char text[64], when[64], experts[128];
    if (planning_add(p, arrays, error) != 0)
        return -1;
    double *s = p->plan->scalar, cost = thresholds_cost(p, &p->held, &judged->report);
    memcpy(plan_mixed_high(p->plan), m->high, all);
    memcpy(plan_mixed_low(p->plan), m->low, all);
    s[PLAN_mixed_t1] = c->at.t1;
    s[PLAN_mixed_t2] = c->at.t2;
    s[PLAN_mixed_loss] = judged->loss.value;
    s[PLAN_mixed_loss_low] = judged->loss.low;
    s[PLAN_mixed_loss_high] = judged->loss.high;
    s[PLAN_mixed_method] = p->method;
    s[PLAN_mixed_dense] = p->dense;
    s[PLAN_mixed_kv_type] = p->kv_type;
    s[PLAN_mixed_share] = p->clock.capacity ? planning_clock_share(p) : (double)NAN;
    planning_note(p,
                  "mixed-two: %s, and a step lower above T1 %.3f: %.1f %% of the bytes, expected "
                  "loss %s%s",
                  mixed_text(m, experts), c->at.t1, 100 * cost, planning_loss(&judged->loss, text),
                  thresholds_when(p, when));
    json_object_set_new(p->report, "mixed_two",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "t1", c->at.t1, "t2",
                                  c->at.t2, "share", c->share, "bytes_share", cost, "loss",
                                  judged->loss.value, "loss_low", judged->loss.low, "loss_high",
                                  judged->loss.high));
    const struct serving serving = mixed_serving(m, c->at.t1, c->at.t2);
    return planning_report(p, "mixed-two", &serving, judged, error);
}

static int tighten(struct mixed *m, struct choice *best, struct judged *judged, struct error *error)
{
    struct planning *p = m->p;
    struct tightening tight = tightening_start(p->max_loss);
    struct choice now;
    struct judged held;
    best->at.cost = 1;
    do {
        if (search(m, tight.target, &now, error) != 0)
            return -1;
        if (now.at.cost >= 1)
            break;
        mixed_set(m, now.share);
        const struct serving s = mixed_serving(m, now.at.t1, now.at.t2);
        planning_note(p, "  %.0f %% at %s, T1 %.3f", 100 * now.share, precision_name(m->coarse),
                      now.at.t1);
        if (planning_judge(p, &s, &held, error) != 0)
            return -1;
        if (held.loss.high <= p->max_loss) {
            *best = now;
            *judged = held;
        }
    } while (tightening_next(&tight, now.at.loss, held.loss.high));
    if (best->at.cost >= 1)
        return error_set(error, ERR_NO_PLAN,
                         "no precisions and thresholds keep the loss below "
                         "%.3g %%",
                         100 * p->max_loss);
    mixed_set(m, best->share);
    return 0;
}

int plan_mixed(struct planning *p, struct error *error)
{
    struct mixed m = {.p = p};
    struct choice best = {.share = 0};
    struct judged judged;
    int status = mixed_begin(&m, "mixed-two", error);
    if (status == 0)
        status = thresholds_clock(p, "mixed-two", error);
    if (status == 0)
        status = tighten(&m, &best, &judged, error);
    if (status == 0)
        status = store(&m, &best, &judged, error);
    p->clock.capacity = 0;
    mixed_end(&m);
    return status;
}
