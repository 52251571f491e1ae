/* SPDX-License-Identifier: Apache-2.0 */
/* Answers over HTTP that keep to something: a schema in every dialect, calls of tools that are
 * required, biases of tokens; and what is refused before anything is computed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/fixtures.h"

#define CHAT "/v1/chat/completions"
#define ASK  "\"messages\":[{\"role\":\"user\",\"content\":\"Who came to the house?\"}]"
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"age\":{\"type\":\"integer\",\"minimum\":0,"            \
    "\"maximum\":99},\"who\":{\"enum\":[\"the queen\",\"the cat\"]},\"name\":{\"type\":"           \
    "\"string\",\"maxLength\":8}},\"required\":[\"age\",\"who\",\"name\"],"                        \
    "\"additionalProperties\":false}"
#define HARD "{\"type\":\"object\",\"properties\":{\"age\":{\"type\":\"integer\",\"not\":{}}}}"

static json_t *call(unsigned port, const char *path, const char *body, int status)
{
    struct http h;
    http_call(&h, port, path, NULL, body, status);
    json_t *doc = http_json(&h);
    http_close(&h);
    return doc;
}

/* A member of the first element of an array. */
static const json_t *first(const json_t *object, const char *member)
{
    return json_array_get(json_object_get(object, member), 0);
}

static void check_value(const json_t *value, const char *where)
{
    const json_t *age = json_object_get(value, "age");
    const char *who = lookup_text(value, "who"), *name = lookup_text(value, "name");
    CHECK(json_object_size(value) == 3 && json_is_integer(age) && json_integer_value(age) >= 0 &&
              json_integer_value(age) <= 99 &&
              (strcmp(who, "the queen") == 0 || strcmp(who, "the cat") == 0) &&
              json_is_string(json_object_get(value, "name")) && strlen(name) <= 8 * 4,
          "%s: the answer does not keep to the schema", where);
}

static void check_text(const char *text, const char *where)
{
    json_t *value = json_loads(text, 0, NULL);
    CHECK(value, "%s: no JSON: '%s'", where, text);
    check_value(value, where);
    json_decref(value);
}

static const char *text_of(const json_t *doc)
{
    const json_t *choice = first(doc, "choices"), *item = first(doc, "output");
    if (choice)
        return lookup_text(choice, json_object_get(choice, "message") ? "message.content" : "text");
    if (item)
        return lookup_text(first(item, "content"), "text");
    if (json_object_get(doc, "message"))
        return lookup_text(doc, "message.content");
    return json_object_get(doc, "response") ? lookup_text(doc, "response")
                                            : lookup_text(first(doc, "content"), "text");
}

static const struct {
    const char *path, *fields; /* with %s for the schema */
} formats[] = {
    {CHAT, ASK ",\"temperature\":0,\"response_format\":{\"type\":\"json_schema\","
               "\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":%s}}"},
    {"/v1/completions", "\"prompt\":\"It is\",\"max_tokens\":99,\"temperature\":1,\"json_schema\":"
                        "%s"},
    {"/v1/responses", "\"input\":\"Who?\",\"temperature\":1,\"text\":{\"format\":{\"type\":"
                      "\"json_schema\",\"name\":\"n\",\"schema\":%s}}"},
    {"/v1/messages", ASK ",\"temperature\":1,\"output_config\":{\"format\":{\"type\":"
                         "\"json_schema\",\"schema\":%s}}"},
    {"/api/chat", ASK ",\"stream\":false,\"format\":%s"},
    {"/api/generate", "\"prompt\":\"Who?\",\"raw\":true,\"stream\":false,\"format\":%s"},
};

static void body_of(size_t i, const char *schema, char *body, size_t cap)
{
    int n = snprintf(body, cap, "{");
    n += snprintf(body + n, cap - (size_t)n, formats[i].fields, schema);
    snprintf(body + n, cap - (size_t)n, "}");
}

static void schemas(void)
{
    unsigned port;
    char body[1000];
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        body_of(i, SCHEMA, body, sizeof body);
        json_t *doc = call(port, formats[i].path, body, 200);
        check_text(text_of(doc), formats[i].path);
        json_decref(doc);
        uint64_t tokens = engine_counter(e, "compute", "tokens_prefill");
        body_of(i, HARD, body, sizeof body);
        doc = call(port, formats[i].path, body, 400);
        char *text = json_dumps(doc, 0);
        CHECK(strstr(text, "$.properties.age") && strstr(text, "not"), "%s: %s", formats[i].path,
              text);
        CHECK(engine_counter(e, "compute", "tokens_prefill") == tokens,
              "%s: something was computed", formats[i].path);
        free(text);
        json_decref(doc);
    }
    engine_stop(e);
}

/* ---- calls ----------------------------------------------------------------------------------- */

#define TEMPLATE(marks)                                                                            \
    "{# " marks " #}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"            \
    "{{ tools | tojson }}assistant:"
