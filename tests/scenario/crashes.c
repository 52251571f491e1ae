/* SPDX-License-Identifier: Apache-2.0 */
/* Tests crashes that repeat. A request at which compute crashes fails after five crashes without
 * progress, and the others do not notice; an essential process that crashes again and again makes
 * requests fail with the reason, while gateway, statistics and supervisor stay up; service resumes
 * when it stays up. An injection point stops compute in a sequence, then the test sends SIGSEGV: so
 * every crash is at the same place. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"

#define FINISH_MS   60000
#define STOPPED_MS  30000
#define REPORT_MS   20000 /* until a client has the reason */
#define CALL_MS     30000
#define CRASHES_MAX 5

static const char *const options[] = {"--resident-experts=25", "--http=0", NULL};

/* The process of a service in any state but not `not_pid`. */
static pid_t any_pid(struct engine *e, const char *service, pid_t not_pid)
{
    uint64_t deadline = deadline_in(STOPPED_MS);
    for (;;) {
        json_t *doc = engine_stats(e);
        pid_t pid = (pid_t)lookup_u64(lookup_process(doc, service, 0), "pid");
        json_decref(doc);
        if (pid > 0 && pid != not_pid)
            return pid;
        CHECK(deadline_tick(deadline), "%s was not restarted", service);
    }
}

static void arm(struct engine *e, const char *point, unsigned passes)
{
    json_decref(
        engine_control(e, "inject", json_pack("{s:s, s:i}", "point", point, "arg", (int)passes)));
}

/* Lets compute crash at the point so many times; the point was armed before. Between two crashes it
 * passes the point `passes` times. */
static void crash_compute(struct engine *e, const char *point, unsigned passes, unsigned times,
                          int number)
{
    pid_t pid = 0;
    for (unsigned i = 0; i < times; i++) {
        uint64_t deadline = deadline_in(STOPPED_MS);
        pid = any_pid(e, "compute", pid);
        while (process_state(pid) != 'T')
            CHECK(deadline_tick(deadline), "crash %u: compute did not reach %s", i + 1, point);
        if (i + 1 < times)
            arm(e, point, passes);
        kill(pid, number);
        kill(pid, SIGCONT);
    }
}

static void check_served(struct engine *e, unsigned prompt)
{
    baseline_compare(e, prompt, "after the crashes");
}

/* ---- a request at which compute crashes ------------------------------------------------------ */

static void check_crashed(const struct text *got)
{
    CHECK(got->error.code == ERR_CRASHED, "the request ended with \"%s\" (%s), not with crashed",
          got->error.text, error_name(got->error.code));
    CHECK(strstr(got->error.text, "Segmentation fault"), "no reason: %s", got->error.text);
}

static void request_native(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, options);
    arm(e, "COMPUTE_MID_TOKEN", 0);
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    engine_wait_counter(e, "compute", "sequences_running", 1, FINISH_MS);
    struct generation *next = generation_start(e, test_prompt(1), baseline_tokens());
    crash_compute(e, "COMPUTE_MID_TOKEN", 0, CRASHES_MAX, SIGSEGV);
    generation_finish(g, FINISH_MS, &got);
    check_crashed(&got);
    text_free(&got);
    generation_finish(next, FINISH_MS, &got);
    text_check_same(baseline(1), &got, "the request that waited");
    text_free(&got);
    check_served(e, 0);
    engine_stop(e);
}

/* Compute hangs before its client has the end of the text, and longer than a client has to repeat a
 * call whose reply was lost. */
static void end_of_a_text(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, (const char *const[]){"--heartbeat-timeout=8000", NULL});
    pid_t pid = engine_pid(e, "compute", 0, 0);
    arm(e, "COMPUTE_END_SENT", 0);
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    engine_pid(e, "compute", 0, pid);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, "whose end was sent twice");
    text_free(&got);
    engine_stop(e);
}

/* The crashes are in the submit call of one client: that call fails, and a sequence in progress
 * goes to its end. */
