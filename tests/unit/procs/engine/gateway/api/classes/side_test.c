/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which requests are side requests: titles and tags of public clients, and what looks like
 * them. */
#include <check.h>

#include "procs/engine/gateway/api/request.h"

/* An answer of `tokens` tokens to these messages, with these tools. */
static bool is_side(const char *messages, const char *tools, int64_t tokens)
{
    json_t *m = json_loads(messages, 0, NULL), *t = tools ? json_loads(tools, 0, NULL) : NULL;
    ck_assert_ptr_nonnull(m);
    struct api_conversation c = {.messages = m, .tools = t};
    struct api_request r = {.side = api_side_of(&c), .max_tokens = tokens};
    bool side = api_is_side(&r);
    json_decref(m);
    json_decref(t);
    return side;
}

#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

START_TEST(instructions_of_clients_are_known)
{
    ck_assert(is_side("[{\"role\":\"user\",\"content\":\"### Task:\\nGenerate a concise, 3-5 word "
                      "title\"}]",
                      NULL, 1000));
    ck_assert(is_side("[{\"role\":\"system\",\"content\":\"\\n You are a title generator. You "
                      "output ONLY a thread title.\"},{\"role\":\"user\",\"content\":\"Hi\"}]",
                      NULL, ENGINE_TOKENS_MAX));
    ck_assert(is_side("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Analyze if "
                      "this message indicates a new conversation topic. If it does\"}]},"
                      "{\"role\":\"user\",\"content\":\"Hi\"}]",
                      NULL, 512));
    /* Zed appends it to the conversation. */
    ck_assert(is_side("[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"
                      "\"Hello\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                      "\"Generate a concise 3-7 word title for this conversation\"}]}]",
                      TOOLS, ENGINE_TOKENS_MAX));
}
END_TEST

START_TEST(a_short_answer_to_a_first_message_is_one)
{
    static const char first[] = "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                "{\"role\":\"user\",\"content\":\"Name it.\"}]";
    ck_assert(is_side(first, NULL, 20));
    ck_assert(is_side(first, "[]", API_SIDE_TOKENS));
    ck_assert(!is_side(first, NULL, API_SIDE_TOKENS + 1));
    ck_assert(!is_side(first, TOOLS, 3)); /* Home Assistant's probe is that of a conversation */
}
END_TEST

START_TEST(conversations_are_none)
{
    ck_assert(!is_side("[{\"role\":\"user\",\"content\":\"Write a title for my essay\"}]", NULL,
                       ENGINE_TOKENS_MAX));
    ck_assert(!is_side("[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\","
                       "\"content\":\"Hello\"},{\"role\":\"user\",\"content\":\"And?\"}]",
                       NULL, 16));
    /* An instruction in an earlier message is history. */
    ck_assert(!is_side("[{\"role\":\"user\",\"content\":\"### Task:\\nfix it\"},{\"role\":"
                       "\"assistant\",\"content\":\"Done\"},{\"role\":\"user\",\"content\":"
                       "\"Thanks\"}]",
                       NULL, 16));
    /* What is no message or no text. */
    ck_assert(!is_side("[1,null,{\"role\":2,\"content\":{}},{\"content\":[3,{\"text\":4}]}]", NULL,
                       ENGINE_TOKENS_MAX));
    struct api_request raw = {.max_tokens = 1}; /* a prompt without messages */
    ck_assert(!api_is_side(&raw));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("side");
    TCase *c = tcase_create("side");
    tcase_add_test(c, instructions_of_clients_are_known);
    tcase_add_test(c, a_short_answer_to_a_first_message_is_one);
    tcase_add_test(c, conversations_are_none);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
