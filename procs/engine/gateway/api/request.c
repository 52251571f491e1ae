/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/gateway/api/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/rpc/json.h"
#include "lib/base/bytes.h"
#include "lib/json/count.h"
#include "lib/json/text.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/text/utf8.h"

enum where { COMPLETION = 1 << API_COMPLETION, CHAT = 1 << API_CHAT, BOTH = COMPLETION | CHAT };

struct taker {
    struct api_request *out;
    const struct api_limits *limits;
    const char *name; /* of the current field */
    struct error *error;
    size_t values; /* of the body */
    bool special;  /* control tokens of the whole prompt are parsed */
    /* of a conversation; NULL: not given */
    const json_t *messages, *tools, *variables, *effort;
    bool no_tools, whole; /* whole: the answer is not split */
    bool continues;       /* the answer continues the last message */
    enum { UNSTATED, NO, YES } continue_message, generation_prompt;
};

static int wrong(const struct taker *t, const char *should)
{
    return error_set(t->error, ERR_BAD_INPUT, "'%s' must be %s", t->name, should);
}

static int unable(const struct taker *t, const char *what)
{
    return error_set(t->error, ERR_BAD_INPUT, "'%s': %s", t->name, what);
}

/* ---- ignored fields -------------------------------------------------------------------------- */

static int take_anything(struct taker *t, const json_t *value)
{
    (void)t;
    (void)value;
    return 0;
}

static int take_neutral_one(struct taker *t, const json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) == 1)
        return 0;
    return unable(t, "only 1 is supported: one sequence is computed at a time");
}

static int take_neutral_zero(struct taker *t, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) == 0)
        return 0;
    return unable(t, "only 0 is supported");
}

static int take_neutral_false(struct taker *t, const json_t *value)
{
    return json_is_false(value) ? 0 : unable(t, "only false is supported");
}

static int take_neutral_empty(struct taker *t, const json_t *value)
{
    if ((json_is_string(value) && json_string_length(value) == 0) ||
        (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return 0;
    return unable(t, "this is not supported");
}

static int take_response_format(struct taker *t, const json_t *value)
{
    return json_text_is(json_object_get(value, "type"), "text")
               ? 0
               : unable(t, "only {\"type\":\"text\"} is supported");
}

static int take_modalities(struct taker *t, const json_t *value)
{
    if (json_array_size(value) == 1 && json_text_is(json_array_get(value, 0), "text"))
        return 0;
    return unable(t, "only [\"text\"] is supported");
}

/* ---- sampling and shape ---------------------------------------------------------------------- */

static int take_sampling(struct taker *t, const json_t *value)
{
    char text[40];
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else
        return wrong(t, "a number");
    return sampling_set(&t->out->sampling, t->name, text, t->error);
}

static int take_bool(struct taker *t, const json_t *value, bool *out)
{
    if (!json_is_boolean(value))
        return wrong(t, "true or false");
    *out = json_is_true(value);
    return 0;
}

static int take_stream(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->stream);
}

static int take_ignore_eos(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->ignore_eos);
}

static int take_special(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->special);
}

static int take_cache_prompt(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->cache_prompt);
}

static int take_return_progress(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->return_progress);
}

static int take_stream_options(struct taker *t, const json_t *value)
{
    const json_t *usage = json_object_get(value, "include_usage");
    if (!json_is_object(value) || (usage && !json_is_boolean(usage)))
        return wrong(t, "an object with include_usage");
    t->out->include_usage = json_is_true(usage);
    return 0;
}

static int take_max_tokens(struct taker *t, const json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0)
        return wrong(t, "a whole number, 0 or more");
    t->out->max_tokens = n < ENGINE_TOKENS_MAX ? n : ENGINE_TOKENS_MAX;
    return 0;
}

#define NO_ALTERNATIVES                                                                            \
    "must be 0: the log-probability of the chosen token is supported, those of alternatives are "  \
    "not"

static int take_logprobs_count(struct taker *t, const json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) == 0) {
        t->out->logprobs = true;
        return 0;
    }
    return json_is_integer(value) ? unable(t, NO_ALTERNATIVES) : wrong(t, "a whole number");
}

static int take_logprobs_flag(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &t->out->logprobs);
}

