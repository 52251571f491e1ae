/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of layers and first sets from a plan: the same on all sides, and all of the capacity. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/planned.h"

#define LAYERS  8u
#define EXPERTS 32u
#define TOP_K   4u

static const struct model_hparams hparams = {
    .layers = LAYERS, .experts = EXPERTS, .experts_used = TOP_K};

static uint32_t sum_of(const uint32_t *v)
{
    uint32_t sum = 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        sum += v[l];
    return sum;
}

static struct plan *make_plan(uint64_t arrays)
{
    static const uint8_t hash[PLAN_HASH_BYTES];
    struct error error;
    struct plan *plan = plan_create(LAYERS, EXPERTS, TOP_K, hash, arrays, 0, &error);
    ck_assert_ptr_nonnull(plan);
    return plan;
}

static void check_widths(const struct plan *plan, const char *preset, const char *settings,
                         const uint8_t *high, const uint8_t *low)
{
    struct error error;
    struct knobs k;
    ck_assert_int_eq(knobs_resolve(preset, NULL, settings, &k, &error), 0);
    struct planned_widths w = planned_widths(plan, &k);
    ck_assert(w.high == high && w.low == low);
}

/* Each rule has its own precisions; mixed-two with cache-aware routing those of both together, if
 * they were planned. */
START_TEST(precisions_of_a_rule)
{
    uint64_t mixed = plan_array_bit(PLAN_ARRAY_mixed_high) | plan_array_bit(PLAN_ARRAY_mixed_low),
             joint = plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low);
    struct plan *plan = make_plan(mixed | joint | plan_array_bit(PLAN_ARRAY_width));
    const char *routing = "routing=resident-first";
    check_widths(plan, "default", routing, NULL, NULL);
    check_widths(plan, "edgemoe", routing, plan_width(plan), NULL);
    check_widths(plan, "mixed-two", NULL, plan_mixed_high(plan), plan_mixed_low(plan));
    check_widths(plan, "mixed-two", routing, plan_joint_high(plan), plan_joint_low(plan));
    check_widths(plan, "mixed-two-resident-first", NULL, plan_joint_high(plan),
                 plan_joint_low(plan));
    free(plan);
    plan = make_plan(mixed);
    check_widths(plan, "mixed-two-resident-first", NULL, plan_mixed_high(plan),
                 plan_mixed_low(plan));
    check_widths(NULL, "mixed-two", NULL, NULL, NULL);
    free(plan);
}
END_TEST

static void check_t1(const struct plan *plan, const char *preset, const char *settings, double t1)
{
    struct error error;
    struct knobs k;
    ck_assert_int_eq(planned_knobs(plan, preset, settings, &k, &error), 0);
    ck_assert_double_eq_tol(k.t1, t1, 1e-9);
}

/* The thresholds are those of the precisions, however the rules came together, unless the user says
 * otherwise. */
START_TEST(thresholds_of_a_rule)
{
    struct error error;
    struct knobs k;
    struct plan *plan =
        make_plan(plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low));
    plan->scalar[PLAN_mixed_t1] = 0.375;
    plan->scalar[PLAN_joint_t1] = 0.25;
    plan->scalar[PLAN_joint_nats] = 0.2;
    check_t1(plan, "mixed-two", NULL, 0.375);
    check_t1(plan, "mixed-two-resident-first", NULL, 0.25);
    check_t1(plan, "mixed-two", "routing=resident-first", 0.25);
    check_t1(plan, "mixed-two", "routing=resident-first,t1=0.5", 0.5);
    check_t1(plan, "default", "precision=mixed-two,routing=resident-first", 0.25);
    check_t1(plan, "mixed-two-resident-first", "routing=exact", 0.375);
    check_t1(plan, "mixed-two-resident-first", "routing=exact,t1=0.5", 0.5);
    check_t1(plan, "default", "precision=mixed-two", 0.375);
    ck_assert_int_eq(planned_knobs(plan, "mixed-two", "routing=resident-first", &k, &error), 0);
    ck_assert_double_eq(k.nats, 0.2);
    ck_assert_int_eq(planned_knobs(plan, "no such preset", NULL, &k, &error), -1);
    check_t1(NULL, "mixed-two", "routing=resident-first", 0.6);
    free(plan);
    plan = make_plan(plan_array_bit(PLAN_ARRAY_mixed_high) | plan_array_bit(PLAN_ARRAY_mixed_low));
    plan->scalar[PLAN_mixed_t1] = 0.375; /* without a plan of both: its own, as the precisions */
    plan->scalar[PLAN_joint_t1] = 0.25;
    check_t1(plan, "mixed-two", "routing=resident-first", 0.375);
    check_t1(plan, "mixed-two-resident-first", NULL, 0.375);
    free(plan);
}
END_TEST

/* Every entry of the capacity is given out: without a plan layers differ by one at most. */
START_TEST(even_shares_use_all)
{
    uint32_t v[LAYERS];
    struct error error;
    for (uint32_t capacity = LAYERS * TOP_K; capacity <= LAYERS * EXPERTS; capacity++) {
        ck_assert_int_eq(planned_virtual(NULL, &hparams, capacity, v, &error), 0);
        ck_assert_uint_eq(sum_of(v), capacity);
        for (uint32_t l = 0; l < LAYERS; l++) /* the rest goes to the first layers */
            ck_assert_uint_eq(v[l], capacity / LAYERS + (l < capacity % LAYERS));
    }
    ck_assert_int_ne(planned_virtual(NULL, &hparams, LAYERS * TOP_K - 1, v, &error), 0);
}
END_TEST

/* Planned shares: each at least its share rounded down and at most one more, unless top-k raises
 * another. */
