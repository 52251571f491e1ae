/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-compute: the model: attention, routers, experts, sampling, sequences.
 *
 * Main thread: the endpoint of clients (engine.sock), controls, heartbeat. Runner thread and the
 * pool's workers: passes of up to --parallel sequences, begun in order of arrival.
 *
 * Messages   in: submit, next, count, cancel, status (clients, JSON), CONTROL (supervisor).
 *            out: DEMAND (cache), ACK, replies.
 * Memory     writes: kv (requests, token logs, KV rows), gates, access log, its pin bit in entry
 *            words, its own row. reads: model index, directory, arena. It never reads tensor data
 *            from files and allocates nothing during a token. With --prefix-dir, a thread of it
 *            reads and writes files of kept prefixes.
 * On its crash: the supervisor clears its pins and restarts it; QUEUED and RUNNING sequences
 *            continue from the token log with the same text. Clients repeat their calls; no token
 *            is lost.
 * On a crash of others: without a cache or loader a miss waits until they are restarted; without a
 *            predictor there are no hints; without the supervisor it exits.
 * Limits:    RPC_CONTEXTS concurrent calls, --max-queue waiting sequences, KV_REQUESTS_MAX rows in
 *            total. A long poll gets its reply within a tick (RESPONSE_POLL_MS). */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "procs/engine/compute/main/compute.h"

#define RESPONSE_POLL_MS 4   /* interval of checks of the token logs while a long poll waits */
#define IDLE_MS          100 /* otherwise */
#define TICK_EVERY_NS    (50 * NS_PER_MS)

static struct compute the_compute;

static void must(int rc, const struct error *error)
{
    if (rc != 0)
        log_fatal(error_exit_status(error->code), "%s", error->text);
}

static void open_tokenizer(struct compute *c)
{
    struct error error;
    const struct model_index *m = c->child.model;
    c->tokenizer =
        tokenizer_open((const char *)m + m->tokenizer_offset, m->tokenizer_bytes, &error);
    must(c->tokenizer ? 0 : -1, &error);
}

/* Cleans up what a predecessor left incomplete. The runner finds interrupted sequences. */
static void repair(struct compute *c)
{
    uint64_t now = clock_now_ns();
    struct kv_head *head = c->child.kv.head;
    uint32_t crashes = atomic_load(&c->child.process->crashes);
    /* A crash in a call is not one of the sequence that was being computed meanwhile. */
    uint32_t in_call = head->call_runs ? crashes - head->crashes_before : 0;
    head->call_runs = 0;
    head->crashes_before = crashes;
    gates_repair(&c->child.gates);
    uint64_t down_ns = head->alive_ns && now > head->alive_ns ? now - head->alive_ns : 0;
    for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++) {
        head->request[i].crashes_seen += in_call;
        /* Clients could not poll while compute was down, nor repeat the call whose reply with the
         * end was lost; the time before still counts. */
        atomic_fetch_add(&head->request[i].last_poll_ns, down_ns);
        if (head->request[i].end_sent_ns != 0)
            head->request[i].end_sent_ns += down_ns;
    }
}

static void open_engine(struct compute *c)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    must(endpoint_path(c->child.run_dir, ENDPOINT_ENGINE, 0, path, &error), &error);
    c->rpc = rpc_server_open(path, RPC_CONTEXTS, &error);
    must(c->rpc ? 0 : -1, &error);
}

static void start(struct compute *c, int argc, char **argv)
{
    struct error error;
    c->magic = COMPUTE_MAGIC;
    child_start(&c->child, SERVICE_COMPUTE, argc, argv);
    open_tokenizer(c);
    experts_wait_dense(&c->child);
    grammars_init(&c->grammars, c->tokenizer);
    must(runner_open(&c->runner, &c->child, c->tokenizer, &c->grammars, &error), &error);
    repair(c);
    extras_compile_again(c);
    open_engine(c);
    must(runner_start(&c->runner, &error), &error);
}

static void wait_for_events(struct compute *c)
{
    struct pollfd fds[] = {{.fd = rpc_server_fd(c->rpc), .events = POLLIN},
                           {.fd = child_fd(&c->child), .events = POLLIN}};
    if (poll(fds, ARRAY_LEN(fds), c->pending_count > 0 ? RESPONSE_POLL_MS : IDLE_MS) < 0 &&
        errno != EINTR)
        sl_panic("poll: %s", strerror(errno));
}

/* Controls of the supervisor take effect at once, or their value is in the directory. */
static void handle_controls(struct compute *c)
{
    struct msg_control control;
    while (child_control(&c->child, &control)) {
        counter_add(c->child.process, CTR_COMPUTE_messages, 1);
        child_ack(&c->child, &control);
    }
}

/* The main thread's heartbeat must not hide a runner that hangs. */
static void tick(struct compute *c, uint64_t now_ns)
{
    struct runner *r = &c->runner;
    struct error error;
    if (!atomic_load(&r->busy) || runner_alive(r, c->child.params->heartbeat_timeout * NS_PER_MS))
        child_tick(&c->child);
    rpc_server_tick(c->rpc, now_ns);
    must(rpc_server_check(c->rpc, now_ns, &error), &error);
    requests_tick(c, now_ns);
}

static void loop(struct compute *c)
{
    uint64_t tick_due = 0, responses_due = 0;
    while (!c->child.stop) {
        wait_for_events(c);
        uint64_t now = clock_now_ns();
        handle_controls(c);
        requests_take(c);
        if (now >= responses_due) {
            responses_tick(c, now);
            responses_due = now + RESPONSE_POLL_MS * NS_PER_MS;
        }
        if (now >= tick_due) {
            tick(c, now);
            tick_due = now + TICK_EVERY_NS;
        }
    }
}

int main(int argc, char **argv)
{
    struct compute *c = &the_compute;
    start(c, argc, argv);
    child_ready(&c->child);
    runner_admit(&c->runner);
    loop(c);
    atomic_store(&c->runner.stop, 1);
    child_exit(&c->child);
}
