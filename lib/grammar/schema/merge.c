/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas that hold together: one schema that says the same, or an error. Also $ref, and whether
 * two schemas can hold at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/schema/compiler.h"

#define BACK_STEPS 256 /* schemas between a reference and itself */

bool schema_is_annotation(const char *key)
{
    static const char *const keywords[] = {
#define OF_TYPE(name, type) name,
#define OTHER(name)         name,
#define REFUSED(name)       name,
#include "lib/grammar/schema/keywords.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (strcmp(key, keywords[i]) == 0)
            return false;
    return true;
}

/* ---- $ref ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* One part of a JSON pointer, with its escapes undone. NULL: it is too long. */
static const char *pointer_part(const char *at, char *part, size_t room)
{
    size_t n = 0;
    while (*at && *at != '/' && n + 1 < room) {
        if (at[0] == '~' && (at[1] == '0' || at[1] == '1')) {
            part[n++] = at[1] == '0' ? '~' : '/';
            at += 2;
        } else if (at[0] == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0) {
            part[n++] = (char)(hex(at[1]) * 16 + hex(at[2]));
            at += 3;
        } else {
            part[n++] = *at++;
        }
    }
    part[n] = '\0';
    return *at && *at != '/' ? NULL : at;
}

static bool is_local(const char *ref)
{
    return ref && ref[0] == '#' && (!ref[1] || ref[1] == '/');
}

/* What a reference into the document leads to; NULL: nothing. */
static const json_t *find_target(const struct compiler *c, const char *ref)
{
    const json_t *now = c->root;
    char part[512];
    for (const char *at = ref + 1; now && at && *at == '/';) {
        at = pointer_part(at + 1, part, sizeof(part));
        if (!at)
            now = NULL;
        else if (json_is_array(now))
            now = json_array_get(now, strtoul(part, NULL, 10));
        else
            now = json_object_get(now, part);
    }
    return now;
}

const json_t *schema_target(struct compiler *c, const char *ref)
{
    if (!is_local(ref)) {
        schema_fail(c, "$ref", "only references into the document (#/...) are supported");
        return NULL;
    }
    const json_t *target = find_target(c, ref);
    if (!target)
        schema_fail(c, "$ref", "it leads to nothing");
    return target;
}

/* Whether `schema` holds only if `wanted` does, or may: by references and combinations, without a
 * value around it. Gives up when `steps` are used. */
static bool leads_to(const struct compiler *c, const json_t *schema, const json_t *wanted,
                     unsigned *steps)
{
    static const char *const keys[] = {"anyOf", "oneOf", "allOf"};
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *one, *target = is_local(ref) ? find_target(c, ref) : NULL;
    size_t i;
    if (*steps == 0)
        return false;
    --*steps;
    if (target && (target == wanted || leads_to(c, target, wanted, steps)))
        return true;
    for (size_t k = 0; k < ARRAY_LEN(keys); k++)
        json_array_foreach(json_object_get(schema, keys[k]), i, one)
        {
            if (leads_to(c, one, wanted, steps))
                return true;
        }
    return false;
}

bool schema_leads_back(const struct compiler *c, const json_t *target)
{
    unsigned steps = BACK_STEPS;
    return leads_to(c, target, target, &steps);
}

const json_t *schema_resolve(struct compiler *c, const json_t *schema)
{
    for (unsigned i = 0; i < 32 && schema && json_object_get(schema, "$ref"); i++) {
        const json_t *value;
        const char *key;
        bool alone = true;
        json_object_foreach((json_t *)schema, key, value) alone &=
            strcmp(key, "$ref") == 0 || schema_is_annotation(key);
        if (!alone) {
            schema_fail(c, "$ref", "within a combination, no keyword may stand beside it");
            return NULL;
        }
        schema = schema_target(c, json_string_value(json_object_get(schema, "$ref")));
    }
    if (schema && json_object_get(schema, "$ref")) {
        schema_fail(c, "$ref", "it leads back to itself");
        return NULL;
    }
    return schema;
}

/* ---- merging ---- */

static json_t *both(json_t *a, json_t *b)
{
    json_t *list = json_array(), *e = json_object();
    json_array_append(list, a);
    json_array_append(list, b);
    json_object_set_new(e, "allOf", list);
    return e;
}

static bool list_has(const json_t *list, const json_t *value)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (json_equal(one, value)) return true;
    return false;
}

