/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's dialects over real sockets: the same text in each of them, calls of tools, prompts
 * that are too long, keys, pages of other origins, and what is asked about the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/families.h"

#define ASK     "\"messages\":[{\"role\":\"user\",\"content\":\"" FAMILY_ASK "\"}]"
#define MESSAGE "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],"
#define TOOL                                                                                       \
    "[{\"name\":\"look\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"depth\":{"        \
    "\"type\":\"integer\"},\"deep\":{\"type\":\"boolean\"},\"name\":{\"type\":\"string\"},"        \
    "\"ratio\":{\"type\":\"number\"},\"list\":{\"type\":\"array\"},\"where\":{\"type\":"           \
    "\"object\"},\"none\":{\"type\":\"null\"},\"size\":{\"enum\":[\"small\",\"big\"]}}}}]"

static json_t *call(unsigned port, const char *path, const char *body, int status)
{
    struct http h;
    http_call(&h, port, path, NULL, body, status);
    json_t *doc = http_json(&h);
    http_close(&h);
    return doc;
}

static void expect(unsigned port, const char *path, const char *body, int status,
                   const char *const members[][2])
{
    json_t *doc = call(port, path, body, status);
    for (size_t i = 0; members[i][0]; i++)
        CHECK(strstr(lookup_text(doc, members[i][0]), members[i][1]), "%s: %s is '%s'", path,
              members[i][0], lookup_text(doc, members[i][0]));
    json_decref(doc);
}

/* The concatenated texts of a stream, by the member that has them; the caller frees. */
static char *streamed(unsigned port, const char *path, const char *body, const char *member)
{
    struct http h;
    char *text = strdup("");
    http_call(&h, port, path, NULL, body, 200);
    for (char *line = h.body; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *at = strncmp(line, "data: ", 6) == 0 ? line + 6 : line;
        json_t *doc = *at == '{' ? json_loadb(at, strcspn(at, "\n"), 0, NULL) : NULL;
        const char *part = lookup_text(doc, member);
        text = realloc(text, strlen(text) + strlen(part) + 1);
        strcat(text, part);
        json_decref(doc);
    }
    http_close(&h);
    return text;
}

static void same_text(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    char *expected = completion_text(port, "User: Hello\nAssistant:", 12);
    static const char settings[] = "\"max_tokens\":12,\"temperature\":0,";
    char whole[200], stream[200];
    snprintf(whole, sizeof whole, MESSAGE "%s\"stream\":false}", settings);
    snprintf(stream, sizeof stream, MESSAGE "%s\"stream\":true}", settings);
    json_t *doc = call(port, "/v1/messages", whole, 200);
    const json_t *block = json_array_get(json_object_get(doc, "content"), 0);
    CHECK(strcmp(lookup_text(block, "text"), expected) == 0, "'%s'", lookup_text(block, "text"));
    json_decref(doc);
    char *text = streamed(port, "/v1/messages", stream, "delta.text");
    CHECK(strcmp(text, expected) == 0, "Anthropic, streamed: '%s'", text);
    free(text);
    static const char options[] = "\"options\":{\"num_predict\":12,\"temperature\":0}}";
    char chat[200], raw[200];
    snprintf(chat, sizeof chat, MESSAGE "%s", options);
    snprintf(raw, sizeof raw, "{\"prompt\":\"User: Hello\\nAssistant:\",\"raw\":true,%s", options);
    text = streamed(port, "/api/chat", chat, "message.content");
    CHECK(strcmp(text, expected) == 0, "Ollama's chat: '%s'", text);
    free(text);
    text = streamed(port, "/api/generate", raw, "response");
    CHECK(strcmp(text, expected) == 0, "Ollama's generate: '%s'", text);
    free(text);
    free(expected);
    engine_stop(e);
}

/* Each error has the status and the words after which programs shorten a conversation. */
static void too_long(void)
{
    static const char *const rows[][4] = {
        {"/v1/messages", "error.message", "error.type", "invalid_request_error"},
        {"/v1/chat/completions", "error.message", "error.code", "context_length_exceeded"},
        {"/api/chat", "error", "error", "tokens > 64 maximum"},
    };
    unsigned port;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--ctx-size=64", NULL});
    char body[2400], text[2001];
    memset(text, 'x', sizeof text - 1);
    for (size_t i = 0; i < sizeof text; i += 2)
        text[i] = ' ';
    text[sizeof text - 1] = 0;
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        expect(port, rows[i][0], body, 400,
               (const char *const[][2]){
                   {rows[i][1], "prompt is too long: "},
                   {rows[i][1], "this model's maximum context length is 64 tokens"},
                   {rows[i][2], rows[i][3]},
                   {NULL, NULL}});
    }
    engine_stop(e);
}

