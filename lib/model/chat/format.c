/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses between the model's own template and its family, and renders with the chosen one. */
#include "lib/model/chat/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/jinja/jinja.h"

/* A conversation of 1024 messages and half a megabyte takes templates of models up to 250 thousand
 * steps and 14 MiB, their syntax trees up to 0.6 MiB, 20 times the text. The gateway serves no
 * other client meanwhile, and must reach these limits before that of its process (RLIMIT_DATA): a
 * template that is too large is an error of its request, not of the memory. */
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
    f->shape = f->tools_shape = (struct chat_shape){.null_content = false};
    f->tools_error = (struct error){.code = ERR_NONE};
}

static int compile(struct jinja_template **program, const struct model_chat *model,
                   struct answer_form *answer, struct chat_shape *shape, const char *text,
                   size_t bytes, struct error *why)
{
    if (bytes > CHAT_TEMPLATE_BYTES_MAX)
        return error_set(why, ERR_BAD_INPUT, "the chat template has %zu bytes; the maximum is %zu",
                         bytes, CHAT_TEMPLATE_BYTES_MAX);
    struct jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.memory_bytes = chat_format_bytes(bytes);
    *program = jinja_compile(text, bytes, &limits, why);
    if (!*program)
        return -1;
    *answer = answer_form_of(text, bytes);
    *shape = chat_shape_of(*program, model, text, bytes);
    shape->effort = chat_effort_of(*program, model, answer, text, bytes);
    return 0;
}

int chat_format_set(struct chat_format *f, const struct model_chat *model, const char *text,
                    size_t bytes, struct error *why)
{
    chat_format_free(f);
    f->model = *model;
    return text ? compile(&f->program, model, &f->answer, &f->shape, text, bytes, why) : 0;
}

int chat_format_set_tools(struct chat_format *f, const char *text, size_t bytes, struct error *why)
{
    struct error own;
    sl_assert(f->program && !f->tools_program);
    int rc = text ? compile(&f->tools_program, &f->model, &f->tools_answer, &f->tools_shape, text,
                            bytes, &own)
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
    for (size_t i = 0; i < CHAT_GAP_TOKENS; i++) {
        const char *token = json_string_value(json_array_get(json_object_get(reply, "gap"), i));
        snprintf(model.gap[i], sizeof model.gap[i], "%s", token ? token : "");
    }
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

/* ---- rendering ------------------------------------------------------------------------------- */

/* What a client's variables do not replace. */
static json_t *own_variables(const struct model_chat *model, bool generation)
{
    return json_pack("{ss, ss, sb}", "bos_token", model->bos, "eos_token", model->eos,
                     "add_generation_prompt", generation);
}

static json_t *client_variables(const struct chat_conversation *c, const struct chat_shape *shape,
                                enum chat_family family, struct error *error)
{
    json_t *messages = chat_messages(c->messages, c->continues, shape, family, error);
    if (!messages)
        return NULL;
    json_t *all = json_object();
    if (c->variables)
        json_object_update(all, (json_t *)(uintptr_t)c->variables); /* jansson takes no const */
    if (chat_effort_fit(&shape->effort, all) != 0) {
        json_decref(messages);
        json_decref(all);
        error_set(error, ERR_NO_MEMORY, "out of memory (message)");
        return NULL;
    }
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
    json_t *messages = client_variables(c, tools ? &f->tools_shape : &f->shape,
                                        (enum chat_family)f->model.family, error),
           *own = own_variables(&f->model, !c->continues && !c->no_generation_prompt);
    struct jinja_input input = {.own = own, .messages = messages, .roles = chat_roles};
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
    return c->continues ? chat_prompt_cut(prompt, error) : 0;
}
