/* SPDX-License-Identifier: Apache-2.0 */
/* Records in one block, each before those within it: a tool, those of its parameters that are no
 * texts, and what is no text in these. What is not there is a text. */
#include "lib/model/chat/calls/types.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"

#define RECORDS_MAX 512 /* within the parameters of a tool: references may be circles */
#define LEVELS_MAX  16

struct record {
    uint32_t bytes;
    uint8_t level; /* 0: a tool */
    uint8_t type;  /* enum chat_type */
    char name[];
};
#define RECORD_BYTES offsetof(struct record, name)

struct chat_types {
    size_t bytes;
    char records[];
};

/* ---- schemas ---- */

/* The schema of one parameter: references may be circles. */
struct looking {
    const json_t *root; /* of references */
    unsigned left;
};

static bool takes_text(struct looking *l, const json_t *schema);

static bool is_string_type(const json_t *type)
{
    return json_text_is(type, "string");
}

static bool any(struct looking *l, const json_t *list,
                bool (*holds)(struct looking *l, const json_t *))
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (holds(l, json_array_get(list, i)))
            return true;
    return false;
}

static bool is_text(struct looking *l, const json_t *value)
{
    (void)l;
    return json_is_string(value);
}

static bool is_text_type(struct looking *l, const json_t *type)
{
    (void)l;
    return is_string_type(type);
}

static bool takes_none(struct looking *l, const json_t *schema)
{
    return !takes_text(l, schema);
}

const json_t *chat_types_referred(const json_t *root, const char *path)
{
    const json_t *at = strncmp(path, "#/", 2) == 0 ? root : NULL;
    for (path += at ? 2 : 0; at && *path;) {
        size_t n = strcspn(path, "/");
        at = json_object_getn(at, path, n);
        path += n + (path[n] == '/');
    }
    return at;
}

/* The values that are listed decide before the type, which may permit more than they are. What a
 * reference that leads nowhere refers to is something else than a text: objects, mostly. */
static bool takes_text(struct looking *l, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *part;
    const char *path = json_string_value(json_object_get(schema, "$ref"));
    if (l->left == 0)
        return true;
    l->left--;
    if (type && !is_string_type(type) && !any(l, type, is_text_type))
        return false;
    if (json_array_size(part = json_object_get(schema, "enum")) > 0)
        return any(l, part, is_text);
    if ((part = json_object_get(schema, "const")))
        return json_is_string(part);
    if (type)
        return true;
    if (path)
        return (part = chat_types_referred(l->root, path)) && takes_text(l, part);
    if (json_array_size(part = json_object_get(schema, "anyOf")) > 0 ||
        json_array_size(part = json_object_get(schema, "oneOf")) > 0)
        return any(l, part, takes_text);
    return !any(l, json_object_get(schema, "allOf"), takes_none);
}

bool chat_types_takes_text(const json_t *root, const json_t *schema, unsigned *left)
{
    struct looking l = {root, *left};
    bool takes = takes_text(&l, schema);
    *left = l.left;
    return takes;
}

/* The schema that tells what is within a value: of references the last, of branches the first one
 * that has anything within. */
static const json_t *container(struct looking *l, const json_t *schema)
{
    static const char *const branching[] = {"anyOf", "oneOf", "allOf"};
    const char *path = json_string_value(json_object_get(schema, "$ref"));
    const json_t *found = NULL, *type = json_object_get(schema, "type");
    if (l->left == 0)
        return NULL;
    l->left--;
    if (path)
        return container(l, chat_types_referred(l->root, path));
    if (json_text_is(type, "array") || json_text_is(type, "object") ||
        json_object_get(schema, "items") || json_object_get(schema, "properties"))
        return schema;
    for (size_t k = 0; k < ARRAY_LEN(branching) && !found; k++) {
        const json_t *list = json_object_get(schema, branching[k]);
        for (size_t i = 0; i < json_array_size(list) && !found; i++)
            found = container(l, json_array_get(list, i));
    }
    return found;
}

/* ---- records ---- */

struct writing {
    FILE *out;
    const json_t *root; /* of references */
    unsigned left;      /* records within parameters */
};

