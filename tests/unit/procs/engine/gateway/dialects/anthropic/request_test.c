/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies in Anthropic's form: what the template gets, what is rejected, what is ignored. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define USER(content)        "{\"role\":\"user\",\"content\":" content "}"
#define ASSISTANT(content)   "{\"role\":\"assistant\",\"content\":" content "}"
#define TEXT(text)           "{\"type\":\"text\",\"text\":\"" text "\"}"
#define BODY(messages, more) "{\"messages\":[" messages "]" more "}"
#define HI                   BODY(USER("\"hi\""), "")
#define HI_AND(more)         BODY(USER("\"hi\""), "," more)
#define SEEN_HI              "{\"role\": \"user\", \"content\": \"hi\"}"

/* Each block has its place in a message that templates know. */
START_TEST(conversations)
{
    static const struct {
        const char *body, *prompt;
    } rows[] = {
        {HI, SEEN_HI},
        {HI_AND("\"system\":\"S\""), "{\"role\": \"system\", \"content\": \"S\"}" SEEN_HI},
        /* The billing block differs in each request. */
        {HI_AND(
             "\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: a=1\"}," TEXT(
                 "S") ",{\"type\":\"text\",\"text\":\"T\",\"cache_control\":{\"type\":"
                      "\"ephemeral\"}}]"),
         "{\"role\": \"system\", \"content\": \"ST\"}" SEEN_HI},
        {HI_AND("\"system\":[" TEXT("x-anthropic-billing-header: a=1") "]"), SEEN_HI},
        {BODY(USER("[" TEXT("h") "," TEXT("i") "]"), ""), SEEN_HI},
        {BODY(USER("\"hi\"") "," ASSISTANT("\"Su\""), ""), SEEN_HI "ASu"},
        {BODY(USER("\"hi\"") "," ASSISTANT("[" TEXT("Su") "]"), ""), SEEN_HI "ASu"},
        {BODY(
             USER("\"hi\"") "," ASSISTANT(
                 "[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":"
                 "\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"d\"}," TEXT(
                     "b") ",{\"type\":\"tool_use\",\"id\":\"toolu_1\","
                          "\"name\":\"f\",\"input\":{\"a\":1}}]") "," USER("[{\"type\":\"tool_"
                                                                           "result\",\"tool_use_"
                                                                           "id\":\"toolu_1\","
                                                                           "\"content\":[" TEXT(
                                                                               "r") "]}," TEXT("nex"
                                                                                               "t") "]"),
             ""),
         SEEN_HI
         "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"t\", "
         "\"tool_calls\": [{\"id\": \"toolu_1\", \"type\": \"function\", \"function\": {\"name\": "
         "\"f\", \"arguments\": {\"a\": 1}}}]}{\"role\": \"tool\", \"tool_call_id\": \"toolu_1\", "
         "\"content\": \"r\"}{\"role\": \"user\", \"content\": \"next\"}"},
        /* A result without content; a text before it stays before it. */
        {BODY(USER("[" TEXT("hi") ",{\"type\":\"tool_result\",\"tool_use_id\":\"i\",\"is_error\":"
                                  "true}]"),
              ""),
         SEEN_HI "{\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": \"\"}"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":"
                "\"object\"}}]"),
         SEEN_HI "T[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
                 "\"d\", \"parameters\": {\"type\": \"object\"}}}]"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":"
                "\"none\"}"),
         SEEN_HI},
        {HI_AND("\"thinking\":{\"type\":\"disabled\"}"), SEEN_HI "EFalse"},
        {HI_AND("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}"), SEEN_HI "ETrue"},
        {HI_AND("\"thinking\":{\"type\":\"adaptive\"}"), SEEN_HI "ETrue"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bodies_check(&b, &anthropic_messages, rows[i].body, rows[i].prompt);
        bodies_check(&b, &anthropic_count, rows[i].body, rows[i].prompt);
    }
    bodies_close(&b);
}
END_TEST

START_TEST(settings)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &anthropic_messages,
                 HI_AND("\"max_tokens\":128000,\"stream\":true,\"temperature\":0,\"top_p\":0.5,"
                        "\"top_k\":7,\"stop_sequences\":[\"a\",\"b\"],\"metadata\":{\"user_id\":"
                        "\"u\"},\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":"
                        "true},\"output_config\":{\"effort\":\"high\"}"),
                 SEEN_HI);
    const struct api_request *r = &b.request;
    ck_assert(r->max_tokens == 128000 && r->stream && r->stops.count == 2 && r->one_call);
    ck_assert(r->sampling.temperature == 0 && r->sampling.top_p == 0.5 && r->sampling.top_k == 7);
    ck_assert_str_eq(b.ignored, "");
    bodies_check(&b, &anthropic_messages, HI, SEEN_HI);
    ck_assert(r->max_tokens == 4096 && !r->stream && !r->one_call);
    bodies_close(&b);
}
END_TEST

/* What is new to us, and tools that a server of the API would execute, do not fail a request. */
START_TEST(ignored)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &anthropic_messages,
                 HI_AND("\"context_management\":{\"edits\":[]},\"moon\":1,\"tools\":[{\"type\":"
                        "\"web_search_20250305\",\"name\":\"web_search\"},{\"type\":\"custom\","
                        "\"name\":\"f\",\"input_schema\":{}}]"),
                 SEEN_HI "T[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                         "\"parameters\": {}}}]");
    ck_assert_str_eq(b.ignored, "context_management,moon,web_search_20250305,");
    bodies_close(&b);
}
END_TEST

