/* SPDX-License-Identifier: Apache-2.0 */
/* Turns expressions into nodes, from the end to the beginning: each expression is emitted with the
 * node that follows it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/build.h"

#define EMIT_DEPTH 1000 /* of expressions in each other: a frame of emit takes about 200 bytes */

bool build_grow(struct build *b, void *array, uint32_t *room, uint32_t count, size_t element,
                uint32_t limit)
{
    void **at = array;
    if (b->failed != ERR_NONE)
        return false;
    if (count >= limit) {
        b->failed = ERR_BAD_INPUT;
        return false;
    }
    if (count < *room)
        return true;
    uint32_t want = *room < 16 ? 16 : *room * 2;
    void *bigger = realloc(*at, want * element);
    if (!bigger) {
        b->failed = ERR_NO_MEMORY;
        return false;
    }
    *at = bigger;
    *room = want;
    return true;
}

uint32_t build_node(struct build *b, struct node n)
{
    struct grammar *g = b->g;
    if (!build_grow(b, &g->nodes, &b->nodes_room, g->nodes_count, sizeof(n),
                    b->pool->limits->nodes))
        return NODE_NEVER;
    g->nodes[g->nodes_count] = n;
    return g->nodes_count++;
}

uint32_t build_byte(struct build *b, uint8_t byte, uint32_t next)
{
    if (next == NODE_NEVER)
        return NODE_NEVER;
    return build_node(b, (struct node){.op = OP_BYTE, .byte = byte, .next = next});
}

uint32_t build_set(struct build *b, const uint64_t bits[4], uint32_t next)
{
    struct grammar *g = b->g;
    if (!build_grow(b, &g->sets, &b->sets_room, g->sets_count, sizeof(*g->sets),
                    b->pool->limits->nodes))
        return NODE_NEVER;
    memcpy(g->sets[g->sets_count].bits, bits, sizeof(g->sets->bits));
    return build_node(b, (struct node){.op = OP_SET, .a = g->sets_count++, .next = next});
}

uint32_t build_table(struct build *b, const struct byte_table *table)
{
    struct grammar *g = b->g;
    if (!build_grow(b, &g->tables, &b->tables_room, g->tables_count, sizeof(*table),
                    b->pool->limits->tables))
        return NODE_NEVER;
    g->tables[g->tables_count] = *table;
    return build_node(b, (struct node){.op = OP_TABLE, .a = g->tables_count++});
}

static uint32_t branch(struct build *b, uint32_t a, uint32_t next)
{
    if (a == NODE_NEVER || a == next)
        return next;
    return build_node(b, (struct node){.op = OP_BRANCH, .a = a, .next = next});
}

static uint32_t text(struct build *b, uint32_t offset, uint32_t bytes, uint32_t next)
{
    while (bytes-- > 0)
        next = build_byte(b, (uint8_t)b->pool->text[offset + bytes], next);
    return next;
}

static uint8_t byte_at(const struct build *b, uint32_t word, uint32_t position)
{
    return (uint8_t)b->pool->text[b->pool->words[word].offset + position];
}

/* How many bytes behind `position` the sorted words [first, last) have in common. */
static uint32_t common_bytes(const struct build *b, uint32_t first, uint32_t last,
                             uint32_t position)
{
    const struct word *x = &b->pool->words[first], *y = &b->pool->words[last - 1];
    uint32_t n = 0;
    while (position + n < x->bytes && position + n < y->bytes &&
           byte_at(b, first, position + n) == byte_at(b, last - 1, position + n))
        n++;
    return n;
}

