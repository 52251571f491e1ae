/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the blob of blob.h from tokenizer.ggml.* keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/build.h"
#include "lib/text/printable.h"

/* The GPT-2 byte alphabet: printable Latin-1 characters represent themselves, U+0100 onwards the 68
 * other bytes, in order. */
static bool printable_byte(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

static void alphabet(uint16_t code_of_byte[256], int16_t byte_of_code[512])
{
    uint16_t next = 256;
    for (int i = 0; i < 512; i++)
        byte_of_code[i] = -1;
    for (uint16_t b = 0; b < 256; b++) {
        uint16_t code = printable_byte(b) ? b : next++;
        code_of_byte[b] = code;
        byte_of_code[code] = (int16_t)b;
    }
}

void tokenizer_byte_alphabet(uint16_t code_of_byte[256])
{
    int16_t byte_of_code[512];
    alphabet(code_of_byte, byte_of_code);
}

/* Converts a piece from the alphabet to bytes; false if it has other characters. All codes are
 * below U+0200, so each is one or two bytes of UTF-8. */
static bool to_bytes(const int16_t byte_of_code[512], const struct span *s, char *out, size_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < s->bytes; i++) {
        uint32_t c = (unsigned char)s->text[i];
        if (c >= 0xc2 && c <= 0xc7 && i + 1 < s->bytes &&
            ((unsigned char)s->text[i + 1] & 0xc0) == 0x80)
            c = (c & 0x1f) << 6 | ((unsigned char)s->text[++i] & 0x3f);
        else if (c >= 0x80)
            return false;
        if (byte_of_code[c] < 0)
            return false;
        out[(*n)++] = (char)byte_of_code[c];
    }
    return true;
}

static int read_tokens(struct builder *b, struct error *error)
{
    struct gguf_array a;
    int found = gguf_get_array(b->gguf, "tokenizer.ggml.tokens", GGUF_STRING, &a, error);
    if (found < 0)
        return -1;
    if (!found || a.left == 0 || a.left > MODEL_VOCAB_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "tokenizer.ggml.tokens is missing, empty or longer than %u",
                         MODEL_VOCAB_MAX);
    b->head.vocab = (uint32_t)a.left;
    b->tokens = calloc(b->head.vocab, sizeof *b->tokens);
    b->types = malloc(b->head.vocab);
    if (!b->tokens || !b->types)
        return error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    uint64_t total = 0;
    for (uint32_t i = 0; i < b->head.vocab; i++) {
        size_t n;
        gguf_array_string(&a, &b->tokens[i].text, &n);
        total += n;
        if (total > TOKENIZER_PIECES_MAX)
            return error_set(error, ERR_BAD_INPUT, "the vocabulary has more than %u MiB of text",
                             TOKENIZER_PIECES_MAX >> 20);
        b->tokens[i].bytes = (uint32_t)n;
    }
    return 0;
}

static int read_types(struct builder *b, struct error *error)
{
    struct gguf_array a;
    int found = gguf_get_array(b->gguf, "tokenizer.ggml.token_type", GGUF_I32, &a, error);
    if (found < 0)
        return -1;
    memset(b->types, TOKEN_NORMAL, b->head.vocab);
    if (!found)
        return 0;
    if (a.left != b->head.vocab)
        return error_set(error, ERR_BAD_INPUT,
                         "tokenizer.ggml.token_type has %" PRIu64 " elements for %" PRIu32
                         " tokens",
                         a.left, b->head.vocab);
    for (uint32_t i = 0; i < b->head.vocab; i++) {
        int32_t type = gguf_array_i32(&a);
        if (type < 0 || type >= TOKEN_TYPE__COUNT)
            return error_set(error, ERR_BAD_INPUT, "token %" PRIu32 " is of unknown type %" PRId32,
                             i, type);
        b->types[i] = (uint8_t)type;
    }
    return 0;
}

/* Maps names to ids. Normal tokens must be unique; they have priority over others of that name. */
static int index_tokens(struct builder *b, struct error *error)
{
    if (!strtab_init(&b->by_name, b->head.vocab))
        return error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    for (int normal = 1; normal >= 0; normal--) {
        for (uint32_t i = 0; i < b->head.vocab; i++) {
            const struct span *s = &b->tokens[i];
            if ((b->types[i] == TOKEN_NORMAL) != normal)
                continue;
            uint32_t other = strtab_put(&b->by_name, s->text, s->bytes, i);
            if (other != STRTAB_NONE && normal)
                return error_set(error, ERR_BAD_INPUT,
                                 "tokens %" PRIu32 " and %" PRIu32 " are the same: '%s'", other, i,
                                 printable(s->text, s->bytes).text);
        }
    }
    return 0;
}

