/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of Anthropic's requests. The fields are a table (fields.tbl.h). What would change the
 * answer and cannot be served is rejected by name; fields that are not in the table are ignored. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"

#define MAX_TOKENS_DEFAULT 4096 /* the field is required there; as in llama.cpp's server */

enum where { MESSAGES = 1, COUNT = 2, BOTH = MESSAGES | COUNT };

/* What the fields of a body state together; NULL: not given. */
struct stated {
    const json_t *messages, *system, *tools, *thinking; /* borrowed */
    struct answer_shape shape;
};

static struct stated *stated(const struct taker *t)
{
    return t->own;
}

static int take_messages(struct taker *t, const json_t *value)
{
    stated(t)->messages = value;
    return take_conversation(t, value);
}

static int take_system(struct taker *t, const json_t *value)
{
    stated(t)->system = value;
    return json_is_string(value) || json_is_array(value)
               ? 0
               : take_wrong(t, "a text, or an array of blocks of text");
}

static int take_tools(struct taker *t, const json_t *value)
{
    if (!t->body->limits->chat->program)
        return take_empty(t, value);
    stated(t)->tools = value;
    stated(t)->shape.strict = take_strict(value);
    return json_is_array(value) ? 0 : take_wrong(t, "an array");
}

static int take_tool_choice(struct taker *t, const json_t *value)
{
    struct answer_shape *shape = &stated(t)->shape;
    const json_t *type = json_object_get(value, "type"), *name = json_object_get(value, "name");
    t->out->one_call = json_is_true(json_object_get(value, "disable_parallel_tool_use"));
    shape->no_calls = json_text_is(type, "none");
    shape->call_needed = json_text_is(type, "any") || json_text_is(type, "tool");
    shape->call_name = json_text_is(type, "tool") ? json_string_value(name) : NULL;
    if (json_text_is(type, "tool") && !shape->call_name)
        return take_unable(t, "the type \"tool\" needs a name");
    if (shape->no_calls || shape->call_needed || json_text_is(type, "auto"))
        return 0;
    return take_unable(t, "only the types \"auto\", \"any\", \"tool\" and \"none\" are supported");
}

static int take_thinking(struct taker *t, const json_t *value)
{
    static const char *const types[] = {"enabled", "adaptive", "disabled"};
    const json_t *type = json_object_get(value, "type");
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (json_text_is(type, types[i])) {
            stated(t)->thinking = take_for_template(t, t->name) ? type : NULL;
            return 0;
        }
    return take_wrong(t, "an object with the type \"enabled\", \"adaptive\" or \"disabled\"");
}

static int take_output_format(struct taker *t, const json_t *value)
{
    return take_format(t, value, &stated(t)->shape);
}

/* Its effort is ignored. */
static int take_output_config(struct taker *t, const json_t *value)
{
    const json_t *format = json_object_get(value, "format");
    if (!json_is_object(value))
        return take_wrong(t, "an object");
    if (!format || json_is_null(format))
        return 0;
    t->name = "output_config.format";
    return take_output_format(t, format);
}

static const struct field fields[] = {
#define FIELD(name, where, how) {name, where, take_##how},
#include "procs/engine/gateway/dialects/anthropic/fields.tbl.h"
};

/* The variables of templates that switch reasoning. NULL: nothing is stated, or out of memory. */
static json_t *variables(const struct taker *t)
{
    const json_t *type = stated(t)->thinking;
    if (!type)
        return NULL;
    int on = !json_text_is(type, "disabled");
    return json_pack("{s:b, s:b}", "enable_thinking", on, "thinking", on);
}

static int render(struct taker *t)
{
    const struct stated *s = stated(t);
    json_t *messages = anthropic_conversation(s->system, s->messages, t->error);
    json_t *tools = s->tools ? anthropic_tools(t, s->tools) : NULL, *all = variables(t);
    struct api_conversation c = {.messages = messages,
                                 .tools = s->shape.no_calls ? NULL : tools,
                                 .variables = all,
                                 .shape = s->shape,
                                 .continues = api_can_continue(messages)};
    int rc = messages && (tools || !s->tools) ? api_render(t->body, &c, t->out, t->error) : -1;
    json_decref(messages);
    json_decref(tools);
    json_decref(all);
    return rc;
}

static int parse(const struct api_body *body, enum where where, struct api_request *out,
                 char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.messages = NULL};
    struct taker t = {.out = out, .body = body, .where = where, .own = &s, .error = error};
    out->max_tokens = MAX_TOKENS_DEFAULT;
    if (take_fields(&t, body->json, fields, ARRAY_LEN(fields), param) != 0)
        return -1;
    if (!s.messages)
        return take_missing(&t, "messages", param);
    take_param(param, "messages");
    return render(&t);
}

int anthropic_parse(const struct api_body *body, struct api_request *out,
                    char param[API_PARAM_BYTES], struct error *error)
{
    return parse(body, MESSAGES, out, param, error);
}

int anthropic_parse_count(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error)
{
    return parse(body, COUNT, out, param, error);
}
