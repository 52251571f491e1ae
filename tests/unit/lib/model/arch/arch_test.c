/* SPDX-License-Identifier: Apache-2.0 */
/* Every architecture of arch.tbl.h: a valid file is read correctly, and a file with one error is
 * rejected with the reason. Checks common to all architectures are in gguf_test.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/table.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/model_index.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

struct memory {
    const unsigned char *data;
    size_t size;
};

static ssize_t read_memory(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct memory *m = arg;
    if (offset >= m->size)
        return 0;
    n = n < m->size - offset ? n : m->size - (size_t)offset;
    memcpy(buf, m->data + offset, n);
    return (ssize_t)n;
}

/* Writes the file and reads it; NULL sets the error. */
static struct model_index *index_of(struct make *m, struct error *error)
{
    struct bytes file = make_write(m);
    struct memory memory = {file.data, file.size};
    struct gguf_source source = {.read = read_memory, .arg = &memory, .bytes = file.size};
    struct model_file_id id = {.bytes = file.size};
    struct model_index *index = NULL;
    int status = model_index_build_source(&source, &id, &index, error);
    ck_assert(status == (index ? 0 : -1));
    bytes_free(&file);
    make_free(m);
    return index;
}

static const struct {
    const char *arch;
    uint32_t norm_top_k, qk_norm, rope_kind, shared_inner; /* of a mixed file: hidden size 32 */
    uint32_t dense_per_layer, dense_global;
    uint32_t dense_first; /* of a first layer without experts; 0: it has experts */
} archs[] = {
    {"qwen3moe", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 9, 3, 0},
    {"olmoe", 0, QK_NORM_ROW, ROPE_HALVES, 0, 9, 3, 0},
    {"qwen2moe", 0, QK_NORM_NONE, ROPE_HALVES, 64, 14, 3, 0},
    {"llama", 1, QK_NORM_NONE, ROPE_PAIRS, 0, 7, 4, 0},
    {"glm4moe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 16, 3, 14},
    {"dots1", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 11},
    {"ernie4_5-moe", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 11, 3, 9},
    {"minimax-m2", 1, QK_NORM_ROW, ROPE_HALVES, 0, 10, 3, 0},
    {"granitemoe", 0, QK_NORM_NONE, ROPE_PAIRS, 0, 7, 3, 0},
    {"hunyuan-moe", 1, QK_NORM_HEAD_AFTER, ROPE_HALVES, 32, 12, 3, 0},
    {"phimoe", 0, QK_NORM_NONE, ROPE_HALVES, 0, 13, 5, 0},
    {"dbrx", 1, QK_NORM_NONE, ROPE_HALVES, 0, 5, 3, 0},
    {"bailingmoe2", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 11, 3, 9},
    {"smallthinker", 1, QK_NORM_NONE, ROPE_HALVES, 0, 7, 3, 0},
    {"gpt-oss", 0, QK_NORM_NONE, ROPE_HALVES, 0, 16, 3, 0},
    {"deepseek2", 1, QK_NORM_NONE, ROPE_PAIRS, 32, 15, 3, 13},
    {"qwen35moe", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 0},
    {"qwen3next", 1, QK_NORM_HEAD, ROPE_HALVES, 32, 13, 3, 0},
    {"lfm2moe", 1, QK_NORM_HEAD, ROPE_HALVES, 0, 10, 3, 8},
};

/* Dense tensors of a first layer that is recurrent and has experts; the others: as every layer. */
static uint32_t dense_of_first(const char *arch, uint32_t every)
{
    return strcmp(arch, "qwen35moe") == 0 ? 16 : strcmp(arch, "qwen3next") == 0 ? 15 : every;
}

_Static_assert(ARRAY_LEN(archs) == ARCH__COUNT, "a row for every architecture of arch.tbl.h");

START_TEST(contents)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, archs[_i].arch, 2, true);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    const struct model_hparams *h = &index->hparams;
    ck_assert_str_eq(index->arch, archs[_i].arch);
    ck_assert_uint_eq(h->layers, 2);
    ck_assert_uint_eq(h->expert_inner, 32);
    ck_assert_uint_eq(h->norm_top_k, archs[_i].norm_top_k);
    ck_assert_uint_eq(h->qk_norm, archs[_i].qk_norm);
    ck_assert_uint_eq(h->rope_kind, archs[_i].rope_kind);
    ck_assert_uint_eq(h->shared_inner, archs[_i].shared_inner);
    uint32_t every = archs[_i].dense_per_layer, first = archs[_i].dense_first;
    uint32_t other = dense_of_first(archs[_i].arch, every);
    ck_assert_uint_eq(index->dense_count, every + (first ? first : other) + archs[_i].dense_global);
    ck_assert_uint_eq(index->expert_entry_count, 6);
    ck_assert_uint_eq(index->absent_count, first ? 3 : 0);
    ck_assert_uint_eq(model_layer_has_experts(index, 0), first == 0);
    ck_assert_uint_eq(model_entry_expert(index, 0, 2) == ENTRY_NONE, first != 0);
    ck_assert(model_layer_has_experts(index, 1));
    ck_assert_uint_ne(model_entry_expert(index, 1, 2), ENTRY_NONE);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
}
END_TEST