static void submit_native(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, options);
    struct generation *g = generation_start(e, test_prompt(2), baseline_tokens());
    engine_wait_counter(e, "compute", "sequences_running", 1, FINISH_MS);
    arm(e, "COMPUTE_CALL", 0);
    struct generation *bad = generation_start(e, test_prompt(1), baseline_tokens());
    crash_compute(e, "COMPUTE_CALL", 0, CRASHES_MAX, SIGSEGV);
    generation_finish(bad, FINISH_MS, &got);
    check_crashed(&got);
    text_free(&got);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(2), &got, "the sequence in progress");
    text_free(&got);
    check_served(e, 1);
    engine_stop(e);
}

/* The same of questions about a prompt. */
static void questions(void)
{
    static const struct {
        const char *path, *body;
    } rows[] = {
        {"/tokenize", "{\"content\":\"a\"}"},
        {"/detokenize", "{\"tokens\":[1]}"},
        {"/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"}};
    unsigned port;
    struct text got;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http h;
        struct generation *g = generation_start(e, test_prompt(2), baseline_tokens());
        engine_wait_counter(e, "compute", "sequences_running", 1, FINISH_MS);
        arm(e, "COMPUTE_CALL", 0);
        http_open(&h, port, rows[i].path, NULL, rows[i].body);
        crash_compute(e, "COMPUTE_CALL", 0, CRASHES_MAX, SIGSEGV);
        http_finish(&h, FINISH_MS);
        CHECK(h.status == 500 && strstr(h.raw, "compute crashed"), "%s: status %d: %.600s",
              rows[i].path, h.status, h.raw);
        http_close(&h);
        generation_finish(g, FINISH_MS, &got);
        text_check_same(baseline(2), &got, "the sequence in progress");
        text_free(&got);
        http_call(&h, port, rows[i].path, NULL, rows[i].body, 200);
        http_close(&h);
    }
    engine_stop(e);
}

/* Streamed and whole. */
static void request_http(void)
{
    unsigned port;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    for (int stream = 0; stream < 2; stream++) {
        struct http h;
        arm(e, "COMPUTE_MID_TOKEN", 0);
        char *body =
            completion_body(test_prompt(0), baseline_tokens(), stream ? "\"stream\":true" : "");
        http_open(&h, port, "/v1/completions", NULL, body);
        crash_compute(e, "COMPUTE_MID_TOKEN", 0, CRASHES_MAX, SIGSEGV);
        http_finish(&h, FINISH_MS);
        CHECK(h.status == (stream ? 200 : 500) && strstr(h.raw, "\"code\":\"crashed\""),
              "status %d: %.600s", h.status, h.raw);
        http_close(&h);
        free(body);
        char *text = completion_text(port, test_prompt(1), baseline_tokens());
        CHECK(strcmp(text, baseline(1)->text) == 0, "the next request has another text");
        free(text);
    }
    engine_stop(e);
}

/* A process that hangs is killed for its heartbeat: that is a crash. */
static void request_hangs(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e,
                 (const char *const[]){"--resident-experts=25", "--heartbeat-timeout=1000", NULL});
    arm(e, "COMPUTE_MID_TOKEN", 0);
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    pid_t pid = 0;
    for (unsigned i = 0; i < CRASHES_MAX; i++) {
        uint64_t deadline = deadline_in(STOPPED_MS);
        pid = any_pid(e, "compute", pid);
        while (process_state(pid) != 'T')
            CHECK(deadline_tick(deadline), "hang %u: compute did not reach the point", i + 1);
        if (i + 1 < CRASHES_MAX)
            arm(e, "COMPUTE_MID_TOKEN", 0);
    }
    generation_finish(g, FINISH_MS, &got);
    CHECK(got.error.code == ERR_CRASHED && strstr(got.error.text, "heartbeat"), "\"%s\" (%s)",
          got.error.text, error_name(got.error.code));
    text_free(&got);
    check_served(e, 0);
    engine_stop(e);
}

/* More crashes than the limit, but with a token or a chunk of the prompt in between. */
static void progress_in_between(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", "--prefill-chunk=16", NULL});
    json_t *doc = engine_stats(e);
    unsigned layers = (unsigned)lookup_u64(doc, "model.layers");
    json_decref(doc);
    const struct {
        const char *point;
        unsigned prompt;
    } rows[] = {{"COMPUTE_MID_TOKEN", 0}, {"COMPUTE_PREFILL", 2}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        arm(e, rows[i].point, layers);
        struct generation *g = generation_start(e, test_prompt(rows[i].prompt), baseline_tokens());
        crash_compute(e, rows[i].point, layers, CRASHES_MAX + 2, SIGSEGV);
        generation_finish(g, FINISH_MS, &got);
        text_check_same(baseline(rows[i].prompt), &got, rows[i].point);
        text_free(&got);
    }
    engine_stop(e);
}

