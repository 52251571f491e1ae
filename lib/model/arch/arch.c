/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/model/arch/table.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/printable.h"

#define KEY_BYTES 128

static const char *const arch_names[] = {
#define ARCH(id, name) [ARCH_##id] = (name),
#include "lib/model/arch/arch.tbl.h"
};

enum absent { ABSENT_REQUIRED, ABSENT_DERIVED };

static const struct uint_row {
    enum arch_id arch;
    const char *key;
    size_t offset; /* of a uint32_t in struct model_hparams */
    uint32_t min, max;
    enum absent absent;
    bool flag; /* the key is a bool */
} uint_rows[] = {
#define ARCH_FLAG(id, field, key)                                                                  \
    {ARCH_##id, (key), offsetof(struct model_hparams, field), 0, 1, ABSENT_DERIVED, true},
#define ARCH_UINT(id, field, key, min, max, absent)                                                \
    {ARCH_##id, (key), offsetof(struct model_hparams, field), (min), (max), ABSENT_##absent, false},
#include "lib/model/arch/arch.tbl.h"
};

static const struct float_row {
    enum arch_id arch;
    const char *key;
    size_t offset; /* of a float */
    double min, max;
    enum absent absent; /* ABSENT_DERIVED: 0 */
} float_rows[] = {
#define ARCH_FLOAT(id, field, key, min, max)                                                       \
    {ARCH_##id, (key), offsetof(struct model_hparams, field), (min), (max), ABSENT_REQUIRED},
#define ARCH_FLOAT_OR_0(id, field, key, min, max)                                                  \
    {ARCH_##id, (key), offsetof(struct model_hparams, field), (min), (max), ABSENT_DERIVED},
#include "lib/model/arch/arch.tbl.h"
};

static const struct const_row {
    enum arch_id arch;
    size_t offset;
    uint32_t value;
} const_rows[] = {
#define ARCH_CONST(id, field, value) {ARCH_##id, offsetof(struct model_hparams, field), (value)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct const_row default_rows[] = {
#define ARCH_DEFAULT(id, field, value) {ARCH_##id, offsetof(struct model_hparams, field), (value)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct only_row {
    enum arch_id arch;
    const char *key;
    enum only_kind { ONLY_UINT, ONLY_FLOAT, ONLY_TEXT } kind;
    const char *text;
    double number;
} only_rows[] = {
#define ARCH_ONLY(id, key, value)       {ARCH_##id, (key), ONLY_UINT, NULL, (value)},
#define ARCH_ONLY_FLOAT(id, key, value) {ARCH_##id, (key), ONLY_FLOAT, NULL, (value)},
#define ARCH_ONLY_TEXT(id, key, text)   {ARCH_##id, (key), ONLY_TEXT, (text), 0},
#include "lib/model/arch/arch.tbl.h"
};

static const struct name_row {
    enum arch_id arch;
    enum dense_role role;
    const char *name;
} name_rows[] = {
#define ARCH_NAME(id, role, name) {ARCH_##id, DENSE_##role, (name)},
#include "lib/model/arch/arch.tbl.h"
};

enum storage { STORAGE_F32, STORAGE_ANY };
enum presence { PRESENCE_REQUIRED, PRESENCE_OPTIONAL };

static const struct dense_row {
    enum arch_id arch;
    enum dense_role role;
    enum storage storage;
    enum presence presence;
    enum arch_dim ne0, ne1;
} dense_rows[] = {
#define ARCH_DENSE(id, role, storage, presence, ne0, ne1)                                          \
    {ARCH_##id,           DENSE_##role,   STORAGE_##storage,                                       \
     PRESENCE_##presence, ARCH_DIM_##ne0, ARCH_DIM_##ne1},
#include "lib/model/arch/arch.tbl.h"
};

static const struct expert_row {
    enum arch_id arch;
    uint32_t matrix;
    const char *name; /* with %u for the layer */
    enum arch_dim ne0, ne1;
} expert_rows[] = {
#define ARCH_JOINED(id, matrix, name, ne0, ne1)                                                    \
    {ARCH_##id, EXPERT_##matrix, (name), ARCH_DIM_##ne0, ARCH_DIM_##ne1},
#define ARCH_EXPERT ARCH_JOINED
#include "lib/model/arch/arch.tbl.h"
};

static const struct rejected_row {
    enum arch_id arch;
    const char *name, *why;
} rejected_rows[] = {
#define ARCH_REJECTED(id, name, why) {ARCH_##id, (name), (why)},
#include "lib/model/arch/arch.tbl.h"
};

enum which { WHICH_LEADING, WHICH_ALL };

static const struct layers_row {
    enum arch_id arch;
    enum which which;
    struct layer_parts parts;
} layers_rows[] = {
#define ARCH_LAYERS(id, which, mixer, ffn) {ARCH_##id, WHICH_##which, {MIXER_##mixer, FFN_##ffn}},
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

enum arch_id arch_find(const char *name, size_t bytes)
{
    for (int i = 0; i < ARCH__COUNT; i++)
        if (strlen(arch_names[i]) == bytes && memcmp(arch_names[i], name, bytes) == 0)
            return (enum arch_id)i;
    return ARCH__COUNT;
}

const char *arch_name(enum arch_id arch)
{
    sl_assert(arch < ARCH__COUNT);
    return arch_names[arch];
}

bool arch_role_is_global(enum dense_role role)
{
    sl_assert((unsigned)role < DENSE__COUNT);
    return role_names[role].global;
}

struct layer_parts arch_layer_parts(enum arch_id arch, const struct model_hparams *h,
                                    uint32_t layer)
{
    for (size_t i = 0; i < ARRAY_LEN(layers_rows); i++)
        if (layers_rows[i].arch == arch &&
            (layers_rows[i].which == WHICH_ALL || layer < h->dense_layers))
            return layers_rows[i].parts;
    sl_panic("layer %u of %s is in no table", layer, arch_name(arch));
}

bool arch_layer_has(struct layer_parts parts, enum dense_role role)
{
    sl_assert((unsigned)role < DENSE__COUNT);
    switch (role_names[role].part) {
    case PART_EVERY: return true;
    case PART_ATTENTION: return parts.mixer == MIXER_ATTENTION;
    case PART_DENSE: return parts.ffn == FFN_DENSE;
    case PART_EXPERTS: return parts.ffn == FFN_EXPERTS;
    }
    sl_panic("part %d is in no table", (int)role_names[role].part);
}

static uint32_t *uint_at(struct model_hparams *h, size_t offset)
{
    return (uint32_t *)(void *)((char *)h + offset);
}

static uint32_t uint_of(const struct model_hparams *h, size_t offset)
{
    uint32_t v;
    memcpy(&v, (const char *)h + offset, sizeof v);
    return v;
}

static float float_of(const struct model_hparams *h, size_t offset)
{
    float v;
    memcpy(&v, (const char *)h + offset, sizeof v);
    return v;
}

static void full_key(enum arch_id arch, const char *key, char buf[KEY_BYTES])
{
    int n = snprintf(buf, KEY_BYTES, "%s.%s", arch_names[arch], key);
    sl_assert(n > 0 && n < KEY_BYTES);
}

static int read_uints(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++) {
        const struct uint_row *row = &uint_rows[i];
        if (row->arch != arch)
            continue;
        char key[KEY_BYTES];
        uint64_t value;
        full_key(arch, row->key, key);
        bool flag = false;
        int found =
            row->flag ? gguf_get_bool(g, key, &flag, error) : gguf_get_uint(g, key, &value, error);
        if (found < 0)
            return -1;
        if (row->flag)
            value = flag;
        if (!found && row->absent == ABSENT_REQUIRED)
            return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key);
        /* Checked here and not only in arch_check_hparams: the value has 64 bits, the field 32. */
        if (found && (value < row->min || value > row->max))
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 ": not between %" PRIu32 " and %" PRIu32, key,
                             value, row->min, row->max);
        if (found)
            *uint_at(h, row->offset) = (uint32_t)value;
    }
    return 0;
}

static int read_floats(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                       struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(float_rows); i++) {
        const struct float_row *row = &float_rows[i];
        if (row->arch != arch)
            continue;
        char key[KEY_BYTES];
        double value;
        full_key(arch, row->key, key);
        int found = gguf_get_float(g, key, &value, error);
        if (found < 0)
            return -1;
        if (!found && row->absent == ABSENT_REQUIRED)
            return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key);
        float v = found ? (float)value : 0;
        memcpy((char *)h + row->offset, &v, sizeof v);
    }
    return 0;
}

static int only_text(const struct gguf *g, const char *key, const char *want, struct error *error)
{
    const char *text;
    size_t n;
    int found = gguf_get_string(g, key, &text, &n, error);
    if (found == 1 && (n != strlen(want) || memcmp(text, want, n) != 0))
        return error_set(error, ERR_BAD_INPUT, "key '%s' is '%s'; only '%s' is supported", key,
                         printable(text, n).text, want);
    return found < 0 ? -1 : 0;
}

/* Checks an ARCH_ONLY or ARCH_ONLY_FLOAT key. An integer key may be written as a bool. */
static int only_number(const struct gguf *g, const char *key, enum only_kind kind, double want,
                       struct error *error)
{
    bool flag;
    uint64_t value;
    double number = 0;
    int found = kind == ONLY_UINT ? gguf_get_bool(g, key, &flag, NULL) : -1;
    if (found == 1) {
        number = flag;
    } else if (kind == ONLY_UINT) {
        found = gguf_get_uint(g, key, &value, error);
        number = found == 1 ? (double)value : 0;
    } else {
        found = gguf_get_float(g, key, &number, error);
    }
    if (found == 1 && number != want)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is %.15g; only %g is supported", key,
                         number, want);
    return found < 0 ? -1 : 0;
}

/* Checks the keys that select computations which sluice does not support. */
static int check_only(enum arch_id arch, const struct gguf *g, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(only_rows); i++) {
        const struct only_row *row = &only_rows[i];
        char key[KEY_BYTES];
        if (row->arch != arch)
            continue;
        full_key(arch, row->key, key);
        if (row->kind == ONLY_TEXT ? only_text(g, key, row->text, error)
                                   : only_number(g, key, row->kind, row->number, error))
            return -1;
    }
    return 0;
}

