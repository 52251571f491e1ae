/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and tensors of the architectures: which part a layer has, which tensors, of which shape.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/internal.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

static const struct {
    const char *name;
    bool global;
    enum layer_part part;
} role_names[] = {
#define GLOBAL(role, name)      [DENSE_##role] = {name, true, PART_EVERY},
#define LAYER(role, part, name) [DENSE_##role] = {name, false, PART_##part},
    DENSE_ROLES(GLOBAL, LAYER)
#undef GLOBAL
#undef LAYER
};

bool arch_role_is_global(enum dense_role role)
{
    sl_assert((unsigned)role < DENSE__COUNT);
    return role_names[role].global;
}

struct layer_parts arch_layer_parts(const struct model_hparams *h, uint32_t layer)
{
    return (struct layer_parts){.mixer = h->layer_mixer[layer],
                                .ffn = h->layer_ffn[layer],
                                .ngrams = (h->layer_flags[layer] & LAYER_NGRAMS) != 0,
                                .index = (uint8_t)model_index_of(h, layer),
                                .attention = model_attention_of(h, layer),
                                .recurrent = model_recurrent_of(h, layer)};
}

bool arch_layer_has(struct layer_parts parts, enum dense_role role)
{
    sl_assert((unsigned)role < DENSE__COUNT);
    uint32_t part = role_names[role].part;
    switch (part) {
    case PART_EVERY: return true;
    case PART_MIXING: return parts.mixer != MIXER_NONE;
    case PART_NETWORK: return parts.ffn != FFN_NONE;
    case PART_ATTENTION:
        return parts.mixer == MIXER_ATTENTION || parts.mixer == MIXER_MLA ||
               parts.mixer == MIXER_ENTRIES;
    case PART_DENSE: return ffn_has_dense((enum layer_ffn)parts.ffn);
    case PART_EXPERTS: return ffn_has_experts((enum layer_ffn)parts.ffn);
    case PART_NGRAMS: return parts.ngrams != 0;
    case PART_INDEXER: return parts.index == INDEX_OWN;
    case PART_RECURRENCE: return parts.recurrent.heads > 0;
    default: return parts.mixer == part - PART_MIXER;
    }
}

/* Of a layer with entries, and of tables of experts. */
static uint64_t entry_dim(const struct model_hparams *h, uint32_t layer, enum arch_dim dim)
{
    uint32_t unit = model_entry_unit(h, layer), parts = unit == MODEL_ENTRY_FEW ? 2 : 1;
    uint32_t groups = h->output_groups > 0 ? h->output_groups : 1;
    bool table = layer < h->table_layers;
    switch ((int)dim) {
    case ARCH_DIM_GROUP: return (uint64_t)h->heads * h->head_size / groups;
    case ARCH_DIM_GROUP_RANKS: return (uint64_t)h->output_groups * h->output_rank;
    case ARCH_DIM_ENTRY: return unit > 0 ? h->head_size : 0;
    case ARCH_DIM_ENTRY_PARTS: return unit > 0 ? (uint64_t)parts * h->head_size : 0;
    case ARCH_DIM_ENTRY_UNIT: return unit;
    case ARCH_DIM_INDEX_PARTS: return unit > 0 ? (uint64_t)parts * h->index_size : 0;
    case ARCH_DIM_TABLE_USED: return table ? h->experts_used : 0;
    case ARCH_DIM_SCORED: return table ? 0 : h->experts;
    }
    sl_panic("dimension %d is in no table", (int)dim);
}

/* Of the residual, and of n-grams. */
static uint64_t residual_dim(const struct model_hparams *h, enum arch_dim dim)
{
    switch ((int)dim) {
    case ARCH_DIM_RESIDUAL: return model_residual_floats(h);
    case ARCH_DIM_STREAMS: return h->streams;
    case ARCH_DIM_STREAM_RANK: return h->stream_rank;
    case ARCH_DIM_STREAM_WEIGHTS: return model_stream_weights(h);
    case ARCH_DIM_STREAM_SCALES: return h->stream_steps > 0 ? 3 : 2;
    case ARCH_DIM_STREAM_HEAD: return h->stream_head ? h->streams : 0;
    case ARCH_DIM_STREAM_HEAD_ONE: return h->stream_head ? 1 : 0;
    case ARCH_DIM_NGRAM_WIDTH: return h->ngram_width;
    case ARCH_DIM_NGRAM_ROWS: return h->ngram_rows;
    case ARCH_DIM_NGRAM_INPUTS: return model_ngram_inputs(h);
    case ARCH_DIM_NGRAM_TAPS: return h->ngram_taps;
    }
    sl_panic("dimension %d is in no table", (int)dim);
}

