/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a vocabulary, for masks. */
#ifndef SLUICE_GRAMMAR_TREE_H
#define SLUICE_GRAMMAR_TREE_H

#include "lib/grammar/vocab/vocab.h"

#define TREE_NO_TOKEN UINT32_MAX

struct tree_node {
    uint32_t token; /* one with this text, or TREE_NO_TOKEN; the others: vocab.same */
    uint32_t end;   /* the first node behind this branch */
    uint16_t depth; /* from 1 */
    uint8_t byte;
};

struct vocab {
    struct tree_node *nodes;
    uint32_t *same; /* per token: another one with the same text, or TREE_NO_TOKEN */
    uint32_t tokens, nodes_count, deepest;
};

#endif
