/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the fields of a request's body that mean the same in every dialect. */
#include "procs/engine/gateway/api/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/text.h"

int take_wrong(const struct taker *t, const char *should)
{
    return error_set(t->error, ERR_BAD_INPUT, "'%s' must be %s", t->name, should);
}

int take_unable(const struct taker *t, const char *what)
{
    return error_set(t->error, ERR_BAD_INPUT, "'%s': %s", t->name, what);
}

int take_anything(struct taker *t, const json_t *value)
{
    (void)t;
    (void)value;
    return 0;
}

void take_ignored(const struct taker *t, const char *name)
{
    const struct api_limits *l = t->body->limits;
    if (l->ignored)
        l->ignored(l->ignored_arg, name);
}

bool take_for_template(const struct taker *t, const char *name)
{
    bool has = t->body->limits->chat->program != NULL;
    if (!has)
        take_ignored(t, name);
    return has;
}

int take_empty(struct taker *t, const json_t *value)
{
    if ((json_is_string(value) && json_string_length(value) == 0) ||
        (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return 0;
    return take_unable(t, "this is not supported");
}

int take_zero(struct taker *t, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) == 0)
        return 0;
    return take_unable(t, "only 0 is supported");
}

int take_one(struct taker *t, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) == 1)
        return 0;
    return take_unable(t, "only 1 is supported");
}

int take_false(struct taker *t, const json_t *value)
{
    return json_is_false(value) ? 0 : take_unable(t, "only false is supported");
}

int take_conversation(struct taker *t, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return take_wrong(t,
                          "an array of messages, such as [{\"role\":\"user\",\"content\":\"Hi\"}]");
    if (n == 0)
        return error_set(t->error, ERR_BAD_INPUT, "'messages' is empty; it needs a message");
    if (n > CHAT_MESSAGES_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'messages' has %zu messages; the maximum is %d",
                         n, CHAT_MESSAGES_MAX);
    return 0;
}

int take_missing(const struct taker *t, const char *name, char param[API_PARAM_BYTES])
{
    take_param(param, name);
    return error_set(t->error, ERR_BAD_INPUT, "'%s' is missing", name);
}

int take_bool(struct taker *t, const json_t *value, bool *out)
{
    if (!json_is_boolean(value))
        return take_wrong(t, "true or false");
    *out = json_is_true(value);
    return 0;
}

int take_stream(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->stream);
}

int take_ignore_eos(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->ignore_eos);
}

int take_cache_prompt(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->cache_prompt);
}

int take_sampling(struct taker *t, const json_t *value)
{
    char text[40];
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else
        return take_wrong(t, "a number");
    return sampling_set(&t->out->sampling, t->name, text, t->error);
}

int take_max_tokens(struct taker *t, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0)
        return take_wrong(t, "a whole number, 0 or more");
    t->out->max_tokens = n < ENGINE_TOKENS_MAX ? n : ENGINE_TOKENS_MAX;
    return 0;
}

static int add_stop(struct taker *t, const json_t *value)
{
    size_t n = json_string_length(value);
    if (!json_is_string(value) || n == 0 || n > STOP_TEXT_BYTES_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' must be texts of 1 to %d bytes", t->name,
                         STOP_TEXT_BYTES_MAX);
    return stop_texts_add(&t->out->stops, json_string_value(value), n, t->error);
}

int take_stop(struct taker *t, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return add_stop(t, value);
    if (n > STOP_TEXTS_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' has %zu texts; the maximum is %d", t->name,
                         n, STOP_TEXTS_MAX);
    for (size_t i = 0; i < n; i++)
        if (add_stop(t, json_array_get(value, i)) != 0)
            return -1;
    return 0;
}

int take_prompt_text(struct taker *t, const json_t *value)
{
    struct api_request *out = t->out;
    size_t n = json_string_length(value), max = t->body->limits->prompt_bytes;
    if (!json_is_string(value))
        return take_wrong(t, "a text");
    if (n > max)
        return error_set(t->error, ERR_BAD_INPUT, "the prompt has %zu bytes; the maximum is %zu", n,
                         max);
    out->prompt = malloc(n + 1);
    if (!out->prompt)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    memcpy(out->prompt, json_string_value(value), n + 1);
    out->prompt_bytes = n;
    return 0;
}

int take_prompt_ids(struct taker *t, const json_t *value)
{
    return take_ids(t, value, API_IDS_MAX);
}

