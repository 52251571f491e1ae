/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of every grammar that was accepted: there is a walk that the input's bytes
 * choose, in which each byte that is announced is accepted, and no other. */
#ifndef SLUICE_FUZZ_GRAMMAR_WALK_H
#define SLUICE_FUZZ_GRAMMAR_WALK_H

#include <string.h>

#include "lib/base/assert.h"
#include "lib/grammar/grammar.h"

#define WALK_LIMITS                                                                                \
    {                                                                                              \
        .text_bytes = 1 << 14, .expressions = 20000, .nodes = 20000, .tables = 128,                \
        .repeat = 1000, .depth = 20                                                                \
    }

/* The n-th byte of a set that is not empty. */
static uint8_t walk_byte(const uint64_t set[4], unsigned n)
{
    unsigned c = n & 255;
    while (!(set[c >> 6] >> (c & 63) & 1))
        c = (c + 1) & 255;
    return (uint8_t)c;
}

static void walk_forced(struct grammar_state *s)
{
    char forced[16];
    size_t n = grammar_forced(s, forced, sizeof(forced), NULL);
    sl_assert(grammar_accept_text(s, forced, n) == n);
}

static void grammar_walk(const struct grammar *g, const uint8_t *choices, size_t count)
{
    struct grammar_state *s = grammar_start(g);
    sl_assert(s);
    for (size_t i = 0; i < count && i < 100; i++) {
        uint64_t set[4];
        grammar_next_bytes(s, set);
        bool any = set[0] || set[1] || set[2] || set[3];
        sl_assert(any == grammar_continues(s) && (any || grammar_is_end(s)));
        uint8_t other = (uint8_t)(choices[i] ^ 0x55);
        if (!(set[other >> 6] >> (other & 63) & 1))
            sl_assert(!grammar_accept(s, other));
        if (!any)
            break;
        sl_assert(grammar_accept(s, walk_byte(set, choices[i])));
        if (i % 8 == 7)
            walk_forced(s);
    }
    grammar_stop(s);
}

static void grammar_refused(const struct error *error)
{
    sl_assert(error->code == ERR_BAD_INPUT && error->text[0] && !strchr(error->text, '\n'));
}

#endif
