/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face directories against the GGUF files of the same models: names, tensor transformations
 * and keys of every architecture; rejected directories with the reason. */
#include <check.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/hf/hf.h"
#include "lib/model/hf/internal.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/tensor/half.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/hf_make.h"

#define DATA SLUICE_SOURCE_DIR "/tests/golden/data"

static char dir[] = "/tmp/sluice-hf-XXXXXX";

static void setup(void)
{
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
    hf_unmake(dir);
    ck_assert_int_ne(access(dir, F_OK), 0);
}

struct file {
    int fd;
    struct gguf g;
};

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

static ssize_t read_header(void *arg, void *buf, size_t n, uint64_t offset)
{
    uint64_t bytes;
    const char *header = gguf_writer_header(arg, &bytes);
    for (size_t i = 0; i < n; i++)
        ((char *)buf)[i] = offset + i < bytes ? header[offset + i] : 0;
    return (ssize_t)n;
}

static void open_file(struct file *f, const char *path)
{
    struct stat st;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert(f->fd >= 0 && fstat(f->fd, &st) == 0);
    struct gguf_source source = {.read = read_fd, .arg = &f->fd, .bytes = (uint64_t)st.st_size};
    ck_assert_int_eq(gguf_open(&f->g, &source, NULL), 0);
}

static const struct model_tensor *find(const struct gguf *g, const char *name, uint32_t *i)
{
    for (*i = 0; *i < g->tensor_count; ++*i)
        if (strcmp(g->tensors[*i].name, name) == 0)
            return &g->tensors[*i];
    return NULL;
}

static void *bytes_of(const struct hf_model *hf, const char *in, const struct safetensor *s)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", in, hf->files.files[s->file].name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *data = malloc(s->bytes);
    ck_assert_int_eq(pread(fd, data, s->bytes, (off_t)s->offset), (ssize_t)s->bytes);
    close(fd);
    return data;
}

/* Tensor i of the directory, after its transformation, has the same bytes as in the file. */
static void compare_tensor(const struct hf_model *hf, uint32_t i, const struct file *f,
                           const struct model_tensor *t)
{
    const struct hf_tensor *h = &hf->tensors[i];
    uint32_t parts = h->experts ? h->experts : 1;
    char *expected = malloc(t->bytes);
    ck_assert_int_eq(pread(f->fd, expected, t->bytes, (off_t)t->file_offset), (ssize_t)t->bytes);
    for (uint32_t e = 0; e < parts; e++) {
        const struct safetensor *s = hf_source(hf, i, e);
        char *data = bytes_of(hf, dir, s), *head = malloc(s->bytes);
        const char *want = expected + e * (t->bytes / parts);
        switch (h->form) {
        case HF_AS_IS:
            ck_assert_uint_eq(s->bytes * parts, t->bytes);
            ck_assert_msg(memcmp(data, want, s->bytes) == 0, "%s", t->name);
            break;
        case HF_HEAD_PAIRS:
            for (uint64_t at = 0; at < s->bytes; at += h->head_bytes) {
                hf_head_pairs(h, data + at, head);
                ck_assert_msg(memcmp(head, want + at, h->head_bytes) == 0, "%s", t->name);
            }
            break;
        case HF_FP8: ck_abort_msg("%s: no test model is FP8", t->name);
        case HF_TO_F32: /* converted by the reader; it has half as many bytes */
            ck_assert_uint_eq(s->bytes * 2, t->bytes);
            break;
        }
        free(head);
        free(data);
    }
    free(expected);
}

