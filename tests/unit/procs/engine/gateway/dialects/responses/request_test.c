/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests for responses: what the template gets, what is rejected, what is ignored. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/responses/responses.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define HI            "{\"role\":\"user\",\"content\":\"hi\"}"
#define INPUT(items)  "{\"input\":[" items "]}"
#define HI_AND(more)  "{\"input\":\"hi\"," more "}"
#define SEEN_HI       "{\"role\": \"user\", \"content\": \"hi\"}"
#define PART(type, t) "[{\"type\":\"" type "\",\"text\":\"" t "\"}]"
#define CALL(id, name)                                                                             \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"" name "\",\"arguments\":\"{}"  \
    "\"}"
#define SEEN_CALL(id, name)                                                                        \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name                \
    "\", \"arguments\": {}}}"

START_TEST(conversations)
{
    static const struct {
        const char *body, *prompt;
    } rows[] = {
        {"{\"input\":\"hi\"}", SEEN_HI},
        {INPUT(HI), SEEN_HI},
        {INPUT("{\"type\":\"message\",\"role\":\"user\",\"content\":" PART("input_text", "hi") "}"),
         SEEN_HI},
        {HI_AND("\"instructions\":\"S\""), "{\"role\": \"system\", \"content\": \"S\"}" SEEN_HI},
        /* Reasoning, a text and calls are one message. */
        {INPUT(HI
               ",{\"type\":\"reasoning\",\"summary\":[],\"content\":" PART("reasoning_text", "t") "},{\"role\":\"assistant\",\"content\":" PART(
                   "output_text",
                   "b") "}," CALL("i", "f") "," CALL("j",
                                                     "g") ",{\"type\":\"function_call_output\","
                                                          "\"call_id\":\"i\",\"output\":\"r\"}"
                                                          ",{\"type\":\"function_call_output\","
                                                          "\"call_id\":\"j\",\"output\":" PART(
                                                              "input_text", "s") "}"),
         SEEN_HI "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"t\", "
                 "\"tool_calls\": [" SEEN_CALL("i", "f") ", " SEEN_CALL(
                     "j", "g") "]}{\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": \"r\"}"
                               "{\"role\": \"tool\", \"tool_call_id\": \"j\", \"content\": \"s\"}"},
        /* A call without a text; encrypted reasoning cannot be read. */
        {INPUT(HI ",{\"type\":\"reasoning\",\"encrypted_content\":\"x\"}," CALL("i", "f") "," HI),
         SEEN_HI "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" SEEN_CALL(
             "i", "f") "]}" SEEN_HI},
        {INPUT(HI ",{\"role\":\"assistant\",\"content\":\"Su\"}"), SEEN_HI "ASu"},
        {INPUT(HI
               ",{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}"),
         SEEN_HI "Ano"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\","
                "\"parameters\":{}},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":"
                "\"function\",\"name\":\"g\"}]}]"),
         SEEN_HI "T[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
                 "\"d\", \"parameters\": {}}}, {\"type\": \"function\", \"function\": "
                 "{\"name\": \"g\"}}]"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":\"none\""),
         SEEN_HI},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"function\",\"name\":"
                "\"h\"},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\","
                "\"name\":\"f\"}]}],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\","
                "\"tools\":[{\"type\":\"function\",\"namespace\":\"n\",\"name\":\"f\"},{\"type\":"
                "\"mcp\"},{\"type\":\"function\",\"name\":\"h\"}]}"),
         SEEN_HI "T[{\"type\": \"function\", \"function\": {\"name\": \"h\"}}, {\"type\": "
                 "\"function\", \"function\": {\"name\": \"n__f\"}}]"},
        {HI_AND("\"reasoning\":{\"effort\":\"low\"}"), SEEN_HI "Rlow"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_check(&b, &responses, rows[i].body, rows[i].prompt);
    bodies_close(&b);
}
END_TEST

#define FUNCTION(name)      "{\"type\":\"function\",\"name\":\"" name "\"}"
#define SPACE(name, tools)  "{\"type\":\"namespace\",\"name\":\"" name "\",\"tools\":[" tools "]}"
#define SEEN_FUNCTION(name) "{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}"
#define SPACE_CALL(space, name)                                                                    \
    "{\"type\":\"function_call\",\"namespace\":\"" space "\",\"call_id\":\"i\",\"name\":\"" name   \
    "\",\"arguments\":\"{}\"}"
