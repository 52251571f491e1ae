/* SPDX-License-Identifier: Apache-2.0 */
/* Estimate and advice of doctor, for synthetic models and machines. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "lib/sim/routing.h"
#include "lib/sim/sim.h"
#include "procs/tools/doctor/estimate.h"

/* 16 layers of 64 experts of 4 MiB, 8 used: 512 MiB of experts per token. */
static struct model_facts a_model(void)
{
    return (struct model_facts){
        .layers = 16,
        .expert_layers = 16,
        .experts_used = 8,
        .expert_count = 1024,
        .dense_read_bytes = 256 * MIB,
        .expert_bytes = 4 * GIB,
        .min_budget = 700 * MIB,
        .budget_25 = 1700 * MIB,
        .budget_50 = 2700 * MIB,
        .budget_75 = 3700 * MIB,
        .budget_100 = 4700 * MIB,
    };
}

/* 100 ms per token of decode, 60 of them experts, 5 ms of prefill, reads at 0.5 to 2 GiB/s, memory
 * for everything. */
static struct host_facts a_host(void)
{
    return (struct host_facts){
        .decode_s = 0.1,
        .experts_s = 0.06,
        .output_s = 0.01,
        .prefill_s = 0.005,
        .chunk_tokens = 256,
        .read_bytes_per_s = {0.5 * GIB, 1.0 * GIB, 1.5 * GIB, 1.75 * GIB, 2.0 * GIB},
        .chunk_bytes = 256 * KIB,
        .available = 64 * GIB,
        .shm_free = 64 * GIB,
        .io_uring = true,
        .vector_kernels = true,
    };
}

enum { AT_25, AT_50, AT_75, AT_100 };

static void make(const struct model_facts *m, const struct host_facts *a,
                 struct estimate e[ESTIMATE_SHARES])
{
    struct error error;
    ck_assert_int_eq(estimate_make(m, a, e, &error), 0);
}

/* Nothing is read, and no token takes longer than in the measurement. */
START_TEST(resident_is_compute_alone)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    make(&m, &a, e);
    ck_assert_double_eq(e[AT_100].share, 1);
    ck_assert_double_eq(e[AT_100].reads, 0);
    ck_assert_double_eq(e[AT_100].stall_s, 0);
    ck_assert_double_eq_tol(e[AT_100].load_s, 0, 1e-12);
    ck_assert_double_eq_tol(e[AT_100].compute_s, 0.1, 1e-9);
    ck_assert_double_eq_tol(e[AT_100].decode_tps, 10, 1e-6);
    ck_assert_double_eq_tol(e[AT_100].prefill_tps, 200, 2);
    ck_assert_double_eq_tol(estimate_token_bytes(&m), 768.0 * MIB, 1);
}
END_TEST

/* ---- with GPUs ---- */

#define GPU_LAYERS 4

static struct cost_layer gpu_layer[GPU_LAYERS];
static double gpu_hits[65];

/* A quarter of the model: 4 layers of 64 experts, 128 MiB of experts of a token, the dense bytes in
 * four layers and an output of the same size; all of a type that the GPU reads at one rate. */
static struct cost_model a_gpu_model(struct model_facts *m, struct cost_layer layer[GPU_LAYERS])
{
    *m = a_model();
    m->layers = m->expert_layers = GPU_LAYERS;
    m->expert_count /= 4;
    m->expert_bytes /= 4;
    uint64_t dense = m->dense_read_bytes / (GPU_LAYERS + 1);
    for (int l = 0; l < GPU_LAYERS; l++)
        layer[l] = (struct cost_layer){.dense.of = {dense}, .expert.of = {4 * MIB}};
    for (int s = 0; s <= 64; s++)
        gpu_hits[s] = s / 64.0;
    return (struct cost_model){.layers = GPU_LAYERS,
                               .experts = 64,
                               .top_k = 8,
                               .layer = layer,
                               .output.of = {dense},
                               .hits = gpu_hits,
                               .policy = GPU_CENTRIC};
}

static double tps_of(const struct model_facts *m, const struct host_facts *a,
                     const struct gpu_facts *g, struct gpu_estimate e[ESTIMATE_SHARES])
{
    struct error error;
    ck_assert_int_eq(estimate_gpu(m, a, g, e, &error), 0);
    return e[AT_100].with.decode_tps;
}

/* A GPU that reads weights ten times as fast as the CPU. With slots for all nothing is copied and a
 * token takes the time of cost.h; with fewer slots it waits for copies, less with faster ones; auto
 * is as fast as the fastest of the policies. */
