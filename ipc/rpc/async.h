/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking client for a process with an event loop: many calls of one server in flight at once.
 * The rules are those of rpc_call (ipc/rpc/rpc.h): a call is repeated with the same id when its
 * connection broke, until its deadline on the monotonic clock.
 *
 *   ticket = rpc_async_call(client, "next", request, 5000, on_next, stream, &error);
 *   poll(... rpc_async_poll(client, fds) ..., timeout);
 *   rpc_async_tick(client, now);        // on_next(stream, reply, NULL) or (stream, NULL, &error)
 *
 * One thread uses a client. A call ends exactly once: by its callback, or by rpc_async_forget. */
#ifndef SLUICE_IPC_RPC_ASYNC_H
#define SLUICE_IPC_RPC_ASYNC_H

#include <jansson.h>
#include <poll.h>
#include <stdint.h>

#include "lib/base/error.h"

#define RPC_ASYNC_FDS 2

struct rpc_async;

/* reply: borrowed, or NULL with the error of the server or of the call. May make and forget calls
 * of the same client. */
typedef void rpc_async_done(void *arg, json_t *reply, const struct error *error);

/* calls_max: maximum calls in flight. NULL with *error set. */
struct rpc_async *rpc_async_open(const char *path, unsigned calls_max, struct error *error);

/* Starts a call. Returns its ticket, never 0; 0 with *error: ERR_UNAVAILABLE (too many calls),
 * ERR_BAD_INPUT. `request` is stolen and may be NULL. */
uint64_t rpc_async_call(struct rpc_async *client, const char *op, json_t *request,
                        unsigned timeout_ms, rpc_async_done *done, void *arg, struct error *error);

/* Drops the callback of a call; the server still executes the request. 0 and tickets of ended calls
 * are ignored. */
void rpc_async_forget(struct rpc_async *client, uint64_t ticket);

/* Fills RPC_ASYNC_FDS descriptors to poll before rpc_async_tick. */
void rpc_async_poll(const struct rpc_async *client, struct pollfd *fds);

/* Sends, receives, repeats and times out calls; runs callbacks. To be called after every poll, and
 * every 50 ms or more often while calls are in flight. */
void rpc_async_tick(struct rpc_async *client, uint64_t now_ns);

/* Number of calls repeated because their connection broke. */
uint64_t rpc_async_repeated(const struct rpc_async *client);

/* Closes without callbacks. For tests: an exiting process does not call it (ipc/README.md). */
void rpc_async_close(struct rpc_async *client);

#endif
