/* SPDX-License-Identifier: Apache-2.0 */
/* The grammars of requests. The main thread compiles one before it queues the request, so that a
 * pass never waits for that, and keeps those that were used last, because clients repeat them. The
 * runner only reads: a row's grammar is there from before the row is QUEUED until it is FREE. */
#ifndef SLUICE_ENGINE_COMPUTE_CONSTRAINTS_GRAMMARS_H
#define SLUICE_ENGINE_COMPUTE_CONSTRAINTS_GRAMMARS_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/grammar/vocab/vocab.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "shm/kv/kv.h"

#define GRAMMARS_KEPT_BYTES ((size_t)4 << 20)  /* that no request has */
#define GRAMMARS_BYTES_MAX  ((size_t)32 << 20) /* of requests, too */

struct kept_grammar;

struct grammars {
    const struct tokenizer *tokenizer;
    struct vocab *vocab;         /* NULL: no request had a grammar so far */
    char *names;                 /* of control tokens, as the vocabulary has them */
    struct kept_grammar *newest; /* a list, by last use */
    size_t bytes;                /* of all */
    const struct grammar *of_row[KV_REQUESTS_MAX]; /* NULL: its answer is free */
};

void grammars_init(struct grammars *g, const struct tokenizer *tokenizer);
/* Rows that still have a grammar lose it. compute itself keeps all to its end. */
void grammars_close(struct grammars *g);

/* Compiles the source, or finds it; the row has it until grammars_drop. -1 with ERR_BAD_INPUT (of
 * the source), ERR_NO_MEMORY or ERR_BUSY (others have too much). Then the row has none. */
int grammars_take(struct grammars *g, const struct grammar_source *source, uint32_t row,
                  struct error *error);
void grammars_drop(struct grammars *g, uint32_t row);

/* The source in a row of the request table, borrowed from there; kind GRAMMAR_NONE: none. */
struct grammar_source grammars_source(const struct kv *kv, uint32_t row);

#endif