START_TEST(with_a_gpu)
{
    struct model_facts m;
    struct host_facts a = a_host();
    struct gpu_estimate all[ESTIMATE_SHARES], few[ESTIMATE_SHARES], fast[ESTIMATE_SHARES],
        best[ESTIMATE_SHARES];
    struct cost_model model = a_gpu_model(&m, gpu_layer);
    struct gpu_facts g = {
        .model = &model, .cpu = estimate_cpu(&m, &a), .parts = 1, .eviction = EVICTION_LRU};
    ck_assert_double_eq_tol(g.cpu.experts, 128.0 * MIB / 0.06, 1);
    ck_assert_double_eq_tol(g.cpu.dense, 256.0 * MIB / 0.04, 1);
    struct cost_gpu gpu = {.product = {10 * g.cpu.experts}, .pinned = 4.0 * GIB, .pageable = 1};
    g.part[0] = (struct cost_part){.gpu = &gpu, .end = 4, .kv_layers = 4, .slots = 256};
    double want = cost_of_token(&model, &g.cpu, g.part, 1);
    ck_assert_double_eq_tol(want, (256 + 128) * 0.06 / 128 / 10, 1e-4);
    ck_assert_double_eq_tol(1 / tps_of(&m, &a, &g, all), want, 1e-6);
    ck_assert_double_eq(all[AT_100].hits, 1);
    ck_assert_double_eq_tol(all[AT_100].copy_s, 0, 1e-9);
    ck_assert_double_lt(all[AT_25].with.decode_tps, all[AT_100].with.decode_tps);
    g.part[0].slots = 64;
    ck_assert_double_lt(tps_of(&m, &a, &g, few), all[AT_100].with.decode_tps);
    ck_assert(few[AT_100].hits > 0 && few[AT_100].hits < 1 && few[AT_100].copy_s > 0);
    model.policy = GPU_POLICY__COUNT;
    ck_assert_double_ge(tps_of(&m, &a, &g, best), few[AT_100].with.decode_tps);
    ck_assert(best[AT_100].policy != GPU_CENTRIC);
    model.policy = GPU_CENTRIC;
    gpu.pinned *= 4;
    ck_assert_double_gt(tps_of(&m, &a, &g, fast), few[AT_100].with.decode_tps);
    ck_assert_double_lt(fast[AT_100].copy_s, few[AT_100].copy_s);
}
END_TEST

/* With slots for all experts of the parts and everything in the arena, a token takes the time of
 * cost.h, for each division; the second GPU is slower, and waits and copies of keys and values
 * count. */
START_TEST(with_parts_of_the_layers)
{
    struct model_facts m;
    struct host_facts a = a_host();
    struct gpu_estimate e[ESTIMATE_SHARES];
    struct cost_model model = a_gpu_model(&m, gpu_layer);
    struct cost_cpu cpu = estimate_cpu(&m, &a);
    struct cost_gpu fast = {.product = {10 * cpu.experts}, .pinned = 1e9, .pageable = 1e9},
                    slow = fast;
    slow.product[0] /= 4;
    slow.wait_s = 1e-3;
    a.output_s = 256.0 * MIB / 5 / cpu.dense; /* as cost.h has it */
    for (int l = 0; l < GPU_LAYERS; l++)
        gpu_layer[l].kv = MIB;
    double last = 0;
    for (uint32_t end = 1; end <= GPU_LAYERS; end++) {
        uint32_t first = end > 1 ? end / 2 : 1;
        struct gpu_facts g = {.model = &model, .cpu = cpu};
        g.part[g.parts++] =
            (struct cost_part){.gpu = &fast, .end = first, .kv_layers = first, .slots = 64 * first};
        if (end > first)
            g.part[g.parts++] = (struct cost_part){
                .gpu = &slow, .first = first, .end = end, .slots = 64 * (end - first)};
        if (end < GPU_LAYERS)
            g.part[g.parts++] = (struct cost_part){.first = end, .end = GPU_LAYERS};
        double want = cost_of_token(&model, &cpu, g.part, g.parts);
        double tps = tps_of(&m, &a, &g, e);
        ck_assert_double_eq_tol(1 / tps, want, 1e-6);
        ck_assert_double_gt(tps, last);
        last = tps;
    }
}
END_TEST

/* Of 48 layers 16 are simulated: a part has its share of them and of its slots; one layer is too
 * few, and takes the time of cost.h. */
