/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that demand something of the answer: a schema, a grammar, calls, biases. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define HI_AND(more)     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," more "}"
#define PROMPT_AND(more) "{\"prompt\":\"hi\"," more "}"

/* What the answer keeps to reaches the request. */
START_TEST(shapes)
{
    static const struct {
        const char *body, *text; /* of the grammar, a part */
    } rows[] = {
        {HI_AND("\"response_format\":{\"type\":\"text\"}"), NULL},
        {HI_AND("\"response_format\":{\"type\":\"json_object\"}"), "{\"type\":\"object\"}"},
        {HI_AND("\"response_format\":{\"type\":\"json_object\",\"schema\":{}}"),
         "{\"type\":\"object\"}"},
        {HI_AND("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
                "\"strict\":true,\"schema\":{\"type\":\"array\"}}}"),
         "{\"type\":\"array\"}"},
        {HI_AND("\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"array\"}}"),
         "{\"type\":\"array\"}"},
        {HI_AND("\"json_schema\":{\"type\":\"null\"}"), "{\"type\":\"null\"}"},
        {HI_AND("\"grammar\":\"root ::= \\\"a\\\"\""), "root ::= \"a\""},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
                "\"required\""),
         "root ::= calls"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
                "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"),
         "root ::= calls"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
         "root ::= more"},
        {HI_AND("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
                "\"none\""),
         NULL},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_msg(bodies_parse(&b, &openai_chat, rows[i].body) == 0, "%s", b.error.text);
        const char *text = b.request.grammar_text;
        ck_assert_msg(text ? rows[i].text && strstr(text, rows[i].text) : !rows[i].text,
                      "row %zu: %s", i, text ? text : "no grammar");
    }
    bodies_close(&b);
}
END_TEST

/* Types of tools are kept where the model writes none, and their names where no mark tells calls
 * from texts. */
START_TEST(types_of_tools)
{
    static const struct {
        const char *marks;
        bool types;
    } rows[] = {{"{{ 1 }}</tool_call>", false},
                {"{{ 1 }}<function=", true},
                {"{{ 1 }}List of tools: [", false},
                {"{{ 1 }}[func_name1(", true}};
    struct bodies b;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bodies_open(&b, rows[i].marks);
        ck_assert_msg(
            bodies_parse(
                &b, &openai_chat,
                HI_AND("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]")) == 0,
            "%s", b.error.text);
        ck_assert_msg(b.request.answer.call.open &&
                          (b.request.answer.types != NULL) == rows[i].types,
                      "row %zu", i);
        bodies_close(&b);
    }
}
END_TEST

/* What an assistant refused is its text. */
START_TEST(refusals)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &openai_chat,
                 "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\","
                 "\"refusal\":\"no\"},{\"type\":\"text\",\"text\":\"!\"}]},{\"role\":\"user\","
                 "\"content\":\"hi\"}]}",
                 "{\"role\": \"assistant\", \"content\": \"no!\"}{\"role\": \"user\", \"content\": "
                 "\"hi\"}");
    bodies_reject(&b, &openai_chat,
                  "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\","
                  "\"text\":\"no\"}]}]}",
                  "messages", "'refusal'");
    bodies_close(&b);
}
END_TEST

START_TEST(biases)
{
    struct bodies b;
    bodies_open(&b, NULL);
    bodies_check(&b, &openai_completion,
                 PROMPT_AND("\"logit_bias\":{\"5\":-100,\"7\":1.5},\"logprobs\":5,"
                            "\"json_schema\":{\"type\":\"null\"}"),
                 "hi");
    const struct api_request *r = &b.request;
    ck_assert(r->bias_count == 2 && r->bias[0].id == 5 && r->bias[0].bias == -100 &&
              r->bias[1].id == 7 && r->bias[1].bias == 1.5f);
    ck_assert(r->logprobs && r->top_logprobs == 5 && r->grammar.kind == GRAMMAR_JSON_SCHEMA);
    bodies_close(&b);
}
END_TEST

