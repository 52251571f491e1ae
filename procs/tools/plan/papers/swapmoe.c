/* SPDX-License-Identifier: Apache-2.0 */
/* SwapMoE's plan (§3.4, §3.5): random shares are measured, a small network is fitted to them, and a
 * genetic search over it gives shares that are measured against even ones; the better of both is
 * used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/random.h"
#include "lib/policy/access/swap.h"
#include "lib/policy/access/swap_interval.h"
#include "lib/policy/presets/planned.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/plan/network.h"
#include "procs/tools/plan/planning.h"

#define ROUNDS 4 /* of fit, search, measurement */

struct swap_planner {
    struct planning *p;
    uint32_t first, layers; /* that have experts; shares count from the first on */
    uint32_t experts, k, interval;
    double margin;             /* policy parameter of the preset */
    uint64_t total;            /* resident experts over all layers */
    struct swap_search search; /* of the interval */
    double reads_per_token;    /* of the device, with which the loss was measured; NAN: no limit */
    uint32_t *keep;            /* the current shares of all layers */
    uint8_t *set;              /* [L * E] initial sets of the current shares */
    bool *allowed;             /* the same */
    uint32_t *even, *best;
};

static struct serving serving_of(struct swap_planner *w, const uint32_t *v, uint32_t chunk)
{
    const struct plan *plan = w->p->plan;
    memcpy(w->keep + w->first, v, w->layers * sizeof *v);
    planned_frequent_sets(plan, &offline_index(w->p->model)->hparams, w->keep, w->set);
    for (uint64_t i = 0; i < (uint64_t)plan->layers * w->experts; i++)
        w->allowed[i] = w->set[i] != 0;
    struct serving s = {.kind = SERVE_SWAPMOE,
                        .method = w->p->method,
                        .allowed = w->allowed,
                        .keep = w->keep,
                        .norm = plan_norm(plan),
                        .interval = w->interval,
                        .margin = w->margin,
                        .chunk = chunk};
    serving_swap_times(&s, plan);
    w->reads_per_token = s.pairs_per_token > 0 ? s.pairs_per_token : (double)NAN;
    return s;
}

static double per_token(const struct measured *m, const struct offline_text *text)
{
    return (double)m->report.swapped / ((double)text->windows * text->window);
}

struct samples { /* for the network: shares and log(1 + loss) */
    double *x, *y;
    uint32_t n;
};

static int sample(struct swap_planner *w, const uint32_t *v, struct samples *all,
                  struct error *error)
{
    struct measured m;
    struct serving s = serving_of(w, v, PLANNING_CHUNK);
    if (planning_measure(w->p, &w->p->some, &s, &m, error) != 0)
        return -1;
    all->y[all->n] = log1p(m.loss.value);
    for (uint32_t l = 0; l < w->layers; l++)
        all->x[(size_t)all->n * w->layers + l] = (double)v[l] / w->experts;
    all->n++;
    return 0;
}

static int sample_at_random(struct swap_planner *w, uint32_t *v, struct samples *all,
                            struct error *error)
{
    struct random random;
    uint32_t n = (uint32_t)w->p->configurations;
    random_seed(&random, 1, 0);
    for (uint32_t i = 0; i < n; i++) {
        random_shares(&random, w->layers, w->k, w->experts, w->total, v);
        if (sample(w, v, all, error) != 0)
            return -1;
        planning_progress(w->p, "swapmoe: configuration", i + 1, n);
    }
    return 0;
}

/* A network fitted to few samples is wrong where there are none, and the search moves there. So its
 * result is measured and added to the samples for the next round. The best measured shares are
 * used. */
static int rounds(struct swap_planner *w, uint32_t *v, struct samples *all, struct network *net,
                  struct error *error)
{
    double min = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double off = network_fit(net, w->layers, all->x, all->y, all->n, 1);
        struct genetic g = {.net = net,
                            .layers = w->layers,
                            .min = w->k,
                            .max = w->experts,
                            .generations = (uint32_t)w->p->generations,
                            .total = w->total,
                            .seed = 1,
                            .first = w->even};
        double expected = genetic_search(&g, v);
        if (sample(w, v, all, error) != 0)
            return -1;
        double measured = all->y[all->n - 1];
        planning_note(w->p,
                      "  %u configurations, network off by %.2f %% (rms); search expects a loss of "
                      "%.1f %%, measured %.1f %%",
                      all->n - 1, 100 * off, 100 * expm1(expected), 100 * expm1(measured));
        if (measured < min)
            memcpy(w->best, v, w->layers * sizeof *v);
        min = measured < min ? measured : min;
    }
    return 0;
}

