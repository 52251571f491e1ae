/* SPDX-License-Identifier: Apache-2.0 */
/* mixed-two and cache-aware routing within one loss: how many experts keep edgemoe's lower
 * precision, T1, T2, above which a missing expert is left out, and nats. What is low, left out and
 * replaced depends on what is resident, so the text is decoded token by token with a simulated
 * cache, without prefetch.
 *
 * The levers save bytes that hardly overlap, and their losses nearly add up. So a search takes one
 * step of the lever that saves most bytes per loss, until no step keeps to P: at one resident
 * share, on a quarter of the text. Of the points of this way, the last one is wanted whose bound
 * keeps to P on what is held out, at that share and at the others, of which the worst counts.
 *
 * A bisection finds a point that keeps to P. Since bounds are not monotone there, those that
 * read less are then judged, too, from the least on until one is good: a bad one mostly costs one
 * share. A judgement takes minutes, so of these there are at most MORE, for both ways together. If
 * they are not used up, the plan is the point of both ways that reads least of all that keep to P.
 * Else it keeps to P, too, and reads no more than edgemoe's precisions, where these do by their own
 * plan.
 *
 * A quarter of the text misleads the first steps, which decide the others. So there are two
 * searches: from edgemoe's precisions as they are, and from no lever at all. Of what keeps to P,
 * that which reads least is the plan. edgemoe's precisions keep to P by its own plan, since their
 * loss does not depend on what is resident: what reads more is not judged, and if nothing reads
 * less, they are the plan. Its bound may be that of other settings or of another text, though: they
 * are judged before they are the plan, and if they are bad, what reads more is judged after all. */
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
#define MORE     8 /* judgements after the bisections */

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

#define WAY_MAX 24 /* above the steps of all levers together */
struct way {
    struct point at[WAY_MAX];
    uint32_t count;
};

