/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a server and waits for its reply. The socket is a raw req0, which only transports messages.
 * Waiting, repeating, deadlines and matching of replies are done here on the monotonic clock; the
 * cooked req0 would use the wall clock, and cancelling one of its receives can crash it. */
#include <errno.h>
#include <nng/nng.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/rpc/call.h"
#include "ipc/rpc/json.h"
#include "ipc/rpc/link.h"
#include "ipc/rpc/rpc.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"

#define CLIENT_MAGIC  0x52504343u
#define QUEUE_LENGTH  2
#define POLL_MS       50
#define FULL_POLL_MS  2
#define GONE_CHECK_NS (100 * NS_PER_MS)

struct rpc_client {
    uint32_t magic;
    int receive_fd, wake_fd;
    pthread_mutex_t lock; /* one call at a time */
    const volatile int *stop;
    rpc_watch *watch;
    void *watch_arg;
    uint64_t next_id;
    struct link link;
};

/* One call in progress. */
struct call {
    struct rpc_call_text text;
    uint64_t start_ns, deadline_ns, next_gone_ns;
    int sent_pipe; /* connection it was sent on, 0: not sent */
    bool connected_once;
};

struct rpc_client *rpc_client_open(const char *path, struct error *error)
{
    struct rpc_client *client = calloc(1, sizeof *client);
    if (!client) {
        error_set(error, ERR_NO_MEMORY, "out of memory (client)");
        return NULL;
    }
    client->magic = CLIENT_MAGIC;
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    nng_socket socket = NNG_SOCKET_INITIALIZER;
    int rv = client->wake_fd < 0 || !rpc_first_id(&client->next_id)
                 ? NNG_ENOFILES
                 : rpc_socket_open(&socket, QUEUE_LENGTH, &client->receive_fd);
    bool opened = false;
    if (rv != 0) {
        link_error(error, rv, "open a socket for", path);
        link_close_socket(socket);
    } else {
        opened = link_open(&client->link, socket, path, LINK_DIAL, RPC_BYTES_MAX + RPC_HEADROOM,
                           client->wake_fd, error) == 0;
    }
    if (!opened) {
        if (client->wake_fd >= 0)
            close(client->wake_fd);
        free(client);
        return NULL;
    }
    pthread_mutex_init(&client->lock, NULL);
    return client;
}

void rpc_client_close(struct rpc_client *client)
{
    if (!client)
        return;
    OBJ_CHECK(client, CLIENT_MAGIC);
    if (!link_close(&client->link))
        return; /* NNG may still run callbacks: their data stays until the process exits */
    close(client->wake_fd);
    pthread_mutex_destroy(&client->lock);
    client->magic = 0;
    free(client);
}

void rpc_client_set_stop(struct rpc_client *client, const volatile int *stop)
{
    OBJ_CHECK(client, CLIENT_MAGIC);
    client->stop = stop;
}

void rpc_client_set_watch(struct rpc_client *client, rpc_watch *watch, void *arg)
{
    OBJ_CHECK(client, CLIENT_MAGIC);
    client->watch = watch;
    client->watch_arg = arg;
}

enum outcome { OUTCOME_NONE, OUTCOME_REPLY, OUTCOME_ERROR };

/* Reads the received messages. Late and invalid replies are ignored. */
static enum outcome receive_reply(struct rpc_client *client, const struct call *call,
                                  json_t **reply, struct error *error)
{
    nng_msg *msg;
    while (nng_recvmsg(client->link.socket, &msg, NNG_FLAG_NONBLOCK) == 0) {
        uint32_t number = 0;
        bool broken = true;
        int result = -1;
        if (nng_msg_header_trim_u32(msg, &number) == 0 && number == call->text.number)
            result = rpc_reply_parse(nng_msg_body(msg), nng_msg_len(msg), call->text.id, reply,
                                     &broken, error);
        nng_msg_free(msg);
        if (result == 0)
            return OUTCOME_REPLY;
        if (!broken)
            return OUTCOME_ERROR;
    }
    return OUTCOME_NONE;
}

