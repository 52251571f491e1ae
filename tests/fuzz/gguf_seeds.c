/* SPDX-License-Identifier: Apache-2.0 */
/* Generates the seeds of the gguf, parts and tok targets, for each build: gguf_seeds DIR. Each
 * published vulnerability of other GGUF readers has a seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/fuzz/gguf_archs.h"
#include "tests/fuzz/gguf_types.h"
#include "tests/unit/lib/model/gguf_make.h"

#define K "qwen3moe."

static void whole(struct make *m)
{
    (void)m;
}
static void v2(struct make *m)
{
    m->version = 2;
}
static void sparse(struct make *m) /* without optional keys, with rare ones */
{
    make_drop_key(m, K "attention.key_length");
    make_drop_key(m, K "attention.value_length");
    make_drop_key(m, K "attention.head_count_kv");
    make_drop_key(m, K "vocab_size");
    make_drop_key(m, "tokenizer.ggml.token_type");
    make_text(m, "tokenizer.ggml.pre", "llama-bpe");
    make_text(m, K "rope.scaling.type", "none");
    make_bool(m, K "expert_weights_norm", 1);
    make_u64(m, K "expert_shared_count", 0);
    make_u32(m, "general.alignment", 64);
    m->alignment = 64;
    for (const char *const *n = (const char *const[]){"k", "v", NULL}; *n; n++) {
        char name[40];
        snprintf(name, sizeof name, "blk.0.attn_%s.weight", *n);
        make_tensor(m, name)->ne[1] = 4;
        make_tensor(m, name)->bytes = 64;
    }
}
static void odd_values(struct make *m) /* one key of each type */
{
    static const uint32_t types[][2] = {{GGUF_U8, 1},  {GGUF_I8, 1},  {GGUF_U16, 2}, {GGUF_I16, 2},
                                        {GGUF_I32, 4}, {GGUF_U64, 8}, {GGUF_I64, 8}, {GGUF_F64, 8}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        char name[40];
        snprintf(name, sizeof name, "x.%u", (unsigned)i);
        make_u64(m, name, 1);
        make_key(m, name)->type = types[i][0];
        make_key(m, name)->value.size = types[i][1];
        snprintf(name, sizeof name, "y.%u", (unsigned)i);
        make_array_raw(m, name, types[i][0], 2, types[i][1] * 2);
    }
    make_key(m, K "block_count")->type = GGUF_I32;
}
static void cve_n_kv(struct make *m) /* CVE-2024-23605 */
{
    m->claim_keys = 1ull << 62;
}
static void cve_n_tensors(struct make *m) /* CVE-2024-21836 */
{
    m->claim_tensors = 1ull << 60;
}
static void cve_ne(struct make *m) /* CVE-2024-23496, CVE-2026-33298: size of a tensor overflows */
{
    m->tensors[3].ne[0] = 1ull << 33;
    m->tensors[3].ne[1] = 1ull << 30;
}
static void cve_ne_lies(struct make *m) /* CVE-2026-7482: dimensions larger than the file */
{
    m->tensors[m->tensor_count - 1].ne[2] = 1ull << 40;
}
static void cve_string(struct make *m) /* CVE-2024-23496: length + 1 overflows */
{
    memset(make_key(m, "general.name")->value.data, 0xff, 8);
}
static void cve_array(struct make *m) /* CVE-2024-21825: count * size overflows */
{
    make_array_raw(m, "a.b", GGUF_U64, 1ull << 61, 16);
}
static void cve_array_2_63(struct make *m)
{
    make_array_raw(m, "a.b", GGUF_U8, 1ull << 63, 1);
}
static void cve_element_type(struct make *m) /* typed read of an array of another type */
{
    make_array_raw(m, "tokenizer.ggml.token_type", GGUF_U8, TINY_VOCAB, TINY_VOCAB);
}
static void cve_alignment(struct make *m)
{
    make_u32(m, "general.alignment", 1u << 31);
}
static void cve_layers(struct make *m) /* block_count beyond fixed tables */
{
    make_u32(m, K "block_count", 100000);
}
static void cve_type(struct make *m)
{
    m->tensors[2].type = 4; /* a removed type: block size 0 in other readers */
}
static void nested(struct make *m)
{
    make_array_raw(m, "a.b", GGUF_ARRAY, 2, 24);
}
static void heads_array(struct make *m)
{
    make_array_raw(m, K "attention.head_count", GGUF_U32, 2, 8);
}
static void twice(struct make *m)
{
    strcpy(m->tensors[4].name, m->tensors[3].name);
}
static void key_twice(struct make *m)
{
    strcpy(m->keys[4].name, m->keys[3].name);
}
static void split(struct make *m)
{
    make_u32(m, "split.count", 2);
}
static void unknown_arch(struct make *m)
{
    make_text(m, "general.architecture", "mamba");
}
static void offset(struct make *m)
{
    m->tensors[5].offset_slip = -32;
}
static void missing(struct make *m)
{
    make_drop_tensor(m, "blk.0.ffn_up_exps.weight");
}
static void unknown_tensor(struct make *m)
{
    make_add_tensor(m, "blk.0.attn_q.bias", 0, 4, 1, 1);
}
static void shape(struct make *m)
{
    make_tensor(m, "blk.0.attn_q.weight")->ne[1] = 2;
    make_tensor(m, "blk.0.attn_q.weight")->bytes = 32;
}
static void norm_type(struct make *m)
{
    make_tensor(m, "blk.0.attn_norm.weight")->type = TENSOR_F16;
    make_tensor(m, "blk.0.attn_norm.weight")->bytes = 8;
}
static void yarn(struct make *m)
{
    make_text(m, K "rope.scaling.type", "yarn");
}
static void merge(struct make *m)
{
    make_texts(m, "tokenizer.ggml.merges", (const char *[]){"h e", "q w"}, 2);
}
static void eos(struct make *m)
{
    make_u32(m, "tokenizer.ggml.eos_token_id", 100000);
}
static void used(struct make *m)
{
    make_u32(m, K "expert_used_count", 9);
}
static void version1(struct make *m)
{
    m->version = 1;
}

