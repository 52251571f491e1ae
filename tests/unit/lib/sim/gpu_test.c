/* SPDX-License-Identifier: Apache-2.0 */
/* Places for experts on a GPU: times by arithmetic, and what a replay counts. */
#include <string.h>

#include "lib/sim/options.h"
#include "lib/sim/routing.h"
#include "tests/unit/lib/sim/sim_test.h"

#define LAYER_NS  4e5 /* of config_of */
#define CPU_NS    1e5
#define GPU_NS    2e4
#define COPY_NS   1e5
#define COPY_RATE (EXPERT_BYTES * 1e9 / COPY_NS)

static const struct sim_gpu four = {
    .places = 4, .eviction = EVICTION_LRU, .bytes_per_s = COPY_RATE, .expert_ns = GPU_NS};

/* One layer of 8 experts, all in the arena. */
static struct sim_cache *one_layer(struct sim_gpu gpu, struct error *error)
{
    struct sim_config c = config_of("lod", "preload=all", 8);
    c.layers = 1, c.experts = 8, c.top_k = 4, c.precision_mask = 1,
    c.precision_bytes[0] = EXPERT_BYTES;
    c.gpu = gpu;
    return sim_cache_create(&c, error);
}

static struct sim_cache *made(enum gpu_policy policy)
{
    struct error error;
    struct sim_gpu gpu = four;
    gpu.policy = policy;
    struct sim_cache *c = one_layer(gpu, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    return c;
}

/* A pass; its time without computing, and with it. */
static void pass(struct sim_cache *c, uint32_t tokens, const uint32_t *experts, uint32_t count,
                 double stall, double all)
{
    static uint32_t position;
    double from = sim_cache_now(c);
    sim_cache_layer(c, &(struct sim_step){1, position++, 0, tokens, false}, 1);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_access_result result;
        sim_cache_access(c, &(struct sim_access){.expert = experts[i], .tokens = 1}, &result);
        ck_assert_int_eq(result.outcome, SIM_HIT);
    }
    ck_assert_double_eq_tol(sim_cache_compute(c), stall, 1);
    sim_cache_token(c);
    if (tokens == 1)
        ck_assert_double_eq_tol(sim_cache_now(c) - from, LAYER_NS + all, 1);
}

static const uint32_t first[] = {1, 2, 3, 4}, other[] = {1, 2, 3, 5},
                      every[] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Each copy but the first runs while the expert before it is computed; those that are there are
 * computed first. */
START_TEST(copies_and_hits)
{
    struct sim_cache *c = made(GPU_CENTRIC);
    pass(c, 1, first, 4, 4 * COPY_NS - 3 * GPU_NS, 4 * COPY_NS + GPU_NS);
    pass(c, 1, first, 4, 0, 4 * GPU_NS);
    pass(c, 1, other, 4, COPY_NS - 3 * GPU_NS, COPY_NS + GPU_NS); /* 5 in the place of 4 */
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->gpu_hits, 7);
    ck_assert_uint_eq(f->gpu_uploads, 5);
    ck_assert_uint_eq(f->gpu_evictions, 1);
    ck_assert_uint_eq(f->gpu_on_cpu, 0);
    ck_assert_uint_eq(f->gpu_upload_bytes, 5 * EXPERT_BYTES);
    ck_assert_double_eq_tol(f->gpu_upload_ns, 5 * COPY_NS, 1);
    ck_assert_double_eq_tol(f->gpu_stall_ns, f->stall_ns, 1);
    ck_assert_double_eq_tol(f->gpu_stall_ns, 5 * COPY_NS - 6 * GPU_NS, 1);
    sim_cache_destroy(c);
}
END_TEST

