/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a plan has for each system. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/tune/tune.h"

#define LAYERS  2
#define EXPERTS 4
#define ALL     (1u << PRECISION_INT8 | 1u << PRECISION_INT4 | 1u << PRECISION_INT2)

static struct plan *plan;

static void setup(void)
{
    static const uint8_t hash[PLAN_HASH_BYTES] = {1};
    struct error error;
    plan = plan_create(
        LAYERS, EXPERTS, 2, hash,
        plan_array_bit(PLAN_ARRAY_width) | plan_array_bit(PLAN_ARRAY_auto_ns) |
            plan_array_bit(PLAN_ARRAY_mixed_high) | plan_array_bit(PLAN_ARRAY_mixed_low) |
            plan_array_bit(PLAN_ARRAY_joint_high) | plan_array_bit(PLAN_ARRAY_joint_low),
        0, &error);
    ck_assert_ptr_nonnull(plan);
    double *s = plan->scalar;
    s[PLAN_edgemoe_loss_high] = 0.01;
    s[PLAN_hobbit_loss_high] = s[PLAN_fate_loss_high] = 0.01;
    s[PLAN_mixed_loss_high] = s[PLAN_joint_loss_high] = s[PLAN_drop_loss_high] = 0.01;
    plan_mixed_high(plan)[1] = PRECISION_INT8;
    plan_mixed_low(plan)[1] = PRECISION_INT4;
    plan_joint_low(plan)[2] = PRECISION_INT2;
    s[PLAN_hobbit_fld_next] = 0;
    s[PLAN_hobbit_high] = PRECISION_NATIVE;
    s[PLAN_hobbit_low] = PRECISION_INT2;
    s[PLAN_fate_high] = PRECISION_INT4;
    s[PLAN_fate_low] = PRECISION_INT2;
    plan_width(plan)[3] = PRECISION_INT8;
    for (size_t i = 0; i < PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS * PLAN_AUTO_CANDIDATES; i++)
        plan_auto_ns(plan)[i] = NAN;
}

static void teardown(void)
{
    free(plan);
}

START_TEST(lower_precisions)
{
    ck_assert_uint_eq(system_precisions(plan, TUNE_EDGEMOE), 1u << PRECISION_INT8);
    ck_assert_uint_eq(system_precisions(plan, TUNE_HOBBIT), 1u << PRECISION_INT2);
    ck_assert_uint_eq(system_precisions(plan, TUNE_FATE),
                      1u << PRECISION_INT4 | 1u << PRECISION_INT2);
    ck_assert_uint_eq(system_precisions(plan, TUNE_MIXED),
                      1u << PRECISION_INT8 | 1u << PRECISION_INT4);
    ck_assert_uint_eq(system_precisions(plan, TUNE_JOINT), 1u << PRECISION_INT2);
    ck_assert_uint_eq(system_precisions(plan, TUNE_DROP), 1u << PRECISION_INT8); /* edgemoe's */
    plan->scalar[PLAN_fate_low] = PRECISION_INT4;                                /* a share of 0 */
    ck_assert_uint_eq(system_precisions(plan, TUNE_FATE), 1u << PRECISION_INT4);
    plan->scalar[PLAN_fate_high] = plan->scalar[PLAN_fate_low] = PRECISION_NATIVE;
    plan_width(plan)[3] = PRECISION_NATIVE;
    ck_assert_uint_eq(system_precisions(plan, TUNE_FATE), 0);
    ck_assert_uint_eq(system_precisions(plan, TUNE_EDGEMOE), 0);
}
END_TEST

