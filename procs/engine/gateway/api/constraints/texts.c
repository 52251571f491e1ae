/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that models write as texts: these have no quotes, and end at the mark behind them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/grammar.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/constraints/writing.h"

#define NESTED_TEXT_END "]<]" /* that no text of nested calls has: all their marks begin so */
#define REFERENCES_MAX  32    /* behind each other */
#define COUNT_MAX       ((long long)((struct grammar_limits)GRAMMAR_LIMITS_DEFAULT).repeat)

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

/* ---- schemas --------------------------------------------------------------------------------- */

/* One argument that is looked at or written. */
struct texts {
    struct writing *w;
    const struct argument *of;
    unsigned left; /* schemas that may still be looked at: references may be circles */
};

static bool is_strict(const struct texts *t)
{
    return t->w->c->strict;
}

bool calls_is_note(const char *key)
{
    static const char *const keywords[] = {
#define OF_TYPE(name, type) (name),
#define OTHER(name)         (name),
#define REFUSED(name)       (name),
#include "lib/grammar/schema/keywords.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (strcmp(key, keywords[i]) == 0)
            return false;
    return true;
}

static bool stands_alone(const json_t *schema, const char *keyword)
{
    const json_t *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (strcmp(key, keyword) != 0 && !calls_is_note(key))
            return false;
    }
    return true;
}

/* The schema that says what this one says: what a reference leads to, or the only one of `allOf`,
 * where nothing else is said. */
static const json_t *resolved(const struct argument *of, const json_t *schema)
{
    for (unsigned i = 0; i < REFERENCES_MAX; i++) {
        const char *path = json_string_value(json_object_get(schema, "$ref"));
        const json_t *all = json_object_get(schema, "allOf"),
                     *next = path                        ? chat_types_referred(of->parameters, path)
                             : json_array_size(all) == 1 ? json_array_get(all, 0)
                                                         : NULL;
        if (!next || !stands_alone(schema, path ? "$ref" : "allOf"))
            break;
        schema = next;
    }
    return schema;
}

static const json_t *branches_of(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "anyOf");
    return json_array_size(list) > 0 ? list : json_object_get(schema, "oneOf");
}

static bool takes_text(struct texts *t, const json_t *schema)
{
    return chat_types_takes_text(t->of->parameters, schema, &t->left);
}

bool calls_takes_text(const struct argument *of, const json_t *schema)
{
    struct texts t = {.of = of, .left = CHAT_TYPES_SCHEMAS_MAX};
    return takes_text(&t, schema);
}

static bool only_texts(struct texts *t, const json_t *schema)
{
    const json_t *list, *one;
    bool all;
    size_t i;
    if (t->left == 0)
        return false;
    t->left--;
    schema = resolved(t->of, schema);
    list = json_object_get(schema, "enum");
    all = json_array_size(list) > 0 || json_is_string(json_object_get(schema, "const"));
    json_array_foreach(list, i, one) all = all && json_is_string(one);
    if (all || json_text_is(json_object_get(schema, "type"), "string"))
        return true;
    list = branches_of(schema);
    all = json_array_size(list) > 0;
    json_array_foreach(list, i, one) all = all && only_texts(t, one);
    return all;
}

bool calls_is_text(const struct argument *of, const json_t *schema)
{
    struct texts t = {.of = of, .left = CHAT_TYPES_SCHEMAS_MAX};
    return only_texts(&t, schema);
}

bool calls_says_type(const struct answer_call *f)
{
    return f->typed || f->attributes;
}

/* Empty lists, which serializers write of what is not there, say nothing, as for the reader. */
static bool lists_values(const json_t *schema)
{
    return json_object_get(schema, "const") || json_array_size(json_object_get(schema, "enum")) > 0;
}

static bool has_length(const json_t *schema)
{
    return json_is_integer(json_object_get(schema, "minLength")) ||
           json_is_integer(json_object_get(schema, "maxLength"));
}

/* A keyword that texts here cannot keep to, where they have to; NULL: none. */
static const char *not_enforced(const struct texts *t, const json_t *schema)
{
    static const char *const hard[] = {"pattern", "format", "allOf", "not", "$ref"};
    const char *branching = json_object_get(schema, "anyOf")   ? "anyOf"
                            : json_object_get(schema, "oneOf") ? "oneOf"
                                                               : NULL;
    for (size_t i = 0; i < ARRAY_LEN(hard) && is_strict(t); i++)
        if (json_object_get(schema, hard[i]))
            return hard[i];
    return is_strict(t) && (t->left == 0 || has_length(schema)) ? branching : NULL;
}

