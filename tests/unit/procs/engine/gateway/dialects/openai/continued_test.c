/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations whose last message is continued, and words of conversations with NUL. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/api/request.h"
#include "procs/engine/gateway/dialects/openai/openai.h"

#define ASK(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"
#define TURNS                                                                                      \
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"                   \
    "{% if add_generation_prompt %}<assistant><think>\n{% endif %}{# </think> #}"
#define BOTH(content, more)                                                                        \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"    \
    "\"" content "\"}]" more "}"

/* A last message of the assistant is continued: the prompt ends with its text. */
START_TEST(continued_messages)
{
    static const struct {
        const char *body, *prompt;
        bool inside;
    } rows[] = {
        {BOTH("b", ""), "<user>a</><assistant>b", false},
        {BOTH("b ", ""), "<user>a</><assistant>b", false}, /* the template writes no blanks there */
        {BOTH("b", ",\"continue_final_message\":true,\"add_generation_prompt\":false"),
         "<user>a</><assistant>b", false},
        {BOTH("b", ",\"continue_final_message\":false"),
         "<user>a</><assistant>b</><assistant><think>\n", true},
        {BOTH("b", ",\"add_generation_prompt\":true"),
         "<user>a</><assistant>b</><assistant><think>\n", true},
        {BOTH("<think>b", ""), "<user>a</><assistant><think>b", true},
        {BOTH("<think>b</think>c", ""), "<user>a</><assistant><think>b</think>c", false},
        {ASK(",\"add_generation_prompt\":false"), "<user>hi</>", false},
    };
    static const char *const bad[][2] = {
        {ASK(",\"continue_final_message\":true"), "not one of the assistant"},
        {BOTH("b", ",\"continue_final_message\":true,\"add_generation_prompt\":true"),
         "exclude each other"},
        {BOTH("b", ",\"continue_final_message\":1"), "true or false"}};
    struct chat_format format = {0};
    struct api_limits limits = {.prompt_bytes = 4096, .chat = &format};
    struct model_chat model = {.family = CHAT_PLAIN};
    struct api_request r;
    struct error error = {.text = ""};
    char param[API_PARAM_BYTES];
    ck_assert_int_eq(chat_format_set(&format, &model, TURNS, strlen(TURNS), &error), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(api_request_parse(&openai_chat, rows[i].body, strlen(rows[i].body), &limits,
                                        &r, param, &error) == 0,
                      "%s", error.text);
        ck_assert_str_eq(r.prompt, rows[i].prompt);
        ck_assert_uint_eq(r.prompt_bytes, strlen(r.prompt));
        ck_assert_msg(r.inside == rows[i].inside && !r.front, "row %zu", i);
        for (size_t k = 0; k < r.special.count; k++)
            ck_assert_uint_le(r.special.at[k].to, r.prompt_bytes);
        api_request_free(&r);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert(api_request_parse(&openai_chat, bad[i][0], strlen(bad[i][0]), &limits, &r, param,
                                    &error) == -1);
        ck_assert_msg(strstr(error.text, bad[i][1]) != NULL, "%s", error.text);
        api_request_free(&r);
    }
    /* An answer as one text has the mark that the template wrote. */
    static const char whole[] = ASK(",\"reasoning_format\":\"none\"");
    ck_assert(api_request_parse(&openai_chat, whole, strlen(whole), &limits, &r, param, &error) ==
              0);
    ck_assert_str_eq(r.front, "<think>\n");
    api_request_free(&r);
    chat_format_free(&format);
    static const char silent[] = "{{ messages[0].content }}";
    ck_assert_int_eq(chat_format_set(&format, &model, silent, strlen(silent), &error), 0);
    ck_assert(api_request_parse(&openai_chat, rows[0].body, strlen(rows[0].body), &limits, &r,
                                param, &error) == -1);
    ck_assert_msg(strstr(error.text, "does not write the last message") != NULL, "%s", error.text);
    api_request_free(&r);
    chat_format_free(&format);
}
END_TEST

/* Blanks after the content may be the template's own: they are no sign that it keeps the
 * message's. NUL is no blank. */
START_TEST(blanks_of_continued_messages)
{
    static const struct {
        const char *text, *content, *prompt;
        size_t bytes;
    } rows[] = {
        {"{{ messages[1].content | trim + ' </s>' }}", "b ", "b", 1},
        {"{{ messages[1].content + ' </s>' }}", "b ", "b ", 2},
        {"{{ messages[1].content }}</s>", "b \\n", "b \n", 3},
        {"{{ messages[1].content | trim }}</s>", "b\\u0000", "b\0", 2},
        {"{{ messages[1].content | trim }}</s>", "b\\u0000 ", "b\0", 2},
    };
    struct chat_format format = {0};
    struct api_limits limits = {.prompt_bytes = 4096, .chat = &format};
    struct model_chat model = {.family = CHAT_PLAIN};
    struct api_request r;
    struct error error = {.text = ""};
    char param[API_PARAM_BYTES], body[200];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_int_eq(
            chat_format_set(&format, &model, rows[i].text, strlen(rows[i].text), &error), 0);
        snprintf(body, sizeof body, BOTH("%s", ""), rows[i].content);
        ck_assert_msg(
            api_request_parse(&openai_chat, body, strlen(body), &limits, &r, param, &error) == 0,
            "%s", error.text);
        ck_assert_msg(r.prompt_bytes == rows[i].bytes &&
                          memcmp(r.prompt, rows[i].prompt, rows[i].bytes) == 0,
                      "row %zu: '%s'", i, r.prompt);
        api_request_free(&r);
        chat_format_free(&format);
    }
}
END_TEST

