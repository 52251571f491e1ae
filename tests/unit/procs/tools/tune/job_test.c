/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how much a tuning measures, the file that records it, and what makes a machine another
 * one. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procs/tools/tune/tune.h"

static struct tune t;
static struct error error;
static char dir[64];

static void setup(void)
{
    memset(&t, 0, sizeof t);
    snprintf(dir, sizeof dir, "/tmp/sluice-tune-job-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(t.job_path, sizeof t.job_path, "%s/job.json", dir);
    t.minutes = 60;
    t.window = 512;
    t.memory = 1 << 20;
    t.model_bytes = 1 << 30;
    t.job = (struct job){.fixed_s = 2,
                         .token_s = 0.001,
                         .late = 0.5,
                         .read_bytes_per_s = 1e9,
                         .encode_bytes_per_s = 1e8,
                         .expert_bytes = 1e9,
                         .layer_experts = 60,
                         .group = 8,
                         .groups = 13 * 8, /* 13 layers */
                         .importance_experts = 780,
                         .profile_id = 5,
                         .plan_id = 6,
                         .machine = {.cpu = "CPU \"A\"", .sample_bytes_per_s = 1e9}};
}

static void teardown(void)
{
    remove(t.job_path);
    ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(it_fits_into_the_minutes)
{
    static const struct {
        double fixed_s, token_s;
        int64_t minutes;
    } cases[] = {{2, 0.001, 60}, {0.1, 0.0001, 10}, {10, 0.002, 90}, {0, 0.01, 240}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stage_times times;
        t.minutes = cases[i].minutes;
        t.job.fixed_s = cases[i].fixed_s;
        t.job.token_s = cases[i].token_s;
        t.job.importance_experts = 800;
        job_choose(&t, 200000);
        job_times(&t, &times);
        ck_assert_msg(times.profile <= 0.51 * 60 * (double)t.minutes, "case %zu: %g s", i,
                      times.profile);
        ck_assert_msg(times.plan <= 0.41 * 60 * (double)t.minutes, "case %zu: %g s", i, times.plan);
        ck_assert(t.job.profile_tokens >= 8192 && t.job.plan_tokens >= 4096);
    }
}
END_TEST

static int systems_planned(void)
{
    int n = 0;
    while (n < TUNE_SYSTEMS && job_plans(&t, (enum tune_system)n))
        n++;
    return n;
}

/* 36 measurements of edgemoe, 24 of hobbit, 10 of fate, 28 of mixed-two, 72 of it with routing, and
 * 36 of drop, the last three only with all of the text: as many systems as there is time for with
 * the minimum of text, and all of the time for these. */
START_TEST(systems_are_planned_if_there_is_time)
{
    static const struct {
        double token_s;
        int systems;
        double passes;
    } cases[] = {{0.00014, 6, 206}, /* 6.6 s with half of all text: 22.5 of 24 minutes */
                 {0.00019, 5, 170}, /* 8.2 s with half of all text: 23.3 of 24 minutes */
                 {0.00037, 4, 98},  /* 14.1 s: 23.1 minutes; with both levers 40 */
                 {0.00055, 3, 70},  /* 20.0 s: 23.4 minutes */
                 {0.004, 3, 70},    /* 18.4 s with half of 8192 tokens: 21.5 of 24 minutes */
                 {0.005, 2, 60},    /* 22.5 s: 22.5 minutes; with fate 26.2 */
                 {0.0055, 1, 36}};  /* 24.5 s: with hobbit 24.5 minutes */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stage_times times;
        t.minutes = 60;
        t.job.fixed_s = 2;
        t.job.token_s = cases[i].token_s;
        job_choose(&t, 200000);
        job_times(&t, &times);
        double each = t.job.fixed_s + t.job.token_s * t.job.plan_tokens / 2;
        ck_assert_msg(systems_planned() == cases[i].systems && t.job.plan_tokens >= 8192,
                      "case %zu: %d systems with %g tokens", i, systems_planned(),
                      t.job.plan_tokens);
        ck_assert_msg(fabs(times.plan - cases[i].passes * each) < 1e-6 * times.plan &&
                          times.plan < 24 * 60 && times.plan > 22 * 60,
                      "case %zu: %g s", i, times.plan);
        ck_assert(job_swapmoe_s(&t) > 5 * each);
    }
    t.job.token_s = 0.05; /* the smallest amount */
    job_choose(&t, 200000);
    ck_assert(t.job.plan_tokens == 4096 && systems_planned() == 1);
    t.texts = 4; /* three windows of each */
    job_choose(&t, 200000);
    ck_assert(t.job.plan_tokens == 4 * 3 * 512 && systems_planned() == 1);
}
END_TEST

/* A measurement of importance takes that part of a pass that is after the layer that it changes. */
START_TEST(measurements_begin_late)
{
    struct stage_times whole, late;
    t.job.late = 1;
    job_choose(&t, 200000);
    job_times(&t, &whole);
    t.job.late = 0.5;
    job_times(&t, &late);
    double passes = (t.job.groups + t.job.importance_experts) *
                    (t.job.fixed_s + t.job.token_s * t.job.importance_tokens);
    ck_assert(fabs(whole.profile - late.profile - passes / 2) < 1e-6 * passes);
}
END_TEST

/* Groups are doubled until the smallest amount of text fits, up to whole layers. */
START_TEST(groups_are_as_small_as_time_allows)
{
    static const struct {
        double token_s, group, groups;
    } cases[] = {{0.001, 8, 104}, {0.03, 16, 52}, {0.06, 32, 26}, {0.12, 64, 13}, {10, 64, 13}};
    const struct job was = t.job;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t.job = was;
        t.job.token_s = cases[i].token_s;
        job_choose(&t, 200000);
        ck_assert_msg(t.job.group == cases[i].group && t.job.groups == cases[i].groups,
                      "case %zu: %g groups of %g", i, t.job.groups, t.job.group);
        ck_assert_int_eq(job_write(&t, &error), 0);
        ck_assert_int_eq(job_read(&t), JOB_GOOD);
    }
}
END_TEST

