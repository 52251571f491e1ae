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

#define KEY_BYTES 128

static const struct {
    const char *model_type, *arch;
} archs[] = {
#define HF_ARCH(id, model_type, arch) [HF_##id] = {(model_type), (arch)},
#include "lib/model/hf/hf.tbl.h"
};

enum presence { PRESENCE_REQUIRED, PRESENCE_OPTIONAL };

static const struct number_row {
    enum hf_arch arch;
    const char *field, *key;
    enum presence presence;
    enum { KIND_UINT, KIND_FLOAT, KIND_BOOL, KIND_ROTATED } kind;
} number_rows[] = {
#define HF_UINT(id, field, key, presence) {HF_##id, #field, (key), PRESENCE_##presence, KIND_UINT},
#define HF_FLOAT(id, field, key, presence)                                                         \
    {HF_##id, #field, (key), PRESENCE_##presence, KIND_FLOAT},
#define HF_BOOL(id, field, key, presence) {HF_##id, #field, (key), PRESENCE_##presence, KIND_BOOL},
#define HF_ROTATED(id, field, key)        {HF_##id, #field, (key), PRESENCE_OPTIONAL, KIND_ROTATED},
#include "lib/model/hf/hf.tbl.h"
};

static const struct key_row {
    enum hf_arch arch;
    const char *key;
    uint32_t value;
} key_rows[] = {
#define HF_KEY(id, key, value) {HF_##id, (key), (value)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct must_row {
    enum hf_arch arch;
    const char *field, *accepted;
} must_rows[] = {
#define HF_MUST(id, field, accepted) {HF_##id, #field, (accepted)},
#include "lib/model/hf/hf.tbl.h"
};

const char *hf_arch_name(enum hf_arch arch)
{
    sl_assert(arch < HF_ARCH__COUNT);
    return archs[arch].arch;
}

static int find_arch(const json_t *config, enum hf_arch *arch, struct error *error)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    char known[200] = "";
    for (int i = 0; i < HF_ARCH__COUNT; i++) {
        if (type && strcmp(archs[i].model_type, type) == 0) {
            *arch = (enum hf_arch)i;
            return 0;
        }
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, archs[i].model_type, sizeof known - strlen(known) - 1);
    }
    return error_set(error, ERR_BAD_INPUT, "model_type '%s' is not supported (supported: %s)",
                     type ? printable(type, strlen(type)).text : "", known);
}

/* A field, or NULL if it is absent or null. Newer files have an object with the rotary parameters, and
 * one name for the number of experts. */
static const json_t *field_of(const json_t *config, const char *field)
{
    const json_t *value = json_object_get(config, field);
    if (!value && strcmp(field, "num_experts") == 0)
        value = json_object_get(config, "num_local_experts");
    if (!value)
        value = json_object_get(json_object_get(config, "rope_parameters"), field);
    return json_is_null(value) ? NULL : value;
}

static int uint_of(const json_t *value, const char *field, uint32_t *n, struct error *error)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a whole number of 32 bits", field);
    *n = (uint32_t)json_integer_value(value);
    return 0;
}

/* The elements of a head that are rotated. */
static int put_rotated(const struct number_row *row, const char *key, const json_t *config,
                       const json_t *value, struct gguf_writer *w, struct error *error)
{
    const json_t *given = field_of(config, "rotary_dim"), *head = field_of(config, "head_dim");
    const json_t *hidden = field_of(config, "hidden_size");
    const json_t *heads = field_of(config, "num_attention_heads");
    double part = json_number_value(value);
    json_int_t size = head ? json_integer_value(head)
                      : json_integer_value(heads) > 0
                          ? json_integer_value(hidden) / json_integer_value(heads)
                          : 0;
    if (!json_is_number(value) || !(part > 0 && part <= 1) || size < 1 || size > UINT16_MAX)
        return error_set(error, ERR_BAD_INPUT, "%s is not a part of a head", row->field);
    if (!given) /* else the key has been written */
        gguf_put_u32(w, key, (uint32_t)((double)size * part));
    return 0;
}

