/* SPDX-License-Identifier: Apache-2.0 */
/* Loads that no access requested: preloading, the expert swaps of swapmoe, and the warm start. */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/trace/trace.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define WAIT_MS 60000
#define PROMPTS 12u
#define HALF    "--resident-experts=50"

static void start(struct engine *e, const char *experts, const char *a, const char *b)
{
    char path[PATH_MAX], option[PATH_MAX + 8];
    plan_make(path, "made.plan", 0);
    snprintf(option, sizeof option, "--plan=%s", path);
    /* every prompt is computed, also the one that was computed last */
    engine_start(e, (const char *const[]){option, "--keep-kv=0", experts, a, b, NULL});
}

static void wait_resident(struct engine *e, uint64_t wanted)
{
    uint64_t deadline = deadline_in(WAIT_MS), now;
    while ((now = engine_counter(e, "cache", "resident_entries")) < wanted)
        CHECK(deadline_tick(deadline), "%" PRIu64 " experts are resident, expected %" PRIu64, now,
              wanted);
}

static void generate(struct engine *e, unsigned prompt)
{
    struct text got;
    engine_generate(e, test_prompt(prompt), baseline_tokens(), &got);
    text_free(&got);
}

/* All experts are resident before the first access, so nothing misses. */
static void everything(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--preset=resident", NULL});
    wait_resident(e, 256);
    baseline_compare(e, 0, "filled at first");
    CHECK(engine_counter(e, "compute", "misses") == 0, "an access missed");
    engine_stop(e);
}

/* The preload fills the capacity without evictions. */
static void most_used(void)
{
    struct engine *e = engine_new();
    start(e, "--resident-experts=25", "--policy=preload=frequency,prediction=none,prefetch=none",
          NULL);
    wait_resident(e, 64);
    CHECK(engine_counter(e, "cache", "evictions") == 0, "the preload evicted an expert");
    baseline_compare(e, 0, "filled by frequency");
    engine_stop(e);
}

/* auto preloads too; without frequencies in index order. */
static void without_a_plan(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--preset=auto", "--resident-experts=50", NULL});
    wait_resident(e, 128);
    CHECK(engine_counter(e, "cache", "evictions") == 0, "the preload evicted an expert");
    baseline_compare(e, 0, "filled in order");
    engine_stop(e);
}

static void wait_filled(struct engine *e)
{
    uint64_t deadline = deadline_in(WAIT_MS), before, now = 0;
    do { /* until two consecutive samples are equal */
        before = now;
        generate(e, 2);
        now = engine_counter(e, "cache", "resident_entries");
        CHECK(deadline_tick(deadline), "the preload has not ended");
    } while (now != before);
}

static void fixed_set(void)
{
    struct engine *e = engine_new();
    start(e, "--resident-experts=50", "--preset=pruned", NULL);
    wait_filled(e);
    uint64_t misses = engine_counter(e, "compute", "misses"),
             evictions = engine_counter(e, "cache", "evictions");
    generate(e, 0);
    CHECK(engine_counter(e, "compute", "misses") == misses,
          "an access to an expert that is not resident");
    CHECK(engine_counter(e, "cache", "evictions") == evictions, "the set changed");
    engine_stop(e);
}

static void exchanges(void)
{
    struct engine *e = engine_new();
    start(e, "--resident-experts=50", "--preset=swapmoe", "--policy=interval=8");
    /* even sets of 16 of a layer, 15 of the last, before an expert outside of them is requested */
    wait_resident(e, 127);
    wait_filled(e);
    uint64_t misses = engine_counter(e, "compute", "misses"),
             inflight = engine_counter(e, "compute", "hits_inflight"),
             expert_swaps = engine_counter(e, "cache", "expert_swaps"),
             resident = engine_counter(e, "cache", "resident_entries"),
             decoded = engine_counter(e, "compute", "tokens_decode");
    uint64_t deadline = deadline_in(WAIT_MS);
    do {
        generate(e, 0);
        generate(e, 1);
        CHECK(deadline_tick(deadline), "no expert swap");
    } while (engine_counter(e, "cache", "expert_swaps") == expert_swaps);
    uint64_t tokens = engine_counter(e, "compute", "tokens_decode") - decoded;
    expert_swaps = engine_counter(e, "cache", "expert_swaps") - expert_swaps;
    test_note("%" PRIu64 " expert swaps in %" PRIu64 " tokens, %" PRIu64 " experts resident",
              expert_swaps, tokens, resident);
    /* a swap per wake-up of an idle cache, each 50 ms, would be about ten */
    CHECK(expert_swaps >= tokens / 8, "%" PRIu64 " expert swaps in %" PRIu64 " tokens",
          expert_swaps, tokens);
    CHECK(engine_counter(e, "compute", "misses") == misses &&
              engine_counter(e, "compute", "hits_inflight") == inflight,
          "an access waited for a load");
    uint64_t after = engine_counter(e, "cache", "resident_entries");
    CHECK(after <= resident + 1 && after + 1 >= resident, "%" PRIu64 " became %" PRIu64, resident,
          after);
    engine_stop(e);
}

