/* SPDX-License-Identifier: Apache-2.0 */
/* config.json -> hyper-parameters as GGUF keys. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/arch/arch.h"
#include "lib/model/hf/internal.h"
#include "lib/model/limits.h"
#include "lib/text/printable.h"

#define ROWS_OF_NUMBERS                                                                            \
    (HF_ROWS(UINT) | HF_ROWS(FLOAT) | HF_ROWS(BOOL) | HF_ROWS(TENTH) | HF_ROWS(ROTATED) |          \
     HF_ROWS(ALPHA) | HF_ROWS(LEADING) | HF_ROWS(LISTED))

static const struct hf_arch *const archs[] = {
#define HF_ARCH(id) &hf_##id,
#include "lib/model/hf/hf.tbl.h"
};

void hf_full_key(const struct hf_arch *arch, const char *key, char buf[HF_KEY_BYTES])
{
    int n = snprintf(buf, HF_KEY_BYTES, "%s.%s", arch->arch, key);
    sl_assert(n > 0 && n < HF_KEY_BYTES);
}

/* The model of that type; NULL: there is none. */
static const struct hf_arch *arch_of(const char *type)
{
    for (size_t i = 0; type && i < ARRAY_LEN(archs) * HF_TYPES_MAX; i++) {
        const char *name = archs[i / HF_TYPES_MAX]->type[i % HF_TYPES_MAX];
        if (name && strcmp(name, type) == 0)
            return archs[i / HF_TYPES_MAX];
    }
    return NULL;
}

/* Kimi K3's text model has the type of another model: the type of the whole is looked for first.
 */
static int find_arch(const json_t *whole, const json_t *config, const struct hf_arch **arch,
                     struct error *error)
{
    const char *outer = json_string_value(json_object_get(whole, "model_type"));
    const char *type = json_string_value(json_object_get(config, "model_type"));
    char known[64] = ""; /* those that fit in a line with the name of the file */
    bool all = true;
    *arch = arch_of(outer) ? arch_of(outer) : arch_of(type);
    if (*arch)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(archs) * HF_TYPES_MAX; i++) {
        const char *name = archs[i / HF_TYPES_MAX]->type[i % HF_TYPES_MAX];
        if (!name)
            continue;
        size_t n = strlen(known);
        all = all && n + 2 + strlen(name) < sizeof known;
        if (all)
            snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", name);
    }
    return error_set(error, ERR_BAD_INPUT, "model_type '%s' is not supported (supported: %s%s)",
                     type ? printable(type, strlen(type)).text : "", known,
                     all ? "" : ", ...: docs/pack.md");
}

static const json_t *at_path(const json_t *object, const char *path)
{
    char name[64];
    for (size_t n; object && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        sl_assert(n < sizeof name);
        memcpy(name, path, n);
        name[n] = 0;
        object = json_object_get(object, name);
    }
    return object;
}

/* A field; null if it is null. The objects of the rotary embedding are looked into, too, and newer
 * files have one name for the number of experts. */
static const json_t *any_field(const json_t *config, const char *field)
{
    static const char *const homes[] = {"rope_parameters", "rope_scaling"};
    const json_t *value = at_path(config, field);
    if (!value && strcmp(field, "num_experts") == 0)
        value = json_object_get(config, "num_local_experts");
    for (size_t i = 0; i < ARRAY_LEN(homes) && !value; i++)
        value = json_object_get(json_object_get(config, homes[i]), field);
    return value;
}

/* A field, or NULL if it is absent or null. */
const json_t *hf_field(const json_t *config, const char *field)
{
    const json_t *value = any_field(config, field);
    return json_is_null(value) ? NULL : value;
}

int hf_uint(const json_t *value, const char *field, uint32_t *n, struct error *error)
{
    for (size_t i = 1; i < json_array_size(value); i++)
        if (!json_equal(json_array_get(value, i), json_array_get(value, 0)))
            return error_set(error, ERR_BAD_INPUT, "%s differs between layers", field);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a whole number of 32 bits", field);
    *n = (uint32_t)json_integer_value(value);
    return 0;
}

