/* SPDX-License-Identifier: Apache-2.0 */
/* Puts free text and a mark before the text of a grammar. Free text is a machine, too, so that
 * masks, forced text and the end of the answer need nothing else: state i of it has read the first
 * i bytes of the mark. */
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/place.h"

#define AFTER_CLOSE 2 /* line feeds */

/* Room was made before: see room_for. */
static uint32_t add(struct grammar *g, struct node n)
{
    g->nodes[g->nodes_count] = n;
    return g->nodes_count++;
}

static uint32_t either(struct grammar *g, uint32_t a, uint32_t next)
{
    return add(g, (struct node){.op = OP_BRANCH, .a = a, .next = next});
}

static uint32_t byte(struct grammar *g, uint8_t value, uint32_t next)
{
    return add(g, (struct node){.op = OP_BYTE, .byte = value, .next = next});
}

static uint32_t maybe_byte(struct grammar *g, uint8_t value, uint32_t next)
{
    return either(g, byte(g, value, next), next);
}

/* How many first bytes of the mark are the end of its first `count` bytes and `next`. */
static uint32_t matched(const char *mark, uint32_t count, uint8_t next)
{
    for (uint32_t n = count + 1; n > 0; n--)
        if ((uint8_t)mark[n - 1] == next && memcmp(mark, mark + count + 1 - n, n - 1) == 0)
            return n;
    return 0;
}

/* Text up to the first mark, then `next`. optional: the text may also end without it. Parts of the
 * mark may be control tokens: the borders of these change nothing. */
static uint32_t until(struct grammar *g, const char *mark, bool optional, uint32_t next)
{
    uint32_t count = (uint32_t)strlen(mark), state[GRAMMAR_MARK_BYTES_MAX + 1];
    uint32_t tables = g->tables_count;
    for (uint32_t i = 0; i < count; i++) {
        state[i] = add(g, (struct node){.op = OP_TABLE, .a = g->tables_count++});
        if (optional)
            state[i] = either(g, NODE_RETURN, state[i]);
    }
    state[count] = next;
    for (uint32_t i = 0; i < count; i++)
        for (unsigned c = 0; c < 256; c++)
            g->tables[tables + i].next[c] =
                state[c == GRAMMAR_CONTROL_BYTE ? i : matched(mark, i, (uint8_t)c)];
    return state[0];
}

/* Text may follow a control token in a mark, and another one that text: <|open|>think<|sep|>. */
static uint32_t text(struct grammar *g, const char *mark, uint32_t next)
{
    for (size_t i = strlen(mark); i-- > 0;) {
        if (mark[i] == '>' && mark[i + 1])
            next = maybe_byte(g, GRAMMAR_CONTROL_BYTE, next);
        next = byte(g, (uint8_t)mark[i], next);
        if (mark[i] == '<' && i > 0)
            next = maybe_byte(g, GRAMMAR_CONTROL_BYTE, next);
    }
    return next;
}

static uint32_t place(struct grammar *g, const struct grammar_source *s)
{
    uint32_t entry = g->start;
    if (s->trigger)
        entry = until(g, s->trigger, true, maybe_byte(g, GRAMMAR_CONTROL_BYTE, entry));
    if (!s->close)
        return entry;
    uint32_t after = entry;
    for (unsigned i = 0; i < AFTER_CLOSE; i++)
        after = either(g, byte(g, '\n', after), entry);
    after = until(g, s->close, false, maybe_byte(g, GRAMMAR_CONTROL_BYTE, after));
    if (!s->open)
        return after;
    after = text(g, s->open, maybe_byte(g, GRAMMAR_CONTROL_BYTE, after));
    return either(g, maybe_byte(g, GRAMMAR_CONTROL_BYTE, after), entry);
}

static uint32_t bytes_of(const char *mark)
{
    return mark ? (uint32_t)strlen(mark) : 0;
}

static bool room_for(struct grammar *g, const struct grammar_source *s)
{
    uint32_t tables = bytes_of(s->close) + bytes_of(s->trigger);
    uint32_t nodes = 2 * tables + 3 * bytes_of(s->open) + 16;
    struct node *more = realloc(g->nodes, (g->nodes_count + nodes) * sizeof(*more));
    if (more)
        g->nodes = more;
    struct byte_table *wider = realloc(g->tables, (g->tables_count + tables) * sizeof(*wider));
    if (wider)
        g->tables = wider;
    return more && wider;
}

static bool mark_fits(const char *mark)
{
    return !mark || (mark[0] && strlen(mark) <= GRAMMAR_MARK_BYTES_MAX);
}

int place_check(const struct grammar_source *s, struct error *error)
{
    if (!mark_fits(s->open) || !mark_fits(s->close) || !mark_fits(s->trigger))
        return error_set(error, ERR_BAD_INPUT, "grammar: a mark must have 1 to %d bytes",
                         GRAMMAR_MARK_BYTES_MAX);
    if (s->open && !s->close)
        return error_set(error, ERR_BAD_INPUT,
                         "grammar: the mark that opens reasoning needs one that closes it");
    return 0;
}

int place_before(struct grammar *g, const struct grammar_source *s, struct error *error)
{
    if (!s->close && !s->trigger)
        return 0;
    if (!room_for(g, s))
        return error_set(error, ERR_NO_MEMORY, "grammar: no memory for its automaton");
    g->start = place(g, s);
    free(g->need);
    g->need = NULL;
    return program_check(g, error);
}
