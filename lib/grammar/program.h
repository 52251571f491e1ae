/* SPDX-License-Identifier: Apache-2.0 */
/* The automaton: nodes that consume a byte, branch, call, repeat or return. A CALL and a LOOP put a
 * frame on the stack, RETURN takes it off. */
#ifndef SLUICE_GRAMMAR_PROGRAM_H
#define SLUICE_GRAMMAR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/grammar/expr.h"
#include "lib/grammar/grammar.h"

enum { NODE_NEVER, NODE_RETURN }; /* the first two nodes of each program */

enum op {
    OP_NEVER,
    OP_RETURN,
    OP_BYTE,   /* `byte`, then next */
    OP_SET,    /* a byte of set a, then next */
    OP_TABLE,  /* a byte, then the node that table a has for it */
    OP_UNLESS, /* `byte`, then next; any other byte as node a, a table, has it */
    OP_BRANCH, /* a or next */
    OP_CALL,   /* a up to its RETURN, then next */
    OP_LOOP,   /* a up to its RETURN, min to max times, then next */
};

struct node {
    uint8_t op, byte;
    uint32_t a, next, min, max;
};

struct byte_set {
    uint64_t bits[4];
};

struct byte_table {
    uint32_t next[256];
};

struct grammar {
    struct node *nodes;
    struct byte_set *sets;
    struct byte_table *tables;
    uint16_t *need; /* frames to put on the stack from a node to the end; NEED_NEVER: no end */
    uint32_t nodes_count, sets_count, tables_count;
    uint32_t start, depth;
    uint64_t id; /* no other grammar of this process has it, also not a later one */
};
#define NEED_NEVER UINT16_MAX

static inline bool set_has(const uint64_t bits[4], uint8_t byte)
{
    return bits[byte >> 6] >> (byte & 63) & 1;
}

static inline void set_add(uint64_t bits[4], uint8_t byte)
{
    bits[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

/* Where a byte leads from a node that consumes one; NODE_NEVER: nowhere. */
uint32_t program_step(const struct grammar *g, uint32_t node, uint8_t byte);

/* The automaton of rule `root`. -1 with ERR_BAD_INPUT (too large; a rule that begins with itself;
 * no text fits) or ERR_NO_MEMORY. */
int program_make(struct expr_pool *p, uint32_t root, struct grammar **g, struct error *error);

/* Fills g->need; -1 as program_make. */
int program_check(struct grammar *g, struct error *error);

#endif
