/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools over HTTP, of every family, streamed and not, by several clients at once: the
 * arguments have the types of the request's tools until the end of the answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/families.h"

#define CHAT    "/v1/chat/completions"
#define CLIENTS 8
#define ROUNDS  3

/* What a client sees of an answer. */
struct seen {
    char reasoning[200], content[400], id[120], call[600], finish[16];
    unsigned calls;
};

static void add(char *to, size_t cap, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    CHECK(strlen(to) + strlen(text ? text : "") < cap, "too long: %s", to);
    strcat(to, text ? text : "");
}

/* A message, or a part of one. */
static void take(struct seen *s, const json_t *choice, const char *member)
{
    const json_t *part = json_object_get(choice, member);
    const json_t *calls = json_object_get(part, "tool_calls");
    add(s->reasoning, sizeof s->reasoning, part, "reasoning_content");
    add(s->content, sizeof s->content, part, "content");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        s->calls++;
        snprintf(s->id, sizeof s->id, "%s", lookup_text(call, "id"));
        snprintf(s->call, sizeof s->call, "%s(%s)", lookup_text(call, "function.name"),
                 lookup_text(call, "function.arguments"));
    }
    add(s->finish, sizeof s->finish, choice, "finish_reason");
}

static void take_events(struct seen *s, const struct http *h)
{
    for (const char *at = h->body; (at = strstr(at, "data: {")) != NULL;) {
        size_t n = strcspn(at, "\n");
        json_t *event = json_loadb(at + 6, n - 6, JSON_ALLOW_NUL, NULL);
        CHECK(event, "not an event: %.*s", (int)n, at);
        take(s, json_array_get(json_object_get(event, "choices"), 0), "delta");
        json_decref(event);
        at += n;
    }
}

static char *request(const char *tools, bool stream, const char *more)
{
    char *body;
    CHECK(asprintf(&body, "{%s\"temperature\":0,\"tools\":%s,\"stream\":%s%s}",
                   strstr(more, "\"messages\"")
                       ? ""
                       : "\"messages\":[{\"role\":\"user\",\"content\":\"" FAMILY_ASK "\"}],",
                   tools, stream ? "true" : "false", more) > 0,
          "out of memory");
    return body;
}

static void check(const struct family *f, struct http *h, bool stream)
{
    struct seen got = {.calls = 0};
    char call[300];
    snprintf(call, sizeof call, "look(%s)", f->arguments ? f->arguments : FAMILY_ARGUMENTS);
    http_finish(h, END_MS);
    CHECK(h->status == 200, "%s: status %d: %.300s", f->name, h->status, h->body);
    if (stream) {
        CHECK(strstr(h->body, "data: [DONE]"), "%s: the stream was cut off", f->name);
        take_events(&got, h);
    } else {
        json_t *doc = http_json(h);
        take(&got, json_array_get(json_object_get(doc, "choices"), 0), "message");
        json_decref(doc);
    }
    http_close(h);
    CHECK(strcmp(got.reasoning, f->reasoning) == 0 && strcmp(got.content, f->content) == 0 &&
              got.calls == 1 && strcmp(got.call, call) == 0 &&
              strcmp(got.finish, "tool_calls") == 0,
          "%s%s: reasoning '%s', content '%s', %u calls '%s', finish '%s'", f->name,
          stream ? ", streamed" : "", got.reasoning, got.content, got.calls, got.call, got.finish);
    CHECK(f->id ? strcmp(got.id, f->id) == 0 : strncmp(got.id, "call_", 5) == 0, "%s: id '%s'",
          f->name, got.id);
}

