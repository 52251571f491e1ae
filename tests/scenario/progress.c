/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the progress of a prompt while it is computed or waits: in replies of the engine, on a
 * terminal. The device is so slow that the prompt takes long. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

#define WAIT_MS 60000
#define POLL_MS 50
#define CTRL_C  "\003"
#define CTRL_D  "\004"
#define CLEAR   "\r\033[K"

static struct engine *slow_engine(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=20", "--prefill-chunk=16",
                                          "--throttle=24MiB", "--parallel=1", "--warm-start=off",
                                          "--prefault=off", NULL});
    return e;
}

static uint64_t submit(struct rpc_client *client, unsigned prompt)
{
    struct engine_submit s;
    struct error error;
    uint64_t id;
    engine_submit_defaults(&s);
    s.prompt = test_prompt(prompt);
    s.prompt_bytes = strlen(s.prompt);
    s.max_tokens = 2;
    CHECK(engine_submit(client, &s, &id, &error) == 0, "%s", error.text);
    return id;
}

/* The next reply; false once a token has come. */
static bool poll_progress(struct rpc_client *client, uint64_t id, struct engine_progress *p)
{
    struct engine_next next;
    struct error error;
    CHECK(engine_next(client, id, 0, POLL_MS, &next, &error) == 0, "%s", error.text);
    bool waits = next.count == 0 && !next.done;
    *p = next.progress;
    CHECK(p->known == waits, "%zu tokens, %sdone, progress %sknown", next.count,
          next.done ? "" : "not ", p->known ? "" : "not ");
    engine_next_free(&next);
    return waits;
}

static void in_replies(void)
{
    struct error error;
    struct engine_progress p, before = {0};
    struct engine *e = slow_engine();
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    uint64_t first = submit(client, 2), second = submit(client, 1), third = submit(client, 0);
    CHECK(poll_progress(client, third, &p) && p.queue == 2, "queue of the third: %" PRIu64,
          p.queue);
    CHECK(poll_progress(client, second, &p) && p.queue == 1 && p.done == 0 && p.tokens > 0 &&
              p.left_ms == UINT64_MAX,
          "queue of the second: %" PRIu64, p.queue);
    unsigned steps = 0, within = 0, estimates = 0;
    while (poll_progress(client, first, &p)) {
        CHECK(p.queue == 0 && p.done >= before.done && p.done <= p.tokens &&
                  p.time_ms >= before.time_ms,
              "%" PRIu64 " after %" PRIu64 " of %" PRIu64, p.done, before.done, p.tokens);
        steps += p.done > before.done;
        within += p.done % 16 != 0;
        estimates += p.left_ms != UINT64_MAX;
        before = p;
    }
    CHECK(steps > 3 && within > 0 && estimates > 0,
          "%u steps, %u of them within a chunk, %u estimates", steps, within, estimates);
    rpc_client_close(client);
    engine_stop(e);
}

/* Comments of a stream, events if requested; nothing where the answer is not streamed. */
static void over_http(void)
{
    unsigned port;
    struct http waiting, h;
    struct events events;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"--http=0", "--resident-experts=20", "--prefill-chunk=16",
                                     "--throttle=24MiB", "--parallel=1", "--warm-start=off",
                                     "--prefault=off", "--keep-kv=0", NULL});
    completion_start(&h, port, test_prompt(2), 2);
    CHECK(http_wait(&h, ": prompt ", WAIT_MS) && http_wait(&h, " s left\n\n", WAIT_MS), "%.300s",
          h.raw);
    char *body = completion_body(test_prompt(1), 2, "\"stream\":true,\"return_progress\":true");
    http_open(&waiting, port, "/v1/completions", NULL, body);
    CHECK(http_wait(&waiting, "\"queue\":1", WAIT_MS), "%.300s", waiting.raw);
    http_finish(&h, WAIT_MS);
    http_events(&h, &events);
    CHECK(events.done && events.completion_tokens == 2 && !strstr(h.raw, "prompt_progress"),
          "%.300s", h.raw);
    free(events.text);
    http_close(&h);
    CHECK(http_wait(&waiting, "\"prompt_progress\":{\"total\":", WAIT_MS), "%.300s", waiting.raw);
    http_finish(&waiting, WAIT_MS);
    http_events(&waiting, &events);
    CHECK(events.done && strcmp(events.finish, "length") == 0 && !strstr(waiting.raw, ": prompt "),
          "%.300s", waiting.raw);
    free(events.text);
    http_close(&waiting);
    free(body);
    engine_stop(e);
}

static void on_a_terminal(void)
{
    struct engine *e = slow_engine();
    struct terminal *t =
        terminal_open(24, 80, -1,
                      (const char *const[]){"generate", "-m", test_model(), "--name", e->run, "-n",
                                            "2", "-p", test_prompt(2), NULL});
    terminal_wait(t, "prompt: ", WAIT_MS);
    terminal_wait(t, " s left", WAIT_MS);
    terminal_wait(t, "tokens/s, first after", WAIT_MS);
    int status = terminal_end(t, WAIT_MS);
    CHECK(status == 0, "status %d", status);
    engine_stop(e);
}

