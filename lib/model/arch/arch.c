/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: their names and hyper-parameters. Layers and tensors: tensors.c. */
#include "lib/model/arch/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/text/printable.h"

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
    enum absent absent;
    float otherwise; /* ABSENT_DERIVED: the value then */
} float_rows[] = {
#define ARCH_FLOAT(id, field, key, min, max)                                                       \
    {ARCH_##id, (key), offsetof(struct model_hparams, field), (min), (max), ABSENT_REQUIRED, 0},
#define ARCH_FLOAT_ELSE(id, field, key, min, max, value)                                           \
    {ARCH_##id,      (key),  offsetof(struct model_hparams, field), (min), (max),                  \
     ABSENT_DERIVED, (value)},
#define ARCH_FLOAT_OR_0(id, field, key, min, max) ARCH_FLOAT_ELSE(id, field, key, min, max, 0)
#define ARCH_FLOAT_OLD                            ARCH_FLOAT_OR_0
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

/* Floats without a key. */
static const struct real_row {
    enum arch_id arch;
    size_t offset;
    bool root; /* of the field at `of` */
    size_t of;
    float value;
} real_rows[] = {
#define ARCH_ROOT(id, field, of)                                                                   \
    {ARCH_##id, offsetof(struct model_hparams, field), true, offsetof(struct model_hparams, of), 0},
#define ARCH_CONST_FLOAT(id, field, value)                                                         \
    {ARCH_##id, offsetof(struct model_hparams, field), false, 0, (value)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct text_row {
    enum arch_id arch;
    size_t offset;
    const char *key, *text;
    uint32_t value; /* not 0 */
} text_rows[] = {
#define ARCH_TEXT(id, field, key, text, value)                                                     \
    {ARCH_##id, offsetof(struct model_hparams, field), (key), (text), (value)},
#include "lib/model/arch/arch.tbl.h"
    {ARCH__COUNT, 0, "", "", 0},
};

static const struct const_row default_rows[] = {
#define ARCH_DEFAULT(id, field, value) {ARCH_##id, offsetof(struct model_hparams, field), (value)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct default_of_row {
    enum arch_id arch;
    size_t offset;
    uint32_t layers, vocab, value;
} default_of_rows[] = {
#define ARCH_DEFAULT_OF(id, field, layers, vocab, value)                                           \
    {ARCH_##id, offsetof(struct model_hparams, field), (layers), (vocab), (value)},
#include "lib/model/arch/arch.tbl.h"
};

/* Other keys of fields whose own key is absent. */
static const struct else_row {
    enum arch_id arch;
    size_t offset;
    const char *key;
    bool divided;
    size_t by;
} else_rows[] = {
#define ARCH_ELSE(id, field, key)                                                                  \
    {ARCH_##id, offsetof(struct model_hparams, field), (key), false, 0},
#define ARCH_ELSE_SHARE(id, field, key, by)                                                        \
    {ARCH_##id, offsetof(struct model_hparams, field), (key), true,                                \
     offsetof(struct model_hparams, by)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct missing_row {
    enum arch_id arch;
    const char *key, *what;
} missing_rows[] = {
#define ARCH_MISSING(id, key, what) {ARCH_##id, (key), (what)},
#include "lib/model/arch/arch.tbl.h"
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

void arch_full_key(enum arch_id arch, const char *key, char buf[ARCH_KEY_BYTES])
{
    int n = snprintf(buf, ARCH_KEY_BYTES, "%s.%s", arch_name(arch), key);
    sl_assert(n > 0 && n < ARCH_KEY_BYTES);
}

/* Is the key of this row an array? Then read_arrays reads it. */
static bool is_array(enum arch_id arch, const struct gguf *g, const struct uint_row *row)
{
    char key[ARCH_KEY_BYTES];
    struct gguf_array a;
    arch_full_key(arch, row->key, key);
    bool heads;
    const char *list = arch_recurrent_key(arch, &heads);
    return (arch_window_field(arch, row->offset) != 0 || (list && strcmp(list, row->key) == 0)) &&
           gguf_get_uints(g, key, &a, NULL) != 0;
}

static int missing_key(enum arch_id arch, const struct uint_row *row, const char *key,
                       struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(missing_rows); i++)
        if (missing_rows[i].arch == arch && strcmp(missing_rows[i].key, row->key) == 0)
            return error_set(error, ERR_BAD_INPUT, "key '%s' is missing: %s", key,
                             missing_rows[i].what);
    return error_set(error, ERR_BAD_INPUT, "key '%s' is missing%s", key,
                     row->offset == offsetof(struct model_hparams, experts)
                         ? ": a model without experts is not supported"
                         : "");
}

static int read_uints(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++) {
        const struct uint_row *row = &uint_rows[i];
        if (row->arch != arch || is_array(arch, g, row))
            continue;
        char key[ARCH_KEY_BYTES];
        uint64_t value;
        arch_full_key(arch, row->key, key);
        bool flag = false;
        int found =
            row->flag ? gguf_get_bool(g, key, &flag, error) : gguf_get_uint(g, key, &value, error);
        if (found < 0)
            return -1;
        if (row->flag)
            value = flag;
        if (!found && row->absent == ABSENT_REQUIRED)
            return missing_key(arch, row, key, error);
        /* Checked here and not only in arch_check_hparams: the value has 64 bits, the field 32. */
        if (found && (value < row->min || value > row->max))
            return error_set(error, ERR_BAD_INPUT,
                             "key '%s' is %" PRIu64 ": not between %" PRIu32 " and %" PRIu32, key,
                             value, row->min, row->max);
        if (found)
            *arch_uint(h, row->offset) = (uint32_t)value;
    }
    return 0;
}

static int read_arrays(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                       struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++) {
        const struct uint_row *row = &uint_rows[i];
        const struct arch_range range = {.field = row->offset, .min = row->min, .max = row->max};
        if (row->arch == arch && arch_read_array(arch, g, row->key, &range, h, error) < 0)
            return -1;
    }
    return 0;
}

/* Names of settings. Of several rows with the same key, one must fit. */
static int read_texts(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                      struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(text_rows); i++) {
        const struct text_row *row = &text_rows[i];
        char key[ARCH_KEY_BYTES];
        const char *text;
        size_t n;
        if (row->arch != arch)
            continue;
        arch_full_key(arch, row->key, key);
        int found = gguf_get_string(g, key, &text, &n, error);
        if (found < 0)
            return -1;
        if (found == 1 && n == strlen(row->text) && memcmp(text, row->text, n) == 0)
            *arch_uint(h, row->offset) = row->value;
        bool last = i + 1 == ARRAY_LEN(text_rows) || text_rows[i + 1].arch != arch ||
                    text_rows[i + 1].offset != row->offset;
        if (found == 1 && last && uint_of(h, row->offset) == 0 &&
            (n != strlen("none") || memcmp(text, "none", n) != 0))
            return error_set(error, ERR_BAD_INPUT, "key '%s' is '%s', which is not supported", key,
                             printable(text, n).text);
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
        char key[ARCH_KEY_BYTES];
        double value;
        arch_full_key(arch, row->key, key);
        int found = gguf_get_float(g, key, &value, error);
        if (found < 0)
            return -1;
        if (!found && row->absent == ABSENT_REQUIRED)
            return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key);
        float v = found ? (float)value : row->otherwise;
        if (found || float_of(h, row->offset) == 0) /* or by an older name */
            memcpy((char *)h + row->offset, &v, sizeof v);
    }
    return 0;
}

static const struct uint_row *uint_row_of(enum arch_id arch, size_t offset)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++)
        if (uint_rows[i].arch == arch && uint_rows[i].offset == offset)
            return &uint_rows[i];
    sl_panic("a field of %s without a key", arch_name(arch));
}

/* From other keys. */
static int read_else(enum arch_id arch, const struct gguf *g, struct model_hparams *h,
                     struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(else_rows); i++) {
        const struct else_row *row = &else_rows[i];
        char key[ARCH_KEY_BYTES];
        uint64_t value;
        if (row->arch != arch || uint_of(h, row->offset) != 0)
            continue;
        const struct uint_row *own = uint_row_of(arch, row->offset);
        arch_full_key(arch, row->key, key);
        int found = gguf_get_uint(g, key, &value, error);
        if (found < 0)
            return -1;
        if (found == 1 && row->divided)
            value /= uint_of(h, row->by); /* a required key, not 0 */
        if (found == 1 && value >= own->min && value <= own->max)
            *arch_uint(h, row->offset) = (uint32_t)value;
        else if (own->min > 0) {
            arch_full_key(arch, own->key, key);
            return missing_key(arch, own, key, error);
        }
    }
    return 0;
}

/* Computes the hyper-parameters that are missing in the file (still 0), and the number of layers
 * that are used. */
static int derive_absent(enum arch_id arch, struct model_hparams *h, uint32_t tokens,
                         struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(default_of_rows); i++) {
        const struct default_of_row *row = &default_of_rows[i];
        if (row->arch == arch && row->layers == h->layers && row->vocab == tokens &&
            uint_of(h, row->offset) == 0)
            *arch_uint(h, row->offset) = row->value;
    }
    for (size_t i = 0; i < ARRAY_LEN(default_rows); i++)
        if (default_rows[i].arch == arch && uint_of(h, default_rows[i].offset) == 0)
            *arch_uint(h, default_rows[i].offset) = default_rows[i].value;
    if (h->skipped_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "nextn_predict_layers %" PRIu32 " leave none of %" PRIu32 " blocks",
                         h->skipped_layers, h->layers);
    h->layers -= h->skipped_layers;
    if (!h->shared_inner)
        h->shared_inner = h->shared_count * h->expert_inner; /* at most 64 * 65536 */
    arch_derive_mla(h);
    if (!h->kv_heads)
        h->kv_heads = h->heads;
    if (!h->head_size)
        h->head_size = h->hidden / h->heads;
    if (!h->value_size)
        h->value_size = h->head_size;
    if (!h->rope_dims)
        h->rope_dims = h->head_size;
    if (!h->vocab)
        h->vocab = tokens;
    arch_derive_scaling(h);
    return 0;
}

static float real_of(const struct model_hparams *h, const struct real_row *row)
{
    return row->root ? sqrtf((float)uint_of(h, row->of)) : row->value;
}

void arch_set_reals(enum arch_id arch, struct model_hparams *h)
{
    for (size_t i = 0; i < ARRAY_LEN(real_rows); i++) {
        float value = real_of(h, &real_rows[i]);
        if (real_rows[i].arch == arch)
            memcpy((char *)h + real_rows[i].offset, &value, sizeof value);
    }
}

int arch_read_hparams(enum arch_id arch, const struct gguf *g, uint32_t tokens,
                      struct model_hparams *h, struct error *error)
{
    int listed = 0;
    *h = (struct model_hparams){0};
    if (read_uints(arch, g, h, error) || read_floats(arch, g, h, error) ||
        read_texts(arch, g, h, error) || read_else(arch, g, h, error) ||
        arch_check_only(arch, g, h, error) || arch_read_scaling(arch, g, h, error) ||
        arch_read_kinds(arch, g, h, error) || read_arrays(arch, g, h, error) ||
        (listed = arch_read_recurrent(arch, g, h, error)) < 0 ||
        derive_absent(arch, h, tokens, error))
        return -1;
    if (!listed)
        arch_set_recurrent(h);
    memset(h->layer_kind + h->layers, LAYER_FULL, sizeof h->layer_kind - h->layers);
    for (size_t i = 0; i < ARRAY_LEN(const_rows); i++)
        if (const_rows[i].arch == arch)
            *arch_uint(h, const_rows[i].offset) = const_rows[i].value;
    arch_set_reals(arch, h);
    if (h->vocab != tokens)
        return error_set(error, ERR_BAD_INPUT,
                         "vocab_size is %" PRIu32 " but tokenizer.ggml.tokens has %" PRIu32,
                         h->vocab, tokens);
    return arch_check_hparams(arch, h, error);
}

static int check_ranges(enum arch_id arch, const struct model_hparams *h, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++) {
        const struct uint_row *row = &uint_rows[i];
        uint32_t v = uint_of(h, row->offset);
        size_t window = arch_window_field(arch, row->offset);
        uint32_t w = window ? uint_of(h, window) : 0;
        if (row->arch == arch && w != 0 && (w < row->min || w > row->max))
            v = w;
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
    bool fixed = true;
    for (size_t i = 0; i < ARRAY_LEN(const_rows); i++)
        fixed &=
            const_rows[i].arch != arch || uint_of(h, const_rows[i].offset) == const_rows[i].value;
    for (size_t i = 0; i < ARRAY_LEN(real_rows); i++)
        fixed &= real_rows[i].arch != arch ||
                 float_of(h, real_rows[i].offset) == real_of(h, &real_rows[i]);
    if (!fixed)
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
    for (size_t i = 0; i < ARRAY_LEN(real_rows); i++)
        if (real_rows[i].arch == arch && real_rows[i].offset == offset)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(uint_rows); i++)
        if (uint_rows[i].arch == arch && arch_window_field(arch, uint_rows[i].offset) == offset)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(text_rows); i++)
        if (text_rows[i].arch == arch && text_rows[i].offset == offset)
            return true;
    return offset == offsetof(struct model_hparams, tied_output);
}

