/* Systems: the lossless ones leave the text byte-identical, also under kills; a system changes at
 * the start of a sequence and nowhere else; what a trace records is what was used. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/policy/presets/presets.h"
#include "lib/trace/trace.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/fixtures.h"

#define TOKENS 256

static void switch_to(struct engine *e, const char *name)
{
    json_decref(engine_control(e, "system", json_pack("{s:s}", "system", name)));
}

static void check_uses(struct engine *e)
{
    json_t *doc = engine_stats(e);
    uint64_t uses = document_counter(doc, "compute", "uses");
    uint64_t parts =
        document_counter(doc, "compute", "hits") + document_counter(doc, "compute", "late") +
        document_counter(doc, "compute", "misses") + document_counter(doc, "compute", "skipped");
    json_decref(doc);
    CHECK(uses > 0 && uses == parts, "%llu uses, but hits + late + misses + skipped = %llu",
          (unsigned long long)uses, (unsigned long long)parts);
}

/* Every prompt, the second time over what the first left, and once more with the cache manager
 * killed in the middle. */
static void same_text(const char *const options[])
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, options);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, options[0]);
    check_uses(e);
    struct generation *g = generation_start(e, test_prompt(1), TOKENS);
    pid_t victim = engine_pid(e, "cache", 0, 0);
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < TOKENS / 4 && deadline_tick(deadline))
        ;
    CHECK(kill(victim, SIGKILL) == 0, "the cache manager is gone already");
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

CASE(lossless_arc_fate, "--system=lod", "--knobs=eviction=arc,allocation=fate,boundary=2",
     "--experts=25")
CASE(lossless_edgemoe_eviction, "--system=default", "--eviction=edgemoe", "--experts=25")
CASE(lossless_hobbit_eviction, "--system=default", "--eviction=hobbit", "--experts=25")
CASE(lossless_logits_eviction, "--system=default", "--eviction=logits", "--experts=25")
CASE(lossless_fate_list, "--system=default", "--knobs=prediction=fate,limit=credit,ahead=1",
     "--experts=50")
CASE(lossless_two_ahead, "--system=default", "--knobs=ahead=3,limit=demand-first", "--experts=50")

/* ---- every lossless system, under kills ---- */

static void wait_tokens(const struct generation *g, size_t tokens)
{
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "%zu tokens, %zu waited for", generation_tokens(g), tokens);
}

/* One generation, in which each kind of process but the supervisor dies once. */
static void same_text_under_kills(struct engine *e, unsigned prompt, const char *system)
{
    static const char *const services[] = {"loader", "cache", "predictor", "compute"};
    struct generation *g = generation_start(e, test_prompt(prompt), TOKENS);
    unsigned landed = 0;
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        pid_t victim = engine_pid(e, services[i], 0, 0);
        wait_tokens(g, generation_tokens(g) + 12);
        landed += !generation_done(g);
        CHECK(kill(victim, SIGKILL) == 0, "%s is gone by itself", services[i]);
        engine_pid(e, services[i], 0, victim);
    }
    struct text got;
    generation_finish(g, 120000, &got);
    text_check_same(baseline(prompt), &got, system);
    CHECK(strcmp(document_text(got.stats, "system"), system) == 0, "%s became %s", system,
          document_text(got.stats, "system"));
    text_free(&got);
    test_note("%s: %u kills landed", system, landed);
    CHECK(landed >= 2, "%s: only %u kills landed while the text was made", system, landed);
}

static bool lossless(const char *system)
{
    struct knobs knobs;
    struct error error;
    CHECK(knobs_resolve(system, NULL, NULL, &knobs, &error) == 0, "%s", error.text);
    return !knobs_lossy(&knobs);
}

/* One engine, one system after the other. */
static void lossless_under_kills(void)
{
    char plan[PATH_MAX], option[PATH_MAX + 8];
    baseline(0);
    plan_make(plan, "made.plan", 0);
    snprintf(option, sizeof option, "--plan=%s", plan);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--experts=25", option, NULL});
    unsigned tried = 0;
    for (uint32_t i = 0; i < system_count(); i++) {
        const char *name = system_at(i)->name;
        if (!lossless(name))
            continue;
        switch_to(e, name);
        baseline_compare(e, i % TEST_PROMPTS, name);
        same_text_under_kills(e, (i + 1) % TEST_PROMPTS, name);
        tried++;
    }
    CHECK(tried >= 7, "only %u systems are lossless", tried);
    check_uses(e);
    engine_stop(e);
}

/* ---- switching ---- */

static const char *system_of(const struct text *t)
{
    return document_text(t->stats, "system");
}

