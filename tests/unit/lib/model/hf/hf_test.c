/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face directories against the GGUF files of the same models: names, tensor transformations
 * and keys of every architecture. */
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
    uint64_t bytes;
    struct gguf g;
};

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

static void open_file(struct file *f, const char *path)
{
    struct stat st;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert(f->fd >= 0 && fstat(f->fd, &st) == 0);
    f->bytes = (uint64_t)st.st_size;
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

static void *bytes_at(const struct hf_model *hf, const char *in, struct hf_extent at)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", in, hf->files.files[at.file].name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *data = malloc(at.bytes + 1);
    ck_assert_int_eq(pread(fd, data, at.bytes, (off_t)at.offset), (ssize_t)at.bytes);
    close(fd);
    return data;
}

/* A plane of a tensor, made `step` rows at a time. */
static void *make_plane(const struct hf_model *hf, const char *in, uint32_t t, uint32_t plane,
                        uint64_t step)
{
    const struct hf_tensor *h = &hf->tensors[t];
    struct error error = {0};
    char *made = malloc(h->rows * h->made_row_bytes);
    void *scales = bytes_at(hf, in, hf_scales_of(hf, t, plane));
    for (uint64_t row = 0; row < h->rows; row += step) {
        uint64_t n = h->rows - row < step ? h->rows - row : step;
        struct hf_part part = {0};
        if (h->form != HF_MADE)
            part = hf_part_of(hf, t, plane, row, n);
        void *src = bytes_at(hf, in, part.at);
        ck_assert_msg(hf_make_rows(hf, t, plane, &part, src, scales, row, n,
                                   made + row * h->made_row_bytes, &error) == 0,
                      "%s", error.text);
        free(src);
    }
    free(scales);
    return made;
}

/* Tensor i of the directory, after its transformation, has the same bytes as in the file. */
static void compare_tensor(const struct hf_model *hf, uint32_t i, const struct file *f,
                           const struct model_tensor *t)
{
    const struct hf_tensor *h = &hf->tensors[i];
    char *expected = malloc(t->bytes);
    uint64_t each = h->rows * h->made_row_bytes;
    ck_assert_int_eq(pread(f->fd, expected, t->bytes, (off_t)t->file_offset), (ssize_t)t->bytes);
    ck_assert_uint_eq(each * h->planes, t->bytes);
    for (uint32_t plane = 0; plane < h->planes; plane++)
        for (uint64_t step = 3; step <= 100; step += 97) {
            char *made = make_plane(hf, dir, i, plane, step);
            const char *want = expected + plane * each;
            if (h->value == HF_VALUE_SAME)
                ck_assert_msg(memcmp(made, want, each) == 0, "%s", t->name);
            for (uint64_t at = 0; h->value != HF_VALUE_SAME && at < each; at += 4)
                ck_assert_float_eq_tol(load_f32(made + at), load_f32(want + at),
                                       1e-6f * fabsf(load_f32(want + at)) + 1e-7f);
            free(made);
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
        .read = gguf_writer_read, .arg = hf.gguf, .bytes = gguf_writer_bytes(hf.gguf)};
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

/* A tensor of gate and up in the file: rows of the one, then of the other, which are two here. */
static void compare_joined(const struct hf_model *hf, const struct gguf *g, const struct file *f,
                           const struct model_tensor *t)
{
    static const char *const parts[] = {"gate", "up"};
    uint64_t half = t->bytes / t->ne[2] / 2;
    char *expected = malloc(t->bytes), name[MODEL_NAME_BYTES];
    ck_assert_int_eq(pread(f->fd, expected, t->bytes, (off_t)t->file_offset), (ssize_t)t->bytes);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t number;
        snprintf(name, sizeof name, "%.*sffn_%s_exps.weight", (int)strcspn(t->name, "f"), t->name,
                 parts[i]);
        ck_assert_msg(find(g, name, &number) != NULL, "%s", name);
        for (uint32_t plane = 0; plane < t->ne[2]; plane++) {
            char *made = make_plane(hf, dir, number, plane, 7);
            ck_assert_msg(memcmp(made, expected + (2 * plane + i) * half, half) == 0, "%s", name);
            free(made);
        }
    }
    free(expected);
}

/* The same hyper-parameters, but for how a file states which layers are recurrent and for blocks
 * that are not used; the same tensors, but for those. */