/* The CPU computes what has no place; the pinned memory has space for two of them at a time. */
START_TEST(cpu_computes)
{
    struct sim_cache *c = made(GPU_COOPERATIVE);
    pass(c, 1, first, 4, 0, 4 * CPU_NS);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->gpu_on_cpu, 4);
    ck_assert_uint_eq(f->gpu_background, 2);
    pass(c, 1, first, 4, 0, 2 * CPU_NS);
    pass(c, 1, first, 4, 0, 4 * GPU_NS);
    ck_assert_uint_eq(f->gpu_hits, 6);
    ck_assert_uint_eq(f->gpu_on_cpu, 6);
    ck_assert_uint_eq(f->gpu_background, 4);
    ck_assert_uint_eq(f->gpu_uploads, 0);
    ck_assert_uint_eq(f->gpu_upload_bytes, 4 * EXPERT_BYTES);
    sim_cache_destroy(c);
}
END_TEST

/* More experts than places: in turns, also where a trace has more of them than a token needs.
 * Several tokens are never the CPU's. */
START_TEST(chunks)
{
    for (uint32_t tokens = 1; tokens <= 2; tokens++)
        for (int cooperative = 0; cooperative < 2; cooperative++) {
            struct sim_cache *c = made(cooperative ? GPU_COOPERATIVE : GPU_CENTRIC);
            bool on_cpu = cooperative && tokens == 1;
            pass(c, tokens, every, 8, on_cpu ? 0 : 8 * COPY_NS - 6 * GPU_NS,
                 on_cpu ? 8 * CPU_NS : 8 * COPY_NS + 2 * GPU_NS);
            const struct sim_stats *f = sim_cache_stats(c, tokens == 1 ? SIM_DECODE : SIM_PREFILL);
            ck_assert_uint_eq(f->gpu_uploads, on_cpu ? 0 : 8);
            ck_assert_uint_eq(f->gpu_evictions, on_cpu ? 0 : 4);
            ck_assert_uint_eq(f->gpu_on_cpu, on_cpu ? 8 : 0);
            sim_cache_destroy(c);
        }
}
END_TEST

/* A batch has the rows of the largest pass: what is too much for it is computed with the next
 * one. */
START_TEST(rows_of_a_batch)
{
    static const struct sim_access accesses[] = {
        {.expert = 1, .tokens = 3}, {.expert = 2, .tokens = 3}, {.expert = 3, .tokens = 1}};
    struct sim_cache *c = made(GPU_CENTRIC);
    struct sim_access_result result;
    for (uint32_t position = 0; position < 2; position++) {
        sim_cache_layer(c, &(struct sim_step){1, position, 0, 4, true}, 1);
        for (size_t i = 0; i < 3; i++)
            sim_cache_access(c, &accesses[i], &result);
        sim_cache_compute(c);
        sim_cache_token(c);
    }
    /* 1 and 3, then 2, which was used last: the others lose their places */
    static const uint32_t next[] = {4, 5, 6, 2};
    pass(c, 1, next, 4, 3 * COPY_NS - 3 * GPU_NS, 3 * COPY_NS + GPU_NS);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->gpu_evictions, 2);
    ck_assert_uint_eq(f->gpu_hits, 1);
    sim_cache_destroy(c);
}
END_TEST

