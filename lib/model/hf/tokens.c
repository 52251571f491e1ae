/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json part by part. Its vocabulary and merges, almost all of it, go into arrays;
 * the rest, by which text is prepared, becomes a JSON object. So memory is about that of the
 * texts: a document of jansson takes twenty times the file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/text/printable.h"
#include "lib/text/strtab.h"

#define CHUNK_BYTES (256 * KIB)

/* ---- texts ---- */

struct hf_chunk {
    struct hf_chunk *next;
    size_t used, capacity;
    char text[];
};

char *hf_tokens_text(struct hf_tokens *t, size_t bytes)
{
    struct hf_chunk *c = t->chunks;
    if (!c || c->capacity - c->used <= bytes) {
        size_t capacity = bytes >= CHUNK_BYTES ? bytes + 1 : CHUNK_BYTES;
        c = malloc(sizeof *c + capacity);
        if (!c)
            return NULL;
        *c = (struct hf_chunk){.next = t->chunks, .capacity = capacity};
        t->chunks = c;
    }
    char *text = c->text + c->used;
    text[bytes] = 0;
    c->used += bytes + 1;
    return text;
}

static const char *text_copy(struct hf_tokens *t, struct json_reader *r)
{
    char *text = hf_tokens_text(t, json_reader_bytes(r));
    if (!text)
        json_reader_fail(r, ERR_NO_MEMORY, "out of memory (tokens)");
    else
        memcpy(text, json_reader_text(r), json_reader_bytes(r));
    return text;
}

void hf_tokens_free(struct hf_tokens *t)
{
    for (struct hf_chunk *next, *c = t->chunks; c; c = next) {
        next = c->next;
        free(c);
    }
    json_decref(t->rest);
    free(t->merges);
    free(t->in_vocab);
    free(t->pads);
    free(t->type);
    free(t->text);
    *t = (struct hf_tokens){0};
}

/* ---- errors of the contents: the reader keeps the first one ---- */

static void bad(struct json_reader *r, const char *what)
{
    json_reader_fail(r, ERR_BAD_INPUT, what);
}

static bool number_fits(struct json_reader *r, const struct hf_tokens *t, const char *text,
                        bool integer, int64_t id)
{
    char what[256];
    if (integer && id >= 0 && id < (int64_t)t->count)
        return true;
    snprintf(what, sizeof what, "token '%s' has no number below the %" PRIu32 " of config.json",
             printable(text, strlen(text)).text, t->count);
    bad(r, what);
    return false;
}

/* ---- tokens ---- */

/* The vocabulary. An added token may also be in it, before or after it in the file: the added entry
 * replaces that one. */
static void read_vocab(struct json_reader *r, struct hf_tokens *t)
{
    char what[64];
    if (json_next(r) != JSON_EVENT_OBJECT)
        bad(r, "its vocabulary is not an object");
    while (json_next(r) == JSON_EVENT_KEY) {
        const char *text = text_copy(t, r);
        bool integer = json_next(r) == JSON_EVENT_INTEGER;
        int64_t id = json_reader_integer(r);
        if (!text || json_last_event(r) == JSON_EVENT_ERROR ||
            !number_fits(r, t, text, integer, id))
            return;
        if (t->in_vocab[id]) {
            snprintf(what, sizeof what, "two tokens have the number %" PRId64, id);
            bad(r, what);
            return;
        }
        t->in_vocab[id] = true;
        if (t->text[id])
            continue;
        t->text[id] = text;
        t->type[id] = TOKEN_NORMAL;
    }
}

static void put_added(struct json_reader *r, struct hf_tokens *t, const json_t *added, size_t i)
{
    const char *content = json_string_value(json_object_get(added, "content"));
    const json_t *number = json_object_get(added, "id");
    bool special = json_is_true(json_object_get(added, "special"));
    char what[64];
    if (!content) {
        snprintf(what, sizeof what, "added token %zu has no content", i);
        bad(r, what);
        return;
    }
    int64_t id = json_integer_value(number);
    if (!number_fits(r, t, content, json_is_integer(number), id))
        return;
    char *text = hf_tokens_text(t, strlen(content));
    if (!text) {
        json_reader_fail(r, ERR_NO_MEMORY, "out of memory (tokens)");
        return;
    }
    strcpy(text, content);
    t->text[id] = text;
    t->type[id] = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
}