static void same_moved(const char *name, const struct hf_make *how)
{
    struct hf_model hf;
    struct error error;
    struct file f;
    struct gguf g;
    struct model_index *index[2];
    struct model_file_id id = {0};
    char path[300], names[300];
    /* Files of llama.cpp's converter have a variant after the architecture. */
    snprintf(path, sizeof path, DATA "/%s/%s.gguf", strchr(name, '-') ? "converted" : "arch", name);
    snprintf(names, sizeof names, DATA "/hf/%s.json", name);
    hf_make(&(struct hf_make){.gguf = path,
                              .dir = dir,
                              .names = names,
                              .from = how->from,
                              .to = how->to,
                              .edit = how->edit});
    ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s: %s", name, error.text);
    open_file(&f, path);
    struct gguf_source source = {
        .read = gguf_writer_read, .arg = hf.gguf, .bytes = gguf_writer_bytes(hf.gguf)};
    struct gguf_source file = {.read = read_fd, .arg = &f.fd, .bytes = f.bytes};
    ck_assert_msg(gguf_open(&g, &source, &error) == 0, "%s: %s", name, error.text);
    ck_assert_msg(model_index_build_source(&source, &id, &index[0], &error) == 0, "%s: %s", name,
                  error.text);
    ck_assert_int_eq(model_index_build_source(&file, &id, &index[1], &error), 0);
    for (int i = 0; i < 2; i++)
        index[i]->hparams.skipped_layers = index[i]->hparams.attention_step = 0;
    /* The converter writes 2^20, and a number of rotated elements where nothing rotates. */
    if (strcmp(name, "granitehybrid-base") == 0 || strncmp(name, "nemotron", 8) == 0)
        index[1]->hparams.context = index[0]->hparams.context;
    if (strncmp(name, "nemotron", 8) == 0)
        index[1]->hparams.rope_dims = index[0]->hparams.rope_dims;
    const uint8_t *a = (const void *)&index[0]->hparams, *b = (const void *)&index[1]->hparams;
    for (size_t i = 0; i < sizeof index[0]->hparams; i++)
        ck_assert_msg(a[i] == b[i], "%s: hyper-parameters differ at byte %zu", name, i);
    uint64_t eos[2];
    ck_assert_int_eq(gguf_get_uint(&f.g, "tokenizer.ggml.eos_token_id", &eos[0], NULL), 1);
    ck_assert_int_eq(gguf_get_uint(&g, "tokenizer.ggml.eos_token_id", &eos[1], NULL), 1);
    ck_assert_uint_eq(eos[0], eos[1]);
    uint32_t compared = 0;
    for (uint32_t i = 0; i < f.g.tensor_count; i++) {
        const struct model_tensor *t = &f.g.tensors[i];
        uint32_t number, layer;
        bool after = sscanf(t->name, "blk.%u.", &layer) == 1 && layer >= index[0]->hparams.layers;
        if (after)
            continue;
        if (strstr(t->name, "ffn_gate_up_exps")) {
            compare_joined(&hf, &g, &f, t);
            compared += 2;
            continue;
        }
        const struct model_tensor *made = find(&g, t->name, &number);
        /* the converter has a dimension of 1 between taps and channels of some convolutions */
        bool flat = made && t->ne[1] == 1 && made->ne[0] == t->ne[0] && made->ne[1] == t->ne[2];
        ck_assert_msg(made && (flat || memcmp(made->ne, t->ne, sizeof t->ne) == 0), "%s: %s", name,
                      t->name);
        if (made->type == t->type) /* else a gate, or a router: F32 here, F16 there */
            compare_tensor(&hf, number, &f, t);
        else
            ck_assert_msg(
                strstr(t->name, "ffn_gate_inp_shexp") ||
                    (strcmp(name, "deepseek4-base") == 0 && strstr(t->name, "ffn_gate_inp.")),
                "%s", t->name);
        compared++;
    }
    ck_assert_uint_eq(compared, g.tensor_count);
    free(index[0]);
    free(index[1]);
    gguf_close(&g);
    gguf_close(&f.g);
    close(f.fd);
    hf_close(&hf);
}

/* Checkpoints whose tensors are split, turned, stacked and ordered. */
static const char *const moved_models[] = {
#define MOVED(name) name,
#include "tests/unit/lib/model/hf/moved.tbl.h"
};

/* Every way to make a token of two others. */
static json_t *merges_of(json_t *vocab)
{
    json_t *merges = json_array(), *id;
    const char *text;
    json_object_foreach(vocab, text, id)
    {
        for (size_t at = 1; text[0] && text[at]; at++) {
            bool first = ((unsigned char)text[at] & 0xc0) != 0x80; /* of a character */
            json_t *left = json_stringn_nocheck(text, at);
            if (first && json_object_get(vocab, json_string_value(left)) &&
                json_object_get(vocab, text + at))
                json_array_append_new(merges,
                                      json_sprintf("%s %s", json_string_value(left), text + at));
            json_decref(left);
        }
    }
    return merges;
}

/* The vocabulary of the file is one of SentencePiece. */
static void of_sentencepiece(json_t *config, json_t *tokenizer)
{
    json_t *model = json_object_get(tokenizer, "model");
    (void)config;
    json_object_set_new(model, "merges", merges_of(json_object_get(model, "vocab")));
    json_object_del(tokenizer, "pre_tokenizer");
    json_object_set_new(tokenizer, "normalizer",
                        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String",
                                  " ", "content", "\u2581"));
    json_object_set_new(model, "byte_fallback", json_true());
}

