/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json of vocabularies of characters with byte tokens. BPE with the merges of the list,
 * for text whose spaces are replaced -> the keys of the tokenizer of Gemma 4. SentencePiece BPE
 * (for example Mixtral's) -> the keys of the tokenizer "llama". SentencePiece selects merges by the
 * score of the resulting token, tokenizer.json by a list of merges. Both give the same result if
 * the list has every split of every token into two others, with all splits of a token adjacent.
 * Then the score of a token is its negated position in the list. Other lists are rejected. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/text/strtab.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* ---- preparation of text ---- */

/* True if the normalizer replaces " " by U+2581. */
static bool marks_spaces(const json_t *n)
{
    return hf_is_string(json_object_get(n, "type"), "Replace") &&
           hf_is_string(json_object_get(json_object_get(n, "pattern"), "String"), " ") &&
           hf_is_string(json_object_get(n, "content"), SPACE_MARK);
}

static bool prepends_space(const json_t *n)
{
    return hf_is_string(json_object_get(n, "type"), "Prepend") &&
           hf_is_string(json_object_get(n, "prepend"), SPACE_MARK);
}

/* Preparation by a normalizer: optionally prepends U+2581, and replaces spaces by it. */
static bool read_normalizer(const json_t *n, bool *prefix)
{
    const json_t *parts = json_object_get(n, "normalizers");
    *prefix = prepends_space(json_array_get(parts, 0));
    if (!hf_is_string(json_object_get(n, "type"), "Sequence"))
        return marks_spaces(n);
    return json_array_size(parts) == (*prefix ? 2u : 1u) &&
           marks_spaces(json_array_get(parts, *prefix));
}

/* Preparation by a pre-tokenizer. It must not split at spaces: tokens may contain them. */
static bool read_metaspace(const json_t *pre, bool *prefix)
{
    const json_t *scheme = json_object_get(pre, "prepend_scheme");
    *prefix = !hf_is_string(scheme, "never");
    return hf_is_string(json_object_get(pre, "type"), "Metaspace") &&
           hf_is_string(json_object_get(pre, "replacement"), SPACE_MARK) &&
           json_is_false(json_object_get(pre, "split")) &&
           (hf_is_string(scheme, "first") || hf_is_string(scheme, "always") || !*prefix);
}

static bool absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static int read_preparation(const json_t *tokenizer, bool *prefix, struct error *error)
{
    const json_t *normalizer = json_object_get(tokenizer, "normalizer");
    const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
    if (absent(pre) ? read_normalizer(normalizer, prefix)
                    : absent(normalizer) && read_metaspace(pre, prefix))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "its normalizer and pre-tokenizer are not those of SentencePiece");
}

/* ---- tokens ---- */

static bool is_byte(const char *text)
{
    return strlen(text) == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' &&
           strspn(text + 3, "0123456789ABCDEF") == 2;
}

static void set_types(struct hf_tokens *t, const json_t *model)
{
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    for (uint32_t i = 0; i < t->count; i++) {
        if (unknown && t->type[i] != TOKEN_UNUSED && strcmp(t->text[i], unknown) == 0)
            t->type[i] = TOKEN_UNKNOWN;
        else if (t->type[i] == TOKEN_NORMAL && is_byte(t->text[i]))
            t->type[i] = TOKEN_BYTE;
    }
}

/* ---- merges ---- */

struct scores {
    const struct hf_tokens *tokens;
    struct strtab by_name; /* normal tokens */
    float *of;
    char *joined; /* buffer, as long as the longest merge */
};

/* "left right" -> id of their concatenation; STRTAB_NONE unless all three are normal tokens. */
static uint32_t merged_token(const struct scores *s, const char *line)
{
    const char *space = strchr(line, ' ');
    size_t left = space ? (size_t)(space - line) : 0, right = space ? strlen(space + 1) : 0;
    if (left == 0 || right == 0 || strtab_get(&s->by_name, line, left) == STRTAB_NONE ||
        strtab_get(&s->by_name, space + 1, right) == STRTAB_NONE)
        return STRTAB_NONE;
    memcpy(s->joined, line, left);
    memcpy(s->joined + left, space + 1, right);
    return strtab_get(&s->by_name, s->joined, left + right);
}

/* Number of splits of a token into two others, between characters. */
static uint64_t cuts_of(const struct scores *s, const char *text)
{
    size_t bytes = strlen(text);
    uint64_t cuts = 0;
    for (size_t at = 1; at < bytes; at++)
        cuts += ((unsigned char)text[at] & 0xc0) != 0x80 &&
                strtab_get(&s->by_name, text, at) != STRTAB_NONE &&
                strtab_get(&s->by_name, text + at, bytes - at) != STRTAB_NONE;
    return cuts;
}

static int not_sentencepiece(uint32_t merge, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT,
                     "its merges are not those of a SentencePiece vocabulary (first at merge "
                     "%" PRIu32 ")",
                     merge);
}

