/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the simulator's configuration from a model and the measured rates, and estimates the speed
 * for each budget. */
#include "procs/tools/doctor/estimate.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "lib/rates/rates.h"
#include "lib/sim/routing.h"
#include "lib/sim/sim.h"

#define PROMPT 512 /* tokens, as bench */
#define TOKENS 128

/* Simulated at most; a model with more is represented by so many of its layers. Time grows with
 * their square. */
#define LAYERS_MAX 16u

static const double shares[ESTIMATE_SHARES] = {0.25, 0.5, 0.75, 1};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static uint64_t expert_mean(const struct model_facts *m)
{
    return m->expert_count ? m->expert_bytes / m->expert_count : 0;
}

/* Of an expert of the layer with experts that has so many of them before it. */
static uint64_t expert_bytes(const struct model_facts *m, uint64_t expert_layer)
{
    uint64_t layer = 0;
    if (!m->layer_expert_bytes)
        return expert_mean(m);
    for (uint64_t before = 0; layer < m->layers; layer++)
        if (m->layer_expert_bytes[layer] > 0 && before++ == expert_layer)
            return m->layer_expert_bytes[layer];
    return expert_mean(m); /* the file has changed since it was inspected */
}

/* Of all accesses of a token. */
static double accessed_bytes(const struct model_facts *m)
{
    uint64_t bytes = 0;
    for (uint64_t l = 0; l < m->expert_layers; l++)
        bytes += expert_bytes(m, l);
    return (double)(bytes * m->experts_used);
}

double estimate_token_bytes(const struct model_facts *m)
{
    return (double)m->dense_read_bytes + accessed_bytes(m);
}

/* Linear interpolation between two measured depths. */
double estimate_read_rate(const struct host_facts *a, double bytes)
{
    static const double depths[ESTIMATE_DEPTHS] = {1, 2, 4, 8, 16};
    double depth = ceil(bytes / (double)a->chunk_bytes);
    depth = depth < 1 ? 1 : depth < 16 ? depth : 16;
    size_t i = 0;
    while (i + 2 < ESTIMATE_DEPTHS && depths[i + 1] < depth)
        i++;
    double part = (depth - depths[i]) / (depths[i + 1] - depths[i]);
    return a->read_bytes_per_s[i] + part * (a->read_bytes_per_s[i + 1] - a->read_bytes_per_s[i]);
}

static double best_rate(const struct host_facts *a)
{
    return a->read_bytes_per_s[ESTIMATE_DEPTHS - 1];
}

/* ---- one simulation ---- */

struct simulation {
    const struct model_facts *m;
    const struct host_facts *a;
    struct trace trace;
    uint64_t measure; /* first record that counts */
    uint32_t layers, experts;
    double scale;                /* layers of the model with experts/simulated layers */
    uint64_t *slot_bytes, bytes; /* of each expert, and of all, simulated */
    struct sim_config config;
    bool spare_cpu;
    double rest_s, rest_prefill_s;          /* of a token, in addition to its layers with experts */
    struct sim_gpu gpu[ESTIMATE_PARTS_MAX]; /* that have simulated layers */
    uint32_t gpus;
};

/* Mean accesses of a layer in a chunk. */
static double chunk_experts(const struct simulation *s)
{
    uint64_t accesses = 0, passes = 0;
    for (uint64_t i = 0; i < s->trace.count; i++) {
        const struct trace_record *r = &s->trace.records[i];
        accesses += r->prefill && r->kind == TRACE_EXPERT;
        passes += r->prefill && r->kind == TRACE_TOKEN_END;
    }
    return passes ? (double)accesses / (double)(passes * s->layers) : 0;
}

/* Compute times of a layer and an expert; what a further token of a chunk costs is such that a
 * whole chunk takes what was measured. */
