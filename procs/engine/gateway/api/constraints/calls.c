/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls of tools as GBNF. Arguments that are an object follow the tool's schema; models that
 * write arguments one by one have a text up to the mark behind it for each of them, or a rule with
 * JSON. */
#include "procs/engine/gateway/api/constraints/calls.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/request.h"

#define TOKEN_BYTES_MAX 64

struct writing {
    const struct calls *c;
    FILE *out;     /* the rules of the tools */
    FILE *rules;   /* those of arguments, which come behind all tools */
    json_t *lines; /* calls_write's */
    size_t tool;   /* the one that is written */
    size_t count;  /* rules of arguments */
};

/* ---- texts ----------------------------------------------------------------------------------- */

/* The bytes of <name> at the start of a text; 0: it does not begin so. */
static size_t token_bytes(const char *text)
{
    size_t n = strcspn(text + 1, "<>\n") + 2;
    return text[0] == '<' && text[1] != '[' && n > 2 && text[n - 1] == '>' && n <= TOKEN_BYTES_MAX
               ? n
               : 0;
}

/* A part of a literal. */
static void put_inside(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < ' ' || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

static void put_quoted(FILE *out, const char *text, size_t bytes)
{
    fputs(" \"", out);
    put_inside(out, text, bytes);
    fputc('"', out);
}

void calls_put(FILE *out, const char *text)
{
    while (*text) {
        size_t n = token_bytes(text), plain = 0;
        if (n > 0) {
            fprintf(out, " %.*s", (int)n, text);
            text += n;
            continue;
        }
        do
            plain++;
        while (text[plain] && token_bytes(text + plain) == 0);
        put_quoted(out, text, plain);
        text += plain;
    }
}

/* Steals the value. */
static void put_spelled(FILE *out, const char *spelling, json_t *schema)
{
    fprintf(out, " %s ", spelling);
    if (schema)
        json_dumpf(schema, out, JSON_COMPACT);
    json_decref(schema);
}

static void put_schema(FILE *out, json_t *schema)
{
    put_spelled(out, "%json", schema);
}

/* A character of a class without those that are in `but`. */
static void put_not(FILE *out, const char *but, size_t count)
{
    fputs("[^", out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "\\x%02x", (unsigned char)but[i]);
    fputc(']', out);
}

/* Text without the mark, whose first character is in it only once. Beginnings of the mark are
 * followed by another beginning, or by a character that neither continues it nor begins one. */
static void put_text_until(FILE *out, const char *mark)
{
    size_t n = strlen(mark);
    fputs(" (", out);
    put_not(out, mark, 1);
    fputs(" | begin* (", out);
    for (size_t i = 1; i < n; i++) {
        char but[2] = {mark[0], mark[i]};
        fputs(i > 1 ? " | " : "", out);
        put_quoted(out, mark, i);
        fputc(' ', out);
        put_not(out, but, 2);
    }
    fputs("))* begin*", out);
}

/* The rule that put_text_until uses. */
static void put_begin(FILE *out, const char *mark)
{
    fputs("begin ::=", out);
    for (size_t i = 1; i < strlen(mark); i++) {
        fputs(i > 1 ? " |" : "", out);
        put_quoted(out, mark, i);
    }
    fputs("\n", out);
}

/* ---- arguments one by one -------------------------------------------------------------------- */

static int cannot(const char *tool, const char *key, const char *keyword, struct error *error)
{
    return error_set(
        error, ERR_BAD_INPUT,
        "tool '%.60s', at $.%s%.60s, %s: it cannot be enforced where the model writes texts "
        "without quotes; leave it out",
        tool, key ? "properties." : "", key ? key : "additionalProperties", keyword);
}

static bool has_text(const json_t *list, const char *text)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_text_is(one, text)) return true;
    return false;
}

static const char *const branching[] = {"anyOf", "oneOf"};

/* Whether texts are allowed, which the model writes as they are. */
static bool may_be_text(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    size_t i;
    if (type)
        return json_text_is(type, "string") || has_text(type, "string");
    if (json_object_get(schema, "$ref"))
        return false;
    for (size_t k = 0; k < ARRAY_LEN(branching); k++) {
        const json_t *list = json_object_get(schema, branching[k]);
        json_array_foreach(list, i, one) if (may_be_text(one)) return true;
        if (list)
            return false;
    }
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    json_array_foreach(list, i, one) if (json_is_string(one)) return true;
    return !list && (!only || json_is_string(only));
}

static bool has_value(const json_t *list, const json_t *value)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_equal(one, value)) return true;
    return false;
}

