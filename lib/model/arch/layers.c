/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of layers, and hyper-parameters that differ between them. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/internal.h"

const char *arch_window_key(const struct arch *arch)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(WINDOW_KEY));
    return row ? row->key : NULL;
}

size_t arch_window_field(const struct arch *arch, size_t field)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(ARRAY))
        if (row->other == field)
            return row->offset;
    return 0;
}

/* period 0: every layer has a window. */
static void set_cycle(struct model_hparams *h, uint64_t period, uint64_t at)
{
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (period == 0 || layer % period != at)
            h->layer_kind[layer] = LAYER_WINDOW;
}

void arch_set_kinds(const struct arch *arch, struct model_hparams *h)
{
    memset(h->layer_kind, LAYER_FULL, sizeof h->layer_kind);
    const struct arch_row *cycle = arch_first(arch->rows, ARCH_ROWS(FULL_EVERY));
    if (cycle && h->window > 0)
        set_cycle(h, cycle->period, cycle->at);
    arch_set_recurrent(h);
}

static int check_length(const struct model_hparams *h, const struct gguf_array *a, const char *key,
                        struct error *error)
{
    if (a->left < h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' has %" PRIu64 " numbers for %" PRIu32 " layers", key, a->left,
                         h->layers);
    return 0;
}

int arch_read_bools(const struct gguf *g, const char *key, const struct model_hparams *h,
                    bool *values, struct error *error)
{
    struct gguf_array a;
    int found = gguf_get_array(g, key, GGUF_BOOL, &a, NULL);
    bool bools = found == 1;
    if (found < 0 && gguf_get_uints(g, key, &a, NULL) != 1)
        return gguf_get_array(g, key, GGUF_BOOL, &a, error);
    if (found == 0)
        return 0;
    if (check_length(h, &a, key, error) != 0)
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t value = bools && gguf_array_bool(&a);
        if (!bools && gguf_array_uint(&a, key, &value, error) != 0)
            return -1;
        if (value > 1)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 " for layer %" PRIu32 ": not 0 or 1", key,
                             value, layer);
        values[layer] = value == 1;
    }
    return 1;
}

/* Kinds by an array of the file: 1, or 0 if it has none. */
static int read_windows(const struct gguf *g, const char *key, struct model_hparams *h,
                        struct error *error)
{
    bool windows[MODEL_LAYERS_MAX];
    int found = arch_read_bools(g, key, h, windows, error);
    for (uint32_t layer = 0; found == 1 && layer < h->layers; layer++)
        h->layer_kind[layer] = windows[layer] ? LAYER_WINDOW : LAYER_FULL;
    return found;
}

/* Kinds by the architecture's rule, with the period of the file, or by its array. */
static int read_cycle(const struct gguf *g, const char *key, uint32_t at, struct model_hparams *h,
                      struct error *error)
{
    uint64_t period;
    int found = gguf_get_uint(g, key, &period, NULL);
    if (found < 0) /* no number */
        return read_windows(g, key, h, error) < 0 ? -1 : 0;
    if (found == 0)
        return 0;
    memset(h->layer_kind, LAYER_FULL, sizeof h->layer_kind);
    set_cycle(h, period, at == 0 ? 0 : period - 1);
    return 0;
}

int arch_read_kinds(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                    struct error *error)
{
    const char *name = arch_window_key(arch);
    char key[ARCH_KEY_BYTES];
    arch_set_kinds(arch, h);
    arch_full_key(arch, "attention.sliding_window_pattern", key);
    const struct arch_row *cycle = arch_first(arch->rows, ARCH_ROWS(FULL_EVERY));
    if (h->window == 0) { /* no layer has one, whatever the pattern is */
        struct gguf_array unused;
        if (cycle || name)
            (void)gguf_get_array(g, key, GGUF_BOOL, &unused, NULL); /* it is not missed */
        return 0;
    }
    if (cycle)
        return read_cycle(g, key, cycle->at, h, error);
    if (!name)
        return 0;
    arch_full_key(arch, name, key);
    int found = read_windows(g, key, h, error);
    return found == 0 ? error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key)
                      : (found < 0 ? -1 : 0);
}

/* Numbers of an array with one per block, in place of the number of the key. */
struct numbers {
    const struct arch_row *own; /* of that key */
    char name[ARCH_KEY_BYTES];
    struct gguf_array a;
};