static void set_compute(struct simulation *s)
{
    const struct host_facts *a = s->a;
    const struct model_facts *m = s->m;
    double layers = (double)m->expert_layers, used = (double)m->experts_used;
    double tokens = (double)(a->chunk_tokens < PROMPT ? a->chunk_tokens : PROMPT);
    double dense = larger(a->decode_s - a->output_s - a->experts_s, 0) / (double)m->layers;
    double expert = a->experts_s / layers / used, once = dense + expert * chunk_experts(s);
    double further = dense * (tokens - 1) + expert * (tokens * used - chunk_experts(s));
    double chunk = a->prefill_s * tokens / (double)m->layers;
    s->rest_s = a->decode_s - layers * (dense + expert * used);
    s->rest_prefill_s = a->prefill_s * (1 - layers / (double)m->layers);
    s->config.compute =
        (struct sim_compute){.layer_ns = dense * 1e9,
                             .expert_ns = expert * 1e9,
                             .predict_ns = SIM_PREDICTOR_NS,
                             .batch = further > 0 ? larger((chunk - once) / further, 0.001) : 1};
}

/* A read of one expert alone takes latency + bytes / bandwidth, many take their bytes /
 * bandwidth. */
static void set_storage(struct simulation *s)
{
    double bytes = (double)(s->bytes / s->layers / s->experts), best = best_rate(s->a);
    double alone = estimate_read_rate(s->a, bytes);
    double latency_s = alone > 0 ? larger(bytes / alone - bytes / best, 0) : 0;
    s->config.storage =
        (struct sim_storage){.bytes_per_s = best > 0 ? best : 1,
                             .latency_ns = SIM_MESSAGES_NS + latency_s * 1e9,
                             .slowdown = s->a->slowdown,
                             .busy_bytes_per_s = smaller(s->a->busy_bytes_per_s, best),
                             .depth = SIM_DEFAULT_DEPTH};
}

/* Simulated layers that represent those with a table; one at least. */
static uint32_t table_layers(const struct simulation *s)
{
    uint64_t tables = s->m->table_layers, all = s->m->expert_layers;
    uint64_t layers = (tables * s->layers + all / 2) / all;
    return tables == 0 || layers > 0 ? (uint32_t)layers : 1;
}

static int make_trace(struct simulation *s, struct error *error)
{
    struct routing routing = {.layers = s->layers,
                              .table_layers = table_layers(s),
                              .model_layers = (uint32_t)s->m->expert_layers,
                              .experts = s->experts,
                              .top_k = (uint32_t)s->m->experts_used,
                              .expert_bytes = s->bytes / s->layers / s->experts,
                              .prompt = PROMPT,
                              .chunk = (uint32_t)s->a->chunk_tokens,
                              .tokens = TOKENS};
    return routing_trace(&routing, &s->trace, &s->measure, error);
}

/* Layers of the model at equal distances. */
static int open_simulation(struct simulation *s, struct error *error)
{
    const struct model_facts *m = s->m;
    s->experts = (uint32_t)(m->expert_count / m->expert_layers);
    s->layers = m->expert_layers < LAYERS_MAX ? (uint32_t)m->expert_layers : LAYERS_MAX;
    s->scale = (double)m->expert_layers / s->layers;
    s->slot_bytes = calloc((size_t)s->layers * s->experts, sizeof *s->slot_bytes);
    if (!s->slot_bytes)
        return error_set(error, ERR_NO_MEMORY, "out of memory (estimate)");
    for (uint32_t i = 0; i < s->layers * s->experts; i++) {
        s->slot_bytes[i] = expert_bytes(m, i / s->experts * m->expert_layers / s->layers);
        s->bytes += s->slot_bytes[i];
    }
    s->config.slot_bytes = s->slot_bytes;
    if (knobs_resolve("default", NULL, "preload=all", &s->config.knobs, error) != 0 ||
        make_trace(s, error) != 0)
        return -1;
    set_compute(s);
    set_storage(s);
    return 0;
}

static void close_simulation(struct simulation *s)
{
    trace_free(&s->trace);
    free(s->slot_bytes);
}

