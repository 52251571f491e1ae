/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up values of the stats snapshot by their path. */
#include "lib/json/lookup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATH_KEY_BYTES 64

static const json_t *at_path(const json_t *doc, const char *path)
{
    while (doc && *path) {
        char key[PATH_KEY_BYTES];
        size_t n = strcspn(path, ".");
        if (n >= sizeof key)
            return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        doc = json_object_get(doc, key);
        path += n + (path[n] == '.');
    }
    return doc;
}

static uint64_t number(const json_t *value)
{
    if (json_is_integer(value) && json_integer_value(value) > 0)
        return (uint64_t)json_integer_value(value);
    if (json_is_real(value) && json_real_value(value) > 0)
        return (uint64_t)json_real_value(value);
    return 0;
}

size_t lookup_processes(const json_t *doc)
{
    return json_array_size(at_path(doc, "processes"));
}

const json_t *lookup_row(const json_t *doc, size_t i)
{
    return json_array_get(at_path(doc, "processes"), i);
}

const json_t *lookup_process(const json_t *doc, const char *service, unsigned wanted)
{
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        if (strcmp(lookup_text(row, "service"), service) == 0 &&
            lookup_u64(row, "number") == wanted)
            return row;
    }
    return NULL;
}

const char *lookup_name(const json_t *row, char buf[LOOKUP_NAME_BYTES])
{
    const char *service = lookup_text(row, "service");
    if (strcmp(service, "loader") == 0)
        snprintf(buf, LOOKUP_NAME_BYTES, "loader.%" PRIu64, lookup_u64(row, "number"));
    else
        snprintf(buf, LOOKUP_NAME_BYTES, "%s", service);
    return buf;
}

size_t lookup_exits(const json_t *doc)
{
    return json_array_size(at_path(doc, "exits"));
}

const json_t *lookup_exit(const json_t *doc, size_t i)
{
    size_t count = lookup_exits(doc);
    return i < count ? json_array_get(at_path(doc, "exits"), count - 1 - i) : NULL;
}

uint64_t lookup_counter(const json_t *doc, const char *service, const char *counter)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < lookup_processes(doc); i++) {
        const json_t *row = lookup_row(doc, i);
        if (strcmp(lookup_text(row, "service"), service) == 0)
            sum += number(json_object_get(json_object_get(row, "counters"), counter));
    }
    return sum;
}

uint64_t lookup_restarts(const json_t *doc)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < lookup_processes(doc); i++)
        sum += lookup_u64(lookup_row(doc, i), "restarts");
    return sum;
}

uint64_t lookup_u64(const json_t *doc, const char *path)
{
    return number(at_path(doc, path));
}

const char *lookup_text(const json_t *doc, const char *path)
{
    const char *text = json_string_value(at_path(doc, path));
    return text ? text : "";
}

const char *lookup_model(const json_t *doc)
{
    const char *name = lookup_text(doc, "model.name"), *path = lookup_text(doc, "model.path");
    const char *slash = strrchr(path, '/');
    return *name ? name : slash ? slash + 1 : path;
}
