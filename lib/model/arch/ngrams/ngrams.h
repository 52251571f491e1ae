/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of rows of the table of n-grams (struct model_ngrams): they depend on token ids
 * alone, so they are known before a pass. */
#ifndef SLUICE_MODEL_ARCH_NGRAMS_NGRAMS_H
#define SLUICE_MODEL_ARCH_NGRAMS_NGRAMS_H

#include "lib/model/arch/arch.h"

/* row[0 .. model_ngram_rows(h) - 1] of a token: token[0] is that token, token[s] the one s
 * positions before it, of ngram_size in all; before the sequence they are h->ngram_end. */
void model_ngram_numbers(const struct model_hparams *h, const uint32_t *token, uint32_t *row);

#endif
