/* SPDX-License-Identifier: Apache-2.0 */
/* Serves remote calls on one socket. Every context of the socket has one asynchronous operation and
 * one slot:
 *
 *   RECEIVING -> (malformed or ping: SENDING) | QUEUED -> TAKEN -> SENDING -> RECEIVING
 *
 * Callbacks run on NNG's threads; the owner's thread takes requests, replies and ticks. The lock
 * protects the states and the queue; no NNG function is called under it. */
#include <errno.h>
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/rpc/json.h"
#include "ipc/rpc/link.h"
#include "ipc/rpc/rpc.h"
#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

#define SERVER_MAGIC 0x52504353u
#define SLOT_MAGIC   0x52504354u
#define HEADROOM     64 /* backtrace of the protocol, on top of the JSON */
#define REARM_AFTER  (100 * NS_PER_MS)
#define CLOSED_NS    (10 * NS_PER_S)

enum slot_state { SLOT_IDLE, SLOT_RECEIVING, SLOT_QUEUED, SLOT_TAKEN, SLOT_SENDING };

struct slot {
    uint32_t magic;
    enum slot_state state;
    struct rpc_server *server;
    nng_ctx context;
    nng_aio *aio;
    struct slot *next; /* in the queue */
    nng_pipe pipe;     /* of the request */
    struct rpc_request request;
};

struct rpc_server {
    uint32_t magic;
    unsigned slots_count;
    int fd; /* eventfd, readable while the queue is not empty */
    pthread_mutex_t lock;
    struct slot *first, *last;
    bool closing;
    bool complained;
    uint64_t next_rearm_ns;
    struct rpc_server_stats stats; /* without relistens, which the link counts */
    struct slot *slots;
    struct link link;
};

static void set_state(struct slot *slot, enum slot_state state)
{
    pthread_mutex_lock(&slot->server->lock);
    slot->state = state;
    pthread_mutex_unlock(&slot->server->lock);
}

static void receive_next(struct slot *slot)
{
    set_state(slot, SLOT_RECEIVING);
    nng_ctx_recv(slot->context, slot->aio);
}

static void send_text(struct slot *slot, const char *text, size_t bytes)
{
    nng_msg *msg;
    if (!text || nng_msg_alloc(&msg, bytes) != 0) {
        /* Out of memory for the reply, too: the client repeats its call on another connection. */
        nng_pipe_close(slot->pipe);
        receive_next(slot);
        return;
    }
    memcpy(nng_msg_body(msg), text, bytes);
    set_state(slot, SLOT_SENDING);
    nng_aio_set_msg(slot->aio, msg);
    nng_ctx_send(slot->context, slot->aio);
}

static void send_error(struct slot *slot, const char *id, const struct error *error)
{
    json_t *object = rpc_error_object(id, error);
    size_t bytes = 0;
    char *text = object ? rpc_json_encode(object, &bytes) : NULL;
    json_decref(object);
    send_text(slot, text, bytes);
    free(text);
}

/* `fields` is stolen. */
static void send_fields(struct slot *slot, const char *id, json_t *fields)
{
    size_t bytes = 0;
    char *text = NULL;
    struct error error;
    error_set(&error, ERR_FAILED, "cannot build the reply");
    if (!fields)
        fields = json_object();
    if (fields && json_object_set_new(fields, "v", json_integer(RPC_VERSION)) == 0 &&
        json_object_set_new(fields, "id", json_string(id)) == 0 &&
        json_object_set_new(fields, "ok", json_true()) == 0)
        text = rpc_json_encode(fields, &bytes);
    if (!text && bytes)
        error_set(&error, ERR_FAILED, "reply too large: %zu bytes, maximum %u", bytes,
                  RPC_BYTES_MAX);
    json_decref(fields);
    if (text)
        send_text(slot, text, bytes);
    else
        send_error(slot, id, &error);
    free(text);
}

static void reject(struct slot *slot, const struct error *error)
{
    struct rpc_server *server = slot->server;
    pthread_mutex_lock(&server->lock);
    server->stats.rejected++;
    bool first = !server->complained;
    server->complained = true;
    pthread_mutex_unlock(&server->lock);
    if (first)
        log_warn("%s: %s (further ones are only counted)", server->link.path, error->text);
    send_error(slot, RPC_NO_ID, error);
}