uint64_t arch_dim_size(const struct model_hparams *h, uint32_t layer, enum arch_dim dim)
{
    uint32_t inside = layer < h->layers ? layer : 0;
    struct layer_attention a = model_attention_of(h, inside);
    struct layer_latent m = model_latent_of(h, inside);
    struct layer_recurrent r = model_recurrent_of(h, inside);
    switch (dim) {
    case ARCH_DIM_ONE: return 1;
    case ARCH_DIM_HIDDEN: return h->hidden;
    case ARCH_DIM_VOCAB: return h->vocab;
    case ARCH_DIM_Q:
        return (uint64_t)a.heads * a.key_size * (a.gate && a.gate_form == GATE_IN_Q ? 2 : 1);
    case ARCH_DIM_KV: return (uint64_t)a.kv_heads * a.key_size;
    case ARCH_DIM_VALUES: return (uint64_t)a.kv_heads * a.value_size;
    case ARCH_DIM_MIX: return (uint64_t)a.heads * a.value_size;
    case ARCH_DIM_QKV:
        return (uint64_t)(a.heads + a.kv_heads) * a.key_size + (uint64_t)a.kv_heads * a.value_size;
    case ARCH_DIM_Q_APART: return h->joined_qkv ? 0 : arch_dim_size(h, layer, ARCH_DIM_Q);
    case ARCH_DIM_KV_APART: return h->joined_qkv ? 0 : arch_dim_size(h, layer, ARCH_DIM_KV);
    case ARCH_DIM_VALUES_APART: return h->joined_qkv ? 0 : arch_dim_size(h, layer, ARCH_DIM_VALUES);
    case ARCH_DIM_QKV_JOINED: return h->joined_qkv ? arch_dim_size(h, layer, ARCH_DIM_QKV) : 0;
    case ARCH_DIM_HEAD: return a.key_size;
    case ARCH_DIM_HEADS: return a.heads;
    case ARCH_DIM_GATES:
        if (a.values_in_keys) /* MLA: a row of values is the latent, a result is not */
            a.value_size = m.value;
        return a.gate_form == GATE_IN_Q ? 0 : model_gates_of(&a, a.value_size).floats;
    case ARCH_DIM_HALF: return h->rope_dims / 2;
    case ARCH_DIM_HALF_MOST: return model_rope_dims_max(h) / 2;
    case ARCH_DIM_Q_RANK: return h->q_rank;
    case ARCH_DIM_MLA_Q: return (uint64_t)m.heads * m.key;
    case ARCH_DIM_MLA_Q_ONE: return h->q_rank > 0 ? 0 : (uint64_t)m.heads * m.key;
    case ARCH_DIM_KV_RANK: return m.rank;
    case ARCH_DIM_MLA_NOPE: return m.key - h->rope_dims;
    case ARCH_DIM_MLA_VALUE: return m.value;
    case ARCH_DIM_ROPE: return h->rope_dims;
    case ARCH_DIM_MLA_MIX: return (uint64_t)m.heads * m.value;
    case ARCH_DIM_EXPERTS: return h->experts;
    case ARCH_DIM_INNER: return h->expert_inner;
    case ARCH_DIM_INNER_TWICE: return 2 * (uint64_t)h->expert_inner;
    case ARCH_DIM_WIDTH: return hparams_expert_width(h);
    case ARCH_DIM_LATENT: return h->expert_width;
    case ARCH_DIM_SHARED: return h->shared_inner;
    case ARCH_DIM_SHARED_TWICE: return 2 * (uint64_t)h->shared_inner;
    case ARCH_DIM_TAPS: return r.taps;
    case ARCH_DIM_CHANNELS: return r.channels;
    case ARCH_DIM_PROJECTED: return r.projected;
    case ARCH_DIM_MIXED: return r.mixed;
    case ARCH_DIM_MIXED_TWICE: return 2 * (uint64_t)r.mixed;
    case ARCH_DIM_STATE_HEADS: return r.heads;
    case ARCH_DIM_STATE_HEADS_TWICE: return 2 * (uint64_t)r.heads;
    case ARCH_DIM_STATE_DECAYS: return (uint64_t)r.heads * r.key_size;
    case ARCH_DIM_STATE_FIRST: return h->low_rank ? r.key_size : r.mixed;
    case ARCH_DIM_STATE_RANK: return h->low_rank ? r.key_size : 0;
    case ARCH_DIM_STATE_KEY: return r.key_size;
    case ARCH_DIM_STATE_VALUE: return r.value_size;
    case ARCH_DIM_STEP_RANK: return r.step_rank;
    case ARCH_DIM_SELECTED: return r.step_rank + 2 * (uint64_t)r.key_size;
    case ARCH_DIM_STATE_NORM: return r.norms > 0 ? r.mixed / r.norms : 0;
    case ARCH_DIM_STATE_NORMS: return r.norms;
    case ARCH_DIM_DENSE: return h->dense_inner;
    case ARCH_DIM_INDEX_Q: return (uint64_t)h->index_heads * h->index_size;
    case ARCH_DIM_INDEX_KEY: return h->index_heads > 0 ? h->index_size : 0;
    case ARCH_DIM_INDEX_HEADS: return h->index_heads;
    case ARCH_DIM_INDEX_UNIT: return model_index_unit(h);
    default: return dim >= ARCH_DIM_GROUP ? entry_dim(h, inside, dim) : residual_dim(h, dim);
    }
}