/* Keys of the file that a directory also provides. */
static void compare_keys(const struct gguf *a, const struct gguf *b)
{
    static const char *const numbers[] = {"block_count",
                                          "context_length",
                                          "embedding_length",
                                          "feed_forward_length",
                                          "attention.head_count",
                                          "attention.head_count_kv",
                                          "attention.key_length",
                                          "expert_count",
                                          "expert_used_count",
                                          "expert_feed_forward_length",
                                          "expert_shared_feed_forward_length",
                                          "expert_shared_count",
                                          "expert_gating_func",
                                          "expert_group_count",
                                          "expert_group_used_count",
                                          "leading_dense_block_count"};
    const char *arch, *other;
    size_t n, m;
    ck_assert_int_eq(gguf_get_string(a, "general.architecture", &arch, &n, NULL), 1);
    ck_assert_int_eq(gguf_get_string(b, "general.architecture", &other, &m, NULL), 1);
    ck_assert(n == m && memcmp(arch, other, n) == 0);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        char key[128];
        uint64_t x = 0, y = 0;
        snprintf(key, sizeof key, "%.*s.%s", (int)n, arch, numbers[i]);
        int there = gguf_get_uint(a, key, &x, NULL);
        ck_assert_msg(gguf_get_uint(b, key, &y, NULL) == there && x == y, "%s", key);
    }
    uint64_t x, y;
    ck_assert_int_eq(gguf_get_uint(a, "tokenizer.ggml.eos_token_id", &x, NULL), 1);
    ck_assert(gguf_get_uint(b, "tokenizer.ggml.eos_token_id", &y, NULL) == 1 && x == y);
    for (const char *const *key =
             (const char *[]){"tokenizer.ggml.tokens", "tokenizer.ggml.merges", NULL};
         *key; key++) {
        struct gguf_array p, q;
        if (gguf_get_array(a, *key, GGUF_STRING, &p, NULL) != 1)
            continue;
        ck_assert_int_eq(gguf_get_array(b, *key, GGUF_STRING, &q, NULL), 1);
        ck_assert_uint_eq(p.left, q.left);
        while (p.left > 0) {
            gguf_array_string(&p, &arch, &n);
            gguf_array_string(&q, &other, &m);
            ck_assert_msg(n == m && memcmp(arch, other, n) == 0, "%s: %.*s", *key, (int)n, arch);
        }
    }
}

static void same_model(const char *gguf, bool half_norms, bool two_files)
{
    struct hf_model hf;
    struct error error;
    struct file f;
    hf_make(&(struct hf_make){
        .gguf = gguf, .dir = dir, .half_norms = half_norms, .two_files = two_files});
    ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s: %s", gguf, error.text);
    open_file(&f, gguf);
    struct gguf_source source = {
        .read = read_header, .arg = hf.gguf, .bytes = gguf_writer_bytes(hf.gguf)};
    struct gguf g;
    struct model_index *index;
    struct model_file_id id = {0};
    ck_assert_int_eq(gguf_open(&g, &source, NULL), 0);
    /* Mixtral's tokenizer is SentencePiece, which hf_make does not support. */
    if (!strstr(gguf, "mixtral")) {
        ck_assert_msg(model_index_build_source(&source, &id, &index, &error) == 0, "%s: %s", gguf,
                      error.text);
        free(index);
        compare_keys(&f.g, &g);
    }
    ck_assert_uint_eq(f.g.tensor_count, g.tensor_count);
    for (uint32_t i = 0; i < f.g.tensor_count; i++) {
        const struct model_tensor *a = &f.g.tensors[i];
        uint32_t number;
        const struct model_tensor *b = find(&g, a->name, &number);
        if (strstr(a->name, "ffn_gate_inp_shexp")) { /* a vector of F32 here, a matrix there */
            ck_assert(b && b->type == TENSOR_F32 && b->dims == 1 && b->ne[0] == a->ne[0]);
            continue;
        }
        ck_assert_msg(b && b->type == a->type && memcmp(b->ne, a->ne, sizeof a->ne) == 0, "%s",
                      a->name);
        compare_tensor(&hf, number, &f, a);
    }
    gguf_close(&g);
    gguf_close(&f.g);
    close(f.fd);
    hf_close(&hf);
}

START_TEST(architectures)
{
    static const char *const names[] = {"olmoe_a",     "olmoe_b",    "mixtral_a",     "mixtral_b",
                                        "qwen2moe_a",  "qwen2moe_b", "glm4moe_b_f32", "dots1_a",
                                        "dots1_b_f32", "ernie4_5_a", "minimax_m2_a"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char path[300];
        snprintf(path, sizeof path, DATA "/arch/%s.gguf", names[i]);
        same_model(path, false, i % 2 != 0);
        hf_unmake(dir);
        ck_assert_int_eq(mkdir(dir, 0700), 0);
    }
}
END_TEST

