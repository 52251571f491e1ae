/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json and tokenizer_config.json -> the keys tokenizer.ggml.*: byte-level BPE with a
 * pre-tokenizer of tokenizers.tbl.h, SentencePiece BPE (sentencepiece.c), and tiktoken
 * (tiktoken.c). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/arch.h"
#include "lib/model/hf/internal.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/text/printable.h"

bool hf_is_string(const json_t *value, const char *expected)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, expected) == 0;
}

/* ---- pre-tokenizers ---- */

#define EVERY_DIGIT "\\p{N}"
#define DIGIT_RUNS  "\\p{N}+"
/* The only one whose matches are merged with the text behind them. */
#define MERGED_LINES "(?:\\r?\\n)+(?!\\r?\\n)"

/* The expression that one part of a pre-tokenizer splits by; "": it does not split; NULL:
 * unsupported. A ByteLevel that splits itself has GPT-2's, row 0. */
static const char *part_expression(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type || json_is_true(json_object_get(part, "add_prefix_space")))
        return NULL;
    if (strcmp(type, "ByteLevel") == 0) {
        const json_t *by_itself = json_object_get(part, "use_regex");
        return by_itself && !json_is_true(by_itself) ? "" : pretokenizer_expression(0, 0);
    }
    if (strcmp(type, "Digits") == 0)
        return json_is_true(json_object_get(part, "individual_digits")) ? EVERY_DIGIT : DIGIT_RUNS;
    const json_t *regex = json_object_get(json_object_get(part, "pattern"), "Regex"),
                 *behavior = json_object_get(part, "behavior");
    if (strcmp(type, "Split") != 0 || json_is_true(json_object_get(part, "invert")))
        return NULL;
    if (hf_is_string(behavior, "MergedWithNext") && hf_is_string(regex, MERGED_LINES))
        return MERGED_LINES " MergedWithNext";
    return hf_is_string(behavior, "Isolated") ? json_string_value(regex) : NULL;
}

/* The expressions of a pre-tokenizer, which ends with a ByteLevel: their number, 0: unsupported. */
static uint32_t split_expressions(const json_t *pre, const char *out[TOKENIZER_EXPRESSIONS_MAX])
{
    const json_t *parts = json_object_get(pre, "pretokenizers");
    bool sequence = hf_is_string(json_object_get(pre, "type"), "Sequence");
    size_t count = sequence ? json_array_size(parts) : 1;
    uint32_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *part = sequence ? json_array_get(parts, i) : pre;
        const char *expression = part_expression(part);
        if (!expression ||
            (i + 1 == count) != hf_is_string(json_object_get(part, "type"), "ByteLevel"))
            return 0;
        if (!*expression)
            continue;
        if (n == TOKENIZER_EXPRESSIONS_MAX)
            return 0;
        out[n++] = expression;
    }
    return n;
}

/* A character of an expression, or one after a backslash. Line feeds may be written both ways. */
struct symbol {
    char c;
    bool escaped;
};

static struct symbol next_symbol(const char **at)
{
    const char *c = *at;
    if (*c != '\\' || !c[1]) {
        *at += *c != 0;
        return (struct symbol){*c, false};
    }
    *at += 2;
    return c[1] == 'r'   ? (struct symbol){'\r', false}
           : c[1] == 'n' ? (struct symbol){'\n', false}
                         : (struct symbol){c[1], true};
}

/* The same text, where quantifiers may be possessive here: the table has a + after them that
 * published expressions may lack, because both match the same. */
static bool same_expression(const char *here, const char *published)
{
    for (char last = 0; *here || *published;) {
        const char *h = here, *p = published;
        struct symbol a = next_symbol(&h), b = next_symbol(&p);
        if (a.c == b.c && a.escaped == b.escaped) {
            published = p;
        } else if (*here == '+' && last && strchr("+*?}", last)) {
            h = here + 1;
        } else {
            return false;
        }
        last = a.escaped ? 0 : a.c;
        here = h;
    }
    return true;
}

/* How many expressions of a tokenizer.json make up the one here; 0: they are others. */
static uint32_t published_count(const char *here, const char *const *expressions, uint32_t count)
{
    static const struct {
        const char *here, *published[TOKENIZER_EXPRESSIONS_MAX];
    } forms[] = {
#define PUBLISHED(here, ...) {here, {__VA_ARGS__}},
#include "lib/model/tokenizer/tokenizers.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        uint32_t n = 0;
        if (strcmp(forms[i].here, here) != 0)
            continue;
        while (n < count && forms[i].published[n] &&
               strcmp(forms[i].published[n], expressions[n]) == 0)
            n++;
        if (!forms[i].published[n])
            return n;
    }
    return count > 0 && same_expression(here, expressions[0]) ? 1 : 0;
}

static bool same_expressions(uint32_t row, const char *const *expressions, uint32_t count)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < TOKENIZER_EXPRESSIONS_MAX; i++) {
        const char *want = pretokenizer_expression(row, i);
        if (!want)
            break;
        uint32_t n = published_count(want, expressions + used, count - used);
        if (n == 0)
            return false;
        used += n;
    }
    return used == count;
}

