/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a template's messages from those of a client: contents as texts, arguments of calls and
 * reasoning as the template takes them. */
#include "lib/model/chat/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/count.h"
#include "lib/json/text.h"
#include "lib/model/chat/calls/values.h"

/* Words of roles. Only those may become a part of a control token ("<|" role "|>"). */
const char *const chat_roles[] = {"system", "developer", "user", "assistant", "tool", NULL};

/* ---- messages -------------------------------------------------------------------------------- */

static int wrong(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "'messages': %s", what);
}

static int no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "out of memory (message)");
}

/* Passes a new value on; NULL is an error. */
static json_t *made(json_t *value, struct error *error)
{
    if (!value)
        no_memory(error);
    return value;
}

static bool known_role(const json_t *role)
{
    for (const char *const *r = chat_roles; *r; r++)
        if (json_text_is(role, *r))
            return true;
    return false;
}

/* The text of a part; NULL: it is no text. What an assistant refused is its text, too. */
static const json_t *text_of_part(const json_t *part)
{
    static const char *const types[] = {"text", "refusal"};
    const json_t *type = json_object_get(part, "type"), *text = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types && !text; i++)
        text = json_text_is(type, types[i]) ? json_object_get(part, types[i]) : NULL;
    return json_is_string(text) ? text : NULL;
}

static void wrong_part(const json_t *part, struct error *error)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    error_set(error, ERR_BAD_INPUT,
              "'messages': parts of a message must be texts; one has the type '%.40s'",
              type ? type : "(none)");
}

json_t *chat_text(const json_t *content, struct error *error)
{
    size_t bytes = 0, count = json_array_size(content);
    if (json_is_string(content))
        return json_incref((json_t *)(uintptr_t)content);
    if (!json_is_array(content)) {
        wrong(error, "a content must be text");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_array_get(content, i);
        if (!text_of_part(part)) {
            wrong_part(part, error);
            return NULL;
        }
        bytes += json_string_length(text_of_part(part));
    }
    char *joined = malloc(bytes + 1), *at = joined;
    for (size_t i = 0; joined && i < count; i++) {
        const json_t *text = text_of_part(json_array_get(content, i));
        memcpy(at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    json_t *text = joined ? json_stringn_nocheck(joined, bytes) : NULL;
    free(joined);
    return made(text, error);
}

static bool is_blank(const json_t *text)
{
    const char *value = json_string_value(text);
    return value && strspn(value, " \t\r\n") == json_string_length(text);
}

/* OpenAI's API has the arguments of a call as a text of JSON; most templates take them as an
 * object. NULL: it is none, or nested too deep, and stays; or, with *error, out of memory. */
static json_t *as_object(const json_t *arguments, struct error *error)
{
    json_error_t why = {.text = ""};
    const char *text = json_string_value(arguments);
    size_t bytes = json_string_length(arguments);
    if (!text || json_extent_of(text, bytes).depth > CALL_DEPTH_MAX)
        return NULL;
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL, &why);
    if (!value && json_error_code(&why) == json_error_out_of_memory)
        no_memory(error);
    return value;
}

/* Written as Python's json.dumps does; a text stays as it is. */
static json_t *as_text(const json_t *arguments, struct error *error)
{
    if (!json_is_object(arguments))
        return NULL;
    char *text = json_dumps(arguments, 0);
    json_t *value = text ? json_string(text) : NULL;
    free(text);
    return made(value, error);
}

/* Clients leave the arguments out, or write an empty text, where there are none. */
static int convert_arguments(json_t *call, const struct chat_shape *shape, struct error *error)
{
    json_t *function = json_object_get(call, "function");
    json_t *of = function ? function : call, *value;
    const json_t *given = json_object_get(of, "arguments");
    error->code = ERR_NONE;
    if (!json_is_object(of))
        return 0;
    if (!given || json_is_null(given) || is_blank(given))
        value = made(shape->text_arguments ? json_string("{}") : json_object(), error);
    else
        value = shape->text_arguments ? as_text(given, error) : as_object(given, error);
    if ((shape->text_arguments ? json_is_string(value) : json_is_object(value)) &&
        json_object_set(of, "arguments", value) != 0)
        no_memory(error);
    json_decref(value);
    return error->code == ERR_NONE ? 0 : -1;
}

/* Templates write more of a message than its content: names, reasoning, arguments of calls. */
static int reject_marks(const json_t *v, enum chat_family family, struct error *error)
{
    json_t *all = (json_t *)(uintptr_t)v, *part; /* jansson's iterators take no const */
    const char *key;
    size_t i;
    if (json_is_string(v))
        return chat_reject_marks(family, json_string_value(v), json_string_length(v), error);
    json_array_foreach(all, i, part) if (reject_marks(part, family, error) != 0) return -1;
    json_object_foreach(all, key, part)
    {
        if (chat_reject_marks(family, key, strlen(key), error) != 0 ||
            reject_marks(part, family, error) != 0)
            return -1;
    }
    return 0;
}

/* The content that the template gets. NULL with an error. */
static json_t *content_of(const json_t *message, const struct chat_shape *shape,
                          struct error *error)
{
    const json_t *content = json_object_get(message, "content");
    bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    bool empty = json_is_string(content) && json_string_length(content) == 0;
    if (!content || json_is_null(content) || (empty && calls && shape->empty_is_null))
        return made(calls && shape->null_content ? json_null() : json_string(""), error);
    return chat_text(content, error);
}

/* A copy with another content, which is taken. jansson's copies lack what an allocation failed
 * for. */
static json_t *copy_of(const json_t *message, json_t *content, struct error *error)
{
    json_t *copy = json_deep_copy(message);
    bool whole = copy && json_equal(copy, message);
    if (json_object_set_new(copy, "content", content) == 0 && whole)
        return copy;
    json_decref(copy);
    return made(NULL, error);
}

static int convert_calls(json_t *message, const struct chat_shape *shape, struct error *error)
{
    json_t *call;
    size_t i;
    json_array_foreach(json_object_get(message, "tool_calls"), i,
                       call) if (convert_arguments(call, shape, error) != 0) return -1;
    return 0;
}

/* Clients send back what they got, with null for what was not there. Templates look whether a
 * message has a member, and take it for one with a value. */
static void drop_empty(json_t *message)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(message, next, key, value)
    {
        bool calls = strcmp(key, "tool_calls") == 0;
        if (calls ? json_array_size(value) == 0
                  : json_is_null(value) && strcmp(key, "content") != 0)
            json_object_del(message, key);
    }
}