static void read_added(struct json_reader *r, struct hf_tokens *t)
{
    json_t *added;
    if (json_next(r) != JSON_EVENT_ARRAY) {
        if (json_last_event(r) != JSON_EVENT_NULL)
            bad(r, "its added tokens are not an array");
        return;
    }
    for (size_t i = 0; (added = json_read_value(r)); i++) {
        put_added(r, t, added, i);
        json_decref(added);
    }
}

/* ---- merges ---- */

static bool has_space(const struct json_reader *r)
{
    return memchr(json_reader_text(r), ' ', json_reader_bytes(r)) != NULL;
}

/* ["left", "right"], of newer files, as "left right". NULL: it is something else. */
static const char *read_pair(struct json_reader *r, struct hf_tokens *t)
{
    if (json_next(r) != JSON_EVENT_STRING || has_space(r))
        return NULL;
    size_t left = json_reader_bytes(r);
    char *kept = malloc(left + 1);
    if (!kept)
        return NULL;
    memcpy(kept, json_reader_text(r), left);
    char *text = json_next(r) == JSON_EVENT_STRING && !has_space(r)
                     ? hf_tokens_text(t, left + 1 + json_reader_bytes(r))
                     : NULL;
    if (text) {
        memcpy(text, kept, left);
        text[left] = ' ';
        memcpy(text + left + 1, json_reader_text(r), json_reader_bytes(r));
    }
    free(kept);
    return text && json_next(r) == JSON_EVENT_ARRAY_END ? text : NULL;
}

static bool put_merge(struct json_reader *r, struct hf_tokens *t, const char *text)
{
    char what[64];
    if (!text) {
        snprintf(what, sizeof what, "merge %" PRIu32 " is not two tokens", t->merge_count);
        bad(r, what);
        return false;
    }
    if (t->merge_count == TOKENIZER_MERGES_MAX) {
        snprintf(what, sizeof what, "more than %u merges", TOKENIZER_MERGES_MAX);
        bad(r, what);
        return false;
    }
    if (t->merge_count == t->merge_capacity) {
        uint32_t capacity = t->merge_capacity ? 2 * t->merge_capacity : 4096;
        const char **bigger = reallocarray(t->merges, capacity, sizeof *bigger);
        if (!bigger) {
            json_reader_fail(r, ERR_NO_MEMORY, "out of memory (merges)");
            return false;
        }
        t->merges = bigger;
        t->merge_capacity = capacity;
    }
    t->merges[t->merge_count++] = text;
    return true;
}

static void read_merges(struct json_reader *r, struct hf_tokens *t)
{
    if (json_next(r) != JSON_EVENT_ARRAY)
        bad(r, "its merges are not an array");
    for (;;) {
        const char *text = NULL;
        switch (json_next(r)) {
        case JSON_EVENT_ARRAY_END:
        case JSON_EVENT_ERROR: return;
        case JSON_EVENT_STRING: text = text_copy(t, r); break;
        case JSON_EVENT_ARRAY: text = read_pair(r, t); break;
        default: break;
        }
        if (!put_merge(r, t, text))
            return;
    }
}

/* ---- the document ---- */

/* A part that prepares text, or a flag of the model. */
static void read_rest(struct json_reader *r, json_t *into, const char *name)
{
    json_t *value = json_read_value(r);
    if (value && json_object_get(into, name))
        bad(r, "invalid JSON: duplicate key");
    if (value)
        json_object_set_new_nocheck(into, name, value);
}

