/* SPDX-License-Identifier: Apache-2.0 */
/* How far a prompt is, while it is computed or waits: in replies of the engine, on a terminal. The
 * device is so slow that the prompt takes long. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"

#define WAIT_MS 60000
#define POLL_MS 50

static struct engine *slow_engine(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=20", "--prefill-chunk=16",
                                          "--throttle=24MiB", "--warm-start=off", "--prefault=off",
                                          NULL});
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
                                     "--throttle=24MiB", "--warm-start=off", "--prefault=off",
                                     "--keep-kv=0", NULL});
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

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(in_replies), ROW(over_http), ROW(on_a_terminal)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
