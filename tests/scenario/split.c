/* SPDX-License-Identifier: Apache-2.0 */
/* A model in several files (lib/model/gguf/split.h): the text of the whole file, with kills of
 * every process, and clear errors when a part is missing, foreign, or changes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/tools/synth/split.h"
#include "tests/scenario/baseline.h"

#define PARTS     3u
#define FINISH_MS 120000

static void part_path(char path[PATH_MAX], unsigned part)
{
    snprintf(path, PATH_MAX, "%s/demo-%05u-of-%05u.gguf", test_dir(), part, PARTS);
}

/* The demo model in parts; the path of one of them. */
static void split_demo(char path[PATH_MAX], unsigned part)
{
    struct error error;
    path_in_dir(path, "demo.gguf");
    CHECK(split_write(test_model(), path, PARTS, &error) == 0, "%s", error.text);
    part_path(path, part);
}

static void compare_all(struct engine *e, const char *what)
{
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, what);
}

/* Each part has its loader; any part names the model. */
static void same_text(void)
{
    char path[PATH_MAX];
    baseline(0);
    for (unsigned part = PARTS, met = 0; part >= 1; part--) { /* part 1: same_text_with_kills */
        if (!test_sample(EVERY_split_parts, &met))
            continue;
        split_demo(path, part);
        struct engine *e = engine_new();
        engine_start(e,
                     (const char *const[]){"-m", path, "--resident-experts=25",
                                           part == 2 ? "--backend=pread" : "--backend=auto", NULL});
        compare_all(e, "split");
        for (unsigned i = 0; i < PARTS; i++)
            engine_pid(e, "loader", i, 0);
        CHECK(engine_counter(e, "loader", "loads_taken") > 0, "no loads");
        engine_stop(e);
    }
}

static void kill_all(struct engine *e)
{
    static const char *const services[] = {"compute", "cache", "predictor"};
    for (unsigned i = 0; i < PARTS + ARRAY_LEN(services); i++) {
        const char *service = i < PARTS ? "loader" : services[i - PARTS];
        unsigned number = i < PARTS ? i : 0;
        pid_t pid = engine_pid(e, service, number, 0);
        CHECK(kill(pid, SIGKILL) == 0, "%s", strerror(errno));
        engine_pid(e, service, number, pid);
    }
}

static void same_text_with_kills(void)
{
    char path[PATH_MAX];
    split_demo(path, 1);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        struct generation *g = generation_start(e, test_prompt(i), baseline_tokens());
        uint64_t deadline = deadline_in(FINISH_MS);
        while (generation_tokens(g) < 20 && !generation_done(g))
            CHECK(deadline_tick(deadline), "no tokens");
        kill_all(e);
        struct text got;
        generation_finish(g, FINISH_MS, &got);
        CHECK(got.error.code == ERR_NONE, "%s", got.error.text);
        text_check_same(baseline(i), &got, "with kills");
        text_free(&got);
    }
    engine_stop(e);
}

static char *output(const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, FINISH_MS, argv);
    CHECK(c.status == 0, "%s: status %d: %.400s", argv[0], c.status, c.err);
    char *out = strdup(c.out);
    CHECK(out, "out of memory");
    command_free(&c);
    return out;
}

/* ---- wrong parts ----------------------------------------------------------------------------- */

static void expect_rejected(const char *const argv[], const char *message)
{
    struct command c;
    command_run(&c, NULL, FINISH_MS, argv);
    CHECK(c.status == 2 && command_lines(c.err) == 1 && strstr(c.err, message),
          "%s: status %d: %.400s", argv[0], c.status, c.err);
    command_free(&c);
}

/* Every program that opens a model. */
static void rejected(const char *path, const char *message)
{
    expect_rejected((const char *const[]){"inspect", path, NULL}, message);
    expect_rejected((const char *const[]){"run", "-m", path, "--name", "split-rejected", NULL},
                    message);
    expect_rejected((const char *const[]){"tokenize", "-m", path, "-p", "a", NULL}, message);
    expect_rejected((const char *const[]){"eval", "-m", path, "--text", "/dev/null", NULL},
                    message);
    expect_rejected((const char *const[]){"profile", "-m", path, "--text", "/dev/null", "-o",
                                          "/dev/null", NULL},
                    message);
}

