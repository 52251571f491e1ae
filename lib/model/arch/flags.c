/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of layers: those that an architecture's rule sets, and those that a file states. */
#include <inttypes.h>
#include <stdlib.h>

#include "lib/model/arch/internal.h"

const char *arch_rotated_key(const struct arch *arch)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(ROTATED_KEY));
    return row ? row->key : NULL;
}

uint32_t arch_given_flags(const struct arch *arch)
{
    return (arch_rotated_key(arch) ? LAYER_UNROTATED : 0) |
           (arch_first(arch->rows, ARCH_ROWS(ROUTER_NAME)) ? LAYER_UNROUTED : 0) |
           (arch_first(arch->rows, ARCH_ROWS(NGRAMS)) ? LAYER_NGRAMS : 0) |
           (arch_first(arch->rows, ARCH_ROWS(INDEXED)) ? LAYER_INDEXED : 0) |
           (arch_first(arch->rows, ARCH_ROWS(ENTRIES)) ? LAYER_ENTRIES | LAYER_INDEXED : 0);
}

/* Latents of a window are not chosen among. */
static bool is_window_of_latents(const struct model_hparams *h, uint32_t layer)
{
    return h->kv_rank > 0 && h->layer_kind[layer] == LAYER_WINDOW;
}

/* By the rule for files that do not state which layers have an indexer. */
static bool is_indexed(const struct arch *arch, const struct model_hparams *h, uint32_t layer)
{
    if (is_window_of_latents(h, layer))
        return false;
    if (arch_first(arch->rows, ARCH_ROWS(INDEXED_ROUTED)))
        return h->index_heads > 0 && layer >= h->dense_layers;
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(INDEXED));
    bool sparse = row && row->value > 0 && h->context >= (uint32_t)row->value;
    return h->index_heads > 0 && (!sparse || layer < 2 || layer % 4 == 2);
}

void arch_set_indexed(const struct arch *arch, struct model_hparams *h)
{
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (is_indexed(arch, h, layer))
            h->layer_flags[layer] |= LAYER_INDEXED;
}

static bool is_unrotated(const struct arch *arch, const struct model_hparams *h, uint32_t layer)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(UNROTATED));
    bool full = h->window > 0 && h->layer_kind[layer] == LAYER_FULL;
    if (!row)
        return false;
    switch ((enum arch_unrotated)row->which) {
    case ARCH_UNROTATED_FULL: return full;
    case ARCH_UNROTATED_FULL_ROUTED: return full && layer >= h->dense_layers;
    case ARCH_UNROTATED_ALL: break;
    }
    return true;
}

/* The flags of a layer by the rule. */
static uint32_t rule_of(const struct arch *arch, const struct model_hparams *h, uint32_t layer)
{
    bool unrouted = h->expert_step > 0 && (layer + 1) % h->expert_step != 0;
    return (is_unrotated(arch, h, layer) ? LAYER_UNROTATED : 0) | (unrouted ? LAYER_UNROUTED : 0) |
           (is_indexed(arch, h, layer) ? LAYER_INDEXED : 0);
}

void arch_set_flags(const struct arch *arch, struct model_hparams *h)
{
    uint32_t given = arch_given_flags(arch), stated = given & LAYER_INDEXED;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        h->layer_flags[layer] =
            (uint8_t)((h->layer_flags[layer] & given) | (rule_of(arch, h, layer) & ~stated));
}

static int read_rotated(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error)
{
    const char *name = arch_rotated_key(arch);
    char key[ARCH_KEY_BYTES];
    bool rotated[MODEL_LAYERS_MAX];
    if (!name)
        return 0;
    arch_full_key(arch, name, key);
    int found = arch_read_bools(g, key, h, rotated, error);
    for (uint32_t layer = 0; found == 1 && layer < h->layers; layer++)
        h->layer_flags[layer] |= rotated[layer] ? 0 : LAYER_UNROTATED;
    return found < 0 ? -1 : 0;
}

bool arch_has_indexer(const struct gguf *g, const struct model_hparams *h)
{
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const char *name = g->tensors[i].name;
        char *rest;
        if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
            continue;
        if (strtoul(name + 4, &rest, 10) < h->layers && strncmp(rest, ".indexer.", 9) == 0)
            return true;
    }
    return false;
}

/* The choice of a layer without an indexer is one that was made before. */
static int read_indexed(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(INDEXED));
    char key[ARCH_KEY_BYTES];
    bool indexed[MODEL_LAYERS_MAX];
    if (!arch_has_indexer(g, h)) /* as in stores that sluice packed before it computed them */
        h->index_heads = h->index_size = 0;
    if (!row)
        return 0;
    arch_full_key(arch, row->key, key);
    int found = arch_read_bools(g, key, h, indexed, error);
    if (found == 0)
        arch_set_indexed(arch, h);
    for (uint32_t layer = 0; found == 1 && h->index_heads > 0 && layer < h->layers; layer++)
        h->layer_flags[layer] |= indexed[layer] ? LAYER_INDEXED : 0;
    return found < 0 ? -1 : 0;
}

