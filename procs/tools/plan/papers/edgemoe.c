/* SPDX-License-Identifier: Apache-2.0 */
/* EdgeMoE's precisions (§III-B): measures what the search of widths.h asks for, and stores its
 * result. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/papers/widths.h"
#include "procs/tools/plan/planning.h"

/* The search counts experts from the first layer that has experts on. */
struct search {
    struct planning *p;
    uint64_t first;     /* its first expert in arrays per layer and expert */
    uint8_t *precision; /* such an array */
};

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

static uint64_t cell_bytes(void *arg, uint64_t cell, enum precision precision)
{
    const struct search *search = arg;
    const struct planning *p = search->p;
    cell += search->first;
    return offline_expert_bytes(p->model, (uint32_t)(cell / p->plan->experts),
                                (uint32_t)(cell % p->plan->experts), precision, p->method);
}

/* Ascending loss per byte saved (the paper divides importance by the gain of the precision). */
static void order_experts(void *arg, enum precision high, enum precision low, uint64_t *order)
{
    const struct search *search = arg;
    struct planning *p = search->p;
    const struct plan *plan = p->plan;
    uint64_t first = search->first, cells = (uint64_t)plan->layers * plan->experts - first;
    double *importance = calloc(cells, sizeof *importance);
    struct rank *ranks = calloc(cells, sizeof *ranks);
    sl_assert(importance && ranks);
    double kept =
        importance_shrunk(plan_importance(plan) + first, plan_importance_measured(plan) + first,
                          (uint32_t)(cells / plan->experts), plan->experts, importance);
    planning_note(p, "  importance: %.0f %% of an expert's distance from its group mean is kept",
                  100 * kept);
    for (uint64_t i = 0; i < cells; i++) {
        uint64_t high_bytes = cell_bytes(arg, i, high), low_bytes = cell_bytes(arg, i, low);
        double saved = high_bytes > low_bytes ? (double)(high_bytes - low_bytes) : 1;
        ranks[i] = (struct rank){.at = i, importance[i] / saved};
    }
    qsort(ranks, cells, sizeof *ranks, by_rise);
    for (uint64_t i = 0; i < cells; i++)
        order[i] = ranks[i].at;
    free(importance);
    free(ranks);
}

static int measure(void *arg, const char *what, enum precision dense, const uint8_t *precision,
                   struct offline_interval *loss, struct error *error)
{
    const struct search *search = arg;
    struct planning *p = search->p;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    struct serving s = {
        .kind = SERVE_PRECISIONS, .method = p->method, .precision = search->precision};
    struct measured m;
    char text[64];
    memcpy(search->precision + search->first, precision, cells - search->first);
    p->dense = dense;
    if (planning_measure(p, &p->text, &s, &m, error) != 0)
        return -1;
    *loss = m.loss;
    planning_note(p, "  dense %s, %s: loss %s", precision_name(dense), what,
                  planning_loss(loss, text));
    return 0;
}

static uint64_t dense_bytes(void *arg, enum precision dense)
{
    const struct search *search = arg;
    return offline_index_at(search->p->model, dense)->dense_bytes;
}

static void store_uniform(struct planning *p, const struct widths *w)
{
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    uint8_t *all = calloc(cells, 1);
    sl_assert(all);
    p->plan->scalar[PLAN_uniform_method] = p->method;
    p->plan->scalar[PLAN_uniform_dense] = w->dense;
    p->plan->scalar[PLAN_dense_loss_high] = w->dense_loss.high;
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        const struct offline_interval *loss = &w->uniform[t];
        double *high = &p->plan->scalar[PLAN_uniform_int8_loss_high + (t - PRECISION_INT8)];
        *high = (double)NAN; /* one of an earlier plan may have had other dense weights */
        if (!(w->uniform_mask >> t & 1))
            continue;
        *high = loss->high;
        memset(all, t, cells);
        json_object_set_new(p->report, precision_name(t),
                            json_pack("{s:f, s:f, s:f, s:I}", "loss", loss->value, "low", loss->low,
                                      "high", loss->high, "bytes",
                                      (json_int_t)serving_bytes(p->model, all, p->method)));
    }
    free(all);
}

static void store(struct planning *p, const struct widths *w)
{
    char text[64], size[16], dense[16];
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    uint64_t high_count = cells - planning_first_cell(p) - w->low_count;
    double *s = p->plan->scalar;
    s[PLAN_edgemoe_loss] = w->loss.value;
    s[PLAN_edgemoe_loss_low] = w->loss.low;
    s[PLAN_edgemoe_loss_high] = w->loss.high;
    s[PLAN_edgemoe_bytes] = (double)w->expert_bytes;
    s[PLAN_edgemoe_method] = p->method;
    s[PLAN_edgemoe_dense] = w->dense;
    planning_note(p,
                  "edgemoe: %llu experts at %s, %llu at %s: %s of %s native; dense weights at %s: "
                  "%s; expected loss %s",
                  (unsigned long long)w->low_count, precision_name(w->low),
                  (unsigned long long)high_count, precision_name(w->high),
                  bytes_format(w->expert_bytes, size), bytes_format(p->native_bytes, (char[16]){0}),
                  precision_name(w->dense), bytes_format(w->dense_bytes, dense),
                  planning_loss(&w->loss, text));
    planning_note(p, "edgemoe: make its store with 'sluice pack --plan %s'", p->out_path);
    json_object_set_new(p->report, "edgemoe",
                        json_pack("{s:s, s:I, s:s, s:I, s:I, s:s, s:I, s:f, s:f, s:f}", "low",
                                  precision_name(w->low), "low_count", (json_int_t)w->low_count,
                                  "high", precision_name(w->high), "high_count",
                                  (json_int_t)high_count, "bytes", (json_int_t)w->expert_bytes,
                                  "dense", precision_name(w->dense), "dense_bytes",
                                  (json_int_t)w->dense_bytes, "loss", w->loss.value, "loss_low",
                                  w->loss.low, "loss_high", w->loss.high));
}

int plan_edgemoe(struct planning *p, struct error *error)
{
    const struct plan *given = p->plan;
    if (!plan_has(given, PLAN_ARRAY_importance) ||
        !plan_has(given, PLAN_ARRAY_importance_measured) ||
        isnan(plan_importance(given)[planning_first_cell(p)]))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no importance of experts; run sluice profile again",
                         p->profile_path);
    if (planning_add(p, plan_array_bit(PLAN_ARRAY_width), error) != 0)
        return -1;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    struct search self = {.p = p, .first = planning_first_cell(p), .precision = calloc(cells, 1)};
    const struct width_search search = {.arg = &self,
                                        .cells = cells - self.first,
                                        .max_loss = p->max_loss,
                                        .margin = p->margin,
                                        .dense = p->dense_given ? 1u << p->dense : PRECISION_DENSE,
                                        .measure = measure,
                                        .order = order_experts,
                                        .dense_bytes = dense_bytes,
                                        .cell_bytes = cell_bytes};
    struct widths best = {.precision = calloc(search.cells, 1)};
    sl_assert(best.precision && self.precision);
    int status = widths_search(&search, &best, error);
    if (status == 0) {
        p->dense = best.dense;
        memcpy(plan_width(p->plan) + self.first, best.precision, search.cells);
        store_uniform(p, &best);
        store(p, &best);
    } else if (!p->dense_given) {
        p->dense = PRECISION_NATIVE;
    }
    free(best.precision);
    free(self.precision);
    return status;
}
