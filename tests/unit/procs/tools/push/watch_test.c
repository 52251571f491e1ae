/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long a request may be silent, with times that pass at once. */
#include <check.h>
#include <stdlib.h>

#include "procs/tools/push/watch.h"

#define S(seconds) ((uint64_t)(seconds)*NS_PER_S)

START_TEST(a_body_must_move)
{
    struct watch w;
    watch_start(&w, false, S(5));
    ck_assert(!watch_look(&w, 10, false, S(6)));
    ck_assert(!watch_look(&w, 10, false, S(66)));
    ck_assert(watch_look(&w, 10, false, S(67)));
    for (unsigned i = 0; i < 100; i++) /* slowly, but it does */
        ck_assert(!watch_look(&w, 11 + i, false, S(100 + 50 * i)));
}
END_TEST

/* nginx copies what it has received; S3 puts parts together. */
START_TEST(a_server_may_be_silent_behind_a_body)
{
    struct watch w;
    watch_start(&w, false, S(0));
    ck_assert(!watch_look(&w, 100, false, S(10)));
    ck_assert(!watch_look(&w, 200, true, S(20)));
    ck_assert(!watch_look(&w, 200, true, S(300)));
    ck_assert(!watch_look(&w, 200, true, S(900)));
    ck_assert(watch_look(&w, 200, true, S(921)));
}
END_TEST

START_TEST(a_trickle_ends)
{
    for (int reads = 0; reads < 2; reads++) {
        struct watch w;
        unsigned at = 0;
        watch_start(&w, reads == 1, S(0));
        while (at < 2000 && !watch_look(&w, 100 + at, true, S(at)))
            at++;
        ck_assert_uint_ge(at, 900);
        ck_assert_uint_lt(at, 910);
    }
}
END_TEST

START_TEST(a_question_is_answered_soon)
{
    struct watch w;
    watch_start(&w, true, S(0));
    ck_assert(!watch_look(&w, 0, true, S(60)));
    ck_assert(watch_look(&w, 0, true, S(61)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("push watch");
    TCase *cases = tcase_create("watch");
    tcase_add_test(cases, a_body_must_move);
    tcase_add_test(cases, a_server_may_be_silent_behind_a_body);
    tcase_add_test(cases, a_trickle_ends);
    tcase_add_test(cases, a_question_is_answered_soon);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
