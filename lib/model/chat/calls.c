/* SPDX-License-Identifier: Apache-2.0 */
/* The calls in the text between two marks (answer.tbl.h). What is not wholly of its form is no
 * call. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/text.h"
#include "lib/model/chat/answer_internal.h"
#include "lib/model/chat/calls/gemma.h"
#include "lib/model/chat/calls/pairs.h"
#include "lib/model/chat/calls/python.h"
#include "lib/model/chat/calls/values.h"

#define CALL_FRONT_BYTES_MAX 256 /* before the first name in a call without marks */

static const struct answer_call rows[] = {
#define CALL(sign_, ...) {.sign = sign_, __VA_ARGS__},
#include "lib/model/chat/answer.tbl.h"
};

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

struct answer_call answer_call_of(const char *chat_template, size_t bytes)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer_call call = rows[i];
        if (!memmem(chat_template, bytes, call.sign, strlen(call.sign)))
            continue;
        call.close = or_empty(call.close);
        call.call_open = or_empty(call.call_open);
        call.name_end = or_empty(call.name_end);
        call.call_close = or_empty(call.call_close);
        call.prefix = or_empty(call.prefix);
        call.key_open = or_empty(call.key_open);
        call.key_end = or_empty(call.key_end);
        call.value_open = or_empty(call.value_open);
        call.value_close = or_empty(call.value_close);
        call.id_open = or_empty(call.id_open);
        return call;
    }
    return (struct answer_call){0};
}

/* ---- text ---- */

/* Adds a call; takes the reference to its arguments (NULL: there are none, or no memory). id NULL,
 * or without text: none. */
static bool add_call(json_t *calls, const char *name, size_t bytes, const struct cursor *id,
                     json_t *arguments)
{
    char *text = arguments ? call_value_text(arguments) : NULL;
    json_t *call = text ? json_pack("{s:s%, s:s}", "name", name, bytes, "arguments", text) : NULL;
    if (call && id && id->at)
        json_object_set_new(call, "id", json_stringn(id->at, (size_t)(id->end - id->at)));
    json_decref(arguments);
    free(text);
    return call && json_array_append_new(calls, call) == 0;
}

/* Whether the text begins with the mark; *maybe: it is a part of the mark, so that more bytes may
 * change that. */
static bool begins(const struct cursor *c, const char *mark, bool *maybe)
{
    size_t n = strlen(mark), same = cursor_left(c) < n ? cursor_left(c) : n;
    bool equal = memcmp(c->at, mark, same) == 0;
    *maybe = *maybe || (equal && same < n);
    return equal && same == n;
}

/* A name without blanks around it, and without what `functions.` and a number add to it: with both
 * it is an id. */