static int read_id(const struct builder *b, const char *key, uint32_t *id, struct error *error)
{
    uint64_t value;
    *id = TOKEN_NONE;
    int found = gguf_get_uint(b->gguf, key, &value, error);
    if (found < 0)
        return -1;
    if (found && value >= b->head.vocab)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64 " but there are only %" PRIu32 " tokens", key,
                         value, b->head.vocab);
    if (found)
        *id = (uint32_t)value;
    return 0;
}

static int read_model(struct builder *b, struct error *error)
{
    static const char *const names[TOKENIZER_MODEL__COUNT] = {"gpt2", "llama", "gemma4"};
    const char *text = "";
    size_t n = 0;
    if (gguf_get_string(b->gguf, "tokenizer.ggml.model", &text, &n, error) < 0)
        return -1;
    for (uint32_t i = 0; i < TOKENIZER_MODEL__COUNT; i++)
        if (n == strlen(names[i]) && memcmp(text, names[i], n) == 0) {
            b->head.model = i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT,
                     "tokenizer model '%s' is not supported (only gpt2: byte-level BPE, llama: "
                     "SentencePiece BPE, and gemma4: BPE of characters)",
                     printable(text, n).text);
}

/* The tokenizers of characters have no pre-tokenizer: the key is ignored, or makes the model one of
 * them. */
static int read_pre(struct builder *b, struct error *error)
{
    const char *text;
    size_t n;
    b->head.pre = pretokenizer_find("default", 7);
    int found = gguf_get_string(b->gguf, "tokenizer.ggml.pre", &text, &n, error);
    if (found < 0)
        return -1;
    if (!found && b->head.model == TOKENIZER_BPE)
        log_warn("the model file has no tokenizer.ggml.pre: its words are those of GPT-2, which "
                 "may differ from training; convert the model again with a newer converter");
    if (found && b->head.model == TOKENIZER_BPE)
        tokenizer_characters_by_pre(b, text, n);
    if (found && b->head.model == TOKENIZER_BPE)
        b->head.pre = pretokenizer_find(text, n);
    if (b->head.pre == UINT32_MAX)
        return error_set(error, ERR_BAD_INPUT, "pre-tokenizer '%s' is not supported",
                         printable(text, n).text);
    return 0;
}

/* Whether a value of the file contains a text, without regard to the case of ASCII letters. */
static bool names(const struct gguf *g, const char *key, const char *text)
{
    const char *value;
    size_t bytes, n = strlen(text);
    if (gguf_get_string(g, key, &value, &bytes, NULL) != 1)
        return false;
    for (size_t i = 0; i + n <= bytes; i++)
        if (strncasecmp(value + i, text, n) == 0)
            return true;
    return false;
}

static bool strips_after(const struct gguf *g)
{
    return false
#define STRIP_AFTER(key, text) || names(g, key, text)
#define STRIP_NONE(...)
#include "lib/model/tokenizer/tokenizers.tbl.h"
        ;
}

/* After eos. */
static int read_ends(struct builder *b, struct error *error)
{
    memset(b->head.ends, 0xff, sizeof b->head.ends);
    if (read_id(b, "tokenizer.ggml.eot_token_id", &b->head.ends[0], error) ||
        read_id(b, "tokenizer.ggml.eom_token_id", &b->head.ends[1], error))
        return -1;
    tokenizer_complete_ends(b);
    return 0;
}

