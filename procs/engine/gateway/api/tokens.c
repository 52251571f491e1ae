/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of the tokens of an answer, as bytes in a counted buffer: JSON values take
 * many times as much memory per token. */
#include <math.h>
#include <string.h>

#include "lib/text/utf8.h"
#include "procs/engine/gateway/api/completion.h"

#define REPLACEMENT_BYTES 3 /* U+FFFD */

/* Before the bytes of each token, which the alternatives follow. */
struct entry {
    double logprob;
    uint32_t from; /* bytes of the text before it */
    uint32_t offset, bytes, tops;
    uint32_t text_bytes; /* its bytes in the text, where U+FFFD may have replaced some */
    bool content;
};

/* Before the bytes of each alternative: there are up to 20 of each token. */
struct alternative {
    double logprob;
    uint32_t bytes;
};

static void keep(struct completion *c, struct entry e, const char *text,
                 const struct engine_top *top)
{
    size_t bytes = sizeof e + e.bytes;
    for (uint32_t i = 0; i < e.tops; i++)
        bytes += sizeof(struct alternative) + top[i].bytes;
    if (!buffer_reserve(c->quota, &c->tokens, bytes)) {
        completion_does_not_fit(c, bytes);
        return;
    }
    buffer_add(c->quota, &c->tokens, &e, sizeof e);
    buffer_add(c->quota, &c->tokens, text, e.bytes);
    for (uint32_t i = 0; i < e.tops; i++) {
        struct alternative a = {.logprob = top[i].logprob, .bytes = top[i].bytes};
        buffer_add(c->quota, &c->tokens, &a, sizeof a);
        buffer_add(c->quota, &c->tokens, top[i].text, a.bytes);
    }
}

/* The bytes of tokens that are read. */
struct reading {
    const char *text;
    size_t bytes, at; /* at: the characters before it are counted */
    size_t last;      /* bytes of the answer before the last one of them */
};

/* The characters that begin before `to`. */
static void count_characters(struct completion *c, struct reading *r, size_t to)
{
    size_t used;
    for (; r->at < to; r->at += used, c->characters++) {
        r->last = c->text_bytes;
        c->text_bytes +=
            utf8_next(r->text + r->at, r->bytes - r->at, &used) ? used : REPLACEMENT_BYTES;
    }
}

/* Those of the prompt are no choice of the model. */
static void add_logprobs(struct completion *c, const struct engine_next *next, size_t count)
{
    uint64_t prompt = c->request.scored ? c->prompt_tokens : 0;
    for (size_t i = 0; i < count && i < next->logprobs_count; i++)
        if (c->tokens_taken + i >= prompt)
            c->logprob_sum += next->logprobs[i];
}

void tokens_take(struct completion *c, const struct engine_next *next, size_t count)
{
    add_logprobs(c, next, count);
    if (!c->request.logprobs)
        return;
    struct reading r = {.text = next->raw ? next->raw : next->text,
                        .bytes = next->raw ? next->raw_bytes : next->text_bytes};
    size_t sum = 0, at = 0;
    for (size_t i = 0; i < next->piece_bytes_count; i++)
        sum += next->piece_bytes[i];
    bool known = next->piece_bytes_count == next->count && sum == r.bytes; /* else a wrong reply */
    for (size_t i = 0; i < count && i < next->logprobs_count; i++) {
        size_t bytes = known ? next->piece_bytes[i] : 0;
        bool first = c->request.scored && c->tokens_taken == 0;
        struct entry e = {.logprob = first ? NAN : next->logprobs[i],
                          /* of a character's rest, where that begins */
                          .from = (uint32_t)(r.at > at ? r.last : c->text_bytes),
                          .offset = (uint32_t)c->characters,
                          .bytes = (uint32_t)bytes,
                          .tops = next->top && !first ? next->top_each : 0,
                          .content = !completion_splits(c)};
        count_characters(c, &r, at + bytes);
        e.text_bytes = (uint32_t)(c->text_bytes - e.from);
        keep(c, e, r.text + at, next->top ? &next->top[i * next->top_each] : NULL);
        at += bytes;
        c->tokens_taken++;
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
                          .content = e.content,
                          .at = at + sizeof e + e.bytes};
    return out->at;
}

static const char *read_alternative(const char *at, struct token *out)
{
    struct alternative a;
    memcpy(&a, at, sizeof a);
    *out = (struct token){.text = at + sizeof a, .bytes = a.bytes, .logprob = a.logprob};
    return at + sizeof a + a.bytes;
}

bool tokens_next(const struct buffer *tokens, size_t *at, struct token *out)
{
    struct token top;
    if (*at >= tokens->bytes)
        return false;
    const char *end = read_entry(tokens->data + *at, out);
    for (size_t i = 0; i < out->tops; i++)
        end = read_alternative(end, &top);
    *at = (size_t)(end - tokens->data);
    return true;
}

/* What is behind the token at a place. */
static size_t behind(const struct buffer *tokens, size_t at)
{
    struct token t;
    (void)tokens_next(tokens, &at, &t);
    return at;
}

static bool is_of(const struct entry *e, const struct answer_piece *p)
{
    return e->from >= p->from || e->from + e->text_bytes > p->from;
}

size_t tokens_mark(struct buffer *tokens, size_t *at, const struct answer_piece *p)
{
    struct entry e;
    size_t first = SIZE_MAX;
    while (*at < tokens->bytes) {
        memcpy(&e, tokens->data + *at, sizeof e);
        if (e.from >= p->from + p->bytes)
            break;
        e.content = p->part == ANSWER_CONTENT && is_of(&e, p);
        memcpy(tokens->data + *at, &e, sizeof e);
        if (e.content && first == SIZE_MAX)
            first = *at;
        *at = behind(tokens, *at);
    }
    return first == SIZE_MAX ? *at : first;
}

bool token_top(struct token *t, struct token *out)
{
    if (t->tops == 0)
        return false;
    t->tops--;
    t->at = read_alternative(t->at, out);
    return true;
}