/* A tree of the words [first, last), which agree up to `position`. */
static uint32_t words(struct build *b, uint32_t first, uint32_t last, uint32_t position,
                      uint32_t next)
{
    uint32_t from = first, common = common_bytes(b, first, last, position);
    uint32_t at = position + common, entry = NODE_NEVER, branches = 0;
    while (from < last && b->pool->words[from].bytes == at)
        from++;
    struct byte_table *table = from < last ? calloc(1, sizeof(*table)) : NULL;
    if (from < last && !table)
        b->failed = ERR_NO_MEMORY;
    for (uint32_t i = from; i < last && b->failed == ERR_NONE; branches++) {
        uint32_t to = i;
        while (to < last && byte_at(b, to, at) == byte_at(b, i, at))
            to++;
        table->next[byte_at(b, i, at)] = words(b, i, to, at + 1, next);
        i = to;
    }
    if (branches == 1)
        entry = build_byte(b, byte_at(b, from, at), table->next[byte_at(b, from, at)]);
    else if (branches > 1)
        entry = build_table(b, table);
    free(table);
    if (from > first)
        entry = branch(b, entry, next);
    return text(b, b->pool->words[first].offset + position, common, entry);
}

static uint32_t emit(struct build *b, expr_id id, uint32_t next, unsigned depth);

/* Any number of times: a node that calls the body and comes back, or continues. */
static uint32_t star(struct build *b, uint32_t body, uint32_t next)
{
    uint32_t loop = build_node(b, (struct node){.op = OP_BRANCH, .next = next});
    const struct node *n = &b->g->nodes[body];
    struct node back = {.op = OP_CALL, .a = body, .next = loop};
    if (b->failed == ERR_NONE && n->op == OP_SET && n->next == NODE_RETURN)
        back = (struct node){.op = OP_SET, .a = n->a, .next = loop};
    uint32_t again = build_node(b, back);
    if (b->failed == ERR_NONE)
        b->g->nodes[loop].a = again;
    return loop;
}

static uint32_t repeat(struct build *b, const struct expr *e, uint32_t next, unsigned depth)
{
    if (e->min == 0 && e->max == 1)
        return branch(b, emit(b, e->a, next, depth), next);
    uint32_t body = emit(b, e->a, NODE_RETURN, depth), max = e->max;
    if (max == EXPR_UNBOUNDED) {
        next = star(b, body, next);
        max = e->min;
    }
    if (max == 0)
        return next;
    if (max == 1)
        return build_node(b, (struct node){.op = OP_CALL, .a = body, .next = next});
    struct node loop = {.op = OP_LOOP, .a = body, .next = next, .min = e->min, .max = max};
    return build_node(b, loop);
}

static uint32_t class(struct build *b, const struct expr *e, uint32_t next)
{
    uint32_t entry = build_class(b, e->a, e->b);
    const struct node *n = &b->g->nodes[entry];
    if (next == NODE_RETURN)
        return entry;
    if (n->op == OP_SET && n->next == NODE_RETURN)
        return build_node(b, (struct node){.op = OP_SET, .a = n->a, .next = next});
    return build_node(b, (struct node){.op = OP_CALL, .a = entry, .next = next});
}

static uint32_t call(struct build *b, uint32_t entry, uint32_t next)
{
    return next == NODE_RETURN
               ? entry
               : build_node(b, (struct node){.op = OP_CALL, .a = entry, .next = next});
}