/* Its text model has the type of Kimi-Linear. */
static void in_kimi_k3(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    hf_make_nested(config, "kimi_k3");
}

START_TEST(moved)
{
    static const struct {
        const char *name;
        struct hf_make how;
    } as_published[] = {
        {"jamba-base", {.edit = of_sentencepiece}},
        {"kimi-k3-base", {.edit = in_kimi_k3, .from = "", .to = "language_model."}}};
    struct hf_make how = {0};
    for (size_t i = 0; i < ARRAY_LEN(as_published); i++)
        if (strcmp(moved_models[_i], as_published[i].name) == 0)
            how = as_published[i].how;
    same_moved(moved_models[_i], &how);
}
END_TEST

static void without_types(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    ck_assert_int_eq(json_object_del(config, "layer_types"), 0);
}

/* As published, the kinds of the layers follow from their number. */
START_TEST(kinds_by_group)
{
    same_moved("bailingmoe3-base", &(struct hf_make){.edit = without_types});
}
END_TEST

START_TEST(kinds_by_name)
{
    same_moved("deepseek4-base", &(struct hf_make){.edit = hf_make_named_kinds});
}
END_TEST

/* ---- groups of experts of DeepSeek-V2 ---- */

static void set_groups(json_t *config, const char *method)
{
    json_object_set_new(config, "topk_method", json_string(method));
    json_object_set_new(config, "n_group", json_integer(4));
    json_object_set_new(config, "topk_group", json_integer(2));
}

static void limited(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    set_groups(config, "group_limited_greedy");
}

static void greedy(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    set_groups(config, "greedy");
}

/* Only the larger models limit the choice to groups, whatever the other fields are. */
START_TEST(groups_of_experts)
{
    static const struct {
        void (*edit)(json_t *config, json_t *tokenizer);
        uint32_t groups, used;
    } rows[] = {{NULL, 0, 0}, {limited, 4, 2}, {greedy, 0, 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct hf_model hf;
        struct error error;
        struct model_index *index;
        struct model_file_id id = {0};
        hf_make(&(struct hf_make){.gguf = DATA "/arch/deepseek_v2.gguf",
                                  .dir = dir,
                                  .names = DATA "/hf/deepseek_v2.json",
                                  .edit = rows[i].edit});
        ck_assert_msg(hf_open(&hf, dir, &error) == 0, "%s", error.text);
        struct gguf_source source = {
            .read = gguf_writer_read, .arg = hf.gguf, .bytes = gguf_writer_bytes(hf.gguf)};
        ck_assert_msg(model_index_build_source(&source, &id, &index, &error) == 0, "%s",
                      error.text);
        ck_assert_uint_eq(index->hparams.groups, rows[i].groups);
        ck_assert_uint_eq(index->hparams.groups_used, rows[i].used);
        free(index);
        hf_close(&hf);
    }
}
END_TEST

static void nest(json_t *config, json_t *tokenizer)
{
    (void)tokenizer;
    hf_make_nested(config, "outer");
}

START_TEST(text_model_of_another)
{
    static const struct {
        const char *model, *from, *to;
    } cases[] = {{"qwen35moe_a", NULL, NULL},
                 {"qwen35moe_a", "model.", "model.language_model."},
                 {"gemma4_a", "model.", "model.language_model."},
                 {"oss_a", "", "language_model."},
                 {"dbrx_a", "", "language_model."}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        same_moved(cases[i].model,
                   &(struct hf_make){.from = cases[i].from, .to = cases[i].to, .edit = nest});
        hf_unmake(dir);
        ck_assert_int_eq(mkdir(dir, 0700), 0);
    }
}
END_TEST

START_TEST(architectures)
{
    static const char *const names[] = {
        "olmoe_a",       "olmoe_b", "mixtral_a",   "mixtral_b",  "qwen2moe_a",     "qwen2moe_b",
        "glm4moe_b_f32", "dots1_a", "dots1_b_f32", "ernie4_5_a", "ernie4_5_b_f32", "minimax_m2_a"};
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
    same_model(SLUICE_F16_MODEL, true, true);
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
                          .source_columns = COLUMNS,
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
        .form = HF_FP8, .source_columns = 32, .block_rows = 1, .block_columns = 32};
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

int main(void)
{
    Suite *suite = suite_create("hf");
    TCase *t = tcase_create("hf");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, moved, 0, (int)ARRAY_LEN(moved_models));
    tcase_add_test(t, text_model_of_another);
    tcase_add_test(t, kinds_by_group);
    tcase_add_test(t, kinds_by_name);
    tcase_add_test(t, groups_of_experts);
    tcase_add_test(t, architectures);
    tcase_add_test(t, real_model);
    tcase_add_test(t, fp8_weights);
    tcase_add_test(t, fp8_scales);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