#define TOOLS_AND(choice)                                                                          \
    HI_AND("\"tools\":[" FUNCTION("f") "," SPACE(                                                  \
        "n", "{\"type\":\"function\",\"name\":\"s\",\"strict\":true}," FUNCTION("g")) "]," choice)
#define CHOSEN(function) "\"tool_choice\":{\"type\":\"function\"," function "}"
#define ALLOWED(function)                                                                          \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":"          \
    "\"function\"," function "}]}"
#define SEEN_ONE(name)                                                                             \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" SEEN_CALL("i", name) "]}"

/* The template gets one name of each function, in tools and in calls; the request keeps what the
 * client calls it. */
START_TEST(namespaces)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(
        &b, &responses,
        "{\"tools\":[" SPACE("n", FUNCTION("f") "," FUNCTION("g")) "," SPACE(
            "m", FUNCTION("g")) "," FUNCTION("f") "],\"input\":[" HI
                                                  "," SPACE_CALL("n", "f") "," HI "," SPACE_CALL(
                                                      "m", "g") "," HI
                                                                "," SPACE_CALL(
                                                                    "n", "g") "," HI
                                                                              "," SPACE_CALL(
                                                                                  "o", "g") "," HI
                                                                                            "]}",
        SEEN_HI SEEN_ONE("n__f") SEEN_HI SEEN_ONE("m__g") SEEN_HI SEEN_ONE("g")
            SEEN_HI SEEN_ONE("g") SEEN_HI "T[" SEEN_FUNCTION("n__f") ", " SEEN_FUNCTION(
                "g") ", " SEEN_FUNCTION("m__g") ", " SEEN_FUNCTION("f") "]");
    json_t *names = json_pack("{s:[s, s], s:[s, s], s:[s, s]}", "n__f", "n", "f", "g", "n", "g",
                              "m__g", "m", "g");
    ck_assert(json_equal(b.request.tool_names, names) && b.request.tool_names_bytes > 0);
    json_decref(names);
    bodies_close(&b);
}
END_TEST

START_TEST(settings)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(
        &b, &responses,
        HI_AND("\"max_output_tokens\":7,\"stream\":true,\"temperature\":0,\"store\":false,"
               "\"parallel_tool_calls\":false,\"include\":[\"reasoning.encrypted_content\"],"
               "\"text\":{\"verbosity\":\"low\",\"format\":{\"type\":\"text\"}},\"moon\":1,"
               "\"tools\":[{\"type\":\"web_search\"},{\"type\":\"custom\",\"name\":\"p\"}]"),
        SEEN_HI);
    const struct api_request *r = &b.request;
    ck_assert(r->max_tokens == 7 && r->stream && r->sampling.temperature == 0 && r->one_call);
    ck_assert_str_eq(b.ignored, "moon,web_search,custom,");
    bodies_check(&b, &responses, INPUT(HI ",{\"type\":\"local_shell_call\"}"), SEEN_HI);
    ck_assert_str_eq(b.ignored, "local_shell_call,");
    ck_assert(!b.request.logprobs);
    bodies_check(&b, &responses, HI_AND("\"include\":[\"message.output_text.logprobs\"]"), SEEN_HI);
    ck_assert(b.request.logprobs && b.request.top_logprobs == 0);
    bodies_check(&b, &responses, HI_AND("\"include\":[\"moon\"],\"top_logprobs\":3"), SEEN_HI);
    ck_assert(b.request.logprobs && b.request.top_logprobs == 3);
    bodies_close(&b);
}
END_TEST

#define X32 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

