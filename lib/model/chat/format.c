/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/model/chat/format.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/jinja/jinja.h"

/* Words of roles. Only those may become a part of a control token ("<|" role "|>"). */
static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};

/* A conversation of 1024 messages and half a megabyte takes templates of models up to 250 thousand
 * steps and 14 MiB, their syntax trees up to 0.6 MiB, 20 times the text. The gateway serves no other
 * client meanwhile, and must reach these limits before that of its process (RLIMIT_DATA): a template
 * that is too large is an error of its request, not of the memory. */
#define RENDER_STEPS      4000000
#define RENDER_CPU_NS     NS_PER_S /* five times what these steps take */
#define RENDER_BYTES_MAX  ((size_t)16 << 20)
#define RENDER_BYTES_MIN  ((size_t)2 << 20)
#define RENDER_PER_BYTE   32 /* of the prompt */
#define COMPILE_BYTES_MAX ((size_t)4 << 20)
#define COMPILE_BYTES_MIN ((size_t)256 << 10)
#define COMPILE_PER_BYTE  64 /* of the template */

static size_t within(size_t n, size_t min, size_t max)
{
    return n < min ? min : n > max ? max : n;
}

size_t chat_format_bytes(size_t template_bytes)
{
    return template_bytes >= COMPILE_BYTES_MAX / COMPILE_PER_BYTE
               ? COMPILE_BYTES_MAX
               : within(COMPILE_PER_BYTE * template_bytes, COMPILE_BYTES_MIN, COMPILE_BYTES_MAX);
}

size_t chat_render_bytes(size_t max)
{
    return max >= RENDER_BYTES_MAX / RENDER_PER_BYTE
               ? RENDER_BYTES_MAX
               : within(RENDER_PER_BYTE * max, RENDER_BYTES_MIN, RENDER_BYTES_MAX);
}

void chat_format_free(struct chat_format *f)
{
    jinja_template_free(f->program);
    jinja_template_free(f->tools_program);
    f->program = f->tools_program = NULL;
    f->answer = f->tools_answer = (struct answer_form){0};
    f->tools_error = (struct error){.code = ERR_NONE};
}

static int compile(struct jinja_template **program, struct answer_form *answer, const char *text,
                   size_t bytes, struct error *why)
{
    if (bytes > CHAT_TEMPLATE_BYTES_MAX)
        return error_set(why, ERR_BAD_INPUT, "the chat template has %zu bytes; the maximum is %zu",
                         bytes, CHAT_TEMPLATE_BYTES_MAX);
    struct jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.memory_bytes = chat_format_bytes(bytes);
    *program = jinja_compile(text, bytes, &limits, why);
    if (*program)
        *answer = answer_form_of(text, bytes);
    return *program ? 0 : -1;
}

int chat_format_set(struct chat_format *f, const struct model_chat *model, const char *text,
                    size_t bytes, struct error *why)
{
    chat_format_free(f);
    f->model = *model;
    return text ? compile(&f->program, &f->answer, text, bytes, why) : 0;
}

int chat_format_set_tools(struct chat_format *f, const char *text, size_t bytes, struct error *why)
{
    struct error own;
    sl_assert(f->program && !f->tools_program);
    int rc = text ? compile(&f->tools_program, &f->tools_answer, text, bytes, &own)
                  : error_set(&own, ERR_BAD_INPUT, "not a text");
    if (rc == 0)
        return 0;
    error_set(&f->tools_error, own.code, "the model's chat template for tools: %.200s", own.text);
    *why = f->tools_error;
    return -1;
}

static const char *member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