static double head_size(const json_t *config)
{
    double heads = json_number_value(hf_field(config, "num_attention_heads"));
    const json_t *head = hf_field(config, "head_dim");
    return head        ? json_number_value(head)
           : heads > 0 ? floor(json_number_value(hf_field(config, "hidden_size")) / heads)
                       : 0;
}

/* The elements of a head that are rotated. */
static int put_rotated(const struct hf_row *row, const char *key, const json_t *config,
                       const json_t *value, struct gguf_writer *w, struct error *error)
{
    double part = json_number_value(value), size = head_size(config);
    if (!json_is_number(value) || !(part > 0 && part <= 1) || !(size >= 1 && size <= UINT16_MAX))
        return error_set(error, ERR_BAD_INPUT, "%s is not a part of a head", row->field);
    gguf_put_u32(w, key, (uint32_t)(size * part));
    return 0;
}

/* The base of the rotations of NTK-aware scaling with a constant factor. */
static int put_alpha(const struct hf_row *row, const char *key, const json_t *config,
                     const json_t *value, struct gguf_writer *w, struct error *error)
{
    double theta = json_number_value(hf_field(config, "rope_theta")), n = head_size(config);
    double base = theta * pow(json_number_value(value), n / (n - 2));
    if (!(n > 2) || !isfinite(base) || !(base > 0))
        return error_set(error, ERR_BAD_INPUT, "%s, rope_theta or head_dim is out of range",
                         row->field);
    gguf_put_f32(w, key, (float)base);
    return 0;
}

static const struct hf_row *row_for(const struct hf_arch *arch, const char *key)
{
    const struct hf_row *row;
    HF_EACH (row, arch, ROWS_OF_NUMBERS)
        if (row->kind != HF_LISTED && strcmp(row->key, key) == 0)
            return row;
    return NULL;
}

/* The field that becomes a key of GGUF; NULL: the architecture has none. */
const char *hf_field_for(const struct hf_arch *arch, const char *key)
{
    const struct hf_row *row = row_for(arch, key);
    return row ? row->field : NULL;
}

static int put_listed(const struct hf_row *row, const char *key, const json_t *list,
                      struct gguf_writer *w, struct error *error)
{
    uint32_t numbers[MODEL_LAYERS_MAX];
    size_t n = json_array_size(list);
    if (n == 0 || n > MODEL_LAYERS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a list of a number for each layer",
                         row->field);
    for (size_t i = 0; i < n; i++)
        if (hf_uint(json_array_get(list, i), row->field, &numbers[i], error))
            return -1;
    gguf_put_array(w, key, GGUF_U32, numbers, n);
    return 0;
}

/* The number of a layer by its name in layer_types, and by the array of numbers, if any. */
static int typed_of(const struct hf_arch *arch, const json_t *config, const json_t *listed,
                    uint32_t layer, uint32_t *n, struct error *error)
{
    const json_t *name = json_array_get(hf_field(config, "layer_types"), layer);
    const json_t *at = json_array_get(listed, layer);
    const struct hf_row *row, *found = NULL;
    HF_EACH (row, arch, HF_ROWS(TYPED))
        found = hf_is_string(name, row->text) ? row : found;
    if (!found)
        return error_set(error, ERR_BAD_INPUT,
                         "layer_types: layer %" PRIu32 " is of a kind that is not supported",
                         layer);
    *n = found->value;
    if (hf_field(config, found->field) &&
        hf_uint(hf_field(config, found->field), found->field, n, error))
        return -1;
    return !listed || (json_is_integer(at) && json_integer_value(at) == (json_int_t)*n)
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "layer_types has another number for layer %" PRIu32
                           " than the list of numbers, which is not supported",
                           layer);
}