/* Computes the hyper-parameters that are missing in the file (still 0), and the number of layers
 * that are used. */
static int derive_absent(enum arch_id arch, struct model_hparams *h, uint32_t tokens,
                         struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(default_rows); i++)
        if (default_rows[i].arch == arch && uint_of(h, default_rows[i].offset) == 0)
            *uint_at(h, default_rows[i].offset) = default_rows[i].value;
    if (h->skipped_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "nextn_predict_layers %" PRIu32 " leave none of %" PRIu32 " blocks",
                         h->skipped_layers, h->layers);
    h->layers -= h->skipped_layers;
    if (!h->shared_inner)
        h->shared_inner = h->shared_count * h->expert_inner; /* at most 64 * 65536 */
    if (!h->kv_heads)
        h->kv_heads = h->heads;
    if (!h->head_size)
        h->head_size = h->hidden / h->heads;
    if (!h->rope_dims)
        h->rope_dims = h->head_size;
    if (!h->vocab)
        h->vocab = tokens;
    return 0;
}

int arch_read_hparams(enum arch_id arch, const struct gguf *g, uint32_t tokens,
                      struct model_hparams *h, struct error *error)
{
    *h = (struct model_hparams){0};
    if (read_uints(arch, g, h, error) || read_floats(arch, g, h, error) ||
        check_only(arch, g, error) || derive_absent(arch, h, tokens, error))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(const_rows); i++)
        if (const_rows[i].arch == arch)
            *uint_at(h, const_rows[i].offset) = const_rows[i].value;
    if (h->vocab != tokens)
        return error_set(error, ERR_BAD_INPUT,
                         "vocab_size is %" PRIu32 " but tokenizer.ggml.tokens has %" PRIu32,
                         h->vocab, tokens);
    char key[KEY_BYTES];
    uint64_t value_length;
    full_key(arch, "attention.value_length", key);
    int found = gguf_get_uint(g, key, &value_length, error);
    if (found < 0)
        return -1;
    if (found && value_length != h->head_size)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64 " but the head size is %" PRIu32, key, value_length,
                         h->head_size);
    return arch_check_hparams(arch, h, error);
}