/* Whether a value, which is of that type, is allowed for certain. */
static bool allows(const json_t *schema, const json_t *value, const char *name)
{
    static const char *const unclear[] = {"allOf", "not", "if", "$ref"};
    const json_t *type = json_object_get(schema, "type"), *one;
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    bool certain = type || list || only;
    size_t i;
    for (size_t k = 0; k < ARRAY_LEN(unclear); k++)
        if (json_object_get(schema, unclear[k]))
            return false;
    if ((type && !json_text_is(type, name) && !has_text(type, name)) ||
        (list && !has_value(list, value)) || (only && !json_equal(only, value)))
        return false;
    for (size_t k = 0; k < ARRAY_LEN(branching); k++) {
        const json_t *branches = json_object_get(schema, branching[k]);
        bool any = !branches;
        json_array_foreach(branches, i, one) any |= allows(one, value, name);
        if (!any)
            return false;
        certain |= branches != NULL;
    }
    return certain;
}

/* Python's name of a value, which models write whose templates print arguments with str(); NULL: it
 * has none, or the form is another one. */
static const char *python_name(const struct answer_call *f, const json_t *value)
{
    return !f->lines || !value                              ? NULL
           : json_is_boolean(value) && json_is_true(value)  ? "True"
           : json_is_boolean(value) && json_is_false(value) ? "False"
           : json_is_null(value)                            ? "None"
                                                            : NULL;
}

/* Alternatives to what JSON writes. */
static void put_python_names(const struct answer_call *f, const json_t *schema, FILE *out)
{
    json_t *values[] = {json_true(), json_false(), json_null()};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        const char *name = python_name(f, values[i]);
        if (name && allows(schema, values[i], json_is_null(values[i]) ? "null" : "boolean"))
            fprintf(out, " | \"%s\"", name);
    }
}

/* Values of an enum: texts as they are, others as JSON. False: one contains the mark. */
static bool put_enum(const struct answer_call *f, const json_t *list, FILE *out)
{
    const char *mark = f->value_close, *name;
    const json_t *one;
    size_t i;
    fputs(" (", out);
    json_array_foreach(list, i, one)
    {
        char *text = json_is_string(one) ? NULL : json_dumps(one, JSON_COMPACT | JSON_ENCODE_ANY);
        const char *value = text ? text : json_string_value(one);
        if (!value || strstr(value, mark))
            return free(text), false;
        fputs(i > 0 ? " |" : "", out);
        put_quoted(out, value, strlen(value));
        free(text);
        if ((name = python_name(f, one)) != NULL)
            fprintf(out, " | \"%s\"", name);
    }
    fputs(")", out);
    return true;
}

static int put_text(const struct writing *w, const char *tool, const char *key,
                    const json_t *schema, struct error *error)
{
    const struct calls *c = w->c;
    FILE *out = w->out;
    static const char *const hard[] = {"pattern", "format", "allOf", "not", "const"};
    const char *mark = c->form->call.value_close;
    const json_t *list = json_object_get(schema, "enum"), *min, *max;
    if (list)
        return put_enum(&c->form->call, list, out) ? 0 : cannot(tool, key, "enum", error);
    for (size_t i = 0; i < ARRAY_LEN(hard); i++)
        if (c->strict && json_object_get(schema, hard[i]))
            return cannot(tool, key, hard[i], error);
    min = json_object_get(schema, "minLength");
    max = json_object_get(schema, "maxLength");
    if (!json_is_integer(min) && !json_is_integer(max)) {
        put_text_until(out, mark);
        return 0;
    }
    fputc(' ', out); /* without the first character of the mark, so that each one counts once */
    put_not(out, mark, 1);
    fprintf(out, "{%lld,", (long long)json_integer_value(min));
    if (json_is_integer(max))
        fprintf(out, "%lld", (long long)json_integer_value(max));
    fputs("}", out);
    return 0;
}

static bool has_reference(const json_t *value)
{
    const char *key;
    json_t *one;
    size_t i;
    if (json_object_get(value, "$ref"))
        return true;
    json_array_foreach(value, i, one) if (has_reference(one)) return true;
    json_object_foreach((json_t *)(uintptr_t)value, key, one) if (has_reference(one)) return true;
    return false;
}

/* With the definitions that it may refer to. */
static json_t *property_schema(const json_t *parameters, const json_t *schema)
{
    static const char *const names[] = {"$defs", "definitions"};
    json_t *all = json_copy((json_t *)(uintptr_t)schema);
    for (size_t i = 0; i < ARRAY_LEN(names) && has_reference(schema); i++) {
        json_t *defs = json_object_get(parameters, names[i]);
        if (defs && json_is_object(all))
            json_object_set(all, names[i], defs);
    }
    return json_is_object(all) ? all : (json_decref(all), json_object());
}