/* The array of the numbers that layer_types stands for, unless its LISTED row has written it. */
static int put_typed(const json_t *config, struct gguf_writer *w, const struct hf_shape *shape,
                     struct error *error)
{
    const struct hf_row *row = hf_first(shape->arch->rows, HF_ROWS(TYPED)), *list;
    const json_t *listed = NULL, *types = row ? hf_field(config, "layer_types") : NULL;
    uint32_t numbers[MODEL_LAYERS_MAX];
    char key[HF_KEY_BYTES];
    if (!types)
        return 0;
    HF_EACH (list, shape->arch, HF_ROWS(LISTED))
        listed = strcmp(list->key, row->key) == 0 ? hf_field(config, list->field) : listed;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        if (typed_of(shape->arch, config, listed, layer, &numbers[layer], error))
            return -1;
    hf_full_key(shape->arch, row->key, key);
    if (!listed)
        gguf_put_array(w, key, GGUF_U32, numbers, shape->layers);
    return 0;
}

static int put_number(const struct hf_arch *arch, const struct hf_row *row, const json_t *config,
                      struct gguf_writer *w, struct error *error)
{
    char key[HF_KEY_BYTES];
    const json_t *value = hf_field(config, row->field);
    uint32_t n = 0;
    hf_full_key(arch, row->key, key);
    if (row->kind == HF_LEADING) {
        if (hf_leading(arch, row, config, &n, error))
            return -1;
        gguf_put_u32(w, key, n);
        return 0;
    }
    if (!value)
        return row->presence == HF_PRESENCE_OPTIONAL
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s is missing", row->field);
    if (row->kind == HF_BOOL) {
        if (!json_is_boolean(value))
            return error_set(error, ERR_BAD_INPUT, "%s is neither true nor false", row->field);
        gguf_put_bool(w, key, json_is_true(value));
        return 0;
    }
    if (row->kind == HF_LISTED)
        return put_listed(row, key, value, w, error);
    if (row->kind == HF_ROTATED || row->kind == HF_ALPHA)
        return (row->kind == HF_ROTATED ? put_rotated : put_alpha)(row, key, config, value, w,
                                                                   error);
    if (row->kind == HF_FLOAT || row->kind == HF_TENTH) {
        double x = json_number_value(value);
        if (!json_is_number(value) || !isfinite(x))
            return error_set(error, ERR_BAD_INPUT, "%s is not a number", row->field);
        gguf_put_f32(w, key, (float)(row->kind == HF_TENTH ? 0.1 * x : x));
        return 0;
    }
    if (hf_uint(value, row->field, &n, error))
        return -1;
    gguf_put_u32(w, key, n);
    return 0;
}

/* True if `found` is one of the values in `accepted`, which are separated by spaces. */
static bool is_one_of(const char *found, const char *accepted)
{
    size_t n = strlen(found);
    for (const char *at = accepted; (at = strstr(at, found)) != NULL; at += n)
        if (n > 0 && (at == accepted || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

int hf_check_value(const json_t *value, const char *field, const char *accepted, bool required,
                   struct error *error)
{
    if (!value)
        return required ? error_set(error, ERR_BAD_INPUT, "%s is missing", field) : 0;
    if (strcmp(accepted, "*") == 0)
        return 0;
    char *found = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!found)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%s)", field);
    int status = 0;
    if (!is_one_of(found, accepted))
        status = error_set(error, ERR_BAD_INPUT, "%s is %s, which is not supported (only %s)",
                           field, printable(found, strlen(found)).text, accepted);
    free(found);
    return status;
}

/* Sums and products of two fields; fields that must be equal, or that depend on another one. */
static int put_pair(const struct hf_arch *arch, const struct hf_row *row, const json_t *config,
                    struct gguf_writer *w, struct error *error)
{
    const json_t *x = hf_field(config, row->field), *y = hf_field(config, row->with);
    char key[HF_KEY_BYTES];
    uint32_t a, b, made;
    if (row->kind == HF_UNLESS)
        return !x || json_is_true(x) != (json_number_value(y) == (double)row->value)
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s is not that of models whose %s is %g",
                               row->field, row->with, json_number_value(y));
    if (row->kind == HF_EQUAL)
        return (!x && !y) || (x && y && json_equal(x, y)) ||
                       (json_is_number(x) && json_is_number(y) &&
                        json_number_value(x) == json_number_value(y))
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s and %s differ, which is not supported",
                               row->field, row->with);
    if (!x || !y)
        return error_set(error, ERR_BAD_INPUT, "%s is missing", x ? row->with : row->field);
    if (hf_uint(x, row->field, &a, error) || hf_uint(y, row->with, &b, error))
        return -1;
    if (row->kind == HF_SUM ? __builtin_add_overflow(a, b, &made)
                            : __builtin_mul_overflow(a, b, &made))
        return error_set(error, ERR_BAD_INPUT, "%s and %s are too large", row->field, row->with);
    hf_full_key(arch, row->key, key);
    gguf_put_u32(w, key, made);
    return 0;
}

