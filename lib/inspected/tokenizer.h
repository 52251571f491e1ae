/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a model, for programs that need no engine. */
#ifndef SLUICE_INSPECTED_TOKENIZER_H
#define SLUICE_INSPECTED_TOKENIZER_H

#include "lib/base/error.h"

struct model_index;
struct tokenizer;

struct inspected_tokenizer {
    struct model_index *index; /* holds the tables of the tokenizer */
    struct tokenizer *tokenizer;
};

/* path: a GGUF file or the directory of a store, parsed in the sandbox of inspect. Errors: those of
 * inspected_index and tokenizer_open; ERR_BAD_INPUT: the file cannot be opened. Without an error,
 * inspected_tokenizer_close releases it. */
int inspected_tokenizer_open(struct inspected_tokenizer *t, const char *path, struct error *error);
void inspected_tokenizer_close(struct inspected_tokenizer *t);

#endif
