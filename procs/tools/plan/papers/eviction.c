/* SPDX-License-Identifier: Apache-2.0 */
/* HOBBIT's eviction weights (§3.5): the point of the simplex with the minimum miss penalty on a
 * trace, with the planned thresholds. The penalty of a low-precision miss is its bytes divided by
 * those of the high precision.
 *
 * The trace is the lossless routing of calibration text, window by window, or a recorded one.
 * Prefetch is off, so that only the eviction order matters. First a grid over the simplex, then a
 * hill climb that moves share between two weights in decreasing steps. The distance term is tried
 * as the paper prints it and with the next layer nearest. */
#include <stdlib.h>
#include <string.h>

#include "lib/offline/measure/routing_trace.h"
#include "lib/policy/presets/planned.h"
#include "lib/policy/presets/presets.h"
#include "lib/sim/sim.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/planning.h"

#define WEIGHTS        4
#define GRID           4          /* steps of the grid */
#define STEP_MIN       (1.0 / 32) /* the last step */
#define CAPACITIES_MAX 2
#define TRIALS_MAX     256 /* a backstop: fits need less than half */

static const char *const weight_name[WEIGHTS] = {"w_lru", "w_lfu", "w_lhu", "w_fld"};

struct point {
    double w[WEIGHTS];
    bool next; /* fld_next */
    double penalty;
};

struct fit {
    struct planning *p;
    struct trace trace;
    struct sim_config sim;
    uint64_t capacity[CAPACITIES_MAX];
    uint32_t capacities, trials;
    struct point best;
};

/* Miss penalty per token, mean over the capacities. */
static int penalty(struct fit *f, double *out, struct error *error)
{
    *out = 0;
    for (uint32_t i = 0; i < f->capacities; i++) {
        struct sim_result result;
        f->sim.capacity = f->capacity[i];
        if (sim_run(&f->trace, 0, 0, &f->sim, false, &result, error) != 0)
            return -1;
        const struct sim_stats *d = &result.phase[SIM_DECODE];
        *out += d->penalty / (double)d->passes / f->capacities;
    }
    return 0;
}

static void apply(struct fit *f, const struct point *x)
{
    f->sim.knobs.w_lru = x->w[0];
    f->sim.knobs.w_lfu = x->w[1];
    f->sim.knobs.w_lhu = x->w[2];
    f->sim.knobs.w_fld = x->w[3];
    f->sim.knobs.fld_next = x->next;
}

/* Evaluates x; if it is better than the best point, it replaces it and *better is set. */
static int try(struct fit *f, struct point *x, bool *better, struct error *error)
{
    apply(f, x);
    if (penalty(f, &x->penalty, error) != 0)
        return -1;
    planning_progress(f->p, "hobbit: eviction weights, trial", ++f->trials, TRIALS_MAX);
    *better = x->penalty < f->best.penalty;
    if (*better)
        f->best = *x;
    return 0;
}

static int grid(struct fit *f, struct error *error)
{
    bool better;
    for (int next = 0; next < 2; next++)
        for (int a = 0; a <= GRID; a++)
            for (int b = 0; a + b <= GRID; b++)
                for (int c = 0; a + b + c <= GRID; c++) {
                    if (next && a + b + c == GRID)
                        continue; /* without a distance term both are equal */
                    struct point x = {.w = {(double)a / GRID, (double)b / GRID, (double)c / GRID,
                                            (double)(GRID - a - b - c) / GRID},
                                      .next = next};
                    if (try(f, &x, &better, error) != 0)
                        return -1;
                }
    return 0;
}

/* Makes the first move of `step` that reduces the penalty. */
static int move(struct fit *f, double step, bool *moved, struct error *error)
{
    struct point from = f->best;
    *moved = false;
    for (int to = 0; to < WEIGHTS; to++)
        for (int off = 0; off < WEIGHTS; off++) {
            struct point x = from;
            if (to == off || from.w[off] < step)
                continue;
            x.w[to] += step;
            x.w[off] -= step;
            if (try(f, &x, moved, error) != 0)
                return -1;
            if (*moved)
                return 0;
        }
    return 0;
}

static int climb(struct fit *f, struct error *error)
{
    for (double step = 0.5 / GRID; step >= STEP_MIN; step /= 2)
        for (bool moved = true; moved && f->trials < TRIALS_MAX;)
            if (move(f, step, &moved, error) != 0)
                return -1;
    return 0;
}

/* The penalty of another eviction with the same capacities. */
static int penalty_of(struct fit *f, const char *eviction, double *out, struct error *error)
{
    struct knobs saved = f->sim.knobs;
    int status = knobs_set(&f->sim.knobs, "eviction", eviction, error);
    if (status == 0)
        status = penalty(f, out, error);
    f->sim.knobs = saved;
    return status;
}

