/* SPDX-License-Identifier: Apache-2.0 */
/* The newest prediction of each place, and what was then accessed. */
#include <check.h>
#include <stdlib.h>

#include "procs/engine/predictor/recall.h"

static enum recall_result asks(const struct recall *r, uint32_t place, uint32_t sequence,
                               uint32_t position, uint32_t layer, uint32_t expert)
{
    return recall_access(r, place, &(struct prediction_place){sequence, position, layer}, expert);
}

START_TEST(recall_compares_the_newest_prediction)
{
    struct error error;
    struct recall *r = recall_create(3, 8, &error);
    struct prediction_place target = {1, 5, 2}, other = {2, 5, 2};
    ck_assert_ptr_nonnull(r);
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 3), RECALL_NO_PREDICTION);
    recall_prediction(r, 0, &target, (const uint32_t[]){3, 7}, 2);
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 3), RECALL_HIT);
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 4), RECALL_MISS);
    ck_assert_int_eq(asks(r, 0, 1, 6, 2, 3), RECALL_NO_PREDICTION);
    ck_assert_int_eq(asks(r, 0, 2, 5, 2, 3), RECALL_NO_PREDICTION); /* the place's older sequence */
    ck_assert_int_eq(asks(r, 0, 1, 5, 1, 3), RECALL_NO_PREDICTION);
    ck_assert_int_eq(asks(r, 0, 1, 5, 99, 3), RECALL_NO_PREDICTION); /* out of range */
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 99), RECALL_NO_PREDICTION);
    recall_prediction(r, SEQUENCES_MAX - 1, &other, (const uint32_t[]){4}, 1);
    ck_assert_int_eq(asks(r, SEQUENCES_MAX - 1, 2, 5, 2, 4), RECALL_HIT);
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 3), RECALL_HIT); /* sequences have their own */
    target.position = 6;
    recall_prediction(r, 0, &target, (const uint32_t[]){4}, 1);
    ck_assert_int_eq(asks(r, 0, 1, 5, 2, 3), RECALL_NO_PREDICTION);
    ck_assert_int_eq(asks(r, 0, 1, 6, 2, 3), RECALL_MISS);
    recall_destroy(r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recall");
    TCase *c = tcase_create("recall");
    tcase_add_test(c, recall_compares_the_newest_prediction);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
