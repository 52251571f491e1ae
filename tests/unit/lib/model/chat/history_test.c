/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that clients send back or that few templates take: of the system and the developer,
 * reasoning beside calls, members without a value. All of their text is in the prompt. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/format.h"

static void check(size_t row, const char *text, const char *messages, const char *expected)
{
    struct model_chat model = {.family = CHAT_PLAIN};
    struct chat_format format = {0};
    struct chat_prompt prompt;
    struct error error = {0};
    json_t *m = json_loads(messages, 0, NULL);
    ck_assert_msg(m != NULL, "row %zu: %s", row, messages);
    ck_assert_msg(chat_format_set(&format, &model, text, strlen(text), &error) == 0, "%s",
                  error.text);
    struct chat_conversation c = {.messages = m};
    int rc = chat_format_render(&format, &c, 10000, &prompt, &error);
    ck_assert_msg(rc == 0, "row %zu: %s", row, error.text);
    ck_assert_msg(strcmp(prompt.text, expected) == 0, "row %zu: '%s'", row, prompt.text);
    chat_prompt_free(&prompt);
    chat_format_free(&format);
    json_decref(m);
}

/* ---- roles ---- */

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define EACH(body)       "{% for m in messages %}" body "{% endfor %}"
#define IF(role, mark)   "{% if m.role == '" role "' %}<" mark ">{{ m.content }}{% endif %}"
#define USER             "{% if m.role == 'user' %}<u>{{ m.name }}{{ m.content }}{% endif %}"
#define OTHERS           USER IF("assistant", "a") IF("tool", "t")
#define FIRST(condition) "{% if " condition " %}<s>{{ messages[0].content }}{% endif %}"
#define NOT_ALTERNATING                                                                            \
    "(m.role != 'user' and m.role != 'assistant') or (m.role == 'user') == "                       \
    "(loop.previtem is defined and loop.previtem.role == 'user')"
#define RAISE(condition) "{% if " condition " %}{{ raise_exception('role') }}{% endif %}"

/* As in GLM: the system's anywhere, and no developer. */
#define ANYWHERE EACH(IF("system", "s") OTHERS)
/* As in MiniMax-M2: the first message only. */
#define ONLY_FIRST FIRST("messages[0].role == 'system'") EACH(OTHERS)
/* As in Qwen3.5. */
#define RAISES                                                                                     \
    EACH(RAISE("m.role == 'developer' or (m.role == 'system' and not loop.first)")                 \
             IF("system", "s") OTHERS)
/* As in Mistral. */
#define ALTERNATES                                                                                 \
    FIRST("messages[0].role == 'system'")                                                          \
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"                  \
    "{% for m in rest %}" RAISE(NOT_ALTERNATING) OTHERS "{% endfor %}"
/* And a result of a tool is of the user's turn. */
#define ALTERNATES_AFTER_TOOLS                                                                     \
    FIRST("messages[0].role == 'system'")                                                          \
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"                  \
    "{% for m in rest %}" RAISE("m.role in ['system', 'developer'] or (m.role == 'user' and "      \
                                "loop.previtem is defined and loop.previtem.role in ['user', "     \
                                "'tool'])") OTHERS "{% endfor %}"
/* As in DeepSeek V3: all in front. */
#define GATHERS EACH(IF("system", "s")) EACH(OTHERS)
/* As in Gemma 2. */
#define NO_SYSTEM EACH(RAISE(NOT_ALTERNATING) OTHERS)
/* As in gpt-oss. */
#define BOTH_FIRST FIRST("messages[0].role in ['system', 'developer']") EACH(OTHERS)
#define ANY_ROLE   EACH("<{{ m.role }}>{{ m.content }}")

