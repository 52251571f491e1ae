/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that build the blob of blob.h. */
#ifndef SLUICE_MODEL_TOKENIZER_BUILD_H
#define SLUICE_MODEL_TOKENIZER_BUILD_H

#include "lib/model/tokenizer/blob.h"
#include "lib/text/strtab.h"

struct span {
    const char *text;
    uint32_t bytes;
};

struct builder {
    const struct gguf *gguf;
    struct tokenizer_blob head; /* counts; then offsets by tokenizer_blob_layout */
    char *blob;
    struct span *tokens; /* as written in the file */
    uint8_t *types;
    uint32_t *ranks;       /* TOKENIZER_SPM: rank of each token by score, the best is 0 */
    struct strtab by_name; /* token as written -> id; normal tokens have priority */
    struct gguf_array merge_lines;
    bool has_merges;
    uint32_t *suppressed; /* b->head.suppressed of them, ascending */
};

/* ---- blob.c ---- */

/* After eos, eot and eom were read: adds the ends of answers that the file does not name, and takes
 * away those that are none. */
void tokenizer_complete_ends(struct builder *b);
/* Reads the tokens that are never generated. 0, or -1 with *error. */
int tokenizer_read_suppressed(struct builder *b, struct error *error);

/* ---- spm.c ---- */

/* Calls each(b, merge) for every split of token `id` into two others. */
void tokenizer_spm_cuts(struct builder *b, uint32_t id,
                        void (*each)(struct builder *b, const struct merge_slot *m));

/* Sets TOKENIZER_CUT_AT_SPACE in b->head if no token prevents it. */
void tokenizer_find_cuts(struct builder *b);

/* Reads the scores, and counts the merges in b->head. 0, or -1 with *error. */
int tokenizer_spm_count(struct builder *b, struct error *error);

/* If `pre` is a row of CHARACTERS in tokenizers.tbl.h, b->head.model becomes TOKENIZER_CHARACTERS,
 * and the byte tokens get their type. To be called after the names were indexed. */
void tokenizer_characters_by_pre(struct builder *b, const char *pre, size_t bytes);

/* Writes a token's piece to `out` and returns its bytes. *word: merges can produce it. */
size_t tokenizer_spm_piece(const struct builder *b, uint32_t id, char *out, bool *word);

#endif
