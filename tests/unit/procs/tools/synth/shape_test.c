/* SPDX-License-Identifier: Apache-2.0 */
/* Every shape of the table is a model that its architecture accepts. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/synthetic/routing_law.h"
#include "procs/tools/synth/shape.h"

static const char *const names[] = {
#define SHAPE(name, arch, fields) name,
#include "procs/tools/synth/shapes.tbl.h"
};

START_TEST(shape_is_accepted)
{
    struct shape s;
    struct error error;
    ck_assert_msg(shape_named(&s, names[_i], &error) == 0, "%s: %s", names[_i], error.text);
    ck_assert_msg(shape_finish(&s, &error) == 0, "%s: %s", names[_i], error.text);
}
END_TEST

/* Layers are cut for measurements, with the pattern of kinds that the whole model has. */
START_TEST(shape_of_few_layers_is_accepted)
{
    struct shape s;
    struct error error;
    ck_assert_msg(shape_named(&s, names[_i], &error) == 0, "%s: %s", names[_i], error.text);
    s.h.layers = s.h.dense_layers + 6;
    ck_assert_msg(shape_finish(&s, &error) == 0, "%s: %s", names[_i], error.text);
}
END_TEST

/* Skew and locality follow from the number of experts, unless they are given. */
START_TEST(routing_by_the_number_of_experts)
{
    static const char *const counts[] = {"experts=64", "experts=256"};
    double skew[2];
    struct shape s;
    struct error error;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(shape_named(&s, "olmoe-1b-7b", &error), 0);
        ck_assert_int_eq(shape_set(&s, counts[i], &error), 0);
        ck_assert_int_eq(shape_set(&s, "locality=0", &error), 0);
        ck_assert_int_eq(shape_finish(&s, &error), 0);
        skew[i] = s.skew;
        ck_assert_double_eq(s.locality, 0);
        ck_assert_double_eq(s.skew, (double)routing_law_of(s.h.experts, 8)->weights_skew);
    }
    ck_assert_double_lt(skew[0], skew[1]);
    ck_assert_uint_eq(routing_law_of(128, 4)->used, 2); /* a tie */
    ck_assert_uint_eq(routing_law_of(100, 8)->used, 6);
    ck_assert_uint_eq(routing_law_of(8, 2)->experts, 64);
    ck_assert_uint_eq(routing_law_of(512, 10)->experts, 256);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synth_shape");
    TCase *cases = tcase_create("shapes");
    tcase_add_loop_test(cases, shape_is_accepted, 0, (int)ARRAY_LEN(names));
    tcase_add_loop_test(cases, shape_of_few_layers_is_accepted, 0, (int)ARRAY_LEN(names));
    tcase_add_test(cases, routing_by_the_number_of_experts);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
