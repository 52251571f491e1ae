/* Log-probabilities of what is told, and which tokens those are. A token is told with the text it
 * begins in: one that begins in text held back, because a stop may begin there, is held as well,
 * and is no part of the answer when the stop comes. Everything that is kept is text in counted
 * buffers: as JSON objects a token costs ten times as much. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/gateway/gateway.h"

#define LEAST_LOGPROB (-9999.0) /* as OpenAI writes an impossible one */

struct held_token {
    double logprob;
    size_t bytes; /* of its text; 0 when nobody knows */
};

/* One walk over the tokens of a reply and those held before it. */
struct walk {
    struct stream *stream;
    const char *text;
    size_t told;
    json_t *entries;    /* NULL: nobody asked for log-probabilities */
    struct buffer rest; /* not told yet */
};

static size_t characters(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static json_t *bytes_json(const char *text, size_t bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(array, json_integer((unsigned char)text[i]));
    return array;
}

static void tell_token(struct walk *w, const struct held_token *token, const char *text)
{
    struct logprobs *l = &w->stream->logprobs;
    json_array_append_new(w->entries,
                          json_pack("{s:o, s:f, s:o, s:[], s:I}", "token",
                                    rpc_text_json(text, token->bytes), "logprob", token->logprob,
                                    "bytes", bytes_json(text, token->bytes), "top_logprobs",
                                    "offset", (json_int_t)l->offset));
    l->offset += characters(text, token->bytes);
}

/* A token whose text begins at `at`. */
static void take(struct walk *w, const struct held_token *token, size_t at)
{
    struct stream *s = w->stream;
    bool begun = at < w->told || (token->bytes == 0 && at == w->told);
    if (begun && w->entries) {
        tell_token(w, token, w->text + at);
    } else if (!begun) {
        if (w->rest.bytes == 0)
            s->logprobs.held_at = at - w->told;
        if (!buffer_add(&s->gateway->quota, &w->rest, token, sizeof *token))
            s->failed = true;
    }
}

static void take_held(struct walk *w)
{
    const struct logprobs *l = &w->stream->logprobs;
    size_t at = l->held_at, count = logprobs_held(w->stream);
    for (size_t i = 0; i < count; i++) {
        struct held_token token;
        memcpy(&token, l->held.data + i * sizeof token, sizeof token);
        take(w, &token, at);
        at += token.bytes;
    }
}

static void take_reply(struct walk *w, const struct engine_next *next)
{
    size_t at = w->stream->tail_bytes, sum = 0;
    bool wanted = w->entries != NULL;
    size_t count =
        wanted && next->logprobs_count < next->count ? next->logprobs_count : next->count;
    for (size_t i = 0; i < next->piece_bytes_count; i++)
        sum += next->piece_bytes[i];
    /* Bytes that are no UTF-8 were replaced: then nobody knows which token they were of. */
    bool known = next->piece_bytes_count == next->count && sum == next->text_bytes;
    for (size_t i = 0; i < count; i++) {
        struct held_token token = {0, known ? next->piece_bytes[i] : 0};
        if (wanted)
            token.logprob = next->logprobs[i] < LEAST_LOGPROB ? LEAST_LOGPROB : next->logprobs[i];
        else if (i + 1 == count) /* lengths were not asked for: mostly there is but one */
            token.bytes = next->text_bytes;
        take(w, &token, at);
        at += token.bytes;
    }
}

json_t *logprobs_take(struct stream *s, const struct engine_next *next, const char *text,
                      size_t told)
{
    struct logprobs *l = &s->logprobs;
    if (!s->request.logprobs && s->request.stops_count == 0)
        return NULL;
    struct walk w = {.stream = s,
                     .text = text,
                     .told = told,
                     .entries = s->request.logprobs ? json_array() : NULL};
    take_held(&w);
    take_reply(&w, next);
    buffer_free(&s->gateway->quota, &l->held);
    l->held = w.rest;
    return w.entries;
}

size_t logprobs_held(const struct stream *s)
{
    return s->logprobs.held.bytes / sizeof(struct held_token);
}

/* Appends a value to a list without its brackets. */
static void keep(struct stream *s, struct buffer *list, const json_t *value)
{
    struct quota *q = &s->gateway->quota;
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (!text || (list->bytes > 0 && !buffer_add(q, list, ",", 1)) ||
        !buffer_add(q, list, text, strlen(text)))
        s->failed = true;
    free(text);
}

void logprobs_keep(struct stream *s, json_t *entries)
{
    struct logprobs *l = &s->logprobs;
    for (size_t i = 0; i < json_array_size(entries) && !s->failed; i++) {
        json_t *entry = json_array_get(entries, i);
        if (s->request.kind == API_CHAT) {
            json_object_del(entry, "offset");
            keep(s, &l->whole, entry);
        } else {
            keep(s, &l->whole, json_object_get(entry, "token"));
            keep(s, &l->values, json_object_get(entry, "logprob"));
            keep(s, &l->offsets, json_object_get(entry, "offset"));
        }
    }
    json_decref(entries);
}

void logprobs_free(struct stream *s)
{
    struct logprobs *l = &s->logprobs;
    struct buffer *const buffers[] = {&l->held, &l->whole, &l->values, &l->offsets};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        buffer_free(&s->gateway->quota, buffers[i]);
}
