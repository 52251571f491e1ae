/* SPDX-License-Identifier: Apache-2.0 */
/* Estimate and advice of doctor, for synthetic models and machines. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/tools/doctor/estimate.h"

/* 16 layers of 64 experts of 4 MiB, 8 used: 512 MiB of experts per token. */
static struct model_facts a_model(void)
{
    return (struct model_facts){
        .layers = 16,
        .expert_layers = 16,
        .experts_used = 8,
        .expert_count = 1024,
        .dense_read_bytes = 256 * MIB,
        .expert_bytes = 4 * GIB,
        .min_budget = 700 * MIB,
        .budget_25 = 1700 * MIB,
        .budget_50 = 2700 * MIB,
        .budget_75 = 3700 * MIB,
        .budget_100 = 4700 * MIB,
    };
}

/* 100 ms per token of decode, 5 ms of prefill, reads at 0.5 to 2 GiB/s, memory for everything. */
static struct host_facts a_host(void)
{
    return (struct host_facts){
        .decode_s = 0.1,
        .prefill_s = 0.005,
        .chunk_tokens = 256,
        .read_bytes_per_s = {0.5 * GIB, 1.0 * GIB, 1.5 * GIB, 1.75 * GIB, 2.0 * GIB},
        .chunk_bytes = 256 * KIB,
        .available = 64 * GIB,
        .shm_free = 64 * GIB,
        .io_uring = true,
        .vector_kernels = true,
    };
}

/* The engine takes a little longer than its core alone; nothing is read. */
START_TEST(resident_is_compute_alone)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e = estimate_make(&m, &a, 1);
    ck_assert(e.compute_s >= 0.1 && e.compute_s <= 0.12);
    ck_assert_double_eq(e.read_s, 0);
    ck_assert_double_eq(e.wait_s, 0);
    ck_assert_double_eq_tol(e.decode_tps, 1 / e.compute_s, 1e-9);
    ck_assert(e.prefill_tps <= 200 && e.prefill_tps >= 165);
    ck_assert_double_eq_tol(estimate_token_bytes(&m), 768.0 * MIB, 1);
}
END_TEST

/* Leading layers without experts read nothing and wait for nothing. */
START_TEST(layers_without_experts)
{
    struct model_facts m = a_model(), more = m;
    struct host_facts a = a_host();
    more.layers += 8;
    struct estimate e = estimate_make(&m, &a, 0.5), f = estimate_make(&more, &a, 0.5);
    ck_assert_double_eq(f.read_s, e.read_s);
    ck_assert_double_eq(f.wait_s, e.wait_s);
    ck_assert_double_eq(f.prefill_tps, e.prefill_tps);
    ck_assert_double_eq(estimate_token_bytes(&more), estimate_token_bytes(&m));
    ck_assert(f.compute_s > e.compute_s);
}
END_TEST

/* Reads as measured with 8 and 6 layers of published shapes: 0.19 to 0.23 and 0.41 to 0.46 of the
 * accesses (docs/doctor.md). */
START_TEST(misses_as_measured)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    ck_assert_double_eq_tol(estimate_make(&m, &a, 0.5).missing, 0.21, 0.03);
    ck_assert_double_eq_tol(estimate_make(&m, &a, 0.25).missing, 0.42, 0.04);
    ck_assert_double_eq_tol(estimate_make(&m, &a, 0).missing, 1, 1e-9);
}
END_TEST

/* Reads and compute overlap in part: the sum is slower, the longer one faster. */
START_TEST(reading_bounds_the_estimate)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    struct estimate e = estimate_make(&m, &a, 0.5);
    ck_assert_double_eq_tol(e.read_s, 128 * 4 * e.missing / 2048, 1e-6);
    ck_assert_double_gt(e.decode_tps, 1 / (e.compute_s + e.read_s + e.wait_s));
    ck_assert_double_lt(e.decode_tps, 1 / e.compute_s);
    struct estimate quarter = estimate_make(&m, &a, 0.25);
    ck_assert_double_lt(quarter.decode_tps, e.decode_tps);
    ck_assert_double_lt(quarter.prefill_tps, e.prefill_tps);
    /* A slow device decides alone. */
    for (int i = 0; i < ESTIMATE_DEPTHS; i++)
        a.read_bytes_per_s[i] = 0.01 * GIB;
    e = estimate_make(&m, &a, 0.5);
    ck_assert_double_eq_tol(e.decode_tps * e.read_s, 1, 0.01);
    double chunk_s = 256 / e.prefill_tps, whole_s = 4 / 0.01;
    ck_assert(chunk_s > 0.5 * whole_s && chunk_s < 0.8 * whole_s);
}
END_TEST

START_TEST(small_experts_read_at_small_depth)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    m.expert_bytes = m.expert_count * 128 * KIB; /* less than a chunk each */
    ck_assert_double_eq_tol(estimate_depth(&m, &a, 0.2), 1, 1e-12);
    ck_assert_double_eq_tol(estimate_depth(&m, &a, 3), 3, 1e-12);
    ck_assert_double_eq_tol(estimate_depth(&m, &a, 40), 16, 1e-12);
    m.expert_bytes = m.expert_count * MIB;
    ck_assert_double_eq_tol(estimate_depth(&m, &a, 1), 4, 1e-12);
    /* Between the bandwidths at 2 and 4. */
    m.expert_bytes = m.expert_count * 128 * KIB;
    struct estimate e = estimate_make(&m, &a, 0.25);
    double depth = 8 * e.missing, rate = (1.0 + (depth - 2) / 2 * 0.5) * GIB;
    ck_assert(depth > 2 && depth < 4);
    ck_assert_double_eq_tol(e.read_s, 16.0 * 8 * 128 * KIB * e.missing / rate, 1e-9);
    /* Many small reads cost more than their bytes. */
    ck_assert_double_gt(e.wait_s, e.read_s / 2);
}
END_TEST

