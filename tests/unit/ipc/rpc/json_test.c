/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope of the client API: requests, replies, and text of any bytes. */
#include "ipc/rpc/json.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/ipc/support.h"

#define GOOD        "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"status\"}"
#define WITH(field) "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\"," field "}"

#define ROW(text)                                                                                  \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct {
    const char *text;
    size_t bytes;
} malformed[] = {
    ROW(""),
    ROW(" "),
    ROW("null"),
    ROW("1"),
    ROW("\"x\""),
    ROW("[]"),
    ROW("{"),
    ROW("{}"),
    ROW(GOOD "x"),
    ROW(GOOD GOOD),
    ROW("{\"v\":1}"),
    ROW("{\"v\":2,\"id\":\"0123456789abcdef\",\"op\":\"x\"}"),
    ROW("{\"v\":1.0,\"id\":\"0123456789abcdef\",\"op\":\"x\"}"),
    ROW("{\"v\":\"1\",\"id\":\"0123456789abcdef\",\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcde\",\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdeff\",\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789ABCDEF\",\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":7,\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdef\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"a b\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":[\"x\"]}"),
    ROW(WITH("\"a\":1,\"a\":2")),         /* duplicate key */
    ROW(WITH("\"v\":1")),                 /* duplicate of an envelope key */
    ROW(WITH("\"a\":{\"b\":1,\"b\":1}")), /* duplicate in a nested object */
    ROW(WITH("\"a\":99999999999999999999")),
    ROW(WITH("\"a\":-99999999999999999999")),
    ROW(WITH("\"a\":1e999")),
    ROW(WITH("\"a\":-1e999")),
    ROW(WITH("\"a\":NaN")),
    ROW(WITH("\"a\":Infinity")),
    ROW(WITH("\"a\":01")),
    ROW(WITH("\"a\":+1")),
    ROW(WITH("\"a\":.5")),
    ROW(WITH("\"a\":0x10")),
    ROW(WITH("\"a\":tru")),
    ROW(WITH("\"a\":1,")),
    ROW(WITH("a:1")),
    ROW(WITH("'a':1")),
    ROW(WITH("\"\\u0000\":1")),
    ROW(WITH("\"a\":\"\\ud800\"")),
    ROW(WITH("\"a\":\"\\udc00\\ud800\"")),
    ROW(WITH("\"a\":\"\\x41\"")),
    ROW(WITH("\"a\":\"\n\"")),
    ROW(WITH("\"a\":\"\x80\"")),
    ROW(WITH("\"a\":\"\xc0\xaf\"")),
    ROW(WITH("\"a\":\"\xc3\"")),
    ROW(WITH("\"a\":\"\xed\xa0\x80\"")),
    ROW(WITH("\"a\":\"\xf5\x80\x80\x80\"")),
    ROW(WITH("\"a\":\"\xff\"")),
    ROW(WITH("/* no */\"a\":1")),
    ROW("\xef\xbb\xbf" GOOD),
    ROW("{\"v\":1,\0\"id\":\"0123456789abcdef\",\"op\":\"x\"}"),
    ROW("{\"v\":1,\"id\":\"0123456789abcde\0\",\"op\":\"x\"}"),
    ROW(GOOD "\0"),
};

static int parse(const void *text, size_t bytes, struct error *error)
{
    json_t *body = NULL;
    int result = rpc_request_parse(text, bytes, &body, error);
    json_decref(body);
    return result;
}

START_TEST(good_requests_are_taken)
{
    struct error error;
    json_t *body;
    ck_assert_int_eq(rpc_request_parse(GOOD, strlen(GOOD), &body, &error), 0);
    ck_assert_str_eq(json_string_value(json_object_get(body, "op")), "status");
    json_decref(body);
    ck_assert_int_eq(parse(WITH("\"a\":\"\xf0\x9f\x98\x80 \\ud83d\\ude00\""),
                           strlen(WITH("\"a\":\"\xf0\x9f\x98\x80 \\ud83d\\ude00\"")), &error),
                     0);
}
END_TEST

START_TEST(malformed_requests_are_bad_input)
{
    for (unsigned i = 0; i < ARRAY_LEN(malformed); i++) {
        struct error error = {0};
        ck_assert_msg(parse(malformed[i].text, malformed[i].bytes, &error) == -1,
                      "row %u was taken", i);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_uint_gt(strlen(error.text), 0);
    }
    for (size_t n = 0; n < strlen(GOOD); n++) {
        struct error error;
        ck_assert_int_eq(parse(GOOD, n, &error), -1);
    }
}
END_TEST

/* Runs on a stack as large as that of the engine's threads. */
static void *parse_deep(void *arg)
{
    static const char *const openers[] = {"[", "{\"a\":", "[[", "[{\"a\":"};
    char *text = malloc(RPC_BYTES_MAX);
    (void)arg;
    for (unsigned i = 0; i < ARRAY_LEN(openers); i++) {
        size_t n = (size_t)sprintf(text, "{\"v\":1,\"a\":");
        while (n + 16 < RPC_BYTES_MAX)
            n += (size_t)sprintf(text + n, "%s", openers[i]);
        struct error error;
        ck_assert_int_eq(parse(text, n, &error), -1);
        ck_assert_ptr_nonnull(strstr(error.text, "nested"));
    }
    free(text);
    return NULL;
}

START_TEST(deep_nesting_is_rejected_on_a_small_stack)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * KIB);
    ck_assert_int_eq(pthread_create(&thread, &attributes, parse_deep, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);

    struct error error;
    char text[512];
    for (int depth = 1; depth < 60; depth++) {
        int n = sprintf(text, "{\"v\":1,\"id\":\"0123456789abcdef\",\"op\":\"x\",\"a\":");
        for (int i = 0; i < depth; i++)
            n += sprintf(text + n, "[");
        n += sprintf(text + n, "\"[[{{\\\"[[\"");
        for (int i = 0; i < depth; i++)
            n += sprintf(text + n, "]");
        n += sprintf(text + n, "}");
        ck_assert_int_eq(parse(text, (size_t)n, &error), depth < RPC_DEPTH_MAX ? 0 : -1);
    }
}
END_TEST