/* ---- rotary embedding ---- */

static const char *rope_type(const json_t *rope)
{
    const json_t *type = json_object_get(rope, "rope_type");
    return json_string_value(type ? type : json_object_get(rope, "type"));
}

static int bad_rope(const char *home, const char *type, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "%s of type '%s' is not supported", home,
                     type ? printable(type, strlen(type)).text : "");
}

/* The row with this path and type; NULL: there is none. */
static const struct hf_row *rope_at(const struct hf_arch *arch, const char *path, const char *type)
{
    const struct hf_row *row;
    HF_EACH (row, arch, HF_ROWS(ROPE))
        if (type && strcmp(row->field, path) == 0 && strcmp(row->text, type) == 0)
            return row;
    return NULL;
}

/* Each kind of layer has its own, whose path is the field of the row. *scaled: the row whose
 * scaling GGUF states; unchanged without one. */
static int check_rope_of_kinds(const struct hf_arch *arch, const json_t *config, bool *any,
                               const struct hf_row **scaled, struct error *error)
{
    const struct hf_row *row, *absent = NULL;
    bool there = false, plain = false; /* plain: one of all layers may be there instead */
    *any = false;
    HF_EACH (row, arch, HF_ROWS(ROPE)) {
        plain = plain || !row->field[0];
        if (!row->field[0])
            continue;
        const json_t *rope = at_path(config, row->field);
        const struct hf_row *found = rope_at(arch, row->field, rope_type(rope));
        *any = true;
        if (rope && (!found || (found->needs[0] && !hf_field(config, found->needs))))
            return bad_rope(row->field, rope_type(rope), error);
        absent = rope ? absent : row;
        there = there || rope;
        if (found && found->scaling[0])
            *scaled = found;
    }
    *any = there || (*any && !plain);
    return *any && !there ? bad_rope(absent->field, NULL, error) : 0;
}

/* Rejects scaled rotary embeddings that the architecture has no row for; writes the type of others.
 * Where each kind of layer has its own, in rope_parameters, there is no other. */
static int check_rope(const struct hf_arch *arch, const json_t *config, struct gguf_writer *w,
                      struct error *error)
{
    static const char *const homes[] = {"rope_scaling", "rope_parameters"};
    const struct hf_row *scaled = NULL;
    bool any;
    if (check_rope_of_kinds(arch, config, &any, &scaled, error))
        return -1;
    for (size_t i = 0; i < (any ? 1 : ARRAY_LEN(homes)); i++) {
        const json_t *rope = json_object_get(config, homes[i]);
        const char *type = rope_type(rope);
        if (!rope || json_is_null(rope) || (type && strcmp(type, "default") == 0))
            continue;
        const struct hf_row *row = rope_at(arch, "", type); /* of all layers */
        if (!row || (row->needs[0] && !hf_field(config, row->needs)))
            return bad_rope(homes[i], type, error);
        scaled = row;
    }
    if (scaled) {
        char key[HF_KEY_BYTES];
        hf_full_key(arch, "rope.scaling.type", key);
        gguf_put_text(w, key, scaled->scaling);
    }
    return 0;
}

