/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of real models (tests/traces), imported and replayed: the hits are those of an
 * independent replay of the same recordings in Python. */
#include <check.h>
#include <stdio.h>

#include "lib/sim/routing.h"
#include "lib/sim/sim.h"
#include "lib/trace/import/import.h"
#include "tests/harness/sample.h"
#include "tests/unit/lib/trace/import/import_test.h"

static struct trace recorded(const char *name, const struct trace_import *how)
{
    struct trace t;
    struct error error;
    char path[512];
    snprintf(path, sizeof path, SLUICE_RECORDINGS "/%s", name);
    int rv = trace_import_file(path, how, &t, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    return t;
}

/* Percent of the accesses in both phases, after a quarter of the passes. */
static double hits(const struct trace *t, const char *eviction, double share)
{
    struct sim_config c = {.capacity = (uint64_t)((double)sim_all_bytes(&t->header) * share),
                           .storage = {.bytes_per_s = 1e9, .latency_ns = 1e5, .depth = 16}};
    struct sim_result r;
    struct error error;
    char knobs[64];
    uint64_t found = 0, all = 0;
    snprintf(knobs, sizeof knobs, "eviction=%s", eviction ? eviction : "lru");
    int rv = knobs_resolve("lod", NULL, knobs, &c.knobs, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    rv = sim_run(t, 0, sim_split(t, 0.25), &c, !eviction, &r, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    for (int p = 0; p < SIM_PHASES; p++) {
        found += r.phase[p].hits;
        all += r.phase[p].accesses;
    }
    return 100 * (double)found / (double)all;
}

struct expected {
    const char *file;
    struct trace_import how;
    uint32_t layers, experts, top_k, expert_layers;
    uint64_t expert_bytes;
    double lru[2], hobbit[2], belady[2]; /* at 25 and 50 % */
    double learned[2];                   /* not of an independent replay */
};

static const struct expected expected[] = {
    {.file = "qwen.route.csv",
     .layers = 48,
     .experts = 128,
     .top_k = 6,
     .expert_layers = 48,
     .expert_bytes = 2856960,
     .lru = {84.1, 97.3},
     .hobbit = {86.0, 97.5},
     .belady = {93.4, 98.2},
     .learned = {86.2, 97.6}},
    {.file = "gemma.route.csv",
     .layers = 30,
     .experts = 128,
     .top_k = 6,
     .expert_layers = 30,
     .expert_bytes = 3940147,
     .lru = {79.5, 97.0},
     .hobbit = {82.1, 97.1},
     .belady = {91.5, 97.9},
     .learned = {83.0, 97.0}},
    {.file = "gptoss.route.csv",
     .layers = 36,
     .experts = 128,
     .top_k = 2,
     .expert_layers = 36,
     .expert_bytes = 13219200,
     .lru = {81.9, 91.7},
     .hobbit = {83.7, 91.7},
     .belady = {91.7, 91.7},
     .learned = {83.5, 91.7}},
    {.file = "olmoe_299.jsonl",
     .how = {.experts = 64, .expert_bytes = 3538944},
     .layers = 16,
     .experts = 64,
     .top_k = 8,
     .expert_layers = 16,
     .expert_bytes = 3538944,
     .lru = {58.2, 80.6},
     .hobbit = {56.3, 81.7},
     .belady = {78.2, 93.0},
     .learned = {61.9, 83.4}},
    {.file = "kimi_300.jsonl",
     .how = {.experts = 256, .expert_bytes = 3981312, .dense = 1},
     .layers = 27,
     .experts = 256,
     .top_k = 8,
     .expert_layers = 26,
     .expert_bytes = 3981312,
     .lru = {73.5, 89.8},
     .hobbit = {75.2, 89.9},
     .belady = {86.9, 95.2},
     .learned = {75.4, 90.9}},
};

START_TEST(hits_of_an_independent_replay)
{
    const struct expected *e = &expected[_i];
    struct trace t = recorded(e->file, &e->how);
    ck_assert_uint_eq(t.header.layers, e->layers);
    ck_assert_uint_eq(t.header.experts, e->experts);
    ck_assert_uint_eq(t.header.top_k, e->top_k);
    ck_assert_uint_eq(trace_expert_layers(&t.header), e->expert_layers);
    ck_assert_uint_eq(t.header.precision_bytes[PRECISION_NATIVE], e->expert_bytes);
    unsigned met = (unsigned)_i;
    for (int at = 0; at < 2; at++) {
        if (!test_sample(EVERY_recorded_shares, &met))
            continue;
        double share = at == 0 ? 0.25 : 0.5;
        ck_assert_double_eq_tol(hits(&t, "lru", share), e->lru[at], 0.06);
        ck_assert_double_eq_tol(hits(&t, "hobbit", share), e->hobbit[at], 0.06);
        ck_assert_double_eq_tol(hits(&t, NULL, share), e->belady[at], 0.06);
    }
    trace_free(&t);
}
END_TEST

/* Without logits it learns from counts, and hits more often than decayed-frequency. */
START_TEST(learned_without_logits)
{
    const struct expected *e = &expected[_i];
    struct trace t = recorded(e->file, &e->how);
    unsigned met = (unsigned)_i;
    for (int at = 0; at < 2; at++) {
        if (!test_sample(EVERY_recorded_shares, &met))
            continue;
        double share = at == 0 ? 0.25 : 0.5, found = hits(&t, "learned", share);
        ck_assert_double_eq_tol(found, e->learned[at], 0.1);
        ck_assert_double_gt(found, hits(&t, "decayed-frequency", share) - 0.05);
    }
    trace_free(&t);
}
END_TEST

/* Synthetic routing of the same shape and length: the first of the two sequences. */
static struct trace synthetic(const struct expected *e, const struct trace *recorded)
{
    struct routing r = {.layers = e->expert_layers,
                        .model_layers = e->expert_layers,
                        .experts = e->experts,
                        .top_k = e->top_k,
                        .expert_bytes = e->expert_bytes,
                        .chunk = 1};
    for (uint64_t i = 0; i < recorded->count; i++)
        if (recorded->records[i].kind == TRACE_TOKEN_END)
            *(recorded->records[i].prefill ? &r.prompt : &r.tokens) += recorded->records[i].tokens;
    r.chunk = r.prompt > 0 ? r.prompt : 1;
    struct trace t;
    struct error error;
    uint64_t measure;
    int rv = routing_trace(&r, &t, &measure, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    t.count = measure;
    return t;
}

/* LRU misses at least 1/1.25 and at most 1.25 times as often as in the recording. */
START_TEST(synthetic_routing_misses_as_recorded)
{
    const struct expected *e = &expected[_i];
    struct trace real = recorded(e->file, &e->how), made = synthetic(e, &real);
    unsigned met = (unsigned)_i;
    for (int at = 0; at < 2; at++) {
        if (!test_sample(EVERY_recorded_shares, &met))
            continue;
        double share = at == 0 ? 0.25 : 0.5;
        double ratio = (100 - hits(&made, "lru", share)) / (100 - e->lru[at]);
        ck_assert_msg(ratio > 1 / 1.25 && ratio < 1.25, "%s at %g: %.3f times the misses", e->file,
                      share, ratio);
    }
    trace_free(&real);
    trace_free(&made);
}
END_TEST

/* Of a prompt, one chunk or decoded tokens; without it nothing precedes the first decoded token. */
START_TEST(prompts)
{
    struct trace_import how = {.prompt = TRACE_IMPORT_CHUNK};
    struct trace t = recorded("gptoss.route.csv", &how);
    uint64_t ends[3] = {0}, prefilled[3] = {0};
    for (int prompt = 0; prompt < 3; prompt++) {
        trace_free(&t);
        how.prompt = (enum trace_import_prompt)prompt;
        t = recorded("gptoss.route.csv", &how);
        for (uint64_t i = 0; i < t.count; i++) {
            ends[prompt] += t.records[i].kind == TRACE_TOKEN_END;
            prefilled[prompt] += t.records[i].kind == TRACE_TOKEN_END && t.records[i].prefill
                                     ? t.records[i].tokens
                                     : 0;
        }
    }
    trace_free(&t);
    ck_assert_uint_eq(ends[TRACE_IMPORT_CHUNK], 65);
    ck_assert_uint_eq(prefilled[TRACE_IMPORT_CHUNK], 85);
    ck_assert_uint_eq(ends[TRACE_IMPORT_TOKENS], 149);
    ck_assert_uint_eq(ends[TRACE_IMPORT_DROP], 64);
    ck_assert_uint_eq(prefilled[TRACE_IMPORT_TOKENS] + prefilled[TRACE_IMPORT_DROP], 0);
}
END_TEST

TCase *recorded_case(void)
{
    TCase *t = tcase_create("recorded");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, hits_of_an_independent_replay, 0,
                        (int)(sizeof expected / sizeof expected[0]));
    tcase_add_loop_test(t, learned_without_logits, 0, (int)(sizeof expected / sizeof expected[0]));
    tcase_add_loop_test(t, synthetic_routing_misses_as_recorded, 0,
                        (int)(sizeof expected / sizeof expected[0]));
    tcase_add_test(t, prompts);
    return t;
}