struct kept { /* the best point so far whose bound is within P */
    bool any;
    double cost;   /* only what costs less is better: its cost, or that of edgemoe's precisions */
    uint32_t more; /* judgements that are left after a bisection */
    struct point at;
    struct verdict verdict;
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

/* What a lever's next step was worth when it was measured last: bytes saved per loss. */
struct offer {
    bool open, known, fresh; /* takes steps; was measured; from the point where the search is */
    double worth;
    struct point to; /* if fresh */
};

/* Measures the next step of a lever. A lever whose step loses too much, or saves nothing, takes no
 * other one. -1 with *error. */
static int make_offer(struct joint *j, const struct point *from, enum lever lever, double limit,
                      struct offer *o, struct error *error)
{
    o->to = *from;
    o->open = point_step(&o->to, lever, ranks_of(j));
    if (!o->open)
        return 0;
    if (measure(j, &o->to, error) != 0)
        return -1;
    o->open = o->to.loss <= limit && o->to.cost < from->cost;
    o->known = o->fresh = true;
    o->worth = (from->cost - o->to.cost) / fmax(o->to.loss - from->loss, LOSS_LEAST);
    return 0;
}

/* The open lever that is worth most; one that was not measured yet before all others. LEVERS: none
 * is open. */
static enum lever best_offer(const struct offer offer[LEVERS])
{
    enum lever best = LEVERS;
    for (enum lever i = 0; i < LEVERS; i++) {
        if (!offer[i].open)
            continue;
        if (!offer[i].known)
            return i;
        if (best == LEVERS || offer[i].worth > offer[best].worth)
            best = i;
    }
    return best;
}

/* The points from *start on whose loss is within P; each costs less than the one before. Since what
 * levers save hardly overlaps, an offer from an earlier point tells which lever to measure again:
 * of the four, mostly one or two are measured for a step. */
static int search(struct joint *j, const struct point *start, struct way *way, struct error *error)
{
    struct offer offer[LEVERS] = {{.open = !mixed_is_uniform(&j->mixed)}};
    struct point now = *start;
    double limit = j->mixed.p->max_loss;
    way->count = 0;
    if (measure(j, &now, error) != 0)
        return -1;
    if (now.loss > limit)
        return 0;
    way->at[way->count++] = now;
    for (enum lever i = WIDTHS + 1; i < LEVERS; i++)
        offer[i].open = true;
    for (enum lever best; (best = best_offer(offer)) < LEVERS;) {
        if (!offer[best].fresh) {
            if (make_offer(j, &now, best, limit, &offer[best], error) != 0)
                return -1;
            continue;
        }
        now = offer[best].to;
        sl_assert(way->count < WAY_MAX);
        way->at[way->count++] = now;
        for (enum lever i = 0; i < LEVERS; i++)
            offer[i].fresh = false;
        offer[best].known = false;
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

/* Keeps the point if its bound is within P. */
static int try_point(struct joint *j, const struct point *x, struct kept *kept, bool *good,
                     struct error *error)
{
    struct verdict v;
    char text[112];
    planning_note(j->mixed.p, "  %s", point_text(j, x, text));
    if (judge(j, x, &v, error) != 0)
        return -1;
    *good = v.loss.high <= j->mixed.p->max_loss;
    if (*good)
        *kept =
            (struct kept){.any = true, .cost = x->cost, .more = kept->more, .at = *x, .verdict = v};
    return 0;
}

struct trial {
    struct joint *j;
    const struct way *way;
    struct kept *kept;
};

static int try_at(void *user, uint32_t i, bool *good, struct error *error)
{
    const struct trial *t = user;
    return try_point(t->j, &t->way->at[i], t->kept, good, error);
}

/* The last good point of the way that costs less than what is kept (way_last_good). The first one
 * that is judged is that with half of P, since the bound is about twice the loss. */
static int try_way(struct joint *j, const struct point *start, struct kept *kept,
                   struct error *error)
{
    struct way way;
    uint32_t from = 0;
    if (search(j, start, &way, error) != 0)
        return -1;
    while (from < way.count && way.at[from].cost >= kept->cost)
        from++;
    if (from == way.count)
        return 0;
    uint32_t first = way.count - 1;
    while (first > from && way.at[first].loss > j->mixed.p->max_loss / 2)
        first--;
    struct trial trial = {j, &way, kept};
    return way_last_good(from, way.count, first, &kept->more, try_at, &trial, error);
}

/* From edgemoe's precisions, and from no lever: what costs less than `cost`. */
static int try_ways(struct joint *j, const struct point *edgemoe, double cost, struct kept *kept,
                    struct error *error)
{
    const struct point none = {.at = {0}};
    *kept = (struct kept){.cost = cost, .more = MORE};
    return try_way(j, edgemoe, kept, error) != 0 ? -1 : try_way(j, &none, kept, error);
}

/* The lossless engine, which needs no plan. */
static bool lowers_nothing(struct joint *j, const struct point *x)
{
    (void)set(j, x, j->share[0]); /* the precisions */
    bool native = true;
    for (uint64_t i = 0; i < j->mixed.cells; i++)
        native = native && j->mixed.high_number[i] == PRECISION_NATIVE;
    return native && t1_of(j, x) >= 1 && point_t2(x) >= 1 && point_nats(x) <= 0;
}

static int choose(struct joint *j, struct kept *kept, struct error *error)
{
    const struct planning *p = j->mixed.p;
    struct point edgemoe = point_edgemoe();
    bool within = p->plan->scalar[PLAN_edgemoe_loss_high] <= p->max_loss, good = true;
    if (measure(j, &edgemoe, error) != 0 ||
        try_ways(j, &edgemoe, within ? edgemoe.cost : 1, kept, error) != 0)
        return -1;
    if (!kept->any && within && try_point(j, &edgemoe, kept, &good, error) != 0)
        return -1;
    if (!good && try_ways(j, &edgemoe, 1, kept, error) != 0) /* what was measured is known */
        return -1;
    if (kept->any && !lowers_nothing(j, &kept->at))
        return 0;
    return error_set(error, ERR_NO_PLAN,
                     "no precisions, thresholds and nats keep the loss below %.3g %%",
                     100 * p->max_loss);
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
    struct kept kept;
    int status = mixed_begin(&j.mixed, PRESET, error);
    if (status == 0)
        status = choose_shares(&j, error);
    if (status == 0)
        status = choose(&j, &kept, error);
    if (status == 0)
        status = store(&j, &kept.at, &kept.verdict, error);
    p->clock.capacity = 0;
    mixed_end(&j.mixed);
    return status;
}
