/* SPDX-License-Identifier: Apache-2.0 */
/* A table of n-grams on storage that is larger than its cache: the same text in any chunks, beside
 * other sequences, from a file, a split file and a store, and when loader, cache or compute is
 * killed while rows are read; and the simulator counts the rows, pages and reads of an engine. That
 * the text is that of a table in memory: core_table_test. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define TOKENS      40
#define TOOL_MS     120000
#define LONG_TOKENS 600
#define LONG        2u /* test_prompt: of many pages */

static char model[PATH_MAX];

/* 16 rows of 34 bytes for each token, of 39 MiB: five times the page slots. */
static void make(void)
{
    continued_make(model, (const char *const[]){"arch=qwen4exp", "shared_inner=64", "rope_dims=8",
                                                "conv_taps=4", "delta_size=16", "delta_k_heads=2",
                                                "delta_v_heads=4", "delta_inner=64",
                                                "attention_step=2", "streams=4", "stream_rank=16",
                                                "ngram_size=3", "ngram_heads=8", "ngram_taps=4",
                                                "ngram_width=32", "ngram_rows=1200000", NULL});
}

static struct engine *start(const char *path, const char *option)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", path, "--keep-kv=0", option, NULL});
    return e;
}

static void check_text(struct engine *e, unsigned prompt, const struct text *want, const char *what)
{
    struct text got;
    engine_generate(e, test_prompt(prompt), TOKENS, &got);
    text_check_same(want, &got, what);
    text_free(&got);
}

static void reference(struct text *want)
{
    struct engine *e = start(model, "--prefill-chunk=16");
    engine_generate(e, test_prompt(LONG), TOKENS, want);
    engine_stop(e);
}

static uint64_t of_cache(struct engine *e, const char *counter)
{
    return engine_counter(e, "cache", counter);
}

/* Rows are counted, and the table is never in memory as a whole. */
static void check_counts(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t tokens = lookup_counter(doc, "compute", "tokens_prefill") +
                      lookup_counter(doc, "compute", "tokens_decode");
    uint64_t rows = lookup_counter(doc, "compute", "table_rows");
    uint64_t cache = lookup_u64(doc, "model.table_cache_bytes");
    CHECK(rows >= 16 * (tokens - 1) && rows <= 16 * tokens, "%llu rows of %llu tokens",
          (unsigned long long)rows, (unsigned long long)tokens);
    CHECK(cache < lookup_u64(doc, "model.table_bytes") / 4, "a cache of %llu bytes",
          (unsigned long long)cache);
    CHECK(lookup_u64(doc, "model.dense_bytes") < lookup_u64(doc, "model.table_bytes"),
          "the dense weights have the table");
    json_decref(doc);
    CHECK(of_cache(e, "page_evictions") > 0, "%llu pages were read, and none was replaced",
          (unsigned long long)of_cache(e, "page_loads"));
}

static void chunks(void)
{
    static const char *const chunk[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                        "--prefill-chunk=64", "--prefill-chunk=512"};
    struct text want;
    make();
    reference(&want);
    for (size_t i = 0; i < ARRAY_LEN(chunk); i++) {
        struct engine *e = start(model, chunk[i]);
        check_text(e, LONG, &want, chunk[i]);
        check_counts(e);
        engine_stop(e);
    }
    text_free(&want);
}

static void four_sequences(void)
{
    struct text want[4];
    struct generation *g[4];
    make();
    struct engine *e = start(model, "--parallel=4");
    for (unsigned i = 0; i < 4; i++)
        engine_generate(e, test_prompt(i % 3), TOKENS + i, &want[i]);
    for (unsigned i = 0; i < 4; i++)
        g[i] = generation_start(e, test_prompt(i % 3), TOKENS + i);
    for (unsigned i = 0; i < 4; i++) {
        struct text got;
        generation_finish(g[i], TOOL_MS, &got);
        text_check_same(&want[i], &got, "beside three others");
        text_free(&got);
        text_free(&want[i]);
    }
    engine_stop(e);
}

/* The table is in another part than the first one. */
static void other_files(void)
{
    char path[PATH_MAX];
    struct text want;
    struct command c;
    make();
    reference(&want);
    snprintf(path, sizeof path, "%s/store", test_dir());
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"pack", "--quiet", "-m", model, "-o", path, NULL});
    CHECK(c.status == 0, "pack: %.300s", c.err);
    command_free(&c);
    struct engine *e = start(path, "--prefill-chunk=64");
    check_text(e, LONG, &want, "a store");
    CHECK(of_cache(e, "page_loads") > 0, "no page was read");
    engine_stop(e);
    e = start(model, "--loaders=2");
    check_text(e, LONG, &want, "two loaders");
    CHECK(engine_counter(e, "loader", "parts_done") > 0, "no page was read");
    engine_stop(e);
    text_free(&want);
}

