/* SPDX-License-Identifier: Apache-2.0 */
/* A schema of a tool that cannot be enforced is left out where calls may be, and counted; the other
 * tools keep theirs. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/procs/engine/gateway/api/constraints/call_forms.h"
#include "tests/unit/procs/engine/gateway/api/constraints/wishes.h"

/* The first tool, and one that can be enforced. */
#define WITH_OTHER(name, schema)                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" schema           \
    "}},{\"type\":\"function\",\"function\":{\"name\":\"other\",\"parameters\":{\"properties\":{"  \
    "\"depth\":{\"type\":\"integer\"}},\"required\":[\"depth\"]}}}]"
#define CODER_MARKS  "<tool_call><function=</tool_call>"
#define HERMES_MARKS "<tool_call></tool_call>"
#define OTHER(value)                                                                               \
    "<tool_call>\n<function=other>\n" CODER_PARAMETER("depth", value) "</function>\n</tool_call>"
#define HERMES_OTHER(depth)                                                                        \
    "<tool_call>\n{\"name\": \"other\", \"arguments\": {\"depth\": " depth "}}\n</tool_call>"

static unsigned told;
static char last[100];

static void ignored(void *arg, const char *name)
{
    ck_assert_ptr_eq(arg, &told);
    told++;
    snprintf(last, sizeof last, "%s", name);
}

static const struct api_limits limits = {.ignored = ignored, .ignored_arg = &told};

/* Whether a text fits the grammar of the request, which is compiled. */
static bool fits_request(const struct api_request *r, const char *text)
{
    struct grammar *g = NULL;
    struct error error = {0};
    ck_assert_msg(grammar_compile(&r->grammar, NULL, &g, &error) == 0, "%s\n%s", error.text,
                  r->grammar_text);
    struct grammar_state *s = grammar_start(g);
    bool all = grammar_accept_text(s, text, strlen(text)) == strlen(text) && grammar_is_end(s);
    grammar_stop(s);
    grammar_free(g);
    return all;
}

/* The value of an enum has the mark behind it: such a call cannot be written. */
START_TEST(of_what_cannot_be_written)
{
    struct wish w = {.marks = CODER_MARKS,
                     .tools = WITH_OTHER("look", "{\"properties\":{\"n\":{\"type\":\"integer\"},"
                                                 "\"a\":{\"enum\":[\"x</parameter>\"]},\"l\":{"
                                                 "\"type\":\"array\"}}}"),
                     .limits = &limits};
    struct api_request r;
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert_uint_eq(told, 1);
    ck_assert_str_eq(last, "schema of look");
    ck_assert_uint_eq(json_array_size(r.grammar_lines), 2 + 1);
    ck_assert(fits_request(&r, "Hm " OTHER("3")) && !fits_request(&r, "Hm " OTHER("x")));
    ck_assert(fits_request(&r, CODER(CODER_PARAMETER("n", "x") CODER_PARAMETER("z", "y"))));
    api_request_free(&r);
    w.needed = true; /* then it is an error */
    ck_assert_ptr_nonnull(strstr(constrain(&w, &r), "tool 'look', at $.properties.a, enum"));
    ck_assert_uint_eq(told, 1);
    api_request_free(&r);
}
END_TEST

/* MiniMax-M3's calls have no arguments of any name: nothing is enforced, which is counted. */
START_TEST(of_all_tools)
{
    struct wish w = {
        .marks = M3_MARKS, .tools = WITH_OTHER("look", "{\"type\":\"object\"}"), .limits = &limits};
    struct api_request r;
    ck_assert_str_eq(constrain(&w, &r), "");
    ck_assert(r.grammar.kind == GRAMMAR_NONE && !r.grammar_text && !r.grammar_lines);
    ck_assert_uint_eq(told, 1);
    ck_assert_str_eq(last, "schemas of all tools");
    api_request_free(&r);
    w.limits = NULL;
    check(&w, "Hm", -1);
}
END_TEST

/* The engine's error, which compiles the grammar. */
static struct error refusal(const struct api_request *r)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert(grammar_compile(&r->grammar, NULL, &g, &error) == -1);
    ck_assert(api_is_of_grammar(&error));
    return error;
}

#define HARD                                                                                       \
    "{\"properties\":{\"x\":{\"type\":\"array\",\"items\":{\"enum\":[\"}\\\"{\"],\"not\":{}}},"    \
    "\"y\":{"                                                                                      \
    "\"type\":\"integer\"}}}"

START_TEST(of_what_the_engine_refuses)
{
    struct wish w = {.marks = CODER_MARKS, .tools = WITH_OTHER("look", HARD)};
    struct api_request r;
    char what[API_LEFT_OUT_BYTES];
    ck_assert_str_eq(constrain(&w, &r), "");
    struct error error = refusal(&r);
    ck_assert(api_leave_out(&r, &error, what));
    ck_assert_str_eq(what, "schema of look");
    ck_assert_uint_eq(r.grammar.bytes, strlen(r.grammar.text));
    ck_assert(fits_request(&r, "Hm " OTHER("3")) && !fits_request(&r, "Hm " OTHER("x")));
    ck_assert(fits_request(&r, CODER(CODER_PARAMETER("x", "{}") CODER_PARAMETER("y", "3"))));
    ck_assert(!fits_request(&r, CODER(CODER_PARAMETER("x", "{}") CODER_PARAMETER("y", "z"))));
    ck_assert(!api_leave_out(&r, &error, what)); /* it is left out already */
    api_request_free(&r);
}
END_TEST

/* A call with one object loses its schema as a whole; a name may look like one. */
START_TEST(of_an_object_that_the_engine_refuses)
{
    struct wish w = {.marks = HERMES_MARKS, .tools = WITH_OTHER("%json {[\\\"", HARD)};
    struct api_request r;
    char what[API_LEFT_OUT_BYTES];
    ck_assert_str_eq(constrain(&w, &r), "");
    struct error error = refusal(&r);
    ck_assert(api_leave_out(&r, &error, what));
    ck_assert_str_eq(what, "schema of %json {[\"");
    ck_assert(fits_request(&r, HERMES_OTHER("3")) && !fits_request(&r, HERMES_OTHER("\"x\"")));
    ck_assert(fits_request(&r, "<tool_call>\n{\"name\": \"%json {[\\\"\", \"arguments\": {\"x\": "
                               "[1], \"z\": {}}}\n</tool_call>"));
    api_request_free(&r);
}
END_TEST

START_TEST(of_no_schema)
{
    struct api_request r = {.grammar = {.kind = GRAMMAR_NONE}};
    char what[API_LEFT_OUT_BYTES];
    struct error prompt = {.code = ERR_BAD_INPUT, .text = "the prompt has more tokens"};
    struct error whole = {.code = ERR_BAD_INPUT, .text = "grammar: it is too complex"};
    ck_assert(!api_is_of_grammar(&prompt) && api_is_of_grammar(&whole));
    ck_assert(!api_leave_out(&r, &prompt, what) && !api_leave_out(&r, &whole, what));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("left_out");
    tcase_add_test(cases, of_what_cannot_be_written);
    tcase_add_test(cases, of_all_tools);
    tcase_add_test(cases, of_what_the_engine_refuses);
    tcase_add_test(cases, of_an_object_that_the_engine_refuses);
    tcase_add_test(cases, of_no_schema);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