/* Errors have the form of the path's API. */
static void errors(void)
{
    unsigned port;
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", NULL});
    expect(port, "/v1/messages", "{}", 400,
           (const char *const[][2]){{"type", "error"},
                                    {"error.type", "invalid_request_error"},
                                    {"error.message", "'messages' is missing"},
                                    {NULL, NULL}});
    expect(port, "/api/chat", "[]", 400,
           (const char *const[][2]){{"error", "not a JSON object"}, {NULL, NULL}});
    expect(port, "/api/embed", "{}", 501,
           (const char *const[][2]){{"error", "embeddings"}, {NULL, NULL}});
    expect(port, "/api/pull", "{\"model\":\"m\"}", 501,
           (const char *const[][2]){{"error", "started with"}, {NULL, NULL}});
    expect(port, "/v1/embeddings", "{}", 501,
           (const char *const[][2]){{"error.type", "not_supported_error"}, {NULL, NULL}});
    engine_stop(e);
}

/* A model that thinks and calls a tool, with a stop text and with one call at most. */
static void calls(void)
{
    const struct family *f = families; /* the first one thinks */
    unsigned port;
    char path[PATH_MAX], *all;
    scripted_model_make(path, "family.gguf", &f->script);
    struct engine *e = gateway_start(&port, (const char *const[]){"-m", path, "--http=0", NULL});
    json_t *doc = call(port, "/v1/messages",
                       "{" ASK ",\"temperature\":0,\"tools\":" TOOL
                       ",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}}",
                       200);
    const json_t *content = json_object_get(doc, "content");
    CHECK(json_array_size(content) == 3 &&
              strcmp(lookup_text(json_array_get(content, 0), "thinking"), f->reasoning) == 0 &&
              strcmp(lookup_text(json_array_get(content, 1), "text"), f->content) == 0 &&
              strcmp(lookup_text(json_array_get(content, 2), "name"), "look") == 0 &&
              strcmp(lookup_text(doc, "stop_reason"), "tool_use") == 0,
          "%s", all = json_dumps(doc, 0));
    CHECK(lookup_u64(json_array_get(content, 2), "input.depth") == 3, "no depth");
    json_decref(doc);
    expect(port, "/v1/messages",
           "{" ASK ",\"temperature\":0,\"stop_sequences\":[\"never\",\"ure.\"]}", 200,
           (const char *const[][2]){
               {"stop_reason", "stop_sequence"}, {"stop_sequence", "ure."}, {NULL, NULL}});
    expect(port, "/api/chat",
           "{" ASK ",\"options\":{\"temperature\":0},\"stream\":false,\"tools\":" FAMILY_TOOLS "}",
           200, (const char *const[][2]){{"message.thinking", "look"}, {NULL, NULL}});
    engine_stop(e);
}

/* More tokens than a prompt of ids may have go there and back. */
static void long_text(unsigned port)
{
    static char text[24001], body[sizeof text + 40];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23 % 7);
    snprintf(body, sizeof body, "{\"content\":\"%s\"}", text);
    json_t *doc = call(port, "/tokenize", body, 200);
    CHECK(json_array_size(json_object_get(doc, "tokens")) > 8192, "%zu tokens",
          json_array_size(json_object_get(doc, "tokens")));
    char *ids = json_dumps(doc, 0);
    json_decref(doc);
    expect(port, "/detokenize", ids, 200,
           (const char *const[][2]){{"content", text}, {NULL, NULL}});
    free(ids);
}

static void questions(void)
{
    unsigned port;
    struct http h;
    struct engine *e =
        gateway_start(&port, (const char *const[]){"--http=0", "--alias=nick", NULL});
    json_t *doc = call(port, "/tokenize", "{\"content\":\"Hello there\"}", 200);
    char *ids = json_dumps(doc, 0);
    json_decref(doc);
    expect(port, "/detokenize", ids, 200,
           (const char *const[][2]){{"content", "Hello there"}, {NULL, NULL}});
    free(ids);
    expect(port, "/detokenize", "{\"tokens\":[]}", 200,
           (const char *const[][2]){{"content", ""}, {NULL, NULL}});
    long_text(port);
    expect(port, "/apply-template", MESSAGE "\"moon\":1}", 200,
           (const char *const[][2]){{"prompt", "User: Hello\nAssistant:"}, {NULL, NULL}});
    expect(port, "/v1/models/nick", NULL, 200,
           (const char *const[][2]){{"id", "nick"}, {NULL, NULL}});
    expect(port, "/models", NULL, 200, (const char *const[][2]){{"object", "list"}, {NULL, NULL}});
    expect(
        port, "/props", NULL, 200,
        (const char *const[][2]){{"build_info", "sluice "}, {"model_alias", "nick"}, {NULL, NULL}});
    expect(port, "/chat/completions", MESSAGE "\"max_tokens\":1}", 200,
           (const char *const[][2]){{"object", "chat.completion"}, {NULL, NULL}});
    expect(port, "/v1/models/other", NULL, 404,
           (const char *const[][2]){{"error.message", "'nick'"}, {NULL, NULL}});
    doc = call(port, "/v1/messages/count_tokens", MESSAGE "\"moon\":1}", 200);
    uint64_t counted = lookup_u64(doc, "input_tokens");
    json_decref(doc);
    doc = call(port, "/v1/chat/completions", MESSAGE "\"max_tokens\":1}", 200);
    CHECK(counted > 0 && counted == lookup_u64(doc, "usage.prompt_tokens"), "%llu tokens",
          (unsigned long long)counted);
    json_decref(doc);
    CHECK(engine_counter(e, "gateway", "fields_ignored") == 2, "not two fields were ignored");
    http_call(&h, port, "/api/tags", NULL, NULL, 200);
    CHECK(strstr(h.body, "\"name\":\"nick\"") && strstr(h.body, "\"quantization_level\":\"Q8_0\""),
          "%.400s", h.body);
    http_close(&h);
    for (int i = 0; i < 40; i++) /* more than --http-streams: each of them is free again */
        expect(port, "/api/generate", "{\"model\":\"any\"}", 200,
               (const char *const[][2]){{"done_reason", "load"}, {NULL, NULL}});
    CHECK(engine_counter(e, "gateway", "streams_started") == 42 &&
              engine_counter(e, "gateway", "streams_finished") == 42,
          "a stream has no end");
    engine_stop(e);
}