static void missing_part(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    split_demo(path, 1);
    part_path(other, 3);
    CHECK(unlink(other) == 0, "%s", strerror(errno));
    rejected(path, "part 3 of 3 cannot be opened: demo-00003-of-00003.gguf");
    CHECK(unlink(path) == 0, "%s", strerror(errno));
    part_path(other, 2);
    rejected(other, "demo-00001-of-00003.gguf");
}

static void wrong_order(void)
{
    char path[PATH_MAX], two[PATH_MAX], three[PATH_MAX], away[PATH_MAX];
    split_demo(path, 1);
    part_path(two, 2);
    part_path(three, 3);
    path_in_dir(away, "away");
    CHECK(rename(two, away) == 0 && rename(three, two) == 0 && rename(away, three) == 0, "%s",
          strerror(errno));
    rejected(path, "demo-00002-of-00003.gguf is not a part of this model: split.no is 2");
}

static void foreign_part(void)
{
    char path[PATH_MAX], synth[PATH_MAX], from[PATH_MAX + 32], to[PATH_MAX];
    struct command c;
    split_demo(path, 1);
    path_in_dir(synth, "tiny.bin"); /* rejected before anything is written */
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"synth", "-q", "-o", synth, "--split", "3", "--dry-run",
                                      "tiny", NULL});
    CHECK(c.status == 2 && strstr(c.err, "must end with .gguf"), "%d %.300s", c.status, c.err);
    command_free(&c);
    path_in_dir(synth, "tiny.gguf");
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"synth", "-q", "-o", synth, "--split", "3", "tiny", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    CHECK(access(synth, F_OK) != 0, "the whole file is left");
    snprintf(from, sizeof from, "%s/tiny-00002-of-00003.gguf", test_dir());
    part_path(to, 2);
    CHECK(rename(from, to) == 0, "%s", strerror(errno));
    rejected(path, "demo-00002-of-00003.gguf is not a part of this model: split.tensors.count is");
}

/* ---- while it runs --------------------------------------------------------------------------- */

static void expect_text(struct engine *e, enum error_code code, const char *message)
{
    struct text got;
    generation_finish(generation_start(e, test_prompt(0), baseline_tokens()), FINISH_MS, &got);
    CHECK(got.error.code == code && strstr(got.error.text, message), "%s: %s",
          error_name(got.error.code), got.error.text);
    text_free(&got);
}

/* Another file is moved over a part: the engine continues with the one that it opened. */
static void part_replaced(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    split_demo(path, 1);
    part_path(other, 2);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    CHECK(rename(path, other) == 0, "%s", strerror(errno));
    kill_all(e);
    compare_all(e, "after a part was replaced");
    engine_stop(e);
}

/* A part changes in place: no sequence gets another text. */
static void part_changed(void)
{
    char path[PATH_MAX], other[PATH_MAX];
    split_demo(path, 1);
    part_path(other, 3);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "before the change");
    struct stat st;
    CHECK(stat(other, &st) == 0 && truncate(other, st.st_size / 2) == 0, "%s", strerror(errno));
    uint64_t deadline = deadline_in(FINISH_MS);
    for (bool changed = false; !changed;) {
        json_t *status = engine_control(e, "status", NULL);
        char *fault = json_dumps(json_object_get(status, "fault"), JSON_ENCODE_ANY);
        changed = fault && strstr(fault, "model_changed");
        json_decref(status);
        free(fault);
        CHECK(changed || deadline_tick(deadline), "the change is not noticed");
    }
    expect_text(e, ERR_MODEL_CHANGED, "demo-00003-of-00003.gguf");
    engine_stop_with(e, 1);
}

