/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of the tokens of an answer, as bytes in a counted buffer: JSON values take
 * many times as much memory per token. */
#include <string.h>

#include "lib/text/utf8.h"
#include "procs/engine/gateway/api/completion.h"

/* Before the bytes of each token, which the alternatives follow, each with an entry. */
struct entry {
    double logprob;
    uint32_t offset, bytes, tops;
};

static void add(struct completion *c, struct entry e, const char *text)
{
    buffer_add(c->quota, &c->tokens, &e, sizeof e);
    buffer_add(c->quota, &c->tokens, text, e.bytes);
}

static void keep(struct completion *c, struct entry e, const char *text,
                 const struct engine_top *top)
{
    size_t bytes = sizeof e + e.bytes;
    for (uint32_t i = 0; i < e.tops; i++)
        bytes += sizeof e + top[i].bytes;
    if (!buffer_reserve(c->quota, &c->tokens, bytes)) {
        c->failed = true;
        return;
    }
    add(c, e, text);
    for (uint32_t i = 0; i < e.tops; i++)
        add(c, (struct entry){.logprob = top[i].logprob, .bytes = top[i].bytes}, top[i].text);
}

void tokens_take(struct completion *c, const struct engine_next *next, size_t count)
{
    for (size_t i = 0; i < count && i < next->logprobs_count; i++)
        c->logprob_sum += next->logprobs[i];
    if (!c->request.logprobs)
        return;
    const char *text = next->raw ? next->raw : next->text;
    size_t sum = 0, all = next->raw ? next->raw_bytes : next->text_bytes, at = 0, character = 0;
    for (size_t i = 0; i < next->piece_bytes_count; i++)
        sum += next->piece_bytes[i];
    bool known = next->piece_bytes_count == next->count && sum == all; /* else a wrong reply */
    for (size_t i = 0; i < count && i < next->logprobs_count; i++) {
        size_t bytes = known ? next->piece_bytes[i] : 0, used;
        struct entry e = {.logprob = next->logprobs[i],
                          .offset = (uint32_t)c->characters,
                          .bytes = (uint32_t)bytes,
                          .tops = next->top ? next->top_each : 0};
        keep(c, e, text + at, next->top ? &next->top[i * next->top_each] : NULL);
        for (at += bytes; character < at; character += used, c->characters++)
            (void)utf8_next(text + character, all - character, &used);
    }
}

/* The entry at a place, and its text. Returns what is behind it. */
static const char *read_entry(const char *at, struct token *out)
{
    struct entry e;
    memcpy(&e, at, sizeof e);
    *out = (struct token){.text = at + sizeof e,
                          .bytes = e.bytes,
                          .logprob = e.logprob,
                          .offset = e.offset,
                          .tops = e.tops,
                          .at = at + sizeof e + e.bytes};
    return out->at;
}

bool tokens_next(const struct buffer *tokens, size_t *at, struct token *out)
{
    struct token top;
    if (*at >= tokens->bytes)
        return false;
    const char *end = read_entry(tokens->data + *at, out);
    for (size_t i = 0; i < out->tops; i++)
        end = read_entry(end, &top);
    *at = (size_t)(end - tokens->data);
    return true;
}

bool token_top(struct token *t, struct token *out)
{
    if (t->tops == 0)
        return false;
    t->tops--;
    t->at = read_entry(t->at, out);
    return true;
}