static int put_number(const struct number_row *row, const json_t *config, struct gguf_writer *w,
                      struct error *error)
{
    char key[KEY_BYTES];
    const json_t *value = field_of(config, row->field);
    if (!value)
        return row->presence == PRESENCE_OPTIONAL
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s is missing", row->field);
    snprintf(key, sizeof key, "%s.%s", archs[row->arch].arch, row->key);
    if (row->kind == KIND_BOOL) {
        if (!json_is_boolean(value))
            return error_set(error, ERR_BAD_INPUT, "%s is neither true nor false", row->field);
        gguf_put_bool(w, key, json_is_true(value));
        return 0;
    }
    if (row->kind == KIND_ROTATED)
        return put_rotated(row, key, config, value, w, error);
    if (row->kind == KIND_FLOAT) {
        if (!json_is_number(value) || !isfinite(json_number_value(value)))
            return error_set(error, ERR_BAD_INPUT, "%s is not a number", row->field);
        gguf_put_f32(w, key, (float)json_number_value(value));
        return 0;
    }
    uint32_t n = 0;
    if (uint_of(value, row->field, &n, error))
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

static int check_must(const struct must_row *row, const json_t *config, struct error *error)
{
    const json_t *value = json_object_get(config, row->field);
    if (!value)
        value = json_object_get(json_object_get(config, "rope_parameters"), row->field);
    if (!value)
        return 0;
    char *found = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!found)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%s)", row->field);
    int status = 0;
    if (!is_one_of(found, row->accepted))
        status = error_set(error, ERR_BAD_INPUT, "%s is %s, which is not supported (only %s)",
                           row->field, printable(found, strlen(found)).text, row->accepted);
    free(found);
    return status;
}

/* Rejects scaled rotary embeddings, which are not supported. */
static int check_rope(const json_t *config, struct error *error)
{
    static const char *const homes[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < ARRAY_LEN(homes); i++) {
        const json_t *rope = json_object_get(config, homes[i]);
        if (!rope || json_is_null(rope))
            continue;
        const json_t *type = json_object_get(rope, "rope_type");
        const char *found = json_string_value(type ? type : json_object_get(rope, "type"));
        if (!found || strcmp(found, "default") != 0)
            return error_set(error, ERR_BAD_INPUT, "%s of type '%s' is not supported", homes[i],
                             found ? printable(found, strlen(found)).text : "");
    }
    return 0;
}

/* The field that becomes a key of GGUF; NULL: the architecture has none. */
static const char *field_for(enum hf_arch arch, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(number_rows); i++)
        if (number_rows[i].arch == arch && strcmp(number_rows[i].key, key) == 0)
            return number_rows[i].field;
    return NULL;
}

/* Layers of other kinds are known by name only. */
static int check_layer_types(const json_t *config, struct error *error)
{
    const json_t *types = json_object_get(config, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++)
        if (!hf_is_string(json_array_get(types, i), "full_attention"))
            return error_set(
                error, ERR_BAD_INPUT,
                "layer_types: layer %zu has another attention than over all positions, "
                "which is not supported",
                i);
    return 0;
}

static int read_shape(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const char *experts = field_for(shape->arch, "expert_count");
    const char *dense = field_for(shape->arch, "leading_dense_block_count");
    const json_t *kv = field_of(config, "num_key_value_heads");
    sl_assert(experts);
    if (uint_of(field_of(config, "num_hidden_layers"), "num_hidden_layers", &shape->layers,
                error) ||
        uint_of(field_of(config, experts), experts, &shape->experts, error) ||
        (dense && uint_of(field_of(config, dense), dense, &shape->dense_layers, error)) ||
        uint_of(field_of(config, "num_attention_heads"), "num_attention_heads", &shape->heads,
                error) ||
        uint_of(field_of(config, "vocab_size"), "vocab_size", &shape->vocab, error))
        return -1;
    shape->kv_heads = shape->heads;
    if (kv && uint_of(kv, "num_key_value_heads", &shape->kv_heads, error))
        return -1;
    /* Only bounds for loops: the tables of architectures check the values. */
    if (shape->layers < 1 || shape->layers > MODEL_LAYERS_MAX || shape->experts < 1 ||
        shape->experts > MODEL_EXPERTS_MAX || shape->heads < 1 || shape->kv_heads < 1 ||
        shape->vocab < 1 || shape->vocab > MODEL_VOCAB_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu32 " layers, %" PRIu32 " experts, %" PRIu32 " heads, %" PRIu32
                         " tokens: beyond what is supported",
                         shape->layers, shape->experts, shape->heads, shape->vocab);
    return 0;
}

int hf_config_keys(const json_t *config, const char *name, struct gguf_writer *w,
                   struct hf_shape *shape, struct error *error)
{
    *shape = (struct hf_shape){0};
    if (find_arch(config, &shape->arch, error))
        return -1;
    gguf_put_text(w, "general.architecture", archs[shape->arch].arch);
    gguf_put_text(w, "general.type", "model");
    gguf_put_text(w, "general.name", name);
    for (size_t i = 0; i < ARRAY_LEN(must_rows); i++)
        if (must_rows[i].arch == shape->arch && check_must(&must_rows[i], config, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(number_rows); i++)
        if (number_rows[i].arch == shape->arch && put_number(&number_rows[i], config, w, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(key_rows); i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s.%s", archs[shape->arch].arch, key_rows[i].key);
        if (key_rows[i].arch == shape->arch)
            gguf_put_u32(w, key, key_rows[i].value);
    }
    return check_rope(config, error) || check_layer_types(config, error) ||
                   read_shape(config, shape, error)
               ? -1
               : 0;
}