static int get_trace(struct fit *f, struct error *error)
{
    struct planning *p = f->p;
    const struct model_hparams *h = &offline_index(p->model)->hparams;
    if (!p->trace_path)
        return offline_trace(p->model, &p->some, p->method, (uint32_t)p->threads, &f->trace, error);
    if (trace_read(p->trace_path, &f->trace, error) != 0)
        return -1;
    struct trace_header *t = &f->trace.header;
    if (t->layers != h->layers || t->experts != h->experts || t->top_k != h->experts_used)
        return error_set(error, ERR_BAD_INPUT, "%.200s is a trace of another model", p->trace_path);
    /* It may have been recorded without the precisions planned here. */
    t->precision_mask = (1u << PRECISION__COUNT) - 1;
    for (enum precision x = PRECISION_NATIVE; x < PRECISION__COUNT; x++)
        t->precision_bytes[x] = planning_one_expert(p, x);
    return 0;
}

/* Of the share, but at least the experts that a token accesses in one layer: a cache cannot have
 * less. */
static uint64_t capacity_of(const struct planning *p, double share)
{
    const struct model_hparams *h = &offline_index(p->model)->hparams;
    uint64_t one = 0, part = (uint64_t)(share * (double)p->native_bytes);
    for (uint32_t l = hparams_next_experts(h, 0); l < h->layers;
         l = hparams_next_experts(h, l + 1)) {
        uint64_t bytes = offline_expert_bytes(p->model, l, 0, PRECISION_NATIVE, p->method);
        one = bytes > one ? bytes : one;
    }
    return part > one * h->experts_used ? part : one * h->experts_used;
}

static int set_up(struct fit *f, struct error *error)
{
    struct planning *p = f->p;
    f->sim.storage = (struct sim_storage){.bytes_per_s = SIM_DEFAULT_BYTES_PER_S,
                                          .latency_ns = SIM_DEFAULT_LATENCY_NS,
                                          .depth = SIM_DEFAULT_DEPTH};
    if (p->budget_bytes || p->experts_percent > 0) {
        f->capacity[f->capacities++] = planning_expert_bytes(p, error);
        if (!f->capacity[0])
            return -1;
    } else {
        f->capacity[f->capacities++] = capacity_of(p, 0.25);
        f->capacity[f->capacities++] = capacity_of(p, 0.5);
    }
    f->best.penalty = 1e300;
    return planned_knobs(p->plan, "hobbit", "prediction=none,prefetch=none", &f->sim.knobs, error);
}

static void store(struct fit *f, double lru, double lfu)
{
    static const enum plan_scalar scalars[WEIGHTS] = {PLAN_hobbit_w_lru, PLAN_hobbit_w_lfu,
                                                      PLAN_hobbit_w_lhu, PLAN_hobbit_w_fld};
    struct planning *p = f->p;
    json_t *weights = json_object();
    for (int i = 0; i < WEIGHTS; i++) {
        p->plan->scalar[scalars[i]] = f->best.w[i];
        json_object_set_new(weights, weight_name[i], json_real(f->best.w[i]));
    }
    p->plan->scalar[PLAN_hobbit_fld_next] = f->best.next;
    planning_note(p,
                  "hobbit: eviction weights lru %.3f, lfu %.3f, lhu %.3f, fld %.3f (%s): miss "
                  "penalty %.3f per token (lru %.3f, lfu %.3f; %u trials)",
                  f->best.w[0], f->best.w[1], f->best.w[2], f->best.w[3],
                  f->best.next ? "next layer nearest" : "as printed", f->best.penalty, lru, lfu,
                  f->trials);
    json_object_set_new(p->report, "hobbit_eviction",
                        json_pack("{s:o, s:b, s:f, s:f, s:f}", "weights", weights, "fld_next",
                                  f->best.next, "penalty", f->best.penalty, "penalty_lru", lru,
                                  "penalty_lfu", lfu));
}

int plan_hobbit_eviction(struct planning *p, struct error *error)
{
    struct fit f = {.p = p};
    double lru = 0, lfu = 0;
    int status = get_trace(&f, error);
    if (status == 0)
        status = set_up(&f, error);
    if (status == 0)
        status = grid(&f, error);
    if (status == 0)
        status = climb(&f, error);
    if (status == 0)
        status = penalty_of(&f, "lru", &lru, error);
    if (status == 0)
        status = penalty_of(&f, "lfu", &lfu, error);
    if (status == 0)
        store(&f, lru, lfu);
    trace_free(&f.trace);
    return status;
}
