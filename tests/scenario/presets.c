/* SPDX-License-Identifier: Apache-2.0 */
/* Presets: lossless presets keep the text byte-identical, also when processes are killed; a preset
 * change takes effect at the start of a sequence only; a trace records exactly the accesses. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "lib/trace/trace.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

static void switch_to(struct engine *e, const char *name)
{
    json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", name)));
}

static void check_accesses(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t accesses = lookup_counter(doc, "compute", "accesses");
    uint64_t parts =
        lookup_counter(doc, "compute", "hits") + lookup_counter(doc, "compute", "hits_inflight") +
        lookup_counter(doc, "compute", "misses") + lookup_counter(doc, "compute", "skipped");
    json_decref(doc);
    CHECK(accesses > 0 && accesses == parts,
          "%llu accesses, but hits + in flight + misses + skipped = %llu",
          (unsigned long long)accesses, (unsigned long long)parts);
}

/* Compares every prompt cold and warm, then one with the cache manager killed meanwhile. */
static void same_text(const char *const options[])
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, options);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, options[0]);
    check_accesses(e);
    struct generation *g = generation_start(e, test_prompt(1), baseline_tokens());
    pid_t victim = engine_pid(e, "cache", 0, 0);
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < baseline_tokens() / 4 && deadline_tick(deadline))
        ;
    CHECK(kill(victim, SIGKILL) == 0, "the cache manager exited on its own");
    struct text got;
    generation_finish(g, 120000, &got);
    text_check_same(baseline(1), &got, "with the cache manager killed");
    text_free(&got);
    engine_pid(e, "cache", 0, victim);
    test_note("%s: misses %llu, prefetches %llu of which used %llu", options[0],
              (unsigned long long)engine_counter(e, "compute", "misses"),
              (unsigned long long)engine_counter(e, "cache", "prefetches"),
              (unsigned long long)engine_counter(e, "cache", "prefetches_used"));
    engine_stop(e);
}

#define CASE(name, ...)                                                                            \
    static void name(void)                                                                         \
    {                                                                                              \
        same_text((const char *const[]){__VA_ARGS__, NULL});                                       \
    }

CASE(lossless_arc_fate, "--preset=lod", "--policy=eviction=arc,allocation=fate,boundary=2",
     "--resident-experts=25")
CASE(lossless_edgemoe_eviction, "--preset=default", "--eviction=edgemoe", "--resident-experts=25")
CASE(lossless_hobbit_eviction, "--preset=default", "--eviction=hobbit", "--resident-experts=25")
CASE(lossless_learned_eviction, "--preset=default", "--eviction=learned", "--resident-experts=25")
CASE(lossless_fate_list, "--preset=default", "--policy=prediction=fate,prefetch=credit,lookahead=1",
     "--resident-experts=50")
CASE(lossless_two_ahead, "--preset=default", "--policy=lookahead=3,prefetch=demand-first",
     "--resident-experts=50")

/* ---- every lossless preset, under kills ---- */

static void wait_tokens(const struct generation *g, size_t tokens)
{
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "%zu tokens, waiting for %zu", generation_tokens(g), tokens);
}

/* One generation, during which each service except the supervisor is killed once. */
static void same_text_under_kills(struct engine *e, unsigned prompt, const char *preset)
{
    static const char *const services[] = {"loader", "cache", "predictor", "compute"};
    struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
    unsigned landed = 0;
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        pid_t victim = engine_pid(e, services[i], 0, 0);
        wait_tokens(g, generation_tokens(g) + 12);
        landed += !generation_done(g);
        CHECK(kill(victim, SIGKILL) == 0, "%s exited on its own", services[i]);
        engine_pid(e, services[i], 0, victim);
    }
    struct text got;
    generation_finish(g, 120000, &got);
    text_check_same(baseline(prompt), &got, preset);
    CHECK(strcmp(lookup_text(got.stats, "preset"), preset) == 0, "%s became %s", preset,
          lookup_text(got.stats, "preset"));
    text_free(&got);
    test_note("%s: %u kills during the generation", preset, landed);
    CHECK(landed >= 2, "%s: only %u kills during the generation", preset, landed);
}

static bool lossless(const char *preset)
{
    struct knobs knobs;
    struct error error;
    CHECK(knobs_resolve(preset, NULL, NULL, &knobs, &error) == 0, "%s", error.text);
    return !knobs_lossy(&knobs);
}

/* One engine, one preset after the other. All of them are killed at random in kills_random.c. */
static void lossless_under_kills(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8];
    baseline(0);
    plan_make(plan, "made.plan", 0);
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", option, NULL});
    unsigned met = 0, tried = 0;
    for (uint32_t i = 0; i < preset_count(); i++) {
        const char *name = preset_at(i)->name;
        if (!lossless(name) || !test_sample(EVERY_lossless_under_kills, &met))
            continue;
        switch_to(e, name);
        baseline_compare(e, i % TEST_PROMPTS, name);
        same_text_under_kills(e, (i + 1) % TEST_PROMPTS, name);
        tried++;
    }
    CHECK(met >= 7 && tried >= 3, "%u of %u lossless presets", tried, met);
    check_accesses(e);
    engine_stop(e);
}

