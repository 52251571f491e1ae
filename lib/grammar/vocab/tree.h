/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a vocabulary, for masks. */
#ifndef SLUICE_GRAMMAR_TREE_H
#define SLUICE_GRAMMAR_TREE_H

#include <stdbool.h>

#include "lib/grammar/vocab/vocab.h"

#define TREE_NO_TOKEN UINT32_MAX

struct tree_node {
    uint32_t token; /* one with this text, or TREE_NO_TOKEN; the others: vocab.same */
    uint32_t end;   /* the first node behind this branch */
    uint16_t depth; /* from 1 */
    uint8_t byte;
};

struct tree {
    struct tree_node *nodes;
    uint32_t nodes_count;
};

struct vocab {
    struct tree all;
    struct tree rest;     /* without the plain tokens */
    uint16_t *characters; /* per token: of those that are plain only (tree_plain); others: 0 */
    uint8_t *first;       /* per token: the first byte of its text */
    uint32_t *same;       /* per token: another one with the same text, or TREE_NO_TOKEN */
    uint32_t tokens, deepest;
};

/* Most tokens consist of such characters: all but the controls, quotes and backslashes that a JSON
 * string treats differently, and the characters that marks begin with. Where a state takes each of
 * them and is then as before, plain tokens need no walk: only their characters count. */
static inline bool tree_plain(uint8_t ascii)
{
    return ascii >= ' ' && ascii < 0x7F && ascii != '"' && ascii != '\\' && ascii != '<' &&
           ascii != '[';
}

#endif