static bool among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static void read_model(struct json_reader *r, struct hf_tokens *t)
{
    static const char *const used[] = {"type", "byte_fallback", "ignore_merges", "unk_token"};
    char name[32];
    json_t *model = json_object();
    if (!model || json_object_get(t->rest, "model"))
        bad(r, "invalid JSON: duplicate key");
    if (json_next(r) != JSON_EVENT_OBJECT)
        bad(r, "its model is not an object");
    while (json_next(r) == JSON_EVENT_KEY) {
        snprintf(name, sizeof name, "%s", json_reader_text(r));
        bool vocab = strcmp(name, "vocab") == 0, merges = strcmp(name, "merges") == 0;
        if ((vocab && t->has_vocab) || (merges && t->merges))
            bad(r, "invalid JSON: duplicate key");
        t->has_vocab = t->has_vocab || vocab;
        if (vocab)
            read_vocab(r, t);
        else if (merges)
            read_merges(r, t);
        else if (among(name, used, ARRAY_LEN(used)))
            read_rest(r, model, name);
        else
            json_skip_value(r);
    }
    json_object_set_new(t->rest, "model", model);
}

static void read_document(struct json_reader *r, struct hf_tokens *t)
{
    static const char *const used[] = {"normalizer", "pre_tokenizer", "post_processor"};
    char name[32];
    if (json_next(r) != JSON_EVENT_OBJECT)
        bad(r, "not a JSON object");
    while (json_next(r) == JSON_EVENT_KEY) {
        snprintf(name, sizeof name, "%s", json_reader_text(r));
        if (strcmp(name, "model") == 0)
            read_model(r, t);
        else if (strcmp(name, "added_tokens") == 0)
            read_added(r, t);
        else if (among(name, used, ARRAY_LEN(used)))
            read_rest(r, t->rest, name);
        else
            json_skip_value(r);
    }
}

/* Adds unused tokens: the embedding may have more rows than the vocabulary has tokens. */
static void fill_holes(struct hf_tokens *t)
{
    for (uint32_t id = 0; id < t->count; id++) {
        if (t->text[id])
            continue;
        snprintf(t->pads[id], HF_PAD_BYTES, "[PAD%" PRIu32 "]", id);
        t->text[id] = t->pads[id];
        t->type[id] = TOKEN_UNUSED;
    }
}

static int check_distinct(const struct hf_tokens *t, struct error *error)
{
    struct strtab names;
    int status = 0;
    if (!strtab_init(&names, t->count))
        return error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    for (uint32_t i = 0; i < t->count && status == 0; i++)
        if (t->type[i] == TOKEN_NORMAL &&
            strtab_put(&names, t->text[i], (uint32_t)strlen(t->text[i]), i) != STRTAB_NONE)
            status = error_set(error, ERR_BAD_INPUT, "token '%s' is in the vocabulary twice",
                               printable(t->text[i], strlen(t->text[i])).text);
    strtab_free(&names);
    return status;
}

int hf_tokens_open(struct hf_tokens *t, uint32_t vocab, struct error *error)
{
    *t = (struct hf_tokens){.count = vocab};
    t->text = calloc(vocab, sizeof *t->text);
    t->type = calloc(vocab, sizeof *t->type);
    t->pads = calloc(vocab, sizeof *t->pads);
    t->in_vocab = calloc(vocab, sizeof *t->in_vocab);
    t->rest = json_object();
    if (!t->text || !t->type || !t->pads || !t->in_vocab || !t->rest)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tokens)", vocab);
    return 0;
}

int hf_tokens_end(struct hf_tokens *t, struct error *error)
{
    if (check_distinct(t, error))
        return -1;
    fill_holes(t);
    return 0;
}

int hf_tokens_read(struct hf_tokens *t, struct json_reader *r, uint32_t vocab, struct error *error)
{
    if (hf_tokens_open(t, vocab, error))
        return -1;
    read_document(r, t);
    return json_reader_end(r, error) ? -1 : hf_tokens_end(t, error);
}
