/* SPDX-License-Identifier: Apache-2.0 */
/* N-grams: what a file says of them, and the numbers of their rows. */
#include <inttypes.h>

#include "lib/model/arch/internal.h"
#include "lib/model/arch/ngrams/ngrams.h"

#define TABLE    "per_layer_token_embd.weight"
#define ROWS_MAX ((uint64_t)1 << 31)

void model_ngram_numbers(const struct model_hparams *h, const uint32_t *token, uint32_t *row)
{
    const struct model_ngrams *n = &h->ngrams;
    uint64_t hash = token[0] * n->multiplier[0];
    bool cut = false; /* by the end of a text, which is itself part of an n-gram */
    for (uint32_t s = 1, i = 0; s < h->ngram_size; s++) {
        uint32_t before = cut ? h->ngram_end : token[s];
        cut = before == h->ngram_end;
        hash ^= before * n->multiplier[s];
        for (uint32_t head = 0; head < h->ngram_heads; head++, i++)
            row[i] = n->offset[i] + (uint32_t)(hash % n->count[i]);
    }
}

/* ---- reading ---- */

/* The array of a key with `count` elements up to max. */
static int read_numbers(const struct arch *arch, const struct gguf *g, const char *name,
                        uint32_t count, uint64_t max, uint64_t *values, struct error *error)
{
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    arch_full_key(arch, name, key);
    int found = gguf_get_uints(g, key, &a, error);
    if (found < 0)
        return -1;
    if (found == 0 || a.left != count)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is missing, or has not %" PRIu32 " elements", key, count);
    for (uint32_t i = 0; i < count; i++) {
        if (gguf_array_uint(&a, key, &values[i], error) != 0)
            return -1;
        if (values[i] > max)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' has %" PRIu64 ": at most %" PRIu64 " is possible", key,
                             values[i], max);
    }
    return 0;
}

static int read_parts(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error)
{
    uint32_t rows = model_ngram_rows(h);
    uint64_t offset[NGRAM_ROWS_MAX], count[NGRAM_ROWS_MAX];
    if (read_numbers(arch, g, "ple.layer_multipliers", h->ngram_size, UINT64_MAX,
                     h->ngrams.multiplier, error) ||
        read_numbers(arch, g, "ple.head_offsets", rows, ROWS_MAX, offset, error) ||
        read_numbers(arch, g, "ple.head_vocab_sizes", rows, ROWS_MAX, count, error))
        return -1;
    for (uint32_t i = 0; i < rows; i++) {
        h->ngrams.offset[i] = (uint32_t)offset[i];
        h->ngrams.count[i] = (uint32_t)count[i];
    }
    return 0;
}

static int read_table(const struct gguf *g, struct model_hparams *h, struct error *error)
{
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (strcmp(g->tensors[i].name, TABLE) != 0)
            continue;
        if (g->tensors[i].ne[1] > ROWS_MAX)
            return error_set(error, ERR_BAD_INPUT, "tensor " TABLE " has too many rows");
        h->ngram_rows = (uint32_t)g->tensors[i].ne[1];
        return 0;
    }
    return error_set(error, ERR_BAD_INPUT, "tensor " TABLE " is missing");
}

/* Keys of n-grams without the list of layers mean nothing. */
static void forget(struct model_hparams *h)
{
    h->ngram_size = h->ngram_heads = h->ngram_taps = 0;
    h->ngram_width = h->ngram_rows = h->ngram_end = 0;
}

int arch_read_ngrams(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                     struct error *error)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(NGRAMS));
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    uint64_t layer;
    if (!row)
        return 0;
    arch_full_key(arch, row->key, key);
    int found = gguf_get_uints(g, key, &a, error);
    if (found < 0)
        return -1;
    if (found == 0 || a.left == 0) {
        forget(h);
        return 0;
    }
    if (a.left > 1)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' has %" PRIu64 " layers; only one is supported", key, a.left);
    if (gguf_array_uint(&a, key, &layer, error) != 0)
        return -1;
    if (layer >= h->layers)
        return error_set(error, ERR_BAD_INPUT, "key '%s' has layer %" PRIu64 " of %" PRIu32, key,
                         layer, h->layers);
    if (model_ngram_rows(h) < 1 || model_ngram_rows(h) > NGRAM_ROWS_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "ple.ngram_size %" PRIu32 ", ple.heads_per_ngram %" PRIu32
                         ": 1 to %d rows per token are possible",
                         h->ngram_size, h->ngram_heads, NGRAM_ROWS_MAX);
    h->layer_flags[layer] |= LAYER_NGRAMS;
    return read_table(g, h, error) != 0 ? -1 : read_parts(arch, g, h, error);
}

/* ---- the check ---- */

static int check_rows(const struct model_hparams *h, struct error *error)
{
    for (uint32_t i = 0; i < model_ngram_rows(h); i++) {
        uint64_t end = (uint64_t)h->ngrams.offset[i] + h->ngrams.count[i];
        if (h->ngrams.count[i] == 0 || end > h->ngram_rows)
            return error_set(error, ERR_BAD_INPUT,
                             "rows %" PRIu32 " to %" PRIu64 " of the table of n-grams, which has "
                             "%" PRIu32,
                             h->ngrams.offset[i], end, h->ngram_rows);
    }
    return 0;
}

/* Fields of models without n-grams are 0. */
static int check_none(const struct model_hparams *h, struct error *error)
{
    static const struct model_ngrams none;
    bool any = (h->ngram_size | h->ngram_heads | h->ngram_taps | h->ngram_width | h->ngram_rows |
                h->ngram_end) != 0 ||
               memcmp(&none, &h->ngrams, sizeof none) != 0;
    return any ? error_set(error, ERR_BAD_INPUT, "n-grams of no layer") : 0;
}

int arch_check_ngrams(const struct model_hparams *h, struct error *error)
{
    uint32_t layer = 0, rows = model_ngram_rows(h);
    while (layer < h->layers && !(h->layer_flags[layer] & LAYER_NGRAMS))
        layer++;
    if (layer == h->layers)
        return check_none(h, error);
    if (h->layer_kind[layer] != LAYER_RECURRENT)
        return error_set(error, ERR_BAD_INPUT,
                         "layer %" PRIu32 " has n-grams and no recurrent state, which is not "
                         "supported",
                         layer);
    for (uint32_t i = layer + 1; i < h->layers; i++)
        if (h->layer_flags[i] & LAYER_NGRAMS)
            return error_set(error, ERR_BAD_INPUT, "two layers have n-grams");
    if (h->ngram_size > NGRAM_SIZE_MAX || rows < 1 || rows > NGRAM_ROWS_MAX || h->ngram_taps < 2 ||
        h->ngram_taps > MODEL_TAPS_MAX || h->ngram_width == 0 ||
        (uint64_t)rows * h->ngram_width > MODEL_ROW_MAX || h->ngram_end >= h->vocab ||
        h->streams < 2)
        return error_set(error, ERR_BAD_INPUT, "n-grams of impossible sizes");
    return check_rows(h, error);
}
