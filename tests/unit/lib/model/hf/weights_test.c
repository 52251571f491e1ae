/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of Hugging Face directories that are rejected, with the reason, or taken. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/hf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/hf/rejected.h"

/* ---- other headers of safetensors ---- */

/* Replaces a tensor by others, which have zeros after all data: {name: [dtype, bytes of an element,
 * shape]}. */
static void replace(const char *name, json_t *others)
{
    char path[300];
    uint64_t length, at;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "rb");
    ck_assert(f && fread(&length, sizeof length, 1, f) == 1);
    char *text = malloc(length);
    ck_assert_uint_eq(fread(text, 1, length, f), length);
    json_t *header = json_loadb(text, length, 0, NULL), *old = json_object_get(header, name);
    ck_assert_ptr_nonnull(old);
    char rest[300];
    snprintf(rest, sizeof rest, "rest-%s", name);
    json_object_set(header, rest, old);
    json_object_del(header, name);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    uint64_t bytes = (uint64_t)ftell(f) - sizeof length - length;
    char *data = malloc(bytes);
    ck_assert(fseek(f, (long)(sizeof length + length), SEEK_SET) == 0 &&
              fread(data, 1, bytes, f) == bytes);
    fclose(f);
    free(text);
    at = bytes;
    const char *key;
    json_t *other, *size;
    json_object_foreach(others, key, other)
    {
        size_t i;
        uint64_t n = (uint64_t)json_integer_value(json_array_get(other, 1));
        json_array_foreach(json_array_get(other, 2), i, size) n *=
            (uint64_t)json_integer_value(size);
        json_object_set_new(header, key,
                            json_pack("{s:O, s:O, s:[I, I]}", "dtype", json_array_get(other, 0),
                                      "shape", json_array_get(other, 2), "data_offsets",
                                      (json_int_t)at, (json_int_t)(at + n)));
        at += n;
    }
    text = json_dumps(header, JSON_COMPACT);
    length = strlen(text);
    f = fopen(path, "wb");
    ck_assert(f && fwrite(&length, sizeof length, 1, f) == 1 &&
              fwrite(text, 1, length, f) == length && fwrite(data, 1, bytes, f) == bytes);
    ck_assert(fflush(f) == 0 && ftruncate(fileno(f), (off_t)(sizeof length + length + at)) == 0);
    fclose(f);
    free(text);
    free(data);
    json_decref(header);
    json_decref(others);
}

#define DOWN  "model.layers.0.mlp.experts.down_proj"
#define SCALE "model.layers.0.hc_attn_layer.hc_pre.hc_scale"

