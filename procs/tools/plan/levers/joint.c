/* SPDX-License-Identifier: Apache-2.0 */
/* mixed-two and cache-aware routing within one loss: how many experts keep edgemoe's lower
 * precision, T1, T2, above which a missing expert is left out, and nats. What is low, left out and
 * replaced depends on what is resident, so the text is decoded token by token with a simulated
 * cache, without prefetch.
 *
 * The levers save bytes that hardly overlap, and their losses nearly add up. So the search
 * begins without any of them, and takes one step of the lever that saves most bytes per loss, until
 * no step keeps to P: at one resident share, on a quarter of the text. What it finds is judged on
 * what is held out, at that share and at larger ones, of which the worst counts; the search is
 * repeated for a smaller loss until that keeps to P. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/tools/plan/levers/joint_steps.h"
#include "procs/tools/plan/levers/mixed.h"
#include "procs/tools/plan/papers/thresholds.h"

#define PRESET     "mixed-two-resident-first"
#define LOSS_LEAST 1e-5 /* a step that costs less is as good as one that costs this */

static const double shares[] = {0.125, 0.25, 0.5};
#define SEARCHED 1 /* without --thresholds capacity */

struct joint {
    struct mixed mixed;
    double share[1 + ARRAY_LEN(shares)]; /* ascending: those that are judged */
    uint32_t shares;
    uint32_t searched; /* of them */
};

struct verdict { /* of all shares */
    struct judged worst;
    double worst_share, cost[1 + ARRAY_LEN(shares)];
    struct offline_interval loss; /* the largest value, and the largest of each end */
};

static uint32_t ranks_of(const struct joint *j)
{
    return offline_index(j->mixed.p->model)->hparams.experts_used;
}

static double t1_of(const struct joint *j, const struct point *x)
{
    return point_t1(x, ranks_of(j));
}

/* The point as a serving; sets the precisions and the nats of the cache. */
static struct serving set(struct joint *j, const struct point *x, double share)
{
    struct planning_clock *clock = &j->mixed.p->clock;
    clock->capacity = (uint64_t)(share * (double)j->mixed.p->native_bytes);
    clock->knobs.nats = point_nats(x);
    mixed_set(&j->mixed, point_share(x));
    return mixed_serving(&j->mixed, t1_of(j, x), point_t2(x));
}

static const char *point_text(const struct joint *j, const struct point *x, char text[112])
{
    snprintf(text, 112, "%.0f %% of edgemoe's experts at %s, T1 %.3f, T2 %g, %g nats",
             100 * point_share(x), precision_name(j->mixed.coarse), t1_of(j, x), point_t2(x),
             point_nats(x));
    return text;
}

/* ---- search ------------------------------------------------------------------------------- */

static int measure(struct joint *j, struct point *x, struct error *error)
{
    struct planning *p = j->mixed.p;
    const struct serving s = set(j, x, j->share[j->searched]);
    struct measured m;
    char text[112], loss[64];
    if (planning_measure(p, &p->some, &s, &m, error) != 0)
        return -1;
    x->cost = thresholds_cost(p, &p->some, &m.report);
    x->loss = m.loss.value;
    planning_note(p, "  %s: %.1f %% of the bytes, loss %s", point_text(j, x, text), 100 * x->cost,
                  planning_loss(&m.loss, loss));
    return 0;
}

/* Bytes saved per loss. */
static double worth(const struct point *from, const struct point *to)
{
    return (from->cost - to->cost) / fmax(to->loss - from->loss, LOSS_LEAST);
}

/* The best next point within `limit`; false: none. A lever whose step loses too much, or saves
 * nothing, takes no other one: open[lever]. -1 with *error. */
static int next_point(struct joint *j, const struct point *from, double limit, bool *open,
                      struct point *best, bool *found, struct error *error)
{
    *found = false;
    for (int lever = 0; lever < LEVERS; lever++) {
        struct point to = *from;
        if (!open[lever])
            continue;
        open[lever] = point_step(&to, (enum lever)lever, ranks_of(j));
        if (!open[lever])
            continue;
        if (measure(j, &to, error) != 0)
            return -1;
        open[lever] = to.loss <= limit && to.cost < from->cost;
        if (!open[lever] || (*found && worth(from, &to) <= worth(from, best)))
            continue;
        *best = to;
        *found = true;
    }
    return 0;
}

/* The last point within `limit`; cost 1: none. */
static int search(struct joint *j, double limit, struct point *out, struct error *error)
{
    bool open[LEVERS] = {!mixed_is_uniform(&j->mixed), true, true, true}, found = true;
    struct point now = {.at = {0}};
    out->cost = 1;
    if (measure(j, &now, error) != 0)
        return -1;
    if (now.loss > limit)
        return 0;
    while (found) {
        *out = now;
        if (next_point(j, out, limit, open, &now, &found, error) != 0)
            return -1;
    }
    return 0;
}

/* ---- judging ------------------------------------------------------------------------------ */

static void take_worse(struct verdict *v, const struct judged *judged, double share)
{
    if (judged->loss.high > v->loss.high) {
        v->worst = *judged;
        v->worst_share = share;
    }
    v->loss.value = fmax(v->loss.value, judged->loss.value);
    v->loss.low = fmax(v->loss.low, judged->loss.low);
    v->loss.high = fmax(v->loss.high, judged->loss.high);
}

/* At the searched share first: where the bound does not keep to P, the other shares are not
 * judged. */
