/* SPDX-License-Identifier: Apache-2.0 */
/* Activation matrices: which earlier sequence is matched, what it predicts, what a full collection
 * gives up. */
#include <check.h>
#include <string.h>

#include "lib/policy/prediction/activation.h"

#define LAYERS  4
#define EXPERTS 8

static struct activation *a;

static void setup(void)
{
    a = activation_create(LAYERS, EXPERTS);
    ck_assert_ptr_nonnull(a);
}

static void teardown(void)
{
    activation_destroy(a);
}

/* A sequence whose tokens access experts `first` and first + 1 in every layer, the first one twice
 * as often. */
static void sequence(uint32_t number, uint32_t first)
{
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t l = 0; l < LAYERS; l++)
            activation_access(a, number, l, (first + i % 3 / 2) % EXPERTS, 1);
}

static void whole(uint32_t number, uint32_t first)
{
    sequence(number, first);
    activation_sequence_ends(a, number);
}

static uint32_t predict(uint32_t number, uint32_t position, uint32_t layer, struct prediction *out)
{
    struct prediction_place now = {number, position, 0};
    return activation_predict(a, &now, layer, EXPERTS, 2, out);
}

START_TEST(without_earlier_sequences)
{
    struct prediction out[EXPERTS];
    ck_assert_uint_eq(predict(1, 0, 1, out), 0);
    sequence(1, 3);
    ck_assert_uint_eq(predict(1, 1, 1, out), 2);
    ck_assert_uint_eq(out[0].expert, 3);
    ck_assert_float_eq_tol(out[0].probability, 0.75f, 1e-6f); /* min(1, 2 * 4/6) * (1 - 1/4) */
    ck_assert_uint_eq(out[1].expert, 4);
    ck_assert_float_eq_tol(out[1].probability, 0.5f, 1e-6f); /* 2 * 2/6 * 3/4 */
}
END_TEST

START_TEST(the_similar_one_is_matched)
{
    struct prediction out[EXPERTS];
    whole(1, 0);
    whole(2, 4);
    whole(3, 2);
    activation_access(a, 4, 0, 4, 1); /* so far only layer 0 */
    ck_assert_uint_eq(predict(4, 7, 3, out), 2);
    ck_assert_uint_eq(out[0].expert, 4);
    ck_assert_float_eq_tol(out[0].probability, 0.25f, 1e-6f); /* three layers ahead */
    activation_access(a, 4, 0, 2, 5);
    ck_assert_uint_eq(predict(4, 7, 3, out), 2); /* the same position: the same match */
    ck_assert_uint_eq(out[0].expert, 4);
    ck_assert_uint_eq(predict(4, 8, 3, out), 2);
    ck_assert_uint_eq(out[0].expert, 2);
    struct prediction_place now = {4, 8, 0};
    ck_assert_uint_eq(activation_predict(a, &now, 3, 1, 2, out), 1);
}
END_TEST

/* Each running sequence has its matrix and its match; none ends because another one runs. */
START_TEST(sequences_that_alternate)
{
    struct prediction out[EXPERTS];
    whole(1, 0);
    whole(2, 4);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t number = 10; number < 12; number++) {
            activation_access(a, number, 0, number == 10 ? 0 : 4, 1);
            ck_assert_uint_eq(predict(number, i, 3, out), 2);
            ck_assert_uint_eq(out[0].expert, number == 10 ? 0 : 4);
        }
    activation_sequence_ends(a, 10);
    ck_assert_uint_eq(predict(10, 9, 3, out), 0);
    ck_assert_uint_eq(predict(11, 9, 3, out), 2);
    ck_assert_uint_eq(out[0].expert, 4);
}
END_TEST

/* More sequences than places, of which none ends: the oldest joins the collection. */
START_TEST(a_displaced_sequence_ends)
{
    struct prediction out[EXPERTS];
    for (uint32_t number = 1; number <= SEQUENCES_MAX + 1; number++)
        sequence(number, number == 1 ? 6 : 0);
    activation_access(a, 2, 0, 6, 100);
    ck_assert_uint_eq(predict(1, 0, 1, out), 0);
    ck_assert_uint_eq(predict(2, 0, 1, out), 2);
    ck_assert_uint_eq(out[0].expert, 6);
}
END_TEST

/* A full collection replaces the matrix with the largest similarity, so a rare sequence stays. */
START_TEST(a_full_collection_keeps_what_is_rare)
{
    struct prediction out[EXPERTS];
    whole(1, 6);
    for (uint32_t i = 2; i < 3 * ACTIVATION_MATRICES; i++)
        whole(i, i % 2);
    activation_access(a, 9999, 0, 7, 1);
    ck_assert_uint_eq(predict(9999, 0, 1, out), 2);
    ck_assert_uint_eq(out[0].expert, 6);
}
END_TEST

START_TEST(counts_do_not_overflow)
{
    struct prediction out[EXPERTS];
    for (uint32_t i = 0; i < 10; i++) {
        activation_access(a, 1, 1, 2, UINT32_MAX);
        activation_access(a, 1, 1, 5, 1);
    }
    ck_assert_uint_ge(predict(1, 0, 1, out), 1);
    ck_assert_uint_eq(out[0].expert, 2);
    ck_assert_uint_ge(activation_bytes(LAYERS, EXPERTS),
                      (ACTIVATION_MATRICES + SEQUENCES_MAX) * LAYERS * EXPERTS * sizeof(uint16_t));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("activation");
    TCase *c = tcase_create("activation");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, without_earlier_sequences);
    tcase_add_test(c, the_similar_one_is_matched);
    tcase_add_test(c, sequences_that_alternate);
    tcase_add_test(c, a_displaced_sequence_ends);
    tcase_add_test(c, a_full_collection_keeps_what_is_rare);
    tcase_add_test(c, counts_do_not_overflow);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
