/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas: stores without the native experts, which stay in the model file. The same text as a full
 * store of the same plan, also while loaders are killed; another model file is one line. */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "procs/tools/synth/split.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define END_MS       120000
#define TOKENS       64
#define PRECISION(x) (1u << PRECISION_##x)

extern char **environ;

static char model[PATH_MAX], plan[PATH_MAX], delta[PATH_MAX];

static void run_well(const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 0, "%s: status %d: %.1000s", argv[0], c.status, c.err);
    command_free(&c);
}

/* One line on stderr that has this text. */
static void run_badly(int status, const char *text, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == status && strstr(c.err, text), "%s: status %d: %.1000s", argv[0], c.status,
          c.err);
    CHECK(command_lines(c.err) == 1, "not one line: %.1000s", c.err);
    command_free(&c);
}

/* A copy of the demo model, a plan with native, int4 and int2 experts in turn, and its delta. */
static void make_delta(void)
{
    run_well(
        (const char *const[]){"/bin/cp", test_model(), path_in_dir(model, "model.gguf"), NULL});
    plan_make(plan, "plan", PRECISION(NATIVE) | PRECISION(INT4) | PRECISION(INT2));
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o",
                                   path_in_dir(delta, "delta"), "--plan", plan, "--delta", NULL});
}

static uint64_t bytes_of(const char *directory)
{
    char pattern[PATH_MAX + 8];
    uint64_t bytes = 0;
    glob_t found;
    struct stat st;
    snprintf(pattern, sizeof pattern, "%s/*", directory);
    CHECK(glob(pattern, 0, NULL, &found) == 0, "%s is empty", directory);
    for (size_t i = 0; i < found.gl_pathc; i++)
        bytes += stat(found.gl_pathv[i], &st) == 0 ? (uint64_t)st.st_size : 0;
    globfree(&found);
    return bytes;
}

static struct engine *start(const char *store, const char *preset)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, "--plan", plan, "--preset", preset,
                                          "--resident-experts=25", NULL});
    return e;
}

static void texts_of(struct engine *e, struct text texts[TEST_PROMPTS])
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        engine_generate(e, test_prompt(i), TOKENS, &texts[i]);
}

static void compare_and_free(struct text *a, struct text *b, const char *what)
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        text_check_same(&a[i], &b[i], what);
        text_free(&a[i]);
        text_free(&b[i]);
    }
}

static void same_text_as_a_full_store(void)
{
    static const char *const presets[] = {"edgemoe", "auto-mixed", "default"};
    char full[PATH_MAX];
    struct text one[TEST_PROMPTS], other[TEST_PROMPTS];
    make_delta();
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o", path_in_dir(full, "full"),
                                   "--plan", plan, NULL});
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (!test_sample(EVERY_delta_presets, &met))
            continue;
        struct engine *e = start(full, presets[i]);
        texts_of(e, one);
        engine_stop(e);
        e = start(delta, presets[i]);
        texts_of(e, other);
        CHECK(engine_counter(e, "loader", "checksums_failed") == 0, "wrong checksums");
        engine_pid(e, "loader", 1, 0); /* that of the model file */
        engine_stop(e);
        compare_and_free(one, other, presets[i]);
    }
    uint64_t small = bytes_of(delta), large = bytes_of(full);
    test_note("delta %" PRIu64 " KiB, full store %" PRIu64 " KiB", small / KIB, large / KIB);
    CHECK(small < large / 2, "the delta has %" PRIu64 " bytes, the full store %" PRIu64, small,
          large);
}