static void put_key(const struct answer_call *f, const char *key, FILE *out)
{
    calls_put(out, f->key_open);
    if (key)
        put_quoted(out, key, strlen(key));
    else
        fputs(" [^<>\\n\"]+", out);
    calls_put(out, f->key_end);
    fputs(f->lines ? " \"\\n\"" : " nl", out);
    calls_put(out, f->value_open);
}

static void put_value_end(const struct answer_call *f, FILE *out)
{
    fputs(f->lines ? " \"\\n\"" : "", out);
    calls_put(out, f->value_close);
    fputs(" nl", out);
}

static bool is_required(const json_t *parameters, const char *key)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(parameters, "required"), i,
                       one) if (json_text_is(one, key)) return true;
    return false;
}

/* Each argument has the definitions of its tool again, so that the text may be far larger than the
 * request: it ends before it takes more memory. */
static int check_size(const struct writing *w, struct error *error)
{
    return ftello(w->out) + ftello(w->rules) <= GRAMMAR_TEXT_BYTES_MAX
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "the schemas of the tools take more than %u bytes; leave tools or "
                           "definitions out",
                           GRAMMAR_TEXT_BYTES_MAX);
}

static int no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
}

/* A rule of its own, so that the line of an error tells the argument. Its entry has the name of the
 * tool's own entry, not a copy: there may be thousands of arguments. */
static int put_json(struct writing *w, const char *key, const json_t *parameters,
                    const json_t *schema, struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    fprintf(w->out, " arg%zu", w->count);
    fprintf(w->rules, "arg%zu ::=", w->count++);
    put_schema(w->rules, property_schema(parameters, schema));
    put_python_names(f, schema, w->rules);
    fputs("\n", w->rules);
    json_t *tool = json_array_get(w->lines, w->tool);
    if (json_array_append_new(w->lines, json_pack("[O, s?]", tool, key)) != 0)
        return no_memory(error);
    return 0;
}

static int put_argument(struct writing *w, const char *tool, const char *key,
                        const json_t *parameters, const json_t *schema, struct error *error)
{
    return may_be_text(schema) ? put_text(w, tool, key, schema, error)
                               : put_json(w, key, parameters, schema, error);
}

/* Arguments of any name. Where names are listed there are none: a listed one would be among them,
 * without its schema. */
static int put_other_arguments(struct writing *w, const char *tool, const json_t *parameters,
                               struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    const json_t *others = json_object_get(parameters, "additionalProperties");
    if (json_is_false(others) || json_object_size(json_object_get(parameters, "properties")) > 0)
        return 0;
    int rc = 0;
    fputs(" (", w->out);
    put_key(f, NULL, w->out);
    if (json_object_size(others) > 0)
        rc = put_argument(w, tool, NULL, parameters, others, error);
    else
        put_text_until(w->out, f->value_close);
    put_value_end(f, w->out);
    fputs(")*", w->out);
    return rc;
}

/* In the order of the properties, as in objects; without properties, any. */
static int put_arguments(struct writing *w, const char *tool, const json_t *parameters,
                         struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    json_t *properties = json_object_get(parameters, "properties"), *schema;
    const char *key;
    FILE *out = w->out;
    json_object_foreach(properties, key, schema)
    {
        if (check_size(w, error) != 0)
            return -1;
        fputs(" (", out);
        put_key(f, key, out);
        if (put_argument(w, tool, key, parameters, schema, error) != 0)
            return -1;
        put_value_end(f, out);
        fputs(is_required(parameters, key) ? ")" : ")?", out);
    }
    return put_other_arguments(w, tool, parameters, error);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static const json_t *function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}
static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(function_of(tool), "name"));
}

/* An object without a schema of its own may be any. */
static json_t *parameters_of(const json_t *tool)
{
    json_t *parameters = json_object_get(function_of(tool), "parameters");
    return json_object_size(parameters) > 0 ? json_incref(parameters)
                                            : json_pack("{s:s}", "type", "object");
}

/* {"name": NAME, "arguments": {...}} */
static void put_named(const char *name, json_t *parameters, FILE *out)
{
    json_t *value = json_string(name);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    put_quoted(out, "{\"name\": ", strlen("{\"name\": "));
    if (quoted)
        put_quoted(out, quoted, strlen(quoted));
    put_quoted(out, ", \"arguments\": ", strlen(", \"arguments\": "));
    put_schema(out, json_incref(parameters));
    put_quoted(out, "}", 1);
    free(quoted);
    json_decref(value);
}

/* The recipient is in the channel's part of the header, or before it, as templates write it. */
static void put_channel_call(const char *name, json_t *parameters, FILE *out)
{
    fputs(" (<|channel|> \"commentary to=functions.", out);
    put_inside(out, name, strlen(name));
    fputs("\" | \" to=functions.", out);
    put_inside(out, name, strlen(name));
    fputs("\" <|channel|> \"commentary\") (\" \"? <|constrain|> \"json\" | \" json\")? <|message|>",
          out);
    put_schema(out, json_incref(parameters));
}

