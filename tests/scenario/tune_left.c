/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what sluice tune leaves: stores are listed, found again, checked, and removed when no
 * tuning uses them; what changed between two tunings of a model is noticed; a split model. */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/plan/plan.h"
#include "lib/tensor/precision.h"
#include "tests/scenario/tuned.h"

static char store[PATH_MAX];

/* A store is listed from its first file on, and removed by the next tuning that does not use it. A
 * plan that lowers nothing makes none, and is recorded. */
static void stores_are_listed_and_removed(void)
{
    struct command c;
    char log[PATH_MAX];
    make_model();
    path_in_dir(log, "tune.log");
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(stores() == 1 && listed(true) == 1 && tunings() == 0, "%zu stores, %zu listed", stores(),
          listed(true));
    tuned_loss = NO_LOSS;
    stop_at("step 4 of 4", SIGKILL, NULL);
    tuned_loss = LOSS;
    CHECK(contains(log, "fate cannot keep the loss"), "%.3000s", read_file(log));
    tune_for(&c, NO_LOSS);
    CHECK(strstr(c.err, "no share keeps this loss") && !strstr(c.err, "sluice plan: "), "%.3000s",
          c.err);
    CHECK(strstr(c.err, "lowers no expert") && strstr(c.err, "which no tuning uses"), "%.2000s",
          c.err);
    command_free(&c);
    CHECK(stores() == 0 && listed(true) == 0 && tunings() == 1, "%zu stores are left", stores());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", tuned_model, "--budget", BUDGET,
                                      "--max-loss", NO_LOSS, "--ctx-size", "64", "-p", "It was",
                                      "-n", "8", NULL});
    CHECK(c.status == 0 && strstr(c.err, "tuning: lossless") && !strstr(c.err, "sluice tune -m"),
          "status %d: %.1000s", c.status, c.err);
    command_free(&c);
    stop_at("pack: ", SIGKILL, NULL);
    CHECK(stores() == 0 || listed(true) == 1, "a part of a store is not listed");
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(stores() == 1 && listed(true) == 1, "the store is not listed");
    remove_all(" 0 B");
}

/* ---- later tunings of the same model ---- */

