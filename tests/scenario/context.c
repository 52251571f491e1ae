/* SPDX-License-Identifier: Apache-2.0 */
/* The context without --ctx-size: what the model has, as far as keys and values fit an eighth of
 * the budget, and 4096 tokens whatever they need; fewer only where the engine could not start
 * otherwise. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define CONTEXT "131072"
#define END_MS  120000

static void make_model(char path[PATH_MAX])
{
    struct command c;
    snprintf(path, PATH_MAX, "%s/long.gguf", test_dir());
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", path, "tiny", "arch=qwen3moe",
                                      "context=" CONTEXT, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

static json_t *memory_of(const char *path, const char *option, const char *other)
{
    return command_json(
        END_MS, (const char *const[]){"run", "-m", path, "--print-memory", option, other, NULL});
}

static uint64_t take(json_t *doc, const char *name)
{
    uint64_t value = lookup_u64(doc, name);
    json_decref(doc);
    return value;
}

static uint64_t context_with(const char *path, uint64_t budget)
{
    char option[64];
    snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
    return take(memory_of(path, option, NULL), "ctx_size");
}

static void follows_the_budget(void)
{
    char path[PATH_MAX];
    make_model(path);
    uint64_t whole = strtoull(CONTEXT, NULL, 10);
    uint64_t kv = take(memory_of(path, "--budget=8GiB", "--ctx-size=" CONTEXT), "kv_bytes");
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize < 8 * kv)
        test_skip("/dev/shm has less than the budget whose eighth is the whole context");
    CHECK(context_with(path, 8 * kv) == whole, "not the whole context");
    CHECK(context_with(path, 8 * kv - MIB) < whole, "more than an eighth");
    for (uint64_t part = 2; part <= 16; part *= 2) {
        uint64_t got = context_with(path, 8 * kv / part);
        CHECK(got <= whole / part && (got + 1024 > whole / part || got == 4096),
              "%" PRIu64 " tokens with 1/%" PRIu64 " of it", got, part);
    }
    uint64_t low = take(memory_of(path, "--budget=8GiB", "--ctx-size=4096"), "min_budget");
    CHECK(context_with(path, low) == 4096, "not 4096 tokens with the minimum for them");
    /* The minimum that doctor states is enough. */
    CHECK(take(memory_of(path, "--budget=8GiB", NULL), "min_budget") <= low, "minimum too high");
}

/* Every budget that is stated for a share of the experts gives it, with the context that it
 * chooses. */
static void budgets_hold(void)
{
    char path[PATH_MAX], name[32], option[64];
    make_model(path);
    json_t *doc = memory_of(path, "--budget=8GiB", NULL);
    for (int share = 25; share <= 100; share += 25) {
        snprintf(name, sizeof name, "budgets.%d", share);
        uint64_t budget = lookup_u64(doc, name);
        CHECK(budget > 0, "no budget for %d %%", share);
        snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
        json_t *with = memory_of(path, option, NULL);
        double got = json_real_value(json_object_get(json_object_get(with, "auto"), "share"));
        CHECK(got >= share / 100.0 - 0.005, "%d %%: %.4f", share, got);
        json_decref(with);
    }
    json_decref(doc);
}

/* Shown at the start and in the status; a budget for fewer than 4096 tokens still starts. */
static void engine_shows_it(void)
{
    char path[PATH_MAX], option[64], shown[64];
    make_model(path);
    uint64_t low = take(memory_of(path, "--budget=8GiB", "--ctx-size=1024"), "min_budget");
    snprintf(option, sizeof option, "--budget=%" PRIu64, low + MIB);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, option, NULL});
    json_t *doc = engine_stats(e);
    uint64_t context = lookup_u64(doc, "model.context");
    json_decref(doc);
    CHECK(context >= 1024 && context < 4096, "%" PRIu64 " tokens", context);
    char *log = engine_log(e);
    snprintf(shown, sizeof shown, "context %" PRIu64 " tokens", context);
    CHECK(strstr(log, shown), "the log lacks '%s'", shown);
    free(log);
    engine_stop(e);
}

/* The minimum that is stated, and offered by doctor and tune, is that of a start. */
static void minimum_is_that_of_a_start(void)
{
    char path[PATH_MAX], option[64];
    struct command c;
    make_model(path);
    uint64_t low = take(memory_of(path, "--budget=8GiB", "--ctx-size=512"), "min_budget");
    uint64_t min_budget = take(memory_of(path, "--budget=8GiB", NULL), "min_budget");
    CHECK(min_budget == low, "%" PRIu64 ", with 512 tokens %" PRIu64, min_budget, low);
    snprintf(option, sizeof option, "--budget=%" PRIu64, min_budget - MIB);
    command_run(&c, NULL, END_MS, (const char *const[]){"run", "-m", path, option, NULL});
    CHECK(c.status == 2 && strstr(c.err, "is too small for this model"), "status %d: %.300s",
          c.status, c.err);
    command_free(&c);
    snprintf(option, sizeof option, "--budget=%" PRIu64, min_budget);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, option, NULL});
    json_t *doc = engine_stats(e);
    uint64_t context = lookup_u64(doc, "model.context");
    CHECK(context >= 512 && context < 4096, "%" PRIu64 " tokens", context);
    json_decref(doc);
    engine_stop(e);
}

static void too_few(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"run", "-m", test_model(), "--ctx-size=15", NULL});
    CHECK(c.status == 2 && strstr(c.err, "--ctx-size: at least 16"), "status %d: %.300s", c.status,
          c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(follows_the_budget), ROW(budgets_hold),
                                             ROW(engine_shows_it), ROW(minimum_is_that_of_a_start),
                                             ROW(too_few)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
