/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes with vocabularies of characters. SentencePiece's merges follow from scores. Pieces have
 * spaces and bytes as text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/tokenizer/build.h"

static int compare_scores(const void *x, const void *y, void *scores)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    float sa = ((const float *)scores)[a], sb = ((const float *)scores)[b];
    return sa != sb ? (sa < sb) - (sa > sb) : (a > b) - (a < b);
}

/* Tokens of the same score have the same rank: then the leftmost merge is first. */
static void rank_scores(struct builder *b, float *scores, uint32_t *order)
{
    for (uint32_t i = 0; i < b->head.vocab; i++)
        order[i] = i;
    qsort_r(order, b->head.vocab, sizeof *order, compare_scores, scores);
    for (uint32_t i = 0; i < b->head.vocab; i++)
        b->ranks[order[i]] =
            i > 0 && scores[order[i]] == scores[order[i - 1]] ? b->ranks[order[i - 1]] : i;
}

static int read_scores(struct builder *b, struct error *error)
{
    struct gguf_array a;
    int found = gguf_get_array(b->gguf, "tokenizer.ggml.scores", GGUF_F32, &a, error);
    if (found < 0)
        return -1;
    if (!found || a.left != b->head.vocab)
        return error_set(error, ERR_BAD_INPUT,
                         "tokenizer.ggml.scores has %" PRIu64 " elements for %" PRIu32 " tokens",
                         found ? a.left : 0, b->head.vocab);
    float *scores = malloc(b->head.vocab * sizeof *scores);
    uint32_t *order = malloc(b->head.vocab * sizeof *order);
    b->ranks = malloc(b->head.vocab * sizeof *b->ranks);
    int status = 0;
    for (uint32_t i = 0; scores && status == 0 && i < b->head.vocab; i++) {
        scores[i] = gguf_array_f32(&a);
        if (scores[i] != scores[i])
            status = error_set(error, ERR_BAD_INPUT,
                               "the score of token %" PRIu32 " is not a number", i);
    }
    if (!scores || !order || !b->ranks)
        status = error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    if (status == 0)
        rank_scores(b, scores, order);
    free(scores);
    free(order);
    return status;
}

/* The id of a normal token of that name that merging can produce, or TOKEN_NONE. */
static uint32_t spm_token(const struct builder *b, const char *text, size_t bytes)
{
    uint32_t id = strtab_get(&b->by_name, text, bytes);
    return id == STRTAB_NONE || b->types[id] != TOKEN_NORMAL || memchr(text, ' ', bytes)
               ? TOKEN_NONE
               : id;
}

void tokenizer_spm_cuts(struct builder *b, uint32_t id,
                        void (*each)(struct builder *b, const struct merge_slot *m))
{
    const struct span *s = &b->tokens[id];
    if (spm_token(b, s->text, s->bytes) != id)
        return;
    for (uint32_t at = 1; at < s->bytes; at++) {
        if (((unsigned char)s->text[at] & 0xc0) == 0x80) /* inside a character */
            continue;
        struct merge_slot m = {.left = spm_token(b, s->text, at),
                               .right = spm_token(b, s->text + at, s->bytes - at),
                               .rank = b->ranks[id],
                               .merged = id};
        if (m.left != TOKEN_NONE && m.right != TOKEN_NONE)
            each(b, &m);
    }
}

static void count_cut(struct builder *b, const struct merge_slot *m)
{
    (void)m;
    b->head.merges++;
}

#define SPM_SPACE       "\xe2\x96\x81" /* U+2581 */
#define SPM_SPACE_BYTES 3

static bool space_at(const struct span *s, uint32_t at)
{
    return s->bytes - at >= SPM_SPACE_BYTES &&
           memcmp(s->text + at, SPM_SPACE, SPM_SPACE_BYTES) == 0;
}

static bool space_inside(const struct span *s)
{
    bool other = false;
    for (uint32_t i = 0; i < s->bytes; i += space_at(s, i) ? SPM_SPACE_BYTES : 1) {
        if (space_at(s, i) && other)
            return true;
        other |= !space_at(s, i);
    }
    return false;
}

void tokenizer_find_cuts(struct builder *b)
{
    bool inside = false;
    for (uint32_t i = 0; i < b->head.vocab; i++)
        inside |= b->types[i] != TOKEN_CONTROL && space_inside(&b->tokens[i]);
    if (!inside)
        b->head.flags |= TOKENIZER_CUT_AT_SPACE;
}

int tokenizer_spm_count(struct builder *b, struct error *error)
{
    bool inside = false;
    if (read_scores(b, error))
        return -1;
    for (uint32_t i = 0; i < b->head.vocab; i++) {
        const struct span *s = &b->tokens[i];
        if (b->types[i] != TOKEN_NORMAL)
            continue;
        if (s->bytes > TOKENIZER_SPM_PIECE_MAX)
            return error_set(error, ERR_BAD_INPUT, "token %" PRIu32 " has %" PRIu32 " bytes", i,
                             s->bytes);
        inside |= space_inside(s);
        tokenizer_spm_cuts(b, i, count_cut);
        if (b->head.merges > TOKENIZER_MERGES_MAX)
            return error_set(error, ERR_BAD_INPUT, "the vocabulary has more than %u merges",
                             TOKENIZER_MERGES_MAX);
    }
    if (!inside)
        b->head.flags |= TOKENIZER_CUT_AT_SPACE;
    return 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of a token "<0xNN>"; -1 for other tokens. */
static int spm_byte(const struct span *s)
{
    if (s->bytes != 6 || memcmp(s->text, "<0x", 3) != 0 || s->text[5] != '>')
        return -1;
    int high = hex_digit(s->text[3]), low = hex_digit(s->text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t tokenizer_spm_piece(const struct builder *b, uint32_t id, char *out, bool *word)
{
    const struct span *s = &b->tokens[id];
    int byte = b->types[id] == TOKEN_BYTE ? spm_byte(s) : -1;
    *word = b->types[id] == TOKEN_NORMAL && !memchr(s->text, ' ', s->bytes);
    if (byte >= 0) {
        *out = (char)byte;
        return 1;
    }
    if (b->types[id] != TOKEN_NORMAL && b->types[id] != TOKEN_USER_DEFINED) {
        memcpy(out, s->text, s->bytes);
        return s->bytes;
    }
    size_t n = 0;
    for (uint32_t i = 0; i < s->bytes; n++) {
        bool space = space_at(s, i);
        out[n] = space ? ' ' : s->text[i];
        i += space ? SPM_SPACE_BYTES : 1;
    }
    return n;
}

static bool of_characters(const char *pre, size_t bytes)
{
    return false
#define CHARACTERS(name) || (bytes == strlen(name) && memcmp(pre, name, bytes) == 0)
#include "lib/model/tokenizer/tokenizers.tbl.h"
        ;
}

/* The converter writes the tokens "<0xNN>" of such a model as normal ones. */
static void name_bytes(struct builder *b)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        uint32_t id = strtab_get(&b->by_name, name, (uint32_t)n);
        if (id != STRTAB_NONE && b->types[id] == TOKEN_NORMAL)
            b->types[id] = TOKEN_BYTE;
    }
}

void tokenizer_characters_by_pre(struct builder *b, const char *pre, size_t bytes)
{
    if (!of_characters(pre, bytes))
        return;
    b->head.model = TOKENIZER_CHARACTERS;
    name_bytes(b);
}
