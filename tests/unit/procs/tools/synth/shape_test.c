/* SPDX-License-Identifier: Apache-2.0 */
/* Every shape of the table is a model that its architecture accepts. */
#include <check.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
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

int main(void)
{
    Suite *suite = suite_create("synth_shape");
    TCase *cases = tcase_create("shapes");
    tcase_add_loop_test(cases, shape_is_accepted, 0, (int)ARRAY_LEN(names));
    tcase_add_loop_test(cases, shape_of_few_layers_is_accepted, 0, (int)ARRAY_LEN(names));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
