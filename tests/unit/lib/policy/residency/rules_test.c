/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of residency one by one: edge cases, shares, what a step and a precision keep, and
 * configurations that are rejected. */
#include <check.h>
#include <math.h>

#include "tests/unit/lib/policy/residency/residency_test.h"

static bool anyone(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return true;
}

static bool no_one(void *arg, uint32_t slot)
{
    ++*(unsigned *)arg;
    (void)slot;
    return false;
}

static void fill(struct residency *r, uint32_t from, uint32_t to)
{
    for (uint32_t s = from; s < to; s++)
        residency_insert(r, s, false);
}

START_TEST(edge_cases)
{
    struct residency_config c = config_of((enum eviction)_i, ALLOCATE_SHARED, 2);
    struct residency *r = residency_create(&c);
    unsigned queried = 0;
    ck_assert_uint_eq(residency_slots(r), SLOTS);
    ck_assert_uint_eq(residency_victim(r, 3, anyone, NULL), POLICY_NONE);
    fill(r, 0, 8);
    ck_assert_uint_eq(residency_victim(r, 20, no_one, &queried), POLICY_NONE);
    ck_assert_uint_eq(queried, 8); /* each once: not quadratic */
    ck_assert_uint_lt(residency_victim(r, POLICY_NONE, anyone, NULL), 8);
    for (uint32_t s = 0; s < 8; s++)
        residency_remove(r, s, s % 2 == 0);
    ck_assert_uint_eq(residency_resident_count(r), 0);
    ck_assert_uint_eq(residency_resident_bytes(r), 0);
    residency_destroy(r);
    residency_destroy(NULL);
}
END_TEST

/* Entries that the running step has used are evicted last, even if they are first in the order. */
START_TEST(running_step_is_spared)
{
    struct residency_config c = config_of((enum eviction)_i, ALLOCATE_SHARED, 1);
    struct residency *r = residency_create(&c);
    residency_capacity(r, 64 * 8);
    residency_step(r, &(struct residency_step){1, 0, 0});
    fill(r, 0, 8);
    for (uint32_t s = 1; s < 8; s++)
        for (int n = 0; n < 3; n++)
            residency_accessed(r, s, &(struct residency_access){.tokens = 1, .high = true});
    residency_step(r, &(struct residency_step){1, 1, 0});
    residency_accessed(r, 0, &(struct residency_access){.tokens = 1});
    for (uint32_t left = 8; left > 1; left--) {
        uint32_t victim = residency_victim(r, 40, anyone, NULL);
        ck_assert_uint_ne(victim, 0);
        residency_remove(r, victim, true);
    }
    ck_assert_uint_eq(residency_victim(r, 40, anyone, NULL), 0);
    residency_destroy(r);
}
END_TEST

START_TEST(random_is_uniform_and_repeats)
{
    struct residency_config c = config_of(EVICTION_RANDOM, ALLOCATE_SHARED, 1);
    uint32_t drawn[EXPERTS] = {0};
    uint32_t first[64], n = 0;
    for (int run = 0; run < 2; run++) {
        struct residency *r = residency_create(&c);
        fill(r, 0, EXPERTS);
        for (int i = 0; i < 9000; i++) {
            uint32_t victim = residency_victim(r, POLICY_NONE, anyone, NULL);
            if (run == 0 && i < 64)
                first[n++] = victim;
            if (run == 1 && i < 64)
                ck_assert_uint_eq(victim, first[i]);
            drawn[victim]++;
        }
        residency_destroy(r);
    }
    for (uint32_t s = 0; s < EXPERTS; s++) /* 2000 expected, sigma 42 */
        ck_assert_uint_gt(drawn[s], 1800);
}
END_TEST

START_TEST(shares_follow_the_headers_formula)
{
    struct residency_config c = config_of(EVICTION_ARC, ALLOCATE_FATE, 1);
    struct residency *r = residency_create(&c);
    residency_capacity(r,
                       64 * 30); /* 3 for the running layer, 2 * 9 shallow, 9 for 3 deep layers */
    static const uint64_t plenty[LAYERS] = {9, 9, 3, 3, 3};
    for (uint32_t l = 0; l < LAYERS; l++)
        ck_assert_uint_eq(residency_group_share(r, l), 64 * plenty[l]);
    residency_capacity(r, 64 * 14); /* the second shallow layer gets the rest */
    static const uint64_t scarce[LAYERS] = {9, 2, 0, 0, 0};
    for (uint32_t l = 0; l < LAYERS; l++)
        ck_assert_uint_eq(residency_group_share(r, l), 64 * scarce[l]);
    residency_capacity(r, 64 * 2); /* less than one layer needs */
    for (uint32_t l = 0; l < LAYERS; l++)
        ck_assert_uint_eq(residency_group_share(r, l), 0);
    residency_destroy(r);

    c = config_of(EVICTION_LRU, ALLOCATE_PRECISIONS, 2);
    r = residency_create(&c);
    residency_capacity(r, 1000);
    ck_assert_uint_eq(residency_groups(r), 2);
    ck_assert_uint_eq(residency_group_share(r, 0), 700);
    ck_assert_uint_eq(residency_group_share(r, 1), 300);
    residency_destroy(r);

    static const float shares[LAYERS] = {1, 2, 3, 0, 4};
    c = config_of(EVICTION_LRU, ALLOCATE_PLANNED, 1);
    c.shares = shares;
    r = residency_create(&c);
    residency_capacity(r, 1000);
    for (uint32_t l = 0; l < LAYERS; l++)
        ck_assert_uint_eq(residency_group_share(r, l), (uint64_t)(100 * shares[l]));
    residency_destroy(r);
}
END_TEST

