/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's tables in the model segment. For lib/model only.
 *
 * Layout: struct tokenizer_blob, then the parts at its offsets, each 8-byte aligned:
 *
 *   piece_at[vocab + 1]     u32: token i is text[piece_at[i] .. piece_at[i + 1])
 *   types[vocab]            u8, enum token_type
 *   merges[merge_slots]     struct merge_slot, open addressing by merge_hash
 *   words[word_slots]       u32: ids of normal tokens by piece_hash, TOKEN_NONE: free; for
 *                           the tokenizers of characters without tokens that have a literal space
 *                           in the file
 *   specials[special_capacity]  u32: ids of tokens matched in text as a whole, sorted by their
 *                           bytes; the first `specials` are used; see tokenizer_is_matched
 *   text[text_bytes]        the pieces: bytes of text, or names of control tokens
 *
 * A piece of the tokenizers of characters has spaces where the file has U+2581. A file of
 * TOKENIZER_SPM has no merges: every split of a normal token into two others is a merge, ranked by
 * the token's score. */
#ifndef SLUICE_MODEL_TOKENIZER_BLOB_H
#define SLUICE_MODEL_TOKENIZER_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/tokenizer/tokenizer.h"

#define TOKENIZER_MAGIC      0x4e454b4f54554c53ull /* "SLUTOKEN" */
#define TOKENIZER_VERSION    6u
#define TOKENIZER_MERGES_MAX (4u << 20)
#define TOKENIZER_PIECES_MAX (256u << 20) /* bytes of all pieces together */
/* By default, SentencePiece pieces have at most 16 characters. Enumerating the splits of a piece
 * takes time quadratic in its length. */
#define TOKENIZER_SPM_PIECE_MAX 256

/* The numbers are those of tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_TYPE__COUNT
};

/* tokenizer.ggml.model */
enum tokenizer_model {
    TOKENIZER_BPE, /* "gpt2": words by a regular expression, merges of bytes */
    TOKENIZER_SPM, /* "llama": SentencePiece BPE, merges of characters, bytes for unknown ones */
    TOKENIZER_CHARACTERS, /* "gemma4": as SPM, but with merges that the file lists */
    TOKENIZER_MODEL__COUNT
};

/* tokenizer_blob.flags; the last two for byte-level BPE, the others for the tokenizers of
 * characters */
#define TOKENIZER_SPACE_PREFIX 1u  /* a space is added before the text */
#define TOKENIZER_CUT_AT_SPACE 2u  /* no token has a space after another character */
#define TOKENIZER_ONE_SPACE    4u  /* runs of spaces are one, none at the ends of the text */
#define TOKENIZER_STRIP_AFTER  8u  /* control tokens take the blanks after them (STRIP_AFTER) */
#define TOKENIZER_NFC          16u /* texts are normalised to NFC */
#define TOKENIZER_WHOLE_WORDS  32u /* a word that is a token is not merged */
#define TOKENIZER_FLAGS        63u

/* These override the columns nfc and ignore_merges of tokenizers.tbl.h. Keys of our own: GGUF has
 * none. */
#define TOKENIZER_NFC_KEY           "tokenizer.ggml.normalizer.nfc"
#define TOKENIZER_IGNORE_MERGES_KEY "tokenizer.ggml.ignore_merges"

/* Tokens that are never generated: those of the file within its vocabulary. */
#define TOKENIZER_SUPPRESS_KEY "tokenizer.ggml.suppress_tokens"

/* Tokens that end an answer, in addition to eos: eot and eom of the file, and those of ANSWER_END
 * and ANSWER_END_NAME; without those of ANSWER_GOES_ON. */
#define TOKENIZER_ENDS 8u

/* Expressions of one pre-tokenizer. */
#define TOKENIZER_EXPRESSIONS_MAX 6

struct merge_slot {
    uint32_t left, right; /* TOKEN_NONE: free */
    uint32_t rank, merged;
};

