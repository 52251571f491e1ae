/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of malformed file is rejected with its reason: error code and part of the text. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/model/arch/table.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

static int as_file(const void *data, size_t n)
{
    int fd = memfd_create("gguf", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, n), (ssize_t)n);
    return fd;
}

static int build(const void *data, size_t n, struct model_index **index, struct error *error)
{
    int fd = as_file(data, n);
    int status = model_index_build(fd, "FILE", index, error);
    close(fd);
    return status;
}

static void expect(const char *what, const void *data, size_t n, const char *fragment)
{
    struct model_index *index = NULL;
    struct error error = {0};
    int status = build(data, n, &index, &error);
    ck_assert_msg(status == -1, "%s: accepted", what);
    ck_assert_ptr_null(index);
    ck_assert_msg(error.code == ERR_BAD_INPUT, "%s: code %s", what, error_name(error.code));
    ck_assert_msg(strstr(error.text, fragment), "%s: '%s' lacks '%s'", what, error.text, fragment);
    ck_assert_msg(strncmp(error.text, "FILE: ", 6) == 0, "%s: '%s'", what, error.text);
    ck_assert_msg(!strchr(error.text, '\n'), "%s: more than a line", what);
}

/* Edits of a valid file and the expected messages. */

#define K "qwen3moe."
#define EDIT(name, ...)                                                                            \
    static void edit_##name(struct make *m)                                                        \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define EDITS(X)                                                                                   \
    X(magic, "starts with 'GGML'", memcpy(m->magic, "GGML", 4))                                    \
    X(version0, "version 0;", m->version = 0)                                                      \
    X(version1, "version 1;", m->version = 1)                                                      \
    X(version4, "version 4;", m->version = 4)                                                      \
    X(big_endian, "big-endian", m->version = 3u << 24)                                             \
    X(keys_negative, "keys claimed", m->claim_keys = UINT64_MAX)                                   \
    X(keys_65537, "65537 keys claimed", m->claim_keys = 65537)                                     \
    X(keys_too_many, "keys claimed", m->claim_keys = 60000)                                        \
    X(tensors_negative, "tensors claimed", m->claim_tensors = UINT64_MAX)                          \
    X(tensors_million, "tensors claimed", m->claim_tensors = 1000001)                              \
    X(tensors_too_many, "tensors claimed", m->claim_tensors = 5000)                                \
    X(key_no_name, "name of 0 bytes", m->keys[3].no_name = true)                                   \
    X(key_long_name, "name of 65536 bytes", {                                                      \
        m->keys[3].name_bytes = 65536;                                                             \
        make_add_tensor(m, "pad", 0, 40000, 1, 1);                                                 \
    })                                                                                             \
    X(key_huge_name, "ends inside a key", m->keys[3].name_bytes = UINT64_MAX - 3)                  \
    X(key_twice, "key 'general.name' occurs twice", strcpy(m->keys[5].name, "general.name"))       \
    X(value_type, "unknown type 13", make_key(m, "general.name")->type = 13)                       \
    X(value_type_huge, "unknown type 4294967295", make_key(m, "general.name")->type = UINT32_MAX)  \
    X(text_huge, "ends inside a string value",                                                     \
      memset(make_key(m, "general.name")->value.data, 0xff, 8))                                    \
    X(text_2_62, "ends inside a string value", make_key(m, "general.name")->value.data[7] = 0x40)  \
    X(bool_two, "is a bool of value 2", make_bool(m, "general.flag", 2))                           \
    X(array_nested, "array of arrays", make_array_raw(m, "general.tags", GGUF_ARRAY, 1, 12))       \
    X(array_elem, "array of unknown type 13", make_array_raw(m, "general.tags", 13, 1, 12))        \
    X(array_2_63, "claims 9223372036854775808", make_array_raw(m, "a.b", GGUF_U8, 1ull << 63, 4))  \
    X(array_2_30, "claims 1073741825", make_array_raw(m, "a.b", GGUF_U8, (1ull << 30) + 1, 4))     \
    X(array_past_end, "ends inside an array",                                                      \
      make_array_raw(m, "a.b", GGUF_F64, (1ull << 30) - 1, 64))                                    \
    X(array_text_past_end, "ends inside an array of strings",                                      \
      make_array_raw(m, "a.b", GGUF_STRING, 1ull << 29, 16))                                       \
    X(alignment_0, "general.alignment is 0", make_u32(m, "general.alignment", 0))                  \
    X(alignment_3, "general.alignment is 3", make_u32(m, "general.alignment", 3))                  \
    X(alignment_4, "general.alignment is 4", make_u32(m, "general.alignment", 4))                  \
    X(alignment_48, "general.alignment is 48", make_u32(m, "general.alignment", 48))               \
    X(alignment_2_31, "alignment is 2147483648", make_u32(m, "general.alignment", 1u << 31))       \
    X(alignment_u64, "not of type U32", make_u64(m, "general.alignment", 32))                      \
    X(tensor_no_name, "name of 0 bytes", m->tensors[4].name[0] = 0)                                \
    X(tensor_long_name, "name of 64 bytes", memset(m->tensors[4].name, 'x', 64))                   \
    X(tensor_odd_name, "other than printable ASCII", m->tensors[4].name[2] = 7)                    \
    X(tensor_twice, "tensor output_norm.weight occurs twice",                                      \
      strcpy(m->tensors[4].name, "output_norm.weight"))                                            \
    X(dims_0, "has 0 dimensions", m->tensors[3].dims = 0)                                          \
    X(dims_5, "has 5 dimensions", m->tensors[3].dims = 5)                                          \
    X(dims_huge, "dimensions", m->tensors[3].dims = UINT32_MAX)                                    \
    X(ne_0, "dimension 1 of size 0", m->tensors[3].ne[1] = 0)                                      \
    X(ne_negative, "dimension 0 of size -1", m->tensors[3].ne[0] = UINT64_MAX)                     \
    X(ne_product, "more than 2^63 elements", {                                                     \
        m->tensors[3].ne[0] = 1ull << 40;                                                          \
        m->tensors[3].ne[1] = 1ull << 40;                                                          \
    })                                                                                             \
    X(ne_product_wraps, "more than 2^63 elements", {                                               \
        m->tensors[3].ne[0] = 1ull << 32;                                                          \
        m->tensors[3].ne[1] = 1ull << 32;                                                          \
    })                                                                                             \
    X(bytes_overflow, "larger than 2^63 bytes", {                                                  \
        m->tensors[3].ne[0] = 4;                                                                   \
        m->tensors[3].ne[1] = 1ull << 60;                                                          \
    })                                                                                             \
    X(row_overflow, "do not fit type F32", m->tensors[2].ne[0] = 1ull << 62)                       \
    X(type_removed, "withdrawn", m->tensors[0].type = 4)                                           \
    X(type_99, "unknown (99)", m->tensors[0].type = 99)                                            \
    X(type_block, "rows of 4 elements do not fit type Q8_0", m->tensors[0].type = TENSOR_Q8_0)     \
    X(offset_hole, "lies at", m->tensors[3].offset_slip = 32)                                      \
    X(offset_overlap, "lies at", m->tensors[3].offset_slip = -32)                                  \
    X(offset_wild, "lies at", m->tensors[3].offset_slip = INT64_MIN)                               \
    X(beyond_end, "is it complete?", {                                                             \
        make_add_tensor(m, "z", 0, 1 << 20, 1, 1);                                                 \
        m->tensors[m->tensor_count - 1].bytes = 4;                                                 \
    })                                                                                             \
    X(arch_missing, "general.architecture' is missing", make_drop_key(m, "general.architecture"))  \
    X(arch_unknown, "architecture 'mambo' is not supported (supported: ",                          \
      make_text(m, "general.architecture", "mambo"))                                               \
    X(arch_prefix, "architecture 'qwen' is not a MoE model",                                       \
      make_text(m, "general.architecture", "qwen"))                                                \
    X(arch_with_experts, "architecture 't5' is not supported yet", {                               \
        make_text(m, "general.architecture", "t5");                                                \
        make_u32(m, "t5.expert_count", 8);                                                         \
    })                                                                                             \
    X(arch_number, "is of type U32 instead of a string", make_u32(m, "general.architecture", 1))   \
    X(name_number, "is of type U32 instead of a string", make_u32(m, "general.name", 1))           \
    X(split, "split into 3 files", make_u32(m, "split.count", 3))                                  \
    X(split_type, "instead of an integer", make_f32(m, "split.count", 3))                          \
    X(layers_0, "block_count' is 0", make_u32(m, K "block_count", 0))                              \
    X(layers_513, "block_count' is 513", make_u32(m, K "block_count", 513))                        \
    X(layers_2_32, "block_count' is 4294967297", make_u64(m, K "block_count", (1ull << 32) + 1))   \
    X(layers_too_few, "beyond the last of 1 layers",                                               \
      { make_add_tensor(m, "blk.1.attn_norm.weight", 0, 4, 1, 1); })                               \
    X(layers_too_many, "tensor blk.1.attn_norm.weight is missing",                                 \
      make_u32(m, K "block_count", 2))                                                             \
    X(hidden_0, "embedding_length' is 0", make_u32(m, K "embedding_length", 0))                    \
    X(hidden_wrong, "is 4 x 262", make_u32(m, K "embedding_length", 8))                            \
    X(heads_0, "head_count' is 0", make_u32(m, K "attention.head_count", 0))                       \
    X(heads_array, "array of U32 instead of an integer",                                           \
      make_array_raw(m, K "attention.head_count", GGUF_U32, 1, 4))                                 \
    X(heads_negative, "is negative", {                                                             \
        make_u32(m, K "attention.head_count", UINT32_MAX);                                         \
        make_key(m, K "attention.head_count")->type = GGUF_I32;                                    \
    })                                                                                             \
    X(heads_odd, "not a multiple of head_count_kv", {                                              \
        make_u32(m, K "attention.head_count", 3);                                                  \
        make_u32(m, K "attention.head_count_kv", 2);                                               \
    })                                                                                             \
    X(kv_0, "head_count_kv' is 0", make_u32(m, K "attention.head_count_kv", 0))                    \
    X(head_size_odd, "head size 3 is odd", {                                                       \
        make_u32(m, K "attention.key_length", 3);                                                  \
        make_u32(m, K "attention.value_length", 3);                                                \
    })                                                                                             \
    X(head_size_none, "key_length is 1: not between", {                                            \
        make_drop_key(m, K "attention.key_length");                                                \
        make_u32(m, K "attention.head_count", 4);                                                  \
        make_drop_key(m, K "attention.value_length");                                              \
    })                                                                                             \
    X(value_length, "attn_v.weight is 4 x 2", make_u32(m, K "attention.value_length", 4))          \
    X(value_length_type, "instead of an integer", make_f32(m, K "attention.value_length", 4))      \
    X(rope_dims, "rope.dimension_count is 4", make_u32(m, K "rope.dimension_count", 4))            \
    X(rope_scaling, "scaling.type' is 'su'", make_text(m, K "rope.scaling.type", "su"))            \
    X(rope_scaling_type, "instead of a string", make_u32(m, K "rope.scaling.type", 1))             \
    X(eps_missing, "layer_norm_rms_epsilon' is missing",                                           \
      make_drop_key(m, K "attention.layer_norm_rms_epsilon"))                                      \
    X(eps_type, "instead of a float", make_u32(m, K "attention.layer_norm_rms_epsilon", 1))        \
    X(eps_nan, "layer_norm_rms_epsilon is",                                                        \
      make_f32(m, K "attention.layer_norm_rms_epsilon", NAN))                                      \
    X(eps_0, "layer_norm_rms_epsilon is 0", make_f32(m, K "attention.layer_norm_rms_epsilon", 0))  \
    X(theta_inf, "rope.freq_base is inf", make_f32(m, K "rope.freq_base", INFINITY))               \
    X(theta_negative, "rope.freq_base is -1", make_f32(m, K "rope.freq_base", -1))                 \
    X(experts_missing, "expert_count' is missing", make_drop_key(m, K "expert_count"))             \
    X(experts_4097, "expert_count' is 4097", make_u32(m, K "expert_count", 4097))                  \
    X(experts_wrong, "ffn_gate_inp.weight is", make_u32(m, K "expert_count", 4))                   \
    X(used_0, "expert_used_count' is 0", make_u32(m, K "expert_used_count", 0))                    \
    X(used_4, "expert_used_count 4 is more than expert_count 3",                                   \
      make_u32(m, K "expert_used_count", 4))                                                       \
    X(shared, "expert_shared_count' is 1; only 0", make_u32(m, K "expert_shared_count", 1))        \
    X(shared_type, "instead of an integer", make_text(m, K "expert_shared_count", "1"))            \
    X(weights_norm, "expert_weights_norm' is 0; only 1", make_bool(m, K "expert_weights_norm", 0)) \
    X(context_0, "context_length' is 0", make_u32(m, K "context_length", 0))                       \
    X(vocab_wrong, "vocab_size is 261 but", make_u32(m, K "vocab_size", 261))                      \
    X(tensor_missing, "tensor blk.0.attn_k.weight is missing",                                     \
      make_drop_tensor(m, "blk.0.attn_k.weight"))                                                  \
    X(expert_missing, "tensor blk.0.ffn_up_exps.weight is missing",                                \
      make_drop_tensor(m, "blk.0.ffn_up_exps.weight"))                                             \
    X(embedding_missing, "tensor token_embd.weight is missing",                                    \
      make_drop_tensor(m, "token_embd.weight"))                                                    \
    X(tensor_unknown, "blk.0.attn_norm.bias is not part of architecture qwen3moe",                 \
      make_add_tensor(m, "blk.0.attn_norm.bias", 0, 4, 1, 1))                                      \
    X(tensor_zeros, "blk.00.attn_q.weight is not part",                                            \
      make_add_tensor(m, "blk.00.attn_q.weight", 0, 4, 4, 1))                                      \
    X(tensor_no_number, "is not part", make_add_tensor(m, "blk..attn_q.weight", 0, 4, 4, 1))       \
    X(tensor_long_number, "is not part",                                                           \
      make_add_tensor(m, "blk.4294967296.attn_q.weight", 0, 4, 4, 1))                              \
    X(tensor_shape, "blk.0.attn_q.weight is 4 x 2 x 1 x 1; 4 x 4 x 1 expected", {                  \
        make_tensor(m, "blk.0.attn_q.weight")->ne[1] = 2;                                          \
        make_tensor(m, "blk.0.attn_q.weight")->bytes = 32;                                         \
    })                                                                                             \
    X(expert_shape, "ffn_down_exps.weight is 4 x 4 x 2", {                                         \
        make_tensor(m, "blk.0.ffn_down_exps.weight")->ne[2] = 2;                                   \
        make_tensor(m, "blk.0.ffn_down_exps.weight")->bytes = 128;                                 \
    })                                                                                             \
    X(tok_model, "tokenizer model 'bert'", make_text(m, "tokenizer.ggml.model", "bert"))           \
    X(tok_model_none, "tokenizer model ''", make_drop_key(m, "tokenizer.ggml.model"))              \
    X(tok_model_type, "instead of a string", make_u32(m, "tokenizer.ggml.model", 1))               \
    X(tok_pre, "pre-tokenizer 'odd' is not supported", make_text(m, "tokenizer.ggml.pre", "odd"))  \
    X(tok_pre_type, "instead of a string", make_u32(m, "tokenizer.ggml.pre", 1))                   \
    X(tokens_missing, "tokens is missing", make_drop_key(m, "tokenizer.ggml.tokens"))              \
    X(tokens_empty, "tokens is missing, empty",                                                    \
      make_array_raw(m, "tokenizer.ggml.tokens", GGUF_STRING, 0, 0))                               \
    X(tokens_type, "an array of U64 instead of an array of STRING",                                \
      make_array_raw(m, "tokenizer.ggml.tokens", GGUF_U64, 262, 262 * 8))                          \
    X(tokens_scalar, "is U32 instead of an array of STRING",                                       \
      make_u32(m, "tokenizer.ggml.tokens", 1))                                                     \
    X(types_few, "token_type has 261 elements for 262 tokens",                                     \
      make_array_raw(m, "tokenizer.ggml.token_type", GGUF_I32, 261, 261 * 4))                      \
    X(types_elem, "an array of U8 instead of an array of I32",                                     \
      make_array_raw(m, "tokenizer.ggml.token_type", GGUF_U8, 262, 262))                           \
    X(types_range, "is of unknown type 7",                                                         \
      make_key(m, "tokenizer.ggml.token_type")->value.data[12 + 40] = 7)                           \
    X(types_negative, "is of unknown type -1",                                                     \
      memset(make_key(m, "tokenizer.ggml.token_type")->value.data + 12 + 40, 0xff, 4))             \
    X(token_twice, "tokens 97 and 98 are the same", {                                              \
        const char *t[TINY_VOCAB];                                                                 \
        int32_t y[TINY_VOCAB];                                                                     \
        tiny_tokens(t, y);                                                                         \
        t[98] = "a";                                                                               \
        make_texts(m, "tokenizer.ggml.tokens", t, TINY_VOCAB);                                     \
    })                                                                                             \
    X(byte_missing, "no token for byte 0x62", {                                                    \
        const char *t[TINY_VOCAB];                                                                 \
        int32_t y[TINY_VOCAB];                                                                     \
        tiny_tokens(t, y);                                                                         \
        t[98] = "abc";                                                                             \
        make_texts(m, "tokenizer.ggml.tokens", t, TINY_VOCAB);                                     \
    })                                                                                             \
    X(byte_control, "no token for byte 0x00",                                                      \
      make_key(m, "tokenizer.ggml.token_type")->value.data[12] = 3)                                \
    X(eos_range, "eos_token_id' is 262 but there are only 262",                                    \
      make_u32(m, "tokenizer.ggml.eos_token_id", 262))                                             \
    X(bos_range, "bos_token_id' is 4294967295",                                                    \
      make_u32(m, "tokenizer.ggml.bos_token_id", UINT32_MAX))                                      \
    X(eot_range, "eot_token_id' is 262 but there are only 262",                                    \
      make_u32(m, "tokenizer.ggml.eot_token_id", 262))                                             \
    X(eom_range, "eom_token_id' is 4294967295 but there are only 262",                             \
      make_u32(m, "tokenizer.ggml.eom_token_id", UINT32_MAX))                                      \
    X(eom_type, "instead of an integer", make_text(m, "tokenizer.ggml.eom_token_id", "2"))         \
    X(eos_type, "instead of an integer", make_text(m, "tokenizer.ggml.eos_token_id", "2"))         \
    X(add_bos_type, "instead of a bool", make_u32(m, "tokenizer.ggml.add_bos_token", 1))           \
    X(merge_unknown, "merge 1 names a token that is not in the vocabulary: 'q w'",                 \
      make_texts(m, "tokenizer.ggml.merges", (const char *[]){"h e", "q w"}, 2))                   \
    X(merge_left, "merge 0 names a token",                                                         \
      make_texts(m, "tokenizer.ggml.merges", (const char *[]){"qqq w"}, 1))                        \
    X(merge_one, "merge 0 is not two tokens: 'hell'",                                              \
      make_texts(m, "tokenizer.ggml.merges", (const char *[]){"hell"}, 1))                         \
    X(merge_empty, "merge 0 is not two tokens",                                                    \
      make_texts(m, "tokenizer.ggml.merges", (const char *[]){""}, 1))                             \
    X(merge_no_right, "merge 0 is not two tokens",                                                 \
      make_texts(m, "tokenizer.ggml.merges", (const char *[]){"h "}, 1))                           \
    X(no_merges, "tokenizer.ggml.merges is missing, without which every text would be split",      \
      make_drop_key(m, "tokenizer.ggml.merges"))                                                   \
    X(merges_type, "an array of I32 instead of an array of STRING",                                \
      make_array_raw(m, "tokenizer.ggml.merges", GGUF_I32, 3, 12))

