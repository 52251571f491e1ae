/* SPDX-License-Identifier: Apache-2.0 */
/* Compares texts of JSON by their length and bytes. */
#include "lib/json/text.h"

#include <string.h>

bool json_text_is(const json_t *value, const char *text)
{
    size_t n = strlen(text);
    return json_is_string(value) && json_string_length(value) == n &&
           memcmp(json_string_value(value), text, n) == 0;
}

bool json_text_is_plain(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}