/* Prompts alone, in default chunks: each passes several plans of a layer. No idle gap between
 * pairs, and no wait for the cache's tick, so that the swaps follow from the tokens: many per
 * prompt. */
static void exchanges_in_prefill(void)
{
    struct engine *e = engine_new();
    start(e, "--resident-experts=50", "--preset=swapmoe", "--policy=interval=32,margin=0");
    wait_resident(e, 127);
    wait_filled(e);
    uint64_t before = engine_counter(e, "cache", "expert_swaps"),
             misses = engine_counter(e, "compute", "misses");
    for (unsigned n = 0; n < PROMPTS; n++) { /* of 300 and 60 tokens */
        struct text got;
        engine_generate(e, test_prompt(2 - n % 2), 1, &got);
        text_free(&got);
    }
    uint64_t swaps = engine_counter(e, "cache", "expert_swaps") - before;
    test_note("%" PRIu64 " expert swaps in %u prompts", swaps, PROMPTS);
    CHECK(swaps >= 8 * PROMPTS, "%" PRIu64 " expert swaps in %u prompts", swaps, PROMPTS);
    CHECK(engine_counter(e, "compute", "misses") == misses, "an access waited for a load");
    engine_stop(e);
}

/* A prompt is routed in parts that are short compared with the interval, whatever the chunk is:
 * within a part the set stays. */
static void short_chunks(void)
{
    char path[PATH_MAX], plan[PATH_MAX], option[PATH_MAX + 16];
    struct engine *e = engine_new();
    struct text got;
    struct trace trace;
    struct error error;
    uint64_t rows = 0, parts = 0;
    snprintf(path, sizeof path, "%s/short.trace", test_dir());
    plan_make(plan, "short.plan", 0);
    snprintf(option, sizeof option, "--trace=%s", path);
    engine_start(e, (const char *const[]){"--plan", plan, "--resident-experts=50",
                                          "--preset=swapmoe", "--policy=interval=32",
                                          "--prefill-chunk=256", option, NULL});
    engine_generate(e, test_prompt(2), 1, &got); /* of 300 tokens */
    text_free(&got);
    engine_stop(e);
    CHECK(trace_read(path, &trace, &error) == 0, "%s", error.text);
    for (uint64_t i = 0; i < trace.count; i++) {
        const struct trace_record *r = &trace.records[i];
        if (r->kind != TRACE_TOKEN_END)
            continue;
        CHECK(r->tokens <= 10, "%u tokens were routed together", r->tokens);
        rows += r->tokens;
        parts++;
    }
    CHECK(rows > 100 && parts >= rows / 10, "%" PRIu64 " tokens in %" PRIu64 " parts", rows, parts);
    trace_free(&trace);
}

/* Residents of the previous preset take no capacity from the sets: they are evicted without an
 * access. */
static void sets_after_preset_change(void)
{
    struct engine *e = engine_new();
    struct text got;
    start(e, "--resident-experts=50", "--preset=lod", NULL);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        generate(e, i);
    uint64_t before = engine_counter(e, "cache", "evictions");
    CHECK(before > 0, "the capacity is not full");
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", "swapmoe")));
    engine_generate(e, test_prompt(0), 1, &got);
    text_free(&got);
    engine_wait_counter(e, "cache", "evictions", before + 20, WAIT_MS);
    wait_filled(e);
    uint64_t misses = engine_counter(e, "compute", "misses");
    generate(e, 0);
    CHECK(engine_counter(e, "compute", "misses") == misses, "an access waited for a load");
    engine_stop(e);
}

