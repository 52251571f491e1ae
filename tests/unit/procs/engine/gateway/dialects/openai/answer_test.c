/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in OpenAI's form: their parts, log-probabilities and errors, whole and as events. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/api/completion.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

static struct quota quota;

static const struct answer_form form = {
    .reasoning = {"<think>", "</think>"},
    .call = {.open = "<tool_call>", .close = "</tool_call>", .call_open = ""}};

static void open_completion(struct completion *c, const struct dialect *dialect, bool stream)
{
    quota = (struct quota){.limit = 1 << 20};
    *c = (struct completion){.dialect = dialect,
                             .quota = &quota,
                             .id = "x",
                             .created = 7,
                             .model = "m",
                             .prompt_tokens = 2,
                             .request = {.stream = stream}};
}

static void open_parts(struct completion *c, bool stream, bool inside)
{
    open_completion(c, &openai_chat, stream);
    c->request.answer = form;
    c->request.inside = inside;
    completion_open(c);
}

static void free_completion(struct completion *c)
{
    completion_free(c);
    ck_assert_uint_eq(quota.buffered, 0);
}

static void check_whole(struct completion *c, const char *expected)
{
    size_t bytes;
    completion_end(c, FINISH_END, NULL);
    char *text = completion_whole(c, &bytes);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, expected);
    ck_assert_uint_eq(bytes, strlen(text));
    free(text);
    free_completion(c);
}

#define TIMES "\"created\":7,\"model\":\"m\","
#define HEAD  "{\"id\":\"chatcmpl-x\",\"object\":\"chat.completion\"," TIMES
#define USAGE                                                                                      \
    ",\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":0,\"total_tokens\":2,"                  \
    "\"prompt_tokens_details\":{\"cached_tokens\":0}}}"
#define MESSAGE(more, reason)                                                                      \
    HEAD "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\"," more                     \
         "},\"logprobs\":null,\"finish_reason\":\"" reason "\"}]" USAGE

static void check_message(bool inside, const char *text, const char *expected)
{
    struct completion c;
    open_parts(&c, false, inside);
    completion_text(&c, text, strlen(text), true);
    check_whole(&c, expected);
}

#define CALL(n) "<tool_call>{\"name\":\"f" n "\",\"arguments\":{\"a\":" n "}}</tool_call>"
#define CALLED(n, index)                                                                           \
    "{\"id\":\"call_chatcmpl-x_" n "\",\"type\":\"function\",\"function\":{\"name\":\"f" n         \
    "\",\"arguments\":\"{\\\"a\\\":" n "}\"}" index "}"

START_TEST(one_message)
{
    check_message(false, "Hi", MESSAGE("\"content\":\"Hi\"", "stop"));
    check_message(false, "<think>a</think>b",
                  MESSAGE("\"content\":\"b\",\"reasoning_content\":\"a\"", "stop"));
    check_message(true, "a", MESSAGE("\"content\":\"\",\"reasoning_content\":\"a\"", "stop"));
    check_message(
        false, CALL("0") "\n" CALL("1"),
        MESSAGE("\"content\":null,\"tool_calls\":[" CALLED("0", "") "," CALLED("1", "") "]",
                "tool_calls"));
}
END_TEST

static void check_events(struct completion *c, const char *const events[], size_t count)
{
    const char *at = c->out.data;
    size_t left = c->out.bytes;
    ck_assert(!c->failed);
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(events[i]);
        ck_assert_msg(n <= left && memcmp(at, events[i], n) == 0, "event %zu: %.*s", i, (int)left,
                      at);
        at += n;
        left -= n;
    }
    ck_assert_uint_eq(left, 0);
    free_completion(c);
}

#define CHUNK(delta, reason)                                                                       \
    "data: {\"id\":\"chatcmpl-x\",\"object\":\"chat.completion.chunk\"," TIMES                     \
    "\"choices\":[{\"index\":0,\"delta\":" delta ",\"logprobs\":null,\"finish_reason\":" reason    \
    "}]}\n\n"
#define ROLE CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null")
#define DONE "data: [DONE]\n\n"