/* The types of a, each in a list, that b has, too; an integer is a number. */
static json_t *common_types(const json_t *a, const json_t *b)
{
    json_t *types = json_array(), *x = json_array(), *y = json_array(), *one;
    json_t *number = json_string("number"), *integer = json_string("integer");
    size_t i;
    json_array_append(x, json_is_array(a) ? NULL : (json_t *)a);
    json_array_append(y, json_is_array(b) ? NULL : (json_t *)b);
    const json_t *p = json_is_array(a) ? a : x, *q = json_is_array(b) ? b : y;
    json_array_foreach(p, i, one)
    {
        if (list_has(q, one) || (json_equal(one, integer) && list_has(q, number)))
            json_array_append(types, one);
        else if (json_equal(one, number) && list_has(q, integer))
            json_array_append(types, integer);
    }
    json_decref(x);
    json_decref(y);
    json_decref(number);
    json_decref(integer);
    return types;
}

static json_t *common_values(const json_t *a, const json_t *b)
{
    json_t *values = json_array(), *one;
    size_t i;
    json_array_foreach(a, i, one) if (list_has(b, one)) json_array_append(values, one);
    return values;
}

static json_t *merged_properties(json_t *a, json_t *b)
{
    json_t *all = json_copy(a), *value;
    const char *key;
    json_object_foreach(b, key, value)
    {
        json_t *other = json_object_get(a, key);
        if (other && !json_equal(other, value))
            json_object_set_new(all, key, both(other, value));
        else
            json_object_set(all, key, value);
    }
    return all;
}

static json_t *merged_names(const json_t *a, const json_t *b)
{
    json_t *all = json_copy((json_t *)a), *one;
    size_t i;
    json_array_foreach(b, i, one) if (!list_has(a, one)) json_array_append(all, one);
    return all;
}

/* The value of a keyword that two schemas have differently; NULL: there is none. */
static json_t *merged_value(const char *key, json_t *a, json_t *b)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                       "maxProperties"};
    bool a_is_more = json_number_value(a) > json_number_value(b);
    bool numbers = json_is_number(a) && json_is_number(b);
    for (size_t i = 0; i < ARRAY_LEN(least) && numbers; i++) {
        if (strcmp(key, least[i]) == 0)
            return json_incref(a_is_more ? a : b);
        if (strcmp(key, most[i]) == 0)
            return json_incref(a_is_more ? b : a);
    }
    if (strcmp(key, "type") == 0)
        return common_types(a, b);
    if (strcmp(key, "enum") == 0)
        return common_values(a, b);
    if (strcmp(key, "required") == 0 && json_is_array(a) && json_is_array(b))
        return merged_names(a, b);
    if (strcmp(key, "properties") == 0 && json_is_object(a) && json_is_object(b))
        return merged_properties(a, b);
    if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0)
        return both(a, b);
    return NULL;
}

/* What `additionalProperties` of one schema says of the names that only the other one has would be
 * lost. Where it is absent, nothing is said; the merged schema must not become closed by it. */
static bool closes_other(const json_t *a, const json_t *b)
{
    const json_t *additional = json_object_get(a, "additionalProperties"), *value;
    const char *key;
    if (!additional || json_is_true(additional))
        return false;
    json_object_foreach(
        json_object_get(b, "properties"), key,
        value) if (!json_object_get(json_object_get(a, "properties"), key)) return true;
    return false;
}

/* prefixItems divide elements into those that `items` is about and the others. */
static bool divides_items(const json_t *a, const json_t *b)
{
    return json_object_get(a, "prefixItems") && json_object_get(b, "items");
}

