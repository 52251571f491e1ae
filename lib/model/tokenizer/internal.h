/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that encode text and look up tokens. */
#ifndef SLUICE_MODEL_TOKENIZER_INTERNAL_H
#define SLUICE_MODEL_TOKENIZER_INTERNAL_H

#include <stdint.h>

#include "lib/model/tokenizer/blob.h"
#include "lib/model/tokenizer/words.h"

#define TOKENIZER_OBJ 0x544f4b5au /* "TOKZ" */

struct tokenizer {
    uint32_t magic;
    const struct tokenizer_blob *blob;
    struct words *words; /* NULL for the tokenizers of characters */
};

#endif
