/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and tensors of the architectures: which part a layer has, which tensors, of which shape. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/table.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

static const struct name_row {
    enum arch_id arch;
    enum dense_role role;
    const char *name;
} name_rows[] = {
#define ARCH_NAME(id, role, name) {ARCH_##id, DENSE_##role, (name)},
#include "lib/model/arch/arch.tbl.h"
};

const struct arch_dense_row arch_dense_rows[] = {
#define ARCH_DENSE(id, role, storage, presence, ne0, ne1)                                          \
    ARCH_DENSE_3D(id, role, storage, presence, ne0, ne1, ONE)
#define ARCH_DENSE_3D(id, role, storage, presence, ne0, ne1, ne2)                                  \
    {ARCH_##id,      DENSE_##role,   ARCH_STORAGE_##storage, ARCH_PRESENCE_##presence,             \
     ARCH_DIM_##ne0, ARCH_DIM_##ne1, ARCH_DIM_##ne2},
#include "lib/model/arch/arch.tbl.h"
};
const size_t arch_dense_row_count = ARRAY_LEN(arch_dense_rows);

const struct arch_expert_row arch_expert_rows[] = {
#define ARCH_JOINED(id, matrix, name, ne0, ne1)                                                    \
    {ARCH_##id, EXPERT_##matrix, (name), ARCH_DIM_##ne0, ARCH_DIM_##ne1},
#define ARCH_EXPERT ARCH_JOINED
#include "lib/model/arch/arch.tbl.h"
};
const size_t arch_expert_row_count = ARRAY_LEN(arch_expert_rows);

static const struct rejected_row {
    enum arch_id arch;
    const char *name, *why;
} rejected_rows[] = {
#define ARCH_REJECTED(id, name, why) {ARCH_##id, (name), (why)},
#include "lib/model/arch/arch.tbl.h"
};

enum which { WHICH_LEADING_RECURRENT, WHICH_LEADING, WHICH_RECURRENT, WHICH_ALL };

static const struct layers_row {
    enum arch_id arch;
    enum which which;
    enum layer_mixer mixer;
    enum layer_ffn ffn;
} layers_rows[] = {
#define ARCH_LAYERS(id, which, mixer, ffn) {ARCH_##id, WHICH_##which, MIXER_##mixer, FFN_##ffn},
#include "lib/model/arch/arch.tbl.h"
};

static const struct {
    enum arch_id arch;
    const char *name;
} unused_rows[] = {
#define ARCH_UNUSED(id, name) {ARCH_##id, (name)},
#include "lib/model/arch/arch.tbl.h"
};

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

static bool row_fits(enum which which, const struct model_hparams *h, uint32_t layer)
{
    bool recurrent = h->layer_kind[layer] == LAYER_RECURRENT, leading = layer < h->dense_layers;
    switch (which) {
    case WHICH_LEADING_RECURRENT: return recurrent && leading;
    case WHICH_LEADING: return leading;
    case WHICH_RECURRENT: return recurrent;
    case WHICH_ALL: break;
    }
    return true;
}

struct layer_parts arch_layer_parts(enum arch_id arch, const struct model_hparams *h,
                                    uint32_t layer)
{
    for (size_t i = 0; i < ARRAY_LEN(layers_rows); i++)
        if (layers_rows[i].arch == arch && row_fits(layers_rows[i].which, h, layer))
            return (struct layer_parts){.mixer = (uint8_t)layers_rows[i].mixer,
                                        .ffn = (uint8_t)layers_rows[i].ffn,
                                        .attention = model_attention_of(h, layer)};
    sl_panic("layer %u of %s is in no table", layer, arch_name(arch));
}

bool arch_layer_has(struct layer_parts parts, enum dense_role role)
{
    sl_assert((unsigned)role < DENSE__COUNT);
    switch (role_names[role].part) {
    case PART_EVERY: return true;
    case PART_ATTENTION: return parts.mixer == MIXER_ATTENTION || parts.mixer == MIXER_MLA;
    case PART_DELTANET: return parts.mixer == MIXER_DELTANET;
    case PART_SHORTCONV: return parts.mixer == MIXER_SHORTCONV;
    case PART_DENSE: return ffn_has_dense((enum layer_ffn)parts.ffn);
    case PART_EXPERTS: return ffn_has_experts((enum layer_ffn)parts.ffn);
    }
    sl_panic("part %d is in no table", (int)role_names[role].part);
}

uint64_t arch_dim_size(const struct model_hparams *h, uint32_t layer, enum arch_dim dim)
{
    struct layer_attention a = model_attention_of(h, layer < h->layers ? layer : 0);
    switch (dim) {
    case ARCH_DIM_ONE: return 1;
    case ARCH_DIM_HIDDEN: return h->hidden;
    case ARCH_DIM_VOCAB: return h->vocab;
    case ARCH_DIM_Q: return (uint64_t)a.heads * a.key_size * (1 + h->gated_attention);
    case ARCH_DIM_KV: return (uint64_t)a.kv_heads * a.key_size;
    case ARCH_DIM_VALUES: return (uint64_t)a.kv_heads * a.value_size;
    case ARCH_DIM_MIX: return (uint64_t)a.heads * a.value_size;
    case ARCH_DIM_QKV:
        return (uint64_t)(a.heads + a.kv_heads) * a.key_size + (uint64_t)a.kv_heads * a.value_size;
    case ARCH_DIM_HEAD: return a.key_size;
    case ARCH_DIM_HEADS: return a.heads;
    case ARCH_DIM_HALF: return h->rope_dims / 2;
    case ARCH_DIM_Q_RANK: return h->q_rank;
    case ARCH_DIM_MLA_Q: return (uint64_t)h->heads * h->mla_key_size;
    case ARCH_DIM_MLA_Q_ONE: return h->q_rank > 0 ? 0 : (uint64_t)h->heads * h->mla_key_size;
    case ARCH_DIM_KV_RANK: return h->kv_rank;
    case ARCH_DIM_MLA_NOPE: return h->mla_key_size - h->rope_dims;
    case ARCH_DIM_MLA_VALUE: return h->mla_value_size;
    case ARCH_DIM_MLA_MIX: return (uint64_t)h->heads * h->mla_value_size;
    case ARCH_DIM_EXPERTS: return h->experts;
    case ARCH_DIM_INNER: return h->expert_inner;
    case ARCH_DIM_INNER_TWICE: return 2 * (uint64_t)h->expert_inner;
    case ARCH_DIM_SHARED: return h->shared_inner;
    case ARCH_DIM_TAPS: return h->conv_taps;
    case ARCH_DIM_CHANNELS: return model_conv_channels(h);
    case ARCH_DIM_CONV_INPUTS: return 3 * (uint64_t)h->hidden;
    case ARCH_DIM_DELTA_HEAD: return h->delta_size;
    case ARCH_DIM_DELTA_V_HEADS: return h->delta_v_heads;
    case ARCH_DIM_DELTA_GATES: return 2 * (uint64_t)h->delta_v_heads;
    case ARCH_DIM_DELTA_INNER: return h->delta_inner;
    case ARCH_DIM_DENSE: return h->dense_inner;
    }
    sl_panic("dimension %d is in no table", (int)dim);
}

/* True if `name` matches `pattern`, in which %u is a decimal number without leading zeros. *number:
 * the first of these numbers. */
static bool name_matches(const char *pattern, const char *name, uint32_t *number)
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
                       const enum arch_dim dims[3], enum arch_storage storage, struct error *error)
{
    uint64_t want[4] = {arch_dim_size(h, layer, dims[0]), arch_dim_size(h, layer, dims[1]),
                        arch_dim_size(h, layer, dims[2]), 1};
    if (memcmp(want, t->ne, sizeof want) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         "; %" PRIu64 " x %" PRIu64 " x %" PRIu64 " expected",
                         t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], want[0], want[1],
                         want[2]);
    if (t->dims > 1 && t->ne[0] > MODEL_ROW_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: rows of %" PRIu64 " elements are not supported (maximum %d)",
                         t->name, t->ne[0], MODEL_ROW_MAX);
    if (storage == ARCH_STORAGE_FLOAT && !dense_type_is_float(t->type))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is of type %s; only F32, F16 and BF16 are supported for it",
                         t->name, tensor_type_info(t->type)->name);
    return 0;
}

