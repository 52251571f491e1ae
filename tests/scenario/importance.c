/* SPDX-License-Identifier: Apache-2.0 */
/* sluice profile: importance of experts, by groups and alone; what an interrupted run has measured
 * is continued. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/internal.h"

#define END_MS  240000
#define TEXT    SLUICE_SOURCE_DIR "/tests/golden/data/heldout/tales.txt"
#define LAYERS  4
#define EXPERTS 32
#define CELLS   (LAYERS * EXPERTS)

static char model[PATH_MAX];

static void make_model(void)
{
    struct command c;
    path_in_dir(model, "m.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", model, "tiny", "layers=4", "experts=32",
                                      "hidden=256", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

#define PROFILE(path, single)                                                                      \
    "-m", model, "--text", TEXT, "-o", path, "--ctx-size", "32", "--tokens", "768", "--pair-mib",  \
        "0", "--importance-tokens", "768", "--importance-experts", single

/* A profile with --importance-group `group` (NULL: the default) and single experts. */
static void profile(struct command *c, const char *path, const char *group, const char *single)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"profile", PROFILE(path, single),
                                      group ? "--importance-group" : NULL, group, NULL});
}

/* Importance of all experts; how many were measured alone. */
static size_t importance(const char *path, double out[CELLS])
{
    json_t *doc = json_load_file(path, 0, NULL);
    const json_t *arrays = json_object_get(doc, "arrays");
    const json_t *values = json_object_get(arrays, "importance");
    const json_t *alone = json_object_get(arrays, "importance_measured");
    size_t count = 0;
    CHECK(json_array_size(values) == CELLS && json_array_size(alone) == CELLS, "%s", path);
    for (size_t i = 0; i < CELLS; i++) {
        CHECK(json_is_number(json_array_get(values, i)), "expert %zu is not measured", i);
        out[i] = json_number_value(json_array_get(values, i));
        count += json_number_value(json_array_get(alone, i)) > 0;
    }
    json_decref(doc);
    return count;
}

/* The numbers of a profile that the machine decides. */
static char *timings(const char *path)
{
    static const char *const names[] = {"token_ns", "layer_attention_ns", "expert_read_ns",
                                        "drive_bytes_per_s"};
    json_t *doc = json_load_file(path, 0, NULL), *some = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *number = json_object_get(json_object_get(doc, "scalars"), names[i]);
        CHECK(json_is_number(number) && json_number_value(number) > 0, "no %s", names[i]);
        json_object_set(some, names[i], number);
    }
    char *text = json_dumps(some, JSON_COMPACT);
    json_decref(some);
    json_decref(doc);
    return text;
}

/* Norms and timings have progress, and a run that continues measures neither again. */
static void continued_keeps_the_timings(void)
{
    struct command c;
    char path[PATH_MAX];
    make_model();
    profile(&c, path_in_dir(path, "p"), NULL, "0");
    CHECK(c.status == 0 && strstr(c.err, "norms of experts: 128 of 128") &&
              strstr(c.err, "timings of decode: 32 of 32"),
          "status %d: %.900s", c.status, c.err);
    command_free(&c);
    char *first = timings(path);
    profile(&c, path, NULL, "8");
    CHECK(c.status == 0 && !strstr(c.err, "norms of") && !strstr(c.err, "timings of"),
          "status %d: %.900s", c.status, c.err);
    command_free(&c);
    char *second = timings(path);
    CHECK(strcmp(first, second) == 0, "other timings: %s and %s", first, second);
    free(first);
    free(second);
}

static void check_groups(const char *path, size_t group)
{
    double x[CELLS];
    size_t differ = 0;
    CHECK(importance(path, x) == 0, "experts are measured alone");
    for (size_t i = 0; i < CELLS; i++) {
        size_t first = i % EXPERTS / group * group + i / EXPERTS * EXPERTS;
        CHECK(x[i] == x[first], "expert %zu differs from its group of %zu", i, group);
        differ += i == first && i > 0 && x[i] != x[i - 1];
    }
    CHECK(differ > 0, "all groups of %zu are equal", group);
}

/* A file that has values by groups of one size is continued with that size only; without the option
 * it is. */