static int check_ranges(enum arch_id arch, const struct model_hparams *h, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++) {
        const struct uint_row *row = &uint_rows[i];
        uint32_t v = uint_of(h, row->offset);
        if (row->arch == arch && (v < row->min || v > row->max))
            return error_set(error, ERR_BAD_INPUT,
                             "%s.%s is %" PRIu32 ": not between %" PRIu32 " and %" PRIu32,
                             arch_names[arch], row->key, v, row->min, row->max);
    }
    for (size_t i = 0; i < ARRAY_LEN(float_rows); i++) {
        const struct float_row *row = &float_rows[i];
        double v = (double)float_of(h, row->offset);
        /* with a tolerance, because the value was rounded to float; also rejects NaN */
        if (row->arch == arch && !(v >= row->min * 0.999999 && v <= row->max * 1.000001))
            return error_set(error, ERR_BAD_INPUT, "%s.%s is %g: not between %g and %g",
                             arch_names[arch], row->key, v, row->min, row->max);
    }
    for (size_t i = 0; i < ARRAY_LEN(const_rows); i++)
        if (const_rows[i].arch == arch && uint_of(h, const_rows[i].offset) != const_rows[i].value)
            return error_set(error, ERR_BAD_INPUT, "a fixed parameter of %s has another value",
                             arch_names[arch]);
    return 0;
}