static bool is_unused(enum arch_id arch, const char *name)
{
    uint32_t number;
    for (size_t i = 0; i < ARRAY_LEN(unused_rows); i++)
        if (unused_rows[i].arch == arch && name_matches(unused_rows[i].name, name, &number))
            return true;
    return false;
}

static int reject_tensor(enum arch_id arch, const char *name, struct error *error)
{
    uint32_t number;
    for (size_t i = 0; i < ARRAY_LEN(rejected_rows); i++)
        if (rejected_rows[i].arch == arch && name_matches(rejected_rows[i].name, name, &number))
            return error_set(error, ERR_BAD_INPUT, "tensor %s: %s is not supported", name,
                             rejected_rows[i].why);
    return error_set(error, ERR_BAD_INPUT, "tensor %s is not part of architecture %s", name,
                     arch_name(arch));
}

static const char *role_name(enum arch_id arch, enum dense_role role)
{
    for (size_t i = 0; i < ARRAY_LEN(name_rows); i++)
        if (name_rows[i].arch == arch && name_rows[i].role == role)
            return name_rows[i].name;
    return role_names[role].name;
}

/* True for a tensor of a block behind the last layer. */
static bool in_skipped_layer(const struct model_hparams *h, const char *name)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return false;
    unsigned long layer = strtoul(name + 4, &end, 10);
    return *end == '.' && layer >= h->layers && layer - h->layers < h->skipped_layers;
}

