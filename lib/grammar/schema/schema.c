/* SPDX-License-Identifier: Apache-2.0 */
/* The compiler for JSON Schema: keywords that combine schemas, values, and the choice by type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/program.h"
#include "lib/grammar/schema/compiler.h"
#include "lib/json/reader.h"
#include "lib/json/text.h"
#include "lib/text/printable.h"

expr_id schema_fail(struct compiler *c, const char *keyword, const char *what)
{
    if (!c->failed) {
        struct printable path = printable(c->path, strlen(c->path));
        error_set(c->error, ERR_BAD_INPUT, "JSON Schema, at %s%s%s: %s", path.text,
                  keyword ? ", " : "", keyword ? keyword : "", what);
    }
    c->failed = true;
    return EXPR_NEVER;
}

size_t schema_enter(struct compiler *c, const char *key, size_t index)
{
    size_t length = strlen(c->path);
    if (key)
        snprintf(c->path + length, sizeof(c->path) - length, ".%s", key);
    else
        snprintf(c->path + length, sizeof(c->path) - length, "[%zu]", index);
    return length;
}

void schema_leave(struct compiler *c, size_t length)
{
    c->path[length] = '\0';
}

expr_id schema_comma(struct compiler *c)
{
    return expr_sequence(&c->pool, expr_string(&c->pool, ","),
                         expr_optional(&c->pool, expr_string(&c->pool, " ")));
}

expr_id schema_colon(struct compiler *c)
{
    return expr_sequence(&c->pool, expr_string(&c->pool, ":"),
                         expr_optional(&c->pool, expr_string(&c->pool, " ")));
}

/* The shortest spelling of reals that is the same value. */
static char *value_text(const json_t *value)
{
    for (size_t digits = 15; digits < 17; digits++) {
        char *text =
            json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        bool same = again && json_equal(again, value);
        json_decref(again);
        if (same)
            return text;
        free(text);
    }
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

static expr_id scalar(struct compiler *c, const json_t *value)
{
    if (json_is_null(value))
        return schema_null(c);
    if (json_is_boolean(value))
        return schema_boolean(c, json_is_true(value));
    if (c->gemma && json_is_string(value)) {
        uint32_t first = c->pool.words_count;
        schema_add_word(c, value);
        return schema_texts(c, first, c->pool.words_count - first);
    }
    char *text = value_text(value);
    expr_id e = text ? expr_string(&c->pool, text) : EXPR_NEVER;
    if (!text)
        c->pool.failed = ERR_NO_MEMORY;
    free(text);
    return e;
}

/* Containers have the optional spaces that others have, too. The reader bounds their depth. */
expr_id schema_value(struct compiler *c, const json_t *value)
{
    const json_t *one;
    const char *key;
    size_t i;
    if (!json_is_object(value) && !json_is_array(value))
        return scalar(c, value);
    expr_id e = expr_string(&c->pool, json_is_array(value) ? "[" : "{"), none = e;
    json_array_foreach(value, i, one)
    {
        e = expr_sequence(&c->pool, e, e == none ? EXPR_EMPTY : schema_comma(c));
        e = expr_sequence(&c->pool, e, schema_value(c, one));
    }
    json_object_foreach((json_t *)value, key, one)
    {
        e = expr_sequence(&c->pool, e, e == none ? EXPR_EMPTY : schema_comma(c));
        e = expr_sequence(&c->pool, e, schema_key(c, key));
        e = expr_sequence(&c->pool, e, schema_colon(c));
        e = expr_sequence(&c->pool, e, schema_value(c, one));
    }
    return expr_sequence(&c->pool, e, expr_string(&c->pool, json_is_array(value) ? "]" : "}"));
}

void schema_add_word(struct compiler *c, const json_t *value)
{
    char *text =
        c->gemma && json_is_string(value) ? strdup(json_string_value(value)) : value_text(value);
    if (!text)
        c->pool.failed = ERR_NO_MEMORY;
    else if (strlen(text) > EXPR_WORD_BYTES_MAX)
        schema_fail(c, NULL, "a value or a name that is longer than 1024 bytes; shorten it");
    else
        expr_add_word(&c->pool, text, strlen(text));
    free(text);
}

uint32_t schema_count(struct compiler *c, const json_t *schema, const char *key, uint32_t absent)
{
    const json_t *value = json_object_get(schema, key);
    if (!value)
        return absent;
    double n = json_is_number(value) ? json_number_value(value) : -1;
    if (n < 0 || n != (double)(uint64_t)(n < 1e15 ? n : 0)) {
        schema_fail(c, key, "it is no count");
        return absent;
    }
    return n < EXPR_UNBOUNDED ? (uint32_t)n : EXPR_UNBOUNDED - 1;
}

/* ---- values ---- */

static bool type_is(const json_t *value, const char *type)
{
    if (json_is_string(value))
        return strcmp(type, "string") == 0;
    if (json_is_object(value) || json_is_array(value))
        return strcmp(type, json_is_object(value) ? "object" : "array") == 0;
    if (json_is_boolean(value) || json_is_null(value))
        return strcmp(type, json_is_null(value) ? "null" : "boolean") == 0;
    bool whole = json_is_integer(value) ||
                 (json_real_value(value) > -1e15 && json_real_value(value) < 1e15 &&
                  json_real_value(value) == (double)(int64_t)json_real_value(value));
    return strcmp(type, "number") == 0 || (whole && strcmp(type, "integer") == 0);
}

static bool type_allows(const json_t *schema, const json_t *value)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    size_t i;
    if (!type || (json_is_null(value) && json_is_true(json_object_get(schema, "nullable"))))
        return true;
    if (json_is_string(type))
        return type_is(value, json_string_value(type));
    json_array_foreach(type, i, one) if (json_is_string(one) &&
                                         type_is(value, json_string_value(one))) return true;
    return false;
}