/* Every tensor of a file with a longer row, and a file without it, unless it is optional. */
START_TEST(every_tensor)
{
    struct make m;
    make_arch(&m, archs[_i].arch, 2, false);
    size_t count = m.tensor_count;
    make_free(&m);
    for (size_t i = 0; i < count; i++) {
        struct error error = {0};
        make_arch(&m, archs[_i].arch, 2, false);
        struct make_tensor *t = &m.tensors[i];
        t->ne[0] += 4;
        t->bytes = t->ne[0] * t->ne[1] * t->ne[2] * 4;
        ck_assert_ptr_null(index_of(&m, &error));
        ck_assert_msg(strstr(error.text, "expected"), "%s", error.text);
        make_arch(&m, archs[_i].arch, 2, false);
        char name[64];
        snprintf(name, sizeof name, "%s", m.tensors[i].name);
        make_drop_tensor(&m, name);
        struct model_index *index = index_of(&m, &error);
        bool optional =
            strcmp(name, "rope_freqs.weight") == 0 || strcmp(name, "output.bias") == 0 ||
            (strstr(name, "attn_") && strstr(name, ".bias")) || strstr(name, "exp_probs_b") ||
            strstr(name, "attn_q_norm") || strstr(name, "attn_k_norm");
        ck_assert_msg(index ? optional : strstr(error.text, "is missing") != NULL, "%s: %s", name,
                      error.text);
        free(index);
    }
}
END_TEST

/* A blob whose parameters contradict its architecture. */
START_TEST(forged_parameters)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, archs[_i].arch, 1, true);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    uint32_t *const fields[] = {&index->hparams.norm_top_k, &index->hparams.qk_norm,
                                &index->hparams.rope_kind, &index->hparams.shared_inner,
                                &index->hparams.reserved[3]};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        uint32_t right = *fields[i];
        *fields[i] = right ^ 3;
        ck_assert_msg(model_index_check(index, index->bytes, &error) == -1, "field %zu", i);
        *fields[i] = right;
    }
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
}
END_TEST

static const struct {
    const char *arch, *why;
} unsupported[] = {
#define LATER(name) {name, "is not supported yet"},
#define DENSE(name) {name, "is not a MoE model"},
#include "lib/model/arch/unsupported.tbl.h"
};

/* A known architecture is named with the reason, and is none that is supported. */
START_TEST(known_but_not_supported)
{
    struct make m;
    struct error error = {0};
    char want[128];
    const char *arch = unsupported[_i].arch;
    ck_assert_int_eq(arch_find(arch, strlen(arch)), ARCH__COUNT);
    make_tiny(&m, 1, false);
    make_text(&m, "general.architecture", arch);
    ck_assert_ptr_null(index_of(&m, &error));
    snprintf(want, sizeof want, "architecture '%s' %s", arch, unsupported[_i].why);
    ck_assert_str_eq(error.text, want);
}
END_TEST

static void resize(struct make *m, const char *name, uint64_t ne0, uint64_t ne1)
{
    struct make_tensor *t = make_tensor(m, name);
    ck_assert_ptr_nonnull(t);
    t->ne[0] = ne0;
    t->ne[1] = ne1;
    t->dims = ne1 > 1 ? 2 : 1;
    t->bytes = ne0 * ne1 * 4;
}

#define B   "blk.0."
#define MLA "deepseek2.attention."

/* Merges gate and up of a file with hidden and inner size 4 into one tensor. */
static void join(struct make *m)
{
    make_drop_tensor(m, B "ffn_gate_exps.weight");
    make_drop_tensor(m, B "ffn_up_exps.weight");
    make_add_tensor(m, B "ffn_gate_up_exps.weight", TENSOR_F32, 4, 8, 3);
}