#define X(name, fragment, ...) EDIT(name, __VA_ARGS__)
EDITS(X)
#undef X

static const struct {
    const char *name;
    const char *fragment;
    void (*edit)(struct make *m);
} edits[] = {
#define X(name, fragment, ...) {#name, fragment, edit_##name},
    EDITS(X)
#undef X
};

START_TEST(malformed)
{
    struct make m;
    make_tiny(&m, 1, false);
    edits[_i].edit(&m);
    struct bytes file = make_write(&m);
    expect(edits[_i].name, file.data, file.size, edits[_i].fragment);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

/* Unusual but valid files. */
static void fine_v2(struct make *m)
{
    m->version = 2;
}
static void fine_alignment(struct make *m)
{
    make_u32(m, "general.alignment", 4096);
    m->alignment = 4096;
}
static void fine_sparse(struct make *m)
{
    make_drop_key(m, K "attention.key_length");
    make_drop_key(m, K "attention.value_length");
    make_drop_key(m, K "vocab_size");
    make_drop_key(m, "general.name");
    make_drop_key(m, "tokenizer.ggml.token_type");
    make_drop_key(m, "tokenizer.ggml.pre");
    make_array_raw(m, "tokenizer.ggml.merges", GGUF_STRING, 0, 0); /* a vocabulary of bytes */
    make_drop_key(m, "tokenizer.ggml.eos_token_id");
}
static void fine_wide(struct make *m)
{
    make_u64(m, K "block_count", 1);
    make_u32(m, K "expert_shared_count", 0);
    make_bool(m, K "expert_weights_norm", 1);
    make_text(m, K "rope.scaling.type", "none");
    make_u32(m, "split.count", 1);
    make_array_raw(m, "general.tags", GGUF_STRING, 0, 0);
    make_array_raw(m, "x.floats", GGUF_F64, 3, 24);
    double eps = 1e-5;
    struct bytes *v = &make_key(m, K "attention.layer_norm_rms_epsilon")->value;
    make_key(m, K "attention.layer_norm_rms_epsilon")->type = GGUF_F64;
    v->size = 0;
    bytes_add(v, &eps, sizeof eps);
}
static void fine_name(struct make *m)
{
    char name[300];
    memset(name, 'n', sizeof name);
    memcpy(name + 126, "\xc3\xa4", 2); /* truncation would split it */
    name[5] = '\n';
    name[299] = 0;
    make_text(m, "general.name", name);
}
static void (*const fine[])(struct make *) = {fine_v2, fine_alignment, fine_sparse, fine_wide,
                                              fine_name};

START_TEST(wellformed)
{
    struct make m;
    make_tiny(&m, 1, false);
    fine[_i](&m);
    struct bytes file = make_write(&m);
    struct model_index *index;
    struct error error = {0};
    ck_assert_msg(build(file.data, file.size, &index, &error) == 0, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    ck_assert_uint_eq(index->hparams.vocab, TINY_VOCAB);
    ck_assert_uint_eq(index->hparams.head_size, 2);
    ck_assert_ptr_null(strchr(index->name, '\n'));
    if (fine[_i] == fine_name)
        ck_assert_uint_eq(strlen(index->name), 126);
    free(index);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

/* A file truncated at any byte is rejected: in the header, between tensors, in the last tensor. */
START_TEST(truncated)
{
    struct make m;
    make_tiny(&m, 1, false);
    struct bytes file = make_write(&m);
    for (size_t n = 0; n < file.size; n += n < m.header_bytes ? 1 : 13)
        expect("cut", file.data, n,
               n < 24               ? "not a GGUF file"
               : n < m.header_bytes ? "" /* the first check that fails depends on the position */
                                    : "is it complete?");
    expect("one byte short", file.data, file.size - 1, "is it complete?");
    bytes_free(&file);
    make_free(&m);
}
END_TEST

/* Every type of GGUF: without a product in lib/kernels it is rejected by name; with one, so is a
 * row that is no multiple of its block, and a file that ends inside a block. */
START_TEST(every_type)
{
    const struct tensor_type_info *type = tensor_type_info((uint32_t)_i);
    if (!type)
        return;
    char other[200], block[100];
    snprintf(other, sizeof other, "is of type %s (%d), which sluice cannot compute with",
             type->name, _i);
    snprintf(block, sizeof block, "rows of %u elements do not fit type %s", 3 * 256 + 4,
             type->name);
    struct make m;
    make_tiny(&m, 1, false);
    m.tensors[0].type = type->ggml_id;
    m.tensors[0].ne[0] = 3 * 256 + 4;
    struct bytes file = make_write(&m);
    if (!type->computed || type->block_elems > 1)
        expect("row", file.data, file.size, type->computed ? block : other);
    bytes_free(&file);
    make_free(&m);
    make_tiny(&m, 1, false);
    make_add_tensor(&m, "last", type->ggml_id, 3 * 256, 2, 1);
    file = make_write(&m);
    expect("cut", file.data, file.size - 1,
           type->computed ? "the file ends inside tensor last" : other);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

/* Any bytes give a result or an error; an accepted file passes the check of the index. */
START_TEST(mutated)
{
    struct make m;
    make_tiny(&m, 1, false);
    struct bytes file = make_write(&m);
    unsigned accepted = 0;
    srand(1);
    for (int round = 0; round < 20000; round++) {
        unsigned char saved[8];
        size_t at = (size_t)rand() % (m.header_bytes - sizeof saved);
        size_t n = 1 + (size_t)rand() % sizeof saved;
        memcpy(saved, file.data + at, sizeof saved);
        for (size_t i = 0; i < n; i++)
            file.data[at + i] = round % 3 ? (unsigned char)rand() : round % 2 ? 0xff : 0;
        struct model_index *index = NULL;
        struct error error = {0};
        if (build(file.data, file.size, &index, &error) == 0) {
            ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
            accepted++;
        } else {
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
            ck_assert_str_ne(error.text, "");
        }
        free(index);
        memcpy(file.data + at, saved, sizeof saved);
    }
    ck_assert_uint_gt(accepted, 0);
    bytes_free(&file);
    make_free(&m);
}
END_TEST

START_TEST(not_a_model)
{
    unsigned char noise[4096];
    srand(2);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)rand();
    expect("empty", "", 0, "only 0 bytes");
    expect("short", "GGUF", 4, "only 4 bytes");
    expect("noise", noise, sizeof noise, "not a GGUF file");

    static const struct {
        const char *path, *fragment;
    } odd[] = {{"/", "a directory"}, {"/dev/null", "not a regular file"}};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        struct model_index *index;
        struct error error = {0};
        int fd = open(odd[i].path, O_RDONLY);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(model_index_build(fd, odd[i].path, &index, &error), -1);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, odd[i].fragment), "%s", error.text);
        close(fd);
    }
    struct model_index *index;
    struct error error = {0};
    ck_assert_int_eq(model_index_build(-1, "FILE", &index, &error), -1);
    ck_assert_int_eq(error.code, ERR_IO);
}
END_TEST

