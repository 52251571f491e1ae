/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of a tool's schema are written for the properties that refer to them, within a bound:
 * where arguments are written one by one, each property has a schema of its own. What they say of
 * texts holds in the grammar and for the reader of the answer. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/unit/procs/engine/gateway/api/constraints/call_forms.h"
#include "tests/unit/procs/engine/gateway/api/constraints/wishes.h"

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
    int rc = api_constrain(&form, &c, false, NULL, &r, error);
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

/* ---- texts behind references ----------------------------------------------------------------- */

#define DEFS                                                                                       \
    "\"$defs\":{\"Color\":{\"type\":\"string\",\"enum\":[\"red\"]},\"Again\":{\"$ref\":\"#/$defs/" \
    "Color"                                                                                        \
    "\"},\"Point\":{\"type\":\"object\",\"required\":[\"x\"],\"properties\":{\"x\":{\"type\":"     \
    "\"integer\"}}},\"Circle\":{\"$ref\":\"#/$defs/Circle\"},\"Wide\":{\"anyOf\":[{\"$ref\":"      \
    "\"#/$defs/Wide\"},{\"$ref\":\"#/$defs/Wide\"},{\"$ref\":\"#/$defs/"                           \
    "Wide\"}]},\"Hard\":{\"type\":"                                                                \
    "\"string\",\"pattern\":\"a\"},\"Short\":{\"type\":\"string\",\"maxLength\":2}}"
#define COLOR(schema)                                                                              \
    TOOLS_OF("{\"properties\":{\"color\":" schema "},\"required\":[\"color\"]," DEFS "}")
#define REF(name) "{\"$ref\":\"#/$defs/" name "\"}"

static const char *const marks[] = {"<tool_call><function=</tool_call>",
                                    "<tool_call><arg_key></tool_call>",
                                    "<minimax:tool_call>",
                                    MIMO_MARKS,
                                    "<tool_sep>",
                                    "]<]minimax[>[</tool_call>",
                                    "<｜DSML｜function_calls>",
                                    "open_tag('tools')"};
static const char *const red[] = {
    COLOR(REF("Color")),
    COLOR(REF("Again")),
    COLOR("{\"$ref\":\"#/$defs/Color\",\"description\":\"x\",\"default\":\"red\"}"),
    COLOR("{\"allOf\":[" REF("Color") "],\"title\":\"x\"}"),
    COLOR("{\"anyOf\":[" REF("Color") "]}"),
    COLOR("{\"oneOf\":[" REF("Again") "]}"),
    COLOR("{\"type\":\"string\",\"const\":\"red\"}"),
};

/* A text that fits, with as little as may be: lower bytes first, which begin marks that close, and
 * no line feed where there is a choice. */
static void shortest(const struct api_request *r, char *text, size_t cap)
{
    struct grammar *g = NULL;
    struct error error = {0};
    ck_assert_msg(grammar_compile(&r->grammar, NULL, &g, &error) == 0, "%s\n%s", error.text,
                  r->grammar_text);
    struct grammar_state *s = grammar_start(g);
    size_t n = 0;
    for (; n + 1 < cap && !grammar_is_end(s); n++) {
        uint64_t set[4];
        unsigned best = '\n';
        grammar_next_bytes(s, set);
        for (unsigned b = 254; b > 0; b--)
            if (b != '\n' && (set[b / 64] >> (b % 64) & 1))
                best = b;
        text[n] = (char)best;
        ck_assert_msg(grammar_accept(s, (uint8_t)best), "%.*s", (int)n, text);
    }
    text[n] = 0;
    ck_assert_msg(grammar_is_end(s), "%s", text);
    grammar_stop(s);
    grammar_free(g);
}

static char read_arguments[300];

static void take_piece(void *arg, const struct answer_piece *p)
{
    (void)arg;
    if (p->part == ANSWER_CALL)
        snprintf(read_arguments, sizeof read_arguments, "%s", p->arguments);
}

static void read_call(const struct wish *w, const char *text)
{
    struct answer_form form = answer_form_of(w->marks, strlen(w->marks));
    struct answer a;
    json_t *tools = loaded(w->tools);
    size_t bytes;
    struct chat_types *types = chat_types_new(tools, &bytes);
    form.types = types;
    read_arguments[0] = 0;
    answer_open(&a, &form, false, take_piece, NULL);
    ck_assert(answer_take(&a, text, strlen(text), true) == 0);
    answer_close(&a);
    chat_types_free(types);
    json_decref(tools);
}