/* Experts of MXFP4: shapes of the blocks, and of their scales. reason NULL: accepted. */
START_TEST(shapes_of_mxfp4)
{
    static const struct {
        int blocks[4], scales[4];
        const char *scales_type, *reason;
    } cases[] = {
        {{5, 64, 1, 16}, {5, 64, 1, 0}, "U8", NULL},
        {{5, 64, 1, 16}, {5, 32, 2, 0}, "U8", DOWN "_scales has no U8 for each block"},
        {{5, 64, 1, 16}, {64, 5, 1, 0}, "U8", DOWN "_scales has no U8 for each block"},
        {{5, 64, 1, 16}, {5, 64, 2, 0}, "U8", DOWN "_scales has no U8 for each block"},
        {{5, 64, 1, 16}, {5, 64, 1, 0}, "I8", DOWN "_scales has no U8 for each block"},
        {{5, 64, 1, 8}, {5, 64, 1, 0}, "U8", DOWN "_blocks has 4 dimensions"},
        {{4, 64, 1, 16}, {4, 64, 1, 0}, "U8", "rows are not those of 5 parts"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int *b = cases[i].blocks, *s = cases[i].scales;
        make_moved("oss_a", NULL);
        replace(DOWN, json_pack("{s:[s, i, [i, i, i, i]], s:[s, i, [i, i, i]]}", DOWN "_blocks",
                                "U8", 1, b[0], b[1], b[2], b[3], DOWN "_scales",
                                cases[i].scales_type, 1, s[0], s[1], s[2]));
        expect(cases[i].reason);
    }
}
END_TEST

START_TEST(shapes_of_floats)
{
    static const struct {
        int shape[3];
        const char *type, *reason;
    } cases[] = {
        {{5, 32, 64}, "BF16", NULL},
        {{5, 1 << 14, 1 << 16},
         "BF16",
         "tensor " DOWN " is too large"}, /* 2 GiB are turned at once */
        {{3, 32, 64}, "BF16", "rows are not those of 5 parts"},
        {{5, 32, 64}, "U16", "tensor " DOWN " has another type"},
        {{0, 32, 64}, "BF16", "3 dimensions and 0 bytes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int *n = cases[i].shape;
        make_moved("oss_a", NULL);
        replace(DOWN, json_pack("{s:[s, i, [i, i, i]]}", DOWN, cases[i].type, 2, n[0], n[1], n[2]));
        expect(cases[i].reason);
    }
}
END_TEST

/* A tensor of a layer that no row names; one of a layer that the model does not have is left
 * out. */
START_TEST(tensors_without_rows)
{
    static const struct {
        const char *name, *reason;
    } cases[] = {
        {"model.layers.2.mlp.router.extra", "tensor model.layers.2.mlp.router.extra is not known"},
        {"model.layers.x.weight", "tensor model.layers.x.weight is not known"},
        {"model.layers.3.mlp.router.extra", NULL},
        {"model.mtp.weight", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_moved("oss_a", NULL);
        replace(DOWN, json_pack("{s:[s, i, [i, i, i]], s:[s, i, [i]]}", DOWN, "F16", 2, 5, 32, 64,
                                cases[i].name, "F16", 2, 8));
        expect(cases[i].reason);
    }
    make_moved("hy_v4-base", NULL);
    replace(SCALE, json_pack("{s:[s, i, [i]], s:[s, i, [i]]}", SCALE, "F32", 4, 2,
                             "model.layers.0.mlp.extra", "F16", 2, 8));
    expect("tensor model.layers.0.mlp.extra is not known");
}
END_TEST

/* The rows of several devices are one after the other in it. */
#define QKV "model.layers.0.self_attn.qkv_proj.weight"
START_TEST(joined_fp8)
{
    static const struct {
        const char *type, *scales, *reason;
    } cases[] = {{"F16", "model.mtp.weight", NULL},
                 {"F8_E4M3", QKV "_scale_inv", "q, k and v in one matrix of FP8"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_moved("mimo2-joined", NULL);
        replace(QKV, json_pack("{s:[s, i, [i, i]], s:[s, i, [i, i]]}", QKV, cases[i].type,
                               2 - (int)i, 28, 16, cases[i].scales, "F32", 4, 1, 1));
        expect(cases[i].reason);
    }
}
END_TEST

/* ---- DeepSeek-V4 ---- */

static void in_blocks(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_set_new(config, "quantization_config",
                        json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "fmt", "e4m3",
                                  "weight_block_size", 16, 16));
}

#define WQ_A "layers.0.attn.wq_a"

/* Exponents of FP8 beside the weights: of 16 rows of 32. */
START_TEST(exponents_of_fp8)
{
    static const struct {
        int scales[2];
        const char *type, *reason;
    } cases[] = {
        {{1, 2}, "F8_E8M0", NULL},
        {{1, 2}, "F32", NULL},
        {{1, 2}, "F16", NULL},
        {{1, 2}, "BF16", NULL},
        {{1, 2}, "U8", WQ_A ".scale is not a matrix of F32, F16, BF16 or F8_E8M0"},
        {{2, 1}, "F8_E8M0", WQ_A ".scale is not a matrix of F32, F16, BF16 or F8_E8M0"},
        {{0, 0}, NULL, WQ_A ".weight_scale_inv is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_moved("deepseek4-base", in_blocks);
        json_t *both = json_pack("{s:[s, i, [i, i]]}", WQ_A ".weight", "F8_E4M3", 1, 16, 32);
        int each = !cases[i].type                      ? 0
                   : strcmp(cases[i].type, "F32") == 0 ? 4
                   : strstr(cases[i].type, "F16")      ? 2
                                                       : 1;
        if (each > 0)
            json_object_set_new(both, WQ_A ".scale",
                                json_pack("[s, i, [i, i]]", cases[i].type, each, cases[i].scales[0],
                                          cases[i].scales[1]));
        replace(WQ_A ".weight", both);
        expect(cases[i].reason);
    }
}
END_TEST

#define W1 "layers.0.ffn.experts.%u.w1"

/* Of the experts of a layer, scales have one type. */
START_TEST(exponents_and_floats)
{
    static const struct {
        const char *type;
        int bytes;
    } pairs[][2] = {
        {{"F8_E8M0", 1}, {"F32", 4}}, {{"BF16", 2}, {"F32", 4}}, {{"F16", 2}, {"BF16", 2}}};
    char name[2][64], reason[160];
    snprintf(reason, sizeof reason, "the scales of tensor " W1 ".weight have another type", 1);
    for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
        make_moved("deepseek4-base", in_blocks);
        for (unsigned i = 0; i < 4; i++) {
            snprintf(name[0], sizeof name[0], W1 ".weight", i);
            snprintf(name[1], sizeof name[1], W1 ".scale", i);
            replace(name[0],
                    json_pack("{s:[s, i, [i, i]], s:[s, i, [i, i]]}", name[0], "F8_E4M3", 1, 32, 32,
                              name[1], pairs[p][i > 0].type, pairs[p][i > 0].bytes, 2, 2));
        }
        expect(reason);
    }
}
END_TEST

#define W2 "layers.0.ffn.experts.%u.w2"

static const struct hf_tensor *packed_tensor(const struct hf_model *hf, uint32_t *number)
{
    for (*number = 0; *number < hf->tensor_count; ++*number)
        if (hf->tensors[*number].form == HF_MXFP4)
            return &hf->tensors[*number];
    ck_abort_msg("no experts of MXFP4");
}

/* Experts with two elements in a byte, and an exponent for 32 elements, each in a tensor. */
START_TEST(rows_of_packed_experts)
{
    static const struct {
        int weight[2], scales[2];
        const char *type, *reason;
    } cases[] = {
        {{32, 16}, {32, 1}, "F8_E8M0", NULL},
        {{32, 16}, {32, 1}, "U8", ".scale is not a matrix of F8_E8M0"},
        {{32, 16}, {1, 32}, "F8_E8M0", ".scale is not a matrix of F8_E8M0"},
        {{32, 16}, {32, 2}, "F8_E8M0", ".scale is not a matrix of F8_E8M0"},
        {{32, 8}, {32, 1}, "F8_E8M0", "rows of 16 elements are no multiple of 32"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hf_model hf;
        struct error error;
        make_moved("deepseek4-base", NULL);
        for (unsigned e = 0; e < 4; e++) {
            char weight[64], scale[64];
            snprintf(weight, sizeof weight, W2 ".weight", e);
            snprintf(scale, sizeof scale, W2 ".scale", e);
            replace(weight, json_pack("{s:[s, i, [i, i]], s:[s, i, [i, i]]}", weight, "I8", 1,
                                      cases[i].weight[0], cases[i].weight[1], scale, cases[i].type,
                                      1, cases[i].scales[0], cases[i].scales[1]));
        }
        if (cases[i].reason) {
            expect_rejected(cases[i].reason);
            continue;
        }
        ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
        uint32_t number;
        const struct hf_tensor *t = packed_tensor(&hf, &number);
        ck_assert(t->planes == 4 && t->columns == 32 && t->made_type == TENSOR_MXFP4);
        for (unsigned e = 0; e < 4; e++) {
            char scale[64];
            snprintf(scale, sizeof scale, W2 ".scale", e);
            const struct safetensor *s = safetensors_find(&hf.files, scale);
            struct hf_extent at = hf_scales_of(&hf, number, e);
            ck_assert(s && at.offset == s->offset && at.bytes == s->bytes);
        }
        hf_close(&hf);
    }
}
END_TEST

#define PACKED "language_model.model.layers.1.block_sparse_moe.experts.%u.w1.weight"

static void in_kimi_k3(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_set_new(config, "quantization_config",
                        json_pack("{s:s, s:s}", "quant_method", "compressed-tensors", "format",
                                  "mxfp4-pack-quantized"));
    hf_make_nested(config, "kimi_k3");
}

static void as_other_format(json_t *config, json_t *tokenizer)
{
    in_kimi_k3(config, tokenizer);
    json_object_set_new(
        json_object_get(json_object_get(config, "text_config"), "quantization_config"), "format",
        json_string("pack-quantized"));
}

static void make_kimi_k3(void (*edit)(json_t *config, json_t *tokenizer))
{
    hf_make(&(struct hf_make){.gguf = DATA "/converted/kimi-k3-base.gguf",
                              .names = DATA "/hf/kimi-k3-base.json",
                              .dir = dir,
                              .from = "",
                              .to = "language_model.",
                              .edit = edit});
}

/* Experts of compressed-tensors: two elements in a byte, and an exponent for 32 elements. */
START_TEST(packed_experts)
{
    static const struct {
        int weight[2], scales[2];
        const char *types[2], *reason;
    } cases[] = {
        {{16, 16}, {16, 1}, {"U8", "U8"}, NULL},
        {{16, 16}, {16, 1}, {"I8", "U8"}, "w1.weight_packed has another type than U8"},
        {{16, 16}, {16, 1}, {"I32", "U8"}, "w1.weight_packed has another type than U8"},
        {{16, 16}, {16, 1}, {"U8", "F8_E4M3"}, "w1.weight_scale is not a matrix of U8"},
        {{16, 16}, {16, 2}, {"U8", "U8"}, "w1.weight_scale is not a matrix of U8"},
        {{16, 16}, {0, 0}, {"U8", NULL}, "w1.weight_scale is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_kimi_k3(in_kimi_k3);
        for (unsigned e = 0; e < 4; e++) {
            char name[128], weight[160], scale[160];
            snprintf(name, sizeof name, PACKED, e);
            snprintf(weight, sizeof weight, "%s_packed", name);
            snprintf(scale, sizeof scale, "%s_scale", name);
            json_t *others = json_pack("{s:[s, i, [i, i]]}", weight, cases[i].types[0],
                                       cases[i].types[0][1] == '3' ? 4 : 1, cases[i].weight[0],
                                       cases[i].weight[1]);
            if (cases[i].types[1])
                json_object_set_new(others, scale,
                                    json_pack("[s, i, [i, i]]", cases[i].types[1], 1,
                                              cases[i].scales[0], cases[i].scales[1]));
            replace(name, others);
        }
        expect(cases[i].reason);
    }
    make_kimi_k3(as_other_format);
    expect("quantization_config.format is \"pack-quantized\", which is not supported");
}
END_TEST

#define NORM "language_model.model.layers.1.mlp_res_norm.weight"
#define PROJ "language_model.model.layers.1.mlp_res_proj.weight"

/* A vector that is multiplied with another one. */
START_TEST(factors)
{
    static const struct {
        int elements, bytes;
        const char *type, *reason;
    } cases[] = {{16, 2, "BF16", NULL},
                 {16, 4, "F32", NULL},
                 {8, 2, "BF16", PROJ " has 8 elements, and not the 16 of the vector"},
                 {16, 4, "I32", PROJ " has another type than F32, F16 and BF16"},
                 {16, 2, NULL, "model.layers.1.mlp_res_proj.weight is missing"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_kimi_k3(in_kimi_k3);
        replace(PROJ, json_pack("{s:[s, i, [i, i]]}", cases[i].type ? PROJ : "other",
                                cases[i].type ? cases[i].type : "F16", cases[i].bytes, 1,
                                cases[i].elements));
        expect(cases[i].reason);
    }
    make_kimi_k3(in_kimi_k3);
    replace(NORM, json_pack("{s:[s, i, [i]]}", NORM, "U8", 1, 16));
    expect("mlp_res_norm.weight has another type than F32, F16 and BF16");
}
END_TEST

#define PLE   "model.layers.1.ple.ple_embedding."
#define SHARD PLE "ngram_embedding.shard_3.weight"

/* The parts of a table of n-grams, and the numbers that rows are found with. */
START_TEST(ngrams)
{
    static const struct {
        const char *name, *other, *type;
        int bytes, shape[2];
        const char *reason;
    } cases[] = {
        {SHARD, SHARD, "F16", 2, {160, 4}, NULL},
        {SHARD, SHARD, "F32", 4, {160, 4}, SHARD " differs in type or shape from part 0"},
        {SHARD, SHARD, "F16", 2, {159, 4}, SHARD " differs in type or shape from part 0"},
        {SHARD, SHARD, "F16", 2, {160, 8}, SHARD " differs in type or shape from part 0"},
        {SHARD, SHARD, "U8", 1, {160, 4}, SHARD " has another type than F32, F16 and BF16"},
        {SHARD, "other", "F16", 2, {160, 4}, SHARD " is missing"},
        {PLE "layer_multipliers", "other", "F16", 2, {3, 1}, "layer_multipliers is missing"},
        {PLE "layer_multipliers",
         PLE "layer_multipliers",
         "I32",
         4,
         {3, 1},
         PLE "layer_multipliers is not a list of 1 to 64 numbers of I64"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_moved("qwen4exp-base", NULL);
        replace(cases[i].name, json_pack("{s:[s, i, [i, i]]}", cases[i].other, cases[i].type,
                                         cases[i].bytes, cases[i].shape[0], cases[i].shape[1]));
        expect(cases[i].reason);
    }
}
END_TEST

static void two_ends(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_set_new(config, "eos_token_id", json_pack("[i, i]", 340, 5));
}

static void nested_end(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_del(config, "eos_token_id");
    hf_make_nested(config, "qwen4_exp");
    json_object_set_new(config, "eos_token_id", json_integer(340));
}

static void no_end(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    json_object_del(config, "eos_token_id");
}

static uint64_t end_in(const struct gguf *g, const char *key)
{
    uint64_t end;
    ck_assert_msg(gguf_get_uint(g, key, &end, NULL) == 1, "%s is missing", key);
    return end;
}

static void expect_ends(uint64_t of_answers, uint64_t of_ngrams)
{
    struct hf_model hf;
    struct gguf g;
    struct error error;
    ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
    struct gguf_source source = {
        .read = gguf_writer_read, .arg = hf.gguf, .bytes = gguf_writer_bytes(hf.gguf)};
    ck_assert_msg(gguf_open(&g, &source, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(end_in(&g, "tokenizer.ggml.eos_token_id"), of_answers);
    ck_assert_uint_eq(end_in(&g, "qwen4exp.ple.eos_token_id"), of_ngrams);
    gguf_close(&g);
    hf_close(&hf);
}

/* Answers end with the tokens of generation_config.json, n-grams with the first of config.json. */
START_TEST(ends_of_ngrams)
{
    static const struct {
        void (*edit)(json_t *config, json_t *tokenizer);
        const char *reason; /* NULL: it is taken */
    } rows[] = {{two_ends, NULL},
                {nested_end, NULL},
                {no_end, "eos_token_id, which ends n-grams, is no token"}};
    char path[300];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        make_moved("qwen4exp-base", rows[i].edit);
        snprintf(path, sizeof path, "%s/generation_config.json", dir);
        FILE *f = fopen(path, "w");
        ck_assert(f && fputs("{\"eos_token_id\":[7,8]}", f) >= 0 && fclose(f) == 0);
        if (rows[i].reason)
            expect_rejected(rows[i].reason);
        else
            expect_ends(7, 340);
        unlink(path);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_weights");
    TCase *t = tcase_create("hf_weights");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, shapes_of_mxfp4);
    tcase_add_test(t, shapes_of_floats);
    tcase_add_test(t, tensors_without_rows);
    tcase_add_test(t, joined_fp8);
    tcase_add_test(t, exponents_of_fp8);
    tcase_add_test(t, exponents_and_floats);
    tcase_add_test(t, rows_of_packed_experts);
    tcase_add_test(t, packed_experts);
    tcase_add_test(t, factors);
    tcase_add_test(t, ngrams);
    tcase_add_test(t, ends_of_ngrams);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