static void enqueue(struct slot *slot)
{
    struct rpc_server *server = slot->server;
    uint64_t one = 1;
    pthread_mutex_lock(&server->lock);
    slot->state = SLOT_QUEUED;
    slot->next = NULL;
    if (server->last)
        server->last->next = slot;
    else
        server->first = slot;
    server->last = slot;
    server->stats.requests++;
    ssize_t done = write(server->fd, &one, sizeof one);
    (void)done; /* a full eventfd is readable already */
    pthread_mutex_unlock(&server->lock);
}

static void on_request(struct slot *slot, nng_msg *msg)
{
    json_t *body = NULL;
    struct error error;
    int bad = rpc_request_parse(nng_msg_body(msg), nng_msg_len(msg), &body, &error);
    slot->pipe = nng_msg_get_pipe(msg);
    nng_msg_free(msg);
    if (bad) {
        reject(slot, &error);
        return;
    }
    slot->request = (struct rpc_request){
        .body = body,
        .op = json_string_value(json_object_get(body, "op")),
        .id = json_string_value(json_object_get(body, "id")),
        .taken_ns = clock_now_ns(),
        .context = slot,
    };
    if (strcmp(slot->request.op, "ping") == 0) {
        send_fields(slot, slot->request.id, NULL);
        json_decref(body);
        return;
    }
    enqueue(slot);
}

static void on_aio(void *arg)
{
    struct slot *slot = arg;
    OBJ_CHECK(slot, SLOT_MAGIC);
    pthread_mutex_lock(&slot->server->lock);
    enum slot_state state = slot->state;
    bool closing = slot->server->closing;
    pthread_mutex_unlock(&slot->server->lock);

    int rv = nng_aio_result(slot->aio);
    nng_msg *msg = state == SLOT_SENDING && rv == 0 ? NULL : nng_aio_get_msg(slot->aio);
    if (state == SLOT_RECEIVING && rv == 0 && !closing) {
        nng_aio_set_msg(slot->aio, NULL);
        on_request(slot, msg);
        return;
    }
    if (msg && (rv == 0 || state == SLOT_SENDING)) {
        nng_aio_set_msg(slot->aio, NULL);
        nng_msg_free(msg);
    }
    if (state == SLOT_SENDING && rv == 0 && !closing)
        receive_next(slot);
    else
        set_state(slot, SLOT_IDLE); /* retried by rpc_server_tick */
}

static int open_slots(struct rpc_server *server, unsigned contexts, struct error *error)
{
    server->slots = calloc(contexts, sizeof *server->slots);
    if (!server->slots)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%u contexts)", contexts);
    for (unsigned i = 0; i < contexts; i++) {
        struct slot *slot = &server->slots[i];
        slot->magic = SLOT_MAGIC;
        slot->server = server;
        int rv = nng_ctx_open(&slot->context, server->link.socket);
        if (rv != 0)
            return link_error(error, rv, "open a context of", server->link.path);
        server->slots_count = i + 1;
        rv = nng_aio_alloc(&slot->aio, on_aio, slot);
        if (rv != 0)
            return link_error(error, rv, "open a context of", server->link.path);
    }
    for (unsigned i = 0; i < contexts; i++)
        receive_next(&server->slots[i]);
    return 0;
}

struct rpc_server *rpc_server_open(const char *path, unsigned contexts, struct error *error)
{
    sl_assert(contexts > 0 && contexts <= RPC_CONTEXTS_MAX);
    struct rpc_server *server = calloc(1, sizeof *server);
    if (!server) {
        error_set(error, ERR_NO_MEMORY, "out of memory (server)");
        return NULL;
    }
    server->magic = SERVER_MAGIC;
    pthread_mutex_init(&server->lock, NULL);
    server->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    nng_socket socket;
    int rv = server->fd < 0 ? NNG_ENOFILES : link_socket_first(&socket, nng_rep0_open);
    if (rv != 0) {
        link_error(error, rv, "open a socket for", path);
    } else if (link_open(&server->link, socket, path, LINK_LISTEN_MANY, RPC_BYTES_MAX + HEADROOM,
                         -1, error) == 0) {
        if (open_slots(server, contexts, error) == 0)
            return server;
        rpc_server_close(server);
        return NULL;
    }
    if (server->fd >= 0)
        close(server->fd);
    pthread_mutex_destroy(&server->lock);
    free(server);
    return NULL;
}

