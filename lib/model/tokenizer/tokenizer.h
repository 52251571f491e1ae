/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer over the tokenizer blob of the model segment: byte-level BPE ("gpt2" in GGUF),
 * SentencePiece BPE ("llama") or BPE of characters ("gemma4"). tokenizers.tbl.h has the original
 * regular expressions of each byte-level pre-tokenizer. */
#ifndef SLUICE_MODEL_TOKENIZER_TOKENIZER_H
#define SLUICE_MODEL_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/text/ranges.h"

#define TOKEN_NONE         UINT32_MAX
#define TOKENIZER_TEXT_MAX (8u << 20) /* bytes of one text to encode */

struct tokenizer;

/* Opens a tokenizer on the blob (borrowed until tokenizer_close), after checking it completely.
 * Private memory is small: all tables are in the blob. NULL with ERR_BAD_INPUT, ERR_NO_MEMORY or
 * ERR_FAILED (PCRE2). */
struct tokenizer *tokenizer_open(const void *blob, size_t blob_bytes, struct error *error);
void tokenizer_close(struct tokenizer *t);

/* The number of tokens. */
uint32_t tokenizer_vocab(const struct tokenizer *t);
/* The token that ends a text; TOKEN_NONE: there is none. */
uint32_t tokenizer_eos(const struct tokenizer *t);
/* The token with which texts start; TOKEN_NONE: they start without one. */
uint32_t tokenizer_bos(const struct tokenizer *t);
bool tokenizer_is_control(const struct tokenizer *t, uint32_t id);
/* Whether tokenizer_encode adds a blank before a text, and before one behind a control token. */
bool tokenizer_adds_blank(const struct tokenizer *t);
/* Whether the token ends an answer: it is eos, or the end of a turn or of a message. */
bool tokenizer_is_end(const struct tokenizer *t, uint32_t id);

/* The tokens that are never generated, ascending and borrowed from the blob, and their number. */
const uint32_t *tokenizer_suppressed(const struct tokenizer *t, size_t *count);

/* Encodes a text of any bytes. U+0000 is a character like others. Invalid UTF-8 becomes one U+FFFD
 * per maximal subpart, as in the reference tokenizers, and those of Qwen, OLMo and Cohere normalise
 * to NFC. So the pieces of the ids are the text that the model sees, and offsets into them are not
 * offsets into the caller's text. The text of a control token becomes its id where it is completely
 * in one range of `special` (NULL: nowhere); elsewhere it is text like any other. Ranges are no
 * borders otherwise: text between two control tokens is encoded as one piece. *ids is newly
 * allocated (caller frees). Returns 0, or -1: ERR_BAD_INPUT (too long, regex limits),
 * ERR_NO_MEMORY. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                     const struct text_ranges *special, uint32_t **ids, size_t *count,
                     struct error *error);

/* The bytes of one token, borrowed from the blob. They are not NUL-terminated and may be a part of
 * a UTF-8 character. Control tokens and ids out of range have 0 bytes. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes);

/* The name of a control token, borrowed from the blob; other tokens have 0 bytes. */
const char *tokenizer_control_name(const struct tokenizer *t, uint32_t id, size_t *bytes);

/* The GPT-2 byte alphabet: the code point (below U+0200) that represents each byte in the pieces of
 * a file. */
void tokenizer_byte_alphabet(uint16_t code_of_byte[256]);

#endif
