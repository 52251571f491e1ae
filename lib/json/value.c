/* SPDX-License-Identifier: Apache-2.0 */
/* Values of jansson from a reader. Recursion is as deep as the reader's limit of depth. */
#include <stdlib.h>
#include <string.h>

#include "lib/json/reader.h"

static json_t *value_of(struct json_reader *r, enum json_event event);

static json_t *object_of(struct json_reader *r)
{
    json_t *object = json_object();
    while (object && json_next(r) == JSON_EVENT_KEY) {
        char *name = malloc(json_reader_bytes(r) + 1);
        if (!name) {
            json_reader_fail(r, ERR_NO_MEMORY, "out of memory (JSON)");
            break;
        }
        memcpy(name, json_reader_text(r), json_reader_bytes(r) + 1);
        if (json_object_get(object, name))
            json_reader_fail(r, ERR_BAD_INPUT, "invalid JSON: duplicate key");
        json_t *member = value_of(r, json_next(r));
        int rc = member ? json_object_set_new_nocheck(object, name, member) : 0;
        free(name);
        if (!member || rc != 0)
            break;
    }
    return object;
}

static json_t *array_of(struct json_reader *r)
{
    json_t *array = json_array(), *element;
    while (array && (element = value_of(r, json_next(r))))
        if (json_array_append_new(array, element) != 0)
            break;
    return array;
}

/* A container that is not closed by its last event was cut short by an error. */
static json_t *closed(struct json_reader *r, json_t *container, enum json_event end)
{
    if (container && json_last_event(r) == end)
        return container;
    json_decref(container);
    json_reader_fail(r, ERR_NO_MEMORY, "out of memory (JSON)"); /* unless there was an error */
    return NULL;
}

static json_t *value_of(struct json_reader *r, enum json_event event)
{
    if (!json_reader_count_value(r))
        return NULL;
    switch (event) {
    case JSON_EVENT_OBJECT: return closed(r, object_of(r), JSON_EVENT_OBJECT_END);
    case JSON_EVENT_ARRAY: return closed(r, array_of(r), JSON_EVENT_ARRAY_END);
    case JSON_EVENT_STRING: return json_stringn_nocheck(json_reader_text(r), json_reader_bytes(r));
    case JSON_EVENT_INTEGER: return json_integer(json_reader_integer(r));
    case JSON_EVENT_REAL: return json_real(json_reader_real(r));
    case JSON_EVENT_TRUE: return json_true();
    case JSON_EVENT_FALSE: return json_false();
    case JSON_EVENT_NULL: return json_null();
    default: return NULL; /* an error, or the end of the container */
    }
}

json_t *json_read_value(struct json_reader *r)
{
    return value_of(r, json_next(r));
}

bool json_skip_value(struct json_reader *r)
{
    unsigned depth = 0;
    do
        switch (json_next(r)) {
        case JSON_EVENT_OBJECT:
        case JSON_EVENT_ARRAY: depth++; break;
        case JSON_EVENT_OBJECT_END:
        case JSON_EVENT_ARRAY_END:
            if (depth == 0)
                return false;
            depth--;
            break;
        case JSON_EVENT_ERROR:
        case JSON_EVENT_END: return false;
        default: break;
        }
    while (depth > 0);
    return true;
}
