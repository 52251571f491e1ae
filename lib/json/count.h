/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how many values a text of JSON has at most, and how deep they are nested. Both are known
 * before it is parsed, since a parsed tree takes up to 50 times the memory of its text, and jansson
 * recurses, up to 2,048 deep, on stacks that are smaller. */
#ifndef SLUICE_JSON_COUNT_H
#define SLUICE_JSON_COUNT_H

#include <stddef.h>

/* Upper bounds; of a text that is no JSON, too. */
struct json_extent {
    size_t values, containers; /* containers: arrays and objects, which are values, too */
    size_t texts;              /* names of members included */
    size_t depth;              /* of containers in each other */
};
struct json_extent json_extent_of(const char *text, size_t bytes);
size_t json_count_values(const char *text, size_t bytes);

#endif