static void start_another(void)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){TUNE, "--yes", NULL});
    CHECK(c.status == 1 && command_lines(c.err) == 1 && strstr(c.err, "another tuning"),
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

static void edit_job(const char *script)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/sh", "-c",
                                      "sed -i \"$0\" \"$XDG_CACHE_HOME\"/sluice/*/job-*", script,
                                      NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

/* Stops at the measured run; `steps`: whether there was a profile and a plan. */
static void expect_log(const char *text, bool profile, bool plan)
{
    char log[PATH_MAX];
    path_in_dir(log, "tune.log");
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(!text || contains(log, text), "'%s' is not in the log", text);
    CHECK(contains(log, "step 1 of 4") == profile, "profile: %d", !profile);
    CHECK(contains(log, "sluice plan: ") == plan, "plan: %d", !plan);
}

static void what_changed_is_noticed(void)
{
    struct command c;
    char log[PATH_MAX];
    path_in_dir(log, "tune.log");
    make_model();
    stop_at("step 4 of 4", SIGKILL, start_another);
    expect_log("of an earlier run are used", false, false);
    edit_job("s/\"cpu\": .*/\"cpu\": \"another\"/");
    expect_log("another CPU than before", true, true);
    CHECK(!contains(log, "measurements, each"), "the profile is measured again");
    command_run(&c, NULL, END_MS, (const char *const[]){TUNE, "--yes", "--budget", "40MiB", NULL});
    CHECK(c.status == 0 && strstr(c.err, "of an earlier run are used") &&
              !strstr(c.err, "step 1 of 4") && tunings() == 1,
          "status %d: %.2000s", c.status, c.err);
    command_free(&c);
    expect_log("of an earlier run are used", false, false);
    edit_job("s/\"profile_tokens\": .*/\"profile_tokens\": 1e300,/");
    expect_log("is damaged: a new tuning", true, true);
    edit_job("s/{/[/");
    stop_at("is damaged: a new tuning", SIGKILL, NULL);
    remove_all(NULL);
}

/* ---- stores of earlier runs ---- */

static void only_match(const char *pattern, char path[PATH_MAX])
{
    glob_t found;
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1, "%s", pattern);
    snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void find_plan(char plan[PATH_MAX])
{
    char pattern[PATH_MAX + 64];
    snprintf(pattern, sizeof pattern, "%s/sluice/*/plan-*-40-[0-9]*[0-9]",
             getenv("XDG_CACHE_HOME"));
    only_match(pattern, plan);
}

/* directory: of the plan. */
static void forget_records(char directory[PATH_MAX])
{
    char pattern[PATH_MAX + 16], plan[PATH_MAX];
    glob_t found;
    find_plan(plan);
    snprintf(directory, PATH_MAX, "%.*s", (int)(strrchr(plan, '/') - plan), plan);
    snprintf(pattern, sizeof pattern, "%s/tuning-*", directory);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        CHECK(unlink(found.gl_pathv[i]) == 0, "%s", found.gl_pathv[i]);
    globfree(&found);
}

/* What a measured run records if this preset is fastest; which one is depends on the machine. */
static void record_store(const char *preset)
{
    char plan[PATH_MAX], path[PATH_MAX], directory[PATH_MAX];
    only_match(path_in_dir(path, "*.tuned-*"), store);
    find_plan(plan);
    forget_records(directory);
    snprintf(path, sizeof path, "%.4000s/tuning-40-31457280.json", directory);
    FILE *f = fopen(path, "w");
    CHECK(f &&
              fprintf(f,
                      "{\"format\": \"sluice-tuning\", \"version\": 1, \"model\": \"%s\", "
                      "\"model_bytes\": 1, \"max_loss\": 40, \"budget\": 31457280, \"plan\": "
                      "\"%s\", \"store\": \"%s\", \"preset\": \"%s\", \"store_bytes\": 1, "
                      "\"loss_high\": 1, \"tokens_per_s\": 2, \"lossless_per_s\": 1, "
                      "\"read_bytes_per_s\": 0, \"created\": 1}",
                      tuned_model, plan, store, preset) > 0 &&
              fclose(f) == 0,
          "cannot write %s", path);
}

static void tune_with_store_dir(struct command *c)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){TUNE, "--yes", "--store-dir", test_dir(), NULL});
    CHECK(c->status == 0, "status %d: %.2000s", c->status, c->err);
}

/* A finished store is opened before it is used; a wrong one is made again. The stores of two copies
 * are two. */
static void stores_of_earlier_runs(void)
{
    struct command c;
    char log[PATH_MAX], path[PATH_MAX + 32], first[PATH_MAX];
    make_model();
    path_in_dir(log, "tune.log");
    stop_at("step 4 of 4", SIGKILL, NULL);
    only_match(path_in_dir(first, "*.tuned-*"), store);
    snprintf(path, sizeof path, "%s/experts.0.bin", store);
    CHECK(truncate(path, 8192) == 0, "%s", path);
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(contains(log, "is made again: ") && contains(log, "truncated"), "%.2000s",
          read_file(log));
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(!contains(log, "is made again") && !contains(log, "pack: "), "%.2000s", read_file(log));

    record_store("edgemoe");
    check_generate(NULL, "tuning: preset edgemoe", NULL);
    strcpy(first, tuned_model);
    CHECK(mkdir(path_in_dir(path, "copies"), 0700) == 0, "mkdir");
    path_in_dir(tuned_model, "copies/it's a model.gguf");
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cp", first, tuned_model, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    tuned_store_dir = test_dir();
    stop_at("step 4 of 4", SIGKILL, NULL);
    tuned_store_dir = NULL;
    CHECK(stores() == 2, "%zu stores", stores());
    tune_with_store_dir(&c);
    command_free(&c);
    CHECK(tunings() == 2, "%zu tunings", tunings());
    strcpy(tuned_model, first);
    check_generate(NULL, "tuning: preset edgemoe", NULL);
}

/* ---- which systems are stored ---- */

#define MIXED_NS 2e7 /* mixed-two, with and without routing: never near the fastest */

/* As if these times were predicted; and of edgemoe's precisions every other is that of the
 * model. */
