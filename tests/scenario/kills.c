/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant 1 under crashes: killing processes does not change greedy text. Generations repeat
 * until the wanted number of kills hit a running one; each text is compared in full. The long form
 * (`sluice test --long`) makes more kills. Also on models of other tensor types: --type
 * (harness.h). */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

#define FINISH_MS   120000
#define INJECT_MS   60000
#define ROWS        64 /* of the request table */
#define TRIES_EXTRA 20 /* generations that may finish before the kill */

static const char *const scarce[] = {"--resident-experts=25", NULL};

/* Of a model other than the demo, the short form makes half as many. */
static unsigned draws(unsigned short_form, unsigned long_form)
{
    return test_long() ? long_form : test_demo() ? short_form : (short_form + 1) / 2;
}

/* A fixed sequence, so that failures can be reproduced. */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_text(struct generation *g, unsigned prompt, const char *what)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(prompt), &got, what);
    text_free(&got);
}

static void wait_tokens(const struct generation *g, size_t tokens)
{
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < tokens && !generation_done(g))
        CHECK(deadline_tick(deadline), "%zu tokens, waiting for %zu", generation_tokens(g), tokens);
}

/* ---- kill at any time ---- */

static void campaign(const char *service, unsigned wanted)
{
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    uint32_t random = 1;
    unsigned landed = 0;
    uint64_t restarts = engine_restarts(e, service, 0);
    for (unsigned round = 0; landed < wanted; round++) {
        CHECK(round < wanted + TRIES_EXTRA, "%u of %u kills hit a running generation", landed,
              wanted);
        unsigned prompt = round % TEST_PROMPTS;
        pid_t pid = engine_pid(e, service, 0, 0);
        struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
        wait_tokens(g, next_random(&random) % (baseline_tokens() * 3 / 4));
        bool running = !generation_done(g);
        CHECK(kill(pid, SIGKILL) == 0, "%s %d exited on its own", service, (int)pid);
        engine_pid(e, service, 0, pid);
        check_text(g, prompt, service);
        landed += running;
        restarts++;
    }
    uint64_t reported = engine_restarts(e, service, 0);
    CHECK(reported >= restarts, "%llu restarts of %s are counted after %llu kills",
          (unsigned long long)reported, service, (unsigned long long)restarts);
    engine_check_stats(e);
    test_note("%s: %u kills hit a running generation", service, landed);
    engine_stop(e);
}

static void kill_loader(void)
{
    campaign("loader", draws(2, 25));
}
static void kill_cache(void)
{
    campaign("cache", draws(2, 25));
}
static void kill_predictor(void)
{
    campaign("predictor", draws(2, 25));
}
static void kill_compute(void)
{
    campaign("compute", draws(2, 25));
}

/* The harness sees at once that a process is gone: a crash by the last request of a case would stay
 * unseen, and its pid would be that of a ready process. */
static void seen_at_once(void)
{
    struct engine *e = engine_new();
    engine_start(e, scarce);
    pid_t pid = engine_pid(e, "loader", 0, 0);
    CHECK(engine_restarts(e, "loader", 0) == 0, "a restart before the kill");
    kill(e->supervisor, SIGSTOP);
    process_wait_state(e->supervisor, 'T', INJECT_MS);
    kill(pid, SIGKILL);
    process_wait_gone(pid, INJECT_MS);
    uint64_t restarts = engine_restarts(e, "loader", 0);
    kill(e->supervisor, SIGCONT);
    pid_t next = engine_pid(e, "loader", 0, 0);
    CHECK(restarts == 1, "%llu restarts before the supervisor has noticed",
          (unsigned long long)restarts);
    CHECK(next != pid, "process %d, which was killed, is said to be ready", (int)pid);
    CHECK(engine_restarts(e, "loader", 0) == 1, "the restart is counted twice");
    engine_stop(e);
}

/* Rows of the request table are freed although compute never runs for long: more requests than
 * rows. */
static void rows_are_freed(void)
{
    struct engine *e = engine_new();
    struct text got;
    engine_start(e, (const char *const[]){"--resident-experts=100", NULL});
    for (unsigned i = 0; i < ROWS + 6; i++) {
        pid_t pid = engine_pid(e, "compute", 0, 0);
        engine_generate(e, "a", 1, &got);
        text_free(&got);
        kill(pid, SIGKILL);
        engine_pid(e, "compute", 0, pid);
    }
    engine_stop(e);
}