/* One normalizer that is not a sequence: none, or NFC (sets *nfc). */
static int read_one_normalizer(const json_t *n, bool *nfc, struct error *error)
{
    if (!n || json_is_null(n))
        return 0;
    if (hf_is_string(json_object_get(n, "type"), "NFC")) {
        *nfc = true;
        return 0;
    }
    const char *type = json_string_value(json_object_get(n, "type"));
    return error_set(error, ERR_BAD_INPUT, "a normalizer of type '%s' is not supported",
                     type ? printable(type, strlen(type)).text : "");
}

/* Accepts no normalizer, NFC, and a sequence of these, such as DeepSeek's empty one. */
static int read_normalizer(const json_t *root, bool *nfc, struct error *error)
{
    const json_t *n = json_object_get(root, "normalizer");
    const json_t *parts = json_object_get(n, "normalizers");
    *nfc = false;
    if (!hf_is_string(json_object_get(n, "type"), "Sequence") || !json_is_array(parts))
        return read_one_normalizer(n, nfc, error);
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (read_one_normalizer(json_array_get(parts, i), nfc, error))
            return -1;
    return 0;
}

static bool file_ignores_merges(const json_t *root)
{
    return json_is_true(json_object_get(json_object_get(root, "model"), "ignore_merges"));
}

/* A row with the flag ignore_merges of the file, if there is one; else one with its expressions:
 * put_bpe writes the flag. */
static int find_pretokenizer(const json_t *root, uint32_t *found, struct error *error)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const char *expressions[TOKENIZER_EXPRESSIONS_MAX];
    uint32_t count = split_expressions(pre, expressions);
    bool ignore_merges = file_ignores_merges(root);
    *found = UINT32_MAX;
    if (json_is_true(json_object_get(pre, "add_prefix_space")))
        return error_set(error, ERR_BAD_INPUT, "a space before every text is not supported");
    for (uint32_t row = 0; count > 0 && row < pretokenizer_count(); row++)
        if (same_expressions(row, expressions, count) &&
            (*found == UINT32_MAX || (pretokenizer_ignores_merges(*found) != ignore_merges &&
                                      pretokenizer_ignores_merges(row) == ignore_merges)))
            *found = row;
    if (*found != UINT32_MAX)
        return 0;
    const char *last = count > 0 ? expressions[count - 1] : "";
    return error_set(error, ERR_BAD_INPUT, "its pre-tokenizer is not one of those supported%s%s",
                     *last ? ": " : "", *last ? printable(last, strlen(last)).text : "");
}

/* ---- special tokens ---- */

static const char *content_of(const json_t *token)
{
    return json_is_object(token) ? json_string_value(json_object_get(token, "content"))
                                 : json_string_value(token);
}

/* The ids of a special token in config.json: a number, or a list of them; NULL: none. */
static const json_t *ids_of(const json_t *config, const char *name)
{
    char field[40];
    snprintf(field, sizeof field, "%s_token_id", name);
    const json_t *ids = json_object_get(config, field);
    return ids ? ids : json_object_get(hf_text_config(config), field);
}

/* NULL after the last one. */
static const json_t *id_at(const json_t *ids, size_t i)
{
    return json_is_array(ids) ? json_array_get(ids, i) : i == 0 ? ids : NULL;
}

static bool is_id(const struct hf_tokens *t, const json_t *id)
{
    return json_is_integer(id) && json_integer_value(id) >= 0 &&
           json_integer_value(id) < (json_int_t)t->count;
}

/* The id of a special token: by its text in tokenizer_config.json, else by its id in config.json
 * (the first that there is, if there are several). */
static bool special_id(const struct hf_tokens *t, const json_t *settings, const json_t *config,
                       const char *name, uint32_t *id)
{
    char field[40];
    snprintf(field, sizeof field, "%s_token", name);
    const char *text = content_of(json_object_get(settings, field));
    if (!text && strcmp(name, "bos") == 0)
        text = t->bos;
    for (uint32_t i = 0; text && i < t->count; i++)
        if (t->type[i] != TOKEN_UNUSED && strcmp(t->text[i], text) == 0) {
            *id = i;
            return true;
        }
    const json_t *ids = ids_of(config, name), *one;
    for (size_t i = 0; (one = id_at(ids, i)); i++)
        if (is_id(t, one)) {
            *id = (uint32_t)json_integer_value(one);
            return true;
        }
    return false;
}

/* The TemplateProcessing object, which adds tokens before and after a text; NULL: none. */
static const json_t *template_of(const json_t *root)
{
    const json_t *post = json_object_get(root, "post_processor");
    const json_t *parts = json_object_get(post, "processors");
    if (hf_is_string(json_object_get(post, "type"), "TemplateProcessing"))
        return post;
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (hf_is_string(json_object_get(json_array_get(parts, i), "type"), "TemplateProcessing"))
            return json_array_get(parts, i);
    return NULL;
}

