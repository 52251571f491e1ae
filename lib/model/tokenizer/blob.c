/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out the tables of a tokenizer, and checks every part of an untrusted blob; and two lists of
 * tokens that blobs have: those that are never generated, and ends of answers. */
#include "lib/model/tokenizer/blob.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/build.h"
#include "lib/text/utf8.h"

static const struct {
    const char *name;
    bool ignore_merges, add_bos, nfc;
    const char *expressions[TOKENIZER_EXPRESSIONS_MAX];
} pretokenizers[] = {
#define PRETOKENIZER(name, ignore_merges, add_bos, nfc, ...)                                       \
    {name, (ignore_merges) != 0, (add_bos) != 0, (nfc) != 0, {__VA_ARGS__}},
#include "lib/model/tokenizer/tokenizers.tbl.h"
};

uint32_t pretokenizer_count(void)
{
    return ARRAY_LEN(pretokenizers);
}

uint32_t pretokenizer_find(const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < ARRAY_LEN(pretokenizers); i++)
        if (strlen(pretokenizers[i].name) == bytes &&
            memcmp(pretokenizers[i].name, name, bytes) == 0)
            return i;
    return UINT32_MAX;
}

const char *pretokenizer_name(uint32_t row)
{
    sl_assert(row < ARRAY_LEN(pretokenizers));
    return pretokenizers[row].name;
}

bool pretokenizer_ignores_merges(uint32_t row)
{
    sl_assert(row < ARRAY_LEN(pretokenizers));
    return pretokenizers[row].ignore_merges;
}

bool pretokenizer_adds_bos(uint32_t row)
{
    sl_assert(row < ARRAY_LEN(pretokenizers));
    return pretokenizers[row].add_bos;
}

bool pretokenizer_normalises(uint32_t row)
{
    sl_assert(row < ARRAY_LEN(pretokenizers));
    return pretokenizers[row].nfc;
}

const char *pretokenizer_expression(uint32_t row, uint32_t i)
{
    sl_assert(row < ARRAY_LEN(pretokenizers) && i < TOKENIZER_EXPRESSIONS_MAX);
    return pretokenizers[row].expressions[i];
}

uint32_t piece_hash(const char *text, size_t bytes)
{
    return (uint32_t)XXH3_64bits(text, bytes);
}

void tokenizer_blob_layout(struct tokenizer_blob *b)
{
    uint64_t at = align_up(sizeof *b, 8);
    b->piece_at_offset = at;
    at = align_up(at + ((uint64_t)b->vocab + 1) * sizeof(uint32_t), 8);
    b->types_offset = at;
    at = align_up(at + b->vocab, 8);
    b->merges_offset = at;
    at = align_up(at + (uint64_t)b->merge_slots * sizeof(struct merge_slot), 8);
    b->words_offset = at;
    at = align_up(at + (uint64_t)b->word_slots * sizeof(uint32_t), 8);
    b->specials_offset = at;
    at = align_up(at + (uint64_t)b->special_capacity * sizeof(uint32_t), 8);
    b->suppressed_offset = at;
    at = align_up(at + (uint64_t)b->suppressed * sizeof(uint32_t), 8);
    b->text_offset = at;
    b->bytes = align_up(at + b->text_bytes, 8);
}

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "tokenizer tables: %s", what);
}