START_TEST(events)
{
    static const char text[] = "<think>a b</think>" CALL("0") CALL("1") "c <";
    static const char *const expected[] = {
        ROLE,
        CHUNK("{\"reasoning_content\":\"a b\"}", "null"),
        CHUNK("{\"tool_calls\":[" CALLED("0", ",\"index\":0") "]}", "null"),
        CHUNK("{\"tool_calls\":[" CALLED("1", ",\"index\":1") "]}", "null"),
        CHUNK("{\"content\":\"c\"}", "null"),
        CHUNK("{\"content\":\" <\"}", "null"),
        CHUNK("{}", "\"tool_calls\""),
        DONE,
    };
    struct completion c;
    open_parts(&c, true, false);
    completion_begin(&c);
    for (size_t i = 0; i + 1 < sizeof text; i += 6)
        completion_text(&c, text + i, sizeof text - 1 - i < 6 ? sizeof text - 1 - i : 6, true);
    completion_end(&c, FINISH_END, NULL);
    check_events(&c, expected, ARRAY_LEN(expected));
}
END_TEST

/* With include_usage, each event has the member, and the last one its numbers. */
START_TEST(events_with_usage)
{
    struct completion c;
    open_completion(&c, &openai_completion, true);
    c.request.wants = OPENAI_USAGE;
    completion_text(&c, "a", 1, true);
    completion_end(&c, FINISH_END, NULL);
    char *text = strndup(c.out.data, c.out.bytes), *at = text;
    size_t none = 0;
    for (; (at = strstr(at, "\"usage\":null}\n")) != NULL; at++)
        none++;
    ck_assert_uint_eq(none, 2);
    ck_assert_ptr_nonnull(strstr(text, "\"choices\":[],\"usage\":{"));
    free(text);
    free_completion(&c);
}
END_TEST

/* An answer without text has its role, too, but no text of a template becomes a token. */
START_TEST(events_of_no_text)
{
    static const char *const expected[] = {ROLE, CHUNK("{}", "\"length\""), DONE};
    struct completion c;
    open_completion(&c, &openai_chat, true);
    completion_begin(&c);
    completion_text(&c, "", 0, true);
    completion_end(&c, FINISH_LENGTH, NULL);
    check_events(&c, expected, ARRAY_LEN(expected));
}
END_TEST

static void take(struct completion *c, const char *text, double logprob)
{
    uint32_t bytes = (uint32_t)strlen(text);
    struct engine_next next = {.count = 1,
                               .text = text,
                               .text_bytes = bytes,
                               .logprobs = &logprob,
                               .logprobs_count = 1,
                               .piece_bytes = &bytes,
                               .piece_bytes_count = 1};
    tokens_take(c, &next, 1);
    completion_text(c, text, bytes, true);
}

#define ENTRY(text, value, bytes)                                                                  \
    "{\"token\":\"" text "\",\"logprob\":" value ",\"bytes\":[" bytes "],\"top_logprobs\":[]}"

