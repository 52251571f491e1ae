/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of calls that say of each value whether it is a text (DeepSeek V3.2, Kimi-K3), and of
 * texts up to a mark. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "tests/unit/procs/engine/gateway/api/constraints/call_forms.h"
#include "tests/unit/procs/engine/gateway/api/constraints/wishes.h"

#define TOKEN(name) "\xff" name "\xff"
#define OPEN        TOKEN("<|open|>")
#define CLOSE       TOKEN("<|close|>")
#define SEP         TOKEN("<|sep|>")
#define DSML_MARKS  "<｜DSML｜function_calls>"
#define NAME(value) K3(K3_CALL(K3_ARGUMENT("name", "string", value)))

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"

/* Kimi-K3's marks have two control tokens each, with a text between them. */
START_TEST(marks_of_several_tokens)
{
    struct wish w = {.marks = K3_MARKS, .tools = TOOLS};
    static const char call[] =
        OPEN "tools" SEP OPEN "call tool=\"look\" index=\"1\"" SEP OPEN
             "argument key=\"depth\" type=\"number\"" SEP "3" CLOSE "argument" SEP CLOSE
             "call" SEP CLOSE "tools" SEP CLOSE "message" SEP;
    static const char think[] = "a" CLOSE "think" SEP;
    char text[1000];
    snprintf(text, sizeof text, "%s%s", OPEN "response" SEP "Hm" CLOSE "response" SEP, call);
    check(&w, text, 2);
    check(&w, OPEN "tools" SEP "x", 0);
    w.needed = w.inside = true;
    snprintf(text, sizeof text, "%s%s", think, call);
    check(&w, text, 2);
    check(&w, "a" CLOSE "think" SEP "x", 0);
    w.inside = false;
    snprintf(text, sizeof text, "%s%s%s", OPEN "think" SEP, think, call);
    check(&w, text, 2);
}
END_TEST

/* `｜DSML｜` may be a control token, with the rest of the mark as text around it. */
START_TEST(a_token_within_a_mark)
{
    struct wish w = {.marks = DSML_MARKS, .tools = TOOLS};
    check(&w, "｜DSML｜ is a name", 2);
    check(&w, "Hm <" TOKEN("｜DSML｜") "invoke", 0);
    check(&w, "Hm <" TOKEN("｜DSML｜") "function_calls>\n<" TOKEN("｜DSML｜") "invoke", 1);
    check(&w, "Hm " TOKEN("｜DSML｜") "x", 2);
    check(&w, "Hm <｜DSML｜function_calls>\n<｜DSML｜invoke name=\"other\">", 1);
}
END_TEST

/* The type and the value say the same; where a schema allows a text and others, so does the
 * call. */
START_TEST(types_with_their_values)
{
    struct wish w = {.marks = K3_MARKS,
                     .tools = TOOLS_OF("{\"properties\":{\"a\":{},\"b\":{\"type\":\"string\"}}}"),
                     .needed = true};
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "string", "x"))), 2);
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "object", "{\"x\":1}"))), 2);
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "null", "null"))), 2);
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "boolean", "x"))), 0);
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "text", "x"))), 0);
    check(&w, K3(K3_CALL(K3_ARGUMENT("b", "number", "1"))), 0);
    check(&w, K3(K3_CALL(K3_ARGUMENT("b", "string", "1"))), 2);
    w.tools = TOOLS_OF("{\"type\":\"object\",\"additionalProperties\":true}");
    check(&w, K3(K3_CALL(K3_ARGUMENT("c", "string", "x"))), 2);
    check(&w, K3(K3_CALL(K3_ARGUMENT("c", "number", "x"))), 0);
}
END_TEST

/* No text is written where an enum has none. */
START_TEST(enums_without_texts)
{
    static const char tools[] =
        TOOLS_OF("{\"properties\":{\"a\":{\"type\":[\"string\",\"integer\"],\"enum\":[1,2]},"
                 "\"b\":{\"enum\":[1,\"x\"]}}}");
    struct wish w = {.marks = DSML_MARKS, .tools = tools, .needed = true};
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("a", "false", "1"))), 2);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("a", "true", ""))), 0);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("b", "true", "x"))), 2);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("b", "true", "1"))), 0);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("b", "false", "1"))), 2);
    w.marks = K3_MARKS;
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "number", "2"))), 2);
    check(&w, K3(K3_CALL(K3_ARGUMENT("a", "string", ""))), 0);
}
END_TEST

