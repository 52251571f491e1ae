/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/json/count.h"

#include <stdbool.h>

size_t json_count_values(const char *text, size_t bytes)
{
    size_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == ',' || text[i] == '[' || text[i] == '{') {
            values++;
        }
    }
    return values;
}
