/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the pull parser of JSON. For any bytes it accepts what jansson accepts, with the
 * same value; skipping a document finds the same errors as taking it. */
#include <stdint.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_limits limits = JSON_LIMITS_DEFAULT;

/* Objects with a key twice are valid to it. */
static bool skips(const char *text, size_t bytes)
{
    struct error error = {0};
    struct json_reader *r = json_reader_text_of(text, bytes, &limits, &error);
    sl_assert(r);
    json_skip_value(r);
    bool valid = json_reader_end(r, &error) == 0;
    sl_assert(valid || (error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n')));
    json_reader_close(r);
    return valid;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct error error = {0};
    json_error_t why;
    struct json_reader *r = json_reader_text_of(text, size, &limits, &error);
    sl_assert(r);
    json_t *got = json_read_value(r);
    bool valid = json_reader_end(r, &error) == 0;
    json_reader_close(r);
    json_t *expected = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (valid) {
        sl_assert(got && expected && json_equal(got, expected));
        sl_assert(skips(text, size));
    } else if (expected && !memchr(text, 0, size)) { /* it skips a NUL after a number */
        sl_assert(strstr(error.text, "nested too deeply") || strstr(error.text, "too many values"));
    }
    (void)skips(text, size);
    json_decref(got);
    json_decref(expected);
    return 0;
}