/* A quote ends a name where names are attributes. */
START_TEST(names_with_a_quote)
{
    static const char *const marks[] = {DSML_MARKS, K3_MARKS};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        struct wish w = {.marks = marks[i],
                         .tools = TOOLS_OF("{\"properties\":{\"a\\\"b\":{\"type\":\"string\"}}}"),
                         .needed = true};
        struct api_request r;
        const char *why = constrain(&w, &r);
        ck_assert_msg(strstr(why, "tool 'look', at $.properties.a\"b: "), "%s: %s", marks[i], why);
        api_request_free(&r);
        w.needed = false; /* then its calls may have any arguments */
        check(&w, "a", 2);
    }
    struct wish w = {.marks = DSML_MARKS,
                     .tools = TOOLS_OF("{\"properties\":{\"a\\\"b\":{\"type\":\"string\"}}}")};
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("c", "false", "1"))), 2);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("c", "false", "x"))), 0);
}
END_TEST

/* The mark at the end of an answer may be behind a schema, too. */
START_TEST(the_tail_of_a_schema)
{
    struct wish w = {.marks = K3_MARKS, .schema = SCHEMA, .inside = true};
    static const char *const tools[] = {NULL, TOOLS};
    for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
        w.tools = tools[i];
        check(&w, "a" K3C_("think") K3_("response") "{\"a\":1}" K3C_("response") K3C_("message"),
              2);
        check(&w,
              "a" CLOSE "think" SEP OPEN "response" SEP "{\"a\":1}" CLOSE "response" SEP CLOSE
              "message" SEP,
              2);
        check(&w, "a" K3C_("think") K3_("response") "{\"a\":1}" K3C_("response"), 2);
        check(&w, "a" K3C_("think") K3_("response") "{\"a\":1}" K3C_("response") "x", 0);
    }
}
END_TEST

/* Texts are all that have no mark, also where its beginning is in the mark twice. */
START_TEST(texts_without_the_mark)
{
    struct wish w = {.marks = K3_MARKS,
                     .tools = TOOLS_OF("{\"properties\":{\"name\":{\"type\":\"string\"}}}"),
                     .needed = true};
    check(&w, NAME("<|close|>argument<|close|>argument"), 2);
    check(&w, NAME("<|close|>argument<|c<|close|>argument<|s"), 2);
    check(&w, NAME("<<|<|close<|close|>argument<|sep|"), 2);
    check(&w, NAME("\u00e9<\u4e00<|close|>\u00e9"), 2);
    check(&w, NAME(K3C_("argument")), 0);
    check(&w, NAME("<|close|>argument<|close|>argument<|sep|>"), 0);
    check(&w, NAME("<|close|>argument" K3C_("argument") "x"), 0);
}
END_TEST

/* Parts of the mark in any order: the text fits if the mark is not in it. */
START_TEST(random_texts)
{
    static const char *const pieces[] = {"<",       "|",     "<|", "<|close|>",         "argument",
                                         "<|sep|>", "sep|>", "x",  "<|close|>argument", ">",
                                         "<|s"};
    struct wish w = {.marks = K3_MARKS,
                     .tools = TOOLS_OF("{\"properties\":{\"name\":{\"type\":\"string\"}}}"),
                     .needed = true};
    struct random r;
    random_seed(&r, (uint64_t)_i, 0);
    for (unsigned k = 0; k < 40; k++) {
        char value[200] = "", text[600];
        for (uint64_t i = 0, n = random_below(&r, 9); i < n; i++)
            strcat(value, pieces[random_below(&r, ARRAY_LEN(pieces))]);
        snprintf(text, sizeof text, "%s%s%s",
                 K3_("tools") K3_("call tool=\"look\" index=\"1\"")
                     K3_("argument key=\"name\" type=\"string\""),
                 value, K3C_("argument") K3C_("call") K3C_("tools"));
        check(&w, text, strstr(value, K3C_("argument")) ? 0 : 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("typed");
    tcase_add_test(cases, marks_of_several_tokens);
    tcase_add_test(cases, a_token_within_a_mark);
    tcase_add_test(cases, types_with_their_values);
    tcase_add_test(cases, enums_without_texts);
    tcase_add_test(cases, names_with_a_quote);
    tcase_add_test(cases, the_tail_of_a_schema);
    tcase_add_test(cases, texts_without_the_mark);
    tcase_add_loop_test(cases, random_texts, 0, 5);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
