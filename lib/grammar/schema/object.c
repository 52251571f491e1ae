/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: the members in the order of `properties`, then required ones that are not listed there,
 * then others. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/grammar/schema/compiler.h"

struct members {
    const json_t *properties, *required, *additional;
    const json_t *names; /* required_names */
    bool call;           /* they are arguments: NAME=VALUE, without braces around them */
    bool open;           /* names that are not listed are allowed */
    expr_id other;       /* a member with such a name */
    uint32_t others_min, others_max;
};

static bool is_required(const struct members *m, const char *name)
{
    return json_object_get(m->names, name) != NULL;
}

/* The names of `required` as the keys of an object, for look-ups. */
static void required_names(struct compiler *c, struct members *m)
{
    const json_t *one;
    json_t *names = json_object();
    size_t i;
    json_array_append_new(c->made, names);
    m->names = names;
    json_array_foreach(m->required, i, one)
    {
        const char *name = json_string_value(one);
        if (!name || json_object_get(names, name))
            schema_fail(c, "required", "it has something else than different names");
        else
            json_object_set_new(names, name, json_true());
    }
}

/* What stands before a value. */
static expr_id with_colon(struct compiler *c, const struct members *m, expr_id key)
{
    return expr_sequence(&c->pool, key, m->call ? expr_string(&c->pool, "=") : schema_colon(c));
}

static expr_id member(struct compiler *c, const struct members *m, const char *name, expr_id value)
{
    expr_id key = m->call ? schema_argument(c, name) : schema_key(c, name);
    return expr_sequence(&c->pool, with_colon(c, m, key), value);
}

static expr_id property(struct compiler *c, const struct members *m, const char *name,
                        const json_t *schema)
{
    size_t outer = schema_enter(c, "properties", 0);
    schema_enter(c, name, 0);
    expr_id value = schema_compile(c, schema);
    schema_leave(c, outer);
    return member(c, m, name, value);
}

static expr_id other_value(struct compiler *c, const struct members *m)
{
    if (!m->additional || json_is_true(m->additional))
        return schema_any(c);
    size_t outer = schema_enter(c, "additionalProperties", 0);
    expr_id value = schema_compile(c, m->additional);
    schema_leave(c, outer);
    return value;
}

/* A key that is not listed, its quotes included. */
static expr_id other_member(struct compiler *c, const struct members *m)
{
    uint32_t first = c->pool.words_count, count;
    const char *name;
    const json_t *ignored;
    size_t i;
    json_object_foreach((json_t *)m->properties, name, ignored)
    {
        json_t *key = json_string(name);
        schema_add_word(c, key);
        json_decref(key);
    }
    json_array_foreach(m->required, i,
                       ignored) if (!json_object_get(m->properties, json_string_value(ignored)))
        schema_add_word(c, ignored);
    if (c->failed || c->pool.failed != ERR_NONE)
        return EXPR_NEVER;
    count = c->pool.words_count - first;
    for (i = 0; i < count && !c->gemma; i++) { /* the quotes are not part of what is avoided */
        c->pool.words[first + i].offset++;
        c->pool.words[first + i].bytes -= 2;
    }
    expr_id e = m->call ? schema_other_argument(c) : schema_other_key(c, first, count);
    return expr_sequence(&c->pool, with_colon(c, m, e), other_value(c, m));
}

/* What follows the last listed member: `before` says whether there was one. */
static expr_id others(struct compiler *c, const struct members *m, bool before)
{
    if (!m->open || m->others_max == 0)
        return m->others_min ? EXPR_NEVER : EXPR_EMPTY;
    expr_id more = expr_sequence(&c->pool, schema_comma(c), m->other);
    if (before)
        return expr_repeat(&c->pool, more, m->others_min, m->others_max);
    uint32_t max = m->others_max == EXPR_UNBOUNDED ? EXPR_UNBOUNDED : m->others_max - 1;
    expr_id e = expr_sequence(&c->pool, m->other, expr_repeat(&c->pool, more, 0, max));
    return m->others_min ? e : expr_optional(&c->pool, e);
}

/* The listed members are taken from the last to the first: first[0] what follows when no member was
 * written yet, first[1] when there was one. Rules, so that they are made once each. */
