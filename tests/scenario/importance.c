/* SPDX-License-Identifier: Apache-2.0 */
/* sluice profile: importance of experts, by groups and alone; what an interrupted run has measured is continued. */
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
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"synth", "-q", "-o", model, "tiny", "layers=4", "experts=32", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

/* A profile with --importance-group `group` (NULL: the default) and single experts. */
static void profile(struct command *c, const char *path, const char *group, const char *single)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"profile", "-m",
                                      model,     "--text",
                                      TEXT,      "-o",
                                      path,      "--ctx-size",
                                      "32",      "--tokens",
                                      "128",     "--pair-mib",
                                      "1",       "--importance-tokens",
                                      "64",      "--importance-experts",
                                      single,    group ? "--importance-group" : NULL,
                                      group,     NULL});
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

/* A file that has values by groups of one size is continued with that size only; without the option it is. */
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

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(groups_of_another_size)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
