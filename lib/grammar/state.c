/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the automaton over the bytes of a text. All stacks that the text allows are followed; equal
 * ones are one, because equal frames are one. A stack that could not be completed within the depth
 * is never entered, so each of them can continue, and dropping some when there are too many leaves
 * the others complete. */
#include "lib/grammar/state.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct grammar_state) <= GRAMMAR_STATE_BYTES_MAX, "a state has a bound");

struct work {
    uint32_t node, frame, fresh; /* fresh: frames that were put on the stack since the last byte */
};

struct closure {
    struct grammar_state *s;
    struct items *to;
    uint32_t count, visits;
    struct work at[STATE_VISITED];
};

static uint32_t hash(uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu) ^ (c * 0x165667B19E3779F9u);
    return (uint32_t)((h ^ h >> 29) * 0xBF58476D1CE4E5B9u >> 40) % STATE_VISITED;
}

/* The frame, which is made if there is none; 0: no room. */
static uint32_t push(struct grammar_state *s, uint32_t node, uint32_t count, uint32_t parent)
{
    uint32_t *head = &s->heads[hash(node, count, parent)];
    for (uint32_t f = *head; f; f = s->frames[f].chain)
        if (s->frames[f].node == node && s->frames[f].count == count &&
            s->frames[f].parent == parent)
            return f;
    if (s->frames_count == STATE_FRAMES)
        return 0;
    uint32_t f = s->frames_count++;
    s->frames[f] = (struct frame){node, count, parent, s->frames[parent].depth + 1, *head};
    *head = f;
    return f;
}

void state_take_back(struct grammar_state *s, uint32_t count)
{
    while (s->frames_count > count) {
        const struct frame *f = &s->frames[--s->frames_count];
        s->heads[hash(f->node, f->count, f->parent)] = f->chain;
    }
}

static bool first_visit(struct closure *c, struct work w)
{
    struct visit_mark *table = c->s->visited;
    uint32_t i = hash(w.node, w.frame, w.fresh);
    while (table[i].round == c->s->round) {
        if (table[i].node == w.node && table[i].frame == w.frame && table[i].fresh == w.fresh)
            return false;
        i = (i + 1) % STATE_VISITED;
    }
    if (c->visits == STATE_VISITED / 4 * 3)
        return false;
    c->visits++;
    table[i] = (struct visit_mark){w.node, w.frame, w.fresh, c->s->round};
    return true;
}

/* A stack that cannot be completed within the depth is not entered. */
static void consider(struct closure *c, uint32_t node, uint32_t frame, uint32_t fresh)
{
    const struct grammar *g = c->s->g;
    struct work w = {node, frame, fresh};
    if (c->s->frames[frame].depth + g->need[node] <= g->depth && first_visit(c, w))
        c->at[c->count++] = w;
}

static void call(struct closure *c, const struct node *n, struct work w)
{
    if (n->next == NODE_RETURN) {
        consider(c, n->a, w.frame, w.fresh);
        return;
    }
    uint32_t frame = push(c->s, w.node, 0, w.frame);
    if (frame)
        consider(c, n->a, frame, w.fresh + 1);
}

static void iterate(struct closure *c, uint32_t node, uint32_t count, uint32_t parent,
                    uint32_t fresh)
{
    uint32_t frame = push(c->s, node, count, parent);
    if (frame)
        consider(c, c->s->g->nodes[node].a, frame, fresh);
}

/* A time in which nothing was consumed (fresh) ends its loop. */
static void come_back(struct closure *c, struct work w)
{
    if (w.frame == 0) {
        c->to->end = true;
        return;
    }
    struct frame f = c->s->frames[w.frame];
    const struct node *n = &c->s->g->nodes[f.node];
    uint32_t fresh = w.fresh ? w.fresh - 1 : 0;
    if (n->op == OP_CALL) {
        consider(c, n->next, f.parent, fresh);
        return;
    }
    if (!w.fresh && f.count + 1 < n->max)
        iterate(c, f.node, f.count + 1, f.parent, 1);
    if (w.fresh || f.count + 1 >= n->min)
        consider(c, n->next, f.parent, fresh);
}