static int read_settings(struct builder *b, struct error *error)
{
    if (read_model(b, error))
        return -1;
    bool gemma = b->head.model == TOKENIZER_CHARACTERS, bytes = b->head.model == TOKENIZER_BPE;
    if (read_pre(b, error))
        return -1;
    bool characters = b->head.model != TOKENIZER_BPE, prefix = b->head.model == TOKENIZER_SPM;
    bool add_bos = !bytes || pretokenizer_adds_bos(b->head.pre), one_space = false;
    bool normalises = bytes && pretokenizer_normalises(b->head.pre);
    bool whole_words = bytes && pretokenizer_ignores_merges(b->head.pre);
    if (read_id(b, "tokenizer.ggml.bos_token_id", &b->head.bos, error) ||
        read_id(b, "tokenizer.ggml.eos_token_id", &b->head.eos, error) || read_ends(b, error) ||
        gguf_get_bool(b->gguf, "tokenizer.ggml.add_bos_token", &add_bos, error) < 0 ||
        gguf_get_bool(b->gguf, "tokenizer.ggml.add_space_prefix", &prefix, error) < 0 ||
        gguf_get_bool(b->gguf, "tokenizer.ggml.remove_extra_whitespaces", &one_space, error) < 0 ||
        gguf_get_bool(b->gguf, TOKENIZER_NFC_KEY, &normalises, error) < 0 ||
        gguf_get_bool(b->gguf, TOKENIZER_IGNORE_MERGES_KEY, &whole_words, error) < 0)
        return -1;
    /* Files of gemma4 exist that say false; the model needs the token. */
    if (!add_bos && !gemma)
        b->head.bos = TOKEN_NONE;
    if (characters && prefix)
        b->head.flags |= TOKENIZER_SPACE_PREFIX;
    if (!characters && normalises)
        b->head.flags |= TOKENIZER_NFC;
    if (!characters && whole_words)
        b->head.flags |= TOKENIZER_WHOLE_WORDS;
    if (characters && one_space)
        b->head.flags |= TOKENIZER_ONE_SPACE;
    if (b->head.model == TOKENIZER_SPM && strips_after(b->gguf))
        b->head.flags |= TOKENIZER_STRIP_AFTER;
    return 0;
}

static uint32_t slots_for(uint64_t items)
{
    uint32_t slots = 16;
    while (slots < items + items / 2 + 1)
        slots *= 2;
    return slots;
}

/* Of the file's text, or of the piece, which has the same characters but for spaces. */
static bool is_special(uint8_t type, const char *text, size_t bytes)
{
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) &&
           tokenizer_is_matched(text, bytes);
}

static int count_merges(struct builder *b, struct error *error)
{
    if (b->head.model == TOKENIZER_SPM)
        return tokenizer_spm_count(b, error);
    if (b->head.model == TOKENIZER_CHARACTERS)
        tokenizer_find_cuts(b);
    int found =
        gguf_get_array(b->gguf, "tokenizer.ggml.merges", GGUF_STRING, &b->merge_lines, error);
    if (found < 0)
        return -1;
    if (!found)
        return error_set(
            error, ERR_BAD_INPUT,
            "tokenizer.ggml.merges is missing, without which every text would be split into single "
            "%s; convert the model again",
            b->head.model == TOKENIZER_BPE ? "bytes" : "characters");
    b->has_merges = true;
    uint64_t merges = b->merge_lines.left;
    if (merges > TOKENIZER_MERGES_MAX)
        return error_set(error, ERR_BAD_INPUT, "tokenizer.ggml.merges has %" PRIu64 " elements",
                         merges);
    b->head.merges = (uint32_t)merges;
    return 0;
}

/* Computes the counts of the blob. A piece is never longer than its text in the file. */
static int count_parts(struct builder *b, struct error *error)
{
    if (count_merges(b, error))
        return -1;
    uint64_t normal = 0;
    for (uint32_t i = 0; i < b->head.vocab; i++) {
        normal += b->types[i] == TOKEN_NORMAL;
        b->head.special_capacity += is_special(b->types[i], b->tokens[i].text, b->tokens[i].bytes);
        b->head.text_bytes += b->tokens[i].bytes;
    }
    b->head.merge_slots = slots_for(b->head.merges);
    b->head.merges = 0; /* counted again when filled: a pair may occur twice */
    b->head.word_slots = slots_for(normal);
    b->head.magic = TOKENIZER_MAGIC;
    b->head.version = TOKENIZER_VERSION;
    return 0;
}

static void put_word(struct builder *b, uint32_t id, const char *text, size_t bytes)
{
    uint32_t *words = (uint32_t *)(void *)(b->blob + b->head.words_offset);
    uint32_t mask = b->head.word_slots - 1;
    uint32_t i = piece_hash(text, bytes) & mask;
    while (words[i] != TOKEN_NONE)
        i = (i + 1) & mask;
    words[i] = id;
}