START_TEST(messages_of_the_system)
{
    static const char all[] = "[" SAID("developer", "D") "," SAID("system", "S") "," SAID(
        "user", "U") "," SAID("system", "L") "," SAID("assistant", "A") "," SAID("developer",
                                                                                 "M") "," //
        SAID("user", "V") "," SAID("system", "E") "]";
    static const char usual[] = "[" SAID("system", "S") "," SAID("user", "U") "]";
    static const char empty[] = "[" SAID("system", "") "," SAID("system", "S") "," SAID(
        "developer", "") "," SAID("user", "U") "]";
    static const char named[] = "[" SAID("user", "U") "," SAID("assistant", "A") "," SAID(
        "system", "S") ",{\"role\":\"user\",\"content\":\"V\",\"name\":\"n:\"}]";
    static const char after_tool[] = "[" SAID("user", "U") "," SAID("assistant", "A") "," SAID(
        "tool", "R") "," SAID("system", "L") "," SAID("assistant", "B") "]";
    static const struct {
        const char *chat_template, *messages, *expected;
    } rows[] = {
        {ANYWHERE, all, "<s>D<s>S<u>U<s>L<a>A<s>M<u>V<s>E"},
        {ONLY_FIRST, all, "<s>D\n\nS<u>U<u>L<a>A<u>M<u>V<u>E"},
        {RAISES, all, "<s>D\n\nS<u>U<u>L<a>A<u>M<u>V<u>E"},
        {ALTERNATES, all, "<s>D\n\nS<u>U\n\nL<a>A<u>M\n\nV\n\nE"},
        {GATHERS, all, "<s>D<s>S<u>U<u>L<a>A<u>M<u>V<u>E"},
        {NO_SYSTEM, all, "<u>D\n\nS\n\nU\n\nL<a>A<u>M\n\nV\n\nE"},
        {BOTH_FIRST, all, "<s>D\n\nS<u>U<u>L<a>A<u>M<u>V<u>E"},
        {ANY_ROLE "{# developer #}", all,
         "<developer>D<system>S<user>U<system>L<assistant>A<developer>M<user>V<system>E"},
        {ANY_ROLE, all, "<system>D<system>S<user>U<system>L<assistant>A<system>M<user>V<system>E"},
        {ANYWHERE, usual, "<s>S<u>U"},
        {ALTERNATES, usual, "<s>S<u>U"},
        {NO_SYSTEM, usual, "<u>S\n\nU"},
        {ONLY_FIRST, empty, "<s>S<u>U"},
        {ALTERNATES, named, "<u>U<a>A<u>n:S\n\nV"},
        {ALTERNATES_AFTER_TOOLS, after_tool, "<u>U<a>A<t>R\n\nL<a>B"},
        {ANYWHERE, after_tool, "<u>U<a>A<t>R<s>L<a>B"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(i, rows[i].chat_template, rows[i].messages, rows[i].expected);
}
END_TEST

/* Messages of the user that alternate not are the client's own: they stay as they are. */
START_TEST(what_is_not_joined)
{
    static const char text[] = "[" SAID("user", "U") "," SAID("user", "V") "]";
    struct model_chat model = {.family = CHAT_PLAIN};
    struct chat_format format = {0};
    struct chat_prompt prompt;
    struct error error = {0};
    json_t *m = json_loads(text, 0, NULL);
    ck_assert_int_eq(chat_format_set(&format, &model, ALTERNATES, strlen(ALTERNATES), &error), 0);
    struct chat_conversation c = {.messages = m};
    ck_assert_int_eq(chat_format_render(&format, &c, 10000, &prompt, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    chat_format_free(&format);
    json_decref(m);
}
END_TEST

/* ---- reasoning and calls ---- */

#define CALLS_WITH(arguments)                                                                      \
    "\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]"
#define CALLS CALLS_WITH("\"{}\"")
#define ANSWER(members)                                                                            \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\"," members "},"                 \
    "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c\"}]"
#define WRITES(body)                                                                               \
    EACH("{% if m.role == 'assistant' %}" body "{% else %}<{{ m.role[0] }}>{{ m.content }}"        \
         "{% endif %}")
#define OF_CALL                                                                                    \
    "<call>{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}"

/* As in gpt-oss: of messages with calls only, and not beside a content. */
#define ALONE                                                                                      \
    WRITES("{% if 'tool_calls' in m %}{% if m.content and m.thinking %}{{ raise_exception('two') " \
           "}}{% endif %}{% if m.content or m.thinking %}<analysis>{{ m.content or m.thinking }}"  \
           "{% endif %}" OF_CALL "{% else %}<final>{{ m.content }}{% endif %}")
#define BESIDE                                                                                     \
    WRITES("({{ m.thinking }}){{ m.content }}{% if 'tool_calls' in m %}" OF_CALL "{% endif %}")
/* As in Solar. */
#define REASONING                                                                                  \
    WRITES("({{ m.reasoning }}){{ m.content }}{% if 'tool_calls' in m %}" OF_CALL "{% endif %}")
#define MEMBER                                                                                     \
    WRITES("{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.content }}"                            \
           "{% if 'tool_calls' in m %}" OF_CALL "{% endif %}")

START_TEST(reasoning_beside_calls)
{
    static const struct {
        const char *chat_template, *messages, *expected;
    } rows[] = {
        {ALONE, ANSWER("\"content\":null,\"reasoning_content\":\"t\"," CALLS),
         "<u>u<analysis>t<call>f{}<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\"," CALLS),
         "<u>u<analysis>t<call>f{}<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"thinking\":\"own\",\"reasoning_content\":\"t\"," CALLS),
         "<u>u<analysis>own<call>f{}<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"reasoning_content\":\"\"," CALLS),
         "<u>u<analysis>c<call>f{}<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\""), "<u>u<final>c<t>r"},
        {BESIDE, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\"," CALLS),
         "<u>u(t)c<call>f{}<t>r"},
        {BESIDE, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\""), "<u>u(t)c<t>r"},
        {REASONING, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\"," CALLS),
         "<u>u(t)c<call>f{}<t>r"},
        {MEMBER, ANSWER("\"content\":\"c\",\"reasoning_content\":\"t\"," CALLS),
         "<u>ut||c<call>f{}<t>r"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(i, rows[i].chat_template, rows[i].messages, rows[i].expected);
}
END_TEST

