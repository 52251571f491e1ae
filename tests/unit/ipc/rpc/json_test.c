/* SPDX-License-Identifier: Apache-2.0 */
/* Pure parts of the client API: the envelope, the bodies of the engine's calls, endpoint names. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/endpoints.h"
#include "ipc/engine/engine_client.h"
#include "ipc/rpc/json.h"
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
    ROW(WITH("\"a\":\"\\u0000\"")),
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

/* jansson drops a byte of a text for some of them, or reports wrong syntax, and a malformed reply would be ignored. */
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

START_TEST(any_bytes_become_text)
{
    static const struct {
        const char *in;
        size_t bytes;
        const char *out;
    } rows[] = {
        {"plain", 5, "plain"},
        {"a\0b", 3,
         "a\xef\xbf\xbd"
         "b"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff x", 3, "\xef\xbf\xbd x"},
        {"", 0, ""},
    };
    for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *text = rpc_text_json(rows[i].in, rows[i].bytes);
        ck_assert_str_eq(json_string_value(text), rows[i].out);
        json_decref(text);
    }
    /* Every result can be encoded and decoded again. */
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b += 7) {
            const char in[] = {(char)a, (char)b, (char)(a ^ b), 'x'};
            json_t *text = rpc_text_json(in, sizeof in);
            char *dump = json_dumps(text, JSON_ENCODE_ANY);
            ck_assert_ptr_nonnull(dump);
            json_t *again = json_loads(dump, JSON_DECODE_ANY, NULL);
            ck_assert(json_equal(text, again));
            json_decref(again);
            json_decref(text);
            free(dump);
        }
}
END_TEST

