/* SPDX-License-Identifier: Apache-2.0 */
/* Words of every pre-tokenizer against the Python package regex
 * (tests/golden/expression_vectors.py). */
#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/newer.h"
#include "lib/model/tokenizer/words.h"

#define VECTORS SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/expressions.json"

struct check {
    const json_t *words;
    const char *text, *next;
    size_t count;
};

static int next_word(void *arg, const char *word, size_t bytes)
{
    struct check *c = arg;
    const json_t *want = json_array_get(c->words, c->count++);
    ck_assert_ptr_eq(word, c->next);
    ck_assert_msg((json_int_t)bytes == json_integer_value(want), "'%s' word %zu: %zu bytes, not %d",
                  c->text, c->count - 1, bytes, (int)json_integer_value(want));
    c->next += bytes;
    return 0;
}

static void check_texts(uint32_t row, const json_t *vectors)
{
    size_t i;
    const json_t *vector;
    struct error error = {0};
    struct words *w = words_open(row, &error);
    ck_assert_msg(w != NULL, "%s", error.text);
    ck_assert_uint_ge(json_array_size(vectors), 30);
    json_array_foreach(vectors, i, vector)
    {
        const json_t *text = json_object_get(vector, "text");
        struct check c = {.words = json_object_get(vector, "words"),
                          .text = json_string_value(text)};
        c.next = c.text;
        ck_assert_int_eq(words_split(w, c.text, json_string_length(text), next_word, &c, &error),
                         0);
        ck_assert_uint_eq(c.count, json_array_size(c.words));
    }
    words_close(w);
}

static int any_word(void *arg, const char *word, size_t bytes)
{
    (void)word;
    *(size_t *)arg += bytes;
    return 0;
}

/* Parts of characters, and bytes that would be U+0897, which is newer than PCRE2. */
START_TEST(what_is_no_utf8)
{
    static const char *const texts[] = {"\xc3", "a\xf0\x9e", "\xe0\xa1", "\xe0\x22\x17",
                                        "\xed\xa0\x80"};
    struct error error = {0};
    struct words *w = words_open(0, &error);
    ck_assert_ptr_nonnull(w);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        size_t bytes = strlen(texts[i]), seen = 0;
        char *text = malloc(bytes), *known; /* without a byte after it */
        memcpy(text, texts[i], bytes);
        ck_assert(newer_known(text, bytes, &known));
        ck_assert_ptr_null(known);
        ck_assert_int_eq(words_split(w, text, bytes, any_word, &seen, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_uint_eq(seen, 0);
        free(text);
    }
    words_close(w);
}
END_TEST

static int note_word(void *arg, const char *word, size_t bytes)
{
    char *out = arg;
    (void)word;
    snprintf(out + strlen(out), 32 - strlen(out), " %zu", bytes);
    return 0;
}

/* What is a part of a word after digits, and runs of scripts: by the package tokenizers. */
START_TEST(ends_of_words)
{
    static const struct {
        const char *name, *text, *words;
    } rows[] = {{"cohere2moe", "1234", " 1 3"},
                {"cohere2moe", "1234\u2460", " 1 3 3"},
                {"cohere2moe", "1234\u00b2", " 3 3"},
                {"cohere2moe", "1000\u2076", " 1 3 3"},
                {"cohere2moe", "1234\u2167", " 3 4"},
                {"cohere2moe", "1234\u0301", " 3 1 2"},
                {"cohere2moe", "1234_", " 3 1 1"},
                {"cohere2moe", "1234\u200d", " 1 3 3"},
                {"laguna", "a \r\nb\n\n c", " 1 1 2 1 2 2"},
                {"afmoe", "1234\u00b25", " 1 3 2 1"},
                {"afmoe", "a12x", " 1 2 1"},
                {"afmoe", "\u0e01\u0e40\u0e41 \u0e01", " 9 1 3"},
                {"afmoe", "\u4e2d\u3042\uac00\u1100\u0e81", " 6 6 3"}};
    struct error error = {0};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char got[32] = "";
        struct words *w = words_open(pretokenizer_find(rows[i].name, strlen(rows[i].name)), &error);
        ck_assert_ptr_nonnull(w);
        ck_assert_int_eq(words_split(w, rows[i].text, strlen(rows[i].text), note_word, got, &error),
                         0);
        ck_assert_msg(strcmp(got, rows[i].words) == 0, "%s:%s, not%s", rows[i].text, got,
                      rows[i].words);
        words_close(w);
    }
}
END_TEST

/* Half a million digits, with and without a letter after them: a search that begins again at each
 * digit would not end within the limit of the test. */
START_TEST(long_runs_of_digits)
{
    static const char *const names[] = {"cohere2moe", "afmoe"};
    const size_t digits = 500000;
    char *text = malloc(digits + 1);
    struct error error = {0};
    memset(text, '7', digits);
    text[digits] = 'a';
    for (size_t i = 0; i < 2 * ARRAY_LEN(names); i++) {
        const char *name = names[i / 2];
        struct words *w = words_open(pretokenizer_find(name, strlen(name)), &error);
        size_t bytes = digits + i % 2, seen = 0;
        ck_assert_msg(w != NULL, "%s", error.text);
        ck_assert_msg(words_split(w, text, bytes, any_word, &seen, &error) == 0, "%s: %s", name,
                      error.text);
        ck_assert_uint_eq(seen, bytes);
        words_close(w);
    }
    free(text);
}
END_TEST

/* Every row of the table has vectors. */
START_TEST(words_of_another_implementation)
{
    json_error_t why;
    json_t *root = json_load_file(VECTORS, JSON_ALLOW_NUL, &why);
    ck_assert_msg(root != NULL, "%s", why.text);
    bool *seen = calloc(pretokenizer_count(), sizeof *seen);
    size_t i, k;
    const json_t *item, *name;
    json_array_foreach(root, i, item) json_array_foreach(json_object_get(item, "names"), k, name)
    {
        uint32_t row = pretokenizer_find(json_string_value(name), json_string_length(name));
        ck_assert_msg(row != UINT32_MAX, "no pre-tokenizer %s", json_string_value(name));
        check_texts(row, json_object_get(item, "vectors"));
        seen[row] = true;
    }
    for (uint32_t row = 0; row < pretokenizer_count(); row++)
        ck_assert_msg(seen[row], "no vectors of %s", pretokenizer_name(row));
    free(seen);
    json_decref(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("words");
    TCase *tcase = tcase_create("words");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, words_of_another_implementation);
    tcase_add_test(tcase, what_is_no_utf8);
    tcase_add_test(tcase, ends_of_words);
    tcase_add_test(tcase, long_runs_of_digits);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