/* The machine is four times as slow as it was measured: the plan gets what the minutes leave, and
 * still fits. About as fast: nothing changes. Twice as fast: more text. */
START_TEST(a_slow_profile_leaves_a_smaller_plan)
{
    struct stage_times times, now;
    t.job.token_s = 0.002;
    job_choose(&t, 200000);
    job_times(&t, &times);
    const struct job was = t.job;
    double others = times.pack + times.confirm, all = 3600;
    ck_assert(
        !job_replan(&t, t.job.importance_experts, 1.2 * times.profile, all - 1.2 * times.profile));
    ck_assert_mem_eq(&t.job, &was, sizeof was);

    double took = all * 0.8, left = all - took;
    ck_assert(job_replan(&t, t.job.importance_experts, took, left));
    job_times(&t, &now);
    ck_assert_msg(now.plan <= left - others && now.plan > 0.3 * (left - others),
                  "%g s for the plan, %g s left", now.plan, left);
    ck_assert(t.job.plan_tokens < was.plan_tokens && t.job.plan_tokens >= 4096);
    ck_assert(fabs(t.job.token_s / was.token_s - took / times.profile) < 1e-9);
    ck_assert_int_eq(job_write(&t, &error), 0);
    ck_assert_int_eq(job_read(&t), JOB_GOOD);

    t.job = was;
    ck_assert(job_replan(&t, t.job.importance_experts, times.profile / 2, all - times.profile / 2));
    ck_assert(t.job.plan_tokens > was.plan_tokens);
    job_times(&t, &now);
    ck_assert(now.plan <= all - times.profile / 2 - others);
}
END_TEST

/* The end of the profile is set: on a slow machine it measures fewer experts alone, and takes as
 * long as planned. */
