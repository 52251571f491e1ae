/* SPDX-License-Identifier: Apache-2.0 */
/* Tests means, medians and the bootstrap interval of a ratio. */
#include "lib/base/statistics.h"

#include <math.h>

#include "lib/base/random.h"
#include "tests/unit/lib/base/base_test.h"

START_TEST(few_numbers)
{
    const double x[] = {4, 1, 3, 2, 10};
    ck_assert_double_eq(statistics_mean(x, 5), 4);
    ck_assert_double_eq(statistics_median(x, 5), 3);
    ck_assert_double_eq(statistics_median(x, 4), 2.5);
    ck_assert_double_eq_tol(statistics_deviation(x, 5), sqrt(50 / 4.0), 1e-12);
    ck_assert_double_eq(statistics_deviation(x, 1), 0);
    ck_assert_double_eq(statistics_median(x, 0), 0);
}
END_TEST

/* The interval contains the ratio, is wide for scattered samples, and a point for equal ones. */
START_TEST(ratios)
{
    double a[40], b[40];
    struct random random;
    random_seed(&random, 1, 2);
    for (int i = 0; i < 40; i++) {
        b[i] = 10 + random_unit(&random);
        a[i] = 2 * b[i];
    }
    struct statistics_ratio r = statistics_ratio(a, b, 40);
    ck_assert_double_eq_tol(r.ratio, 2, 1e-12);
    ck_assert(r.low > 1.999 && r.high < 2.001);
    for (int i = 0; i < 40; i++)
        a[i] = b[i] * (1 + random_unit(&random));
    r = statistics_ratio(a, b, 40);
    ck_assert(r.low < r.ratio && r.ratio < r.high);
    ck_assert(r.low > 1 && r.high < 2 && r.high - r.low > 0.05);
    ck_assert_double_eq(statistics_ratio(a, b, 0).ratio, 0);
}
END_TEST

/* The generator matches the published xoshiro256++: first numbers from the state 1, 2, 3, 4. */
START_TEST(generator)
{
    struct random random = {{1, 2, 3, 4}};
    ck_assert_uint_eq(random_u64(&random), 41943041);
    ck_assert_uint_eq(random_u64(&random), 58720359);
    double sum = 0, squares = 0;
    random_seed(&random, 7, 0);
    for (int i = 0; i < 100000; i++) {
        double x = random_normal(&random);
        sum += x;
        squares += x * x;
        ck_assert(random_below(&random, 3) < 3);
    }
    ck_assert(fabs(sum / 1e5) < 0.02 && fabs(squares / 1e5 - 1) < 0.02);
}
END_TEST

Suite *statistics_suite(void)
{
    Suite *suite = suite_create("statistics");
    TCase *t = tcase_create("statistics");
    tcase_add_test(t, few_numbers);
    tcase_add_test(t, ratios);
    tcase_add_test(t, generator);
    suite_add_tcase(suite, t);
    return suite;
}