static json_t *message_of(const json_t *message, const struct chat_shape *shape,
                          enum chat_family family, struct error *error)
{
    if (!json_is_object(message)) {
        wrong(error, "must be an array of objects");
        return NULL;
    }
    if (!known_role(json_object_get(message, "role"))) {
        wrong(error, "a role must be system, developer, user, assistant or tool");
        return NULL;
    }
    json_t *content = content_of(message, shape, error);
    json_t *copy = content ? copy_of(message, content, error) : NULL;
    if (copy)
        drop_empty(copy);
    if (copy &&
        (convert_calls(copy, shape, error) != 0 || reject_marks(copy, family, error) != 0)) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* The mark after the content of the message that the answer continues. */
static int mark_end(json_t *message, struct error *error)
{
    const json_t *content = json_object_get(message, "content");
    size_t n = json_string_length(content);
    char *text = malloc(n + sizeof CHAT_CONTINUES);
    json_t *marked = NULL;
    if (text) {
        memcpy(text, n > 0 ? json_string_value(content) : "", n);
        memcpy(text + n, CHAT_CONTINUES, sizeof CHAT_CONTINUES);
        marked = json_stringn_nocheck(text, n + sizeof CHAT_CONTINUES - 1);
    }
    free(text);
    return json_object_set_new(message, "content", marked) == 0 ? 0 : no_memory(error);
}

/* The content becomes a list: the reasoning, then the text, if there is any. */
static int put_thoughts(json_t *message, struct error *error)
{
    const json_t *thoughts = json_object_get(message, "reasoning_content"),
                 *content = json_object_get(message, "content");
    if (json_string_length(thoughts) == 0 ||
        !json_text_is(json_object_get(message, "role"), "assistant"))
        return 0;
    json_t *parts = json_pack("[{s:s, s:O}]", "type", "thinking", "thinking", thoughts);
    json_t *text = json_string_length(content) > 0
                       ? json_pack("{s:s, s:O}", "type", "text", "text", content)
                       : NULL;
    bool good =
        parts &&
        (json_string_length(content) == 0 || (text && json_array_append(parts, text) == 0)) &&
        json_object_set(message, "content", parts) == 0;
    json_decref(parts);
    json_decref(text);
    return good ? 0 : no_memory(error);
}

/* Beside calls one of two texts has to go: the reasoning is what led to them. */
static int put_member(json_t *message, const struct chat_shape *shape, struct error *error)
{
    json_t *thoughts = json_object_get(message, "reasoning_content");
    bool own = json_string_length(json_object_get(message, shape->thoughts)) > 0;
    if ((!own && json_string_length(thoughts) == 0) ||
        !json_text_is(json_object_get(message, "role"), "assistant"))
        return 0;
    bool good = own || json_object_set(message, shape->thoughts, thoughts) == 0;
    if (good && shape->thoughts_or_words &&
        json_array_size(json_object_get(message, "tool_calls")) > 0)
        good = json_object_set_new(message, "content",
                                   shape->empty_is_null ? json_null() : json_string("")) == 0;
    return good ? 0 : no_memory(error);
}

static int put_reasoning(json_t *message, const struct chat_shape *shape, struct error *error)
{
    return shape->thinking_parts ? put_thoughts(message, error)
           : shape->thoughts     ? put_member(message, shape, error)
                                 : 0;
}

/* ---- ids of calls ---- */

struct ids {
    json_t *taken; /* keys: those of the conversation that the template takes */
    json_t *made;  /* an id of the conversation, and that which replaces it */
    unsigned next; /* the number of the next one that is made */
};

static bool is_short(const json_t *id)
{
    return json_is_string(id) && answer_id_is_short(json_string_value(id), json_string_length(id));
}

/* An id that the conversation does not have yet. */
static json_t *make_id(struct ids *ids)
{
    char id[ANSWER_SHORT_ID_BYTES + 1];
    do
        snprintf(id, sizeof id, "id%07u", ids->next++ % 10000000);
    while (json_object_get(ids->taken, id));
    return json_string(id);
}

static int note_id(json_t *of, const char *key, struct ids *ids, struct error *error)
{
    const json_t *id = json_object_get(of, key);
    return !is_short(id) || json_object_set_new(ids->taken, json_string_value(id), json_true()) == 0
               ? 0
               : no_memory(error);
}

/* Another id instead of one that the template rejects, the same for a call and its result. */
static int shorten(json_t *of, const char *key, struct ids *ids, struct error *error)
{
    const json_t *id = json_object_get(of, key);
    if (!json_text_is_plain(id) || is_short(id))
        return 0;
    json_t *made = json_object_get(ids->made, json_string_value(id));
    if (!made && json_object_set_new(ids->made, json_string_value(id), make_id(ids)) != 0)
        return no_memory(error);
    made = json_object_get(ids->made, json_string_value(id));
    return json_object_set(of, key, made) == 0 ? 0 : no_memory(error);
}

typedef int with_id(json_t *of, const char *key, struct ids *ids, struct error *error);

/* Each id of a call and of a result. */
static int each_id(json_t *messages, with_id *with, struct ids *ids, struct error *error)
{
    json_t *message, *call;
    size_t i, k;
    int rc = 0;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) if (rc == 0) rc =
            with(call, "id", ids, error);
        if (rc == 0)
            rc = with(message, "tool_call_id", ids, error);
    }
    return rc;
}