static int search(struct swap_planner *w, struct error *error)
{
    size_t n = (size_t)w->p->configurations + ROUNDS;
    struct samples all = {.x = calloc(n * w->layers, sizeof *all.x), .y = calloc(n, sizeof *all.y)};
    struct network *net = calloc(1, sizeof *net);
    uint32_t *v = calloc(w->layers, sizeof *v);
    int status = all.x && all.y && net && v
                     ? 0
                     : error_set(error, ERR_NO_MEMORY, "out of memory (configurations)");
    if (status == 0)
        status = sample_at_random(w, v, &all, error);
    if (status == 0)
        status = rounds(w, v, &all, net, error);
    free(all.x);
    free(all.y);
    free(net);
    free(v);
    return status;
}

static void note_shares(struct swap_planner *w, const char *what, const uint32_t *v,
                        const struct measured *m)
{
    char shares[512] = "", loss[64];
    size_t at = 0;
    for (uint32_t l = 0; l < w->layers && at < sizeof shares - 8; l++)
        at += (size_t)snprintf(shares + at, sizeof shares - at, " %u", v[l]);
    double increase = swap_latency_increase(&w->search, per_token(m, &w->p->text));
    planning_note(w->p,
                  "  %s shares%s: loss %s, %llu replacements, at most +%.1f %% time per token",
                  what, shares, planning_loss(&m->loss, loss),
                  (unsigned long long)m->report.swapped, 100 * increase);
}

static void store(struct swap_planner *w, const uint32_t *v, const struct judged *m)
{
    struct plan *plan = w->p->plan;
    char loss[64];
    memcpy(w->keep + w->first, v, w->layers * sizeof *v);
    memcpy(plan_virtual_experts(plan), w->keep, plan->layers * sizeof *v);
    planned_frequent_sets(plan, &offline_index(w->p->model)->hparams, w->keep, plan_resident(plan));
    plan->scalar[PLAN_swap_dense] = w->p->dense;
    plan->scalar[PLAN_swap_kv_type] = w->p->kv_type;
    plan->scalar[PLAN_swap_reads_per_token] = w->reads_per_token;
    plan->scalar[PLAN_swap_interval] = w->interval;
    plan->scalar[PLAN_swap_loss] = m->loss.value;
    plan->scalar[PLAN_swap_loss_low] = m->loss.low;
    plan->scalar[PLAN_swap_loss_high] = m->loss.high;
    plan->scalar[PLAN_swap_share] = (double)w->total / ((double)w->layers * w->experts);
    plan->scalar[PLAN_swap_margin] = w->margin;
    uint32_t together = swap_rows_max(w->interval);
    plan->scalar[PLAN_swap_chunk] = together < PLANNING_CHUNK ? together : PLANNING_CHUNK;
    planning_note(w->p,
                  "swapmoe: %llu of %llu experts resident, interval %u tokens, expected loss %s",
                  (unsigned long long)w->total, (unsigned long long)w->layers * w->experts,
                  w->interval, planning_loss(&m->loss, loss));
    json_t *shares = json_array();
    for (uint32_t l = 0; l < w->layers; l++)
        json_array_append_new(shares, json_integer((json_int_t)v[l]));
    json_object_set_new(w->p->report, "swapmoe",
                        json_pack("{s:o, s:i, s:f, s:f, s:f, s:I}", "virtual_experts", shares,
                                  "interval", (int)w->interval, "loss", m->loss.value, "loss_low",
                                  m->loss.low, "loss_high", m->loss.high, "swaps",
                                  (json_int_t)m->report.swapped));
}