START_TEST(planned_shares_use_all)
{
    static const uint32_t wanted[LAYERS] = {32, 32, 14, 4, 4, 4, 5, 32};
    struct plan *plan = make_plan(plan_array_bit(PLAN_ARRAY_virtual_experts));
    uint32_t v[LAYERS], all = sum_of(wanted);
    struct error error;
    memcpy(plan_virtual_experts(plan), wanted, sizeof wanted);
    for (uint32_t capacity = LAYERS * TOP_K; capacity <= LAYERS * EXPERTS; capacity++) {
        ck_assert_int_eq(planned_virtual(plan, &hparams, capacity, v, &error), 0);
        ck_assert_uint_eq(sum_of(v), capacity < all ? capacity : all);
        for (uint32_t l = 0; l < LAYERS; l++) {
            ck_assert_uint_ge(v[l], TOP_K);
            ck_assert_uint_le(v[l], wanted[l]);
        }
        if (capacity >= all)
            ck_assert_mem_eq(v, wanted, sizeof v);
    }
    free(plan);
}
END_TEST

/* One entry is spare unless all experts fit. */
START_TEST(one_entry_is_spare)
{
    uint32_t keep[LAYERS];
    uint8_t set[LAYERS * EXPERTS];
    struct error error;
    ck_assert_int_eq(planned_swap_sets(NULL, &hparams, 128, keep, set, &error), 0);
    ck_assert_uint_eq(sum_of(keep), 127);
    ck_assert_uint_eq(keep[0], 16);
    ck_assert_uint_eq(keep[LAYERS - 1], 15);
    for (uint32_t l = 0; l < LAYERS; l++) /* without a plan the lowest numbers */
        for (uint32_t e = 0; e < EXPERTS; e++)
            ck_assert_uint_eq(set[l * EXPERTS + e], e < keep[l]);
    ck_assert_int_eq(planned_swap_sets(NULL, &hparams, LAYERS * EXPERTS, keep, set, &error), 0);
    ck_assert_uint_eq(sum_of(keep), LAYERS * EXPERTS);
    ck_assert_int_ne(planned_swap_sets(NULL, &hparams, LAYERS * TOP_K, keep, set, &error), 0);
    ck_assert_int_ne(planned_swap_sets(NULL, &hparams, 0, keep, set, &error), 0);
}
END_TEST

/* Experts of the highest frequency, an unknown one last; the plan's own set where it has the right
 * number. */
START_TEST(first_sets)
{
    struct plan *plan =
        make_plan(plan_array_bit(PLAN_ARRAY_frequency) | plan_array_bit(PLAN_ARRAY_norm) |
                  plan_array_bit(PLAN_ARRAY_resident));
    uint32_t keep[LAYERS];
    uint8_t set[LAYERS * EXPERTS], mask[LAYERS * EXPERTS];
    struct error error;
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
        plan_frequency(plan)[i] = (float)(i * 11 % EXPERTS) / EXPERTS;
        plan_norm(plan)[i] = (float)(EXPERTS - i % EXPERTS); /* the largest norms are elsewhere */
    }
    plan_frequency(plan)[0] = NAN;
    for (uint32_t e = 8; e < 24; e++) /* 16 of layer 1, 0 of the others */
        plan_resident(plan)[EXPERTS + e] = 1;
    ck_assert_int_eq(planned_swap_sets(plan, &hparams, 129, keep, set, &error), 0);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t e = 0; e < EXPERTS; e++) {
            uint32_t i = l * EXPERTS + e;
            bool frequent = i > 0 && i * 11 % EXPERTS >= EXPERTS / 2;
            ck_assert_uint_eq(set[i], l == 1 ? plan_resident(plan)[i] : frequent);
        }
    ck_assert_int_eq(planned_mask(plan, MASK_FREQUENCY, &hparams, 128, mask, &error), 0);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        ck_assert(i / EXPERTS == 1 || mask[i] == set[i]);
    free(plan);
}
END_TEST

/* Unknown frequencies are 0; ties and missing tables in index order. */
START_TEST(preload_order)
{
    static const float frequency[] = {(float)NAN, 0.25f, 0, 0.5f, (float)NAN, 0.25f};
    static const uint32_t expected[] = {3, 1, 5, 0, 2, 4};
    uint32_t order[6];
    planned_preload_order(frequency, 6, order);
    ck_assert_mem_eq(order, expected, sizeof order);
    planned_preload_order(NULL, 6, order);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(order[i], i);
}
END_TEST

START_TEST(preload_where_most_experts_fit)
{
    ck_assert(!planned_preload_frequent(PRELOAD_MOST, 199999, 300000));
    ck_assert(planned_preload_frequent(PRELOAD_MOST, 200000, 300000));
    ck_assert(planned_preload_frequent(PRELOAD_MOST, UINT64_MAX, UINT64_MAX));
    ck_assert(planned_preload_frequent(PRELOAD_FREQUENCY, 1, 300000));
    ck_assert(!planned_preload_frequent(PRELOAD_NONE, 300000, 300000));
    ck_assert(!planned_preload_frequent(PRELOAD_ALL, 300000, 300000));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("planned");
    TCase *c = tcase_create("planned");
    tcase_add_test(c, even_shares_use_all);
    tcase_add_test(c, precisions_of_a_rule);
    tcase_add_test(c, thresholds_of_a_rule);
    tcase_add_test(c, planned_shares_use_all);
    tcase_add_test(c, one_entry_is_spare);
    tcase_add_test(c, first_sets);
    tcase_add_test(c, preload_order);
    tcase_add_test(c, preload_where_most_experts_fit);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
