/* SPDX-License-Identifier: Apache-2.0 */
/* The border: values of JSON as values of the template language. */
#include "lib/jinja/value/value.h"

static struct jvalue array_of(struct jheap *h, const json_t *json, enum jorigin o)
{
    struct jvalue v = jlist_new(h, JFORM_LIST, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json); i++)
        jlist_add(h, v.list, jvalue_of_json(h, json_array_get(json, i), o));
    v.list->origin = (uint8_t)o;
    return v;
}

static struct jvalue object_of(struct jheap *h, const json_t *json, enum jorigin o)
{
    struct jvalue v = jdict_new(h, json_object_size(json));
    struct jdict *d = v.dict;
    json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators take no const */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const struct jstring *key =
            jstring_of(h, json_object_iter_key(at), json_object_iter_key_len(at), o);
        /* the keys of an object differ */
        d->at[d->count++] =
            (struct jpair){jstring_value(key), jvalue_of_json(h, json_object_iter_value(at), o)};
    }
    d->origin = (uint8_t)o;
    return v;
}

static struct jvalue value_of(struct jheap *h, const json_t *json, enum jorigin o)
{
    struct jvalue v;
    switch (json_typeof(json)) {
    case JSON_STRING:
        return jstring_value(jstring_of(h, json_string_value(json), json_string_length(json), o));
    case JSON_ARRAY: return array_of(h, json, o);
    case JSON_OBJECT: return object_of(h, json, o);
    case JSON_INTEGER: v = jint(json_integer_value(json)); break;
    case JSON_REAL: v = jfloat(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = jbool(json_is_true(json)); break;
    default: v = jnone();
    }
    v.origin = (uint8_t)o;
    return v;
}

struct jvalue jvalue_of_json(struct jheap *h, const json_t *json, enum jorigin o)
{
    jheap_enter(h);
    jheap_step(h);
    struct jvalue v = value_of(h, json, o);
    jheap_leave(h);
    return v;
}