static int add_stop(struct taker *t, const json_t *value)
{
    size_t n = json_string_length(value);
    if (!json_is_string(value) || n == 0 || n > STOP_TEXT_BYTES_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'stop' must be texts of 1 to %d bytes",
                         STOP_TEXT_BYTES_MAX);
    return stop_texts_add(&t->out->stops, json_string_value(value), n, t->error);
}

static int take_stop(struct taker *t, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return add_stop(t, value);
    if (n > STOP_TEXTS_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'stop' has %zu texts; the maximum is %d", n,
                         STOP_TEXTS_MAX);
    for (size_t i = 0; i < n; i++)
        if (add_stop(t, json_array_get(value, i)) != 0)
            return -1;
    return 0;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

static int copy_prompt(struct taker *t, const json_t *value)
{
    struct api_request *out = t->out;
    size_t n = json_string_length(value);
    if (n > t->limits->prompt_bytes)
        return error_set(t->error, ERR_BAD_INPUT, "the prompt has %zu bytes; the maximum is %zu", n,
                         t->limits->prompt_bytes);
    out->prompt = malloc(n + 1);
    if (!out->prompt)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    memcpy(out->prompt, json_string_value(value), n + 1);
    out->prompt_bytes = n;
    return 0;
}

static int copy_ids(struct taker *t, const json_t *value)
{
    struct api_request *out = t->out;
    size_t n = json_array_size(value);
    if (n > API_IDS_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "the prompt has %zu tokens; the maximum is %d", n,
                         API_IDS_MAX);
    out->ids = malloc(n * sizeof *out->ids);
    if (!out->ids)
        return error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return wrong(t, "a text, or an array of token ids");
        out->ids[i] = (uint32_t)json_integer_value(id);
    }
    out->ids_count = n;
    return 0;
}

/* A text, an array of one text, or token ids. */
static int take_prompt(struct taker *t, const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    if (json_is_string(value))
        return copy_prompt(t, value);
    if (json_array_size(value) == 1 && json_is_string(first))
        return copy_prompt(t, first);
    if (json_array_size(value) > 0 && json_is_integer(first))
        return copy_ids(t, value);
    if (json_array_size(value) > 1)
        return unable(t, "only one prompt per request is supported");
    return wrong(t, "a text, or an array of token ids");
}

/* The arguments of a call are JSON as a text, which is parsed for the template. */
static size_t values_of_call(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *text = json_object_get(function ? function : call, "arguments");
    return json_is_string(text)
               ? json_count_values(json_string_value(text), json_string_length(text))
               : 0;
}

/* -1: with the arguments of all calls, the body has too many values. */
static int count_arguments(struct taker *t, const json_t *messages)
{
    json_t *message, *call, *all = (json_t *)(uintptr_t)messages; /* jansson takes no const */
    size_t i, j, values = t->values;
    json_array_foreach(all, i, message) json_array_foreach(json_object_get(message, "tool_calls"),
                                                           j, call) values += values_of_call(call);
    return values <= API_VALUES_MAX
               ? 0
               : error_set(t->error, ERR_BAD_INPUT,
                           "the body has more than %d values, those in 'arguments' of tool calls "
                           "included",
                           API_VALUES_MAX);
}

static int take_messages(struct taker *t, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return wrong(t, "an array of messages, such as [{\"role\":\"user\",\"content\":\"Hi\"}]");
    if (n == 0)
        return error_set(t->error, ERR_BAD_INPUT, "'messages' is empty; it needs a message");
    if (n > CHAT_MESSAGES_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'messages' has %zu messages; the maximum is %d",
                         n, CHAT_MESSAGES_MAX);
    t->messages = value;
    return count_arguments(t, value);
}

static int take_tools(struct taker *t, const json_t *value)
{
    if (!t->limits->chat->program)
        return take_neutral_empty(t, value);
    t->tools = value;
    return json_is_array(value) ? 0 : wrong(t, "an array");
}

static int take_tool_choice(struct taker *t, const json_t *value)
{
    t->no_tools = json_text_is(value, "none");
    return t->no_tools || json_text_is(value, "auto")
               ? 0
               : unable(t, "only \"none\" and \"auto\" are supported");
}

static int take_reasoning_format(struct taker *t, const json_t *value)
{
    t->whole = json_text_is(value, "none");
    return t->whole || json_text_is(value, "auto")
               ? 0
               : unable(t, "only \"none\" and \"auto\" are supported");
}