uint64_t arch_row_elements(const struct arch_row *row, const struct model_hparams *h,
                           uint32_t layer)
{
    return arch_dim_size(h, layer, (enum arch_dim)row->ne[0]) *
           arch_dim_size(h, layer, (enum arch_dim)row->ne[1]);
}

bool arch_name_matches(const char *pattern, const char *name, uint32_t *number)
{
    bool first = true;
    while (*pattern != '\0') {
        if (strncmp(pattern, "%u", 2) != 0) {
            if (*pattern++ != *name++)
                return false;
            continue;
        }
        uint32_t value = 0;
        int digits = 0;
        const char *start = name;
        for (; *name >= '0' && *name <= '9' && digits < 9; name++, digits++)
            value = value * 10 + (uint32_t)(*name - '0');
        if (digits == 0 || (digits > 1 && *start == '0'))
            return false;
        if (first)
            *number = value;
        first = false;
        pattern += 2;
    }
    return *name == '\0';
}

static int check_shape(const struct model_hparams *h, uint32_t layer, const struct model_tensor *t,
                       const struct arch_row *row, struct error *error)
{
    uint64_t want[4] = {0, 0, 0, 1};
    for (int i = 0; i < 3; i++)
        want[i] = arch_dim_size(h, layer, (enum arch_dim)row->ne[i]);
    /* A convolution; llama.cpp's converter has a dimension of 1 between its taps and channels. */
    bool flat = row->kind == ARCH_DENSE && row->ne[1] == ARCH_DIM_ONE && t->ne[0] == want[0] &&
                t->ne[1] == want[2] && t->ne[2] == 1 && t->ne[3] == 1;
    /* Numbers of heads, which it writes as a row for some architectures and a column for others. */
    flat |= row->kind == ARCH_DENSE && row->ne[0] == ARCH_DIM_ONE && t->ne[0] == want[1] &&
            want[2] == 1 && t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1;
    if (!flat && memcmp(want, t->ne, sizeof want) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         "; %" PRIu64 " x %" PRIu64 " x %" PRIu64 " expected",
                         t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], want[0], want[1],
                         want[2]);
    if (t->dims > 1 && t->ne[0] > MODEL_ROW_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: rows of %" PRIu64 " elements are not supported (maximum %d)",
                         t->name, t->ne[0], MODEL_ROW_MAX);
    if ((row->storage == ARCH_STORAGE_IDS) != (t->integers != 0))
        return error_set(error, ERR_BAD_INPUT, "tensor %s is %s type I32", t->name,
                         t->integers ? "of" : "not of");
    if (row->storage == ARCH_STORAGE_FLOAT && !dense_type_is_float(t->type))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is of type %s; only F32, F16 and BF16 are supported for it",
                         t->name, tensor_type_info(t->type)->name);
    return 0;
}

/* The row of that kind for a tensor of that name; NULL: none. */
static const struct arch_row *named(const struct arch *arch, uint64_t kinds, const char *name)
{
    uint32_t number;
    const struct arch_row *row;
    ARCH_EACH (row, arch, kinds)
        if (arch_name_matches(row->key, name, &number))
            break;
    return row;
}

static int reject_tensor(const struct arch *arch, const char *name, struct error *error)
{
    const struct arch_row *known = named(arch, ARCH_ROWS(REJECTED), name);
    if (known)
        return error_set(error, ERR_BAD_INPUT, "tensor %s: %s is not supported", name, known->text);
    return error_set(error, ERR_BAD_INPUT, "tensor %s is not part of architecture %s", name,
                     arch->name);
}

/* The row of that kind with the role; NULL: none. */
static const struct arch_row *row_of(const struct arch *arch, uint64_t kinds, uint32_t role)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, kinds)
        if (row->role == role)
            break;
    return row;
}

static const char *role_name(const struct arch *arch, uint32_t role)
{
    const struct arch_row *row = row_of(arch, ARCH_ROWS(NAME), role);
    return row ? row->key : role_names[role].name;
}

