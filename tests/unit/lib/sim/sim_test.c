/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against simple implementations: LRU hits by a list, the optimum by search, profiles
 * by counting; and invariants of every preset. */
#include "tests/unit/lib/sim/sim_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

static struct trace make(uint32_t layers, uint32_t experts, uint32_t top_k, uint32_t tokens,
                         uint32_t prompt, uint64_t seed)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = layers, s.experts = experts, s.top_k = top_k, s.tokens = tokens, s.prompt = prompt;
    s.sequences = 3, s.seed = seed, s.expert_bytes = EXPERT_BYTES, s.skew = 0.7;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    return t;
}

struct sim_config config_of(const char *preset, const char *knobs, uint64_t entries)
{
    struct sim_config c = {
        .capacity = entries * EXPERT_BYTES,
        .storage = {.bytes_per_s = 1e9, .latency_ns = 1e5, .depth = 16},
        .compute = {.layer_ns = 4e5, .expert_ns = 1e5, .predict_ns = 1e4, .batch = 0.25}};
    struct error error;
    int rv = knobs_resolve(preset, NULL, knobs, &c.knobs, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    return c;
}

static struct sim_result run(const struct trace *t, const struct sim_config *c, bool belady)
{
    struct sim_result r;
    struct error error;
    int rv = sim_run(t, 0, 0, c, belady, &r, &error);
    ck_assert_msg(rv == 0, "%s", error.text);
    return r;
}

static uint64_t hits(const struct sim_result *r)
{
    return r->phase[SIM_DECODE].hits + r->phase[SIM_PREFILL].hits;
}

/* ---- hits ---- */

/* LRU as a list: every access moves to the front; a layer's misses are inserted after its
 * accesses. */
static uint64_t lru_hits(const struct trace *t, uint32_t capacity)
{
    uint32_t list[512], resident = 0, missing[64], misses = 0;
    uint64_t found = 0;
    for (uint64_t i = 0; i <= t->count; i++) {
        const struct trace_record *r = i < t->count ? &t->records[i] : NULL;
        bool same = r && r->kind == TRACE_EXPERT && i > 0 &&
                    t->records[i - 1].kind == TRACE_EXPERT && t->records[i - 1].layer == r->layer &&
                    t->records[i - 1].position == r->position;
        for (uint32_t m = 0; !same && m < misses; m++) {
            if (resident == capacity)
                memmove(list, list + 1, --resident * sizeof *list);
            list[resident++] = missing[m];
        }
        if (!same)
            misses = 0;
        if (!r || r->kind != TRACE_EXPERT)
            continue;
        uint32_t e = r->layer * t->header.experts + r->expert, at = 0;
        while (at < resident && list[at] != e)
            at++;
        if (at == resident) {
            missing[misses++] = e;
            continue;
        }
        found++;
        memmove(list + at, list + at + 1, (resident - at - 1) * sizeof *list);
        list[resident - 1] = e;
    }
    return found;
}

START_TEST(lru_is_a_list)
{
    static const uint32_t capacities[] = {12, 16, 24, 40, 60, 95};
    struct trace t = make(6, 16, 2, 200, 0, 5 + (unsigned)_i);
    struct sim_config c = config_of("lod", NULL, capacities[_i]);
    struct sim_result r = run(&t, &c, false);
    ck_assert_uint_eq(hits(&r), lru_hits(&t, capacities[_i]));
    ck_assert_uint_gt(hits(&r), 0);
    trace_free(&t);
}
END_TEST

/* Between two accesses of an expert lie at least the K experts of each other layer: with S layers
 * and fewer than (S - 1) K + 1 entries, LRU has no hits. */
START_TEST(lru_below_the_cycle)
{
    struct trace t = make(6, 16, 2, 100, 0, 5);
    struct sim_config c = config_of("lod", NULL, 10);
    struct sim_result r = run(&t, &c, false);
    ck_assert_uint_eq(hits(&r), 0);
    trace_free(&t);
}
END_TEST

/* The maximum of hits over all eviction orders, by exhaustive search. top-1 and one layer, so that
 * a step is one access. */
static uint32_t best_hits(const uint32_t *accesses, uint32_t count, uint32_t resident_mask,
                          uint32_t capacity, int32_t *memo)
{
    if (count == 0)
        return 0;
    int32_t *known = &memo[count * 64 + resident_mask];
    if (*known >= 0)
        return (uint32_t)*known;
    uint32_t bit = 1u << accesses[0], best = 0;
    if (resident_mask & bit) {
        best = 1 + best_hits(accesses + 1, count - 1, resident_mask, capacity, memo);
    } else if ((uint32_t)__builtin_popcount(resident_mask) < capacity) {
        best = best_hits(accesses + 1, count - 1, resident_mask | bit, capacity, memo);
    } else {
        for (uint32_t out = 0; out < 6; out++) {
            if (!(resident_mask >> out & 1))
                continue;
            uint32_t n = best_hits(accesses + 1, count - 1, (resident_mask & ~(1u << out)) | bit,
                                   capacity, memo);
            best = n > best ? n : best;
        }
    }
    *known = (int32_t)best;
    return best;
}

START_TEST(belady_is_the_optimum)
{
    static int32_t memo[2000 * 64];
    static uint32_t accesses[2000];
    for (uint32_t capacity = 1; capacity <= 5; capacity++) {
        struct trace t = make(1, 6, 1, 400, 0, 11 * capacity);
        struct sim_config c = config_of("lod", NULL, capacity);
        uint32_t n = 0;
        for (uint64_t i = 0; i < t.count; i++)
            if (t.records[i].kind == TRACE_EXPERT)
                accesses[n++] = t.records[i].expert;
        memset(memo, 0xff, sizeof memo);
        struct sim_result r = run(&t, &c, true);
        ck_assert_uint_eq(hits(&r), best_hits(accesses, n, 0, capacity, memo));
        trace_free(&t);
    }
}
END_TEST

START_TEST(nothing_beats_belady)
{
#define NAME(id, name) name,
    static const char *const names[] = {EVICTION_LIST(NAME)};
    struct trace t = make(5, 16, 3, 150, 16, 2);
    for (uint32_t capacity = 20; capacity < 80; capacity += 15) {
        struct sim_config c = config_of("lod", NULL, capacity);
        struct sim_result best = run(&t, &c, true);
        for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
            struct error error;
            ck_assert_int_eq(knobs_set(&c.knobs, "eviction", names[i], &error), 0);
            struct sim_result r = run(&t, &c, false);
            ck_assert_uint_le(hits(&r), hits(&best));
            ck_assert_uint_gt(hits(&r), 0);
        }
    }
    trace_free(&t);
}
END_TEST