#define TOOL(schema)                                                                               \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"other\",\"parameters\":{}}},{"     \
    "\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":" schema "}}]"

static void check_call(const json_t *doc, const char *what)
{
    const json_t *choice = first(doc, "choices");
    const json_t *calls = json_object_get(json_object_get(choice, "message"), "tool_calls");
    const json_t *one = json_array_get(calls, 0);
    char *text = json_dumps(doc, 0);
    CHECK(json_array_size(calls) == 1 &&
              strcmp(lookup_text(choice, "finish_reason"), "tool_calls") == 0 &&
              strcmp(lookup_text(one, "function.name"), "look") == 0,
          "%s: no call: %s", what, text);
    check_text(lookup_text(one, "function.arguments"), what);
    free(text);
}

static void calls_of(const char *chat_template, const char *what)
{
    unsigned port;
    char path[PATH_MAX];
    chat_model_make(path, "calls.gguf", chat_template);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    json_t *doc = call(port, CHAT,
                       "{" ASK ",\"temperature\":1,\"max_tokens\":400,\"tool_choice\":{\"type\":"
                       "\"function\",\"function\":{\"name\":\"look\"}}," TOOL(SCHEMA) "}",
                       200);
    check_call(doc, what);
    json_decref(doc);
    doc = call(port, CHAT, "{" ASK ",\"tool_choice\":\"required\"," TOOL(HARD) "}", 400);
    CHECK(strstr(lookup_text(doc, "error.message"), "tool 'look'"), "%s: %s", what,
          lookup_text(doc, "error.message"));
    json_decref(doc);
    /* A call that may be: what cannot be enforced is left out, unless the request is rejected. */
    struct http h;
    http_call(&h, port, CHAT, "X-Sluice-Class: x\r\n", "{" ASK "," TOOL(HARD) "}", 400);
    CHECK(strstr(h.body, "X-Sluice-Class"), "%s: %.400s", what, h.body);
    http_close(&h);
    CHECK(engine_counter(e, "gateway", "fields_ignored") == 0, "%s: something was left out", what);
    doc = call(port, CHAT, "{" ASK ",\"max_tokens\":4," TOOL(HARD) "}", 200);
    json_decref(doc);
    CHECK(engine_counter(e, "gateway", "fields_ignored") == 1, "%s: nothing was left out", what);
    engine_stop(e);
}

static void hermes(void)
{
    calls_of(TEMPLATE("<tool_call></tool_call>"), "hermes");
}

static void coder(void)
{
    calls_of(TEMPLATE("<tool_call><function=</tool_call>"), "coder");
}

static void deepseek(void)
{
    calls_of(TEMPLATE("<｜tool▁calls▁begin｜>"), "deepseek");
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void check_top(const json_t *choice, size_t tokens)
{
    const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content");
    CHECK(json_array_size(content) == tokens, "%zu tokens", json_array_size(content));
    for (size_t i = 0; i < tokens; i++) {
        const json_t *token = json_array_get(content, i),
                     *top = json_object_get(token, "top_logprobs");
        double last = 0;
        CHECK(json_array_size(top) == 5 &&
                  json_equal(json_object_get(json_array_get(top, 0), "bytes"),
                             json_object_get(token, "bytes")),
              "token %zu is not the most probable one", i);
        for (size_t k = 0; k < 5; k++) {
            double logprob = json_real_value(json_object_get(json_array_get(top, k), "logprob"));
            CHECK(logprob <= last, "token %zu: the alternatives are not in order", i);
            last = logprob;
        }
    }
}

static void tokens(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    json_t *doc = call(port, CHAT,
                       "{" ASK ",\"temperature\":0,\"max_tokens\":4,\"ignore_eos\":true,"
                       "\"logprobs\":true,\"top_logprobs\":5}",
                       200);
    check_top(first(doc, "choices"), 4);
    json_decref(doc);
    json_t *piece = call(port, "/detokenize", "{\"tokens\":[500,500]}", 200);
    doc = call(port, "/v1/completions",
               "{\"prompt\":\"a\",\"temperature\":0,\"max_tokens\":2,\"logit_bias\":{\"500\":100}}",
               200);
    CHECK(strcmp(text_of(doc), lookup_text(piece, "content")) == 0, "'%s', not '%s'", text_of(doc),
          lookup_text(piece, "content"));
    json_decref(doc);
    json_decref(piece);
    doc = call(
        port, "/v1/completions",
        "{\"prompt\":\"a\",\"max_tokens\":9,\"grammar\":\"root ::= \\\"yes\\\" | \\\"no\\\"\"}",
        200);
    CHECK(strcmp(text_of(doc), "yes") == 0 || strcmp(text_of(doc), "no") == 0, "'%s'",
          text_of(doc));
    CHECK(strcmp(lookup_text(first(doc, "choices"), "finish_reason"), "stop") == 0, "no stop");
    json_decref(doc);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(schemas), ROW(hermes), ROW(coder), ROW(deepseek),
                                             ROW(tokens)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
