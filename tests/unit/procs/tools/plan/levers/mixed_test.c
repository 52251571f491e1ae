/* SPDX-License-Identifier: Apache-2.0 */
/* The planners of mixed-two, of it with cache-aware routing, and of drop, on the demo model, with a
 * synthetic plan of edgemoe: what they store keeps to the loss, and is between the precisions of
 * that plan. Losses with a simulated cache are those of what is resident. Oracles: the widths
 * alone, and every access a miss. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/policy/presets/auto.h"
#include "procs/tools/plan/levers/joint_steps.h"
#include "procs/tools/plan/papers/thresholds.h"
#include "procs/tools/plan/planning.h"
#include "tests/harness/sample.h"

#define DEMO   SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"
#define TEXT   SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define WINDOW 24

static char dir[64], plan_path[PATH_MAX];
static struct planning p;
static struct error error;
static uint64_t cells;

/* Two in three experts at int4, the others at int8; the first are the least important. */
static void fill_plan(void)
{
    for (uint64_t i = 0; i < cells; i++) {
        plan_width(p.plan)[i] = i % 3 ? PRECISION_INT4 : PRECISION_INT8;
        plan_importance(p.plan)[i] = 1e-5f * (float)i;
        plan_importance_measured(p.plan)[i] = 1;
        plan_frequency(p.plan)[i] = (float)(i % 7) / 8;
    }
    p.plan->scalar[PLAN_edgemoe_loss_high] = 0.01;
}

static void setup(void)
{
    log_init("mixed_test", LOG_LEVEL_WARN);
    snprintf(dir, sizeof dir, "/tmp/sluice-mixed-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(plan_path, sizeof plan_path, "%s/plan", dir);
    p = (struct planning){.model_path = DEMO,
                          .out_path = plan_path,
                          .window = WINDOW,
                          .tokens_max = 24 * WINDOW,
                          .max_loss = 0.5,
                          .text_path = {TEXT},
                          .texts = 1,
                          .report = json_object(),
                          .json = true, /* notes go to stderr */
                          .method = QUANT_CHANNEL};
    p.model = offline_open(DEMO, model_index_build, &error);
    ck_assert_msg(p.model != NULL, "%s", error.text);
    p.measured = measured_open(plan_path, &error);
    ck_assert_msg(p.measured != NULL, "%s", error.text);
    const struct model_hparams *hp = &offline_index(p.model)->hparams;
    uint64_t arrays = plan_array_bit(PLAN_ARRAY_width) | plan_array_bit(PLAN_ARRAY_importance) |
                      plan_array_bit(PLAN_ARRAY_importance_measured) |
                      plan_array_bit(PLAN_ARRAY_frequency);
    p.plan = plan_create(hp->layers, hp->experts, hp->experts_used, offline_hash(p.model), arrays,
                         0, &error);
    ck_assert_msg(p.plan != NULL, "%s", error.text);
    cells = (uint64_t)hp->layers * hp->experts;
    fill_plan();
    p.native_bytes = serving_bytes(p.model, NULL, p.method);
    ck_assert_msg(planning_divide_text(&p, &error) == 0, "%s", error.text);
    ck_assert_msg(planning_measure_native(&p, &error) == 0, "%s", error.text);
}

static void teardown(void)
{
    static const char *const made[] = {"plan.measured", "plan.lock"};
    char name[PATH_MAX];
    json_decref(p.report);
    offline_losses_free(&p.native);
    offline_losses_free(&p.native_some);
    offline_losses_free(&p.native_held);
    offline_text_free(&p.text);
    offline_text_free(&p.some);
    offline_text_free(&p.held);
    free(p.plan);
    measured_close(p.measured);
    offline_close(p.model);
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        snprintf(name, sizeof name, "%s/%s", dir, made[i]);
        unlink(name);
    }
    ck_assert_int_eq(rmdir(dir), 0);
}