/* ---- keys and origins ---- */

static void keys(void)
{
    unsigned port;
    struct http h;
    char path[PATH_MAX], option[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/key", test_dir());
    FILE *f = fopen(path, "we");
    fputs("open\n", f);
    fclose(f);
    snprintf(option, sizeof option, "--http-key-file=%s", path);
    struct engine *e = gateway_start(&port, (const char *const[]){"--http=0", option, NULL});
    http_call(&h, port, "/v1/messages", "x-api-key: wrong\r\n", MESSAGE "\"max_tokens\":1}", 401);
    CHECK(strstr(h.body, "authentication_error"), "%.300s", h.body);
    http_close(&h);
    http_call(&h, port, "/v1/messages", "x-api-key: open\r\n", MESSAGE "\"max_tokens\":1}", 200);
    http_close(&h);
    engine_stop(e);
}

/* Sends a request without a body from a page of an origin. */
static void from_page(struct http *h, unsigned port, const char *method, const char *path,
                      const char *origin)
{
    char head[400];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n"
                     "Access-Control-Request-Headers: authorization\r\n\r\n",
                     method, path, origin);
    *h = (struct http){.fd = http_connect(port)};
    http_write(h->fd, head, (size_t)n);
    http_finish(h, END_MS);
}

static void origins(void)
{
    static const struct {
        const char *option, *method, *path, *origin;
        int status;
        bool shared;
    } rows[] = {
        {"--http-origins=http://a.example, http://b.example", "OPTIONS", "/v1/models",
         "http://b.example", 204, true},
        {"--http-origins=http://a.example, http://b.example", "GET", "/v1/models",
         "http://a.example", 200, true},
        {"--http-origins=http://a.example, http://b.example", "GET", "/v1/models",
         "http://c.example", 403, false},
        {"--http-origins=http://a.example, http://b.example", "OPTIONS", "/v1/models",
         "http://a.exampl", 405, false},
        {"--http-origins=*", "GET", "/stats", "http://c.example", 200, true},
        {"--http-origins=*", "GET", "/map", "http://c.example", 200, true},
        {"--http-origins=*", "GET", "/metrics", "http://c.example", 200, true},
        {"--http-origins=*", "GET", "/v1/models", "http://c.example", 200, true},
        {"--http-origins=", "GET", "/v1/models", "http://c.example", 403, false},
    };
    struct engine *e = NULL;
    unsigned port = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http h;
        if (i == 0 || strcmp(rows[i].option, rows[i - 1].option) != 0) {
            if (e)
                engine_stop(e);
            e = gateway_start(&port, (const char *const[]){"--http=0", rows[i].option, NULL});
        }
        from_page(&h, port, rows[i].method, rows[i].path, rows[i].origin);
        CHECK(h.status == rows[i].status, "row %zu: status %d: %.300s", i, h.status, h.raw);
        CHECK(!strstr(h.raw, "Access-Control-Allow-Origin: ") == !rows[i].shared, "row %zu: %.300s",
              i, h.raw);
        if (h.status == 204)
            CHECK(strstr(h.raw, "Access-Control-Allow-Headers: authorization") &&
                      strstr(h.raw, "Access-Control-Allow-Methods: GET, POST, DELETE"),
                  "%.300s", h.raw);
        if (h.status == 405)
            CHECK(strstr(h.raw, "Allow: GET, HEAD\r\n"), "%.300s", h.raw);
        http_close(&h);
    }
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(same_text), ROW(too_long), ROW(errors),  ROW(calls),
        ROW(questions), ROW(keys),     ROW(origins),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