static int take_continue_message(struct taker *t, const json_t *value)
{
    t->continue_message = json_is_true(value) ? YES : NO;
    return json_is_boolean(value) ? 0 : wrong(t, "true or false");
}

static int take_generation_prompt(struct taker *t, const json_t *value)
{
    t->generation_prompt = json_is_true(value) ? YES : NO;
    return json_is_boolean(value) ? 0 : wrong(t, "true or false");
}

/* A last message of the assistant is continued, as llama.cpp and Anthropic's API do, unless the
 * client asks for a new one, with the fields of vLLM. */
static int choose_continuation(struct taker *t)
{
    const json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
    bool can = json_text_is(json_object_get(last, "role"), "assistant") &&
               json_array_size(json_object_get(last, "tool_calls")) == 0;
    t->continues = t->continue_message == YES ||
                   (can && t->continue_message == UNSTATED && t->generation_prompt != YES);
    if (t->continues && !can)
        return error_set(t->error, ERR_BAD_INPUT,
                         "'continue_final_message': the last message is not one of the assistant, "
                         "or has calls of tools");
    if (t->continues && t->generation_prompt == YES)
        return error_set(t->error, ERR_BAD_INPUT,
                         "'continue_final_message' and 'add_generation_prompt' exclude each other");
    if (t->continues || t->generation_prompt != NO || t->limits->chat->program)
        return 0;
    t->name = "add_generation_prompt";
    return unable(t,
                  "the model has no chat template that could leave it out; only true is supported");
}

static int take_variables(struct taker *t, const json_t *value)
{
    if (!t->limits->chat->program)
        return take_neutral_empty(t, value);
    t->variables = value;
    return json_is_object(value) ? 0 : wrong(t, "an object");
}

/* OpenAI's field is a variable of the template, as in other servers. */
static int take_reasoning_effort(struct taker *t, const json_t *value)
{
    if (!t->limits->chat->program)
        return unable(t, "the model has no chat template that takes it");
    t->effort = value;
    return json_is_string(value) ? 0 : wrong(t, "a text");
}

/* What the client sets for the template; chat_template_kwargs goes first. NULL: nothing, or out of memory. */
static json_t *all_variables(const struct taker *t)
{
    json_t *all = t->variables || t->effort ? json_object() : NULL;
    if (all && t->effort)
        json_object_set(all, "reasoning_effort", (json_t *)(uintptr_t)t->effort);
    if (all && t->variables)
        json_object_update(all, (json_t *)(uintptr_t)t->variables);
    return all;
}

/* *thinks: whether the message that is continued is in its reasoning. */
static int last_thinks(const struct taker *t, const struct answer_form *form, bool *thinks)
{
    const json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    *thinks = false;
    if (!json_is_string(content) && !json_is_array(content))
        return 0;
    json_t *text = chat_text(content, t->error);
    if (!text)
        return -1;
    *thinks = answer_left_open(form, json_string_value(text), json_string_length(text));
    json_decref(text);
    return 0;
}

/* The answer as one text begins with the mark that the template wrote. */
static int keep_front(struct taker *t, size_t front)
{
    t->out->front = strdup(t->out->prompt + t->out->prompt_bytes - front);
    return t->out->front ? 0 : error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
}

/* Log-probabilities are of the whole text. Calls are split off if there are tools to be called. */
static int choose_parts(struct taker *t)
{
    const json_t *tools = t->no_tools ? NULL : t->tools;
    const struct answer_form *form = chat_format_answer(t->limits->chat, tools);
    size_t front = answer_front(form, t->out->prompt, t->out->prompt_bytes);
    if (t->whole && front > 0 && !form->channels && !t->continues)
        return keep_front(t, front);
    if (t->whole || t->out->logprobs)
        return 0;
    t->out->answer = *form;
    bool thinks = false;
    if (t->continues && last_thinks(t, form, &thinks) != 0)
        return -1;
    t->out->inside = front > 0 || thinks;
    if (json_array_size(tools) == 0) {
        t->out->answer.call = (struct answer_call){0};
        return 0;
    }
    if (t->out->answer.call.kind != ANSWER_PAIRS)
        return 0;
    t->out->answer.types = t->out->types = chat_types_new(tools, &t->out->types_bytes);
    return t->out->types ? 0 : error_set(t->error, ERR_NO_MEMORY, "out of memory (tools)");
}

