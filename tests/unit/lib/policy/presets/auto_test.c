/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of auto: which presets are allowed, interpolation between the points of the table, and
 * when it switches. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"

static struct plan *plan;

static uint32_t candidate(const char *name)
{
    for (uint32_t c = 0; c < auto_candidates(); c++)
        if (strcmp(preset_at(auto_preset(c))->name, name) == 0)
            return c;
    ck_abort_msg("%s is no candidate", name);
}

static void predict_all(const char *name, double ns)
{
    for (uint32_t s = 0; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            plan_auto_ns(plan)[plan_auto_at(s, d, candidate(name))] = (float)ns;
}

static void setup(void)
{
    static const uint8_t hash[PLAN_HASH_BYTES] = {1};
    struct error error;
    plan = plan_create(2, 4, 2, hash, plan_array_bit(PLAN_ARRAY_auto_ns), 0, &error);
    ck_assert_ptr_nonnull(plan);
}

static void teardown(void)
{
    free(plan);
}

static struct auto_view view_of(double share, double rate, double max_loss)
{
    return (struct auto_view){.plan = plan,
                              .usable = UINT64_MAX,
                              .share = share,
                              .bytes_per_s = rate,
                              .max_loss = max_loss,
                              .running = UINT32_MAX};
}

static const char *chosen(const struct auto_view *v)
{
    struct auto_choice c = auto_choose(v);
    return preset_at(auto_preset(c.candidate))->name;
}

/* Every row is a preset, and is marked lossless exactly when the preset is. */
START_TEST(candidates_are_presets)
{
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        struct knobs knobs;
        struct error error;
        ck_assert_uint_ne(auto_preset(c), POLICY_NONE);
        const char *name = preset_at(auto_preset(c))->name;
        ck_assert_int_eq(knobs_resolve(name, NULL, NULL, &knobs, &error), 0);
        ck_assert_msg(knobs_lossy(&knobs) == !auto_lossless(c), "%s", name);
        ck_assert_msg(strlen(name) < 32, "%s does not fit into the record of a tuning", name);
    }
}
END_TEST

START_TEST(without_predictions)
{
    struct auto_view v = view_of(0.25, 1e9, 0.05);
    ck_assert_str_eq(chosen(&v), "auto");
    v.plan = NULL;
    ck_assert_str_eq(chosen(&v), "auto");
    ck_assert(!auto_choose(&v).predicted);
}
END_TEST