static int shorten_ids(json_t *messages, struct error *error)
{
    struct ids ids = {.taken = json_object(), .made = json_object()};
    int rc = ids.taken && ids.made ? 0 : no_memory(error);
    if (rc == 0)
        rc = each_id(messages, note_id, &ids, error);
    if (rc == 0)
        rc = each_id(messages, shorten, &ids, error);
    json_decref(ids.taken);
    json_decref(ids.made);
    return rc;
}

json_t *chat_messages(const json_t *messages, bool continues, const struct chat_shape *shape,
                      enum chat_family family, struct error *error)
{
    size_t n = json_array_size(messages);
    if (n == 0 || n > CHAT_MESSAGES_MAX) {
        error_set(error, ERR_BAD_INPUT, "'messages' must be an array of 1 to %d messages",
                  CHAT_MESSAGES_MAX);
        return NULL;
    }
    json_t *out = made(json_array(), error);
    for (size_t i = 0; out && i < n; i++) {
        json_t *message = message_of(json_array_get(messages, i), shape, family, error);
        int rc = message ? 0 : -1;
        if (message && json_array_append(out, message) != 0)
            rc = no_memory(error);
        if (rc == 0 && continues && i == n - 1)
            rc = mark_end(message, error);
        if (rc == 0)
            rc = put_reasoning(message, shape, error);
        json_decref(message);
        if (rc != 0) {
            json_decref(out);
            return NULL;
        }
    }
    if (out && shape->short_ids && shorten_ids(out, error) != 0) {
        json_decref(out);
        return NULL;
    }
    return chat_fit_roles(out, shape, error);
}