START_TEST(real_model)
{
    same_model(DATA "/tiny-books-moe-f16.gguf", true, true);
}
END_TEST

/* ---- FP8 ---- */

/* The value of E4M3, by its definition. */
static double e4m3(unsigned x)
{
    double sign = x & 128 ? -1 : 1, fraction = x & 7;
    int exponent = (int)(x >> 3 & 15);
    return sign *
           (exponent ? (1 + fraction / 8) * pow(2, exponent - 7) : fraction / 8 * pow(2, -6));
}

/* Every value of E4M3, in blocks of 3 rows and 40 columns with different scales. */
START_TEST(fp8_weights)
{
    enum { ROWS = 5, COLUMNS = 96 };
    static const float scales[2 * 3] = {1, 0.5f, 3, 0.0078125f, 1.5f, 100};
    uint8_t src[ROWS * COLUMNS], q8[ROWS * COLUMNS / 32 * 34];
    uint16_t bf16[ROWS * COLUMNS];
    struct error error;
    struct hf_tensor t = {.form = HF_FP8,
                          .made_type = TENSOR_BF16,
                          .made_row_bytes = 2 * COLUMNS,
                          .rows = ROWS,
                          .columns = COLUMNS,
                          .block_rows = 3,
                          .block_columns = 40};
    for (unsigned i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)((i & 127) == 127 ? 0 : i);
    ck_assert_int_eq(hf_fp8_rows(&t, src, scales, 0, 2, bf16, &error), 0);
    ck_assert_int_eq(
        hf_fp8_rows(&t, src + 2 * COLUMNS, scales, 2, ROWS - 2, bf16 + 2 * COLUMNS, &error), 0);
    t.made_type = TENSOR_Q8_0;
    t.made_row_bytes = COLUMNS / 32 * 34;
    ck_assert_int_eq(hf_fp8_rows(&t, src, scales, 0, ROWS, q8, &error), 0);
    for (unsigned i = 0; i < sizeof src; i++) {
        double want = e4m3(src[i]) * (double)scales[i / COLUMNS / 3 * 3 + i % COLUMNS / 40];
        uint32_t bits = (uint32_t)bf16[i] << 16;
        uint16_t half;
        float got;
        memcpy(&got, &bits, 4);
        ck_assert_double_eq_tol((double)got, want, fabs(want) / 256 + 1e-12);
        memcpy(&half, q8 + i / 32 * 34, 2);
        double d = (double)f16_to_f32(half);
        ck_assert_double_eq_tol(d * (int8_t)q8[i / 32 * 34 + 2 + i % 32], want,
                                0.51 * d + fabs(want) / 1000 + 1e-12);
    }
    src[7] = 0xff;
    ck_assert_int_eq(hf_fp8_rows(&t, src, scales, 0, ROWS, q8, &error), -1);
    ck_assert_msg(strstr(error.text, "not finite"), "%s", error.text);
}
END_TEST

