/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize against the tokens of another implementation
 * (tests/golden/tokenizer_vectors.py). */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/json/json_file.h"
#include "lib/json/lookup.h"
#include "tests/harness/harness.h"

#define VECTORS_MAX_BYTES (16 * MIB)
#define END_MS            60000
#define CONTROL_TEXT      "<|endoftext|>" /* the control token of the demo model */
#define LOADS_FLAGS       (JSON_DECODE_ANY | JSON_ALLOW_NUL)

/* Standard output of a run that succeeds: newly allocated. */
static char *output(const char *input, const char *const argv[])
{
    struct command c;
    command_run(&c, input, END_MS, argv);
    CHECK(c.status == 0, "status %d: %.400s", c.status, c.err);
    char *out = strdup(c.out);
    CHECK(out, "out of memory");
    command_free(&c);
    return out;
}

static json_t *tokens_of(const char *text)
{
    char *out = output(
        text, (const char *const[]){"tokenize", "-m", test_model(), "--text", "-", "--json", NULL});
    json_t *doc = json_loads(out, LOADS_FLAGS, NULL);
    CHECK(doc, "%.300s", out);
    free(out);
    return doc;
}

static void ids_of_another_implementation(void)
{
    struct error error;
    json_t *doc = json_file(SLUICE_SOURCE_DIR "/tests/golden/data/tokenizer_vectors.json",
                            VECTORS_MAX_BYTES, &error);
    CHECK(doc, "%s", error.text);
    const json_t *vectors = json_object_get(doc, "vectors");
    CHECK(json_array_size(vectors) >= 30, "%zu vectors", json_array_size(vectors));
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        const json_t *vector = json_array_get(vectors, i), *ids = json_object_get(vector, "ids");
        const char *text = lookup_text(vector, "text");
        if (strlen(text) != json_string_length(json_object_get(vector, "text")))
            continue; /* NUL: not through this harness */
        json_t *got = tokens_of(text);
        CHECK(json_equal(json_object_get(got, "ids"), ids), "vector %zu: '%.100s'", i, text);
        CHECK(lookup_u64(got, "count") == json_array_size(ids), "vector %zu: count", i);
        CHECK(lookup_u64(got, "bytes") == strlen(text), "vector %zu: bytes", i);
        json_decref(got);
    }
    json_decref(doc);
}

/* The same tokens in every form. */
static void forms(void)
{
    const char *m = test_model();
    char *lines =
        output(NULL, (const char *const[]){"tokenize", "-m", m, "-p", "It \xe4\xb8\x96", NULL});
    CHECK(strstr(lines, "   1063  \"It\"\n") && strstr(lines, "  bytes b8\n") &&
              strstr(lines, "5 tokens, 6 bytes\n"),
          "%s", lines);
    char *ids = output(
        NULL, (const char *const[]){"tokenize", "-m", m, "-p", "Hello, world!", "--ids", NULL});
    CHECK(strcmp(ids, "39 457 78 11 792 0\n") == 0, "%s", ids);
    char *count = output("Hello, world!", (const char *const[]){"tokenize", "-m", m, "--text", "-",
                                                                "--count", NULL});
    CHECK(strcmp(count, "6\n") == 0, "%s", count);
    char *pieces = output(NULL, (const char *const[]){"tokenize", "-m", m, "--pieces",
                                                      "39,457,78,11,792,0", "--json", NULL});
    json_t *doc = json_loads(pieces, JSON_ALLOW_NUL, NULL);
    const json_t *list = json_object_get(doc, "pieces");
    char joined[64] = "";
    for (size_t i = 0; i < json_array_size(list); i++)
        strncat(joined, json_string_value(json_array_get(list, i)),
                sizeof joined - 1 - strlen(joined));
    CHECK(strcmp(joined, "Hello, world!") == 0, "'%s'", joined);
    json_decref(doc);
    free(lines);
    free(ids);
    free(count);
    free(pieces);
}

/* The text of a control token is text, unless --special is given. */
static void control_tokens(void)
{
    const char *m = test_model();
    char *plain = output(
        NULL, (const char *const[]){"tokenize", "-m", m, "-p", CONTROL_TEXT, "--count", NULL});
    CHECK(atoi(plain) > 1, "%s tokens", plain);
    char *special = output(
        NULL, (const char *const[]){"tokenize", "-m", m, "-p", CONTROL_TEXT, "--special", NULL});
    CHECK(strstr(special, "  control token\n1 token, "), "%s", special);
    free(plain);
    free(special);
}

static void wrong_calls(void)
{
    static const struct {
        const char *argv[8], *message;
    } cases[] = {
        {{"tokenize", "-p", "a"}, "-m FILE is required"},
        {{"tokenize", "-m", "MODEL"}, "one of -p TEXT, --text FILE and --pieces"},
        {{"tokenize", "-m", "MODEL", "-p", "a", "--text", "b"}, "one of -p TEXT"},
        {{"tokenize", "-m", "MODEL", "-p", "a", "--ids", "--json"}, "exclude each other"},
        {{"tokenize", "-m", "MODEL", "--pieces", "99999999"}, "the vocabulary has 4096 tokens"},
        {{"tokenize", "-m", "MODEL", "--pieces", "1", "--special"}, "concerns a text"},
        {{"tokenize", "-m", "MODEL", "--text", "/nonexistent"}, "cannot open /nonexistent"},
        {{"tokenize", "-m", "/nonexistent", "-p", "a"}, "cannot open /nonexistent"},
        {{"tokenize", "-m", SLUICE_SOURCE_DIR "/README.md", "-p", "a"}, "not a GGUF file"},
        {{"tokenize", "-m", "MODEL", "a"}, "the text goes after -p"},
        {{"tokenize", "--cuont"}, "did you mean --count?"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *argv[8] = {0};
        struct command c;
        for (size_t k = 0; cases[i].argv[k]; k++)
            argv[k] = strcmp(cases[i].argv[k], "MODEL") == 0 ? test_model() : cases[i].argv[k];
        command_run(&c, NULL, END_MS, argv);
        CHECK(c.status == 2 && command_lines(c.err) == 1 && strstr(c.err, cases[i].message),
              "case %zu: status %d: %.300s", i, c.status, c.err);
        command_free(&c);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(ids_of_another_implementation),
        ROW(forms),
        ROW(control_tokens),
        ROW(wrong_calls),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