int arch_locate_tensor(enum arch_id arch, const struct model_hparams *h,
                       const struct model_tensor *t, struct arch_location *location,
                       struct error *error)
{
    *location = (struct arch_location){.unused = in_skipped_layer(h, t->name)};
    if (location->unused)
        return 0;
    for (size_t i = 0; i < arch_dense_row_count + arch_expert_row_count; i++) {
        bool expert = i >= arch_dense_row_count;
        const struct arch_dense_row *d = &arch_dense_rows[expert ? 0 : i];
        const struct arch_expert_row *e = &arch_expert_rows[expert ? i - arch_dense_row_count : 0];
        bool global = !expert && role_names[d->role].global;
        uint32_t layer = h->layers;
        if ((expert ? e->arch : d->arch) != arch ||
            !name_matches(expert ? e->name : role_name(arch, d->role), t->name, &layer))
            continue;
        if (!global && layer >= h->layers)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s is beyond the last of %" PRIu32 " layers", t->name,
                             h->layers);
        struct layer_parts parts = arch_layer_parts(arch, h, global ? 0 : layer);
        if (expert ? !ffn_has_experts((enum layer_ffn)parts.ffn)
                   : !global && !arch_layer_has(parts, d->role))
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s: layer %" PRIu32 " of this model has no such part", t->name,
                             layer);
        *location =
            (struct arch_location){expert, false, expert ? e->matrix : (uint32_t)d->role, layer};
        if (expert)
            return check_shape(h, layer, t, (enum arch_dim[3]){e->ne0, e->ne1, ARCH_DIM_EXPERTS},
                               ARCH_STORAGE_ANY, error);
        return check_shape(h, layer, t, (enum arch_dim[3]){d->ne0, d->ne1, d->ne2}, d->storage,
                           error);
    }
    *location = (struct arch_location){.unused = is_unused(arch, t->name)};
    return location->unused ? 0 : reject_tensor(arch, t->name, error);
}

static const struct arch_dense_row *dense_row_of(enum arch_id arch, enum dense_role role)
{
    for (size_t i = 0; i < arch_dense_row_count; i++)
        if (arch_dense_rows[i].arch == arch && arch_dense_rows[i].role == role)
            return &arch_dense_rows[i];
    return NULL;
}

bool arch_role_required(enum arch_id arch, const struct model_hparams *h, uint32_t layer,
                        enum dense_role role)
{
    const struct arch_dense_row *row = dense_row_of(arch, role);
    if (!row || row->presence == ARCH_PRESENCE_OPTIONAL || row->presence == ARCH_PRESENCE_ACCEPTED)
        return false;
    if (row->presence == ARCH_PRESENCE_WINDOW) {
        struct layer_attention a = model_attention_of(h, layer);
        return a.window != 0 || a.key_size != a.value_size; /* keys cannot replace the values */
    }
    return arch_dim_size(h, layer, row->ne0) > 0 && arch_dim_size(h, layer, row->ne1) > 0;
}

bool arch_role_any_type(enum arch_id arch, enum dense_role role)
{
    const struct arch_dense_row *row = dense_row_of(arch, role);
    return row && row->storage == ARCH_STORAGE_ANY;
}

const char *arch_tensor_name(enum arch_id arch, const struct arch_location *location, char *buf)
{
    const char *pattern = NULL;
    for (size_t i = 0; i < arch_expert_row_count && location->is_expert; i++)
        if (arch_expert_rows[i].arch == arch && arch_expert_rows[i].matrix == location->role)
            pattern = arch_expert_rows[i].name;
    if (!location->is_expert)
        pattern = role_name(arch, (enum dense_role)location->role);
    sl_assert(pattern);
    const char *hole = strstr(pattern, "%u");
    if (hole)
        snprintf(buf, MODEL_NAME_BYTES, "%.*s%" PRIu32 "%s", (int)(hole - pattern), pattern,
                 location->layer, hole + 2);
    else
        snprintf(buf, MODEL_NAME_BYTES, "%s", pattern);
    return buf;
}