static int judge(struct joint *j, const struct point *x, struct verdict *v, struct error *error)
{
    struct planning *p = j->mixed.p;
    v->loss = (struct offline_interval){-INFINITY, -INFINITY, -INFINITY};
    for (uint32_t n = 0; n < j->shares && v->loss.high <= p->max_loss; n++) {
        uint32_t i = (j->searched + n) % j->shares;
        struct judged judged;
        const struct serving s = set(j, x, j->share[i]);
        if (planning_judge(p, &s, &judged, error) != 0)
            return -1;
        v->cost[i] = thresholds_cost(p, &p->held, &judged.report);
        planning_note(p, "  %.1f %% resident: %.1f %% of the bytes", 100 * j->share[i],
                      100 * v->cost[i]);
        take_worse(v, &judged, j->share[i]);
    }
    return 0;
}

static int tighten(struct joint *j, struct point *best, struct verdict *verdict,
                   struct error *error)
{
    double max = j->mixed.p->max_loss;
    struct tightening tight = tightening_start(max);
    struct point now;
    struct verdict v;
    char text[112];
    best->cost = 1;
    do {
        if (search(j, tight.target, &now, error) != 0)
            return -1;
        if (now.cost >= 1)
            break;
        planning_note(j->mixed.p, "  %s", point_text(j, &now, text));
        if (judge(j, &now, &v, error) != 0)
            return -1;
        if (v.loss.high <= max) {
            *best = now;
            *verdict = v;
        }
    } while (tightening_next(&tight, now.loss, v.loss.high));
    if (best->cost < 1)
        return 0;
    return error_set(error, ERR_NO_PLAN,
                     "no precisions, thresholds and nats keep the loss below %.3g %%", 100 * max);
}

/* ---- plan --------------------------------------------------------------------------------- */

static int store(struct joint *j, const struct point *x, const struct verdict *v,
                 struct error *error)
{
    struct planning *p = j->mixed.p;
    size_t all = (size_t)p->plan->layers * p->plan->experts;
    char experts[128], text[64];
    if (planning_add(p,
                     plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low),
                     error) != 0)
        return -1;
    const struct serving serving = set(j, x, v->worst_share);
    double *s = p->plan->scalar;
    memcpy(plan_joint_high(p->plan), j->mixed.high, all);
    memcpy(plan_joint_low(p->plan), j->mixed.low, all);
    s[PLAN_joint_t1] = t1_of(j, x);
    s[PLAN_joint_t2] = point_t2(x);
    s[PLAN_joint_nats] = point_nats(x);
    s[PLAN_joint_loss] = v->loss.value;
    s[PLAN_joint_loss_low] = v->loss.low;
    s[PLAN_joint_loss_high] = v->loss.high;
    s[PLAN_joint_share] = j->share[0];
    s[PLAN_joint_method] = p->method;
    s[PLAN_joint_dense] = p->dense;
    s[PLAN_joint_kv_type] = p->kv_type;
    planning_note(p,
                  PRESET ": %s, a step lower above T1 %.3f, left out above T2 %g, %g nats, from "
                         "%.3g %% resident on: expected loss %s",
                  mixed_text(&j->mixed, experts), s[PLAN_joint_t1], s[PLAN_joint_t2],
                  s[PLAN_joint_nats], 100 * j->share[0], planning_loss(&v->loss, text));
    json_t *bytes = json_array();
    for (uint32_t i = 0; i < j->shares; i++)
        json_array_append_new(
            bytes, json_pack("{s:f, s:f}", "resident", j->share[i], "bytes_share", v->cost[i]));
    json_object_set_new(p->report, "mixed_two_resident_first",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "t1",
                                  s[PLAN_joint_t1], "t2", s[PLAN_joint_t2], "nats",
                                  s[PLAN_joint_nats], "share", point_share(x), "loss",
                                  v->loss.value, "loss_low", v->loss.low, "loss_high", v->loss.high,
                                  "bytes", bytes));
    return planning_report(p, PRESET, &serving, &v->worst, error);
}

/* The given share, which is searched, and the larger ones of the list; else those of the list that
 * hold the experts of a layer. */
static int choose_shares(struct joint *j, struct error *error)
{
    struct planning *p = j->mixed.p;
    double layer = (double)offline_index(p->model)->hparams.experts_used *
                   (double)planning_one_expert(p, PRECISION_NATIVE);
    if (thresholds_clock(p, PRESET, error) != 0)
        return -1;
    double least = p->clock.capacity ? planning_clock_share(p) : layer / (double)p->native_bytes;
    if (p->clock.capacity)
        j->share[j->shares++] = least;
    else if (knobs_resolve(PRESET, NULL, NULL, &p->clock.knobs, error) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(shares); i++)
        if (shares[i] > least)
            j->share[j->shares++] = shares[i];
    if (j->shares == 0)
        return error_set(error, ERR_NO_PLAN, "half of the experts are fewer than a layer needs");
    if (!p->at_capacity)
        j->searched = j->shares > SEARCHED ? SEARCHED : j->shares - 1;
    return 0;
}

int plan_joint(struct planning *p, struct error *error)
{
    struct joint j = {.mixed = {.p = p}};
    struct point best;
    struct verdict verdict;
    int status = mixed_begin(&j.mixed, PRESET, error);
    if (status == 0)
        status = choose_shares(&j, error);
    if (status == 0)
        status = tighten(&j, &best, &verdict, error);
    if (status == 0)
        status = store(&j, &best, &verdict, error);
    p->clock.capacity = 0;
    mixed_end(&j.mixed);
    return status;
}
