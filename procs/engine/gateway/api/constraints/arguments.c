/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that models write one by one: each is a text up to the mark behind it, or a rule with
 * JSON. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/constraints/writing.h"

#define NESTED_MAX      8     /* values within each other that are tags; what is deeper is JSON */
#define NESTED_TEXT_END "]<]" /* that no text of nested calls has: all their marks begin so */

/* Bytes of the character at the start of a text. */
static size_t character_bytes(const char *text)
{
    size_t n = 1;
    while (((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n;
}

static void put_character(FILE *out, const char *character)
{
    if ((unsigned char)*character < 0x80)
        fprintf(out, "\\x%02x", (unsigned char)*character);
    else
        fwrite(character, 1, character_bytes(character), out);
}

/* ---- texts without a mark -------------------------------------------------------------------- */

/* A mark in characters: `at` has where each of them and the end begins. */
struct mark {
    const char *text;
    size_t at[ANSWER_MARK_BYTES_MAX + 1], count;
};

static void split(struct mark *m, const char *text)
{
    *m = (struct mark){.text = text};
    for (size_t i = 0; text[i] && m->count < ANSWER_MARK_BYTES_MAX; i += character_bytes(text + i))
        m->at[++m->count] = i + character_bytes(text + i);
}

static bool same(const struct mark *m, size_t a, size_t b)
{
    return strncmp(m->text + m->at[a], m->text + m->at[b], character_bytes(m->text + m->at[a])) ==
           0;
}

/* How many first characters of the mark are the end of its first `count` ones and of the character
 * at place c. */
static size_t matched(const struct mark *m, size_t count, size_t c)
{
    for (size_t n = count + 1; n > 0; n--)
        if (same(m, n - 1, c) &&
            memcmp(m->text, m->text + m->at[count] - m->at[n - 1], m->at[n - 1]) == 0)
            return n;
    return 0;
}

static bool is_first(const struct mark *m, size_t c)
{
    size_t n = 0;
    while (!same(m, n, c))
        n++;
    return n == c;
}

static void put_state(FILE *out, size_t state)
{
    fputs(" text", out);
    if (state > 0)
        fprintf(out, "%zu", state);
}

/* The rule of the texts whose end, so far, is the first `state` characters of the mark. */
static void put_text_rule(FILE *out, const struct mark *m, size_t state)
{
    put_state(out, state);
    fputs(" ::= \"\"", out);
    for (size_t c = 0; c < m->count; c++) {
        size_t to = is_first(m, c) ? matched(m, state, c) : 0;
        if (to == 0 || to == m->count)
            continue;
        fputs(" |", out);
        calls_put_quoted(out, m->text + m->at[c], m->at[c + 1] - m->at[c]);
        put_state(out, to);
    }
    fputs(" | [^", out);
    for (size_t c = 0; c < m->count; c++)
        if (is_first(m, c) && matched(m, state, c) > 0)
            put_character(out, m->text + m->at[c]);
    fputs("] text\n", out);
}

void calls_put_texts(FILE *out, const struct answer_call *f)
{
    struct mark m;
    split(&m, f->kind == ANSWER_NESTED ? NESTED_TEXT_END : f->value_close);
    for (size_t state = 0; state < m.count; state++)
        put_text_rule(out, &m, state);
}

/* ---- texts of arguments ---------------------------------------------------------------------- */

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

/* Whether nothing but texts is allowed. */
static bool is_text(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *one;
    bool all = json_array_size(list) > 0 || json_is_string(json_object_get(schema, "const"));
    size_t i;
    json_array_foreach(list, i, one) all = all && json_is_string(one);
    return all || json_text_is(json_object_get(schema, "type"), "string");
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
        const char *name = python_name(f, values[i]);
        if (name && allows(schema, values[i], json_is_null(values[i]) ? "null" : "boolean"))
            fprintf(out, " | \"%s\"", name);
    }
}

/* Whether calls say of each value if it is a text. */
static bool says_type(const struct answer_call *f)
{
    return f->typed || f->attributes;
}

/* Values of an enum: texts as they are, others as JSON, which forms that say the type have
 * elsewhere. False: one contains the mark. */
static bool put_enum(const struct answer_call *f, const json_t *list, FILE *out)
{
    const char *mark = f->value_close, *name;
    const json_t *one;
    size_t i, written = 0;
    fputs(" (", out);
    json_array_foreach(list, i, one)
    {
        if (says_type(f) && !json_is_string(one))
            continue;
        char *text = json_is_string(one) ? NULL : json_dumps(one, JSON_COMPACT | JSON_ENCODE_ANY);
        const char *value = text ? text : json_string_value(one);
        if (!value || strstr(value, mark))
            return free(text), false;
        fputs(written++ > 0 ? " |" : "", out);
        calls_put_quoted(out, value, strlen(value));
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
        fputs(" text", out);
        return 0;
    }
    fputs(" [^", out); /* without the first character of the mark, so that each one counts once */
    put_character(out, mark);
    fprintf(out, "]{%lld,", (long long)json_integer_value(min));
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
static int put_json(struct writing *w, const char *key, const json_t *parameters,
                    const json_t *schema, struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    fprintf(w->out, " arg%zu", w->count);
    fprintf(w->rules, "arg%zu ::=", w->count++);
    calls_put_schema(w->rules, property_schema(parameters, schema));
    put_python_names(f, schema, w->rules);
    fputs("\n", w->rules);
    json_t *tool = json_array_get(w->lines, w->tool);
    if (json_array_append_new(w->lines, json_pack("[O, s?]", tool, key)) != 0)
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
        bool is_known = strcmp(key, "title") == 0 || strcmp(key, "description") == 0 ||
                        strcmp(key, "default") == 0 || strcmp(key, "examples") == 0;
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

static int put_tags(struct writing *w, const char *tool, const char *key, const json_t *parameters,
                    const json_t *schema, bool array, struct error *error);

/* Whether the call may say that a value is a text: not where an enum has none. */
static bool has_text_form(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *one;
    bool any = !list;
    size_t i;
    json_array_foreach(list, i, one) any = any || json_is_string(one);
    return any && may_be_text(schema);
}

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
static int put_typed(struct writing *w, const char *tool, const char *key, const json_t *parameters,
                     const json_t *schema, struct error *error)
{
    const struct answer_call *f = &w->c->form->call;
    bool text = has_text_form(schema), both = text && !is_text(schema);
    fputs(both ? " (" : "", w->out);
    if (text) {
        put_type(f, true, w->out);
        if (put_text(w, tool, key, schema, error) != 0)
            return -1;
    }
    fputs(both ? " |" : "", w->out);
    if (!text || both) {
        put_type(f, false, w->out);
        if (put_json(w, key, parameters, schema, error) != 0)
            return -1;
    }
    fputs(both ? ")" : "", w->out);
    return 0;
}

static int put_argument(struct writing *w, const char *tool, const char *key,
                        const json_t *parameters, const json_t *schema, struct error *error)
{
    bool array;
    if (w->c->form->call.kind == ANSWER_NESTED && w->depth < NESTED_MAX && has_tags(schema, &array))
        return put_tags(w, tool, key, parameters, schema, array, error);
    if (says_type(&w->c->form->call))
        return put_typed(w, tool, key, parameters, schema, error);
    return may_be_text(schema) ? put_text(w, tool, key, schema, error)
                               : put_json(w, key, parameters, schema, error);
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
    int rc = 0;
    fputs(" (", w->out);
    put_key(f, NULL, w->out);
    if (json_object_size(others) > 0 || says_type(f))
        rc = put_argument(w, tool, NULL, parameters, others, error);
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
    if (says_type(f) && strchr(key, '"'))
        return error_set(error, ERR_BAD_INPUT,
                         "tool '%.60s', at $.properties.%.60s: this model's calls have no such "
                         "name; leave the quote out",
                         tool, key);
    put_key(f, key, w->out);
    if (put_argument(w, tool, outer ? outer : key, parameters, schema, error) != 0)
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

/* A value whose parts are tags; key: the argument that it is, or is within. */
static int put_tags(struct writing *w, const char *tool, const char *key, const json_t *parameters,
                    const json_t *schema, bool array, struct error *error)
{
    const json_t *min = json_object_get(schema, "minItems"), *max;
    int rc;
    w->depth++;
    fputs(" nl", w->out);
    if (array) {
        fputs(" (", w->out);
        rc = put_pair(w, tool, key, "item", parameters, json_object_get(schema, "items"), error);
        max = json_object_get(schema, "maxItems");
        fprintf(w->out, "){%lld,", (long long)json_integer_value(min));
        if (json_is_integer(max))
            fprintf(w->out, "%lld", (long long)json_integer_value(max));
        fputs("}", w->out);
    } else {
        rc = put_properties(w, tool, key, parameters, schema, error);
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
