/* SPDX-License-Identifier: Apache-2.0 */
/* The cloze task of eval: its items, its answers, and what remains for the losses. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "procs/clients/eval/cloze.h"

#define WINDOW 8

/* Token t of window w is 100 w + t; the files have the numbers of windows given. */
static struct offline_text text_of(const uint32_t *files, size_t count)
{
    struct offline_text t = {.window = WINDOW};
    for (size_t f = 0; f < count; f++)
        t.windows += files[f];
    t.ids = calloc((size_t)t.windows * WINDOW, sizeof *t.ids);
    t.path = calloc(t.windows, sizeof *t.path);
    ck_assert(t.ids && t.path);
    for (uint32_t f = 0, w = 0; f < count; f++)
        for (uint32_t i = 0; i < files[f]; i++, w++) {
            t.path[w] = (uint16_t)f;
            for (uint32_t k = 0; k < WINDOW; k++)
                t.ids[(size_t)w * WINDOW + k] = 100 * w + k;
        }
    return t;
}

/* The window that a choice has its continuation from; its context must be the item's. */
static uint32_t continued_by(const struct offline_text *t, uint32_t item, uint32_t choice)
{
    const uint32_t *ids = offline_window(t, item * CLOZE_CHOICES + choice);
    uint32_t context = cloze_context(WINDOW), from = ids[context] / 100;
    for (uint32_t k = 0; k < WINDOW; k++)
        ck_assert_uint_eq(ids[k], (k < context ? 100 * item : 100 * from) + k);
    return from;
}

START_TEST(items_have_the_true_continuation_and_three_of_the_same_file)
{
    struct error error;
    struct offline_text t = text_of((const uint32_t[]){5, 8}, 2);
    uint64_t hash = t.hash;
    ck_assert_uint_eq(cloze_context(WINDOW), 6);
    ck_assert_int_eq(cloze_make(&t, &error), 0);
    ck_assert_uint_eq(t.windows, 13 * CLOZE_CHOICES);
    ck_assert_uint_ne(t.hash, hash);
    for (uint32_t i = 0; i < 13; i++) {
        uint32_t first = i < 5 ? 0 : 5, end = i < 5 ? 5 : 13, seen = 0;
        for (uint32_t c = 0; c < CLOZE_CHOICES; c++) {
            uint32_t from = continued_by(&t, i, c);
            ck_assert(from >= first && from < end);
            ck_assert_int_eq(from == i, c == cloze_place(i));
            ck_assert_uint_eq(t.path[i * CLOZE_CHOICES + c], i >= 5);
            seen |= 1u << from;
        }
        ck_assert_int_eq(__builtin_popcount(seen), CLOZE_CHOICES);
    }
    /* 8 windows: the others are 2, 4 and 6 further on, after the true one in its place */
    ck_assert_uint_eq(continued_by(&t, 6, 2), 6);
    ck_assert_uint_eq(continued_by(&t, 6, 3), 8);
    ck_assert_uint_eq(continued_by(&t, 6, 0), 10);
    ck_assert_uint_eq(continued_by(&t, 6, 1), 12);
    offline_text_free(&t);
}
END_TEST

START_TEST(short_files_are_rejected)
{
    struct error error;
    struct offline_text t = text_of((const uint32_t[]){6, 3}, 2);
    ck_assert_int_eq(cloze_make(&t, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_uint_eq(t.windows, 9); /* unchanged */
    offline_text_free(&t);
}
END_TEST

/* Four items: both right, only one of them right, neither but with the same answer. */
START_TEST(answers_are_judged)
{
    static const double measured[] = {1,      2, 3, 4, /**/ 5, 3, 4, 6,
                                      /**/ 1, 2, 3, 4, /**/ 9, 8, 7, 6};
    static const double reference[] = {1,      2, 3, 4, /**/ 5, 6, 4, 6,
                                       /**/ 3, 4, 1, 2, /**/ 9, 8, 7, 6};
    struct cloze_result r = cloze_judge(measured, reference, 4);
    ck_assert_double_eq(r.right, 0.75); /* items 0, 1, 3 */
    ck_assert_double_eq(r.reference_right, 0.75);
    ck_assert_double_eq(r.same, 0.5);
    /* one item won, one lost of four: sqrt(2) / 4 */
    ck_assert_double_eq_tol(r.high, 1.959964 * sqrt(2) / 4, 1e-9);
    ck_assert_double_eq_tol(r.low, -r.high, 1e-9);
}
END_TEST

START_TEST(a_tie_is_not_right)
{
    static const double measured[] = {2, 2, 3, 4}, reference[] = {2, 3, 3, 4};
    struct cloze_result r = cloze_judge(measured, reference, 1);
    ck_assert_double_eq(r.right, 0);
    ck_assert_double_eq(r.reference_right, 1); /* the tie is not among the best */
    static const double later[] = {3, 3, 2, 4};
    r = cloze_judge(later, later, 1);
    ck_assert_double_eq(r.right, 0); /* 2 is the best one alone, but in place 2 */
    ck_assert_double_eq(r.same, 1);
}
END_TEST

START_TEST(losses_keep_the_true_continuations)
{
    double nll[8] = {0, 1, 2, 3, 4, 5, 6, 7}, reference[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    float kld[16];
    uint32_t same[8] = {0, 1, 0, 1, 1, 2, 1, 1};
    for (int i = 0; i < 16; i++)
        kld[i] = (float)i;
    struct offline_losses l = {
        .windows = 8, .scored = 2, .nll = nll, .kld = kld, .same = same, .top1_same = 7};
    cloze_keep_true(&l, reference);
    ck_assert_uint_eq(l.windows, 2);
    ck_assert_double_eq(nll[0], 0); /* choice 0 of item 0, choice 1 of item 1 */
    ck_assert_double_eq(nll[1], 5);
    ck_assert_double_eq(reference[1], 15);
    ck_assert_float_eq(kld[2], 10);
    ck_assert_float_eq(kld[3], 11);
    ck_assert_uint_eq(l.top1_same, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cloze");
    TCase *tcase = tcase_create("cloze");
    tcase_add_test(tcase, items_have_the_true_continuation_and_three_of_the_same_file);
    tcase_add_test(tcase, short_files_are_rejected);
    tcase_add_test(tcase, answers_are_judged);
    tcase_add_test(tcase, a_tie_is_not_right);
    tcase_add_test(tcase, losses_keep_the_true_continuations);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