START_TEST(many_layers_on_a_gpu)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct gpu_estimate e[ESTIMATE_SHARES];
    static struct cost_layer layer[48];
    struct cost_layer few[GPU_LAYERS];
    struct model_facts four;
    struct cost_model model = a_gpu_model(&four, few);
    m.layers = m.expert_layers = 48, m.expert_count *= 3, m.expert_bytes *= 3;
    for (int l = 0; l < 48; l++)
        layer[l] = (struct cost_layer){.dense.of = {5 * MIB}, .expert.of = {4 * MIB}};
    model.layers = 48, model.layer = layer, model.output.of[0] = 16 * MIB;
    struct cost_cpu cpu = estimate_cpu(&m, &a);
    struct cost_gpu gpu = {.product = {10 * cpu.experts}, .pinned = 1e9, .pageable = 1};
    a.output_s = 16.0 * MIB / cpu.dense;
    for (uint32_t first = 24; first <= 25; first++) {
        struct gpu_facts g = {.model = &model, .cpu = cpu};
        g.part[g.parts++] =
            (struct cost_part){.gpu = &gpu, .end = 24, .kv_layers = 24, .slots = (uint64_t)64 * 24};
        if (first > 24)
            g.part[g.parts++] = (struct cost_part){
                .gpu = &gpu, .first = 24, .end = 25, .kv_layers = 1, .slots = 64};
        g.part[g.parts++] = (struct cost_part){.first = first, .end = 48};
        double want = cost_of_token(&model, &cpu, g.part, g.parts);
        ck_assert_double_eq_tol(1 / tps_of(&m, &a, &g, e), want, 0.06 * want);
        ck_assert_double_eq(e[AT_100].hits, 1);
    }
}
END_TEST

/* Leading layers without experts read nothing and wait for nothing. */
START_TEST(layers_without_experts)
{
    struct model_facts m = a_model(), more = m;
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES], f[ESTIMATE_SHARES];
    more.layers += 8;
    make(&m, &a, e);
    make(&more, &a, f);
    ck_assert_double_eq_tol(f[AT_50].missing, e[AT_50].missing, 0.03);
    ck_assert_double_eq_tol(f[AT_100].compute_s, 0.1, 1e-9);
    ck_assert_double_eq_tol(f[AT_100].prefill_tps, 200, 2);
    ck_assert_double_eq(estimate_token_bytes(&more), estimate_token_bytes(&m));
}
END_TEST

/* The simulator's own counts for the same trace: preset default, everything preloaded that fits. */
START_TEST(counts_of_the_simulator)
{
    static const double shares[] = {0.25, 0.5, 0.75, 1};
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    struct routing r = {.layers = 16,
                        .model_layers = 16,
                        .experts = 64,
                        .top_k = 8,
                        .expert_bytes = 4 * MIB,
                        .prompt = 512,
                        .chunk = 256,
                        .tokens = 128};
    struct trace t;
    struct error error;
    uint64_t measure;
    a.prefill_s = 0.09; /* every token of a chunk costs the same */
    make(&m, &a, e);
    ck_assert_int_eq(routing_trace(&r, &t, &measure, &error), 0);
    for (int i = 0; i < ESTIMATE_SHARES; i++) {
        /* a read alone takes as long as many; 10 % of the time is not in layers */
        struct sim_config c = {
            .capacity = (uint64_t)(shares[i] * 4 * GIB),
            .storage = {.bytes_per_s = 2.0 * GIB, .latency_ns = SIM_MESSAGES_NS, .depth = 16},
            .compute = {.layer_ns = 3e7 / 16,
                        .expert_ns = 6e7 / 128,
                        .predict_ns = SIM_PREDICTOR_NS,
                        .batch = 1}};
        struct sim_result result;
        ck_assert_int_eq(knobs_resolve("default", NULL, "preload=all", &c.knobs, &error), 0);
        ck_assert_int_eq(sim_run(&t, 0, measure, &c, false, &result, &error), 0);
        const struct sim_stats *f = &result.phase[SIM_DECODE];
        double reads = (double)(f->misses + f->prefetches) / 128;
        double bytes = (double)(f->demand_bytes + f->prefetch_bytes) / 128;
        ck_assert_double_eq_tol(e[i].reads, reads, 1e-3 * reads + 1e-12);
        ck_assert_double_eq_tol(e[i].read_bytes, bytes, 1e-3 * bytes + 1e-12);
        ck_assert_double_eq_tol(e[i].stall_s, f->stall_ns / 128e9, 1e-3 * e[i].stall_s + 1e-12);
    }
    trace_free(&t);
}
END_TEST