static void add_record(FILE *out, const char *name, size_t bytes, unsigned level,
                       enum chat_type type)
{
    struct record r = {.bytes = (uint32_t)bytes, .level = (uint8_t)level, .type = (uint8_t)type};
    fwrite(&r, 1, RECORD_BYTES, out);
    fwrite(name, 1, bytes, out);
}

static void add_members(struct writing *w, const json_t *schema, unsigned level);

/* What is within an array is its `item`. */
static void add_value(struct writing *w, const char *name, size_t bytes, const json_t *schema,
                      unsigned level)
{
    struct looking texts = {w->root, CHAT_TYPES_SCHEMAS_MAX}, within = texts;
    if (level > LEVELS_MAX || (level > 1 && w->left == 0) || takes_text(&texts, schema))
        return;
    w->left -= level > 1;
    const json_t *of = container(&within, schema), *items = json_object_get(of, "items");
    bool array = items || json_text_is(json_object_get(of, "type"), "array");
    add_record(w->out, name, bytes, level, !of ? CHAT_JSON : array ? CHAT_ARRAY : CHAT_OBJECT);
    if (array && items)
        add_value(w, "item", strlen("item"), items, level + 1);
    else if (of)
        add_members(w, of, level + 1);
}

static void add_members(struct writing *w, const json_t *schema, unsigned level)
{
    const json_t *all = json_object_get(schema, "properties");
    json_t *member;
    const char *key;
    size_t bytes;
    json_object_keylen_foreach((json_t *)(uintptr_t)all, key, bytes, member)
        add_value(w, key, bytes, member, level);
}

static void add_tool(FILE *out, const json_t *function)
{
    const json_t *name = json_object_get(function, "name");
    struct writing w = {out, json_object_get(function, "parameters"), RECORDS_MAX};
    if (!json_is_string(name))
        return;
    add_record(out, json_string_value(name), json_string_length(name), 0, CHAT_OBJECT);
    add_members(&w, w.root, 1);
}

struct chat_types *chat_types_new(const json_t *tools, size_t *bytes)
{
    const json_t *tool;
    char *records = NULL;
    size_t i;
    *bytes = 0;
    if (json_array_size(tools) == 0)
        return NULL;
    *bytes = 1;
    FILE *out = open_memstream(&records, bytes);
    if (!out)
        return NULL;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        add_tool(out, function ? function : tool); /* elsewhere, too, it may be the tool itself */
    }
    bool good = !ferror(out);
    good = fclose(out) == 0 && good;
    struct chat_types *t = good ? malloc(sizeof *t + *bytes) : NULL;
    if (t) {
        t->bytes = *bytes;
        memcpy(t->records, records, *bytes);
    }
    free(records);
    *bytes += sizeof *t;
    return t;
}

void chat_types_free(struct chat_types *t)
{
    free(t);
}

/* The record at a place, and the place after it. */
static size_t record_at(const struct chat_types *t, size_t at, struct record *r)
{
    memcpy(r, t->records + at, RECORD_BYTES);
    return at + RECORD_BYTES + r->bytes;
}

size_t chat_types_find(const struct chat_types *t, size_t within, const char *name, size_t bytes)
{
    struct record r = {.level = 0};
    unsigned level = 0; /* of what is looked for */
    size_t at = 0;
    if (!t || within == CHAT_TYPES_NONE)
        return CHAT_TYPES_NONE;
    if (within != CHAT_TYPES_TOOLS) {
        at = record_at(t, within, &r);
        level = r.level + 1u;
    }
    for (size_t next; at < t->bytes; at = next) {
        next = record_at(t, at, &r);
        if (r.level < level)
            break;
        if (r.level == level && r.bytes == bytes &&
            memcmp(t->records + next - bytes, name, bytes) == 0)
            return at;
    }
    return CHAT_TYPES_NONE;
}

enum chat_type chat_types_of(const struct chat_types *t, size_t at)
{
    struct record r = {.type = CHAT_TEXT};
    if (at != CHAT_TYPES_NONE)
        record_at(t, at, &r);
    return (enum chat_type)r.type;
}

bool chat_types_json(const struct chat_types *t, const char *tool, size_t tool_bytes,
                     const char *key, size_t key_bytes)
{
    size_t within = chat_types_find(t, CHAT_TYPES_TOOLS, tool, tool_bytes);
    return chat_types_find(t, within, key, key_bytes) != CHAT_TYPES_NONE;
}
