/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cache, access by access: times by arithmetic, what predictions read, HOBBIT's
 * precisions by hand. */
#include "lib/base/bytes.h"
#include "lib/tensor/precision.h"
#include "tests/unit/lib/sim/sim_test.h"

static double token(struct sim_cache *c, uint32_t position, const uint32_t *experts, uint32_t count)
{
    double stall;
    sim_cache_layer(c, &(struct sim_step){1, position, 0, 1, false}, 1);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_access_result result;
        sim_cache_access(c, &(struct sim_access){.expert = experts[i], .tokens = 1}, &result);
    }
    stall = sim_cache_compute(c);
    sim_cache_token(c);
    return stall;
}

static struct sim_cache *one_layer(const char *preset, uint32_t depth, uint64_t entries)
{
    struct error error;
    struct sim_config c = config_of(preset, NULL, entries);
    c.layers = 1, c.experts = 8, c.top_k = 4, c.precision_mask = 1,
    c.precision_bytes[0] = EXPERT_BYTES;
    c.storage.depth = depth;
    struct sim_cache *cache = sim_cache_create(&c, &error);
    ck_assert_msg(cache != NULL, "%s", error.text);
    return cache;
}

START_TEST(times_by_arithmetic)
{
    static const uint32_t experts[] = {1, 2, 3, 4};
    /* Depth 16: latencies overlap, transfers are serialized; each expert but the last is computed
     * during the next transfer. */
    struct sim_cache *c = one_layer("lod", 16, 8);
    double read = 1e6, latency = 1e5, expert = 1e5, layer = 4e5;
    ck_assert_double_eq_tol(token(c, 0, experts, 4), latency + 4 * read - 3 * expert, 1);
    ck_assert_double_eq_tol(sim_cache_now(c), layer + latency + 4 * read + expert, 1);
    ck_assert_double_eq_tol(token(c, 1, experts, 4), 0, 1e-9); /* all resident */
    ck_assert_double_eq_tol(sim_cache_now(c), 2 * layer + latency + 4 * read + 5 * expert, 1);
    sim_cache_destroy(c);
    /* Depth 1: every read, with its latency, waits for the previous one. */
    c = one_layer("lod", 1, 8);
    ck_assert_double_eq_tol(token(c, 0, experts, 4), 4 * (latency + read) - 3 * expert, 1);
    /* The one hit is computed while the others are read. */
    static const uint32_t mixed[] = {4, 5, 6, 7};
    ck_assert_double_eq_tol(token(c, 1, mixed, 4), 3 * (latency + read) - 3 * expert, 1);
    sim_cache_destroy(c);
}
END_TEST

static struct sim_cache *beside_reads(double slowdown, double busy, double expert_ns)
{
    struct error error;
    struct sim_config c = config_of("lod", NULL, 8);
    c.layers = 1, c.experts = 8, c.top_k = 4, c.precision_mask = 1,
    c.precision_bytes[0] = EXPERT_BYTES;
    c.storage.slowdown = slowdown;
    c.storage.busy_bytes_per_s = busy;
    c.compute.expert_ns = expert_ns;
    struct sim_cache *cache = sim_cache_create(&c, &error);
    ck_assert_msg(cache != NULL, "%s", error.text);
    return cache;
}

/* Computing takes longer while a read flows, which takes longer then as well. */
START_TEST(computing_beside_reads)
{
    static const uint32_t experts[] = {1, 2, 3, 4};
    double read = 1e6, latency = 1e5, layer = 4e5;
    /* Twice as long, at half the rate: 0.1 ms of the next read in 0.2 ms of an expert. */
    struct sim_cache *c = beside_reads(2, 0.5e9, 1e5);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_double_eq_tol(token(c, 0, experts, 4), latency + read + 3 * 0.9 * read, 1);
    ck_assert_double_eq_tol(f->compute_ns, layer + 3 * 2e5 + 1e5, 1);
    ck_assert_double_eq_tol(sim_cache_now(c), f->compute_ns + f->stall_ns, 1);
    ck_assert_double_eq_tol(token(c, 1, experts, 4), 0, 1e-9); /* nothing is read */
    ck_assert_double_eq_tol(f->compute_ns, 2 * layer + 3 * 2e5 + 5 * 1e5, 1);
    sim_cache_destroy(c);
    /* All reads end during the first expert: it has 1.5 ms of its 2 in these 3 ms. */
    c = beside_reads(2, 0, 2e6);
    f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_double_eq_tol(token(c, 0, experts, 4), latency + read, 1);
    ck_assert_double_eq_tol(f->compute_ns, layer + 3.5e6 + 3 * 2e6, 1);
    sim_cache_destroy(c);
}
END_TEST

