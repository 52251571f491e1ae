/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose arguments say whether they are texts: DeepSeek V3.2 and V4, Kimi-K3; Hy4's, which
 * end names at the first argument; and calls of a tool without the member `function`. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/chat/answer.h"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"properties\":{"      \
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}},"                          \
    "{\"type\":\"function\",\"name\":\"flat\",\"parameters\":{\"properties\":{"                    \
    "\"n\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}}}}]"

#define KIMI_K3   "open_tag('think') open_tag('response') open_tag('tools')"
#define K3_(tag)  "<|open|>" tag "<|sep|>"
#define K3C_(tag) "<|close|>" tag "<|sep|>"
#define K3_ONE(arguments)                                                                          \
    K3_("tools") K3_("call tool=\"get\" index=\"1\"") arguments K3C_("call") K3C_("tools")
#define K3_ARG(attributes, value) K3_("argument " attributes) value K3C_("argument")

#define DSML "<｜DSML｜tool_calls>"
#define DSML_ONE(arguments)                                                                        \
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get\">\n" arguments                              \
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
#define DSML_END "</｜DSML｜parameter>"
#define DSML_ARG(key, is_text, value)                                                              \
    "<｜DSML｜parameter name=\"" key "\" string=\"" is_text "\">" value DSML_END "\n"

#define HY4                 "{%- set HYTK = ':6124c78e' %}{{ '<tool_calls{}>'.format(HYTK) }}<arg_key>"
#define HY4_(name, text)    "<" name ":6124c78e>" text "</" name ":6124c78e>"
#define HY4_ARG(key, value) HY4_("arg_key", key) "\n" HY4_("arg_value", value) "\n"

static const struct {
    const char *form, *text, *call;
} rows[] = {
    /* Kimi-K3: a type "string" is a text, any other one JSON, whatever the schema says. */
    {KIMI_K3, K3_ONE(K3_ARG("key=\"days\" type=\"string\"", "3")), "get({\"days\":\"3\"})"},
    {KIMI_K3, K3_ONE(K3_ARG("key=\"city\" type=\"number\"", "3")), "get({\"city\":3})"},
    {KIMI_K3, K3_ONE(K3_ARG("key=\"x\" type=\"object\"", "{\"a\":1}")), "get({\"x\":{\"a\":1}})"},
    {KIMI_K3, K3_ONE(K3_ARG("key=\"x\" more=\"1\" type=\"null\"", "null")), "get({\"x\":null})"},
    {KIMI_K3, K3_ONE(K3_ARG("key=\"days\"", "3") K3_ARG("key=\"x\"", "3")),
     "get({\"days\":3,\"x\":\"3\"})"},
    {KIMI_K3, K3_ONE(K3_ARG("key=\"days\" type=\"number\"", "x")), "get({\"days\":\"x\"})"},
    /* A text of JSON may have the mark behind the value. */
    {KIMI_K3,
     K3_ONE(K3_ARG("key=\"x\" type=\"array\"", "[\"" K3C_("argument") "\\\"" K3C_("argument") "\"]")
                K3_ARG("key=\"city\" type=\"string\"", "\"")),
     "get({\"x\":[\"" K3C_("argument") "\\\"" K3C_("argument") "\"],\"city\":\"\\\"\"})"},
    {DSML, DSML_ONE(DSML_ARG("x", "false", "{\"a\": \"" DSML_END "\"}") DSML_ARG("y", "true", "b")),
     "get({\"x\":{\"a\":\"" DSML_END "\"},\"y\":\"b\"})"},
    /* What is not JSON ends at the first mark. */
    {DSML, DSML_ONE(DSML_ARG("x", "false", "a \" b") DSML_ARG("y", "false", "\"c\"")),
     "get({\"x\":\"a \\\" b\",\"y\":\"c\"})"},
    {DSML, DSML_ONE(DSML_ARG("x", "false", "a \" b") DSML_ARG("y", "true", "c \\")),
     "get({\"x\":\"a \\\" b\",\"y\":\"c \\\\\"})"},
    {DSML, DSML_ONE(DSML_ARG("x", "true", "\"a") DSML_ARG("y", "true", "\"")),
     "get({\"x\":\"\\\"a\",\"y\":\"\\\"\"})"},
    {HY4,
     HY4_("think", "a")
         HY4_("tool_calls",
              "\n" HY4_("tool_call", "get\n" HY4_ARG("city", "x\n") HY4_ARG("days", "2")) "\n" HY4_(
                  "tool_call", "get\n") "\n"),
     "aget({\"city\":\"x\\n\",\"days\":2})get({})"},
    {HY4,
     HY4_("tool_calls", "\n" HY4_("tool_call", "flat\n" HY4_ARG("n", "3") HY4_ARG("s", "3")) "\n"),
     "flat({\"n\":3,\"s\":\"3\"})"},
};

static void collect(void *arg, const struct answer_piece *p)
{
    FILE *out = arg;
    if (p->part == ANSWER_CALL)
        fprintf(out, "%s(%s)", p->name, p->arguments);
    else
        fwrite(p->text, 1, p->bytes, out);
}

/* Whatever the pieces in which the answer arrives. */
START_TEST(types_of_arguments)
{
    struct answer_form form = answer_form_of(rows[_i].form, strlen(rows[_i].form));
    json_t *tools = json_loads(TOOLS, 0, NULL);
    size_t bytes, n = strlen(rows[_i].text);
    struct chat_types *types = chat_types_new(tools, &bytes);
    form.types = types;
    for (size_t piece = 1; piece <= n; piece++) {
        struct answer a;
        char *parts;
        FILE *out = open_memstream(&parts, &bytes);
        answer_open(&a, &form, false, collect, out);
        for (size_t at = 0; at < n; at += piece)
            ck_assert(answer_take(&a, rows[_i].text + at, n - at < piece ? n - at : piece, false) ==
                      0);
        ck_assert(answer_take(&a, "", 0, true) == 0);
        answer_close(&a);
        fclose(out);
        ck_assert_msg(strcmp(parts, rows[_i].call) == 0, "pieces of %zu: '%s'", piece, parts);
        free(parts);
    }
    chat_types_free(types);
    json_decref(tools);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calls");
    TCase *cases = tcase_create("typed");
    tcase_add_loop_test(cases, types_of_arguments, 0, ARRAY_LEN(rows));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
