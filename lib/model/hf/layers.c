/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of layers: attention over all positions, or the architecture's other kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"

#define KEY_BYTES 128

static const struct {
    enum hf_arch arch;
    const char *kind;
} other_rows[] = {
#define HF_OTHER(id, kind) {HF_##id, (kind)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct {
    enum hf_arch arch;
    uint32_t period, at;
} fixed_rows[] = {
#define HF_FIXED(id, period, at) {HF_##id, (period), (at)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct {
    enum hf_arch arch;
    const char *field;
    uint32_t otherwise;
} interval_rows[] = {
#define HF_INTERVAL(id, field, otherwise) {HF_##id, #field, (otherwise)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct keys_row {
    enum hf_arch arch;
    const char *key;
    const char *full, *other; /* fields with the numbers; NULL: a flag of each layer */
} keys_rows[] = {
#define HF_LAYER_FLAGS(id, key)              {HF_##id, (key), NULL, NULL},
#define HF_LAYER_UINTS(id, full, other, key) {HF_##id, (key), (full), (other)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct full_row {
    enum hf_arch arch;
    const char *field, *global, *gate, *key;
    bool each;
} full_rows[] = {
#define HF_FULL(id, field, global, gate, key) {HF_##id, #field, #global, (gate), (key), false},
#define HF_EACH(id, field, global, gate, key) {HF_##id, #field, #global, (gate), (key), true},
#include "lib/model/hf/hf.tbl.h"
};

static const struct layout_row {
    enum hf_arch arch;
    const char *windows, *rotated;
    uint32_t period, at;
    const char *size, *key;
} layout_rows[] = {
#define HF_LAYOUT(id, windows, rotated, period, at, size, key)                                     \
    {HF_##id, #windows, #rotated, (period), (at), #size, (key)},
#include "lib/model/hf/hf.tbl.h"
};

static const char *other_kind(enum hf_arch arch)
{
    for (size_t i = 0; i < ARRAY_LEN(other_rows); i++)
        if (other_rows[i].arch == arch)
            return other_rows[i].kind;
    return NULL;
}

static int read_listed(const json_t *types, struct hf_shape *shape, struct error *error)
{
    const char *other = other_kind(shape->arch);
    if (other && json_array_size(types) != shape->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "layer_types is not a list of %" PRIu32 " kinds of layers", shape->layers);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *kind = json_array_get(types, i);
        if (other && hf_is_string(kind, other))
            shape->other[i] = true;
        else if (!hf_is_string(kind, "full_attention"))
            return error_set(error, ERR_BAD_INPUT,
                             "layer_types: layer %zu has another attention than over all "
                             "positions, which is not supported",
                             i);
    }
    return 0;
}

/* Without a list: every n-th layer attends to all positions. */
static int read_interval(const json_t *config, struct hf_shape *shape, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(interval_rows); i++) {
        if (interval_rows[i].arch != shape->arch)
            continue;
        const json_t *value = hf_field(config, interval_rows[i].field);
        json_int_t n = value ? json_integer_value(value) : interval_rows[i].otherwise;
        if (n < 1 || n > (json_int_t)MODEL_LAYERS_MAX)
            return error_set(error, ERR_BAD_INPUT, "%s is not a number of layers",
                             interval_rows[i].field);
        for (uint32_t layer = 0; layer < shape->layers; layer++)
            shape->other[layer] = (layer + 1) % (uint32_t)n != 0;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(fixed_rows); i++)
        if (fixed_rows[i].arch == shape->arch)
            return 0;
    return other_kind(shape->arch) ? error_set(error, ERR_BAD_INPUT, "layer_types is missing") : 0;
}

static int check_fixed(bool listed, struct hf_shape *shape, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(fixed_rows); i++)
        for (uint32_t layer = 0; layer < shape->layers && fixed_rows[i].arch == shape->arch;
             layer++) {
            bool other = layer % fixed_rows[i].period != fixed_rows[i].at;
            if (listed && shape->other[layer] != other)
                return error_set(error, ERR_BAD_INPUT,
                                 "layer_types: layer %" PRIu32
                                 " is not of the kind that it has in published models, which is "
                                 "not supported",
                                 layer);
            shape->other[layer] = other;
        }
    return 0;
}

/* The number of a kind of layer. */
static int number_of(const json_t *config, const char *field, uint32_t *n, struct error *error)
{
    const json_t *value = hf_field(config, field);
    *n = 0;
    if (!*field)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT16_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a whole number of 16 bits", field);
    *n = (uint32_t)json_integer_value(value);
    return 0;
}