/* What the grammar forces is what the reader understands. */
START_TEST(written_as_they_are_read)
{
    struct wish w = {.marks = marks[_i], .needed = true, .one = true};
    for (size_t i = 0; i < ARRAY_LEN(red); i++) {
        struct api_request r;
        char text[1000];
        w.tools = red[i];
        ck_assert_str_eq(constrain(&w, &r), "");
        shortest(&r, text, sizeof text);
        read_call(&w, text);
        ck_assert_msg(strcmp(read_arguments, "{\"color\":\"red\"}") == 0, "%s: %s in %s", red[i],
                      read_arguments, text);
        api_request_free(&r);
    }
}
END_TEST

#define VALUE(value) CODER(CODER_PARAMETER("color", value))

START_TEST(branches_behind_references)
{
    struct wish w = {.marks = "<tool_call><function=</tool_call>", .needed = true};
    w.tools = COLOR("{\"anyOf\":[" REF("Color") ",{\"type\":\"null\"}]}");
    check(&w, VALUE("red"), 2);
    check(&w, VALUE("None"), 2);
    check(&w, VALUE("null"), 2);
    check(&w, VALUE("\"red\""), 0);
    check(&w, VALUE("blue"), 0);
    w.tools = COLOR("{\"anyOf\":[" REF("Color") ",{\"type\":\"string\"}]}");
    check(&w, VALUE("blue"), 2);
    w.tools = COLOR("{\"allOf\":[" REF("Point") "]}");
    check(&w, VALUE("{\"x\":1}"), 2);
    check(&w, VALUE("{\"x\":\"a\"}"), 0);
    check(&w, VALUE("x"), 0);
    w.tools = COLOR(REF("Short"));
    check(&w, VALUE("ab"), 2);
    check(&w, VALUE("abc"), 0);
    w.tools = COLOR("{\"$ref\":\"#/$defs/Color\",\"deprecated\":true}"); /* an annotation */
    check(&w, VALUE("red"), 2);
    check(&w, VALUE("blue"), 0);
    w.tools = COLOR("{\"type\":\"string\",\"enum\":null}"); /* nothing is said */
    check(&w, VALUE("blue"), 2);
    w.marks = "<｜DSML｜function_calls>";
    w.tools = COLOR("{\"anyOf\":[" REF("Color") ",{\"type\":\"null\"}]}");
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("color", "true", "red"))), 2);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("color", "false", "null"))), 2);
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("color", "true", "null"))), 0);
    w.tools = COLOR(REF("Color"));
    check(&w, DSML(DSML_CALL(DSML_ARGUMENT("color", "false", "\"red\""))), 0);
}
END_TEST

/* What cannot be enforced is an error also behind a reference; circles end. */
START_TEST(references_that_cannot_be_enforced)
{
    static const struct {
        const char *tools, *why;
    } rows[] = {
        {COLOR(REF("Hard")), "at $.properties.color, pattern"},
        {COLOR("{\"anyOf\":[{\"type\":\"null\"}," REF("Hard") "]}"), "color, pattern"},
        {COLOR(REF("Circle")), "color, $ref"},
        {COLOR(REF("Wide")), "color, anyOf"},
        {COLOR("{\"$ref\":\"#/$defs/Color\",\"minLength\":9}"), "color, $ref"},
        {COLOR("{\"type\":\"string\",\"maxLength\":100000}"), "color, maxLength"},
        {COLOR("{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}"), "color, minLength"}};
    struct wish w = {.marks = marks[0]};
    struct api_request r;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        w.tools = rows[i].tools;
        w.needed = true;
        const char *why = constrain(&w, &r);
        ck_assert_msg(strstr(why, rows[i].why), "row %zu: '%s'", i, why);
        api_request_free(&r);
        w.needed = false;
        check(&w, VALUE("long enough"), 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("definitions");
    tcase_add_test(cases, only_where_they_are_used);
    tcase_add_test(cases, bounded);
    tcase_add_loop_test(cases, written_as_they_are_read, 0, (int)ARRAY_LEN(marks));
    tcase_add_test(cases, branches_behind_references);
    tcase_add_test(cases, references_that_cannot_be_enforced);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
