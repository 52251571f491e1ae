/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the compiler for JSON Schema. Input: a schema, a NUL, bytes that choose a walk. A
 * schema is refused with one line, or its automaton continues within its limits until the text may
 * end. A text that ends is JSON. */
#include <jansson.h>
#include <stdint.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes the first byte that may follow, the quote and what closes first, until the text ends. */
static void written_is_json(const struct grammar *g, const uint8_t *choices, size_t count)
{
    static const char ends[] = "\"}]";
    struct grammar_state *s = grammar_start(g);
    char text[400];
    size_t n = 0;
    sl_assert(s);
    while (n < sizeof(text) && grammar_continues(s)) {
        uint64_t set[4];
        grammar_next_bytes(s, set);
        uint8_t byte = walk_byte(set, n < count ? choices[n] : 0);
        for (const char *c = ends; *c && n >= count; c++)
            if (set[(uint8_t)*c >> 6] >> (*c & 63) & 1)
                byte = (uint8_t)*c;
        sl_assert(grammar_accept(s, byte));
        text[n++] = (char)byte;
        if (!grammar_is_end(s))
            continue;
        json_error_t why;
        json_t *value = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
        sl_assert(value || json_error_code(&why) == json_error_numeric_overflow);
        json_decref(value);
    }
    grammar_stop(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct grammar_limits limits = WALK_LIMITS;
    struct error error = {0};
    struct grammar *g = NULL;
    const uint8_t *end = memchr(data, 0, size);
    size_t bytes = end ? (size_t)(end - data) : size;
    if (grammar_from_schema((const char *)data, bytes, &limits, &g, &error) != 0) {
        grammar_refused(&error);
        return 0;
    }
    const uint8_t *choices = end ? end + 1 : data;
    size_t count = end ? size - bytes - 1 : size;
    grammar_walk(g, choices, count);
    written_is_json(g, choices, count);
    grammar_free(g);
    return 0;
}
