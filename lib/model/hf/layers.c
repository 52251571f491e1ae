/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of layers: attention over all positions, or the architecture's other kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/hf/internal.h"

/* NULL: all layers are alike. */
static const char *other_kind(const struct hf_arch *arch)
{
    const struct hf_row *row = hf_first(arch->rows, HF_ROWS(OTHER));
    return row ? row->text : NULL;
}

/* The kind of a layer in the list. -1: it is unknown. */
static int kind_of(const struct hf_arch *arch, const json_t *kind)
{
    const struct hf_row *row;
    HF_EACH (row, arch, HF_ROWS(OTHER)) {
        if (row->text && hf_is_string(kind, row->text))
            return 1;
        if (hf_is_string(kind, row->with))
            return 0;
    }
    HF_EACH (row, arch, HF_ROWS(TYPED))
        if (hf_is_string(kind, row->text))
            return 0;
    return hf_is_string(kind, "full_attention") ? 0 : -1;
}

static int read_listed(const json_t *config, const json_t *types, struct hf_shape *shape,
                       struct error *error)
{
    const char *other = other_kind(shape->arch);
    json_int_t drafting = json_integer_value(hf_field(config, "num_nextn_predict_layers"));
    if (other && json_array_size(types) != shape->layers &&
        (json_int_t)json_array_size(types) != (json_int_t)shape->layers + drafting)
        return error_set(error, ERR_BAD_INPUT,
                         "layer_types is not a list of %" PRIu32 " kinds of layers", shape->layers);
    for (size_t i = 0; i < json_array_size(types); i++) {
        int kind = kind_of(shape->arch, json_array_get(types, i));
        if (other && i < shape->layers) /* else the list may be longer than the model */
            shape->other[i] = kind == 1;
        if (kind < 0)
            return error_set(error, ERR_BAD_INPUT,
                             "layer_types: layer %zu has another attention than over all "
                             "positions, which is not supported",
                             i);
    }
    return 0;
}

/* Whether a layer of the list of numbers is of the other kind. -1: it is no such list. */
static int number_at(const json_t *list, uint32_t layer)
{
    const json_t *at = json_array_get(list, layer);
    json_int_t n = json_is_integer(at) ? json_integer_value(at) : -1;
    return n == 0 || n == 1 ? (int)n : -1;
}

/* Without names of kinds, their numbers. 0: there are none; 1: read. */
static int read_numbers(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const struct hf_row *row = hf_first(shape->arch->rows, HF_ROWS(KINDS_LISTED));
    const json_t *list = row ? hf_field(config, row->field) : NULL;
    if (!list)
        return 0;
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        int other = number_at(list, layer);
        if (other < 0 || json_array_size(list) != shape->layers)
            return error_set(error, ERR_BAD_INPUT, "%s is not a list of %" PRIu32 " numbers 0 or 1",
                             row->field, shape->layers);
        shape->other[layer] = row->text ? other == 0 : other == 1;
    }
    return 1;
}

/* The numbers of the layers that attend to all positions. */
static int read_full(const json_t *config, const char *field, struct hf_shape *shape,
                     struct error *error)
{
    const json_t *list = hf_field(config, field);
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        shape->other[layer] = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *number = json_array_get(list, i);
        json_int_t layer = json_integer_value(number);
        if (!json_is_integer(number) || layer < 1 || layer > (json_int_t)shape->layers)
            return error_set(error, ERR_BAD_INPUT, "%s: element %zu is no layer of 1 to %" PRIu32,
                             field, i, shape->layers);
        shape->other[layer - 1] = false;
    }
    return json_is_array(list) ? 0 : error_set(error, ERR_BAD_INPUT, "%s is no list", field);
}

/* Two fields of the row say which layers are not among the others. */
static int read_period(const json_t *config, const struct hf_row *row, uint32_t layers,
                       bool others[MODEL_LAYERS_MAX], struct error *error)
{
    const json_t *fields[] = {hf_field(config, row->field), hf_field(config, row->with)};
    json_int_t period = json_integer_value(fields[0]), offset = json_integer_value(fields[1]);
    if (!json_is_integer(fields[0]) || !json_is_integer(fields[1]) || offset < 0 ||
        offset >= period)
        return error_set(error, ERR_BAD_INPUT, "%s and %s are not a period and a number below it",
                         row->field, row->with);
    for (uint32_t layer = 0; layer < layers; layer++)
        others[layer] = (json_int_t)layer % period != offset;
    return 0;
}