/* Reasoning that a message leaves open, wherever NUL and the limits of its parts are. */
START_TEST(continued_reasoning)
{
    static const struct {
        const char *content;
        bool inside;
    } rows[] = {
        {"\"<think>b\\u0000c\"", true},
        {"\"b\\u0000<think>c\"", true},
        {"\"<think>b\\u0000</think>c\"", false},
        {"[{\"type\":\"text\",\"text\":\"<think>b\"},{\"type\":\"text\",\"text\":\"c\"}]", true},
        {"[{\"type\":\"text\",\"text\":\"<thi\"},{\"type\":\"text\",\"text\":\"nk>c\"}]", true},
        {"[{\"type\":\"text\",\"text\":\"<think>b\"},{\"type\":\"text\",\"text\":\"</think>\"}]",
         false},
    };
    struct chat_format format = {0};
    struct api_limits limits = {.prompt_bytes = 4096, .chat = &format};
    struct model_chat model = {.family = CHAT_PLAIN};
    struct api_request r;
    struct error error = {.text = ""};
    char param[API_PARAM_BYTES], body[300];
    ck_assert_int_eq(chat_format_set(&format, &model, TURNS, strlen(TURNS), &error), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                 "\"content\":%s}]}",
                 rows[i].content);
        ck_assert_msg(
            api_request_parse(&openai_chat, body, strlen(body), &limits, &r, param, &error) == 0,
            "%s", error.text);
        ck_assert_msg(r.inside == rows[i].inside, "row %zu", i);
        api_request_free(&r);
    }
    /* The client has the mark that it wrote itself: an answer as one text does not repeat it. */
    static const char whole[] = BOTH("<think>", ",\"reasoning_format\":\"none\"");
    ck_assert(api_request_parse(&openai_chat, whole, strlen(whole), &limits, &r, param, &error) ==
              0);
    ck_assert_str_eq(r.prompt, "<user>a</><assistant><think>");
    ck_assert_msg(!r.front, "'%s' is sent again", r.front);
    api_request_free(&r);
    chat_format_free(&format);
}
END_TEST

/* A family's form always ends with the prompt of an answer. */
START_TEST(generation_prompt_of_a_family)
{
    static const char *const good[] = {
        ASK(",\"add_generation_prompt\":true"), BOTH("b", ",\"add_generation_prompt\":false"),
        BOTH("b", ",\"continue_final_message\":true,\"add_generation_prompt\":false")};
    static const char *const bad[] = {
        ASK(",\"add_generation_prompt\":false"),
        BOTH("b", ",\"continue_final_message\":false,\"add_generation_prompt\":false")};
    static const struct chat_format plain;
    struct api_limits limits = {.prompt_bytes = 64, .chat = &plain};
    struct api_request r;
    struct error error = {.text = ""};
    char param[API_PARAM_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        ck_assert_msg(api_request_parse(&openai_chat, good[i], strlen(good[i]), &limits, &r, param,
                                        &error) == 0,
                      "%s", error.text);
        api_request_free(&r);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(api_request_parse(&openai_chat, bad[i], strlen(bad[i]), &limits, &r, param,
                                        &error) == -1,
                      "row %zu", i);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, "'add_generation_prompt'") != NULL, "%s", error.text);
        ck_assert_str_eq(param, "add_generation_prompt");
        api_request_free(&r);
    }
}
END_TEST

/* A word with NUL after it is another text. */
START_TEST(words_with_nul)
{
    static const char *const bad[] = {
        "{\"messages\":[{\"role\":\"user\\u0000x\",\"content\":\"hi\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"a\"}]}"
        "]}",
        ASK(",\"tool_choice\":\"auto\\u0000\""),
        ASK(",\"tool_choice\":\"none\\u0000\""),
        ASK(",\"reasoning_format\":\"none\\u0000\""),
        ASK(",\"response_format\":{\"type\":\"text\\u0000\"}"),
        ASK(",\"modalities\":[\"text\\u0000\"]"),
        BOTH("b\"},{\"role\":\"assistant\\u0000\",\"content\":\"c", "")};
    struct chat_format format = {0};
    struct api_limits limits = {.prompt_bytes = 4096, .chat = &format};
    struct model_chat model = {.family = CHAT_PLAIN};
    struct api_request r;
    struct error error = {.text = ""};
    char param[API_PARAM_BYTES];
    for (int own = 0; own < 2; own++) {
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            ck_assert_msg(api_request_parse(&openai_chat, bad[i], strlen(bad[i]), &limits, &r,
                                            param, &error) == -1,
                          "template %d, row %zu", own, i);
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
            api_request_free(&r);
        }
        if (own == 0)
            ck_assert_int_eq(chat_format_set(&format, &model, TURNS, strlen(TURNS), &error), 0);
    }
    chat_format_free(&format);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("continued");
    tcase_add_test(t, continued_messages);
    tcase_add_test(t, blanks_of_continued_messages);
    tcase_add_test(t, continued_reasoning);
    tcase_add_test(t, generation_prompt_of_a_family);
    tcase_add_test(t, words_with_nul);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