/* Bytes that engines read with such shapes (docs/lab/io.md): 0.18 to 0.31 and 0.41 to 0.58 of those
 * of all accesses. */
START_TEST(misses_as_measured)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    m.layers = m.expert_layers = 8, m.expert_count /= 2, m.expert_bytes /= 2;
    make(&m, &a, e);
    ck_assert(e[AT_50].missing > 0.18 && e[AT_50].missing < 0.31);
    ck_assert(e[AT_25].missing > 0.41 && e[AT_25].missing < 0.58);
    for (int i = 1; i < ESTIMATE_SHARES; i++) {
        ck_assert_double_lt(e[i].missing, e[i - 1].missing);
        ck_assert_double_gt(e[i].decode_tps, e[i - 1].decode_tps);
        ck_assert_double_ge(e[i].prefill_tps, e[i - 1].prefill_tps);
    }
}
END_TEST

/* Bytes are those of each layer's experts, not reads times the mean: only layers of one kind are
 * read if those of the other one are next to nothing. */
START_TEST(bytes_of_each_layer)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    uint64_t bytes[16], token = 0;
    for (int l = 0; l < 16; l++) {
        bytes[l] = l % 2 ? 6 * MIB : 2 * MIB;
        token += 8 * bytes[l];
    }
    m.layer_expert_bytes = bytes;
    make(&m, &a, e);
    ck_assert_double_eq_tol(estimate_token_bytes(&m), 256.0 * MIB + (double)token, 1);
    for (int i = 0; i < AT_100; i++) {
        ck_assert_double_ge(e[i].read_bytes, e[i].reads * 2 * MIB);
        ck_assert_double_le(e[i].read_bytes, e[i].reads * 6 * MIB);
        ck_assert_double_eq_tol(e[i].missing, e[i].read_bytes / (double)token, 1e-9);
    }
    ck_assert_double_eq_tol(e[AT_100].compute_s, 0.1, 1e-9);
}
END_TEST

/* Reads and compute overlap in part: the sum is slower, the longer one faster. */
START_TEST(reading_bounds_the_estimate)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    make(&m, &a, e);
    ck_assert_double_eq_tol(e[AT_50].read_s, e[AT_50].read_bytes / (2.0 * GIB), 1e-9);
    ck_assert_double_gt(e[AT_50].stall_s, 0);
    ck_assert_double_lt(e[AT_50].stall_s, e[AT_50].read_s);
    /* A slow device decides alone. */
    for (int i = 0; i < ESTIMATE_DEPTHS; i++)
        a.read_bytes_per_s[i] = 0.01 * GIB;
    make(&m, &a, e);
    ck_assert_double_eq_tol(e[AT_50].decode_tps * e[AT_50].read_s, 1, 0.1);
    /* And a prompt reads nearly all experts in every chunk, at 25 %. */
    double chunk_s = 256 / e[AT_25].prefill_tps;
    ck_assert(chunk_s > 0.7 * 4 / 0.01 && chunk_s < 1.05 * 4 / 0.01);
}
END_TEST

START_TEST(small_reads_at_small_depth)
{
    struct host_facts a = a_host();
    ck_assert_double_eq_tol(estimate_read_rate(&a, 1), 0.5 * GIB, 1);
    ck_assert_double_eq_tol(estimate_read_rate(&a, 256.0 * KIB), 0.5 * GIB, 1);
    ck_assert_double_eq_tol(estimate_read_rate(&a, 768.0 * KIB), 1.25 * GIB, 1);
    ck_assert_double_eq_tol(estimate_read_rate(&a, 4.0 * MIB), 2.0 * GIB, 1);
    ck_assert_double_eq_tol(estimate_read_rate(&a, 4.0 * GIB), 2.0 * GIB, 1);
}
END_TEST

/* Of many layers some are simulated; what a token reads is that of all. */
START_TEST(many_layers)
{
    struct model_facts m = a_model(), more = m;
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES], f[ESTIMATE_SHARES];
    more.layers = more.expert_layers = 48, more.expert_count *= 3, more.expert_bytes *= 3;
    make(&m, &a, e);
    a.decode_s *= 3, a.experts_s *= 3, a.output_s *= 3, a.prefill_s *= 3;
    make(&more, &a, f);
    ck_assert_double_eq_tol(f[AT_50].missing, e[AT_50].missing, 0.05); /* predictions are better */
    ck_assert_double_eq_tol(f[AT_50].read_bytes, f[AT_50].missing * 48 * 8 * 4 * MIB, 1);
    ck_assert_double_eq_tol(f[AT_100].decode_tps, e[AT_100].decode_tps / 3, 1e-6);
    ck_assert_double_eq_tol(f[AT_25].decode_tps, e[AT_25].decode_tps / 3, 0.2);
    ck_assert_double_eq_tol(f[AT_25].prefill_tps, e[AT_25].prefill_tps / 3, 5);
}
END_TEST

