/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the grammar that an answer keeps to, of a schema of the client, the schemas of tools, or
 * both. The engine compiles it before it computes anything, and rejects what it cannot enforce; its
 * words are then told of the tool (refused.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/constraints/calls.h"
#include "procs/engine/gateway/api/request.h"

static bool any_is_strict(const json_t *tools)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        if (json_is_true(json_object_get(function ? function : tool, "strict")))
            return true;
    }
    return false;
}

int api_grammar(struct api_request *out, enum grammar_kind kind, const char *text, size_t bytes,
                struct error *error)
{
    if (bytes == 0 || bytes > GRAMMAR_TEXT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "what the answer shall keep to has %zu bytes; it must have 1 to %u", bytes,
                         GRAMMAR_TEXT_BYTES_MAX);
    free(out->grammar_text);
    out->grammar_text = malloc(bytes + 1);
    if (!out->grammar_text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
    memcpy(out->grammar_text, text, bytes);
    out->grammar_text[bytes] = 0;
    out->grammar.kind = kind;
    out->grammar.text = out->grammar_text;
    out->grammar.bytes = bytes;
    return 0;
}

int api_grammar_of_schema(struct api_request *out, const json_t *schema, struct error *error)
{
    char *text = json_dumps(schema, JSON_COMPACT);
    int rc = text ? api_grammar(out, GRAMMAR_JSON_SCHEMA, text, strlen(text), error)
                  : error_set(error, ERR_NO_MEMORY, "out of memory (schema)");
    free(text);
    return rc;
}

/* ---- GBNF ------------------------------------------------------------------------------------ */

/* Whether a text has to stand between marks. */
static bool has_content_marks(const struct answer_form *form)
{
    return form->content.open && !form->content_optional;
}

/* What the answer is, of the rules of calls.h. */
static void put_root(const struct answer_form *form, const struct api_conversation *c, bool calls,
                     FILE *out)
{
    const char *text = c->shape.schema ? "schema" : ".*";
    if (form->channels) {
        fputs(ANSWER_CHANNEL_RULES "root ::= ", out);
        fputs(calls ? "(answer-think | answer-note)* " : "answer-think* ", out);
        if (c->shape.call_needed)
            fputs("calls\n", out);
        else
            fprintf(out, "(%sanswer-final %s)\n", calls ? "calls | " : "", text);
    } else if (c->shape.call_needed) {
        fputs("root ::= calls\n", out);
    } else if (!c->shape.schema && answer_is_unmarked(&form->call)) {
        fputs("root ::= calls | ([^{[ \\n\\t\\r] .*)?\n", out);
    } else if (!c->shape.schema) {
        fputs("root ::= more\n", out);
    } else {
        bool marked = has_content_marks(form);
        fputs(calls ? "root ::= calls |" : "root ::=", out);
        calls_put(out, marked ? form->content.open : "");
        fputs(" schema", out);
        calls_put(out, marked ? form->content.close : "");
        if (marked && form->tail) {
            fputs(" (", out);
            calls_put(out, form->tail);
            fputs(")?", out);
        }
        fputs("\n", out);
    }
    if (!c->shape.schema)
        return;
    fputs("schema ::= %json ", out);
    json_dumpf(c->shape.schema, out, JSON_COMPACT);
    fputs("\n", out);
}

static void tell(const struct api_limits *limits, const char *what)
{
    if (limits && limits->ignored)
        limits->ignored(limits->ignored_arg, what);
}

static void tell_left_out(void *limits, const char *tool)
{
    char what[API_LEFT_OUT_BYTES];
    api_name_left_out(tool, what);
    tell(limits, what);
}

static int write_all(const struct answer_form *form, const struct api_conversation *c, bool calls,
                     bool strict, const struct api_limits *limits, const struct api_request *r,
                     FILE *out, struct error *error)
{
    struct calls all = {.form = form,
                        .tools = c->tools,
                        .name = c->shape.call_name,
                        .one = r->one_call,
                        .strict = strict,
                        .left_out = r->grammar_optional ? tell_left_out : NULL,
                        .left_out_arg = (void *)(uintptr_t)limits};
    if (calls && calls_write(&all, out, r->grammar_lines, error) != 0)
        return -1;
    put_root(form, c, calls, out);
    return ferror(out) ? error_set(error, ERR_NO_MEMORY, "out of memory (grammar)") : 0;
}

static int make_gbnf(const struct answer_form *form, const struct api_conversation *c, bool calls,
                     bool strict, const struct api_limits *limits, struct api_request *r,
                     struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
    int rc = write_all(form, c, calls, strict, limits, r, out, error);
    if (fclose(out) != 0 && rc == 0)
        rc = error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
    if (rc == 0)
        rc = api_grammar(r, GRAMMAR_GBNF, text, bytes, error);
    free(text);
    return rc;
}

/* ---- where it begins ------------------------------------------------------------------------- */

static void place(const struct answer_form *form, bool inside, bool triggered,
                  struct grammar_source *g)
{
    if (form->channels)
        return;
    if (form->reasoning.open) {
        g->open = inside ? NULL : form->reasoning.open;
        g->close = form->reasoning.close;
    }
    if (triggered && !answer_is_unmarked(&form->call))
        g->trigger = calls_trigger(&form->call);
}

/* Grammars of channels begin with the header of one, which the prompt has none of here or has
 * begun. */
static bool begins_elsewhere(const struct answer_form *form, const struct api_conversation *c)
{
    return form->channels && (c->continues || c->no_generation_prompt);
}

static int check(const struct answer_form *form, const struct api_conversation *c, bool strict,
                 struct error *error)
{
    bool tools = json_array_size(c->tools) > 0;
    if (c->shape.call_needed && !tools)
        return error_set(error, ERR_BAD_INPUT,
                         "'tool_choice' asks for a call, and there are no tools to be called");
    if ((c->shape.call_needed || (c->shape.schema && tools)) && !calls_have_grammar(form))
        return error_set(error, ERR_BAD_INPUT,
                         "%s: this model writes calls of tools in a form that cannot be enforced",
                         c->shape.call_needed ? "'tool_choice'" : "tools together with a schema");
    const char *asks = c->shape.call_needed ? "'tool_choice'"
                       : c->shape.schema    ? "a schema"
                                            : "a strict tool";
    bool elsewhere = (strict || c->shape.schema) && begins_elsewhere(form, c);
    if (c->continues && (c->shape.call_needed || c->shape.schema || elsewhere))
        return error_set(error, ERR_BAD_INPUT,
                         "%s: the last message is the assistant's, and what continues it cannot be "
                         "enforced; end with a message of the user",
                         asks);
    if (elsewhere)
        return error_set(error, ERR_BAD_INPUT,
                         "%s: 'add_generation_prompt' is false, and what this model then writes "
                         "cannot be enforced; leave that field out",
                         asks);
    return 0;
}

static int constrain(const struct answer_form *form, const struct api_conversation *c, bool inside,
                     const struct api_limits *limits, struct api_request *r, struct error *error)
{
    bool tools = json_array_size(c->tools) > 0, calls = tools && calls_have_grammar(form);
    bool strict = c->shape.call_needed || c->shape.strict || any_is_strict(c->tools);
    if (check(form, c, strict, error) != 0)
        return -1;
    bool free = !c->shape.schema && !strict &&
                answer_is_unmarked(&form->call); /* it may begin like a call */
    if ((!c->shape.schema && !calls) || free || begins_elsewhere(form, c))
        return 0;
    r->one_call |= c->shape.call_name != NULL;
    r->grammar_optional = !c->shape.schema && !strict;
    place(form, inside, !c->shape.schema && !c->shape.call_needed, &r->grammar);
    if (!calls && !form->channels && !has_content_marks(form))
        return api_grammar_of_schema(r, c->shape.schema, error);
    r->grammar_lines = json_array();
    return make_gbnf(form, c, calls, strict, limits, r, error);
}

int api_constrain_text(const struct answer_shape *shape, struct api_request *r, struct error *error)
{
    static const char object[] = "{\"type\":\"object\"}";
    if (r->grammar.kind != GRAMMAR_NONE)
        return 0;
    if (shape->schema)
        return api_grammar_of_schema(r, shape->schema, error);
    return shape->object ? api_grammar(r, GRAMMAR_JSON_SCHEMA, object, sizeof object - 1, error)
                         : 0;
}

int api_constrain(const struct answer_form *form, const struct api_conversation *c, bool inside,
                  const struct api_limits *limits, struct api_request *r, struct error *error)
{
    struct api_conversation own = *c;
    json_t *any = c->shape.object && !c->shape.schema ? json_pack("{s:s}", "type", "object") : NULL;
    if (r->grammar.kind != GRAMMAR_NONE) /* the client's own */
        return 0;
    if (c->shape.object && !c->shape.schema && !any)
        return error_set(error, ERR_NO_MEMORY, "out of memory (schema)");
    if (any)
        own.shape.schema = any;
    int rc = constrain(form, &own, inside, limits, r, error);
    json_decref(any);
    if (rc == 0 || !r->grammar_optional || error->code != ERR_BAD_INPUT)
        return rc;
    api_drop_grammar(r);
    tell(limits, API_LEFT_OUT_ALL);
    return 0;
}