/* Whether any text will do, as far as it is enforced. */
static bool any_text(struct texts *t, const json_t *schema)
{
    const json_t *list, *one;
    size_t i;
    if (t->left == 0)
        return !is_strict(t);
    t->left--;
    schema = resolved(t->of, schema);
    list = branches_of(schema);
    if (lists_values(schema) || has_length(schema) || not_enforced(t, schema))
        return false;
    json_array_foreach(list, i, one) if (takes_text(t, one) && any_text(t, one)) return true;
    return json_array_size(list) == 0;
}

/* ---- texts of arguments ---------------------------------------------------------------------- */

static int cannot(const struct argument *of, const char *keyword, struct error *error)
{
    return error_set(
        error, ERR_BAD_INPUT,
        "tool '%.60s', at $.%s%.60s, %s: it cannot be enforced where the model writes texts "
        "without quotes; leave it out",
        of->tool, of->key ? "properties." : "", of->key ? of->key : "additionalProperties",
        keyword);
}

/* Values of an enum or a const: texts as they are, others as JSON, which forms that say the type
 * have elsewhere. False: one contains the mark, or there is none. */
static bool put_values(const struct answer_call *f, const json_t *schema, FILE *out)
{
    const char *mark = f->value_close, *name;
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    size_t count = only ? 1 : json_array_size(list), written = 0;
    fputs(" (", out);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = only ? only : json_array_get(list, i);
        if (calls_says_type(f) && !json_is_string(one))
            continue;
        char *text = json_is_string(one) ? NULL : json_dumps(one, JSON_COMPACT | JSON_ENCODE_ANY);
        const char *value = text ? text : json_string_value(one);
        if (!value || strstr(value, mark))
            return free(text), false;
        fputs(written++ > 0 ? " |" : "", out);
        calls_put_quoted(out, value, strlen(value));
        free(text);
        if ((name = calls_python_name(f, one)) != NULL)
            fprintf(out, " | \"%s\"", name);
    }
    fputs(")", out);
    return written > 0;
}

int calls_put_counts(struct writing *w, const struct argument *of, const json_t *schema,
                     const char *min_key, const char *max_key, struct error *error)
{
    const json_t *most = json_object_get(schema, max_key);
    long long min = json_integer_value(json_object_get(schema, min_key)),
              max = json_is_integer(most) ? json_integer_value(most) : LLONG_MAX;
    bool above = max != LLONG_MAX && max > COUNT_MAX;
    if (min < 0 || min > COUNT_MAX || max < min)
        return cannot(of, min_key, error);
    if (above && w->c->strict)
        return cannot(of, max_key, error);
    fprintf(w->out, "{%lld,", min);
    if (max <= COUNT_MAX)
        fprintf(w->out, "%lld", max);
    fputs("}", w->out);
    return 0;
}

/* Without the first character of the mark, so that each one counts once. */
static int put_counted(struct texts *t, const json_t *schema, struct error *error)
{
    fputs(" [^", t->w->out);
    put_character(t->w->out, t->w->c->form->call.value_close);
    fputs("]", t->w->out);
    return calls_put_counts(t->w, t->of, schema, "minLength", "maxLength", error);
}

static int put_schema(struct texts *t, const json_t *schema, struct error *error);

/* Branches that are no texts are JSON, as the values of an enum. */
static int put_branches(struct texts *t, const json_t *list, struct error *error)
{
    FILE *out = t->w->out;
    const json_t *one;
    size_t i, written = 0;
    fputs(" (", out);
    json_array_foreach(list, i, one)
    {
        bool text = takes_text(t, one);
        if (!text && calls_says_type(&t->w->c->form->call))
            continue;
        fputs(written++ > 0 ? " |" : "", out);
        if (calls_check_size(t->w, error) != 0 ||
            (text ? put_schema(t, one, error) : calls_put_json(t->w, t->of, one, error)) != 0)
            return -1;
    }
    fputs(")", out);
    return written > 0 ? 0 : cannot(t->of, "anyOf", error);
}

static int put_schema(struct texts *t, const json_t *schema, struct error *error)
{
    const struct answer_call *f = &t->w->c->form->call;
    FILE *out = t->w->out;
    schema = resolved(t->of, schema);
    const json_t *only = json_object_get(schema, "const"), *list = branches_of(schema);
    const char *keyword = not_enforced(t, schema);
    if (lists_values(schema))
        return put_values(f, schema, out) ? 0 : cannot(t->of, only ? "const" : "enum", error);
    if (keyword)
        return cannot(t->of, keyword, error);
    if (has_length(schema))
        return put_counted(t, schema, error);
    if (json_array_size(list) > 0 && t->left > 0)
        return put_branches(t, list, error);
    fputs(" text", out);
    return 0;
}

int calls_put_text(struct writing *w, const struct argument *of, const json_t *schema,
                   struct error *error)
{
    struct texts any = {w, of, CHAT_TYPES_SCHEMAS_MAX}, all = any;
    if (!any_text(&any, schema))
        return put_schema(&all, schema, error);
    fputs(" text", w->out);
    return 0;
}