static bool is_power_of_two(uint32_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

static int check_head(const struct tokenizer_blob *b, size_t bytes, struct error *error)
{
    if (bytes < sizeof *b || (uintptr_t)b % _Alignof(struct tokenizer_blob) != 0)
        return bad(error, "too short, or not aligned");
    if (b->magic != TOKENIZER_MAGIC || b->version != TOKENIZER_VERSION)
        return bad(error, "wrong magic or version");
    if (b->vocab == 0 || b->vocab > MODEL_VOCAB_MAX || b->pre >= pretokenizer_count() ||
        b->text_bytes > TOKENIZER_PIECES_MAX || b->special_capacity > b->vocab ||
        b->specials > b->special_capacity || b->suppressed > b->vocab)
        return bad(error, "a count out of range");
    if (b->model >= TOKENIZER_MODEL__COUNT || (b->flags & ~TOKENIZER_FLAGS) != 0)
        return bad(error, "of an unknown kind");
    /* One slot of each hash table must be free: it terminates look-ups. */
    if (!is_power_of_two(b->merge_slots) || !is_power_of_two(b->word_slots) ||
        b->merges >= b->merge_slots || b->merges > TOKENIZER_MERGES_MAX ||
        b->merge_slots > 4 * TOKENIZER_MERGES_MAX || b->word_slots > 4 * MODEL_VOCAB_MAX)
        return bad(error, "a hash table of wrong size");
    if ((b->bos != TOKEN_NONE && b->bos >= b->vocab) ||
        (b->eos != TOKEN_NONE && b->eos >= b->vocab))
        return bad(error, "a special token out of range");
    for (uint32_t i = 0; i < TOKENIZER_ENDS; i++)
        if (b->ends[i] != TOKEN_NONE && b->ends[i] >= b->vocab)
            return bad(error, "an end of answers out of range");
    struct tokenizer_blob want = *b;
    tokenizer_blob_layout(&want);
    if (memcmp(&want, b, sizeof want) != 0 || b->bytes > bytes)
        return bad(error, "parts at wrong offsets");
    return 0;
}

static int check_pieces(const struct tokenizer_blob *b, struct error *error)
{
    const uint32_t *at = blob_piece_at(b);
    const uint8_t *types = blob_types(b);
    if (at[0] != 0 || at[b->vocab] > b->text_bytes)
        return bad(error, "pieces out of range");
    for (uint32_t i = 0; i < b->vocab; i++)
        if (at[i] > at[i + 1] || types[i] >= TOKEN_TYPE__COUNT)
            return bad(error, "a piece out of range");
    for (uint32_t byte = 0; byte < 256; byte++) {
        size_t n = 0;
        uint32_t id = b->byte_ids[byte];
        if (id == TOKEN_NONE && b->model == TOKENIZER_BPE && tokenizer_rare_byte(byte))
            continue;
        if (id >= b->vocab || *blob_piece(b, id, &n) != (char)byte || n != 1)
            return bad(error, "a byte without its token");
    }
    return 0;
}

static int check_tables(const struct tokenizer_blob *b, struct error *error)
{
    const struct merge_slot *merges = blob_merges(b);
    uint32_t used = 0;
    for (uint32_t i = 0; i < b->merge_slots; i++) {
        const struct merge_slot *m = &merges[i];
        if (m->left == TOKEN_NONE)
            continue;
        used++;
        if (m->left >= b->vocab || m->right >= b->vocab || m->merged >= b->vocab ||
            m->rank >= TOKENIZER_MERGES_MAX)
            return bad(error, "a merge out of range");
    }
    if (used != b->merges)
        return bad(error, "wrong number of merges");
    const uint32_t *words = blob_words(b);
    used = 0;
    for (uint32_t i = 0; i < b->word_slots; i++) {
        used += words[i] != TOKEN_NONE;
        if (words[i] != TOKEN_NONE && words[i] >= b->vocab)
            return bad(error, "a word out of range");
    }
    if (used == b->word_slots)
        return bad(error, "a full hash table");
    return 0;
}

bool tokenizer_is_matched(const char *text, size_t bytes)
{
    return bytes > 0 && utf8_valid(text, bytes);
}

/* Special tokens must be control or user-defined tokens, characters of texts, strictly ascending by
 * bytes. */
static int check_specials(const struct tokenizer_blob *b, struct error *error)
{
    const uint32_t *specials = blob_specials(b);
    const char *last = NULL;
    size_t last_bytes = 0;
    for (uint32_t i = 0; i < b->specials; i++) {
        if (specials[i] >= b->vocab)
            return bad(error, "a special token out of range");
        uint8_t type = blob_types(b)[specials[i]];
        size_t n;
        const char *text = blob_piece(b, specials[i], &n);
        if ((type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED) || !tokenizer_is_matched(text, n))
            return bad(error, "a special token of wrong kind");
        if (last) {
            int order = memcmp(last, text, last_bytes < n ? last_bytes : n);
            if (order > 0 || (order == 0 && last_bytes >= n))
                return bad(error, "special tokens out of order");
        }
        last = text;
        last_bytes = n;
    }
    return 0;
}

static int check_suppressed(const struct tokenizer_blob *b, struct error *error)
{
    const uint32_t *ids = blob_suppressed(b);
    for (uint32_t i = 0; i < b->suppressed; i++)
        if (ids[i] >= b->vocab || (i > 0 && ids[i] <= ids[i - 1]))
            return bad(error, "suppressed tokens out of range or order");
    return 0;
}

int tokenizer_blob_check(const void *blob, size_t bytes, struct error *error)
{
    const struct tokenizer_blob *b = blob;
    if (check_head(b, bytes, error) || check_pieces(b, error) || check_tables(b, error) ||
        check_specials(b, error) || check_suppressed(b, error))
        return -1;
    return 0;
}

/* ---- tokens that are never generated ---- */

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int tokenizer_read_suppressed(struct builder *b, struct error *error)
{
    struct gguf_array a;
    int found = gguf_get_array(b->gguf, TOKENIZER_SUPPRESS_KEY, GGUF_I32, &a, error);
    if (found <= 0)
        return found;
    if (a.left > MODEL_VOCAB_MAX)
        return error_set(error, ERR_BAD_INPUT, TOKENIZER_SUPPRESS_KEY " has %" PRIu64 " elements",
                         a.left);
    b->suppressed = calloc(a.left + 1, sizeof *b->suppressed);
    if (!b->suppressed)
        return error_set(error, ERR_NO_MEMORY, "out of memory (suppressed tokens)");
    uint32_t n = 0, kept = 0;
    while (a.left > 0) {
        int32_t id = gguf_array_i32(&a);
        if (id >= 0 && (uint32_t)id < b->head.vocab)
            b->suppressed[n++] = (uint32_t)id;
    }
    qsort(b->suppressed, n, sizeof *b->suppressed, ascending);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || b->suppressed[i] != b->suppressed[i - 1])
            b->suppressed[kept++] = b->suppressed[i];
    b->head.suppressed = kept;
    return 0;
}