static void take_decode(const struct simulation *s, const struct sim_stats *f, struct estimate *e)
{
    double tokens = (double)f->tokens / s->scale, rate = best_rate(s->a);
    e->reads = (double)(f->misses + f->prefetches) / tokens;
    e->read_bytes = (double)(f->demand_bytes + f->prefetch_bytes) / tokens;
    e->missing = e->read_bytes / accessed_bytes(s->m);
    e->read_s = rate > 0 ? e->read_bytes / rate : 0;
    e->compute_s = s->rest_s + f->compute_ns / tokens / 1e9;
    e->stall_s = f->stall_ns / tokens / 1e9;
    double all_s = s->rest_s + s->scale * sim_token_ns(f, s->spare_cpu) / 1e9;
    e->load_s = larger(all_s - e->compute_s - e->stall_s, 0);
}

/* A share with fewer experts than a token needs stays unknown. */
static int simulate(struct simulation *s, struct estimate *e, struct sim_result *result,
                    struct error *error)
{
    bool known = e->share >= 1 || best_rate(s->a) > 0;
    s->config.capacity = (uint64_t)(e->share * (double)s->bytes);
    if (sim_run(&s->trace, 0, s->measure, &s->config, false, result, error) != 0)
        return error->code == ERR_BUDGET_TOO_SMALL ? 0 : -1;
    double prefill_ns = sim_token_ns(&result->phase[SIM_PREFILL], s->spare_cpu);
    take_decode(s, &result->phase[SIM_DECODE], e);
    if (!known) { /* the simulated device took no end */
        e->stall_s = e->load_s = 0;
        return 0;
    }
    if (s->a->decode_s > 0)
        e->decode_tps = 1 / (e->compute_s + e->stall_s + e->load_s);
    if (s->a->prefill_s > 0)
        e->prefill_tps = 1 / (s->rest_prefill_s + s->scale * prefill_ns / 1e9);
    return 0;
}

int estimate_make(const struct model_facts *m, const struct host_facts *a,
                  struct estimate out[ESTIMATE_SHARES], struct error *error)
{
    struct simulation s = {.m = m, .a = a, .spare_cpu = a->spare_cpu};
    struct sim_result result;
    sl_assert(m->expert_layers > 0 && m->expert_count > 0 && a->chunk_tokens > 0);
    int rc = open_simulation(&s, error);
    for (size_t i = 0; rc == 0 && i < ESTIMATE_SHARES; i++) {
        out[i] = (struct estimate){.share = shares[i]};
        rc = simulate(&s, &out[i], &result, error);
    }
    close_simulation(&s);
    return rc;
}

/* ---- with GPUs ---- */

struct cost_cpu estimate_cpu(const struct model_facts *m, const struct host_facts *a)
{
    double dense_s = a->decode_s - a->experts_s;
    if (!(dense_s > 0) || !(a->experts_s > 0))
        return (struct cost_cpu){0};
    return (struct cost_cpu){.dense = (double)m->dense_read_bytes / dense_s,
                             .experts = accessed_bytes(m) / a->experts_s};
}

/* Simulated layers that represent those before `end`, rounded. */
static uint32_t simulated_before(const struct simulation *s, const struct gpu_facts *g,
                                 uint32_t end)
{
    uint64_t before = cost_expert_layers(g->model, 0, end), all = s->m->expert_layers;
    return before > 0 ? (uint32_t)((before * s->layers + all / 2) / all) : 0;
}

/* A part with simulated layers, which take the mean times of its layers with experts. */
static void add_part(struct simulation *s, const struct gpu_facts *g, const struct cost_part *p,
                     uint32_t begin, uint32_t end)
{
    const struct cost_model *m = g->model;
    struct cost other;
    uint32_t layers = cost_expert_layers(m, p->first, p->end), first = p->first;
    uint64_t all = (uint64_t)(end - begin) * s->experts;
    uint64_t places = p->slots * (end - begin) / layers;
    double output_s = p->end == m->layers ? cost_on_gpu(&m->output, p->gpu) : 0;
    while (cost_bytes_sum(&m->layer[first].expert) == 0)
        first++;
    double before_s = cost_dense_on_gpu(m, p->gpu, p->first, first);
    cost_overhead(m, p, &other);
    double layers_s =
        cost_dense_on_gpu(m, p->gpu, first, p->end) - output_s + other.kv_s + other.waits_s;
    places = places < all ? places : all;
    places = places > s->m->experts_used ? places : s->m->experts_used;
    s->rest_s += before_s + output_s;
    s->gpu[s->gpus++] =
        (struct sim_gpu){.places = (uint32_t)places,
                         .eviction = g->eviction,
                         .bytes_per_s = p->gpu->pinned,
                         .expert_ns = 1e9 * cost_expert_on_gpu(m, p->gpu, p->first, p->end),
                         .layer_ns = 1e9 * layers_s / layers,
                         .end_layer = end};
}

