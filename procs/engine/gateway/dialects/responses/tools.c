/* SPDX-License-Identifier: Apache-2.0 */
/* Tools in the form that templates take. A namespace is a list of tools; a client knows a tool by
 * its namespace and its name, and a template by one name, so that both are kept. */
#include "lib/json/text.h"
#include "procs/engine/gateway/dialects/responses/responses.h"

#define SPACE_BYTES_MAX 128

struct making {
    const struct taker *t;
    struct tool_names *names;
    json_t *taken; /* names without a namespace: true */
    json_t *out;
};

static int no_memory(const struct making *m)
{
    return error_set(m->t->error, ERR_NO_MEMORY, "out of memory (tools)");
}

/* NULL: no namespace of that name has it. */
static const json_t *name_within(const struct tool_names *names, const json_t *space,
                                 const json_t *name)
{
    const json_t *known =
        json_is_string(space) ? json_object_get(names->known, json_string_value(space)) : NULL;
    return json_object_get(known, json_string_value(name));
}

const json_t *tool_name_of(const struct tool_names *names, const json_t *space, const json_t *name)
{
    const json_t *flat = name_within(names, space, name);
    return flat ? flat : name;
}

static const char *text_or(const json_t *value, const char *other)
{
    return json_is_string(value) ? json_string_value(value) : other;
}

int tool_name_chosen(const struct taker *t, const struct tool_names *names, const json_t *entry,
                     const json_t **out)
{
    const json_t *space = json_object_get(entry, "namespace"),
                 *name = json_object_get(entry, "name");
    bool within = space && !json_is_null(space);
    *out = within ? name_within(names, space, name) : name;
    if (*out || !within)
        return 0;
    return error_set(t->error, ERR_BAD_INPUT,
                     "'tool_choice': '%.60s' is not one of the tools in the namespace '%.60s'",
                     text_or(name, "(no name)"), text_or(space, "(no text)"));
}

bool tool_names_strict(const struct tool_names *names, const json_t *tools)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        if (json_object_get(names->strict, json_string_value(name)))
            return true;
    }
    return false;
}

void tool_names_free(struct tool_names *names)
{
    json_decref(names->known);
    json_decref(names->flat);
    json_decref(names->strict);
    names->known = names->flat = names->strict = NULL;
}

static bool is_taken(const struct making *m, const char *name)
{
    return json_object_get(m->taken, name) || json_object_get(m->names->flat, name);
}

/* The name for the template: its own, or with its namespace if that is taken. A new reference. */
static json_t *choose_name(const struct making *m, const json_t *space, const json_t *name)
{
    const char *own = json_string_value(name);
    json_t *flat =
        is_taken(m, own) ? json_sprintf("%s__%s", json_string_value(space), own) : json_string(own);
    if (!flat) {
        no_memory(m);
        return NULL;
    }
    if (!is_taken(m, json_string_value(flat)))
        return flat;
    error_set(m->t->error, ERR_BAD_INPUT, "'tools': two functions have the name '%.40s'", own);
    json_decref(flat);
    return NULL;
}

static int keep_name(const struct making *m, const json_t *space, const json_t *name,
                     const json_t *flat)
{
    struct tool_names *n = m->names;
    json_t *known = json_object_get(n->known, json_string_value(space));
    if (!known) {
        known = json_object();
        if (json_object_set_new(n->known, json_string_value(space), known) != 0)
            return no_memory(m);
    }
    json_t *pair = json_pack("[O, O]", space, name);
    n->bytes += TOOL_NAME_BYTES + json_string_length(name) + json_string_length(space) +
                json_string_length(flat);
    return json_object_set(known, json_string_value(name), (json_t *)(uintptr_t)flat) == 0 &&
                   json_object_set_new(n->flat, json_string_value(flat), pair) == 0
               ? 0
               : no_memory(m);
}

/* space: NULL: the tool is in none. A new reference; NULL with an error. */
static json_t *flat_name(const struct making *m, const json_t *space, const json_t *name)
{
    if (!space)
        return json_incref((json_t *)(uintptr_t)name);
    json_t *flat = choose_name(m, space, name);
    if (!flat || keep_name(m, space, name, flat) == 0)
        return flat;
    json_decref(flat);
    return NULL;
}

static int add_function(struct making *m, const json_t *space, const json_t *tool)
{
    const json_t *name = json_object_get(tool, "name");
    if (!json_is_string(name))
        return error_set(m->t->error, ERR_BAD_INPUT, "'tools': a function has no name");
    json_t *flat = flat_name(m, space, name);
    if (!flat)
        return -1;
    if (json_is_true(json_object_get(tool, "strict")))
        json_object_set_new(m->names->strict, json_string_value(flat), json_true());
    json_t *made = json_pack("{s:s, s:{s:o, s:O*, s:O*}}", "type", "function", "function", "name",
                             flat, "description", json_object_get(tool, "description"),
                             "parameters", json_object_get(tool, "parameters"));
    return json_array_append_new(m->out, made) == 0 ? 0 : no_memory(m);
}

static int add_tools(struct making *m, const json_t *space, const json_t *tools);

static int add_namespace(struct making *m, const json_t *tool)
{
    const json_t *space = json_object_get(tool, "name");
    if (!json_is_string(space))
        return error_set(m->t->error, ERR_BAD_INPUT, "'tools': a namespace has no name");
    if (json_string_length(space) > SPACE_BYTES_MAX) /* each of its functions may get it */
        return error_set(m->t->error, ERR_BAD_INPUT,
                         "'tools': the name of a namespace has more than %d bytes",
                         SPACE_BYTES_MAX);
    return add_tools(m, space, json_object_get(tool, "tools"));
}

/* Other types than functions are left out. */
static int add_tools(struct making *m, const json_t *space, const json_t *tools)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(tools) && rc == 0; i++) {
        const json_t *tool = json_array_get(tools, i), *type = json_object_get(tool, "type");
        if (json_text_is(type, "function"))
            rc = add_function(m, space, tool);
        else if (!space && json_text_is(type, "namespace"))
            rc = add_namespace(m, tool);
        else
            take_ignored(m->t, json_is_string(type) ? json_string_value(type) : "tools");
    }
    return rc;
}

/* They keep their names, wherever they are in the list. */
static int take_names(struct making *m, const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *name = json_object_get(tool, "name");
        if (json_text_is(json_object_get(tool, "type"), "function") && json_is_string(name) &&
            json_object_set_new(m->taken, json_string_value(name), json_true()) != 0)
            return no_memory(m);
    }
    return 0;
}

json_t *responses_tools(const struct taker *t, const json_t *tools, struct tool_names *names)
{
    *names =
        (struct tool_names){.flat = json_object(), .known = json_object(), .strict = json_object()};
    struct making m = {.t = t, .names = names, .taken = json_object(), .out = json_array()};
    int rc = m.taken && m.out && names->flat && names->known && names->strict ? 0 : no_memory(&m);
    if (rc == 0)
        rc = take_names(&m, tools);
    if (rc == 0)
        rc = add_tools(&m, NULL, tools);
    json_decref(m.taken);
    if (rc == 0)
        return m.out;
    json_decref(m.out);
    return NULL;
}