/* ---- every preset ---- */

static void check_stats(const struct sim_result *r, const struct trace *t)
{
    uint64_t passes = 0, accesses = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        passes += t->records[i].kind == TRACE_TOKEN_END;
        accesses += t->records[i].kind == TRACE_EXPERT;
    }
    ck_assert_uint_eq(r->phase[0].passes + r->phase[1].passes, passes);
    ck_assert_uint_eq(r->phase[0].accesses + r->phase[1].accesses, accesses);
    for (int p = 0; p < SIM_PHASES; p++) {
        const struct sim_stats *f = &r->phase[p];
        ck_assert_uint_eq(f->accesses, f->hits + f->hits_inflight + f->misses + f->skipped);
        ck_assert(f->stall_ns >= 0 && isfinite(f->stall_ns));
        ck_assert_uint_le(f->predicted_hits, f->predicted_accesses);
        ck_assert_uint_le(f->prefetch_hits, f->hits);
        ck_assert_uint_ge(f->covered, f->hits);
        ck_assert_uint_ge(f->covered, f->predicted_hits);
        ck_assert_uint_le(f->covered, f->hits + f->predicted_hits);
        ck_assert_uint_le(f->covered, f->accesses);
    }
    ck_assert_uint_le(r->phase[0].prefetches_used + r->phase[1].prefetches_used,
                      r->phase[0].prefetches + r->phase[1].prefetches);
}

START_TEST(presets_account_consistently)
{
    struct trace t = make(6, 16, 2, 120, 24, 8);
    struct path_tables tables;
    void *block;
    struct error error;
    const struct preset *preset = preset_at((uint32_t)_i);
    ck_assert_int_eq(sim_profile(&t, 0, t.count, &tables, &block, &error), 0);
    struct sim_config c = config_of(preset->name, NULL, 30);
    c.plan.tables = tables;
    if (c.knobs.routing != ROUTING_EXACT) { /* the trace has no candidates */
        struct sim_result r;
        ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    } else {
        struct sim_result a = run(&t, &c, false), b = run(&t, &c, false);
        ck_assert_mem_eq(&a, &b, sizeof a); /* same decisions, same times */
        check_stats(&a, &t);
        if (!knobs_lossy(&c.knobs)) {
            ck_assert_uint_eq(a.phase[0].skipped + a.phase[1].skipped, 0);
            ck_assert_uint_eq(a.phase[0].low_precision_accesses + a.phase[1].low_precision_accesses,
                              0);
        }
    }
    free(block);
    trace_free(&t);
}
END_TEST