static bool clean_name(const struct answer_call *f, struct cursor *name, struct cursor *id)
{
    cursor_skip_blanks(name);
    while (name->at < name->end && strchr(" \n\t\r", name->end[-1]) && name->end[-1])
        name->end--;
    *id = *name;
    if (*f->prefix && cursor_take(name, f->prefix)) {
        const char *digits = name->end;
        while (digits > name->at && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        if (digits > name->at + 1 && digits < name->end && digits[-1] == ':')
            name->end = digits - 1;
    }
    if (id->at == name->at || id->end == name->end)
        *id = (struct cursor){NULL, NULL};
    for (const char *p = name->at; p < name->end; p++)
        if (!*p || strchr(" \n\t\r<>\"{}", *p))
            return false;
    return name->at < name->end;
}

/* ---- arguments one by one ---- */

/* Where a name ends that has no mark of its own behind it: at the first key, or with its call. */
static const char *name_end(const struct answer_call *f, const struct cursor *c)
{
    const char *key = memmem(c->at, cursor_left(c), f->key_open, strlen(f->key_open));
    const char *close =
        *f->call_close ? memmem(c->at, cursor_left(c), f->call_close, strlen(f->call_close)) : NULL;
    if (close && (!key || close < key))
        return close;
    return key ? key : c->end;
}

static bool read_pairs(const struct answer_call *f, const struct chat_types *types,
                       struct cursor *c, json_t *calls)
{
    struct cursor name = *c, id = {NULL, NULL};
    json_t *arguments = json_object();
    bool good = arguments != NULL;
    if (*f->name_end) {
        good = good && cursor_take_until(c, f->name_end, &name);
        pair_cut(f, &name);
    } else {
        c->at = name.end = name_end(f, c);
    }
    good = good && clean_name(f, &name, &id);
    for (cursor_skip_blanks(c); good && cursor_take(c, f->key_open); cursor_skip_blanks(c))
        good = pair_read(f, types, c, &name, arguments);
    if (good && cursor_take(c, f->call_close))
        return add_call(calls, name.at, cursor_left(&name), &id, arguments);
    json_decref(arguments);
    return false;
}

/* ---- arguments one by one, whose values nest ---- */

#define ITEM "item"

static bool at_mark(const struct cursor *c, const char *mark)
{
    struct cursor ahead = *c;
    return cursor_take(&ahead, mark);
}

static bool take_text(struct cursor *c, const struct cursor *text)
{
    bool equal =
        cursor_left(c) >= cursor_left(text) && memcmp(c->at, text->at, cursor_left(text)) == 0;
    c->at += equal ? cursor_left(text) : 0;
    return equal;
}

static json_t *read_nested_value(const struct answer_form *form, struct cursor *c, size_t type,
                                 unsigned depth);

/* One member with its marks; type: the place of what it is within. */
static bool read_member(const struct answer_form *form, struct cursor *c, json_t *to, size_t type,
                        unsigned depth)
{
    const struct answer_call *f = &form->call;
    struct cursor key;
    if (!cursor_take(c, f->key_open) || !cursor_take_until(c, f->key_end, &key) ||
        !pair_is_key(&key))
        return false;
    bool item = cursor_left(&key) == strlen(ITEM) && memcmp(key.at, ITEM, cursor_left(&key)) == 0;
    if (json_is_array(to) ? !item : json_object_getn(to, key.at, cursor_left(&key)) != NULL)
        return false;
    size_t own = chat_types_find(form->types, type, key.at, cursor_left(&key));
    json_t *value = read_nested_value(form, c, own, depth + 1);
    int rc = json_is_array(to) ? json_array_append_new(to, value)
                               : json_object_setn_new(to, key.at, cursor_left(&key), value);
    return rc == 0 && take_text(c, &key) && cursor_take(c, f->key_end);
}

/* What is between two marks, up to that which begins with value_close. */
static json_t *read_members(const struct answer_form *form, struct cursor *c, bool array,
                            size_t type, unsigned depth)
{
    json_t *to = array ? json_array() : json_object();
    bool good = to && depth < CALL_DEPTH_MAX;
    for (cursor_skip_blanks(c); good && !at_mark(c, form->call.value_close); cursor_skip_blanks(c))
        good = read_member(form, c, to, type, depth);
    if (good)
        return to;
    json_decref(to);
    return NULL;
}

/* A value, up to and with value_close. Without a type, what has items is an array. */
static json_t *read_nested_value(const struct answer_form *form, struct cursor *c, size_t type,
                                 unsigned depth)
{
    const struct answer_call *f = &form->call;
    enum chat_type kind = chat_types_of(form->types, type);
    struct cursor text, inner = *c;
    cursor_skip_blanks(&inner);
    if (at_mark(&inner, f->key_open) && !at_mark(&inner, f->value_close)) {
        struct cursor first = inner;
        bool item = cursor_take(&first, f->key_open) && cursor_take(&first, ITEM) &&
                    at_mark(&first, f->key_end);
        json_t *all = read_members(
            form, &inner, kind == CHAT_ARRAY || (kind != CHAT_OBJECT && item), type, depth);
        *c = inner;
        if (all && cursor_take(c, f->value_close))
            return all;
        json_decref(all);
        return NULL;
    }
    if (!cursor_take_until(c, f->value_close, &text))
        return NULL;
    if (inner.at >= text.end && (kind == CHAT_ARRAY || kind == CHAT_OBJECT))
        return kind == CHAT_ARRAY ? json_array() : json_object();
    return pair_value(kind != CHAT_TEXT, &text);
}

static bool read_nested(const struct answer_form *form, struct cursor *c, json_t *calls)
{
    const struct answer_call *f = &form->call;
    struct cursor name, id;
    if (!cursor_take_until(c, f->name_end, &name) || !clean_name(f, &name, &id))
        return false;
    size_t tool = chat_types_find(form->types, CHAT_TYPES_TOOLS, name.at, cursor_left(&name));
    json_t *arguments = read_members(form, c, false, tool, 0);
    if (arguments && cursor_take(c, f->call_close))
        return add_call(calls, name.at, cursor_left(&name), &id, arguments);
    json_decref(arguments);
    return false;
}

/* ---- arguments as an object ---- */

/* Up to the mark, or without one all. */
static bool take_rest(struct cursor *c, const char *mark, struct cursor *text)
{
    if (*mark)
        return cursor_take_until(c, mark, text);
    *text = *c;
    c->at = c->end;
    return true;
}

bool answer_id_is_short(const char *id, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && isalnum((unsigned char)id[n]))
        n++;
    return n == bytes && n == ANSWER_SHORT_ID_BYTES;
}

