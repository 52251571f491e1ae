/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of Ollama's requests. The fields are a table (fields.tbl.h). What would change the answer
 * and cannot be served is rejected by name; fields that are not in the table are ignored. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"

#define REPEAT_ALL 4096 /* the most that the penalty applies to */

enum where { CHAT = 1, GENERATE = 2, BOTH = CHAT | GENERATE, OPTIONS = 4 };

/* What the fields of a body state together; NULL: not given, borrowed. */
struct stated {
    const json_t *messages, *tools, *prompt, *system, *think, *options, *suffix;
    struct answer_shape shape;
    bool raw;
};

static struct stated *stated(const struct taker *t)
{
    return t->own;
}

static int take_messages(struct taker *t, const json_t *value)
{
    stated(t)->messages = value;
    return json_is_array(value) && json_array_size(value) == 0 ? 0 : take_conversation(t, value);
}

static int take_tools(struct taker *t, const json_t *value)
{
    if (!t->body->limits->chat->program)
        return take_empty(t, value);
    stated(t)->tools = value;
    return json_is_array(value) ? 0 : take_wrong(t, "an array");
}

static int take_prompt(struct taker *t, const json_t *value)
{
    stated(t)->prompt = value;
    return json_is_string(value) ? 0 : take_wrong(t, "a text");
}

static int take_system(struct taker *t, const json_t *value)
{
    stated(t)->system = value;
    return json_is_string(value) ? 0 : take_wrong(t, "a text");
}

/* An empty one is none. */
static int take_suffix(struct taker *t, const json_t *value)
{
    stated(t)->suffix = json_string_length(value) > 0 ? value : NULL;
    return json_is_string(value) ? 0 : take_wrong(t, "a text");
}

static int take_raw(struct taker *t, const json_t *value)
{
    return take_bool(t, value, &stated(t)->raw);
}

static int take_think(struct taker *t, const json_t *value)
{
    if (!json_is_boolean(value) && !json_is_string(value))
        return take_wrong(t, "true, false, \"low\", \"medium\" or \"high\"");
    stated(t)->think = take_for_template(t, t->name) ? value : NULL;
    return 0;
}

/* "json", or a schema. */
static int take_shape(struct taker *t, const json_t *value)
{
    struct answer_shape *shape = &stated(t)->shape;
    shape->object = json_text_is(value, "json");
    if (shape->object || (json_is_string(value) && json_string_length(value) == 0))
        return 0;
    return json_is_object(value) ? take_schema(t, value, shape)
                                 : take_wrong(t, "\"json\", or a JSON Schema");
}

/* The engine keeps its model as long as it runs. */
static int take_keep_alive(struct taker *t, const json_t *value)
{
    if (json_is_number(value) && json_number_value(value) == 0)
        t->out->wants |= OLLAMA_UNLOAD;
    return 0;
}

static int take_options(struct taker *t, const json_t *value)
{
    stated(t)->options = value;
    return json_is_object(value) ? 0 : take_wrong(t, "an object");
}

/* ---- options --------------------------------------------------------------------------------- */

/* Below 0: up to the end of the context. */
static int take_num_predict(struct taker *t, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) >= 0)
        return take_max_tokens(t, value);
    t->out->max_tokens = ENGINE_TOKENS_MAX;
    return 0;
}

static int take_repeat_last_n(struct taker *t, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) >= 0)
        return take_sampling(t, value);
    t->out->sampling.repeat_last_n = REPEAT_ALL;
    return 0;
}

static const struct field fields[] = {
#define FIELD(name, where, how) {name, where, take_##how},
#include "procs/engine/gateway/dialects/ollama/fields.tbl.h"
};

/* ---- the request ----------------------------------------------------------------------------- */

/* The variables of templates that switch reasoning. NULL: nothing is stated, or out of memory. */
static json_t *variables(const struct taker *t)
{
    const json_t *think = stated(t)->think;
    if (!think)
        return NULL;
    int on = !json_is_false(think);
    return json_pack("{s:b, s:b, s:O*}", "enable_thinking", on, "thinking", on, "reasoning_effort",
                     json_is_string(think) ? think : NULL);
}

/* Takes the reference to the messages; NULL: an error is set. */
static int render(struct taker *t, json_t *messages)
{
    json_t *all = variables(t);
    struct api_conversation c = {.messages = messages,
                                 .tools = stated(t)->tools,
                                 .variables = all,
                                 .shape = stated(t)->shape,
                                 .continues = api_can_continue(messages)};
    int rc = messages ? api_render(t->body, &c, t->out, t->error) : -1;
    json_decref(messages);
    json_decref(all);
    return rc;
}

/* A body, then its options. */
static int take_all(struct taker *t, char param[API_PARAM_BYTES])
{
    t->out->stream = true;
    if (take_fields(t, t->body->json, fields, ARRAY_LEN(fields), param) != 0)
        return -1;
    if (!t->out->logprobs)
        t->out->top_logprobs = 0;
    t->where = OPTIONS;
    return stated(t)->options ? take_fields(t, stated(t)->options, fields, ARRAY_LEN(fields), param)
                              : 0;
}

int ollama_chat_parse(const struct api_body *body, struct api_request *out,
                      char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.messages = NULL};
    struct taker t = {.out = out, .body = body, .where = CHAT, .own = &s, .error = error};
    if (take_all(&t, param) != 0)
        return -1;
    out->nothing = json_array_size(s.messages) == 0;
    take_param(param, "messages");
    return out->nothing ? 0 : render(&t, ollama_conversation(s.messages, error));
}

/* The whole prompt is the client's, marks included. */
static int take_raw_prompt(struct taker *t)
{
    t->name = "prompt";
    if (take_prompt_text(t, stated(t)->prompt) != 0 ||
        api_constrain_text(&stated(t)->shape, t->out, t->error) != 0)
        return -1;
    return text_ranges_add(&t->out->special, 0, t->out->prompt_bytes) == 0
               ? 0
               : error_set(t->error, ERR_NO_MEMORY, "out of memory (prompt)");
}

/* The prompt and the suffix, without a template. */
static int take_gap_prompt(struct taker *t, char param[API_PARAM_BYTES])
{
    t->name = "suffix";
    take_param(param, t->name);
    if (take_prompt_text(t, stated(t)->prompt) != 0 ||
        api_constrain_text(&stated(t)->shape, t->out, t->error) != 0)
        return -1;
    return take_gap(t, stated(t)->suffix);
}

static json_t *turn(const struct taker *t)
{
    const struct stated *s = stated(t);
    json_t *messages = json_string_length(s->system) > 0
                           ? json_pack("[{s:s, s:O}, {s:s, s:O}]", "role", "system", "content",
                                       s->system, "role", "user", "content", s->prompt)
                           : json_pack("[{s:s, s:O}]", "role", "user", "content", s->prompt);
    if (!messages)
        error_set(t->error, ERR_NO_MEMORY, "out of memory (messages)");
    return messages;
}

int ollama_generate_parse(const struct api_body *body, struct api_request *out,
                          char param[API_PARAM_BYTES], struct error *error)
{
    struct stated s = {.messages = NULL};
    struct taker t = {.out = out, .body = body, .where = GENERATE, .own = &s, .error = error};
    if (take_all(&t, param) != 0)
        return -1;
    out->nothing = json_string_length(s.prompt) == 0;
    take_param(param, "prompt");
    if (out->nothing)
        return 0;
    if (s.suffix)
        return take_gap_prompt(&t, param);
    return s.raw ? take_raw_prompt(&t) : render(&t, turn(&t));
}