/* Pages are read for every token, although every expert is in memory: they keep no prediction
 * alive. The predictor ends 100 ms after the last load of an expert. */
static void no_predictions(void)
{
    struct text got;
    make();
    struct engine *e = start(model, "--policy=preload=all");
    uint64_t pages = of_cache(e, "page_loads"), rows, tokens, rounds = 0;
    do {
        rows = engine_counter(e, "predictor", "rows_read");
        engine_generate(e, test_prompt(LONG), LONG_TOKENS, &got);
        tokens = got.count;
        text_free(&got);
        rows = engine_counter(e, "predictor", "rows_read") - rows;
    } while (rows > tokens && rounds++ < 10);
    CHECK(rows <= tokens, "%llu rows of gates were read for %llu tokens", (unsigned long long)rows,
          (unsigned long long)tokens);
    CHECK(of_cache(e, "page_loads") > pages, "no page was read");
    engine_stop(e);
}

/* ---- the simulator ---- */

struct counts {
    uint64_t rows, pages, reads;
};

static struct counts of_engine(struct engine *e)
{
    uint64_t lost = engine_counter(e, "recorder", "records_dropped");
    const struct counts c = {.rows = engine_counter(e, "compute", "table_rows"),
                             .pages = engine_counter(e, "compute", "table_pages"),
                             .reads = of_cache(e, "page_loads")};
    engine_stop(e);
    if (lost > 0)
        test_skip("the recorder fell behind by %" PRIu64 " records", lost);
    return c;
}

static struct counts of_sim(const char *trace, const char *const shown)
{
    struct command c;
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"sim", trace, "--presets", "lod", "--budgets", "50%",
                                      "--calibrate", "0", "--output", "json", NULL});
    CHECK(c.status == 0, "sim: %.300s", c.err);
    json_t *doc = json_loads(c.out, 0, NULL);
    const json_t *result = json_array_get(json_object_get(doc, "results"), 0);
    struct counts all = {0};
    for (int p = 0; p < 2; p++) {
        const json_t *f = json_object_get(result, p == 0 ? "decode" : "prefill");
        all.rows += lookup_u64(f, "table_rows");
        all.pages += lookup_u64(f, "table_pages");
        all.reads += lookup_u64(f, "table_reads");
        CHECK(lookup_u64(f, "table_bytes") == lookup_u64(f, "table_reads") * PAGE_BYTES,
              "bytes of reads");
    }
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"sim", trace, "--presets", "lod", "--budgets", "50%", NULL});
    CHECK((strstr(c.out, shown) != NULL) == (all.rows > 0), "not in: %s", c.out);
    command_free(&c);
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"sim", trace, "--presets", "lod", "--budgets", "50%",
                                      "--parallel", "1,2", NULL});
    for (int n = 1; n <= 2; n++) {
        char line[80];
        snprintf(line, sizeof line, "decode of %d sequence%s: 16.00 per", n, n == 1 ? "" : "s");
        CHECK(c.status == 0 && (strstr(c.out, line) != NULL) == (all.rows > 0), "%s is not in: %s",
              line, c.out);
    }
    command_free(&c);
    return all;
}

/* A pass has fewer pages of a set than the set has slots, so that what is read depends on the order
 * of the tokens alone. */
static void sim_counts(void)
{
    char trace[PATH_MAX], option[PATH_MAX + 16];
    make();
    for (int rows = 1; rows >= 0; rows--) {
        snprintf(trace, sizeof trace, "%s/rows%d.trace", test_dir(), rows);
        snprintf(option, sizeof option, "--trace=%s", trace);
        struct engine *e = engine_new();
        engine_start(e, (const char *const[]){"-m", model, "--keep-kv=0", "--deterministic=on",
                                              "--prefill-chunk=16", option,
                                              rows ? "--trace-rows=on" : NULL, NULL});
        for (unsigned i = 0; i < (rows ? 3u : 1u); i++) {
            struct text text;
            engine_generate(e, test_prompt(i == 1 ? 1 : LONG), TOKENS, &text);
            text_free(&text);
        }
        struct counts real = of_engine(e);
        struct counts modelled = of_sim(trace, "Rows of the table, decode: 16.00 per token");
        test_note("%" PRIu64 " rows in %" PRIu64 " pages, %" PRIu64 " read; in sim %" PRIu64
                  ", %" PRIu64 ", %" PRIu64,
                  real.rows, real.pages, real.reads, modelled.rows, modelled.pages, modelled.reads);
        CHECK(real.rows > 1000 && real.reads > 1000 && real.reads < real.pages,
              "too few rows, or no hits, to compare");
        if (rows)
            CHECK(real.rows == modelled.rows && real.pages == modelled.pages &&
                      real.reads == modelled.reads,
                  "the simulator is off by %" PRId64 " reads",
                  (int64_t)(modelled.reads - real.reads));
        else
            CHECK(modelled.rows == 0, "rows in a trace without --trace-rows");
    }
}