static int render_messages(struct taker *t)
{
    struct chat_prompt prompt;
    json_t *variables = all_variables(t);
    struct chat_conversation c = {.messages = t->messages,
                                  .tools = t->no_tools ? NULL : t->tools,
                                  .variables = variables,
                                  .now = time(NULL),
                                  .beat = t->limits->beat,
                                  .beat_arg = t->limits->beat_arg,
                                  .continues = t->continues,
                                  .no_generation_prompt = t->generation_prompt == NO};
    int rc =
        t->limits->chat->program
            ? chat_format_render(t->limits->chat, &c, t->limits->prompt_bytes, &prompt, t->error)
            : api_render_family(t->limits, t->messages, t->continues, &prompt, t->error);
    json_decref(variables);
    if (rc != 0)
        return -1;
    t->out->prompt = prompt.text;
    t->out->prompt_bytes = prompt.bytes;
    t->out->special = prompt.written;
    return choose_parts(t);
}

/* ---- the request ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum where where;
    int (*take)(struct taker *t, const json_t *value);
} fields[] = {
#define FIELD(name, where, how) {name, where, take_##how},
#include "procs/engine/gateway/api/request.tbl.h"
};

static int take_field(struct taker *t, const char *name, const json_t *value)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if ((fields[i].where & (enum where)(1u << t->out->kind)) &&
            strcmp(fields[i].name, name) == 0)
            return json_is_null(value) ? 0 : fields[i].take(t, value);
    return error_set(t->error, ERR_BAD_INPUT, "unknown field '%.60s'", name);
}

static int take_body(struct taker *t, json_t *body, char param[API_PARAM_BYTES])
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value)
    {
        t->name = name;
        if (take_field(t, name, value) != 0) {
            snprintf(param, API_PARAM_BYTES, "%.*s", API_PARAM_BYTES - 1, name);
            /* A name cut inside a character would not be UTF-8. */
            if (strlen(name) >= API_PARAM_BYTES)
                param[0] = 0;
            return -1;
        }
    }
    if (t->messages) {
        t->name = "messages";
        if (choose_continuation(t) == 0 && render_messages(t) == 0)
            return 0;
        snprintf(param, API_PARAM_BYTES, "%s", t->name);
        return -1;
    }
    if (t->out->prompt || t->out->ids)
        return 0;
    const char *missing = t->out->kind == API_CHAT ? "messages" : "prompt";
    snprintf(param, API_PARAM_BYTES, "%s", missing);
    return error_set(t->error, ERR_BAD_INPUT, "'%s' is missing", missing);
}

int api_request_parse(enum api_kind kind, const char *text, size_t bytes,
                      const struct api_limits *limits, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error)
{
    json_t *body;
    *out = (struct api_request){.kind = kind,
                                .cache_prompt = true,
                                .max_tokens =
                                    kind == API_CHAT ? ENGINE_TOKENS_MAX : API_COMPLETION_DEFAULT};
    sampling_defaults(&out->sampling);
    param[0] = 0;
    size_t values = json_count_values(text, bytes);
    if (values > API_VALUES_MAX)
        return error_set(error, ERR_BAD_INPUT, "the body has more than %d values", API_VALUES_MAX);
    if (rpc_json_parse(text, bytes, &body, error) != 0)
        return -1;
    struct taker t = {.out = out, .limits = limits, .values = values, .error = error};
    int rc = take_body(&t, body, param);
    json_decref(body);
    if (rc == 0 && t.special && text_ranges_add(&out->special, 0, out->prompt_bytes) != 0)
        rc = error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    return rc;
}

void api_request_submitted(struct api_request *r)
{
    free(r->prompt);
    free(r->ids);
    text_ranges_free(&r->special);
    r->prompt = NULL;
    r->ids = NULL;
}

void api_request_free(struct api_request *r)
{
    api_request_submitted(r);
    chat_types_free(r->types);
    free(r->front);
    r->front = NULL;
    r->answer.types = r->types = NULL;
}

void api_model_name(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
        n -= 5;
    if (n > cap - 1)
        n = utf8_complete_prefix(name, cap - 1);
    memcpy(out, name, n);
    out[n] = 0;
}
