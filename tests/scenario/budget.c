/* SPDX-License-Identifier: Apache-2.0 */
/* The budget, measured externally: usage of a memory cgroup around the whole engine, sampled every
 * 10 ms. Programs and libraries are fresh copies, so that the cgroup is charged for them. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/policy/presets/presets.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define FINISH_MS 120000

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

/* The minimum budget, as reported by a running engine. */
static uint64_t min_budget_bytes(void)
{
    static uint64_t min_budget;
    if (min_budget)
        return min_budget;
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    min_budget = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    CHECK(min_budget > 0, "stats lack memory.min_budget_bytes");
    engine_stop(e);
    return min_budget;
}

/* A budget in which not all experts fit. */
static uint64_t scarce_budget(void)
{
    return align_up(min_budget_bytes() + 6 * MIB, PAGE_BYTES);
}

static void start_within(struct engine *e, uint64_t budget, const char *chunk)
{
    char option[48];
    snprintf(option, sizeof option, "--budget=%" PRIu64, budget);
    engine_start(e, (const char *const[]){option, "--cgroup=off", chunk, NULL});
}

static void check_peak(struct sampler *s, uint64_t budget, const char *phase)
{
    uint64_t samples, peak = sampler_peak(s, &samples);
    test_note("%s: peak %.1f MiB of %.1f MiB (%" PRIu64 " samples)", phase, mib(peak), mib(budget),
              samples);
    CHECK(peak <= budget, "%s: peak %.1f MiB exceeds the budget of %.1f MiB", phase, mib(peak),
          mib(budget));
    sampler_reset(s);
}

static void kill_during(struct engine *e, const char *service)
{
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    struct text got;
    pid_t pid = engine_pid(e, service, 0, 0);
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < 20 && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    kill(pid, SIGKILL);
    engine_pid(e, service, 0, pid);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, service);
    text_free(&got);
}

static void phases(struct engine *e, struct sampler *s, uint64_t budget)
{
    static const char *const services[] = {"loader", "cache", "predictor", "compute"};
    struct text got;
    check_peak(s, budget, "start");
    engine_generate(e, test_prompt(2), 1, &got);
    text_free(&got);
    check_peak(s, budget, "prefill");
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "within the budget");
    check_peak(s, budget, "decode");
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        kill_during(e, services[i]);
        check_peak(s, budget, services[i]);
    }
}

static void without_limit(void)
{
    struct engine *e = engine_new();
    baseline(0);
    uint64_t budget = scarce_budget();
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    start_within(e, budget, "--prefill-chunk=128");
    phases(e, s, budget);
    json_t *doc = engine_stats(e);
    uint64_t reported = lookup_counter(doc, "supervisor", "used_bytes_max");
    json_decref(doc);
    test_note("maximum counted by the ledger: %.1f MiB", mib(reported));
    CHECK(reported <= budget, "the ledger itself counted %.1f MiB", mib(reported));
    engine_stop(e);
    sampler_stop(s);
}

/* The same with the budget as hard limit: nothing fails for lack of memory. */
static void with_limit(void)
{
    struct engine *e = engine_new();
    baseline(0);
    uint64_t budget = scarce_budget();
    cgroup_make(e->cgroup);
    cgroup_limit(e->cgroup, budget);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    start_within(e, budget, "--prefill-chunk=128");
    phases(e, s, budget);
    CHECK(cgroup_failures(e->cgroup) == 0, "the OOM killer killed a process");
    engine_stop(e);
    sampler_stop(s);
}

/* All experts fit; the budget still holds. */
static void resident(void)
{
    struct engine *e = engine_new();
    baseline(0);
    uint64_t budget = min_budget_bytes() + 64 * MIB;
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    start_within(e, budget, "--prefill-chunk=256");
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "resident");
    check_peak(s, budget, "resident");
    engine_stop(e);
    sampler_stop(s);
}

/* ---- every preset ---- */

#define PRECISIONS "native,int8,int4,int2"

