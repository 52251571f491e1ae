/* SPDX-License-Identifier: Apache-2.0 */
/* In builds with AddressSanitizer every call of the JSON library goes through here first (--wrap,
 * cmake/flags.cmake): the library itself is not instrumented, so that reading a freed value in it
 * would be no report. Reading its type here is one. */
#include <jansson.h>

#define CHECKED(result, name, parameters, arguments, value)                                        \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        touch(value);                                                                              \
        return __real_##name arguments;                                                            \
    }

static void touch(const json_t *value)
{
    static volatile int seen;
    if (value)
        seen = (int)value->type;
    (void)seen;
}

#define ONE(result, name) CHECKED(result, name, (const json_t *value), (value), value)
ONE(size_t, json_object_size)
ONE(size_t, json_array_size)
ONE(const char *, json_string_value)
ONE(size_t, json_string_length)
ONE(json_int_t, json_integer_value)
ONE(double, json_real_value)
ONE(double, json_number_value)
ONE(json_t *, json_deep_copy)
CHECKED(json_t *, json_array_get, (const json_t *value, size_t i), (value, i), value)
CHECKED(json_t *, json_object_get, (const json_t *value, const char *key), (value, key), value)
CHECKED(json_t *, json_object_getn, (const json_t *value, const char *key, size_t n),
        (value, key, n), value)
CHECKED(char *, json_dumps, (const json_t *value, size_t flags), (value, flags), value)
CHECKED(int, json_equal, (const json_t *value, const json_t *other), (value, other), value)
CHECKED(void *, json_object_iter, (json_t * value), (value), value)
CHECKED(int, json_object_set_new, (json_t * value, const char *key, json_t *member),
        (value, key, member), value)
CHECKED(int, json_object_setn_new, (json_t * value, const char *key, size_t n, json_t *member),
        (value, key, n, member), value)
CHECKED(int, json_object_del, (json_t * value, const char *key), (value, key), value)
CHECKED(int, json_object_update, (json_t * value, json_t *other), (value, other), value)
CHECKED(int, json_array_append_new, (json_t * value, json_t *member), (value, member), value)
