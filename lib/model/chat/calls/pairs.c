/* SPDX-License-Identifier: Apache-2.0 */
/* A value is JSON or a text: by what stands before it, or else by the schema of its tool. */
#include <string.h>

#include "lib/model/chat/calls/pairs.h"
#include "lib/model/chat/calls/python.h"
#include "lib/model/chat/calls/values.h"

json_t *pair_value(bool json, const struct cursor *text)
{
    json_t *value = NULL;
    if (json) {
        value = call_value_read(text->at, cursor_left(text));
        value = value ? value : python_named(text->at, cursor_left(text));
    }
    return value ? value : json_stringn(text->at, cursor_left(text));
}

bool pair_is_key(const struct cursor *key)
{
    return cursor_left(key) > 0 && !memchr(key->at, '<', cursor_left(key)) &&
           !memchr(key->at, '\n', cursor_left(key));
}

struct cursor pair_cut(const struct answer_call *f, struct cursor *text)
{
    const char *quote = f->attributes ? memchr(text->at, '"', cursor_left(text)) : NULL;
    struct cursor behind = {quote ? quote + 1 : text->end, text->end};
    text->end = quote ? quote : text->end;
    return behind;
}

enum said { SAID_NOTHING, SAID_TEXT, SAID_JSON };

/* ` string="true"` or `="false"` before a value. False: the mark is not whole. */
static bool take_said(struct cursor *c, enum said *said)
{
    if (cursor_take(c, " string=\"true\""))
        *said = SAID_TEXT;
    else if (cursor_take(c, " string=\"false\""))
        *said = SAID_JSON;
    return cursor_take(c, ">");
}

/* ` type="string"`, or another type, among attributes. */
static enum said said_by(struct cursor attributes)
{
    struct cursor before;
    if (!cursor_take_until(&attributes, " type=\"", &before))
        return SAID_NOTHING;
    return cursor_take(&attributes, "string\"") ? SAID_TEXT : SAID_JSON;
}

/* Up to the first mark that is in no text of JSON; if that is not JSON, up to the first one. */
static bool take_json(struct cursor *c, const char *mark, struct cursor *value)
{
    struct cursor first = *c, next = *c, part = *c;
    bool quoted = false, several = false;
    if (!cursor_take_until(&first, mark, value))
        return false;
    while (cursor_take_until(&next, mark, &part)) {
        for (const char *p = part.at; p < part.end; p++)
            if (quoted && *p == '\\')
                p++;
            else if (*p == '"')
                quoted = !quoted;
        if (!quoted)
            break;
        several = true;
    }
    struct cursor whole = {c->at, part.end};
    json_t *json = several && !quoted ? call_value_read(whole.at, cursor_left(&whole)) : NULL;
    *value = json ? whole : *value;
    *c = json ? next : first;
    json_decref(json);
    return true;
}

bool pair_read(const struct answer_call *f, const struct chat_types *types, struct cursor *c,
               const struct cursor *name, json_t *arguments)
{
    struct cursor key, value;
    if (!cursor_take_until(c, f->key_end, &key))
        return false;
    enum said said = said_by(pair_cut(f, &key));
    if (!pair_is_key(&key))
        return false;
    if (*f->value_open)
        cursor_skip_blanks(c);
    if ((f->typed && !take_said(c, &said)) || !cursor_take(c, f->value_open) ||
        !(said == SAID_JSON ? take_json(c, f->value_close, &value)
                            : cursor_take_until(c, f->value_close, &value)))
        return false;
    if (f->lines) {
        cursor_take(&value, "\n");
        value.end -= value.at < value.end && value.end[-1] == '\n';
    }
    bool json = said == SAID_NOTHING
                    ? chat_types_json(types, name->at, cursor_left(name), key.at, cursor_left(&key))
                    : said == SAID_JSON;
    return !json_object_getn(arguments, key.at, cursor_left(&key)) &&
           json_object_setn_new(arguments, key.at, cursor_left(&key), pair_value(json, &value)) ==
               0;
}