/* Of a store: what the chosen systems need, and no more. */
START_TEST(precisions_of_a_store)
{
    static const struct {
        bool stored[TUNE_SYSTEMS];
        uint32_t mask;
    } cases[] = {{{true, false, false}, 0}, /* one of each expert */
                 {{false, true, false}, 1u << PRECISION_INT2},
                 {{false, false, true}, 1u << PRECISION_INT4 | 1u << PRECISION_INT2},
                 {{true, true, false}, 1u << PRECISION_INT8 | 1u << PRECISION_INT2},
                 {{true, true, true}, ALL},
                 {{false, false, false, true, false}, 1u << PRECISION_INT8 | 1u << PRECISION_INT4},
                 {{true, false, false, false, true}, 1u << PRECISION_INT8 | 1u << PRECISION_INT2},
                 /* drop needs the model's precision of every expert: not one of each */
                 {{true, false, false, false, false, true}, 1u << PRECISION_INT8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct tune t;
        for (int s = 0; s < TUNE_SYSTEMS; s++)
            t.system[s].stored = cases[i].stored[s];
        ck_assert_msg(choose_precisions(&t, plan) == cases[i].mask, "case %zu: %x", i,
                      choose_precisions(&t, plan));
    }
}
END_TEST

/* Without space the slowest ones are left out, one after the other. */
START_TEST(fewer_systems)
{
    static struct tune t;
    static const double per_s[] = {2, 3, 1};
    for (int s = 0; s < 3; s++)
        t.system[s] = (struct system){.planned = true, .stored = true, .predicted_per_s = per_s[s]};
    ck_assert(choose_fewer(&t) && !t.system[TUNE_FATE].stored && t.system[TUNE_EDGEMOE].stored);
    ck_assert(choose_fewer(&t) && !t.system[TUNE_EDGEMOE].stored && t.system[TUNE_HOBBIT].stored);
    ck_assert(!choose_fewer(&t) && t.system[TUNE_HOBBIT].stored && !t.system[TUNE_HOBBIT].why[0]);
}
END_TEST

START_TEST(what_is_planned)
{
    static const enum plan_scalar needed[] = {PLAN_fate_loss_high, PLAN_fate_high, PLAN_fate_low};
    for (int s = 0; s < TUNE_SYSTEMS; s++) {
        ck_assert(system_planned(plan, (enum tune_system)s, 1));
        ck_assert(!system_planned(plan, (enum tune_system)s, 0.5));
        ck_assert(fabs(system_loss(plan, (enum tune_system)s) - 1) < 1e-9);
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        double was = plan->scalar[needed[i]];
        plan->scalar[needed[i]] = (double)NAN;
        ck_assert(!system_planned(plan, TUNE_FATE, 1) && system_planned(plan, TUNE_HOBBIT, 1));
        plan->scalar[needed[i]] = was;
    }
}
END_TEST

/* The predictions of a plan that fate was added to later are not those of fate. */
START_TEST(what_is_predicted)
{
    for (uint32_t c = 0; c < auto_candidates(); c++) {
        const char *name = preset_at(auto_preset(c))->name;
        ck_assert_msg((system_of(c) == TUNE_FATE) == (strcmp(name, "fate") == 0), "%s", name);
        ck_assert_msg((system_of(c) == TUNE_MIXED) == (strcmp(name, "mixed-two") == 0 ||
                                                       strcmp(name, "mixed-two-adaptive") == 0),
                      "%s", name);
        ck_assert_msg((system_of(c) == TUNE_JOINT) ==
                          (strcmp(name, "mixed-two-resident-first") == 0),
                      "%s", name);
        ck_assert_msg((system_of(c) == TUNE_DROP) == (strcmp(name, "drop") == 0), "%s", name);
        if (system_of(c) == TUNE_HOBBIT)
            plan_auto_ns(plan)[plan_auto_at(PLAN_AUTO_SHARES - 1, PLAN_AUTO_BANDWIDTHS - 1, c)] = 1;
    }
    ck_assert(system_predicted(plan, TUNE_HOBBIT) && !system_predicted(plan, TUNE_FATE));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune_systems");
    TCase *tests = tcase_create("systems");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, lower_precisions);
    tcase_add_test(tests, precisions_of_a_store);
    tcase_add_test(tests, fewer_systems);
    tcase_add_test(tests, what_is_planned);
    tcase_add_test(tests, what_is_predicted);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
