/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: remote calls. The first byte chooses who reads the rest: compute (requests), or a
 * client (replies). Any bytes give a value within the limits, or an error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "ipc/rpc/json.h"
#include "lib/base/assert.h"

#define ID "0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_error(const struct error *error)
{
    sl_assert(error->code != ERR_NONE && error->text[0]);
}

static void check_submit(const struct engine_submit *s)
{
    sl_assert(!s->prompt != !s->prompt_ids);
    sl_assert(s->prompt_bytes <= ENGINE_PROMPT_BYTES_MAX);
    sl_assert(s->prompt_ids_count <= ENGINE_PROMPT_IDS_MAX);
    sl_assert(s->max_tokens >= 0 && s->max_tokens <= ENGINE_TOKENS_MAX);
    sl_assert(s->forced_count <= (size_t)s->max_tokens || !s->forced);
    sl_assert(s->logprobs >= 0 && s->logprobs <= ENGINE_LOGPROBS_MAX);
    sl_assert(s->request_key && strlen(s->request_key) <= ENGINE_KEY_BYTES_MAX);
    sl_assert(s->stops.count <= STOP_TEXTS_MAX);
    sl_assert(s->special.count <= ENGINE_RANGES_MAX);
    sl_assert(text_ranges_valid(&s->special, s->prompt_bytes));
    sl_assert(!isnan(s->sampling.temperature));
}

static void read_request(json_t *body)
{
    struct engine_submit submit;
    struct error error = {0};
    uint64_t id, from;
    unsigned wait_ms;
    if (engine_submit_parse(body, &submit, &error) == 0)
        check_submit(&submit);
    else
        is_error(&error);
    engine_submit_parsed_free(&submit);
    if (engine_next_parse(body, &id, &from, &wait_ms, &error) == 0) {
        struct engine_marks marks;
        engine_next_marks(body, &marks);
        for (uint32_t i = 0; i < marks.count; i++)
            sl_assert(strlen(marks.text[i]) >= 1 && strlen(marks.text[i]) <= ENGINE_MARK_BYTES_MAX);
        sl_assert(wait_ms <= ENGINE_WAIT_MS_MAX);
    } else {
        is_error(&error);
    }
    if (engine_cancel_parse(body, &id, &error) != 0)
        is_error(&error);
}

static void read_reply(json_t *reply)
{
    struct engine_next next;
    struct error error = {0};
    uint64_t id, tokens;
    if (engine_submit_read(reply, &id, &tokens, &error) != 0)
        is_error(&error);
    if (engine_next_read(json_incref(reply), 0, &next, &error) == 0) {
        sl_assert(next.count <= ENGINE_NEXT_IDS_MAX && next.logprobs_count <= ENGINE_NEXT_IDS_MAX);
        sl_assert(next.text && strlen(next.text) == next.text_bytes);
        sl_assert(!next.done || next.finish);
        engine_next_free(&next);
    } else {
        is_error(&error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    json_t *object = NULL;
    bool broken = false;
    if (size == 0)
        return 0;
    if (data[0] & 1) {
        if (rpc_request_parse(data + 1, size - 1, &object, &error) == 0)
            read_request(object);
        else
            is_error(&error);
    } else {
        if (rpc_reply_parse(data + 1, size - 1, ID, &object, &broken, &error) == 0)
            read_reply(object);
        else
            is_error(&error);
    }
    json_decref(object);
    return 0;
}
