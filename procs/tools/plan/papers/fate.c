/* SPDX-License-Identifier: Apache-2.0 */
/* Fate's boundary from the recall in the profile, and the fraction of the least popular experts
 * that have the lower precision in prefill (§4.5: found by a search that keeps the loss below P).
 * Neither depends on the budget; with one, the shares of the layers, too. */
#include <math.h>
#include <stdlib.h>

#include "procs/tools/plan/planning.h"

#include "lib/tensor/precision.h"

#define FRACTION_STEPS 4 /* of the bisection */
/* A layer is shallow if the recall of its list is below this share of the best layer's. */
#define SHALLOW 0.9

static uint32_t boundary_of(const struct plan *plan, uint32_t first)
{
    const float *recall = plan_recall_gate_list(plan);
    float best = 0;
    for (uint32_t l = first + 1; l < plan->layers; l++)
        best = recall[l] > best ? recall[l] : best;
    uint32_t boundary = first + 1; /* the first layer with experts has no predictor */
    while (boundary < plan->layers && recall[boundary] < SHALLOW * best)
        boundary++;
    return boundary;
}

/* All experts of shallow layers, as far as K per other layer remain; the rest evenly. */
static void share_out(struct plan *plan, uint64_t entries, uint32_t first, uint32_t boundary)
{
    uint32_t *share = plan_share(plan), k = plan->experts_used, layers = plan->layers;
    for (uint32_t l = 0; l < layers; l++)
        share[l] = l < first ? 0 : k;
    uint64_t min = (uint64_t)(layers - first) * k, left = entries > min ? entries - min : 0;
    for (uint32_t l = first; l < boundary && l < layers; l++) {
        uint64_t more = plan->experts - k < left ? plan->experts - k : left;
        share[l] += (uint32_t)more;
        left -= more;
    }
    uint32_t deep = layers > boundary ? layers - boundary : 0;
    for (uint32_t l = boundary; l < layers; l++) {
        uint64_t even = k + left / deep;
        share[l] = even < plan->experts ? (uint32_t)even : plan->experts;
    }
}

struct precisions {
    enum precision high, low;
};

/* int4 and int2 as in the paper. What is not smaller than the model's experts is in no store: then
 * the higher one is that of the model, or there is no lower one. */
static struct precisions choose_precisions(const struct planning *p)
{
    struct precisions t = {.high = PRECISION_NATIVE};
    if (planning_is_smaller(p, PRECISION_INT4))
        t.high = PRECISION_INT4;
    t.low = planning_is_smaller(p, PRECISION_INT2) ? PRECISION_INT2 : t.high;
    return t;
}

static struct serving serving_of(const struct planning *p, double fraction)
{
    const struct precisions t = choose_precisions(p);
    return (struct serving){.kind = SERVE_POLICY,
                            .method = p->method,
                            .chunk = PLANNING_CHUNK,
                            .policy = {.rule = PRECISION_RULE_FATE,
                                       .high = t.high,
                                       .low = t.low,
                                       .low_fraction = (float)fraction}};
}

/* The largest fraction whose bound on the half that is planned on is at most `limit`, and this
 * bound; below 0: none. */
static int search(struct planning *p, double limit, double *fraction, double *loss,
                  struct error *error)
{
    double good = -1, bad = 1.0 + 1.0 / (1 << FRACTION_STEPS);
    char text[64];
    *fraction = -1;
    for (int i = 0; i <= FRACTION_STEPS; i++) {
        struct measured m;
        double next = i == 0 ? 0 : (fmax(good, 0) + fmin(bad, 1)) / 2;
        const struct serving s = serving_of(p, next);
        if (planning_measure(p, &p->text, &s, &m, error) != 0)
            return -1;
        planning_note(p, "  %s for the least popular %.0f %% of a chunk's experts: loss %s",
                      precision_name(s.policy.low), 100 * next, planning_loss(&m.loss, text));
        if (m.loss.high <= limit) {
            *fraction = good = next;
            *loss = m.loss.high;
        } else if (i == 0) {
            return 0;
        } else {
            bad = next;
        }
    }
    return 0;
}