/* Without prefetches, decisions do not depend on device timing. */
START_TEST(hits_do_not_depend_on_time)
{
    struct trace t = make(6, 16, 2, 200, 20, 3);
    static const char *const presets[] = {"lod", "iq4", "lod-nocache"};
    for (uint32_t i = 0; i < ARRAY_LEN(presets); i++) {
        struct sim_config c = config_of(presets[i], NULL, 30);
        struct sim_result fast = run(&t, &c, false);
        c.storage = (struct sim_storage){.bytes_per_s = 1e7, .latency_ns = 3e6, .depth = 1};
        struct sim_result slow = run(&t, &c, false);
        ck_assert_uint_eq(hits(&fast), hits(&slow));
        ck_assert(slow.ns > 2 * fast.ns);
    }
    trace_free(&t);
}
END_TEST

START_TEST(nocache_hits_nothing)
{
    struct trace t = make(6, 16, 2, 100, 0, 3);
    struct sim_config c = config_of("lod-nocache", NULL, 96);
    struct sim_result r = run(&t, &c, false);
    ck_assert_uint_eq(hits(&r), 0);
    c = config_of("resident", NULL, 96);
    r = run(&t, &c, false);
    ck_assert_uint_eq(hits(&r), r.phase[SIM_DECODE].accesses);
    ck_assert_double_eq(r.phase[SIM_DECODE].stall_ns, 0);
    trace_free(&t);
}
END_TEST

/* With correct predictions, a fast device and enough time to read, layers from 1 on never wait. */
START_TEST(perfect_predictions)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 4, s.experts = 16, s.top_k = 2, s.tokens = 100, s.prompt = 0, s.sequences = 1;
    s.recall = 1, s.locality = 0, s.expert_bytes = EXPERT_BYTES;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    struct sim_config c = config_of("default", "prefetch=demand-first", 12);
    c.storage = (struct sim_storage){.bytes_per_s = 1e11, .latency_ns = 1e3, .depth = 16};
    struct sim_result r = run(&t, &c, false);
    const struct sim_stats *f = &r.phase[SIM_DECODE];
    ck_assert_uint_eq(f->hits_inflight, 0);
    ck_assert_uint_le(f->misses, 2 * 100); /* layer 0 only */
    ck_assert_uint_eq(f->predicted_hits, f->predicted_accesses);
    ck_assert_uint_eq(f->prefetches_used, f->prefetches);
    ck_assert_uint_eq(f->unused_bytes, 0);
    trace_free(&t);
}
END_TEST

/* An access is covered by a prediction without a cache, by the cache without predictions, and
 * counted once where both cover it. */
START_TEST(covered_by_cache_or_prediction)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 4, s.experts = 16, s.top_k = 2, s.tokens = 100, s.prompt = 0, s.sequences = 1;
    s.recall = 1, s.locality = 0, s.expert_bytes = EXPERT_BYTES;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    struct sim_config c = config_of("lod", NULL, 24);
    struct sim_result r = run(&t, &c, false);
    const struct sim_stats *f = &r.phase[SIM_DECODE];
    ck_assert_uint_gt(f->hits, 0);
    ck_assert_uint_eq(f->covered, f->hits);
    c = config_of("lod-nocache", "prediction=next-layer", 24);
    r = run(&t, &c, false);
    ck_assert_uint_eq(f->hits, 0);
    ck_assert_uint_eq(f->covered, f->predicted_hits);
    ck_assert_uint_eq(f->covered, 3 * 2 * 100); /* all layers but the first */
    c = config_of("lod", "prediction=next-layer", 4 * 16);
    r = run(&t, &c, false);
    ck_assert_uint_gt(f->hits + f->predicted_hits, f->accesses);
    ck_assert_uint_le(f->covered, f->accesses);
    ck_assert_uint_ge(f->covered, 3 * 2 * 100);
    trace_free(&t);
}
END_TEST