/* mixed-two's two precisions of each expert are in a store of its plan, and in a delta. */
static void two_precisions_of_an_expert(void)
{
    char full[PATH_MAX];
    uint64_t low[2], misses[2];
    run_well(
        (const char *const[]){"/bin/cp", test_model(), path_in_dir(model, "model.gguf"), NULL});
    plan_make_two(plan, "plan", PRECISION(NATIVE) | PRECISION(INT4));
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o", path_in_dir(full, "full"),
                                   "--plan", plan, NULL});
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o",
                                   path_in_dir(delta, "delta"), "--plan", plan, "--delta", NULL});
    for (int i = 0; i < 2; i++) {
        struct engine *e = engine_new();
        struct text text;
        engine_start(e, (const char *const[]){"-m", i ? delta : full, "--plan", plan, "--preset",
                                              "mixed-two", "--resident-experts=25",
                                              "--deterministic=on", NULL});
        engine_generate(e, test_prompt(0), TOKENS, &text);
        text_free(&text);
        low[i] = engine_counter(e, "compute", "low_precision_accesses");
        misses[i] = engine_counter(e, "compute", "misses");
        engine_stop(e);
    }
    test_note("low %" PRIu64 " and %" PRIu64 ", misses %" PRIu64 " and %" PRIu64, low[0], low[1],
              misses[0], misses[1]);
    CHECK(low[0] > 0 && misses[0] > 0 && low[0] == low[1], "other precisions");
}

/* Of the stripe, and of the model file. */
static void loaders_killed(void)
{
    make_delta();
    struct engine *e = start(delta, "edgemoe");
    struct text whole, got;
    engine_generate(e, test_prompt(1), TOKENS, &whole);
    for (unsigned i = 0; i < test_amount(AMOUNT_delta_kills); i++) {
        struct generation *g = generation_start(e, test_prompt(1), TOKENS);
        uint64_t deadline = deadline_in(END_MS);
        while (generation_tokens(g) < 5 + i)
            CHECK(deadline_tick(deadline), "no tokens");
        pid_t pid = engine_pid(e, "loader", i % 2, 0);
        kill(pid, SIGKILL);
        generation_finish(g, END_MS, &got);
        text_check_same(&whole, &got, "a loader was killed");
        text_free(&got);
    }
    text_free(&whole);
    engine_stop(e);
}

/* The losses that the plan has with this file: of the model, its lower precisions are made as they
 * are needed. */
static char *evaluation(const char *path)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){
                    "eval", "-m", path, "--plan", plan, "--offline", "--preset", "edgemoe",
                    "--text", SLUICE_SOURCE_DIR "/launch/demo/calib.txt", "--max-windows", "2",
                    "--ctx-size", "64", "--memory", "64MiB", "--output", "csv", NULL});
    CHECK(c.status == 0, "status %d: %.1000s", c.status, c.err);
    char *text = strdup(c.out);
    CHECK(text, "no memory");
    command_free(&c);
    return text;
}

static void tools_accept_it(void)
{
    struct command c;
    make_delta();
    run_well((const char *const[]){"pack", "--check", delta, NULL});
    command_run(&c, NULL, END_MS, (const char *const[]){"inspect", delta, NULL});
    CHECK(c.status == 0 && strstr(c.out, "model file") && strstr(c.out, model), "%.1000s%.300s",
          c.out, c.err);
    command_free(&c);
    run_well((const char *const[]){"doctor", "-m", delta, "--no-device", NULL});
    char *of_delta = evaluation(delta), *of_model = evaluation(model);
    CHECK(strcmp(of_delta, of_model) == 0, "%.500s instead of %.500s", of_delta, of_model);
    free(of_delta);
    free(of_model);
}

/* Killed when its journal has the first experts, it is resumed with the same bytes. */
static void interrupted_pack(void)
{
    char program[PATH_MAX], store[PATH_MAX], journal[PATH_MAX + 16];
    struct stat st = {0};
    pid_t pid;
    int status;
    make_delta();
    path_in_dir(store, "other");
    snprintf(program, sizeof program, "%s/sluice-pack", test_libexec());
    snprintf(journal, sizeof journal, "%s/pack.journal", store);
    char *const argv[] = {program,           (char *)"--quiet",
                          (char *)"-m",      model,
                          (char *)"-o",      store,
                          (char *)"--plan",  plan,
                          (char *)"--delta", (char *)"--rate",
                          (char *)"8MiB",    NULL};
    CHECK(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0, "cannot start pack");
    uint64_t deadline = deadline_in(END_MS);
    while (stat(journal, &st) != 0 || st.st_size < 200)
        CHECK(deadline_tick(deadline) && waitpid(pid, &status, WNOHANG) == 0,
              "no record in the journal");
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "it had ended");
    run_badly(2, "unfinished", (const char *const[]){"inspect", store, NULL});
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o", store, "--plan", plan,
                                   "--delta", NULL});
    run_well((const char *const[]){"/usr/bin/diff", "-r", delta, store, NULL});
}

