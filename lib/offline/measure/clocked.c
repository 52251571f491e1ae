/* SPDX-License-Identifier: Apache-2.0 */
/* Runs windows of a text token by token with the simulator's cache and clock, and sums their
 * losses. */
#include "lib/offline/measure/clocked.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/deterministic/deterministic.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

struct clocked { /* one evaluation */
    const struct offline_evaluation *base;
    const struct sim_config *config;
    struct state *state[OFFLINE_WORKERS_MAX];
};

/* A segment of windows, with its cache and clock. */
struct segment {
    struct deterministic *deterministic;
    uint32_t window;
    bool in_token;
};

struct state { /* of one worker */
    struct clocked *run;
    struct segment segment[OFFLINE_STREAMS_MAX]; /* of its streams */
    struct expert_row row;                       /* of `alone` */
    struct sim_stats stats;
    float margins[MODEL_EXPERTS_MAX], scratch[ROUTING_MARGIN_SCRATCH(MODEL_EXPERTS_MAX)];
    uint8_t levels[MODEL_EXPERTS_MAX];
};

static void add(struct sim_stats *to, const struct sim_stats *more)
{
#define COUNT(name, meaning) to->name += more->name;
#define REAL(name, meaning)  to->name += more->name;
#include "lib/sim/results.tbl.h"
}

/* ---- callbacks of the core: each row of a pass is a token of a segment of its own ---- */

static struct segment *segment_at(struct state *w, const struct expert_step *step, uint32_t row)
{
    sl_assert(step->row[row].sequence - 1 < OFFLINE_STREAMS_MAX);
    return &w->segment[step->row[row].sequence - 1];
}

/* The step with this row alone, and the number of its window as the sequence. */
static struct expert_step alone(struct state *w, const struct expert_step *step, uint32_t row)
{
    struct expert_step s = *step;
    sl_assert(!step->prefill);
    w->row = step->row[row];
    w->row.sequence = segment_at(w, step, row)->window + 1;
    s.rows = 1;
    s.row = &w->row;
    s.routes = NULL;
    return s;
}

static void end_token(struct segment *g)
{
    if (g->in_token)
        deterministic_token_end(g->deterministic);
    g->in_token = false;
}

/* The first call of a layer: ends the previous one. */
static void gate_input(void *arg, const struct expert_step *step, const float *x, uint32_t n)
{
    struct state *w = arg;
    bool first = step->layer == model_expert_layer(offline_index(w->run->base->model), 0);
    for (uint32_t r = 0; r < step->rows; r++) {
        struct segment *g = segment_at(w, step, r);
        struct expert_step s = alone(w, step, r);
        if (first)
            end_token(g);
        g->in_token = true;
        deterministic_layer_starts(g->deterministic, &s);
        deterministic_gate_input(g->deterministic, &s, x + (size_t)r * n, n);
    }
}

static void take_logits(void *arg, const struct expert_step *step, const float *logits,
                        const struct model_router *rule)
{
    struct state *w = arg;
    for (uint32_t r = 0; r < step->rows; r++) {
        routing_margins(rule, logits + (size_t)r * rule->experts, w->scratch, w->margins);
        residency_logit_levels(w->margins, rule->experts, w->levels);
        deterministic_logits(segment_at(w, step, r)->deterministic, w->levels);
    }
}

static uint32_t top_k(const struct state *w)
{
    return offline_index(w->run->base->model)->hparams.experts_used;
}

static void reroute(void *arg, const struct expert_step *step, const float *logits,
                    const struct model_router *rule, struct route *routes)
{
    struct state *w = arg;
    for (uint32_t r = 0; r < step->rows; r++) {
        struct expert_step s = alone(w, step, r);
        (void)deterministic_reroute(segment_at(w, step, r)->deterministic, &s,
                                    logits + (size_t)r * rule->experts, rule,
                                    routes + (size_t)r * top_k(w));
    }
}

static void routed(void *arg, const struct expert_step *step, const struct route *routes)
{
    struct state *w = arg;
    for (uint32_t r = 0; r < step->rows; r++) {
        struct expert_step s = alone(w, step, r);
        deterministic_routed(segment_at(w, step, r)->deterministic, &s,
                             routes + (size_t)r * top_k(w));
    }
}

static int serve_row(void *arg, const struct expert_step *step, uint32_t row,
                     const struct route *route, float weight_before)
{
    struct state *w = arg;
    const struct sim_access_result *result =
        deterministic_result(segment_at(w, step, row)->deterministic, route->expert);
    (void)weight_before; /* the simulator has computed it */
    return result->outcome == SIM_SKIPPED ? OFFLINE_SKIP : (int)result->precision;
}

static const void *dense(void *self, uint32_t entry)
{
    const struct state *w = self;
    return offline_dense(w->run->base->model, entry);
}

/* ---- running ---- */

static void end_segment(struct state *w, struct segment *g)
{
    if (!g->deterministic)
        return;
    end_token(g);
    add(&w->stats, sim_cache_stats(deterministic_cache(g->deterministic), SIM_DECODE));
    deterministic_destroy(g->deterministic);
    g->deterministic = NULL;
}