/* What becomes infinite only in the type that is made, too; tiny scales make zeros. */
START_TEST(fp8_scales)
{
    static const struct {
        float scale;
        int bf16, q8;
    } rows[] = {{1, 0, 0},         {NAN, -1, -1},   {INFINITY, -1, -1}, {-INFINITY, -1, -1},
                {FLT_MAX, -1, -1}, {1e37f, -1, -1}, {7e35f, 0, -1},     {-1e6f, 0, -1},
                {1.8e4f, 0, 0},    {1e-40f, 0, 0},  {1e-45f, 0, 0},     {0, 0, 0}};
    uint8_t src[32], made[64], zeros[64] = {0};
    struct hf_tensor t = {
        .form = HF_FP8, .rows = 1, .columns = 32, .block_rows = 1, .block_columns = 32};
    memset(src, 0x7e, sizeof src); /* 448, the largest */
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct error error;
        t.made_type = TENSOR_BF16;
        t.made_row_bytes = 64;
        ck_assert_msg(hf_fp8_rows(&t, src, &rows[i].scale, 0, 1, made, &error) == rows[i].bf16,
                      "row %zu: BF16", i);
        t.made_type = TENSOR_Q8_0;
        t.made_row_bytes = 34;
        ck_assert_msg(hf_fp8_rows(&t, src, &rows[i].scale, 0, 1, made, &error) == rows[i].q8,
                      "row %zu: Q8_0", i);
        if (rows[i].scale < 1e-30f && rows[i].q8 == 0)
            ck_assert_msg(memcmp(made, zeros, 2) == 0, "row %zu: d is not 0", i);
    }
    static const float rounded = 3.4e38f / 448; /* finite as F32, infinite as BF16 */
    struct error error;
    t.made_type = TENSOR_BF16;
    t.made_row_bytes = 64;
    ck_assert_int_eq(hf_fp8_rows(&t, src, &rounded, 0, 1, made, &error), -1);
}
END_TEST

/* ---- rejections ---- */

#define EDIT(name, statement)                                                                      \
    static void name(json_t *config, json_t *tokenizer)                                            \
    {                                                                                              \
        (void)config;                                                                              \
        (void)tokenizer;                                                                           \
        statement;                                                                                 \
    }

EDIT(other_type, json_object_set_new(config, "model_type", json_string("gpt2")))
EDIT(no_layers, json_object_del(config, "num_hidden_layers"))
EDIT(layers_text, json_object_set_new(config, "num_hidden_layers", json_string("8")))
EDIT(layers_many, json_object_set_new(config, "num_hidden_layers", json_integer(513)))
EDIT(layers_more, json_object_set_new(config, "num_hidden_layers", json_integer(3)))
EDIT(negative, json_object_set_new(config, "hidden_size", json_integer(-1)))
EDIT(gelu, json_object_set_new(config, "hidden_act", json_string("gelu")))
EDIT(not_renormalised, json_object_set_new(config, "norm_topk_prob", json_false()))
EDIT(yarn, json_object_set_new(config, "rope_scaling", json_pack("{s:s}", "type", "yarn")))
EDIT(fp8, json_object_set_new(config, "quantization_config", json_object()))
EDIT(eps_text, json_object_set_new(config, "rms_norm_eps", json_string("small")))
EDIT(small_vocab, json_object_set_new(config, "vocab_size", json_integer(100)))
EDIT(unigram,
     json_object_set_new(json_object_get(tokenizer, "model"), "type", json_string("Unigram")))
EDIT(bytes_fall_back,
     json_object_set_new(json_object_get(tokenizer, "model"), "byte_fallback", json_true()))
EDIT(lower_case,
     json_object_set_new(tokenizer, "normalizer", json_pack("{s:s}", "type", "Lowercase")))
EDIT(whitespace,
     json_object_set_new(tokenizer, "pre_tokenizer", json_pack("{s:s}", "type", "Whitespace")))
EDIT(same_number, json_object_set_new(json_object_get(json_object_get(tokenizer, "model"), "vocab"),
                                      "zz", json_integer(0)))
EDIT(odd_merge, json_object_set_new(json_object_get(tokenizer, "model"), "merges",
                                    json_pack("[[s, s]]", "a b", "c")))
EDIT(no_model, json_object_del(tokenizer, "model"))