/* Experts of different sizes: bytes, time to read and to compute, and what fits are those of
 * each. */
START_TEST(sizes_of_each_expert)
{
    static const uint64_t bytes[] = {500000,  500000,  500000,  500000,
                                     1500000, 1500000, 1500000, 1500000};
    static const uint32_t small[] = {0, 1, 2, 3}, mixed[] = {0, 1, 2, 4}, more[] = {4, 5, 6, 7};
    struct error error;
    struct sim_config k = config_of("lod", NULL, 6);
    k.layers = 1, k.experts = 8, k.top_k = 4, k.precision_mask = 1;
    k.precision_bytes[0] = EXPERT_BYTES, k.slot_bytes = bytes;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    /* 0.5 ms to read, 0.05 to compute each */
    ck_assert_double_eq_tol(token(c, 0, small, 4), 1e5 + 4 * 5e5 - 3 * 5e4, 1);
    ck_assert_uint_eq(f->demand_bytes, 4 * 500000);
    ck_assert_double_eq_tol(f->compute_ns, 4e5 + 4 * 5e4, 1);
    /* Expert 4 takes 1.5 ms to read, while three are computed. */
    ck_assert_double_eq_tol(token(c, 1, mixed, 4), 1e5 + 15e5 - 3 * 5e4, 1);
    ck_assert_double_eq_tol(f->compute_ns, 2 * (4e5 + 4 * 5e4) + 1e5, 1);
    ck_assert_uint_eq(residency_resident_bytes(sim_cache_residency(c)), 3500000);
    /* Four large ones fill the capacity: all small ones are evicted. */
    (void)token(c, 2, more, 4);
    ck_assert_uint_eq(residency_resident_bytes(sim_cache_residency(c)), 6000000);
    ck_assert_uint_eq(residency_resident_count(sim_cache_residency(c)), 4);
    ck_assert_uint_eq(f->demand_bytes, 8000000);
    sim_cache_destroy(c);
    /* The largest ones of a token must fit. */
    k.capacity = 5999999;
    ck_assert_ptr_null(sim_cache_create(&k, &error));
    ck_assert_int_eq(error.code, ERR_BUDGET_TOO_SMALL);
}
END_TEST

/* A chunk with more experts than capacity is computed completely, in waves. */
START_TEST(chunks_larger_than_capacity)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct sim_cache *c = one_layer("lod", 16, 4);
    (void)token(c, 0, all, 8);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->misses, 8);
    ck_assert_uint_eq(f->demand_bytes, 8 * EXPERT_BYTES);
    ck_assert_uint_eq(residency_resident_count(sim_cache_residency(c)), 4);
    sim_cache_destroy(c);
}
END_TEST

/* A demand does not wait for the prefetch in progress. */
START_TEST(demands_overtake)
{
    struct error error;
    struct sim_config k = config_of("default", "prefetch=all,preload=none", 30);
    k.layers = 2, k.experts = 8, k.top_k = 1, k.precision_mask = 1,
    k.precision_bytes[0] = EXPERT_BYTES;
    k.storage.bytes_per_s = 1e8; /* 10 ms each */
    struct sim_cache *c = sim_cache_create(&k, &error);
    struct prediction predictions[1] = {{5, 1, 0}};
    struct sim_access_result result;
    (void)token(c, 0, (const uint32_t[]){1}, 1);
    sim_cache_layer(c, &(struct sim_step){1, 1, 0, 1, false}, 1);
    sim_cache_access(c, &(struct sim_access){.expert = 1, .tokens = 1}, &result);
    ck_assert_int_eq(result.outcome, SIM_HIT);
    ck_assert(!sim_cache_hint(c, 0, 1, predictions, 1));
    (void)sim_cache_compute(c);
    sim_cache_layer(c, &(struct sim_step){1, 1, 1, 1, false}, 1);
    sim_cache_access(c, &(struct sim_access){.expert = 2, .tokens = 1},
                     &result); /* not the predicted one */
    ck_assert_int_eq(result.outcome, SIM_MISS);
    ck_assert_double_eq_tol(sim_cache_compute(c), 1e7 + 1e5, 1);
    sim_cache_token(c);
    const struct sim_stats *f = sim_cache_stats(c, SIM_DECODE);
    ck_assert_uint_eq(f->prefetches, 1);
    ck_assert_uint_eq(f->prefetches_unused, 1); /* its layer has passed */
    ck_assert_uint_gt(f->unused_bytes, 0);
    ck_assert_uint_lt(f->unused_bytes, EXPERT_BYTES);
    sim_cache_destroy(c);
}
END_TEST