/* ---- warm start ---- */

/* Without a preload, which would fill the free space between the start and the first request. */
static struct engine *start_warm(struct engine *e, const char *experts)
{
    if (!e)
        e = engine_new();
    engine_start(e, (const char *const[]){"--warm-start=on", "--keep-kv=0", experts,
                                          "--policy=prediction=none,prefetch=none,preload=none",
                                          NULL});
    return e;
}

/* The file of the only model that this case used. */
static void list_path(char path[PATH_MAX])
{
    glob_t found;
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/sluice/*/experts", test_dir());
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1, "no file %s", pattern);
    snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* A second start has the experts of the first one before a request. */
static void second_start_is_warm(void)
{
    struct engine *e = start_warm(NULL, HALF);
    CHECK(engine_counter(e, "cache", "resident_entries") == 0, "the first start is not a cold one");
    baseline_compare(e, 0, "cold");
    engine_stop(e);
    start_warm(e, HALF);
    wait_resident(e, 128);
    CHECK(engine_counter(e, "cache", "evictions") == 0, "the warm start evicted an expert");
    baseline_compare(e, 0, "warm");
    engine_stop(e);
}

/* Where all experts fit, those of the first run do not miss again. */
static void same_prompt_again(void)
{
    static const char all[] = "--resident-experts=100";
    struct engine *e = start_warm(NULL, all);
    generate(e, 0);
    uint64_t cold = engine_counter(e, "compute", "misses"),
             used = engine_counter(e, "cache", "resident_entries");
    engine_stop(e);
    start_warm(e, all);
    wait_resident(e, used);
    generate(e, 0);
    uint64_t warm = engine_counter(e, "compute", "misses");
    test_note("%" PRIu64 " misses after a cold start, %" PRIu64 " after a warm one", cold, warm);
    CHECK(cold > 0 && warm == 0, "%" PRIu64 " misses after %" PRIu64, warm, cold);
    engine_stop(e);
}

/* A damaged list is none, and the next stop replaces it. */
static void damaged_list(void)
{
    char path[PATH_MAX];
    struct engine *e = start_warm(NULL, HALF);
    generate(e, 0);
    engine_stop(e);
    list_path(path);
    CHECK(truncate(path, 50) == 0, "truncate");
    start_warm(e, HALF);
    baseline_compare(e, 0, "after a damaged list");
    engine_stop(e);
    struct stat st;
    CHECK(stat(path, &st) == 0 && st.st_size > 50, "the damaged list is still there");
}

/* Killed at once, an engine leaves the list of the runs before. */
static void killed_engine(void)
{
    char path[PATH_MAX];
    struct stat before, after;
    struct engine *e = start_warm(NULL, HALF);
    generate(e, 0);
    engine_stop(e);
    list_path(path);
    CHECK(stat(path, &before) == 0, "stat");
    start_warm(e, HALF);
    wait_resident(e, 128);
    generate(e, 1);
    int status;
    kill(e->pid, SIGKILL); /* its children follow */
    CHECK(engine_wait_end(e, WAIT_MS, &status), "SIGKILL");
    CHECK(stat(path, &after) == 0 && after.st_ino == before.st_ino, "the list is another one");
    start_warm(e, HALF);
    wait_resident(e, 128);
    engine_stop(e);
}

/* No place for the list: the engine runs as without. */
static void no_place_for_the_list(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sluice", test_dir());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "cannot make %s", path);
    close(fd);
    struct engine *e = start_warm(NULL, HALF);
    baseline_compare(e, 0, "no cache directory");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(everything),
                                             ROW(most_used),
                                             ROW(without_a_plan),
                                             ROW(fixed_set),
                                             ROW(exchanges),
                                             ROW(exchanges_in_prefill),
                                             ROW(short_chunks),
                                             ROW(sets_after_preset_change),
                                             ROW(second_start_is_warm),
                                             ROW(same_prompt_again),
                                             ROW(damaged_list),
                                             ROW(killed_engine),
                                             ROW(no_place_for_the_list)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