/* As openai-python's model_dump() writes what it got. */
START_TEST(members_without_a_value)
{
    static const struct {
        const char *chat_template, *messages, *expected;
    } rows[] = {
        {ALONE, ANSWER("\"content\":\"c\",\"tool_calls\":null"), "<u>u<final>c<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"tool_calls\":[]"), "<u>u<final>c<t>r"},
        {ALONE, ANSWER("\"content\":\"c\",\"tool_calls\":{}"), "<u>u<final>c<t>r"},
        {ALONE, ANSWER("\"content\":null,\"reasoning_content\":null," CALLS), "<u>u<call>f{}<t>r"},
        {EACH("{{ m | tojson }}"),
         "[{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"audio\":null,"
         "\"function_call\":null,\"tool_calls\":null,\"name\":\"n\"}]",
         "{\"role\": \"assistant\", \"content\": \"\", \"name\": \"n\"}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check(i, rows[i].chat_template, rows[i].messages, rows[i].expected);
}
END_TEST

static unsigned allocations, failing;

static void *allocate(size_t bytes)
{
    return ++allocations == failing ? NULL : malloc(bytes);
}

/* Whichever allocation of the JSON library fails: an error that says so, or all of the messages. */
START_TEST(without_memory)
{
    static const char text[] =
        "[" SAID("developer", "D") "," SAID("system", "S") "," SAID("user", "U") "," SAID(
            "system", "L") ",{\"role\":\"assistant\",\"content\":\"c\","
                           "\"reasoning_content\":\"t\",\"name\":null," CALLS_WITH("{}") "}," SAID(
                               "developer", "M") "," SAID("user", "V") "]";
    static const struct chat_shape shapes[] = {
        {.no_developer = true, .one_system = true, .later = CHAT_LATER_USER},
        {.no_developer = true, .no_system = true, .later = CHAT_LATER_JOINED},
        {.thoughts = "thinking", .thoughts_or_words = true, .one_system = true},
    };
    struct error error;
    json_t *messages = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(messages);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        json_t *all = chat_messages(messages, false, &shapes[i], CHAT_PLAIN, &error);
        ck_assert_ptr_nonnull(all);
        json_set_alloc_funcs(allocate, free);
        bool failed = true;
        for (failing = 1; failed; failing++) {
            ck_assert_uint_lt(failing, 1000);
            allocations = 0;
            error = (struct error){.code = ERR_NONE};
            json_t *out = chat_messages(messages, false, &shapes[i], CHAT_PLAIN, &error);
            failed = allocations >= failing;
            ck_assert_msg(out ? json_equal(out, all) : error.code == ERR_NO_MEMORY,
                          "shape %zu, allocation %u: code %d", i, failing, (int)error.code);
            json_decref(out);
        }
        json_set_alloc_funcs(malloc, free);
        ck_assert_uint_gt(failing, 20);
        json_decref(all);
    }
    json_decref(messages);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chat_history");
    TCase *tc = tcase_create("chat_history");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, messages_of_the_system);
    tcase_add_test(tc, what_is_not_joined);
    tcase_add_test(tc, reasoning_beside_calls);
    tcase_add_test(tc, members_without_a_value);
    tcase_add_test(tc, without_memory);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