/* One engine on a store with every precision runs one preset after the other; each starts with the
 * experts that the previous one left resident. */
struct outside {
    struct engine *e;
    struct sampler *cgroup, *processes; /* cgroup: NULL if none can be made */
    uint64_t budget, peak;
};

static void check_usage(struct outside *o, const char *preset, const char *phase)
{
    uint64_t samples, usage, deadline = deadline_in(FINISH_MS);
    do /* on a busy machine a phase can end before its first sample */
        usage = sampler_peak(o->processes, &samples);
    while (samples == 0 && deadline_tick(deadline));
    if (o->cgroup && sampler_peak(o->cgroup, NULL) > usage)
        usage = sampler_peak(o->cgroup, NULL);
    CHECK(samples > 0, "%s, %s: no sample", preset, phase);
    CHECK(usage <= o->budget, "%s, %s: %.1f MiB in use exceed the budget of %.1f MiB", preset,
          phase, mib(usage), mib(o->budget));
    o->peak = usage > o->peak ? usage : o->peak;
    sampler_reset(o->processes);
    if (o->cgroup)
        sampler_reset(o->cgroup);
}

static void run_with_preset(struct outside *o, const char *preset)
{
    struct text got;
    json_decref(engine_control(o->e, "preset", json_pack("{s:s}", "preset", preset)));
    o->peak = 0;
    engine_generate(o->e, test_prompt(2), 1, &got);
    CHECK(strcmp(lookup_text(got.stats, "preset"), preset) == 0, "ran with preset %s, not %s",
          lookup_text(got.stats, "preset"), preset);
    text_free(&got);
    check_usage(o, preset, "prefill");
    engine_generate(o->e, test_prompt(0), test_amount(AMOUNT_budget_tokens), &got);
    text_free(&got);
    check_usage(o, preset, "decode");
    test_note("%s: peak %.1f MiB of %.1f MiB", preset, mib(o->peak), mib(o->budget));
}

static uint64_t min_budget_of(const char *store, const char *plan)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"-m", store, plan, "--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    uint64_t min_budget = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    return min_budget;
}

/* Both precisions of an expert, a set with an incoming pair, all experts, or an access of its
 * own. */
static bool occupies_memory_its_own_way(const char *preset)
{
    static const char *const presets[] = {"hobbit", "swapmoe", "resident", "eap"};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        if (strcmp(preset, presets[i]) == 0)
            return true;
    return false;
}

static void every_preset(void)
{
    char store[PATH_MAX], plan[PATH_MAX], plan_option[PATH_MAX + 8], budget_option[48];
    struct outside o = {.e = engine_new()};
    struct error error;
    unsigned met = 0;
    store_pack(store, "store", PRECISIONS);
    plan_make_two(plan, "made.plan", 0xf);
    snprintf(plan_option, sizeof plan_option, "--plan=%s", plan);
    /* little more than the experts of one token in every layer, which masked routing needs */
    o.budget = align_up(min_budget_of(store, plan_option) + 8 * MIB, PAGE_BYTES);
    snprintf(budget_option, sizeof budget_option, "--budget=%" PRIu64, o.budget);
    if (cgroup_try(o.e->cgroup, &error)) {
        engine_use_fresh_programs(o.e);
        o.cgroup = sampler_start(o.e->cgroup);
    } else {
        test_note("%s: processes only", error.text);
        o.e->cgroup[0] = 0;
    }
    engine_start(
        o.e, (const char *const[]){"-m", store, plan_option, budget_option, "--cgroup=off", NULL});
    o.processes = sampler_start_processes(o.e);
    for (uint32_t i = 0; i < preset_count(); i++) {
        const char *name = preset_at(i)->name;
        if (occupies_memory_its_own_way(name) || test_sample(EVERY_budget_presets, &met))
            run_with_preset(&o, name);
    }
    json_t *doc = engine_stats(o.e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
    sampler_stop(o.processes);
    engine_stop(o.e);
    if (o.cgroup)
        sampler_stop(o.cgroup);
}

/* ---- changing the budget ---- */

/* ctl budget: in effect within 1 s + 0.5 s per GiB freed, measured externally. */
static void set_budget(struct engine *e, uint64_t from, uint64_t to)
{
    uint64_t started = clock_now_ns();
    json_t *reply = engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)to));
    double took = (double)(clock_now_ns() - started) / (double)NS_PER_S;
    json_decref(reply);
    double allowed = 1.0 + 0.5 * (from > to ? (double)(from - to) / (double)GIB : 0);
    test_note("budget %.1f -> %.1f MiB in %.2f s", mib(from), mib(to), took);
    CHECK(took <= allowed, "a budget of %.1f MiB took %.2f s, limit %.2f s", mib(to), took,
          allowed);
    uint64_t usage = e->cgroup[0] ? cgroup_usage(e->cgroup) : 0;
    CHECK(usage <= to, "acknowledged, but %.1f MiB are in use, budget %.1f MiB", mib(usage),
          mib(to));
}

