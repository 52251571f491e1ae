/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers that compressed-tensors packed: blocks of Q4_0 and Q8_0 with the values that the
 * package itself decompresses (tests/golden/packed_vectors.py), and what is rejected. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/hf/hf.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/hf/rejected.h"

#define EXPERTS 4 /* of deepseek-base */
#define EXPERT  "model.layers.1.mlp.experts.%u.down_proj.weight"
#define PACKED  DATA "/hf/packed"

static const struct kind {
    const char *name;
    uint32_t bits, group; /* 0: a scale per row */
} kinds[] = {{"i4_32_bf16", 4, 32},
             {"i4_128_f16", 4, 128},
             {"i4_0_f32", 4, 0},
             {"i8_32_bf16", 8, 32},
             {"i8_0_bf16", 8, 0}};
static const struct kind *kind;

static json_t *group_of(const struct kind *k)
{
    json_t *size = k->group > 0 ? json_integer(k->group) : json_null();
    return json_pack("{s:{s:i, s:s, s:b, s:s, s:o, s:n}, s:n, s:n, s:[s]}", "weights", "num_bits",
                     k->bits, "type", "int", "symmetric", 1, "strategy",
                     k->group > 0 ? "group" : "channel", "group_size", size, "actorder",
                     "input_activations", "output_activations", "targets", "Linear");
}

static void in_packed(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_set_new(config, "quantization_config",
                        json_pack("{s:s, s:s, s:{s:o}, s:n, s:[s]}", "quant_method",
                                  "compressed-tensors", "format", "pack-quantized", "config_groups",
                                  "group_0", group_of(kind), "kv_cache_scheme", "ignore",
                                  "lm_head"));
}

/* ---- a checkpoint with packed tensors -------------------------------------------------------- */

struct spliced { /* model.safetensors while it is changed */
    json_t *header;
    char *data;
    size_t bytes;
};

static void path_of(char path[300])
{
    snprintf(path, 300, "%s/model.safetensors", dir);
}

static struct spliced open_splice(void)
{
    char path[300];
    uint64_t length;
    path_of(path);
    FILE *f = fopen(path, "rb");
    ck_assert(f && fread(&length, sizeof length, 1, f) == 1);
    char *text = malloc(length);
    ck_assert_uint_eq(fread(text, 1, length, f), length);
    struct spliced s = {.header = json_loadb(text, length, 0, NULL)};
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    s.bytes = (size_t)ftell(f) - sizeof length - length;
    s.data = malloc(s.bytes);
    ck_assert(fseek(f, (long)(sizeof length + length), SEEK_SET) == 0 &&
              fread(s.data, 1, s.bytes, f) == s.bytes);
    fclose(f);
    free(text);
    return s;
}

static void close_splice(struct spliced *s)
{
    char path[300], *text = json_dumps(s->header, JSON_COMPACT);
    uint64_t length = strlen(text);
    path_of(path);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(&length, sizeof length, 1, f) == 1 &&
              fwrite(text, 1, length, f) == length && fwrite(s->data, 1, s->bytes, f) == s->bytes);
    fclose(f);
    free(text);
    free(s->data);
    json_decref(s->header);
}

static void add(struct spliced *s, const char *name, const char *type, const json_t *shape,
                const void *data, size_t bytes)
{
    s->data = realloc(s->data, s->bytes + bytes);
    memcpy(s->data + s->bytes, data, bytes);
    json_object_set_new(s->header, name,
                        json_pack("{s:s, s:O, s:[I, I]}", "dtype", type, "shape", shape,
                                  "data_offsets", (json_int_t)s->bytes,
                                  (json_int_t)(s->bytes + bytes)));
    s->bytes += bytes;
}

/* The tensor has another name from now on, one of no layer. */
static void set_aside(struct spliced *s, const char *name)
{
    char rest[160];
    snprintf(rest, sizeof rest, "rest-%s", name);
    ck_assert_ptr_nonnull(json_object_get(s->header, name));
    json_object_set(s->header, rest, json_object_get(s->header, name));
    json_object_del(s->header, name);
}

static const char *type_name(uint32_t type)
{
    return type == SAFETENSORS_I32   ? "I32"
           : type == SAFETENSORS_I64 ? "I64"
           : type == TENSOR_BF16     ? "BF16"
           : type == TENSOR_F16      ? "F16"
                                     : "F32";
}

/* The data of a tensor of the package. */
static void *take(const struct safetensors *from, const struct safetensor *t)
{
    char path[300];
    void *data = malloc(t->bytes);
    snprintf(path, sizeof path, PACKED "/%s", from->files[t->file].name);
    FILE *f = fopen(path, "rb");
    ck_assert(f && fseek(f, (long)t->offset, SEEK_SET) == 0 &&
              fread(data, 1, t->bytes, f) == t->bytes);
    fclose(f);
    return data;
}