/* Scores of the tokens that result from merges: -1 and lower. *cuts: number of merges of normal
 * tokens. */
static int score_merges(struct scores *s, uint64_t *cuts, struct error *error)
{
    uint32_t before = STRTAB_NONE;
    *cuts = 0;
    for (uint32_t i = 0; i < s->tokens->merge_count; i++) {
        uint32_t made = merged_token(s, s->tokens->merges[i]);
        if (made == STRTAB_NONE) /* of special tokens: encoding never uses it */
            continue;
        if (made != before && s->of[made] != 0)
            return not_sentencepiece(i, error);
        if (made != before)
            s->of[made] = -1.0f - (float)i;
        before = made;
        ++*cuts;
    }
    return 0;
}

static int check_cuts(const struct scores *s, uint64_t cuts, struct error *error)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < s->tokens->count; i++) {
        if (s->tokens->type[i] != TOKEN_NORMAL)
            continue;
        uint64_t own = cuts_of(s, s->tokens->text[i]);
        if (own > 0 && s->of[i] == 0)
            return error_set(error, ERR_BAD_INPUT,
                             "no merge makes token %" PRIu32 ": not a SentencePiece vocabulary", i);
        all += own;
    }
    return all == cuts ? 0 : not_sentencepiece(s->tokens->merge_count, error);
}

static int index_normal(struct scores *s, struct error *error)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < s->tokens->merge_count; i++) {
        size_t n = strlen(s->tokens->merges[i]);
        longest = n > longest ? n : longest;
    }
    s->of = calloc(s->tokens->count, sizeof *s->of);
    s->joined = malloc(longest + 1);
    if (!s->of || !s->joined || !strtab_init(&s->by_name, s->tokens->count))
        return error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary)");
    for (uint32_t i = 0; i < s->tokens->count; i++) {
        size_t bytes = strlen(s->tokens->text[i]);
        if (s->tokens->type[i] != TOKEN_NORMAL)
            continue;
        if (bytes > TOKENIZER_SPM_PIECE_MAX)
            return error_set(error, ERR_BAD_INPUT, "token %" PRIu32 " has %zu bytes", i, bytes);
        strtab_put(&s->by_name, s->tokens->text[i], (uint32_t)bytes, i);
    }
    return 0;
}

/* ---- BPE of characters ---- */

static bool splits_at_spaces(const json_t *pre)
{
    return hf_is_string(json_object_get(pre, "type"), "Split") &&
           hf_is_string(json_object_get(json_object_get(pre, "pattern"), "String"), " ") &&
           hf_is_string(json_object_get(pre, "behavior"), "MergedWithPrevious") &&
           !json_is_true(json_object_get(pre, "invert"));
}

bool hf_is_of_characters(const json_t *tokenizer)
{
    return marks_spaces(json_object_get(tokenizer, "normalizer")) &&
           splits_at_spaces(json_object_get(tokenizer, "pre_tokenizer"));
}

int hf_characters_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error)
{
    /* Control tokens of Gemma 4 that GGUF has as tokens of text, so that programs see them. */
    static const char *const visible[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                          "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                          "<|\"|>"};
    const json_t *model = json_object_get(t->rest, "model");
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return error_set(error, ERR_BAD_INPUT, "ignore_merges with byte_fallback is not supported");
    set_types(t, model);
    for (uint32_t i = 0; i < t->count; i++)
        for (size_t k = 0; k < ARRAY_LEN(visible) && t->type[i] == TOKEN_CONTROL; k++)
            if (strcmp(t->text[i], visible[k]) == 0)
                t->type[i] = TOKEN_USER_DEFINED;
    gguf_put_text(w, "tokenizer.ggml.model", "gemma4");
    gguf_put_strings(w, "tokenizer.ggml.merges", t->merges, NULL, t->merge_count);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    return 0;
}

int hf_sentencepiece_keys(struct hf_tokens *t, struct gguf_writer *w, struct error *error)
{
    const json_t *model = json_object_get(t->rest, "model");
    bool prefix = false;
    uint64_t cuts = 0;
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return error_set(error, ERR_BAD_INPUT, "ignore_merges with byte_fallback is not supported");
    if (read_preparation(t->rest, &prefix, error))
        return -1;
    set_types(t, model);
    struct scores s = {.tokens = t};
    int status = index_normal(&s, error);
    if (status == 0)
        status = score_merges(&s, &cuts, error);
    if (status == 0)
        status = check_cuts(&s, cuts, error);
    if (status == 0) {
        gguf_put_text(w, "tokenizer.ggml.model", "llama");
        gguf_put_text(w, "tokenizer.ggml.pre", "default");
        gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, s.of, t->count);
        gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", prefix);
    }
    strtab_free(&s.by_name);
    free(s.joined);
    free(s.of);
    return status;
}