/* 1, or 0 if the file has no such array. */
static int open_numbers(const struct arch *arch, size_t field, const struct gguf *g,
                        const struct model_hparams *h, struct numbers *n, struct error *error)
{
    n->own = arch_uint_row(arch, field);
    arch_full_key(arch, n->own->key, n->name);
    int found = gguf_get_uints(g, n->name, &n->a, error);
    return found > 0 && check_length(h, &n->a, n->name, error) != 0 ? -1 : found;
}

static int check_number(const struct numbers *n, uint32_t layer, uint64_t value,
                        struct error *error)
{
    if (value < (uint64_t)n->own->min || value > (uint64_t)n->own->max)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64 " for layer %" PRIu32 ": not between %.0f and %.0f",
                         n->name, value, layer, n->own->min, n->own->max);
    return 0;
}

int arch_read_array(const struct arch *arch, const struct arch_row *row, const char *key,
                    const struct gguf *g, struct model_hparams *h, struct error *error)
{
    struct numbers n;
    (void)key; /* the row has none */
    int found = open_numbers(arch, row->other, g, h, &n, error);
    if (found <= 0)
        return found;
    uint32_t *field[] = {
        [LAYER_FULL] = arch_uint(h, row->other), [LAYER_WINDOW] = arch_uint(h, row->offset)};
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t value;
        if (gguf_array_uint(&n.a, n.name, &value, error) || check_number(&n, layer, value, error))
            return -1;
        uint32_t *to = field[h->layer_kind[layer]]; /* the layers of a kind have the same number */
        if (*to != 0 && *to != value)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 " for layer %" PRIu32 ", but %" PRIu32
                             " for another of its kind",
                             n.name, value, layer, *to);
        *to = (uint32_t)value;
    }
    if (*field[LAYER_FULL] == 0)
        *field[LAYER_FULL] = *field[LAYER_WINDOW];
    return 0;
}

#define LIMIT_MAX 1e6f

int arch_read_limits(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    (void)arch;
    float *limits = arch_floats(h, row->offset);
    double one;
    struct gguf_array a;
    int number = gguf_get_float(g, key, &one, NULL);
    int found = number < 0 ? gguf_get_array(g, key, GGUF_F32, &a, error) : number;
    if (found <= 0)
        return found;
    if (number < 0 && check_length(h, &a, key, error) != 0)
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        float limit = number < 0 ? gguf_array_f32(&a) : (float)one;
        if (!(limit >= 0 && limit <= LIMIT_MAX))
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %g for layer %" PRIu32 ": not between 0 and %g", key,
                             (double)limit, layer, (double)LIMIT_MAX);
        limits[layer] = limit;
    }
    return 0;
}

int arch_read_same(const struct arch *arch, const struct arch_row *row, const char *key,
                   const struct gguf *g, struct model_hparams *h, struct error *error)
{
    uint32_t *field = arch_uint(h, row->offset), first = h->layers;
    struct numbers n;
    (void)key; /* the row has none */
    int found = open_numbers(arch, row->offset, g, h, &n, error);
    if (found <= 0)
        return found;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t value;
        if (gguf_array_uint(&n.a, n.name, &value, error) != 0)
            return -1;
        if (!hparams_layer_has_experts(h, layer))
            continue;
        if (check_number(&n, layer, value, error) != 0)
            return -1;
        if (first < h->layers && value != *field)
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu32 " for layer %" PRIu32 " and %" PRIu64
                             " for layer %" PRIu32
                             ": layers whose experts differ in number or size are not supported",
                             n.name, *field, first, value, layer);
        first = first < h->layers ? first : layer;
        *field = (uint32_t)value;
    }
    return 0;
}

/* Architectures without a row have no limits, and neither have layers that are not there. */
int arch_check_limits(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    const struct {
        const float *limits;
        size_t offset;
    } fields[] = {{h->expert_limits, offsetof(struct model_hparams, expert_limits)},
                  {h->dense_limits, offsetof(struct model_hparams, dense_limits)}};
    for (size_t f = 0; f < ARRAY_LEN(fields); f++) {
        const struct arch_row *row;
        ARCH_EACH (row, arch, ARCH_ROWS(LIMITS))
            if (row->offset == fields[f].offset)
                break;
        for (uint32_t layer = 0; layer < MODEL_LAYERS_MAX; layer++) {
            float most = row && layer < h->layers ? LIMIT_MAX : 0, limit = fields[f].limits[layer];
            if (!(limit >= 0 && limit <= most))
                return error_set(error, ERR_BAD_INPUT,
                                 "the limit of the network of layer %" PRIu32 " is impossible",
                                 layer);
        }
    }
    return 0;
}