START_TEST(gate_and_up_joined)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "olmoe", 1, false);
    join(&m);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    const struct model_tensor *t = model_index_tensors(index);
    while (strcmp(t->name, B "ffn_gate_up_exps.weight") != 0)
        t++;
    for (uint32_t expert = 0; expert < 3; expert++) {
        const struct model_entry *e =
            &model_index_entries(index)[model_entry_expert(index, 0, expert)];
        ck_assert_uint_eq(e->extents, 3);
        for (int which = EXPERT_GATE; which <= EXPERT_UP; which++) {
            const struct model_extent *x = &e->extent[which];
            ck_assert_uint_eq(x->file_offset + x->head_bytes,
                              t->file_offset + (2 * expert + (unsigned)which) * 64);
            ck_assert_uint_eq(x->payload_bytes, 64);
            ck_assert_uint_eq(e->matrix[which].n, 4);
            ck_assert_uint_eq(e->matrix[which].slot_offset, x->slot_offset + x->head_bytes);
        }
    }
    free(index);
}
END_TEST

/* Scales are dense weights, those of a layer's experts too; what scales inputs is left alone. */
START_TEST(scales)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "qwen2moe", 1, false);
    make_add_tensor(&m, "output.weight", TENSOR_F32, 4, TINY_VOCAB, 1);
    uint32_t before = (uint32_t)m.tensor_count;
    make_add_tensor(&m, "output.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "attn_k.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "ffn_down_shexp.scale", TENSOR_F32, 1, 1, 1);
    make_add_tensor(&m, B "ffn_up_exps.scale", TENSOR_F32, 3, 1, 1);
    make_add_tensor(&m, B "ffn_up_exps.input_scale", TENSOR_F16, 5, 2, 1);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    ck_assert_uint_eq(index->tensor_count, before + 5);
    ck_assert_uint_eq(index->dense_count, before - 3 + 4);
    static const enum dense_role roles[] = {DENSE_OUTPUT_SCALE, DENSE_ATTN_K_SCALE,
                                            DENSE_SHARED_DOWN_SCALE, DENSE_EXPERT_UP_SCALES};
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        uint32_t layer = roles[i] == DENSE_OUTPUT_SCALE ? 1 : 0;
        uint32_t entry = model_entry_dense(index, layer, roles[i]);
        ck_assert_uint_ne(entry, ENTRY_NONE);
        ck_assert(!model_dense_quantisable(index, entry));
        ck_assert_uint_eq(model_index_entries(index)[entry].payload_bytes,
                          roles[i] == DENSE_EXPERT_UP_SCALES ? 12 : 4);
    }
    ck_assert_uint_eq(model_entry_dense(index, 0, DENSE_EXPERT_DOWN_SCALES), ENTRY_NONE);
    free(index);
}
END_TEST

/* The block for drafting behind the last layer is left out, whatever its tensors are. */
START_TEST(drafting_block)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "glm4moe", 3, true);
    make_u32(&m, "glm4moe.nextn_predict_layers", 1);
    make_add_tensor(&m, "blk.2.nextn.eh_proj.weight", TENSOR_F32, 64, 32, 1);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(index, "%s", error.text);
    ck_assert_uint_eq(index->hparams.layers, 2);
    ck_assert_uint_eq(index->dense_count, 14 + 16 + 3);
    ck_assert_uint_eq(index->expert_entry_count, 6);
    ck_assert_int_eq(model_index_check(index, index->bytes, &error), 0);
    free(index);
    make_arch(&m, "glm4moe", 3, true);
    make_u32(&m, "glm4moe.nextn_predict_layers", 1);
    make_add_tensor(&m, "blk.3.nextn.eh_proj.weight", TENSOR_F32, 64, 32, 1);
    ck_assert_ptr_null(index_of(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "not part of architecture glm4moe"));
}
END_TEST

/* A layer has the tensors of its parts, and no others. */
START_TEST(tensors_of_another_part)
{
    struct make m;
    struct error error = {0};
    make_arch(&m, "dots1", 2, false);
    make_add_tensor(&m, "blk.0.ffn_gate_inp.weight", TENSOR_F32, 4, 3, 1);
    ck_assert_ptr_null(index_of(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "layer 0 of this model has no such part"));
    make_arch(&m, "dots1", 2, false);
    make_add_tensor(&m, "blk.1.ffn_up.weight", TENSOR_F32, 4, 8, 1);
    ck_assert_ptr_null(index_of(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "layer 1 of this model has no such part"));
    make_arch(&m, "dots1", 2, false);
    make_drop_tensor(&m, "blk.0.ffn_up.weight");
    ck_assert_ptr_null(index_of(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "tensor blk.0.ffn_up.weight is missing"));
    make_arch(&m, "dots1", 2, false);
    make_drop_tensor(&m, "blk.1.ffn_gate_exps.weight");
    ck_assert_ptr_null(index_of(&m, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "tensor blk.1.ffn_gate_exps.weight is missing"));
}
END_TEST

