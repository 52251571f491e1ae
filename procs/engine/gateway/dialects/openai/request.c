/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of OpenAI's completion requests. The fields are a table (fields.tbl.h). Fields that
 * would change the response but are not supported are rejected by name; unknown ones are
 * ignored. */
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/fields.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

#define MAX_TOKENS_DEFAULT 16 /* of /v1/completions */

enum where { COMPLETION = 1, CHAT = 2, BOTH = COMPLETION | CHAT, TOKENIZE = 4, DETOKENIZE = 8 };

/* What the fields of a body state together. */
struct stated {
    bool special; /* control tokens of the whole prompt are parsed */
    bool echo;    /* the answer begins with the prompt */
    const json_t *suffix;
    /* of a conversation; NULL: not given */
    const json_t *messages, *tools, *variables, *effort;
    struct answer_shape shape;
    bool unsplit;
    bool limited; /* by max_completion_tokens, which goes before max_tokens */
    enum { UNSTATED, NO, YES } continue_message, generation_prompt;
};

static struct stated *stated(const struct taker *t)
{
    return t->own;
}

/* ---- ignored fields -------------------------------------------------------------------------- */

static int take_modalities(struct taker *t, const json_t *value)
{
    if (json_array_size(value) == 1 && json_text_is(json_array_get(value, 0), "text"))
        return 0;
    return take_unable(t, "only [\"text\"] is supported");
}

/* ---- the shape of the answer ----------------------------------------------------------------- */

static int take_special(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &stated(t)->special);
}

/* An empty one is none. */
static int take_suffix(struct taker *t, const json_t *value)
{
    stated(t)->suffix = json_string_length(value) > 0 ? value : NULL;
    return json_is_string(value) ? 0 : take_wrong(t, "a text");
}

static int take_echo(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &stated(t)->echo);
}

static int take_max_completion_tokens(struct taker *t, const json_t *value)
{
    stated(t)->limited = true;
    return take_max_tokens(t, value);
}

static int take_old_max_tokens(struct taker *t, const json_t *value)
{
    int64_t other = t->out->max_tokens;
    if (take_max_tokens(t, value) != 0)
        return -1;
    if (stated(t)->limited)
        t->out->max_tokens = other;
    return 0;
}

static int take_add_special(struct taker *t, const json_t *value)
{
    bool wanted = false;
    if (take_bool(t, value, &wanted) != 0)
        return -1;
    t->out->wants |= wanted ? OPENAI_BOS : 0;
    return 0;
}

static int take_return_progress(struct taker *t, const json_t *value)
{
    bool wanted = false;
    if (take_bool(t, value, &wanted) != 0)
        return -1;
    t->out->wants |= wanted ? OPENAI_PROGRESS : 0;
    return 0;
}

static int take_stream_options(struct taker *t, const json_t *value)
{
    const json_t *usage = json_object_get(value, "include_usage");
    if (!json_is_object(value) || (usage && !json_is_boolean(usage)))
        return take_wrong(t, "an object with include_usage");
    t->out->wants |= json_is_true(usage) ? OPENAI_USAGE : 0;
    return 0;
}

static int take_count(struct taker *t, const json_t *value, unsigned *out)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 1 || n > API_ANSWERS_MAX)
        return error_set(t->error, ERR_BAD_INPUT, "'%s' must be a whole number from 1 to %d",
                         t->name, API_ANSWERS_MAX);
    *out = (unsigned)n;
    return 0;
}

static int take_answers(struct taker *t, const json_t *value)
{
    return take_count(t, value, &t->out->answers);
}

static int take_tries(struct taker *t, const json_t *value)
{
    return take_count(t, value, &t->out->tries);
}

static int check_tries(const struct api_request *out, char param[API_PARAM_BYTES],
                       struct error *error)
{
    if (out->tries == 0)
        return 0;
    take_param(param, "best_of");
    if (out->tries < out->answers)
        return error_set(error, ERR_BAD_INPUT, "'best_of' is %u; it must be at least n, %u",
                         out->tries, out->answers);
    if (out->tries > out->answers && out->stream)
        return error_set(error, ERR_BAD_INPUT,
                         "'best_of' must be n where stream is true: which answers are the best is "
                         "known at the end only");
    return 0;
}

