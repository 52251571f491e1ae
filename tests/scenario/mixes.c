/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant 1 with files whose experts are of several types, of a type other than the demo model's,
 * or of another architecture (layers without experts, shared experts, other routers): the same text
 * with a quarter of the experts, in chunks of any size, with the generic kernels, and when
 * processes are killed. The long form: combinations() in addition. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "tests/harness/harness.h"

#define SYNTH_MS  60000
#define FINISH_MS 60000
#define KEYS_MAX  32
/* Per process: generations that may end before the kill. */
#define KILL_TRIES 10

static char model[PATH_MAX];
static struct text expected;

static unsigned tokens_of_text(void)
{
    return test_amount(AMOUNT_mixes_tokens);
}

/* 48 experts whose rows are super-blocks, on an engine that holds all of them. keys: of the shape,
 * up to KEYS_MAX. */
static void make(const char *mix, const char *const keys[])
{
    struct command c;
    const char *args[12 + KEYS_MAX] = {
        "synth",           "-q",         "-o",           model,    "tiny",
        "layers=3",        "hidden=256", "head_size=64", "--type", mix,
        "expert_inner=256"};
    for (size_t i = 0; keys && keys[i]; i++)
        args[11 + i] = keys[i];
    snprintf(model, sizeof model, "%s/%s.gguf", test_dir(), mix);
    command_run(&c, NULL, SYNTH_MS, args);
    CHECK(c.status == 0, "synth: %.300s", c.err);
    command_free(&c);
    struct engine *e = engine_new();
    engine_start(e,
                 (const char *const[]){"-m", model, "--resident-experts=100", "--threads=1", NULL});
    engine_generate(e, test_prompt(1), tokens_of_text(), &expected);
    engine_stop(e);
}

static void check(struct text *got, const char *what)
{
    text_check_same(&expected, got, what);
    text_free(got);
}

static struct engine *start_scarce(const char *option)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, "--resident-experts=25", option, NULL});
    return e;
}

static void same_text_on(struct engine *e, const char *option)
{
    struct text got;
    engine_generate(e, test_prompt(1), tokens_of_text(), &got);
    check(&got, option);
    CHECK(engine_counter(e, "cache", "evictions") > 0, "no evictions");
}

static void same_text(const char *option)
{
    struct engine *e = start_scarce(option);
    same_text_on(e, option);
    engine_stop(e);
}

/* False: the generation ended before the kill. */
static bool kill_one(struct engine *e, const char *service, unsigned tokens)
{
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    struct generation *g = generation_start(e, test_prompt(1), tokens_of_text());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    bool running = !generation_done(g);
    kill(pid, SIGKILL);
    engine_pid(e, service, 0, pid);
    generation_finish(g, FINISH_MS, &got);
    check(&got, service);
    return running;
}

/* The first text is without a kill. */
static void kills(void)
{
    static const char *const services[] = {"cache", "loader", "compute"};
    struct engine *e = start_scarce("--threads=2");
    unsigned tries = 0;
    same_text_on(e, "--threads=2");
    for (unsigned i = 0; i < ARRAY_LEN(services); i++) {
        unsigned end = tries + KILL_TRIES;
        while (!kill_one(e, services[i], 10 + 20 * i))
            CHECK(++tries < end, "no kill of %s hit a running generation", services[i]);
    }
    test_note("%zu kills hit a running generation, %u did not", ARRAY_LEN(services), tries);
    engine_stop(e);
}

/* ---- every combination, with --long ---- */

static void generate(struct engine *e, const char *what)
{
    struct text got;
    engine_generate(e, test_prompt(1), tokens_of_text(), &got);
    check(&got, what);
}

/* compute is killed after some tokens, wherever it is, or (point) when it stops itself within a
 * token. */
static bool generate_with_kill(struct engine *e, const char *point, const char *what)
{
    struct text got;
    pid_t pid = engine_pid(e, "compute", 0, 0);
    if (point)
        json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", point)));
    struct generation *g = generation_start(e, test_prompt(1), tokens_of_text());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (!generation_done(g) &&
           (point ? process_state(pid) != 'T' : generation_tokens(g) < tokens_of_text() / 4))
        CHECK(deadline_tick(deadline), "%s: compute did not get so far", what);
    bool landed = !generation_done(g);
    CHECK(kill(pid, SIGKILL) == 0, "%s: compute exited on its own", what);
    engine_pid(e, "compute", 0, pid);
    generation_finish(g, FINISH_MS, &got);
    check(&got, what);
    return landed;
}