/* CPUs that compute does not use take the other processes' work. */
START_TEST(cpus_that_do_not_compute)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES], f[ESTIMATE_SHARES];
    make(&m, &a, e);
    ck_assert_double_eq_tol(e[AT_50].load_s, e[AT_50].reads * SIM_LOAD_NS / 1e9, 1e-9);
    a.spare_cpu = true;
    make(&m, &a, f);
    ck_assert_double_eq_tol(f[AT_50].load_s, 0, 1e-12);
    ck_assert_double_gt(f[AT_50].decode_tps, e[AT_50].decode_tps);
    ck_assert_double_gt(f[AT_50].prefill_tps, e[AT_50].prefill_tps);
}
END_TEST

/* What is computed while experts are read takes as much longer as was measured. */
START_TEST(computing_beside_reads)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES], f[ESTIMATE_SHARES], g[ESTIMATE_SHARES];
    make(&m, &a, e);
    a.slowdown = 2;
    make(&m, &a, f);
    a.busy_bytes_per_s = 0.25 * GIB;
    make(&m, &a, g);
    ck_assert_double_eq_tol(f[AT_100].compute_s, a.decode_s, 1e-9);
    ck_assert(f[AT_25].compute_s > 1.3 * a.decode_s && f[AT_25].compute_s < 2 * a.decode_s);
    for (size_t i = AT_25; i < AT_100; i++) {
        ck_assert_double_gt(f[i].compute_s, e[i].compute_s);
        ck_assert_double_lt(f[i].decode_tps, e[i].decode_tps);
        ck_assert_double_lt(g[i].decode_tps, f[i].decode_tps);
    }
}
END_TEST

/* Without measurements of storage device and core there is no estimate. */
START_TEST(unknown_stays_unknown)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    memset(a.read_bytes_per_s, 0, sizeof a.read_bytes_per_s);
    make(&m, &a, e);
    ck_assert_double_eq(e[AT_50].decode_tps, 0);
    ck_assert_double_eq(e[AT_50].prefill_tps, 0);
    ck_assert_double_gt(e[AT_100].decode_tps, 0);
    ck_assert_double_gt(e[AT_100].prefill_tps, 0);
    a.decode_s = a.prefill_s = a.experts_s = a.output_s = 0;
    make(&m, &a, e);
    ck_assert_double_eq(e[AT_100].decode_tps, 0);
    ck_assert_double_eq(e[AT_100].prefill_tps, 0);
}
END_TEST

/* A quarter of 5 experts in 1 layer does not hold the 2 of a token. */
START_TEST(less_than_a_token_needs)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    m.layers = m.expert_layers = 1, m.experts_used = 2;
    m.expert_count = 5, m.expert_bytes = 20 * MIB;
    make(&m, &a, e);
    ck_assert_double_eq(e[AT_25].decode_tps, 0);
    ck_assert_double_eq(e[AT_25].prefill_tps, 0);
    ck_assert_double_gt(e[AT_50].decode_tps, 0);
}
END_TEST

/* Layers whose experts a table names read more, and what they read is known before a token. */
START_TEST(layers_of_a_table)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES], f[ESTIMATE_SHARES];
    make(&m, &a, e);
    m.table_layers = 8;
    make(&m, &a, f);
    for (size_t i = AT_25; i < AT_100; i++) {
        ck_assert_double_gt(f[i].read_bytes, 1.2 * e[i].read_bytes);
        ck_assert_double_lt(f[i].decode_tps, e[i].decode_tps);
    }
    ck_assert_double_eq(f[AT_100].read_bytes, 0);
}
END_TEST

