/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions against the C library, whose errors are below 1 ulp. */
#include "lib/exact/elementary.h"

#include <check.h>
#include <math.h>

#include "lib/base/random.h"

enum { COUNT = 200000 };

static double ulps(double got, double want)
{
    double ulp = nextafter(fabs(want), INFINITY) - fabs(want);
    return fabs(got - want) / ulp;
}

START_TEST(exp_is_near)
{
    struct random random;
    random_seed(&random, 3, 1);
    for (int i = 0; i < COUNT; i++) {
        double x = random_unit(&random) * (i % 2 == 0 ? 2 : 1400) - (i % 2 == 0 ? 1 : 700);
        ck_assert_msg(ulps(exact_exp(x), exp(x)) <= 2, "exp(%a) is %a, not %a", x, exact_exp(x),
                      exp(x));
        x = -708.0 - random_unit(&random) * 38; /* subnormal results */
        ck_assert_msg(ulps(exact_exp(x), exp(x)) <= 2, "exp(%a)", x);
    }
    ck_assert_double_eq(exact_exp(0), 1);
    ck_assert_double_eq(exact_exp(-INFINITY), 0);
    ck_assert_double_eq(exact_exp(-1e5), 0);
    ck_assert(isinf(exact_exp(INFINITY)) && isinf(exact_exp(709.8)) && isnan(exact_exp(NAN)));
}
END_TEST

START_TEST(log_is_near)
{
    struct random random;
    random_seed(&random, 3, 2);
    for (int i = 0; i < COUNT; i++) {
        double x = exp(random_unit(&random) * (i % 2 == 0 ? 2 : 1400) - (i % 2 == 0 ? 1 : 700));
        double want = log(x), near_one = fabs(want) < 0.5 ? 0x1p-53 : 0;
        ck_assert_msg(fabs(exact_log(x) - want) <= 3 * fabs(want) * 0x1p-53 + near_one,
                      "log(%a) is %a, not %a", x, exact_log(x), want);
    }
    ck_assert_double_eq(exact_log(1), 0);
    ck_assert(ulps(exact_log(0x1p-1074), log(0x1p-1074)) <= 2);
    ck_assert(isinf(exact_log(INFINITY)) && isinf(exact_log(0)) && isnan(exact_log(-1)));
    ck_assert(isnan(exact_log(NAN)));
}
END_TEST

START_TEST(softplus_is_near)
{
    struct random random;
    random_seed(&random, 3, 4);
    for (int i = 0; i < COUNT; i++) {
        double x = (random_unit(&random) - 0.5) * (i % 2 == 0 ? 100 : 10), want = log1p(exp(x));
        ck_assert_msg(fabs(exact_softplus(x) - want) <= want * 1e-7, "softplus(%a) is %a, not %a",
                      x, exact_softplus(x), want);
    }
    ck_assert_double_eq(exact_softplus(-INFINITY), 0);
    ck_assert(isinf(exact_softplus(INFINITY)) && isnan(exact_softplus(NAN)));
}
END_TEST

START_TEST(sine_and_cosine_are_near)
{
    struct random random;
    random_seed(&random, 3, 3);
    for (int i = 0; i < COUNT; i++) {
        double x = (random_unit(&random) - 0.5) * (i % 3 == 0 ? 4 : i % 3 == 1 ? 1e4 : 0x1p21);
        double s, c;
        if (i % 5 == 0) /* near multiples of pi / 2 */
            x = rint(x) * 1.5707963267948966;
        x = fabs(x) > 0x1p20 ? 0x1p20 : x;
        exact_sin_cos(x, &s, &c);
        ck_assert_msg(fabs(s - sin(x)) <= 0x1p-51, "sin(%a) is %a, not %a", x, s, sin(x));
        ck_assert_msg(fabs(c - cos(x)) <= 0x1p-51, "cos(%a) is %a, not %a", x, c, cos(x));
    }
}
END_TEST

/* The same bits on every machine: these were computed once. A change of them is a change of the
 * arithmetic (lib/kernels/ARITHMETIC.md). */
START_TEST(bits_are_these)
{
    double s, c;
    exact_sin_cos(12345.678, &s, &c);
    ck_assert(exact_exp(-3.7) == 0x1.9511fc6871044p-6 && exact_log(1e6) == 0x1.ba18a998fffap+3);
    ck_assert(s == -0x1.687d5890974a5p-1 && c == 0x1.6b94c3bbe24b8p-1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exact.elementary");
    TCase *t = tcase_create("elementary");
    tcase_add_test(t, exp_is_near);
    tcase_add_test(t, log_is_near);
    tcase_add_test(t, softplus_is_near);
    tcase_add_test(t, sine_and_cosine_are_near);
    tcase_add_test(t, bits_are_these);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