static const struct safetensor *named(const struct safetensors *from, uint32_t i, const char *end)
{
    char name[80];
    snprintf(name, sizeof name, "%s.%u.weight%s", kind->name, i, end);
    const struct safetensor *t = safetensors_find(from, name);
    ck_assert_msg(t != NULL, "%s", name);
    return t;
}

static void add_packed(struct spliced *s, const struct safetensors *from, const char *name,
                       uint32_t i)
{
    static const char *const ends[] = {"_packed", "_scale", "_shape"};
    for (size_t n = 0; n < ARRAY_LEN(ends); n++) {
        const struct safetensor *t = named(from, i, ends[n]);
        char full[160];
        void *data = take(from, t);
        snprintf(full, sizeof full, "%s%s", name, ends[n]);
        json_t *shape = t->dims == 2
                            ? json_pack("[I, I]", (json_int_t)t->shape[0], (json_int_t)t->shape[1])
                            : json_pack("[I]", (json_int_t)t->shape[0]);
        add(s, full, type_name(t->type), shape, data, t->bytes);
        json_decref(shape);
        free(data);
    }
}

/* Expert e of the layer has matrix e % 2 of the package. */
static struct spliced make_packed(const struct safetensors *from)
{
    make_moved("deepseek-base", in_packed);
    struct spliced s = open_splice();
    for (unsigned e = 0; e < EXPERTS; e++) {
        char name[80];
        snprintf(name, sizeof name, EXPERT, e);
        set_aside(&s, name);
        add_packed(&s, from, name, e % 2);
    }
    return s;
}

