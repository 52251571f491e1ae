/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the control tokens of prompts with a gap: those that the file names, else those of
 * gap.tbl.h that the vocabulary has. */
#include "lib/model/index/gap/gap.h"

#include <string.h>

#include "lib/base/bytes.h"

static uint32_t find(const struct tokenizer_blob *blob, const char *name)
{
    const uint32_t *specials = blob_specials(blob);
    for (uint32_t i = 0; i < blob->specials; i++) {
        size_t n;
        const char *piece = blob_piece(blob, specials[i], &n);
        if (n == strlen(name) && memcmp(piece, name, n) == 0)
            return specials[i];
    }
    return TOKEN_NONE;
}

static bool named(const struct gguf *g, const struct tokenizer_blob *blob,
                  const char *const keys[CHAT_GAP_TOKENS], uint32_t ids[CHAT_GAP_TOKENS])
{
    for (size_t i = 0; i < CHAT_GAP_TOKENS; i++) {
        uint64_t id;
        if (gguf_get_uint(g, keys[i], &id, NULL) != 1 || id >= blob->vocab ||
            blob_types(blob)[id] != TOKEN_CONTROL)
            return false;
        ids[i] = (uint32_t)id;
    }
    return true;
}

static bool known(const struct tokenizer_blob *blob, uint32_t ids[CHAT_GAP_TOKENS])
{
    static const char *const rows[][CHAT_GAP_TOKENS] = {
#define GAP(before, after, fill) {(before), (after), (fill)},
#include "lib/model/index/gap/gap.tbl.h"
    };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        bool all = true;
        for (size_t i = 0; i < CHAT_GAP_TOKENS; i++) {
            ids[i] = find(blob, rows[r][i]);
            all &= ids[i] != TOKEN_NONE;
        }
        if (all)
            return true;
    }
    return false;
}

void index_gap(const struct gguf *g, const struct tokenizer_blob *blob, struct model_chat *chat)
{
    static const char *const keys[][CHAT_GAP_TOKENS] = {
        {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id",
         "tokenizer.ggml.fim_mid_token_id"},
        {"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.suffix_token_id",
         "tokenizer.ggml.middle_token_id"}};
    uint32_t ids[CHAT_GAP_TOKENS];
    char found[CHAT_GAP_TOKENS][CHAT_TOKEN_BYTES] = {{0}};
    if (!named(g, blob, keys[0], ids) && !named(g, blob, keys[1], ids) && !known(blob, ids))
        return;
    for (size_t i = 0; i < CHAT_GAP_TOKENS; i++) {
        size_t n;
        const char *piece = blob_piece(blob, ids[i], &n);
        if (n == 0 || n >= CHAT_TOKEN_BYTES || memchr(piece, 0, n))
            return;
        memcpy(found[i], piece, n);
    }
    memcpy(chat->gap, found, sizeof found);
}