START_TEST(bad_models_are_rejected)
{
    static const struct {
        void (*edit)(json_t *config, json_t *tokenizer);
        const char *without, *reason;
    } cases[] = {
        {other_type, NULL, "config.json: model_type 'gpt2' is not supported (supported: qwen3_moe"},
        {no_layers, NULL, "config.json: num_hidden_layers is missing"},
        {layers_text, NULL, "config.json: num_hidden_layers is not a whole number"},
        {layers_many, NULL, "beyond what is supported"},
        {layers_more, NULL, "tensor model.layers.2.input_layernorm.weight is missing"},
        {negative, NULL, "config.json: hidden_size is not a whole number"},
        {gelu, NULL, "config.json: hidden_act is \"gelu\", which is not supported (only \"silu\")"},
        {not_renormalised, NULL, "norm_topk_prob is false, which is not supported (only true)"},
        {yarn, NULL, "rope_scaling of type 'yarn' is not supported"},
        {fp8, NULL, "quantization_config is not supported (only quant_method fp8"},
        {eps_text, NULL, "rms_norm_eps is not a number"},
        {small_vocab, NULL, "tokenizer.json: token '"},
        {unigram, NULL, "a tokenizer of type 'Unigram' is not supported"},
        {bytes_fall_back, NULL, "its normalizer and pre-tokenizer are not those of SentencePiece"},
        {lower_case, NULL, "a normalizer of type 'Lowercase' is not supported"},
        {whitespace, NULL, "its pre-tokenizer is not one of those supported"},
        {same_number, NULL, "two tokens have the number 0"},
        {odd_merge, NULL, "merge 0 is not two tokens"},
        {no_model, NULL, "a tokenizer of type '' is not supported"},
        {NULL, "model.layers.1.mlp.experts.3.up_proj.weight",
         "tensor model.layers.1.mlp.experts.3.up_proj.weight is missing"},
        {NULL, "model.norm.weight", "tensor model.norm.weight is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hf_model hf;
        struct error error = {0};
        hf_make(&(struct hf_make){.gguf = DATA "/arch/qwen3moe_a.gguf",
                                  .dir = dir,
                                  .edit = cases[i].edit,
                                  .without = cases[i].without});
        ck_assert_msg(hf_open(&hf, dir, &error) == -1, "taken: %s", cases[i].reason);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, cases[i].reason) != NULL, "'%s' instead of '%s'",
                      error.text, cases[i].reason);
        ck_assert_ptr_null(strchr(error.text, '\n'));
    }
}
END_TEST

/* ---- SentencePiece in tokenizer.json, against the reference package ---- */

static const char *const sentencepieces[] = {"spm", "spm_across"};

static json_t *load_json(const char *name)
{
    char path[300];
    json_error_t why;
    snprintf(path, sizeof path, DATA "/tokenizers/%s.json", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &why);
    ck_assert_msg(root != NULL, "%s: %s", path, why.text);
    return root;
}

static json_t *vocab_of(const json_t *tokenizer)
{
    return json_object_get(json_object_get(tokenizer, "model"), "vocab");
}

static json_t *merges_of(const json_t *tokenizer)
{
    return json_object_get(json_object_get(tokenizer, "model"), "merges");
}

/* NULL and the error: rejected. */
static struct tokenizer *tokenizer_of(const json_t *json, void **blob, struct error *error)
{
    struct gguf_writer *w = gguf_writer_new(32);
    json_t *settings =
        json_pack("{s:s, s:s, s:b}", "bos_token", "<s>", "eos_token", "</s>", "add_bos_token", 1);
    uint32_t tokens, vocab = (uint32_t)json_object_size(vocab_of(json));
    struct tokenizer *t = NULL;
    *blob = NULL;
    const struct json_limits limits = JSON_LIMITS_DEFAULT;
    char *text = json_dumps(json, 0);
    struct json_reader *r = json_reader_text_of(text, strlen(text), &limits, error);
    if (hf_tokenizer_keys(r, settings, NULL, vocab, w, error) == 0) {
        struct gguf g;
        size_t bytes;
        ck_assert_int_eq(gguf_writer_layout(w, error), 0);
        struct gguf_source source = {.read = read_header, .arg = w, .bytes = gguf_writer_bytes(w)};
        ck_assert_int_eq(gguf_open(&g, &source, error), 0);
        if (tokenizer_blob_build(&g, blob, &bytes, &tokens, error) == 0)
            t = tokenizer_open(*blob, bytes, error);
        gguf_close(&g);
    }
    json_reader_close(r);
    free(text);
    json_decref(settings);
    gguf_writer_free(w);
    return t;
}

