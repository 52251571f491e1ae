/* SPDX-License-Identifier: Apache-2.0 */
/* Checks an automaton before it runs: that no rule begins with itself, and how many
 * frames it takes from each node to the end. With that number, a state is entered only if it can be
 * completed within the depth. */
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/program.h"

#define WORK_MAX 400000000u /* visits of nodes, all sweeps together */

/* Which nodes reach their RETURN without a byte. */
static bool is_nullable(const struct grammar *g, const uint8_t *nullable, uint32_t i)
{
    const struct node *n = &g->nodes[i];
    switch (n->op) {
    case OP_RETURN: return true;
    case OP_BRANCH: return nullable[n->a] || nullable[n->next];
    case OP_CALL: return nullable[n->a] && nullable[n->next];
    case OP_LOOP: return (n->min == 0 || nullable[n->a]) && nullable[n->next];
    default: return false;
    }
}

static uint32_t table_need(const struct grammar *g, const struct node *n)
{
    uint32_t least = NEED_NEVER;
    for (unsigned c = 0; c < 256; c++) {
        uint32_t next = g->tables[n->a].next[c];
        if (g->need[next] < least)
            least = g->need[next];
    }
    return least;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t need_of(const struct grammar *g, uint32_t i)
{
    const struct node *n = &g->nodes[i];
    uint32_t next = g->need[n->next];
    switch (n->op) {
    case OP_RETURN: return 0;
    case OP_BYTE:
    case OP_SET: return next;
    case OP_TABLE: return table_need(g, n);
    case OP_UNLESS: return next < g->need[n->a] ? next : g->need[n->a];
    case OP_BRANCH: return g->need[n->a] < next ? g->need[n->a] : next;
    case OP_CALL: /* a call at the end of a rule puts no frame on the stack */
        return n->next == NODE_RETURN ? g->need[n->a] : larger(g->need[n->a] + 1u, next);
    case OP_LOOP: return n->min == 0 ? next : larger(g->need[n->a] + 1u, next);
    default: return NEED_NEVER;
    }
}

/* Nodes are emitted from the end: most of what a node leads to has a lower number. */
static bool settle(struct grammar *g, uint8_t *nullable, uint64_t *work)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 1; i < g->nodes_count; i++) {
            uint32_t need = need_of(g, i);
            *work += g->nodes[i].op == OP_TABLE ? 256 : 1;
            if (need < g->need[i]) {
                g->need[i] = (uint16_t)need;
                changed = true;
            }
            if (!nullable[i] && is_nullable(g, nullable, i))
                nullable[i] = 1, changed = true;
        }
        if (*work > WORK_MAX)
            return false;
    }
    return true;
}

/* ---- a rule that begins with itself ----
 * Depth-first search over the steps that consume nothing; a cycle with a call in it would put
 * frames on the stack forever. Components as in Tarjan's algorithm. */
struct visit {
    uint32_t node, edge;
};

struct search {
    const struct grammar *g;
    const uint8_t *nullable;
    uint32_t *index, *low, *component; /* index 0: not visited; component 0: still open */
    struct visit *visits;
    uint32_t *open;
    uint32_t visits_count, open_count, next_index, components;
};

/* The edges of a node, 0 and 1; false: there is none. */
static bool edge_of(const struct search *s, uint32_t node, uint32_t edge, uint32_t *to)
{
    const struct node *n = &s->g->nodes[node];
    if (n->op != OP_BRANCH && n->op != OP_CALL && n->op != OP_LOOP)
        return false;
    *to = edge == 0 ? n->a : n->next;
    if (edge == 0)
        return true;
    return n->op == OP_BRANCH || s->nullable[n->a] || (n->op == OP_LOOP && n->min == 0);
}

static void enter(struct search *s, uint32_t node)
{
    s->index[node] = s->low[node] = ++s->next_index;
    s->visits[s->visits_count++] = (struct visit){node, 0};
    s->open[s->open_count++] = node;
}