int take_ids(struct taker *t, const json_t *value, size_t max)
{
    struct api_request *out = t->out;
    size_t n = json_array_size(value);
    if (n > max)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' has %zu tokens; the maximum is %zu",
                         t->name, n, max);
    out->ids = malloc(n * sizeof *out->ids);
    if (!out->ids)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return take_wrong(t, "a text, or an array of token ids");
        out->ids[i] = (uint32_t)json_integer_value(id);
    }
    out->ids_count = n;
    return 0;
}

/* A part of a prompt; its tokens are written by us. */
static int put_part(struct api_request *out, FILE *to, const char *token, const char *text,
                    size_t bytes)
{
    size_t from = (size_t)ftell(to), n = strlen(token);
    fputs(token, to);
    fwrite(text, 1, bytes, to);
    return text_ranges_add(&out->special, from, from + n);
}

int take_gap(struct taker *t, const json_t *after)
{
    struct api_request *out = t->out;
    const struct model_chat *model = &t->body->limits->chat->model;
    size_t bytes = 0, max = t->body->limits->prompt_bytes;
    char *text = NULL;
    if (!model->gap[0][0])
        return take_unable(t, "the model has no tokens for a gap in a prompt");
    if (!out->prompt || out->special.count > 0)
        return take_unable(t, "it needs a prompt that is a text, without special");
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    int rc = put_part(out, to, model->gap[0], out->prompt, out->prompt_bytes);
    rc |= put_part(out, to, model->gap[1], json_string_value(after), json_string_length(after));
    rc |= put_part(out, to, model->gap[2], "", 0);
    rc |= fclose(to);
    if (rc != 0) {
        free(text);
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    }
    free(out->prompt);
    out->prompt = text;
    out->prompt_bytes = bytes;
    return bytes <= max ? 0
                        : error_set(t->error, ERR_BAD_INPUT,
                                    "the prompt has %zu bytes; the maximum is %zu", bytes, max);
}

/* ---- what the answer keeps to ---------------------------------------------------------------- */

int take_schema(struct taker *t, const json_t *value, struct answer_shape *out)
{
    out->schema = value;
    return json_is_object(value) ? 0 : take_wrong(t, "a JSON Schema, which is an object");
}

int take_format(struct taker *t, const json_t *value, struct answer_shape *out)
{
    const json_t *type = json_object_get(value, "type"),
                 *inner = json_object_get(value, "json_schema"), *schema;
    schema = json_object_get(inner ? inner : value, "schema");
    if (json_text_is(type, "text"))
        return 0;
    if (json_text_is(type, "json_schema"))
        return schema ? take_schema(t, schema, out)
                      : take_unable(t, "the type json_schema needs a schema");
    if (!json_text_is(type, "json_object"))
        return take_wrong(t, "an object of the type text, json_object or json_schema");
    out->object = true;
    return json_object_size(schema) > 0 ? take_schema(t, schema, out) : 0;
}

/* {"mode", "tools"}, in a conversation within a member of that name. */
static int take_some_tools(struct taker *t, const json_t *value, struct answer_shape *out)
{
    const json_t *inner = json_object_get(value, "allowed_tools");
    const json_t *mode = json_object_get(inner ? inner : value, "mode");
    out->allowed = json_object_get(inner ? inner : value, "tools");
    out->call_needed = json_text_is(mode, "required");
    return json_is_array(out->allowed) && (out->call_needed || json_text_is(mode, "auto"))
               ? 0
               : take_unable(t, "the type \"allowed_tools\" needs tools, an array, and the mode "
                                "\"auto\" or \"required\"");
}

int take_choice(struct taker *t, const json_t *value, struct answer_shape *out)
{
    if (json_text_is(json_object_get(value, "type"), "allowed_tools"))
        return take_some_tools(t, value, out);
    const json_t *function = json_object_get(value, "function");
    const json_t *name = json_object_get(function ? function : value, "name");
    out->no_calls = json_text_is(value, "none");
    out->call_needed = json_text_is(value, "required");
    if (out->no_calls || out->call_needed || json_text_is(value, "auto"))
        return 0;
    if (!json_text_is(json_object_get(value, "type"), "function") || !json_is_string(name))
        return take_unable(t, "only \"none\", \"auto\", \"required\", the name of a function and "
                              "\"allowed_tools\" are supported");
    out->call_needed = true;
    out->call_name = json_string_value(name);
    return 0;
}

static bool is_named(const json_t *tool, const char *name)
{
    const json_t *function = json_object_get(tool, "function");
    return json_text_is(json_object_get(function ? function : tool, "name"), name);
}

static json_t *tool_named(const json_t *tools, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(tools); i++)
        if (is_named(json_array_get(tools, i), name))
            return json_array_get(tools, i);
    return NULL;
}