static int read_size(const json_t *config, const char *field, const char *otherwise, uint32_t *n,
                     struct error *error)
{
    const char *name = field ? field : otherwise;
    return hf_uint(hf_field(config, name), name, n, error);
}

/* The number of layers: a field, or that of the list of their kinds. */
static int read_layers(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                       struct error *error)
{
    const struct hf_row *pattern = hf_first(shape->arch->rows, HF_ROWS(PATTERN));
    const char *field = hf_field_for(shape->arch, "block_count");
    const json_t *list = pattern ? hf_field(config, pattern->field) : NULL;
    char key[HF_KEY_BYTES];
    if (hf_field(config, field) || !json_is_array(list))
        return read_size(config, field, "", &shape->layers, error);
    if (json_array_size(list) > MODEL_LAYERS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s has more than %d layers", pattern->field,
                         MODEL_LAYERS_MAX);
    shape->layers = (uint32_t)json_array_size(list);
    hf_full_key(shape->arch, "block_count", key);
    gguf_put_u32(w, key, shape->layers);
    return 0;
}

/* Where only every so many layers have experts, by this field. */
static int read_step(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const char *field = hf_field_for(shape->arch, "interleave_moe_layer_step");
    uint32_t step = 0;
    if (field && read_size(config, field, "", &step, error))
        return -1;
    for (uint32_t layer = 0; step > 0 && layer < shape->layers; layer++)
        shape->unrouted[layer] = (layer + 1) % step != 0;
    return 0;
}

/* The number of shared experts may be 0, or is absent then. */
static int read_shared(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const char *field = hf_field_for(shape->arch, "expert_shared_count");
    uint32_t count = 0;
    if (!field)
        return 0;
    if (hf_field(config, field) && read_size(config, field, "", &count, error))
        return -1;
    shape->unshared = count == 0;
    return 0;
}

static int read_shape(const json_t *config, struct gguf_writer *w, struct hf_shape *shape,
                      struct error *error)
{
    static const char *const sizes[] = {
#define HF_SIZE(name, field) #field,
#include "lib/model/hf/rows.tbl.h"
    };
    const struct hf_arch *a = shape->arch;
    const struct hf_row *dense = row_for(a, "leading_dense_block_count");
    const char *kv = hf_field_for(a, "attention.head_count_kv");
    const char *heads = hf_field_for(a, "attention.head_count");
    if (read_layers(config, w, shape, error) ||
        read_size(config, hf_field_for(a, "expert_count"), "", &shape->experts, error) ||
        (dense && hf_leading(a, dense, config, &shape->dense_layers, error)) ||
        read_shared(config, shape, error) ||
        read_size(config, heads, "num_attention_heads", &shape->heads, error) ||
        read_size(config, hf_field_for(a, "vocab_size"), "vocab_size", &shape->vocab, error))
        return -1;
    kv = kv ? kv : "num_key_value_heads";
    shape->kv_heads = shape->heads;
    if (hf_field(config, kv) && read_size(config, kv, "", &shape->kv_heads, error))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (hf_field(config, sizes[i]) && read_size(config, sizes[i], "", &shape->size[i], error))
            return -1;
    /* Only bounds for loops: the tables of architectures check the values. */
    if (shape->layers < 1 || shape->layers > MODEL_LAYERS_MAX || shape->experts < 1 ||
        shape->experts > MODEL_EXPERTS_MAX || shape->heads < 1 || shape->kv_heads < 1 ||
        shape->vocab < 1 || shape->vocab > MODEL_VOCAB_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu32 " layers, %" PRIu32 " experts, %" PRIu32 " heads, %" PRIu32
                         " tokens: beyond what is supported",
                         shape->layers, shape->experts, shape->heads, shape->vocab);
    return read_step(config, shape, error);
}

