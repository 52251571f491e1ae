/* SPDX-License-Identifier: Apache-2.0 */
/* The first lines of doctor, for every case that a machine may be. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/tools/doctor/doctor.h"

#define LINES 5

/* A machine with 16 GiB, on which half of the experts of a model of 20 GiB fit. */
static struct model_facts model;
static struct host_facts host;
static struct estimate estimates[ESTIMATE_SHARES];
static struct verdict verdict;
static struct findings f;

static void setup(void)
{
    model = (struct model_facts){.layers = 24,
                                 .expert_layers = 24,
                                 .experts_used = 4,
                                 .expert_count = 24 * 64,
                                 .expert_bytes = 20 * GIB,
                                 .dense_read_bytes = 400 * MIB,
                                 .min_budget = 3 * GIB,
                                 .budget_25 = 7 * GIB,
                                 .budget_50 = 12 * GIB,
                                 .budget_75 = 17 * GIB,
                                 .budget_100 = 22 * GIB};
    host = (struct host_facts){.available = 16 * GIB,
                               .shm_free = 16 * GIB,
                               .decode_s = 0.05,
                               .stream_bytes_per_s = 200e9,
                               .chunk_bytes = 2 * MIB};
    for (size_t i = 0; i < ESTIMATE_SHARES; i++)
        estimates[i] = (struct estimate){.share = 0.25 * (double)(i + 1),
                                         .compute_s = 0.05,
                                         .stall_s = 0.15 - 0.05 * (double)i,
                                         .decode_tps = 5 + 5 * (double)i,
                                         .prefill_tps = 50 + 50 * (double)i};
    verdict = (struct verdict){.path = "model.gguf",
                               .model = &model,
                               .host = &host,
                               .estimates = estimates,
                               .ctx_size = 4096,
                               .reads_known = true};
    findings_open(&f);
}

static void teardown(void)
{
    findings_close(&f);
}

static json_t *field(const char *name)
{
    return json_object_get(json_object_get(f.root, "verdict"), name);
}

static void check_lines(const char *const wanted[LINES])
{
    const json_t *lines = field("lines");
    ck_assert_uint_eq(json_array_size(lines), LINES);
    for (size_t i = 0; i < LINES; i++) {
        const char *line = json_string_value(json_array_get(lines, i));
        ck_assert_msg(!wanted || strcmp(line, wanted[i]) == 0, "'%s' instead of '%s'", line,
                      wanted ? wanted[i] : "");
        ck_assert_msg(strlen(line) <= 80, "%zu columns: %s", strlen(line), line);
    }
}

START_TEST(half_of_the_experts_fit)
{
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     yes, with 50 % of its 20.0 GiB of experts in memory (16.0 GiB free)",
        "budget   12.0 GiB recommended; minimum 3.0 GiB, all experts need 22.0 GiB",
        "speed    about 10 tokens/s; a prompt of 500 tokens takes about 5.0 s",
        "limit    storage: reads take 67 % of the time; more memory would help",
        "next     sluice repl -m model.gguf --budget 12.0GiB"});
    ck_assert(json_is_true(field("fits")));
    ck_assert_int_eq(json_integer_value(field("budget_bytes")), 12 * GIB);
    ck_assert_double_eq(json_number_value(field("decode_tps")), 10);
    ck_assert_double_eq(json_number_value(field("prompt_500_s")), 5);
    ck_assert_str_eq(json_string_value(field("limit")), "storage");
}
END_TEST

START_TEST(everything_fits)
{
    host.available = host.shm_free = 64 * GIB;
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     yes, with all of its 20.0 GiB of experts in memory",
        "budget   22.0 GiB recommended, for all experts; minimum 3.0 GiB",
        "speed    about 20 tokens/s; a prompt of 500 tokens takes about 2.5 s",
        "limit    the CPU: computing takes all of the time, nothing is read",
        "next     sluice repl -m model.gguf --budget 22.0GiB"});
}
END_TEST

/* The memory bandwidth limits where the weights are read at most of it. */
START_TEST(bandwidth_limits)
{
    host.available = host.shm_free = 64 * GIB;
    host.stream_bytes_per_s = estimate_token_bytes(&model) / host.decode_s / 0.8;
    verdict_model(&f, &verdict);
    ck_assert_str_eq(
        json_string_value(json_array_get(field("lines"), 3)),
        "limit    memory bandwidth: computing uses 80 % of it; faster memory would help");
}
END_TEST