/* Layers whose entries are of few positions have an indexer. */
static int read_entries(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                        struct error *error)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(ENTRIES));
    struct gguf_array a;
    char key[ARCH_KEY_BYTES];
    bool indexed = false;
    if (!row)
        return 0;
    arch_full_key(arch, row->key, key);
    int found = gguf_get_uints(g, key, &a, error);
    if (found <= 0 || a.left < h->layers)
        return found < 0
                   ? -1
                   : error_set(error, ERR_BAD_INPUT,
                               "key '%s' is missing, or no array with a number per layer", key);
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t unit;
        if (gguf_array_uint(&a, key, &unit, error) != 0)
            return -1;
        if (unit != 0 && unit != MODEL_ENTRY_FEW && unit != MODEL_ENTRY_MANY)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 " for layer %" PRIu32
                             ": 0, %d and %d are supported",
                             key, unit, layer, MODEL_ENTRY_FEW, MODEL_ENTRY_MANY);
        h->layer_flags[layer] |= unit > 0 ? LAYER_ENTRIES : 0;
        h->layer_flags[layer] |= unit == MODEL_ENTRY_FEW ? LAYER_INDEXED : 0;
        indexed |= unit == MODEL_ENTRY_FEW;
    }
    if (!indexed)
        h->index_heads = h->index_size = h->index_top_k = 0;
    return 0;
}

static void read_routers(const struct arch *arch, const struct gguf *g, struct model_hparams *h)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(ROUTER_NAME));
    bool routed[MODEL_LAYERS_MAX] = {false}, leading = h->dense_layers == 0; /* not stated */
    uint32_t number;
    for (uint32_t i = 0; row && i < g->tensor_count; i++)
        if (arch_name_matches(row->key, g->tensors[i].name, &number) && number < h->layers)
            routed[number] = true;
    for (uint32_t layer = h->dense_layers; row && layer < h->layers; layer++) {
        leading = leading && !routed[layer];
        h->dense_layers += leading;
        if (!routed[layer] && !leading)
            h->layer_flags[layer] |= LAYER_UNROUTED;
    }
}

int arch_read_flags(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                    struct error *error)
{
    read_routers(arch, g, h);
    return read_rotated(arch, g, h, error) != 0 || read_indexed(arch, g, h, error) != 0 ||
                   read_entries(arch, g, h, error) != 0
               ? -1
               : arch_read_ngrams(arch, g, h, error);
}

int arch_check_flags(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    uint32_t given = arch_given_flags(arch), routed = 0;
    bool chosen = false; /* by an indexer, before this layer */
    for (uint32_t layer = 0; layer < MODEL_LAYERS_MAX; layer++) {
        uint32_t flags = h->layer_flags[layer];
        uint32_t rule = layer < h->layers ? rule_of(arch, h, layer) : 0;
        uint32_t free = layer < h->layers ? given : 0;
        if ((flags & ~free) != (rule & ~free) ||
            (flags & LAYER_UNROUTED && layer < h->dense_layers))
            return error_set(error, ERR_BAD_INPUT, "layer %" PRIu32 " has impossible flags", layer);
        if (flags & LAYER_UNROUTED && h->dense_inner == 0)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s.feed_forward_length' is missing: layer %" PRIu32
                             " has no experts",
                             arch->name, layer);
        enum layer_index index = layer < h->layers ? model_index_of(h, layer) : INDEX_NONE;
        bool window = layer < h->layers && is_window_of_latents(h, layer);
        if ((flags & LAYER_INDEXED && (h->index_heads == 0 || window)) ||
            (index == INDEX_BEFORE && !chosen))
            return error_set(error, ERR_BAD_INPUT,
                             "layer %" PRIu32 " has an indexer where the model has none, or takes "
                             "the choice of another one where none is before it",
                             layer);
        chosen = chosen || index == INDEX_OWN;
        if (flags & LAYER_INDEXED && given & LAYER_ENTRIES && !(flags & LAYER_ENTRIES))
            return error_set(error, ERR_BAD_INPUT,
                             "layer %" PRIu32 " has an indexer, but no entries", layer);
        routed += layer >= h->dense_layers && layer < h->layers && !(flags & LAYER_UNROUTED);
    }
    return routed > 0 ? 0 : error_set(error, ERR_BAD_INPUT, "no layer has experts");
}
