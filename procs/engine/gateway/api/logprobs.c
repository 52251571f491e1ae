/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of sent tokens, stored as text in counted buffers: JSON objects take ten times
 * as much memory per token. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/text/utf8.h"
#include "procs/engine/gateway/gateway.h"

#define LOGPROB_MIN (-9999.0) /* the value that OpenAI uses for an impossible token */

static json_t *bytes_json(const char *text, size_t bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(array, json_integer((unsigned char)text[i]));
    return array;
}

static json_t *entry(const char *text, size_t bytes, double logprob, size_t offset)
{
    return json_pack("{s:o, s:f, s:o, s:[], s:I}", "token", rpc_text_json(text, bytes), "logprob",
                     logprob < LOGPROB_MIN ? LOGPROB_MIN : logprob, "bytes",
                     bytes_json(text, bytes), "top_logprobs", "offset", (json_int_t)offset);
}

json_t *logprobs_take(struct stream *s, const struct engine_next *next, size_t count)
{
    if (!s->request.logprobs)
        return NULL;
    const char *text = next->raw ? next->raw : next->text;
    size_t sum = 0, all = next->raw ? next->raw_bytes : next->text_bytes, at = 0, character = 0;
    json_t *entries = json_array();
    for (size_t i = 0; i < next->piece_bytes_count; i++)
        sum += next->piece_bytes[i];
    bool known = next->piece_bytes_count == next->count && sum == all; /* else a wrong reply */
    for (size_t i = 0; i < count && i < next->logprobs_count; i++) {
        size_t bytes = known ? next->piece_bytes[i] : 0;
        json_array_append_new(entries,
                              entry(text + at, bytes, next->logprobs[i], s->logprobs.offset));
        size_t used;
        for (at += bytes; character < at; character += used, s->logprobs.offset++)
            (void)utf8_next(text + character, all - character, &used);
    }
    return entries;
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
    struct buffer *const buffers[] = {&l->whole, &l->values, &l->offsets};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        buffer_free(&s->gateway->quota, buffers[i]);
}
