/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that models write one by one: each is a text (texts.c), or a rule with JSON. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/constraints/writing.h"

#define NESTED_MAX 8 /* values within each other that are tags; what is deeper is JSON */

/* ---- values that are JSON -------------------------------------------------------------------- */

static bool has_text(const json_t *list, const char *text)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_text_is(one, text)) return true;
    return false;
}

static bool has_value(const json_t *list, const json_t *value)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_equal(one, value)) return true;
    return false;
}

static const char *const branching[] = {"anyOf", "oneOf"};

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

const char *calls_python_name(const struct answer_call *f, const json_t *value)
{
    return !f->python || !value                             ? NULL
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
        const char *name = calls_python_name(f, values[i]);
        if (name && allows(schema, values[i], json_is_null(values[i]) ? "null" : "boolean"))
            fprintf(out, " | \"%s\"", name);
    }
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
        calls_put_quoted(out, key, strlen(key));
    else
        fputs(" [^<>\\n\"]+", out);
    if (f->attributes)
        return; /* put_typed writes the rest of the mark */
    calls_put(out, f->key_end);
    /* without a mark before the value, a line feed would be of the value */
    fputs(f->lines ? " \"\\n\"" : *f->value_open ? " nl" : "", out);
    calls_put(out, f->value_open);
}

static void put_value_end(const struct answer_call *f, const char *key, FILE *out)
{
    fputs(f->lines ? " \"\\n\"" : "", out);
    calls_put(out, f->value_close);
    if (f->kind == ANSWER_NESTED) {
        calls_put_quoted(out, key, strlen(key));
        calls_put(out, f->key_end);
    }
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

/* A rule of its own, so that the line of an error tells the argument. Its entry has the name of the
 * tool's own entry, not a copy: there may be thousands of arguments. */
int calls_put_json(struct writing *w, const struct argument *of, const json_t *schema,
                   struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    fprintf(w->out, " arg%zu", w->count);
    fprintf(w->rules, "arg%zu ::=", w->count++);
    calls_put_schema(w->rules, property_schema(of->parameters, schema));
    put_python_names(f, schema, w->rules);
    fputs("\n", w->rules);
    json_t *tool = json_array_get(w->lines, w->tool);
    if (json_array_append_new(w->lines, json_pack("[O, s?]", tool, of->key)) != 0)
        return calls_no_memory(error);
    return 0;
}

static bool requires_unlisted(const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties"), *one;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i,
                       one) if (json_is_string(one) &&
                                !json_object_get(properties, json_string_value(one))) return true;
    return false;
}

/* Whether a value is one of tags in tags for certain, whose schema says nothing beside what
 * put_tags writes. Others are JSON, which such a model's calls may have, too. */