START_TEST(sampling_from_text)
{
    struct sampling s;
    struct error error;
    sampling_defaults(&s);
    ck_assert_double_eq(s.temperature, 0.8);
    ck_assert_int_eq(s.top_k, 40);
    ck_assert_int_eq(s.seed, -1);
    ck_assert_int_eq(sampling_set(&s, "temperature", "0", &error), 0);
    ck_assert_int_eq(sampling_set(&s, "top-k", "7", &error), 0);
    ck_assert_int_eq(sampling_set(&s, "seed", "9223372036854775807", &error), 0);
    ck_assert_double_eq(s.temperature, 0);
    ck_assert_int_eq(s.top_k, 7);
    ck_assert_int_eq(s.seed, INT64_MAX);
    static const char *const bad[][2] = {
        {"temperature", "-1"},
        {"temperature", "nan"},
        {"temperature", "inf"},
        {"temperature", ""},
        {"temperature", "1x"},
        {"temperature", "1e999"},
        {"top_p", "1.01"},
        {"top_k", "4.5"},
        {"top_k", "-1"},
        {"top_k", "1000001"},
        {"seed", "-2"},
        {"seed", "99999999999999999999"},
        {"repeat_penalty", "0"},
        {"repeat_last_n", "4097"},
        {"heat", "1"},
        {"top_", "1"},
        {"", "1"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(sampling_set(&s, bad[i][0], bad[i][1], &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(s.top_k, 7);
}
END_TEST

static int submit_parse(const char *text, struct engine_submit *out, struct error *error)
{
    json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(body != NULL, "%s", text);
    int result = engine_submit_parse(body, out, error);
    engine_submit_parsed_free(out);
    json_decref(body);
    return result;
}

START_TEST(submit_fields)
{
    struct engine_submit s;
    struct error error;
    json_t *body = json_loads("{\"v\":1,\"id\":\"x\",\"op\":\"submit\",\"request_key\":\"k1\","
                              "\"ids\":[1,2,3],\"max_tokens\":5,\"ignore_eos\":true,\"logprobs\":1,"
                              "\"sampling\":{\"temperature\":0,\"seed\":42}}",
                              0, NULL);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    ck_assert_str_eq(s.request_key, "k1");
    ck_assert_uint_eq(s.prompt_ids_count, 3);
    ck_assert_uint_eq(s.prompt_ids[2], 3);
    ck_assert_int_eq(s.max_tokens, 5);
    ck_assert(s.ignore_eos && s.special.count == 0 && !s.score_prompt);
    ck_assert_double_eq(s.sampling.temperature, 0);
    ck_assert_int_eq(s.sampling.seed, 42);
    ck_assert_int_eq(s.sampling.top_k, 40);
    engine_submit_parsed_free(&s);
    json_decref(body);
    body = json_loads("{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":2,\"forced\":[7,9],"
                      "\"stop\":[\"\\n\\n\",\"End\"],\"special\":[[0,1]]}",
                      0, NULL);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    ck_assert_uint_eq(s.forced_count, 2);
    ck_assert_uint_eq(s.forced[1], 9);
    ck_assert(s.special.count == 1 && s.special.at[0].from == 0 && s.special.at[0].to == 1);
    ck_assert_uint_eq(s.stops.count, 2);
    ck_assert_uint_eq(s.stops.bytes[0], 2);
    ck_assert_int_eq(memcmp(s.stops.text[1], "End", 3), 0);
    engine_submit_parsed_free(&s);
    json_decref(body);

    static const char *const bad[] = {
        "{\"prompt\":\"a\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"forced\":[]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"forced\":[\"a\"]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":1,\"forced\":[1,2]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"score_prompt\":true,\"forced\":[1]}",
        "{\"request_key\":\"\",\"prompt\":\"a\"}",
        "{\"request_key\":\"a b\",\"prompt\":\"a\"}",
        "{\"request_key\":7,\"prompt\":\"a\"}",
        "{\"request_key\":\"k\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ids\":[1]}",
        "{\"request_key\":\"k\",\"prompt\":7}",
        "{\"request_key\":\"k\",\"ids\":[]}",
        "{\"request_key\":\"k\",\"ids\":{}}",
        "{\"request_key\":\"k\",\"ids\":[-1]}",
        "{\"request_key\":\"k\",\"ids\":[1.5]}",
        "{\"request_key\":\"k\",\"ids\":[2147483648]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":-1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":16777217}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"max_tokens\":1.0}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"logprobs\":101}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ignore_eos\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":true}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[0,1]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[0]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[0,2]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[-1,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"special\":[[1,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"abcd\",\"special\":[[2,3],[0,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"abcd\",\"special\":[[0,2],[1,3]]}",
        "{\"request_key\":\"k\",\"ids\":[1],\"special\":[[0,1]]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"score_prompt\":null}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"unknown\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"ids,prompt\":1}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":[]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":\"x\"}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":[\"\"]}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"stop\":[1]}",
        ("{\"request_key\":\"k\",\"ids\":[1],"
         "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}"),
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top-k\":1}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_k\":1.5}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_p\":\"1\"}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"top_p\":2}}",
        "{\"request_key\":\"k\",\"prompt\":\"a\",\"sampling\":{\"seed\":-2}}",
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(submit_parse(bad[i], &s, &error) == -1, "row %u was taken", i);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(submit_parse("{\"request_key\":\"k\",\"prompt\":\"\"}", &s, &error), 0);
}
END_TEST

START_TEST(submit_sizes)
{
    struct engine_submit s;
    struct error error;
    char *long_text = malloc(ENGINE_PROMPT_BYTES_MAX + 2);
    memset(long_text, '"', ENGINE_PROMPT_BYTES_MAX + 1);
    long_text[ENGINE_PROMPT_BYTES_MAX + 1] = 0;
    json_t *body = json_pack("{s:s,s:s}", "request_key", "k", "prompt", long_text);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), -1);
    long_text[ENGINE_PROMPT_BYTES_MAX] = 0;
    json_object_set_new(body, "prompt", json_string(long_text));
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    size_t bytes;
    char *text = rpc_json_encode(body, &bytes); /* the longest prompt fits, even when escaped */
    ck_assert_ptr_nonnull(text);
    free(text);
    json_decref(body);
    free(long_text);

    json_t *ids = json_array();
    for (unsigned i = 0; i < ENGINE_PROMPT_IDS_MAX; i++)
        json_array_append_new(ids, json_integer(INT32_MAX));
    body = json_pack("{s:s,s:o}", "request_key", "k", "ids", ids);
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), 0);
    engine_submit_parsed_free(&s);
    text = rpc_json_encode(body, &bytes);
    ck_assert_ptr_nonnull(text);
    free(text);
    json_array_append_new(ids, json_integer(1));
    ck_assert_int_eq(engine_submit_parse(body, &s, &error), -1);
    json_decref(body);
}
END_TEST

START_TEST(next_and_cancel_fields)
{
    uint64_t id, from;
    unsigned wait;
    struct error error;
    json_t *body = json_loads("{\"v\":1,\"id\":\"x\",\"op\":\"next\",\"sequence\":7,\"from\":3,"
                              "\"wait_ms\":60000}",
                              0, NULL);
    ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), 0);
    ck_assert(id == 7 && from == 3 && wait == 60000);
    ck_assert_int_eq(engine_cancel_parse(body, &id, &error), -1); /* cancel has no key "from" */
    json_decref(body);
    static const char *const bad[] = {
        "{}",
        "{\"sequence\":-1}",
        "{\"sequence\":\"7\"}",
        "{\"sequence\":1,\"from\":-1}",
        "{\"sequence\":1,\"wait_ms\":60001}",
        "{\"sequence\":1,\"wait_ms\":-1}",
        "{\"sequence\":1,\"more\":1}",
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        body = json_loads(bad[i], 0, NULL);
        ck_assert_int_eq(engine_next_parse(body, &id, &from, &wait, &error), -1);
        json_decref(body);
    }
}
END_TEST