/* The tokens of which the indexer chooses all, if it chooses that many positions in blocks. */
static uint64_t chosen_whole(uint64_t chosen, uint64_t block)
{
    return chosen / block * block + block - 1;
}

/* The block of the layers with attention in which the fewest tokens are chosen whole; 0: they have
 * none. *alike: all of these layers have it. */
static int read_blocks(const struct gguf *g, const char *key, const struct model_hparams *h,
                       uint64_t chosen, uint64_t *block, bool *alike, struct error *error)
{
    struct gguf_array a;
    *block = 0;
    *alike = true;
    int found = gguf_get_uints(g, key, &a, error);
    if (found < 0)
        return -1;
    if (found == 0) /* one number, or no key */
        return gguf_get_uint(g, key, block, error) < 0 ? -1 : 0;
    uint64_t first = UINT64_MAX;
    if (check_length(h, &a, key, error) != 0)
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t value;
        if (gguf_array_uint(&a, key, &value, error) != 0)
            return -1;
        if (!layer_has_keys((enum layer_kind)h->layer_kind[layer]))
            continue;
        first = first == UINT64_MAX ? value : first;
        *alike &= value == first;
        if (value == 0)
            continue;
        if (*block == 0 || value > chosen ||
            (*block <= chosen && chosen_whole(chosen, value) < chosen_whole(chosen, *block)))
            *block = value;
    }
    return 0;
}

void arch_set_pools(const struct arch *arch, struct model_hparams *h)
{
    if (!arch_first(arch->rows, ARCH_ROWS(CHOICE)) || h->index_block == 0)
        return;
    h->index_top_k /= h->index_block;
    h->index_tail = h->index_block - 1;
}

static bool is_pool(uint64_t block)
{
    return block > 1 && block <= MODEL_POOL_MAX && KV_TILE % block == 0;
}

int arch_read_choice(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    char positions[ARCH_KEY_BYTES];
    uint64_t block, chosen = h->index_top_k;
    bool alike;
    const bool whole = !row->key;
    arch_full_key(arch, row->text, positions);
    block = h->index_block; /* of another row */
    alike = true;
    if (!whole && read_blocks(g, key, h, chosen, &block, &alike, error) != 0)
        return -1;
    if (!alike || !is_pool(block)) /* it is not computed */
        h->index_heads = h->index_size = 0;
    if (block == 0 && !arch_has_indexer(g, h)) {
        h->index_top_k = 0;
        return 0;
    }
    /* Converters that do not know the blocks write 0 for them, although the file has these tensors.
     * The blocks are unknown then: positions, which are fewer. */
    if (block == 0)
        block = 1;
    if (chosen == 0)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", positions);
    if (chosen < block || (whole && chosen % block != 0))
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64 " positions, in blocks of %" PRIu64 ": impossible",
                         positions, chosen, block);
    h->index_block = (uint32_t)block;
    arch_set_pools(arch, h);
    return 0;
}

const char *arch_network_key(const struct arch *arch)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(NETWORK_KEY));
    return row ? row->key : NULL;
}

/* Old files have the size of an expert in this array alone, times the number of those used. */
int arch_read_networks(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                       struct error *error)
{
    const char *name = arch_network_key(arch);
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    uint64_t size = 0;
    if (!name)
        return 0;
    arch_full_key(arch, name, key);
    int found = gguf_get_uints(g, key, &a, error);
    if (found <= 0)
        return found < 0
                   ? -1
                   : error_set(error, ERR_BAD_INPUT,
                               "key '%s' is missing, or no array with a number per layer", key);
    if (check_length(h, &a, key, error) != 0)
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        uint64_t value;
        if (gguf_array_uint(&a, key, &value, error) != 0)
            return -1;
        if (value > 0)
            h->layer_kind[layer] = LAYER_PLAIN;
        size = value > 0 ? value : size;
    }
    if (h->expert_inner == 0 && h->experts_used > 0)
        h->expert_inner = (uint32_t)(size < UINT32_MAX ? size / h->experts_used : 0);
    return 0;
}

