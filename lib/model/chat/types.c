/* SPDX-License-Identifier: Apache-2.0 */
/* Records in one block: a tool, then those of its parameters that are no texts. What is not there
 * is a text. */
#include "lib/model/chat/types.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/text.h"

#define SCHEMAS_MAX 256 /* looked at for one parameter */

struct record {
    uint32_t bytes;
    bool tool;
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

/* The schema that "#/a/b" refers to; NULL: none. */
static const json_t *referred(const json_t *root, const char *path)
{
    const json_t *at = strncmp(path, "#/", 2) == 0 ? root : NULL;
    for (path += at ? 2 : 0; at && *path;) {
        size_t n = strcspn(path, "/");
        at = json_object_getn(at, path, n);
        path += n + (path[n] == '/');
    }
    return at;
}

/* Whether a schema permits a text, or states nothing. What a reference that leads nowhere refers to
 * is something else: objects, mostly. */
static bool takes_text(struct looking *l, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *part;
    const char *path = json_string_value(json_object_get(schema, "$ref"));
    if (l->left == 0)
        return true;
    l->left--;
    if (type)
        return is_string_type(type) || any(l, type, is_text_type);
    if (path)
        return (part = referred(l->root, path)) && takes_text(l, part);
    if (json_array_size(part = json_object_get(schema, "anyOf")) > 0 ||
        json_array_size(part = json_object_get(schema, "oneOf")) > 0)
        return any(l, part, takes_text);
    if (json_array_size(part = json_object_get(schema, "enum")) > 0)
        return any(l, part, is_text);
    if ((part = json_object_get(schema, "const")))
        return json_is_string(part);
    return !any(l, json_object_get(schema, "allOf"), takes_none);
}

/* ---- records ---- */

static void add_record(FILE *out, const char *name, size_t bytes, bool tool)
{
    struct record r = {.bytes = (uint32_t)bytes, .tool = tool};
    fwrite(&r, 1, RECORD_BYTES, out);
    fwrite(name, 1, bytes, out);
}

static void add_tool(FILE *out, const json_t *function)
{
    const json_t *name = json_object_get(function, "name");
    const json_t *parameters = json_object_get(function, "parameters");
    const json_t *all = json_object_get(parameters, "properties");
    json_t *schema;
    const char *key;
    size_t bytes;
    if (!json_is_string(name))
        return;
    add_record(out, json_string_value(name), json_string_length(name), true);
    json_object_keylen_foreach((json_t *)(uintptr_t)all, key, bytes, schema)
    {
        struct looking l = {parameters, SCHEMAS_MAX};
        if (!takes_text(&l, schema))
            add_record(out, key, bytes, false);
    }
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
        add_tool(out, json_object_get(tool, "function"));
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

bool chat_types_json(const struct chat_types *t, const char *tool, size_t tool_bytes,
                     const char *key, size_t key_bytes)
{
    bool here = false;
    for (size_t at = 0; t && at < t->bytes;) {
        struct record r;
        memcpy(&r, t->records + at, RECORD_BYTES);
        const char *name = t->records + at + RECORD_BYTES;
        bool equal = r.tool ? r.bytes == tool_bytes && memcmp(name, tool, tool_bytes) == 0
                            : r.bytes == key_bytes && memcmp(name, key, key_bytes) == 0;
        if (r.tool && here) /* of two tools of a name the first one counts */
            return false;
        if (r.tool)
            here = equal;
        else if (here && equal)
            return true;
        at += RECORD_BYTES + r.bytes;
    }
    return false;
}
