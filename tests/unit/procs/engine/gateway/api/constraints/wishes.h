/* SPDX-License-Identifier: Apache-2.0 */
/* Makes requests from what they wish of their answers; says whether a text fits the grammar. */
#ifndef SLUICE_TESTS_WISHES_H
#define SLUICE_TESTS_WISHES_H

#include <check.h>
#include <string.h>

#include "procs/engine/gateway/api/request.h"

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\"," \
    "\"properties\":{\"depth\":{\"type\":\"integer\"},\"name\":{\"type\":\"string\"},\"mode\":{"   \
    "\"type\":\"string\",\"enum\":[\"a\",\"b\"]},\"list\":{\"type\":\"array\"},\"short\":{"        \
    "\"type\":\"string\",\"maxLength\":3}},\"required\":[\"depth\"]}}},{\"type\":\"function\","    \
    "\"function\":{\"name\":\"other\"}}]"

#define TOOLS_OF(schema)                                                                           \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":" schema "}}]"
#define TYPED                                                                                      \
    TOOLS_OF("{\"type\":\"object\",\"properties\":{\"deep\":{\"type\":\"boolean\"},\"none\":{"     \
             "\"type\":[\"integer\",\"null\"]},\"state\":{\"anyOf\":[{\"type\":\"boolean\"},{"     \
             "\"type\":\"object\"}]}}}")

static json_t *loaded(const char *text)
{
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    ck_assert(json || !text);
    return json;
}

struct wish {
    const char *marks; /* that the chat template has */
    const char *tools, *schema, *name;
    bool needed, object, one, inside, continues, no_prompt;
    const struct api_limits *limits;
};

/* The request that keeps to the wish; its error, or "". */
static const char *constrain(const struct wish *w, struct api_request *r)
{
    static struct error error;
    struct answer_form form = answer_form_of(w->marks, strlen(w->marks));
    json_t *tools = loaded(w->tools), *schema = loaded(w->schema);
    struct api_conversation c = {
        .tools = tools,
        .continues = w->continues,
        .no_generation_prompt = w->no_prompt,
        .shape = {
            .schema = schema, .object = w->object, .call_needed = w->needed, .call_name = w->name}};
    *r = (struct api_request){.one_call = w->one};
    int rc = api_constrain(&form, &c, w->inside, w->limits, r, &error);
    json_decref(tools);
    json_decref(schema);
    return rc == 0 ? "" : error.text;
}

/* 2: complete, 1: a beginning, 0: it does not fit, -1: there is no grammar. */
static int fits(const struct wish *w, const char *text)
{
    struct api_request r;
    struct grammar *g = NULL;
    struct error error = {0};
    const char *why = constrain(w, &r);
    ck_assert_msg(!*why, "%s", why);
    if (r.grammar.kind == GRAMMAR_NONE) {
        api_request_free(&r);
        return -1;
    }
    ck_assert_msg(grammar_compile(&r.grammar, NULL, &g, &error) == 0, "%s\n%s", error.text,
                  r.grammar_text);
    struct grammar_state *s = grammar_start(g);
    size_t n = strlen(text), taken = grammar_accept_text(s, text, n);
    int fit = taken < n ? 0 : grammar_is_end(s) ? 2 : 1;
    grammar_stop(s);
    grammar_free(g);
    api_request_free(&r);
    return fit;
}

static void check(const struct wish *w, const char *text, int fit)
{
    int got = fits(w, text);
    ck_assert_msg(got == fit, "%s: %s is %d, not %d", w->marks, text, got, fit);
}

#endif
