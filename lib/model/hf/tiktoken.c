/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies of tiktoken -> tokens and merges. A file has a line per token, its bytes in base64
 * and its rank, which is its number.
 *
 * tiktoken merges, again and again, the first of the two neighbours whose concatenation has the
 * lowest rank. A list of merges, as GGUF has it, gives the same if it has, in the order of ranks,
 * of each token the two parts that tiktoken joins last when it encodes the token alone. It is one
 * pair: what happens inside a token's bytes before something crosses their ends does not depend on
 * the text around them. A token that tiktoken does not reach from its bytes has no merge; it is
 * found as a whole word only, by the pre-tokenizer's flag ignore_merges.
 *
 * Special tokens are after the last rank. Their names are in tokenizer_config.json or those of the
 * published code. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/json_file.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/text/printable.h"
#include "lib/text/strtab.h"

#define TOKEN_BYTES_MAX 512 /* a token's merge takes time quadratic in its length */

static const struct hf_tiktoken rows[] = {
    {.file = "tiktoken.model",
     .pre = "kimi-k2",
     .count = 256,
     .named = "",
     .numbered = "<|reserved_token_",
     .by_id = true,
     .bos = "[BOS]"},
    /* The bos_token_id of Hunyuan's config.json is another token. */
    {.file = "hy.tiktoken",
     .pre = "hunyuan",
     .count = 210,
     .named = "<|endoftext|> <|startoftext|> <|bos|> <|eos|> <|pad|>",
     .numbered = "<|extra_",
     .by_id = false,
     .bos = "<|bos|>"},
};

const struct hf_tiktoken *hf_tiktoken_row(size_t i)
{
    return i < ARRAY_LEN(rows) ? &rows[i] : NULL;
}

struct ranks {
    struct hf_tokens *t;
    char *bytes; /* of token i: [at[i], at[i + 1]) */
    uint32_t *at;
    uint32_t count;
    struct strtab by_bytes;
    uint16_t code_of_byte[256];
};

/* ---- lines ---- */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Bytes of a text in base64 with its padding; 0: it is none, or empty. */
static size_t decode(const char *text, size_t n, char *out)
{
    size_t made = 0, pad = 0;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=')
        pad++;
    if (n % 4 != 0)
        return 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        size_t used = i + 4 == n ? 4 - pad : 4;
        for (size_t k = 0; k < 4; k++) {
            int digit = k < used ? digit_of(text[i + k]) : 0;
            if (digit < 0)
                return 0;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (size_t k = 0; k + 1 < used; k++)
            out[made++] = (char)(bits >> (16 - 8 * k));
    }
    return made;
}

static bool is_number(const char *text, size_t n, uint32_t expected)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || value > UINT32_MAX)
            return false;
        value = 10 * value + (uint64_t)(text[i] - '0');
    }
    return n > 0 && value == expected;
}

static int bad_line(const struct ranks *r, const char *what, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "line of rank %" PRIu32 ": %s", r->count, what);
}

/* The token of the next line, which must have the next rank. */
static int take_line(struct ranks *r, const char *line, size_t n, struct error *error)
{
    const char *space = memchr(line, ' ', n);
    size_t text = space ? (size_t)(space - line) : 0;
    if (r->count == r->t->count)
        return error_set(error, ERR_BAD_INPUT, "more tokens than the %" PRIu32 " of config.json",
                         r->t->count);
    if (!space || !is_number(space + 1, n - text - 1, r->count))
        return bad_line(r, "not a token and that rank", error);
    char *at = r->bytes + r->at[r->count];
    size_t bytes = decode(line, text, at);
    if (bytes == 0 || bytes > TOKEN_BYTES_MAX)
        return bad_line(r, "not a token of 1 to 512 bytes in base64", error);
    if (strtab_put(&r->by_bytes, at, (uint32_t)bytes, r->count) != STRTAB_NONE)
        return bad_line(r, "the token has another rank, too", error);
    r->at[++r->count] = (uint32_t)(at + bytes - r->bytes);
    return 0;
}

static int take_lines(struct ranks *r, const char *text, size_t bytes, struct error *error)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at : bytes - at, next = at + n + 1;
        while (n > 0 && text[at + n - 1] == '\r')
            n--;
        if (n > 0 && take_line(r, text + at, n, error))
            return -1;
        at = next;
    }
    return 0;
}

/* ---- tokens and merges in the alphabet of bytes (tokenizer_byte_alphabet) ---- */

static size_t spell(const struct ranks *r, const char *bytes, size_t n, char *out)
{
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t code = r->code_of_byte[(uint8_t)bytes[i]];
        if (code >= 0x80)
            out[made++] = (char)(0xc0 | code >> 6);
        out[made++] = (char)(code < 0x80 ? code : 0x80 | (code & 0x3f));
    }
    return made;
}

static int put_token(const struct ranks *r, uint32_t id, struct error *error)
{
    char spelt[2 * TOKEN_BYTES_MAX];
    size_t n = spell(r, r->bytes + r->at[id], r->at[id + 1] - r->at[id], spelt);
    char *text = hf_tokens_text(r->t, n);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tokens)");
    memcpy(text, spelt, n);
    r->t->text[id] = text;
    r->t->type[id] = TOKEN_NORMAL;
    return 0;
}

/* Where a token's last two parts meet when its bytes are merged by rank; 0: they do not become
 * two. */
