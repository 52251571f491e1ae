/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that hang, and a crash of the supervisor, which ends all processes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/http.h"

#define FINISH_MS 120000

static const char *const scarce[] = {"--resident-experts=25", NULL};

/* A text long enough to still be generated after the stop. */
static struct generation *start_generation(struct engine *e)
{
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    uint64_t deadline = deadline_in(FINISH_MS);
    while (generation_tokens(g) < 10 && !generation_done(g))
        CHECK(deadline_tick(deadline), "no tokens");
    return g;
}

static void finish(struct generation *g, const char *what)
{
    struct text got;
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, what);
    text_free(&got);
}

static void stop(pid_t pid, const char *service)
{
    CHECK(kill(pid, SIGSTOP) == 0, "cannot stop %s", service);
}

/* Stopped for less than the heartbeat timeout: the process continues without a restart. */
static void stopped_2s(const char *service)
{
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    pid_t pid = engine_pid(e, service, 0, 0);
    struct generation *g = start_generation(e);
    stop(pid, service);
    deadline_reach(deadline_in(2000));
    CHECK(kill(pid, SIGCONT) == 0, "%s had exited after 2 s", service);
    finish(g, service);
    CHECK(engine_pid(e, service, 0, 0) == pid, "%s was replaced after 2 s", service);
    CHECK(engine_restarts(e, service, 0) == 0, "%s was restarted", service);
    engine_stop(e);
}

/* The exit record names the watchdog as cause. */
static void check_cause(struct engine *e, pid_t pid)
{
    json_t *doc = engine_stats(e);
    const char *cause = "";
    for (size_t i = 0; i < lookup_exits(doc); i++)
        if (lookup_u64(lookup_exit(doc, i), "pid") == (uint64_t)pid)
            cause = lookup_text(lookup_exit(doc, i), "cause");
    CHECK(strcmp(cause, "heartbeat") == 0, "exit cause '%s', expected 'heartbeat'", cause);
    json_decref(doc);
}

static void wait_killed(pid_t pid, const char *service)
{
    uint64_t limit = deadline_in(5000);
    while (process_alive(pid))
        CHECK(deadline_tick(limit), "%s still hangs after 5 s", service);
}

/* Stopped for longer: killed and replaced; the text is unchanged. */
static void stopped_5s(const char *service)
{
    struct engine *e = engine_new();
    baseline(0);
    engine_start(e, scarce);
    pid_t pid = engine_pid(e, service, 0, 0);
    struct generation *g = start_generation(e);
    stop(pid, service);
    wait_killed(pid, service);
    finish(g, service);
    CHECK(engine_pid(e, service, 0, pid) != pid, "%s was not replaced", service);
    CHECK(engine_restarts(e, service, 0) >= 1, "no restart of %s is counted", service);
    CHECK(engine_counter(e, "supervisor", "kills") >= 1, "no kill is counted");
    check_cause(e, pid);
    engine_stop(e);
}

#define BOTH(service)                                                                              \
    static void stopped_2s_##service(void)                                                         \
    {                                                                                              \
        stopped_2s(#service);                                                                      \
    }                                                                                              \
    static void stopped_5s_##service(void)                                                         \
    {                                                                                              \
        stopped_5s(#service);                                                                      \
    }
BOTH(loader)
BOTH(cache)
BOTH(predictor)
BOTH(compute)

/* The processes that no text needs: replaced like the others, while a text is generated. Then the
 * gateway answers, and the trace is whole records. */
static void stopped_gateway_and_recorder(void)
{
    char path[PATH_MAX], option[PATH_MAX + 16];
    struct engine *e = engine_new();
    struct command c;
    struct http h;
    snprintf(path, sizeof path, "%s/trace", test_dir());
    snprintf(option, sizeof option, "--trace=%s", path);
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", "--http=0", option,
                                          "--heartbeat-timeout=1000", NULL});
    struct generation *g = start_generation(e);
    pid_t gateway = engine_pid(e, "gateway", 0, 0), recorder = engine_pid(e, "recorder", 0, 0);
    stop(gateway, "gateway");
    stop(recorder, "recorder");
    wait_killed(recorder, "recorder");
    wait_killed(gateway, "gateway");
    finish(g, "gateway and recorder stopped");
    engine_pid(e, "recorder", 0, recorder);
    engine_pid(e, "gateway", 0, gateway);
    check_cause(e, recorder);
    check_cause(e, gateway);
    http_call(&h, http_port(e), "/health", NULL, NULL, 200);
    http_close(&h);
    engine_stop(e);
    command_run(&c, NULL, FINISH_MS, (const char *const[]){"sim", path, NULL});
    CHECK(c.status == 0, "sim: %.300s", c.err);
    command_free(&c);
}

/* kill -9 of the supervisor: all processes exit within a second, and the next start works. */
static void supervisor_killed(void)
{
    struct engine *e = engine_new();
    for (unsigned round = 0; round < test_amount(AMOUNT_supervisor_kills); round++) {
        engine_start(e, scarce);
        struct generation *g = start_generation(e);
        json_decref(engine_stats(e));
        pid_t pid = e->pid;
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill failed");
        e->pid = 0;
        engine_check_gone(e, 1000);
        struct text got;
        generation_finish(g, FINISH_MS, &got);
        CHECK(got.error.code != ERR_NONE || got.count == baseline_tokens(),
              "the engine was killed, but the generation ended without an error");
        text_free(&got);
        engine_destroy(e);
    }
    /* Remains of the killed engine do not prevent a start with the same name and directory. */
    engine_start(e, scarce);
    struct text got;
    engine_generate(e, test_prompt(0), 16, &got);
    text_free(&got);
    engine_stop(e);
}

/* SIGKILL to all processes at once: nothing is left, and the next start works. */
static void everything_killed(void)
{
    struct engine *e = engine_new();
    engine_start(e, scarce);
    start_generation(e);
    json_decref(engine_stats(e));
    for (size_t i = 0; i < e->seen_count; i++)
        kill(e->seen[i].pid, SIGKILL);
    kill(e->pid, SIGKILL);
    waitpid(e->pid, NULL, 0);
    e->pid = 0;
    engine_check_gone(e, 1000);
    engine_destroy(e);
    engine_start(e, scarce);
    engine_stop(e);
}

/* Orderly stop while a sequence runs: status 0, nothing left. */
static void stop_while_generating(void)
{
    struct engine *e = engine_new();
    engine_start(e, scarce);
    start_generation(e);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(stopped_2s_loader),    ROW(stopped_2s_cache),   ROW(stopped_2s_predictor),
        ROW(stopped_2s_compute),   ROW(stopped_5s_loader),  ROW(stopped_5s_cache),
        ROW(stopped_5s_predictor), ROW(stopped_5s_compute), ROW(stopped_gateway_and_recorder),
        ROW(supervisor_killed),    ROW(everything_killed),  ROW(stop_while_generating),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
