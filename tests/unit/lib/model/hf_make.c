/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a Hugging Face directory from a GGUF file. */
#include "tests/unit/lib/model/hf_make.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/tensor/tensor_type.h"

#define FILES_MAX 2

static const char *const made[] = {"config.json",       "tokenizer.json",
                                   "model.safetensors", "model.safetensors.index.json",
                                   "a.safetensors",     "b.safetensors"};

struct making {
    const struct hf_make *m;
    int fd;
    struct gguf g;
    char arch[32];
    json_t *header[FILES_MAX], *map;
    FILE *data[FILES_MAX]; /* appended after the header */
    uint64_t at[FILES_MAX];
};

static ssize_t read_fd(void *arg, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)arg, buf, n, (off_t)offset);
}

static void path_in(char out[PATH_MAX], const char *dir, const char *name)
{
    sl_assert(snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX);
}

static json_int_t number(const struct making *k, const char *key, bool *there)
{
    char full[128];
    uint64_t v = 0;
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    *there = gguf_get_uint(&k->g, full, &v, NULL) == 1;
    return (json_int_t)v;
}

/* ---- config.json ---- */

/* Fields of a family that other families name differently, before the common ones. */
static const struct {
    const char *arch, *type;
    const char *fields[10][2];
} families[] = {
    {"qwen3moe", "qwen3_moe", {{NULL}}},
    {"qwen2moe", "qwen2_moe", {{NULL}}},
    {"olmoe", "olmoe", {{NULL}}},
    {"llama", "mixtral", {{"expert_count", "num_local_experts"}}},
#define DEEPSEEK                                                                                   \
    {"expert_count", "n_routed_experts"}, {"expert_shared_count", "n_shared_experts"},             \
        {"expert_group_count", "n_group"}, {"expert_group_used_count", "topk_group"},              \
    {                                                                                              \
        "leading_dense_block_count", "first_k_dense_replace"                                       \
    }
    {"glm4moe", "glm4_moe", {DEEPSEEK}},
    {"dots1", "dots1", {DEEPSEEK}},
    {"ernie4_5-moe",
     "ernie4_5_moe",
     {{"expert_count", "moe_num_experts"},
      {"expert_shared_count", "moe_num_shared_experts"},
      {"expert_used_count", "moe_k"},
      {"leading_dense_block_count", "moe_layer_start_index"}}},
    {"minimax-m2",
     "minimax_m2",
     {{"expert_count", "num_local_experts"},
      {"expert_feed_forward_length", "intermediate_size"},
      {"rope.dimension_count", "rotary_dim"}}},
};

static const char *field_of(size_t family, const char *key, const char *otherwise)
{
    for (size_t i = 0; i < ARRAY_LEN(families[0].fields) && families[family].fields[i][0]; i++)
        if (strcmp(families[family].fields[i][0], key) == 0)
            return families[family].fields[i][1];
    return otherwise;
}

static void put_router_fields(const struct making *k, json_t *c)
{
    char key[128];
    double scale;
    bool there;
    json_int_t head = number(k, "attention.key_length", &there);
    json_int_t rotated = number(k, "rope.dimension_count", &there);
    bool sigmoid = strcmp(k->arch, "glm4moe") == 0 || strcmp(k->arch, "dots1") == 0;
    snprintf(key, sizeof key, "%s.expert_weights_scale", k->arch);
    if (gguf_get_float(&k->g, key, &scale, NULL) == 1)
        json_object_set_new(c, "routed_scaling_factor", json_real(scale));
    if (strcmp(k->arch, "llama") != 0)
        json_object_set_new(c, "norm_topk_prob",
                            json_boolean(sigmoid || strcmp(k->arch, "qwen3moe") == 0));
    if (strcmp(k->arch, "glm4moe") == 0)
        json_object_set_new(c, "partial_rotary_factor", json_real((double)rotated / (double)head));
    if (strcmp(k->arch, "ernie4_5-moe") == 0)
        json_object_set_new(c, "use_bias", json_false());
}

