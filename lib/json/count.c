/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the values of a text and their depth in one pass over its bytes. */
#include "lib/json/count.h"

#include <stdbool.h>

struct json_extent json_extent_of(const char *text, size_t bytes)
{
    struct json_extent e = {.values = 1};
    bool in_string = false;
    size_t depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
            e.texts++;
        } else if (c == '[' || c == '{') {
            e.containers++;
            e.values++;
            e.depth = ++depth > e.depth ? depth : e.depth;
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',') {
            e.values++;
        }
    }
    return e;
}

size_t json_count_values(const char *text, size_t bytes)
{
    return json_extent_of(text, bytes).values;
}