static const json_t *merge_objects(struct compiler *c, const json_t *a, const json_t *b)
{
    json_t *merged = json_copy((json_t *)a), *value;
    const char *key;
    json_array_append_new(c->made, merged);
    json_object_foreach((json_t *)b, key, value)
    {
        json_t *other = json_object_get(a, key);
        if (!other || schema_is_annotation(key) || json_equal(other, value)) {
            if (!other)
                json_object_set(merged, key, value);
            continue;
        }
        json_t *one = merged_value(key, other, value);
        if (!one) {
            schema_fail(c, key, "two schemas that hold together have it differently");
            return NULL;
        }
        json_object_set_new(merged, key, one);
    }
    return merged;
}

const json_t *schema_merge(struct compiler *c, const json_t *a, const json_t *b)
{
    if (c->failed || !a || !b)
        return NULL;
    if (json_is_boolean(a))
        return json_is_true(a) ? b : a;
    if (json_is_boolean(b))
        return json_is_true(b) ? a : b;
    if (!json_is_object(a) || !json_is_object(b)) { /* such as `items` as an array */
        schema_fail(c, NULL, "schemas that hold together are objects, true or false");
        return NULL;
    }
    c->visits += (uint32_t)(json_object_size(a) + json_object_size(b) +
                            json_object_size(json_object_get(a, "properties")) +
                            json_object_size(json_object_get(b, "properties")));
    if (closes_other(a, b) || closes_other(b, a)) {
        schema_fail(c, "additionalProperties", "it forbids names of a schema that holds beside it");
        return NULL;
    }
    if (divides_items(a, b) || divides_items(b, a)) {
        schema_fail(c, "prefixItems", "beside items of another schema it is not supported");
        return NULL;
    }
    return merge_objects(c, a, b);
}

/* ---- schemas that exclude each other ---- */

/* The type of all values, NULL if there may be several. */
static const char *only_type(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (json_is_true(json_object_get(schema, "nullable")))
        return NULL;
    return type && strcmp(type, "integer") == 0 ? "number" : type;
}

/* The values of const or enum as a list; the caller releases it. NULL: there are none. */
static json_t *listed(const json_t *schema)
{
    json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    if (!only)
        return json_is_array(list) ? json_incref(list) : NULL;
    list = json_array();
    json_array_append(list, only);
    return list;
}

static bool values_differ(const json_t *a, const json_t *b)
{
    json_t *x = listed(a), *y = listed(b);
    bool differ = x && y && json_array_size(x) * json_array_size(y) < 10000;
    const json_t *one, *two;
    size_t i, j;
    json_array_foreach(differ ? x : NULL, i, one) json_array_foreach(y, j, two)
    {
        bool numbers = json_is_number(one) && json_is_number(two); /* 1 and 1.0 are equal */
        if (json_equal(one, two) || (numbers && json_number_value(one) == json_number_value(two)) ||
            json_is_object(one) || json_is_array(one))
            differ = false;
    }
    json_decref(x);
    json_decref(y);
    return differ;
}

static bool requires(const json_t *schema, const char *name)
{
    json_t *key = json_string(name);
    bool found = list_has(json_object_get(schema, "required"), key);
    json_decref(key);
    return found;
}

/* Both are objects, and a member that both must have tells them apart. */
static bool members_differ(const json_t *a, const json_t *b)
{
    const json_t *one, *mine = json_object_get(a, "properties"),
                       *others = json_object_get(b, "properties");
    const char *name;
    json_object_foreach((json_t *)mine, name, one)
    {
        const json_t *two = json_object_get(others, name);
        if (two && values_differ(one, two) && requires(a, name) && requires(b, name))
            return true;
    }
    return false;
}

bool schema_disjoint(struct compiler *c, const json_t *a, const json_t *b)
{
    a = schema_resolve(c, a);
    b = schema_resolve(c, b);
    if (!a || !b)
        return false;
    const char *x = only_type(a), *y = only_type(b);
    if (x && y && strcmp(x, y) != 0)
        return true;
    bool objects = x && y && strcmp(x, "object") == 0;
    return values_differ(a, b) || (objects && members_differ(a, b));
}