#define EDITS(X)                                                                                   \
    X(glm4moe, bias_missing, "tensor blk.0.exp_probs_b.bias is missing",                           \
      make_drop_tensor(m, B "exp_probs_b.bias"))                                                   \
    X(glm4moe, all_dense, "no layer has experts",                                                  \
      make_u32(m, "glm4moe.leading_dense_block_count", 1))                                         \
    X(glm4moe, groups, "do not fit", make_u32(m, "glm4moe.expert_group_count", 2))                 \
    X(glm4moe, gating, "expert_gating_func' is 4: not between 1 and 2",                            \
      make_u32(m, "glm4moe.expert_gating_func", 4))                                                \
    X(glm4moe, all_skipped, "leave none of 1", make_u32(m, "glm4moe.nextn_predict_layers", 1))     \
    X(glm4moe, shared_width, "ffn_gate_shexp.weight is 4 x 4 x 1 x 1; 4 x 8",                      \
      make_u32(m, "glm4moe.expert_shared_count", 2))                                               \
    X(glm4moe, scale, "expert_weights_scale is 2000: not between",                                 \
      make_f32(m, "glm4moe.expert_weights_scale", 2000))                                           \
    X(glm4moe, rope_too_long, "an even number up to the head size 2",                              \
      make_u32(m, "glm4moe.rope.dimension_count", 4))                                              \
    X(ernie4_5_moe, interleaved, "interleave_moe_layer_step' is 2; only 1",                        \
      make_u32(m, "ernie4_5-moe.interleave_moe_layer_step", 2))                                    \
    X(ernie4_5_moe, scaled, "expert_weights_scale' is 2; only 1",                                  \
      make_f32(m, "ernie4_5-moe.expert_weights_scale", 2))                                         \
    X(minimax_m2, scaled, "expert_weights_scale' is 2; only 1",                                    \
      make_f32(m, "minimax-m2.expert_weights_scale", 2))                                           \
    X(minimax_m2, softmax, "expert_gating_func' is 1: not between 2 and 2",                        \
      make_u32(m, "minimax-m2.expert_gating_func", 1))                                             \
    X(deepseek2, old_form, "key_length_mla' is missing: a file of an old converter",               \
      make_drop_key(m, MLA "key_length_mla"))                                                      \
    X(deepseek2, kv_b, "attn_kv_b.weight: the form of an old converter is not supported",          \
      make_add_tensor(m, B "attn_kv_b.weight", 0, 4, 16, 1))                                       \
    X(deepseek2, kv_heads, "head_count_kv' is 2; only 1", make_u32(m, MLA "head_count_kv", 2))     \
    X(deepseek2, key_length, "attention.key_length is 8; kv_lora_rank 4 and",                      \
      make_u32(m, MLA "key_length", 8))                                                            \
    X(deepseek2, value_length, "attention.value_length is 6; kv_lora_rank is 4",                   \
      make_u32(m, MLA "value_length", 6))                                                          \
    X(deepseek2, all_rotated, "key_length_mla 2 leaves none",                                      \
      make_u32(m, MLA "key_length_mla", 2))                                                        \
    X(deepseek2, rank_absurd, "kv_lora_rank' is 2000: not between 1 and 1024",                     \
      make_u32(m, MLA "kv_lora_rank", 2000))                                                       \
    X(deepseek2, rank_missing, "kv_lora_rank' is missing", make_drop_key(m, MLA "kv_lora_rank"))   \
    X(deepseek2, q_rank_0, "attn_q_a.weight is 4 x 4 x 1 x 1; 4 x 0",                              \
      make_u32(m, MLA "q_lora_rank", 0))                                                           \
    X(deepseek2, one_matrix, "tensor blk.0.attn_q.weight is 4 x 12 x 1 x 1; 4 x 0",                \
      make_add_tensor(m, B "attn_q.weight", 0, 4, 12, 1))                                          \
    X(deepseek2, q_b_missing, "tensor blk.0.attn_q_b.weight is missing",                           \
      make_drop_tensor(m, B "attn_q_b.weight"))                                                    \
    X(deepseek2, two_factors, "attn_q_a.weight is 4 x 4 x 1 x 1; 4 x 0",                           \
      make_drop_key(m, MLA "q_lora_rank"))                                                         \
    X(deepseek2, k_b_missing, "tensor blk.0.attn_k_b.weight is missing",                           \
      make_drop_tensor(m, B "attn_k_b.weight"))                                                    \
    X(deepseek2, v_b_flat, "attn_v_b.weight is 4 x 8 x 1 x 1; 4 x 4 x 2",                          \
      resize(m, B "attn_v_b.weight", 4, 8))                                                        \
    X(deepseek2, norm_missing, "tensor blk.0.attn_kv_a_norm.weight is missing",                    \
      make_drop_tensor(m, B "attn_kv_a_norm.weight"))                                              \
    X(deepseek2, scaling_linear, "rope.scaling.type' is 'linear', which is not supported",         \
      make_text(m, "deepseek2.rope.scaling.type", "linear"))                                       \
    X(deepseek2, yarn_factor, "rope.scaling.factor is 0",                                          \
      make_text(m, "deepseek2.rope.scaling.type", "yarn"))                                         \
    X(deepseek2, window, "sliding_window' is 4096; only 0",                                        \
      make_u32(m, MLA "sliding_window", 4096))                                                     \
    X(deepseek2, gating, "expert_gating_func' is 3: not between 1 and 2",                          \
      make_u32(m, "deepseek2.expert_gating_func", 3))                                              \
    X(granitemoe, embedding_scale, "granitemoe.embedding_scale is 2000: not between",              \
      make_f32(m, "granitemoe.embedding_scale", 2000))                                             \
    X(granitemoe, residual_scale, "granitemoe.residual_scale is -1: not between",                  \
      make_f32(m, "granitemoe.residual_scale", -1))                                                \
    X(granitemoe, attention_scale, "granitemoe.attention.scale is nan: not between",               \
      make_f32(m, "granitemoe.attention.scale", NAN))                                              \
    X(granitemoe, logit_scale, "granitemoe.logit_scale is 1001: not between",                      \
      make_f32(m, "granitemoe.logit_scale", 1001))                                                 \
    X(granitemoe, inner_missing, "granitemoe.feed_forward_length' is missing",                     \
      make_drop_key(m, "granitemoe.feed_forward_length"))                                          \
    X(granitemoe, shared_missing, "tensor blk.0.ffn_gate_shexp.weight is missing",                 \
      make_u32(m, "granitemoe.expert_shared_feed_forward_length", 4))                              \
    X(hunyuan_moe, k_norm_missing, "tensor blk.0.attn_k_norm.weight is missing",                   \
      make_drop_tensor(m, B "attn_k_norm.weight"))                                                 \
    X(hunyuan_moe, shared_missing, "tensor blk.0.ffn_down_shexp.weight is missing",                \
      make_drop_tensor(m, B "ffn_down_shexp.weight"))                                              \
    X(hunyuan_moe, scaled, "rope.scaling.type' is 'yarn'; only 'none'",                            \
      make_text(m, "hunyuan-moe.rope.scaling.type", "yarn"))                                       \
    X(phimoe, norm_bias_missing, "tensor blk.0.attn_norm.bias is missing",                         \
      make_drop_tensor(m, B "attn_norm.bias"))                                                     \
    X(phimoe, output_norm_bias_missing, "tensor output_norm.bias is missing",                      \
      make_drop_tensor(m, "output_norm.bias"))                                                     \
    X(phimoe, output_bias_shape, "output.bias is 4 x 1 x 1 x 1; 262 x 1",                          \
      resize(m, "output.bias", 4, 1))                                                              \
    X(phimoe, three_experts, "expert_used_count' is 3; only 2",                                    \
      make_u32(m, "phimoe.expert_used_count", 3))                                                  \
    X(phimoe, window, "sliding_window' is 127; only windows of at least the context length 128",   \
      make_u32(m, "phimoe.attention.sliding_window", 127))                                         \
    X(dbrx, qkv_missing, "tensor blk.0.attn_qkv.weight is missing",                                \
      make_drop_tensor(m, B "attn_qkv.weight"))                                                    \
    X(dbrx, qkv_shape, "attn_qkv.weight is 4 x 6 x 1 x 1; 4 x 8",                                  \
      resize(m, B "attn_qkv.weight", 4, 6))                                                        \
    X(dbrx, q_apart, "attn_q.weight is not part of architecture dbrx",                             \
      make_add_tensor(m, B "attn_q.weight", 0, 4, 4, 1))                                           \
    X(dbrx, epsilon_missing, "dbrx.attention.layer_norm_epsilon' is missing",                      \
      make_drop_key(m, "dbrx.attention.layer_norm_epsilon"))                                       \
    X(dbrx, clamp, "dbrx.attention.clamp_kqv is -1: not between",                                  \
      make_f32(m, "dbrx.attention.clamp_kqv", -1))                                                 \
    X(dbrx, norm_missing, "tensor blk.0.attn_output_norm.weight is missing",                       \
      make_drop_tensor(m, B "attn_output_norm.weight"))                                            \
    X(bailingmoe2, qkv_missing, "tensor blk.0.attn_qkv.weight is missing",                         \
      make_drop_tensor(m, B "attn_qkv.weight"))                                                    \
    X(bailingmoe2, q_norm_missing, "tensor blk.0.attn_q_norm.weight is missing",                   \
      make_drop_tensor(m, B "attn_q_norm.weight"))                                                 \
    X(bailingmoe2, bias_missing, "tensor blk.0.exp_probs_b.bias is missing",                       \
      make_drop_tensor(m, B "exp_probs_b.bias"))                                                   \
    X(bailingmoe2, groups, "do not fit", make_u32(m, "bailingmoe2.expert_group_count", 2))         \
    X(bailingmoe2, all_skipped, "leave none of 1",                                                 \
      make_u32(m, "bailingmoe2.nextn_predict_layers", 1))                                          \
    X(gpt_oss, window_missing, "sliding_window' is missing",                                       \
      make_drop_key(m, "gpt-oss.attention.sliding_window"))                                        \
    X(gpt_oss, window_none, "sliding_window' is 0: not between",                                   \
      make_u32(m, "gpt-oss.attention.sliding_window", 0))                                          \
    X(gpt_oss, sinks_missing, "tensor blk.0.attn_sinks.weight is missing",                         \
      make_drop_tensor(m, B "attn_sinks.weight"))                                                  \
    X(gpt_oss, out_bias_missing, "tensor blk.0.attn_output.bias is missing",                       \
      make_drop_tensor(m, B "attn_output.bias"))                                                   \
    X(gpt_oss, router_bias_missing, "tensor blk.0.ffn_gate_inp.bias is missing",                   \
      make_drop_tensor(m, B "ffn_gate_inp.bias"))                                                  \
    X(gpt_oss, gate_bias_missing, "tensor blk.0.ffn_gate_exps.bias is missing",                    \
      make_drop_tensor(m, B "ffn_gate_exps.bias"))                                                 \
    X(gpt_oss, down_bias_missing, "tensor blk.0.ffn_down_exps.bias is missing",                    \
      make_drop_tensor(m, B "ffn_down_exps.bias"))                                                 \
    X(gpt_oss, norm_missing, "tensor blk.0.post_attention_norm.weight is missing",                 \
      make_drop_tensor(m, B "post_attention_norm.weight"))                                         \
    X(gpt_oss, factor, "rope.scaling.factor is 0.5: not 1 or more",                                \
      make_f32(m, "gpt-oss.rope.scaling.factor", 0.5f))                                            \
    X(gpt_oss, scaling, "rope.scaling.type' is 'longrope', which is not supported",                \
      make_text(m, "gpt-oss.rope.scaling.type", "longrope"))                                       \
    X(gpt_oss, no_type, "rope.scaling.factor is 32, without a type",                               \
      make_drop_key(m, "gpt-oss.rope.scaling.type"))                                               \
    X(gpt_oss, betas, "beta_fast not below beta_slow",                                             \
      make_f32(m, "gpt-oss.rope.scaling.yarn_beta_slow", 40))                                      \
    X(gpt_oss, gating, "expert_gating_func' is 1; only 3",                                         \
      make_u32(m, "gpt-oss.expert_gating_func", 1))                                                \
    X(smallthinker, gating_missing, "expert_gating_func' is missing",                              \
      make_drop_key(m, "smallthinker.expert_gating_func"))                                         \
    X(smallthinker, gating, "expert_gating_func' is 3: not between 1 and 2",                       \
      make_u32(m, "smallthinker.expert_gating_func", 3))                                           \
    X(smallthinker, window, "sliding_window' is 4294967296: not between",                          \
      make_u64(m, "smallthinker.attention.sliding_window", 1ull << 32))                            \
    X(smallthinker, dense_layer, "a layer without experts is not supported",                       \
      make_add_tensor(m, B "ffn_gate.weight", 0, 4, 4, 1))                                         \
    X(olmoe, q_norm_of_a_head, "attn_q_norm.weight is 2 x 1 x 1 x 1; 4 x 1 x 1",                   \
      resize(m, B "attn_q_norm.weight", 2, 1))                                                     \
    X(olmoe, k_norm_of_all, "attn_k_norm.weight is 4 x 1 x 1 x 1; 2 x 1 x 1",                      \
      resize(m, B "attn_k_norm.weight", 4, 1))                                                     \
    X(olmoe, q_norm_missing, "tensor blk.0.attn_q_norm.weight is missing",                         \
      make_drop_tensor(m, B "attn_q_norm.weight"))                                                 \
    X(olmoe, inner_missing, "olmoe.feed_forward_length' is missing",                               \
      make_drop_key(m, "olmoe.feed_forward_length"))                                               \
    X(olmoe, inner_wrong, "ffn_gate_exps.weight is 4 x 4 x 3",                                     \
      make_u32(m, "olmoe.feed_forward_length", 8))                                                 \
    X(olmoe, renormalised, "expert_weights_norm' is 1; only 0",                                    \
      make_bool(m, "olmoe.expert_weights_norm", 1))                                                \
    X(olmoe, clamped, "clamp_kqv' is 8; only 0", make_f32(m, "olmoe.attention.clamp_kqv", 8))      \
    X(olmoe, clamp_type, "instead of a float", make_u32(m, "olmoe.attention.clamp_kqv", 8))        \
    X(olmoe, linear_scaling, "rope.scaling.factor' is 4; only 1",                                  \
      make_f32(m, "olmoe.rope.scaling.factor", 4))                                                 \
    X(olmoe, biased, "attn_q.bias is not part of architecture olmoe",                              \
      make_add_tensor(m, B "attn_q.bias", 0, 4, 1, 1))                                             \
    X(qwen2moe, shared_gate_missing, "tensor blk.0.ffn_gate_inp_shexp.weight is missing",          \
      make_drop_tensor(m, B "ffn_gate_inp_shexp.weight"))                                          \
    X(qwen2moe, shared_gate_shape, "ffn_gate_inp_shexp.weight is 8 x 1",                           \
      resize(m, B "ffn_gate_inp_shexp.weight", 8, 1))                                              \
    X(qwen2moe, shared_down_missing, "tensor blk.0.ffn_down_shexp.weight is missing",              \
      make_drop_tensor(m, B "ffn_down_shexp.weight"))                                              \
    X(qwen2moe, shared_down_turned, "ffn_down_shexp.weight is 4 x 8 x 1 x 1; 8 x 4",               \
      resize(m, B "ffn_down_shexp.weight", 4, 8))                                                  \
    X(qwen2moe, shared_inner_missing, "expert_shared_feed_forward_length' is missing",             \
      make_drop_key(m, "qwen2moe.expert_shared_feed_forward_length"))                              \
    X(qwen2moe, shared_inner_0, "expert_shared_feed_forward_length' is 0: not between 1",          \
      make_u32(m, "qwen2moe.expert_shared_feed_forward_length", 0))                                \
    X(qwen2moe, shared_inner_absurd, "is 1000000007: not between 1 and 65536",                     \
      make_u32(m, "qwen2moe.expert_shared_feed_forward_length", 1000000007))                       \
    X(qwen2moe, shared_inner_2_32, "is 4294967304: not between",                                   \
      make_u64(m, "qwen2moe.expert_shared_feed_forward_length", (1ull << 32) + 8))                 \
    X(qwen2moe, shared_inner_wrong, "ffn_gate_shexp.weight is 4 x 8 x 1 x 1; 4 x 6",               \
      make_u32(m, "qwen2moe.expert_shared_feed_forward_length", 6))                                \
    X(qwen2moe, bias_missing, "tensor blk.0.attn_v.bias is missing",                               \
      make_drop_tensor(m, B "attn_v.bias"))                                                        \
    X(qwen2moe, bias_shape, "attn_k.bias is 4 x 1 x 1 x 1; 2 x 1",                                 \
      resize(m, B "attn_k.bias", 4, 1))                                                            \
    X(qwen2moe, bias_f16, "attn_q.bias is of type F16; F32", {                                     \
        make_tensor(m, B "attn_q.bias")->type = TENSOR_F16;                                        \
        make_tensor(m, B "attn_q.bias")->bytes = 8;                                                \
    })                                                                                             \
    X(olmoe, scale_for_all, "ffn_gate_exps.scale is 1 x 1 x 1 x 1; 3 x 1",                         \
      make_add_tensor(m, B "ffn_gate_exps.scale", TENSOR_F32, 1, 1, 1))                            \
    X(olmoe, scale_f16, "attn_q.scale is of type F16; F32",                                        \
      make_add_tensor(m, B "attn_q.scale", TENSOR_F16, 1, 1, 1))                                   \
    X(olmoe, scale_of_shared, "ffn_up_shexp.scale is not part of architecture olmoe",              \
      make_add_tensor(m, B "ffn_up_shexp.scale", TENSOR_F32, 1, 1, 1))                             \
    X(olmoe, scale_of_tied_output, "tensor output.scale has no matrix",                            \
      make_add_tensor(m, "output.scale", TENSOR_F32, 1, 1, 1))                                     \
    X(olmoe, scale_of_half, "tensor blk.0.ffn_up_exps.scale has no matrix", {                      \
        join(m);                                                                                   \
        make_add_tensor(m, B "ffn_up_exps.scale", TENSOR_F32, 3, 1, 1);                            \
    })                                                                                             \
    X(olmoe, joined_wrong, "ffn_gate_up_exps.weight is 4 x 4 x 3 x 1; 4 x 8 x 3", {                \
        join(m);                                                                                   \
        resize(m, B "ffn_gate_up_exps.weight", 4, 4);                                              \
        make_tensor(m, B "ffn_gate_up_exps.weight")->dims = 3;                                     \
        make_tensor(m, B "ffn_gate_up_exps.weight")->bytes *= 3;                                   \
    })                                                                                             \
    X(olmoe, joined_twice, "blk.0.ffn_up_exps.weight occurs twice", {                              \
        join(m);                                                                                   \
        make_add_tensor(m, B "ffn_up_exps.weight", 0, 4, 4, 3);                                    \
    })                                                                                             \
    X(olmoe, joined_no_down, "tensor blk.0.ffn_down_exps.weight is missing", {                     \
        join(m);                                                                                   \
        make_drop_tensor(m, B "ffn_down_exps.weight");                                             \
    })                                                                                             \
    X(qwen2moe, dense_layer, "blk.0.ffn_gate.weight: a layer without experts is not supported",    \
      make_add_tensor(m, B "ffn_gate.weight", 0, 4, 4, 1))                                         \
    X(qwen2moe, q_norm, "attn_q_norm.weight is not part of architecture qwen2moe",                 \
      make_add_tensor(m, B "attn_q_norm.weight", 0, 2, 1, 1))                                      \
    X(llama, no_experts, "llama.expert_count' is missing", make_drop_key(m, "llama.expert_count")) \
    X(llama, old_experts, "blk.0.ffn_up.2.weight: a tensor for each expert",                       \
      make_add_tensor(m, B "ffn_up.2.weight", 0, 4, 4, 1))                                         \
    X(llama, old_experts_long, "blk.0.ffn_down.17.weight: a tensor for each expert",               \
      make_add_tensor(m, B "ffn_down.17.weight", 0, 4, 4, 1))                                      \
    X(llama, old_experts_zeros, "ffn_up.02.weight is not part",                                    \
      make_add_tensor(m, B "ffn_up.02.weight", 0, 4, 4, 1))                                        \
    X(llama, freqs_shape, "rope_freqs.weight is 2 x 1 x 1 x 1; 1 x 1",                             \
      resize(m, "rope_freqs.weight", 2, 1))                                                        \
    X(llama, window, "sliding_window' is 4096; only 0",                                            \
      make_u32(m, "llama.attention.sliding_window", 4096))                                         \
    X(llama, yarn, "rope.scaling.type' is 'yarn'; only 'none'",                                    \
      make_text(m, "llama.rope.scaling.type", "yarn"))                                             \
    X(llama, sigmoid, "expert_gating_func' is 2; only 1",                                          \
      make_u32(m, "llama.expert_gating_func", 2))                                                  \
    X(llama, shared_expert, "ffn_up_shexp.weight is not part of architecture llama",               \
      make_add_tensor(m, B "ffn_up_shexp.weight", 0, 4, 4, 1))

