/* SPDX-License-Identifier: Apache-2.0 */
/* From Anthropic's messages, which consist of blocks, to those that templates take. */
#include <string.h>

#include "lib/json/text.h"
#include "lib/model/chat/format.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"

/* Claude Code's first block of the system prompt. It differs in each request, so that no prompt
 * would begin like the one before it. */
#define BILLING "x-anthropic-billing-header:"

/* A message that is being made. */
struct making {
    json_t *out; /* the messages */
    json_t *parts, *thoughts, *calls;
    struct error *error;
};

static int no_memory(const struct making *m)
{
    return error_set(m->error, ERR_NO_MEMORY, "out of memory (messages)");
}

/* Both take the reference. */
static int append(const struct making *m, json_t *array, json_t *value)
{
    return json_array_append_new(array, value) == 0 ? 0 : no_memory(m);
}

static int set(const struct making *m, json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0 ? 0 : no_memory(m);
}

static json_t *shared(const json_t *value)
{
    return json_incref((json_t *)(uintptr_t)value); /* jansson counts in what is const here */
}

static int unable(const struct making *m, const json_t *type)
{
    const char *name = json_string_value(type);
    return error_set(m->error, ERR_BAD_INPUT,
                     "'messages': a block of type '%.40s' is not supported here: the model reads "
                     "texts, calls of tools and their results",
                     name ? name : "(none)");
}

/* ---- the blocks of a user -------------------------------------------------------------------- */

/* The texts since the last message. */
static int end_user(struct making *m)
{
    if (json_array_size(m->parts) == 0)
        return 0;
    json_t *message = json_pack("{s:s, s:O}", "role", "user", "content", m->parts);
    json_decref(m->parts);
    m->parts = json_array();
    return append(m, m->out, message);
}

static int add_result(struct making *m, const json_t *block)
{
    const json_t *content = json_object_get(block, "content");
    const json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return error_set(m->error, ERR_BAD_INPUT, "'messages': a tool_result has no tool_use_id");
    json_t *text =
        content && !json_is_null(content) ? chat_text(content, m->error) : json_string("");
    if (!text || end_user(m) != 0) {
        json_decref(text);
        return -1;
    }
    return append(
        m, m->out,
        json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text));
}

static int add_user_block(struct making *m, const json_t *block)
{
    const json_t *type = json_object_get(block, "type");
    if (json_text_is(type, "text"))
        return append(m, m->parts, shared(block));
    return json_text_is(type, "tool_result") ? add_result(m, block) : unable(m, type);
}

/* ---- the blocks of the assistant ------------------------------------------------------------- */

static int add_call(struct making *m, const json_t *block)
{
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
                 *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return error_set(
            m->error, ERR_BAD_INPUT,
            "'messages': a tool_use needs the texts id and name, and the object input");
    return append(m, m->calls,
                  json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                            "name", name, "arguments", input));
}

static int add_assistant_block(struct making *m, const json_t *block)
{
    const json_t *type = json_object_get(block, "type");
    if (json_text_is(type, "text"))
        return append(m, m->parts, shared(block));
    if (json_text_is(type, "thinking"))
        return append(
            m, m->thoughts,
            json_pack("{s:s, s:O?}", "type", "text", "text", json_object_get(block, "thinking")));
    if (json_text_is(type, "redacted_thinking"))
        return 0; /* nobody here can read it */
    return json_text_is(type, "tool_use") ? add_call(m, block) : unable(m, type);
}