/* True if a text starts with the bos token. */
static bool adds_bos(const json_t *root, const json_t *settings, const char *bos)
{
    const json_t *setting = json_object_get(settings, "add_bos_token");
    if (json_is_boolean(setting))
        return json_is_true(setting);
    const json_t *single = json_object_get(template_of(root), "single");
    const json_t *first = json_object_get(json_array_get(single, 0), "SpecialToken");
    return bos && hf_is_string(json_object_get(first, "id"), bos);
}

/* The other tokens that end an answer: GGUF has two more keys for them. */
static void put_ends(const struct hf_tokens *t, const json_t *config, uint32_t eos,
                     struct gguf_writer *w)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const json_t *ids = ids_of(config, "eos"), *one;
    uint32_t put = eos;
    for (size_t i = 0, n = 0; (one = id_at(ids, i)) && n < ARRAY_LEN(keys); i++) {
        uint32_t id = is_id(t, one) ? (uint32_t)json_integer_value(one) : eos;
        if (id == eos || id == put)
            continue;
        gguf_put_u32(w, keys[n++], id);
        put = id;
    }
}

static void put_specials(const struct hf_tokens *t, const json_t *root, const json_t *settings,
                         const json_t *config, struct gguf_writer *w)
{
    static const char *const names[][2] = {{"bos", "tokenizer.ggml.bos_token_id"},
                                           {"eos", "tokenizer.ggml.eos_token_id"},
                                           {"pad", "tokenizer.ggml.padding_token_id"}};
    const char *bos = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        uint32_t id;
        if (!special_id(t, settings, config, names[i][0], &id))
            continue;
        gguf_put_u32(w, names[i][1], id);
        if (i == 0)
            bos = t->text[id];
        if (i == 1)
            put_ends(t, config, id, w);
    }
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", adds_bos(root, settings, bos));
}

/* ---- the keys ---- */

static void put_tokens(const struct hf_tokens *t, const json_t *settings, const json_t *config,
                       struct gguf_writer *w)
{
    gguf_put_strings(w, "tokenizer.ggml.tokens", t->text, NULL, t->count);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, t->type, t->count);
    put_specials(t, t->rest, settings, config, w);
}

static void put_bpe(const struct hf_tokens *t, uint32_t row, bool nfc, bool ignore_merges,
                    struct gguf_writer *w)
{
    gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(w, "tokenizer.ggml.pre", pretokenizer_name(row));
    if (nfc != pretokenizer_normalises(row))
        gguf_put_bool(w, TOKENIZER_NFC_KEY, nfc);
    if (ignore_merges != pretokenizer_ignores_merges(row))
        gguf_put_bool(w, TOKENIZER_IGNORE_MERGES_KEY, ignore_merges);
    gguf_put_strings(w, "tokenizer.ggml.merges", t->merges, NULL, t->merge_count);
}

static int check_model(const json_t *model, struct error *error)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!type || strcmp(type, "BPE") != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "a tokenizer of type '%s' is not supported (only BPE)",
                         type ? printable(type, strlen(type)).text : "");
    return 0;
}

static int byte_level_keys(const struct hf_tokens *t, struct gguf_writer *w, struct error *error)
{
    uint32_t row = 0;
    bool nfc;
    if (read_normalizer(t->rest, &nfc, error) || find_pretokenizer(t->rest, &row, error))
        return -1;
    put_bpe(t, row, nfc, file_ignores_merges(t->rest), w);
    return 0;
}

static int put_keys(struct hf_tokens *t, const json_t *settings, const json_t *config,
                    struct gguf_writer *w, struct error *error)
{
    const json_t *model = json_object_get(t->rest, "model");
    bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    if (check_model(model, error) ||
        (!bytes                         ? byte_level_keys(t, w, error)
         : hf_is_of_characters(t->rest) ? hf_characters_keys(t, w, error)
                                        : hf_sentencepiece_keys(t, w, error)))
        return -1;
    put_tokens(t, settings, config, w);
    return 0;
}

int hf_tokenizer_keys(struct json_reader *tokenizer, const json_t *settings, const json_t *config,
                      uint32_t vocab, struct gguf_writer *w, struct error *error)
{
    struct hf_tokens t;
    sl_assert(vocab >= 1 && vocab <= MODEL_VOCAB_MAX);
    int status = hf_tokens_read(&t, tokenizer, vocab, error);
    if (status == 0)
        status = put_keys(&t, settings, config, w, error);
    hf_tokens_free(&t);
    return status;
}

int hf_tiktoken_keys(const struct hf_tiktoken *row, const char *text, size_t bytes,
                     const json_t *settings, const json_t *config, uint32_t vocab,
                     struct gguf_writer *w, struct error *error)
{
    struct hf_tokens t;
    sl_assert(vocab >= 1 && vocab <= MODEL_VOCAB_MAX);
    int status = hf_tiktoken_read(&t, row, text, bytes, settings, vocab, error);
    if (status == 0) {
        uint32_t pre = pretokenizer_find(row->pre, strlen(row->pre));
        sl_assert(pre != UINT32_MAX);
        put_bpe(&t, pre, false, pretokenizer_ignores_merges(pre), w);
        put_tokens(&t, settings, config, w);
    }
    hf_tokens_free(&t);
    return status;
}
