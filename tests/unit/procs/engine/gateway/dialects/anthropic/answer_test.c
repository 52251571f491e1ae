/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, events and errors in Anthropic's form. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"
#include "tests/unit/procs/engine/gateway/dialects/recorded.h"

#define USAGE                                                                                      \
    "\"usage\":{\"input_tokens\":4,\"cache_creation_input_tokens\":0,"                             \
    "\"cache_read_input_tokens\":5,\"output_tokens\":4}"
#define WHOLE(content, reason, sequence)                                                           \
    "{\"id\":\"msg_x\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":"   \
    "[" content "],\"stop_reason\":\"" reason "\",\"stop_sequence\":" sequence "," USAGE "}"
#define THOUGHT(text) "{\"type\":\"thinking\",\"thinking\":\"" text "\",\"signature\":\"\"}"
#define TEXT(text)    "{\"type\":\"text\",\"text\":\"" text "\"}"
#define USE(n, name, i)                                                                            \
    "{\"type\":\"tool_use\",\"id\":\"toolu_x_" n "\",\"name\":\"" name "\",\"input\":" i "}"
#define TWO_CALLS RECORDED_CALL("f", "{\"a\": 1}") RECORDED_CALL("g", "\"no object\"") "after"

START_TEST(whole_answers)
{
    static const struct recorded rows[] = {
        {.text = "Hi", .finish = FINISH_END, .expected = WHOLE(TEXT("Hi"), "end_turn", "null")},
        {.text = "", .finish = FINISH_LENGTH, .expected = WHOLE("", "max_tokens", "null")},
        {.text = "<think>a</think>b",
         .finish = FINISH_STOP_TEXT,
         .stop = "END",
         .expected = WHOLE(THOUGHT("a") "," TEXT("b"), "stop_sequence", "\"END\"")},
        {.text = "a", .inside = true, .expected = WHOLE(THOUGHT("a"), "max_tokens", "null")},
        {.text = "b" TWO_CALLS,
         .finish = FINISH_END,
         .expected = WHOLE(TEXT("bafter") "," USE("0", "f", "{\"a\":1}") "," USE(
                               "1", "g", "{\"arguments\":\"no object\"}"),
                           "tool_use", "null")},
        {.text = TWO_CALLS,
         .finish = FINISH_END,
         .one_call = true,
         .expected = WHOLE(USE("0", "f", "{\"a\":1}"), "tool_use", "null")},
        {.text = TWO_CALLS,
         .finish = FINISH_LENGTH,
         .one_call = true,
         .expected = WHOLE(USE("0", "f", "{\"a\":1}"), "tool_use", "null")},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct recorded r = rows[i];
        r.dialect = &anthropic_messages;
        recorded_check(&r, false);
    }
}
END_TEST

#define EVENT(name, more) "event: " name "\ndata: {\"type\":\"" name "\"" more "}\n\n"
#define START                                                                                      \
    EVENT("message_start",                                                                         \
          ",\"message\":{\"id\":\"msg_x\",\"type\":\"message\",\"role\":\"assistant\","            \
          "\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"            \
          "\"usage\":{\"input_tokens\":9,\"cache_creation_input_tokens\":0,"                       \
          "\"cache_read_input_tokens\":0,\"output_tokens\":4}}")
#define OPEN(n, block) EVENT("content_block_start", ",\"index\":" n ",\"content_block\":" block)
#define DELTA(n, type, member, value)                                                              \
    EVENT("content_block_delta",                                                                   \
          ",\"index\":" n ",\"delta\":{\"type\":\"" type "\",\"" member "\":\"" value "\"}")
#define CLOSE(n) EVENT("content_block_stop", ",\"index\":" n)
#define END(reason, sequence)                                                                      \
    EVENT("message_delta",                                                                         \
          ",\"delta\":{\"stop_reason\":\"" reason "\",\"stop_sequence\":" sequence "}," USAGE)     \
    EVENT("message_stop", "")

START_TEST(events)
{
    static const struct recorded rows[] = {
        {.text = "<think>ab</think>cd" RECORDED_CALL("f", "{\"a\": 1}"),
         .finish = FINISH_END,
         .expected = START OPEN("0", THOUGHT("")) DELTA("0", "thinking_delta", "thinking", "ab")
             DELTA("0", "signature_delta", "signature", "") CLOSE("0") OPEN("1", TEXT(""))
                 DELTA("1", "text_delta", "text", "c") DELTA("1", "text_delta", "text", "d")
                     CLOSE("1") OPEN("2", USE("0", "f", "{}"))
                         DELTA("2", "input_json_delta", "partial_json", "{\\\"a\\\":1}") CLOSE("2")
                             END("tool_use", "null")},
        {.text = "Hi",
         .finish = FINISH_STOP_TEXT,
         .stop = "\n\n",
         .expected = START OPEN("0", TEXT("")) DELTA("0", "text_delta", "text", "Hi") CLOSE("0")
             END("stop_sequence", "\"\\n\\n\"")},
        {.text = "", .finish = FINISH_LENGTH, .expected = START END("max_tokens", "null")},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct recorded r = rows[i];
        r.dialect = &anthropic_messages;
        recorded_check(&r, true);
    }
}
END_TEST

START_TEST(pings_and_failures)
{
    static const char expected[] = START EVENT("ping", "") EVENT(
        "ping",
        "") "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
            "\"message\":\"why\"}}\n\n";
    struct recorded r = {.dialect = &anthropic_messages};
    struct engine_progress progress = {.known = true, .tokens = 9, .done = 2};
    struct quota quota;
    struct completion c;
    struct error error;
    error_set(&error, ERR_GONE, "why");
    recorded_open(&c, &r, true, &quota);
    completion_progress(&c, &progress);
    completion_keep_alive(&c);
    completion_fail(&c, 503, &error);
    ck_assert_uint_eq(c.out.bytes, sizeof expected - 1);
    ck_assert(memcmp(c.out.data, expected, c.out.bytes) == 0);
    completion_free(&c);
}
END_TEST

START_TEST(errors_and_counts)
{
    static const struct {
        unsigned status;
        const char *type;
    } rows[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                {403, "permission_error"},      {404, "not_found_error"},
                {405, "invalid_request_error"}, {413, "request_too_large"},
                {429, "rate_limit_error"},      {500, "api_error"},
                {503, "overloaded_error"},      {504, "timeout_error"}};
    struct error error;
    error_set(&error, ERR_BAD_INPUT, "why");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *got = anthropic_messages.error(rows[i].status, &error, "field");
        json_t *want = json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type",
                                 rows[i].type, "message", "why");
        ck_assert_msg(json_equal(got, want), "status %u", rows[i].status);
        json_decref(got);
        json_decref(want);
    }
    json_t *reply = json_pack("{s:i, s:i}", "tokens", 12, "context", 99);
    json_t *got = anthropic_count.reply(NULL, reply),
           *want = json_pack("{s:i}", "input_tokens", 12);
    ck_assert(json_equal(got, want));
    json_decref(got);
    json_decref(want);
    json_decref(reply);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("anthropic");
    tcase_add_test(cases, whole_answers);
    tcase_add_test(cases, events);
    tcase_add_test(cases, pings_and_failures);
    tcase_add_test(cases, errors_and_counts);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