/* ---- switching ---- */

static const char *preset_of(const struct text *t)
{
    return lookup_text(t->stats, "preset");
}

static void switches_between_sequences(void)
{
    static const char *const names[] = {"lod", "layerwise", "lod-nocache", "auto", "default"};
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct text got;
        switch_to(e, names[i]);
        engine_generate(e, test_prompt(i % TEST_PROMPTS), baseline_tokens(), &got);
        text_check_same(baseline(i % TEST_PROMPTS), &got, names[i]);
        CHECK(strcmp(preset_of(&got), names[i]) == 0, "ran with preset %s, not %s", preset_of(&got),
              names[i]);
        text_free(&got);
    }
    check_accesses(e);
    engine_stop(e);
}

static void switch_waits_for_the_next_sequence(void)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", "--preset=lod", NULL});
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < 8 && deadline_tick(deadline))
        ;
    switch_to(e, "default");
    struct text first, second;
    generation_finish(g, 120000, &first);
    CHECK(strcmp(preset_of(&first), "lod") == 0, "the running sequence changed to %s",
          preset_of(&first));
    engine_generate(e, test_prompt(0), baseline_tokens(), &second);
    CHECK(strcmp(preset_of(&second), "default") == 0, "the next sequence ran with %s",
          preset_of(&second));
    text_check_same(baseline(0), &first, "before the switch");
    text_check_same(baseline(0), &second, "after the switch");
    text_free(&first);
    text_free(&second);
    engine_stop(e);
}

static void rejected(struct engine *e, const char *name, const char *reason)
{
    struct command c;
    command_run(&c, NULL, 20000,
                (const char *const[]){"ctl", "--name", e->run, "preset", name, NULL});
    CHECK(c.status == 2 || c.status == 1, "ctl preset %s: status %d", name, c.status);
    CHECK(strstr(c.err, reason) && command_lines(c.err) == 1, "ctl preset %s printed '%s'", name,
          c.err);
    command_free(&c);
}

static void presets_that_cannot_run_are_rejected(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=50", NULL});
    rejected(e, "nonsense", "unknown preset 'nonsense'");
    rejected(e, "hobbit", "needs two precisions");
    rejected(e, "edgemoe", "needs a plan");
    struct text got;
    baseline(0);
    engine_generate(e, test_prompt(0), baseline_tokens(), &got);
    text_check_same(baseline(0), &got, "after refusals");
    text_free(&got);
    engine_stop(e);
}

/* ---- traces ---- */

/* The trace has every access, in complete records. */
static void check_trace(const char *path, uint64_t accesses, size_t tokens)
{
    struct trace_header header;
    struct trace_record r;
    struct stat st;
    uint64_t experts = 0, ends = 0;
    FILE *f = fopen(path, "rbe");
    CHECK(f != NULL && fstat(fileno(f), &st) == 0, "cannot open the trace");
    CHECK(fread(&header, sizeof header, 1, f) == 1 && header.magic == TRACE_MAGIC, "no header");
    CHECK(((size_t)st.st_size - sizeof header) % sizeof r == 0, "the last record is incomplete");
    while (fread(&r, sizeof r, 1, f) == 1) {
        experts += r.kind == TRACE_EXPERT;
        ends += r.kind == TRACE_TOKEN_END;
    }
    fclose(f);
    CHECK(experts == accesses, "%llu accesses, %llu in the trace", (unsigned long long)accesses,
          (unsigned long long)experts);
    CHECK(ends >= tokens, "only %llu tokens in the trace", (unsigned long long)ends);
}