static void set_predictions(double edgemoe_ns, double hobbit_ns, double fate_ns)
{
    static const char *const candidates[] = {
#define AUTO_CANDIDATE(preset, loss, base, part) preset,
#include "lib/policy/presets/auto.tbl.h"
    };
    char path[PATH_MAX];
    find_plan(path);
    json_t *plan = json_load_file(path, 0, NULL), *arrays = json_object_get(plan, "arrays");
    json_t *ns = json_object_get(arrays, "auto_ns"), *width = json_object_get(arrays, "width");
    CHECK(json_is_array(ns) && json_is_array(width), "%s", path);
    for (size_t i = 0; i < json_array_size(ns); i++) {
        size_t candidate = i % PLAN_AUTO_CANDIDATES;
        const char *name = candidate < ARRAY_LEN(candidates) ? candidates[candidate] : "";
        bool hobbit = strcmp(name, "hobbit") == 0 || strncmp(name, "auto-two-precision", 18) == 0;
        bool fate = strcmp(name, "fate") == 0;
        bool mixed = strncmp(name, "mixed-two", 9) == 0 || strncmp(name, "drop", 4) == 0;
        json_array_set_new(ns, i,
                           json_real(fate     ? fate_ns
                                     : hobbit ? hobbit_ns
                                     : mixed  ? MIXED_NS
                                              : edgemoe_ns));
    }
    for (size_t i = 0; i < json_array_size(width); i += 2)
        json_array_set_new(width, i, json_integer(PRECISION_NATIVE));
    CHECK(json_dump_file(plan, path, 0) == 0, "cannot write %s", path);
    json_decref(plan);
}

/* Of a system of a result. */
static bool was_measured(const struct command *c, size_t system)
{
    json_t *result = json_loads(c->out, JSON_ALLOW_NUL, NULL);
    const json_t *s = json_array_get(json_object_get(result, "systems"), system);
    bool measured = json_number_value(json_object_get(s, "tokens_per_s")) > 0;
    CHECK(json_is_true(json_object_get(s, "planned")) &&
              json_is_null(json_object_get(s, "why")) == measured,
          "%.2000s", c->out);
    json_decref(result);
    return measured;
}

static void expect_both_measured(void)
{
    struct command c;
    tune(&c);
    CHECK(was_measured(&c, 0) && was_measured(&c, 1), "%.2000s", c.out);
    command_free(&c);
}

/* Those that are predicted to be near the fastest one, as far as there is space; later starts use
 * them. */
static void which_systems_are_stored(void)
{
    char log[PATH_MAX], directory[PATH_MAX];
    path_in_dir(log, "tune.log");
    make_model();
    stop_at("step 3 of 4", SIGKILL, NULL);
    set_predictions(1e6, 1.1e6, 9e6);
    tuned_limit = "800KiB";
    stop_at("step 4 of 4", SIGKILL, NULL);
    tuned_limit = "1GiB";
    CHECK(contains(log, "one system less is stored: "), "%.3000s", read_file(log));
    expect_both_measured();
    forget_records(directory); /* whether one uses the store depends on the machine */
    set_predictions(2e6, 1e6, 2e6);
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(contains(log, "hobbit is predicted to be faster"), "%.2000s", read_file(log));
    record_store("hobbit");
    check_generate(NULL, "tuning: preset hobbit", "sluice tune -m");
    forget_records(directory); /* with the store of hobbit */
    set_predictions(2e6, 2e6, 1e6);
    stop_at("step 4 of 4", SIGKILL, NULL);
    CHECK(contains(log, "fate is predicted to be faster"), "%.2000s", read_file(log));
    record_store("fate");
    check_generate(NULL, "tuning: preset fate", "sluice tune -m");
    remove_all(NULL);
}

/* ---- a split model ---- */

#define PARTS 3u

/* A split model in `dir` as links to files of other names, as in a cache of downloads; tuned_model
 * is its last part. */