/* Fields that the architecture does not use must be 0: of a shared expert, of a norm, reserved
 * ones. */
static int check_others(enum arch_id arch, const struct model_hparams *h, struct error *error)
{
    _Static_assert(sizeof *h % sizeof(uint32_t) == 0, "all fields are words");
    for (size_t at = 0; at < offsetof(struct model_hparams, layer_kind); at += sizeof(uint32_t))
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
    if (arch_check_kinds(h, error) || arch_check_recurrent(h, error) || arch_check_mla(h, error))
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        struct layer_attention a = model_attention_of(h, layer);
        if (h->layer_kind[layer] != LAYER_RECURRENT && arch_check_attention(&a, error))
            return -1;
    }
    if (arch_check_scaling(h, error))
        return -1;
    if (h->dense_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "leading_dense_block_count is %" PRIu32 " of %" PRIu32
                         " layers: no layer has experts",
                         h->dense_layers, h->layers);
    if (h->experts_used > h->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "expert_used_count %" PRIu32 " is more than expert_count %" PRIu32,
                         h->experts_used, h->experts);
    if (h->dense_layers > 0 && h->dense_inner == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s.feed_forward_length' is missing: the first %" PRIu32
                         " layers have no experts",
                         arch_name(arch), h->dense_layers);
    if (check_groups(h, error))
        return -1;
    if (h->tied_output > 1)
        return error_set(error, ERR_BAD_INPUT, "tied_output is neither 0 nor 1");
    return 0;
}
