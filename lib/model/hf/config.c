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

static const struct {
    enum hf_arch arch;
    const char *model_type;
} types[] = {
#define HF_ARCH(id, model_type, arch) {HF_##id, (model_type)},
#define HF_TYPE(id, model_type)       {HF_##id, (model_type)},
#include "lib/model/hf/hf.tbl.h"
};

enum presence { PRESENCE_REQUIRED, PRESENCE_OPTIONAL };

static const struct number_row {
    enum hf_arch arch;
    const char *field, *key;
    enum presence presence;
    enum {
        KIND_UINT,
        KIND_FLOAT,
        KIND_TENTH,
        KIND_BOOL,
        KIND_ROTATED,
        KIND_LEADING,
        KIND_ALPHA
    } kind;
} number_rows[] = {
#define HF_UINT(id, field, key, presence) {HF_##id, #field, (key), PRESENCE_##presence, KIND_UINT},
#define HF_FLOAT(id, field, key, presence)                                                         \
    {HF_##id, #field, (key), PRESENCE_##presence, KIND_FLOAT},
#define HF_TENTH(id, field, key)          {HF_##id, #field, (key), PRESENCE_OPTIONAL, KIND_TENTH},
#define HF_BOOL(id, field, key, presence) {HF_##id, #field, (key), PRESENCE_##presence, KIND_BOOL},
#define HF_ROTATED(id, field, key)        {HF_##id, #field, (key), PRESENCE_OPTIONAL, KIND_ROTATED},
#define HF_ALPHA(id, field, key)          {HF_##id, #field, (key), PRESENCE_OPTIONAL, KIND_ALPHA},
#define HF_LEADING(id, field, key)        {HF_##id, #field, (key), PRESENCE_REQUIRED, KIND_LEADING},
#include "lib/model/hf/hf.tbl.h"
};

static const struct pair_row {
    enum hf_arch arch;
    const char *a, *b, *key;
    enum { PAIR_SUM, PAIR_PRODUCT, PAIR_EQUAL } kind;
} pair_rows[] = {
#define HF_SUM(id, a, b, key)     {HF_##id, #a, #b, (key), PAIR_SUM},
#define HF_PRODUCT(id, a, b, key) {HF_##id, #a, #b, (key), PAIR_PRODUCT},
#define HF_EQUAL(id, a, b)        {HF_##id, #a, #b, NULL, PAIR_EQUAL},
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

static const struct {
    enum hf_arch arch;
    const char *key;
    float value;
} float_rows[] = {
#define HF_NUMBER(id, key, value) {HF_##id, (key), (value)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct {
    enum hf_arch arch;
    const char *field, *key;
    uint32_t yes, no;
} choice_rows[] = {
#define HF_CHOICE(id, field, key, yes, no) {HF_##id, #field, (key), (yes), (no)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct {
    enum hf_arch arch;
    const char *other, *text, *field, *key;
} with_rows[] = {
#define HF_WITH(id, other, text, field, key) {HF_##id, #other, (text), #field, (key)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct must_row {
    enum hf_arch arch;
    const char *field, *accepted;
    bool required;
} must_rows[] = {
#define HF_MUST(id, field, accepted) {HF_##id, #field, (accepted), false},
#define HF_HAS(id, field, accepted)  {HF_##id, #field, (accepted), true},
#include "lib/model/hf/hf.tbl.h"
};

static const struct rope_row {
    enum hf_arch arch;
    const char *home, *type, *scaling, *needs;
} rope_rows[] = {
#define HF_ROPE(id, home, type, scaling, needs) {HF_##id, (home), (type), (scaling), (needs)},
#include "lib/model/hf/hf.tbl.h"
};

static const struct {
    enum hf_arch arch;
    const char *method;
} quantised_rows[] = {
#define HF_QUANTISED(id, method) {HF_##id, (method)},
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
    char known[64] = ""; /* those that fit in a line with the name of the file */
    bool all = true;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (type && strcmp(types[i].model_type, type) == 0) {
            *arch = types[i].arch;
            return 0;
        }
        size_t n = strlen(known);
        all = all && n + 2 + strlen(types[i].model_type) < sizeof known;
        if (all)
            snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", types[i].model_type);
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

/* A field; null if it is null. The objects of the rotary embedding are looked into, too, and newer files
 * have one name for the number of experts. */
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

/* Of an array, a number for each layer, all elements must be the same. */
static int uint_of(const json_t *value, const char *field, uint32_t *n, struct error *error)
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
static int put_rotated(const struct number_row *row, const char *key, const json_t *config,
                       const json_t *value, struct gguf_writer *w, struct error *error)
{
    double part = json_number_value(value), size = head_size(config);
    if (!json_is_number(value) || !(part > 0 && part <= 1) || !(size >= 1 && size <= UINT16_MAX))
        return error_set(error, ERR_BAD_INPUT, "%s is not a part of a head", row->field);
    gguf_put_u32(w, key, (uint32_t)(size * part));
    return 0;
}

/* The base of the rotations of NTK-aware scaling with a constant factor. */
static int put_alpha(const struct number_row *row, const char *key, const json_t *config,
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

/* The field that becomes a key of GGUF; NULL: the architecture has none. */
const char *hf_field_for(enum hf_arch arch, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(number_rows); i++)
        if (number_rows[i].arch == arch && strcmp(number_rows[i].key, key) == 0)
            return number_rows[i].field;
    return NULL;
}

/* The layers without experts: a number, or a list of the kinds. */
static int leading_of(enum hf_arch arch, const json_t *config, const char *field, uint32_t *n,
                      struct error *error)
{
    const json_t *number = hf_field(config, field), *kinds = hf_field(config, "mlp_layer_types");
    size_t dense = 0;
    if (number || !json_is_array(kinds))
        return number ? uint_of(number, field, n, error)
                      : error_set(error, ERR_BAD_INPUT, "%s is missing", field);
    const json_t *layers = hf_field(config, hf_field_for(arch, "block_count"));
    if ((json_int_t)json_array_size(kinds) != json_integer_value(layers))
        return error_set(error, ERR_BAD_INPUT,
                         "mlp_layer_types is not a list of %lld kinds of layers",
                         (long long)json_integer_value(layers));
    while (hf_is_string(json_array_get(kinds, dense), "dense"))
        dense++;
    for (size_t i = dense; i < json_array_size(kinds); i++)
        if (!hf_is_string(json_array_get(kinds, i), "sparse"))
            return error_set(error, ERR_BAD_INPUT,
                             "mlp_layer_types: layer %zu has no experts, and one before it has, "
                             "which is not supported",
                             i);
    *n = (uint32_t)dense;
    return 0;
}

static int put_number(const struct number_row *row, const json_t *config, struct gguf_writer *w,
                      struct error *error)
{
    char key[KEY_BYTES];
    const json_t *value = hf_field(config, row->field);
    uint32_t n = 0;
    snprintf(key, sizeof key, "%s.%s", archs[row->arch].arch, row->key);
    if (row->kind == KIND_LEADING) {
        if (leading_of(row->arch, config, row->field, &n, error))
            return -1;
        gguf_put_u32(w, key, n);
        return 0;
    }
    if (!value)
        return row->presence == PRESENCE_OPTIONAL
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s is missing", row->field);
    if (row->kind == KIND_BOOL) {
        if (!json_is_boolean(value))
            return error_set(error, ERR_BAD_INPUT, "%s is neither true nor false", row->field);
        gguf_put_bool(w, key, json_is_true(value));
        return 0;
    }
    if (row->kind == KIND_ROTATED || row->kind == KIND_ALPHA)
        return (row->kind == KIND_ROTATED ? put_rotated : put_alpha)(row, key, config, value, w,
                                                                     error);
    if (row->kind == KIND_FLOAT || row->kind == KIND_TENTH) {
        double x = json_number_value(value);
        if (!json_is_number(value) || !isfinite(x))
            return error_set(error, ERR_BAD_INPUT, "%s is not a number", row->field);
        gguf_put_f32(w, key, (float)(row->kind == KIND_TENTH ? 0.1 * x : x));
        return 0;
    }
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
    const json_t *value = any_field(config, row->field);
    if (!value)
        return row->required ? error_set(error, ERR_BAD_INPUT, "%s is missing", row->field) : 0;
    if (strcmp(row->accepted, "*") == 0)
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

/* Sums and products of two fields; fields that must be equal. */
static int put_pair(const struct pair_row *row, const json_t *config, struct gguf_writer *w,
                    struct error *error)
{
    const json_t *x = hf_field(config, row->a), *y = hf_field(config, row->b);
    char key[KEY_BYTES];
    uint32_t a, b, made;
    if (row->kind == PAIR_EQUAL)
        return (!x && !y) || (json_is_number(x) && json_is_number(y) &&
                              json_number_value(x) == json_number_value(y))
                   ? 0
                   : error_set(error, ERR_BAD_INPUT, "%s and %s differ, which is not supported",
                               row->a, row->b);
    if (!x || !y)
        return error_set(error, ERR_BAD_INPUT, "%s is missing", x ? row->b : row->a);
    if (uint_of(x, row->a, &a, error) || uint_of(y, row->b, &b, error))
        return -1;
    if (row->kind == PAIR_SUM ? __builtin_add_overflow(a, b, &made)
                              : __builtin_mul_overflow(a, b, &made))
        return error_set(error, ERR_BAD_INPUT, "%s and %s are too large", row->a, row->b);
    snprintf(key, sizeof key, "%s.%s", archs[row->arch].arch, row->key);
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

/* Each kind of layer has its own: `home` is a path to it. */
static int check_rope_of_kinds(enum hf_arch arch, const json_t *config, bool *any,
                               struct error *error)
{
    *any = false;
    for (size_t i = 0; i < ARRAY_LEN(rope_rows); i++) {
        const struct rope_row *row = &rope_rows[i];
        if (row->arch != arch || !row->home[0])
            continue;
        const char *type = rope_type(at_path(config, row->home));
        *any = true;
        if (!type || strcmp(type, row->type) != 0)
            return bad_rope(row->home, type, error);
    }
    return 0;
}

/* Rejects scaled rotary embeddings that the architecture has no row for; writes the type of others. Where each kind
 * of layer has its own, in rope_parameters, there is no other. */
static int check_rope(enum hf_arch arch, const json_t *config, struct gguf_writer *w,
                      struct error *error)
{
    static const char *const homes[] = {"rope_scaling", "rope_parameters"};
    const struct rope_row *scaled = NULL;
    bool any;
    if (check_rope_of_kinds(arch, config, &any, error))
        return -1;
    for (size_t i = 0; i < (any ? 1 : ARRAY_LEN(homes)); i++) {
        const json_t *rope = json_object_get(config, homes[i]);
        const char *type = rope_type(rope);
        if (!rope || json_is_null(rope) || (type && strcmp(type, "default") == 0))
            continue;
        const struct rope_row *row = NULL;
        for (size_t k = 0; k < ARRAY_LEN(rope_rows) && type; k++)
            if (rope_rows[k].arch == arch && !rope_rows[k].home[0] &&
                strcmp(rope_rows[k].type, type) == 0)
                row = &rope_rows[k];
        if (!row || (row->needs[0] && !hf_field(config, row->needs)))
            return bad_rope(homes[i], type, error);
        scaled = row;
    }
    if (scaled) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s.rope.scaling.type", archs[arch].arch);
        gguf_put_text(w, key, scaled->scaling);
    }
    return 0;
}

/* FP8 with a scale per block of weights; no other quantised weights. */
static int check_quantisation(const json_t *config, struct hf_shape *shape, struct error *error)
{
    const json_t *q = json_object_get(config, "quantization_config");
    const json_t *block = json_object_get(q, "weight_block_size");
    const json_t *format = json_object_get(q, "fmt");
    if (!q || json_is_null(q))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(quantised_rows); i++)
        if (quantised_rows[i].arch == shape->arch &&
            hf_is_string(json_object_get(q, "quant_method"), quantised_rows[i].method))
            return 0;
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t columns = json_integer_value(json_array_get(block, 1));
    if (!hf_is_string(json_object_get(q, "quant_method"), "fp8") ||
        (format && !hf_is_string(format, "e4m3") && !hf_is_string(format, "float8_e4m3fn")) ||
        json_array_size(block) != 2 || rows < 1 || columns < 1 || rows > 65536 || columns > 65536)
        return error_set(
            error, ERR_BAD_INPUT,
            "quantization_config is not supported (only quant_method fp8, e4m3, with a "
            "weight_block_size)");
    shape->block_rows = (uint32_t)rows;
    shape->block_columns = (uint32_t)columns;
    return 0;
}

static int read_size(const json_t *config, const char *field, const char *otherwise, uint32_t *n,
                     struct error *error)
{
    const char *name = field ? field : otherwise;
    return uint_of(hf_field(config, name), name, n, error);
}

static int read_shape(const json_t *config, struct hf_shape *shape, struct error *error)
{
    static const char *const sizes[] = {
#define HF_SIZE(name, field) #field,
#include "lib/model/hf/rows.tbl.h"
    };
    enum hf_arch a = shape->arch;
    const char *dense = hf_field_for(a, "leading_dense_block_count");
    const char *kv = hf_field_for(a, "attention.head_count_kv");
    const char *heads = hf_field_for(a, "attention.head_count");
    if (read_size(config, hf_field_for(a, "block_count"), "", &shape->layers, error) ||
        read_size(config, hf_field_for(a, "expert_count"), "", &shape->experts, error) ||
        (dense && leading_of(a, config, dense, &shape->dense_layers, error)) ||
        read_size(config, heads, "", &shape->heads, error) ||
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
    return 0;
}

/* True if an earlier row has written the key. */
static bool is_given_before(size_t row, const json_t *config)
{
    for (size_t i = 0; i < row; i++)
        if (number_rows[i].arch == number_rows[row].arch &&
            strcmp(number_rows[i].key, number_rows[row].key) == 0 &&
            hf_field(config, number_rows[i].field))
            return true;
    return false;
}

static void put_constants(enum hf_arch arch, const json_t *config, struct gguf_writer *w)
{
    for (size_t i = 0; i < ARRAY_LEN(key_rows); i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s.%s", archs[arch].arch, key_rows[i].key);
        if (key_rows[i].arch == arch)
            gguf_put_u32(w, key, key_rows[i].value);
    }
    for (size_t i = 0; i < ARRAY_LEN(float_rows); i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s.%s", archs[arch].arch, float_rows[i].key);
        if (float_rows[i].arch == arch)
            gguf_put_f32(w, key, float_rows[i].value);
    }
    for (size_t i = 0; i < ARRAY_LEN(choice_rows); i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, "%s.%s", archs[arch].arch, choice_rows[i].key);
        if (choice_rows[i].arch == arch)
            gguf_put_u32(w, key,
                         json_is_true(hf_field(config, choice_rows[i].field)) ? choice_rows[i].yes
                                                                              : choice_rows[i].no);
    }
}

static int put_conditional(enum hf_arch arch, const json_t *config, struct gguf_writer *w,
                           struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(with_rows); i++) {
        char key[KEY_BYTES];
        uint32_t n;
        if (with_rows[i].arch != arch ||
            !hf_is_string(hf_field(config, with_rows[i].other), with_rows[i].text))
            continue;
        if (uint_of(hf_field(config, with_rows[i].field), with_rows[i].field, &n, error))
            return -1;
        snprintf(key, sizeof key, "%s.%s", archs[arch].arch, with_rows[i].key);
        gguf_put_u32(w, key, n);
    }
    return 0;
}

static int put_numbers(enum hf_arch arch, const json_t *config, struct gguf_writer *w,
                       struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(must_rows); i++)
        if (must_rows[i].arch == arch && check_must(&must_rows[i], config, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(number_rows); i++)
        if (number_rows[i].arch == arch && !is_given_before(i, config) &&
            put_number(&number_rows[i], config, w, error))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(pair_rows); i++)
        if (pair_rows[i].arch == arch && put_pair(&pair_rows[i], config, w, error))
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
    if (find_arch(config, &shape->arch, error))
        return -1;
    gguf_put_text(w, "general.architecture", archs[shape->arch].arch);
    gguf_put_text(w, "general.type", "model");
    gguf_put_text(w, "general.name", name);
    return put_numbers(shape->arch, config, w, error) ||
                   check_rope(shape->arch, config, w, error) ||
                   check_quantisation(config, shape, error) ||
                   (whole != config && check_quantisation(whole, shape, error)) ||
                   read_shape(config, shape, error) || hf_layer_kinds(config, w, shape, error)
               ? -1
               : 0;
}
