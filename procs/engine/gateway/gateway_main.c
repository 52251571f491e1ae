/* sluice-gateway: the engine over HTTP - completions in OpenAI's form, health, statistics,
 * metrics, a page for people.
 *
 * One thread: the HTTP library runs on it (epoll, no threads of its own), calls of compute and of
 * the supervisor are made without waiting (ipc/rpc/async.h), and a request that needs either is
 * suspended meanwhile. So a slow client, or five hundred, keep nobody waiting.
 *
 * Messages   in: HTTP (strangers), CONTROL (supervisor). out: submit, next, cancel (compute);
 *            status, stats, map (supervisor), ACK.
 * Memory     writes its own row of the process table, which is all it is given: no weights, no
 *            directory. Private memory is bounded by parameters (--http-*), held in the ledger, and
 *            cut off by RLIMIT_DATA.
 * When it is told to stop: open answers end with an error, those who do not read it within a second
 *            are cut off.
 * When it dies: connections break; sequences nobody asks for are cancelled. The listening socket is
 *            the supervisor's: who connects meanwhile waits. Nothing else is lost.
 * When others die: compute - calls are repeated, streams go on with the same text; the supervisor -
 *            it ends; anybody else - it does not notice.
 * Trust:     everything that comes over HTTP is foreign. A key (--http-key-file) is compared in
 *            constant time; without one only this machine is listened to, and pages of others'
 *            hosts are refused. Documents of the engine are the engine's own.
 * Limits:    no TLS: put a proxy before it; one prompt and one choice in a request. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "procs/engine/gateway/gateway.h"

#define TEND_EVERY_NS (50 * NS_PER_MS)
#define LOOP_MS       50
#define ENGINE_CALLS  (2 * STREAMS_MAX + 16) /* one next and one cancel of each */
#define CONTROL_CALLS 8
#define FAREWELL_NS   NS_PER_S /* for those who read; the supervisor waits three of them */

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

/* The key's first line; spaces and the end of the line do not belong to it. */
static void read_key(struct gateway *g)
{
    const struct params *p = g->child.params;
    snprintf(g->key, sizeof g->key, "%s", p->http_key);
    if (!p->http_key_file[0])
        return;
    FILE *f = fopen(p->http_key_file, "re");
    if (!f || !fgets(g->key, sizeof g->key, f))
        log_fatal(error_exit_status(ERR_BAD_INPUT), "cannot read a key from %s", p->http_key_file);
    int next = strchr(g->key, '\n') ? EOF : fgetc(f);
    if (next != EOF && next != '\r' && next != '\n')
        log_fatal(error_exit_status(ERR_BAD_INPUT), "the key in %s has more than %d bytes",
                  p->http_key_file, KEY_BYTES_MAX - 1);
    fclose(f);
    size_t n = strcspn(g->key, " \t\r\n");
    memset(g->key + n, 0, sizeof g->key - n); /* it is compared with its zeros */
    if (!g->key[0])
        log_fatal(error_exit_status(ERR_BAD_INPUT), "the key in %s is empty", p->http_key_file);
}

static void start(struct gateway *g, int argc, char **argv)
{
    struct error error;
    g->magic = GATEWAY_MAGIC;
    child_start(&g->child, SERVICE_GATEWAY, argc, argv);
    read_key(g);
    g->started = (int64_t)time(NULL);
    g->engine = open_calls(g, ENDPOINT_ENGINE, ENGINE_CALLS);
    g->control = open_calls(g, ENDPOINT_CONTROL, CONTROL_CALLS);
    must(http_start(g, &error), &error);
}

static void handle_controls(struct gateway *g)
{
    struct msg_control control;
    while (child_control(&g->child, &control))
        child_ack(&g->child, &control);
}

static int http_fd(const struct gateway *g)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(g->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    return info ? info->epoll_fd : -1;
}

/* Waits until somebody has something: supervisor, clients, compute, or a client that left. */
static void wait_for_news(struct gateway *g)
{
    enum {
        CHILD,
        HTTP,
        DOOR,
        ENGINE = DOOR + DOOR_FDS,
        CONTROL = ENGINE + RPC_ASYNC_FDS,
        STREAMS = CONTROL + RPC_ASYNC_FDS
    };
    struct pollfd fds[STREAMS + STREAMS_MAX];
    struct stream *of[STREAMS_MAX];
    MHD_UNSIGNED_LONG_LONG due;
    int wait_ms = LOOP_MS;
    fds[CHILD] = (struct pollfd){.fd = child_fd(&g->child), .events = POLLIN};
    fds[HTTP] = (struct pollfd){.fd = http_fd(g), .events = POLLIN};
    door_poll(g, clock_now_ns(), &fds[DOOR]);
    rpc_async_poll(g->engine, &fds[ENGINE]);
    rpc_async_poll(g->control, &fds[CONTROL]);
    nfds_t streams = streams_poll(g, &fds[STREAMS], of);
    if (MHD_get_timeout(g->daemon, &due) == MHD_YES && due < LOOP_MS)
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
    wait_for_news(g);
    uint64_t now = clock_now_ns();
    rpc_async_tend(g->engine, now);
    rpc_async_tend(g->control, now);
    http_run(g);
    if (now < g->tend_due_ns)
        return;
    g->tend_due_ns = now + TEND_EVERY_NS;
    handle_controls(g);
    child_tend(&g->child);
    streams_tend(g, now);
    door_tend(g, now);
    connections_tend(g, now);
    documents_tend(g, now);
}

/* Told to stop: who waits for an answer gets one, and an answer that had begun ends with an error,
 * not in the middle. Who connects meanwhile is the next one's. */
static void farewell(struct gateway *g)
{
    uint64_t until = clock_now_ns() + FAREWELL_NS;
    door_close(g);
    streams_stop(g);
    while (g->answering > 0 && clock_now_ns() < until)
        serve(g);
}

int main(int argc, char **argv)
{
    struct gateway *g = &the_gateway;
    start(g, argc, argv);
    child_ready(&g->child);
    while (!g->child.stop)
        serve(g);
    farewell(g);
    child_exit(&g->child);
}