START_TEST(wrong)
{
    static const char *const rows[][3] = {
        {HI_AND("\"logit_bias\":[]"), "logit_bias", "an object"},
        {HI_AND("\"logit_bias\":{\"x\":1}"), "logit_bias", "'x' must be the id"},
        {HI_AND("\"logit_bias\":{\"5\":101}"), "logit_bias", "from -100 to 100"},
        {HI_AND("\"top_logprobs\":3"), "top_logprobs", "needs logprobs"},
        {HI_AND("\"response_format\":{}"), "response_format", "json_schema"},
        {HI_AND("\"response_format\":{\"type\":\"json_schema\"}"), "response_format",
         "needs a schema"},
        {HI_AND("\"tool_choice\":\"required\""), "tool_choice", "there are no tools"},
        {HI_AND("\"tool_choice\":{\"type\":\"function\"}"), "tool_choice", "\"required\""},
        {HI_AND("\"grammar\":7"), "grammar", "GBNF"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
         "\"content\":"
         "\"Su\"}],\"response_format\":{\"type\":\"json_object\"}}",
         "messages", "end with a message of the user"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        bodies_reject(&b, &openai_chat, rows[i][0], rows[i][1], rows[i][2]);
    bodies_close(&b);
}
END_TEST

#define SEEN_HI        "{\"role\": \"user\", \"content\": \"hi\"}"
#define FUNCTION(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define SEEN(name)     "{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}"
#define ALLOWED(mode, tools)                                                                       \
    HI_AND("\"tools\":[" FUNCTION("f") "," FUNCTION("g") "," FUNCTION(                             \
        "h") "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":" mode     \
             ",\"tools\":[" tools "]}}")

/* Names have a limit, because they are repeated. */
START_TEST(names_of_tools)
{
    for (int bytes = API_TOOL_NAME_BYTES_MAX; bytes <= API_TOOL_NAME_BYTES_MAX + 1; bytes++) {
        char body[1000];
        struct bodies b;
        bodies_open(&b, BODIES_TEMPLATE);
        snprintf(body, sizeof body, HI_AND("\"tools\":[" FUNCTION("%0*d") "]"), bytes, 0);
        if (bytes > API_TOOL_NAME_BYTES_MAX)
            bodies_reject(&b, &openai_chat, body, "tools", "has 257 bytes; at most 256");
        else
            ck_assert_msg(bodies_parse(&b, &openai_chat, body) == 0, "%s", b.error.text);
        bodies_close(&b);
    }
}
END_TEST

/* The tools that have a rule in the grammar. */
static size_t grammar_tools(const struct bodies *b)
{
    size_t i, count = 0;
    const json_t *of;
    json_array_foreach(b->request.grammar_lines, i, of) count += json_is_string(of);
    return count;
}

/* Only some of the tools may be called: the prompt and the grammar have no others. */
START_TEST(allowed_tools)
{
    static const char *const bad[][2] = {
        {ALLOWED("\"auto\"", FUNCTION("k")), "'k' is not one of the tools"},
        {ALLOWED("\"auto\"", "7"), "(no name)"},
        {ALLOWED("\"any\"", ""), "the mode"},
        {ALLOWED("\"required\"", ""), "no tools"},
        {HI_AND("\"tool_choice\":{\"type\":\"allowed_tools\"}"), "needs tools"},
    };
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    bodies_check(&b, &openai_chat, ALLOWED("\"auto\"", FUNCTION("h") "," FUNCTION("f")),
                 SEEN_HI "T[" SEEN("f") ", " SEEN("h") "]");
    ck_assert(b.request.answer.call.open && b.request.grammar.trigger);
    ck_assert_uint_eq(grammar_tools(&b), 2);
    bodies_check(&b, &openai_chat, ALLOWED("\"required\"", FUNCTION("g")),
                 SEEN_HI "T[" SEEN("g") "]");
    ck_assert(!b.request.grammar.trigger && grammar_tools(&b) == 1);
    bodies_check(&b, &openai_chat, ALLOWED("\"auto\"", ""), SEEN_HI);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bodies_reject(&b, &openai_chat, bad[i][0], "tool_choice", bad[i][1]);
    bodies_close(&b);
}
END_TEST

/* A template that writes tools member by member makes two pieces per parameter: an agent's tools
 * are taken, and a conversation with more pieces than a call can carry is told so. */
START_TEST(pieces_of_tools)
{
    static const char members[] = "{% for t in tools %}{% for k, v in "
                                  "t.function.parameters.properties.items() %}<{{ k }}>"
                                  "{{ v.type }}{% endfor %}{% endfor %}{% for m in messages %}"
                                  "{% for c in m.content %}.{{ c }}{% endfor %}{% endfor %}";
    static const struct {
        size_t parameters, letters, pieces;
    } rows[] = {{1400, 9, 2 * 1400 + 9}, {5500, 9, 2 * 5500 + 9}, {1400, 30000, 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bodies b;
        char *body, *text;
        size_t bytes;
        bodies_open(&b, members);
        b.limits.prompt_bytes = ENGINE_PROMPT_BYTES_MAX;
        FILE *out = open_memstream(&body, &bytes);
        fputs("{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
              "{\"properties\":{\"p\":{\"type\":\"t\"}",
              out);
        for (size_t k = 1; k < rows[i].parameters; k++)
            fprintf(out, ",\"p%zu\":{\"type\":\"t\"}", k);
        text = malloc(rows[i].letters + 1);
        memset(text, 'x', rows[i].letters);
        text[rows[i].letters] = 0;
        fprintf(out, "}}}}],\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text);
        fclose(out);
        if (rows[i].pieces > 0) {
            ck_assert_msg(bodies_parse(&b, &openai_chat, body) == 0, "%s", b.error.text);
            ck_assert_uint_eq(b.request.special.count, rows[i].pieces);
            ck_assert_uint_le(b.request.special.count, ENGINE_RANGES_MAX);
        } else {
            ck_assert_int_eq(bodies_parse(&b, &openai_chat, body), -1);
            ck_assert_msg(b.error.code == ERR_BAD_INPUT && strstr(b.error.text, "'tools'") &&
                              strstr(b.error.text, "at most 32768"),
                          "%s", b.error.text);
        }
        free(text);
        free(body);
        bodies_close(&b);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("shapes");
    tcase_add_test(cases, shapes);
    tcase_add_test(cases, allowed_tools);
    tcase_add_test(cases, names_of_tools);
    tcase_add_test(cases, types_of_tools);
    tcase_add_test(cases, pieces_of_tools);
    tcase_add_test(cases, refusals);
    tcase_add_test(cases, biases);
    tcase_add_test(cases, wrong);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