START_TEST(gpus_that_cannot_be)
{
    struct error error;
    struct sim_gpu g = four;
    g.places = 3;
    ck_assert_ptr_null(one_layer(g, &error));
    ck_assert_int_eq(error.code, ERR_BUDGET_TOO_SMALL);
    g = four;
    g.bytes_per_s = 0;
    ck_assert_ptr_null(one_layer(g, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

/* Layer 0 or 1 of a pass of one token: a use of `expert`, and what is predicted for layer 1. */
static void half_pass(struct sim_cache *c, uint32_t layer, uint32_t expert, uint32_t predicted,
                      double stall)
{
    struct sim_access_result result;
    struct prediction p = {.expert = predicted};
    sim_cache_layer(c, &(struct sim_step){1, 0, layer, 1, false}, 1);
    sim_cache_access(c, &(struct sim_access){.expert = expert, .tokens = 1}, &result);
    sim_cache_gpu_predicted(c, &p, layer == 0);
    ck_assert_double_eq_tol(sim_cache_compute(c), stall, 1);
    if (layer == 1)
        sim_cache_token(c);
}

static struct sim_cache *two_layers(double layer_ns)
{
    struct error error;
    struct sim_config k = config_of("lod", "preload=all", 16);
    k.layers = 2, k.experts = 8, k.top_k = 1, k.precision_mask = 1;
    k.precision_bytes[0] = EXPERT_BYTES;
    k.compute.layer_ns = layer_ns;
    k.gpu = four;
    k.gpu.places = 3;
    k.gpu.policy = GPU_PREFETCH;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    return c;
}

/* A copy ahead begins after those of its layer, and runs while the next one is computed, which
 * waits for the rest. What is predicted and there is not copied again. */
START_TEST(copies_ahead)
{
    for (int late = 0; late < 2; late++) { /* the layer takes longer than the copy; less */
        struct sim_cache *c = two_layers(late ? 1e4 : LAYER_NS);
        double rest = late ? COPY_NS - GPU_NS - 1e4 : 0;
        half_pass(c, 0, 1, 2, COPY_NS);
        half_pass(c, 1, 2, 0, rest);
        half_pass(c, 0, 1, 2, 0);
        half_pass(c, 1, 2, 0, 0);
        half_pass(c, 0, 1, 3, 0);
        half_pass(c, 1, 4, 0, COPY_NS + rest); /* in the place of 2 */
        half_pass(c, 0, 1, 5, 0);              /* in the place of 3, which was not used */
        half_pass(c, 1, 5, 0, rest);
        const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
        ck_assert_uint_eq(f->gpu_hits, 6);
        ck_assert_uint_eq(f->gpu_uploads, 2);
        ck_assert_uint_eq(f->gpu_evictions, 2);
        ck_assert_uint_eq(f->gpu_prefetches, 3);
        ck_assert_uint_eq(f->gpu_prefetches_timely, late ? 0 : 2);
        ck_assert_uint_eq(f->gpu_prefetches_late, late ? 2 : 0);
        ck_assert_uint_eq(f->gpu_prefetches_unused, 1);
        ck_assert_uint_eq(f->gpu_upload_bytes, 5 * EXPERT_BYTES);
        sim_cache_destroy(c);
    }
}
END_TEST

/* Layer 0 is on a GPU, layer 1 on another one or on the CPU: each has places and times of its own,
 * and of the first layer of a part nothing is copied ahead. */
START_TEST(parts_of_the_layers)
{
    for (int second = 0; second < 2; second++) {
        struct error error;
        struct sim_config k = config_of("lod", "preload=all", 16);
        struct sim_gpu next = four;
        k.layers = 2, k.experts = 8, k.top_k = 1, k.precision_mask = 1;
        k.precision_bytes[0] = EXPERT_BYTES;
        k.compute.layer_ns = LAYER_NS;
        k.gpu = four;
        k.gpu.policy = next.policy = GPU_PREFETCH;
        k.gpu.end_layer = 1;
        k.gpu.layer_ns = 2 * LAYER_NS;
        next.expert_ns = 2 * GPU_NS;
        k.gpu.next = second ? &next : NULL;
        struct sim_cache *c = sim_cache_create(&k, &error);
        ck_assert_msg(c != NULL, "%s", error.text);
        half_pass(c, 0, 1, 2, COPY_NS);
        half_pass(c, 1, 2, 0, second ? COPY_NS : 0);
        half_pass(c, 0, 1, 2, 0);
        half_pass(c, 1, 2, 0, 0);
        const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
        double rest = second ? 4 * GPU_NS : 2 * CPU_NS;
        ck_assert_double_eq_tol(f->compute_ns, 6 * LAYER_NS + 2 * GPU_NS + rest, 1);
        ck_assert_uint_eq(f->gpu_hits, second ? 2 : 1);
        ck_assert_uint_eq(f->gpu_uploads, second ? 2 : 1);
        ck_assert_uint_eq(f->gpu_prefetches, 0);
        ck_assert_uint_eq(f->cpu_layer_uses, second ? 0 : 2);
        sim_cache_destroy(c);
    }
}
END_TEST

/* Options of several GPUs, and ranges that are none. */
START_TEST(options_of_parts)
{
    static const struct {
        const char *slots, *layers;
        bool good;
    } cases[] = {{"8", NULL, true},     {"8", "3", true},    {"8,4", "1,3", true},
                 {"8,4", NULL, false},  {"8,4", "3", false}, {"8", "1,1", false},
                 {"8,4", "2,3", false}, {"8", "0", false},   {"8,x", "1,1", false},
                 {"8,1", "1,1", false}, {"8,", "1,1", false}};
    struct trace t;
    struct trace_synthetic s;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 4, s.experts = 8, s.top_k = 2, s.tokens = 2;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sim_gpu_options o = {.slots = {0}};
        struct sim_gpu gpu[SIM_GPUS_MAX];
        int rc = sim_gpu_option(&o, SIM_GPU_SLOTS, cases[i].slots, &error);
        if (rc == 0 && cases[i].layers)
            rc = sim_gpu_option(&o, SIM_GPU_LAYERS, cases[i].layers, &error);
        if (rc == 0)
            rc = sim_gpu_options_check(&o, &error);
        if (rc == 0)
            rc = sim_gpu_of(&o, &t.header, gpu, &error);
        ck_assert_msg((rc == 0) == cases[i].good, "%s, %s", cases[i].slots, cases[i].layers);
        if (i == 2)
            ck_assert(gpu[0].end_layer == 1 && gpu[0].next == &gpu[1] && gpu[1].places == 4 &&
                      gpu[1].end_layer == 4 && !gpu[1].next);
    }
    trace_free(&t);
}
END_TEST

/* Ranges that a cache rejects. */
START_TEST(ranges_that_cannot_be)
{
    struct error error;
    struct sim_gpu g = four, next = four;
    g.end_layer = 2;
    ck_assert_ptr_null(one_layer(g, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    g.end_layer = 1;
    g.next = &next;
    ck_assert_ptr_null(one_layer(g, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

static struct trace synthetic(void)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 4, s.experts = 8, s.top_k = 2, s.tokens = 60, s.prompt = 10, s.sequences = 2;
    s.expert_bytes = EXPERT_BYTES, s.precision_mask = 1;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    return t;
}

/* Hits before anything was used are about those of a replay of the synthetic routing, with any
 * number of slots. */
START_TEST(expected_hits)
{
    struct routing r = {.layers = 4,
                        .model_layers = 4,
                        .experts = 32,
                        .top_k = 4,
                        .expert_bytes = EXPERT_BYTES,
                        .chunk = 1,
                        .tokens = 128};
    struct sim_config c = config_of("lod", "preload=all", 128);
    struct sim_result result;
    struct trace t;
    struct error error;
    uint64_t measure;
    double hits[33];
    ck_assert_int_eq(sim_hits(4, 32, 4, hits, &error), 0);
    ck_assert_int_eq(routing_trace(&r, &t, &measure, &error), 0);
    ck_assert(hits[0] == 0 && hits[32] == 1);
    c.gpu = four;
    for (uint32_t s = 1; s <= 32; s++) {
        ck_assert_double_ge(hits[s], hits[s - 1]);
        if (s % 4 != 0)
            continue;
        c.gpu.places = 4 * s;
        ck_assert_int_eq(sim_run(&t, 0, measure, &c, false, &result, &error), 0);
        const struct sim_stats *f = &result.phase[SIM_DECODE];
        double uses = (double)(f->gpu_hits + f->gpu_uploads);
        ck_assert_double_eq_tol((double)f->gpu_hits / uses, hits[s], 0.03);
    }
    ck_assert_double_gt(hits[8], 8 / 32.0); /* more than of a uniform routing */
    trace_free(&t);
}
END_TEST

/* The device's predictions are recorded, or the predictor's are taken; a trace without any is
 * rejected. */
START_TEST(needs_predictions)
{
    struct trace t = synthetic();
    struct sim_config c = config_of("lod", "preload=all", 32);
    struct sim_result r[2];
    struct error error;
    c.gpu = four;
    c.gpu.places = 16;
    c.gpu.policy = GPU_PREFETCH;
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r[0], &error), 0);
    for (uint64_t i = 0; i < t.count; i++)
        if (t.records[i].kind == TRACE_PREDICTED)
            t.records[i].kind = TRACE_GPU_PREDICTED;
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r[1], &error), 0);
    ck_assert_uint_gt(r[0].phase[SIM_DECODE].gpu_prefetches, 0);
    ck_assert_uint_eq(r[0].phase[SIM_DECODE].gpu_prefetches, r[1].phase[SIM_DECODE].gpu_prefetches);
    for (uint64_t i = 0; i < t.count; i++)
        if (t.records[i].kind == TRACE_GPU_PREDICTED)
            t.records[i].kind = TRACE_CHOICE;
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r[1], &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, "no predictions") != NULL, "%s", error.text);
    trace_free(&t);
}
END_TEST

