/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a vocabulary that a grammar allows next. The texts of all tokens are one tree, so
 * that a beginning that many tokens share is tried once, and whole branches are left out. */
#ifndef SLUICE_GRAMMAR_VOCAB_H
#define SLUICE_GRAMMAR_VOCAB_H

#include "lib/grammar/grammar.h"

struct token_text {
    const char *at; /* not terminated */
    uint32_t bytes; /* 0: a token without a text (special, end), which no grammar allows */
};

/* Immutable after it was made: any number of threads may use it. Tokens of more than
 * VOCAB_TOKEN_BYTES_MAX bytes are never allowed. NULL: no memory. */
struct vocab;
#define VOCAB_TOKEN_BYTES_MAX 256

struct vocab *vocab_new(const struct token_text *tokens, uint32_t count);
void vocab_free(struct vocab *v);
uint32_t vocab_tokens(const struct vocab *v);
/* 64-bit words of a mask: bit t % 64 of word t / 64 is token t. */
size_t vocab_mask_words(const struct vocab *v);

/* Masks of one thread. The last `kept` different ones are remembered per grammar and state, since a
 * text comes back to the same states: counters far from their ends count as equal. */
struct masks;
struct masks *masks_new(const struct vocab *v, uint32_t kept); /* NULL: no memory */
void masks_free(struct masks *m);

/* The mask of the tokens whose bytes all fit behind the state, valid until the next call. Tokens
 * that end the response are the caller's: they fit where grammar_is_end. The state does not
 * change. */
const uint64_t *grammar_mask(struct masks *m, struct grammar_state *s);

/* Steps of a stack by a byte for one mask: so many per byte of the vocabulary's tree, and at least
 * MASK_STEPS_MIN. A grammar whose text can be read in hundreds of ways needs more: then tokens are
 * left out, so that no mask stops the engine. */
#define MASK_STEPS_PER_NODE 16u
#define MASK_STEPS_MIN      (4u << 20)

struct masks_counts {
    uint64_t found, made;
    uint64_t steps_most, nodes; /* of one mask; of the vocabulary's tree */
};
struct masks_counts masks_counts(const struct masks *m);

#endif