/* Without a measured device nothing is known of a share: no figure of 22676927980 ms. */
START_TEST(without_a_storage_device)
{
    for (size_t i = 0; i + 1 < ESTIMATE_SHARES; i++)
        estimates[i] = (struct estimate){.share = estimates[i].share};
    verdict.reads_known = false;
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     yes, with 50 % of its 20.0 GiB of experts in memory (16.0 GiB free)",
        "budget   12.0 GiB recommended; minimum 3.0 GiB, all experts need 22.0 GiB",
        "speed    unknown, because storage was not measured (--no-device)",
        "limit    unknown, like the speed", "next     sluice repl -m model.gguf --budget 12.0GiB"});
    ck_assert(json_is_null(field("decode_tps")) && json_is_null(field("prompt_500_s")));
}
END_TEST

START_TEST(it_does_not_fit)
{
    host.available = 2 * GIB;
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     no: it needs at least 3.0 GiB, and 2.0 GiB are available",
        "budget   none; minimum 3.0 GiB, all experts need 22.0 GiB", "speed    unknown",
        "limit    memory: free or add some, or use a smaller --ctx-size",
        "next     sluice doctor -m model.gguf --ctx-size 2048"});
    ck_assert(json_is_false(field("fits")));
}
END_TEST

START_TEST(shared_memory_is_too_small)
{
    host.shm_free = 8 * GIB;
    verdict_model(&f, &verdict);
    ck_assert_str_eq(json_string_value(json_array_get(field("lines"), 0)),
                     "fits     not yet: /dev/shm has 8.0 GiB free, the budget needs more");
    ck_assert_str_eq(json_string_value(field("next")),
                     "sudo mount -o remount,size=13.5GiB /dev/shm");
    ck_assert(json_is_false(field("fits")));
}
END_TEST

/* Between the minimum and 25 %: what is known is a bound. */
START_TEST(a_given_budget)
{
    verdict.budget_given = 5 * GIB;
    verdict.path = "/models/a name.gguf";
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     yes, with fewer than 25 % of its 20.0 GiB of experts in memory",
        "budget   5.0 GiB as given; minimum 3.0 GiB, all experts need 22.0 GiB",
        "speed    at most 5.0 tokens/s; a prompt of 500 tokens takes at least 10 s",
        "limit    memory: few experts fit",
        "next     sluice repl -m '/models/a name.gguf' --budget 5120MiB"});
}
END_TEST

/* An engine rejects it: the command to copy has one that starts. */
START_TEST(a_given_budget_below_the_minimum)
{
    verdict.budget_given = 2 * GIB;
    verdict_model(&f, &verdict);
    check_lines((const char *const[LINES]){
        "fits     no: --budget 2.0 GiB is below the minimum 3.0 GiB",
        "budget   2.0 GiB as given; minimum 3.0 GiB, all experts need 22.0 GiB", "speed    unknown",
        "limit    memory: the budget is too small",
        "next     sluice repl -m model.gguf --budget 12.0GiB"});
    ck_assert(json_is_false(field("fits")) && json_is_null(field("decode_tps")));
}
END_TEST

/* Memory beyond what all experts need is not taken. */
START_TEST(a_given_budget_beyond_the_memory)
{
    verdict.budget_given = 18 * GIB;
    verdict_model(&f, &verdict);
    ck_assert_str_eq(json_string_value(json_array_get(field("lines"), 0)),
                     "fits     no: --budget 18.0 GiB is more than the 16.0 GiB that are available");
    ck_assert_str_eq(json_string_value(field("next")),
                     "sluice repl -m model.gguf --budget 12.0GiB");
    ck_assert(json_is_false(field("fits")));
    verdict.budget_given = 90 * GIB;
    host.available = 23 * GIB;
    host.shm_free = 100 * GIB;
    verdict_model(&f, &verdict);
    ck_assert(json_is_true(field("fits")));
}
END_TEST

/* Whatever the name, the command to copy names that file. */
START_TEST(the_command_is_quoted)
{
    static const char *const names[][2] = {
        {"/m/a-b_c.gguf", "-m /m/a-b_c.gguf"},
        {"it's.gguf", "-m 'it'\\''s.gguf'"},
        {"a#b", "-m 'a#b'"},
        {"~/x", "-m '~/x'"},
        {"a[1]", "-m 'a[1]'"},
        {"{a,b}", "-m '{a,b}'"},
        {"a!b", "-m 'a!b'"},
        {"a\nb", "-m 'a\nb'"},
        {"-x.gguf", "-m-x.gguf"},
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char run[128], doctor[128];
        snprintf(run, sizeof run, "sluice repl %s --budget 12.0GiB", names[i][1]);
        snprintf(doctor, sizeof doctor, "sluice doctor %s --ctx-size 2048", names[i][1]);
        verdict.path = names[i][0];
        host.available = 16 * GIB;
        verdict_model(&f, &verdict);
        ck_assert_str_eq(json_string_value(field("next")), run);
        host.available = 2 * GIB; /* too little for the model */
        verdict_model(&f, &verdict);
        ck_assert_str_eq(json_string_value(field("next")), doctor);
    }
}
END_TEST

