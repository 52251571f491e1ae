/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the raw socket of a client, and sends a call as a numbered message. */
#include "ipc/rpc/call.h"

#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "ipc/rpc/link.h"
#include "ipc/rpc/rpc.h"

bool rpc_first_id(uint64_t *id)
{
    return getrandom(id, sizeof *id, 0) == (ssize_t)sizeof *id;
}

int rpc_socket_open(nng_socket *socket, int queue, int *receive_fd)
{
    int rv = link_socket_first(socket, nng_req0_open_raw);
    if (rv == 0)
        rv = nng_socket_set_int(*socket, NNG_OPT_SENDBUF, queue);
    if (rv == 0)
        rv = nng_socket_set_int(*socket, NNG_OPT_RECVBUF, queue);
    if (rv == 0)
        rv = nng_socket_get_int(*socket, NNG_OPT_RECVFD, receive_fd);
    return rv;
}

int rpc_call_prepare(struct rpc_call_text *call, uint64_t id, const char *op, json_t *request,
                     struct error *error)
{
    *call = (struct rpc_call_text){0};
    snprintf(call->id, sizeof call->id, "%016llx", (unsigned long long)id);
    call->number = (uint32_t)id | 0x80000000u; /* the bit that ends a backtrace */
    if (!request)
        request = json_object();
    bool made = request && json_object_set_new(request, "v", json_integer(RPC_VERSION)) == 0 &&
                json_object_set_new(request, "id", json_string(call->id)) == 0 &&
                json_object_set_new(request, "op", json_string(op)) == 0;
    if (made)
        call->text = rpc_json_encode(request, &call->bytes);
    json_decref(request);
    if (call->text)
        return 0;
    if (call->bytes)
        return error_set(error, ERR_BAD_INPUT, "request too large: %zu bytes, maximum %u",
                         call->bytes, RPC_BYTES_MAX);
    return error_set(error, ERR_BAD_INPUT, "cannot encode the request '%s' as JSON", op);
}

bool rpc_call_send(nng_socket socket, const struct rpc_call_text *call)
{
    nng_msg *msg;
    if (nng_msg_alloc(&msg, call->bytes) != 0)
        return false;
    memcpy(nng_msg_body(msg), call->text, call->bytes);
    if (nng_msg_header_append_u32(msg, call->number) != 0 ||
        nng_sendmsg(socket, msg, NNG_FLAG_NONBLOCK) != 0) {
        nng_msg_free(msg);
        return false;
    }
    return true;
}