static bool is_allowed(const json_t *tool, const json_t *allowed)
{
    for (size_t i = 0; i < json_array_size(allowed); i++)
        if (is_named(tool, json_string_value(json_array_get(allowed, i))))
            return true;
    return false;
}

json_t *take_allowed_tools(const struct taker *t, const json_t *tools, const json_t *allowed)
{
    json_t *out = json_array();
    bool fine = out != NULL;
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        const char *name = json_string_value(json_array_get(allowed, i));
        if (tool_named(tools, name))
            continue;
        error_set(t->error, ERR_BAD_INPUT, "'tool_choice': '%.60s' is not one of the tools",
                  name ? name : "(no name)");
        json_decref(out);
        return NULL;
    }
    for (size_t i = 0; fine && i < json_array_size(tools); i++)
        if (is_allowed(json_array_get(tools, i), allowed))
            fine = json_array_append(out, json_array_get(tools, i)) == 0;
    if (fine)
        return out;
    error_set(t->error, ERR_NO_MEMORY, "out of memory (tools)");
    json_decref(out);
    return NULL;
}

bool take_strict(const json_t *tools)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        if (json_is_true(json_object_get(tool, "strict")))
            return true;
    }
    return false;
}

int take_logprobs(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->logprobs);
}

int take_top_logprobs(struct taker *t, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > ENGINE_TOP_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' must be a whole number from 0 to %d",
                         t->name, ENGINE_TOP_MAX);
    t->out->top_logprobs = (unsigned)n;
    return 0;
}

int take_parallel_calls(struct taker *t, const json_t *value)
{
    bool many = true;
    if (take_bool(t, value, &many) != 0)
        return -1;
    t->out->one_call = !many;
    return 0;
}

int take_grammar(struct taker *t, const json_t *value)
{
    if (!json_is_string(value))
        return take_wrong(t, "a text, a grammar in GBNF");
    if (json_string_length(value) == 0)
        return 0;
    return api_grammar(t->out, GRAMMAR_GBNF, json_string_value(value), json_string_length(value),
                       t->error);
}

static bool read_bias(const char *id, const json_t *value, struct sampler_bias *out)
{
    char *end;
    long n = strtol(id, &end, 10);
    double bias = json_number_value(value);
    *out = (struct sampler_bias){(uint32_t)n, (float)bias};
    return id[0] >= '0' && id[0] <= '9' && !*end && n <= INT32_MAX && json_is_number(value) &&
           bias >= -ENGINE_BIAS_MAX && bias <= ENGINE_BIAS_MAX;
}

int take_logit_bias(struct taker *t, const json_t *value)
{
    json_t *all = (json_t *)(uintptr_t)value, *bias; /* jansson takes no const */
    const char *id;
    size_t n = json_object_size(value);
    if (!json_is_object(value) || n > ENGINE_BIASES_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' must be an object of at most %d biases",
                         t->name, ENGINE_BIASES_MAX);
    t->out->bias = calloc(n + 1, sizeof *t->out->bias);
    if (!t->out->bias)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (logit_bias)");
    json_object_foreach(all, id, bias)
    {
        if (!read_bias(id, bias, &t->out->bias[t->out->bias_count++]))
            return error_set(t->error, ERR_BAD_INPUT,
                             "'%s': '%.20s' must be the id of a token, and its value a number from "
                             "%g to %g",
                             t->name, id, -ENGINE_BIAS_MAX, ENGINE_BIAS_MAX);
    }
    return 0;
}

/* ---- all fields ------------------------------------------------------------------------------ */

static take_fn *taker_of(const struct taker *t, const struct field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((fields[i].where & t->where) && strcmp(fields[i].name, t->name) == 0)
            return fields[i].take;
    return NULL;
}

/* A name cut inside a character would not be UTF-8. */
void take_param(char param[API_PARAM_BYTES], const char *name)
{
    snprintf(param, API_PARAM_BYTES, "%s", strlen(name) < API_PARAM_BYTES ? name : "");
}

int take_fields(struct taker *t, const json_t *object, const struct field *fields, size_t count,
                char param[API_PARAM_BYTES])
{
    json_t *all = (json_t *)(uintptr_t)object, *value; /* jansson takes no const */
    const char *name;
    json_object_foreach(all, name, value)
    {
        t->name = name;
        take_fn *take = taker_of(t, fields, count);
        if (!take)
            take_ignored(t, name);
        if (!take || json_is_null(value) || take(t, value) == 0)
            continue;
        take_param(param, name);
        return -1;
    }
    return 0;
}
