/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the fields that programs send to each endpoint: each is honoured, ignored and counted, or
 * rejected by name, as the table says; and the documents name those that have an effect. */
#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/anthropic/anthropic.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "procs/engine/gateway/dialects/responses/responses.h"
#include "tests/unit/procs/engine/gateway/dialects/bodies.h"

#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define MESSAGES "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

enum effect { HONOURED, NEUTRAL, IGNORED, REJECTED };

static const struct {
    const struct dialect *dialect;
    const char *member;
    enum effect effect;
} rows[] = {
#define SERVED(dialect, member, effect) {&(dialect), member, effect},
#include "tests/unit/procs/engine/gateway/dialects/served.tbl.h"
};

static const char *body_of(const struct dialect *d)
{
    return d == &responses                                    ? "{\"input\":\"hi\"}"
           : d == &openai_tokenize                            ? "{\"content\":\"hi\"}"
           : d == &openai_completion || d == &ollama_generate ? "{\"prompt\":\"hi\"}"
                                                              : MESSAGES;
}

/* The name of the field; the caller frees. */
static char *name_of(size_t i)
{
    static const char options[] = "\"options\":{";
    const char *at = rows[i].member;
    at += strncmp(at, options, strlen(options)) == 0 ? strlen(options) + 1 : 1;
    return strndup(at, strcspn(at, "\""));
}

/* The usual body with the field. The caller frees. */
static char *body_with(size_t i)
{
    const char *body = body_of(rows[i].dialect);
    char *text = NULL;
    ck_assert_int_gt(asprintf(&text, "%.*s,%s}", (int)strlen(body) - 1, body, rows[i].member), 0);
    return text;
}

/* All that a field may change of a request. The caller frees. */
static char *meaning(const struct api_request *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out, "%s|%zu|%zu|%lld|%d%d%d%d%d%d%d%d|%u|%u|%u|%u|%u", r->prompt ? r->prompt : "",
            r->special.count, r->ids_count, (long long)r->max_tokens, r->stream, r->ignore_eos,
            r->logprobs, r->cache_prompt, r->store, r->one_call, r->scored, r->nothing, r->answers,
            r->tries, r->wants, r->top_logprobs, r->stops.count);
    fprintf(out, "|%d|%s|%zu|%s|%d%d", (int)r->grammar.kind, r->grammar_text ? r->grammar_text : "",
            r->bias_count, r->front ? r->front : "", r->answer.reasoning.open != NULL,
            r->answer.call.open != NULL);
#define X(type, field, json, def, min, max, help) fprintf(out, "|%g", (double)r->sampling.field);
    SAMPLING_PARAMS(X)
#undef X
    fclose(out);
    return text;
}

static char *meaning_of(struct bodies *b, const struct dialect *d, const char *body)
{
    ck_assert_msg(bodies_parse(b, d, body) == 0, "%s: %s", body, b->error.text);
    return meaning(&b->request);
}

/* Whether the name was told as an ignored one. */
static bool told(const struct bodies *b, const char *name)
{
    char text[60];
    snprintf(text, sizeof text, "%s,", name);
    const char *at = strstr(b->ignored, text);
    return at && (at == b->ignored || at[-1] == ',');
}

START_TEST(effects)
{
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    char *name = name_of((size_t)_i), *body = body_with((size_t)_i);
    if (rows[_i].effect == REJECTED) {
        ck_assert_msg(bodies_parse(&b, rows[_i].dialect, body) == -1, "%s is taken", body);
        ck_assert_msg(strcmp(b.param, name) == 0, "%s: the error is about '%s'", body, b.param);
    } else {
        char *without = meaning_of(&b, rows[_i].dialect, body_of(rows[_i].dialect));
        char *with = meaning_of(&b, rows[_i].dialect, body);
        bool changed = strcmp(with, without) != 0;
        ck_assert_msg(changed == (rows[_i].effect == HONOURED), "%s: %s", rows[_i].member, with);
        ck_assert_msg(told(&b, name) == (rows[_i].effect == IGNORED), "%s: %s", name, b.ignored);
        free(with);
        free(without);
    }
    free(body);
    free(name);
    bodies_close(&b);
}
END_TEST

/* The schema of a tool with `strict` is enforced, or the request fails; others are left out if they
 * cannot be. */
START_TEST(strict_tools)
{
    static const struct {
        const struct dialect *dialect;
        const char *tool;
    } of[] = {
        {&openai_chat, "{\"type\":\"function\",\"function\":{\"name\":\"f\"%s}}"},
        {&responses, "{\"type\":\"function\",\"name\":\"f\"%s}"},
        {&responses, "{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\","
                     "\"name\":\"f\"%s}]}"},
        {&anthropic_messages, "{\"name\":\"f\",\"input_schema\":{}%s}"},
    };
    static const char *const more[] = {"", ",\"strict\":false", ",\"strict\":true"};
    struct bodies b;
    bodies_open(&b, BODIES_TEMPLATE);
    for (size_t i = 0; i < ARRAY_LEN(of) * ARRAY_LEN(more); i++) {
        const struct dialect *d = of[i / ARRAY_LEN(more)].dialect;
        char text[400], *body = NULL;
        const char *start = body_of(d);
        snprintf(text, sizeof text, of[i / ARRAY_LEN(more)].tool, more[i % ARRAY_LEN(more)]);
        ck_assert_int_gt(
            asprintf(&body, "%.*s,\"tools\":[%s]}", (int)strlen(start) - 1, start, text), 0);
        ck_assert_msg(bodies_parse(&b, d, body) == 0, "%s", b.error.text);
        bool strict = i % ARRAY_LEN(more) == 2;
        ck_assert_msg(b.request.grammar.kind != GRAMMAR_NONE &&
                          b.request.grammar_optional != strict,
                      "%s", body);
        free(body);
    }
    bodies_close(&b);
}
END_TEST

/* A document has the name of a field, or of its members, within marks of code. */
static bool documents(const char *text, const char *name)
{
    char mark[60];
    const size_t n = (size_t)snprintf(mark, sizeof mark, "`%s", name);
    for (const char *at = text; (at = strstr(at, mark)); at += n)
        if (strchr("`.:", at[n]))
            return true;
    return false;
}

static char *read_document(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = calloc(1, 1 << 16);
    ck_assert_msg(f && fread(text, 1, (1 << 16) - 1, f) > 0, "%s", path);
    fclose(f);
    return text;
}

START_TEST(documented)
{
    char *texts[] = {read_document(SLUICE_SOURCE_DIR "/docs/dialects.md"),
                     read_document(SLUICE_SOURCE_DIR "/docs/gateway.md")};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *name = name_of(i);
        ck_assert_msg(rows[i].effect == NEUTRAL || rows[i].effect == IGNORED ||
                          documents(texts[0], name) || documents(texts[1], name),
                      "docs/dialects.md and docs/gateway.md do not name '%s'", name);
        free(name);
    }
    free(texts[0]);
    free(texts[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("fields");
    tcase_add_loop_test(cases, effects, 0, ARRAY_LEN(rows));
    tcase_add_test(cases, strict_tools);
    tcase_add_test(cases, documented);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