/* The piece of byte-level BPE, as tokenizer_spm_piece. A normal token that is not in the byte
 * alphabet is stored unchanged: merging cannot produce it, but a model can generate it. */
static size_t bpe_piece(const struct builder *b, const int16_t byte_of_code[512], uint32_t id,
                        char *out, bool *word)
{
    size_t n;
    *word = b->types[id] == TOKEN_NORMAL && to_bytes(byte_of_code, &b->tokens[id], out, &n);
    if (!*word)
        memcpy(out, b->tokens[id].text, n = b->tokens[id].bytes);
    return n;
}

static void fill_pieces(struct builder *b, const int16_t byte_of_code[512])
{
    uint32_t *piece_at = (uint32_t *)(void *)(b->blob + b->head.piece_at_offset);
    char *text = b->blob + b->head.text_offset;
    memcpy(b->blob + b->head.types_offset, b->types, b->head.vocab);
    memset(b->blob + b->head.words_offset, 0xff, (size_t)b->head.word_slots * sizeof(uint32_t));
    uint32_t at = 0;
    for (uint32_t i = 0; i < b->head.vocab; i++) {
        bool word;
        piece_at[i] = at;
        size_t n = b->head.model == TOKENIZER_BPE ? bpe_piece(b, byte_of_code, i, text + at, &word)
                                                  : tokenizer_spm_piece(b, i, text + at, &word);
        if (word)
            put_word(b, i, text + at, n);
        at += (uint32_t)n;
    }
    piece_at[b->head.vocab] = at;
}

static int fill_byte_ids(struct builder *b, const uint16_t code_of_byte[256], struct error *error)
{
    bool named = b->head.model != TOKENIZER_BPE; /* "<0x0A>" */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint16_t code = code_of_byte[byte];
        char name[8] = {(char)code, 0};
        size_t n = code >= 0x80 ? 2 : 1;
        if (named) {
            n = (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        } else if (code >= 0x80) {
            name[0] = (char)(0xc0 | code >> 6);
            name[1] = (char)(0x80 | (code & 0x3f));
        }
        uint32_t id = strtab_get(&b->by_name, name, n);
        if (id == STRTAB_NONE || b->types[id] != (named ? TOKEN_BYTE : TOKEN_NORMAL))
            id = TOKEN_NONE;
        if (id == TOKEN_NONE && (named || !tokenizer_rare_byte(byte)))
            return error_set(error, ERR_BAD_INPUT, "the vocabulary has no token for byte 0x%02x",
                             (unsigned)byte);
        b->head.byte_ids[byte] = id;
    }
    return 0;
}

static int compare_pieces(const void *x, const void *y, void *blob)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    size_t na, nb;
    const char *ta = blob_piece(blob, a, &na), *tb = blob_piece(blob, b, &nb);
    int order = memcmp(ta, tb, na < nb ? na : nb);
    return order ? order : na != nb ? (na > nb) - (na < nb) : (a > b) - (a < b);
}

/* Fills the sorted list of special tokens; of tokens with the same text, the one with the lowest
 * id. */
static void fill_specials(struct builder *b)
{
    struct tokenizer_blob *blob = (struct tokenizer_blob *)(void *)b->blob;
    uint32_t *specials = (uint32_t *)(void *)(b->blob + b->head.specials_offset);
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < b->head.vocab; i++)
        if (is_special(b->types[i], b->tokens[i].text, b->tokens[i].bytes))
            specials[n++] = i;
    qsort_r(specials, n, sizeof *specials, compare_pieces, blob);
    for (uint32_t i = 0; i < n; i++) {
        size_t here = 0, before = 0;
        const char *text = blob_piece(blob, specials[i], &here);
        const char *last = kept ? blob_piece(blob, specials[kept - 1], &before) : NULL;
        if (!last || here != before || memcmp(text, last, here) != 0)
            specials[kept++] = specials[i];
    }
    b->head.specials = kept;
}

