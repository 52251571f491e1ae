/* SPDX-License-Identifier: Apache-2.0 */
/* Remote calls of clients to compute and to the supervisor: rep0 contexts carrying JSON.
 *
 * Request  {"v":1,"id":"16 hex digits","op":"submit", ...}
 * Reply    {"v":1,"id":...,"ok":true, ...}  or
 *          {"v":1,"id":...,"ok":false,"error":{"code":"busy","text":"..."}}
 *
 * A call may arrive twice (the client repeats it with the same id): handlers are idempotent. Sizes
 * are capped and duplicate keys rejected. Every request gets a reply, or the client's deadline ends
 * the call.
 *
 * The server passes requests to the owner's loop through a descriptor; a handler may keep a request
 * and reply later (long poll), which occupies one context meanwhile. */
#ifndef SLUICE_IPC_RPC_RPC_H
#define SLUICE_IPC_RPC_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define RPC_BYTES_MAX                                                                              \
    (2u << 20) /* maximum of one request or reply as JSON: 512 KiB of text,
                                     * escaped */
#define RPC_CONTEXTS_MAX 512

struct rpc_server;
struct rpc_client;

struct rpc_request {
    json_t *body;      /* the request object; borrowed */
    const char *op;    /* borrowed from body */
    const char *id;    /* borrowed from body */
    uint64_t taken_ns; /* arrival time, monotonic */
    void *context;     /* owned by the server */
};

struct rpc_server_stats {
    uint64_t requests, replies, rejected /* malformed */, relistens;
};

/* Opens a server at an absolute socket path with `contexts` concurrent requests. Malformed requests
 * get a bad_input reply, are counted, and never reach the owner; "ping" is handled here, too. A
 * self-probe (a real connection every half second, from rpc_server_tick) reopens a listener that
 * stopped accepting. ERR_BUSY: a running process listens on that path (it is not disturbed). One
 * thread uses a server. */
struct rpc_server *rpc_server_open(const char *path, unsigned contexts, struct error *error);
int rpc_server_fd(const struct rpc_server *server); /* readable while requests wait */

/* Runs the self-probe; call it every 100 ms. */
void rpc_server_tick(struct rpc_server *server, uint64_t now_ns);

/* -1 with ERR_FAILED if the listener could not be opened for 10 s: only a successor of this process
 * can. */
int rpc_server_check(const struct rpc_server *server, uint64_t now_ns, struct error *error);

/* The next request, or NULL. The caller replies exactly once, with rpc_reply or rpc_reply_error. */
struct rpc_request *rpc_server_take(struct rpc_server *server);

/* Sends a reply. `fields` (an object, reference stolen, may be NULL) gets v, id and ok added. */
void rpc_reply(struct rpc_server *server, struct rpc_request *request, json_t *fields);
void rpc_reply_error(struct rpc_server *server, struct rpc_request *request,
                     const struct error *error);

void rpc_server_stats_get(const struct rpc_server *server, struct rpc_server_stats *stats);
void rpc_server_close(struct rpc_server *server);

/* A client of one server. Connects in the background and survives restarts of the server (redial
 * watchdog). Calls of several threads on one client are serialised: a thread that must not wait for
 * another's long poll needs a separate client. */
struct rpc_client *rpc_client_open(const char *path, struct error *error);
void rpc_client_close(struct rpc_client *client);

/* Calls op with the fields of `request` (an object, reference stolen; may be NULL) and waits for
 * the reply until timeout_ms have passed on the monotonic clock; repeats the call with the same id
 * when the connection broke. 0 with *reply (caller json_decrefs), or -1: the server's error (its
 * code and text), ERR_TIMEOUT, or ERR_GONE when there is no server: immediately when that is
 * certain (no run directory, the run's lock is free, or there never was a socket), else at the
 * deadline, because a server may be restarting. */
int rpc_call(struct rpc_client *client, const char *op, json_t *request, unsigned timeout_ms,
             json_t **reply, struct error *error);

/* `watch` is called about every 100 ms while a call waits without a connection, if not NULL. A
 * non-zero result ends the call with the error that it set: the server cannot be kept running. It
 * may make calls of other clients. */
typedef int rpc_watch(void *arg, struct error *error);
void rpc_client_set_watch(struct rpc_client *client, rpc_watch *watch, void *arg);

/* Cancellation flag, set by another thread or a signal handler: *stop != 0 makes calls return
 * ERR_CANCELLED within 50 ms. NULL: never. */
void rpc_client_set_stop(struct rpc_client *client, const volatile int *stop);

#endif