static int put_keys(const struct keys_row *row, const json_t *config, struct gguf_writer *w,
                    const struct hf_shape *shape, struct error *error)
{
    char key[KEY_BYTES];
    uint32_t numbers[MODEL_LAYERS_MAX], full, other;
    snprintf(key, sizeof key, "%s.%s", hf_arch_name(row->arch), row->key);
    if (!row->full) {
        gguf_put_array(w, key, GGUF_BOOL, shape->other, shape->layers);
        return 0;
    }
    if (number_of(config, row->full, &full, error) || number_of(config, row->other, &other, error))
        return -1;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        numbers[layer] = shape->other[layer] ? other : full;
    gguf_put_array(w, key, GGUF_U32, numbers, shape->layers);
    return 0;
}

/* The value of a field in per_layer_config: the same in all layers that attend to all positions, absent in
 * the others. *found is NULL without it. */
static int in_layers(const json_t *config, const struct hf_shape *shape, const char *field,
                     const json_t **found, struct error *error)
{
    const json_t *layers = hf_field(config, "per_layer_config");
    bool any = false, all = true;
    *found = NULL;
    for (uint32_t layer = 0; layers && layer < shape->layers; layer++) {
        char name[16];
        snprintf(name, sizeof name, "%" PRIu32, layer);
        const json_t *value = json_object_get(json_object_get(layers, name), field);
        any = any || value;
        all = all && !shape->other[layer] == !!value &&
              (!*found || !value || json_equal(*found, value));
        *found = value ? value : *found;
    }
    return !any || all ? 0
                       : error_set(error, ERR_BAD_INPUT,
                                   "per_layer_config: %s differs between layers of a kind", field);
}

int hf_full_number(const json_t *config, const struct hf_shape *shape, const char *field,
                   const char *global, const char *gate, uint32_t *n, struct error *error)
{
    const json_t *value = hf_field(config, global);
    if (*gate && !json_is_true(hf_field(config, gate)))
        value = NULL;
    if (!value && in_layers(config, shape, field, &value, error))
        return -1;
    value = value ? value : hf_field(config, field);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT16_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a whole number of 16 bits", field);
    *n = (uint32_t)json_integer_value(value);
    return 0;
}

static int put_full(const struct full_row *row, const json_t *config, struct gguf_writer *w,
                    const struct hf_shape *shape, struct error *error)
{
    char key[KEY_BYTES];
    uint32_t numbers[MODEL_LAYERS_MAX], full, other;
    snprintf(key, sizeof key, "%s.%s", hf_arch_name(row->arch), row->key);
    if (hf_full_number(config, shape, row->field, row->global, row->gate, &full, error) ||
        number_of(config, row->field, &other, error))
        return -1;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        numbers[layer] = shape->other[layer] ? other : full;
    if (row->each)
        gguf_put_array(w, key, GGUF_U32, numbers, shape->layers);
    else
        gguf_put_u32(w, key, full);
    return 0;
}

/* There is no list, or it is one of `which` for all layers. */
static bool all_are(const json_t *list, json_int_t which, uint32_t layers)
{
    bool good = !list || json_array_size(list) == layers;
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        const json_t *at = json_array_get(list, i);
        good = json_is_integer(at) && json_integer_value(at) == which;
    }
    return good;
}

static bool is_periodic(const json_t *list, const struct layout_row *row, uint32_t layers)
{
    bool good = json_array_size(list) == layers;
    for (uint32_t i = 0; i < layers && good; i++) {
        const json_t *at = json_array_get(list, i);
        good = json_is_integer(at) && json_integer_value(at) == (i % row->period != row->at);
    }
    return good;
}

static int put_layout(const struct layout_row *row, const json_t *config, struct gguf_writer *w,
                      const struct hf_shape *shape, struct error *error)
{
    const json_t *windows = hf_field(config, row->windows);
    const json_t *rotated = hf_field(config, row->rotated);
    char key[KEY_BYTES];
    uint32_t size;
    if (all_are(windows, 0, shape->layers) && all_are(rotated, 1, shape->layers))
        return 0;
    if (!is_periodic(windows, row, shape->layers) || !is_periodic(rotated, row, shape->layers))
        return error_set(error, ERR_BAD_INPUT, "%s and %s are not those of published models",
                         row->windows, row->rotated);
    if (number_of(config, row->size, &size, error))
        return -1;
    snprintf(key, sizeof key, "%s.%s", hf_arch_name(row->arch), row->key);
    gguf_put_u32(w, key, size);
    return 0;
}

int hf_layer_kinds(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                   struct error *error)
{
    const json_t *types = hf_field(config, "layer_types");
    if (types ? read_listed(types, shape, error) : read_interval(config, shape, error))
        return -1;
    if (check_fixed(types != NULL, shape, error))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(keys_rows); i++)
        if (keys_rows[i].arch == shape->arch && put_keys(&keys_rows[i], config, w, shape, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(layout_rows); i++)
        if (layout_rows[i].arch == shape->arch &&
            put_layout(&layout_rows[i], config, w, shape, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(full_rows); i++)
        if (full_rows[i].arch == shape->arch && put_full(&full_rows[i], config, w, shape, error))
            return -1;
    return 0;
}