/* edgemoe's precision, or the finer one that an important expert gets back; one step lower. */
static void check_precisions(void)
{
    uint32_t back = 0;
    for (uint64_t i = 0; i < cells; i++) {
        uint8_t planned = plan_width(p.plan)[i], high = plan_mixed_high(p.plan)[i];
        ck_assert(high == planned || (planned == PRECISION_INT4 && high == PRECISION_INT8));
        back += high != planned;
        ck_assert_uint_eq(plan_mixed_low(p.plan)[i], high + 1);
    }
    if (back > 0) /* the most important one is among them; the least important one only with all */
        ck_assert_uint_eq(plan_mixed_high(p.plan)[cells - 2], PRECISION_INT8);
    if (plan_mixed_high(p.plan)[1] == PRECISION_INT8)
        ck_assert_uint_eq(back, 2 * (cells / 3));
}

START_TEST(plan_keeps_the_loss)
{
    ck_assert_msg(plan_mixed(&p, &error) == 0, "%s", error.text);
    const double *s = p.plan->scalar;
    ck_assert(s[PLAN_mixed_loss_high] <= p.max_loss);
    ck_assert(s[PLAN_mixed_loss] <= s[PLAN_mixed_loss_high]);
    ck_assert(s[PLAN_mixed_t1] < 1 && s[PLAN_mixed_t2] == 1 && isnan(s[PLAN_mixed_share]));
    ck_assert_double_eq(s[PLAN_mixed_method], QUANT_CHANNEL);
    check_precisions();
}
END_TEST

START_TEST(plan_for_a_capacity)
{
    p.at_capacity = true;
    p.experts_percent = 50;
    ck_assert_msg(plan_mixed(&p, &error) == 0, "%s", error.text);
    ck_assert_double_eq_tol(p.plan->scalar[PLAN_mixed_share], 0.5, 0.01);
    ck_assert(p.plan->scalar[PLAN_mixed_loss_high] <= p.max_loss);
    ck_assert_uint_eq(p.clock.capacity, 0);
    check_precisions();
    p.experts_percent = 0;
    ck_assert_int_eq(plan_mixed(&p, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "--resident-experts"));
}
END_TEST

