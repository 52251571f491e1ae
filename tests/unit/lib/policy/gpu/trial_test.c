/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-policy auto: times that are given decide, and when they are measured again. */
#include <check.h>

#include "lib/policy/gpu/trial.h"

#define ALL   ((1u << GPU_POLICY__COUNT) - 1)
#define TRIAL (GPU_TRIAL_SLICE * GPU_TRIAL_SLICES * GPU_POLICY__COUNT)

/* So many tokens, each with the time of the policy that it has. */
static void tokens(struct gpu_trial *t, uint32_t count, const uint64_t ns[GPU_POLICY__COUNT],
                   uint64_t hits)
{
    for (uint32_t i = 0; i < count; i++)
        gpu_trial_token(t,
                        &(struct gpu_trial_token){.ns = ns[t->policy], .uses = 100, .hits = hits});
}

static enum gpu_policy choice(uint64_t a, uint64_t b, uint64_t c)
{
    struct gpu_trial t;
    gpu_trial_open(&t, ALL);
    ck_assert_int_eq(t.policy, GPU_CENTRIC);
    tokens(&t, TRIAL - 1, (const uint64_t[]){a, b, c}, 50);
    ck_assert_uint_eq(t.trials, 0);
    tokens(&t, 1, (const uint64_t[]){a, b, c}, 50);
    ck_assert_uint_eq(t.trials, 1);
    ck_assert_double_eq(t.token_ns[GPU_CENTRIC], (double)a);
    ck_assert_double_eq(t.token_ns[GPU_COOPERATIVE], (double)b);
    ck_assert_double_eq(t.token_ns[GPU_PREFETCH], (double)c);
    for (int i = 0; i < GPU_POLICY__COUNT; i++)
        ck_assert_uint_eq(t.tokens[i], GPU_TRIAL_SLICES * (GPU_TRIAL_SLICE - 1));
    return t.policy;
}

/* The names agree with --gpu-policy. */
START_TEST(names)
{
    ck_assert_str_eq(gpu_policy_name(GPU_CENTRIC), "gpu-centric");
    ck_assert_int_eq(gpu_policy_find("cooperative"), GPU_COOPERATIVE);
    ck_assert_int_eq(gpu_policy_find("prefetch"), GPU_PREFETCH);
    ck_assert_int_eq(gpu_policy_find("auto"), GPU_POLICY__COUNT);
}
END_TEST

START_TEST(the_fastest)
{
    ck_assert_int_eq(choice(100, 200, 300), GPU_CENTRIC);
    ck_assert_int_eq(choice(200, 100, 300), GPU_COOPERATIVE);
    ck_assert_int_eq(choice(300, 200, 100), GPU_PREFETCH);
}
END_TEST

/* Equal ones, and those that are hardly faster: the first of the list. */
START_TEST(ties)
{
    ck_assert_int_eq(choice(1000, 1000, 1000), GPU_CENTRIC);
    ck_assert_int_eq(choice(1000, 990, 985), GPU_CENTRIC);
    ck_assert_int_eq(choice(1000, 970, 960), GPU_COOPERATIVE);
    ck_assert_int_eq(choice(1000, 970, 940), GPU_PREFETCH);
}
END_TEST

/* A slow token in one slice of the fastest policy, and the first token of each slice, change
 * nothing. */
START_TEST(noise)
{
    struct gpu_trial t;
    gpu_trial_open(&t, ALL);
    for (uint32_t i = 0; i < TRIAL; i++) {
        bool first = i % GPU_TRIAL_SLICE == 0, slow = i == GPU_TRIAL_SLICE + 5;
        uint64_t ns = t.policy == GPU_COOPERATIVE ? 90 : 100;
        gpu_trial_token(&t, &(struct gpu_trial_token){.ns = first || slow ? 100000 : ns});
    }
    ck_assert_uint_eq(t.trials, 1);
    ck_assert_int_eq(t.policy, GPU_COOPERATIVE);
    ck_assert_double_eq(t.token_ns[GPU_COOPERATIVE], 90);
    ck_assert_double_eq(t.token_ns[GPU_CENTRIC], 100);
}
END_TEST