/* Of the rest on the CPU: layers without experts, and the output. */
static double rest_on_cpu(const struct gpu_facts *g, const struct cost_part *p)
{
    const struct cost_model *m = g->model;
    uint64_t bytes = p->end == m->layers ? cost_bytes_sum(&m->output) : 0;
    for (uint32_t l = p->first; l < p->end; l++)
        if (cost_bytes_sum(&m->layer[l].expert) == 0)
            bytes += cost_bytes_sum(&m->layer[l].dense);
    return (double)bytes / g->cpu.dense;
}

/* What has no simulated layer takes the time of cost.h. Of a part of the layers a part of the
 * slots. */
static void add_gpus(struct simulation *s, const struct gpu_facts *g)
{
    double rest_s = s->rest_s;
    s->rest_s = 0;
    for (uint32_t i = 0; i < g->parts; i++) {
        const struct cost_part *p = &g->part[i];
        uint32_t begin = simulated_before(s, g, p->first);
        uint32_t end = simulated_before(s, g, p->end);
        struct cost all = cost_of_part(g->model, &g->cpu, p);
        if (begin == end)
            s->rest_s += cost_sum(&all);
        else if (p->gpu)
            add_part(s, g, p, begin, end);
        else
            s->rest_s += rest_on_cpu(g, p);
    }
    if (rest_s > 0)
        s->rest_prefill_s *= s->rest_s / rest_s;
}

static void use_policy(struct simulation *s, enum gpu_policy policy)
{
    for (uint32_t i = 0; i < s->gpus; i++) {
        s->gpu[i].policy = policy;
        s->gpu[i].next = i + 1 < s->gpus ? &s->gpu[i + 1] : NULL;
    }
    s->config.gpu = s->gpus > 0 ? s->gpu[0] : (struct sim_gpu){0};
    s->spare_cpu = s->a->spare_cpu || policy != GPU_COOPERATIVE; /* else it waits */
}

/* Replaces *out if it is faster. */
static int try_policy(struct simulation *s, enum gpu_policy policy, struct gpu_estimate *out,
                      struct error *error)
{
    struct gpu_estimate one = {.with.share = out->with.share, .policy = policy};
    struct sim_result result = {0};
    use_policy(s, policy);
    if (simulate(s, &one.with, &result, error) != 0)
        return -1;
    const struct sim_stats *f = &result.phase[SIM_DECODE];
    uint64_t uses = f->gpu_hits + f->gpu_uploads + f->gpu_on_cpu;
    if (f->tokens == 0 || one.with.decode_tps <= out->with.decode_tps)
        return 0;
    one.copy_s = f->gpu_stall_ns * s->scale / (double)f->tokens / 1e9;
    one.hits = uses ? (double)f->gpu_hits / (double)uses : 0;
    *out = one;
    return 0;
}

int estimate_gpu(const struct model_facts *m, const struct host_facts *a, const struct gpu_facts *g,
                 struct gpu_estimate out[ESTIMATE_SHARES], struct error *error)
{
    struct simulation s = {.m = m, .a = a};
    enum gpu_policy wanted = g->model->policy;
    sl_assert(g->parts > 0 && g->model->layers == m->layers && cost_cpu_known(&g->cpu));
    int rc = open_simulation(&s, error);
    if (rc == 0)
        add_gpus(&s, g);
    for (size_t i = 0; rc == 0 && i < ESTIMATE_SHARES; i++) {
        out[i] = (struct gpu_estimate){.with.share = shares[i]};
        for (int p = 0; rc == 0 && p < GPU_POLICY__COUNT; p++)
            if (wanted == (enum gpu_policy)p || wanted == GPU_POLICY__COUNT)
                rc = try_policy(&s, (enum gpu_policy)p, &out[i], error);
    }
    close_simulation(&s);
    return rc;
}

