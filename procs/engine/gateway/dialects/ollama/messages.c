/* SPDX-License-Identifier: Apache-2.0 */
/* From Ollama's messages to those that templates take: calls and results of tools get ids, by
 * which some templates join them. */
#include "lib/json/text.h"
#include "lib/model/chat/format.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"

struct making {
    unsigned calls, results; /* so far; the results come in the order of the calls */
    struct error *error;
};

static int no_memory(const struct making *m)
{
    return error_set(m->error, ERR_NO_MEMORY, "out of memory (messages)");
}

/* Takes the reference. */
static int set(const struct making *m, json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0 ? 0 : no_memory(m);
}

/* The client's, or one with the number of the call. A new reference. */
static json_t *id_of(const json_t *own, unsigned number)
{
    return json_is_string(own) ? json_incref((json_t *)(uintptr_t)own)
                               : json_sprintf("call_%u", number);
}

static int add_calls(struct making *m, json_t *message, const json_t *calls)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *f = json_object_get(call, "function");
        if (!json_is_string(json_object_get(f, "name"))) {
            json_decref(out);
            return error_set(m->error, ERR_BAD_INPUT,
                             "'messages': a call of a tool has no function.name");
        }
        json_t *id = id_of(json_object_get(call, "id"), m->calls++);
        if (json_array_append_new(out, json_pack("{s:o, s:s, s:{s:O, s:O*}}", "id", id, "type",
                                                 "function", "function", "name",
                                                 json_object_get(f, "name"), "arguments",
                                                 json_object_get(f, "arguments"))) != 0) {
            json_decref(out);
            return no_memory(m);
        }
    }
    return set(m, message, "tool_calls", out);
}

static int add_result(struct making *m, json_t *out, const json_t *message)
{
    const json_t *name = json_object_get(message, "tool_name");
    json_t *id = id_of(json_object_get(message, "tool_call_id"), m->results++);
    if (set(m, out, "tool_call_id", id) != 0)
        return -1;
    return json_is_string(name) ? set(m, out, "name", json_incref((json_t *)(uintptr_t)name)) : 0;
}

static int fill(struct making *m, json_t *out, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"),
                 *thinking = json_object_get(message, "thinking");
    if (json_array_size(json_object_get(message, "images")) > 0)
        return error_set(m->error, ERR_BAD_INPUT,
                         "'messages': 'images' are not supported: the model reads texts");
    if (json_string_length(thinking) > 0 &&
        set(m, out, "reasoning_content", json_incref((json_t *)(uintptr_t)thinking)) != 0)
        return -1;
    if (json_array_size(calls) > 0 && add_calls(m, out, calls) != 0)
        return -1;
    return json_text_is(json_object_get(message, "role"), "tool") ? add_result(m, out, message) : 0;
}

static json_t *message_of(struct making *m, const json_t *message)
{
    const json_t *role = json_object_get(message, "role"),
                 *content = json_object_get(message, "content");
    if (!json_is_string(role)) {
        error_set(m->error, ERR_BAD_INPUT, "'messages': a message has no role");
        return NULL;
    }
    json_t *out = content && !json_is_null(content)
                      ? json_pack("{s:O, s:O}", "role", role, "content", content)
                      : json_pack("{s:O, s:s}", "role", role, "content", "");
    if (!out)
        no_memory(m);
    else if (fill(m, out, message) == 0)
        return out;
    json_decref(out);
    return NULL;
}

json_t *ollama_conversation(const json_t *messages, struct error *error)
{
    struct making m = {.error = error};
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = message_of(&m, json_array_get(messages, i));
        if (message && json_array_append_new(all, message) == 0)
            continue;
        if (message)
            no_memory(&m);
        json_decref(all);
        return NULL;
    }
    return all;
}