static bool row_fits(const struct arch_row *row, const struct model_hparams *h, uint32_t layer)
{
    bool recurrent = h->layer_kind[layer] == LAYER_RECURRENT, leading = layer < h->dense_layers;
    bool unrouted = (h->layer_flags[layer] & LAYER_UNROUTED) != 0;
    switch ((enum arch_which)row->which) {
    case ARCH_WHICH_UNROUTED_RECURRENT: return unrouted && recurrent;
    case ARCH_WHICH_UNROUTED: return unrouted;
    case ARCH_WHICH_LEADING_RECURRENT: return recurrent && leading;
    case ARCH_WHICH_LEADING: return leading;
    case ARCH_WHICH_RECURRENT: return recurrent;
    case ARCH_WHICH_PLAIN: return h->layer_kind[layer] == LAYER_PLAIN;
    case ARCH_WHICH_ALL: break;
    }
    return true;
}

/* What the layer consists of. */
static const struct arch_row *parts_of(const struct arch *arch, const struct model_hparams *h,
                                       uint32_t layer)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(LAYERS))
        if (row_fits(row, h, layer))
            return row;
    sl_panic("layer %u of %s is in no table", layer, arch->name);
}

void arch_set_parts(const struct arch *arch, struct model_hparams *h)
{
    memset(h->layer_mixer, 0, sizeof h->layer_mixer);
    memset(h->layer_ffn, 0, sizeof h->layer_ffn);
    arch_set_flags(arch, h);
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        const struct arch_row *row = parts_of(arch, h, layer);
        h->layer_mixer[layer] = row->mixer;
        h->layer_ffn[layer] = row->ffn;
    }
}

int arch_check_parts(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    for (uint32_t layer = 0; layer < MODEL_LAYERS_MAX; layer++) {
        const struct arch_row *row = layer < h->layers ? parts_of(arch, h, layer) : NULL;
        if (h->layer_mixer[layer] != (row ? row->mixer : 0) ||
            h->layer_ffn[layer] != (row ? row->ffn : 0))
            return error_set(error, ERR_BAD_INPUT, "layer %" PRIu32 " is of impossible parts",
                             layer);
    }
    if (hparams_expert_layers(h) == 0)
        return error_set(error, ERR_BAD_INPUT, "no layer has experts");
    return 0;
}

int arch_check_kinds(const struct model_hparams *h, struct error *error)
{
    if (h->window_chunks && h->window % KV_TILE != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.sliding_window is %" PRIu32 ": chunks of a multiple of %d "
                         "positions are supported",
                         h->window, KV_TILE);
    for (uint32_t layer = 0; layer < MODEL_LAYERS_MAX; layer++) {
        bool window = layer < h->layers && h->window > 0 && h->layer_kind[layer] == LAYER_WINDOW;
        bool recurrent = layer < h->layers && h->layer_kind[layer] == LAYER_RECURRENT &&
                         model_recurrent_of(h, layer).floats > 0;
        bool plain = layer < h->layers && h->layer_kind[layer] == LAYER_PLAIN &&
                     h->layer_mixer[layer] == MIXER_NONE;
        if (h->layer_kind[layer] != LAYER_FULL && !window && !recurrent && !plain)
            return error_set(error, ERR_BAD_INPUT, "layer %" PRIu32 " is of an impossible kind",
                             layer);
    }
    return 0;
}

int arch_check_attention(const struct layer_attention *a, struct error *error)
{
    if (a->heads % a->kv_heads != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "head_count %" PRIu32 " is not a multiple of head_count_kv %" PRIu32,
                         a->heads, a->kv_heads);
    if (a->key_size % 2 != 0)
        return error_set(error, ERR_BAD_INPUT, "the head size %" PRIu32 " is odd", a->key_size);
    if (a->rope_dims > a->key_size || a->rope_dims % 2 != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "rope.dimension_count is %" PRIu32
                         "; an even number up to the head size %" PRIu32 " is possible",
                         a->rope_dims, a->key_size);
    if (a->gate >= HEAD_GATE__COUNT || a->gate_form >= GATE_FORM__COUNT)
        return error_set(error, ERR_BAD_INPUT, "gates of heads are of an impossible form");
    if (a->gate && a->gate_form == GATE_IN_Q && a->value_size != a->key_size)
        return error_set(error, ERR_BAD_INPUT,
                         "key_length %" PRIu32 " and value_length %" PRIu32
                         " differ: a gated head has one size",
                         a->key_size, a->value_size);
    return 0;
}

