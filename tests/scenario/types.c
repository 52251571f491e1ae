/* SPDX-License-Identifier: Apache-2.0 */
/* Every mix of tensor types: the losses of a small random model, token by token, are those of
 * llama.cpp (tests/golden/type_losses.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS     120000
#define MEDIAN_MAX 0.02 /* a mean would be spoilt by ties of the router */
#define WORDS_MAX  32

static void make_model(const json_t *doc, const char *mix, const char *path)
{
    const json_t *shape = json_object_get(doc, "shape");
    const char *words[WORDS_MAX] = {"synth", "-q", "-o", path};
    size_t n = 4;
    for (size_t i = 0; i < json_array_size(shape) && n + 3 < WORDS_MAX; i++)
        words[n++] = json_string_value(json_array_get(shape, i));
    words[n++] = "--type";
    words[n++] = mix;
    struct command c;
    command_run(&c, NULL, END_MS, words);
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_gap(const json_t *got, const json_t *want)
{
    size_t count = json_array_size(want);
    CHECK(count > 0 && json_array_size(got) == count, "%zu losses instead of %zu",
          json_array_size(got), count);
    double *gap = calloc(count, sizeof *gap);
    for (size_t i = 0; i < count; i++)
        gap[i] = fabs(json_number_value(json_array_get(got, i)) -
                      json_number_value(json_array_get(want, i)));
    qsort(gap, count, sizeof *gap, ascending);
    double median = gap[count / 2];
    free(gap);
    return median;
}

static void compare(const json_t *doc, const char *mix, const json_t *want, const char *ids)
{
    char path[PATH_MAX], window[16];
    struct command c;
    snprintf(path, sizeof path, "%s/%s.gguf", test_dir(), mix);
    snprintf(window, sizeof window, "%d", (int)json_integer_value(json_object_get(doc, "window")));
    make_model(doc, mix, path);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"eval", "-m", path, "--ids", ids, "--ctx-size", window,
                                      "--per-token", "--output", "json", NULL});
    CHECK(c.status == 0, "%s: %.300s", mix, c.err);
    json_t *got = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    double median = median_gap(json_object_get(got, "nll_per_token"), want);
    CHECK(median <= MEDIAN_MAX, "%s: losses differ by %.4f (median), or synth makes another model",
          mix, median);
    json_decref(got);
    command_free(&c);
    unlink(path);
}

static void losses_of_every_mix(void)
{
    char ids[PATH_MAX];
    json_t *doc = json_load_file(SLUICE_SOURCE_DIR "/tests/golden/data/type_losses.json", 0, NULL);
    CHECK(doc, "no type_losses.json");
    snprintf(ids, sizeof ids, "%s/ids.json", test_dir());
    json_t *given = json_pack("{s:O}", "ids", json_object_get(doc, "ids"));
    CHECK(json_dump_file(given, ids, 0) == 0, "cannot write %s", ids);
    json_decref(given);
    const char *mix;
    json_t *want;
    size_t mixes = json_object_size(json_object_get(doc, "mixes"));
    CHECK(mixes > 30, "%zu mixes", mixes);
    json_object_foreach(json_object_get(doc, "mixes"), mix, want) compare(doc, mix, want, ids);
    json_decref(doc);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(losses_of_every_mix),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