/* Sequences and choices lean to the left, so that long ones are loops here. */
static uint32_t emit(struct build *b, expr_id id, uint32_t next, unsigned depth)
{
    const struct expr *e = &b->pool->exprs[id];
    if (depth > EMIT_DEPTH)
        b->failed = ERR_BAD_INPUT;
    if (b->failed != ERR_NONE)
        return NODE_NEVER;
    for (; e->kind == EXPR_KIND_SEQUENCE; e = &b->pool->exprs[e->a])
        next = emit(b, e->b, next, depth + 1);
    uint32_t others = NODE_NEVER;
    for (; e->kind == EXPR_KIND_CHOICE; e = &b->pool->exprs[e->a]) {
        uint32_t last = emit(b, e->b, next, depth + 1);
        others = others == NODE_NEVER ? last : branch(b, last, others);
    }
    uint32_t entry = NODE_NEVER;
    switch (e->kind) {
    case EXPR_KIND_NEVER: break;
    case EXPR_KIND_EMPTY: entry = next; break;
    case EXPR_KIND_TEXT: entry = text(b, e->a, e->b, next); break;
    case EXPR_KIND_CLASS: entry = class(b, e, next); break;
    case EXPR_KIND_REPEAT: entry = repeat(b, e, next, depth + 1); break;
    case EXPR_KIND_RULE: /* patch_calls replaces the rule by its first node */
        entry = build_node(b, (struct node){.op = OP_CALL, .a = e->a, .next = next, .min = 1});
        break;
    case EXPR_KIND_WORDS: entry = words(b, e->a, e->a + e->b, 0, next); break;
    case EXPR_KIND_CHAR: entry = call(b, build_json_char(b), next); break;
    case EXPR_KIND_OTHER_KEY: entry = call(b, build_other_key(b, e->a, e->b), next); break;
    case EXPR_KIND_SEQUENCE: /* the left end of a choice may be one */
        entry = emit(b, (expr_id)(e - b->pool->exprs), next, depth + 1);
        break;
    case EXPR_KIND_CHOICE: break;
    }
    return others == NODE_NEVER ? entry : entry == NODE_NEVER ? others : branch(b, entry, others);
}

/* Calls of rules have min 1 until here. */
static void patch_calls(struct grammar *g, const uint32_t *entries)
{
    for (uint32_t i = 0; i < g->nodes_count; i++) {
        struct node *n = &g->nodes[i];
        if (n->op == OP_CALL && n->min == 1) {
            n->a = entries[n->a];
            n->min = 0;
        }
    }
}

static int build_check(const struct build *b, struct error *error)
{
    const struct grammar_limits *l = b->pool->limits;
    if (b->failed == ERR_NO_MEMORY)
        return error_set(error, ERR_NO_MEMORY, "grammar: no memory for its automaton");
    if (b->failed != ERR_NONE)
        return error_set(
            error, ERR_BAD_INPUT,
            "grammar: the automaton has more than %u nodes or %u tables, or is nested too "
            "deeply; simplify or divide it",
            l->nodes, l->tables);
    return 0;
}

static int make(struct build *b, uint32_t root, struct error *error)
{
    uint32_t *entries = calloc(b->pool->rules_count + 1, sizeof(*entries));
    if (!entries)
        b->failed = ERR_NO_MEMORY;
    build_node(b, (struct node){.op = OP_NEVER});
    build_node(b, (struct node){.op = OP_RETURN});
    for (uint32_t r = 0; r < b->pool->rules_count && b->failed == ERR_NONE; r++)
        entries[r] = emit(b, b->pool->rules[r], NODE_RETURN, 0);
    if (b->failed == ERR_NONE) {
        patch_calls(b->g, entries);
        b->g->start = entries[root];
    }
    free(entries);
    return build_check(b, error) != 0 ? -1 : program_check(b->g, error);
}

int program_make(struct expr_pool *p, uint32_t root, struct grammar **g, struct error *error)
{
    static _Atomic uint64_t last_id;
    if (expr_pool_check(p, error) != 0)
        return -1;
    struct build b = {.pool = p, .g = calloc(1, sizeof(struct grammar))};
    if (!b.g)
        return error_set(error, ERR_NO_MEMORY, "grammar: no memory");
    b.g->depth = p->limits->depth;
    b.g->id = atomic_fetch_add(&last_id, 1) + 1;
    int rc = make(&b, root, error);
    free(b.classes);
    if (rc != 0) {
        grammar_free(b.g);
        return -1;
    }
    *g = b.g;
    return 0;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    free(g->nodes);
    free(g->sets);
    free(g->tables);
    free(g->need);
    free(g);
}

size_t grammar_memory_bytes(const struct grammar *g)
{
    return sizeof(*g) + g->nodes_count * (sizeof(*g->nodes) + sizeof(*g->need)) +
           g->sets_count * sizeof(*g->sets) + g->tables_count * sizeof(*g->tables);
}