/* Without measurements of storage device and core there is no estimate. */
START_TEST(unknown_stays_unknown)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    memset(a.read_bytes_per_s, 0, sizeof a.read_bytes_per_s);
    ck_assert_double_eq(estimate_make(&m, &a, 0.5).decode_tps, 0);
    ck_assert_double_eq(estimate_make(&m, &a, 0.5).prefill_tps, 0);
    ck_assert_double_gt(estimate_make(&m, &a, 1).decode_tps, 0);
    ck_assert_double_gt(estimate_make(&m, &a, 1).prefill_tps, 0);
    a.decode_s = a.prefill_s = 0;
    ck_assert_double_eq(estimate_make(&m, &a, 1).decode_tps, 0);
    ck_assert_double_eq(estimate_make(&m, &a, 1).prefill_tps, 0);
}
END_TEST

START_TEST(budget_is_the_largest_step_that_leaves_a_fifth)
{
    static const struct {
        uint64_t available, budget;
        double share;
    } cases[] = {
        {64 * GIB, 4700 * MIB, 1},      {5880 * MIB, 4700 * MIB, 1},
        {5870 * MIB, 3700 * MIB, 0.75}, {3400 * MIB, 2700 * MIB, 0.5},
        {2200 * MIB, 1700 * MIB, 0.25}, {2000 * MIB, 700 * MIB, 0},
        {700 * MIB, 700 * MIB, 0},      {699 * MIB, 0, 0},
    };
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double share = -1;
        a.available = cases[i].available;
        ck_assert_uint_eq(estimate_budget(&m, &a, &share), cases[i].budget);
        ck_assert_double_eq(share, cases[i].share);
    }
}
END_TEST

/* Each advice from the one fact that causes it; none without. */
START_TEST(advice_by_its_condition)
{
    struct model_facts m = a_model();
    struct host_facts a = a_host();
    ck_assert_uint_eq(advise(&m, &a), 0);
#define EXPECT(NAME, change)                                                                       \
    do {                                                                                           \
        a = a_host();                                                                              \
        change;                                                                                    \
        ck_assert_msg(advise(&m, &a) & 1u << ADVICE_##NAME, "no %s", #NAME);                       \
    } while (0)
#define EXPECT_NOT(NAME, change)                                                                   \
    do {                                                                                           \
        a = a_host();                                                                              \
        change;                                                                                    \
        ck_assert_msg(!(advise(&m, &a) & 1u << ADVICE_##NAME), "%s", #NAME);                       \
    } while (0)
    EXPECT(BUDGET_TOO_SMALL, a.available = m.min_budget - 1);
    EXPECT_NOT(BUDGET_TOO_SMALL, a.available = m.min_budget);
    EXPECT(MORE_MEMORY, a.available = 3 * GIB);
    EXPECT(CGROUP_LIMIT, (a.available = 3 * GIB, a.limited = true));
    EXPECT_NOT(CGROUP_LIMIT, a.limited = true);
    EXPECT(SHM_SMALL, a.shm_free = 4699 * MIB);
    EXPECT_NOT(SHM_SMALL, a.shm_free = 4700 * MIB);
    EXPECT(SCRATCH, a.scratch = true);
    EXPECT(IO_URING, a.io_uring = false);
    EXPECT(KERNELS, a.vector_kernels = false);
    EXPECT(SWAP, (a.swap = true, a.available = 3 * GIB));
    EXPECT_NOT(SWAP, a.swap = true);
    EXPECT(FREED_PAGES, (a.freed_pages = true, a.available = 3 * GIB));
    EXPECT_NOT(FREED_PAGES, a.freed_pages = true);
    /* 50 ms of reads, 112 ms of compute: the device is not the bottleneck. */
    EXPECT_NOT(FASTER_DEVICE, a.available = 3 * GIB);
    EXPECT_NOT(LOWER_PRECISION, a.available = 3400 * MIB);
    EXPECT(FASTER_DEVICE, (a.available = 3 * GIB, a.read_bytes_per_s[4] = 0.5 * GIB));
    EXPECT(LOWER_PRECISION, (a.available = 3 * GIB, a.read_bytes_per_s[4] = 0.5 * GIB));
#undef EXPECT
#undef EXPECT_NOT
}
END_TEST

START_TEST(every_advice_has_text)
{
    for (int i = 0; i < ADVICE__COUNT; i++) {
        ck_assert_uint_gt(strlen(advice_name((enum advice)i)), 3);
        ck_assert_uint_gt(strlen(advice_text((enum advice)i)), 20);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(advice_name((enum advice)i), advice_name((enum advice)j));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor");
    TCase *t = tcase_create("estimate");
    tcase_add_test(t, resident_is_compute_alone);
    tcase_add_test(t, layers_without_experts);
    tcase_add_test(t, misses_as_measured);
    tcase_add_test(t, reading_bounds_the_estimate);
    tcase_add_test(t, small_experts_read_at_small_depth);
    tcase_add_test(t, unknown_stays_unknown);
    tcase_add_test(t, budget_is_the_largest_step_that_leaves_a_fifth);
    tcase_add_test(t, advice_by_its_condition);
    tcase_add_test(t, every_advice_has_text);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