static json_t *make_config(const struct making *k)
{
    static const char *const fields[][2] = {
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
        {"embedding_length", "hidden_size"},
        {"feed_forward_length", "intermediate_size"},
        {"attention.head_count", "num_attention_heads"},
        {"attention.head_count_kv", "num_key_value_heads"},
        {"attention.key_length", "head_dim"},
        {"expert_used_count", "num_experts_per_tok"},
        {"expert_count", "num_experts"},
        {"expert_feed_forward_length", "moe_intermediate_size"},
        {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
        {"expert_shared_count", NULL},
        {"expert_group_count", NULL},
        {"expert_group_used_count", NULL},
        {"leading_dense_block_count", NULL},
        {"rope.dimension_count", NULL},
    };
    json_t *c = json_object();
    size_t family = 0;
    while (family < ARRAY_LEN(families) && strcmp(families[family].arch, k->arch) != 0)
        family++;
    sl_assert(family < ARRAY_LEN(families));
    json_object_set_new(c, "model_type", json_string(families[family].type));
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        bool there;
        json_int_t v = number(k, fields[i][0], &there);
        const char *field = field_of(family, fields[i][0], fields[i][1]);
        if (there && field)
            json_object_set_new(c, field, json_integer(v));
    }
    put_router_fields(k, c);
    char key[128];
    double v;
    snprintf(key, sizeof key, "%s.rope.freq_base", k->arch);
    sl_assert(gguf_get_float(&k->g, key, &v, NULL) == 1);
    json_object_set_new(c, "rope_theta", json_real(v));
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", k->arch);
    sl_assert(gguf_get_float(&k->g, key, &v, NULL) == 1);
    json_object_set_new(c, "rms_norm_eps", json_real(v));
    json_object_set_new(c, "hidden_act", json_string("silu"));
    json_object_set_new(c, "rope_scaling", json_null());
    return c;
}

/* ---- tokenizer.json ---- */

/* As published: without the + that makes quantifiers possessive. */
static json_t *published(const char *expression)
{
    char out[2000];
    size_t n = 0;
    for (const char *at = expression; *at; at++) {
        bool possessive =
            *at == '+' && at - expression > 1 && strchr("+*", at[-1]) && at[-2] != '\\';
        sl_assert(n + 1 < sizeof out);
        if (!possessive)
            out[n++] = *at;
    }
    return json_stringn(out, n);
}

static json_t *make_splitter(const struct making *k, bool *ignores_merges)
{
    const char *pre;
    size_t n;
    sl_assert(gguf_get_string(&k->g, "tokenizer.ggml.pre", &pre, &n, NULL) == 1);
    uint32_t id = pretokenizer_find(pre, n);
    *ignores_merges = pretokenizer_ignores_merges(id);
    const char *expression = pretokenizer_expression(id, 0);
    if (strcmp(expression, pretokenizer_expression(0, 0)) == 0)
        return json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex",
                         1);
    json_t *parts = json_array();
    for (unsigned i = 0;
         i < TOKENIZER_EXPRESSIONS_MAX && (expression = pretokenizer_expression(id, i)); i++)
        json_array_append_new(parts, json_pack("{s:s, s:{s:o}, s:s, s:b}", "type", "Split",
                                               "pattern", "Regex", published(expression),
                                               "behavior", "Isolated", "invert", 0));
    json_array_append_new(parts, json_pack("{s:s, s:b, s:b}", "type", "ByteLevel",
                                           "add_prefix_space", 0, "use_regex", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", parts);
}

static json_t *make_tokenizer(const struct making *k, json_t *config)
{
    struct gguf_array tokens, types, merges;
    json_t *vocab = json_object(), *added = json_array(), *lines = json_array();
    sl_assert(gguf_get_array(&k->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL) == 1);
    sl_assert(gguf_get_array(&k->g, "tokenizer.ggml.token_type", GGUF_I32, &types, NULL) == 1);
    json_object_set_new(config, "vocab_size", json_integer((json_int_t)tokens.left));
    for (json_int_t id = 0; tokens.left > 0; id++) {
        const char *text;
        size_t n;
        gguf_array_string(&tokens, &text, &n);
        int32_t type = gguf_array_i32(&types);
        char *copy = strndup(text, n);
        if (type == 1 || type == 6) /* normal, byte */
            json_object_set_new(vocab, copy, json_integer(id));
        else if (type == 3 || type == 4) /* control, user-defined; unused ones are omitted */
            json_array_append_new(added, json_pack("{s:I, s:s, s:b}", "id", id, "content", copy,
                                                   "special", type == 3));
        free(copy);
    }
    if (gguf_get_array(&k->g, "tokenizer.ggml.merges", GGUF_STRING, &merges, NULL) == 1)
        while (merges.left > 0) {
            const char *text;
            size_t n;
            gguf_array_string(&merges, &text, &n);
            const char *space = memchr(text, ' ', n);
            size_t left = (size_t)(space - text);
            /* Every other file has pairs. */
            json_array_append_new(
                lines, k->m->two_files ? json_pack("[s%, s%]", text, left, space + 1, n - left - 1)
                                       : json_stringn(text, n));
        }
    uint64_t eos;
    if (gguf_get_uint(&k->g, "tokenizer.ggml.eos_token_id", &eos, NULL) == 1)
        json_object_set_new(
            config, "eos_token_id",
            json_pack("[I, I]", (json_int_t)eos, (json_int_t)eos)); /* several: the first */
    bool ignores_merges;
    json_t *splitter = make_splitter(k, &ignores_merges);
    return json_pack("{s:o, s:o, s:{s:s, s:b, s:b, s:o, s:o}}", "added_tokens", added,
                     "pre_tokenizer", splitter, "model", "type", "BPE", "byte_fallback", 0,
                     "ignore_merges", ignores_merges, "vocab", vocab, "merges", lines);
}

/* ---- tensors ---- */

static bool named(const char *const names[][2], size_t count, const char *gguf, unsigned expert,
                  char *out)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i][0], gguf) == 0) {
            snprintf(out, 100, names[i][1], expert);
            return true;
        }
    return false;
}

