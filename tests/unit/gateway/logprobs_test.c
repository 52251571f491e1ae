/* Which tokens belong to the text that is told. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/gateway/gateway.h"

static struct gateway gateway;
static struct stream stream;

static void begin(enum api_kind kind, bool logprobs)
{
    gateway = (struct gateway){.quota.limit = 1 << 20};
    stream = (struct stream){
        .gateway = &gateway,
        .request = {.kind = kind, .logprobs = logprobs, .stops_count = 1},
    };
}

static void end(void)
{
    logprobs_free(&stream);
    ck_assert_uint_eq(gateway.quota.held, 0);
    ck_assert(!stream.failed);
}

/* A reply of tokens, `|` between them, of whose text behind the tail so much is told. */
static json_t *reply(const char *tokens, size_t told)
{
    static const double values[] = {-1, -2, -INFINITY, -4};
    uint32_t pieces[4] = {0};
    char text[64];
    size_t count = 0, bytes = stream.tail_bytes;
    memcpy(text, stream.tail, bytes);
    for (const char *at = tokens; *at; at += strcspn(at, "|"), at += *at == '|') {
        pieces[count] = (uint32_t)strcspn(at, "|");
        memcpy(text + bytes, at, pieces[count]);
        bytes += pieces[count++];
    }
    bool logprobs = stream.request.logprobs;
    struct engine_next next = {.count = count,
                               .text_bytes = bytes - stream.tail_bytes,
                               .logprobs = values,
                               .logprobs_count = logprobs ? count : 0,
                               .piece_bytes = pieces,
                               .piece_bytes_count = logprobs ? count : 0};
    json_t *entries = logprobs_take(&stream, &next, text, told);
    stream.tail_bytes = bytes - told;
    memcpy(stream.tail, text + told, stream.tail_bytes);
    return entries;
}

static void check_told(json_t *entries, const char *tokens)
{
    char told[64] = "";
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(entries); i++)
        n += (size_t)snprintf(
            told + n, sizeof told - n, "%s%s", i ? "|" : "",
            json_string_value(json_object_get(json_array_get(entries, i), "token")));
    ck_assert_str_eq(told, tokens);
    json_decref(entries);
}

/* A token is told with the byte it begins with, and whole. */
START_TEST(tokens_are_held_with_their_text)
{
    begin(API_CHAT, true);
    check_told(reply("a|b", 1), "a");
    ck_assert_uint_eq(logprobs_held(&stream), 1);
    check_told(reply("cd", 0), "");
    ck_assert_uint_eq(logprobs_held(&stream), 2);
    check_told(reply("e", 2), "b|cd");
    ck_assert_uint_eq(logprobs_held(&stream), 1);
    check_told(reply("f", 3), "e|f");
    ck_assert_uint_eq(logprobs_held(&stream), 0);
    end();
}
END_TEST

/* Of a reply in which a stop is met, nothing that begins at it or behind it. */
START_TEST(a_stop_leaves_no_token)
{
    for (int logprobs = 0; logprobs < 2; logprobs++) {
        begin(API_CHAT, logprobs);
        json_decref(reply("a", 1));
        json_decref(reply("b", 0)); /* may be the beginning of a stop */
        json_decref(reply("c", 0)); /* it is */
        ck_assert_uint_eq(logprobs_held(&stream), 2);
        end();
        begin(API_CHAT, logprobs);
        json_decref(reply("abc", 2)); /* the stop begins within a token */
        ck_assert_uint_eq(logprobs_held(&stream), 0);
        end();
    }
}
END_TEST

START_TEST(what_is_kept_is_json)
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
        begin(cases[i].kind, true);
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

/* They are counted: what does not fit is no answer. */
START_TEST(what_does_not_fit)
{
    begin(API_CHAT, true);
    gateway.quota.limit = 2000;
    for (int i = 0; i < 100 && !stream.failed; i++)
        logprobs_keep(&stream, reply("a", 1));
    ck_assert(stream.failed);
    ck_assert_uint_le(gateway.quota.held, 2000);
    stream.failed = false;
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("logprobs");
    tcase_add_test(t, tokens_are_held_with_their_text);
    tcase_add_test(t, a_stop_leaves_no_token);
    tcase_add_test(t, what_is_kept_is_json);
    tcase_add_test(t, what_does_not_fit);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
