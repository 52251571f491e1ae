/* SPDX-License-Identifier: Apache-2.0 */
/* From a conversation to a prompt, by the model's template or its family's form, and to the
 * parts that its answer is split into. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/json/count.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/request.h"

static size_t values_of_call(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function ? function : call, "arguments");
    return json_is_string(text)
               ? json_count_values(json_string_value(text), json_string_length(text))
               : 0;
}

/* With those in the `arguments` of all calls of tools, which are JSON as a text and are parsed for
 * the template. */
static int check_values(const struct api_body *body, const json_t *messages, struct error *error)
{
    json_t *message, *call, *all = (json_t *)(uintptr_t)messages; /* jansson takes no const */
    size_t i, j, values = body->values;
    json_array_foreach(all, i, message) json_array_foreach(json_object_get(message, "tool_calls"),
                                                           j, call) values += values_of_call(call);
    return values <= API_VALUES_MAX
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "the body has more than %d values, those in 'arguments' of tool calls "
                           "included",
                           API_VALUES_MAX);
}

/* The grammar and the answer repeat a name. */
static int check_names(const json_t *tools, struct error *error)
{
    json_t *tool, *all = (json_t *)(uintptr_t)tools;
    size_t i;
    json_array_foreach(all, i, tool)
    {
        const json_t *function = json_object_get(tool, "function"),
                     *name = json_object_get(function ? function : tool, "name");
        if (json_string_length(name) > API_TOOL_NAME_BYTES_MAX)
            return error_set(error, ERR_BAD_INPUT,
                             "'tools': the name '%.60s...' has %zu bytes; at most %d are possible",
                             json_string_value(name), json_string_length(name),
                             API_TOOL_NAME_BYTES_MAX);
    }
    return 0;
}

static int check_conversation(const struct api_body *body, const json_t *messages,
                              struct error *error)
{
    size_t n = json_array_size(messages);
    if (n == 0 || n > CHAT_MESSAGES_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "the conversation has %zu messages; it needs 1 to %d", n,
                         CHAT_MESSAGES_MAX);
    return check_values(body, messages, error);
}

bool api_can_continue(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return json_text_is(json_object_get(last, "role"), "assistant") &&
           json_array_size(json_object_get(last, "tool_calls")) == 0;
}

/* *thinks: whether the message that is continued is in its reasoning. */
static int last_thinks(const json_t *messages, const struct answer_form *form, bool *thinks,
                       struct error *error)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    *thinks = false;
    if (!json_is_string(content) && !json_is_array(content))
        return 0;
    json_t *text = chat_text(content, error);
    if (!text)
        return -1;
    *thinks = answer_left_open(form, json_string_value(text), json_string_length(text));
    json_decref(text);
    return 0;
}

/* The answer as one text begins with the mark that the template wrote. */
static int keep_front(struct api_request *out, size_t front, struct error *error)
{
    out->front = strdup(out->prompt + out->prompt_bytes - front);
    return out->front ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
}

/* Whether the answer begins with reasoning. */
static int begins_inside(const struct answer_form *form, const struct api_conversation *c,
                         const struct api_request *out, bool *inside, struct error *error)
{
    *inside = answer_front(form, out->prompt, out->prompt_bytes) > 0;
    bool thinks = false;
    if (c->continues && last_thinks(c->messages, form, &thinks, error) != 0)
        return -1;
    *inside |= thinks;
    return 0;
}

/* Calls are split off if there are tools to be called. */
static int choose_parts(const struct answer_form *form, const struct api_conversation *c,
                        bool inside, struct api_request *out, struct error *error)
{
    size_t front = answer_front(form, out->prompt, out->prompt_bytes);
    if (c->unsplit && front > 0 && !form->channels && !c->continues)
        return keep_front(out, front, error);
    if (c->unsplit)
        return 0;
    out->answer = *form;
    out->inside = inside;
    if (json_array_size(c->tools) == 0) {
        out->answer.call = (struct answer_call){0};
        return 0;
    }
    const struct answer_call *call = &out->answer.call;
    if (call->kind != ANSWER_PAIRS && call->kind != ANSWER_NESTED && !answer_is_unmarked(call))
        return 0;
    out->answer.types = out->types = chat_types_new(c->tools, &out->types_bytes);
    return out->types || out->types_bytes == 0
               ? 0
               : error_set(error, ERR_NO_MEMORY, "out of memory (tools)");
}

static int render_template(const struct api_limits *l, const struct api_conversation *c,
                           struct chat_prompt *prompt, struct error *error)
{
    struct chat_conversation all = {.messages = c->messages,
                                    .tools = c->tools,
                                    .variables = c->variables,
                                    .now = time(NULL),
                                    .beat = l->beat,
                                    .beat_arg = l->beat_arg,
                                    .continues = c->continues,
                                    .no_generation_prompt = c->no_generation_prompt};
    return chat_format_render(l->chat, &all, l->prompt_bytes, prompt, error);
}

/* A template that writes tools or arguments member by member makes many. */
static int check_ranges(const struct api_request *r, struct error *error)
{
    return r->special.count <= ENGINE_RANGES_MAX
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "the model's chat template writes %zu pieces of its own between the "
                           "texts of 'messages' and 'tools'; at most %u are possible: send fewer "
                           "tools, or a shorter conversation",
                           r->special.count, ENGINE_RANGES_MAX);
}

int api_render(const struct api_body *body, const struct api_conversation *c,
               struct api_request *out, struct error *error)
{
    struct chat_prompt prompt;
    const struct api_limits *l = body->limits;
    if (check_conversation(body, c->messages, error) != 0 || check_names(c->tools, error) != 0)
        return -1;
    int rc = l->chat->program ? render_template(l, c, &prompt, error)
                              : api_render_family(l, c->messages, c->continues, &prompt, error);
    if (rc != 0)
        return -1;
    out->prompt = prompt.text;
    out->prompt_bytes = prompt.bytes;
    out->special = prompt.written;
    if (check_ranges(out, error) != 0)
        return -1;
    out->side = api_side_of(c);
    const struct answer_form *form = chat_format_answer(l->chat, c->tools);
    bool inside;
    return begins_inside(form, c, out, &inside, error) == 0 &&
                   choose_parts(form, c, inside, out, error) == 0
               ? api_constrain(form, c, inside, l, out, error)
               : -1;
}