/* The same with a copy of that part: it is read instead. */
static void part_changed_with_a_mirror(void)
{
    char path[PATH_MAX], other[PATH_MAX], copy[PATH_MAX], storages[PATH_MAX + 100];
    split_demo(path, 1);
    part_path(other, 2);
    path_in_dir(copy, "copy-of-2");
    struct command c;
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"/bin/cp", other, copy, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
    snprintf(storages, sizeof storages, "--devices=:queue_depth=8,:mirror=%s,:queue_depth=4", copy);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--resident-experts=25", storages, NULL});
    baseline_compare(e, 0, "before the change");
    struct stat st;
    CHECK(stat(other, &st) == 0 && truncate(other, st.st_size / 2) == 0, "%s", strerror(errno));
    compare_all(e, "from the copy of part 2");
    CHECK(engine_counter(e, "loader", "quarantines") == 1, "no quarantine");
    engine_stop(e);
}

/* Parts may be links to files of other names, as in a cache of downloads. */
static void links(void)
{
    char path[PATH_MAX], dir[PATH_MAX], link[PATH_MAX + 64], blob[PATH_MAX + 64];
    split_demo(path, 1);
    path_in_dir(dir, "snapshot");
    CHECK(mkdir(dir, 0700) == 0, "%s", strerror(errno));
    for (unsigned part = 1; part <= PARTS; part++) {
        part_path(path, part);
        snprintf(blob, sizeof blob, "%s/blob-%u", test_dir(), part);
        snprintf(link, sizeof link, "%s/demo-%05u-of-%05u.gguf", dir, part, PARTS);
        CHECK(rename(path, blob) == 0 && symlink(blob, link) == 0, "%s", strerror(errno));
    }
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", link, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "through links");
    engine_stop(e);
    free(output((const char *const[]){"inspect", link, NULL}));
}

/* ---- other programs -------------------------------------------------------------------------- */

/* The same result as for the whole file. */
static void other_programs(void)
{
    char path[PATH_MAX], of_parts[PATH_MAX], text[PATH_MAX];
    split_demo(path, 2);
    path_in_dir(text, "text");
    FILE *f = fopen(text, "w");
    CHECK(f && fputs(test_prompt(2), f) >= 0 && fclose(f) == 0, "%s", strerror(errno));
    const char *models[] = {test_model(), path};
    char *results[2][2];
    for (int i = 0; i < 2; i++) {
        results[i][0] = output((const char *const[]){"eval", "-m", models[i], "--text", text,
                                                     "--ctx-size", "64", "--output", "json", NULL});
        results[i][1] = output(
            (const char *const[]){"tokenize", "-m", models[i], "-p", "Hello", "--ids", NULL});
    }
    json_t *a = json_loads(results[0][0], JSON_ALLOW_NUL, NULL),
           *b = json_loads(results[1][0], 0, NULL);
    CHECK(a && b && json_equal(json_object_get(a, "ppl"), json_object_get(b, "ppl")),
          "%.300s and %.300s", results[0][0], results[1][0]);
    CHECK(strcmp(results[0][1], results[1][1]) == 0, "tokenize: %s", results[1][1]);
    json_decref(a);
    json_decref(b);
    for (int i = 0; i < 4; i++)
        free(results[i / 2][i % 2]);
    char *shown = output((const char *const[]){"inspect", path, NULL});
    CHECK(strstr(shown, "demo-00003-of-00003.gguf"), "%.1000s", shown);
    free(shown);
    path_in_dir(of_parts, "store-of-parts");
    free(output((const char *const[]){"pack", "-m", path, "-o", of_parts, NULL}));
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", of_parts, "--resident-experts=25", NULL});
    baseline_compare(e, 0, "of a store that was packed from parts");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(same_text),    ROW(same_text_with_kills),
        ROW(missing_part), ROW(wrong_order),
        ROW(foreign_part), ROW(part_replaced),
        ROW(part_changed), ROW(part_changed_with_a_mirror),
        ROW(links),        ROW(other_programs),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
