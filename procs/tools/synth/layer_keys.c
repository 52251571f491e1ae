/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the keys that state which layers rotate, have n-grams, an indexer or entries. */
#include "procs/tools/synth/layer_keys.h"

#include <stdio.h>

static void put_rotated(const struct shape *s, struct gguf_writer *w)
{
    const char *name = arch_rotated_key(s->arch);
    bool rotated[MODEL_LAYERS_MAX];
    char key[128];
    for (uint32_t l = 0; l < s->h.layers; l++)
        rotated[l] = !(s->h.layer_flags[l] & LAYER_UNROTATED);
    snprintf(key, sizeof key, "%s.%s", s->arch->name, name ? name : "");
    if (name)
        gguf_put_array(w, key, GGUF_BOOL, rotated, s->h.layers);
}

static void put_u64s(const struct shape *s, const char *name, const uint32_t *values,
                     struct gguf_writer *w)
{
    uint64_t wide[NGRAM_ROWS_MAX];
    char key[128];
    snprintf(key, sizeof key, "%s.%s", s->arch->name, name);
    for (uint32_t i = 0; i < model_ngram_rows(&s->h); i++)
        wide[i] = values[i];
    gguf_put_array(w, key, GGUF_U64, wide, model_ngram_rows(&s->h));
}

static void put_ngrams(const struct shape *s, struct gguf_writer *w)
{
    const struct model_hparams *h = &s->h;
    const struct arch_row *row;
    char key[128];
    for (int32_t layer = 0; layer < (int32_t)h->layers; layer++) {
        if (!(h->layer_flags[layer] & LAYER_NGRAMS))
            continue;
        ARCH_EACH (row, s->arch, ARCH_ROWS(NGRAMS)) {
            snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key);
            gguf_put_array(w, key, GGUF_I32, &layer, 1);
        }
        snprintf(key, sizeof key, "%s.ple.layer_multipliers", s->arch->name);
        gguf_put_array(w, key, GGUF_U64, h->ngrams.multiplier, h->ngram_size);
        put_u64s(s, "ple.head_offsets", h->ngrams.offset, w);
        put_u64s(s, "ple.head_vocab_sizes", h->ngrams.count, w);
    }
}

/* Which layers have an indexer, where not all of the rule do. */
static void put_indexed(const struct shape *s, struct gguf_writer *w)
{
    bool indexed[MODEL_LAYERS_MAX];
    char key[128];
    const struct arch_row *row;
    for (uint32_t l = 0; l < s->h.layers; l++)
        indexed[l] = s->h.layer_flags[l] & LAYER_INDEXED;
    ARCH_EACH (row, s->arch, ARCH_ROWS(INDEXED)) {
        snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key);
        if (s->index_every > 1)
            gguf_put_array(w, key, GGUF_BOOL, indexed, s->h.layers);
    }
}

/* The block of layers that have an indexer, and the positions of entries. */
static void put_blocks(const struct shape *s, struct gguf_writer *w)
{
    uint32_t blocks[MODEL_LAYERS_MAX];
    char key[128];
    const struct arch_row *row;
    for (uint32_t l = 0; l < s->h.layers; l++)
        blocks[l] = model_index_of(&s->h, l) == INDEX_OWN ? s->h.index_block : 0;
    ARCH_EACH (row, s->arch, ARCH_ROWS(CHOICE)) {
        snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key ? row->key : "");
        if (row->key && s->h.index_block > 0)
            gguf_put_array(w, key, GGUF_U32, blocks, s->h.layers);
    }
    for (uint32_t l = 0; l < s->h.layers; l++)
        blocks[l] = model_entry_unit(&s->h, l);
    ARCH_EACH (row, s->arch, ARCH_ROWS(ENTRIES)) {
        snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key);
        gguf_put_array(w, key, GGUF_U32, blocks, s->h.layers);
    }
}

void layer_keys_put(const struct shape *s, struct gguf_writer *w)
{
    put_rotated(s, w);
    put_ngrams(s, w);
    put_indexed(s, w);
    put_blocks(s, w);
}