static void groups_of_another_size(void)
{
    struct command c;
    char path[PATH_MAX];
    make_model();
    path_in_dir(path, "p");
    profile(&c, path, "12", "0"); /* the last of a layer has 8 */
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    check_groups(path, 12);
    profile(&c, path, "16", "0");
    CHECK(c.status == 2 && strstr(c.err, "by groups of 12 experts"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
    check_groups(path, 12);
    profile(&c, path, NULL, "0");
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    check_groups(path, 12);
    profile(&c, path_in_dir(path, "whole"), "1000", "0");
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    check_groups(path, EXPERTS);
    profile(&c, path, "4096", "0"); /* the same: a whole layer */
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

/* In a shell: ulimit or a kill after some time, before the program. */
static void profile_in_shell(struct command *c, const char *before, const char *path,
                             const char *single)
{
    char program[PATH_MAX], script[256];
    snprintf(program, sizeof program, "%s/sluice-profile", test_libexec());
    snprintf(script, sizeof script, "%s \"$0\" \"$@\"", before);
    command_run(
        c, NULL, END_MS,
        (const char *const[]){"/bin/sh", "-c", script, program, PROFILE(path, single), NULL});
}

static void check_same(const double want[CELLS], const double got[CELLS], const char *what)
{
    for (size_t i = 0; i < CELLS; i++)
        CHECK(want[i] == got[i], "%s: expert %zu: %.17g, not %.17g", what, i, got[i], want[i]);
}

/* Measurements that begin at the changed layer have the results of those from the first layer, also
 * after kills. */
static void begins_at_the_changed_layer(void)
{
    struct command c;
    char whole[PATH_MAX], part[PATH_MAX], killed[PATH_MAX];
    double want[CELLS], got[CELLS];
    make_model();
    profile_in_shell(&c, "trap '' XFSZ; ulimit -f 1000; exec", path_in_dir(whole, "whole"), "40");
    CHECK(c.status == 0 && strstr(c.err, "every measurement begins at the first layer"),
          "status %d: %.900s", c.status, c.err);
    command_free(&c);
    CHECK(importance(whole, want) == 40, "experts measured alone");
    profile(&c, path_in_dir(part, "part"), NULL, "40");
    CHECK(c.status == 0 && !strstr(c.err, "begins at the first layer"), "%.900s", c.err);
    command_free(&c);
    CHECK(importance(part, got) == 40, "experts measured alone");
    check_same(want, got, "from the changed layer");
    path_in_dir(killed, "killed");
    for (unsigned i = 0; i < test_amount(AMOUNT_importance_kills); i++) {
        char before[64];
        snprintf(before, sizeof before, "exec timeout -s KILL %.3f", 0.3 + rand() % 1000 / 800.0);
        profile_in_shell(&c, before, killed, "40");
        command_free(&c);
    }
    profile(&c, killed, NULL, "40");
    CHECK(c.status == 0, "%.900s", c.err);
    command_free(&c);
    CHECK(importance(killed, got) == 40, "experts measured alone");
    check_same(want, got, "after kills");
}

/* Blocks of lower precisions do not divide the rows: an error where those are needed. */
static void rows_without_lower_precisions(void)
{
    struct command c;
    char path[PATH_MAX], at[PATH_MAX];
    path_in_dir(path, "narrow.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path, "tiny", "layers=2",
                                      "expert_inner=32", "--type", "Q8_0", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"profile", "-m", path, "--text", TEXT, "-o",
                                      path_in_dir(at, "p"), NULL});
    CHECK(c.status == 2 && strstr(c.err, "rows of 32 elements"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
    for (int lossy = 0; lossy < 2; lossy++) {
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"eval", "-m", path, "--text", TEXT, "--offline",
                                          "--ctx-size", "64", "--max-windows", "1", "--preset",
                                          lossy ? "iq2" : "default", NULL});
        CHECK(c.status == (lossy ? 2 : 0) && !strstr(c.err, "rows of 32") == !lossy,
              "status %d: %.300s", c.status, c.err);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(continued_keeps_the_timings), ROW(groups_of_another_size),
        ROW(rows_without_lower_precisions), ROW(begins_at_the_changed_layer)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