START_TEST(rejected)
{
    static const struct {
        const char *body, *param, *text;
    } rows[] = {
        {"{}", "input", "is missing"},
        {"{\"input\":[]}", "input", "a text, or an array"},
        {"{\"input\":7}", "input", "a text, or an array"},
        {INPUT("7"), "input", "must be an object"},
        {INPUT("{\"type\":\"compaction\"}"), "input", "there is no message"},
        {INPUT("{\"type\":\"message\"}"), "input", "no role"},
        {INPUT("{\"role\":\"moon\",\"content\":\"\"}"), "input", "a role"},
        {INPUT("{\"role\":\"user\"}"), "input", "a content must be"},
        {INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}"), "input",
         "'input_image'"},
        {INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}"), "input",
         "must be texts"},
        {INPUT("{\"type\":\"function_call\",\"name\":\"f\"}"), "input", "call_id and name"},
        {INPUT("{\"type\":\"function_call_output\",\"output\":\"\"}"), "input", "no call_id"},
        {HI_AND("\"instructions\":7"), "instructions", "a text"},
        {HI_AND("\"tools\":7"), "tools", "an array"},
        {HI_AND("\"tools\":[{\"type\":\"function\"}]"), "tools", "has no name"},
        {HI_AND("\"tools\":[{\"type\":\"namespace\",\"tools\":[]}]"), "tools", "has no name"},
        {HI_AND("\"tools\":[" SPACE("n", FUNCTION("f") "," FUNCTION("f")) "," FUNCTION("f") "]"),
         "tools", "two functions have the name 'f'"},
        {HI_AND("\"tools\":[" SPACE(X32 X32 X32 X32 "x", FUNCTION("f")) "]"), "tools",
         "more than 128 bytes"},
        {HI_AND("\"tool_choice\":\"moon\""), "tool_choice", "only"},
        {HI_AND("\"tool_choice\":\"required\""), "tool_choice", "no tools"},
        {TOOLS_AND(ALLOWED("\"name\":\"h\"")), "tool_choice", "'h' is not one"},
        {TOOLS_AND(ALLOWED("\"namespace\":\"typo\",\"name\":\"f\"")), "tool_choice",
         "'f' is not one of the tools in the namespace 'typo'"},
        {TOOLS_AND(ALLOWED("\"namespace\":\"n\",\"name\":\"f\"")), "tool_choice",
         "'f' is not one of the tools in the namespace 'n'"},
        {TOOLS_AND(ALLOWED("\"namespace\":7")), "tool_choice", "'(no name)' is not one"},
        {TOOLS_AND(CHOSEN("\"namespace\":\"typo\",\"name\":\"f\"")), "tool_choice",
         "'f' is not one of the tools in the namespace 'typo'"},
        {HI_AND("\"reasoning\":7"), "reasoning", "an object"},
        {HI_AND("\"text\":7"), "text", "an object"},
        {HI_AND("\"text\":{\"format\":{\"type\":\"json_schema\"}}"), "text.format",
         "needs a schema"},
        {HI_AND("\"previous_response_id\":7"), "previous_response_id", "the id of a response"},
        {HI_AND("\"store\":7"), "store", "true or false"},
        {HI_AND("\"background\":true"), "background", "only false"},
        {HI_AND("\"include\":7"), "include", "an array"},
        {HI_AND("\"top_logprobs\":21"), "top_logprobs", "from 0 to 20"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_reject(&b, &responses, rows[i].body, rows[i].param, rows[i].text);
    bodies_close(&b);
}
END_TEST

/* Nothing switches reasoning. */
/* What the answer keeps to reaches the request. */
START_TEST(shapes)
{
    static const struct {
        const char *body, *text; /* of the grammar, a part */
    } rows[] = {
        {HI_AND("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
                "\"schema\":{\"type\":\"array\"}}}"),
         "{\"type\":\"array\"}"},
        {HI_AND("\"text\":{\"format\":{\"type\":\"json_object\"}}"), "{\"type\":\"object\"}"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":{\"type\":"
                "\"function\",\"name\":\"f\"}"),
         "root ::= calls"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &responses, rows[i].body) == 0, "%s", b.error.text);
        const char *text = b.request.grammar_text;
        ck_assert_msg(text ? rows[i].text && strstr(text, rows[i].text) : !rows[i].text,
                      "row %zu: %s", i, text ? text : "no grammar");
    }
    bodies_close(&b);
}
END_TEST

/* A tool with `strict` makes the grammar one that must be: if it may be called. A choice with a
 * namespace is that of the function in it. */