/* Half of the clients stream, and half of them want one call. */
static void ask_at_once(const struct family *f, unsigned port)
{
    struct http h[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        char *body =
            request(FAMILY_TOOLS, i % 2, i / 2 % 2 ? ",\"parallel_tool_calls\":false" : "");
        http_open(&h[i], port, CHAT, NULL, body);
        free(body);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        check(f, &h[i], i % 2);
}

static void calls_of(const char *name)
{
    const struct family *f = families;
    unsigned port;
    char path[PATH_MAX];
    while (f->name && strcmp(f->name, name) != 0)
        f++;
    CHECK(f->name, "no family '%s'", name);
    scripted_model_make(path, "family.gguf", &f->script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    for (int i = 0; i < ROUNDS; i++)
        ask_at_once(f, port);
    CHECK(engine_restarts(e, "gateway", 0) == 0, "the gateway was restarted");
    engine_stop(e);
}

/* More tools whose schemas cannot be enforced than are left out one by one; the caller frees. */
static char *free_tools_new(void)
{
    char *tools = NULL;
    for (int i = 0; i <= 16; i++) {
        char *more;
        CHECK(asprintf(&more,
                       "%s%c{\"type\":\"function\",\"function\":{\"name\":\"look%.*d\","
                       "\"parameters\":{\"type\":\"object\",\"not\":{\"required\":[\"x\"]}}}}",
                       tools ? tools : "", tools ? ',' : '[', i > 0 ? 2 : 0, i) > 0,
              "out of memory");
        free(tools);
        tools = more;
    }
    tools = realloc(tools, strlen(tools) + 2);
    CHECK(tools != NULL, "out of memory");
    return strcat(tools, "]");
}

/* The model would write on. The grammar ends with the call; without one the sequence is cancelled
 * after it. */
static void one_call(void)
{
    char *free_tools = free_tools_new();
    const struct family *f = families;
    unsigned port;
    char path[PATH_MAX];
    while (strcmp(f->name, "hermes") != 0)
        f++;
    scripted_model_make(path, "family.gguf", &f->script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    for (uint64_t i = 0; i < 4; i++) {
        struct http h;
        char *body = request(i < 2 ? free_tools : FAMILY_TOOLS, i % 2,
                             ",\"parallel_tool_calls\":false,\"ignore_eos\":true");
        http_open(&h, port, CHAT, NULL, body);
        check(f, &h, i % 2);
        free(body);
        engine_wait_counter(e, "compute", "sequences_cancelled", i < 2 ? i + 1 : 2, END_MS);
        engine_wait_counter(e, "compute", "sequences_done", i < 2 ? 0 : i - 1, END_MS);
    }
    CHECK(engine_counter(e, "compute", "sequences_constrained") == 2, "sequences with a grammar");
    CHECK(engine_counter(e, "compute", "tokens_forced") > 0, "no token was forced");
    free(free_tools);
    engine_stop(e);
}

/* A tool whose description is so long, of quotes, which are escaped in the call to the engine. */
static char *wordy_tools(size_t quotes, const char *parameters)
{
    char *tools, *text = malloc(2 * quotes + 1);
    CHECK(text, "out of memory");
    for (size_t i = 0; i < quotes; i++)
        memcpy(text + 2 * i, "\\\"", 2);
    text[2 * quotes] = 0;
    CHECK(
        asprintf(&tools,
                 "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":"
                 "\"object\",\"$defs\":{\"d\":{\"type\":\"integer\",\"description\":\"%s\"}},"
                 "\"properties\":{%s}}}}]",
                 text, parameters) > 0,
        "out of memory");
    free(text);
    return tools;
}

static void ask_for(const struct family *f, unsigned port, const char *tools, const char *more)
{
    struct http h;
    char *body = request(tools, false, more);
    http_open(&h, port, CHAT, NULL, body);
    check(f, &h, false);
    free(body);
}

/* Where the schemas of tools that may be called are too large for a call, or for the buffers, the
 * answer is the one without a grammar; where a call is demanded, it is an error. */
static void large_schemas(void)
{
    const struct family *f = families; /* a rule per argument, each with all definitions */
    unsigned port;
    char path[PATH_MAX];
    struct http h;
    char *call = wordy_tools(523500, FAMILY_PROPERTIES);
    char *buffers = wordy_tools(8000, FAMILY_PROPERTIES
                                ",\"a\":{\"$ref\":\"#/$defs/d\"},\"b\":{\"$ref\":\"#/$defs/d\"},"
                                "\"c\":{\"$ref\":\"#/$defs/d\"},\"d\":{\"$ref\":\"#/$defs/d\"}");
    scripted_model_make(path, "family.gguf", &f->script);
    struct engine *e =
        gateway_start(&port, (const char *const[]){"-m", path, "--http=0", "--http-buffer=64KiB",
                                                   "--http-body=32KiB", NULL});
    ask_for(f, port, buffers, "");
    CHECK(engine_counter(e, "compute", "sequences_constrained") == 0, "a grammar was computed");
    char *body = request(buffers, false, ",\"tool_choice\":\"required\"");
    http_call(&h, port, CHAT, NULL, body, 503);
    CHECK(strstr(h.body, "--http-buffer"), "%.300s", h.body);
    http_close(&h);
    free(body);
    engine_stop(e);
    while (strcmp(f->name, "hermes") != 0)
        f++;
    /* An escaped quote is twice as long in the call: with the prompt it is more than 2 MiB. */
    char more[7000], needed[7100], *at = more;
    at += snprintf(more, sizeof more, ",\"messages\":[{\"role\":\"user\",\"content\":\"");
    memset(at, 'x', 6000);
    snprintf(at + 6000, 100, FAMILY_ASK "\"}]");
    snprintf(needed, sizeof needed, "%s,\"tool_choice\":\"required\"", more);
    struct script script = f->script;
    script.context = 8192;
    scripted_model_make(path, "hermes.gguf", &script);
    e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", "--http-buffer=8MiB",
                                                   "--http-body=2MiB", NULL});
    ask_for(f, port, call, more);
    CHECK(engine_counter(e, "compute", "sequences_constrained") == 0, "a grammar was computed");
    body = request(call, false, needed);
    http_call(&h, port, CHAT, NULL, body, 400);
    CHECK(strstr(h.body, "too large"), "%.300s", h.body);
    http_close(&h);
    free(body);
    free(call);
    free(buffers);
    engine_stop(e);
}

#define FAMILY(name)                                                                               \
    static void name(void)                                                                         \
    {                                                                                              \
        calls_of(#name);                                                                           \
    }
FAMILY(coder)
FAMILY(glm)
FAMILY(minimax)
FAMILY(minimax_m3)
FAMILY(minimax_m1)
FAMILY(hermes)
FAMILY(deepseek_v3)
FAMILY(deepseek_v31)
FAMILY(deepseek_v32)
FAMILY(deepseek_v4)
FAMILY(kimi)
FAMILY(kimi_k3)
FAMILY(mimo)
FAMILY(hy3)
FAMILY(cohere)
FAMILY(mistral)
FAMILY(gemma)
FAMILY(lfm2)
FAMILY(llama4)
FAMILY(harmony)

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(coder),    ROW(glm),           ROW(minimax),      ROW(minimax_m3),   ROW(minimax_m1),
        ROW(hermes),   ROW(deepseek_v3),   ROW(deepseek_v31), ROW(deepseek_v32), ROW(deepseek_v4),
        ROW(kimi),     ROW(kimi_k3),       ROW(mimo),         ROW(hy3),          ROW(cohere),
        ROW(mistral),  ROW(gemma),         ROW(lfm2),         ROW(llama4),       ROW(harmony),
        ROW(one_call), ROW(large_schemas),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
