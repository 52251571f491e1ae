/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens belong to the text that is sent. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/gateway.h"

static struct gateway gateway;
static struct stream stream;

static void start(enum api_kind kind, bool logprobs)
{
    gateway = (struct gateway){.quota.limit = 1 << 20};
    stream = (struct stream){
        .gateway = &gateway,
        .request = {.kind = kind, .logprobs = logprobs},
    };
}

static void end(void)
{
    logprobs_free(&stream);
    ck_assert_uint_eq(gateway.quota.buffered, 0);
    ck_assert(!stream.failed);
}

/* Entries of the first `joined` tokens of a reply, `|` between its tokens. */
static json_t *reply(const char *tokens, size_t joined)
{
    static const double values[] = {-1, -2, -INFINITY, -4};
    uint32_t pieces[4] = {0};
    char text[64];
    size_t count = 0, bytes = 0;
    for (const char *at = tokens; *at; at += strcspn(at, "|"), at += *at == '|') {
        pieces[count] = (uint32_t)strcspn(at, "|");
        memcpy(text + bytes, at, pieces[count]);
        bytes += pieces[count++];
    }
    struct engine_next next = {.count = count,
                               .text = text,
                               .text_bytes = bytes,
                               .logprobs = values,
                               .logprobs_count = count,
                               .piece_bytes = pieces,
                               .piece_bytes_count = count};
    return logprobs_take(&stream, &next, joined);
}

static void check_tokens(json_t *entries, const char *tokens)
{
    char joined[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(entries); i++)
        n += (size_t)snprintf(
            joined + n, sizeof joined - n, "%s%s", i ? "|" : "",
            json_string_value(json_object_get(json_array_get(entries, i), "token")));
    ck_assert_str_eq(joined, tokens);
    json_decref(entries);
}

/* Tokens of a stop text at the end of a reply are left out; offsets count characters of the
 * response. */
START_TEST(tokens_of_the_text)
{
    static const int offsets[] = {0, 1, 3, 4};
    start(API_CHAT, true);
    json_t *first = reply("a|\xc3\xa9t|c|", 2), *second = reply("x|y|z", 3);
    for (size_t i = 0; i < 2; i++) {
        const json_t *e = json_array_get(i < 1 ? first : second, 1 - i);
        ck_assert_int_eq(json_integer_value(json_object_get(e, "offset")), offsets[i + 1]);
    }
    check_tokens(first, "a|\xc3\xa9t");
    check_tokens(second, "x|y|z");
    check_tokens(reply("a|b", 0), "");
    end();
    start(API_CHAT, false);
    ck_assert_ptr_null(reply("a", 1));
    end();
}
END_TEST

/* Where bytes were replaced, tokens have theirs; offsets count characters of the text. */
START_TEST(tokens_with_replaced_bytes)
{
    static const double values[] = {-1, -2, -3};
    static const uint32_t pieces[] = {4, 3, 1};
    static const char *const bytes[] = {"[67,97,102,195]", "[169,32,230]", "[255]"};
    static const int offsets[] = {0, 4, 6};
    start(API_CHAT, true);
    struct engine_next next = {.count = 3,
                               .text = "Caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd",
                               .text_bytes = 12,
                               .raw = "Caf\xc3\xa9 \xe6\xff",
                               .raw_bytes = 8,
                               .logprobs = values,
                               .logprobs_count = 3,
                               .piece_bytes = pieces,
                               .piece_bytes_count = 3};
    json_t *entries = logprobs_take(&stream, &next, 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *e = json_array_get(entries, i);
        char *text = json_dumps(json_object_get(e, "bytes"), JSON_COMPACT);
        ck_assert_str_eq(text, bytes[i]);
        ck_assert_int_eq(json_integer_value(json_object_get(e, "offset")), offsets[i]);
        free(text);
    }
    check_tokens(entries, "Caf\xef\xbf\xbd|\xef\xbf\xbd \xef\xbf\xbd|\xef\xbf\xbd");
    ck_assert_uint_eq(stream.logprobs.offset, 7);
    end();
}
END_TEST