static bool only_values(struct compiler *c, const json_t *schema)
{
    static const char *const with[] = {"enum", "const", "type", "nullable", "uniqueItems"};
    const json_t *value;
    const char *key;
    json_object_foreach((json_t *)schema, key, value)
    {
        bool fits = schema_is_annotation(key) ||
                    (strcmp(key, "format") == 0 && !schema_knows_format(schema));
        for (size_t i = 0; i < ARRAY_LEN(with); i++)
            fits |= strcmp(key, with[i]) == 0;
        if (!fits)
            schema_fail(c, key, "beside enum or const it is not supported; filter the values");
    }
    return !c->failed;
}

/* Whether the spelling has another name for it than JSON. */
static bool has_names(const struct compiler *c, const json_t *value)
{
    return ((c->gemma || c->python) && json_is_null(value)) ||
           (c->python && json_is_boolean(value));
}

/* Those that are words of their own kind: texts in the other spelling, and other scalars. */
static bool is_word(const struct compiler *c, const json_t *value, bool texts)
{
    bool scalar = !json_is_object(value) && !json_is_array(value);
    bool text = c->gemma && json_is_string(value);
    return scalar && text == texts && !has_names(c, value);
}

/* The values of an array that have the type: words become one tree. */
static expr_id listed(struct compiler *c, const json_t *schema, const json_t *list)
{
    const json_t *one;
    uint32_t first = c->pool.words_count, texts, count;
    size_t i;
    json_array_foreach(list, i, one) if (is_word(c, one, true) && type_allows(schema, one))
        schema_add_word(c, one);
    texts = c->pool.words_count - first;
    json_array_foreach(list, i, one) if (is_word(c, one, false) && type_allows(schema, one))
        schema_add_word(c, one);
    json_array_foreach(list, i, one) if (c->python && json_is_string(one) &&
                                         type_allows(schema, one)) schema_add_single_quoted(c, one);
    count = c->pool.words_count - first - texts;
    expr_id e = texts ? schema_texts(c, first, texts) : EXPR_NEVER;
    e = expr_choice(&c->pool, e, count ? expr_words(&c->pool, first + texts, count) : EXPR_NEVER);
    json_array_foreach(list, i, one)
    {
        if (!is_word(c, one, true) && !is_word(c, one, false) && type_allows(schema, one))
            e = expr_choice(&c->pool, e, schema_value(c, one));
    }
    return e;
}

