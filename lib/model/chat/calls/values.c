/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of calls as JSON. */
#include "lib/model/chat/calls/values.h"

#include <stdlib.h>

#include "lib/json/count.h"

bool call_value_too_much(const char *text, size_t bytes)
{
    struct json_extent e = json_extent_of(text, bytes);
    return e.depth > CALL_DEPTH_MAX || e.containers > CALL_CONTAINERS_MAX;
}

json_t *call_value_read(const char *text, size_t bytes)
{
    return call_value_too_much(text, bytes) ? NULL
                                            : json_loadb(text, bytes, CALL_VALUE_FLAGS, NULL);
}

char *call_value_text(const json_t *value)
{
    for (size_t digits = 15;; digits++) {
        char *text =
            json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again =
            text && digits < 17 ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
        bool same = again && json_equal(again, value);
        json_decref(again);
        if (!text || digits == 17 || same)
            return text;
        free(text);
    }
}