/* "left right" -> their ids and the id of the concatenation. */
static int parse_merge(const struct builder *b, uint32_t rank, const char *line, size_t n,
                       char *joined, struct merge_slot *m, struct error *error)
{
    const char *space = n > 1 ? memchr(line + 1, ' ', n - 1) : NULL;
    size_t left = space ? (size_t)(space - line) : 0;
    size_t right = space ? n - left - 1 : 0;
    if (!left || !right || n > TOKENIZER_PIECES_MAX)
        return error_set(error, ERR_BAD_INPUT, "merge %" PRIu32 " is not two tokens: '%s'", rank,
                         printable(line, n).text);
    memcpy(joined, line, left);
    memcpy(joined + left, space + 1, right);
    *m = (struct merge_slot){
        .left = strtab_get(&b->by_name, line, left),
        .right = strtab_get(&b->by_name, space + 1, right),
        .rank = rank,
        .merged = strtab_get(&b->by_name, joined, left + right),
    };
    if (m->left == STRTAB_NONE || m->right == STRTAB_NONE || m->merged == STRTAB_NONE)
        return error_set(error, ERR_BAD_INPUT,
                         "merge %" PRIu32 " names a token that is not in the vocabulary: '%s'",
                         rank, printable(line, n).text);
    return 0;
}

static size_t longest_line(struct gguf_array a)
{
    size_t longest = 0;
    while (a.left > 0) {
        const char *text;
        size_t n;
        gguf_array_string(&a, &text, &n);
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* A pair that occurs twice keeps its first rank. */
static void put_merge(struct builder *b, const struct merge_slot *m)
{
    struct merge_slot *slots = (struct merge_slot *)(void *)(b->blob + b->head.merges_offset);
    uint32_t mask = b->head.merge_slots - 1;
    uint32_t i = merge_hash(m->left, m->right) & mask;
    while (slots[i].left != TOKEN_NONE && (slots[i].left != m->left || slots[i].right != m->right))
        i = (i + 1) & mask;
    if (slots[i].left == TOKEN_NONE) {
        slots[i] = *m;
        b->head.merges++;
    }
}

static int fill_merge_lines(struct builder *b, struct error *error)
{
    struct gguf_array a = b->merge_lines;
    char *joined = malloc(longest_line(a) + 1);
    if (!joined)
        return error_set(error, ERR_NO_MEMORY, "out of memory (merge)");
    int status = 0;
    for (uint32_t rank = 0; a.left > 0 && status == 0; rank++) {
        const char *line;
        size_t n;
        struct merge_slot m;
        gguf_array_string(&a, &line, &n);
        status = parse_merge(b, rank, line, n, joined, &m, error);
        if (status == 0)
            put_merge(b, &m);
    }
    free(joined);
    return status;
}

static int fill_merges(struct builder *b, struct error *error)
{
    memset(b->blob + b->head.merges_offset, 0xff,
           (size_t)b->head.merge_slots * sizeof(struct merge_slot));
    for (uint32_t i = 0; b->head.model == TOKENIZER_SPM && i < b->head.vocab; i++)
        if (b->types[i] == TOKEN_NORMAL)
            tokenizer_spm_cuts(b, i, put_merge);
    return b->has_merges ? fill_merge_lines(b, error) : 0;
}

static int build(struct builder *b, struct error *error)
{
    uint16_t code_of_byte[256];
    int16_t byte_of_code[512];
    alphabet(code_of_byte, byte_of_code);
    if (read_tokens(b, error) || read_types(b, error) || index_tokens(b, error) ||
        read_settings(b, error) || tokenizer_read_suppressed(b, error) || count_parts(b, error) ||
        fill_byte_ids(b, code_of_byte, error))
        return -1;
    tokenizer_blob_layout(&b->head);
    b->blob = calloc(1, b->head.bytes);
    if (!b->blob)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tokenizer)");
    fill_pieces(b, byte_of_code);
    memcpy(b->blob, &b->head, sizeof b->head); /* fill_specials reads pieces through the head */
    fill_specials(b);
    if (b->suppressed)
        memcpy(b->blob + b->head.suppressed_offset, b->suppressed,
               b->head.suppressed * sizeof *b->suppressed);
    if (fill_merges(b, error))
        return -1;
    memcpy(b->blob, &b->head, sizeof b->head);
    return 0;
}

int tokenizer_blob_build(const struct gguf *g, void **blob, size_t *bytes, uint32_t *tokens,
                         struct error *error)
{
    struct builder b = {.gguf = g};
    int status = build(&b, error);
    strtab_free(&b.by_name);
    free(b.tokens);
    free(b.types);
    free(b.ranks);
    free(b.suppressed);
    if (status) {
        free(b.blob);
        return -1;
    }
    *blob = b.blob;
    *bytes = b.head.bytes;
    *tokens = b.head.vocab;
    return 0;
}