static void append(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "cannot write %s",
          path);
    close(fd);
}

static void change_byte(const char *path, off_t from_end)
{
    char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t at = lseek(fd, -from_end, SEEK_END);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1, "cannot read %s", path);
    byte = (char)(byte + 1);
    CHECK(pwrite(fd, &byte, 1, at) == 1, "cannot change %s", path);
    close(fd);
}

/* The delta and its model can be moved together. A model with the same header and other weights is
 * another one. */
static void another_model_file(void)
{
    char old_model[PATH_MAX], old_delta[PATH_MAX], moved[PATH_MAX];
    make_delta();
    memcpy(old_model, model, sizeof model);
    memcpy(old_delta, delta, sizeof delta);
    CHECK(mkdir(path_in_dir(moved, "moved"), 0700) == 0, "mkdir");
    path_in_dir(model, "moved/model.gguf");
    path_in_dir(delta, "moved/delta");
    CHECK(rename(old_delta, delta) == 0, "rename");
    run_badly(2, "cannot be opened; the delta needs it",
              (const char *const[]){"inspect", delta, NULL});
    CHECK(rename(old_model, model) == 0, "rename");
    run_well((const char *const[]){"inspect", delta, NULL});
    change_byte(model, 1);
    run_badly(2, "not the model that this delta was made of",
              (const char *const[]){"generate", "-m", delta, "-p", "It was", "-n", "4", NULL});
    append(model, "x");
    run_badly(2, "not the model that this delta was made of",
              (const char *const[]){"inspect", delta, NULL});
}

static void changed_while_it_runs(void)
{
    make_delta();
    struct engine *e = start(delta, "edgemoe");
    struct text got;
    engine_generate(e, test_prompt(0), 8, &got);
    text_free(&got);
    append(model, "x");
    struct generation *g = generation_start(e, test_prompt(2), 64);
    generation_finish(g, END_MS, &got);
    CHECK(got.error.code == ERR_MODEL_CHANGED, "'%s' instead of a changed model", got.error.text);
    text_free(&got);
    engine_stop_with(e, 1);
}

static void options_that_do_not_fit(void)
{
    char store[PATH_MAX], all[PATH_MAX];
    make_delta();
    path_in_dir(store, "store");
    plan_make(all, "all-native", PRECISION(NATIVE));
    run_badly(
        2, "nothing to store",
        (const char *const[]){"pack", "-m", model, "-o", store, "--plan", all, "--delta", NULL});
    run_badly(2, "without native",
              (const char *const[]){"pack", "-m", model, "-o", store, "--delta", NULL});
    run_badly(2, "without native",
              (const char *const[]){"pack", "-m", model, "-o", store, "--delta", "--precisions",
                                    "native,int4", NULL});
    run_badly(2, "one stripe",
              (const char *const[]){"pack", "-m", model, "-o", store, "--delta", "--precisions",
                                    "int4", "--stripes", test_dir(), NULL});
    run_well((const char *const[]){"pack", "--quiet", "-m", model, "-o", store, "--delta",
                                   "--precisions", "int4", NULL});
    run_well((const char *const[]){"pack", "--check", store, NULL});
}

/* ---- split models ---- */

#define PARTS 3u

static void part_path(char path[PATH_MAX], const char *dir, unsigned part, unsigned parts)
{
    char name[64];
    snprintf(name, sizeof name, "%s/m-%05u-of-%05u.gguf", dir, part, parts);
    path_in_dir(path, name);
}

static void split(const char *dir, unsigned parts)
{
    struct error error;
    char path[PATH_MAX], name[64];
    CHECK(mkdir(path_in_dir(path, dir), 0700) == 0, "mkdir");
    snprintf(name, sizeof name, "%s/m.gguf", dir);
    CHECK(split_write(test_model(), path_in_dir(path, name), parts, &error) == 0, "%s", error.text);
}