static void open_package(struct safetensors *from)
{
    struct error error;
    ck_assert_msg(safetensors_open(from, PACKED, &error) == 0, "%s", error.text);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void *bytes_at(const struct hf_model *hf, struct hf_extent at)
{
    char path[600];
    void *data = malloc(at.bytes + 1);
    snprintf(path, sizeof path, "%s/%s", dir, hf->files.files[at.file].name);
    FILE *f = fopen(path, "rb");
    ck_assert(f && fseek(f, (long)at.offset, SEEK_SET) == 0 &&
              fread(data, 1, at.bytes, f) == at.bytes);
    fclose(f);
    return data;
}

static int make(const struct hf_model *hf, uint32_t t, uint32_t plane, uint64_t row, uint64_t rows,
                uint8_t *made, struct error *error)
{
    const struct hf_part part = hf_part_of(hf, t, plane, row, rows);
    void *src = bytes_at(hf, part.at), *scales = bytes_at(hf, hf_scales_of(hf, t, plane));
    int status = hf_make_rows(hf, t, plane, &part, src, scales, row, rows, made, error);
    free(src);
    free(scales);
    return status;
}

/* Element i of a row of blocks of 32: the scale as F16, then the numbers. */
static float value_at(uint32_t bits, const uint8_t *row, uint64_t i)
{
    uint64_t bytes = 2 + 32 * bits / 8;
    const uint8_t *block = row + i / 32 * bytes;
    float d = f16_to_f32(load_u16((const char *)block));
    if (bits == 8)
        return d * (float)(int8_t)block[2 + i % 32];
    uint8_t pair = block[2 + i % 16];
    return d * (float)((i % 32 < 16 ? pair & 15 : pair >> 4) - 8);
}

static const struct hf_tensor *packed_tensor(const struct hf_model *hf, uint32_t *number)
{
    for (*number = 0; *number < hf->tensor_count; ++*number)
        if (hf->tensors[*number].form == HF_INTS)
            return &hf->tensors[*number];
    ck_abort_msg("nothing is packed");
}

START_TEST(values_are_those_of_the_package)
{
    struct safetensors from;
    struct hf_model hf;
    struct error error = {0};
    uint32_t number;
    kind = &kinds[_i];
    open_package(&from);
    struct spliced s = make_packed(&from);
    close_splice(&s);
    ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
    const struct hf_tensor *t = packed_tensor(&hf, &number);
    ck_assert_uint_eq(t->planes, EXPERTS);
    ck_assert_uint_eq(t->made_type, kind->bits == 4 ? TENSOR_Q4_0 : TENSOR_Q8_0);
    uint8_t *made = malloc(t->rows * t->made_row_bytes);
    for (uint32_t plane = 0; plane < EXPERTS; plane++) {
        const struct safetensor *want = named(&from, plane % 2, "");
        float *value = take(&from, want);
        ck_assert(want->shape[0] == t->rows && want->shape[1] == t->columns);
        for (uint64_t row = 0, n; row < t->rows; row += n) {
            n = t->rows - row < 3 ? t->rows - row : 3;
            ck_assert_msg(
                make(&hf, number, plane, row, n, made + row * t->made_row_bytes, &error) == 0, "%s",
                error.text);
        }
        for (uint64_t i = 0; i < t->rows * t->columns; i++) {
            float got =
                value_at(kind->bits, made + i / t->columns * t->made_row_bytes, i % t->columns);
            ck_assert_msg(got == value[i], "%s, expert %u, element %zu: %a, not %a", kind->name,
                          plane, (size_t)i, (double)got, (double)value[i]);
        }
        free(value);
    }
    free(made);
    hf_close(&hf);
    safetensors_close(&from);
}
END_TEST

/* ---- what is rejected ------------------------------------------------------------------------ */

static const struct {
    const char *object, *field, *value, *reason;
} configs[] = {
    {"weights", "num_bits", "3", "num_bits is 3"},
    {"weights", "num_bits", NULL, "num_bits is missing"},
    {"weights", "symmetric", "false", "symmetric is false"},
    {"weights", "type", "\"float\"", "type is \"float\""},
    {"weights", "strategy", "\"tensor\"", "strategy is \"tensor\""},
    {"weights", "actorder", "\"group\"", "actorder is \"group\""},
    {"weights", "group_size", "48", "group_size does not fit"},
    {"weights", "group_size", "0", "group_size does not fit"},
    {"weights", "group_size", "131072", "group_size does not fit"},
    {"weights", "group_size", "null", "group_size does not fit"},
    {"weights", "strategy", "\"channel\"", "group_size does not fit"},
    {"group_0", "input_activations", "{}", "input_activations is {}"},
    {"group_0", "format", "\"nvfp4-pack-quantized\"", "format is"},
    {"group_0", "weights", "null", "type is missing"},
    {"quantization_config", "format", "\"int-quantized\"", "format is \"int-quantized\""},
    {"quantization_config", "format", NULL, "format is missing"},
    {"quantization_config", "kv_cache_scheme", "{}", "kv_cache_scheme is {}"},
    {"quantization_config", "config_groups", "{}", "config_groups is missing or empty"},
    {"quantization_config", "config_groups", "[]", "config_groups is missing or empty"},
    {"quantization_config", "quant_method", "\"gptq\"", "quantization_config is not supported"},
    {"config_groups", "group_1",
     "{\"weights\": {\"num_bits\": 8, \"type\": \"int\", \"symmetric\": "
     "true, \"strategy\": \"group\", \"group_size\": 32}}",
     "config_groups of several sizes"},
};
static unsigned edited;

static json_t *object_of(json_t *config, const char *name)
{
    json_t *q = json_object_get(config, "quantization_config");
    json_t *groups = json_object_get(q, "config_groups");
    json_t *group = json_object_get(groups, "group_0");
    return strcmp(name, "weights") == 0         ? json_object_get(group, "weights")
           : strcmp(name, "group_0") == 0       ? group
           : strcmp(name, "config_groups") == 0 ? groups
                                                : q;
}

static void in_edited(json_t *config, json_t *tokenizer)
{
    in_packed(config, tokenizer);
    json_t *object = object_of(config, configs[edited].object);
    if (configs[edited].value)
        json_object_set_new(object, configs[edited].field,
                            json_loads(configs[edited].value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(object, configs[edited].field);
}

START_TEST(configurations)
{
    kind = &kinds[0];
    edited = (unsigned)_i;
    make_moved("deepseek-base", in_edited);
    expect_rejected(configs[_i].reason);
}
END_TEST

/* Without packed tensors, they are as those of a model that is not quantised. */
START_TEST(nothing_is_packed)
{
    kind = &kinds[0];
    make_moved("deepseek-base", in_packed);
    expect(NULL);
}
END_TEST

static void add_zeros(struct spliced *s, const char *name, const char *type, int rows, int columns,
                      size_t bytes)
{
    json_t *shape = json_pack("[i, i]", rows, columns);
    void *zeros = calloc(1, bytes);
    add(s, name, type, shape, zeros, bytes);
    json_decref(shape);
    free(zeros);
}

#define O_PROJ "model.layers.1.self_attn.o_proj.weight"
#define FIRST  "model.layers.1.mlp.experts.1.down_proj.weight"

START_TEST(tensors)
{
    static const struct {
        const char *old, *name, *type, *reason;
        int rows, columns;
        size_t bytes;
    } cases[] = {
        {NULL, FIRST "_zero_point", "I32", FIRST "_zero_point is not supported", 1, 2, 8},
        {NULL, FIRST "_g_idx", "I32", FIRST "_g_idx is not supported", 1, 64, 256},
        {NULL, FIRST "_other", "I32", FIRST "_other is not known", 1, 1, 4},
        {FIRST "_scale", FIRST "_scale", "BF16", "is not a matrix of floats", 4, 1, 8},
        {FIRST "_scale", FIRST "_scale", "BF16", "is not a matrix of floats", 2, 4, 16},
        {FIRST "_scale", FIRST "_scale", "I32", "is not a matrix of floats", 4, 2, 32},
        {FIRST "_scale", FIRST "_scale", "F32", "have another type than those", 4, 2, 32},
        {FIRST "_scale", NULL, NULL, FIRST "_scale is missing", 0, 0, 0},
        {FIRST "_packed", FIRST "_packed", "I64", "differs in type or shape", 4, 8, 256},
        {FIRST "_packed", FIRST "_packed", "I32", "differs in type or shape", 4, 16, 256},
        {FIRST "_packed", NULL, NULL, FIRST " is missing", 0, 0, 0},
    };
    struct safetensors from;
    kind = &kinds[0];
    open_package(&from);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct spliced s = make_packed(&from);
        if (cases[i].old)
            set_aside(&s, cases[i].old);
        if (cases[i].name)
            add_zeros(&s, cases[i].name, cases[i].type, cases[i].rows, cases[i].columns,
                      cases[i].bytes);
        close_splice(&s);
        expect_rejected(cases[i].reason);
    }
    safetensors_close(&from);
}
END_TEST

/* The name of a matrix that is not packed; a matrix whose rows become columns; and 8 columns of
 * numbers, which are no block. */
START_TEST(other_places)
{
    static const struct {
        const char *model, *name, *end, *reason;
        int rows, columns;
    } cases[] = {
        {"deepseek-base", FIRST, "", "differs in type or shape", 16, 4},
        {"deepseek-base", O_PROJ, "", O_PROJ " has another type", 16, 4},
        {"deepseek-base", O_PROJ, "_packed",
         O_PROJ "_packed: rows of 8 elements are no multiple of 32", 16, 1},
        {"deepseek-base", O_PROJ, "_packed", O_PROJ "_scale is missing", 16, 4},
        {"deepseek_v2", "model.layers.1.self_attn.kv_b_proj.weight", "_packed",
         "what is packed is not supported here", 224, 4},
    };
    kind = &kinds[0];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[100];
        make_moved(cases[i].model, in_packed);
        struct spliced s = open_splice();
        set_aside(&s, cases[i].name);
        snprintf(name, sizeof name, "%s%s", cases[i].name, cases[i].end);
        add_zeros(&s, name, "I32", cases[i].rows, cases[i].columns,
                  4 * (size_t)cases[i].rows * (size_t)cases[i].columns);
        close_splice(&s);
        expect_rejected(cases[i].reason);
    }
}
END_TEST

/* A scale beyond F16 is an error when rows are made; one below it is rounded. */
START_TEST(scales_beyond_f16)
{
    static const float scales[] = {1e6f, (float)INFINITY, (float)NAN, 1e-9f, -0.5f};
    struct safetensors from;
    kind = &kinds[2];
    open_package(&from);
    for (size_t i = 0; i < ARRAY_LEN(scales); i++) {
        struct hf_model hf;
        struct error error;
        uint8_t made[4 * 3 * 18];
        uint32_t number;
        struct spliced s = make_packed(&from);
        set_aside(&s, FIRST "_scale");
        const float all[] = {0.25f, scales[i], 0.25f, 0.25f};
        json_t *shape = json_pack("[i, i]", 4, 1);
        add(&s, FIRST "_scale", "F32", shape, all, sizeof all);
        json_decref(shape);
        close_splice(&s);
        ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
        ck_assert_uint_eq(packed_tensor(&hf, &number)->made_row_bytes, 3 * 18);
        ck_assert_int_eq(make(&hf, number, 0, 0, 4, made, &error), 0);
        int status = make(&hf, number, 1, 0, 4, made, &error);
        ck_assert_int_eq(status, i < 3 ? -1 : 0);
        ck_assert(status == 0 || strstr(error.text, "not finite"));
        hf_close(&hf);
    }
    safetensors_close(&from);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hf_packed");
    TCase *t = tcase_create("hf_packed");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, values_are_those_of_the_package, 0, (int)ARRAY_LEN(kinds));
    tcase_add_loop_test(t, configurations, 0, (int)ARRAY_LEN(configs));
    tcase_add_test(t, nothing_is_packed);
    tcase_add_test(t, tensors);
    tcase_add_test(t, other_places);
    tcase_add_test(t, scales_beyond_f16);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
