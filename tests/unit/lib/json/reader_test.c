/* SPDX-License-Identifier: Apache-2.0 */
/* The pull parser accepts what jansson accepts, with the same values, and keeps its limits. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/json/reader.h"

#define DOCUMENTS      20000
#define DOCUMENT_BYTES 4096

static const struct json_limits limits = JSON_LIMITS_DEFAULT;

static json_t *read_with(const char *text, size_t bytes, const struct json_limits *l,
                         struct error *error)
{
    struct json_reader *r = json_reader_text_of(text, bytes, l, error);
    ck_assert_ptr_nonnull(r);
    json_t *value = json_read_value(r);
    if (json_reader_end(r, error) != 0) {
        json_decref(value);
        value = NULL;
    } else {
        ck_assert_ptr_nonnull(value);
    }
    json_reader_close(r);
    return value;
}

static void check_same(const char *text, size_t bytes)
{
    struct error error = {0};
    json_error_t why;
    json_t *expected = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    json_t *got = read_with(text, bytes, &limits, &error);
    ck_assert_msg((expected == NULL) == (got == NULL), "jansson: %s, reader: %s: %.*s",
                  expected ? "valid" : why.text, got ? "valid" : error.text, (int)bytes, text);
    ck_assert_msg(!expected || json_equal(expected, got), "another value: %.*s", (int)bytes, text);
    json_decref(expected);
    json_decref(got);
}

/* ---- random documents ---- */

struct document {
    struct random random;
    size_t bytes;
    char text[DOCUMENT_BYTES + 256];
};

static uint32_t draw(struct document *d, uint32_t below)
{
    return (uint32_t)random_below(&d->random, below);
}

static void put(struct document *d, const char *text)
{
    size_t n = strlen(text);
    if (d->bytes + n <= DOCUMENT_BYTES) {
        memcpy(d->text + d->bytes, text, n);
        d->bytes += n;
    }
}

static void put_string(struct document *d)
{
    static const char *const pieces[] = {"a",        "key",          "\\n",
                                         "\\\"",     "\\\\",         "\\/",
                                         "\\u0041",  "\\u00e9",      "\\uD83D\\uDE00",
                                         "\xc3\xa9", "\xe2\x96\x81", "\xf0\x9f\x98\x80",
                                         " ",        "\x7f",         "<0x0A>",
                                         "\\u0120",  "\\b\\f\\r\\t"};
    put(d, "\"");
    for (uint32_t i = draw(d, 6); i > 0; i--)
        put(d, pieces[draw(d, ARRAY_LEN(pieces))]);
    put(d, "\"");
}

static void put_value(struct document *d, unsigned depth)
{
    static const char *const scalars[] = {"0",    "-0",    "17",   "-9223372036854775808",
                                          "1.5",  "-2e3",  "1E-9", "9223372036854775807",
                                          "true", "false", "null", "0.25e+2"};
    static const char *const spaces[] = {"", "", " ", "\n", "\t\r"};
    uint32_t kind = draw(d, depth < 6 ? 8 : 4);
    put(d, spaces[draw(d, ARRAY_LEN(spaces))]);
    if (kind < 2) {
        put(d, scalars[draw(d, ARRAY_LEN(scalars))]);
    } else if (kind < 4) {
        put_string(d);
    } else {
        bool object = kind < 6;
        put(d, object ? "{" : "[");
        for (uint32_t i = 0, n = draw(d, 5); i < n; i++) {
            put(d, i ? "," : "");
            if (object) {
                put_string(d);
                put(d, spaces[draw(d, ARRAY_LEN(spaces))]);
                put(d, ":");
            }
            put_value(d, depth + 1);
        }
        put(d, object ? "}" : "]");
    }
    put(d, spaces[draw(d, ARRAY_LEN(spaces))]);
}

START_TEST(same_as_jansson)
{
    static struct document d;
    for (uint64_t seed = 1; seed <= DOCUMENTS; seed++) {
        d.bytes = 0;
        random_seed(&d.random, seed, 0);
        put_value(&d, 0);
        check_same(d.text, d.bytes);
        /* Damaged: bytes replaced, or the end cut. */
        for (uint32_t i = draw(&d, 3); i > 0 && d.bytes > 0; i--)
            d.text[draw(&d, (uint32_t)d.bytes)] = "\"\\{}[]:,0-e.\x01\xff\x80u"[draw(&d, 16)];
        d.bytes = draw(&d, (uint32_t)d.bytes + 1);
        check_same(d.text, d.bytes);
    }
}
END_TEST