/* The demo model in parts that are links to files of other names in another directory. */
static void make_links(void)
{
    char link[PATH_MAX], file[PATH_MAX], name[32];
    split("links", PARTS);
    CHECK(mkdir(path_in_dir(file, "files"), 0700) == 0, "mkdir");
    for (unsigned i = 1; i <= PARTS; i++) {
        part_path(link, "links", i, PARTS);
        snprintf(name, sizeof name, "files/%u", i);
        path_in_dir(file, name);
        CHECK(rename(link, file) == 0 && symlink(file, link) == 0, "%s", link);
    }
}

static void text_of(const char *path, struct text *text)
{
    struct engine *e = start(path, "edgemoe");
    engine_generate(e, test_prompt(1), TOKENS, text);
    engine_stop(e);
}

/* Packed by a relative name of any part, into directories that give no access to its files. */
static void split_model(void)
{
    static const char *const given[] = {"links/m-00002-of-00003.gguf", "m-00001-of-00003.gguf"};
    static const char *const dirs[] = {".", "links"};
    char full[PATH_MAX], made[PATH_MAX];
    struct text whole, got;
    make_links();
    plan_make(plan, "plan", PRECISION(NATIVE) | PRECISION(INT4) | PRECISION(INT2));
    CHECK(mkdir(path_in_dir(made, "stores"), 0700) == 0, "mkdir");
    for (size_t i = 0; i < ARRAY_LEN(given); i++) {
        CHECK(chdir(test_dir()) == 0 && chdir(dirs[i]) == 0, "chdir");
        path_in_dir(full, i ? "stores/full-1" : "stores/full-0");
        path_in_dir(delta, i ? "links/delta"
                             : "stores/delta"); /* the path in it is relative, or absolute */
        run_well((const char *const[]){"pack", "--quiet", "-m", given[i], "-o", full, "--plan",
                                       plan, NULL});
        run_well((const char *const[]){"pack", "--quiet", "-m", given[i], "-o", delta, "--plan",
                                       plan, "--delta", NULL});
        CHECK(chdir("/") == 0, "chdir");
        run_well((const char *const[]){"pack", "--check", delta, NULL});
        text_of(full, &whole);
        text_of(delta, &got);
        text_check_same(&whole, &got, given[i]);
        text_free(&whole);
        text_free(&got);
    }
    CHECK(rename(path_in_dir(full, "links"), path_in_dir(made, "moved")) == 0, "rename");
    run_well((const char *const[]){"inspect", path_in_dir(delta, "moved/delta"), NULL});
    run_badly(2, "cannot be opened; the delta needs it",
              (const char *const[]){"inspect", path_in_dir(delta, "stores/delta"), NULL});
}

/* Each part has a loader, and the stripe has one: 15 parts work, 16 are reported before anything is
 * made. */
static void too_many_parts(void)
{
    char path[PATH_MAX], link[PATH_MAX];
    plan_make(plan, "plan", PRECISION(NATIVE) | PRECISION(INT4));
    CHECK(mkdir(path_in_dir(delta, "stores"), 0700) == 0, "mkdir");
    split("some", MODEL_PARTS_MAX - 1);
    split("many", MODEL_PARTS_MAX);
    path_in_dir(delta, "stores/delta");
    part_path(path, "many", 1, MODEL_PARTS_MAX);
    run_badly(
        2, "split into 16 files",
        (const char *const[]){"pack", "-m", path, "-o", delta, "--plan", plan, "--delta", NULL});
    CHECK(access(delta, F_OK) != 0, "a store was begun");
    part_path(path, "some", 1, MODEL_PARTS_MAX - 1);
    CHECK(symlink(path, path_in_dir(link, "link.gguf")) == 0, "symlink"); /* leads to all of them */
    run_well((const char *const[]){"pack", "--quiet", "-m", link, "-o", delta, "--plan", plan,
                                   "--delta", NULL});
    struct text got;
    text_of(delta, &got);
    CHECK(got.error.code == ERR_NONE, "%s", got.error.text);
    text_free(&got);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(same_text_as_a_full_store),
                                             ROW(two_precisions_of_an_expert),
                                             ROW(loaders_killed),
                                             ROW(tools_accept_it),
                                             ROW(interrupted_pack),
                                             ROW(another_model_file),
                                             ROW(changed_while_it_runs),
                                             ROW(options_that_do_not_fit),
                                             ROW(split_model),
                                             ROW(too_many_parts)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