/* Both forms, whole: nothing is NaN or infinity, and quotes are escaped. */
START_TEST(whole_logprobs)
{
    static const struct {
        const struct dialect *dialect;
        const char *expected;
    } rows[] = {
        {&openai_completion,
         "{\"id\":\"cmpl-x\",\"object\":\"text_completion\"," TIMES
         "\"choices\":[{\"index\":0,\"text\":\"a\\\"\",\"logprobs\":{\"tokens\":[\"a\",\"\\\"\"],"
         "\"token_logprobs\":[-1.0,-9999.0],\"top_logprobs\":null,\"text_offset\":[0,1]},"
         "\"finish_reason\":\"stop\"}]" USAGE},
        {&openai_chat, HEAD
         "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\\\"\"},"
         "\"logprobs\":{\"content\":[" ENTRY("a", "-1.0", "97") "," ENTRY(
             "\\\"", "-9999.0", "34") "],\"refusal\":null},\"finish_reason\":\"stop\"}]" USAGE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct completion c;
        open_completion(&c, rows[i].dialect, false);
        c.request.logprobs = true;
        take(&c, "a", -1);
        take(&c, "\"", -INFINITY);
        check_whole(&c, rows[i].expected);
    }
}
END_TEST

/* Each event has those of its text; what the template wrote has none. */
START_TEST(events_with_logprobs)
{
    static const char *const expected[] = {
        ROLE,
        CHUNK("{\"content\":\"<think>\"}", "null"),
        "data: {\"id\":\"chatcmpl-x\",\"object\":\"chat.completion.chunk\"," TIMES
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"logprobs\":{\"content\":[" ENTRY(
            "b", "-2.0", "98") "],\"refusal\":null},\"finish_reason\":null}]}\n\n",
        CHUNK("{}", "\"stop\""),
        DONE,
    };
    struct completion c;
    open_completion(&c, &openai_chat, true);
    c.request.logprobs = true;
    c.request.front = strdup("<think>");
    completion_begin(&c);
    take(&c, "b", -2);
    completion_end(&c, FINISH_STOP_TEXT, NULL);
    check_events(&c, expected, ARRAY_LEN(expected));
}
END_TEST

#define LOGPROBS(list) "\"logprobs\":{\"content\":[" list "],\"refusal\":null}"

static void take_parts(struct completion *c)
{
    static const char *const tokens[] = {"<think>",     "why",
                                         "</think>",    "so",
                                         "<tool_call>", "{\"name\":\"f0\",\"arguments\":{\"a\":0}}",
                                         "</tool_call>"};
    c->request.logprobs = true;
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        take(c, tokens[i], -(double)i);
}

/* Log-probabilities are those of the content, and the answer is split as without them. */
START_TEST(logprobs_of_parts)
{
    static const char *const expected[] = {
        ROLE,
        CHUNK("{\"reasoning_content\":\"why\"}", "null"),
        "data: {\"id\":\"chatcmpl-x\",\"object\":\"chat.completion.chunk\"," TIMES
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"so\"}," LOGPROBS(
            ENTRY("so", "-3.0", "115,111")) ",\"finish_reason\":null}]}\n\n",
        CHUNK("{\"tool_calls\":[" CALLED("0", ",\"index\":0") "]}", "null"),
        CHUNK("{}", "\"tool_calls\""),
        DONE,
    };
    struct completion c;
    open_parts(&c, false, false);
    take_parts(&c);
    check_whole(&c, HEAD
                "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"so\","
                "\"reasoning_content\":\"why\",\"tool_calls\":[" CALLED("0", "") "]}," LOGPROBS(
                    ENTRY("so", "-3.0", "115,111")) ",\"finish_reason\":\"tool_calls\"}]" USAGE);
    open_parts(&c, true, false);
    completion_begin(&c);
    take_parts(&c);
    completion_end(&c, FINISH_END, NULL);
    check_events(&c, expected, ARRAY_LEN(expected));
}
END_TEST

/* Nothing but a call: there is no content whose tokens they could be. */
START_TEST(logprobs_of_a_call)
{
    struct completion c;
    open_parts(&c, false, false);
    c.request.logprobs = true;
    take(&c, CALL("0"), -1);
    check_whole(&c, MESSAGE("\"content\":null,\"tool_calls\":[" CALLED("0", "") "]", "tool_calls"));
}
END_TEST

/* More than the buffers may have is an error. */
START_TEST(whole_without_space)
{
    struct completion c;
    size_t bytes;
    open_completion(&c, &openai_chat, false);
    c.request.logprobs = true;
    quota.limit = 16384;
    for (int i = 0; i < 300; i++)
        take(&c, "a", -1);
    ck_assert(!c.failed);
    completion_end(&c, FINISH_END, NULL);
    ck_assert_ptr_null(completion_whole(&c, &bytes));
    ck_assert(c.too_long);
    free_completion(&c);
}
END_TEST

/* A failure that does not fit replaces what was not sent; if that is not enough, the connection
 * is closed. */
START_TEST(failures)
{
    static const char expected[] =
        "data: {\"error\":{\"message\":\"why\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"gone\"}}\n\n" DONE;
    static const struct {
        size_t first, second; /* bytes of texts */
        bool limited, broken;
    } rows[] = {{3, 3, false, false}, {3, 600, true, false}, {820, 0, true, true}};
    struct error error;
    error_set(&error, ERR_GONE, "why");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct completion c;
        char text[1024];
        memset(text, 'a', sizeof text);
        open_completion(&c, &openai_completion, true);
        completion_text(&c, text, rows[i].first, true);
        completion_text(&c, text, rows[i].second, true);
        if (rows[i].limited)
            quota.limit = quota.buffered;
        completion_fail(&c, 503, &error);
        ck_assert_msg(c.broken == rows[i].broken, "row %zu", i);
        size_t n = sizeof expected - 1;
        ck_assert(c.broken ||
                  (c.out.bytes > n && memcmp(c.out.data + c.out.bytes - n, expected, n) == 0));
        free_completion(&c);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("openai");
    tcase_add_test(cases, one_message);
    tcase_add_test(cases, events);
    tcase_add_test(cases, events_with_usage);
    tcase_add_test(cases, events_of_no_text);
    tcase_add_test(cases, whole_logprobs);
    tcase_add_test(cases, events_with_logprobs);
    tcase_add_test(cases, logprobs_of_parts);
    tcase_add_test(cases, logprobs_of_a_call);
    tcase_add_test(cases, whole_without_space);
    tcase_add_test(cases, failures);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