/* ---- ends of answers ---- */

static uint32_t find_token(const struct builder *b, const char *text)
{
    return strtab_get(&b->by_name, text, strlen(text));
}

/* A control token of that text; TOKEN_NONE: there is none. */
static uint32_t find_control(const struct builder *b, const char *text)
{
    uint32_t id = find_token(b, text);
    return id != STRTAB_NONE && b->types[id] == TOKEN_CONTROL ? id : TOKEN_NONE;
}

/* A control token or a user-defined one. */
static uint32_t find_special(const struct builder *b, const char *text)
{
    uint32_t id = find_token(b, text);
    return id != STRTAB_NONE && b->types[id] == TOKEN_USER_DEFINED ? id : find_control(b, text);
}

/* Not the end of an answer in this vocabulary; *with: what ends it. */
static bool goes_on(const struct builder *b, uint32_t id, uint32_t *with)
{
    static const char *const rows[][2] = {
#define ANSWER_GOES_ON(token, with) {(token), (with)},
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        *with = find_special(b, rows[i][1]);
        if (id != TOKEN_NONE && id == find_special(b, rows[i][0]) && *with != TOKEN_NONE)
            return true;
    }
    return false;
}

static void drop_ends(struct builder *b)
{
    uint32_t with;
    for (uint32_t i = 0; i < TOKENIZER_ENDS; i++)
        if (goes_on(b, b->head.ends[i], &with))
            b->head.ends[i] = TOKEN_NONE;
    if (goes_on(b, b->head.eos, &with))
        b->head.eos = with;
}

static bool is_end(const struct builder *b, uint32_t id)
{
    for (uint32_t i = 0; i < TOKENIZER_ENDS; i++)
        if (b->head.ends[i] == id)
            return true;
    return b->head.eos == id;
}

/* In places that are free. */
static void add_ends(struct builder *b)
{
    static const char *const names_of_ends[] = {
#define ANSWER_END_NAME(token) (token),
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    uint32_t with, at = 0;
    for (size_t i = 0; i < ARRAY_LEN(names_of_ends); i++) {
        uint32_t id = find_control(b, names_of_ends[i]);
        if (id == TOKEN_NONE || is_end(b, id) || goes_on(b, id, &with))
            continue;
        while (at < TOKENIZER_ENDS && b->head.ends[at] != TOKEN_NONE)
            at++;
        if (at < TOKENIZER_ENDS)
            b->head.ends[at] = id;
    }
}

void tokenizer_complete_ends(struct builder *b)
{
    static const char *const rows[][2] = {
#define ANSWER_END(token, with) {(token), (with)},
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    uint32_t n = 2;
    _Static_assert(ARRAY_LEN(rows) + 2 <= TOKENIZER_ENDS, "as many ends as a blob has");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (find_special(b, rows[i][1]) != TOKEN_NONE)
            b->head.ends[n++] = find_special(b, rows[i][0]);
    drop_ends(b);
    add_ends(b);
}