static size_t last_join(const struct ranks *r, uint32_t id)
{
    const char *bytes = r->bytes + r->at[id];
    size_t n = r->at[id + 1] - r->at[id], parts = n;
    uint16_t start[TOKEN_BYTES_MAX + 1];
    uint32_t rank[TOKEN_BYTES_MAX]; /* of part i with the next one */
    for (size_t i = 0; i <= n; i++)
        start[i] = (uint16_t)i;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = strtab_get(&r->by_bytes, bytes + i, 2);
    while (parts > 2) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < parts; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == STRTAB_NONE)
            return 0;
        parts--;
        memmove(start + best + 1, start + best + 2, (parts - best) * sizeof *start);
        memmove(rank + best, rank + best + 1, (parts - best) * sizeof *rank);
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < parts; i++)
            rank[i] = strtab_get(&r->by_bytes, bytes + start[i], (size_t)start[i + 2] - start[i]);
    }
    return start[1];
}

static int put_merge(const struct ranks *r, uint32_t id, struct error *error)
{
    const char *bytes = r->bytes + r->at[id];
    size_t n = r->at[id + 1] - r->at[id], left = n > 1 ? last_join(r, id) : 0;
    char spelt[2 * TOKEN_BYTES_MAX + 1];
    if (left == 0)
        return 0;
    size_t made = spell(r, bytes, left, spelt);
    spelt[made++] = ' ';
    made += spell(r, bytes + left, n - left, spelt + made);
    char *text = hf_tokens_text(r->t, made);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (merges)");
    memcpy(text, spelt, made);
    r->t->merges[r->t->merge_count++] = text;
    return 0;
}

static int put_ranks(struct ranks *r, struct error *error)
{
    tokenizer_byte_alphabet(r->code_of_byte);
    r->t->merges = reallocarray(NULL, r->count + 1, sizeof *r->t->merges);
    if (!r->t->merges)
        return error_set(error, ERR_NO_MEMORY, "out of memory (merges)");
    r->t->merge_capacity = r->count + 1;
    for (uint32_t id = 0; id < r->count; id++)
        if (put_token(r, id, error) || put_merge(r, id, error))
            return -1;
    return 0;
}

static int read_ranks(struct hf_tokens *t, const char *text, size_t bytes, uint32_t *count,
                      struct error *error)
{
    struct ranks r = {.t = t};
    int status = 0;
    r.bytes = malloc(bytes + 1);
    r.at = calloc((size_t)t->count + 1, sizeof *r.at);
    if (!r.bytes || !r.at || !strtab_init(&r.by_bytes, t->count))
        status = error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    if (status == 0)
        status = take_lines(&r, text, bytes, error);
    if (status == 0)
        status = put_ranks(&r, error);
    *count = r.count;
    strtab_free(&r.by_bytes);
    free(r.at);
    free(r.bytes);
    return status;
}

/* ---- special tokens ---- */

static int put_special(struct hf_tokens *t, uint32_t id, const char *name, size_t n, bool control,
                       struct error *error)
{
    char *text = hf_tokens_text(t, n);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tokens)");
    memcpy(text, name, n);
    t->text[id] = text;
    t->type[id] = control ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return 0;
}

/* added_tokens_decoder: {"163584": {"content": "[BOS]", "special": true}, ...} */
static int put_added(struct hf_tokens *t, uint32_t ranks, const json_t *settings,
                     struct error *error)
{
    const json_t *all = json_object_get(settings, "added_tokens_decoder");
    const char *key;
    const json_t *added;
    json_object_foreach((json_t *)(uintptr_t)all, key, added)
    {
        const char *content = json_string_value(json_object_get(added, "content"));
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        if (!content || *key < '0' || *key > '9' || *end || id < ranks || id >= t->count)
            return error_set(error, ERR_BAD_INPUT,
                             "added_tokens_decoder: '%s' is not the number of a token after the "
                             "%" PRIu32 " ranks, with its content",
                             printable(key, strlen(key)).text, ranks);
        if (put_special(t, (uint32_t)id, content, strlen(content),
                        json_is_true(json_object_get(added, "special")), error))
            return -1;
    }
    return 0;
}

/* The names that the published code gives to the others. */
static int put_named(struct hf_tokens *t, uint32_t ranks, const struct hf_tiktoken *row,
                     struct error *error)
{
    const char *name = row->named;
    uint32_t numbered = 0;
    for (uint32_t i = 0; i < row->count && ranks + i < t->count; i++) {
        char made[64];
        size_t n = strcspn(name, " ");
        if (n > 0) {
            snprintf(made, sizeof made, "%.*s", (int)n, name);
            name += n + (name[n] == ' ');
        } else {
            snprintf(made, sizeof made, "%s%" PRIu32 "|>", row->numbered,
                     row->by_id ? ranks + i : numbered++);
        }
        if (!t->text[ranks + i] && put_special(t, ranks + i, made, strlen(made), true, error))
            return -1;
    }
    return 0;
}

int hf_tiktoken_read(struct hf_tokens *t, const struct hf_tiktoken *row, const char *text,
                     size_t bytes, const json_t *settings, uint32_t vocab, struct error *error)
{
    uint32_t ranks;
    if (hf_tokens_open(t, vocab, error) || read_ranks(t, text, bytes, &ranks, error) ||
        put_added(t, ranks, settings, error) || put_named(t, ranks, row, error))
        return -1;
    t->bos = row->bos;
    return hf_tokens_end(t, error);
}