static int end_assistant(struct making *m)
{
    json_t *message = json_pack("{s:s, s:O}", "role", "assistant", "content", m->parts);
    int rc = message ? 0 : no_memory(m);
    if (rc == 0 && json_array_size(m->thoughts) > 0) {
        json_t *text = chat_text(m->thoughts, m->error);
        rc = text ? set(m, message, "reasoning_content", text) : -1;
    }
    if (rc == 0 && json_array_size(m->calls) > 0) {
        rc = set(m, message, "tool_calls", json_incref(m->calls));
        if (rc == 0 && json_array_size(m->parts) == 0)
            rc = set(m, message, "content", json_null());
    }
    if (rc == 0)
        return append(m, m->out, message);
    json_decref(message);
    return -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int add_blocks(struct making *m, const json_t *blocks, bool user)
{
    int rc = m->parts && m->thoughts && m->calls ? 0 : no_memory(m);
    for (size_t i = 0; i < json_array_size(blocks) && rc == 0; i++)
        rc = user ? add_user_block(m, json_array_get(blocks, i))
                  : add_assistant_block(m, json_array_get(blocks, i));
    if (rc != 0)
        return -1;
    return user ? end_user(m) : end_assistant(m);
}

static int add_message(struct making *m, const json_t *message)
{
    const json_t *role = json_object_get(message, "role"),
                 *content = json_object_get(message, "content");
    bool assistant = json_text_is(role, "assistant"), system = json_text_is(role, "system");
    if (!assistant && !system && !json_text_is(role, "user"))
        return error_set(m->error, ERR_BAD_INPUT, "'messages': a role must be user or assistant");
    if (json_is_string(content) || (system && json_is_array(content)))
        return append(m, m->out, json_pack("{s:O, s:O}", "role", role, "content", content));
    if (!json_is_array(content))
        return error_set(m->error, ERR_BAD_INPUT,
                         "'messages': a content must be a text, or an array of blocks");
    m->parts = json_array();
    m->thoughts = json_array();
    m->calls = json_array();
    int rc = add_blocks(m, content, !assistant);
    json_decref(m->parts);
    json_decref(m->thoughts);
    json_decref(m->calls);
    return rc;
}

static bool is_billing(const json_t *block)
{
    const char *text = json_string_value(json_object_get(block, "text"));
    return text && strncmp(text, BILLING, strlen(BILLING)) == 0;
}

static int add_system(struct making *m, const json_t *system)
{
    size_t count = json_array_size(system);
    if (json_is_string(system))
        return append(m, m->out, json_pack("{s:s, s:O}", "role", "system", "content", system));
    json_t *parts = json_array();
    for (size_t i = 0; i < count; i++)
        if (!is_billing(json_array_get(system, i)) &&
            append(m, parts, shared(json_array_get(system, i))) != 0) {
            json_decref(parts);
            return -1;
        }
    if (json_array_size(parts) > 0)
        return append(m, m->out, json_pack("{s:s, s:o}", "role", "system", "content", parts));
    json_decref(parts);
    return 0;
}

json_t *anthropic_conversation(const json_t *system, const json_t *messages, struct error *error)
{
    struct making m = {.out = json_array(), .error = error};
    int rc = system ? add_system(&m, system) : 0;
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++)
        rc = add_message(&m, json_array_get(messages, i));
    if (rc == 0)
        return m.out;
    json_decref(m.out);
    return NULL;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static json_t *tool_of(const struct taker *t, const json_t *tool)
{
    const json_t *name = json_object_get(tool, "name"),
                 *schema = json_object_get(tool, "input_schema"),
                 *description = json_object_get(tool, "description");
    if (!json_is_string(name) || !json_is_object(schema)) {
        error_set(t->error, ERR_BAD_INPUT,
                  "'tools': a tool needs a name, and an object input_schema");
        return NULL;
    }
    json_t *made = json_pack("{s:s, s:{s:O, s:O*, s:O}}", "type", "function", "function", "name",
                             name, "description", description, "parameters", schema);
    if (!made)
        error_set(t->error, ERR_NO_MEMORY, "out of memory (tools)");
    return made;
}

/* Such as web_search_20250305. */
static bool is_of_a_server(const json_t *tool)
{
    const json_t *type = json_object_get(tool, "type");
    return json_is_string(type) && !json_text_is(type, "custom");
}

json_t *anthropic_tools(const struct taker *t, const json_t *tools)
{
    json_t *out = json_array();
    if (!out)
        error_set(t->error, ERR_NO_MEMORY, "out of memory (tools)");
    for (size_t i = 0; out && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (is_of_a_server(tool)) {
            take_ignored(t, json_string_value(json_object_get(tool, "type")));
            continue;
        }
        json_t *made = tool_of(t, tool);
        if (made && json_array_append_new(out, made) == 0)
            continue;
        if (made)
            error_set(t->error, ERR_NO_MEMORY, "out of memory (tools)");
        json_decref(out);
        return NULL;
    }
    return out;
}