static uint32_t segment_of(const struct offline_evaluation *base)
{
    return base->segment ? base->segment : CLOCKED_SEGMENT;
}

/* Of a segment: each of its windows is a sequence. */
static struct deterministic *new_clock(const struct clocked *run, struct state *w,
                                       struct error *error)
{
    struct deterministic_config config = {.model = offline_index(run->base->model),
                                          .ops = kernel_ops_select(NULL),
                                          .sim = *run->config,
                                          .dense = dense,
                                          .self = w};
    config.sim.sequences = segment_of(run->base);
    return deterministic_create(&config, error);
}

static uint64_t allocated(void)
{
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}

/* Also a check of the configuration. No other thread runs. */
static int clock_bytes(const struct clocked *run, uint64_t *bytes, struct error *error)
{
    uint64_t before = allocated();
    struct deterministic *tried = new_clock(run, NULL, error);
    if (!tried)
        return -1;
    *bytes = allocated() - before;
    deterministic_destroy(tried);
    return 0;
}

static void worker_hooks(void *arg, uint32_t worker, struct offline_hooks *h)
{
    struct clocked *run = arg;
    sl_assert(worker < OFFLINE_WORKERS_MAX);
    struct state *w = run->state[worker] = calloc(1, sizeof *w);
    if (!w)
        log_fatal(1, "out of memory (evaluation of a preset)");
    w->run = run;
    bool wants_logits = run->config->knobs.eviction == EVICTION_LEARNED;
    bool reroutes = run->config->knobs.routing == ROUTING_RESIDENT_FIRST;
    *h = (struct offline_hooks){.arg = w,
                                .gate_input = gate_input,
                                .logits = wants_logits ? take_logits : NULL,
                                .reroute = reroutes ? reroute : NULL,
                                .routed = routed,
                                .serve_row = serve_row};
}

static void worker_joins(void *arg, uint32_t worker, uint32_t stream, uint32_t window)
{
    struct clocked *run = arg;
    struct state *w = run->state[worker];
    struct segment *g = &w->segment[stream];
    struct error error;
    if (window % segment_of(run->base) == 0) {
        end_segment(w, g);
        g->deterministic = new_clock(run, w, &error);
        if (!g->deterministic) /* the configuration was checked before: only memory can be short */
            log_fatal(1, "%s", error.text);
    }
    g->window = window;
}

static void pass_progress(void *arg, const struct offline_progress *p)
{
    const struct clocked *run = arg;
    if (run->base->progress)
        run->base->progress(run->base->arg, p);
}

static void pass_announce(void *arg, const struct offline_estimate *estimate)
{
    const struct clocked *run = arg;
    if (run->base->announce)
        run->base->announce(run->base->arg, estimate);
}

static void collect(struct clocked *run, struct sim_stats *stats)
{
    for (int i = 0; i < OFFLINE_WORKERS_MAX; i++) {
        struct state *w = run->state[i];
        if (!w)
            continue;
        for (uint32_t j = 0; j < OFFLINE_STREAMS_MAX; j++)
            end_segment(w, &w->segment[j]);
        add(stats, &w->stats);
        free(w);
    }
}

int clocked_evaluate(const struct offline_evaluation *base, const struct sim_config *config,
                     enum quant_method method, struct offline_losses *losses,
                     struct sim_stats *stats, struct error *error)
{
    struct clocked run = {.base = base, .config = config};
    struct offline_evaluation e = *base;
    if (clock_bytes(&run, &e.stream_bytes, error) != 0)
        return -1;
    e.in_order = true;
    e.abreast = true;
    e.segment = segment_of(base);
    e.method = method;
    e.renormalise_skips = config->knobs.skip_renormalise;
    e.hooks = worker_hooks;
    e.joins = worker_joins;
    e.progress = pass_progress;
    e.announce = pass_announce;
    e.arg = &run;
    int status = offline_evaluate(&e, losses, error);
    *stats = (struct sim_stats){0};
    collect(&run, stats);
    return status;
}

/* ---- parameters of the simulation ---- */

void clocked_config(const struct offline_model *m, const struct knobs *knobs,
                    const struct plan *plan, enum quant_method method, uint64_t capacity,
                    struct sim_config *config)
{
    deterministic_model(offline_index(m), knobs, plan, capacity, config);
    uint32_t layer = model_expert_layer(offline_index(m), 0);
    /* Every precision can be made in memory. */
    config->precision_mask = (1u << PRECISION__COUNT) - 1;
    for (enum precision t = PRECISION_NATIVE; t < PRECISION__COUNT; t++)
        config->precision_bytes[t] = offline_expert_bytes(m, layer, 0, t, method);
}

double clocked_token_ns(const struct sim_config *c)
{
    return expert_layers_count(&c->expert_layers, 0, c->layers) *
           (c->compute.layer_ns + c->top_k * c->compute.expert_ns);
}

double clocked_read_ns(const struct sim_config *c)
{
    return c->storage.latency_ns +
           (double)c->precision_bytes[PRECISION_NATIVE] * 1e9 / c->storage.bytes_per_s;
}