/* Errors that the seeds above do not reach. */
static void no_key_name(struct make *m)
{
    m->keys[3].no_name = true;
}
static void value_type(struct make *m)
{
    make_key(m, "general.name")->type = 13;
}
static void bool_two(struct make *m)
{
    make_bool(m, "x.flag", 2);
}
static void long_name(struct make *m)
{
    memset(m->tensors[4].name, 'x', 64);
}
static void dims(struct make *m)
{
    m->tensors[3].dims = 5;
}
static void rows(struct make *m)
{
    m->tensors[0].type = TENSOR_Q8_0;
}
static void negative(struct make *m)
{
    make_u32(m, K "attention.head_count", UINT32_MAX);
    make_key(m, K "attention.head_count")->type = GGUF_I32;
}
static void float_type(struct make *m)
{
    make_u32(m, K "rope.freq_base", 1);
}
static void eps_nan(struct make *m)
{
    make_u32(m, K "attention.layer_norm_rms_epsilon", 0x7fc00000);
    make_key(m, K "attention.layer_norm_rms_epsilon")->type = GGUF_F32;
}
static void vocab(struct make *m)
{
    make_u32(m, K "vocab_size", 261);
}
static void rope_dims(struct make *m)
{
    make_u32(m, K "rope.dimension_count", 4);
}
static void no_tokens(struct make *m)
{
    make_drop_key(m, "tokenizer.ggml.tokens");
}
static void byte_missing(struct make *m)
{
    make_key(m, "tokenizer.ggml.token_type")->value.data[12] = 3;
}
static void token_part(struct make *m) /* of the character that gguf_fuzz.c encodes */
{
    const char *texts[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    tiny_tokens(texts, types);
    texts[TINY_USER] = "\xe2";
    make_texts(m, "tokenizer.ggml.tokens", texts, TINY_VOCAB);
}
static void pre(struct make *m)
{
    make_text(m, "tokenizer.ggml.pre", "odd");
}
static void beyond_layers(struct make *m)
{
    make_add_tensor(m, "blk.1.attn_norm.weight", 0, 4, 1, 1);
}

/* The other architectures: valid, with a wrong shared expert, and with one tensor per expert. */
static void again_as(struct make *m, const char *arch)
{
    make_free(m);
    make_arch(m, arch, 1, false);
}

#define X(name, arch)                                                                              \
    static void name(struct make *m)                                                               \
    {                                                                                              \
        again_as(m, arch);                                                                         \
    }
UNCHANGED(X)
#undef X

#define X(name, arch, layers, ...)                                                                 \
    static void name(struct make *m)                                                               \
    {                                                                                              \
        make_free(m);                                                                              \
        make_arch(m, arch, layers, false);                                                         \
        __VA_ARGS__;                                                                               \
    }
CHANGED(X)
#undef X

static void glm4moe(struct make *m) /* groups, a block for drafting */
{
    make_free(m);
    make_arch(m, "glm4moe", 3, false);
    make_u32(m, "glm4moe.nextn_predict_layers", 1);
    make_u32(m, "glm4moe.expert_group_count", 3);
    make_u32(m, "glm4moe.expert_group_used_count", 2);
    make_f32(m, "glm4moe.expert_weights_scale", 2.5f);
}
static void glm4moe_groups(struct make *m)
{
    again_as(m, "glm4moe");
    make_u32(m, "glm4moe.expert_group_count", 2);
}
static void glm4moe_skipped(struct make *m)
{
    again_as(m, "glm4moe");
    make_u32(m, "glm4moe.nextn_predict_layers", 1);
}
static void dots1(struct make *m)
{
    make_free(m);
    make_arch(m, "dots1", 2, false);
}
static void dots1_dense(struct make *m)
{
    again_as(m, "dots1");
    make_u32(m, "dots1.leading_dense_block_count", 1);
}
static void dots1_other_part(struct make *m)
{
    dots1(m);
    make_add_tensor(m, "blk.1.ffn_up.weight", TENSOR_F32, 4, 8, 1);
}
static void phimoe_window(struct make *m)
{
    phimoe(m);
    make_u32(m, "phimoe.attention.sliding_window", 4);
}
static void dbrx_qkv(struct make *m)
{
    dbrx(m);
    make_tensor(m, "blk.0.attn_qkv.weight")->ne[1] = 6;
}
static void bailing(struct make *m)
{
    make_free(m);
    make_arch(m, "bailingmoe2", 2, false);
}
static void smallthinker(struct make *m)
{
    make_free(m);
    make_arch(m, "smallthinker", 5, false);
}
static void later_arch(struct make *m)
{
    make_text(m, "general.architecture", "grok");
}

static void deepseek2_old(struct make *m)
{
    again_as(m, "deepseek2");
    make_drop_key(m, "deepseek2.attention.key_length_mla");
}
static void deepseek2_sizes(struct make *m)
{
    again_as(m, "deepseek2");
    make_u32(m, "deepseek2.attention.kv_lora_rank", 1024);
}

static void gemma4(struct make *m) /* a window layer, a layer whose values are its keys */
{
    make_free(m);
    make_arch(m, "gemma4", 2, false);
    make_drop_tensor(m, "blk.0.attn_v.weight");
}
static void gemma4_window_v(struct make *m)
{
    make_free(m);
    make_arch(m, "gemma4", 2, false);
    make_drop_tensor(m, "blk.1.attn_v.weight");
}

static void qwen35moe_kinds(struct make *m)
{
    again_as(m, "qwen35moe");
    make_i32s(m, "qwen35moe.attention.recurrent_layers", (const int32_t[]){1, 0}, 2);
}
static void shared_missing(struct make *m)
{
    again_as(m, "qwen2moe");
    make_drop_tensor(m, "blk.0.ffn_gate_inp_shexp.weight");
}
static void shared_absurd(struct make *m)
{
    again_as(m, "qwen2moe");
    make_u32(m, "qwen2moe.expert_shared_feed_forward_length", 0x7fffffff);
}
static void old_experts(struct make *m)
{
    again_as(m, "llama");
    make_add_tensor(m, "blk.0.ffn_gate.0.weight", 0, 4, 4, 1);
}
static void linear_rope(struct make *m)
{
    again_as(m, "olmoe");
    make_f32(m, "olmoe.rope.scaling.factor", 4);
}

static void joined(struct make *m) /* gate and up in one tensor */
{
    again_as(m, "olmoe");
    make_drop_tensor(m, "blk.0.ffn_gate_exps.weight");
    make_drop_tensor(m, "blk.0.ffn_up_exps.weight");
    make_add_tensor(m, "blk.0.ffn_gate_up_exps.weight", TENSOR_F32, 4, 8, 3);
}

static void scales(struct make *m) /* of a dense matrix and of experts, and scales of inputs */
{
    make_add_tensor(m, "blk.0.attn_v.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(m, "blk.0.ffn_down_exps.scale", TENSOR_F32, 3, 1, 1);
    make_add_tensor(m, "blk.0.ffn_down_exps.input_scale", TENSOR_F32, 3, 1, 1);
}
static void scales_shape(struct make *m)
{
    make_add_tensor(m, "blk.0.ffn_down_exps.scale", TENSOR_F32, 1, 3, 1);
}

static void spm(struct make *m)
{
    struct spm_tokens tokens;
    spm_tokens(&tokens);
    again_as(m, "llama");
    make_spm(m, &tokens);
}
static void spm_score(struct make *m) /* NaN, and equal scores otherwise */
{
    float scores[TINY_VOCAB] = {[TINY_VOCAB - 1] = NAN};
    spm(m);
    make_scores(m, scores, TINY_VOCAB);
}

/* clang-format off */
#define SEEDS(X) \
    X(whole) X(v2) X(sparse) X(token_part) X(odd_values) X(cve_n_kv) X(cve_n_tensors) X(cve_ne) X(cve_ne_lies) \
    X(cve_string) X(cve_array) X(cve_array_2_63) X(cve_element_type) X(cve_alignment) \
    X(cve_layers) X(cve_type) X(nested) X(heads_array) X(twice) X(key_twice) X(split) \
    X(unknown_arch) X(offset) X(missing) X(unknown_tensor) X(shape) X(norm_type) X(yarn) \
    X(merge) X(eos) X(used) X(version1) X(no_key_name) X(value_type) X(bool_two) X(long_name) \
    X(dims) X(rows) X(negative) X(float_type) X(eps_nan) X(vocab) X(rope_dims) X(no_tokens) \
    X(byte_missing) X(pre) X(beyond_layers) X(shared_missing) \
    X(shared_absurd) X(old_experts) X(linear_rope) X(spm) X(spm_score) X(joined) \
    X(scales) X(scales_shape) X(glm4moe) X(glm4moe_groups) X(glm4moe_skipped) X(dots1) \
    X(dots1_dense) X(dots1_other_part) X(phimoe_window) X(dbrx_qkv) X(bailing) X(smallthinker) X(later_arch) \
    X(deepseek2_old) X(deepseek2_sizes) X(gemma4) X(gemma4_window_v) X(qwen35moe_kinds)
/* clang-format on */

static const struct {
    const char *name;
    void (*edit)(struct make *m);
} seeds[] = {
#define X(...)         ROW(__VA_ARGS__, 0)
#define ROW(name, ...) {#name, name},
    SEEDS(X) UNCHANGED(X) CHANGED(X)
#undef ROW
#undef X
};

static void save(const char *dir, const char *name, const void *data, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

static void save_texts(const char *dir)
{
    static const char *const texts[] = {
        "It's hello, hell and HE'LL: 12345 tokens.",
        "<|end|><|end|>> <tag><tag> <|en",
        " \t\r\n\n  \xc2\xa0\xe3\x80\x80 x  ",
        "\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa4 \xf0\x9f\x98 \xed\xa0\x80 \xff\xc0\x80",
        "llllllllllllllllllllhehehellhellllhe",
        "ab aab<s>b \xe2\x96\x81 a<s>  \xe2\x96",
        /* NFC: letters and marks in both orders, jamo, a singleton; characters of Unicode 15, 16 */
        "e\xcc\x81\xcc\xa3 "
        "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe2\x84\xa6\xf0\x9d\x85\x9e>\xcc\xb8"
        "\xf0\xb1\x8d\x90 \xe0\xa2\x97\xea\x9f\x8b",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        for (unsigned mode = 0; mode < 8; mode++) {
            char data[200], name[20];
            data[0] =
                (char)(mode < 4 ? mode
                                : 0x80 + mode); /* the target uses bit 7, and the rest modulo 4 */
            size_t n = strlen(texts[i]);
            memcpy(data + 1, texts[i], n);
            snprintf(name, sizeof name, "text%u-%u", (unsigned)i, mode);
            save(dir, name, data, n + 1);
        }
    }
}

/* Two files per type of GGUF: with down projections of the type, complete and cut inside the
 * last block, and with those of gate and up. unit_gguf_types checks that the complete ones are
 * accepted. */
static void save_types(const char *dir)
{
    static const struct {
        const char *name;
        uint32_t id;
    } types[] = {
#define TENSOR_TYPE(type_name, type_id, ...) {#type_name, (type_id)},
#include "lib/tensor/tensor_types.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(types) && types[i].id < TENSOR_TYPE_OWN_FIRST; i++) {
        for (int down = 0; down < 2; down++) {
            struct make m;
            char name[40];
            make_typed(&m, types[i].id, down);
            struct bytes file = make_write(&m);
            snprintf(name, sizeof name, "type_%s%s", types[i].name, down ? "" : "_gate");
            save(dir, name, file.data, file.size);
            snprintf(name, sizeof name, "type_%s_cut", types[i].name);
            if (down)
                save(dir, name, file.data, file.size - 1);
            bytes_free(&file);
            make_free(&m);
        }
    }
}

struct split_keys {
    unsigned number, count, tensors; /* 0 tensors: no key */
};

/* The first or second half of the tensors, and of the keys all or only those of a split. */
static struct bytes part(bool first, const struct split_keys *keys)
{
    struct make m;
    make_tiny(&m, 1, false);
    size_t all = m.tensor_count, half = all / 2;
    m.tensor_count = first ? half : all - half;
    if (!first) {
        memmove(m.tensors, m.tensors + half, m.tensor_count * sizeof *m.tensors);
        while (m.key_count > 0)
            make_drop_key(&m, m.keys[0].name);
    }
    make_u32(&m, "split.no", keys->number);
    make_u32(&m, "split.count", keys->count);
    if (keys->tensors > 0)
        make_u32(&m, "split.tensors.count", keys->tensors);
    struct bytes file = make_write(&m);
    make_free(&m);
    return file;
}

/* Two files, after the size of the first (parts_fuzz.c). */
static void save_parts(const char *dir)
{
    struct make m;
    make_tiny(&m, 1, false);
    unsigned all = (unsigned)m.tensor_count;
    make_free(&m);
    const struct {
        const char *name;
        struct split_keys first, second;
    } pairs[] = {
        {"valid", {0, 2, all}, {1, 2, all}},
        {"not_first", {1, 2, all}, {1, 2, all}},
        {"not_second", {0, 2, all}, {0, 2, all}},
        {"of_three", {0, 2, all}, {1, 3, all}},
        {"other_model", {0, 2, all}, {1, 2, all + 1}},
        {"no_key", {0, 2, all}, {1, 2, 0}},
        {"lacks_tensor", {0, 2, all + 1}, {1, 2, all + 1}},
        {"many", {0, 17, all}, {1, 17, all}},
        {"not_split", {0, 1, all}, {1, 2, all}},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct bytes first = part(true, &pairs[i].first), second = part(false, &pairs[i].second);
        struct bytes both = {0};
        bytes_u32(&both, (uint32_t)first.size);
        bytes_add(&both, first.data, first.size);
        bytes_add(&both, second.data, second.size);
        save(dir, pairs[i].name, both.data, both.size);
        if (i == 0)
            save(dir, "cut", both.data, both.size - 100);
        bytes_free(&first);
        bytes_free(&second);
        bytes_free(&both);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_seeds DIR\n");
        return 2;
    }
    char gguf[4000], tok[4000], parts[4000];
    snprintf(gguf, sizeof gguf, "%s/gguf", argv[1]);
    snprintf(tok, sizeof tok, "%s/tok", argv[1]);
    snprintf(parts, sizeof parts, "%s/parts", argv[1]);
    mkdir(gguf, 0777);
    mkdir(tok, 0777);
    mkdir(parts, 0777);
    for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
        struct make m;
        make_tiny(&m, 1, false);
        seeds[i].edit(&m);
        struct bytes file = make_write(&m);
        save(gguf, seeds[i].name, file.data, file.size);
        if (i == 0) {
            save(gguf, "cut_header", file.data, m.header_bytes / 2);
            save(gguf, "cut_data", file.data, file.size - 100);
        }
        bytes_free(&file);
        make_free(&m);
    }
    save_types(gguf);
    save(gguf, "empty", "", 0);
    save(gguf, "magic", "GGUF", 4);
    save_texts(tok);
    save_parts(parts);
    return EXIT_SUCCESS;
}
