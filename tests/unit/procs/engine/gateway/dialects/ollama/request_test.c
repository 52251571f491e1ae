/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies in Ollama's form: what the template gets, what is rejected, what is ignored. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define USER             "{\"role\":\"user\",\"content\":\"hi\"}"
#define BODY(messages)   "{\"messages\":[" messages "]}"
#define HI_AND(more)     "{\"messages\":[" USER "]," more "}"
#define SEEN_HI          "{\"role\": \"user\", \"content\": \"hi\"}"
#define CALL(name, more) "{\"function\":{\"name\":\"" name "\",\"arguments\":{\"a\":1}}" more "}"
#define SEEN_CALL(id, name)                                                                        \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name                \
    "\", \"arguments\": {\"a\": 1}}}"

START_TEST(conversations)
{
    static const struct {
        const struct dialect *dialect;
        const char *body, *prompt;
    } rows[] = {
        {&ollama_chat, BODY(USER), SEEN_HI},
        {&ollama_chat, BODY(USER ",{\"role\":\"assistant\",\"content\":\"Su\"}"), SEEN_HI "ASu"},
        {&ollama_chat,
         BODY(USER
              ",{\"role\":\"assistant\",\"thinking\":\"t\",\"tool_calls\":[" CALL("f", "") "," CALL(
                  "g", ",\"id\":\"own\"") "]},{\"role\":\"tool\",\"content\":\"r\","
                                          "\"tool_name\":\"f\"},{\"role\":\"tool\","
                                          "\"content\":\"s\",\"tool_call_id\":\"own\"}"),
         SEEN_HI
         "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"t\", "
         "\"tool_calls\": [" SEEN_CALL("call_0", "f") ", " SEEN_CALL(
             "own", "g") "]}{\"role\": \"tool\", \"content\": \"r\", \"tool_call_id\": "
                         "\"call_0\", \"name\": \"f\"}{\"role\": \"tool\", \"content\": \"s\", "
                         "\"tool_call_id\": \"own\"}"},
        {&ollama_chat, HI_AND("\"think\":false"), SEEN_HI "EFalse"},
        {&ollama_chat, HI_AND("\"think\":true"), SEEN_HI "ETrue"},
        {&ollama_chat, HI_AND("\"think\":\"low\""), SEEN_HI "ETrueRlow"},
        {&ollama_chat, HI_AND("\"tools\":[{\"type\":\"function\"}]"),
         SEEN_HI "T[{\"type\": \"function\"}]"},
        {&ollama_generate, "{\"prompt\":\"hi\"}", SEEN_HI},
        {&ollama_generate, "{\"prompt\":\"hi\",\"system\":\"\"}", SEEN_HI},
        {&ollama_generate, "{\"prompt\":\"hi\",\"system\":\"S\"}",
         "{\"role\": \"system\", \"content\": \"S\"}" SEEN_HI},
        {&ollama_generate, "{\"prompt\":\"<s>hi\",\"raw\":true}", "<s>hi"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_check(&b, rows[i].dialect, rows[i].body, rows[i].prompt);
    ck_assert(b.request.special.count == 1 && b.request.special.at[0].to == 5); /* of raw */
    bodies_close(&b);
}
END_TEST

START_TEST(settings)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &ollama_chat,
                 HI_AND("\"stream\":false,\"keep_alive\":\"5m\",\"format\":\"\",\"options\":{"
                        "\"num_predict\":7,\"temperature\":0,\"top_k\":3,\"seed\":5,\"stop\":["
                        "\"x\"],\"repeat_last_n\":-1,\"presence_penalty\":0.5}"),
                 SEEN_HI);
    const struct api_request *r = &b.request;
    ck_assert(!r->stream && r->max_tokens == 7 && r->sampling.temperature == 0 &&
              r->sampling.top_k == 3 && r->sampling.seed == 5 && r->stops.count == 1 &&
              r->sampling.repeat_last_n == 4096);
    ck_assert_str_eq(b.ignored, "");
    bodies_check(&b, &ollama_chat,
                 HI_AND("\"moon\":1,\"options\":{\"num_predict\":-1,\"num_ctx\":99}"), SEEN_HI);
    ck_assert(r->stream && r->max_tokens == ENGINE_TOKENS_MAX); /* the defaults */
    ck_assert_str_eq(b.ignored, "moon,num_ctx,");
    bodies_close(&b);
}
END_TEST