/* Whether the row's tensor may have that name; *layer: the number in it. */
static bool is_named(const struct arch *arch, const struct arch_row *row, const char *name,
                     uint32_t *layer)
{
    if (row->kind == ARCH_EXPERT)
        return arch_name_matches(row->key, name, layer);
    const struct arch_row *alias = row_of(arch, ARCH_ROWS(ALIAS), row->role);
    return arch_name_matches(role_name(arch, row->role), name, layer) ||
           (alias && arch_name_matches(alias->key, name, layer));
}

/* True for a tensor of a block after the last layer. */
static bool in_skipped_layer(const struct model_hparams *h, const char *name)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return false;
    unsigned long layer = strtoul(name + 4, &end, 10);
    return *end == '.' && layer >= h->layers && layer - h->layers < h->skipped_layers;
}

static bool is_global(const struct arch_row *row)
{
    return row->kind == ARCH_DENSE && role_names[row->role].global;
}

static bool layer_has_row(const struct model_hparams *h, uint32_t layer, const struct arch_row *row)
{
    struct layer_parts parts = arch_layer_parts(h, layer);
    return row->kind == ARCH_EXPERT ? ffn_has_experts((enum layer_ffn)parts.ffn)
                                    : arch_layer_has(parts, (enum dense_role)row->role);
}

/* A tensor with the name of the row's. */
static int locate(const struct arch_row *row, const struct model_hparams *h,
                  const struct model_tensor *t, uint32_t layer, struct arch_location *location,
                  struct error *error)
{
    bool expert = row->kind == ARCH_EXPERT, global = is_global(row);
    if (!global && layer >= h->layers)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is beyond the last of %" PRIu32 " layers",
                         t->name, h->layers);
    if (!global && !layer_has_row(h, layer, row))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: layer %" PRIu32 " of this model has no such part", t->name,
                         layer);
    *location = (struct arch_location){.is_expert = expert, .role = row->role, .layer = layer};
    return check_shape(h, layer, t, row, error);
}

int arch_locate_tensor(const struct arch *arch, const struct model_hparams *h,
                       const struct model_tensor *t, struct arch_location *location,
                       struct error *error)
{
    *location = (struct arch_location){.unused = in_skipped_layer(h, t->name)};
    if (location->unused)
        return 0;
    const struct arch_row *row, *known = NULL;
    uint32_t layer = h->layers;
    ARCH_EACH (row, arch, ARCH_ROWS(DENSE) | ARCH_ROWS(EXPERT)) {
        if (!is_named(arch, row, t->name, &layer))
            continue;
        known = row;
        if (layer < h->layers && layer_has_row(h, layer, row))
            break;
    }
    bool unused = named(arch, ARCH_ROWS(UNUSED), t->name) != NULL;
    bool has = known && (is_global(known) || layer >= h->layers || layer_has_row(h, layer, known));
    if (known && (has || !unused))
        return locate(known, h, t, layer, location, error);
    *location = (struct arch_location){.unused = unused};
    return unused ? 0 : reject_tensor(arch, t->name, error);
}

bool arch_role_required(const struct arch *arch, const struct model_hparams *h, uint32_t layer,
                        enum dense_role role)
{
    const struct arch_row *row = row_of(arch, ARCH_ROWS(DENSE), role);
    if (!row || row->presence == ARCH_PRESENCE_OPTIONAL || row->presence == ARCH_PRESENCE_ACCEPTED)
        return false;
    if (row->presence == ARCH_PRESENCE_WINDOW) {
        struct layer_attention a = model_attention_of(h, layer);
        return a.window != 0 || a.key_size != a.value_size; /* keys cannot replace the values */
    }
    return arch_row_elements(row, h, layer) > 0;
}

bool arch_role_any_type(const struct arch *arch, enum dense_role role)
{
    const struct arch_row *row = row_of(arch, ARCH_ROWS(DENSE), role);
    return row && row->storage == ARCH_STORAGE_ANY;
}

const char *arch_tensor_name(const struct arch *arch, const struct arch_location *location,
                             char *buf)
{
    const struct arch_row *expert =
        location->is_expert ? row_of(arch, ARCH_ROWS(EXPERT), location->role) : NULL;
    sl_assert(expert || !location->is_expert);
    const char *pattern = expert ? expert->key : role_name(arch, location->role);
    const char *hole = strstr(pattern, "%u");
    if (hole)
        snprintf(buf, MODEL_NAME_BYTES, "%.*s%" PRIu32 "%s", (int)(hole - pattern), pattern,
                 location->layer, hole + 2);
    else
        snprintf(buf, MODEL_NAME_BYTES, "%s", pattern);
    return buf;
}