static struct sim_cache *two_precisions(const char *preset, const char *knobs, uint32_t layers)
{
    struct error error;
    struct sim_config k = config_of(preset, knobs, 32);
    k.layers = layers, k.experts = 8, k.top_k = 2;
    k.precision_mask = 1u << PRECISION_NATIVE | 1u << PRECISION_INT4;
    k.precision_bytes[PRECISION_NATIVE] = EXPERT_BYTES;
    k.precision_bytes[PRECISION_INT4] = EXPERT_BYTES / 4;
    k.storage.bytes_per_s = 1e8; /* 10 ms each */
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    return c;
}

/* As in the engine: a newer list for the same layer keeps the reads of the older one. */
START_TEST(newer_lists_keep_reads)
{
    struct sim_cache *c = two_precisions("default", "prefetch=all,preload=none,lookahead=2", 3);
    struct prediction older = {5, 1, 0}, newer = {6, 1, 0};
    struct sim_access_result result;
    sim_cache_layer(c, &(struct sim_step){1, 0, 0, 1, false}, 1);
    (void)sim_cache_hint(c, 0, 2, &older, 1);
    (void)sim_cache_compute(c);
    sim_cache_layer(c, &(struct sim_step){1, 0, 1, 1, false}, 1);
    (void)sim_cache_hint(c, 0, 2, &newer, 1);
    (void)sim_cache_compute(c);
    sim_cache_layer(c, &(struct sim_step){1, 0, 2, 1, false}, 1);
    for (uint32_t e = 5; e < 7; e++) {
        sim_cache_access(c, &(struct sim_access){.expert = e, .tokens = 1}, &result);
        ck_assert_int_eq(result.outcome, SIM_INFLIGHT);
    }
    (void)sim_cache_compute(c);
    sim_cache_token(c);
    sim_cache_destroy(c);
}
END_TEST

/* Lists for a prompt are not cut to top-k, and the least popular quarter is prefetched at low
 * precision. */
/* Experts that a table names for the first layer are read while attention runs there: 1.1 ms of 2;
 * not without prefetch. */
START_TEST(experts_known_before_a_pass)
{
    static const char *const knobs[] = {"prefetch=idle,preload=none", "prefetch=none,preload=none"};
    const struct prediction known = {5, 1, 0};
    struct error error;
    struct sim_access_result result;
    struct sim_config k = config_of("default", knobs[_i], 30);
    k.layers = 2, k.experts = 8, k.top_k = 1, k.precision_mask = 1,
    k.precision_bytes[0] = EXPERT_BYTES, k.compute.layer_ns = 2e6;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    for (uint32_t position = 0; position < 2; position++) {
        struct sim_step step = {1, position, 0, 1, false};
        sim_cache_pass(c, &step, 1);
        sim_cache_known(c, 0, 0, &(struct prediction){known.expert + position, 1, 0}, 1);
        for (step.layer = 0; step.layer < 2; step.layer++) {
            sim_cache_layer(c, &step, 1);
            sim_cache_access(
                c, &(struct sim_access){.expert = known.expert + position, .tokens = 1}, &result);
            ck_assert_int_eq(result.outcome == SIM_HIT, _i == 0 && step.layer == 0);
            (void)sim_cache_compute(c);
        }
        sim_cache_token(c);
    }
    ck_assert_uint_eq(sim_cache_stats(c, SIM_DECODE)->passes, 2);
    ck_assert_uint_eq(sim_cache_stats(c, SIM_DECODE)->tokens, 2);
    ck_assert_uint_eq(sim_cache_stats(c, SIM_DECODE)->prefetch_hits, _i == 0 ? 2 : 0);
    sim_cache_destroy(c);
}
END_TEST

START_TEST(predictions_for_a_prompt)
{
    struct sim_cache *c = two_precisions(
        "fate", "prediction=next-layer,prefetch=all,high=native,low=int4,boundary=1", 2);
    struct prediction list[8];
    struct sim_access_result result;
    for (uint32_t e = 0; e < 8; e++)
        list[e] = (struct prediction){e, (float)(9 - e), 0};
    sim_cache_layer(c, &(struct sim_step){1, 0, 0, 16, true}, 1);
    (void)sim_cache_hint(c, 0, 1, list, 8);
    (void)sim_cache_compute(c);
    sim_cache_layer(c, &(struct sim_step){1, 0, 1, 16, true}, 1);
    for (uint32_t e = 0; e < 8; e++) {
        sim_cache_access(
            c, &(struct sim_access){.expert = e, .tokens = 9 - e, .popularity = (float)e / 8},
            &result);
        ck_assert_int_ne(result.outcome, SIM_MISS);
        ck_assert_int_eq(result.precision, e < 6 ? PRECISION_NATIVE : PRECISION_INT4);
    }
    (void)sim_cache_compute(c);
    sim_cache_token(c);
    ck_assert_uint_eq(sim_cache_stats(c, SIM_PREFILL)->prefetches, 8);
    sim_cache_destroy(c);
}
END_TEST

