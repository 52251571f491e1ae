/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as Gemma 4 writes them. */
#include "lib/model/chat/calls/gemma.h"

#include "lib/model/chat/calls/python.h"
#include "lib/model/chat/calls/values.h"

#define QUOTE "<|\"|>"

static json_t *gemma_value(struct cursor *c, unsigned depth);

/* After "[" or "{". */
static json_t *gemma_list(struct cursor *c, bool object, unsigned depth)
{
    json_t *list = object ? json_object() : json_array();
    const char *close = object ? "}" : "]";
    bool good = list && depth < CALL_DEPTH_MAX, first = true;
    for (cursor_skip_blanks(c); good && !cursor_take(c, close);
         cursor_skip_blanks(c), first = false) {
        struct cursor key = {0};
        good = first || cursor_take(c, ",");
        cursor_skip_blanks(c);
        if (good && object)
            good = (cursor_take(c, QUOTE) ? cursor_take_until(c, QUOTE, &key) && cursor_take(c, ":")
                                          : cursor_take_until(c, ":", &key)) &&
                   cursor_left(&key) > 0 && !json_object_getn(list, key.at, cursor_left(&key));
        json_t *value = good ? gemma_value(c, depth + 1) : NULL;
        good = value && (object ? json_object_setn_new(list, key.at, cursor_left(&key), value)
                                : json_array_append_new(list, value)) == 0;
    }
    if (good)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *gemma_value(struct cursor *c, unsigned depth)
{
    struct cursor text;
    cursor_skip_blanks(c);
    if (cursor_take(c, QUOTE))
        return cursor_take_until(c, QUOTE, &text) ? json_stringn(text.at, cursor_left(&text))
                                                  : NULL;
    if (cursor_take(c, "{") || cursor_take(c, "["))
        return gemma_list(c, c->at[-1] == '{', depth);
    text = (struct cursor){c->at, c->at};
    while (text.end < c->end && !strchr(",}]", *text.end))
        text.end++;
    c->at = text.end;
    json_t *value = call_value_read(text.at, cursor_left(&text));
    /* the template prints null as None */
    return value ? value : python_named(text.at, cursor_left(&text));
}

json_t *gemma_object(struct cursor *c)
{
    return gemma_list(c, true, 0);
}