/* Of completions: the number of alternatives. */
static int take_logprobs_count(struct taker *t, const json_t *value)
{
    t->out->logprobs = true;
    return take_top_logprobs(t, value);
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* A text, token ids, or an array of one of those. */
static int take_prompt(struct taker *t, const json_t *value)
{
    const json_t *first = json_array_get(value, 0);
    if (json_array_size(value) == 1 && (json_is_string(first) || json_is_array(first)))
        value = first;
    first = json_array_get(value, 0);
    if (json_is_string(value))
        return take_prompt_text(t, value);
    if (json_array_size(value) > 0 && json_is_integer(first))
        return take_prompt_ids(t, value);
    if (json_array_size(value) > 1)
        return take_unable(t, "only one prompt per request is supported");
    return take_wrong(t, "a text, or an array of token ids");
}

/* As many as /tokenize returns; none are an empty text. */
static int take_tokens(struct taker *t, const json_t *value)
{
    if (!json_is_array(value))
        return take_wrong(t, "an array of token ids");
    t->out->nothing = json_array_size(value) == 0;
    return t->out->nothing ? 0 : take_ids(t, value, ENGINE_PROMPT_IDS_MAX);
}

static int take_messages(struct taker *t, const json_t *value)
{
    stated(t)->messages = value;
    return take_conversation(t, value);
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
    return take_choice(t, value, &stated(t)->shape);
}

static int take_response_format(struct taker *t, const json_t *value)
{
    return take_format(t, value, &stated(t)->shape);
}

static int take_json_schema(struct taker *t, const json_t *value)
{
    return take_schema(t, value, &stated(t)->shape);
}

static int take_reasoning_format(struct taker *t, const json_t *value)
{
    stated(t)->unsplit = json_text_is(value, "none");
    return stated(t)->unsplit || json_text_is(value, "auto") || json_text_is(value, "deepseek")
               ? 0
               : take_unable(t, "only \"none\", \"auto\" and \"deepseek\" are supported");
}

static int take_continue_message(struct taker *t, const json_t *value)
{
    stated(t)->continue_message = json_is_true(value) ? YES : NO;
    return json_is_boolean(value) ? 0 : take_wrong(t, "true or false");
}

static int take_generation_prompt(struct taker *t, const json_t *value)
{
    stated(t)->generation_prompt = json_is_true(value) ? YES : NO;
    return json_is_boolean(value) ? 0 : take_wrong(t, "true or false");
}

/* A last message of the assistant is continued, as llama.cpp and Anthropic's API do, unless the
 * client asks for a new one, with the fields of vLLM. */
static int choose_continuation(struct taker *t, struct api_conversation *c)
{
    const struct stated *s = stated(t);
    bool can = api_can_continue(s->messages);
    c->continues = s->continue_message == YES ||
                   (can && s->continue_message == UNSTATED && s->generation_prompt != YES);
    c->no_generation_prompt = s->generation_prompt == NO;
    if (c->continues && !can)
        return error_set(t->error, ERR_BAD_INPUT,
                         "'continue_final_message': the last message is not one of the assistant, "
                         "or has calls of tools");
    if (c->continues && s->generation_prompt == YES)
        return error_set(t->error, ERR_BAD_INPUT,
                         "'continue_final_message' and 'add_generation_prompt' exclude each other");
    if (c->continues || !c->no_generation_prompt || t->body->limits->chat->program)
        return 0;
    t->name = "add_generation_prompt";
    return take_unable(
        t, "the model has no chat template that could leave it out; only true is supported");
}

static int take_variables(struct taker *t, const json_t *value)
{
    if (!t->body->limits->chat->program)
        return take_empty(t, value);
    stated(t)->variables = value;
    return json_is_object(value) ? 0 : take_wrong(t, "an object");
}

/* OpenAI's field is a variable of the template, as in other servers. */
static int take_reasoning_effort(struct taker *t, const json_t *value)
{
    if (!json_is_string(value))
        return take_wrong(t, "a text");
    if (take_for_template(t, t->name))
        stated(t)->effort = value;
    return 0;
}

/* What the client sets for the template; chat_template_kwargs goes first. NULL: nothing, or out of
 * memory. */
static json_t *all_variables(const struct stated *s)
{
    json_t *all = s->variables || s->effort ? json_object() : NULL;
    if (all && s->effort)
        json_object_set(all, "reasoning_effort", (json_t *)(uintptr_t)s->effort);
    if (all && s->variables)
        json_object_update(all, (json_t *)(uintptr_t)s->variables);
    return all;
}

/* ---- the request ----------------------------------------------------------------------------- */

static const struct field fields[] = {
#define FIELD(name, where, how) {name, where, take_##how},
#include "procs/engine/gateway/dialects/openai/fields.tbl.h"
};

/* With log-probabilities, the engine returns the prompt's tokens as well. Without, the text of ids
 * is not known here. */
static int echo_prompt(const struct stated *s, struct api_request *out, char param[API_PARAM_BYTES],
                       struct error *error)
{
    take_param(param, "echo");
    out->scored = out->logprobs;
    if (out->scored && s->suffix)
        return error_set(error, ERR_BAD_INPUT,
                         "'echo' with logprobs does not go with a suffix: the prompt then has "
                         "tokens that are not the client's");
    if (out->scored)
        return 0;
    if (!out->prompt)
        return error_set(error, ERR_BAD_INPUT,
                         "'echo' of token ids needs logprobs; else the prompt must be a text");
    out->front = strndup(out->prompt, out->prompt_bytes);
    return out->front ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
}

/* A prompt that is no conversation; `name` is its field. */
static int parse_prompt(const struct api_body *body, enum where where, const char *name,
                        struct api_request *out, char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.special = false};
    struct taker t = {.out = out, .body = body, .where = where, .own = &s, .error = error};
    if (take_fields(&t, body->json, fields, ARRAY_LEN(fields), param) != 0)
        return -1;
    if (!out->prompt && !out->ids && !out->nothing)
        return take_missing(&t, name, param);
    if (api_constrain_text(&s.shape, out, error) != 0)
        return -1;
    if (s.special && text_ranges_add(&out->special, 0, out->prompt_bytes) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    if (s.echo && echo_prompt(&s, out, param, error) != 0)
        return -1;
    t.name = "suffix";
    take_param(param, t.name);
    return s.suffix ? take_gap(&t, s.suffix) : 0;
}

int openai_completion_parse(const struct api_body *body, struct api_request *out,
                            char param[API_PARAM_BYTES], struct error *error)
{
    out->max_tokens = MAX_TOKENS_DEFAULT;
    int rc = parse_prompt(body, COMPLETION, "prompt", out, param, error);
    return rc == 0 ? check_tries(out, param, error) : rc;
}

int openai_tokenize_parse(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error)
{
    return parse_prompt(body, TOKENIZE, "content", out, param, error);
}

int openai_detokenize_parse(const struct api_body *body, struct api_request *out,
                            char param[API_PARAM_BYTES], struct error *error)
{
    return parse_prompt(body, DETOKENIZE, "tokens", out, param, error);
}

/* Those that may be called; the prompt has no others. A new reference; NULL with an error. */
static json_t *allowed_tools(const struct taker *t, const struct stated *s)
{
    const json_t *entry;
    size_t i;
    json_t *names = json_array();
    json_array_foreach(s->shape.allowed, i, entry)
    {
        const json_t *function = json_object_get(entry, "function");
        json_t *name = json_object_get(function ? function : entry, "name");
        json_array_append_new(names, name ? json_incref(name) : json_null());
    }
    json_t *tools = take_allowed_tools(t, s->tools, names);
    json_decref(names);
    return tools;
}

static int render_with(struct taker *t, struct api_conversation *c, const json_t *tools)
{
    const struct stated *s = stated(t);
    c->messages = s->messages;
    c->tools = s->shape.no_calls ? NULL : tools;
    c->shape = s->shape;
    c->unsplit = s->unsplit;
    if (choose_continuation(t, c) != 0)
        return -1;
    json_t *variables = all_variables(s);
    c->variables = variables;
    int rc = api_render(t->body, c, t->out, t->error);
    json_decref(variables);
    return rc;
}

static int render(struct taker *t, struct api_conversation *c)
{
    const struct stated *s = stated(t);
    if (!s->shape.allowed)
        return render_with(t, c, s->tools);
    json_t *tools = allowed_tools(t, s);
    t->name = "tool_choice";
    int rc = tools ? render_with(t, c, tools) : -1;
    json_decref(tools);
    return rc;
}

int openai_chat_parse(const struct api_body *body, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.special = false};
    struct taker t = {.out = out, .body = body, .where = CHAT, .own = &s, .error = error};
    struct api_conversation c = {.messages = NULL};
    if (take_fields(&t, body->json, fields, ARRAY_LEN(fields), param) != 0)
        return -1;
    if (!s.messages)
        return take_missing(&t, "messages", param);
    if (out->top_logprobs > 0 && !out->logprobs) {
        take_param(param, "top_logprobs");
        return error_set(error, ERR_BAD_INPUT, "'top_logprobs' needs logprobs: true");
    }
    t.name = "messages";
    if (render(&t, &c) == 0)
        return 0;
    take_param(param, t.name);
    return -1;
}