/* Hits of the arena are the same; each use is counted once; with places for all each expert is
 * copied once. */
START_TEST(replay)
{
    struct trace t = synthetic();
    struct sim_config c = config_of("lod", NULL, 24);
    struct sim_result without, with;
    struct error error;
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &without, &error), 0);
    for (uint32_t places = 2; places <= 32; places *= 2)
        for (int policy = 0; policy < GPU_POLICY__COUNT; policy++) {
            uint64_t uses = 0, hits[2] = {0}, accesses = 0, copied = 0, evicted = 0, ahead = 0;
            c.gpu = four;
            c.gpu.places = places;
            c.gpu.policy = (enum gpu_policy)policy;
            ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &with, &error), 0);
            for (int p = 0; p < SIM_PHASES; p++) {
                const struct sim_stats *f = &with.phase[p];
                hits[0] += without.phase[p].hits;
                hits[1] += f->hits;
                accesses += f->accesses;
                uses += f->gpu_hits + f->gpu_uploads + f->gpu_on_cpu;
                copied += f->gpu_uploads + f->gpu_background + f->gpu_prefetches;
                ahead += f->gpu_prefetches;
                evicted += f->gpu_evictions;
                ck_assert_uint_le(f->gpu_background, f->gpu_on_cpu);
                ck_assert_uint_eq(f->gpu_upload_bytes,
                                  (f->gpu_uploads + f->gpu_background + f->gpu_prefetches) *
                                      EXPERT_BYTES);
            }
            ck_assert_uint_eq(hits[0], hits[1]);
            ck_assert_uint_eq(uses, accesses);
            ck_assert(evicted > 0 ? copied - evicted == places : copied <= places);
            ck_assert(places < 32 || evicted == 0);
            ck_assert(policy == GPU_PREFETCH ? places != 16 || ahead > 0 : ahead == 0);
        }
    trace_free(&t);
}
END_TEST

START_TEST(places_of_memory)
{
    struct trace t = synthetic();
    ck_assert_uint_eq(sim_gpu_places(&t.header, 5 * EXPERT_BYTES + 1), 5);
    ck_assert_uint_eq(sim_gpu_places(&t.header, UINT64_MAX), 32);
    trace_free(&t);
}
END_TEST

TCase *sim_gpu_case(void)
{
    TCase *c = tcase_create("gpu");
    tcase_add_test(c, copies_and_hits);
    tcase_add_test(c, cpu_computes);
    tcase_add_test(c, chunks);
    tcase_add_test(c, rows_of_a_batch);
    tcase_add_test(c, gpus_that_cannot_be);
    tcase_add_test(c, copies_ahead);
    tcase_add_test(c, parts_of_the_layers);
    tcase_add_test(c, options_of_parts);
    tcase_add_test(c, ranges_that_cannot_be);
    tcase_add_test(c, expected_hits);
    tcase_add_test(c, needs_predictions);
    tcase_add_test(c, replay);
    tcase_add_test(c, places_of_memory);
    return c;
}