/* Bodies that load or unload a model. */
START_TEST(nothing)
{
    static const struct {
        const struct dialect *dialect;
        const char *body;
        unsigned wants;
    } rows[] = {{&ollama_chat, "{\"model\":\"m\"}", 0},
                {&ollama_chat, "{\"messages\":[],\"keep_alive\":0}", OLLAMA_UNLOAD},
                {&ollama_generate, "{\"prompt\":\"\",\"keep_alive\":-1}", 0},
                {&ollama_generate, "{\"keep_alive\":0}", OLLAMA_UNLOAD}};
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert(bodies_parse(&b, rows[i].dialect, rows[i].body) == 0);
        ck_assert(b.request.nothing && !b.request.prompt && b.request.wants == rows[i].wants);
    }
    bodies_close(&b);
}
END_TEST

START_TEST(rejected)
{
    static const struct {
        const struct dialect *dialect;
        const char *body, *param, *text;
    } rows[] = {
        {&ollama_chat, "{\"messages\":7}", "messages", "an array"},
        {&ollama_chat, BODY("7"), "messages", "no role"},
        {&ollama_chat, BODY("{\"role\":\"moon\"}"), "messages", "a role"},
        {&ollama_chat, BODY("{\"role\":\"user\",\"content\":7}"), "messages", "must be text"},
        {&ollama_chat, BODY("{\"role\":\"user\",\"content\":\"\",\"images\":[\"x\"]}"), "messages",
         "'images'"},
        {&ollama_chat, BODY("{\"role\":\"assistant\",\"tool_calls\":[{}]}"), "messages",
         "function.name"},
        {&ollama_chat, HI_AND("\"tools\":7"), "tools", "an array"},
        {&ollama_chat, HI_AND("\"format\":\"xml\""), "format", "a JSON Schema"},
        {&ollama_chat, HI_AND("\"format\":7"), "format", "a JSON Schema"},
        {&ollama_chat, HI_AND("\"think\":7"), "think", "\"low\""},
        {&ollama_chat, HI_AND("\"logprobs\":1"), "logprobs", "true or false"},
        {&ollama_generate, "{\"prompt\":\"hi\",\"top_logprobs\":21}", "top_logprobs", "0 to 20"},
        {&ollama_chat, HI_AND("\"options\":7"), "options", "an object"},
        {&ollama_chat, HI_AND("\"options\":{\"num_predict\":0.5}"), "num_predict", "whole number"},
        {&ollama_chat, HI_AND("\"options\":{\"mirostat\":2}"), "mirostat", "only 0"},
        {&ollama_chat, HI_AND("\"options\":{\"temperature\":-1}"), "temperature", "from 0"},
        {&ollama_generate, "{\"prompt\":7}", "prompt", "a text"},
        {&ollama_generate, "{\"prompt\":\"x\",\"system\":7}", "system", "a text"},
        {&ollama_generate, "{\"prompt\":\"x\",\"raw\":7}", "raw", "true or false"},
        {&ollama_generate, "{\"prompt\":\"x\",\"images\":[\"x\"]}", "images", "not supported"},
        {&ollama_generate, "{\"prompt\":\"x\",\"suffix\":\"y\"}", "suffix", "no tokens for a gap"},
        {&ollama_generate, "{\"prompt\":\"x\",\"context\":[1]}", "context", "not supported"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_reject(&b, rows[i].dialect, rows[i].body, rows[i].param, rows[i].text);
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
        {HI_AND("\"format\":\"json\""), "{\"type\":\"object\"}"},
        {HI_AND("\"format\":{\"type\":\"array\"}"), "{\"type\":\"array\"}"},
        {HI_AND("\"format\":\"\""), NULL},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &ollama_chat, rows[i].body) == 0, "%s", b.error.text);
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
    bodies_check(&b, &ollama_chat, HI_AND("\"think\":\"low\""), "User: hi\nAssistant:");
    ck_assert_str_eq(b.ignored, "think,");
    bodies_close(&b);
}
END_TEST

START_TEST(limits_of_conversations)
{
    bodies_check_count(&ollama_chat, "{\"messages\":[", 0, USER, "]}", "messages");
    bodies_check_values(&ollama_chat, "{\"messages\":[" USER ",",
                        "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                        "\"arguments\":\"%s\"}}]}",
                        "]}", "messages");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("ollama_request");
    tcase_add_test(cases, conversations);
    tcase_add_test(cases, settings);
    tcase_add_test(cases, nothing);
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