/* Without a list: every n-th layer attends to all positions. */
static int read_interval(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const struct hf_row *numbers = hf_first(shape->arch->rows, HF_ROWS(FULL_LISTED));
    const struct hf_row *period = hf_first(shape->arch->rows, HF_ROWS(FULL_PERIOD));
    const struct hf_row *row = hf_first(shape->arch->rows, HF_ROWS(INTERVAL));
    if (numbers)
        return read_full(config, numbers->field, shape, error);
    if (period)
        return read_period(config, period, shape->layers, shape->other, error);
    int kinds = read_numbers(config, shape, error);
    if (kinds != 0)
        return kinds < 0 ? -1 : 0;
    if (!row)
        return hf_first(shape->arch->rows, HF_ROWS(FIXED)) || !other_kind(shape->arch)
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "layer_types is missing");
    const json_t *value = hf_field(config, row->field);
    json_int_t n = value ? json_integer_value(value) : row->value;
    if (n < 1 || n > (json_int_t)MODEL_LAYERS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a number of layers", row->field);
    uint32_t whole = row->text ? shape->layers / (uint32_t)n * (uint32_t)n : shape->layers;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        shape->other[layer] = (layer + 1) % (uint32_t)n != 0 && layer < whole;
    return 0;
}

static int check_fixed(bool listed, struct hf_shape *shape, struct error *error)
{
    const struct hf_row *row = hf_first(shape->arch->rows, HF_ROWS(FIXED));
    for (uint32_t layer = 0; row && layer < shape->layers; layer++) {
        bool other = layer % row->period != row->at;
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

static bool is_periodic(const json_t *list, const struct hf_row *row, uint32_t layers)
{
    bool good = json_array_size(list) == layers;
    for (uint32_t i = 0; i < layers && good; i++) {
        const json_t *at = json_array_get(list, i);
        good = json_is_integer(at) && json_integer_value(at) == (i % row->period != row->at);
    }
    return good;
}

/* Which layers rotate follows from their number. */
static int check_rotated(const json_t *config, const struct hf_shape *shape, struct error *error)
{
    const struct hf_row *row = hf_first(shape->arch->rows, HF_ROWS(ROTATES));
    const json_t *list = row ? hf_field(config, row->field) : NULL;
    if (!list || (json_is_array(list) && json_array_size(list) == 0) ||
        is_periodic(list, row, shape->layers))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "%s is not that of published models, which is not "
                     "supported",
                     row->field);
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

/* One of two numbers for each layer. */
static void put_each(const char *key, uint32_t full, uint32_t other, struct gguf_writer *w,
                     const struct hf_shape *shape)
{
    uint32_t numbers[MODEL_LAYERS_MAX];
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        numbers[layer] = shape->network[layer] ? 0 : shape->other[layer] ? other : full;
    gguf_put_array(w, key, GGUF_U32, numbers, shape->layers);
}

static int put_networks(const char *field, const char *key, const json_t *config,
                        struct gguf_writer *w, const struct hf_shape *shape, struct error *error)
{
    uint32_t numbers[MODEL_LAYERS_MAX], n;
    if (number_of(config, field, &n, error))
        return -1;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        numbers[layer] = shape->network[layer] ? n : 0;
    gguf_put_array(w, key, GGUF_U32, numbers, shape->layers);
    return 0;
}

static int put_keys(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                    const struct hf_shape *shape, struct error *error)
{
    char key[HF_KEY_BYTES];
    uint32_t full, other;
    hf_full_key(shape->arch, row->key, key);
    if (row->kind == HF_NETWORK_UINTS)
        return put_networks(row->field, key, config, w, shape, error);
    if (row->kind == HF_LAYER_FLAGS) {
        gguf_put_array(w, key, GGUF_BOOL, shape->other, shape->layers);
        return 0;
    }
    if (row->kind == HF_LAYER_ONES) {
        put_each(key, 1, 0, w, shape);
        return 0;
    }
    if (number_of(config, row->field, &full, error) || number_of(config, row->with, &other, error))
        return -1;
    put_each(key, full, other, w, shape);
    return 0;
}

/* The value of a field in per_layer_config: the same in all layers that attend to all positions,
 * absent in the others. *found is NULL without it. */
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

static int put_full(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                    const struct hf_shape *shape, struct error *error)
{
    char key[HF_KEY_BYTES];
    uint32_t full, other;
    hf_full_key(shape->arch, row->key, key);
    if (hf_full_number(config, shape, row->field, row->with, row->gate, &full, error) ||
        number_of(config, row->field, &other, error))
        return -1;
    if (row->kind == HF_EACH)
        put_each(key, full, other, w, shape);
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

static int put_layout(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                      const struct hf_shape *shape, struct error *error)
{
    const json_t *windows = hf_field(config, row->field);
    const json_t *rotated = hf_field(config, row->with);
    char key[HF_KEY_BYTES];
    uint32_t size;
    if (all_are(windows, 0, shape->layers) && all_are(rotated, 1, shape->layers))
        return 0;
    if (!is_periodic(windows, row, shape->layers) || !is_periodic(rotated, row, shape->layers))
        return error_set(error, ERR_BAD_INPUT, "%s and %s are not those of published models",
                         row->field, row->with);
    if (number_of(config, row->size, &size, error))
        return -1;
    hf_full_key(shape->arch, row->key, key);
    gguf_put_u32(w, key, size);
    return 0;
}

int hf_number_of_kind(const json_t *config, const struct hf_shape *shape, const char *field,
                      bool other, double *x, struct error *error)
{
    const json_t *value = hf_field(config, field), *found = NULL;
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        if (shape->other[layer] != other)
            continue;
        const json_t *at = json_is_array(value) ? json_array_get(value, layer) : value;
        if (!json_is_number(at) || (found && json_number_value(at) != json_number_value(found)))
            return error_set(error, ERR_BAD_INPUT,
                             "%s is not a number for layer %" PRIu32
                             ", or differs between layers of a kind",
                             field, layer);
        found = at;
    }
    *x = json_number_value(found);
    return 0;
}

static int put_by_kind(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                       const struct hf_shape *shape, struct error *error)
{
    char key[HF_KEY_BYTES];
    for (int other = 0; other < 2; other++) {
        double x, must = (double)(other ? row->other : row->full);
        if (hf_number_of_kind(config, shape, row->field, other, &x, error))
            return -1;
        if (row->kind == HF_KINDS && x != 0 && x != must)
            return error_set(error, ERR_BAD_INPUT, "%s is %g: only %g is supported in these layers",
                             row->field, x, must);
        hf_full_key(shape->arch, other ? row->with : row->key, key);
        if (row->kind == HF_BY_KIND && x != 0)
            gguf_put_f32(w, key, (float)x);
    }
    return 0;
}

static int put_limits(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                      const struct hf_shape *shape, struct error *error)
{
    const json_t *list = hf_field(config, row->field);
    float limits[MODEL_LAYERS_MAX];
    char key[HF_KEY_BYTES];
    if (!list)
        return 0;
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        const json_t *at = json_array_get(list, layer);
        if (!json_is_number(at) && !json_is_null(at))
            return error_set(error, ERR_BAD_INPUT,
                             "%s: element %" PRIu32 " is neither a number nor null", row->field,
                             layer);
        limits[layer] = (float)json_number_value(at);
    }
    hf_full_key(shape->arch, row->key, key);
    gguf_put_array(w, key, GGUF_F32, limits, shape->layers);
    return 0;
}

static int put_layer_rotated(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                             const struct hf_shape *shape, struct error *error)
{
    const json_t *list = hf_field(config, row->field), *bases = hf_field(config, row->with);
    const json_t *base = hf_field(config, "rope_theta");
    const char *name = bases ? row->with : row->field;
    bool rotated[MODEL_LAYERS_MAX], good = true;
    char key[HF_KEY_BYTES];
    list = bases ? bases : list;
    if (!list)
        return 0;
    for (uint32_t layer = 0; layer < shape->layers && good; layer++) {
        const json_t *at = json_array_get(list, layer);
        rotated[layer] = json_number_value(at) != 0;
        good = bases ? json_is_number(at) &&
                           (!rotated[layer] || json_number_value(at) == json_number_value(base))
                     : number_at(list, layer) >= 0;
    }
    if (!good || json_array_size(list) != shape->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "%s is not a list of %" PRIu32 " numbers, each 0 or the same one", name,
                         shape->layers);
    hf_full_key(shape->arch, row->key, key);
    gguf_put_array(w, key, GGUF_BOOL, rotated, shape->layers);
    return 0;
}

/* Whether a layer has an indexer, by a list of names, by a text with a letter of each layer, or by
 * a period: that is what the package transformers reads. -1: they say nothing that is known. */
static int indexer_at(const json_t *config, const struct hf_row *row, uint32_t layer)
{
    const json_t *list = hf_field(config, row->field), *text = hf_field(config, row->with);
    const json_t *period = hf_field(config, "index_topk_freq");
    const json_t *skipped = hf_field(config, "index_skip_topk_offset");
    const char *letters = json_string_value(text);
    list = list ? list : text;
    if (json_is_array(list)) {
        const json_t *at = json_array_get(list, layer);
        return hf_is_string(at, "full") ? 1 : hf_is_string(at, "shared") ? 0 : -1;
    }
    if (letters)
        return strlen(letters) <= layer ? -1
               : letters[layer] == 'F'  ? 1
               : letters[layer] == 'S'  ? 0
                                        : -1;
    json_int_t every = period ? json_integer_value(period) : 1;
    json_int_t first = (skipped ? json_integer_value(skipped) : 2) - 1;
    if (list || every > MODEL_LAYERS_MAX || first < -MODEL_LAYERS_MAX || first > MODEL_LAYERS_MAX)
        return -1;
    return layer <= first || every < 1 || ((json_int_t)layer - first) % every == 0;
}

static int put_indexers(const struct hf_row *row, const json_t *config, struct gguf_writer *w,
                        const struct hf_shape *shape, struct error *error)
{
    bool indexed[MODEL_LAYERS_MAX];
    char key[HF_KEY_BYTES];
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        int found = indexer_at(config, row, layer);
        if (found < 0)
            return error_set(error, ERR_BAD_INPUT,
                             "%s: whether layer %" PRIu32 " has an indexer is neither full nor "
                             "shared",
                             row->field, layer);
        indexed[layer] = found == 1;
    }
    hf_full_key(shape->arch, row->key, key);
    gguf_put_array(w, key, GGUF_BOOL, indexed, shape->layers);
    return 0;
}