/* A full cache in which every entry was used by both tokens: a prefetch evicts one if its
 * probability, top_k times its share, is at least 0.2 and above the victim's heat of 0.08. The
 * device reads an expert in the time one layer is computed. */
START_TEST(likely_predictions_take_space)
{
    static const float share[] = {0.09f, 0.11f};
    struct error error;
    struct sim_config k = config_of("default", NULL, 4);
    k.layers = 2, k.experts = 8, k.top_k = 2, k.precision_mask = 1,
    k.precision_bytes[0] = EXPERT_BYTES;
    k.storage.bytes_per_s = 4e9;
    struct sim_cache *c = sim_cache_create(&k, &error);
    ck_assert_msg(c != NULL, "%s", error.text);
    struct prediction prediction = {5, share[_i], 0};
    struct sim_access_result result;
    for (uint32_t position = 0; position < 3; position++)
        for (uint32_t layer = 0; layer < 2; layer++) {
            sim_cache_layer(c, &(struct sim_step){1, position, layer, 1, false}, 1);
            for (uint32_t e = 0; e < 2; e++)
                sim_cache_access(c, &(struct sim_access){.expert = e, .tokens = 1}, &result);
            if (position == 2 && layer == 0)
                (void)sim_cache_hint(c, 0, 1, &prediction, 1);
            (void)sim_cache_compute(c);
            if (layer == 1)
                sim_cache_token(c);
        }
    ck_assert_uint_eq(sim_cache_stats(c, SIM_DECODE)->prefetches, _i);
    sim_cache_destroy(c);
}
END_TEST

/* HOBBIT's decisions by hand: T1 = 0.6, T2 = 0.9; a resident high precision is used at any
 * score. */
START_TEST(hobbit_by_hand)
{
    struct error error;
    struct sim_config k = config_of("hobbit", "prediction=none,prefetch=none", 8);
    struct sim_access_result a;
    k.layers = 1, k.experts = 8, k.top_k = 2,
    k.precision_mask = 1u << PRECISION_NATIVE | 1u << PRECISION_INT4;
    k.precision_bytes[PRECISION_NATIVE] = EXPERT_BYTES,
    k.precision_bytes[PRECISION_INT4] = EXPERT_BYTES / 4;
    struct sim_cache *c = sim_cache_create(&k, &error);
    static const struct {
        uint32_t expert;
        float before;
        enum sim_outcome outcome;
        enum precision precision;
    } accesses[] = {{0, 0, SIM_MISS, PRECISION_NATIVE},
                    {1, 0.7f, SIM_MISS, PRECISION_INT4},
                    {2, 0.95f, SIM_SKIPPED, 0},
                    {0, 0.95f, SIM_HIT, PRECISION_NATIVE},
                    {1, 0.8f, SIM_HIT, PRECISION_INT4},
                    {1, 0.95f, SIM_HIT, PRECISION_INT4},
                    {1, 0.3f, SIM_MISS, PRECISION_NATIVE},
                    {1, 0.7f, SIM_HIT, PRECISION_NATIVE}};
    for (uint32_t i = 0; i < ARRAY_LEN(accesses); i++) {
        sim_cache_layer(c, &(struct sim_step){1, i, 0, 1, false}, 1);
        sim_cache_access(c,
                         &(struct sim_access){.expert = accesses[i].expert,
                                              .tokens = 1,
                                              .weight_before = accesses[i].before},
                         &a);
        (void)sim_cache_compute(c);
        sim_cache_token(c);
        ck_assert_int_eq(a.outcome, accesses[i].outcome);
        if (a.outcome != SIM_SKIPPED)
            ck_assert_int_eq(a.precision, accesses[i].precision);
    }
    ck_assert_double_eq(sim_cache_stats(c, SIM_DECODE)->penalty, 2.25);
    sim_cache_destroy(c);
}
END_TEST

TCase *sim_cache_case(void)
{
    TCase *c = tcase_create("cache");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, times_by_arithmetic);
    tcase_add_test(c, computing_beside_reads);
    tcase_add_test(c, sizes_of_each_expert);
    tcase_add_test(c, chunks_larger_than_capacity);
    tcase_add_test(c, demands_overtake);
    tcase_add_test(c, newer_lists_keep_reads);
    tcase_add_test(c, predictions_for_a_prompt);
    tcase_add_loop_test(c, experts_known_before_a_pass, 0, 2);
    tcase_add_loop_test(c, likely_predictions_take_space, 0, 2);
    tcase_add_test(c, hobbit_by_hand);
    return c;
}