START_TEST(budget_is_the_largest_step_that_leaves_a_fifth)
{
    static const struct {
        uint64_t available, budget;
        double share;
    } cases[] = {
        {64 * GIB, 4700 * MIB, 1},      {5880 * MIB, 4700 * MIB, 1},
        {5870 * MIB, 3700 * MIB, 0.75}, {3400 * MIB, 2700 * MIB, 0.5},
        {2200 * MIB, 1700 * MIB, 0.25}, {2000 * MIB, 700 * MIB, 0},
        {700 * MIB, 700 * MIB, 0},      {699 * MIB, 0, 0},
    };
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double share = -1;
        a.available = cases[i].available;
        ck_assert_uint_eq(estimate_budget(&m, &a, &share), cases[i].budget);
        ck_assert_double_eq(share, cases[i].share);
    }
}
END_TEST

/* Each advice from the one fact that causes it; none without. */
START_TEST(advice_by_its_condition)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e[ESTIMATE_SHARES];
    make(&m, &a, e);
    ck_assert_uint_eq(advise(&m, &a, e), 0);
#define EXPECT(NAME, change)                                                                       \
    do {                                                                                           \
        a = a_host();                                                                              \
        change;                                                                                    \
        ck_assert_msg(advise(&m, &a, e) & 1u << ADVICE_##NAME, "no %s", #NAME);                    \
    } while (0)
#define EXPECT_NOT(NAME, change)                                                                   \
    do {                                                                                           \
        a = a_host();                                                                              \
        change;                                                                                    \
        ck_assert_msg(!(advise(&m, &a, e) & 1u << ADVICE_##NAME), "%s", #NAME);                    \
    } while (0)
    EXPECT(BUDGET_TOO_SMALL, a.available = m.min_budget - 1);
    EXPECT_NOT(BUDGET_TOO_SMALL, a.available = m.min_budget);
    EXPECT(MORE_MEMORY, a.available = 3 * GIB);
    EXPECT(CGROUP_LIMIT, (a.available = 3 * GIB, a.limited = true));
    EXPECT_NOT(CGROUP_LIMIT, a.limited = true);
    EXPECT(SHM_SMALL, a.shm_free = 4699 * MIB);
    EXPECT_NOT(SHM_SMALL, a.shm_free = 4700 * MIB);
    EXPECT(SCRATCH, a.scratch = true);
    EXPECT(IO_URING, a.io_uring = false);
    EXPECT(KERNELS, a.vector_kernels = false);
    EXPECT(SWAP, (a.swap = true, a.available = 3 * GIB));
    EXPECT_NOT(SWAP, a.swap = true);
    EXPECT(FREED_PAGES, (a.freed_pages = true, a.available = 3 * GIB));
    EXPECT_NOT(FREED_PAGES, a.freed_pages = true);
    /* Reading takes less than computing, then longer: the device is the bottleneck. */
    EXPECT_NOT(FASTER_DEVICE, a.available = 3 * GIB);
    EXPECT_NOT(LOWER_PRECISION, a.available = 3400 * MIB);
    a.read_bytes_per_s[4] = 0.25 * GIB;
    make(&m, &a, e);
    EXPECT(FASTER_DEVICE, a.available = 3 * GIB);
    EXPECT(LOWER_PRECISION, a.available = 3 * GIB);
#undef EXPECT
#undef EXPECT_NOT
}
END_TEST

START_TEST(every_advice_has_text)
{
    for (int i = 0; i < ADVICE__COUNT; i++) {
        ck_assert_uint_gt(strlen(advice_name((enum advice)i)), 3);
        ck_assert_uint_gt(strlen(advice_text((enum advice)i)), 20);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(advice_name((enum advice)i), advice_name((enum advice)j));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor");
    TCase *t = tcase_create("estimate");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, resident_is_compute_alone);
    tcase_add_test(t, with_a_gpu);
    tcase_add_test(t, with_parts_of_the_layers);
    tcase_add_test(t, many_layers_on_a_gpu);
    tcase_add_test(t, layers_without_experts);
    tcase_add_test(t, counts_of_the_simulator);
    tcase_add_test(t, misses_as_measured);
    tcase_add_test(t, bytes_of_each_layer);
    tcase_add_test(t, reading_bounds_the_estimate);
    tcase_add_test(t, small_reads_at_small_depth);
    tcase_add_test(t, cpus_that_do_not_compute);
    tcase_add_test(t, computing_beside_reads);
    tcase_add_test(t, less_than_a_token_needs);
    tcase_add_test(t, many_layers);
    tcase_add_test(t, layers_of_a_table);
    tcase_add_test(t, unknown_stays_unknown);
    tcase_add_test(t, budget_is_the_largest_step_that_leaves_a_fifth);
    tcase_add_test(t, advice_by_its_condition);
    tcase_add_test(t, every_advice_has_text);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