START_TEST(size_is_capped)
{
    struct error error;
    char *text = malloc(RPC_BYTES_MAX + 2);
    memset(text, ' ', RPC_BYTES_MAX + 2);
    memcpy(text, GOOD, strlen(GOOD));
    ck_assert_int_eq(parse(text, RPC_BYTES_MAX, &error), 0);
    ck_assert_int_eq(parse(text, RPC_BYTES_MAX + 1, &error), -1);
    free(text);
}
END_TEST

/* A client always has something to print. */
START_TEST(errors_without_a_message_have_one)
{
    static const char *const errors[] = {"{\"code\":\"failed\",\"text\":\"\"}", "{\"text\":7}",
                                         "{}"};
    for (unsigned i = 0; i < ARRAY_LEN(errors); i++) {
        struct error error = {0};
        json_t *json = json_loads(errors[i], 0, NULL);
        rpc_error_from_json(json, &error);
        ck_assert(error.code != ERR_NONE && error.text[0]);
        json_decref(json);
    }
}
END_TEST

START_TEST(replies_carry_errors_and_match_ids)
{
    const char *id = "00000000000000aa", *text;
    struct error error, sent;
    json_t *reply;
    bool broken;
    error_set(&sent, ERR_BUDGET_TOO_SMALL, "at least %d bytes", 77);
    json_t *object = rpc_error_object(id, &sent);
    size_t bytes;
    char *encoded = rpc_json_encode(object, &bytes);
    ck_assert_int_eq(rpc_reply_parse(encoded, bytes, id, &reply, &broken, &error), -1);
    ck_assert(!broken);
    ck_assert_int_eq(error.code, ERR_BUDGET_TOO_SMALL);
    ck_assert_str_eq(error.text, "at least 77 bytes");
    ck_assert_int_eq(rpc_reply_parse(encoded, bytes, "00000000000000ab", &reply, &broken, &error),
                     -1);
    ck_assert(broken);
    free(encoded);
    json_decref(object);

    static const char *const wrong[] = {
        "",
        "{}",
        "[]",
        "{\"v\":1,\"id\":\"00000000000000aa\"}",
        "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":1}",
        "{\"v\":3,\"id\":\"00000000000000aa\",\"ok\":true}",
        "{\"v\":1,\"id\":\"0000000000000000\",\"ok\":true}",
    };
    for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_int_eq(rpc_reply_parse(wrong[i], strlen(wrong[i]), id, &reply, &broken, &error),
                         -1);
        ck_assert_msg(broken, "row %u", i);
    }
    static const char *const odd[] = {
        "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":false}",
        "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":false,\"error\":7}",
        "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":false,\"error\":{\"code\":\"none\"}}",
        "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":false,\"error\":{\"code\":\"what\"}}",
    };
    for (unsigned i = 0; i < ARRAY_LEN(odd); i++) {
        ck_assert_int_eq(rpc_reply_parse(odd[i], strlen(odd[i]), id, &reply, &broken, &error), -1);
        ck_assert_int_eq(error.code, ERR_FAILED);
    }
    text = "{\"v\":1,\"id\":\"00000000000000aa\",\"ok\":true,\"a\":5}";
    ck_assert_int_eq(rpc_reply_parse(text, strlen(text), id, &reply, &broken, &error), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(reply, "a")), 5);
    json_decref(reply);
}
END_TEST