/* HOBBIT's two caches: once full, high entries evict high ones, low entries low ones. */
/* A layer without experts gets nothing, wherever it is, and the others what it would get. */
START_TEST(layers_without_experts_have_no_share)
{
    static const enum allocation rules[] = {ALLOCATE_FATE, ALLOCATE_EVEN, ALLOCATE_PLANNED};
    static const uint64_t want[][LAYERS] = {
        {9, 0, 9, 0, 9}, {0, 10, 0, 10, 10}, {10, 0, 10, 0, 10}};
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct residency_config c = config_of(EVICTION_LRU, rules[i], 1);
        expert_layers_leave_out(&c.expert_layers, i == 1 ? 0 : 1);
        expert_layers_leave_out(&c.expert_layers, i == 1 ? 2 : 3);
        c.boundary = 3;
        struct residency *r = residency_create(&c);
        residency_capacity(r, 64 * 30);
        for (uint32_t l = 0; l < LAYERS; l++)
            ck_assert_uint_eq(residency_group_share(r, l), 64 * want[i][l]);
        residency_destroy(r);
    }
}
END_TEST

START_TEST(precisions_keep_their_shares)
{
    struct residency_config c = config_of(EVICTION_LRU, ALLOCATE_PRECISIONS, 2);
    struct residency *r = residency_create(&c);
    uint64_t pins = 0, capacity = 64 * 20;
    residency_capacity(r, capacity);
    seed = 4;
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t expert = below(ALL), slot = expert + (below(2) ? ALL : 0);
        uint32_t other = slot < ALL ? slot + ALL : slot - ALL;
        if (residency_is_resident(r, slot) || residency_is_resident(r, other))
            continue;
        while (residency_resident_bytes(r) + residency_slot_bytes(r, slot) > capacity)
            residency_remove(r, residency_victim(r, slot, anyone, &pins), true);
        residency_insert(r, slot, false);
        if (i > 1000) {
            ck_assert_uint_le(residency_group_bytes(r, 0), (uint64_t)(0.7 * 64 * 20) + 64);
            ck_assert_uint_le(residency_group_bytes(r, 1), (uint64_t)(0.3 * 64 * 20) + 64);
        }
    }
    residency_destroy(r);
}
END_TEST

START_TEST(transient_keeps_one_layer)
{
    struct residency_config c = config_of(EVICTION_LRU, ALLOCATE_TRANSIENT, 1);
    struct residency *r = residency_create(&c);
    residency_step(r, &(struct residency_step){1, 0, 0});
    fill(r, 0, 3);
    ck_assert_uint_eq(residency_expired(r, anyone, NULL), POLICY_NONE);
    residency_insert(r, EXPERTS + 2, true); /* predicted for the next layer */
    ck_assert_uint_eq(residency_expired(r, anyone, NULL), POLICY_NONE);
    residency_step(r, &(struct residency_step){1, 0, 1});
    for (uint32_t n = 0; n < 3; n++) {
        uint32_t slot = residency_expired(r, anyone, NULL);
        ck_assert_uint_lt(slot, 3);
        residency_remove(r, slot, true);
    }
    ck_assert_uint_eq(residency_expired(r, anyone, NULL), POLICY_NONE);
    residency_step(r, &(struct residency_step){1, 0, 2}); /* the predicted expert was not used */
    ck_assert_uint_eq(residency_expired(r, anyone, NULL), EXPERTS + 2);
    residency_destroy(r);

    c.allocation = ALLOCATE_SHARED;
    r = residency_create(&c);
    residency_step(r, &(struct residency_step){1, 0, 0});
    fill(r, 0, 3);
    residency_step(r, &(struct residency_step){1, 0, 1});
    ck_assert_uint_eq(residency_expired(r, anyone, NULL), POLICY_NONE);
    residency_destroy(r);
}
END_TEST

static double by_number(void *arg, uint32_t slot)
{
    return ((const double *)arg)[slot];
}

START_TEST(score_is_the_callers)
{
    double score[ALL];
    struct residency_config c = config_of(EVICTION_SCORE, ALLOCATE_SHARED, 1);
    ck_assert_ptr_null(residency_create(&c));
    c.score = by_number;
    c.score_arg = score;
    struct residency *r = residency_create(&c);
    for (uint32_t s = 0; s < ALL; s++)
        score[s] = s == 17 ? INFINITY : (double)(s * 7 % 11);
    fill(r, 0, ALL);
    ck_assert_uint_eq(residency_victim(r, POLICY_NONE, anyone, NULL), 17);
    residency_destroy(r);
}
END_TEST

START_TEST(configs_that_make_no_sense)
{
    struct residency_config good = config_of(EVICTION_LRU, ALLOCATE_SHARED, 1), c = good;
    c.layers = 0;
    ck_assert_ptr_null(residency_create(&c));
    c = good, c.precisions = RESIDENCY_PRECISIONS_MAX + 1;
    ck_assert_ptr_null(residency_create(&c));
    c = good, c.precision_bytes[0] = 0;
    ck_assert_ptr_null(residency_create(&c));
    c = good, c.high_precision = 1;
    ck_assert_ptr_null(residency_create(&c));
}
END_TEST

void add_rules(TCase *c)
{
    tcase_add_loop_test(c, edge_cases, 0, EVICTION_SCORE);
    tcase_add_loop_test(c, running_step_is_spared, 0, EVICTION_SCORE);
    tcase_add_test(c, random_is_uniform_and_repeats);
    tcase_add_test(c, shares_follow_the_headers_formula);
    tcase_add_test(c, layers_without_experts_have_no_share);
    tcase_add_test(c, precisions_keep_their_shares);
    tcase_add_test(c, transient_keeps_one_layer);
    tcase_add_test(c, score_is_the_callers);
    tcase_add_test(c, configs_that_make_no_sense);
}