START_TEST(rejected)
{
    static const struct {
        const char *body, *param, *text;
    } rows[] = {
        {"{}", "messages", "is missing"},
        {BODY("", ""), "messages", "is empty"},
        {BODY(USER("7"), ""), "messages", "a text, or an array of blocks"},
        {BODY("{\"role\":\"tool\",\"content\":\"\"}", ""), "messages", "user or assistant"},
        {BODY("7", ""), "messages", "user or assistant"},
        {BODY(USER("[{\"type\":\"image\",\"source\":{}}]"), ""), "messages", "'image'"},
        {BODY(USER("[7]"), ""), "messages", "'(none)'"},
        {BODY(USER("[{\"type\":\"tool_use\"}]"), ""), "messages", "'tool_use'"},
        {BODY(ASSISTANT("[{\"type\":\"tool_result\"}]"), ""), "messages", "'tool_result'"},
        {BODY(USER("[{\"type\":\"text\"}]"), ""), "messages", "must be texts"},
        {BODY(USER("[{\"type\":\"tool_result\"}]"), ""), "messages", "tool_use_id"},
        {BODY(USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"i\",\"content\":[{\"type\":"
                   "\"image\"}]}]"),
              ""),
         "messages", "must be texts"},
        {BODY(ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":\"{}\"}]"),
              ""),
         "messages", "tool_use needs"},
        {BODY(ASSISTANT("[{\"type\":\"thinking\"}]"), ""), "messages", "must be texts"},
        {HI_AND("\"system\":7"), "system", "a text, or an array"},
        {HI_AND("\"system\":[7]"), "messages", "must be texts"},
        {HI_AND("\"tools\":7"), "tools", "an array"},
        {HI_AND("\"tools\":[{\"name\":\"f\"}]"), "tools", "input_schema"},
        {HI_AND("\"tool_choice\":{\"type\":\"moon\"}"), "tool_choice", "\"auto\""},
        {HI_AND("\"tool_choice\":{\"type\":\"tool\"}"), "tool_choice", "needs a name"},
        {HI_AND("\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}"), "tool_choice", "no tools"},
        {HI_AND("\"thinking\":{}"), "thinking", "\"adaptive\""},
        {HI_AND("\"output_config\":{\"format\":{\"type\":\"json_schema\"}}"),
         "output_config.format", "needs a schema"},
        {HI_AND("\"output_config\":7"), "output_config", "an object"},
        {HI_AND("\"output_format\":{\"type\":\"json_schema\"}"), "output_format", "needs a schema"},
        {HI_AND("\"temperature\":-1"), "temperature", "from 0"},
        {HI_AND("\"stop_sequences\":[\"\"]"), "stop_sequences", "1 to 128"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_reject(&b, &anthropic_messages, rows[i].body, rows[i].param, rows[i].text);
    bodies_close(&b);
}
END_TEST

/* Without a template there are no tools, and nothing switches reasoning. */
/* What the answer keeps to reaches the request. */
START_TEST(shapes)
{
    static const struct {
        const char *body, *text; /* of the grammar, a part */
    } rows[] = {
        {HI_AND("\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":"
                "\"array\"}}}"),
         "{\"type\":\"array\"}"},
        {HI_AND("\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"array\"}}"),
         "{\"type\":\"array\"}"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"tool_"
                "choice\":{\"type\":\"any\"}"),
         "root ::= calls"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"tool_"
                "choice\":{\"type\":\"tool\",\"name\":\"f\"}"),
         "root ::= calls"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"tool_"
                "choice\":{\"type\":\"auto\"}"),
         "root ::= more"},
        {HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"tool_"
                "choice\":{\"type\":\"none\"}"),
         NULL},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &anthropic_messages, rows[i].body) == 0, "%s", b.error.text);
        const char *text = b.request.grammar_text;
        ck_assert_msg(text ? rows[i].text && strstr(text, rows[i].text) : !rows[i].text,
                      "row %zu: %s", i, text ? text : "no grammar");
    }
    bodies_close(&b);
}
END_TEST

START_TEST(without_a_template)
{
    struct bodies b;
    bodies_open(&b, NULL);
    bodies_check(&b, &anthropic_messages,
                 HI_AND("\"system\":\"S\",\"thinking\":{\"type\":\"enabled\"},\"tools\":[]"),
                 "S\nUser: hi\nAssistant:");
    ck_assert_str_eq(b.ignored, "thinking,");
    bodies_reject(&b, &anthropic_messages,
                  HI_AND("\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]"), "tools",
                  "not supported");
    bodies_close(&b);
}
END_TEST

START_TEST(limits_of_conversations)
{
    bodies_check_count(&anthropic_messages, "{\"messages\":[", 0, USER("\"hi\""), "]}", "messages");
    bodies_check_count(&anthropic_messages, "{\"system\":\"S\",\"messages\":[", 1, USER("\"hi\""),
                       "]}", "messages");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("anthropic_request");
    tcase_add_test(cases, conversations);
    tcase_add_test(cases, settings);
    tcase_add_test(cases, ignored);
    tcase_add_test(cases, rejected);
    tcase_add_test(cases, shapes);
    tcase_add_test(cases, without_a_template);
    tcase_add_test(cases, limits_of_conversations);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