/* A SIGKILL from outside does not count, however often it comes at the same place. */
static void kills_do_not_count(void)
{
    struct engine *e = engine_new();
    struct text got;
    baseline(0);
    engine_start(e, options);
    arm(e, "COMPUTE_MID_TOKEN", 0);
    struct generation *g = generation_start(e, test_prompt(0), baseline_tokens());
    crash_compute(e, "COMPUTE_MID_TOKEN", 0, 3 * CRASHES_MAX, SIGKILL);
    generation_finish(g, FINISH_MS, &got);
    text_check_same(baseline(0), &got, "15 kills at one token");
    text_free(&got);
    engine_stop(e);
}

/* ---- a process that crashes again and again -------------------------------------------------- */

/* Sends SIGSEGV to every process of a service once it exists. */
struct killer {
    struct engine *engine;
    const char *service;
    struct rpc_client *control;
    pthread_t thread;
    atomic_bool stop;
    atomic_uint kills;
};

static void *killer_thread(void *arg)
{
    struct killer *k = arg;
    pid_t last = 0;
    while (!atomic_load(&k->stop)) {
        json_t *doc = NULL;
        struct error ignored;
        if (control_call(k->control, "stats", NULL, &doc, &ignored) != 0)
            break;
        pid_t pid = (pid_t)lookup_u64(lookup_process(doc, k->service, 0), "pid");
        json_decref(doc);
        if (pid > 0 && pid != last && kill(pid, SIGSEGV) == 0) {
            last = pid;
            atomic_fetch_add(&k->kills, 1);
        }
        deadline_tick(deadline_in(1));
    }
    return NULL;
}

static void killer_start(struct killer *k, struct engine *e, const char *service)
{
    struct error error;
    *k = (struct killer){.engine = e, .service = service};
    k->control = control_client_open(e->run, &error);
    CHECK(k->control, "%s", error.text);
    CHECK(pthread_create(&k->thread, NULL, killer_thread, k) == 0, "no thread");
}

static void killer_end(struct killer *k)
{
    atomic_store(&k->stop, true);
    pthread_join(k->thread, NULL);
    rpc_client_close(k->control);
}

/* A generate that was running when the crashes began. */
struct background {
    const char *run;
    struct command command;
    pthread_t thread;
};

static void *background_thread(void *arg)
{
    struct background *b = arg;
    command_run(&b->command, NULL, FINISH_MS,
                (const char *const[]){"generate", "--name", b->run, "-p", test_prompt(0), "-n",
                                      "100000", "--ignore-eos", NULL});
    return NULL;
}

static void check_failed(const struct command *c, const char *service)
{
    CHECK(c->status == 1 && strstr(c->err, service) && strstr(c->err, "in a row"),
          "generate ended with %d: %.400s", c->status, c->err);
}

/* While the crashes continue: every client has the reason, and the rest of the engine answers. */
static void check_failing(struct engine *e, unsigned port, const char *service)
{
    struct command c;
    struct http h;
    command_run(&c, NULL, CALL_MS,
                (const char *const[]){"generate", "--name", e->run, "-p", "a", "-n", "4", NULL});
    check_failed(&c, service);
    command_free(&c);
    completion_call(&h, port, "a", 4, "", 503);
    CHECK(strstr(h.raw, "\"code\":\"unavailable\"") && strstr(h.raw, service), "%.600s", h.raw);
    http_close(&h);
    http_open(&h, port, "/stats", NULL, NULL);
    http_finish(&h, CALL_MS);
    CHECK(h.status == 200, "/stats has status %d", h.status);
    http_close(&h);
}

/* "": /health does not report a reason. */
static bool health_has(unsigned port, int status, const char *reason)
{
    struct http h;
    http_open(&h, port, "/health", NULL, NULL);
    http_finish(&h, CALL_MS);
    bool has = h.status == status && strstr(h.raw, reason);
    http_close(&h);
    return has;
}