static json_malloc_t allocate; /* of the code under test */
static int allocations_left;

static void *fail_once(size_t bytes)
{
    return allocate(--allocations_left == 0 ? PTRDIFF_MAX : bytes);
}

/* jansson drops a byte of a text for some of them, or reports wrong syntax, and a malformed reply
 * would be ignored. */
START_TEST(one_failed_allocation_loses_no_reply)
{
    const char *text = "{\"v\":1,\"id\":\"0123456789abcdef\",\"ok\":true,\"list\":[1,2.5,null],"
                       "\"text\":\"It was a dark and stormy night, and \\u00e4 \\n it rained\"}";
    const char *id = "0123456789abcdef";
    struct error error = {0};
    json_free_t release;
    json_t *whole, *reply;
    bool broken;
    unsigned n = 1;
    ck_assert_int_eq(rpc_reply_parse(text, strlen(text), id, &whole, &broken, &error), 0);
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(fail_once, release);
    for (allocations_left = 0; allocations_left <= 0; n++) {
        reply = NULL;
        allocations_left = (int)n;
        int rv = rpc_reply_parse(text, strlen(text), id, &reply, &broken, &error);
        ck_assert_msg(rv == 0, "allocation %u: %s", n, error.text);
        ck_assert_msg(json_equal(reply, whole), "allocation %u: another reply", n);
        json_decref(reply);
    }
    json_set_alloc_funcs(allocate, release);
    json_decref(whole);
    ck_assert_uint_gt(n, 20);
}
END_TEST

START_TEST(texts_have_a_length)
{
    static const char text[] = "{\"a\":\"x\\u0000y\"}";
    struct error error;
    json_t *json;
    ck_assert_int_eq(rpc_json_parse(text, sizeof text - 1, RPC_BYTES_MAX, &json, &error), 0);
    const json_t *value = json_object_get(json, "a");
    ck_assert_uint_eq(json_string_length(value), 3);
    ck_assert(memcmp(json_string_value(value), "x\0y", 3) == 0);
    json_decref(json);
}
END_TEST

START_TEST(any_bytes_become_text)
{
    static const struct {
        const char *in;
        size_t bytes;
        const char *out;
    } rows[] = {
        {"plain", 5, "plain"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xe2\x82", 2, "\xef\xbf\xbd"}, /* one for a character that is cut off */
        {"\xf0\x9f\x98z\xe2\x82\xff", 7, "\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff x", 3, "\xef\xbf\xbd x"},
        {"", 0, ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *text = rpc_text_json(rows[i].in, rows[i].bytes);
        ck_assert_str_eq(json_string_value(text), rows[i].out);
        json_decref(text);
    }
    json_t *nul = rpc_text_json("a\0b", 3); /* a character like others */
    ck_assert_uint_eq(json_string_length(nul), 3);
    ck_assert(memcmp(json_string_value(nul), "a\0b", 3) == 0);
    json_decref(nul);
    /* Every result can be encoded and decoded again. */
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b += 7) {
            const char in[] = {(char)a, (char)b, (char)(a ^ b), 'x'};
            json_t *text = rpc_text_json(in, sizeof in);
            char *dump = json_dumps(text, JSON_ENCODE_ANY);
            ck_assert_ptr_nonnull(dump);
            json_t *again = json_loads(dump, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            ck_assert(json_equal(text, again));
            json_decref(again);
            json_decref(text);
            free(dump);
        }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc json");
    TCase *tc = tcase_create("json");
    tcase_add_test(tc, good_requests_are_taken);
    tcase_add_test(tc, malformed_requests_are_bad_input);
    tcase_add_test(tc, deep_nesting_is_rejected_on_a_small_stack);
    tcase_add_test(tc, size_is_capped);
    tcase_add_test(tc, errors_without_a_message_have_one);
    tcase_add_test(tc, replies_carry_errors_and_match_ids);
    tcase_add_test(tc, one_failed_allocation_loses_no_reply);
    tcase_add_test(tc, texts_have_a_length);
    tcase_add_test(tc, any_bytes_become_text);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
