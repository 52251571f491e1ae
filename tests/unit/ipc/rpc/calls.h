/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources of ipc_rpc_test: calls with an expected end, and calls in threads. */
#ifndef SLUICE_TESTS_UNIT_IPC_RPC_CALLS_H
#define SLUICE_TESTS_UNIT_IPC_RPC_CALLS_H

#include <pthread.h>

#include "tests/unit/ipc/support.h"

#define CALL_MS 8000

struct rpc_client *open_client(const char *path);

/* Duration of a successful call in milliseconds; its reply in *out, unless that is NULL. */
unsigned expect_reply(struct rpc_client *client, const char *op, json_t **out);
/* The same of a call that fails with this code. */
unsigned expect_error(struct rpc_client *client, const char *op, json_t *fields,
                      unsigned timeout_ms, enum error_code code);

/* A server in a process of its own, which listens. */
pid_t spawn_server(int *out, const char *mode, const char *path);

/* A call that waits in a thread. */
struct caller {
    pthread_t thread;
    struct rpc_client *client;
    const char *op;
    unsigned timeout_ms;
    int result;
    json_t *reply;
    struct error error;
    uint64_t ended_ns;
};

void call_start(struct caller *caller, struct rpc_client *client, const char *op,
                unsigned timeout_ms);
/* Waits for its end, which must be a reply. */
void call_end(struct caller *caller);

/* peers_test.c */
TCase *peers_case(void);

#endif
