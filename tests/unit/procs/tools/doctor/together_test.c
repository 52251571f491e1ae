/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's estimate of several sequences (experts of a pass, tokens per second, how many fit), and
 * of one with many tokens. */
#include <check.h>
#include <math.h>

#include "lib/base/bytes.h"
#include "procs/tools/doctor/estimate.h"

/* By counting: the share of all pairs of choices of 2 of 4 experts that name an expert. */
START_TEST(union_of_random_choices)
{
    double sum = 0, pairs = 0;
    for (unsigned a = 0; a < 16; a++)
        for (unsigned b = 0; b < 16; b++)
            if (__builtin_popcount(a) == 2 && __builtin_popcount(b) == 2) {
                sum += __builtin_popcount(a | b);
                pairs++;
            }
    ck_assert_double_eq_tol(estimate_union(4, 2, 1), 2, 1e-9);
    ck_assert_double_eq_tol(estimate_union(4, 2, 2), sum / pairs, 1e-9);
    ck_assert_double_eq_tol(estimate_union(4, 2, 1000), 4, 1e-9);
}
END_TEST

/* 256 MiB dense and 512 MiB of experts per token; arithmetic for 20 rows in the time of one. */
START_TEST(together_by_hand)
{
    struct model_facts m = {.layers = 16,
                            .expert_layers = 16,
                            .experts_used = 8,
                            .expert_count = 1024,
                            .dense_read_bytes = 256 * MIB,
                            .expert_bytes = 4 * GIB};
    struct host_facts a = {.prefill_s = 0.005};
    struct estimate one = {.compute_s = 0.1, .decode_tps = 10};
    double two = 256 + 512 * (2 - 8.0 / 64);
    ck_assert_double_eq_tol(estimate_together(&m, &a, &one, 1), 10, 1e-9);
    ck_assert_double_eq_tol(estimate_together(&m, &a, &one, 2), 2 / (0.1 * two / 768), 1e-9);
    /* all experts, 16 rows: 0.1 s * (256 + 512 * 8 * (1 - (7/8)^16)) / 768 of memory are more than
     * 16 rows of 5 ms; with slower arithmetic these are */
    double all = 256 + 512 * 8 * (1 - pow(7.0 / 8, 16));
    ck_assert_double_eq_tol(estimate_together(&m, &a, &one, 16), 16 / (0.1 * all / 768), 1e-9);
    a.prefill_s = 0.05;
    ck_assert_double_eq_tol(estimate_together(&m, &a, &one, 16), 16 / (16 * 0.05), 1e-9);
    /* waiting grows with the experts */
    one.stall_s = 0.1;
    one.decode_tps = 5;
    ck_assert_double_eq_tol(estimate_together(&m, &a, &one, 2),
                            2 / (0.1 * two / 768 + 0.1 * (2 - 8.0 / 64)), 1e-9);
    one.decode_tps = 0;
    ck_assert_double_eq(estimate_together(&m, &a, &one, 2), 0);
}
END_TEST

/* After many tokens each one takes more, whatever is read besides. */
START_TEST(time_of_a_context)
{
    struct host_facts a = {.decode_s = 0.1};
    struct estimate one = {.compute_s = 0.1, .stall_s = 0.1, .decode_tps = 5};
    ck_assert_double_eq(estimate_in_context(&a, &one), 0);
    a.context_measured = 32768;
    a.context_s = 0.05;
    ck_assert_double_eq_tol(estimate_in_context(&a, &one), 4, 1e-9);
    one.decode_tps = 0;
    ck_assert_double_eq(estimate_in_context(&a, &one), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("doctor together");
    TCase *c = tcase_create("together");
    tcase_add_test(c, union_of_random_choices);
    tcase_add_test(c, together_by_hand);
    tcase_add_test(c, time_of_a_context);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
