/* Remote calls at the edge: clients -> compute, clients -> supervisor. rep0 contexts carrying JSON.
 *
 * Request  {"v":1,"id":"16 hex digits","op":"submit", ...}
 * Reply    {"v":1,"id":...,"ok":true, ...}  or
 *          {"v":1,"id":...,"ok":false,"error":{"code":"busy","text":"..."}}
 * A call may arrive twice (the client repeats it with the same id): handlers are idempotent. Sizes
 * are capped, duplicate keys refused, and every request is answered or the client's deadline ends
 * it.
 *
 * The server's requests are handed to the owner's loop through a descriptor; a handler may keep a
 * request and answer later (long poll), holding one context meanwhile. */
#ifndef SLUICE_IPC_RPC_RPC_H
#define SLUICE_IPC_RPC_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define RPC_BYTES_MAX    (2u << 20) /* of one request or reply as JSON: 512 KiB of text, escaped */
#define RPC_CONTEXTS_MAX 512

struct rpc_server;
struct rpc_client;

struct rpc_request {
    json_t *body;      /* the request object; borrowed */
    const char *op;    /* borrowed from body */
    const char *id;    /* borrowed from body */
    uint64_t taken_ns; /* when it arrived, monotonic */
    void *context;     /* owned by the server */
};

struct rpc_server_stats {
    uint64_t requests, replies, rejected /* malformed */, relistens;
};

/* Opens a server at an absolute socket path with `contexts` requests outstanding at once. Malformed
 * requests are answered with bad_input and counted; they never reach the owner; "ping" is answered
 * here too. A listener self-probe (a real connection every half second, from rpc_server_tick)
 * reopens a listener that stopped accepting. ERR_BUSY: a living process listens on that path (it is
 * not disturbed). One thread uses a server. */
struct rpc_server *rpc_server_open(const char *path, unsigned contexts, struct error *error);
int rpc_server_fd(const struct rpc_server *server); /* readable while requests wait */

/* Every 100 ms from the owner's loop: the self-probe. */
void rpc_server_tick(struct rpc_server *server, uint64_t now_ns);

/* The next request, or NULL. The caller answers it exactly once, with rpc_reply or
 * rpc_reply_error. */
struct rpc_request *rpc_server_take(struct rpc_server *server);

/* Answers. `fields` (an object, reference stolen, may be NULL) gets v, id and ok added. */
void rpc_reply(struct rpc_server *server, struct rpc_request *request, json_t *fields);
void rpc_reply_error(struct rpc_server *server, struct rpc_request *request,
                     const struct error *error);

void rpc_server_stats_get(const struct rpc_server *server, struct rpc_server_stats *stats);
void rpc_server_close(struct rpc_server *server);

/* A client of one server. Connects in the background; survives restarts of the server (redial
 * watchdog). Calls of several threads on one client run one after the other: a thread that must not
 * wait for another's long poll has a client of its own. */
struct rpc_client *rpc_client_open(const char *path, struct error *error);
void rpc_client_close(struct rpc_client *client);

/* Calls op with the fields of `request` (an object, reference stolen; may be NULL) and waits for
 * the answer until timeout_ms passed on the monotonic clock; repeats the call with the same id when
 * the connection broke. 0 with *reply (caller json_decrefs), or -1: the server's own error (its
 * code and text), ERR_TIMEOUT, or ERR_GONE when nothing listens there: at once when it is certain
 * (no run directory, nobody holds the run's lock, never a socket), else at the deadline, because a
 * server may be restarting. */
int rpc_call(struct rpc_client *client, const char *op, json_t *request, unsigned timeout_ms,
             json_t **reply, struct error *error);

/* Ends a running rpc_call of another thread or a signal handler's flag: *stop != 0 makes calls
 * return ERR_CANCELLED within 50 ms. NULL: never. */
void rpc_client_set_stop(struct rpc_client *client, const volatile int *stop);

#endif