/* An estimate has two significant digits. */
START_TEST(speeds_are_rounded)
{
    static const struct {
        double decode, prefill;
        const char *line;
    } rows[] = {
        {1803.7, 5000, "speed    about 1800 tokens/s; a prompt of 500 tokens takes about 0.10 s"},
        {99.6, 49.9, "speed    about 100 tokens/s; a prompt of 500 tokens takes about 10 s"},
        {9.96, 1.25, "speed    about 10 tokens/s; a prompt of 500 tokens takes about 6.7 min"},
        {4.04, 0.1, "speed    about 4.0 tokens/s; a prompt of 500 tokens takes about 83 min"},
        {0.0123, 0, "speed    about 0.012 tokens/s"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        estimates[1].decode_tps = rows[i].decode;
        estimates[1].prefill_tps = rows[i].prefill;
        verdict_model(&f, &verdict);
        ck_assert_str_eq(json_string_value(json_array_get(field("lines"), 5 * i + 2)),
                         rows[i].line);
    }
}
END_TEST

START_TEST(large_figures_fit_80_columns)
{
    uint64_t most = 1023 * GIB + 900 * MIB;
    model.expert_bytes = model.min_budget = model.budget_25 = model.budget_50 = model.budget_75 =
        model.budget_100 = most;
    host.available = host.shm_free = 2 * most;
    for (size_t i = 0; i < ESTIMATE_SHARES; i++) {
        estimates[i].decode_tps = 99999;
        estimates[i].prefill_tps = 0.001;
    }
    verdict.path = "m.gguf";
    verdict_model(&f, &verdict);
    check_lines(NULL);
}
END_TEST

/* Sections that were reported in two parts are printed once; the short form leaves out what
 * explains nothing. */
START_TEST(sections_are_printed_once)
{
    char text[4096] = "";
    int saved = dup(STDOUT_FILENO);
    finding(&f, "memory", "rate", json_integer(1), NULL, "of reads");
    finding(&f, "cpu", "cpus", json_integer(2), NULL, "%s", "");
    finding(&f, "memory", "total", json_integer(3), NULL, "in all");
    finding(&f, "model", "file", json_string("x"), NULL, "%s", "");
    for (int form = FINDINGS_SHORT; form <= FINDINGS_ALL; form++) {
        FILE *file = tmpfile();
        fflush(stdout);
        ck_assert_int_ge(dup2(fileno(file), STDOUT_FILENO), 0);
        findings_print(&f, (enum findings_form)form);
        fflush(stdout);
        dup2(saved, STDOUT_FILENO);
        memset(text, 0, sizeof text);
        ck_assert_int_gt(pread(fileno(file), text, sizeof text - 1, 0), 0);
        fclose(file);
        const char *memory = strstr(text, "\nmemory\n");
        ck_assert_msg((memory != NULL) == (form == FINDINGS_ALL), "%s", text);
        ck_assert_msg(!memory || !strstr(memory + 1, "\nmemory\n"), "%s", text);
        ck_assert_msg(!memory ||
                          strstr(memory, "\nmemory\n  rate   1  of reads\n  total  3  in all\n"),
                      "%s", text);
        ck_assert_msg(strstr(text, "\nmodel\n  file  x\n"), "%s", text);
    }
    close(saved);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor_verdict");
    TCase *tcase = tcase_create("verdict");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, half_of_the_experts_fit);
    tcase_add_test(tcase, everything_fits);
    tcase_add_test(tcase, bandwidth_limits);
    tcase_add_test(tcase, without_a_storage_device);
    tcase_add_test(tcase, it_does_not_fit);
    tcase_add_test(tcase, shared_memory_is_too_small);
    tcase_add_test(tcase, a_given_budget);
    tcase_add_test(tcase, a_given_budget_below_the_minimum);
    tcase_add_test(tcase, a_given_budget_beyond_the_memory);
    tcase_add_test(tcase, the_command_is_quoted);
    tcase_add_test(tcase, speeds_are_rounded);
    tcase_add_test(tcase, large_figures_fit_80_columns);
    tcase_add_test(tcase, sections_are_printed_once);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