static int put_body(struct writing *w, const char *name, json_t *parameters, struct error *error)
{
    const struct answer_form *form = w->c->form;
    const struct answer_call *f = &form->call;
    FILE *out = w->out;
    if (form->channels) {
        put_channel_call(name, parameters, out);
        return 0;
    }
    if (f->kind == ANSWER_NAMED) {
        put_named(name, parameters, out);
        return 0;
    }
    calls_put(out, f->call_open);
    calls_put(out, f->prefix);
    put_quoted(out, name, strlen(name));
    fputs(*f->prefix ? " \":\" [0-9]{1,4}" : "", out);
    if (f->kind == ANSWER_GEMMA) { /* name_end is the object's first character */
        put_spelled(out, "%gemma", json_incref(parameters));
        return 0;
    }
    calls_put(out, f->name_end);
    if (f->kind == ANSWER_OBJECT) {
        put_schema(out, json_incref(parameters));
    } else {
        fputs(" nl", out);
        if (put_arguments(w, name, parameters, error) != 0)
            return -1;
    }
    calls_put(out, f->call_close);
    return 0;
}

static bool is_chosen(const struct calls *c, const json_t *tool)
{
    return name_of(tool) && (!c->name || strcmp(c->name, name_of(tool)) == 0);
}

static int put_tools(struct writing *w, struct error *error)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(w->c->tools, i, tool)
    {
        const char *name = name_of(tool);
        bool chosen = is_chosen(w->c, tool);
        json_t *parameters = parameters_of(tool);
        fprintf(w->out, "tool%zu ::=", i);
        w->tool = i;
        int rc = json_array_insert_new(w->lines, i, json_string(name ? name : ""));
        if (rc != 0)
            no_memory(error);
        if (rc == 0 && chosen)
            rc = put_body(w, name, parameters, error);
        json_decref(parameters);
        if (rc != 0 || check_size(w, error) != 0)
            return -1;
        fputs(chosen ? "\n" : " \"\"\n", w->out);
    }
    return 0;
}

static bool put_choice(const struct calls *c, FILE *out)
{
    const json_t *tool;
    size_t i;
    bool any = false;
    fputs("any ::=", out);
    json_array_foreach(c->tools, i, tool)
    {
        if (!is_chosen(c, tool))
            continue;
        fprintf(out, "%s tool%zu", any ? " |" : "", i);
        any = true;
    }
    fputs("\n", out);
    return any;
}

/* Models whose calls have marks of their own write all of them between two marks. */
static bool in_one_block(const struct answer_call *f)
{
    return f->kind != ANSWER_NAMED && f->kind != ANSWER_GEMMA && *f->call_open && !f->lines;
}

static void put_channel_rules(FILE *out)
{
    fputs("nl ::= \"\"\ncall ::= any\ncalls ::= any\nmore ::= any\n", out);
}

static void put_rules(const struct calls *c, FILE *out)
{
    const struct answer_call *f = &c->form->call;
    const char *several = c->one            ? ""
                          : in_one_block(f) ? " (nl any)*"
                                            : "",
               *blocks = c->one || in_one_block(f) ? "" : " (nl call)*";
    fputs("nl ::= \"\\n\"?\n", out);
    if (f->kind == ANSWER_PAIRS)
        put_begin(out, f->value_close);
    fprintf(out, "rest ::= nl any%s nl", several);
    calls_put(out, f->close);
    fputs("\ncall ::=", out);
    calls_put(out, f->open);
    fprintf(out, " rest\ncalls ::= call%s\nmore ::= rest%s\n", blocks, blocks);
}

bool calls_have_grammar(const struct answer_form *form)
{
    return form->channels || form->call.open;
}

/* The tools, then the arguments. */
static int put_both(struct writing *w, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!w->lines || !(w->rules = open_memstream(&text, &bytes)))
        return no_memory(error);
    int rc = put_tools(w, error);
    if (fclose(w->rules) != 0 && rc == 0)
        rc = no_memory(error);
    if (rc == 0)
        fwrite(text, 1, bytes, w->out);
    free(text);
    return rc;
}

int calls_write(const struct calls *c, FILE *out, json_t *lines, struct error *error)
{
    struct writing w = {.c = c, .out = out, .lines = lines};
    if (put_both(&w, error) != 0)
        return -1;
    if (!put_choice(c, out))
        return c->name ? error_set(error, ERR_BAD_INPUT, "'tools' has no function '%.60s'", c->name)
                       : error_set(error, ERR_BAD_INPUT, "'tools' has no function");
    if (c->form->channels)
        put_channel_rules(out);
    else
        put_rules(c, out);
    return 0;
}