static const char *hf_name(const struct making *k, const char *gguf, unsigned expert, char out[160])
{
    static const char *const rest[][2] = {
        {"attn_norm.weight", "input_layernorm.weight"},
        {"attn_q.weight", "self_attn.q_proj.weight"},
        {"attn_k.weight", "self_attn.k_proj.weight"},
        {"attn_v.weight", "self_attn.v_proj.weight"},
        {"attn_q.bias", "self_attn.q_proj.bias"},
        {"attn_k.bias", "self_attn.k_proj.bias"},
        {"attn_v.bias", "self_attn.v_proj.bias"},
        {"attn_output.weight", "self_attn.o_proj.weight"},
        {"attn_q_norm.weight", "self_attn.q_norm.weight"},
        {"attn_k_norm.weight", "self_attn.k_norm.weight"},
        {"ffn_norm.weight", "post_attention_layernorm.weight"},
        {"post_attention_norm.weight", "post_attention_layernorm.weight"},
        {"ffn_gate.weight", "mlp.gate_proj.weight"},
        {"ffn_up.weight", "mlp.up_proj.weight"},
        {"ffn_down.weight", "mlp.down_proj.weight"},
        {"ffn_gate_inp.weight", "mlp.gate.weight"},
        {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
        {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
        {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
        {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
        {"ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight"},
        {"ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight"},
        {"ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight"},
    };
    static const char *const mixtral[][2] = {
        {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
        {"ffn_gate_exps.weight", "block_sparse_moe.experts.%u.w1.weight"},
        {"ffn_up_exps.weight", "block_sparse_moe.experts.%u.w3.weight"},
        {"ffn_down_exps.weight", "block_sparse_moe.experts.%u.w2.weight"},
        {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
    };
    static const char *const shared[][2] = {
        {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
        {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
        {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
        {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    };
    bool like_mixtral = strcmp(k->arch, "llama") == 0 || strcmp(k->arch, "minimax-m2") == 0;
    bool like_qwen = strncmp(k->arch, "qwen", 4) == 0;
    unsigned layer;
    int n = 0;
    if (strcmp(gguf, "token_embd.weight") == 0)
        return strcpy(out, "model.embed_tokens.weight");
    if (strcmp(gguf, "output_norm.weight") == 0)
        return strcpy(out, "model.norm.weight");
    if (strcmp(gguf, "output.weight") == 0)
        return strcpy(out, "lm_head.weight");
    sl_assert(sscanf(gguf, "blk.%u.%n", &layer, &n) == 1 && n > 0);
    int at = snprintf(out, 160, "model.layers.%u.", layer);
    if (strcmp(k->arch, "ernie4_5-moe") == 0 && strcmp(gguf + n, "exp_probs_b.bias") == 0)
        snprintf(out + at, 160 - (size_t)at, "mlp.moe_statics.e_score_correction_bias");
    else if ((!like_mixtral || !named(mixtral, ARRAY_LEN(mixtral), gguf + n, expert, out + at)) &&
             (like_qwen || !named(shared, ARRAY_LEN(shared), gguf + n, expert, out + at)) &&
             !named(rest, ARRAY_LEN(rest), gguf + n, expert, out + at))
        sl_panic("no name for %s", gguf);
    return out;
}

/* Rows of llama's q and k in the order before conversion: pairs adjacent. */
static void part_pairs(char *data, const struct model_tensor *t, uint64_t heads)
{
    uint64_t head = t->ne[1] / heads, half = head / 2;
    char *copy = malloc(t->bytes);
    sl_assert(copy);
    memcpy(copy, data, t->bytes);
    for (uint64_t h = 0; h < heads; h++)
        for (uint64_t i = 0; i < head; i++)
            memcpy(data + (h * head + i % 2 * half + i / 2) * t->row_bytes,
                   copy + (h * head + i) * t->row_bytes, t->row_bytes);
    free(copy);
}

/* Converts to F16 without rounding (the norms and routers of the test models have no subnormals;
 * those would be detected). */
static uint16_t exact_half(float f)
{
    uint32_t x;
    memcpy(&x, &f, 4);
    int exponent = (int)(x >> 23 & 255) - 127;
    uint16_t sign = (uint16_t)(x >> 16 & 0x8000);
    uint32_t fraction = x & 0x7fffff;
    if ((x & 0x7fffffff) == 0)
        return sign;
    if (exponent < -14) { /* subnormal: the implicit bit becomes explicit */
        unsigned shift = (unsigned)(13 + (-14 - exponent));
        fraction |= 0x800000;
        sl_assert(exponent >= -24 && (fraction & ((1u << shift) - 1)) == 0);
        return (uint16_t)(sign | fraction >> shift);
    }
    sl_assert(exponent <= 15 && (fraction & 0x1fff) == 0);
    return (uint16_t)(sign | (uint32_t)(exponent + 15) << 10 | fraction >> 13);
}

static void put_tensor(struct making *k, const char *name, const struct model_tensor *t,
                       const char *data, uint64_t bytes, uint64_t rows)
{
    bool one = t->dims == 1, halve = t->type == TENSOR_F32 && k->m->half_norms;
    unsigned file = k->m->two_files && strstr(name, "down_proj") ? 1 : 0;
    if (k->m->without && strcmp(name, k->m->without) == 0)
        return;
    if (halve) {
        uint16_t *half = malloc(bytes / 2);
        for (uint64_t i = 0; i < bytes / 4; i++)
            half[i] = exact_half(((const float *)(const void *)data)[i]);
        fwrite(half, 1, bytes / 2, k->data[file]);
        free(half);
        bytes /= 2;
    } else {
        fwrite(data, 1, bytes, k->data[file]);
    }
    json_t *shape = one ? json_pack("[I]", (json_int_t)t->ne[0])
                        : json_pack("[I, I]", (json_int_t)rows, (json_int_t)t->ne[0]);
    json_object_set_new(k->header[file], name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                                  halve || t->type == TENSOR_F16 ? "F16" : "F32", "shape", shape,
                                  "data_offsets", (json_int_t)k->at[file],
                                  (json_int_t)(k->at[file] + bytes)));
    k->at[file] += bytes;
    json_object_set_new(k->map, name, json_string(file ? "b.safetensors" : "a.safetensors"));
}

static void put_tensors(struct making *k)
{
    bool there;
    uint64_t heads = (uint64_t)number(k, "attention.head_count", &there);
    uint64_t kv_heads = (uint64_t)number(k, "attention.head_count_kv", &there);
    char name[160];
    for (uint32_t i = 0; i < k->g.tensor_count; i++) {
        const struct model_tensor *t = &k->g.tensors[i];
        char *data = malloc(t->bytes);
        sl_assert(pread(k->fd, data, t->bytes, (off_t)t->file_offset) == (ssize_t)t->bytes);
        if (strcmp(k->arch, "llama") == 0 && strstr(t->name, "attn_q.weight"))
            part_pairs(data, t, heads);
        if (strcmp(k->arch, "llama") == 0 && strstr(t->name, "attn_k.weight"))
            part_pairs(data, t, kv_heads);
        uint64_t each = t->bytes / t->ne[2];
        bool joined = strstr(t->name, "ffn_gate_up_exps") != NULL;
        char gate[MODEL_NAME_BYTES], up[MODEL_NAME_BYTES];
        int blk = (int)strcspn(t->name, "f"); /* "blk.N." */
        snprintf(gate, sizeof gate, "%.*sffn_gate_exps.weight", blk, t->name);
        snprintf(up, sizeof up, "%.*sffn_up_exps.weight", blk, t->name);
        for (unsigned e = 0; e < t->ne[2] && joined; e++) {
            put_tensor(k, hf_name(k, gate, e, name), t, data + e * each, each / 2, t->ne[1] / 2);
            put_tensor(k, hf_name(k, up, e, name), t, data + e * each + each / 2, each / 2,
                       t->ne[1] / 2);
        }
        for (unsigned e = 0; e < t->ne[2] && !joined; e++)
            put_tensor(k, hf_name(k, t->name, e, name), t, data + e * each, each, t->ne[1]);
        free(data);
    }
}

static void put_safetensors(struct making *k, unsigned file, const char *name)
{
    char path[PATH_MAX], block[65536];
    path_in(path, k->m->dir, name);
    FILE *f = fopen(path, "wb");
    char *header = json_dumps(k->header[file], JSON_COMPACT);
    sl_assert(f && header);
    uint64_t length = strlen(header);
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, length, f);
    free(header);
    rewind(k->data[file]);
    for (size_t n; (n = fread(block, 1, sizeof block, k->data[file])) > 0;)
        fwrite(block, 1, n, f);
    sl_assert(fclose(f) == 0);
}

static void put_json(const struct making *k, const char *name, json_t *value)
{
    char path[PATH_MAX];
    path_in(path, k->m->dir, name);
    sl_assert(json_dump_file(value, path, 0) == 0);
}

/* The numbers that rows of n-grams are found with. */
static bool is_of_i64(const char *name)
{
    return strstr(name, ".ple_embedding.") && !strstr(name, "shard_");
}

static void put_moved_tensors(struct making *k, const json_t *file)
{
    const json_t *config = json_object_get(file, "config");
    const char *name;
    json_t *shape;
    json_object_foreach(json_object_get(file, "tensors"), name, shape)
    {
        size_t bytes;
        bool half;
        if (k->m->without && strcmp(name, k->m->without) == 0)
            continue;
        char *data = hf_make_moved(&k->g, k->fd, k->arch, config, name, shape, &bytes, &half);
        fwrite(data, 1, bytes, k->data[0]);
        free(data);
        char full[300];
        const char *from = k->m->from ? k->m->from : "";
        bool other = k->m->from && strncmp(name, from, strlen(from)) == 0;
        snprintf(full, sizeof full, "%s%s", other ? k->m->to : "",
                 name + (other ? strlen(from) : 0));
        json_object_set_new(k->header[0], full,
                            json_pack("{s:s, s:O, s:[I, I]}", "dtype",
                                      half                      ? "F16"
                                      : strstr(full, "tid2eid") ? "I32"
                                      : is_of_i64(full)         ? "I64"
                                                                : "F32",
                                      "shape", shape, "data_offsets", (json_int_t)k->at[0],
                                      (json_int_t)(k->at[0] + bytes)));
        k->at[0] += bytes;
    }
}

static void put_json_files(const struct making *k, const json_t *file)
{
    json_t *config = file ? json_incref(json_object_get(file, "config")) : make_config(k);
    json_t *tokenizer = make_tokenizer(k, config);
    if (k->m->edit)
        k->m->edit(config, tokenizer);
    put_json(k, "config.json", config);
    put_json(k, "tokenizer.json", tokenizer);
    json_decref(config);
    json_decref(tokenizer);
}

/* Not of tmpfile: in a build the directory is all that surely may be written. */
static FILE *file_without_name(const char *dir)
{
    char path[PATH_MAX];
    path_in(path, dir, "data");
    FILE *f = fopen(path, "w+b");
    sl_assert(f && unlink(path) == 0);
    return f;
}

void hf_make(const struct hf_make *m)
{
    struct making k = {.m = m, .map = json_object()};
    struct stat st;
    const char *arch;
    size_t n;
    k.fd = open(m->gguf, O_RDONLY | O_CLOEXEC);
    sl_assert(k.fd >= 0 && fstat(k.fd, &st) == 0);
    struct gguf_source source = {.read = read_fd, .arg = &k.fd, .bytes = (uint64_t)st.st_size};
    sl_assert(gguf_open(&k.g, &source, NULL) == 0);
    sl_assert(gguf_get_string(&k.g, "general.architecture", &arch, &n, NULL) == 1);
    snprintf(k.arch, sizeof k.arch, "%.*s", (int)n, arch);
    for (int i = 0; i < FILES_MAX; i++) {
        k.header[i] = json_object();
        k.data[i] = file_without_name(m->dir);
    }
    json_t *file = m->names ? json_load_file(m->names, 0, NULL) : NULL;
    sl_assert(!m->names || (file && !m->two_files));
    if (file)
        put_moved_tensors(&k, file);
    else
        put_tensors(&k);
    put_json_files(&k, file);
    json_decref(file);
    put_safetensors(&k, 0, m->two_files ? "a.safetensors" : "model.safetensors");
    if (m->two_files) {
        put_safetensors(&k, 1, "b.safetensors");
        json_t *index = json_pack("{s:O}", "weight_map", k.map);
        put_json(&k, "model.safetensors.index.json", index);
        json_decref(index);
    }
    for (int i = 0; i < FILES_MAX; i++) {
        json_decref(k.header[i]);
        fclose(k.data[i]);
    }
    json_decref(k.map);
    gguf_close(&k.g);
    close(k.fd);
}

void hf_unmake(const char *dir)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        path_in(path, dir, made[i]);
        unlink(path);
    }
    rmdir(dir);
}

size_t hf_make_ranks(char *text, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    sl_assert(size >= HF_MAKE_RANKS_BYTES);
    for (unsigned b = 0; b < 256; b++)
        n += (size_t)snprintf(text + n, size - n, "%c%c== %u\n", digits[b >> 2],
                              digits[(b & 3) << 4], b);
    return n;
}

void hf_make_nested(json_t *config, const char *outer)
{
    json_t *text = json_copy(config);
    json_object_clear(config);
    json_object_set_new(config, "model_type", json_string(outer));
    json_object_set_new(config, "text_config", text);
}

void hf_make_named_kinds(json_t *config, json_t *tokenizer)
{
    json_t *rope = json_incref(json_object_get(config, "rope_scaling"));
    (void)tokenizer;
    sl_assert(json_object_del(config, "compress_ratios") == 0 &&
              json_object_del(config, "num_hash_layers") == 0 &&
              json_object_del(config, "rope_scaling") == 0);
    json_object_set_new(rope, "rope_theta", json_real(160000));
    json_object_set_new(rope, "partial_rotary_factor", json_real(0.5));
    json_object_set_new(rope, "attention_factor", json_real(1));
    json_object_set_new(config, "rope_parameters",
                        json_pack("{s:o, s:{s:s, s:f, s:f}}", "compress", rope, "main", "rope_type",
                                  "default", "rope_theta", 1e4, "partial_rotary_factor", 0.5));
    json_object_set_new(config, "rope_theta", json_real(7e4)); /* these do not count */
    json_object_set_new(config, "compress_rope_theta", json_real(8e4));
    json_object_set_new(config, "qk_rope_head_dim", json_integer(4));
    json_object_set_new(config, "layer_types",
                        json_pack("[s, s, s]", "compressed_sparse_attention",
                                  "heavily_compressed_attention", "sliding_attention"));
    json_object_set_new(config, "compress_rates",
                        json_pack("{s:i, s:i}", "compressed_sparse_attention", 4,
                                  "heavily_compressed_attention", 128));
    json_object_set_new(config, "mlp_layer_types",
                        json_pack("[s, s, s]", "hash_moe", "moe", "moe"));
}