static void store(struct planning *p, double fraction, const struct judged *judged)
{
    const struct precisions t = choose_precisions(p);
    double *scalar = p->plan->scalar;
    char text[64];
    scalar[PLAN_fate_prefill_int2] = fraction;
    scalar[PLAN_fate_loss] = judged->loss.value;
    scalar[PLAN_fate_loss_low] = judged->loss.low;
    scalar[PLAN_fate_loss_high] = judged->loss.high;
    scalar[PLAN_fate_method] = p->method;
    scalar[PLAN_fate_dense] = p->dense;
    scalar[PLAN_fate_kv_type] = p->kv_type;
    scalar[PLAN_fate_high] = t.high;
    scalar[PLAN_fate_chunk] = PLANNING_CHUNK;
    scalar[PLAN_fate_low] = fraction > 0 ? t.low : t.high; /* a store needs no other */
    planning_note(p, "fate: experts at %s, %.0f %% of a chunk's at %s in prefill, expected loss %s",
                  precision_name(t.high), 100 * fraction, precision_name(t.low),
                  planning_loss(&judged->loss, text));
    json_object_set_new(p->report, "fate_prefill",
                        json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "high", precision_name(t.high),
                                  "low", precision_name(t.low), "fraction", fraction, "loss",
                                  judged->loss.value, "loss_low", judged->loss.low, "loss_high",
                                  judged->loss.high));
}

static int search_fraction(struct planning *p, struct error *error)
{
    struct tightening tight = tightening_start(p->max_loss);
    struct judged judged, held;
    double best = -1, now, loss;
    do {
        if (search(p, tight.target, &now, &loss, error) != 0)
            return -1;
        if (now < 0)
            break;
        const struct serving s = serving_of(p, now);
        if (planning_judge(p, &s, &held, error) != 0)
            return -1;
        if (held.loss.high <= p->max_loss) {
            best = now;
            judged = held;
        }
    } while (tightening_next(&tight, loss, held.loss.high));
    if (best < 0)
        return error_set(error, ERR_NO_PLAN,
                         "fate cannot keep the loss below %.3g %%: not even with all experts at %s",
                         100 * p->max_loss, precision_name(choose_precisions(p).high));
    store(p, best, &judged);
    const struct serving s = serving_of(p, best);
    return planning_report(p, "fate", &s, &judged, error);
}

/* What the budget decides. */
static int plan_shares(struct planning *p, uint32_t first, uint32_t boundary, struct error *error)
{
    uint64_t bytes = planning_expert_bytes(p, error);
    if (!bytes || planning_add(p, plan_array_bit(PLAN_ARRAY_share), error) != 0)
        return -1;
    enum precision high = choose_precisions(p).high;
    uint64_t entries = bytes / planning_one_expert(p, high);
    share_out(p->plan, entries, first, boundary);
    planning_note(p, "fate: capacity of %llu experts at %s", (unsigned long long)entries,
                  precision_name(high));
    json_object_set_new(json_object_get(p->report, "fate"), "entries",
                        json_integer((json_int_t)entries));
    return 0;
}

int plan_fate(struct planning *p, struct error *error)
{
    if (!plan_has(p->plan, PLAN_ARRAY_recall_gate_list))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no recall of predictions; run sluice profile again",
                         p->profile_path);
    if (choose_precisions(p).low == PRECISION_NATIVE)
        return error_set(error, ERR_NO_PLAN,
                         "the experts of this model have no lower precision that is smaller");
    uint32_t first = model_expert_layer(offline_index(p->model), 0);
    uint32_t boundary = boundary_of(p->plan, first);
    p->plan->scalar[PLAN_fate_boundary] = boundary;
    planning_note(p, "fate: layers below %u entirely resident", boundary);
    json_object_set_new(p->report, "fate", json_pack("{s:i}", "boundary", (int)boundary));
    if ((p->budget_bytes || p->experts_percent > 0) && plan_shares(p, first, boundary, error) != 0)
        return -1;
    return search_fraction(p, error);
}