static void switches_between_sequences(void)
{
    static const char *const names[] = {"lod", "layerwise", "lod-nocache", "auto", "default"};
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--experts=25", NULL});
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct text got;
        switch_to(e, names[i]);
        engine_generate(e, test_prompt(i % TEST_PROMPTS), TOKENS, &got);
        text_check_same(baseline(i % TEST_PROMPTS), &got, names[i]);
        CHECK(strcmp(system_of(&got), names[i]) == 0, "ran under %s, not %s", system_of(&got),
              names[i]);
        text_free(&got);
    }
    check_uses(e);
    engine_stop(e);
}

static void switch_waits_for_the_next_sequence(void)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--experts=25", "--system=lod", NULL});
    struct generation *g = generation_start(e, test_prompt(0), TOKENS);
    uint64_t deadline = deadline_in(60000);
    while (generation_tokens(g) < 8 && deadline_tick(deadline))
        ;
    switch_to(e, "default");
    struct text first, second;
    generation_finish(g, 120000, &first);
    CHECK(strcmp(system_of(&first), "lod") == 0, "the running sequence went over to %s",
          system_of(&first));
    engine_generate(e, test_prompt(0), TOKENS, &second);
    CHECK(strcmp(system_of(&second), "default") == 0, "the next one ran under %s",
          system_of(&second));
    text_check_same(baseline(0), &first, "before the switch");
    text_check_same(baseline(0), &second, "after the switch");
    text_free(&first);
    text_free(&second);
    engine_stop(e);
}

static void refused(struct engine *e, const char *name, const char *says)
{
    struct command c;
    command_run(&c, NULL, 20000,
                (const char *const[]){"ctl", "--run", e->run, "system", name, NULL});
    CHECK(c.status == 2 || c.status == 1, "ctl system %s: status %d", name, c.status);
    CHECK(strstr(c.err, says) && command_lines(c.err) == 1, "ctl system %s says '%s'", name, c.err);
    command_free(&c);
}

static void what_cannot_run_is_refused(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--experts=50", NULL});
    refused(e, "nonsense", "there is no system 'nonsense'");
    refused(e, "hobbit", "needs two tiers");
    refused(e, "edgemoe", "needs a plan");
    struct text got;
    baseline(0);
    engine_generate(e, test_prompt(0), TOKENS, &got);
    text_check_same(baseline(0), &got, "after refusals");
    text_free(&got);
    engine_stop(e);
}

/* ---- traces ---- */

/* Every use is in the trace, which is whole records. */
static void check_trace(const char *path, uint64_t uses, size_t tokens)
{
    struct trace_header header;
    struct trace_record r;
    struct stat st;
    uint64_t experts = 0, ends = 0;
    FILE *f = fopen(path, "rbe");
    CHECK(f != NULL && fstat(fileno(f), &st) == 0, "there is no trace");
    CHECK(fread(&header, sizeof header, 1, f) == 1 && header.magic == TRACE_MAGIC, "no header");
    CHECK(((size_t)st.st_size - sizeof header) % sizeof r == 0, "the last record is not whole");
    while (fread(&r, sizeof r, 1, f) == 1) {
        experts += r.kind == TRACE_EXPERT;
        ends += r.kind == TRACE_TOKEN_END;
    }
    fclose(f);
    CHECK(experts == uses, "%llu uses, %llu in the trace", (unsigned long long)uses,
          (unsigned long long)experts);
    CHECK(ends >= tokens, "%llu tokens in the trace", (unsigned long long)ends);
}