/* Two processes at once, as the OOM killer may do. */
static void kill_pairs(void)
{
    static const char *const pairs[][2] = {
        {"cache", "loader"}, {"compute", "loader"}, {"compute", "cache"}, {"predictor", "cache"}};
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    for (unsigned i = 0; i < ARRAY_LEN(pairs); i++) {
        struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
        wait_tokens(g, 20);
        pid_t a = engine_pid(e, pairs[i][0], 0, 0), b = engine_pid(e, pairs[i][1], 0, 0);
        kill(a, SIGKILL);
        kill(b, SIGKILL);
        engine_pid(e, pairs[i][0], 0, a);
        engine_pid(e, pairs[i][1], 0, b);
        check_text(g, 0, pairs[i][0]);
    }
    engine_stop(e);
}

/* ---- kill at a point of the code ---- */

/* Arms the injection point, generates until the process stops itself there, kills it. */
static void kill_at(struct engine *e, const char *point, const char *service, unsigned prompt,
                    const char *also_kill)
{
    pid_t pid = engine_pid(e, service, 0, 0);
    json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", point)));
    struct generation *g = generation_start(e, test_prompt(prompt), baseline_tokens());
    if (also_kill) { /* the point is only reached after another process exits */
        wait_tokens(g, 10);
        kill(engine_pid(e, also_kill, 0, 0), SIGKILL);
    }
    uint64_t deadline = deadline_in(INJECT_MS);
    while (process_state(pid) != 'T') /* also_kill: after the last token, too */
        CHECK((also_kill || !generation_done(g)) && deadline_tick(deadline),
              "%s: %s did not reach the point", point, service);
    CHECK(kill(pid, SIGKILL) == 0, "%s: kill failed", point);
    engine_pid(e, service, 0, pid);
    check_text(g, prompt, point);
}

static void kill_at_point(const char *point, const char *service, unsigned times,
                          const char *also_kill)
{
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    uint64_t restarts = engine_restarts(e, service, 0);
    for (unsigned i = 0; i < times; i++)
        kill_at(e, point, service, i % TEST_PROMPTS, also_kill);
    uint64_t reported = engine_restarts(e, service, 0);
    CHECK(reported >= restarts + times, "only %llu restarts are counted",
          (unsigned long long)reported);
    test_note("%s: %u kills of %s", point, times, service);
    engine_stop(e);
}

static void loader_reads_pending(void)
{
    kill_at_point("LOADER_READS_PENDING", "loader", draws(1, 10), NULL);
}
static void loader_before_publish(void)
{
    kill_at_point("LOADER_BEFORE_PUBLISH", "loader", draws(1, 5), NULL);
}
static void cache_reserved(void)
{
    kill_at_point("CACHE_RESERVED", "cache", draws(1, 5), NULL);
}
static void cache_cleaning(void)
{
    kill_at_point("CACHE_CLEANING", "cache", draws(1, 5), "loader");
}
static void compute_mid_token(void)
{
    kill_at_point("COMPUTE_MID_TOKEN", "compute", draws(1, 10), NULL);
}
static void compute_pinned(void)
{
    kill_at_point("COMPUTE_PINNED", "compute", draws(1, 5), NULL);
}

/* A prompt of several chunks; the kill comes after the first. */
static void compute_prefill(void)
{
    struct engine *e = engine_new();
    baseline(0);
    /* the same prompt again would need no prefill */
    engine_start(e, (const char *const[]){"--resident-experts=25", "--prefill-chunk=32",
                                          "--keep-kv=0", NULL});
    unsigned times = draws(1, 5);
    for (unsigned i = 0; i < times; i++)
        kill_at(e, "COMPUTE_PREFILL", "compute", 2, NULL);
    engine_stop(e);
}

/* A wild access ends a loader with SIGSEGV: like kill -9, what it had read is not used unless it
 * was complete. */
static void loader_segv(void)
{
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        pid_t pid = engine_pid(e, "loader", 0, 0);
        struct generation *g = generation_start(e, test_prompt(i), baseline_tokens());
        wait_tokens(g, 20);
        CHECK(kill(pid, SIGSEGV) == 0, "the loader exited on its own");
        engine_pid(e, "loader", 0, pid);
        check_text(g, i, "SIGSEGV");
    }
    CHECK(engine_restarts(e, "loader", 0) >= TEST_PROMPTS, "too few restarts");
    engine_stop(e);
}

/* ---- requests that wait ---- */

struct asked {
    unsigned prompt;
    size_t tokens;
    bool side; /* its turn is later than those of conversations that arrive after it */
    struct generation *g;
    struct text alone;
};

static struct engine *start_with(const char *parallel, const char *context)
{
    struct engine *e = engine_new();
    engine_start(
        e, (const char *const[]){"--resident-experts=50", "--keep-kv=0", parallel, context, NULL});
    return e;
}

static void ask_alone(struct asked *asked, unsigned count)
{
    struct engine *e = start_with("--parallel=1", "--ctx-size=2048");
    for (unsigned i = 0; i < count; i++)
        engine_generate(e, test_prompt(asked[i].prompt), asked[i].tokens, &asked[i].alone);
    engine_stop(e);
}