static void follow(struct closure *c, struct work w)
{
    const struct node *n = &c->s->g->nodes[w.node];
    switch (n->op) {
    case OP_NEVER: break;
    case OP_RETURN: come_back(c, w); break;
    case OP_BRANCH:
        consider(c, n->next, w.frame, w.fresh);
        consider(c, n->a, w.frame, w.fresh);
        break;
    case OP_CALL: call(c, n, w); break;
    case OP_LOOP:
        if (n->min == 0)
            consider(c, n->next, w.frame, w.fresh);
        iterate(c, w.node, 0, w.frame, w.fresh + 1);
        break;
    default:
        if (c->to->count < STATE_ITEMS)
            c->to->at[c->to->count++] = (struct item){w.node, w.frame};
    }
}

static void close_over(struct closure *c)
{
    while (c->count)
        follow(c, c->at[--c->count]);
}

static void closure_begin(struct closure *c, struct grammar_state *s, struct items *to)
{
    c->s = s;
    c->to = to;
    c->count = c->visits = 0;
    to->count = 0;
    to->end = false;
    if (++s->round == 0) { /* marks of rounds long ago would look new */
        memset(s->visited, 0, sizeof(s->visited));
        s->round = 1;
    }
}

uint32_t program_step(const struct grammar *g, uint32_t node, uint8_t byte)
{
    const struct node *n = &g->nodes[node];
    while (n->op == OP_UNLESS) {
        if (n->byte == byte)
            return n->next;
        n = &g->nodes[n->a];
    }
    if (n->op == OP_BYTE)
        return n->byte == byte ? n->next : NODE_NEVER;
    if (n->op == OP_SET)
        return set_has(g->sets[n->a].bits, byte) ? n->next : NODE_NEVER;
    return g->tables[n->a].next[byte];
}

bool state_step(struct grammar_state *s, const struct items *from, uint8_t byte, struct items *to)
{
    struct closure c;
    closure_begin(&c, s, to);
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t next = program_step(s->g, from->at[i].node, byte);
        if (next == NODE_NEVER)
            continue;
        consider(&c, next, from->at[i].frame, 0);
        close_over(&c);
    }
    return to->count > 0 || to->end;
}

/* ---- frames that no stack has any more ---- */

static uint32_t mark(const struct grammar_state *s, uint32_t limit, uint8_t *used, uint32_t frame)
{
    uint32_t added = 0;
    for (uint32_t f = frame; f && !used[f]; f = s->frames[f].parent)
        added++;
    if (added > limit)
        return UINT32_MAX;
    for (uint32_t f = frame; f && !used[f]; f = s->frames[f].parent)
        used[f] = 1;
    return added;
}

/* A frame's parent has a lower number, so they move down in one pass. */
static void move_down(struct grammar_state *s, const uint8_t *used)
{
    uint32_t *moved = s->moved;
    uint32_t count = 1;
    memset(s->heads, 0, sizeof(s->heads));
    for (uint32_t f = 1; f < s->frames_count; f++) {
        if (!used[f])
            continue;
        struct frame new = s->frames[f];
        new.parent = new.parent ? moved[new.parent] : 0;
        uint32_t *head = &s->heads[hash(new.node, new.count, new.parent)];
        new.chain = *head;
        *head = moved[f] = count;
        s->frames[count++] = new;
    }
    s->frames_count = count;
    for (uint32_t i = 0; i < s->now.count; i++)
        s->now.at[i].frame = s->now.at[i].frame ? moved[s->now.at[i].frame] : 0;
}

void state_compact(struct grammar_state *s)
{
    uint8_t used[STATE_FRAMES] = {0};
    uint32_t kept = 0, room = STATE_FRAMES / 2;
    for (uint32_t i = 0; i < s->now.count; i++) {
        struct item item = s->now.at[i];
        uint32_t added = mark(s, room, used, item.frame);
        if (added == UINT32_MAX)
            continue;
        room -= added;
        s->now.at[kept++] = item;
    }
    s->now.count = kept;
    move_down(s, used);
}

/* ---- the interface ---- */