/* The letter of a kind in a list; 0: it is unknown. */
static char letter_of(const json_t *kind)
{
    static const struct {
        const char *name;
        char letter;
    } names[] = {{"mamba", 'M'},
                 {"linear_attention", 'M'},
                 {"attention", '*'},
                 {"full_attention", '*'},
                 {"moe", 'E'}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (hf_is_string(kind, names[i].name))
            return names[i].letter;
    return 0;
}

static int read_pattern(const struct hf_row *row, const json_t *config, struct hf_shape *shape,
                        struct error *error)
{
    const json_t *list = hf_field(config, row->field), *text = hf_field(config, row->with);
    const char *letters = json_string_value(text);
    size_t count = list ? json_array_size(list) : letters ? strlen(letters) : 0;
    if (count != shape->layers)
        return error_set(error, ERR_BAD_INPUT, "%s is not the kinds of %" PRIu32 " layers",
                         list ? row->field : row->with, shape->layers);
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        char letter = list ? letter_of(json_array_get(list, layer)) : letters[layer];
        shape->other[layer] = letter == 'M';
        shape->network[layer] = letter == 'E';
        if (letter != 'M' && letter != 'E' && letter != '*')
            return error_set(error, ERR_BAD_INPUT,
                             "%s: layer %" PRIu32
                             " is neither Mamba-2 nor attention nor experts, which is not "
                             "supported",
                             list ? row->field : row->with, layer);
    }
    return 0;
}

