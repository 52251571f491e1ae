/* A tokenizer for a model without a language: every byte is a token, a few pairs are merged, the
 * rest of the vocabulary are made-up words that no text encodes to and that can be shown. */
#ifndef SLUICE_TOOLS_SYNTH_VOCABULARY_H
#define SLUICE_TOOLS_SYNTH_VOCABULARY_H

#include <stdint.h>

#include "lib/model/gguf/write.h"

#define VOCABULARY_MERGES 6u
#define VOCABULARY_MIN    (256u + VOCABULARY_MERGES + 1u)

/* Writes the tokenizer.ggml.* keys of `vocab` tokens, at least VOCABULARY_MIN. */
int vocabulary_put_keys(struct gguf_writer *w, uint32_t vocab, struct error *error);

#endif
