/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the code that untrusted bytes reach first, which is the message validator, for every
 * receiver, and the parsers of control calls. Input: one byte chooses message or text, the rest is
 * it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/channel/messages.h"
#include "ipc/engine/engine_client.h"
#include "ipc/rpc/json.h"
#include "lib/base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A valid message must equal the output of msg_seal: same size, same name. */
static void try_message(const uint8_t *data, size_t size)
{
    _Alignas(8) unsigned char message[MSG_BYTES_MAX];
    for (int role = ROLE_SUPERVISOR; role <= ROLE_ANY; role++) {
        if (msg_invalid(data, size, (enum msg_role)role) != NULL)
            continue;
        struct msg_head head;
        memcpy(message, data, size);
        memcpy(&head, message, sizeof head);
        sl_assert(msg_bytes(message) == size);
        sl_assert(strcmp(msg_name(head.type), "?") != 0);
    }
}

/* JSON that is accepted can be written and parsed again. */
static void try_round_trip(const json_t *body)
{
    size_t bytes;
    json_t *again;
    char *text = rpc_json_encode(body, &bytes);
    if (!text)
        return; /* too long with escapes */
    sl_assert(rpc_request_parse(text, bytes, &again, NULL) == 0);
    json_decref(again);
    free(text);
}

static void try_text(const uint8_t *data, size_t size)
{
    struct error error;
    struct engine_submit submit;
    uint64_t id, from;
    unsigned wait_ms;
    json_t *body, *reply;
    bool broken;
    if (rpc_request_parse(data, size, &body, &error) == 0) {
        try_round_trip(body);
        engine_submit_parse(body, &submit, &error);
        engine_submit_parsed_free(&submit);
        engine_next_parse(body, &id, &from, &wait_ms, &error);
        engine_cancel_parse(body, &id, &error);
        json_decref(body);
    }
    if (rpc_reply_parse(data, size, "0123456789abcdef", &reply, &broken, &error) == 0)
        json_decref(reply);
    json_t *text = rpc_text_json((const char *)data, size);
    char *dump = json_dumps(text, JSON_ENCODE_ANY);
    sl_assert(dump != NULL);
    free(dump);
    json_decref(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 1)
        try_text(data + 1, size - 1);
    else
        try_message(data + 1, size - 1);
    return 0;
}
