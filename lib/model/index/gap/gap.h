/* SPDX-License-Identifier: Apache-2.0 */
/* The control tokens of prompts with a gap. */
#ifndef SLUICE_MODEL_INDEX_GAP_GAP_H
#define SLUICE_MODEL_INDEX_GAP_GAP_H

#include "lib/model/chat/chat.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/tokenizer/blob.h"

/* Fills chat->gap, which is empty before, if the model has all of them. */
void index_gap(const struct gguf *g, const struct tokenizer_blob *blob, struct model_chat *chat);

#endif