int chat_format_read(struct chat_format *f, const json_t *reply, struct error *why)
{
    struct model_chat model = {0};
    const json_t *text = json_object_get(reply, "template");
    chat_describe(&model, member(reply, "family"), member(reply, "bos"), member(reply, "eos"),
                  json_integer_value(json_object_get(reply, "bos_first")) != 0);
    model.bos_added = json_integer_value(json_object_get(reply, "bos_added")) != 0;
    if (chat_format_set(f, &model, json_string_value(text), json_string_length(text), why) != 0)
        return -1;
    if (text && !f->program)
        return error_set(why, ERR_BAD_INPUT, "the chat template: not a text");
    text = json_object_get(reply, "tools_template");
    return f->program && text
               ? chat_format_set_tools(f, json_string_value(text), json_string_length(text), why)
               : 0;
}

const struct answer_form *chat_format_answer(const struct chat_format *f, const json_t *tools)
{
    return f->tools_program && json_array_size(tools) > 0 ? &f->tools_answer : &f->answer;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int wrong(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "'messages': %s", what);
}

static bool known_role(const json_t *role)
{
    for (const char *const *r = roles; json_is_string(role) && *r; r++)
        if (strcmp(*r, json_string_value(role)) == 0)
            return true;
    return false;
}

/* A text, or the texts of an array of parts. NULL with an error. */
static json_t *text_of(const json_t *content, struct error *error)
{
    size_t bytes = 0, count = json_array_size(content);
    if (!content || json_is_null(content))
        return json_string("");
    if (json_is_string(content))
        return json_deep_copy(content);
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_array_get(content, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(json_object_get(part, "text"))) {
            wrong(error, "parts of a message must be texts");
            return NULL;
        }
        bytes += json_string_length(json_object_get(part, "text"));
    }
    char *joined = json_is_array(content) ? malloc(bytes + 1) : NULL, *at = joined;
    if (!joined) {
        if (json_is_array(content))
            error_set(error, ERR_NO_MEMORY, "out of memory (message)");
        else
            wrong(error, "a content must be text");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        memcpy(at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    json_t *text = json_stringn_nocheck(joined, bytes);
    free(joined);
    return text;
}

static bool is_blank(const json_t *text)
{
    const char *value = json_string_value(text);
    return value && value[strspn(value, " \t\r\n")] == 0;
}

/* OpenAI's API has the arguments of a call as a text of JSON; templates take them as an object. Clients leave them out,
 * or write an empty text, where there are none. */
static void parse_arguments(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    json_t *of = function ? function : call;
    const json_t *text = json_object_get(of, "arguments");
    json_t *parsed = !text || json_is_null(text) || is_blank(text) ? json_object()
                     : json_is_string(text)
                         ? json_loadb(json_string_value(text), json_string_length(text), 0, NULL)
                         : NULL;
    if (json_is_object(parsed))
        json_object_set(of, "arguments", parsed);
    json_decref(parsed);
}

/* Templates write more of a message than its content: names, reasoning, arguments of calls. */
static int reject_marks(const json_t *v, enum chat_family family, struct error *error)
{
    json_t *all = (json_t *)(uintptr_t)v, *part; /* jansson's iterators take no const */
    const char *key;
    size_t i;
    if (json_is_string(v))
        return chat_reject_marks(family, json_string_value(v), json_string_length(v), error);
    json_array_foreach(all, i, part) if (reject_marks(part, family, error) != 0) return -1;
    json_object_foreach(all, key, part)
    {
        if (chat_reject_marks(family, key, strlen(key), error) != 0 ||
            reject_marks(part, family, error) != 0)
            return -1;
    }
    return 0;
}

static json_t *message_of(const json_t *message, enum chat_family family, struct error *error)
{
    if (!json_is_object(message)) {
        wrong(error, "must be an array of objects");
        return NULL;
    }
    if (!known_role(json_object_get(message, "role"))) {
        wrong(error, "a role must be system, developer, user, assistant or tool");
        return NULL;
    }
    json_t *content = text_of(json_object_get(message, "content"), error);
    json_t *copy = content ? json_deep_copy(message) : NULL, *call;
    if (content && (!copy || json_object_set_new(copy, "content", content) != 0)) {
        error_set(error, ERR_NO_MEMORY, "out of memory (message)");
        json_decref(copy);
        return NULL;
    }
    size_t i;
    json_array_foreach(json_object_get(copy, "tool_calls"), i, call) parse_arguments(call);
    if (copy && reject_marks(copy, family, error) != 0) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static json_t *messages_of(const json_t *messages, enum chat_family family, struct error *error)
{
    size_t n = json_array_size(messages);
    if (n == 0 || n > CHAT_MESSAGES_MAX) {
        error_set(error, ERR_BAD_INPUT, "'messages' must be an array of 1 to %d messages",
                  CHAT_MESSAGES_MAX);
        return NULL;
    }
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *message = message_of(json_array_get(messages, i), family, error);
        if (!message || json_array_append_new(out, message) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* What a client's variables do not replace. */
static json_t *own_variables(const struct model_chat *model)
{
    return json_pack("{ss, ss, sb}", "bos_token", model->bos, "eos_token", model->eos,
                     "add_generation_prompt", 1);
}

static json_t *client_variables(const struct chat_conversation *c, enum chat_family family,
                                struct error *error)
{
    json_t *messages = messages_of(c->messages, family, error);
    if (!messages)
        return NULL;
    json_t *all = json_object();
    if (c->variables)
        json_object_update(all, (json_t *)(uintptr_t)c->variables); /* jansson takes no const */
    json_object_set_new(all, "messages", messages);
    json_object_del(all, "tools");
    if (json_array_size(c->tools) > 0)
        json_object_set_new(all, "tools", json_deep_copy(c->tools));
    return all;
}

/* Leaves out the first `n` bytes. */
static void drop_front(struct chat_prompt *p, size_t n)
{
    struct text_ranges *w = &p->written;
    memmove(p->text, p->text + n, p->bytes - n + 1);
    p->bytes -= n;
    size_t count = 0;
    for (size_t i = 0; i < w->count; i++) {
        struct text_range r = w->at[i];
        if (r.to > n)
            w->at[count++] =
                (struct text_range){r.from > n ? (uint32_t)(r.from - n) : 0, (uint32_t)(r.to - n)};
    }
    w->count = count;
}

int chat_format_render(const struct chat_format *f, const struct chat_conversation *c, size_t max,
                       struct chat_prompt *prompt, struct error *error)
{
    bool tools = json_array_size(c->tools) > 0;
    sl_assert(f->program);
    *prompt = (struct chat_prompt){0};
    if (tools && f->tools_error.code != ERR_NONE) {
        *error = f->tools_error;
        return -1;
    }
    tools = tools && f->tools_program;
    struct jinja_limits bounds = JINJA_LIMITS_DEFAULT;
    bounds.steps = RENDER_STEPS;
    bounds.cpu_ns = RENDER_CPU_NS;
    bounds.beat = c->beat;
    bounds.beat_arg = c->beat_arg;
    bounds.memory_bytes = chat_render_bytes(max);
    struct jinja_output out = {0};
    json_t *messages = client_variables(c, (enum chat_family)f->model.family, error),
           *own = own_variables(&f->model);
    struct jinja_input input = {.own = own, .messages = messages, .roles = roles};
    gmtime_r(&c->now, &input.now);
    bounds.output_bytes = max < bounds.output_bytes ? max : bounds.output_bytes;
    int rc = messages
                 ? jinja_render(tools ? f->tools_program : f->program, &input, &bounds, &out, error)
                 : -1;
    json_decref(messages);
    json_decref(own);
    if (rc != 0)
        return -1;
    *prompt = (struct chat_prompt){out.text, out.bytes, out.written};
    size_t n = f->model.bos_added ? strlen(f->model.bos) : 0;
    if (n > 0 && n <= prompt->bytes && memcmp(prompt->text, f->model.bos, n) == 0 &&
        prompt->written.count > 0 && prompt->written.at[0].from == 0 &&
        prompt->written.at[0].to >= n)
        drop_front(prompt, n);
    return 0;
}
