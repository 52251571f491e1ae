/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted token times for the preset auto: every candidate (lib/policy/presets/auto.tbl.h) is
 * simulated by lib/sim on a trace of this model's routing, over a grid of resident share and read
 * bandwidth, with the compute times of the profile. The lossy candidates are those planned before,
 * so this planner runs last. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/offline/measure/routing_trace.h"
#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/planned.h"
#include "lib/sim/sim.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/papers/auto.h"

#define TRACE_TOKENS 768 /* the first half is cache warm-up */
#define AHEAD        2   /* layers of lookahead, as hobbit */
#define PREDICT_LAYER_NS                                                                           \
    25000 /* predictions of a layer on a core used by compute, without the router product */

struct predictions {
    struct planning *p;
    struct trace trace;
    struct path_tables tables;
    float *frequency, *shares;
    struct sim_compute compute;
    struct sim_gpu gpu;         /* one, with all layers */
    double latency_ns, rest_ns; /* rest per token: embedding, output */
    bool spare_cpu;
};

static double known(const struct plan *plan, enum plan_scalar s, double otherwise)
{
    return plan_knows(plan, s) ? plan->scalar[s] : otherwise;
}

static uint32_t expert_layers(const struct predictions *t)
{
    return hparams_expert_layers(&offline_index(t->p->model)->hparams);
}

/* With a GPU, layers and the rest of a token are faster by the factor of an expert: all are bound
 * by the weights that are read. Predictions and work for reads are the CPU's, which else waits. */
static int take_gpu(struct predictions *t, struct error *error)
{
    double *s = t->p->plan->scalar;
    char rate[16];
    s[PLAN_auto_gpu_slots] = s[PLAN_auto_gpu_bytes_per_s] = s[PLAN_auto_gpu_policy] = NAN;
    struct sim_gpu gpus[SIM_GPUS_MAX];
    if (sim_gpu_of(&t->p->gpu, &t->trace.header, gpus, error) != 0)
        return -1;
    t->gpu = gpus[0];
    if (t->gpu.next || t->gpu.end_layer > 0)
        return error_set(error, ERR_BAD_INPUT, "plan simulates one GPU, with all layers");
    if (t->gpu.places == 0)
        return 0;
    double factor = t->gpu.expert_ns / t->compute.expert_ns;
    t->compute.layer_ns *= factor;
    t->rest_ns *= factor;
    t->spare_cpu |= t->gpu.policy != GPU_COOPERATIVE;
    s[PLAN_auto_gpu_slots] = t->gpu.places;
    s[PLAN_auto_gpu_bytes_per_s] = t->gpu.bytes_per_s;
    s[PLAN_auto_gpu_policy] = (double)t->gpu.policy;
    planning_note(
        t->p,
        "auto: a GPU with slots for %u experts, copies at %s/s, %s, an expert in %.1f us, a "
        "layer without experts %.1f us",
        t->gpu.places, bytes_format((uint64_t)t->gpu.bytes_per_s, rate),
        gpu_policy_name(t->gpu.policy), t->gpu.expert_ns / 1e3, t->compute.layer_ns / 1e3);
    json_object_set_new(t->p->report, "auto_gpu",
                        json_pack("{s:I, s:f, s:s, s:f}", "slots", (json_int_t)t->gpu.places,
                                  "bytes_per_s", t->gpu.bytes_per_s, "policy",
                                  gpu_policy_name(t->gpu.policy), "expert_us",
                                  t->gpu.expert_ns / 1e3));
    return 0;
}

/* Compute times and read latency, from the profile. */
static int take_times(struct predictions *t, struct error *error)
{
    struct plan *plan = t->p->plan;
    double ratio[PRECISION__COUNT], *s = plan->scalar;
    if (!plan_knows(plan, PLAN_token_ns) || !plan_knows(plan, PLAN_layer_experts_ns) ||
        !plan_knows(plan, PLAN_drive_bytes_per_s))
        return error_set(error, ERR_BAD_INPUT, "auto: %.200s has no timings; use sluice profile",
                         t->p->profile_path ? t->p->profile_path : "an empty plan");
    double layer = s[PLAN_layer_attention_ns] + s[PLAN_layer_router_ns];
    double expert = s[PLAN_layer_experts_ns] / plan->experts_used;
    if (auto_precision_ratios(t->p, ratio, error) != 0)
        return -1;
    t->compute = (struct sim_compute){.layer_ns = layer,
                                      .expert_ns = expert,
                                      .predict_ns = SIM_PREDICTOR_NS + s[PLAN_layer_router_ns],
                                      .batch = 1};
    for (int i = 0; i < PRECISION__COUNT; i++)
        t->compute.precision_ns[i] = expert * ratio[i];
    for (int i = PRECISION_INT8; i < PRECISION__COUNT; i++)
        s[PLAN_int8_expert_ns + (i - PRECISION_INT8)] = t->compute.precision_ns[i];
    t->rest_ns = fmax(0, s[PLAN_token_ns] - expert_layers(t) * (layer + s[PLAN_layer_experts_ns]));
    double bytes = (double)t->trace.header.precision_bytes[PRECISION_NATIVE];
    double reading = bytes * 1e9 / s[PLAN_drive_bytes_per_s];
    t->latency_ns = SIM_MESSAGES_NS + fmax(0, known(plan, PLAN_expert_read_ns, reading) - reading);
    planning_note(
        t->p,
        "auto: an expert computes in %.0f us native, %.0f int8, %.0f int4, %.0f int2; a "
        "layer without experts %.0f us, rest of a token %.0f us; latency of a miss %.0f us "
        "plus its read",
        expert / 1e3, t->compute.precision_ns[PRECISION_INT8] / 1e3,
        t->compute.precision_ns[PRECISION_INT4] / 1e3,
        t->compute.precision_ns[PRECISION_INT2] / 1e3, layer / 1e3, t->rest_ns / 1e3,
        t->latency_ns / 1e3);
    return take_gpu(t, error);
}

