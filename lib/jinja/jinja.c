/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles and renders templates: the entry from C, variables from JSON, and the ranges of the
 * output. */
#include "lib/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/jinja/run/run.h"

struct jinja_template {
    struct jheap heap;
    struct jnames *names;
    struct jnodes body;
};

struct compilation {
    struct jinja_template *t;
    const char *text;
    size_t bytes;
};

static void compile(void *arg)
{
    struct compilation *c = arg;
    struct jtokens tokens = jlex(&c->t->heap, c->text, c->bytes);
    c->t->names = tokens.names;
    c->t->body = jparse(&c->t->heap, &tokens);
    jfold(&c->t->heap, &c->t->body);
}

struct jinja_template *jinja_compile(const char *text, size_t bytes,
                                     const struct jinja_limits *limits, struct error *error)
{
    struct jinja_template *t = calloc(1, sizeof *t);
    if (!t) {
        error_set(error, ERR_NO_MEMORY, "out of memory (chat template)");
        return NULL;
    }
    struct error why = {.code = ERR_NONE};
    struct compilation c = {t, text, bytes};
    jheap_init(&t->heap, limits->memory_bytes, limits->steps, limits->depth);
    if (jheap_try(&t->heap, compile, &c, &why) != 0) {
        if (error)
            *error = why;
        jinja_template_free(t);
        return NULL;
    }
    return t;
}

void jinja_template_free(struct jinja_template *t)
{
    if (t)
        jheap_free(&t->heap);
    free(t);
}

void jinja_output_free(struct jinja_output *out)
{
    free(out->text);
    text_ranges_free(&out->written);
    *out = (struct jinja_output){0};
}

/* ---- rendering ---- */

struct rendering {
    const struct jinja_template *t;
    const struct jinja_input *input;
    struct jheap *heap;
    struct jbuffer out;
    size_t output_bytes;
};

static bool is_role(const char *const *roles, const struct jvalue *v)
{
    for (; roles && *roles; roles++)
        if (v->kind == JSTRING && jstring_is(v->string, *roles))
            return true;
    return false;
}

static void trust_role(struct jheap *h, const char *const *roles, const struct jvalue *message)
{
    struct jvalue *role =
        message->kind == JDICT ? jdict_find_text(h, message->dict, "role", 4) : NULL;
    if (role && is_role(roles, role))
        *role =
            jstring_value(jstring_of(h, role->string->text, role->string->bytes, JORIGIN_TEMPLATE));
}

/* The variables as one dict; those of own are found first. */
static struct jdict *variables(struct jheap *h, const struct jinja_input *input)
{
    struct jvalue none = jdict_new(h, 0), own = none, messages = none;
    if (input->own)
        own = jvalue_of_json(h, input->own, JORIGIN_TEMPLATE);
    if (input->messages)
        messages = jvalue_of_json(h, input->messages, JORIGIN_MESSAGE);
    if (own.kind != JDICT || messages.kind != JDICT)
        jheap_fail(h, "the variables are no object");
    for (size_t i = 0; i < messages.dict->count; i++) {
        const struct jpair *p = &messages.dict->at[i];
        for (size_t j = 0; p->value.kind == JLIST && j < p->value.list->count; j++)
            trust_role(h, input->roles, &p->value.list->at[j]);
        if (!jdict_find(h, own.dict, p->key))
            jdict_set(h, own.dict, p->key, p->value);
    }
    return own.dict;
}

/* Names that a rendering adds do not change the template: they are in a copy of its table. */
static void render(void *arg)
{
    struct rendering *w = arg;
    struct jrun r = {.h = w->heap, .out = &w->out, .now = &w->input->now};
    r.names = jnames_copy(w->heap, w->t->names);
    r.context = variables(w->heap, w->input);
    jscope_push(&r, NULL);
    jexecute(&r, &w->t->body);
    if (w->out.bytes > w->output_bytes)
        jheap_fail(w->heap, "the prompt has %zu bytes; the maximum is %zu", w->out.bytes,
                   w->output_bytes);
}

static int take_output(const struct jbuffer *b, struct jinja_output *out, struct error *error)
{
    out->text = malloc(b->bytes + 1);
    if (!out->text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    if (b->bytes > 0)
        memcpy(out->text, b->text, b->bytes);
    out->text[b->bytes] = 0;
    out->bytes = b->bytes;
    for (size_t from = 0, to; from < b->bytes; from = to) {
        for (to = from + 1; to < b->bytes && b->origins[to] == b->origins[from];)
            to++;
        if (b->origins[from] == JORIGIN_TEMPLATE && text_ranges_add(&out->written, from, to) != 0) {
            jinja_output_free(out);
            return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
        }
    }
    return 0;
}

int jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                 const struct jinja_limits *limits, struct jinja_output *out, struct error *error)
{
    struct jheap heap;
    struct error why = {.code = ERR_NONE};
    struct rendering w = {
        .t = t, .input = input, .heap = &heap, .output_bytes = limits->output_bytes};
    *out = (struct jinja_output){0};
    jheap_init(&heap, limits->memory_bytes, limits->steps, limits->depth);
    jheap_set_clock(&heap, limits->cpu_ns, limits->beat, limits->beat_arg);
    int result = jheap_try(&heap, render, &w, &why);
    if (result == 0)
        result = take_output(&w.out, out, &why);
    out->steps = heap.steps;
    jheap_free(&heap);
    if (result != 0 && error)
        *error = why;
    return result;
}