static const char *const odd[] = {"",
                                  "{",
                                  "[1,]",
                                  "[,1]",
                                  "{\"a\":1,}",
                                  "{\"a\"}",
                                  "{\"a\":1 \"b\":2}",
                                  "{\"a\":1,\"a\":2}",
                                  "{1:2}",
                                  "01",
                                  "-",
                                  "1.",
                                  ".5",
                                  "1e",
                                  "1e999",
                                  "1e-999",
                                  "9223372036854775808",
                                  "-9223372036854775809",
                                  "nul",
                                  "nulll",
                                  "true false",
                                  "\"\\u0000\"",
                                  "\"\\ud800\"",
                                  "\"\\udc00\"",
                                  "\"\\ud800\\u0041\"",
                                  "\"\\x\"",
                                  "\"\\u12g4\"",
                                  "\"\n\"",
                                  "\"\xc0\x80\"",
                                  "\"\xed\xa0\x80\"",
                                  "\"\xf4\x90\x80\x80\"",
                                  "\"\xe2\x96\"",
                                  "\xef\xbb\xbf{}",
                                  "[1] x",
                                  "{\"a\":[}",
                                  "[{]}"};

START_TEST(odd_documents)
{
    for (size_t i = 0; i < ARRAY_LEN(odd); i++)
        check_same(odd[i], strlen(odd[i]));
}
END_TEST

/* ---- limits ---- */

static void check_limit(const char *text, const struct json_limits *l, const char *reason)
{
    struct error error = {0};
    ck_assert_ptr_null(read_with(text, strlen(text), l, &error));
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, reason), "'%s'", error.text);
}

START_TEST(limits_hold)
{
    struct json_limits l = limits;
    l.depth = 3;
    check_limit("[[[[1]]]]", &l, "nested too deeply");
    l = limits;
    l.string = 4;
    check_limit("[\"12345\"]", &l, "too long");
    l = limits;
    l.values = 4;
    check_limit("[1,2,3,4,5]", &l, "too many values");
    check_limit("[1,\n?", &limits, "(at byte 4)");
}
END_TEST

/* A document that is longer than the window of a file, skipped and taken. */
START_TEST(files)
{
    char path[] = "/tmp/json-reader-XXXXXX";
    struct error error = {0};
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    ck_assert(f != NULL);
    fputs("{\"skipped\": [", f);
    for (int i = 0; i < 100000; i++)
        fprintf(f, "%s{\"\xe2\x96\x81n\": [%d]}", i ? ", " : "", i);
    fputs("], \"taken\": \"yes\"}", f);
    ck_assert_int_eq(fclose(f), 0);
    struct json_reader *r = json_reader_file(path, &limits, &error);
    ck_assert_msg(r != NULL, "%s", error.text);
    ck_assert_int_eq(json_next(r), JSON_EVENT_OBJECT);
    ck_assert_int_eq(json_next(r), JSON_EVENT_KEY);
    ck_assert(json_skip_value(r));
    ck_assert_int_eq(json_next(r), JSON_EVENT_KEY);
    ck_assert_str_eq(json_reader_text(r), "taken");
    ck_assert_int_eq(json_next(r), JSON_EVENT_STRING);
    ck_assert_str_eq(json_reader_text(r), "yes");
    ck_assert_int_eq(json_next(r), JSON_EVENT_OBJECT_END);
    ck_assert_msg(json_reader_end(r, &error) == 0, "%s", error.text);
    json_reader_close(r);
    const struct json_limits small = {.bytes = 1000, .string = 100, .values = 1, .depth = 9};
    ck_assert_ptr_null(json_reader_file(path, &small, &error));
    unlink(path);
    ck_assert_ptr_null(json_reader_file(path, &limits, &error));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json reader");
    TCase *c = tcase_create("reader");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, same_as_jansson);
    tcase_add_test(c, odd_documents);
    tcase_add_test(c, limits_hold);
    tcase_add_test(c, files);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