/* True if a row of the table sets the field at `offset`. */
static bool has_row(enum arch_id arch, size_t offset)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++)
        if (uint_rows[i].arch == arch && uint_rows[i].offset == offset)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(float_rows); i++)
        if (float_rows[i].arch == arch && float_rows[i].offset == offset)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(const_rows); i++)
        if (const_rows[i].arch == arch && const_rows[i].offset == offset)
            return true;
    return offset == offsetof(struct model_hparams, tied_output);
}

/* Fields that the architecture does not use must be 0: of a shared expert, of a norm, reserved
 * ones. */
static int check_others(enum arch_id arch, const struct model_hparams *h, struct error *error)
{
    _Static_assert(sizeof *h % sizeof(uint32_t) == 0, "all fields are words");
    for (size_t at = 0; at < sizeof *h; at += sizeof(uint32_t))
        if (uint_of(h, at) != 0 && !has_row(arch, at))
            return error_set(error, ERR_BAD_INPUT, "a parameter that %s does not have is not 0",
                             arch_names[arch]);
    return 0;
}

static int check_groups(const struct model_hparams *h, struct error *error)
{
    if (h->groups < 2)
        return 0;
    if (h->experts % h->groups != 0 || h->groups_used < 1 || h->groups_used > h->groups ||
        h->groups_used * (uint64_t)(h->experts / h->groups) < h->experts_used)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu32 " of %" PRIu32 " groups of %" PRIu32
                         " experts do not fit expert_used_count %" PRIu32,
                         h->groups_used, h->groups, h->experts, h->experts_used);
    return 0;
}

int arch_check_hparams(enum arch_id arch, const struct model_hparams *h, struct error *error)
{
    sl_assert(arch < ARCH__COUNT);
    if (check_ranges(arch, h, error) || check_others(arch, h, error))
        return -1;
    if (h->heads % h->kv_heads != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "head_count %" PRIu32 " is not a multiple of head_count_kv %" PRIu32,
                         h->heads, h->kv_heads);
    if (h->head_size % 2 != 0)
        return error_set(error, ERR_BAD_INPUT, "the head size %" PRIu32 " is odd", h->head_size);
    if (h->rope_dims > h->head_size || h->rope_dims % 2 != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "rope.dimension_count is %" PRIu32
                         "; an even number up to the head size %" PRIu32 " is possible",
                         h->rope_dims, h->head_size);
    if (h->dense_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "leading_dense_block_count is %" PRIu32 " of %" PRIu32
                         " layers: no layer has experts",
                         h->dense_layers, h->layers);
    if (h->experts_used > h->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "expert_used_count %" PRIu32 " is more than expert_count %" PRIu32,
                         h->experts_used, h->experts);
    if (check_groups(h, error))
        return -1;
    if (h->tied_output > 1)
        return error_set(error, ERR_BAD_INPUT, "tied_output is neither 0 nor 1");
    return 0;
}