/* The end of the path, and the cause, as far as there is space: here the names of architectures
 * that run. */
START_TEST(long_path)
{
    static const char dense[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                                "\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0"
                                "\x0b\0\0\0\0\0\0\0llama-embed\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    char path[3000];
    memset(path, 'p', sizeof path);
    strcpy(path + sizeof path - 6, ".gguf");
    struct model_index *index;
    struct error error = {0};
    int fd[] = {as_file("x", 1), as_file(dense, sizeof dense)};
    ck_assert_int_eq(model_index_build(fd[0], path, &index, &error), -1);
    ck_assert_msg(strstr(error.text, "p.gguf: not a GGUF file"), "%s", error.text);
    ck_assert_int_eq(model_index_build(fd[1], path, &index, &error), -1);
    ck_assert_msg(strstr(error.text, "p.gguf: architecture 'llama-embed' is not a"), "%s",
                  error.text);
    ck_assert_msg(strstr(error.text, arch_list[0]->name), "%s", error.text);
    ck_assert_msg(strstr(error.text, " more"), "%s", error.text);
    close(fd[0]);
    close(fd[1]);
}
END_TEST

/* Sources that fail during a read. */
static ssize_t failing_read(void *arg, void *buf, size_t n, uint64_t offset)
{
    (void)buf, (void)n, (void)offset;
    int *mode = arg;
    if (*mode == 0)
        return 0; /* ends early */
    if (*mode == 1) {
        *mode = 2;
        errno = EINTR;
        return -1;
    }
    errno = EIO;
    return -1;
}

START_TEST(read_errors)
{
    static const struct model_file_id id = {.bytes = 1000};
    for (int first = 0; first < 2; first++) {
        int mode = first;
        struct gguf_source source = {.read = failing_read, .arg = &mode, .bytes = 1000};
        struct model_index *index;
        struct error error = {0};
        ck_assert_int_eq(model_index_build_source(&source, &id, &index, &error), -1);
        ck_assert_int_eq(error.code, first ? ERR_IO : ERR_GONE);
    }
    struct gguf_source absurd = {.read = failing_read, .arg = NULL, .bytes = UINT64_MAX};
    struct model_index *index;
    struct error error = {0};
    ck_assert_int_eq(model_index_build_source(&absurd, &id, &index, &error), -1);
    ck_assert_msg(strstr(error.text, "too large"), "%s", error.text);
}
END_TEST

/* A sparse file that claims string after string must not be read without end. */
static ssize_t endless_read(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *start = arg;
    memset(buf, 0, n);
    if (offset < start->size)
        memcpy(buf, start->data + offset, n < start->size - offset ? n : start->size - offset);
    return (ssize_t)n;
}

START_TEST(endless)
{
    struct bytes start = {0};
    bytes_add(&start, "GGUF\3\0\0\0", 8);
    bytes_u64(&start, 0);
    bytes_u64(&start, 1);
    bytes_text(&start, "k", 1);
    bytes_u32(&start, GGUF_ARRAY);
    bytes_u32(&start, GGUF_U64);
    bytes_u64(&start, 1u << 28);
    struct gguf_source source = {.read = endless_read, .arg = &start, .bytes = 1ull << 40};
    struct model_file_id id = {.bytes = source.bytes};
    struct model_index *index;
    struct error error = {0};
    ck_assert_int_eq(model_index_build_source(&source, &id, &index, &error), -1);
    ck_assert_msg(strstr(error.text, "header is longer than 256 MiB"), "%s", error.text);
    bytes_free(&start);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf");
    TCase *c = tcase_create("files");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, malformed, 0, (int)ARRAY_LEN(edits));
    tcase_add_loop_test(c, wellformed, 0, (int)ARRAY_LEN(fine));
    tcase_add_test(c, truncated);
    tcase_add_loop_test(c, every_type, 0, TENSOR_TYPE_GGUF_END);
    tcase_add_test(c, mutated);
    tcase_add_test(c, not_a_model);
    tcase_add_test(c, long_path);
    tcase_add_test(c, read_errors);
    tcase_add_test(c, endless);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