/* Whether a text can be an id at all: else a mark is missing or twisted, and what stands there
 * would be lost. */
static bool may_be_id(const struct cursor *id)
{
    for (const char *p = id->at; p < id->end; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_-", *p))
            return false;
    return true;
}

/* A name, with an id behind it where the form has one. An id of another length is left out: the
 * gateway makes one. */
static bool read_name(const struct answer_call *f, struct cursor *c, struct cursor *name,
                      struct cursor *id)
{
    struct cursor all, own = {NULL, NULL};
    if (!cursor_take_until(c, f->name_end, &all))
        return false;
    *name = all;
    if (f->id_open && *f->id_open && cursor_take_until(&all, f->id_open, name))
        own = all;
    if (!clean_name(f, name, id) || !may_be_id(&own))
        return false;
    if (answer_id_is_short(own.at, cursor_left(&own)))
        *id = own;
    return true;
}

/* No arguments are an empty object, but only where a mark ends the call: without one it may have
 * been cut off before them. */
static bool read_object(const struct answer_call *f, struct cursor *c, json_t *calls)
{
    struct cursor name, id, text;
    if (!read_name(f, c, &name, &id) || !take_rest(c, f->call_close, &text))
        return false;
    cursor_skip_blanks(&text);
    bool none = text.at == text.end && *f->call_close;
    json_t *arguments = none ? json_object() : call_value_read(text.at, cursor_left(&text));
    if (json_is_object(arguments))
        return add_call(calls, name.at, cursor_left(&name), &id, arguments);
    json_decref(arguments);
    return false;
}

static const json_t *member(const json_t *call, const char *key, const char *usual)
{
    return json_object_get(call, key ? key : usual);
}

/* The id of a call in JSON, which may be left out as above. An id that only numbers the calls
 * occurs again in the next answer: there the gateway makes one, too. False: it can be none. */
static bool id_of(const struct answer_call *f, const json_t *id, struct cursor *own)
{
    const char *text = json_string_value(id);
    struct cursor all = {text, text ? text + json_string_length(id) : NULL};
    bool whole = answer_id_is_short(text, cursor_left(&all));
    *own = whole && !f->numbered ? all : (struct cursor){NULL, NULL};
    return f->numbered || !text || may_be_id(&all);
}

/* {"name": ..., "arguments": ...}; arguments in a text are taken as they are, and null is none.
 * Texts with NUL would be cut, and other members would be lost: a tool would be called without its
 * arguments if their name is wrong. */
static bool add_members(const struct answer_call *f, const json_t *call, json_t *calls)
{
    const json_t *name = member(call, f->name_key, "name"),
                 *id = f->id_key ? json_object_get(call, f->id_key) : NULL;
    json_t *arguments = (json_t *)(uintptr_t)member(call, f->arguments_key, "arguments");
    struct cursor own;
    bool typed = answer_is_unmarked(f) && json_text_is(json_object_get(call, "type"), "function");
    size_t known = (name ? 1 : 0) + (id ? 1 : 0) + (arguments ? 1 : 0) + (typed ? 1 : 0);
    if (!json_text_is_plain(name) || json_object_size(call) != known || !id_of(f, id, &own))
        return false;
    if (answer_is_unmarked(f) && arguments && !json_is_object(arguments))
        return false; /* an answer in JSON that has such members */
    if (!json_is_string(arguments))
        return add_call(calls, json_string_value(name), json_string_length(name), &own,
                        json_is_null(arguments) || !arguments ? json_object()
                                                              : json_incref(arguments));
    return json_text_is_plain(arguments) &&
           json_array_append_new(calls, json_pack("{s:O, s:O, s:s*}", "name", name, "arguments",
                                                  arguments, "id", own.at)) == 0;
}

/* One call, which is all of the text, or in a block what is first. */
static bool read_named(const struct answer_call *f, struct cursor *c, json_t *calls)
{
    json_error_t end = {.position = (int)cursor_left(c)};
    json_t *call =
        !f->block ? call_value_read(c->at, cursor_left(c))
        : call_value_too_much(c->at, cursor_left(c))
            ? NULL
            : json_loadb(c->at, cursor_left(c), CALL_VALUE_FLAGS | JSON_DISABLE_EOF_CHECK, &end);
    bool good = add_members(f, call, calls);
    json_decref(call);
    c->at = good ? c->at + end.position : c->end;
    return good;
}

/* All calls in one array. */
static bool read_list(const struct answer_call *f, struct cursor *c, json_t *calls)
{
    json_t *list = call_value_read(c->at, cursor_left(c)), *call;
    bool good = json_array_size(list) > 0;
    size_t i;
    json_array_foreach(list, i, call) good = good && add_members(f, call, calls);
    json_decref(list);
    c->at = c->end;
    return good;
}

/* ---- lists as in Python ---- */

/* A model may be told to write the list in JSON. */
static bool read_python(const struct answer_call *f, struct cursor *c, json_t *calls)
{
    struct cursor inner = *c;
    json_t *list = NULL, *call;
    size_t i;
    cursor_take(&inner, "[");
    cursor_skip_blanks(&inner);
    if (cursor_take(&inner, "{"))
        return read_list(f, c, calls);
    list = python_calls(c);
    bool good = list != NULL;
    json_array_foreach(list, i, call)
    {
        const json_t *name = json_object_get(call, "name");
        good = good && add_call(calls, json_string_value(name), json_string_length(name), NULL,
                                json_incref(json_object_get(call, "arguments")));
    }
    json_decref(list);
    return good;
}

/* ---- calls without marks ---- */

static bool is_tool(const struct answer_form *form, const char *name, size_t bytes)
{
    return !form->types ||
           chat_types_find(form->types, CHAT_TYPES_TOOLS, name, bytes) != CHAT_TYPES_NONE;
}

/* The marks of the content, which may be around calls, too. */
static void skip_content_marks(const struct answer_form *form, struct cursor *c)
{
    do
        cursor_skip_blanks(c);
    while (form->content.open &&
           (cursor_take(c, form->content.open) || cursor_take(c, form->content.close)));
}

/* Calls in either form, with a semicolon between them or nothing. Any answer might look like one,
 * so that each has to be of a tool. */
static bool read_unmarked(const struct answer_form *form, struct cursor *c, json_t *calls)
{
    const struct answer_call *f = &form->call;
    size_t from = json_array_size(calls);
    bool list = c->at < c->end && *c->at == '[';
    bool good = list ? read_python(f, c, calls) : read_named(f, c, calls);
    for (size_t i = from; good && i < json_array_size(calls); i++) {
        const json_t *name = json_object_get(json_array_get(calls, i), "name");
        good = is_tool(form, json_string_value(name), json_string_length(name));
    }
    skip_content_marks(form, c);
    cursor_take(c, ";");
    skip_content_marks(form, c);
    return good;
}

/* The value of the first member of what may be a call, as answer_call_begins: its name is that of a
 * tool, or its type is "function". */
static int first_member(const struct answer_form *form, struct cursor *c, bool type)
{
    bool maybe = false;
    struct cursor name;
    cursor_skip_blanks(c);
    if (c->at < c->end && !cursor_take(c, ":"))
        return 0;
    cursor_skip_blanks(c);
    if (type)
        return begins(c, "\"function\"", &maybe) ? 1 : maybe ? -1 : 0;
    if (c->at < c->end && !cursor_take(c, "\""))
        return 0;
    if (!cursor_take_until(c, "\"", &name))
        return cursor_left(c) > CALL_FRONT_BYTES_MAX ? 0 : -1;
    return is_tool(form, name.at, cursor_left(&name));
}

bool answer_call_can_name(const struct answer_call *f, const char *name)
{
    return f->kind != ANSWER_PYTHON || python_is_name(name);
}

int answer_call_begins(const struct answer_form *form, const char *text, size_t bytes)
{
    static const char *const keys[] = {"\"name\"", "\"type\""};
    struct cursor c = {text, text + bytes};
    const char *name;
    size_t name_bytes;
    bool maybe = false;
    if (!cursor_take(&c, "{")) {
        int found = python_first_name(text, bytes, &name, &name_bytes);
        return found > 0 ? is_tool(form, name, name_bytes) : found;
    }
    cursor_skip_blanks(&c);
    if (c.at - text > CALL_FRONT_BYTES_MAX)
        return 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (begins(&c, keys[i], &maybe)) {
            cursor_take(&c, keys[i]);
            return first_member(form, &c, i == 1);
        }
    return maybe ? -1 : 0;
}

/* ---- Gemma 4 ---- */

static bool read_gemma(const struct answer_call *f, struct cursor *c, json_t *calls)
{
    struct cursor name, id;
    if (!cursor_take_until(c, f->name_end, &name) || !clean_name(f, &name, &id))
        return false;
    json_t *arguments = gemma_object(c);
    return arguments && add_call(calls, name.at, cursor_left(&name), &id, arguments);
}

/* ---- all calls ---- */

static bool read_call(const struct answer_form *form, struct cursor *c, json_t *calls)
{
    const struct answer_call *f = &form->call;
    bool whole = f->kind == ANSWER_NAMED || f->kind == ANSWER_LIST || f->kind == ANSWER_PYTHON;
    if (answer_is_unmarked(f))
        return read_unmarked(form, c, calls);
    if (!whole && !cursor_take(c, f->call_open))
        return false;
    switch (f->kind) {
    case ANSWER_PAIRS: return read_pairs(f, form->types, c, calls);
    case ANSWER_NESTED: return read_nested(form, c, calls);
    case ANSWER_OBJECT: return read_object(f, c, calls);
    case ANSWER_GEMMA: return read_gemma(f, c, calls);
    case ANSWER_LIST: return read_list(f, c, calls);
    case ANSWER_PYTHON: return read_python(f, c, calls);
    default: return read_named(f, c, calls);
    }
}

json_t *answer_calls(const struct answer_form *form, const char *text, size_t bytes)
{
    struct cursor c = {text, text + bytes};
    json_t *calls = json_array();
    bool good = calls != NULL, several = *form->call.call_open || form->call.block;
    cursor_skip_blanks(&c);
    do {
        good = good && read_call(form, &c, calls);
        cursor_skip_blanks(&c);
    } while (good && c.at < c.end && several);
    if (good && c.at == c.end)
        return calls;
    json_decref(calls);
    return NULL;
}

/* ---- calls without the mark before them ---- */

const char *answer_bare_mark(const struct answer_call *f)
{
    return f->open && f->call_open[0] == '<' ? f->call_open : NULL;
}

size_t answer_bare_end(const struct answer_call *f, const char *text, size_t bytes, bool end,
                       size_t *marked)
{
    struct cursor c = {text, text + bytes}, call;
    *marked = 0;
    for (bool maybe = false, another = true; another; maybe = false) {
        if (!cursor_take_until(&c, f->call_close, &call))
            return SIZE_MAX;
        struct cursor next = c;
        cursor_skip_blanks(&next);
        another = begins(&next, f->call_open, &maybe);
        if (!another && begins(&next, f->close, &maybe)) {
            *marked = strlen(f->close);
            return (size_t)(next.at - text) + *marked;
        }
        if (!another && maybe && !end)
            return SIZE_MAX;
    }
    return (size_t)(c.at - text);
}

json_t *answer_call_of_name(const char *name, size_t n, const char *text, size_t bytes, bool ended)
{
    static const struct answer_call plain = {.prefix = ""};
    struct cursor called = {name, name + n}, id, c = {text, text + bytes};
    json_t *calls = json_array(), *arguments = NULL;
    cursor_skip_blanks(&c);
    if (calls && clean_name(&plain, &called, &id))
        arguments = c.at == c.end && ended ? json_object() : call_value_read(c.at, cursor_left(&c));
    if (json_is_object(arguments) && add_call(calls, name, n, NULL, json_incref(arguments))) {
        json_decref(arguments);
        return calls;
    }
    json_decref(arguments);
    json_decref(calls);
    return NULL;
}