static expr_id values(struct compiler *c, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    const json_t *one;
    bool found = !list;
    size_t i;
    if (list && !json_is_array(list))
        return schema_fail(c, "enum", "it is no array");
    if (!only_values(c, schema))
        return EXPR_NEVER;
    json_array_foreach(list, i, one) found |= only && json_equal(one, only);
    json_t *single = only && found ? json_pack("[O]", only) : json_array();
    expr_id e = listed(c, schema, only ? single : list);
    json_decref(single);
    return e == EXPR_NEVER ? schema_fail(c, list ? "enum" : "const", "no value is possible") : e;
}

/* Any JSON: its depth is bounded by the automaton's. */
expr_id schema_any(struct compiler *c)
{
    if (!c->has_any) {
        json_t *empty = json_object();
        c->has_any = true;
        c->any_rule = expr_new_rule(&c->pool);
        expr_id e = schema_null(c);
        e = expr_choice(&c->pool, e, schema_boolean(c, true));
        e = expr_choice(&c->pool, e, schema_boolean(c, false));
        e = expr_choice(&c->pool, e, schema_number(c, empty, false));
        e = expr_choice(&c->pool, e, schema_string(c, empty));
        e = expr_choice(&c->pool, e, schema_array(c, empty));
        e = expr_choice(&c->pool, e, schema_object(c, empty));
        expr_define(&c->pool, c->any_rule, e);
        json_decref(empty);
    }
    return expr_rule(&c->pool, c->any_rule);
}

/* ---- types ---- */

static expr_id one_type(struct compiler *c, const json_t *schema, const char *type)
{
    if (strcmp(type, "null") == 0)
        return schema_null(c);
    if (strcmp(type, "boolean") == 0)
        return expr_choice(&c->pool, schema_boolean(c, true), schema_boolean(c, false));
    if (strcmp(type, "object") == 0)
        return schema_object(c, schema);
    if (strcmp(type, "array") == 0)
        return schema_array(c, schema);
    if (strcmp(type, "string") == 0)
        return schema_string(c, schema);
    if (strcmp(type, "number") == 0 || strcmp(type, "integer") == 0)
        return schema_number(c, schema, type[0] == 'i');
    return schema_fail(c, "type", "there is no such type");
}

/* Keywords that speak of one type: without `type`, they choose it. */
static const struct {
    const char *key, *type;
} of_type[] = {
#define OF_TYPE(name, type) {name, type},
#include "lib/grammar/schema/keywords.tbl.h"
};

static expr_id implied_types(struct compiler *c, const json_t *schema)
{
    expr_id e = EXPR_NEVER;
    const char *last = NULL;
    for (size_t i = 0; i < ARRAY_LEN(of_type); i++)
        if (json_object_get(schema, of_type[i].key) &&
            (!last || strcmp(last, of_type[i].type) != 0)) {
            last = of_type[i].type;
            e = expr_choice(&c->pool, e, one_type(c, schema, last));
        }
    return last ? e : schema_any(c);
}

static expr_id by_type(struct compiler *c, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    expr_id e = EXPR_NEVER;
    size_t i;
    if (!type) {
        e = implied_types(c, schema);
    } else if (json_is_string(type)) {
        e = one_type(c, schema, json_string_value(type));
    } else if (json_is_array(type)) {
        json_array_foreach(type, i, one)
        {
            const char *name = json_string_value(one);
            e = expr_choice(&c->pool, e, one_type(c, schema, name ? name : ""));
        }
    } else {
        return schema_fail(c, "type", "it is neither a name nor an array of names");
    }
    if (type && json_is_true(json_object_get(schema, "nullable")))
        e = expr_choice(&c->pool, e, schema_null(c));
    return e;
}

/* ---- schemas of schemas ---- */

/* The schema without a keyword; NULL if nothing but annotations is left. */
static json_t *without(struct compiler *c, const json_t *schema, const char *keyword)
{
    json_t *rest = json_object(), *value;
    const char *key;
    bool any = false;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (strcmp(key, keyword) == 0 || schema_is_annotation(key))
            continue;
        json_object_set(rest, key, value);
        any = true;
    }
    json_array_append_new(c->made, rest);
    return any ? rest : NULL;
}

