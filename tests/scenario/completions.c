/* SPDX-License-Identifier: Apache-2.0 */
/* Sends completions over HTTP and reads their texts. */
#include "tests/scenario/completions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine *gateway_start(unsigned *port, const char *const opts[])
{
    struct engine *e = engine_new();
    engine_start(e, opts);
    *port = http_port(e);
    return e;
}

char *completion_body(const char *prompt, size_t tokens, const char *more)
{
    char *body;
    json_t *text = json_string(prompt);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    CHECK(asprintf(&body,
                   "{\"prompt\":%s,\"max_tokens\":%zu,\"temperature\":0,\"ignore_eos\":true%s%s}",
                   quoted, tokens, more[0] ? "," : "", more) > 0,
          "out of memory");
    free(quoted);
    json_decref(text);
    return body;
}

void completion_call(struct http *h, unsigned port, const char *prompt, size_t tokens,
                     const char *more, int status)
{
    char *body = completion_body(prompt, tokens, more);
    http_call(h, port, "/v1/completions", NULL, body, status);
    free(body);
}

char *completion_text(unsigned port, const char *prompt, size_t tokens)
{
    struct http h;
    completion_call(&h, port, prompt, tokens, "", 200);
    json_t *doc = http_json(&h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    CHECK(strcmp(lookup_text(choice, "finish_reason"), "length") == 0, "%.300s", h.body);
    CHECK(lookup_u64(doc, "usage.completion_tokens") == tokens, "%.300s", h.body);
    char *text = strdup(lookup_text(choice, "text"));
    json_decref(doc);
    http_close(&h);
    return text;
}

void completion_start(struct http *h, unsigned port, const char *prompt, size_t tokens)
{
    char *body = completion_body(prompt, tokens,
                                 "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    http_open(h, port, "/v1/completions", NULL, body);
    free(body);
}

void completion_check(struct http *h, const char *expected, size_t tokens, const char *what)
{
    struct events got;
    http_finish(h, END_MS);
    http_events(h, &got);
    CHECK(h->status == 200 && got.done && strcmp(got.finish, "length") == 0,
          "%s: status %d, finish '%s', error '%s'", what, h->status, got.finish, got.error);
    CHECK(strcmp(got.text, expected) == 0, "%s: the text differs: %.120s", what, got.text);
    CHECK(got.completion_tokens == tokens && got.prompt_tokens > 0, "%s: wrong usage", what);
    free(got.text);
    http_close(h);
}

char *sampled_body(const struct sampling_way *way, unsigned tokens, json_t *rest, bool stream)
{
    json_t *body = json_pack("{s:i, s:f, s:i, s:b, s:b}", "max_tokens", (int)tokens, "temperature",
                             strtod(way->temperature, NULL), "seed",
                             (int)strtol(way->seed, NULL, 10), "ignore_eos", 1, "stream", stream);
    CHECK(body && json_object_update(body, rest) == 0, "no memory");
    char *text = json_dumps(body, 0);
    json_decref(rest);
    json_decref(body);
    return text;
}

char *reply_text(const struct http *h, bool stream)
{
    if (stream) {
        struct events got;
        http_events(h, &got);
        CHECK(got.done && strcmp(got.finish, "length") == 0, "finish '%s', error '%s'", got.finish,
              got.error);
        return got.text;
    }
    json_t *doc = http_json(h);
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    char *text = strdup(
        lookup_text(choice, json_object_get(choice, "message") ? "message.content" : "text"));
    json_decref(doc);
    return text;
}

char *sampled_text(unsigned port, const char *path, const struct sampling_way *way, unsigned tokens,
                   json_t *rest, bool stream)
{
    struct http h;
    char *body = sampled_body(way, tokens, rest, stream);
    http_call(&h, port, path, NULL, body, 200);
    char *text = reply_text(&h, stream);
    http_close(&h);
    free(body);
    return text;
}
