/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a planner: what is compared belongs to the same windows, files that are too short are
 * named. Oracle: the lossless model, measured directly. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "procs/tools/plan/planning.h"

#define DEMO   SLUICE_SOURCE_DIR "/launch/demo/tiny-books-moe-q8_0.gguf"
#define TEXT   SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define WINDOW 24
#define FILES  3

static char dir[64], plan_path[PATH_MAX], path[FILES][PATH_MAX];
static struct planning p;
static struct error error;

static void make_dir(void)
{
    log_init("judge_test", LOG_LEVEL_WARN);
    snprintf(dir, sizeof dir, "/tmp/sluice-judge-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(plan_path, sizeof plan_path, "%s/plan", dir);
    for (int i = 0; i < FILES; i++)
        snprintf(path[i], sizeof path[i], "%s/text%d", dir, i);
}

static void remove_dir(void)
{
    static const char *const made[] = {"text0", "text1", "text2", "plan.measured", "plan.lock"};
    char name[PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        snprintf(name, sizeof name, "%s/%s", dir, made[i]);
        unlink(name);
    }
    ck_assert_int_eq(rmdir(dir), 0);
}

/* `bytes` of the text from `from` on, as the next file. */
static void add_file(long from, size_t bytes)
{
    static char part[16384];
    FILE *in = fopen(TEXT, "rb"), *out = fopen(path[p.texts], "wb");
    ck_assert(in && out && bytes <= sizeof part);
    ck_assert_int_eq(fseek(in, from, SEEK_SET), 0);
    ck_assert_uint_eq(fread(part, 1, bytes, in), bytes);
    ck_assert_uint_eq(fwrite(part, 1, bytes, out), bytes);
    fclose(in);
    fclose(out);
    p.text_path[p.texts] = path[p.texts];
    p.texts++;
}

static void start(int64_t windows)
{
    p.model_path = DEMO;
    p.out_path = plan_path;
    p.window = WINDOW;
    p.tokens_max = windows * WINDOW;
    p.threads = 1;
    p.report = json_object();
    p.json = true; /* notes go to stderr */
    p.model = offline_open(DEMO, model_index_build, &error);
    ck_assert_msg(p.model != NULL, "%s", error.text);
    p.measured = measured_open(plan_path, &error);
    ck_assert_msg(p.measured != NULL, "%s", error.text);
    const struct model_hparams *hp = &offline_index(p.model)->hparams;
    p.plan =
        plan_create(hp->layers, hp->experts, hp->experts_used, offline_hash(p.model), 0, 0, &error);
    ck_assert_msg(p.plan != NULL, "%s", error.text);
    ck_assert_msg(planning_divide_text(&p, &error) == 0, "%s", error.text);
}

static void end(void)
{
    json_decref(p.report);
    offline_losses_free(&p.native);
    offline_losses_free(&p.native_some);
    offline_losses_free(&p.native_held);
    offline_text_free(&p.text);
    offline_text_free(&p.some);
    offline_text_free(&p.held);
    offline_text_free(&p.other);
    free(p.plan);
    measured_close(p.measured);
    offline_close(p.model);
    p = (struct planning){0};
}

/* Half of the windows is not a multiple of four. */
START_TEST(lossless_of_the_quarter)
{
    struct offline_losses own;
    struct serving_report unused;
    add_file(0, 4000);
    start(34);
    ck_assert_uint_eq(p.text.windows, 18);
    ck_assert_uint_eq(p.some.windows, 5);
    ck_assert_int_eq(planning_measure_native(&p, &error), 0);
    ck_assert_int_eq(planning_losses(&p, &p.some, NULL, &own, &unused, &error), 0);
    for (uint32_t w = 0; w < p.some.windows; w++)
        ck_assert_double_eq_tol(p.native_some.nll[w], own.nll[w], 1e-9);
    offline_losses_free(&own);
    const struct serving native = {.kind = SERVE_NATIVE};
    struct measured m;
    ck_assert_int_eq(planning_measure(&p, &p.some, &native, &m, &error), 0);
    ck_assert_double_eq_tol(m.loss.value, 0, 1e-9);
    ck_assert_double_eq_tol(m.loss.high, 0, 1e-9);
    end();
}
END_TEST

/* What planning_divide_text writes to stderr. */
static void lines_at_start(int64_t windows, char *lines, size_t size)
{
    FILE *into = tmpfile();
    int saved = dup(STDERR_FILENO);
    ck_assert(into && saved >= 0);
    ck_assert_int_ge(dup2(fileno(into), STDERR_FILENO), 0);
    start(windows);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(saved);
    rewind(into);
    lines[fread(lines, 1, size - 1, into)] = 0;
    fclose(into);
}

START_TEST(short_files_are_named)
{
    char lines[4096];
    add_file(0, 2000);
    add_file(3000, 20);
    add_file(4000, 2000);
    lines_at_start(100, lines, sizeof lines);
    ck_assert_msg(strstr(lines, "text1 is not used: it has less than one window of 24 tokens"),
                  "%s", lines);
    ck_assert_msg(!strstr(lines, "text0") && !strstr(lines, "text2"), "%s", lines);
    end();
}
END_TEST

/* The only window of a file is judged on. */
START_TEST(one_window_is_held_out)
{
    add_file(0, 2000);
    add_file(3000, 150);
    start(100);
    uint32_t planned = 0, held = 0;
    for (uint32_t w = 0; w < p.text.windows; w++)
        planned += p.text.path[w] == 1;
    for (uint32_t w = 0; w < p.held.windows; w++)
        held += p.held.path[w] == 1;
    ck_assert_uint_eq(planned, 0);
    ck_assert_uint_eq(held, 1);
    end();
}
END_TEST

/* Letters that are no text, as the next file. */
static void add_noise(uint32_t seed)
{
    FILE *out = fopen(path[p.texts], "wb");
    ck_assert_ptr_nonnull(out);
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1664525 + 1013904223;
        fputc("bcdfghjkmnpqrsvwxyz0123456789;#/"[seed >> 27], out);
    }
    fclose(out);
    p.text_path[p.texts] = path[p.texts];
    p.texts++;
}