static bool exclusive(struct compiler *c, const json_t *branches)
{
    size_t n = json_array_size(branches);
    for (size_t i = 0; i < n && n <= 100; i++)
        for (size_t j = 0; j < i; j++)
            if (!schema_disjoint(c, json_array_get(branches, i), json_array_get(branches, j)))
                return false;
    return n <= 100;
}

static expr_id branches(struct compiler *c, const json_t *schema, const char *keyword)
{
    const json_t *list = json_object_get(schema, keyword), *one;
    const json_t *rest = without(c, schema, keyword);
    expr_id e = EXPR_NEVER;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_fail(c, keyword, "it is no array of schemas");
    if (keyword[0] == 'o' && !exclusive(c, list))
        return schema_fail(c, keyword,
                           "two of its schemas may hold at once; write anyOf, or tell them "
                           "apart by type, or by a required property with const");
    size_t length = schema_enter(c, keyword, 0);
    json_array_foreach(list, i, one)
    {
        size_t inner = schema_enter(c, NULL, i);
        const json_t *merged = rest ? schema_merge(c, schema_resolve(c, one), rest) : one;
        e = expr_choice(&c->pool, e, schema_compile(c, merged));
        schema_leave(c, inner);
    }
    schema_leave(c, length);
    return e;
}

static expr_id all_of(struct compiler *c, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "allOf"), *one;
    const json_t *merged = without(c, schema, "allOf");
    size_t i;
    if (!json_is_array(list))
        return schema_fail(c, "allOf", "it is no array of schemas");
    json_array_foreach(list, i, one)
    {
        const json_t *next = schema_resolve(c, one);
        merged = merged ? schema_merge(c, merged, next) : next;
    }
    return merged ? schema_compile(c, merged) : c->failed ? EXPR_NEVER : schema_any(c);
}

/* A target is compiled later, once: recursion through $ref is a rule that calls itself. */
static expr_id reference(struct compiler *c, const json_t *schema)
{
    const json_t *rest = without(c, schema, "$ref");
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *target = schema_target(c, ref);
    if (!target)
        return EXPR_NEVER;
    if (rest && json_object_get(rest, "$defs") == NULL &&
        json_object_get(rest, "definitions") == NULL)
        return schema_compile(c, schema_merge(c, schema_resolve(c, target), rest));
    for (uint32_t i = 0; i < c->targets_count; i++)
        if (c->targets[i].schema == target)
            return expr_rule(&c->pool, c->targets[i].rule);
    if (schema_leads_back(c, target))
        return schema_fail(c, "$ref", "it leads back to itself");
    if (c->targets_count == c->targets_room) {
        uint32_t room = c->targets_room ? c->targets_room * 2 : 16;
        void *bigger = room > 8192 ? NULL : realloc(c->targets, room * sizeof(*c->targets));
        if (!bigger)
            return schema_fail(c, "$ref", "too many different references");
        c->targets = bigger;
        c->targets_room = room;
    }
    uint32_t rule = expr_new_rule(&c->pool);
    c->targets[c->targets_count++] = (struct schema_target){target, rule, strdup(ref)};
    return expr_rule(&c->pool, rule);
}

static bool unsupported(struct compiler *c, const json_t *schema)
{
    static const char *const keys[] = {
#define REFUSED(name) name,
#include "lib/grammar/schema/keywords.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(schema, keys[i])) {
            schema_fail(c, keys[i], "this keyword cannot be enforced; leave it out");
            return true;
        }
    if (json_is_true(json_object_get(schema, "uniqueItems"))) {
        schema_fail(c, "uniqueItems", "this keyword cannot be enforced; leave it out");
        return true;
    }
    return false;
}

static expr_id compile(struct compiler *c, const json_t *schema)
{
    if (json_is_boolean(schema))
        return json_is_true(schema) ? schema_any(c) : EXPR_NEVER;
    if (!json_is_object(schema))
        return schema_fail(c, NULL, "a schema is an object, true or false");
    if (unsupported(c, schema))
        return EXPR_NEVER;
    if (json_object_get(schema, "$ref"))
        return reference(c, schema);
    if (json_object_get(schema, "allOf"))
        return all_of(c, schema);
    if (json_object_get(schema, "anyOf"))
        return branches(c, schema, "anyOf");
    if (json_object_get(schema, "oneOf"))
        return branches(c, schema, "oneOf");
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return values(c, schema);
    return by_type(c, schema);
}