/* 16 rows of a token are 4 records, and half of the ring is 8,192. */
static void rows_of_large_chunks(void)
{
    char trace[PATH_MAX + 16];
    struct command c;
    make();
    snprintf(trace, sizeof trace, "--trace=%s/large.trace", test_dir());
    command_run(&c, NULL, TOOL_MS,
                (const char *const[]){"run", "--name=large", "--log-level=error", "-m", model,
                                      trace, "--trace-rows=on", "--prefill-chunk=2049", NULL});
    CHECK(c.status == 2 && strstr(c.err, "--prefill-chunk must be 2048 at most"),
          "status %d: %.300s", c.status, c.err);
    command_free(&c);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, trace, "--trace-rows=on",
                                          "--prefill-chunk=2048", NULL});
    engine_stop(e);
}

/* A trace that follows the text is of its owner alone, also one that is overwritten. */
static void modes(void)
{
    static const struct {
        const char *option;
        mode_t others;
    } cases[] = {
        {NULL, 0044}, {"--trace-rows=on", 0}, {"--trace-logits=on", 0}, {"--trace-inputs=on", 0}};
    char trace[PATH_MAX], option[PATH_MAX + 16];
    make();
    snprintf(trace, sizeof trace, "%s/modes.trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", trace);
    const mode_t mask = umask(022);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct stat st;
        struct engine *e = engine_new();
        CHECK(i < 2 || unlink(trace) == 0, "cannot remove %s", trace);
        engine_start(
            e, (const char *const[]){"-m", model, "--force=on", option, cases[i].option, NULL});
        engine_stop(e);
        CHECK(stat(trace, &st) == 0 && (st.st_mode & 0777) == (0600 | cases[i].others),
              "%s: mode %o", cases[i].option ? cases[i].option : "no option", (unsigned)st.st_mode);
    }
    umask(mask);
}

/* ---- kills ---- */

static void kill_at(struct engine *e, const char *point, const char *service,
                    const struct text *want)
{
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", point)));
    struct generation *g = generation_start(e, test_prompt(LONG), TOKENS);
    uint64_t deadline = deadline_in(TOOL_MS);
    while (process_state(pid) != 'T')
        CHECK(!generation_done(g) && deadline_tick(deadline), "%s: %s did not reach the point",
              point, service);
    CHECK(kill(pid, SIGKILL) == 0, "%s: kill failed", point);
    engine_pid(e, service, 0, pid);
    generation_finish(g, TOOL_MS, &got);
    text_check_same(want, &got, point);
    text_free(&got);
}

static void kill_while_running(struct engine *e, const char *service, const struct text *want)
{
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    struct generation *g = generation_start(e, test_prompt(LONG), TOKENS);
    uint64_t rows = engine_counter(e, "compute", "table_rows");
    engine_wait_counter(e, "compute", "table_rows", rows + 500, TOOL_MS);
    CHECK(kill(pid, SIGKILL) == 0, "%s: kill failed", service);
    engine_pid(e, service, 0, pid);
    generation_finish(g, TOOL_MS, &got);
    text_check_same(want, &got, service);
    text_free(&got);
}

/* All experts are in memory: what is read is pages. */
static void kills(void)
{
    static const struct {
        const char *point, *service;
    } points[] = {{"LOADER_READS_PENDING", "loader"}, {"LOADER_BEFORE_PUBLISH", "loader"},
                  {"CACHE_RESERVED", "cache"},        {"COMPUTE_PREFILL", "compute"},
                  {"COMPUTE_MID_TOKEN", "compute"},   {"LOADER_READS_PENDING", "loader"}};
    static const char *const services[] = {"loader", "cache", "compute"};
    struct text want;
    make();
    reference(&want);
    struct engine *e = start(model, "--prefill-chunk=64");
    check_text(e, LONG, &want, "before");
    for (size_t i = 0; i < ARRAY_LEN(points); i++)
        kill_at(e, points[i].point, points[i].service, &want);
    for (unsigned i = 0; i < (test_long() ? 12 : 3); i++)
        kill_while_running(e, services[i % 3], &want);
    check_text(e, LONG, &want, "after");
    text_free(&want);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(chunks),         ROW(four_sequences), ROW(other_files),          ROW(kills),
        ROW(no_predictions), ROW(sim_counts),     ROW(rows_of_large_chunks), ROW(modes)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
