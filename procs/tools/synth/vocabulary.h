/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a synthetic model: a token per byte, a few merged pairs, and printable random
 * words to which no text is encoded. */
#ifndef SLUICE_TOOLS_SYNTH_VOCABULARY_H
#define SLUICE_TOOLS_SYNTH_VOCABULARY_H

#include <stdint.h>

#include "lib/model/gguf/write.h"

#define VOCABULARY_MERGES 6u
#define VOCABULARY_MIN    (256u + VOCABULARY_MERGES + 1u)

/* Writes the tokenizer.ggml.* keys of `vocab` tokens, at least VOCABULARY_MIN. */
int vocabulary_put_keys(struct gguf_writer *w, uint32_t vocab, struct error *error);

#endif