static void ask(struct engine *e, struct asked *a)
{
    struct engine_submit s;
    engine_submit_defaults(&s);
    s.prompt = test_prompt(a->prompt);
    s.prompt_bytes = strlen(s.prompt);
    s.max_tokens = (int64_t)a->tokens;
    s.ignore_eos = true;
    s.sampling.temperature = 0;
    s.side = a->side;
    a->g = generation_start_submit(e, &s);
}

/* The first `running` of them run, and the others wait, when compute is killed. */
static void kill_while_some_wait(struct engine *e, struct asked *asked, unsigned running,
                                 unsigned count, const char *preset)
{
    for (unsigned i = 0; i < running; i++) {
        ask(e, &asked[i]);
        wait_tokens(asked[i].g, 1);
    }
    if (preset)
        json_decref(engine_control(e, "preset", json_pack("{s:s}", "preset", preset)));
    for (unsigned i = running; i < count; i++)
        ask(e, &asked[i]);
    engine_wait_counter(e, "compute", "sequences_queued", count - running, FINISH_MS);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    for (unsigned i = 0; i < running; i++)
        CHECK(!generation_done(asked[i].g), "request %u ended before the kill", i);
    CHECK(kill(pid, SIGKILL) == 0, "compute exited on its own");
    engine_pid(e, "compute", 0, pid);
}

static void check_asked(struct asked *a, const char *preset)
{
    struct text got;
    char what[64];
    snprintf(what, sizeof what, "prompt %u, %zu tokens%s", a->prompt, a->tokens,
             a->side ? ", a side request" : "");
    generation_finish(a->g, FINISH_MS, &got);
    if (strcmp(preset, "default") == 0)
        text_check_same(&a->alone, &got, what);
    CHECK(got.error.code == ERR_NONE && strcmp(lookup_text(got.stats, "preset"), preset) == 0,
          "%s: preset %s: %s", what, lookup_text(got.stats, "preset"), got.error.text);
    text_free(&got);
    text_free(&a->alone);
}

static void check_all(struct engine *e, struct asked *asked, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        check_asked(&asked[i], "default");
    uint64_t restarts = engine_restarts(e, "compute", 0);
    CHECK(restarts == 1, "compute was restarted %llu times", (unsigned long long)restarts);
    engine_stop(e);
}

/* The successor has as many places as run, and one more slot, which those that wait do not get. */
static void queued_beside_side_requests(void)
{
    struct asked asked[] = {{.prompt = 0, .tokens = 300},
                            {.prompt = 1, .tokens = 250, .side = true},
                            {.prompt = 0, .tokens = 200, .side = true},
                            {.prompt = 1, .tokens = 200, .side = true},
                            {.prompt = 1, .tokens = 40},
                            {.prompt = 0, .tokens = 40}};
    ask_alone(asked, ARRAY_LEN(asked));
    struct engine *e = start_with("--parallel=4", "--ctx-size=2048");
    kill_while_some_wait(e, asked, 4, ARRAY_LEN(asked), NULL);
    check_all(e, asked, ARRAY_LEN(asked));
}

/* The last one waits for memory, and the first one needs that of the side request at its end. */
static void queued_for_memory(void)
{
    struct asked asked[] = {{.prompt = 0, .tokens = 700},
                            {.prompt = 2, .tokens = 300, .side = true},
                            {.prompt = 2, .tokens = 40}};
    ask_alone(asked, ARRAY_LEN(asked));
    struct engine *e = start_with("--parallel=3", "--ctx-size=832");
    kill_while_some_wait(e, asked, 2, ARRAY_LEN(asked), NULL);
    check_all(e, asked, ARRAY_LEN(asked));
}

/* The side request that runs keeps its preset, for whose change the other one waits. */
static void queued_for_a_preset(void)
{
    struct asked asked[] = {{.prompt = 1, .tokens = 300, .side = true},
                            {.prompt = 0, .tokens = 40}};
    ask_alone(asked, ARRAY_LEN(asked));
    struct engine *e = start_with("--parallel=3", "--ctx-size=2048");
    kill_while_some_wait(e, asked, 1, ARRAY_LEN(asked), "lod");
    check_asked(&asked[0], "default");
    check_asked(&asked[1], "lod");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(kill_loader),          ROW(kill_cache),
        ROW(kill_predictor),       ROW(kill_compute),
        ROW(rows_are_freed),       ROW(kill_pairs),
        ROW(loader_reads_pending), ROW(loader_before_publish),
        ROW(cache_reserved),       ROW(cache_cleaning),
        ROW(compute_mid_token),    ROW(compute_pinned),
        ROW(compute_prefill),      ROW(loader_segv),
        ROW(seen_at_once),         ROW(queued_beside_side_requests),
        ROW(queued_for_memory),    ROW(queued_for_a_preset),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
