/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-gateway: the engine over HTTP: completions of the OpenAI API, health, statistics, metrics,
 * and a page.
 *
 * One thread: the HTTP library runs on it (epoll, without threads), calls of compute and of the
 * supervisor are asynchronous (ipc/rpc/async.h), and a request that needs one is suspended
 * meanwhile. So slow clients do not delay others.
 *
 * Messages   in: HTTP (untrusted clients), CONTROL (supervisor). out: submit, next, cancel,
 *            status (compute); status, stats, map (supervisor), ACK.
 * Memory     writes its own row of the process table, the only segment it can map: no weights, no
 *            directory. Private memory is bounded by parameters (--http-*), reserved in the ledger,
 *            and limited by RLIMIT_DATA.
 * On a stop: open responses end with an error; connections that do not read it within a second are
 *            closed.
 * On its crash: connections break; sequences without a client are cancelled. The listening socket
 *            belongs to the supervisor: new connections wait. Nothing else is lost.
 * On a crash of others: compute: calls are repeated, streams continue with the same text; the
 *            supervisor: it exits; others: no effect.
 * Trust:     everything received over HTTP is untrusted. The key (--http-key-file) is compared in
 *            constant time; without a key it listens on a loopback address only, and cross-origin
 *            requests are rejected. Snapshots of the engine are trusted.
 * Files      --http-log: appended, opened again when it was renamed.
 * Limits:    no TLS: use a proxy; one prompt per request. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "procs/engine/gateway/routes.h"
#include "procs/engine/gateway/serve/serve.h"

#define TICK_EVERY_NS (50 * NS_PER_MS)
#define LOOP_MS       50
#define ENGINE_CALLS  (2 * STREAMS_MAX + 16) /* one next and one cancel per stream */
#define CONTROL_CALLS 8
#define DRAIN_NS      NS_PER_S /* for the last responses; the supervisor waits 3 s */

static struct gateway the_gateway;

static void must(int rc, const struct error *error)
{
    if (rc != 0)
        log_fatal(error_exit_status(error->code), "%s", error->text);
}

static struct rpc_async *open_calls(struct gateway *g, enum endpoint endpoint, unsigned calls)
{
    struct error error;
    char path[ENDPOINT_BYTES];
    must(endpoint_path(g->child.run_dir, endpoint, 0, path, &error), &error);
    struct rpc_async *client = rpc_async_open(path, calls, &error);
    must(client ? 0 : -1, &error);
    return client;
}

static void start(struct gateway *g, int argc, char **argv)
{
    struct error error;
    g->magic = GATEWAY_MAGIC;
    child_start(&g->child, SERVICE_GATEWAY, argc, argv);
    g->http.child = &g->child;
    g->http.gateway = g;
    must(http_log_open(&g->http, &error), &error);
    if (!stored_open(&g->stored, g->child.params->http_stored_count, g->child.params->http_stored))
        must(error_set(&error, ERR_NO_MEMORY, "out of memory (--http-stored-count)"), &error);
    g->model.started = (int64_t)time(NULL);
    g->engine = open_calls(g, ENDPOINT_ENGINE, ENGINE_CALLS);
    g->control = open_calls(g, ENDPOINT_CONTROL, CONTROL_CALLS);
    must(http_start(&g->http, &gateway_service, &error), &error);
}

static void handle_controls(struct gateway *g)
{
    struct msg_control control;
    while (child_control(&g->child, &control))
        child_ack(&g->child, &control);
}

/* Waits for an event: of the supervisor, of clients, of compute, or a disconnect. */
static void wait_for_events(struct gateway *g)
{
    enum {
        CHILD,
        HTTP,
        ACCEPTOR,
        ENGINE = ACCEPTOR + ACCEPTOR_FDS,
        CONTROL = ENGINE + RPC_ASYNC_FDS,
        STREAMS = CONTROL + RPC_ASYNC_FDS
    };
    struct pollfd fds[STREAMS + STREAMS_MAX];
    struct stream *of[STREAMS_MAX];
    MHD_UNSIGNED_LONG_LONG due;
    int wait_ms = LOOP_MS;
    fds[CHILD] = (struct pollfd){.fd = child_fd(&g->child), .events = POLLIN};
    fds[HTTP] = (struct pollfd){.fd = http_fd(&g->http), .events = POLLIN};
    acceptor_poll(&g->http, clock_now_ns(), &fds[ACCEPTOR]);
    rpc_async_poll(g->engine, &fds[ENGINE]);
    rpc_async_poll(g->control, &fds[CONTROL]);
    nfds_t streams = streams_poll(g, &fds[STREAMS], of);
    if (MHD_get_timeout(g->http.daemon, &due) == MHD_YES && due < LOOP_MS)
        wait_ms = (int)due;
    child_wait(&g->child, WAIT_IDLE);
    int n = poll(fds, STREAMS + streams, wait_ms);
    child_wait(&g->child, WAIT_NONE);
    for (nfds_t i = 0; n > 0 && i < streams; i++)
        if (fds[STREAMS + i].revents) {
            of[i]->exchange->gone = true;
            exchange_resume(of[i]->exchange);
        }
}

static void serve(struct gateway *g)
{
    wait_for_events(g);
    uint64_t now = clock_now_ns();
    rpc_async_tick(g->engine, now);
    rpc_async_tick(g->control, now);
    http_run(&g->http);
    if (now < g->tick_due_ns)
        return;
    g->tick_due_ns = now + TICK_EVERY_NS;
    handle_controls(g);
    child_tick(&g->child);
    streams_tick(g, now);
    acceptor_tick(&g->http, now);
    connections_tick(&g->http, now);
    http_log_tick(&g->http, now);
    stats_tick(g, now);
}

/* Stop: pending requests get a response, and started responses end with an error event. New
 * connections wait for the successor. */
static void drain_connections(struct gateway *g)
{
    uint64_t until = clock_now_ns() + DRAIN_NS;
    acceptor_close(&g->http);
    streams_stop(g);
    while (g->http.responding > 0 && clock_now_ns() < until)
        serve(g);
}

int main(int argc, char **argv)
{
    struct gateway *g = &the_gateway;
    start(g, argc, argv);
    child_ready(&g->child);
    while (!g->child.stop)
        serve(g);
    drain_connections(g);
    http_log_tick(&g->http, clock_now_ns());
    child_exit(&g->child);
}