static void trace_has_every_use(void)
{
    char path[PATH_MAX], option[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/uses.trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--experts=50", option, NULL});
    engine_generate(e, test_prompt(1), TOKENS, &got);
    text_free(&got);
    uint64_t uses = engine_counter(e, "compute", "uses");
    uint64_t lost = engine_counter(e, "recorder", "records_lost");
    engine_stop(e);
    CHECK(lost == 0, "%llu records were lost", (unsigned long long)lost);
    check_trace(path, uses, TOKENS);
}

/* Dies in the middle of a record, as far as the file can tell. */
static void kill_recorder(struct engine *e, const char *path)
{
    pid_t pid = engine_pid(e, "recorder", 0, 0);
    CHECK(kill(pid, SIGSTOP) == 0, "the recorder is gone by itself");
    process_wait_state(pid, 'T', 5000);
    FILE *f = fopen(path, "abe");
    CHECK(f && fwrite("\1\2\3\4\5\6\7", 7, 1, f) == 1 && fclose(f) == 0, "cannot write %s", path);
    CHECK(kill(pid, SIGKILL) == 0, "the recorder is gone by itself");
    engine_pid(e, "recorder", 0, pid);
}

/* The text is the same, and the trace goes on where it ended. */
static void recorder_killed(void)
{
    char path[PATH_MAX], option[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/uses.trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    baseline(0);
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--experts=25", option, NULL});
    struct generation *g = generation_start(e, test_prompt(1), TOKENS);
    for (unsigned i = 0; i < 2; i++) {
        wait_tokens(g, 30 * (i + 1));
        kill_recorder(e, path);
    }
    generation_finish(g, 120000, &got);
    text_check_same(baseline(1), &got, "with the recorder killed");
    text_free(&got);
    uint64_t uses = engine_counter(e, "compute", "uses");
    uint64_t lost = engine_counter(e, "recorder", "records_lost");
    CHECK(engine_restarts(e, "recorder", 0) == 2, "%llu restarts",
          (unsigned long long)engine_restarts(e, "recorder", 0));
    engine_stop(e);
    if (lost > 0) /* its successor came after the log had gone round */
        test_skip("the recorder was away for too long: %llu records lost",
                  (unsigned long long)lost);
    check_trace(path, uses, TOKENS);
}

/* ---- lockstep -------------------------------------------------------------------------------- */

static uint64_t figure_of(const json_t *result, const char *phase, const char *figure)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(result, phase), figure));
}

static uint64_t both_phases(const json_t *result, const char *figure)
{
    return figure_of(result, "decode", figure) + figure_of(result, "prefill", figure);
}

/* The trace of the run, replayed: the same uses with the same outcomes. */
static void compare_with_sim(const char *trace, const char *system, const char *knobs,
                             const uint64_t expected[3])
{
    static const char *const figures[] = {"hits", "late", "misses"};
    struct command c;
    command_run(&c, NULL, 60000,
                (const char *const[]){"sim", trace, "--systems", system, "--budgets", "50%",
                                      "--policy", knobs, "--drive", "1GB/s", "--calibrate", "0",
                                      "--output", "json", NULL});
    CHECK(c.status == 0, "sluice sim: %s", c.err);
    json_t *doc = json_loads(c.out, 0, NULL);
    const json_t *result = json_array_get(json_object_get(doc, "results"), 0);
    for (int i = 0; i < 3; i++)
        CHECK(both_phases(result, figures[i]) == expected[i],
              "%s: %s %llu in the engine, %llu in sim", system, figures[i],
              (unsigned long long)expected[i], (unsigned long long)both_phases(result, figures[i]));
    json_decref(doc);
    command_free(&c);
}

static void lockstep_equals_sim(const char *system, const char *knobs)
{
    char path[PATH_MAX], trace[PATH_MAX + 16], option[64], single[64];
    snprintf(path, sizeof path, "%s/lockstep.trace", test_dir());
    snprintf(trace, sizeof trace, "--trace=%s", path);
    snprintf(option, sizeof option, "--system=%s", system);
    snprintf(single, sizeof single, "--knobs=%s", knobs);
    baseline(0);
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){option, single, "--lockstep=on", "--experts=50", trace, NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, system);
    uint64_t expected[3] = {engine_counter(e, "compute", "hits"),
                            engine_counter(e, "compute", "late"),
                            engine_counter(e, "compute", "misses")};
    CHECK(engine_counter(e, "recorder", "records_lost") == 0, "the trace has gaps");
    engine_stop(e);
    test_note("%s: hits %llu, late %llu, misses %llu", system, (unsigned long long)expected[0],
              (unsigned long long)expected[1], (unsigned long long)expected[2]);
    compare_with_sim(path, system, knobs, expected);
}

static void lockstep_lod(void)
{
    lockstep_equals_sim("lod", "");
}

static void lockstep_default(void)
{
    lockstep_equals_sim("default", "");
}

/* What routers say of experts nobody chose decides, too: it is in the trace. */
static void lockstep_logits_eviction(void)
{
    lockstep_equals_sim("default", "eviction=logits");
}

int main(int argc, char **argv)
{
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }
    static const struct test_case cases[] = {
        ROW(lossless_under_kills),
        ROW(lossless_arc_fate),
        ROW(lossless_edgemoe_eviction),
        ROW(lossless_hobbit_eviction),
        ROW(lossless_logits_eviction),
        ROW(lossless_fate_list),
        ROW(lossless_two_ahead),
        ROW(switches_between_sequences),
        ROW(switch_waits_for_the_next_sequence),
        ROW(what_cannot_run_is_refused),
        ROW(trace_has_every_use),
        ROW(recorder_killed),
        ROW(lockstep_lod),
        ROW(lockstep_default),
        ROW(lockstep_logits_eviction),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