START_TEST(plan_that_is_impossible)
{
    p.max_loss = 1e-9;
    ck_assert_int_eq(plan_mixed(&p, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PLAN);
    p.plan->scalar[PLAN_edgemoe_loss_high] = (double)NAN;
    ck_assert_int_eq(plan_mixed(&p, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "--preset edgemoe"));
}
END_TEST

/* Widths without what edgemoe ordered the experts by, as a damaged plan has them. */
START_TEST(plan_without_importance)
{
    float known = plan_importance(p.plan)[0];
    plan_importance(p.plan)[0] = NAN;
    ck_assert_int_eq(plan_mixed(&p, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "--preset edgemoe"));
    plan_importance(p.plan)[0] = known;
    p.plan->offset[PLAN_ARRAY_importance_measured] = 0;
    ck_assert_ptr_null(plan_importance_measured(p.plan));
    ck_assert_int_eq(plan_mixed(&p, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, "--preset edgemoe"));
}
END_TEST

static size_t shares_judged(void)
{
    const json_t *report = json_object_get(p.report, "mixed_two_resident_first");
    return json_array_size(json_object_get(report, "bytes"));
}

/* edgemoe's precisions, or the finer one; what was planned for mixed-two alone stays. With a
 * capacity it is judged there, and at the larger shares of the list. */
START_TEST(plan_with_routing)
{
    const double *s;
    ck_assert_msg(plan_joint(&p, &error) == 0, "%s", error.text);
    s = p.plan->scalar;
    ck_assert(s[PLAN_joint_loss_high] <= p.max_loss &&
              s[PLAN_joint_loss] <= s[PLAN_joint_loss_high]);
    ck_assert_double_eq(s[PLAN_joint_share], 0.125);
    ck_assert(s[PLAN_joint_nats] > 0 && s[PLAN_joint_t1] < 1);
    ck_assert(s[PLAN_joint_t2] < 1 && s[PLAN_joint_t1] <= s[PLAN_joint_t2]);
    ck_assert_double_eq(s[PLAN_joint_method], QUANT_CHANNEL);
    for (uint64_t i = 0; i < cells; i++) {
        uint8_t planned = plan_width(p.plan)[i], high = plan_joint_high(p.plan)[i];
        ck_assert(high == planned || (planned == PRECISION_INT4 && high == PRECISION_INT8));
        ck_assert_uint_eq(plan_joint_low(p.plan)[i], high + 1);
    }
    ck_assert_uint_eq(p.clock.capacity, 0);
    ck_assert_ptr_null(plan_mixed_high(p.plan));
    ck_assert_uint_eq(shares_judged(), 3);
    /* For a capacity: the share that was searched, so that all of it is known. */
    uint32_t measured = p.stage.done;
    p.at_capacity = true;
    p.experts_percent = 25;
    ck_assert_msg(plan_joint(&p, &error) == 0, "%s", error.text);
    s = p.plan->scalar;
    ck_assert_double_eq_tol(s[PLAN_joint_share], 0.25, 1e-6);
    ck_assert_uint_eq(shares_judged(), 2);
    ck_assert_uint_le(p.stage.done, measured + 1); /* the comparison of the report */
    p.max_loss = 1e-9;
    ck_assert_int_eq(plan_joint(&p, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PLAN);
    p.plan->scalar[PLAN_edgemoe_loss_high] = (double)NAN;
    ck_assert_int_eq(plan_joint(&p, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "mixed-two-resident-first begins with edgemoe's"));
}
END_TEST

/* Bytes with a quarter resident, of all accesses at native precision: of the plan; of edgemoe's
 * precisions without another lever, with their bound. */
static double planned_cost(void)
{
    const json_t *report = json_object_get(p.report, "mixed_two_resident_first");
    const json_t *quarter = json_array_get(json_object_get(report, "bytes"), 1);
    ck_assert_double_eq(json_number_value(json_object_get(quarter, "resident")), 0.25);
    return json_number_value(json_object_get(quarter, "bytes_share"));
}

static double edgemoe_cost(double *bound)
{
    struct judged judged;
    const struct serving s = {.kind = SERVE_POLICY,
                              .method = p.method,
                              .precision = plan_width(p.plan),
                              .low = plan_width(p.plan),
                              .policy = {.rule = PRECISION_RULE_MIXED_TWO, .t1 = 1, .t2 = 1}};
    ck_assert_int_eq(
        knobs_resolve("mixed-two-resident-first", NULL, "nats=0", &p.clock.knobs, &error), 0);
    p.clock.capacity = p.native_bytes / 4;
    ck_assert_msg(planning_judge(&p, &s, &judged, &error) == 0, "%s", error.text);
    p.clock.capacity = 0;
    *bound = judged.loss.high;
    return thresholds_cost(&p, &p.held, &judged.report);
}

/* A search that begins without any lever ends above edgemoe here. */
START_TEST(plan_reads_no_more_than_edgemoe)
{
    p.max_loss = 0.05;
    ck_assert_msg(plan_joint(&p, &error) == 0, "%s", error.text);
    ck_assert(p.plan->scalar[PLAN_joint_loss_high] <= p.max_loss);
    double bound, cost = planned_cost();
    ck_assert_double_le(cost, edgemoe_cost(&bound));
    ck_assert_double_le(bound, p.max_loss);
}
END_TEST

/* The bound in the plan is of other settings: edgemoe's precisions do not keep to P, and what does
 * reads more. */
START_TEST(plan_with_a_wrong_bound_of_edgemoe)
{
    double bound;
    p.max_loss = 0.06;
    for (uint64_t i = 0; i < cells; i++)
        plan_width(p.plan)[i] = i % 3 ? PRECISION_INT2 : PRECISION_INT4;
    ck_assert_msg(plan_joint(&p, &error) == 0, "%s", error.text);
    ck_assert(p.plan->scalar[PLAN_joint_loss_high] <= p.max_loss);
    double cost = planned_cost();
    ck_assert_double_gt(cost, edgemoe_cost(&bound));
    ck_assert_double_gt(bound, p.max_loss);
}
END_TEST

/* Each step changes what is served: with a small T2 the first steps of T1 are above it. */
START_TEST(steps_of_the_levers)
{
    static const struct {
        enum lever lever;
        uint32_t skipping, steps;
        double t1; /* after the first step */
    } cases[] = {{TIER, 0, 5, 0.85},   {TIER, 3, 4, 0.75},    {TIER, 4, 3, 0.5},
                 {WIDTHS, 4, 3, 0.75}, {SKIPPING, 0, 4, 0.9}, {ROUTING, 4, 5, 0.75}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct point x = {.at[SKIPPING] = cases[i].skipping}, to = x;
        uint32_t taken = 0;
        while (point_step(&to, cases[i].lever, 8)) {
            if (taken++ == 0)
                ck_assert_double_eq(point_t1(&to, 8), cases[i].t1);
            ck_assert(point_share(&to) > point_share(&x) || point_nats(&to) > point_nats(&x) ||
                      point_t1(&to, 8) < point_t1(&x, 8));
            x = to;
        }
        ck_assert_uint_eq(taken, cases[i].steps);
    }
}
END_TEST

struct judged_way {
    const char *good; /* of each point, y or n */
    uint32_t judged, last;
    bool seen[32];
};

static int judge_way(void *user, uint32_t i, bool *good, struct error *e)
{
    struct judged_way *w = user;
    (void)e;
    ck_assert(!w->seen[i]); /* none twice */
    w->seen[i] = true;
    w->judged++;
    *good = w->good[i] == 'y';
    if (*good) {
        ck_assert(w->last == UINT32_MAX || i > w->last);
        w->last = i;
    }
    return 0;
}

/* Good points after bad ones, which a bisection misses; bounded judgements. */
START_TEST(last_good_point_of_a_way)
{
    static const struct {
        const char *good;
        uint32_t from, first, more, last, left;
    } cases[] = {{"ynynyy", 0, 0, 8, 5, 8 - 1},
                 {"ynnnyn", 0, 1, 8, 4, 8 - 2},
                 {"ynnnyn", 0, 1, 1, 0, 0},
                 {"yyyynn", 0, 3, 8, 3, 8 - 1},
                 {"nnnnnn", 0, 5, 8, UINT32_MAX, 8 - 3},
                 {"yyynyy", 5, 0, 8, 5, 8},
                 {"ynn", 3, 3, 8, UINT32_MAX, 8}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct judged_way w = {.good = cases[i].good, .last = UINT32_MAX};
        uint32_t more = cases[i].more;
        ck_assert_int_eq(way_last_good(cases[i].from, (uint32_t)strlen(w.good), cases[i].first,
                                       &more, judge_way, &w, &error),
                         0);
        ck_assert_msg(w.last == cases[i].last && more == cases[i].left, "%s: %u, %u left", w.good,
                      w.last, more);
    }
}
END_TEST

/* The smallest T2 that keeps to P on the held-out text, with the smallest of the shares; a second
 * run measures nothing. */
START_TEST(plan_of_what_is_left_out)
{
    p.max_loss = 0.2;
    ck_assert_msg(plan_drop(&p, &error) == 0, "%s", error.text);
    const double *s = p.plan->scalar;
    double t2 = s[PLAN_drop_t2], loss = s[PLAN_drop_loss];
    ck_assert(t2 > 0.5 && t2 < 0.97);
    ck_assert(s[PLAN_drop_loss_low] <= loss && loss <= s[PLAN_drop_loss_high]);
    ck_assert(s[PLAN_drop_loss_high] <= p.max_loss);
    ck_assert_double_eq(s[PLAN_drop_share], 0.125);
    ck_assert_double_eq(s[PLAN_drop_dense], PRECISION_NATIVE);
    ck_assert(isnan(s[PLAN_reroute_nats]));
    const json_t *report = json_object_get(p.report, "drop");
    ck_assert_double_eq(json_number_value(json_object_get(report, "t2")), t2);
    uint32_t measured = p.stage.done;
    ck_assert_msg(plan_drop(&p, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(p.stage.done, measured);
    ck_assert(p.plan->scalar[PLAN_drop_t2] == t2 && p.plan->scalar[PLAN_drop_loss] == loss);
    p.max_loss = 1e-9;
    ck_assert_int_eq(plan_drop(&p, &error), -1);
    ck_assert_int_eq(error.code, ERR_NO_PLAN);
    ck_assert_ptr_nonnull(strstr(error.text, "no t2 keeps the loss below"));
}
END_TEST

static double loss_of(const struct serving *s, double percent, uint64_t *bytes)
{
    struct offline_losses losses;
    struct serving_report report;
    if (percent > 0) {
        ck_assert_int_eq(knobs_resolve("mixed-two", NULL, NULL, &p.clock.knobs, &error), 0);
        p.clock.capacity = (uint64_t)(percent / 100 * (double)p.native_bytes);
    }
    ck_assert_msg(planning_losses(&p, &p.text, s, &losses, &report, &error) == 0, "%s", error.text);
    double nats = offline_mean_nll(&losses);
    *bytes = report.bytes;
    offline_losses_free(&losses);
    p.clock.capacity = 0;
    return nats;
}

/* A lower tier serves what misses: with less memory more of it. */
START_TEST(loss_depends_on_what_is_resident)
{
    uint8_t *low = malloc(cells);
    uint64_t unused, all, quarter, whole;
    ck_assert_ptr_nonnull(low);
    memset(low, PRECISION_INT2, cells);
    const struct serving widths = {
        .kind = SERVE_PRECISIONS, .method = p.method, .precision = plan_width(p.plan)};
    struct serving two = widths;
    two.kind = SERVE_POLICY;
    two.low = low;
    two.policy = (struct precision_policy){.rule = PRECISION_RULE_MIXED_TWO, .t1 = 0.2f, .t2 = 1};
    double best = loss_of(&widths, 0, &unused), worst = loss_of(&two, 0, &all);
    double at_quarter = loss_of(&two, 25, &quarter), resident = loss_of(&two, 100, &whole);
    ck_assert_double_eq_tol(resident, best, 1e-9); /* preloaded: nothing misses */
    ck_assert_uint_eq(whole, 0);
    ck_assert_msg(fabs(at_quarter - best) > 1e-6 && fabs(at_quarter - worst) > 1e-6,
                  "%g, %g at a quarter, %g", best, at_quarter, worst);
    ck_assert(quarter > 0 && quarter < all);
    free(low);
}
END_TEST

/* With a cache the frequencies, by which it is filled, are part of what was measured, and so are
 * the rules of the cache; without one they are not. */
START_TEST(measurements_of_a_profile)
{
    const struct serving s = {.kind = SERVE_PRECISIONS, .precision = plan_width(p.plan)};
    uint8_t key[5][MEASURED_KEY_BYTES];
    ck_assert_int_eq(knobs_resolve("mixed-two", NULL, NULL, &p.clock.knobs, &error), 0);
    planning_serving_key(&p, &p.text, &s, "losses", key[0]);
    plan_frequency(p.plan)[3] += 0.5f;
    planning_serving_key(&p, &p.text, &s, "losses", key[1]);
    ck_assert_mem_eq(key[0], key[1], sizeof key[0]);
    p.clock.capacity = p.native_bytes / 2;
    planning_serving_key(&p, &p.text, &s, "losses", key[1]);
    plan_frequency(p.plan)[3] -= 0.5f;
    planning_serving_key(&p, &p.text, &s, "losses", key[2]);
    p.clock.knobs.preload = p.clock.knobs.preload == PRELOAD_NONE ? PRELOAD_ALL : PRELOAD_NONE;
    planning_serving_key(&p, &p.text, &s, "losses", key[3]);
    p.clock.knobs.eviction++;
    planning_serving_key(&p, &p.text, &s, "losses", key[4]);
    for (int i = 1; i < 5; i++)
        ck_assert_mem_ne(key[i], key[i - 1], sizeof key[i]);
    p.clock.knobs.nats = 0.7; /* exact routing: not used */
    planning_serving_key(&p, &p.text, &s, "losses", key[3]);
    ck_assert_mem_eq(key[3], key[4], sizeof key[3]);
    p.clock.knobs.routing = ROUTING_RESIDENT_FIRST;
    planning_serving_key(&p, &p.text, &s, "losses", key[0]);
    p.clock.knobs.nats = 0.8;
    planning_serving_key(&p, &p.text, &s, "losses", key[1]);
    ck_assert_mem_ne(key[0], key[3], sizeof key[0]);
    ck_assert_mem_ne(key[0], key[1], sizeof key[0]);
}
END_TEST

static double predicted_ns(const char *preset, uint32_t share)
{
    return (double)plan_auto_ns(
        p.plan)[plan_auto_at(share, 0, auto_candidate(preset_find(preset)))];
}

/* Candidates that are planned have predictions: with lower precisions and other routing a token
 * waits less, and with masked routing not at all. */
START_TEST(predictions_of_auto)
{
    ck_assert_msg(
        planning_add(&p,
                     plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low),
                     &error) == 0,
        "%s", error.text);
    double *s = p.plan->scalar;
    s[PLAN_token_ns] = 2e6;
    s[PLAN_layer_attention_ns] = s[PLAN_layer_router_ns] = 2e4;
    s[PLAN_layer_experts_ns] = 1e5;
    s[PLAN_drive_bytes_per_s] = 1e9;
    s[PLAN_joint_t1] = 0.25;
    s[PLAN_joint_t2] = 1;
    s[PLAN_joint_nats] = 0.4;
    s[PLAN_joint_loss_high] = s[PLAN_swap_loss_high] = 0.01;
    s[PLAN_drop_loss_high] = 0.01;
    s[PLAN_drop_t2] = 0.7;
    s[PLAN_joint_share] = s[PLAN_drop_share] = 0.125;
    memcpy(plan_joint_high(p.plan), plan_width(p.plan), cells);
    memset(plan_joint_low(p.plan), PRECISION_INT2, cells);
    p.gpu = (struct sim_gpu_options){0};
    ck_assert_msg(plan_auto(&p, &error) == 0, "%s", error.text);
    double lod = predicted_ns("lod", 0), mixed = predicted_ns("auto-mixed-noprefetch", 0),
           joint = predicted_ns("mixed-two-resident-first", 0), swap = predicted_ns("swapmoe", 0);
    ck_assert_msg(mixed < 0.8 * lod && joint < 0.8 * mixed && swap < joint, "%g %g %g %g", lod,
                  mixed, joint, swap);
    ck_assert(predicted_ns("drop", 0) < 0.95 * predicted_ns("auto-noprefetch", 0));
    ck_assert_double_eq_tol(swap / predicted_ns("lod", PLAN_AUTO_SHARES - 1), 1, 0.1);
    ck_assert(isnan(predicted_ns("mixed-two", 0)) && isnan(predicted_ns("hobbit", 0)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mixed");
    TCase *tests = tcase_create("mixed");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    const TTest *const all[] = {plan_keeps_the_loss,
                                plan_for_a_capacity,
                                plan_that_is_impossible,
                                plan_with_routing,
                                plan_reads_no_more_than_edgemoe,
                                plan_with_a_wrong_bound_of_edgemoe,
                                plan_of_what_is_left_out,
                                plan_without_importance,
                                loss_depends_on_what_is_resident,
                                measurements_of_a_profile,
                                predictions_of_auto};
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (test_sample(EVERY_mixed_plans, &met))
            tcase_add_test(tests, all[i]);
    suite_add_tcase(suite, tests);
    TCase *steps = tcase_create("steps");
    tcase_add_test(steps, steps_of_the_levers);
    tcase_add_test(steps, last_good_point_of_a_way);
    suite_add_tcase(suite, steps);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
