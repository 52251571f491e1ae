/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, lines, errors and lists of models in Ollama's form. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"
#include "tests/unit/procs/engine/gateway/dialects/recorded.h"

#define HEAD "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:07Z\","
/* No stats state a number of tokens, so that there is no time of decoding. */
#define DONE(reason)                                                                               \
    ",\"done\":true,\"done_reason\":\"" reason "\",\"total_duration\":3000000,"                    \
    "\"load_duration\":0,\"prompt_eval_count\":9,\"prompt_eval_duration\":2000000,"                \
    "\"eval_count\":4,\"eval_duration\":0}\n"
#define MESSAGE(content, more)                                                                     \
    HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"" content "\"" more "}"
#define RESPONSE(text, more) HEAD "\"response\":\"" text "\"" more
#define CALLS(name, i)                                                                             \
    ",\"tool_calls\":[{\"function\":{\"name\":\"" name "\",\"arguments\":" i "}}]"
#define TOKEN(text, byte)                                                                          \
    "{\"token\":\"" text "\",\"logprob\":-1.0,\"bytes\":[" byte "],\"top_logprobs\":[]}"
#define LOGPROBS(list) ",\"logprobs\":[" list "]"
#define NEXT           ",\"done\":false}\n"

START_TEST(whole_answers)
{
    static const struct recorded rows[] = {
        {.dialect = &ollama_chat,
         .text = "Hi",
         .finish = FINISH_END,
         .expected = MESSAGE("Hi", "") DONE("stop")},
        {.dialect = &ollama_generate,
         .text = "<think>a</think>b",
         .finish = FINISH_LENGTH,
         .expected = RESPONSE("b", ",\"thinking\":\"a\"") DONE("length")},
        {.dialect = &ollama_chat,
         .text = "<think>a</think>b" RECORDED_CALL("f", "{\"a\": 1}"),
         .finish = FINISH_END,
         .expected = MESSAGE("b", ",\"thinking\":\"a\"" CALLS("f", "{\"a\":1}")) DONE("stop")},
        {.dialect = &ollama_chat,
         .text = "<think>a</think>b",
         .logprobs = true,
         .finish = FINISH_END,
         .expected = MESSAGE("b", ",\"thinking\":\"a\"") LOGPROBS(TOKEN("b", "98")) DONE("stop")},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        recorded_check(&rows[i], false);
}
END_TEST

START_TEST(lines)
{
    static const struct recorded rows[] = {
        {.dialect = &ollama_chat,
         .text = "<think>ab</think>cd" RECORDED_CALL("f", "{\"a\": 1}")
             RECORDED_CALL("g", "\"no object\""),
         .finish = FINISH_END,
         .expected = MESSAGE("", ",\"thinking\":\"ab\"") NEXT MESSAGE("c", "") NEXT MESSAGE("d", "")
             NEXT MESSAGE("", CALLS("f", "{\"a\":1}"))
                 NEXT MESSAGE("", CALLS("g", "{\"arguments\":\"no "
                                             "object\"}")) NEXT MESSAGE("", "") DONE("stop")},
        {.dialect = &ollama_generate,
         .text = "<think>ab</think>cd",
         .finish = FINISH_STOP_TEXT,
         .stop = "x",
         .expected = RESPONSE("", ",\"thinking\":\"ab\"") NEXT RESPONSE("c", "")
             NEXT RESPONSE("d", "") NEXT RESPONSE("", "") DONE("stop")},
        {.dialect = &ollama_generate,
         .text = "<think>ab</think>cd",
         .logprobs = true,
         .finish = FINISH_END,
         .expected = RESPONSE("", ",\"thinking\":\"ab\"") NEXT RESPONSE("c", "")
             LOGPROBS(TOKEN("c", "99")) NEXT RESPONSE("d", "") LOGPROBS(TOKEN("d", "100"))
                 NEXT RESPONSE("", "") DONE("stop")},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        recorded_check(&rows[i], true);
}
END_TEST

START_TEST(keep_alive_and_failure)
{
    static const char expected[] =
        MESSAGE("", "") NEXT MESSAGE("", "") NEXT "{\"error\":\"why\"}\n";
    struct recorded r = {.dialect = &ollama_chat};
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

/* A request of nothing, which loads a model or unloads it. */
START_TEST(nothing)
{
    for (int unload = 0; unload < 2; unload++) {
        struct recorded r = {.dialect = &ollama_generate, .finish = FINISH_END};
        struct quota quota;
        struct completion c;
        size_t bytes;
        recorded_open(&c, &r, false, &quota);
        c.request.nothing = true;
        c.request.wants = unload ? OLLAMA_UNLOAD : 0;
        char *text = completion_whole(&c, &bytes);
        json_t *doc = json_loads(text, 0, NULL);
        ck_assert_str_eq(json_string_value(json_object_get(doc, "done_reason")),
                         unload ? "unload" : "load");
        json_decref(doc);
        free(text);
        completion_free(&c);
    }
}
END_TEST

/* Readers that are strict need each member, with its type. */
START_TEST(models)
{
    static const struct api_model model = {.name = "m",
                                           .arch = "qwen3moe",
                                           .type = "Q4_K",
                                           .bytes = 5,
                                           .parameters = 30500000000,
                                           .context = 4096,
                                           .tools = true,
                                           .thinking = true,
                                           .gap = true,
                                           .started = 7};
    json_t *all = ollama_tags.describe(&model),
           *one = json_array_get(json_object_get(all, "models"), 0);
    static const char *const texts[] = {"name", "model", "modified_at", "digest"};
    static const char *const details[] = {"parent_model", "format", "family", "parameter_size",
                                          "quantization_level"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        ck_assert_msg(json_is_string(json_object_get(one, texts[i])), "%s", texts[i]);
    for (size_t i = 0; i < ARRAY_LEN(details); i++)
        ck_assert_msg(json_is_string(json_object_get(json_object_get(one, "details"), details[i])),
                      "%s", details[i]);
    ck_assert(json_integer_value(json_object_get(one, "size")) == 5);
    ck_assert_uint_eq(json_string_length(json_object_get(one, "digest")), 64);
    json_decref(all);
    json_t *show = ollama_show.describe(&model),
           *want = json_pack("[s, s, s, s]", "completion", "tools", "thinking", "insert");
    ck_assert(json_equal(json_object_get(show, "capabilities"), want));
    const json_t *info = json_object_get(show, "model_info");
    ck_assert(json_integer_value(json_object_get(info, "qwen3moe.context_length")) == 4096);
    json_decref(show);
    json_decref(want);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("ollama");
    tcase_add_test(cases, whole_answers);
    tcase_add_test(cases, lines);
    tcase_add_test(cases, keep_alive_and_failure);
    tcase_add_test(cases, nothing);
    tcase_add_test(cases, models);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
