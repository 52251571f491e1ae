/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of one answer while it is generated. A function of the grammar and the generated
 * tokens only, so that a successor of compute, which takes the tokens of the log again, continues
 * with the same text.
 *
 * Where the grammar leaves only one continuation, its tokens are not sampled: they are those of
 * that text alone. The last one is left out, as the model might join it with what follows, unless
 * the answer ends there. Whether they are appended together or one by one makes no difference. */
#ifndef SLUICE_ENGINE_COMPUTE_CONSTRAINTS_CONSTRAINT_H
#define SLUICE_ENGINE_COMPUTE_CONSTRAINTS_CONSTRAINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "procs/engine/compute/constraints/grammars.h"

#define CONSTRAINT_FORCED_MAX 256 /* bytes, and so tokens, at a time */
#define CONSTRAINT_ENDS_MAX   32

struct constraints { /* what all answers share; of the runner's thread */
    const struct grammars *grammars;
    struct masks *masks;                            /* NULL: no answer had a grammar so far */
    uint64_t *mask;                                 /* [vocab]: of the token that is sampled */
    uint32_t ends[CONSTRAINT_ENDS_MAX], ends_count; /* tokens that end an answer */
    size_t mask_words;
};

struct constraint {
    struct constraints *all;
    struct grammar_state *state; /* NULL: the answer is free */
    uint32_t forced[CONSTRAINT_FORCED_MAX], forced_count, forced_at;
};

/* Memory of the mask. vocab: logits of the model. -1 with ERR_NO_MEMORY. */
int constraints_open(struct constraints *all, const struct grammars *grammars, uint32_t vocab,
                     struct error *error);

void constraints_close(struct constraints *all);

/* Begins an answer that has `count` tokens so far. -1 with ERR_NO_MEMORY, or ERR_FAILED: they do
 * not fit. constraint_end in any case. */
int constraint_begin(struct constraint *c, struct constraints *all, const struct grammar *grammar,
                     const _Atomic uint32_t *log, uint32_t count, struct error *error);
void constraint_end(struct constraint *c);

static inline bool constraint_is_on(const struct constraint *c)
{
    return c->state != NULL;
}

/* The text is complete, and nothing may follow. */
bool constraint_is_complete(const struct constraint *c);

/* The token that comes next without being sampled; TOKEN_NONE: none. */
uint32_t constraint_forced(const struct constraint *c);

/* The tokens to sample from, with those that end an answer where it may end and `ends` is true.
 * Valid until the next call for any answer. NULL: there is none. */
const uint64_t *constraint_mask(struct constraint *c, bool ends);

/* The next token of the answer. -1 with ERR_FAILED: it does not fit, or ERR_NO_MEMORY. */
int constraint_take(struct constraint *c, uint32_t token, struct error *error);

#endif
