/* SPDX-License-Identifier: Apache-2.0 */
/* Responses in OpenAI's form. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/gateway.h"

static bool chat(const struct stream *s)
{
    return s->request.kind == API_CHAT;
}

/* The first fields of every completion object; steals choices. */
static json_t *envelope(const struct stream *s, bool chunk, json_t *choices)
{
    const char *object =
        chat(s) ? chunk ? "chat.completion.chunk" : "chat.completion" : "text_completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", s->id, "object", object, "created",
                     (json_int_t)s->created, "model", s->gateway->model_name, "choices", choices);
}

/* Log-probabilities in OpenAI's two forms; steals `entries`; NULL: null. */
static json_t *logprobs_form(const struct stream *s, json_t *entries)
{
    if (!entries)
        return json_null();
    if (chat(s)) {
        for (size_t i = 0; i < json_array_size(entries); i++)
            json_object_del(json_array_get(entries, i), "offset");
        return json_pack("{s:o, s:n}", "content", entries, "refusal");
    }
    json_t *tokens = json_array(), *values = json_array(), *offsets = json_array();
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i);
        json_array_append(tokens, json_object_get(e, "token"));
        json_array_append(values, json_object_get(e, "logprob"));
        json_array_append(offsets, json_object_get(e, "offset"));
    }
    json_decref(entries);
    return json_pack("{s:o, s:o, s:n, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", "text_offset", offsets);
}

json_t *response_chunk(const struct stream *s, const char *text, size_t bytes, json_t *logprobs,
                       const char *finish)
{
    json_t *content = rpc_text_json(text, bytes), *choice;
    logprobs = logprobs_form(s, logprobs);
    if (!chat(s)) {
        choice = json_pack("[{s:i, s:o, s:o, s:s?}]", "index", 0, "text", content, "logprobs",
                           logprobs, "finish_reason", finish);
    } else if (finish) {
        json_decref(content);
        choice = json_pack("[{s:i, s:{}, s:o, s:s}]", "index", 0, "delta", "logprobs", logprobs,
                           "finish_reason", finish);
    } else {
        choice = json_pack("[{s:i, s:{s:o}, s:o, s:n}]", "index", 0, "delta", "content", content,
                           "logprobs", logprobs, "finish_reason");
    }
    return envelope(s, true, choice);
}

json_t *response_delta(const struct stream *s, json_t *delta)
{
    return envelope(s, true,
                    json_pack("[{s:i, s:o, s:n, s:n}]", "index", 0, "delta", delta, "logprobs",
                              "finish_reason"));
}

/* prompt_progress: the fields of llama.cpp's server, and what else is known. */
json_t *response_progress(const struct stream *s, const struct engine_progress *p)
{
    json_t *object =
        chat(s) ? response_delta(s, json_object()) : response_chunk(s, "", 0, NULL, NULL);
    json_t *progress = json_pack("{s:I, s:I, s:I, s:I, s:I}", "total", (json_int_t)p->tokens,
                                 "cache", (json_int_t)p->cached, "processed", (json_int_t)p->done,
                                 "time_ms", (json_int_t)p->time_ms, "queue", (json_int_t)p->queue);
    if (p->left_ms != UINT64_MAX)
        json_object_set_new(progress, "left_ms", json_integer((json_int_t)p->left_ms));
    json_object_set_new(object, "prompt_progress", progress);
    return object;
}

size_t response_progress_line(const struct engine_progress *p, char *line, size_t bytes)
{
    char left[32] = "";
    if (p->left_ms != UINT64_MAX)
        snprintf(left, sizeof left, ", %" PRIu64 " s left", (p->left_ms + 999) / 1000);
    int n = p->queue > 0 ? snprintf(line, bytes, ": queue %" PRIu64 "\n\n", p->queue)
                         : snprintf(line, bytes, ": prompt %" PRIu64 "/%" PRIu64 "%s\n\n", p->done,
                                    p->tokens, left);
    return n < 0 || (size_t)n >= bytes ? 0 : (size_t)n;
}

json_t *response_role(const struct stream *s)
{
    return envelope(s, true,
                    json_pack("[{s:i, s:{s:s, s:s}, s:n, s:n}]", "index", 0, "delta", "role",
                              "assistant", "content", "", "logprobs", "finish_reason"));
}

static json_t *usage(const struct stream *s)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)s->prompt_tokens,
                     "completion_tokens", (json_int_t)s->new_tokens, "total_tokens",
                     (json_int_t)(s->prompt_tokens + s->new_tokens), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)s->cached_tokens);
}

json_t *response_usage_chunk(const struct stream *s)
{
    json_t *object = envelope(s, true, json_array());
    json_object_set_new(object, "usage", usage(s));
    return object;
}

#define NO_LOGPROBS "\"logprobs\":null"

/* Quotes inside JSON text are escaped, so that no text contains this. */
static char *with_logprobs(const struct stream *s, const char *json, size_t *bytes)
{
    const struct logprobs *l = &s->logprobs;
    const char *at = strstr(json, NO_LOGPROBS);
    char *text = NULL;
    FILE *out = at ? open_memstream(&text, bytes) : NULL;
    if (!out)
        return NULL;
    fwrite(json, 1, (size_t)(at - json), out);
    fputs(chat(s) ? "\"logprobs\":{\"content\":[" : "\"logprobs\":{\"tokens\":[", out);
    fwrite(l->whole.data, 1, l->whole.bytes, out);
    if (chat(s)) {
        fputs("],\"refusal\":null}", out);
    } else {
        fputs("],\"token_logprobs\":[", out);
        fwrite(l->values.data, 1, l->values.bytes, out);
        fputs("],\"top_logprobs\":null,\"text_offset\":[", out);
        fwrite(l->offsets.data, 1, l->offsets.bytes, out);
        fputs("]}", out);
    }
    fputs(at + sizeof NO_LOGPROBS - 1, out);
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return text;
    free(text);
    return NULL;
}

char *response_whole(const struct stream *s, size_t *bytes)
{
    json_t *content = rpc_text_json(s->out.data ? s->out.data : "", s->out.bytes), *choices;
    if (s->message) {
        json_decref(content);
        choices = json_pack("[{s:i, s:O, s:n, s:s}]", "index", 0, "message", s->message, "logprobs",
                            "finish_reason", s->finish);
    } else if (chat(s))
        choices =
            json_pack("[{s:i, s:{s:s, s:o}, s:n, s:s}]", "index", 0, "message", "role", "assistant",
                      "content", content, "logprobs", "finish_reason", s->finish);
    else
        choices = json_pack("[{s:i, s:o, s:n, s:s}]", "index", 0, "text", content, "logprobs",
                            "finish_reason", s->finish);
    json_t *object = envelope(s, false, choices);
    json_object_set_new(object, "usage", usage(s));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL, *longer;
    json_decref(object);
    *bytes = text ? strlen(text) : 0;
    if (!text || !s->request.logprobs)
        return text;
    longer = with_logprobs(s, text, bytes);
    free(text);
    return longer;
}

json_t *response_models(const struct gateway *g)
{
    return json_pack("{s:s, s:[{s:s, s:s, s:I, s:s}]}", "object", "list", "data", "id",
                     g->model_name, "object", "model", "created", (json_int_t)g->started,
                     "owned_by", "sluice");
}