static int choose_interval(struct swap_planner *w, struct error *error)
{
    const double *times = w->p->plan->scalar;
    bool more = true;
    swap_search_start(&w->search, w->layers, times[PLAN_token_ns], times[PLAN_expert_read_ns]);
    while (more) {
        struct measured m;
        char loss[64];
        w->interval = w->search.interval;
        struct serving s = serving_of(w, w->even, PLANNING_CHUNK);
        s.pairs_per_token = 0; /* what the interval wants, whatever the device can do */
        if (planning_measure(w->p, &w->p->some, &s, &m, error) != 0)
            return -1;
        double wanted = per_token(&m, &w->p->some);
        planning_note(
            w->p,
            "  interval %u: %.3f replacements per token, at most +%.1f %% time per token, loss %s",
            w->interval, wanted, 100 * swap_latency_increase(&w->search, wanted),
            planning_loss(&m.loss, loss));
        more = swap_search_measured(&w->search, wanted, m.loss.value);
    }
    w->interval = w->search.best;
    return 0;
}

static int plan_shares(struct swap_planner *w, struct error *error)
{
    struct planning *p = w->p;
    struct measured even, best;
    if (choose_interval(w, error) != 0 || search(w, error) != 0)
        return -1;
    struct serving s = serving_of(w, w->even, PLANNING_CHUNK);
    if (planning_measure(p, &p->text, &s, &even, error) != 0)
        return -1;
    s = serving_of(w, w->best, PLANNING_CHUNK);
    if (planning_measure(p, &p->text, &s, &best, error) != 0)
        return -1;
    note_shares(w, "even", w->even, &even);
    note_shares(w, "planned", w->best, &best);
    const uint32_t *better = best.loss.value < even.loss.value ? w->best : w->even;
    struct judged judged;
    s = serving_of(w, better, PLANNING_CHUNK);
    if (planning_judge(p, &s, &judged, error) != 0 ||
        planning_report(p, "swapmoe", &s, &judged, error) != 0)
        return -1;
    store(w, better, &judged);
    return 0;
}

int plan_swapmoe(struct planning *p, struct error *error)
{
    uint64_t bytes = planning_expert_bytes(p, error);
    uint64_t arrays =
        plan_array_bit(PLAN_ARRAY_virtual_experts) | plan_array_bit(PLAN_ARRAY_resident);
    if (!bytes)
        return -1;
    uint32_t first = model_expert_layer(offline_index(p->model), 0);
    struct swap_planner w = {.p = p,
                             .first = first,
                             .layers = p->plan->layers - first,
                             .experts = p->plan->experts,
                             .k = p->plan->experts_used};
    uint64_t cells = (uint64_t)w.layers * w.experts;
    uint64_t each = p->native_bytes / cells, min = (uint64_t)w.layers * w.k;
    struct knobs knobs;
    if (knobs_resolve("swapmoe", NULL, NULL, &knobs, error) != 0)
        return -1;
    w.margin = knobs.margin;
    uint64_t capacity = bytes / each < cells ? bytes / each : cells;
    if (capacity < min + (capacity < cells)) /* one entry is spare unless all fit */
        return error_set(error, ERR_BUDGET_TOO_SMALL,
                         "%llu experts fit: masked routing needs %llu, the top-k of every layer, "
                         "and a spare one",
                         (unsigned long long)capacity, (unsigned long long)min);
    if (planning_add(p, arrays, error) != 0) /* not before: what is not planned adds nothing */
        return -1;
    w.set = calloc(cells + first * w.experts, sizeof *w.set);
    w.allowed = calloc(cells + first * w.experts, sizeof *w.allowed);
    w.keep = calloc(p->plan->layers, sizeof *w.keep);
    w.even = calloc(w.layers, sizeof *w.even);
    w.best = calloc(w.layers, sizeof *w.best);
    sl_assert(w.set && w.allowed && w.keep && w.even && w.best);
    int status = planned_swap_sets(NULL, &offline_index(p->model)->hparams, (uint32_t)capacity,
                                   w.keep, w.set, error);
    memcpy(w.even, w.keep + first, w.layers * sizeof *w.even);
    for (uint32_t l = 0; l < w.layers; l++)
        w.total += w.even[l];
    status = status == 0 ? plan_shares(&w, error) : status;
    free(w.set);
    free(w.allowed);
    free(w.keep);
    free(w.even);
    free(w.best);
    return status;
}
