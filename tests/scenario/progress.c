/* SPDX-License-Identifier: Apache-2.0 */
/* How far a prompt is, while it is computed or waits: in replies of the engine, on a terminal. The
 * device is so slow that the prompt takes long. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

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
    static const struct test_case cases[] = {ROW(in_replies), ROW(on_a_terminal)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
