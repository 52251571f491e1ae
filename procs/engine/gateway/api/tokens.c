/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of the tokens of an answer, as bytes in a counted buffer: JSON values take
 * many times as much memory per token. */
#include <string.h>

#include "lib/text/utf8.h"
#include "procs/engine/gateway/api/completion.h"

/* Before the bytes of each token. */
struct entry {
    double logprob;
    uint32_t offset, bytes;
};

static void keep(struct completion *c, const char *text, size_t bytes, double logprob)
{
    struct entry e = {
        .logprob = logprob, .offset = (uint32_t)c->characters, .bytes = (uint32_t)bytes};
    if (!buffer_reserve(c->quota, &c->tokens, sizeof e + bytes)) {
        c->failed = true;
        return;
    }
    buffer_add(c->quota, &c->tokens, &e, sizeof e);
    buffer_add(c->quota, &c->tokens, text, bytes);
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
        keep(c, text + at, bytes, next->logprobs[i]);
        for (at += bytes; character < at; character += used, c->characters++)
            (void)utf8_next(text + character, all - character, &used);
    }
}

bool tokens_next(const struct buffer *tokens, size_t *at, struct token *out)
{
    struct entry e;
    if (*at >= tokens->bytes)
        return false;
    memcpy(&e, tokens->data + *at, sizeof e);
    *out = (struct token){.text = tokens->data + *at + sizeof e,
                          .bytes = e.bytes,
                          .logprob = e.logprob,
                          .offset = e.offset};
    *at += sizeof e + e.bytes;
    return true;
}
