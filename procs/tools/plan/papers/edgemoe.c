/* EdgeMoE's precisions (§III-B2): the bounds are the two uniform precisions whose losses enclose P;
 * a bisection finds the maximum number of experts, by ascending importance, that can have the lower
 * one.
 *
 * P is met if on the calibration text the loss is at most P minus a margin and the upper end of its
 * 95 % interval is at most P, because the loss of other text differs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

static struct serving of_precisions(const struct planning *p, const uint8_t *precision)
{
    return (struct serving){.kind = SERVE_PRECISIONS, .method = p->method, .precision = precision};
}

struct rank { /* order of experts for the lower precision */
    uint64_t at;
    double rise_per_byte;
};

static int by_rise(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->rise_per_byte != y->rise_per_byte)
        return (x->rise_per_byte > y->rise_per_byte) - (x->rise_per_byte < y->rise_per_byte);
    return (x->at > y->at) - (x->at < y->at);
}

struct precisions {
    struct planning *p;
    uint8_t *precision; /* [L * E] */
    struct rank *order;
    uint64_t cells;
    enum precision low, high;
    struct measured best;
};

/* Ascending loss per byte saved (the paper divides importance by the gain of the precision). */
static void order_experts(struct precisions *w)
{
    const struct plan *plan = w->p->plan;
    double *importance = calloc(w->cells, sizeof *importance);
    sl_assert(importance);
    double kept = importance_shrunk(plan_importance(plan), plan_importance_measured(plan),
                                    plan->layers, plan->experts, importance);
    planning_note(w->p, "  importance: %.0f %% of an expert's distance from its group mean is kept",
                  100 * kept);
    for (uint64_t i = 0; i < w->cells; i++) {
        uint32_t l = (uint32_t)(i / plan->experts), e = (uint32_t)(i % plan->experts);
        uint64_t high = offline_expert_bytes(w->p->model, l, e, w->high, w->p->method);
        uint64_t low = offline_expert_bytes(w->p->model, l, e, w->low, w->p->method);
        double saved = high > low ? (double)(high - low) : 1;
        w->order[i] = (struct rank){.at = i, importance[i] / saved};
    }
    qsort(w->order, w->cells, sizeof *w->order, by_rise);
    free(importance);
}

static void set_precisions(struct precisions *w, uint64_t low_count)
{
    for (uint64_t i = 0; i < w->cells; i++)
        w->precision[w->order[i].at] = (uint8_t)(i < low_count ? w->low : w->high);
}

static bool met(const struct planning *p, const struct measured *m)
{
    return m->loss.value <= p->max_loss * (1 - p->margin) && m->loss.high <= p->max_loss;
}

/* Measures uniform precisions and finds the two that enclose P. */
static int find_bounds(struct precisions *w, struct error *error)
{
    struct planning *p = w->p;
    char text[64], size[16];
    w->high = PRECISION_NATIVE; /* lossless always meets P */
    p->plan->scalar[PLAN_uniform_method] = p->method;
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        struct measured m;
        memset(w->precision, t, w->cells);
        struct serving s = of_precisions(p, w->precision);
        if (planning_measure(p, &p->text, &s, &m, error) != 0)
            return -1;
        uint64_t bytes = serving_bytes(p->model, w->precision, p->method);
        planning_note(p, "uniform %-6s %9s  loss %s", precision_name(t), bytes_format(bytes, size),
                      planning_loss(&m.loss, text));
        json_object_set_new(p->report, precision_name(t),
                            json_pack("{s:f, s:f, s:f, s:I}", "loss", m.loss.value, "low",
                                      m.loss.low, "high", m.loss.high, "bytes", (json_int_t)bytes));
        p->plan->scalar[PLAN_uniform_int8_loss_high + (t - PRECISION_INT8)] = m.loss.high;
        w->low = t;
        if (!met(p, &m))
            return 0;
        w->high = t;
        w->best = m;
    }
    return 0;
}

static int bisect(struct precisions *w, uint64_t *count, struct error *error)
{
    struct planning *p = w->p;
    uint64_t good = 0, bad = w->cells;
    while (bad - good > (w->cells + 255) / 256) {
        struct measured m;
        uint64_t middle = (good + bad) / 2;
        set_precisions(w, middle);
        struct serving s = of_precisions(p, w->precision);
        if (planning_measure(p, &p->text, &s, &m, error) != 0)
            return -1;
        char text[64];
        planning_note(p, "  %llu of %llu experts at %s: loss %s", (unsigned long long)middle,
                      (unsigned long long)w->cells, precision_name(w->low),
                      planning_loss(&m.loss, text));
        if (met(p, &m)) {
            good = middle;
            w->best = m;
        } else {
            bad = middle;
        }
    }
    *count = good;
    return 0;
}

static void store(struct precisions *w, uint64_t low_count)
{
    struct planning *p = w->p;
    char text[64], size[16];
    uint64_t bytes = serving_bytes(p->model, w->precision, p->method);
    memcpy(plan_width(p->plan), w->precision, w->cells);
    p->plan->scalar[PLAN_edgemoe_loss] = w->best.loss.value;
    p->plan->scalar[PLAN_edgemoe_loss_low] = w->best.loss.low;
    p->plan->scalar[PLAN_edgemoe_loss_high] = w->best.loss.high;
    p->plan->scalar[PLAN_edgemoe_bytes] = (double)bytes;
    p->plan->scalar[PLAN_edgemoe_method] = p->method;
    planning_note(p, "edgemoe: %llu experts at %s, %llu at %s: %s of %s native, expected loss %s",
                  (unsigned long long)low_count, precision_name(w->low),
                  (unsigned long long)(w->cells - low_count), precision_name(w->high),
                  bytes_format(bytes, size), bytes_format(p->native_bytes, (char[16]){0}),
                  planning_loss(&w->best.loss, text));
    json_object_set_new(p->report, "edgemoe",
                        json_pack("{s:s, s:I, s:s, s:I, s:I, s:f, s:f, s:f}", "low",
                                  precision_name(w->low), "low_count", (json_int_t)low_count,
                                  "high", precision_name(w->high), "high_count",
                                  (json_int_t)(w->cells - low_count), "bytes", (json_int_t)bytes,
                                  "loss", w->best.loss.value, "loss_low", w->best.loss.low,
                                  "loss_high", w->best.loss.high));
}

int plan_edgemoe(struct planning *p, struct error *error)
{
    struct plan *plan = p->plan;
    struct precisions w = {.p = p, .cells = (uint64_t)plan->layers * plan->experts};
    if (!plan_has(plan, PLAN_ARRAY_importance) || !plan_has(plan, PLAN_ARRAY_importance_measured) ||
        isnan(plan_importance(plan)[0]))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no importance of experts; run sluice profile again",
                         p->profile_path);
    if (planning_add(p, plan_array_bit(PLAN_ARRAY_width), error) != 0)
        return -1;
    w.precision = calloc(w.cells, 1);
    w.order = calloc(w.cells, sizeof *w.order);
    sl_assert(w.precision && w.order);
    uint64_t low_count = 0;
    int status = find_bounds(&w, error);
    if (status == 0 && w.low != w.high) {
        order_experts(&w);
        status = bisect(&w, &low_count, error);
        set_precisions(&w, low_count);
    }
    if (status == 0)
        store(&w, low_count);
    free(w.precision);
    free(w.order);
    return status;
}
