/* SPDX-License-Identifier: Apache-2.0 */
/* Draws synthetic token ids. */
#include "lib/synthetic/token_stream.h"

#include "lib/base/assert.h"

void token_stream_start(struct token_stream *s, uint64_t seed, double stay, uint32_t vocab)
{
    sl_assert(vocab > 0);
    *s = (struct token_stream){.stay = stay, .vocab = vocab};
    random_seed(&s->random, seed, 0);
}

uint32_t token_stream_next(struct token_stream *s)
{
    uint32_t groups = (s->vocab + TOKEN_GROUP - 1) / TOKEN_GROUP;
    if (!s->started || random_unit(&s->random) >= s->stay)
        s->group = (uint32_t)random_below(&s->random, groups);
    s->started = true;
    uint32_t first = s->group * TOKEN_GROUP, left = s->vocab - first;
    return first + (uint32_t)random_below(&s->random, left < TOKEN_GROUP ? left : TOKEN_GROUP);
}

void token_stream_fill(uint64_t seed, double stay, uint32_t vocab, uint32_t *ids, size_t count)
{
    struct token_stream s;
    token_stream_start(&s, seed, stay, vocab);
    for (size_t i = 0; i < count; i++)
        ids[i] = token_stream_next(&s);
}