static void wait_health(unsigned port, int status, const char *reason)
{
    uint64_t deadline = deadline_in(REPORT_MS);
    while (!health_has(port, status, reason))
        CHECK(deadline_tick(deadline), "/health does not become %d with \"%s\"", status, reason);
}

static void crash_loop(struct engine *e, unsigned port, const char *service)
{
    struct killer k;
    struct background running = {.run = e->run};
    uint64_t end = deadline_in(test_amount(AMOUNT_crash_loop_s) * 1000);
    CHECK(pthread_create(&running.thread, NULL, background_thread, &running) == 0, "no thread");
    engine_wait_counter(e, "compute", "sequences_running", 1, FINISH_MS);
    killer_start(&k, e, service);
    wait_health(port, 503, service);
    check_failing(e, port, service);
    pthread_join(running.thread, NULL);
    check_failed(&running.command, service);
    command_free(&running.command);
    deadline_reach(end);
    check_failing(e, port, service);
    killer_end(&k);
    test_note("%s: %u crashes", service, atomic_load(&k.kills));
    CHECK(process_alive(e->pid), "the engine ended");
    wait_health(port, 200, "\"ready\"");
    check_served(e, 0);
}

static void cache_crashes(void)
{
    unsigned port;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    crash_loop(e, port, "cache");
    engine_stop(e);
}

static void loader_crashes(void)
{
    unsigned port;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    crash_loop(e, port, "loader");
    engine_stop(e);
}

static void compute_crashes(void)
{
    unsigned port;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    crash_loop(e, port, "compute");
    engine_stop(e);
}

static bool engine_is(struct engine *e, const char *state)
{
    json_t *status = engine_control(e, "status", NULL);
    const char *now = lookup_text(status, "state");
    CHECK(strcmp(now, "failing") != 0, "requests fail");
    bool is = strcmp(now, state) == 0;
    json_decref(status);
    return is;
}

/* The others serve meanwhile, and it is not switched off. An engine is "restarting" until the
 * process has crashed often without progress; a slow machine lets the process make some. */
static void optional_crashes(void)
{
    static const char *const services[] = {"predictor", "gateway"};
    unsigned port;
    baseline(0);
    struct engine *e = gateway_start(&port, options);
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        struct killer k;
        uint64_t deadline = deadline_in(FINISH_MS);
        killer_start(&k, e, services[i]);
        while (atomic_load(&k.kills) <= CRASHES_MAX + 1 || !engine_is(e, "ready"))
            CHECK(deadline_tick(deadline), "%s was killed %u times, and the engine is not ready",
                  services[i], atomic_load(&k.kills));
        check_served(e, 0);
        killer_end(&k);
        engine_pid(e, services[i], 0, 0);
    }
    engine_stop(e);
}

/* ---- the first start ------------------------------------------------------------------------- */

static void never_ready(void)
{
    char cache[PATH_MAX + 32];
    struct engine *e = engine_new();
    engine_use_fresh_programs(e);
    snprintf(cache, sizeof cache, "%s/sluice-cache", e->libexec);
    remove(cache);
    struct command c;
    command_run(&c, NULL, CALL_MS,
                (const char *const[]){
                    "/bin/sh", "-ec",
                    "printf '#!/bin/sh\nkill -SEGV $$\n' >\"$0\"; chmod +x \"$0\"", cache, NULL});
    CHECK(c.status == 0, "%s", c.err);
    command_free(&c);
    engine_spawn(e, (const char *const[]){"--resident-experts=25", NULL});
    process_wait_state(e->pid, 'Z', FINISH_MS);
    command_run(&c, NULL, CALL_MS,
                (const char *const[]){"/bin/sh", "-c", "grep 'cache failed: signal 11' \"$0\"",
                                      e->log, NULL});
    CHECK(c.status == 0, "the log has no reason");
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(request_native), ROW(submit_native),  ROW(questions),           ROW(request_http),
        ROW(end_of_a_text),  ROW(request_hangs),  ROW(progress_in_between), ROW(kills_do_not_count),
        ROW(cache_crashes),  ROW(loader_crashes), ROW(compute_crashes),     ROW(optional_crashes),
        ROW(never_ready),
    };
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