/* The logarithm is linear between two points and constant beyond the ends. */
START_TEST(interpolation)
{
    uint32_t c = candidate("lod");
    float *ns = plan_auto_ns(plan);
    for (uint32_t s = 0; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            ns[plan_auto_at(s, d, c)] = (float)(1e15 / (auto_shares[s] * auto_bandwidths[d]));
    static const double points[][2] = {{0.25, 1e9}, {0.3, 7e8}, {0.9, 1.5e8}, {0.125, 4e9}};
    for (int i = 0; i < 4; i++) {
        double want = 1e15 / (points[i][0] * points[i][1]);
        ck_assert_double_eq_tol(auto_predicted_ns(plan, c, points[i][0], points[i][1]) / want, 1,
                                1e-5);
    }
    ck_assert_double_eq_tol(auto_predicted_ns(plan, c, 0.01, 1e6) / (1e15 / (0.125 * 1e8)), 1,
                            1e-5);
    ck_assert_double_eq_tol(auto_predicted_ns(plan, c, 3, 1e12) / (1e15 / 4e9), 1, 1e-5);
    ns[plan_auto_at(0, 0, c)] = (float)NAN;
    ck_assert(isnan(auto_predicted_ns(plan, c, 0.13, 1.1e8)));
    ck_assert(!isnan(auto_predicted_ns(plan, c, 0.1875, 2e8)));
}
END_TEST

START_TEST(lossy_presets_need_max_loss)
{
    predict_all("auto-prefetch", 10e6);
    predict_all("hobbit", 5e6);
    predict_all("auto-int4", 4e6);
    struct auto_view v = view_of(0.25, 1e9, 0.05);
    ck_assert_str_eq(chosen(&v), "auto-prefetch"); /* their loss was not measured */
    plan->scalar[PLAN_hobbit_loss_high] = 0.01;
    plan->scalar[PLAN_uniform_int4_loss_high] = 0.03;
    ck_assert_str_eq(chosen(&v), "auto-int4");
    v.max_loss = 0.02;
    ck_assert_str_eq(chosen(&v), "hobbit");
    v.max_loss = 0.005;
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    v.max_loss = 0;
    plan->scalar[PLAN_hobbit_loss_high] = -0.001; /* better than lossless, by chance */
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    v.max_loss = 0.05;
    v.usable = ~(UINT64_C(1) << candidate("auto-int4")); /* precision not available */
    ck_assert_str_eq(chosen(&v), "hobbit");
    predict_all("hobbit", 9.9e6); /* gain too small for a loss */
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
}
END_TEST

START_TEST(capacity_and_bandwidth_decide)
{
    predict_all("auto-prefetch", 10e6);
    predict_all("lod", 12e6);
    for (uint32_t s = 4; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            plan_auto_ns(plan)[plan_auto_at(s, d, candidate("lod"))] = d < 3 ? 8e6f : 12e6f;
    struct auto_view v = view_of(0.25, 2e8, 0);
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    v.share = 0.6;
    ck_assert_str_eq(chosen(&v), "lod");
    v.bytes_per_s = 1e9;
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
}
END_TEST

/* The running preset is replaced only for a clear gain. */
START_TEST(stays)
{
    predict_all("auto-prefetch", 10e6);
    predict_all("lod", 10.4e6);
    struct auto_view v = view_of(0.25, 1e9, 0);
    v.running = candidate("lod");
    ck_assert_str_eq(chosen(&v), "lod");
    predict_all("auto-prefetch", 9.3e6);
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
}
END_TEST

/* The best is measured, then the second is tried and measured, then the better one stays; a third
 * is never tried. */
START_TEST(confirmation)
{
    double measured[PLAN_AUTO_CANDIDATES];
    for (int i = 0; i < PLAN_AUTO_CANDIDATES; i++)
        measured[i] = (double)NAN;
    predict_all("auto-prefetch", 10e6);
    predict_all("lod", 10.5e6);
    predict_all("auto-hobbit-eviction", 10.8e6);
    struct auto_view v = view_of(0.25, 1e9, 0);
    v.measured_ns = measured;
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    v.running = candidate("auto-prefetch");
    measured[v.running] = 20e6; /* a slow machine: all predictions are off by the same factor */
    ck_assert_str_eq(chosen(&v), "lod");
    v.running = candidate("lod");
    ck_assert_str_eq(chosen(&v), "lod"); /* until it is measured */
    measured[v.running] = 19e6;
    ck_assert_str_eq(chosen(&v), "lod");
    measured[v.running] = 22e6;
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    v.running = candidate("auto-prefetch");
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
    measured[candidate("lod")] = (double)NAN; /* a second that is much slower is not tried */
    predict_all("lod", 12e6);
    predict_all("auto-hobbit-eviction", 12e6);
    ck_assert_str_eq(chosen(&v), "auto-prefetch");
}
END_TEST

START_TEST(share_of_a_loss)
{
    plan->scalar[PLAN_joint_share] = 0.125;
    plan->scalar[PLAN_reroute_share] = 0.25;
    plan->scalar[PLAN_swap_share] = 0.75;
    plan->scalar[PLAN_drop_share] = 0.5;
    ck_assert_double_eq(auto_least_share(plan, candidate("drop")), 0.5);
    ck_assert_double_eq(auto_least_share(plan, candidate("swapmoe")), 0.75);
    ck_assert_double_eq(auto_least_share(plan, candidate("mixed-two-resident-first")), 0.125);
    ck_assert_double_eq(auto_least_share(plan, candidate("auto-resident-first")), 0.25);
    ck_assert(isnan(auto_least_share(plan, candidate("mixed-two"))));
    ck_assert(isnan(auto_least_share(plan, candidate("auto"))));
    ck_assert(isnan(auto_least_share(NULL, candidate("mixed-two-resident-first"))));
}
END_TEST

static void check_part(const struct auto_part *p, const char *text, double without_ns, double ns)
{
    ck_assert_str_eq(p->text, text);
    ck_assert_double_eq_tol(p->without_ns, without_ns, 1);
    ck_assert_double_eq_tol(p->ns, ns, 1);
}

/* From a cache to the candidate; a base that was not planned is counted together with the next. */
START_TEST(gain_of_each_part)
{
    struct auto_part part[AUTO_PARTS_MAX];
    uint32_t c = candidate("mixed-two-resident-first");
    ck_assert_uint_eq(auto_parts(plan, c, 0.25, 1e9, part), 0);
    ck_assert_uint_eq(auto_parts(NULL, c, 0.25, 1e9, part), 0);
    predict_all("lod", 30e6);
    predict_all("auto-noprefetch", 20e6);
    predict_all("mixed-two-resident-first", 5e6);
    ck_assert_uint_eq(auto_parts(plan, candidate("lod"), 0.25, 1e9, part), 0);
    ck_assert_uint_eq(auto_parts(plan, c, 0.25, 1e9, part), 2);
    check_part(&part[0], "eviction by access probability", 30e6, 20e6);
    check_part(&part[1],
               "a precision per expert and a lower precision by gate weight and cache-aware "
               "routing",
               20e6, 5e6);
    predict_all("mixed-two", 6e6);
    predict_all("auto-mixed-noprefetch", 10e6);
    ck_assert_uint_eq(auto_parts(plan, c, 0.25, 1e9, part), 4);
    check_part(&part[1], "a precision per expert", 20e6, 10e6);
    check_part(&part[2], "a lower precision by gate weight", 10e6, 6e6);
    check_part(&part[3], "cache-aware routing", 6e6, 5e6);
}
END_TEST

/* Every candidate has its parts: each base is one, and none is its own. */
START_TEST(candidates_have_parts)
{
    struct auto_part part[AUTO_PARTS_MAX];
    for (uint32_t c = 0; c < auto_candidates(); c++)
        predict_all(preset_at(auto_preset(c))->name, 1e6);
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        uint32_t n = auto_parts(plan, c, 0.25, 1e9, part);
        ck_assert_uint_lt(n, AUTO_PARTS_MAX);
        ck_assert_int_eq(n == 0, c == candidate("lod"));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("auto");
    TCase *c = tcase_create("auto");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, candidates_are_presets);
    tcase_add_test(c, without_predictions);
    tcase_add_test(c, interpolation);
    tcase_add_test(c, lossy_presets_need_max_loss);
    tcase_add_test(c, capacity_and_bandwidth_decide);
    tcase_add_test(c, stays);
    tcase_add_test(c, confirmation);
    tcase_add_test(c, share_of_a_loss);
    tcase_add_test(c, gain_of_each_part);
    tcase_add_test(c, candidates_have_parts);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