static int read_kinds(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const struct hf_row *pattern = hf_first(shape->arch->rows, HF_ROWS(PATTERN));
    const struct hf_row *experts = hf_first(shape->arch->rows, HF_ROWS(EXPERT_PERIOD));
    const json_t *types = hf_field(config, "layer_types");
    if (experts && read_period(config, experts, shape->layers, shape->unrouted, error))
        return -1;
    if (pattern)
        return read_pattern(pattern, config, shape, error);
    if (types ? read_listed(config, types, shape, error) : read_interval(config, shape, error))
        return -1;
    return check_fixed(types != NULL, shape, error) || check_rotated(config, shape, error) ? -1 : 0;
}

int hf_layer_kinds(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                   struct error *error)
{
    if (read_kinds(config, shape, error))
        return -1;
    const struct hf_row *row;
    HF_EACH (row, shape->arch,
             HF_ROWS(LAYER_FLAGS) | HF_ROWS(LAYER_UINTS) | HF_ROWS(LAYER_ONES) |
                 HF_ROWS(NETWORK_UINTS))
        if (put_keys(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(BY_KIND) | HF_ROWS(KINDS))
        if ((row->presence == HF_PRESENCE_REQUIRED || hf_field(config, row->field)) &&
            put_by_kind(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(LIMITS))
        if (put_limits(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(INDEXERS))
        if (put_indexers(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(LAYER_ROTATED))
        if (put_layer_rotated(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(LAYOUT))
        if (put_layout(row, config, w, shape, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(FULL) | HF_ROWS(EACH))
        if (put_full(row, config, w, shape, error))
            return -1;
    return 0;
}

/* ---- leading layers of another kind ---- */

/* Of the numbers of the layers with experts, "3,4,5", which are all from the first of them on. */
static int leading_of_text(const char *text, const char *field, json_int_t layers, uint32_t *n,
                           struct error *error)
{
    char *end;
    unsigned long first = strtoul(text, &end, 10), next = first + 1;
    while (end != text && *end == ',' && strtoul(end + 1, &end, 10) == next)
        next++;
    if (end == text || *end != 0 || (json_int_t)next < layers || first > MODEL_LAYERS_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "%s is not a list of all layers from one on, which is not supported",
                         field);
    *n = (uint32_t)first;
    return 0;
}

/* A layer of a list of kinds has this one, by its name or by its number. */
static bool is_kind(const json_t *kinds, size_t layer, const char *name, json_int_t number)
{
    const json_t *at = json_array_get(kinds, layer);
    return hf_is_string(at, name) || (json_is_integer(at) && json_integer_value(at) == number);
}

int hf_leading(const struct hf_arch *arch, const struct hf_row *row, const json_t *config,
               uint32_t *n, struct error *error)
{
    const char *field = row->field, *first = row->text ? row->text : "dense";
    const char *rest = row->with ? row->with : "sparse";
    const json_t *number = hf_field(config, field), *kinds = hf_field(config, "mlp_layer_types");
    const char *name = kinds ? "mlp_layer_types" : "moe_layer_freq";
    size_t dense = 0;
    const json_t *layers = hf_field(config, hf_field_for(arch, "block_count"));
    if (json_is_string(number))
        return leading_of_text(json_string_value(number), field, json_integer_value(layers), n,
                               error);
    if (json_is_array(number))
        return error_set(error, ERR_BAD_INPUT, "%s is a list, and not a number of layers", field);
    kinds = kinds ? kinds : hf_field(config, name);
    if (number || !json_is_array(kinds))
        return number ? hf_uint(number, field, n, error)
                      : error_set(error, ERR_BAD_INPUT, "%s is missing", field);
    if ((json_int_t)json_array_size(kinds) != json_integer_value(layers))
        return error_set(error, ERR_BAD_INPUT, "%s is not a list of %lld kinds of layers", name,
                         (long long)json_integer_value(layers));
    while (is_kind(kinds, dense, first, 0))
        dense++;
    for (size_t i = dense; i < json_array_size(kinds); i++)
        if (!is_kind(kinds, i, rest, 1))
            return error_set(error, ERR_BAD_INPUT, "%s: layer %zu %s, which is not supported", name,
                             i,
                             row->text ? "is of another kind than those before it"
                                       : "has no experts, and one before it has");
    *n = (uint32_t)dense;
    return 0;
}