double estimate_in_context(const struct host_facts *a, const struct estimate *one)
{
    if (!(one->decode_tps > 0) || a->context_measured == 0)
        return 0;
    return 1 / (1 / one->decode_tps + a->context_s);
}

/* ---- several sequences ---- */

double estimate_union(double experts, double used, uint32_t rows)
{
    return experts * (1 - pow(1 - used / experts, rows));
}

double estimate_together(const struct model_facts *m, const struct host_facts *a,
                         const struct estimate *one, uint32_t sequences)
{
    double used = (double)m->experts_used, experts = accessed_bytes(m), rows = sequences;
    if (!(one->decode_tps > 0) || !(one->compute_s > 0) || m->expert_layers == 0)
        return 0;
    double each = (double)m->expert_count / (double)m->expert_layers;
    double more = estimate_union(each, used, sequences) / used; /* experts, relative to one row */
    double dense = (double)m->dense_read_bytes, token = dense + experts;
    const struct rates_machine machine = {.memory = token / one->compute_s,
                                          .arithmetic =
                                              a->prefill_s > 0 ? token / a->prefill_s : 0};
    const struct rates_pass pass = {.memory_bytes = dense + experts * more,
                                    .row_bytes = rows * token};
    double compute_s = rates_bound(&machine, &pass).pass_s;
    return rows / (compute_s + (one->stall_s + one->load_s) * more);
}

/* ---- budget and advice ---- */

uint64_t estimate_budget(const struct model_facts *m, const struct host_facts *a, double *share)
{
    const struct {
        uint64_t budget;
        double share;
    } steps[] = {
        {m->budget_100, 1}, {m->budget_75, 0.75}, {m->budget_50, 0.5}, {m->budget_25, 0.25}};
    uint64_t limit = a->available / 5 * 4;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if (steps[i].budget <= limit) {
            *share = steps[i].share;
            return steps[i].budget;
        }
    *share = 0;
    return m->min_budget <= a->available ? m->min_budget : 0;
}

/* Reading takes longer than computing. */
static bool reads_bound(const struct estimate *e)
{
    return e->read_s > e->compute_s;
}

uint32_t advise(const struct model_facts *m, const struct host_facts *a,
                const struct estimate estimates[ESTIMATE_SHARES])
{
    double share;
    uint64_t budget = estimate_budget(m, a, &share);
    size_t now = 0;
    while (now + 1 < ESTIMATE_SHARES && estimates[now].share < share)
        now++;
    bool reads = share < 1 && reads_bound(&estimates[now]);
    uint32_t bits = 0;
#define WHEN(NAME, condition) bits |= (condition) ? 1u << ADVICE_##NAME : 0
    WHEN(BUDGET_TOO_SMALL, budget == 0);
    WHEN(CGROUP_LIMIT, a->limited && share < 1);
    WHEN(SHM_SMALL, a->shm_free < (budget ? budget : m->min_budget));
    WHEN(SCRATCH, a->scratch);
    WHEN(FASTER_DEVICE, share < 1 && reads_bound(&estimates[1]));
    WHEN(MORE_MEMORY, share < 1);
    WHEN(LOWER_PRECISION, reads);
    WHEN(IO_URING, !a->io_uring);
    WHEN(KERNELS, !a->vector_kernels);
    WHEN(SWAP, a->swap && share < 1);
    WHEN(FREED_PAGES, a->freed_pages && share < 1);
#undef WHEN
    return bits;
}

static const struct {
    const char *name, *text;
} advices[ADVICE__COUNT] = {
#define ADVICE(NAME, t) {#NAME, t},
#include "procs/tools/doctor/advice.tbl.h"
};

const char *advice_name(enum advice advice)
{
    return (unsigned)advice < ADVICE__COUNT ? advices[advice].name : "?";
}

const char *advice_text(enum advice advice)
{
    return (unsigned)advice < ADVICE__COUNT ? advices[advice].text : "?";
}