void arch_derive_mla(struct model_hparams *h)
{
    if (h->kv_rank == 0)
        return;
    if (!h->kv_heads)
        h->kv_heads = 1;
    if (!h->head_size)
        h->head_size = h->kv_rank + h->rope_dims;
    if (!h->value_size)
        h->value_size = h->kv_rank;
    if (h->kv_rank_window > 0 && !h->head_size_window)
        h->head_size_window = h->kv_rank_window + h->rope_dims;
    if (h->kv_rank_window > 0 && !h->value_size_window)
        h->value_size_window = h->kv_rank_window;
}

/* In MLA, its queries are made of the first factor of those of attention. */
static int check_choice(const struct model_hparams *h, struct error *error)
{
    if (h->kv_rank > 0 && h->q_rank == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "an indexer is supported with attention.q_lora_rank above 0 only");
    if (h->index_local > 0 && h->index_heads != h->kv_heads)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.indexer.head_count is %" PRIu32 "; each of %" PRIu32
                         " key heads has one",
                         h->index_heads, h->kv_heads);
    if (h->index_local > h->index_top_k)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.indexer.local_blocks is %" PRIu32 ", of %" PRIu32
                         " blocks that are chosen",
                         h->index_local, h->index_top_k);
    return 0;
}

static int check_indexer(const struct model_hparams *h, struct error *error)
{
    bool pools = h->index_tail > 0;
    bool whole = h->index_block > 1 && h->index_tail == h->index_block - 1;
    if (h->index_tail > 0 && (!whole || h->index_top_k > MODEL_CONTEXT_MAX / h->index_block))
        return error_set(error, ERR_BAD_INPUT, "blocks of an indexer are impossible");
    if (h->index_heads == 0)
        return 0;
    if (check_choice(h, error) != 0)
        return -1;
    if (h->index_top_k == 0 ||
        (pools ? !is_pool(h->index_block) : h->index_local == 0 && h->index_block > 1))
        return error_set(error, ERR_BAD_INPUT, "an indexer chooses impossible blocks");
    if (h->index_size == 0 || h->index_size % 2 != 0 || h->index_size < h->rope_dims ||
        h->index_rope > ROPE_PAIRS)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.indexer.key_length is %" PRIu32
                         "; an even number from rope.dimension_count %" PRIu32 " on is possible",
                         h->index_size, h->rope_dims);
    return 0;
}

/* Attention over a window, and entries that stand for several positions. */
static int check_entries(const struct model_hparams *h, struct error *error)
{
    if (h->output_groups == 0)
        return 0;
    if (h->kv_heads != 1 || h->value_size != h->head_size || h->heads % h->output_groups != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.head_count_kv %" PRIu32 ", value_length %" PRIu32
                         ", output_group_count %" PRIu32 ": 1, key_length %" PRIu32
                         " and a divisor of head_count %" PRIu32 " are supported",
                         h->kv_heads, h->value_size, h->output_groups, h->head_size, h->heads);
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_kind[layer] != LAYER_WINDOW)
            return error_set(error, ERR_BAD_INPUT, "layer %" PRIu32 " has no window", layer);
    return 0;
}

static int check_latent(const struct model_hparams *h, uint32_t layer, struct error *error)
{
    const struct layer_latent m = model_latent_of(h, layer);
    const struct layer_attention a = model_attention_of(h, layer);
    if (a.key_size != m.rank + h->rope_dims)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.key_length is %" PRIu32 "; kv_lora_rank %" PRIu32
                         " and rope.dimension_count %" PRIu32 " are not that together",
                         a.key_size, m.rank, h->rope_dims);
    if (a.value_size != m.rank)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.value_length is %" PRIu32 "; kv_lora_rank is %" PRIu32,
                         a.value_size, m.rank);
    if (m.key <= h->rope_dims)
        return error_set(error, ERR_BAD_INPUT,
                         "attention.key_length_mla %" PRIu32
                         " leaves none for the rest next to rope.dimension_count %" PRIu32,
                         m.key, h->rope_dims);
    return 0;
}

int arch_check_mla(const struct model_hparams *h, struct error *error)
{
    if (check_indexer(h, error) != 0 || check_entries(h, error) != 0)
        return -1;
    if (h->kv_rank == 0)
        return 0;
    if (h->kv_heads != 1)
        return error_set(error, ERR_BAD_INPUT, "attention.head_count_kv is %" PRIu32 "; MLA has 1",
                         h->kv_heads);
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (layer_has_keys((enum layer_kind)h->layer_kind[layer]) &&
            check_latent(h, layer, error) != 0)
            return -1;
    return 0;
}
