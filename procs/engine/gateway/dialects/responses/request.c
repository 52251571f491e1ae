/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests for responses. The fields are a table (fields.tbl.h). What would change the
 * answer and cannot be served is rejected by name; fields that are not in the table are ignored. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/dialects/responses/responses.h"

/* What the fields of a body state together; NULL: not given, borrowed. */
struct stated {
    const json_t *input, *instructions, *tools, *effort, *previous, *choice;
    struct answer_shape shape;
};

static struct stated *stated(const struct taker *t)
{
    return t->own;
}

static int take_input(struct taker *t, const json_t *value)
{
    stated(t)->input = value;
    if (json_is_string(value) || json_array_size(value) > 0)
        return 0;
    return take_wrong(t, "a text, or an array of items");
}

static int take_previous(struct taker *t, const json_t *value)
{
    stated(t)->previous = value;
    return json_is_string(value) ? 0 : take_wrong(t, "the id of a response");
}

static int take_store(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->store);
}

static int take_instructions(struct taker *t, const json_t *value)
{
    stated(t)->instructions = value;
    return json_is_string(value) ? 0 : take_wrong(t, "a text");
}

static int take_tools(struct taker *t, const json_t *value)
{
    if (!t->body->limits->chat->program)
        return take_empty(t, value);
    stated(t)->tools = value;
    return json_is_array(value) ? 0 : take_wrong(t, "an array");
}

static int take_tool_choice(struct taker *t, const json_t *value)
{
    stated(t)->choice = value;
    return take_choice(t, value, &stated(t)->shape);
}

/* Of what may be included, only log-probabilities are there. */
static int take_include(struct taker *t, const json_t *value)
{
    if (!json_is_array(value))
        return take_wrong(t, "an array");
    for (size_t i = 0; i < json_array_size(value); i++)
        t->out->logprobs |= json_text_is(json_array_get(value, i), "message.output_text.logprobs");
    return 0;
}

static int take_reasoning(struct taker *t, const json_t *value)
{
    const json_t *effort = json_object_get(value, "effort");
    stated(t)->effort =
        json_is_string(effort) && take_for_template(t, "reasoning.effort") ? effort : NULL;
    return json_is_object(value) ? 0 : take_wrong(t, "an object");
}

/* Its verbosity is ignored. */
static int take_text(struct taker *t, const json_t *value)
{
    const json_t *format = json_object_get(value, "format");
    if (!json_is_object(value))
        return take_wrong(t, "an object");
    if (!format || json_is_null(format))
        return 0;
    t->name = "text.format";
    return take_format(t, format, &stated(t)->shape);
}

static const struct field fields[] = {
#define FIELD(name, how) {name, 1, take_##how},
#include "procs/engine/gateway/dialects/responses/fields.tbl.h"
};

/* The names that the template has of those that may be called. A new reference; NULL with an
 * error. */
static json_t *allowed_names(const struct taker *t, const struct tool_names *names)
{
    const json_t *entry, *flat;
    size_t i;
    json_t *out = json_array();
    json_array_foreach(stated(t)->shape.allowed, i, entry)
    {
        const json_t *type = json_object_get(entry, "type");
        if (!json_text_is(type, "function")) {
            take_ignored(t, json_is_string(type) ? json_string_value(type) : "tool_choice");
            continue;
        }
        if (tool_name_chosen(t, names, entry, &flat) != 0) {
            json_decref(out);
            return NULL;
        }
        json_array_append_new(out, flat ? json_incref((json_t *)(uintptr_t)flat) : json_null());
    }
    return out;
}

/* Those of them that may be called. Steals `all`. */
static json_t *allowed_tools(const struct taker *t, const struct tool_names *names, json_t *all)
{
    json_t *allowed = allowed_names(t, names);
    json_t *some = allowed ? take_allowed_tools(t, all, allowed) : NULL;
    json_decref(allowed);
    json_decref(all);
    return some;
}

/* The one that must be called has the name that the template has. */
static int name_call(const struct taker *t, const struct tool_names *names)
{
    const json_t *flat = NULL;
    struct answer_shape *shape = &stated(t)->shape;
    if (!shape->call_name)
        return 0;
    if (tool_name_chosen(t, names, stated(t)->choice, &flat) != 0)
        return -1;
    if (flat)
        shape->call_name = json_string_value(flat);
    return 0;
}

/* In the form of templates; the shape borrows from `names`. A new reference; NULL with an error. */
static json_t *make_tools(const struct taker *t, struct tool_names *names)
{
    struct stated *s = stated(t);
    json_t *tools = responses_tools(t, s->tools, names);
    if (tools && s->shape.allowed)
        tools = allowed_tools(t, names, tools);
    if (!tools || name_call(t, names) != 0) {
        json_decref(tools);
        return NULL;
    }
    s->shape.strict = tool_names_strict(names, tools);
    return tools;
}

/* values: of the body and the items that it continues. */
static int render(struct taker *t, const json_t *items, size_t values)
{
    const struct stated *s = stated(t);
    struct tool_names names = {.flat = NULL};
    json_t *tools = s->tools ? make_tools(t, &names) : NULL;
    json_t *messages =
        tools || !s->tools ? responses_conversation(t, &names, s->instructions, items) : NULL;
    json_t *all = s->effort ? json_pack("{s:O}", "reasoning_effort", s->effort) : NULL;
    struct api_conversation c = {.messages = messages,
                                 .tools = s->shape.no_calls ? NULL : tools,
                                 .variables = all,
                                 .shape = s->shape,
                                 .continues = api_can_continue(messages)};
    struct api_body body = *t->body;
    body.values = values;
    int rc = messages ? api_render(&body, &c, t->out, t->error) : -1;
    if (json_object_size(names.flat) > 0) {
        t->out->tool_names = json_incref(names.flat);
        t->out->tool_names_bytes = names.bytes;
    }
    tool_names_free(&names);
    json_decref(messages);
    json_decref(tools);
    json_decref(all);
    return rc;
}

static int take_items(struct taker *t, char param[API_PARAM_BYTES])
{
    const struct stated *s = stated(t);
    take_param(param, s->previous ? "previous_response_id" : "input");
    size_t values = t->body->values;
    json_t *items = responses_items(t, s->previous, s->input, &values);
    if (!items)
        return -1;
    take_param(param, "input");
    int rc = render(t, items, values);
    if (rc == 0 && t->out->store && t->body->limits->stored)
        rc = responses_keep(t, items);
    json_decref(items);
    return rc;
}

int responses_parse(const struct api_body *body, struct api_request *out,
                    char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.input = NULL};
    struct taker t = {.out = out, .body = body, .where = 1, .own = &s, .error = error};
    out->store = true;
    if (take_fields(&t, body->json, fields, ARRAY_LEN(fields), param) != 0)
        return -1;
    out->logprobs |= out->top_logprobs > 0;
    if (!s.input)
        return take_missing(&t, "input", param);
    if (s.previous)
        snprintf(out->previous, sizeof out->previous, "%s", json_string_value(s.previous));
    return take_items(&t, param);
}