static void make_parts(void)
{
    struct command c;
    char path[PATH_MAX], link[PATH_MAX], name[64];
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path_in_dir(path, "m.gguf"), "--split",
                                      "3", "tiny", "layers=3", "experts=8", "--type", "Q8_0",
                                      "--seed", "2", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    CHECK(mkdir(path_in_dir(path, "links"), 0700) == 0 &&
              mkdir(path_in_dir(path, "files"), 0700) == 0,
          "mkdir");
    for (unsigned i = 1; i <= PARTS; i++) {
        snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", i, PARTS);
        path_in_dir(link, name);
        snprintf(name, sizeof name, "files/%u", i);
        CHECK(rename(link, path_in_dir(path, name)) == 0, "rename");
        snprintf(name, sizeof name, "links/m-%05u-of-%05u.gguf", i, PARTS);
        CHECK(symlink(path, path_in_dir(tuned_model, name)) == 0, "symlink");
    }
}

static json_int_t bytes_of_parts(void)
{
    char path[PATH_MAX], name[64];
    struct stat st;
    json_int_t bytes = 0;
    for (unsigned i = 1; i <= PARTS; i++) {
        snprintf(name, sizeof name, "files/%u", i);
        CHECK(stat(path_in_dir(path, name), &st) == 0, "%s", path);
        bytes += st.st_size;
    }
    return bytes;
}

static void append_to_a_part(void)
{
    char path[PATH_MAX];
    FILE *f = fopen(path_in_dir(path, "files/3"), "a");
    CHECK(f && fputc('x', f) == 'x' && fclose(f) == 0, "%s", path);
}

static void split_model(void)
{
    struct command c;
    char path[PATH_MAX], pattern[PATH_MAX];
    make_parts();
    stop_at("step 4 of 4", SIGKILL, NULL);
    only_match(path_in_dir(pattern, "links/m-00001-of-00003.gguf.tuned-*"), store);
    tune(&c);
    json_t *result = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(json_integer_value(json_object_get(result, "model_bytes")) == bytes_of_parts() &&
              strstr(c.out, "/links/m-00001-of-00003.gguf\""),
          "%.1000s", c.out);
    json_decref(result);
    command_free(&c);
    check_generate(NULL, "tuning: ", "sluice tune -m");
    CHECK(chdir(test_dir()) == 0, "chdir");
    strcpy(tuned_model, "links/m-00002-of-00003.gguf");
    check_generate(NULL, "tuning: ", "sluice tune -m");
    tuned_loss = "19%";
    stop_at("step 2 of 4", 0, append_to_a_part);
    tuned_loss = LOSS;
    CHECK(chdir("/") == 0, "chdir");
    CHECK(contains(path_in_dir(path, "tune.log"), "was replaced or changed meanwhile"), "%.2000s",
          read_file(path));
}

/* A model that does not fit into memory with its lower precisions: they are stored before the
 * profile, and removed when there is a plan, also by the run that continues. */
static void lower_precisions_are_stored(void)
{
    struct command c;
    char log[PATH_MAX];
    path_in_dir(tuned_model, "large.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", tuned_model, "tiny", "experts=48",
                                      "hidden=192", "expert_inner=256", "--type", "Q8_0", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    stop_at("importance: ", SIGKILL, NULL);
    CHECK(contains(path_in_dir(log, "tune.log"), "lower precisions of all experts are stored"),
          "%.2000s", read_file(log));
    CHECK(stores() == 1 && listed(true) == 1, "%zu stores, %zu listed", stores(), listed(true));
    tune(&c);
    CHECK(strstr(c.err, "lower precisions of all experts are stored"), "%.2000s", c.err);
    command_free(&c);
    CHECK(stores() <= 1 && listed(true) == 0, "%zu stores, %zu unused", stores(), listed(true));
    check_generate(NULL, "tuning: ", "sluice tune -m");
}

/* More files than a delta can have are reported at once. */
static void too_many_parts(void)
{
    struct command c;
    char path[PATH_MAX];
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path_in_dir(path, "m.gguf"), "--split",
                                      "16", "tiny", "layers=3", "experts=8", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    path_in_dir(tuned_model, "m-00001-of-00016.gguf");
    command_run(&c, NULL, END_MS, (const char *const[]){TUNE, "--yes", NULL});
    CHECK(c.status == 2 && command_lines(c.err) == 1 && strstr(c.err, "split into 16 files"),
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(stores_are_listed_and_removed),
                                             ROW(what_changed_is_noticed),
                                             ROW(stores_of_earlier_runs),
                                             ROW(which_systems_are_stored),
                                             ROW(split_model),
                                             ROW(lower_precisions_are_stored),
                                             ROW(too_many_parts)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