/* Nor does the token after a pass of several rows; a slice has enough tokens that are counted. */
START_TEST(other_passes)
{
    struct gpu_trial t;
    gpu_trial_open(&t, ALL);
    uint32_t n = 0;
    for (; t.trials == 0 && n < 100 * TRIAL; n++) {
        bool after = n % 2 == 0;
        if (after)
            gpu_trial_other(&t);
        uint64_t ns = t.policy == GPU_PREFETCH ? 50 : 60;
        gpu_trial_token(&t, &(struct gpu_trial_token){.ns = after ? 1 : ns});
    }
    ck_assert_uint_ge(n, TRIAL);
    ck_assert_uint_le(n, 2 * TRIAL);
    ck_assert_int_eq(t.policy, GPU_PREFETCH);
    ck_assert_double_eq(t.token_ns[GPU_PREFETCH], 50);
    ck_assert_double_eq(t.token_ns[GPU_CENTRIC], 60);
}
END_TEST

START_TEST(again)
{
    static const uint64_t before[] = {3, 1, 2}, after[] = {3, 2, 1};
    struct gpu_trial t;
    gpu_trial_open(&t, ALL);
    tokens(&t, TRIAL + GPU_TRIAL_AGAIN - 1, before, 50);
    ck_assert_int_eq(t.policy, GPU_COOPERATIVE);
    tokens(&t, 1, after, 50); /* and the trial begins */
    ck_assert_int_eq(t.policy, GPU_CENTRIC);
    tokens(&t, TRIAL, after, 50);
    ck_assert_uint_eq(t.trials, 2);
    ck_assert_int_eq(t.policy, GPU_PREFETCH);
}
END_TEST

/* Other hits: small changes begin no trial, large ones do. */
START_TEST(hits_change)
{
    static const uint64_t ns[] = {1, 1, 1};
    struct gpu_trial t;
    gpu_trial_open(&t, ALL);
    tokens(&t, TRIAL + GPU_TRIAL_WINDOW, ns, 50);
    tokens(&t, GPU_TRIAL_WINDOW, ns, 59);
    tokens(&t, TRIAL, ns, 59);
    ck_assert_uint_eq(t.trials, 1);
    tokens(&t, 2 * GPU_TRIAL_WINDOW, ns, 65);
    tokens(&t, TRIAL, ns, 65);
    ck_assert_uint_eq(t.trials, 2);
}
END_TEST

START_TEST(nothing_to_try)
{
    static const uint64_t ns[] = {1, 1, 1};
    struct gpu_trial t;
    gpu_trial_open(&t, 1u << GPU_CENTRIC);
    tokens(&t, 3 * GPU_TRIAL_AGAIN, ns, 50);
    ck_assert_int_eq(t.policy, GPU_CENTRIC);
    ck_assert_uint_eq(t.trials, 0);
    ck_assert_uint_eq(t.tokens[GPU_CENTRIC], 0);
    gpu_trial_open(&t, 1u << GPU_COOPERATIVE | 1u << GPU_PREFETCH);
    tokens(&t, TRIAL, (const uint64_t[]){1, 9, 8}, 50);
    ck_assert_int_eq(t.policy, GPU_PREFETCH);
    ck_assert_double_eq(t.token_ns[GPU_CENTRIC], 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gpu policies");
    TCase *c = tcase_create("gpu policies");
    tcase_add_test(c, names);
    tcase_add_test(c, the_fastest);
    tcase_add_test(c, ties);
    tcase_add_test(c, noise);
    tcase_add_test(c, other_passes);
    tcase_add_test(c, again);
    tcase_add_test(c, hits_change);
    tcase_add_test(c, nothing_to_try);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
