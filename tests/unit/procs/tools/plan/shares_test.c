/* SPDX-License-Identifier: Apache-2.0 */
/* Precision shares of --shares: parsing, assignment, thresholds. The oracles count the results. */
#include <check.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/tensor/precision.h"
#include "procs/tools/plan/shares.h"

static const struct {
    const char *text;
    double of[PRECISION__COUNT + 1];
    const char *line; /* part of the error message */
} parses[] = {
    {"int4=0.8,int2=0.2", {0, 0, 0.8, 0.2, 0}, NULL},
    {"int4=60%,int2=40%", {0, 0, 0.6, 0.4, 0}, NULL},
    {"native=0,int2=0.25,skip=0.25", {0.5, 0, 0, 0.25, 0.25}, NULL}, /* the rest: highest */
    {"int8=1", {0, 1, 0, 0, 0}, NULL},
    {"", {0}, "needs a precision"},
    {"skip=1", {0}, "needs a precision"},
    {"int4=0.8,int2=0.3", {0}, "at most 1"},
    {"int4=0.8,int4=0.1", {0}, "once each"},
    {"int3=0.8", {0}, "'int3'"},
    {"int4", {0}, "'int4'"},
    {"int4=x", {0}, "'x' is not a share"},
    {"int4=-0.1", {0}, "'-0.1' is not a share"},
    {"int4=nan", {0}, "'nan' is not a share"},
};

START_TEST(parse)
{
    struct shares s;
    struct error error = {0};
    int status = shares_parse(&s, parses[_i].text, &error);
    ck_assert_int_eq(status, parses[_i].line ? -1 : 0);
    if (parses[_i].line)
        ck_assert_msg(strstr(error.text, parses[_i].line) != NULL, "message: %s", error.text);
    for (int i = 0; !parses[_i].line && i <= PRECISION__COUNT; i++)
        ck_assert_double_eq_tol(s.of[i], parses[_i].of[i], 1e-9);
}
END_TEST

START_TEST(precisions_have_the_shares)
{
    enum { CELLS = 640 };
    const struct shares s = {.of = {0, 0.1, 0.55, 0.35, 0}};
    uint8_t a[CELLS], b[CELLS], c[CELLS];
    unsigned count[PRECISION__COUNT] = {0}, first_half = 0;
    shares_deal(&s, 1, a, CELLS);
    shares_deal(&s, 1, b, CELLS);
    shares_deal(&s, 2, c, CELLS);
    ck_assert_int_eq(memcmp(a, b, CELLS), 0);
    ck_assert_int_ne(memcmp(a, c, CELLS), 0);
    for (int i = 0; i < CELLS; i++) {
        count[a[i]]++;
        first_half += i < CELLS / 2 && a[i] == PRECISION_INT2;
    }
    ck_assert_uint_eq(count[PRECISION_NATIVE], 0);
    ck_assert_uint_eq(count[PRECISION_INT8], 64);
    ck_assert_uint_eq(count[PRECISION_INT4], 352);
    ck_assert_uint_eq(count[PRECISION_INT2], 224);
    ck_assert(first_half > 80 && first_half < 144); /* drawn, not in a block */
}
END_TEST

START_TEST(pairs)
{
    struct shares s = {.of = {0.5, 0, 0, 0.4, 0.1}};
    struct error error = {0};
    enum precision high, low;
    ck_assert_int_eq(shares_pair(&s, &high, &low, &error), 0);
    ck_assert(high == PRECISION_NATIVE && low == PRECISION_INT2);
    s = (struct shares){.of = {0, 0, 1, 0, 0}};
    ck_assert_int_eq(shares_pair(&s, &high, &low, &error), 0);
    ck_assert(high == PRECISION_INT4 && low == PRECISION_INT4);
    s = (struct shares){.of = {0.3, 0.3, 0.4, 0, 0}};
    ck_assert_int_eq(shares_pair(&s, &high, &low, &error), -1);
}
END_TEST

START_TEST(thresholds_have_the_shares)
{
    enum { ACCESSES = 4000 };
    float before[ACCESSES];
    double t1, t2, got[3];
    struct random random;
    random_seed(&random, 5, 0);
    for (int i = 0; i < ACCESSES; i++) /* a quarter is of rank 0 */
        before[i] = i % 4 == 0 ? 0 : (float)random_unit(&random);
    shares_thresholds(before, ACCESSES, 0.5, 0.4, &t1, &t2, got);
    ck_assert_double_eq_tol(got[0], 0.5, 0.001);
    ck_assert_double_eq_tol(got[1], 0.4, 0.001);
    ck_assert_double_eq_tol(got[2], 0.1, 0.001);
    unsigned high = 0;
    for (int i = 0; i < ACCESSES; i++)
        high += (double)before[i] <= t1;
    ck_assert_double_eq_tol((double)high / ACCESSES, got[0], 1e-9);
    ck_assert(t1 <= t2 && t2 < 1);
    /* rank 0 is the minimum of high; high and low together cover all accesses */
    shares_thresholds(before, ACCESSES, 0.1, 0.9, &t1, &t2, got);
    ck_assert_double_eq_tol(t1, 0, 1e-9);
    ck_assert_double_eq_tol(got[0], 0.25, 0.001);
    ck_assert_double_eq_tol(got[1], 0.75, 0.001);
    ck_assert_double_eq_tol(t2, 1, 1e-9);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shares");
    TCase *c = tcase_create("shares");
    tcase_add_loop_test(c, parse, 0, (int)(sizeof parses / sizeof *parses));
    tcase_add_test(c, precisions_have_the_shares);
    tcase_add_test(c, pairs);
    tcase_add_test(c, thresholds_have_the_shares);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