START_TEST(a_profile_that_was_cut_is_a_slow_one)
{
    struct stage_times times;
    t.job.token_s = 0.002;
    job_choose(&t, 200000);
    job_times(&t, &times);
    const struct job was = t.job;
    double each = was.late * (was.fixed_s + was.token_s * was.importance_tokens);
    double others = times.profile - was.importance_experts * each;
    double took = times.profile, few = floor(was.importance_experts / 10);
    double expected = others + few * each;
    ck_assert_msg(took > 1.3 * expected, "%g of %g s", expected, took);
    ck_assert(job_replan(&t, few, took, 3600 - took));
    ck_assert(fabs(t.job.token_s / was.token_s - took / expected) < 1e-9);
    t.job = was;
    ck_assert(!job_replan(&t, was.importance_experts, took, 3600 - took));
}
END_TEST

/* 36 measurements took 360 s: hobbit's 24 take 240 s, and pack and the measured run come after
 * them. */
START_TEST(a_slow_system_leaves_no_time_for_the_next)
{
    struct stage_times times;
    job_choose(&t, 200000);
    job_times(&t, &times);
    double others = times.pack + times.confirm;
    ck_assert(job_has_time(&t, TUNE_HOBBIT, TUNE_EDGEMOE, 360, others + 241));
    ck_assert(!job_has_time(&t, TUNE_HOBBIT, TUNE_EDGEMOE, 360, others + 239));
    ck_assert(job_has_time(&t, TUNE_FATE, TUNE_EDGEMOE, 360, others + 101));
    ck_assert(!job_has_time(&t, TUNE_FATE, TUNE_HOBBIT, 240, others + 99));
}
END_TEST

/* However slow the machine is, the time for importance is a part of half of the minutes. */
START_TEST(importance_ends_in_time)
{
    t.job.token_s = 10;
    job_choose(&t, 200000);
    ck_assert(job_importance_s(&t) < 0.5 * 3600 && job_importance_s(&t) > 0.1 * 3600);
}
END_TEST

/* They become options of programs: whole numbers, and windows. */
START_TEST(sizes_are_whole)
{
    static const uint64_t tokens[] = {8 * 512 + 512, 5 * 1025, 65535, 200001, 4100};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        t.job.token_s = 0.1; /* the smallest amount */
        t.job.importance_experts = 800;
        job_choose(&t, tokens[i]);
        ck_assert_msg(floor(t.job.importance_tokens) == t.job.importance_tokens, "%g tokens",
                      t.job.importance_tokens);
        ck_assert(fmod(t.job.profile_tokens, 512) == 0 && t.job.profile_tokens > 0);
        ck_assert(fmod(t.job.plan_tokens, 512) == 0 && t.job.plan_tokens > 0);
        ck_assert(floor(t.job.importance_experts) == t.job.importance_experts);
        ck_assert_int_eq(job_write(&t, &error), 0);
        ck_assert_int_eq(job_read(&t), JOB_GOOD);
    }
}
END_TEST

/* A profile has a window at least; windows that leave nothing to plan on, or to test with, are
 * found before anything is measured. */
START_TEST(large_windows)
{
    static const struct {
        int64_t window;
        size_t texts;
        bool enough;
    } cases[] = {{8192, 1, true},   {16384, 1, true}, {32768, 1, false}, {65536, 1, false},
                 {8192, 4, true},   {10000, 4, true}, {16384, 4, false}, {16384, 2, true},
                 {20000, 2, false}, {2048, 1, true}};
    t.job.token_s = 0.1; /* the smallest amount */
    const struct job was = t.job;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        t.job = was;
        t.window = cases[i].window;
        t.texts = cases[i].texts;
        ck_assert_msg(job_has_windows(&t, 1000000) == cases[i].enough, "case %zu", i);
        job_choose(&t, 1000000);
        ck_assert_msg(t.job.profile_tokens >= (double)t.window, "case %zu: %g tokens", i,
                      t.job.profile_tokens);
        ck_assert_msg(!cases[i].enough || job_has_windows(&t, (uint64_t)t.job.plan_tokens),
                      "case %zu: a plan with %g tokens", i, t.job.plan_tokens);
    }
}
END_TEST