expr_id schema_compile(struct compiler *c, const json_t *schema)
{
    if (c->failed || c->pool.failed != ERR_NONE)
        return EXPR_NEVER;
    if (++c->visits > c->pool.limits->expressions / 8)
        return schema_fail(c, NULL, "the schema is too large, or combines too many schemas");
    if (c->depth == SCHEMA_DEPTH)
        return schema_fail(c, NULL, "schemas are nested too deeply");
    c->depth++;
    expr_id e = compile(c, schema);
    c->depth--;
    return e;
}

/* Arguments of a call are the members of one object: what may be another value, or several objects,
 * has no such form. */
static void check_arguments(struct compiler *c)
{
    static const char *const others[] = {"$ref", "anyOf", "oneOf", "enum", "const"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (json_object_get(c->root, others[i]))
            schema_fail(c, others[i],
                        "this model's calls have the arguments of one object; list its properties");
    const json_t *type = json_object_get(c->root, "type");
    if (type && !json_text_is(type, "object"))
        schema_fail(c, "type", "arguments are an object");
}

static void compile_all(struct compiler *c, uint32_t root)
{
    bool object = c->call && !c->failed && !json_object_get(c->root, "allOf");
    expr_define(&c->pool, root, object ? schema_object(c, c->root) : schema_compile(c, c->root));
    for (uint32_t i = 0; i < c->targets_count && !c->failed; i++) {
        struct schema_target t = c->targets[i];
        snprintf(c->path, sizeof(c->path), "%s", t.path ? t.path : "$ref");
        expr_define(&c->pool, t.rule, schema_compile(c, t.schema));
    }
}

static void compiler_free(struct compiler *c)
{
    for (uint32_t i = 0; i < c->targets_count; i++)
        free(c->targets[i].path);
    free(c->targets);
    json_decref(c->made);
}

static json_t *read_schema(const char *text, size_t bytes, struct error *error)
{
    static const struct json_limits limits = JSON_LIMITS_DEFAULT;
    struct error why = {0};
    struct json_reader *r = json_reader_text_of(text, bytes, &limits, error);
    if (!r)
        return NULL;
    json_t *root = json_read_value(r);
    if (json_reader_end(r, &why) != 0) {
        error_set(error, why.code, "JSON Schema: %.300s", why.text);
        json_decref(root);
        root = NULL;
    }
    json_reader_close(r);
    return root;
}

int schema_rule(struct expr_pool *pool, const char *text, size_t bytes,
                enum schema_spelling spelling, uint32_t *rule, struct error *error)
{
    json_t *root = read_schema(text, bytes, error);
    if (!root)
        return -1;
    struct compiler c = {.root = root,
                         .made = json_array(),
                         .path = "$",
                         .error = error,
                         .pool = *pool,
                         .gemma = spelling == SPELLING_GEMMA,
                         .python = spelling == SPELLING_PYTHON,
                         .call = spelling == SPELLING_PYTHON};
    if (c.call)
        check_arguments(&c);
    *rule = expr_new_rule(&c.pool);
    compile_all(&c, *rule);
    *pool = c.pool;
    compiler_free(&c);
    json_decref(root);
    return c.failed ? -1 : 0;
}

int grammar_from_schema(const char *text, size_t bytes, const struct grammar_limits *limits,
                        struct grammar **g, struct error *error)
{
    static const struct grammar_limits standard = GRAMMAR_LIMITS_DEFAULT;
    const struct grammar_limits *l = limits ? limits : &standard;
    if (bytes > l->text_bytes)
        return error_set(error, ERR_BAD_INPUT, "JSON Schema: longer than %zu bytes", l->text_bytes);
    struct expr_pool pool;
    uint32_t rule = 0;
    expr_pool_init(&pool, l);
    int rc = schema_rule(&pool, text, bytes, SPELLING_JSON, &rule, error);
    if (rc == 0)
        rc = program_make(&pool, rule, g, error);
    expr_pool_free(&pool);
    return rc;
}
