/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the blocking (client.c) and the non-blocking client (async.c): a raw req0 socket, and a
 * call as a message. Private to ipc/. */
#ifndef SLUICE_IPC_RPC_CALL_H
#define SLUICE_IPC_RPC_CALL_H

#include <jansson.h>
#include <nng/nng.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/rpc/json.h"

#define RPC_HEADROOM 64

struct rpc_call_text {
    char id[RPC_ID_BYTES + 1];
    uint32_t number; /* in the protocol header, to recognise late replies */
    char *text;      /* malloc'ed */
    size_t bytes;
};

/* Random first id, unique among clients. */
bool rpc_first_id(uint64_t *id);

/* Opens a raw req0 socket, which only transports messages: the cooked one would repeat calls on the
 * wall clock, and cancelling one of its receives can crash it. Returns NNG's result. */
int rpc_socket_open(nng_socket *socket, int queue, int *receive_fd);

/* Encodes a call. Steals `request`, which may be NULL. -1 with ERR_BAD_INPUT. */
int rpc_call_prepare(struct rpc_call_text *call, uint64_t id, const char *op, json_t *request,
                     struct error *error);

/* Sends a call. False when the queue is full: retry soon. */
bool rpc_call_send(nng_socket socket, const struct rpc_call_text *call);

#endif