START_TEST(configs_that_cannot_be)
{
    struct trace t = make(2, 8, 2, 5, 0, 1);
    struct sim_result r;
    struct error error;
    struct sim_config c = config_of("lod", NULL, 1);
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r, &error), -1);
    ck_assert_int_eq(error.code, ERR_BUDGET_TOO_SMALL);
    t.header.precision_mask = 1;
    c = config_of("iq4", NULL, 8);
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r, &error), -1);
    ck_assert_msg(strstr(error.text, "int4") != NULL, "%s", error.text);
    c = config_of("lod", NULL, 8);
    c.storage.depth = 0;
    ck_assert_int_eq(sim_run(&t, 0, 0, &c, false, &r, &error), -1);
    trace_free(&t);
}
END_TEST

/* ---- profiles ---- */

START_TEST(profile_counts)
{
    struct trace t = make(4, 8, 2, 60, 10, 21);
    struct path_tables tables;
    struct error error;
    void *block;
    uint32_t e = 8, chosen[4][2], accesses[4][8] = {{0}}, tokens = 0;
    static uint32_t prev[4][8][8], pair[4][8][8][8];
    memset(prev, 0, sizeof prev);
    memset(pair, 0, sizeof pair);
    for (uint64_t i = 0; i < t.count; i++) {
        const struct trace_record *r = &t.records[i];
        if (r->kind == TRACE_EXPERT)
            accesses[r->layer][r->expert] += r->tokens;
        if (r->kind == TRACE_EXPERT && !r->prefill)
            chosen[r->layer][r->rank] = r->expert;
        tokens += r->kind == TRACE_TOKEN_END ? r->tokens : 0;
        if (r->kind != TRACE_TOKEN_END || r->tokens > 1)
            continue;
        for (uint32_t l = 1; l < 4; l++)
            for (uint32_t n = 0; n < 8; n++) {
                uint32_t a = chosen[l > 1 ? l - 2 : 0][n & 1], b = chosen[l - 1][n >> 1 & 1],
                         c = chosen[l][n >> 2];
                prev[l][b][c] += (n & 1) == 0;
                pair[l][a][b][c] += l > 1;
            }
    }
    ck_assert_int_eq(sim_profile(&t, 0, t.count, &tables, &block, &error), 0);
    for (uint32_t l = 0; l < 4; l++)
        for (uint32_t b = 0; b < e; b++) {
            ck_assert_float_eq_tol(tables.frequency[l * e + b], (float)accesses[l][b] / tokens,
                                   1e-6f);
            for (uint32_t c = 0; c < e; c++)
                ck_assert_uint_eq(tables.prev1[(l * e + b) * e + c], prev[l][b][c]);
            for (uint32_t a = 0; a < e; a++) {
                uint32_t row = (l * e + a) * e + b, found[8] = {0};
                for (uint32_t x = tables.pair_first[row]; x < tables.pair_first[row + 1]; x++)
                    found[tables.pair_cells[x].expert] = tables.pair_cells[x].count;
                for (uint32_t c = 0; c < e; c++)
                    ck_assert_uint_eq(found[c], pair[l][a][b][c]);
            }
        }
    free(block);
    trace_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim");
    TCase *c = tcase_create("sim");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, lru_is_a_list, 0, 6);
    tcase_add_test(c, lru_below_the_cycle);
    tcase_add_test(c, belady_is_the_optimum);
    tcase_add_test(c, nothing_beats_belady);
    tcase_add_loop_test(c, presets_account_consistently, 0, (int)preset_count());
    tcase_add_test(c, hits_do_not_depend_on_time);
    tcase_add_test(c, nocache_hits_nothing);
    tcase_add_test(c, perfect_predictions);
    tcase_add_test(c, covered_by_cache_or_prediction);
    tcase_add_test(c, configs_that_cannot_be);
    tcase_add_test(c, profile_counts);
    suite_add_tcase(s, c);
    suite_add_tcase(s, sim_cache_case());
    suite_add_tcase(s, sim_sequences_case());
    suite_add_tcase(s, sim_logits_case());
    suite_add_tcase(s, sim_reroute_case());
    suite_add_tcase(s, sim_table_case());
    suite_add_tcase(s, sim_together_case());
    suite_add_tcase(s, sim_gpu_case());
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