static float *copy_known(const float *from, size_t n)
{
    float *to = malloc(n * sizeof *to);
    if (!to)
        log_fatal(1, "out of memory (predictions)");
    for (size_t i = 0; i < n; i++)
        to[i] = isnan(from[i]) ? 0 : from[i];
    return to;
}

static void take_tables(struct predictions *t)
{
    const struct plan *plan = t->p->plan;
    t->tables = (struct path_tables){.layers = plan->layers, .experts = plan->experts};
    if (plan_frequency(plan)) {
        t->frequency = copy_known(plan_frequency(plan), (size_t)plan->layers * plan->experts);
        t->tables.frequency = t->frequency;
    }
    t->tables.prev1 = plan_prev1(plan);
    t->tables.pair_first = plan_pair_first(plan);
    t->tables.pair_cells = (const struct path_cell *)(const void *)plan_pair_cells(plan);
    if (!plan_share(plan))
        return;
    t->shares = malloc(plan->layers * sizeof *t->shares);
    if (!t->shares)
        log_fatal(1, "out of memory (predictions)");
    for (uint32_t l = 0; l < plan->layers; l++)
        t->shares[l] = (float)plan_share(plan)[l];
}

/* ---- candidates -------------------------------------------------------------------------- */

static bool has_what_it_needs(const struct plan *plan, uint32_t candidate, const struct knobs *k)
{
    bool paths = k->prediction == PREDICTION_PATH1 || k->prediction == PREDICTION_PATH2;
    return auto_allowed(plan, candidate, INFINITY) && (!paths || plan_prev1(plan)) &&
           (!precision_by_plan(k->precision) || planned_widths(plan, k).high);
}

/* Cost of predictions: they share the cores with compute, so they slow it down while it computes
 * and cost nothing while it waits, or while a GPU computes. */
static double predicting_ns(const struct predictions *t, const struct knobs *k,
                            const struct sim_stats *f)
{
    const struct prediction_method *p = prediction_method_of(k->prediction);
    double all = f->compute_ns + f->stall_ns, layers = (double)f->tokens * expert_layers(t);
    if (p->source == PREDICT_NOTHING || !(all > 0) || t->gpu.places > 0)
        return 0;
    double router = p->source == PREDICT_LOGITS ? t->p->plan->scalar[PLAN_layer_router_ns] : 0;
    return layers * (PREDICT_LAYER_NS + router) * f->compute_ns / all;
}

/* ns per decoded token; NaN: not possible with this capacity. */
static double predict(struct predictions *t, const struct knobs *k, double share, double rate)
{
    const struct trace_header *h = &t->trace.header;
    struct sim_config config = {
        .knobs = *k,
        .capacity = (uint64_t)(share * (double)sim_all_bytes(h)),
        .storage = {.bytes_per_s = rate, .latency_ns = t->latency_ns, .depth = SIM_DEFAULT_DEPTH},
        .compute = t->compute,
        .gpu = t->gpu,
        .plan = {
            .tables = t->tables, .shares = t->shares, .precision = planned_widths(t->p->plan, k)}};
    struct sim_result result;
    struct error error;
    if (sim_run(&t->trace, 0, sim_split(&t->trace, 0.5), &config, false, &result, &error) != 0)
        return (double)NAN;
    const struct sim_stats *f = &result.phase[SIM_DECODE];
    return t->rest_ns + sim_token_ns(f, t->spare_cpu) + predicting_ns(t, k, f) / (double)f->tokens;
}

