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

/* The search counts the experts that exist. */
struct search {
    struct planning *p;
    uint8_t *precision; /* an array per layer and expert */
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

static uint64_t bytes_of(const struct planning *p, uint64_t cell, enum precision precision)
{
    cell = planning_place(p, cell);
    return offline_expert_bytes(p->model, (uint32_t)(cell / p->plan->experts),
                                (uint32_t)(cell % p->plan->experts), precision, p->method);
}

static uint64_t cell_bytes(void *arg, uint64_t cell, enum precision precision)
{
    const struct search *search = arg;
    return bytes_of(search->p, cell, precision);
}

/* The paper divides importance by the gain of the precision. */
void plan_edgemoe_order(struct planning *p, enum precision high, enum precision low,
                        uint64_t *order)
{
    const struct plan *plan = p->plan;
    uint64_t cells = planning_experts(p);
    double *importance = calloc(cells, sizeof *importance);
    float *known = calloc(cells, sizeof *known);
    uint8_t *measured = calloc(cells, sizeof *measured);
    struct rank *ranks = calloc(cells, sizeof *ranks);
    sl_assert(importance && ranks && known && measured);
    for (uint64_t i = 0; i < cells; i++) {
        known[i] = plan_importance(plan)[planning_place(p, i)];
        measured[i] = plan_importance_measured(plan)[planning_place(p, i)];
    }
    double group = plan_knows(plan, PLAN_importance_group) ? plan->scalar[PLAN_importance_group]
                                                           : OFFLINE_IMPORTANCE_GROUP;
    double kept = importance_shrunk(known, measured, (uint32_t)(cells / plan->experts),
                                    plan->experts, (uint32_t)group, importance);
    planning_note(p, "  importance: %.0f %% of an expert's distance from its group mean is kept",
                  100 * kept);
    for (uint64_t i = 0; i < cells; i++) {
        uint64_t high_bytes = bytes_of(p, i, high), low_bytes = bytes_of(p, i, low);
        double saved = high_bytes > low_bytes ? (double)(high_bytes - low_bytes) : 1;
        ranks[i] = (struct rank){.at = i, importance[i] / saved};
    }
    qsort(ranks, cells, sizeof *ranks, by_rise);
    for (uint64_t i = 0; i < cells; i++)
        order[i] = ranks[i].at;
    free(importance);
    free(known);
    free(measured);
    free(ranks);
}

static void order_experts(void *arg, enum precision high, enum precision low, uint64_t *order)
{
    const struct search *search = arg;
    plan_edgemoe_order(search->p, high, low, order);
}

static struct serving serving_of(const struct planning *p, const uint8_t *precision)
{
    return (struct serving){.kind = SERVE_PRECISIONS, .method = p->method, .precision = precision};
}

static int measure(void *arg, const char *what, enum precision dense, const uint8_t *precision,
                   struct offline_interval *loss, struct error *error)
{
    const struct search *search = arg;
    struct planning *p = search->p;
    const struct serving s = serving_of(p, search->precision);
    struct measured m;
    char text[64];
    planning_spread(p, precision, search->precision);
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

/* Dense weights and the KV cache alone. */
static int judge_dense(struct planning *p, const uint8_t *native, struct error *error)
{
    struct judged judged = {.loss = {0, 0, 0}};
    const struct serving s = serving_of(p, native);
    if ((p->dense != PRECISION_NATIVE || p->kv_type != KV_TYPE_F16) &&
        planning_judge(p, &s, &judged, error) != 0)
        return -1;
    p->plan->scalar[PLAN_dense_loss_high] = judged.loss.high;
    return 0;
}

/* Uniform precisions of all experts, each smaller than the one before, until one is not kept. */
static int judge_uniform(struct planning *p, uint8_t *all, struct error *error)
{
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts, before = p->native_bytes;
    double *high = &p->plan->scalar[PLAN_uniform_int8_loss_high];
    bool kept = true;
    for (enum precision t = PRECISION_INT8; t < PRECISION__COUNT; t++) {
        struct judged judged;
        memset(all, t, cells);
        uint64_t bytes = serving_bytes(p->model, all, p->method);
        high[t - PRECISION_INT8] = (double)NAN; /* one of an earlier plan: other dense weights */
        if (bytes >= before || !kept)
            continue;
        planning_note(p, "  uniform %s", precision_name(t));
        const struct serving s = serving_of(p, all);
        if (planning_judge(p, &s, &judged, error) != 0)
            return -1;
        high[t - PRECISION_INT8] = judged.loss.high;
        kept = judged.loss.high <= p->max_loss;
        before = bytes;
        json_object_set_new(p->report, precision_name(t),
                            json_pack("{s:f, s:f, s:f, s:I}", "loss", judged.loss.value, "low",
                                      judged.loss.low, "high", judged.loss.high, "bytes",
                                      (json_int_t)bytes));
    }
    return 0;
}

static int store_uniform(struct planning *p, struct error *error)
{
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    uint8_t *all = calloc(cells, 1);
    sl_assert(all);
    p->plan->scalar[PLAN_uniform_method] = p->method;
    p->plan->scalar[PLAN_uniform_dense] = p->dense;
    p->plan->scalar[PLAN_uniform_kv_type] = p->kv_type;
    int status = judge_dense(p, all, error) == 0 ? judge_uniform(p, all, error) : -1;
    free(all);
    return status;
}

static void store(struct planning *p, const struct widths *w, const struct judged *judged)
{
    char text[64], size[16], dense[16];
    uint64_t high_count = planning_experts(p) - w->low_count;
    double *s = p->plan->scalar;
    s[PLAN_edgemoe_loss] = judged->loss.value;
    s[PLAN_edgemoe_loss_low] = judged->loss.low;
    s[PLAN_edgemoe_loss_high] = judged->loss.high;
    s[PLAN_edgemoe_bytes] = (double)w->expert_bytes;
    s[PLAN_edgemoe_method] = p->method;
    s[PLAN_edgemoe_dense] = w->dense;
    s[PLAN_edgemoe_kv_type] = p->kv_type;
    planning_note(p,
                  "edgemoe: %llu experts at %s, %llu at %s: %s of %s native; dense weights at %s: "
                  "%s; expected loss %s",
                  (unsigned long long)w->low_count, precision_name(w->low),
                  (unsigned long long)high_count, precision_name(w->high),
                  bytes_format(w->expert_bytes, size), bytes_format(p->native_bytes, (char[16]){0}),
                  precision_name(w->dense), bytes_format(w->dense_bytes, dense),
                  planning_loss(&judged->loss, text));
    planning_note(p, "edgemoe: make its store with 'sluice pack --plan %s'", p->out_path);
    json_object_set_new(p->report, "edgemoe",
                        json_pack("{s:s, s:I, s:s, s:I, s:I, s:s, s:I, s:f, s:f, s:f}", "low",
                                  precision_name(w->low), "low_count", (json_int_t)w->low_count,
                                  "high", precision_name(w->high), "high_count",
                                  (json_int_t)high_count, "bytes", (json_int_t)w->expert_bytes,
                                  "dense", precision_name(w->dense), "dense_bytes",
                                  (json_int_t)w->dense_bytes, "loss", judged->loss.value,
                                  "loss_low", judged->loss.low, "loss_high", judged->loss.high));
}

/* Searches until what is found keeps the loss on what is held out. *best: precision is given. */
static int tighten(struct search *self, struct width_search *search, struct widths *best,
                   struct judged *judged, struct error *error)
{
    struct planning *p = self->p;
    struct tightening t = tightening_start(p->max_loss);
    struct widths now = {.precision = calloc(search->cells, 1)};
    struct judged held;
    bool found = false, more = true;
    sl_assert(now.precision);
    int status = 0;
    while (status == 0 && more) {
        uint8_t *precision = now.precision;
        search->max_loss = t.target;
        now = (struct widths){.precision = precision};
        if (widths_search(search, &now, error) != 0) {
            status = found && error->code == ERR_NO_PLAN ? 0 : -1;
            break;
        }
        planning_spread(p, now.precision, self->precision);
        p->dense = now.dense;
        const struct serving s = serving_of(p, self->precision);
        status = planning_judge(p, &s, &held, error);
        if (status == 0 && held.loss.high <= p->max_loss) {
            memcpy(best->precision, now.precision, search->cells);
            now.precision = best->precision;
            *best = now;
            now.precision = precision;
            *judged = held;
            found = true;
        }
        more = tightening_next(&t, now.loss.high, held.loss.high);
    }
    free(now.precision);
    if (status == 0 && !found)
        return error_set(error, ERR_NO_PLAN, "no precisions keep the loss below %.3g %%",
                         100 * p->max_loss);
    return status;
}

/* The tightest search is over; p->dense is that of the result. */
static int store_all(struct search *self, const struct widths *best, const struct judged *judged,
                     struct error *error)
{
    struct planning *p = self->p;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    p->dense = best->dense;
    planning_spread(p, best->precision, self->precision);
    memcpy(plan_width(p->plan), self->precision, cells);
    store(p, best, judged);
    const struct serving s = serving_of(p, self->precision);
    if (planning_report(p, "edgemoe", &s, judged, error) != 0)
        return -1;
    return store_uniform(p, error);
}

int plan_edgemoe(struct planning *p, struct error *error)
{
    const struct plan *given = p->plan;
    if (!plan_has(given, PLAN_ARRAY_importance) ||
        !plan_has(given, PLAN_ARRAY_importance_measured) ||
        isnan(plan_importance(given)[planning_place(p, 0)]))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has no importance of experts; run sluice profile again",
                         p->profile_path);
    if (planning_add(p, plan_array_bit(PLAN_ARRAY_width), error) != 0)
        return -1;
    uint64_t cells = (uint64_t)p->plan->layers * p->plan->experts;
    struct search self = {.p = p, .precision = calloc(cells, 1)};
    struct width_search search = {.arg = &self,
                                  .cells = planning_experts(p),
                                  .dense = p->dense_given ? 1u << p->dense : PRECISION_DENSE,
                                  .measure = measure,
                                  .order = order_experts,
                                  .dense_bytes = dense_bytes,
                                  .cell_bytes = cell_bytes};
    struct widths best = {.precision = calloc(search.cells, 1)};
    sl_assert(best.precision && self.precision);
    struct judged judged;
    int status = tighten(&self, &search, &best, &judged, error);
    if (status == 0)
        status = store_all(&self, &best, &judged, error);
    else if (!p->dense_given)
        p->dense = PRECISION_NATIVE;
    free(best.precision);
    free(self.precision);
    return status;
}