START_TEST(run_directories)
{
    char out[ENDPOINT_BYTES], path[ENDPOINT_BYTES], expected[256], longest[200];
    struct error error;
    static const char *const bad[] = {
        "", ".", "..", ".x", "a/b", "a b", "\xc3\xa9", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    setenv("SLUICE_RUN_DIR", scratch, 1);
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_int_eq(run_dir_path(bad[i], out, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_int_eq(run_dir_path("my.run-1_x", out, &error), 0);
    snprintf(expected, sizeof expected, "%s/my.run-1_x", scratch);
    ck_assert_str_eq(out, expected);
    ck_assert_int_eq(endpoint_path(out, ENDPOINT_CACHE_LOADER, 12, path, &error), 0);
    snprintf(expected, sizeof expected, "%s/my.run-1_x/cache-loader.12.sock", scratch);
    ck_assert_str_eq(path, expected);

    memset(longest, 'd', sizeof longest);
    longest[0] = '/';
    for (size_t n = 2; n < sizeof longest; n++) {
        char saved = longest[n];
        longest[n] = 0;
        setenv("SLUICE_RUN_DIR", longest, 1);
        if (run_dir_path("default", out, &error) == 0) {
            for (int e = 0; e < ENDPOINT__COUNT; e++)
                ck_assert_int_eq(endpoint_path(out, (enum endpoint)e, 9999, path, &error), 0);
        } else {
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
            ck_assert_uint_gt(n, 60);
        }
        longest[n] = saved;
    }
    unsetenv("SLUICE_RUN_DIR");
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    ck_assert_int_eq(run_dir_path("r", out, &error), 0);
    ck_assert_str_eq(out, "/run/user/7/sluice/r");
    unsetenv("XDG_RUNTIME_DIR");
    ck_assert_int_eq(run_dir_path("r", out, &error), 0);
    snprintf(expected, sizeof expected, "/tmp/sluice-%u/r", (unsigned)geteuid());
    ck_assert_str_eq(out, expected);
}
END_TEST

START_TEST(run_directories_are_private)
{
    struct error error;
    struct stat st;
    char dir[ENDPOINT_BYTES];
    snprintf(dir, sizeof dir, "%s", scratch_path("run")); /* scratch_path reuses its buffers */
    ck_assert_int_eq(run_dir_create(dir, &error), 0);
    ck_assert_int_eq(run_dir_create(dir, &error), 0); /* exists already: no error */
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    chmod(dir, 0750);
    ck_assert_int_eq(run_dir_create(dir, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    chmod(dir, 0700);
    chmod(scratch, 0777);
    ck_assert_int_eq(run_dir_create(dir, &error), -1);
    chmod(scratch, 0700);
    int fd = open(scratch_path("file"), O_CREAT | O_WRONLY, 0600);
    close(fd);
    ck_assert_int_eq(run_dir_create(scratch_path("file"), &error), -1);
    ck_assert_int_eq(run_dir_create("relative", &error), -1);
    if (geteuid() == 0) { /* root has no exemption: another owner of the parent, of the directory */
        ck_assert_int_eq(chown(scratch, 65534, 65534), 0);
        ck_assert_int_eq(run_dir_create(dir, &error), -1);
        ck_assert_int_eq(chown(scratch, 0, 0), 0);
        ck_assert_int_eq(chown(dir, 65534, 65534), 0);
        ck_assert_int_eq(run_dir_open(dir, &error), -1);
        ck_assert_int_eq(chown(dir, 0, 0), 0);
    }
    ck_assert_int_eq(symlink(dir, scratch_path("link")), 0);
    ck_assert_int_eq(run_dir_open(scratch_path("link"), &error), -1);
    unlink(scratch_path("link"));
    int opened = run_dir_open(dir, &error);
    ck_assert_int_ge(opened, 0);
    close(opened);
    ck_assert(endpoint_is_file("cache-loader.12.sock"));
    ck_assert(endpoint_is_file("cache-predictor.sock"));
    ck_assert(!endpoint_is_file("cache-loader..sock"));
    ck_assert(!endpoint_is_file("agent.sock"));

    ck_assert_int_eq(run_dir_state(dir), RUN_UNKNOWN);
    int lock = run_dir_lock(dir, 0, &error);
    ck_assert_int_ge(lock, 0);
    ck_assert_int_eq(run_dir_state(dir), RUN_LOCKED);
    uint64_t start = clock_now_ns();
    ck_assert_int_eq(run_dir_lock(dir, 100, &error), -1);
    ck_assert_uint_ge(clock_now_ns() - start, 100 * NS_PER_MS);
    ck_assert_int_eq(error.code, ERR_BUSY);
    char pid[24];
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    ck_assert_ptr_nonnull(strstr(error.text, pid));
    close(lock);
    ck_assert_int_eq(run_dir_state(dir), RUN_GONE);
    lock = run_dir_lock(dir, 0, &error);
    ck_assert_int_ge(lock, 0);
    close(lock);
    unlink(scratch_path("run/lock"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc json");
    TCase *tc = tcase_create("json");
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, good_requests_are_taken);
    tcase_add_test(tc, malformed_requests_are_bad_input);
    tcase_add_test(tc, deep_nesting_is_rejected_on_a_small_stack);
    tcase_add_test(tc, size_is_capped);
    tcase_add_test(tc, replies_carry_errors_and_match_ids);
    tcase_add_test(tc, one_failed_allocation_loses_no_reply);
    tcase_add_test(tc, any_bytes_become_text);
    tcase_add_test(tc, sampling_from_text);
    tcase_add_test(tc, submit_fields);
    tcase_add_test(tc, submit_sizes);
    tcase_add_test(tc, next_and_cancel_fields);
    tcase_add_test(tc, run_directories);
    tcase_add_test(tc, run_directories_are_private);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