/* Masked routing cannot be replayed, since it changes the routing of the trace. In decode it waits
 * for no expert, and replaces experts while tokens are computed: a token takes as long as with all
 * experts resident (docs/lab/papers.md, S10: 1.01 to 1.02 times). */
static int as_resident(struct knobs *k, struct error *error)
{
    return k->routing == ROUTING_MASKED ? knobs_resolve("resident", NULL, NULL, k, error) : 0;
}

static int predict_candidate(struct predictions *t, uint32_t candidate, struct error *error)
{
    const struct plan *plan = t->p->plan;
    struct knobs k;
    if (planned_knobs(plan, preset_at(auto_preset(candidate))->name, NULL, &k, error) != 0)
        return -1;
    bool masked = k.routing == ROUTING_MASKED;
    if (!has_what_it_needs(plan, candidate, &k))
        return 0;
    if (as_resident(&k, error) != 0)
        return -1;
    for (uint32_t s = 0; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            plan_auto_ns(plan)[plan_auto_at(s, d, candidate)] =
                (float)predict(t, &k, masked ? 1 : auto_shares[s], auto_bandwidths[d]);
    return 0;
}

/* ---- run ------------------------------------------------------------------------------ */

static json_t *parts_json(const struct plan *plan, uint32_t candidate, double share, double rate)
{
    struct auto_part part[AUTO_PARTS_MAX];
    uint32_t n = auto_parts(plan, candidate, share, rate, part);
    json_t *parts = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(parts, json_pack("{s:s, s:f, s:f}", "part", part[i].text, "ns",
                                               part[i].ns, "without_ns", part[i].without_ns));
    return parts;
}

/* The candidates whose loss was not measured with more experts resident than `share`. */
static uint64_t measured_at(const struct plan *plan, double share)
{
    uint64_t bits = 0;
    for (uint32_t c = 0; c < auto_candidates(); c++)
        bits |= (uint64_t) !(auto_least_share(plan, c) > share) << c;
    return bits;
}

/* Prints the choice in every cell, with the plan's allowed loss and without loss. */
static void note_choices(struct planning *p)
{
    double allowed = known(p->plan, PLAN_max_loss, 0);
    json_t *cells = json_array();
    planning_note(p,
                  "resident bandwidth lossless                                   at most %.3g %%",
                  100 * allowed);
    for (uint32_t s = 0; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++) {
            struct auto_view view = {.plan = p->plan,
                                     .usable = measured_at(p->plan, auto_shares[s]),
                                     .share = auto_shares[s],
                                     .bytes_per_s = auto_bandwidths[d],
                                     .running = UINT32_MAX};
            struct auto_choice none = auto_choose(&view);
            view.max_loss = allowed;
            struct auto_choice lossy = auto_choose(&view);
            const char *a = preset_at(auto_preset(none.candidate))->name;
            const char *b = preset_at(auto_preset(lossy.candidate))->name;
            planning_note(p, "%5.1f %% %5.0f MB/s %-31s %7.2f ms %-31s %7.2f ms",
                          100 * auto_shares[s], auto_bandwidths[d] / 1e6, a, none.ns / 1e6, b,
                          lossy.ns / 1e6);
            json_array_append_new(
                cells, json_pack("{s:f, s:f, s:s, s:f, s:s, s:f, s:o}", "share", auto_shares[s],
                                 "bytes_per_s", auto_bandwidths[d], "lossless", a, "lossless_ns",
                                 none.ns, "lossy", b, "lossy_ns", lossy.ns, "parts",
                                 parts_json(p->plan, lossy.candidate, auto_shares[s],
                                            auto_bandwidths[d])));
        }
    json_object_set_new(p->report, "auto", cells);
}

int plan_auto(struct planning *p, struct error *error)
{
    struct predictions t = {.p = p};
    uint32_t windows = (TRACE_TOKENS + p->text.window - 1) / p->text.window;
    uint32_t every = p->text.windows > windows ? p->text.windows / windows : 1;
    struct offline_text text = offline_text_some(&p->text, 0, every);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = (uint32_t)(p->threads ? p->threads : cpus);
    t.spare_cpu = (long)threads < cpus;
    int status = planning_add(p, plan_array_bit(PLAN_ARRAY_auto_ns), error);
    if (status == 0)
        status =
            offline_trace_predicted(p->model, &text, p->method, AHEAD, threads, &t.trace, error);
    offline_text_free(&text);
    if (status != 0)
        return -1;
    status = take_times(&t, error);
    take_tables(&t);
    for (uint32_t c = 0; c < auto_candidates() && status == 0; c++) {
        planning_progress(p, "auto: candidate", c, auto_candidates());
        status = predict_candidate(&t, c, error);
    }
    trace_free(&t.trace);
    free(t.frequency);
    free(t.shares);
    if (status == 0)
        note_choices(p);
    return status;
}