/* True if an earlier row has written the key. */
static bool is_given_before(const struct hf_arch *arch, const struct hf_row *row,
                            const json_t *config)
{
    const struct hf_row *before;
    HF_EACH (before, arch, ROWS_OF_NUMBERS) {
        if (before == row)
            return false;
        if (strcmp(before->key, row->key) == 0 && hf_field(config, before->field))
            return true;
    }
    sl_panic("a row of %s is in no group", arch->arch);
}

static void put_constants(const struct hf_arch *arch, const json_t *config, struct gguf_writer *w)
{
    char key[HF_KEY_BYTES];
    const struct hf_row *row;
    HF_EACH (row, arch, HF_ROWS(KEY)) {
        hf_full_key(arch, row->key, key);
        gguf_put_u32(w, key, row->value);
    }
    HF_EACH (row, arch, HF_ROWS(SET)) {
        hf_full_key(arch, row->key, key);
        gguf_put_bool(w, key, true);
    }
    HF_EACH (row, arch, HF_ROWS(NUMBER)) {
        hf_full_key(arch, row->key, key);
        gguf_put_f32(w, key, row->number);
    }
    HF_EACH (row, arch, HF_ROWS(CHOICE)) {
        hf_full_key(arch, row->key, key);
        gguf_put_u32(w, key, json_is_true(hf_field(config, row->field)) ? row->yes : row->no);
    }
}

static int put_conditional(const struct hf_arch *arch, const json_t *config, struct gguf_writer *w,
                           struct error *error)
{
    const struct hf_row *row;
    HF_EACH (row, arch, HF_ROWS(WITH)) {
        char key[HF_KEY_BYTES];
        uint32_t n;
        if (!hf_is_string(hf_field(config, row->with), row->text))
            continue;
        if (hf_uint(hf_field(config, row->field), row->field, &n, error))
            return -1;
        hf_full_key(arch, row->key, key);
        gguf_put_u32(w, key, n);
    }
    return 0;
}

static int put_numbers(const struct hf_arch *arch, const json_t *config, struct gguf_writer *w,
                       struct error *error)
{
    const struct hf_row *row;
    HF_EACH (row, arch, HF_ROWS(MUST))
        if (hf_check_value(any_field(config, row->field), row->field, row->text,
                           row->presence == HF_PRESENCE_REQUIRED, error))
            return -1;
    HF_EACH (row, arch, ROWS_OF_NUMBERS)
        if (!is_given_before(arch, row, config) && put_number(arch, row, config, w, error))
            return -1;
    HF_EACH (row, arch, HF_ROWS(SUM) | HF_ROWS(PRODUCT) | HF_ROWS(EQUAL) | HF_ROWS(UNLESS))
        if (put_pair(arch, row, config, w, error))
            return -1;
    put_constants(arch, config, w);
    return put_conditional(arch, config, w, error);
}

const json_t *hf_text_config(const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

int hf_config_keys(const json_t *whole, const char *name, struct gguf_writer *w,
                   struct hf_shape *shape, struct error *error)
{
    const json_t *config = hf_text_config(whole);
    *shape = (struct hf_shape){0};
    if (find_arch(whole, config, &shape->arch, error))
        return -1;
    gguf_put_text(w, "general.architecture", shape->arch->arch);
    gguf_put_text(w, "general.type", "model");
    gguf_put_text(w, "general.name", name);
    return put_numbers(shape->arch, config, w, error) ||
                   check_rope(shape->arch, config, w, error) ||
                   hf_check_quantisation(config, shape, error) ||
                   (whole != config && hf_check_quantisation(whole, shape, error)) ||
                   read_shape(config, w, shape, error) || hf_layer_kinds(config, w, shape, error) ||
                   put_typed(config, w, shape, error)
               ? -1
               : 0;
}
