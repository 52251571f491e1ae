/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of a tool's schema are written for the properties that refer to them, within a bound:
 * where arguments are written one by one, each property has a schema of its own. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/api/request.h"

#define MARKS            "<tool_call>\n<function=\n<parameter="
#define PROPERTIES       400
#define DEFINITION_BYTES 4000

/* A tool of so many properties, of which the first `references` refer to a large definition. */
static json_t *tools_with(size_t references)
{
    char name[16], large[DEFINITION_BYTES + 1];
    memset(large, 'x', DEFINITION_BYTES);
    large[DEFINITION_BYTES] = 0;
    json_t *properties = json_object();
    for (size_t i = 0; i < PROPERTIES; i++) {
        snprintf(name, sizeof name, "p%zu", i);
        json_object_set_new(properties, name,
                            i < references
                                ? json_pack("{s:[{s:s}]}", "anyOf", "$ref", "#/$defs/large")
                                : json_pack("{s:s}", "type", "integer"));
    }
    return json_pack("[{s:s, s:{s:s, s:{s:s, s:o, s:{s:{s:[s]}}}}}]", "type", "function",
                     "function", "name", "f", "parameters", "type", "object", "properties",
                     properties, "$defs", "large", "enum", large);
}

/* The bytes of the grammar; 0 with its error. */
static size_t grammar_bytes(size_t references, struct error *error)
{
    struct answer_form form = answer_form_of(MARKS, strlen(MARKS));
    struct api_request r = {.one_call = false};
    json_t *tools = tools_with(references);
    struct api_conversation c = {.tools = tools, .shape = {.call_needed = true}};
    ck_assert_ptr_nonnull(tools);
    int rc = api_constrain(&form, &c, false, &r, error);
    size_t bytes = rc == 0 ? r.grammar.bytes : 0;
    json_decref(tools);
    api_request_free(&r);
    return bytes;
}

START_TEST(only_where_they_are_used)
{
    struct error error;
    size_t none = grammar_bytes(0, &error), three = grammar_bytes(3, &error);
    ck_assert_msg(none > 0 && none < PROPERTIES * 200, "%zu bytes", none);
    ck_assert_msg(three > none + 2 * DEFINITION_BYTES && three < none + 4 * DEFINITION_BYTES,
                  "%zu bytes", three);
}
END_TEST

START_TEST(bounded)
{
    struct error error = {.text = ""};
    ck_assert_uint_eq(grammar_bytes(PROPERTIES, &error), 0);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, "take more than"), "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("definitions");
    tcase_add_test(cases, only_where_they_are_used);
    tcase_add_test(cases, bounded);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