/* Shares of the experts x threads x chunks x kills of compute: none, between tokens, within one. */
static void combinations(void)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=50",
                                           "--resident-experts=25"};
    static const char *const threads[] = {"--threads=1", "--threads=2"};
    static const char *const chunks[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                         "--prefill-chunk=64"};
    unsigned between = 0, within = 0, count = 0;
    for (; count < ARRAY_LEN(resident) * ARRAY_LEN(threads) * ARRAY_LEN(chunks); count++) {
        const char *share = resident[count % 3], *thread = threads[count / 3 % 2],
                   *chunk = chunks[count / 6];
        char what[128];
        snprintf(what, sizeof what, "%s %s %s", share, thread, chunk);
        struct engine *e = engine_new();
        engine_start(e,
                     (const char *const[]){"-m", model, share, thread, chunk, "--keep-kv=0", NULL});
        generate(e, what);
        between += generate_with_kill(e, NULL, what);
        within += generate_with_kill(e, "COMPUTE_MID_TOKEN", what);
        engine_stop(e);
    }
    test_note("%u combinations; %u kills between tokens, %u within one", count, between, within);
    CHECK(between > 0 && within == count, "kills that hit nothing");
}

static void run(const char *mix, const char *const keys[])
{
    make(mix, keys);
    same_text("--prefill-chunk=7");
    same_text("--isa=generic"); /* the others: tests/unit/lib/kernels/bits_test.c */
    kills();
    if (test_long())
        combinations();
    text_free(&expected);
}

/* One of the checks; all with --long. */
static void sample(const char *option, const char *const keys[])
{
    if (test_long()) {
        run("Q4_K_M", keys);
        return;
    }
    make("Q4_K_M", keys);
    same_text(option);
    text_free(&expected);
}

static void q4_k_m(void)
{
    run("Q4_K_M", NULL);
}

static void mxfp4(void)
{
    run("MXFP4", NULL);
}

static void nvfp4(void)
{
    run("NVFP4", NULL);
}

/* Experts of a layer are more than twice as large as those of the next. */
static void layers_that_differ(void)
{
    run("Q8_0,IQ2_XXS,Q4_K_M", NULL);
}

#define RUN(name, mix, ...)                                                                        \
    static void name(void)                                                                         \
    {                                                                                              \
        run(mix, (const char *const[]){__VA_ARGS__, NULL});                                        \
    }
#define SAMPLE(name, option, ...)                                                                  \
    static void name(void)                                                                         \
    {                                                                                              \
        sample(option, (const char *const[]){__VA_ARGS__, NULL});                                  \
    }
#include "tests/scenario/mixes.tbl.h"

static void every_architecture(void);

static const struct test_case cases[] = {
    ROW(every_architecture), ROW(q4_k_m), ROW(mxfp4), ROW(nvfp4), ROW(layers_that_differ),
#define RUN(name, ...)    ROW(name),
#define SAMPLE(name, ...) ROW(name),
#include "tests/scenario/mixes.tbl.h"
};

/* Whether it is another name of an architecture before it. */
static bool is_other_name(int id)
{
    int first = 0;
    while (arch_list[first]->rows != arch_list[id]->rows)
        first++;
    return first < id;
}

/* Every architecture has a row: its name with _ for -. */
static void every_architecture(void)
{
    for (int id = 0; id < ARCH_COUNT; id++) {
        char name[64];
        bool found = is_other_name(id);
        snprintf(name, sizeof name, "%s", arch_list[id]->name);
        for (char *p = name; *p; p++)
            *p = *p == '-' ? '_' : *p;
        for (size_t i = 0; i < ARRAY_LEN(cases) && !found; i++)
            found = strcmp(cases[i].name, name) == 0;
        CHECK(found, "no case of %s", name);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