#define X(arch, name, message, ...)                                                                \
    static void arch##_##name(struct make *m)                                                      \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
EDITS(X)
#undef X

static const struct {
    const char *arch, *name, *message;
    void (*edit)(struct make *m);
} edits[] = {
#define X(arch, name, message, ...) {#arch, #name, message, arch##_##name},
    EDITS(X)
#undef X
};

START_TEST(bad_models_are_rejected)
{
    struct make m;
    struct error error = {0};
    char arch[32], *last;
    snprintf(arch, sizeof arch, "%s", edits[_i].arch);
    if (arch_find(arch, strlen(arch)) == ARCH__COUNT && (last = strrchr(arch, '_')) != NULL)
        *last = '-'; /* a name of C has no hyphen */
    make_arch(&m, arch, 1, false);
    edits[_i].edit(&m);
    struct model_index *index = index_of(&m, &error);
    ck_assert_msg(!index, "%s %s: accepted", edits[_i].arch, edits[_i].name);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, edits[_i].message), "%s %s: '%s' lacks '%s'", edits[_i].arch,
                  edits[_i].name, error.text, edits[_i].message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arch");
    TCase *tcase = tcase_create("tables");
    tcase_add_loop_test(tcase, contents, 0, ARRAY_LEN(archs));
    tcase_add_loop_test(tcase, every_tensor, 0, ARRAY_LEN(archs));
    tcase_add_loop_test(tcase, forged_parameters, 0, ARRAY_LEN(archs));
    tcase_add_test(tcase, gate_and_up_joined);
    tcase_add_test(tcase, scales);
    tcase_add_test(tcase, drafting_block);
    tcase_add_test(tcase, tensors_of_another_part);
    tcase_add_loop_test(tcase, known_but_not_supported, 0, ARRAY_LEN(unsupported));
    tcase_add_loop_test(tcase, bad_models_are_rejected, 0, ARRAY_LEN(edits));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