struct grammar_state *grammar_start(const struct grammar *g)
{
    struct grammar_state *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    struct closure c;
    s->g = g;
    s->frames_count = 1;
    closure_begin(&c, s, &s->now);
    consider(&c, g->start, 0, 0);
    close_over(&c);
    return s;
}

struct grammar_state *grammar_clone(const struct grammar_state *s)
{
    struct grammar_state *copy = malloc(sizeof(*copy));
    if (copy)
        memcpy(copy, s, sizeof(*copy));
    return copy;
}

void grammar_stop(struct grammar_state *s)
{
    free(s);
}

static void items_copy(struct items *to, const struct items *from)
{
    to->count = from->count;
    to->end = from->end;
    memcpy(to->at, from->at, from->count * sizeof(from->at[0]));
}

bool grammar_accept(struct grammar_state *s, uint8_t byte)
{
    if (s->frames_count > STATE_FRAMES / 2)
        state_compact(s);
    uint32_t frames = s->frames_count;
    if (!state_step(s, &s->now, byte, &s->then)) {
        state_take_back(s, frames);
        return false;
    }
    items_copy(&s->now, &s->then);
    return true;
}

size_t grammar_accept_text(struct grammar_state *s, const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && grammar_accept(s, (uint8_t)text[i]))
        i++;
    return i;
}

bool grammar_is_end(const struct grammar_state *s)
{
    return s->now.end;
}

bool grammar_continues(const struct grammar_state *s)
{
    return s->now.count > 0;
}

static void table_bytes(const struct grammar *g, uint32_t node, uint32_t depth, uint64_t set[4])
{
    for (unsigned c = 0; c < 256; c++) {
        uint32_t next = program_step(g, node, (uint8_t)c);
        if (next != NODE_NEVER && depth + g->need[next] <= g->depth)
            set_add(set, (uint8_t)c);
    }
}

/* Side by side there are often stacks that differ in a counter only. */
void items_bytes(const struct grammar_state *s, const struct items *items, uint64_t set[4])
{
    const struct grammar *g = s->g;
    uint32_t last_node = NODE_NEVER, last_depth = 0;
    memset(set, 0, 4 * sizeof(set[0]));
    for (uint32_t i = 0; i < items->count; i++) {
        uint32_t node = items->at[i].node, depth = s->frames[items->at[i].frame].depth;
        const struct node *n = &g->nodes[node];
        if (node == last_node && depth == last_depth)
            continue;
        last_node = node;
        last_depth = depth;
        if (n->op == OP_BYTE)
            set_add(set, n->byte);
        else if (n->op == OP_SET)
            for (unsigned w = 0; w < 4; w++)
                set[w] |= g->sets[n->a].bits[w];
        else
            table_bytes(g, node, depth, set);
    }
}

void grammar_next_bytes(const struct grammar_state *s, uint64_t set[4])
{
    items_bytes(s, &s->now, set);
}

/* The byte of a set of one; false: there are none or more. */
static bool only_byte(const uint64_t set[4], uint8_t *byte)
{
    int found = -1;
    for (int i = 0; i < 4; i++) {
        if (set[i] == 0)
            continue;
        if (found >= 0 || (set[i] & (set[i] - 1)))
            return false;
        found = i * 64 + __builtin_ctzll(set[i]);
    }
    *byte = (uint8_t)found;
    return found >= 0;
}

size_t grammar_forced(struct grammar_state *s, char *out, size_t max, bool *whole)
{
    const struct items *from = &s->now;
    size_t count = 0;
    if (s->frames_count > STATE_FRAMES / 2)
        state_compact(s);
    uint32_t frames = s->frames_count;
    while (count < max && !from->end) {
        struct items *to = from == &s->then ? &s->spare : &s->then;
        uint64_t set[4];
        uint8_t byte;
        items_bytes(s, from, set);
        if (!only_byte(set, &byte) || !state_step(s, from, byte, to))
            break;
        out[count++] = (char)byte;
        from = to;
    }
    if (whole)
        *whole = from->end && from->count == 0;
    state_take_back(s, frames);
    return count;
}