static bool has_tags(const json_t *schema, bool *array)
{
    static const char *const known[] = {"type",  "properties", "required", "additionalProperties",
                                        "items", "minItems",   "maxItems"};
    const json_t *inner;
    const char *key;
    size_t i, others = 0;
    json_object_foreach((json_t *)(uintptr_t)schema, key, inner)
    {
        bool is_known = calls_is_note(key);
        for (i = 0; i < ARRAY_LEN(known); i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        others += !is_known;
    }
    *array = json_text_is(json_object_get(schema, "type"), "array");
    bool members = json_object_size(json_object_get(schema, "properties")) > 0;
    return others == 0 && !requires_unlisted(schema) &&
           (*array ? json_is_object(json_object_get(schema, "items")) && !members
                   : json_text_is(json_object_get(schema, "type"), "object") && members &&
                         !json_object_get(schema, "items"));
}

static int put_tags(struct writing *w, const struct argument *of, const json_t *schema, bool array,
                    struct error *error);

static void put_type(const struct answer_call *f, bool text, FILE *out)
{
    if (f->typed) {
        fprintf(out, " \" string=\\\"%s\\\">\"", text ? "true" : "false");
        return;
    }
    fputs(" \"\\\" type=\\\"\"", out);
    fputs(text ? " \"string\""
               : " (\"number\" | \"integer\" | \"boolean\" | \"object\" | \"array\" | \"null\")",
          out);
    fputs(" \"\\\"\"", out);
    calls_put(out, f->key_end);
}

/* With what says whether it is a text. Where a schema allows both, so does the call. */
static int put_typed(struct writing *w, const struct argument *of, const json_t *schema,
                     struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    bool text = calls_takes_text(of, schema), both = text && !calls_is_text(of, schema);
    fputs(both ? " (" : "", w->out);
    if (text) {
        put_type(f, true, w->out);
        if (calls_put_text(w, of, schema, error) != 0)
            return -1;
    }
    fputs(both ? " |" : "", w->out);
    if (!text || both) {
        put_type(f, false, w->out);
        if (calls_put_json(w, of, schema, error) != 0)
            return -1;
    }
    fputs(both ? ")" : "", w->out);
    return 0;
}

static int put_argument(struct writing *w, const struct argument *of, const json_t *schema,
                        struct error *error)
{
    bool array;
    if (w->c->form->call.kind == ANSWER_NESTED && w->depth < NESTED_MAX && has_tags(schema, &array))
        return put_tags(w, of, schema, array, error);
    if (calls_says_type(&w->c->form->call))
        return put_typed(w, of, schema, error);
    return calls_takes_text(of, schema) ? calls_put_text(w, of, schema, error)
                                        : calls_put_json(w, of, schema, error);
}

/* What gives arguments that the properties do not list. */
static bool has_others(const json_t *parameters)
{
    static const char *const keys[] = {"$ref", "allOf", "anyOf", "oneOf", "additionalProperties"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(parameters, keys[i]))
            return true;
    return false;
}

/* Arguments of any name. Where names are listed there are none: a listed one would be among them,
 * without its schema. */
static int put_other_arguments(struct writing *w, const char *tool, const json_t *parameters,
                               struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    const json_t *others = json_object_get(parameters, "additionalProperties");
    bool lists = json_object_size(json_object_get(parameters, "properties")) > 0;
    if (lists || json_is_false(others))
        return 0;
    if (f->kind == ANSWER_NESTED) /* a tag has the name of its argument at both ends */
        return json_object_get(parameters, "properties") && !has_others(parameters)
                   ? 0
                   : error_set(error, ERR_BAD_INPUT,
                               "tool '%.60s': this model's calls need the names of the arguments; "
                               "list them as properties",
                               tool);
    struct argument any = {tool, NULL, parameters};
    int rc = 0;
    fputs(" (", w->out);
    put_key(f, NULL, w->out);
    if (json_object_size(others) > 0 || calls_says_type(f))
        rc = put_argument(w, &any, others, error);
    else
        fputs(" text", w->out);
    put_value_end(f, NULL, w->out);
    fputs(")*", w->out);
    return rc;
}

/* One with its marks. outer: the argument that it is within, or NULL. */
static int put_pair(struct writing *w, const char *tool, const char *outer, const char *key,
                    const json_t *parameters, const json_t *schema, struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    if (calls_says_type(f) && strchr(key, '"'))
        return error_set(error, ERR_BAD_INPUT,
                         "tool '%.60s', at $.properties.%.60s: this model's calls have no such "
                         "name; leave the quote out",
                         tool, key);
    struct argument of = {tool, outer ? outer : key, parameters};
    put_key(f, key, w->out);
    if (put_argument(w, &of, schema, error) != 0)
        return -1;
    put_value_end(f, key, w->out);
    return 0;
}

static int put_properties(struct writing *w, const char *tool, const char *outer,
                          const json_t *parameters, const json_t *schema, struct error *error)
{
    json_t *properties = json_object_get(schema, "properties"), *one;
    const char *key;
    json_object_foreach(properties, key, one)
    {
        if (calls_check_size(w, error) != 0)
            return -1;
        fputs(" (", w->out);
        if (put_pair(w, tool, outer, key, parameters, one, error) != 0)
            return -1;
        fputs(is_required(schema, key) ? ")" : ")?", w->out);
    }
    return 0;
}

/* A value whose parts are tags; `of` is the argument that it is, or is within. */
static int put_tags(struct writing *w, const struct argument *of, const json_t *schema, bool array,
                    struct error *error)
{
    int rc;
    w->depth++;
    fputs(" nl", w->out);
    if (array) {
        fputs(" (", w->out);
        rc = put_pair(w, of->tool, of->key, "item", of->parameters,
                      json_object_get(schema, "items"), error);
        fputs(")", w->out);
        if (rc == 0)
            rc = calls_put_counts(w, of, schema, "minItems", "maxItems", error);
    } else {
        rc = put_properties(w, of->tool, of->key, of->parameters, schema, error);
    }
    w->depth--;
    return rc;
}

int calls_put_arguments(struct writing *w, const char *tool, const json_t *parameters,
                        struct error *error)
{
    if (put_properties(w, tool, NULL, parameters, parameters, error) != 0)
        return -1;
    return put_other_arguments(w, tool, parameters, error);
}