int rpc_server_fd(const struct rpc_server *server)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    return server->fd;
}

struct rpc_request *rpc_server_take(struct rpc_server *server)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    pthread_mutex_lock(&server->lock);
    struct slot *slot = server->first;
    if (slot) {
        server->first = slot->next;
        slot->next = NULL;
        slot->state = SLOT_TAKEN;
    }
    if (!server->first) {
        uint64_t count;
        server->last = NULL;
        ssize_t done = read(server->fd, &count, sizeof count);
        (void)done; /* nothing to read is fine */
    }
    pthread_mutex_unlock(&server->lock);
    return slot ? &slot->request : NULL;
}

/* Slot of a request taken by the owner, which still needs a reply. */
static struct slot *reply_slot(struct rpc_server *server, struct rpc_request *request)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    struct slot *slot = request->context;
    OBJ_CHECK(slot, SLOT_MAGIC);
    pthread_mutex_lock(&server->lock);
    sl_assert(slot->server == server && slot->state == SLOT_TAKEN);
    server->stats.replies++;
    pthread_mutex_unlock(&server->lock);
    return slot;
}

void rpc_reply(struct rpc_server *server, struct rpc_request *request, json_t *fields)
{
    struct slot *slot = reply_slot(server, request);
    json_t *body = request->body;
    request->body = NULL;
    send_fields(slot, request->id, fields);
    json_decref(body);
}

void rpc_reply_error(struct rpc_server *server, struct rpc_request *request,
                     const struct error *error)
{
    struct slot *slot = reply_slot(server, request);
    json_t *body = request->body;
    request->body = NULL;
    send_error(slot, request->id, error);
    json_decref(body);
}

void rpc_server_tick(struct rpc_server *server, uint64_t now_ns)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    link_tick(&server->link, now_ns);
    if (now_ns < server->next_rearm_ns)
        return;
    server->next_rearm_ns = now_ns + REARM_AFTER;
    for (unsigned i = 0; i < server->slots_count; i++) {
        struct slot *slot = &server->slots[i];
        pthread_mutex_lock(&server->lock);
        bool idle = slot->state == SLOT_IDLE;
        pthread_mutex_unlock(&server->lock);
        if (idle)
            receive_next(slot);
    }
}

int rpc_server_check(const struct rpc_server *server, uint64_t now_ns, struct error *error)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    const struct link *link = &server->link;
    if (link->closed_ns == 0 || now_ns - link->closed_ns < CLOSED_NS)
        return 0;
    return error_set(error, ERR_FAILED, "cannot listen on %s for %llu s", link->path,
                     (unsigned long long)(CLOSED_NS / NS_PER_S));
}

void rpc_server_stats_get(const struct rpc_server *server, struct rpc_server_stats *stats)
{
    OBJ_CHECK(server, SERVER_MAGIC);
    pthread_mutex_t *lock = (pthread_mutex_t *)&server->lock;
    pthread_mutex_lock(lock);
    *stats = server->stats;
    pthread_mutex_unlock(lock);
    stats->relistens = server->link.restarts;
}

void rpc_server_close(struct rpc_server *server)
{
    if (!server)
        return;
    OBJ_CHECK(server, SERVER_MAGIC);
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    pthread_mutex_unlock(&server->lock);
    for (unsigned i = 0; i < server->slots_count; i++)
        nng_ctx_close(server->slots[i].context);
    if (!link_close(&server->link))
        return; /* NNG may still run callbacks: their data stays until the process exits */
    for (unsigned i = 0; i < server->slots_count; i++) {
        struct slot *slot = &server->slots[i];
        if (slot->aio) {
            nng_aio_stop(slot->aio);
            nng_aio_free(slot->aio);
        }
        json_decref(slot->state == SLOT_QUEUED || slot->state == SLOT_TAKEN ? slot->request.body
                                                                            : NULL);
    }
    close(server->fd);
    free(server->slots);
    pthread_mutex_destroy(&server->lock);
    server->magic = 0;
    free(server);
}