uint64_t arch_dim_size(const struct model_hparams *h, enum arch_dim dim)
{
    switch (dim) {
    case ARCH_DIM_ONE: return 1;
    case ARCH_DIM_HIDDEN: return h->hidden;
    case ARCH_DIM_VOCAB: return h->vocab;
    case ARCH_DIM_Q: return (uint64_t)h->heads * h->head_size;
    case ARCH_DIM_KV: return (uint64_t)h->kv_heads * h->head_size;
    case ARCH_DIM_HEAD: return h->head_size;
    case ARCH_DIM_HALF: return h->rope_dims / 2;
    case ARCH_DIM_EXPERTS: return h->experts;
    case ARCH_DIM_INNER: return h->expert_inner;
    case ARCH_DIM_INNER_TWICE: return 2 * (uint64_t)h->expert_inner;
    case ARCH_DIM_SHARED: return h->shared_inner;
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

static int check_shape(const struct model_hparams *h, const struct model_tensor *t,
                       const enum arch_dim dims[3], enum storage storage, struct error *error)
{
    uint64_t want[4] = {arch_dim_size(h, dims[0]), arch_dim_size(h, dims[1]),
                        arch_dim_size(h, dims[2]), 1};
    if (memcmp(want, t->ne, sizeof want) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         "; %" PRIu64 " x %" PRIu64 " x %" PRIu64 " expected",
                         t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], want[0], want[1],
                         want[2]);
    if (storage == STORAGE_F32 && t->type != TENSOR_F32)
        return error_set(error, ERR_BAD_INPUT, "tensor %s is of type %s; F32 expected", t->name,
                         tensor_type_info(t->type)->name);
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
                     arch_names[arch]);
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
    for (size_t i = 0; i < ARRAY_LEN(dense_rows) + ARRAY_LEN(expert_rows); i++) {
        bool expert = i >= ARRAY_LEN(dense_rows);
        const struct dense_row *d = &dense_rows[expert ? 0 : i];
        const struct expert_row *e = &expert_rows[expert ? i - ARRAY_LEN(dense_rows) : 0];
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
        if (expert ? parts.ffn != FFN_EXPERTS : !global && !arch_layer_has(parts, d->role))
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s: layer %" PRIu32 " of this model has no such part", t->name,
                             layer);
        *location =
            (struct arch_location){expert, false, expert ? e->matrix : (uint32_t)d->role, layer};
        if (expert)
            return check_shape(h, t, (enum arch_dim[3]){e->ne0, e->ne1, ARCH_DIM_EXPERTS},
                               STORAGE_ANY, error);
        return check_shape(h, t, (enum arch_dim[3]){d->ne0, d->ne1, ARCH_DIM_ONE}, d->storage,
                           error);
    }
    *location = (struct arch_location){.unused = is_unused(arch, t->name)};
    return location->unused ? 0 : reject_tensor(arch, t->name, error);
}

static const struct dense_row *dense_row_of(enum arch_id arch, enum dense_role role)
{
    for (size_t i = 0; i < ARRAY_LEN(dense_rows); i++)
        if (dense_rows[i].arch == arch && dense_rows[i].role == role)
            return &dense_rows[i];
    return NULL;
}

bool arch_role_required(enum arch_id arch, const struct model_hparams *h, enum dense_role role)
{
    const struct dense_row *row = dense_row_of(arch, role);
    return row && row->presence == PRESENCE_REQUIRED && arch_dim_size(h, row->ne0) > 0 &&
           arch_dim_size(h, row->ne1) > 0;
}

bool arch_role_any_type(enum arch_id arch, enum dense_role role)
{
    const struct dense_row *row = dense_row_of(arch, role);
    return row && row->storage == STORAGE_ANY;
}

const char *arch_tensor_name(enum arch_id arch, const struct arch_location *location, char *buf)
{
    const char *pattern = NULL;
    for (size_t i = 0; i < ARRAY_LEN(expert_rows) && location->is_expert; i++)
        if (expert_rows[i].arch == arch && expert_rows[i].matrix == location->role)
            pattern = expert_rows[i].name;
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