START_TEST(choices_of_tools)
{
    static const struct {
        const char *body, *text; /* of the grammar, a part */
        bool optional;
    } rows[] = {
        {TOOLS_AND(ALLOWED("\"name\":\"f\"")), "any ::= tool0\n", true},
        {TOOLS_AND(ALLOWED("\"namespace\":\"n\",\"name\":\"s\"")), "any ::= tool0\n", false},
        {TOOLS_AND("\"tool_choice\":\"auto\""), "any ::= tool0 | tool1 | tool2", false},
        {TOOLS_AND(CHOSEN("\"namespace\":\"n\",\"name\":\"g\"")), "any ::= tool2\n", false},
        {TOOLS_AND(CHOSEN("\"name\":\"f\"")), "any ::= tool0\n", false},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &responses, rows[i].body) == 0, "%s", b.error.text);
        const char *text = b.request.grammar_text;
        ck_assert_msg(text && strstr(text, rows[i].text), "row %zu: %s", i, text);
        ck_assert_msg(b.request.grammar_optional == rows[i].optional, "row %zu", i);
    }
    bodies_close(&b);
}
END_TEST

START_TEST(without_a_template)
{
    struct bodies b;
    bodies_open(&b, NULL);
    bodies_check(&b, &responses, HI_AND("\"reasoning\":{\"effort\":\"low\"}"),
                 "User: hi\nAssistant:");
    ck_assert_str_eq(b.ignored, "reasoning.effort,");
    bodies_close(&b);
}
END_TEST

#define STORED                                                                                     \
    "[" HI                                                                                         \
    ",{\"type\":\"message\",\"role\":\"assistant\",\"content\":" PART("output_text", "o") "}]"

START_TEST(what_is_continued)
{
    static const char seen[] = SEEN_HI "{\"role\": \"assistant\", \"content\": \"o\"}" SEEN_HI;
    struct bodies b;
    struct stored stored;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &responses, HI_AND("\"store\":true"), SEEN_HI);
    ck_assert(!b.request.conversation); /* nothing is stored here */
    ck_assert(stored_open(&stored, 2, 4096));
    b.limits.stored = &stored;
    stored_put(&stored, "resp_a", strdup("{}"), strdup(STORED));
    bodies_check(&b, &responses, HI_AND("\"previous_response_id\":\"resp_a\""), seen);
    ck_assert_str_eq(b.request.previous, "resp_a");
    ck_assert(strncmp(b.request.conversation, STORED, strlen(STORED) - 1) == 0);
    ck_assert(strstr(b.request.conversation, "," HI "]"));
    bodies_check(&b, &responses, HI_AND("\"previous_response_id\":\"resp_a\",\"store\":false"),
                 seen);
    ck_assert(!b.request.conversation);
    ck_assert(bodies_parse(&b, &responses, HI_AND("\"previous_response_id\":\"resp_b\"")) == -1);
    ck_assert(b.error.code == ERR_NOT_FOUND && strstr(b.error.text, "'resp_b' not found"));
    ck_assert_str_eq(b.param, "previous_response_id");
    bodies_close(&b);
    stored_close(&stored);
}
END_TEST

/* The values of what is continued count, too. */
START_TEST(much_is_continued)
{
    struct bodies b;
    struct stored stored;
    bodies_open(&b, BODIES_TEMPLATE);
    ck_assert(stored_open(&stored, 1, 1 << 20));
    b.limits.stored = &stored;
    stored_put(&stored, "r", strdup("{}"),
               bodies_repeat("[{\"type\":\"x\",\"of\":[", "0", API_VALUES_MAX, "]}]"));
    bodies_reject(&b, &responses, HI_AND("\"previous_response_id\":\"r\""), "previous_response_id",
                  "values");
    bodies_close(&b);
    stored_close(&stored);
}
END_TEST

START_TEST(limits_of_conversations)
{
    bodies_check_count(&responses, "{\"input\":[", 0, HI, "]}", "input");
    bodies_check_count(&responses, "{\"instructions\":\"S\",\"input\":[", 1, HI, "]}", "input");
    bodies_check_values(&responses, "{\"input\":[" HI ",",
                        "{\"type\":\"function_call\",\"call_id\":\"i\",\"name\":\"f\","
                        "\"arguments\":\"%s\"}",
                        "," HI "]}", "input");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("responses_request");
    tcase_add_test(cases, conversations);
    tcase_add_test(cases, namespaces);
    tcase_add_test(cases, settings);
    tcase_add_test(cases, rejected);
    tcase_add_test(cases, shapes);
    tcase_add_test(cases, choices_of_tools);
    tcase_add_test(cases, without_a_template);
    tcase_add_test(cases, what_is_continued);
    tcase_add_test(cases, much_is_continued);
    tcase_add_test(cases, limits_of_conversations);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
