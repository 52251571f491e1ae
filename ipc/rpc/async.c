/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the calls of an event loop to one server in flight, and repeats or ends them as their
 * replies and deadlines demand. */
#include "ipc/rpc/async.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/rpc/call.h"
#include "ipc/rpc/link.h"
#include "ipc/rpc/rpc.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"

#define ASYNC_MAGIC 0x52504341u

struct async_call {
    uint64_t ticket; /* 0: free */
    struct rpc_call_text text;
    uint64_t deadline_ns;
    int sent_pipe; /* connection it was sent on, 0: not sent */
    rpc_async_done *done;
    void *arg;
};

struct rpc_async {
    uint32_t magic;
    int receive_fd, wake_fd;
    uint64_t next_id, next_ticket, repeated;
    struct link link;
    unsigned calls_max;
    struct async_call calls[];
};

struct rpc_async *rpc_async_open(const char *path, unsigned calls_max, struct error *error)
{
    struct rpc_async *c = calloc(1, sizeof *c + calls_max * sizeof c->calls[0]);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (client)");
        return NULL;
    }
    c->magic = ASYNC_MAGIC;
    c->calls_max = calls_max;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    nng_socket socket = NNG_SOCKET_INITIALIZER;
    int rv = c->wake_fd < 0 || !rpc_first_id(&c->next_id)
                 ? NNG_ENOFILES
                 : rpc_socket_open(&socket, (int)calls_max, &c->receive_fd);
    bool opened = false;
    if (rv != 0) {
        link_error(error, rv, "open a socket for", path);
        link_close_socket(socket);
    } else {
        opened = link_open(&c->link, socket, path, LINK_DIAL, RPC_BYTES_MAX + RPC_HEADROOM,
                           c->wake_fd, error) == 0;
    }
    if (opened)
        return c;
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    free(c);
    return NULL;
}

void rpc_async_close(struct rpc_async *c)
{
    if (!c)
        return;
    OBJ_CHECK(c, ASYNC_MAGIC);
    for (unsigned i = 0; i < c->calls_max; i++)
        if (c->calls[i].ticket)
            free(c->calls[i].text.text);
    if (!link_close(&c->link))
        return; /* NNG may still run callbacks: their data stays until the process exits */
    close(c->wake_fd);
    c->magic = 0;
    free(c);
}

static void send_one(struct rpc_async *c, struct async_call *call, int pipe)
{
    if (!rpc_call_send(c->link.socket, &call->text))
        return; /* queue full: retried at the next tick */
    if (call->sent_pipe)
        c->repeated++;
    call->sent_pipe = pipe;
}

uint64_t rpc_async_call(struct rpc_async *c, const char *op, json_t *request, unsigned timeout_ms,
                        rpc_async_done *done, void *arg, struct error *error)
{
    OBJ_CHECK(c, ASYNC_MAGIC);
    struct async_call *call = NULL;
    for (unsigned i = 0; i < c->calls_max && !call; i++)
        if (c->calls[i].ticket == 0)
            call = &c->calls[i];
    if (!call) {
        json_decref(request);
        error_set(error, ERR_UNAVAILABLE, "%u calls are already in flight", c->calls_max);
        return 0;
    }
    struct rpc_call_text text;
    if (rpc_call_prepare(&text, c->next_id++, op, request, error) != 0)
        return 0;
    *call = (struct async_call){.ticket = ++c->next_ticket,
                                .text = text,
                                .deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS,
                                .done = done,
                                .arg = arg};
    int pipe = link_pipe(&c->link);
    if (pipe != 0)
        send_one(c, call, pipe);
    return call->ticket;
}

/* Frees the slot before the callback, which may start a call. */
static void end(struct async_call *call, json_t *reply, const struct error *error)
{
    struct async_call was = *call;
    free(call->text.text);
    *call = (struct async_call){0};
    was.done(was.arg, reply, error);
}

void rpc_async_forget(struct rpc_async *c, uint64_t ticket)
{
    OBJ_CHECK(c, ASYNC_MAGIC);
    for (unsigned i = 0; ticket && i < c->calls_max; i++)
        if (c->calls[i].ticket == ticket) {
            free(c->calls[i].text.text);
            c->calls[i] = (struct async_call){0};
        }
}

void rpc_async_poll(const struct rpc_async *c, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = c->receive_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
}

static struct async_call *call_numbered(struct rpc_async *c, uint32_t number)
{
    for (unsigned i = 0; i < c->calls_max; i++)
        if (c->calls[i].ticket && c->calls[i].text.number == number)
            return &c->calls[i];
    return NULL;
}

/* Handles a reply. A late or invalid one, or one to a forgotten call, is ignored. */
static void receive(struct rpc_async *c)
{
    nng_msg *msg;
    while (nng_recvmsg(c->link.socket, &msg, NNG_FLAG_NONBLOCK) == 0) {
        uint32_t number = 0;
        bool broken = true;
        int result = -1;
        json_t *reply = NULL;
        struct error error;
        struct async_call *call =
            nng_msg_header_trim_u32(msg, &number) == 0 ? call_numbered(c, number) : NULL;
        if (call)
            result = rpc_reply_parse(nng_msg_body(msg), nng_msg_len(msg), call->text.id, &reply,
                                     &broken, &error);
        nng_msg_free(msg);
        if (result == 0) {
            end(call, reply, NULL);
            json_decref(reply);
        } else if (!broken) {
            end(call, NULL, &error);
        }
    }
}

void rpc_async_tick(struct rpc_async *c, uint64_t now_ns)
{
    OBJ_CHECK(c, ASYNC_MAGIC);
    uint64_t drained;
    struct error error;
    ssize_t done = read(c->wake_fd, &drained, sizeof drained);
    (void)done; /* nothing to read: woken by a timeout or a reply */
    link_tick(&c->link, now_ns);
    int pipe = link_pipe(&c->link);
    for (unsigned i = 0; pipe != 0 && i < c->calls_max; i++)
        if (c->calls[i].ticket && c->calls[i].sent_pipe != pipe)
            send_one(c, &c->calls[i], pipe);
    receive(c);
    for (unsigned i = 0; i < c->calls_max; i++)
        if (c->calls[i].ticket && now_ns >= c->calls[i].deadline_ns) {
            error_set(&error, ERR_TIMEOUT, "no reply from %s", c->link.path);
            end(&c->calls[i], NULL, &error);
        }
}

uint64_t rpc_async_repeated(const struct rpc_async *c)
{
    return c->repeated;
}