struct tokenizer_blob {
    uint64_t magic;
    uint32_t version;
    uint32_t pre; /* row of tokenizers.tbl.h */
    uint64_t bytes;
    uint32_t vocab, merges, specials, special_capacity;
    uint32_t merge_slots, word_slots; /* powers of two */
    uint32_t text_bytes;
    uint32_t bos, eos;             /* TOKEN_NONE: none */
    uint32_t ends[TOKENIZER_ENDS]; /* TOKEN_NONE: none */
    uint32_t model;                /* enum tokenizer_model */
    uint32_t flags;
    uint32_t suppressed;    /* tokens; no padding, because heads are compared as bytes */
    uint32_t byte_ids[256]; /* TOKEN_NONE: none, see tokenizer_rare_byte */
    uint64_t piece_at_offset, types_offset, merges_offset, words_offset, specials_offset,
        suppressed_offset, text_offset;
};

/* Fills the offsets of the parts and `bytes` from the counts, which must be within their limits. */
void tokenizer_blob_layout(struct tokenizer_blob *b);

/* Builds the blob from a file's tokenizer.ggml.* keys; the caller frees it. *tokens gets the size
 * of the vocabulary. 0, or -1 with ERR_BAD_INPUT or ERR_NO_MEMORY. */
int tokenizer_blob_build(const struct gguf *g, void **blob, size_t *bytes, uint32_t *tokens,
                         struct error *error);

/* Checks a blob completely. 0, or -1 with ERR_BAD_INPUT. */
int tokenizer_blob_check(const void *blob, size_t bytes, struct error *error);

/* Whether a token of this text is matched in texts as a whole. One that is no UTF-8 is not, because
 * it would cut a character in two, and the rest would be no UTF-8, either. */
bool tokenizer_is_matched(const char *text, size_t bytes);

/* The row of a pre-tokenizer in tokenizers.tbl.h; UINT32_MAX: it is unknown. */
uint32_t pretokenizer_find(const char *name, size_t bytes);

/* Number of rows, and the columns of one row. */
uint32_t pretokenizer_count(void);
const char *pretokenizer_name(uint32_t row);
/* Whether words that are tokens are not merged, texts start with BOS, and are normalised to NFC,
 * where the file does not state it. */
bool pretokenizer_ignores_merges(uint32_t row);
bool pretokenizer_adds_bos(uint32_t row);
bool pretokenizer_normalises(uint32_t row);
/* The expression number i; NULL: the row has at most i. */
const char *pretokenizer_expression(uint32_t row, uint32_t i);

/* A byte that UTF-8 never has, or has only in characters that are not assigned (planes 4 to 11).
 * Vocabularies of byte-level BPE may lack them; then they are left out of a text, as tokenizers
 * do. */
static inline bool tokenizer_rare_byte(uint32_t byte)
{
    return byte == 0xc0 || byte == 0xc1 || byte == 0xf1 || byte == 0xf2 || byte > 0xf4;
}

/* Hashes of words[] and merges[]. Probing is linear, from hash modulo the number of slots. */
uint32_t piece_hash(const char *text, size_t bytes);

static inline uint32_t merge_hash(uint32_t left, uint32_t right)
{
    uint64_t x = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

/* The parts of a checked blob. */
static inline const uint32_t *blob_piece_at(const struct tokenizer_blob *b)
{
    return (const uint32_t *)(const void *)((const char *)b + b->piece_at_offset);
}

static inline const uint8_t *blob_types(const struct tokenizer_blob *b)
{
    return (const uint8_t *)b + b->types_offset;
}

static inline const struct merge_slot *blob_merges(const struct tokenizer_blob *b)
{
    return (const struct merge_slot *)(const void *)((const char *)b + b->merges_offset);
}

static inline const uint32_t *blob_words(const struct tokenizer_blob *b)
{
    return (const uint32_t *)(const void *)((const char *)b + b->words_offset);
}

static inline const uint32_t *blob_specials(const struct tokenizer_blob *b)
{
    return (const uint32_t *)(const void *)((const char *)b + b->specials_offset);
}

static inline const uint32_t *blob_suppressed(const struct tokenizer_blob *b)
{
    return (const uint32_t *)(const void *)((const char *)b + b->suppressed_offset);
}

static inline const char *blob_text(const struct tokenizer_blob *b)
{
    return (const char *)b + b->text_offset;
}

static inline const char *blob_piece(const struct tokenizer_blob *b, uint32_t id, size_t *bytes)
{
    const uint32_t *at = blob_piece_at(b);
    *bytes = at[id + 1] - at[id];
    return blob_text(b) + at[id];
}

#endif
