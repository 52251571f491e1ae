/* SPDX-License-Identifier: Apache-2.0 */
/* Words of byte-level BPE: the expressions of a pre-tokenizer, applied one after another. For the
 * tokenizer only. */
#ifndef SLUICE_MODEL_TOKENIZER_WORDS_H
#define SLUICE_MODEL_TOKENIZER_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

struct words;

/* Compiles the expressions of a row of tokenizers.tbl.h. NULL with ERR_NO_MEMORY or ERR_FAILED
 * (PCRE2). */
struct words *words_open(uint32_t row, struct error *error);
void words_close(struct words *w);

/* Calls each(arg, word, bytes) for the words of a text, in order; together they are the whole text.
 * 0, or -1: a call returned it, or with ERR_BAD_INPUT (no UTF-8, or beyond a limit of PCRE2) or
 * ERR_NO_MEMORY. */
int words_split(const struct words *w, const char *text, size_t bytes,
                int (*each)(void *arg, const char *word, size_t bytes), void *arg,
                struct error *error);

#endif