static void trace_has_every_access(void)
{
    char path[PATH_MAX], option[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/uses.trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--resident-experts=50", option, NULL});
    engine_generate(e, test_prompt(1), baseline_tokens(), &got);
    text_free(&got);
    uint64_t accesses = engine_counter(e, "compute", "accesses");
    uint64_t lost = engine_counter(e, "recorder", "records_dropped");
    engine_stop(e);
    CHECK(lost == 0, "%llu records were lost", (unsigned long long)lost);
    check_trace(path, accesses, baseline_tokens());
}

/* Kills the recorder as if in the middle of a record: appends a partial one. */
static void kill_recorder(struct engine *e, const char *path)
{
    pid_t pid = engine_pid(e, "recorder", 0, 0);
    CHECK(kill(pid, SIGSTOP) == 0, "the recorder exited on its own");
    process_wait_state(pid, 'T', 5000);
    FILE *f = fopen(path, "abe");
    CHECK(f && fwrite("\1\2\3\4\5\6\7", 7, 1, f) == 1 && fclose(f) == 0, "cannot write %s", path);
    CHECK(kill(pid, SIGKILL) == 0, "the recorder exited on its own");
    engine_pid(e, "recorder", 0, pid);
}

/* The text is the same, and the trace continues where it ended. */
static void recorder_killed(void)
{
    char path[PATH_MAX], option[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/uses.trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    baseline(0);
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--resident-experts=25", option, NULL});
    struct generation *g = generation_start(e, test_prompt(1), baseline_tokens());
    for (unsigned i = 0; i < 2; i++) {
        wait_tokens(g, baseline_tokens() / 4 * (i + 1));
        kill_recorder(e, path);
    }
    generation_finish(g, 120000, &got);
    text_check_same(baseline(1), &got, "with the recorder killed");
    text_free(&got);
    uint64_t accesses = engine_counter(e, "compute", "accesses");
    uint64_t lost = engine_counter(e, "recorder", "records_dropped");
    CHECK(engine_restarts(e, "recorder", 0) == 2, "%llu restarts",
          (unsigned long long)engine_restarts(e, "recorder", 0));
    engine_stop(e);
    if (lost > 0) /* the new recorder started after the log had wrapped */
        test_skip("the recorder was away for too long: %llu records lost",
                  (unsigned long long)lost);
    check_trace(path, accesses, baseline_tokens());
}

/* ---- deterministic mode ---------------------------------------------------------------------- */

static uint64_t result_counter(const json_t *result, const char *phase, const char *counter)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(result, phase), counter));
}

static uint64_t both_phases(const json_t *result, const char *counter)
{
    return result_counter(result, "decode", counter) + result_counter(result, "prefill", counter);
}

/* Replays the trace of the run in sim: the same accesses with the same outcomes. */
static void compare_with_sim(const char *trace, const char *preset, const char *knobs,
                             const uint64_t expected[3])
{
    static const char *const counters[] = {"hits", "hits_inflight", "misses"};
    struct command c;
    command_run(&c, NULL, 60000,
                (const char *const[]){"sim", trace, "--presets", preset, "--budgets", "50%",
                                      "--policy", knobs, "--read-bandwidth", "1GB/s", "--calibrate",
                                      "0", "--output", "json", NULL});
    CHECK(c.status == 0, "sluice sim: %s", c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    const json_t *result = json_array_get(json_object_get(doc, "results"), 0);
    for (int i = 0; i < 3; i++)
        CHECK(both_phases(result, counters[i]) == expected[i],
              "%s: %s %llu in the engine, %llu in sim", preset, counters[i],
              (unsigned long long)expected[i],
              (unsigned long long)both_phases(result, counters[i]));
    json_decref(doc);
    command_free(&c);
}

static void deterministic_equals_sim(const char *preset, const char *knobs)
{
    char path[PATH_MAX], trace[PATH_MAX + 16], option[64], single[64];
    snprintf(path, sizeof path, "%s/deterministic.trace", test_dir());
    snprintf(trace, sizeof trace, "--trace=%s", path);
    snprintf(option, sizeof option, "--preset=%s", preset);
    snprintf(single, sizeof single, "--policy=%s", knobs);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){option, single, "--deterministic=on",
                                          "--resident-experts=50", trace, NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, preset);
    uint64_t expected[3] = {engine_counter(e, "compute", "hits"),
                            engine_counter(e, "compute", "hits_inflight"),
                            engine_counter(e, "compute", "misses")};
    CHECK(engine_counter(e, "recorder", "records_dropped") == 0, "the trace has gaps");
    engine_stop(e);
    test_note("%s: hits %llu, in flight %llu, misses %llu", preset, (unsigned long long)expected[0],
              (unsigned long long)expected[1], (unsigned long long)expected[2]);
    compare_with_sim(path, preset, knobs, expected);
}

static void deterministic_lod(void)
{
    deterministic_equals_sim("lod", "");
}

static void deterministic_default(void)
{
    deterministic_equals_sim("default", "");
}

/* This policy also uses the router logits of experts that were not chosen: the trace has them. */
static void deterministic_learned_eviction(void)
{
    deterministic_equals_sim("default", "eviction=learned");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(lossless_under_kills),
        ROW(lossless_arc_fate),
        ROW(lossless_edgemoe_eviction),
        ROW(lossless_hobbit_eviction),
        ROW(lossless_learned_eviction),
        ROW(lossless_fate_list),
        ROW(lossless_two_ahead),
        ROW(switches_between_sequences),
        ROW(switch_waits_for_the_next_sequence),
        ROW(presets_that_cannot_run_are_rejected),
        ROW(trace_has_every_access),
        ROW(recorder_killed),
        ROW(deterministic_lod),
        ROW(deterministic_default),
        ROW(deterministic_learned_eviction),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
