/* SPDX-License-Identifier: Apache-2.0 */
/* Answers schema_random.py over standard input, a line of JSON per request: {"schema": text,
 * "texts": [text, ...], "walks": count, "seed": number}. Reply: {"error": text}, or which texts
 * are complete and what walks through the automaton wrote. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "lib/grammar/grammar.h"

#define WALK_BYTES 4000

static bool complete(const struct grammar *g, const char *text, size_t bytes)
{
    struct grammar_state *s = grammar_start(g);
    bool fits = s && grammar_accept_text(s, text, bytes) == bytes && grammar_is_end(s);
    grammar_stop(s);
    return fits;
}

/* Of the bytes that may follow; the longer the text, the rather those that end strings and
 * objects. */
static int choose(const uint64_t set[4], struct random *r, size_t written)
{
    static const char ends[] = "\"}],:0123456789 eaTZ-.";
    unsigned allowed[256], count = 0;
    for (unsigned c = 0; c < 256; c++)
        if (set[c >> 6] >> (c & 63) & 1)
            allowed[count++] = c;
    if (count == 0)
        return -1;
    if (random_below(r, 60) < 5 + written)
        for (const char *c = ends; *c && random_below(r, 8); c++)
            if (set[(unsigned char)*c >> 6] >> (*c & 63) & 1)
                return *c;
    return (int)allowed[random_below(r, count)];
}

/* A text that ends within the room; NULL otherwise. */
static json_t *walk(const struct grammar *g, struct random *r)
{
    struct grammar_state *s = grammar_start(g);
    char text[WALK_BYTES];
    size_t n = 0;
    while (n < sizeof(text)) {
        uint64_t set[4];
        if (grammar_is_end(s) && (random_below(r, 3) == 0 || !grammar_continues(s)))
            break;
        grammar_next_bytes(s, set);
        int byte = choose(set, r, n);
        if (byte < 0 || !grammar_accept(s, (uint8_t)byte))
            break;
        text[n++] = (char)byte;
    }
    bool end = grammar_is_end(s);
    if (!end && n < sizeof(text)) {
        fprintf(stderr, "a text cannot continue: %.*s\n", (int)n, text);
        exit(1);
    }
    grammar_stop(s);
    return end ? json_stringn(text, n) : json_null();
}

static json_t *answer(const json_t *request)
{
    const json_t *schema = json_object_get(request, "schema"), *text;
    struct error error = {0};
    struct grammar *g = NULL;
    struct random r;
    size_t i;
    if (grammar_from_schema(json_string_value(schema), json_string_length(schema), NULL, &g,
                            &error) != 0)
        return json_pack("{ss}", "error", error.text);
    json_t *fits = json_array(), *walks = json_array();
    json_array_foreach(json_object_get(request, "texts"), i, text) json_array_append_new(
        fits, json_boolean(complete(g, json_string_value(text), json_string_length(text))));
    random_seed(&r, (uint64_t)json_integer_value(json_object_get(request, "seed")), 0);
    for (json_int_t n = json_integer_value(json_object_get(request, "walks")); n > 0; n--)
        json_array_append_new(walks, walk(g, &r));
    grammar_free(g);
    return json_pack("{soso}", "fits", fits, "walks", walks);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL), *reply;
        if (!request)
            return 2;
        reply = answer(request);
        json_dumpf(reply, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    return 0;
}