static void down_and_up(void)
{
    struct engine *e = engine_new();
    baseline(0);
    uint64_t low = scarce_budget(), high = low + 32 * MIB;
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    struct sampler *s = sampler_start(e->cgroup);
    start_within(e, high, "--prefill-chunk=128");
    for (unsigned round = 0; round < test_amount(AMOUNT_budget_limits); round++) {
        unsigned prompt = round % TEST_PROMPTS;
        struct text got;
        struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
        struct generation *next = generation_start(e, test_prompt(prompt), baseline_tokens());
        uint64_t deadline = deadline_in(FINISH_MS);
        while (generation_tokens(g) < 30 && !generation_done(g))
            CHECK(deadline_tick(deadline), "no tokens");
        set_budget(e, high, low);
        sampler_reset(s);
        deadline_reach(deadline_in(300)); /* the test: usage while the lower budget is in effect */
        check_peak(s, low, "after the lower budget");
        set_budget(e, low, high);
        generation_finish(g, FINISH_MS, &got);
        text_check_same(baseline(prompt), &got, "while the budget changed");
        text_free(&got);
        generation_finish(next, FINISH_MS, &got);
        text_check_same(baseline(prompt), &got, "beside it");
        text_free(&got);
    }
    engine_stop(e);
    sampler_stop(s);
}

/* ctl budget below the minimum: rejected with the minimum, and nothing changes; the minimum itself
 * is accepted. */
static void below_the_minimum(void)
{
    struct engine *e = engine_new();
    struct command c;
    struct text got;
    char bytes[32], minimum[48];
    baseline(0);
    engine_start(e, (const char *const[]){"--budget=96MiB", "--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    uint64_t floor = lookup_u64(doc, "memory.min_budget_bytes"),
             quota = lookup_u64(doc, "memory.quota_bytes");
    json_decref(doc);
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    snprintf(bytes, sizeof bytes, "%" PRIu64, floor - PAGE_BYTES);
    snprintf(minimum, sizeof minimum, "minimum %" PRIu64 "MiB", floor / MIB);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", bytes, NULL});
    CHECK(floor % MIB == 0 && c.status == 2 && strstr(c.err, minimum), "status %d: %.300s",
          c.status, c.err);
    command_free(&c);
    doc = engine_stats(e);
    CHECK(lookup_u64(doc, "memory.budget_bytes") == 96 * MIB &&
              lookup_u64(doc, "memory.quota_bytes") == quota,
          "the budget changed");
    json_decref(doc);
    snprintf(bytes, sizeof bytes, "%" PRIu64, floor);
    command_run(&c, NULL, FINISH_MS,
                (const char *const[]){"ctl", "--name", e->run, "budget", bytes, NULL});
    CHECK(c.status == 0, "status %d: %.300s", c.status, c.err);
    command_free(&c);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, "with the minimum budget");
    text_free(&got);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(without_limit), ROW(with_limit),  ROW(resident),
        ROW(every_preset),  ROW(down_and_up), ROW(below_the_minimum),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