static void compare_vector(const struct tokenizer *t, const json_t *vector)
{
    const json_t *text = json_object_get(vector, "text"), *want = json_object_get(vector, "ids");
    uint32_t *ids;
    size_t count;
    struct error error;
    ck_assert_int_eq(tokenizer_encode(t, json_string_value(text), json_string_length(text), NULL,
                                      &ids, &count, &error),
                     0);
    for (size_t i = 0; i < count && i < json_array_size(want); i++)
        ck_assert_msg(ids[i] == json_integer_value(json_array_get(want, i)),
                      "'%.60s' token %zu: %u", json_string_value(text), i, ids[i]);
    ck_assert_msg(count == json_array_size(want), "'%.60s': %zu tokens", json_string_value(text),
                  count);
    free(ids);
}

START_TEST(sentencepiece)
{
    json_t *json = load_json(sentencepieces[_i]), *all = load_json("vectors_hf"), *vector;
    json_t *vectors = json_object_get(json_array_get(all, (size_t)_i), "vectors");
    struct error error = {0};
    void *blob;
    size_t i;
    struct tokenizer *t = tokenizer_of(json, &blob, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    ck_assert_uint_eq(tokenizer_bos(t), 1);
    ck_assert_uint_eq(tokenizer_eos(t), 2);
    ck_assert_uint_ge(json_array_size(vectors), 60);
    json_array_foreach(vectors, i, vector) compare_vector(t, vector);
    tokenizer_close(t);
    free(blob);
    json_decref(all);
    json_decref(json);
}
END_TEST

static void lose_merge(json_t *tokenizer)
{
    json_array_remove(merges_of(tokenizer), 100);
}

static void part_merges(json_t *tokenizer) /* separates the merges of one token */
{
    json_t *merges = merges_of(tokenizer), *last = json_array_get(merges, 0);
    json_array_append(merges, last);
}

static void split_spaces(json_t *tokenizer)
{
    json_object_set_new(json_object_get(tokenizer, "pre_tokenizer"), "split", json_true());
}

static void no_normalizer(json_t *tokenizer)
{
    json_object_set_new(tokenizer, "normalizer", json_null());
}

static void ignore_merges(json_t *tokenizer)
{
    json_object_set_new(json_object_get(tokenizer, "model"), "ignore_merges", json_true());
}

static void lose_byte(json_t *tokenizer)
{
    json_t *vocab = vocab_of(tokenizer);
    json_object_set(vocab, "\xc3\xbf", json_object_get(vocab, "<0x41>"));
    json_object_del(vocab, "<0x41>");
}

START_TEST(bad_sentencepiece_is_rejected)
{
    static const struct {
        const char *file;
        void (*edit)(json_t *tokenizer);
        const char *reason;
    } cases[] = {
        {"spm", lose_merge, "no merge makes token 342: not a SentencePiece vocabulary"},
        {"spm", part_merges, "its merges are not those of a SentencePiece vocabulary"},
        {"spm", no_normalizer, "its normalizer and pre-tokenizer are not those of SentencePiece"},
        {"spm_across", split_spaces, "its normalizer and pre-tokenizer are not those"},
        {"spm", ignore_merges, "ignore_merges with byte_fallback is not supported"},
        {"spm", lose_byte, "the vocabulary has no token for byte 0x41"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error error = {0};
        void *blob;
        json_t *json = load_json(cases[i].file);
        cases[i].edit(json);
        ck_assert_msg(tokenizer_of(json, &blob, &error) == NULL, "taken: %s", cases[i].reason);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, cases[i].reason) != NULL, "'%s' instead of '%s'",
                      error.text, cases[i].reason);
        json_decref(json);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf");
    TCase *t = tcase_create("hf");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, architectures);
    tcase_add_test(t, real_model);
    tcase_add_test(t, fp8_weights);
    tcase_add_test(t, fp8_scales);
    tcase_add_test(t, bad_models_are_rejected);
    tcase_add_loop_test(t, sentencepiece, 0, (int)ARRAY_LEN(sentencepieces));
    tcase_add_test(t, bad_sentencepiece_is_rejected);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