static void put_before(struct compiler *c, expr_id rest[2], expr_id one, bool required)
{
    expr_id with = expr_sequence(&c->pool, one, rest[1]);
    expr_id then = expr_sequence(&c->pool, schema_comma(c), with);
    expr_id now[2] = {with, then};
    for (int i = 0; i < 2; i++) {
        uint32_t rule = expr_new_rule(&c->pool);
        expr_define(&c->pool, rule, required ? now[i] : expr_choice(&c->pool, now[i], rest[i]));
        now[i] = expr_rule(&c->pool, rule);
    }
    rest[0] = now[0];
    rest[1] = now[1];
}

/* Required names that are not listed, the last first. */
static void put_unlisted(struct compiler *c, const struct members *m, expr_id rest[2])
{
    for (size_t i = json_array_size(m->required); i-- > 0 && !c->failed;) {
        const char *name = json_string_value(json_array_get(m->required, i));
        if (json_object_get(m->properties, name))
            continue;
        else if (json_is_false(m->additional))
            schema_fail(c, "required", "it has a name that additionalProperties forbids");
        else
            put_before(c, rest, member(c, m, name, other_value(c, m)), true);
    }
}

/* As templates sort the arguments of calls. */
static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    int order = strcasecmp(*x, *y);
    return order ? order : strcmp(*x, *y);
}

static void put_listed(struct compiler *c, const struct members *m, expr_id rest[2])
{
    size_t count = json_object_size(m->properties), i = 0;
    const char **names = calloc(count + 1, sizeof(*names)), *name;
    const json_t *schema;
    if (!names) {
        c->pool.failed = ERR_NO_MEMORY;
        return;
    }
    json_object_foreach((json_t *)m->properties, name, schema) names[i++] = name;
    if (c->gemma)
        qsort(names, count, sizeof(*names), by_name);
    while (i-- > 0 && !c->failed && c->pool.failed == ERR_NONE)
        put_before(c, rest, property(c, m, names[i], json_object_get(m->properties, names[i])),
                   is_required(m, names[i]));
    free(names);
}

/* Names may come twice, so others count once at most for a least number. */
static void count_others(struct compiler *c, const json_t *schema, struct members *m)
{
    uint32_t min = schema_count(c, schema, "minProperties", 0);
    uint32_t max = schema_count(c, schema, "maxProperties", EXPR_UNBOUNDED);
    size_t listed = json_object_size(m->properties), required = json_array_size(m->required);
    m->others_max = EXPR_UNBOUNDED;
    if (max != EXPR_UNBOUNDED) {
        if (listed + required > max)
            schema_fail(c, "maxProperties", "fewer than the listed names cannot be enforced");
        m->others_max = max - (uint32_t)(listed + required);
    }
    if (min > required) {
        m->others_min = 1;
        if (min > required + 1 || !m->open)
            schema_fail(c, "minProperties", "more than the required names cannot be enforced");
    }
}

static bool check(struct compiler *c, const json_t *schema, const struct members *m)
{
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *names = json_object_get(schema, "propertyNames");
    if (m->properties && !json_is_object(m->properties))
        schema_fail(c, "properties", "it is no object");
    if (m->required && !json_is_array(m->required))
        schema_fail(c, "required", "it is no array");
    if (patterns && json_object_size(patterns) > 0)
        schema_fail(c, "patternProperties", "this keyword cannot be enforced; list the names");
    if (names && !json_is_true(names))
        schema_fail(c, "propertyNames", "this keyword cannot be enforced; list the names");
    return !c->failed;
}

expr_id schema_object(struct compiler *c, const json_t *schema)
{
    struct members m = {.properties = json_object_get(schema, "properties"),
                        .required = json_object_get(schema, "required"),
                        .additional = json_object_get(schema, "additionalProperties"),
                        .call = c->call};
    c->call = false;
    if (!check(c, schema, &m))
        return EXPR_NEVER;
    required_names(c, &m);
    if (c->failed)
        return EXPR_NEVER;
    m.open = m.additional ? !json_is_false(m.additional) : json_object_size(m.properties) == 0;
    if ((c->gemma || m.call) &&
        (json_object_size(m.properties) > 0 || json_object_size(m.names) > 0))
        m.open = false; /* a name without quotes is not told from a listed one */
    count_others(c, schema, &m);
    m.other = m.open ? other_member(c, &m) : EXPR_NEVER;
    expr_id rest[2] = {others(c, &m, false), others(c, &m, true)};
    put_unlisted(c, &m, rest);
    put_listed(c, &m, rest);
    if (m.call)
        return rest[0];
    expr_id e = expr_sequence(&c->pool, expr_string(&c->pool, "{"), rest[0]);
    return expr_sequence(&c->pool, e, expr_string(&c->pool, "}"));
}