static struct terminal *repl_open(const struct engine *e, unsigned columns)
{
    struct terminal *t = terminal_open(
        24, columns, -1,
        (const char *const[]){"repl", "--name", e->run, "--temp", "0", "-n", "2", NULL});
    terminal_wait(t, ">>> ", WAIT_MS);
    return t;
}

static void ask(struct terminal *t, unsigned prompt)
{
    terminal_type(t, test_prompt(prompt));
    terminal_type(t, "\r");
}

/* The text, a notice or an error is where the progress was, which is removed wholly. */
static void in_the_repl(void)
{
    char line[64];
    struct text got;
    struct engine *e = slow_engine();
    struct terminal *t = repl_open(e, 80);
    ask(t, 2);
    terminal_wait(t, CLEAR "prompt: ", WAIT_MS);
    terminal_wait(t, " s left" CLEAR "prompt: ", WAIT_MS); /* a line replaces the other */
    terminal_wait(t, "[2 tokens at", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    engine_generate(e, test_prompt(2), 1, &got);
    snprintf(line, sizeof line, " s left" CLEAR "%.40s", got.text);
    text_free(&got);
    CHECK(terminal_showed(t, line), "the terminal does not show '%s'", line);
    terminal_type(t, "/clear\r");
    terminal_wait(t, ">>> ", WAIT_MS);
    struct generation *g = generation_start(e, test_prompt(1), 1500);
    engine_wait_counter(e, "compute", "sequences_running", 1, WAIT_MS);
    ask(t, 0);
    terminal_wait(t, CLEAR "1 request before this one", WAIT_MS);
    terminal_type(t, CTRL_C);
    terminal_wait(t, CLEAR "[ended", WAIT_MS);
    terminal_wait(t, ">>> ", WAIT_MS);
    CHECK(!terminal_showed(t, "waiting for other"), "the queue is reported twice");
    ask(t, 0);
    terminal_wait(t, CLEAR "1 request before this one", WAIT_MS);
    engine_stop(e);
    terminal_wait(t, "sluice repl: ", WAIT_MS);
    CHECK(!terminal_showed(t, "before this one[") && !terminal_showed(t, "before this onesluice"),
          "the progress comes before a notice or an error");
    CHECK(terminal_end(t, WAIT_MS) == 1, "the status is not 1");
    generation_finish(g, WAIT_MS, &got);
    text_free(&got);
}

/* A line that is wider than the terminal could not be removed. */
static void in_a_narrow_repl(void)
{
    struct engine *e = slow_engine();
    struct terminal *t = repl_open(e, 24);
    ask(t, 2);
    terminal_wait(t, CLEAR "prompt: ", WAIT_MS);
    terminal_wait(t, CLEAR "prompt: ", WAIT_MS);
    terminal_wait(t, "[2 tokens", WAIT_MS);
    CHECK(!terminal_showed(t, " s left"), "the line is not cut");
    terminal_wait(t, ">>> ", WAIT_MS); /* a key before the prompt is lost */
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "the status is not 0");
    engine_stop(e);
}

/* With NO_COLOR a notice states that there is a queue; a pipe gets nothing. */
static void not_in_the_repl(void)
{
    struct command c;
    struct text got;
    struct engine *e = slow_engine();
    setenv("NO_COLOR", "1", 1);
    struct terminal *t = repl_open(e, 80);
    struct generation *g = generation_start(e, test_prompt(2), 2);
    engine_wait_counter(e, "compute", "sequences_running", 1, WAIT_MS);
    ask(t, 1);
    terminal_wait(t, "waiting for other sequences to end", WAIT_MS);
    generation_finish(g, WAIT_MS, &got);
    text_free(&got);
    terminal_wait(t, "[2 tokens at", WAIT_MS);
    CHECK(!terminal_showed(t, "before this one") && !terminal_showed(t, "prompt: "),
          "there is progress with NO_COLOR");
    terminal_wait(t, ">>> ", WAIT_MS); /* a key before the prompt is lost */
    terminal_type(t, CTRL_D);
    CHECK(terminal_end(t, WAIT_MS) == 0, "the status is not 0");
    unsetenv("NO_COLOR");
    command_run(&c, test_prompt(2), WAIT_MS,
                (const char *const[]){"repl", "--name", e->run, "-n", "2", NULL});
    CHECK(c.status == 0 && !strstr(c.err, "prompt: ") && !strchr(c.err, '\r'), "%d: %.300s",
          c.status, c.err);
    command_free(&c);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(in_replies),  ROW(over_http),        ROW(on_a_terminal),
        ROW(in_the_repl), ROW(in_a_narrow_repl), ROW(not_in_the_repl),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
