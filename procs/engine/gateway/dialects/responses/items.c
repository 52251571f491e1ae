/* SPDX-License-Identifier: Apache-2.0 */
/* From items to messages that templates take: reasoning, a text and calls of tools that follow one
 * another are one message of the assistant. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "lib/model/chat/format.h"
#include "procs/engine/gateway/dialects/responses/responses.h"

struct making {
    const struct taker *t;
    const struct tool_names *names;
    json_t *out; /* the messages */
    json_t *content, *thoughts,
        *calls; /* of the assistant's message that is not ended; NULL: none */
};

static int no_memory(const struct making *m)
{
    return error_set(m->t->error, ERR_NO_MEMORY, "out of memory (items)");
}

static int wrong(const struct making *m, const char *what)
{
    return error_set(m->t->error, ERR_BAD_INPUT, "'input': %s", what);
}

/* Takes the reference. */
static int append(const struct making *m, json_t *array, json_t *value)
{
    return json_array_append_new(array, value) == 0 ? 0 : no_memory(m);
}

/* The text of a content: parts have types of their own here. NULL with an error. */
static json_t *text_of(const struct making *m, const json_t *content)
{
    static const char *const types[] = {"input_text",     "output_text",  "text",
                                        "reasoning_text", "summary_text", "refusal"};
    if (json_is_string(content))
        return json_incref((json_t *)(uintptr_t)content);
    json_t *parts = json_array();
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *type = json_object_get(part, "type");
        const char *member = json_text_is(type, "refusal") ? "refusal" : "text";
        bool known = false;
        for (size_t k = 0; k < ARRAY_LEN(types); k++)
            known |= json_text_is(type, types[k]);
        if (!known || json_array_append_new(parts, json_pack("{s:s, s:O?}", "type", "text", "text",
                                                             json_object_get(part, member))) != 0) {
            const char *name = json_string_value(type);
            json_decref(parts);
            error_set(m->t->error, known ? ERR_NO_MEMORY : ERR_BAD_INPUT,
                      "'input': a part of type '%.40s' is not supported: the model reads texts",
                      name ? name : "(none)");
            return NULL;
        }
    }
    json_t *text = content && json_is_array(content) ? chat_text(parts, m->t->error) : NULL;
    json_decref(parts);
    if (!text && !json_is_array(content))
        wrong(m, "a content must be a text, or an array of parts");
    return text;
}

/* ---- the assistant's message ----------------------------------------------------------------- */

static void drop(struct making *m)
{
    json_decref(m->content);
    json_decref(m->thoughts);
    json_decref(m->calls);
    m->content = m->thoughts = m->calls = NULL;
}

/* Reasoning alone, of an answer that was cut off, is no message. */
static int end_assistant(struct making *m)
{
    int rc = 0;
    if (m->content || m->calls) {
        json_t *content = m->content ? json_incref(m->content) : m->calls ? json_null() : NULL;
        rc = append(m, m->out,
                    json_pack("{s:s, s:o, s:O*, s:O*}", "role", "assistant", "content", content,
                              "reasoning_content", m->thoughts, "tool_calls", m->calls));
    }
    drop(m);
    return rc;
}

static int add_reasoning(struct making *m, const json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    if (!json_is_array(content))
        return 0; /* encrypted: nobody here can read it */
    if (end_assistant(m) != 0)
        return -1;
    m->thoughts = text_of(m, content);
    return m->thoughts ? 0 : -1;
}

static int add_call(struct making *m, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
                 *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name))
        return wrong(m, "a function_call needs the texts call_id and name");
    name = tool_name_of(m->names, json_object_get(item, "namespace"), name);
    if (!m->calls && !(m->calls = json_array()))
        return no_memory(m);
    return append(m, m->calls,
                  json_pack("{s:O, s:s, s:{s:O, s:O*}}", "id", id, "type", "function", "function",
                            "name", name, "arguments", arguments));
}

static int add_result(struct making *m, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id))
        return wrong(m, "a function_call_output has no call_id");
    json_t *text = text_of(m, json_object_get(item, "output"));
    if (!text)
        return -1;
    if (end_assistant(m) == 0)
        return append(
            m, m->out,
            json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text));
    json_decref(text);
    return -1;
}

static int add_message(struct making *m, const json_t *item)
{
    const json_t *role = json_object_get(item, "role");
    bool assistant = json_text_is(role, "assistant");
    if (!json_is_string(role))
        return wrong(m, "a message has no role");
    json_t *text = text_of(m, json_object_get(item, "content"));
    if (!text)
        return -1;
    bool follows = assistant && !m->content && !m->calls; /* its reasoning */
    if (!follows && end_assistant(m) != 0) {
        json_decref(text);
        return -1;
    }
    if (!assistant)
        return append(m, m->out, json_pack("{s:O, s:o}", "role", role, "content", text));
    m->content = text;
    return 0;
}

/* ---- items ----------------------------------------------------------------------------------- */

static int add_item(struct making *m, const json_t *item)
{
    static const struct {
        const char *type;
        int (*add)(struct making *m, const json_t *item);
    } kinds[] = {{"message", add_message},
                 {"reasoning", add_reasoning},
                 {"function_call", add_call},
                 {"function_call_output", add_result}};
    const json_t *type = json_object_get(item, "type");
    if (!json_is_object(item))
        return wrong(m, "an item must be an object");
    if (!type)
        return add_message(m, item);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (json_text_is(type, kinds[i].type))
            return kinds[i].add(m, item);
    take_ignored(m->t, json_is_string(type) ? json_string_value(type) : "type");
    return 0;
}

json_t *responses_conversation(const struct taker *t, const struct tool_names *names,
                               const json_t *instructions, const json_t *input)
{
    struct making m = {.t = t, .names = names, .out = json_array()};
    int rc =
        json_string_length(instructions) > 0
            ? append(&m, m.out, json_pack("{s:s, s:O}", "role", "system", "content", instructions))
            : 0;
    if (rc == 0 && json_is_string(input))
        rc = append(&m, m.out, json_pack("{s:s, s:O}", "role", "user", "content", input));
    for (size_t i = 0; i < json_array_size(input) && rc == 0; i++)
        rc = add_item(&m, json_array_get(input, i));
    if (rc == 0)
        rc = end_assistant(&m);
    drop(&m);
    if (rc == 0 && json_array_size(m.out) == 0)
        rc = wrong(&m, "there is no message, and no result of a call");
    if (rc == 0)
        return m.out;
    json_decref(m.out);
    return NULL;
}