static uint32_t windows_of(const struct offline_text *text, uint32_t domain)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < text->windows; w++)
        n += text->path[w] == domain;
    return n;
}

static const json_t *value_of(const char *file, const char *what)
{
    size_t i;
    json_t *row, *rows = json_object_get(json_object_get(p.report, "held_out"), "any");
    json_array_foreach(rows, i, row) if (strcmp(json_string_value(json_object_get(row, "text")),
                                                file) == 0) return json_object_get(row, what);
    ck_abort_msg("%s has no row", file);
    return NULL;
}

static double reported(const char *file, const char *what)
{
    const json_t *value = value_of(file, what);
    return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

static void report(const struct serving *s)
{
    struct judged judged;
    ck_assert_msg(planning_judge(&p, s, &judged, &error) == 0, "%s", error.text);
    ck_assert_msg(planning_report(&p, "any", s, &judged, &error) == 0, "%s", error.text);
}

/* The same windows in other domains: what was kept gives the same as a new comparison. */
START_TEST(comparison_by_other_domains)
{
    const size_t cells = 8 * 32;
    uint8_t *all = malloc(cells);
    ck_assert_ptr_nonnull(all);
    memset(all, PRECISION_INT2, cells);
    const struct serving s = {.kind = SERVE_PRECISIONS, .precision = all};
    add_file(0, 2000);
    add_file(3000, 2000);
    start(24);
    ck_assert_int_eq(planning_measure_native(&p, &error), 0);
    report(&s);
    p.held.path[5] = 1; /* the last of the first file */
    ck_assert_uint_eq(p.held.path[4], 0);
    report(&s);
    double kld = reported("text1", "kld"), same = reported("text1", "top1_same");
    measured_close(p.measured);
    unlink(strcat(strcpy((char[PATH_MAX]){0}, plan_path), ".measured"));
    p.measured = measured_open(plan_path, &error);
    ck_assert_ptr_nonnull(p.measured);
    report(&s);
    ck_assert_double_eq(kld, reported("text1", "kld"));
    ck_assert_double_eq(same, reported("text1", "top1_same"));
    ck_assert(kld > 0);
    free(all);
    end();
}
END_TEST

/* What is lost on a text that the model cannot read does not decide, and is reported. */
START_TEST(unreadable_text_does_not_count)
{
    const size_t cells = 8 * 32;
    uint8_t *all = malloc(cells);
    char lines[4096];
    ck_assert_ptr_nonnull(all);
    memset(all, PRECISION_INT2, cells);
    const struct serving s = {.kind = SERVE_PRECISIONS, .precision = all};
    add_file(0, 3000);
    add_noise(1);
    lines_at_start(24, lines, sizeof lines);
    ck_assert_msg(strstr(lines, "text1 does not count: the model cannot read it"), "%s", lines);
    ck_assert(p.counts[0] == DOMAIN_COUNTS && p.counts[1] == DOMAIN_UNREADABLE);
    ck_assert_uint_eq(windows_of(&p.text, 0), 12); /* all windows are those of the other text */
    ck_assert_uint_eq(windows_of(&p.text, 1) + windows_of(&p.held, 1), 0);
    ck_assert_uint_eq(windows_of(&p.other, 1), 12);
    ck_assert_uint_eq(p.whole_ns, 0); /* a sample is not the text */
    ck_assert_int_eq(planning_measure_native(&p, &error), 0);
    struct judged judged;
    ck_assert_msg(planning_judge(&p, &s, &judged, &error) == 0, "%s", error.text);
    p.whole_ns = 1;
    report(&s);
    ck_assert_uint_eq(p.whole_ns, 1); /* nor is what does not count */
    ck_assert(reported("text0", "counts") == 1 && reported("text1", "counts") == 0);
    ck_assert_double_ge(reported("text1", "bound"), reported("text1", "loss"));
    ck_assert_double_gt(reported("text1", "kld"), 0);
    free(all);
    end();
}
END_TEST

START_TEST(if_nothing_is_readable_all_counts)
{
    char lines[4096];
    add_noise(1);
    add_noise(2);
    lines_at_start(24, lines, sizeof lines);
    ck_assert_str_eq(p.stage.name, "texts");
    ck_assert_uint_eq(p.stage.done, 1); /* the model was asked */
    ck_assert_msg(!strstr(lines, "does not count"), "%s", lines);
    ck_assert_uint_eq(windows_of(&p.text, 0), 6);
    ck_assert_uint_eq(windows_of(&p.text, 1), 6);
    ck_assert_uint_eq(p.other.windows, 0);
    end();
}
END_TEST

/* Of records of the losses of windows; their file is removed. */
static long bytes_measured(int64_t windows)
{
    char name[PATH_MAX + 16];
    struct stat st;
    add_file(0, 3000);
    add_file(4000, 3000);
    start(windows);
    snprintf(name, sizeof name, "%s.measured", plan_path);
    ck_assert_int_eq(stat(name, &st), 0);
    end();
    unlink(name);
    return (long)st.st_size;
}

/* No more than --tokens has of each text, and no more than four. */
START_TEST(few_windows_are_sampled)
{
    const long window = sizeof(double), eight = bytes_measured(8);
    ck_assert_int_eq(eight - bytes_measured(4), 4 * window);
    ck_assert_int_eq(bytes_measured(6), eight - 2 * window);
    ck_assert_int_eq(bytes_measured(24), eight);
}
END_TEST

/* Nothing is known about how its loss varies. */
START_TEST(one_window_that_does_not_count_is_reported)
{
    const size_t cells = 8 * 32;
    uint8_t *all = malloc(cells);
    ck_assert_ptr_nonnull(all);
    memset(all, PRECISION_INT2, cells);
    const struct serving s = {.kind = SERVE_PRECISIONS, .precision = all};
    add_file(0, 3000);
    add_file(4000, 150);
    p.domain[p.domains++] = "text0";
    start(24);
    ck_assert_uint_eq(p.other.windows, 1);
    ck_assert_int_eq(planning_measure_native(&p, &error), 0);
    report(&s);
    ck_assert(json_is_null(value_of("text1", "bound")) && json_is_real(value_of("text0", "bound")));
    ck_assert(reported("text1", "counts") == 0 && reported("text1", "loss") != 0);
    ck_assert_double_gt(reported("text1", "kld"), 0);
    free(all);
    end();
}
END_TEST

START_TEST(named_domain_counts_alone)
{
    static const struct {
        const char *name;
        uint32_t counts;
    } cases[] = {{"text0", 0}, {"text1", 1}, {"text2", 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        add_file(0, 3000);
        add_noise(1);
        add_file(4000, 3000);
        p.domain[p.domains++] = cases[i].name;
        start(24);
        for (uint32_t d = 0; d < FILES; d++) {
            bool counts = d == cases[i].counts;
            ck_assert_uint_eq(windows_of(&p.text, d), counts ? 12 : 0);
            ck_assert_uint_eq(windows_of(&p.other, d), counts ? 0 : 12);
        }
        end();
    }
}
END_TEST

START_TEST(unknown_domain_is_rejected)
{
    static const char *const wrong[] = {"text", "text00", "", "xt0"};
    add_file(0, 3000);
    start(24);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        p.domain[0] = wrong[i];
        p.domains = 1;
        ck_assert_int_eq(planning_divide_text(&p, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_ptr_nonnull(strstr(error.text, "--domain"));
    }
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge");
    TCase *cases = tcase_create("judge");
    tcase_add_checked_fixture(cases, make_dir, remove_dir);
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, lossless_of_the_quarter);
    tcase_add_test(cases, short_files_are_named);
    tcase_add_test(cases, one_window_is_held_out);
    tcase_add_test(cases, comparison_by_other_domains);
    tcase_add_test(cases, unreadable_text_does_not_count);
    tcase_add_test(cases, if_nothing_is_readable_all_counts);
    tcase_add_test(cases, few_windows_are_sampled);
    tcase_add_test(cases, one_window_that_does_not_count_is_reported);
    tcase_add_test(cases, named_domain_counts_alone);
    tcase_add_test(cases, unknown_domain_is_rejected);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