/* A part of a sequence that one U+FFFD replaces is one character of the text, whatever tokens it is in. */
START_TEST(offsets_behind_replaced_bytes)
{
    static const struct {
        const char *raw;
        uint32_t pieces[3];
        int offsets[3];
        size_t end;
    } rows[] = {
        {"\xe2\x82"
         "A!",
         {2, 1, 1},
         {0, 1, 2},
         3},
        {"\xf0\x9f\x98"
         "A!",
         {3, 1, 1},
         {0, 1, 2},
         3},
        {"\xe2\xe2\x82"
         "A",
         {1, 2, 1},
         {0, 1, 2},
         3},
        {"\xf0\x9f"
         "\xf0\x9f\x98\x80"
         "A",
         {2, 4, 1},
         {0, 1, 2},
         3},
        {"a\xe2\x82",
         {1, 1, 1},
         {0, 1, 2},
         2}, /* the last one begins inside it, and ends with it */
    };
    static const double values[] = {-1, -2, -3};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start(API_CHAT, true);
        struct engine_next next = {.count = 3,
                                   .text = "",
                                   .raw = rows[i].raw,
                                   .raw_bytes = strlen(rows[i].raw),
                                   .logprobs = values,
                                   .logprobs_count = 3,
                                   .piece_bytes = rows[i].pieces,
                                   .piece_bytes_count = 3};
        json_t *entries = logprobs_take(&stream, &next, 3);
        for (size_t k = 0; k < 3; k++)
            ck_assert_msg(json_integer_value(json_object_get(json_array_get(entries, k),
                                                             "offset")) == rows[i].offsets[k],
                          "row %zu, token %zu", i, k);
        ck_assert_uint_eq(stream.logprobs.offset, rows[i].end);
        json_decref(entries);
        end();
    }
}
END_TEST

START_TEST(saved_logprobs_are_json)
{
    static const struct {
        enum api_kind kind;
        const char *whole, *values, *offsets;
    } cases[] = {
        {API_COMPLETION, "\"a\",\"\\\"\",\"c\"", "-1.0,-2.0,-9999.0", "0,1,2"},
        {API_CHAT,
         "{\"token\":\"a\",\"logprob\":-1.0,\"bytes\":[97],\"top_logprobs\":[]},"
         "{\"token\":\"\\\"\",\"logprob\":-2.0,\"bytes\":[34],\"top_logprobs\":[]},"
         "{\"token\":\"c\",\"logprob\":-9999.0,\"bytes\":[99],\"top_logprobs\":[]}",
         "", ""},
    };
    for (size_t i = 0; i < 2; i++) {
        start(cases[i].kind, true);
        logprobs_keep(&stream, reply("a|\"|c", 3));
        const struct logprobs *l = &stream.logprobs;
        const struct buffer *got[] = {&l->whole, &l->values, &l->offsets};
        const char *expected[] = {cases[i].whole, cases[i].values, cases[i].offsets};
        for (size_t k = 0; k < 3; k++) {
            ck_assert_uint_eq(got[k]->bytes, strlen(expected[k]));
            ck_assert(got[k]->bytes == 0 || memcmp(got[k]->data, expected[k], got[k]->bytes) == 0);
        }
        end();
    }
}
END_TEST

/* Logprobs count towards the buffer limit: exceeding it fails the response. */
START_TEST(what_does_not_fit)
{
    start(API_CHAT, true);
    gateway.quota.limit = 2000;
    for (int i = 0; i < 100 && !stream.failed; i++)
        logprobs_keep(&stream, reply("a", 1));
    ck_assert(stream.failed);
    ck_assert_uint_le(gateway.quota.buffered, 2000);
    stream.failed = false;
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("logprobs");
    tcase_add_test(t, tokens_of_the_text);
    tcase_add_test(t, tokens_with_replaced_bytes);
    tcase_add_test(t, offsets_behind_replaced_bytes);
    tcase_add_test(t, saved_logprobs_are_json);
    tcase_add_test(t, what_does_not_fit);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
