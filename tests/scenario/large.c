/* SPDX-License-Identifier: Apache-2.0 */
/* Experts large enough for huge pages, unlike those of the demo model. Text, externally measured
 * budget and clean-up must be as with small pages, also when the processes that allocate the pages
 * or read into them are killed. */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define SYNTH_MS  60000
#define FINISH_MS 120000
#define TOKENS    100

static struct text expected;
static char model[PATH_MAX];
static uint64_t min_budget_bytes;

/* 48 experts of 1.6 MiB; the reference text comes from small pages and an ample budget. */
static void make_model(void)
{
    struct command c;
    snprintf(model, sizeof model, "%s/large.gguf", test_dir());
    command_run(&c, NULL, SYNTH_MS,
                (const char *const[]){"synth", "-q", "-o", model, "tiny", "layers=3", "experts=16",
                                      "hidden=512", "expert_inner=1024", "--type", "Q8_0", NULL});
    CHECK(c.status == 0, "synth: %s", c.err);
    command_free(&c);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", model, "--huge-pages=off", "--cgroup=off", NULL});
    engine_generate(e, test_prompt(0), TOKENS, &expected);
    CHECK(engine_counter(e, "cache", "huge_bytes") == 0,
          "huge pages are used although they are off");
    json_t *doc = engine_stats(e);
    min_budget_bytes = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
}

static void start(struct engine *e, uint64_t budget)
{
    char option[48];
    snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
    engine_start(e, (const char *const[]){"-m", model, option, "--cgroup=off", NULL});
}

static void generate(struct engine *e, const char *what)
{
    struct text got;
    engine_generate(e, test_prompt(0), TOKENS, &got);
    text_check_same(&expected, &got, what);
    text_free(&got);
}

static void kill_during(struct engine *e, const char *service, size_t at)
{
    struct generation *g = generation_start(e, test_prompt(0), TOKENS);
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < at && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    kill(pid, SIGKILL);
    engine_pid(e, service, 0, pid);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(&expected, &got, service);
    text_free(&got);
}

/* A quarter of the experts fits, so slots are allocated and freed constantly. */
static void within_the_budget(void)
{
    static const char *const services[] = {"cache", "loader", "compute"};
    make_model();
    struct engine *e = engine_new();
    uint64_t budget = align_up(min_budget_bytes + 8 * MIB, PAGE_BYTES), samples;
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    start(e, budget);
    generate(e, "huge pages");
    uint64_t huge = engine_counter(e, "cache", "huge_bytes");
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        for (size_t at = 1; at < 60; at += 39) /* while the capacity is filled, and later */
            kill_during(e, services[i], at);
    uint64_t peak = sampler_peak(s, &samples);
    test_note("peak %.1f MiB of %.1f MiB (%" PRIu64 " samples), %.1f MiB in huge pages at first",
              (double)peak / (double)MIB, (double)budget / (double)MIB, samples,
              (double)huge / (double)MIB);
    CHECK(peak <= budget, "%.1f MiB in use exceed the budget of %.1f MiB",
          (double)peak / (double)MIB, (double)budget / (double)MIB);
    engine_stop(e);
    sampler_stop(s);
    text_free(&expected);
    if (huge == 0)
        test_skip("the kernel has no huge pages for a segment");
}

/* The capacity shrinks and grows: slots lose their pages and get others. */
static void a_changing_budget(void)
{
    make_model();
    struct engine *e = engine_new();
    uint64_t low = align_up(min_budget_bytes + 4 * MIB, PAGE_BYTES), high = low + 64 * MIB;
    start(e, high);
    for (int round = 0; round < 3; round++) {
        generate(e, "large capacity");
        json_decref(engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)low)));
        generate(e, "small capacity");
        json_decref(engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)high)));
    }
    CHECK(engine_counter(e, "cache", "punched_bytes") > 0, "no pages were freed");
    engine_stop(e);
    text_free(&expected);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"within_the_budget", within_the_budget},
        {"a_changing_budget", a_changing_budget},
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