static void leave(struct search *s)
{
    uint32_t node = s->visits[--s->visits_count].node;
    if (s->visits_count) {
        uint32_t parent = s->visits[s->visits_count - 1].node;
        if (s->low[node] < s->low[parent])
            s->low[parent] = s->low[node];
    }
    if (s->low[node] != s->index[node])
        return;
    s->components++;
    uint32_t member;
    do {
        member = s->open[--s->open_count];
        s->component[member] = s->components;
    } while (member != node);
}

static void search_from(struct search *s, uint32_t root)
{
    enter(s, root);
    while (s->visits_count) {
        struct visit *v = &s->visits[s->visits_count - 1];
        uint32_t to;
        if (v->edge == 2) {
            leave(s);
        } else if (!edge_of(s, v->node, v->edge++, &to)) {
            continue;
        } else if (!s->index[to]) {
            enter(s, to);
        } else if (!s->component[to] && s->index[to] < s->low[v->node]) {
            s->low[v->node] = s->index[to];
        }
    }
}

static bool begins_with_itself(struct search *s)
{
    for (uint32_t i = 0; i < s->g->nodes_count; i++)
        if (!s->index[i])
            search_from(s, i);
    for (uint32_t i = 0; i < s->g->nodes_count; i++) {
        const struct node *n = &s->g->nodes[i];
        if ((n->op == OP_CALL || n->op == OP_LOOP) && s->component[i] == s->component[n->a])
            return true;
    }
    return false;
}

static int check_recursion(const struct grammar *g, const uint8_t *nullable, struct error *error)
{
    uint32_t n = g->nodes_count;
    uint32_t *words = calloc(n, 6 * sizeof(*words));
    if (!words)
        return error_set(error, ERR_NO_MEMORY, "grammar: no memory for its check");
    struct search s = {.g = g,
                       .nullable = nullable,
                       .index = words,
                       .low = words + n,
                       .component = words + 2 * (size_t)n,
                       .open = words + 3 * (size_t)n,
                       .visits = (struct visit *)(words + 4 * (size_t)n)};
    bool recursive = begins_with_itself(&s);
    free(words);
    if (recursive)
        return error_set(
            error, ERR_BAD_INPUT,
            "grammar: a rule begins with itself (left recursion); write the repeated part "
            "behind the first one");
    return 0;
}

/* A loop whose body may be empty needs no least number of times. */
static void relax_loops(struct grammar *g, const uint8_t *nullable)
{
    for (uint32_t i = 0; i < g->nodes_count; i++)
        if (g->nodes[i].op == OP_LOOP && nullable[g->nodes[i].a])
            g->nodes[i].min = 0;
}

static int check(struct grammar *g, uint8_t *nullable, struct error *error)
{
    uint64_t work = 0;
    memset(g->need, 0xFF, g->nodes_count * sizeof(*g->need));
    if (!settle(g, nullable, &work))
        return error_set(error, ERR_BAD_INPUT, "grammar: it is too complex; simplify or divide it");
    if (check_recursion(g, nullable, error) != 0)
        return -1;
    relax_loops(g, nullable);
    if (g->need[g->start] == NEED_NEVER)
        return error_set(error, ERR_BAD_INPUT, "grammar: no text fits it");
    if (g->need[g->start] > g->depth)
        return error_set(error, ERR_BAD_INPUT, "grammar: every text is nested deeper than %u",
                         g->depth);
    return 0;
}

int program_check(struct grammar *g, struct error *error)
{
    uint8_t *nullable = calloc(g->nodes_count, 1);
    g->need = malloc(g->nodes_count * sizeof(*g->need));
    int rc = nullable && g->need
                 ? check(g, nullable, error)
                 : error_set(error, ERR_NO_MEMORY, "grammar: no memory for its check");
    free(nullable);
    return rc;
}