START_TEST(what_is_written_is_read)
{
    ck_assert_int_eq(job_read(&t), JOB_NONE);
    job_choose(&t, 200000);
    struct job was = t.job;
    ck_assert_msg(job_write(&t, &error) == 0, "%s", error.text);
    memset(&t.job, 0, sizeof t.job);
    ck_assert_int_eq(job_read(&t), JOB_GOOD);
    ck_assert_mem_eq(&t.job, &was, sizeof was);
}
END_TEST

static void change(const char *from, const char *to)
{
    char text[4096], out[8192];
    FILE *f = fopen(t.job_path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    ck_assert_int_eq(fclose(f), 0);
    char *at = strstr(text, from);
    ck_assert_msg(at, "'%s' is not in %s", from, text);
    size_t tail = strcspn(at, "\n"); /* a whole line */
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + tail);
    f = fopen(t.job_path, "w");
    ck_assert(f && fputs(out, f) >= 0 && fclose(f) == 0);
}

START_TEST(damaged_files)
{
    static const char *const cases[][2] = {
        {"{", ""},
        {"{", "["},
        {"\"fixed_s\"", "\"fixed_s\": -1,"},
        {"\"fixed_s\"", "\"fixed_s\": \"2\","},
        {"\"token_s\"", "\"token_s\": 0,"},
        {"\"late\"", "\"late\": 1.5,"},
        {"\"groups\"", "\"groups\": 0,"},
        {"\"groups\"", "\"groups\": 1e18,"},
        {"\"group\"", "\"group\": 0,"},
        {"\"layer_experts\"", "\"layer_experts\": 1.5,"},
        {"\"profile_tokens\"", "\"profile_tokens\": 0,"},
        {"\"profile_tokens\"", "\"profile_tokens\": 1000,"},
        {"\"plan_tokens\"", "\"plan_tokens\": 8192.5,"},
        {"\"plan_tokens\"", "\"plan_tokens\": 1e300,"},
        {"\"importance_tokens\"", "\"importance_tokens\": 512.5,"},
        {"\"importance_experts\"", "\"importance_experts\": 1e9,"},
        {"\"plan_id\"", "\"other\": 1,"},
        {"\"cpu\"", "\"cpu\": 7"},
        {"\"cpu\"",
         "\"cpu\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""},
    };
    job_choose(&t, 200000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job was = t.job;
        ck_assert_msg(job_write(&t, &error) == 0, "%s", error.text);
        change(cases[i][0], cases[i][1]);
        ck_assert_msg(job_read(&t) == JOB_DAMAGED, "%s is read", cases[i][1]);
        ck_assert_msg(t.job.groups == 0, "%s: a part of it is used", cases[i][1]);
        t.job = was;
    }
    ck_assert_int_eq(truncate(t.job_path, 0), 0);
    ck_assert_int_eq(job_read(&t), JOB_DAMAGED);
    ck_assert_int_eq(truncate(t.job_path, 1 << 20), 0);
    ck_assert_int_eq(job_read(&t), JOB_DAMAGED);
    ck_assert_int_eq(unlink(t.job_path), 0);
    ck_assert_int_eq(mkfifo(t.job_path, 0600), 0); /* does not wait for a writer */
    ck_assert_int_eq(job_read(&t), JOB_DAMAGED);
}
END_TEST

START_TEST(a_profile_is_kept)
{
    struct job now = {.profile_tokens = 1, .importance_tokens = 2, .plan_tokens = 3, .plan_id = 9};
    job_choose(&t, 200000);
    job_keep_profile(&now, &t.job);
    ck_assert(now.profile_tokens == t.job.profile_tokens && now.profile_id == 5);
    ck_assert(now.importance_tokens == t.job.importance_tokens);
    ck_assert(now.importance_experts == t.job.importance_experts);
    ck_assert(now.group == 8 && now.groups == t.job.groups);
    ck_assert(now.plan_tokens == 3 && now.plan_id == 9);
}
END_TEST

START_TEST(another_machine)
{
    struct machine a = {.cpu = "A", .sample_bytes_per_s = 1e9}, b = a;
    ck_assert_ptr_null(machine_difference(&a, &b));
    b.sample_bytes_per_s = 3e9;
    ck_assert_ptr_null(machine_difference(&a, &b));
    b.sample_bytes_per_s = 5e9;
    ck_assert_str_eq(machine_difference(&a, &b), "another speed of the storage device");
    ck_assert_str_eq(machine_difference(&b, &a), "another speed of the storage device");
    b.sample_bytes_per_s = 0; /* unknown */
    ck_assert_ptr_null(machine_difference(&a, &b));
    strcpy(b.cpu, "B");
    ck_assert_str_eq(machine_difference(&a, &b), "another CPU");
    b.cpu[0] = 0;
    ck_assert_ptr_null(machine_difference(&a, &b));
}
END_TEST

START_TEST(a_program_leaves_memory_for_tune)
{
    t.memory = (uint64_t)4 << 30;
    uint64_t child = memory_of_child(&t);
    ck_assert(child % (1 << 20) == 0 && child < t.memory && child > t.memory - (t.memory >> 4));
    t.memory = 1 << 20; /* less than tune has */
    ck_assert_uint_eq(memory_of_child(&t), t.memory);
}
END_TEST

/* --domain: one text of several. */
START_TEST(domain_is_one_text)
{
    static const char *const texts[] = {"/a/prose.txt", "code.txt", "/b/other"};
    static const struct {
        const char *name;
        int kept; /* -1: an error */
    } cases[] = {{"prose", 0}, {"code.txt", 1}, {"other", 2}, {"pro", -1}, {"a", -1}, {"", -1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tune tuned = {.domain = cases[i].name, .texts = ARRAY_LEN(texts)};
        memcpy(tuned.text, texts, sizeof texts);
        int status = calibration_find(&tuned, &error);
        ck_assert_int_eq(status, cases[i].kept < 0 ? -1 : 0);
        if (status != 0)
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        else
            ck_assert(tuned.texts == 1 && tuned.text[0] == texts[cases[i].kept]);
    }
}
END_TEST

/* What a record states about it can be written. */
START_TEST(domain_of_a_record)
{
    static const char *const cases[][2] = {{NULL, ""}, {"prose", "prose"}, {"a\n\xff b", "a?? b"}};
    char name[2 * TUNINGS_DOMAIN_BYTES], domain[TUNINGS_DOMAIN_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        calibration_domain(&(struct tune){.domain = cases[i][0]}, domain);
        ck_assert_str_eq(domain, cases[i][1]);
    }
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    calibration_domain(&(struct tune){.domain = name}, domain);
    ck_assert_uint_eq(strlen(domain), sizeof domain - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune_job");
    TCase *tests = tcase_create("job");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, it_fits_into_the_minutes);
    tcase_add_test(tests, systems_are_planned_if_there_is_time);
    tcase_add_test(tests, measurements_begin_late);
    tcase_add_test(tests, groups_are_as_small_as_time_allows);
    tcase_add_test(tests, a_slow_profile_leaves_a_smaller_plan);
    tcase_add_test(tests, a_profile_that_was_cut_is_a_slow_one);
    tcase_add_test(tests, a_slow_system_leaves_no_time_for_the_next);
    tcase_add_test(tests, importance_ends_in_time);
    tcase_add_test(tests, sizes_are_whole);
    tcase_add_test(tests, large_windows);
    tcase_add_test(tests, what_is_written_is_read);
    tcase_add_test(tests, damaged_files);
    tcase_add_test(tests, a_profile_is_kept);
    tcase_add_test(tests, another_machine);
    tcase_add_test(tests, a_program_leaves_memory_for_tune);
    tcase_add_test(tests, domain_is_one_text);
    tcase_add_test(tests, domain_of_a_record);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