/* True when certainly no server exists: the run directory does not exist, or its lock is free, or
 * (without a lock file) there has never been a socket. None of this holds for a restarting
 * server. */
static bool surely_gone(const struct rpc_client *client, const struct call *call, uint64_t now)
{
    char dir[ENDPOINT_BYTES];
    snprintf(dir, sizeof dir, "%s", client->link.path);
    char *slash = strrchr(dir, '/');
    *slash = 0;
    if (access(slash == dir ? "/" : dir, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return true;
    bool no_file = access(client->link.path, F_OK) != 0 && errno == ENOENT;
    switch (run_dir_state(dir)) {
    case RUN_LOCKED: return false;
    case RUN_GONE: return no_file || now - call->start_ns >= GONE_CHECK_NS;
    case RUN_UNKNOWN: break;
    }
    return no_file && atomic_load(&client->link.connects) == 0;
}

static int gone(const struct rpc_client *client, struct error *error)
{
    return error_set(error, ERR_GONE, "no server on %s", client->link.path);
}

/* Milliseconds until the next check. */
static int poll_timeout(const struct call *call, uint64_t now, int pipe)
{
    uint64_t left = (call->deadline_ns - now) / NS_PER_MS + 1;
    uint64_t max = pipe != 0 && call->sent_pipe != pipe ? FULL_POLL_MS : POLL_MS;
    return (int)(left < max ? left : max);
}

static int run_call(struct rpc_client *client, struct call *call, json_t **reply,
                    struct error *error)
{
    for (;;) {
        uint64_t now = clock_now_ns(), drained;
        if (client->stop && __atomic_load_n(client->stop, __ATOMIC_RELAXED))
            return error_set(error, ERR_CANCELLED, "the call was cancelled");
        link_tick(&client->link, now);
        int pipe = link_pipe(&client->link);
        call->connected_once |= pipe != 0;
        if (pipe != 0 && pipe != call->sent_pipe && rpc_call_send(client->link.socket, &call->text))
            call->sent_pipe = pipe; /* otherwise the queue is full: retry soon */
        enum outcome outcome = receive_reply(client, call, reply, error);
        if (outcome != OUTCOME_NONE)
            return outcome == OUTCOME_REPLY ? 0 : -1;
        if (now >= call->deadline_ns)
            return call->connected_once
                       ? error_set(error, ERR_TIMEOUT, "no reply from %s", client->link.path)
                       : gone(client, error);
        if (pipe == 0 && now >= call->next_gone_ns) {
            call->next_gone_ns = now + GONE_CHECK_NS;
            if (surely_gone(client, call, now))
                return gone(client, error);
            /* not at once: the connection may just be in the making */
            if (client->watch && now - call->start_ns >= GONE_CHECK_NS &&
                client->watch(client->watch_arg, error) != 0)
                return -1;
        }
        struct pollfd wait[2] = {{.fd = client->receive_fd, .events = POLLIN},
                                 {.fd = client->wake_fd, .events = POLLIN}};
        poll(wait, 2, poll_timeout(call, now, pipe));
        ssize_t done = read(client->wake_fd, &drained, sizeof drained);
        (void)done; /* nothing to read: woken by a timeout or a reply */
    }
}

int rpc_call(struct rpc_client *client, const char *op, json_t *request, unsigned timeout_ms,
             json_t **reply, struct error *error)
{
    OBJ_CHECK(client, CLIENT_MAGIC);
    struct error unwanted;
    if (!error)
        error = &unwanted;
    pthread_mutex_lock(&client->lock);
    struct call call = {.start_ns = clock_now_ns()};
    call.deadline_ns = call.start_ns + timeout_ms * NS_PER_MS;
    int result = rpc_call_prepare(&call.text, client->next_id++, op, request, error);
    /* Between calls the link is not polled, so its lonely_ns is stale. */
    if (link_pipe(&client->link) == 0)
        client->link.lonely_ns = 0;
    if (result == 0)
        result = run_call(client, &call, reply, error);
    free(call.text.text);
    pthread_mutex_unlock(&client->lock);
    return result;
}
