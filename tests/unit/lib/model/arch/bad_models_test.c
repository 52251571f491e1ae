/* SPDX-License-Identifier: Apache-2.0 */
/* Every architecture of arch.tbl.h: a file with one error is rejected with the reason. Checks
 * common to all architectures are in gguf_test.c. */
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

#define B   "blk.0."
#define MLA "deepseek2.attention."

/* Merges gate and up of a file with hidden and inner size 4 into one tensor. */
static void join(struct make *m)
{
    make_drop_tensor(m, B "ffn_gate_exps.weight");
    make_drop_tensor(m, B "ffn_up_exps.weight");
    make_add_tensor(m, B "ffn_gate_up_exps.weight", TENSOR_F32, 4, 8, 3);
}

/* Inner size 1, and a matrix of all experts without that dimension. */
static void flat_experts(struct make *m)
{
    make_u32(m, "dots1.expert_feed_forward_length", 1);
    make_drop_tensor(m, B "ffn_gate_exps.weight");
    make_add_tensor(m, B "ffn_gate_exps.weight", TENSOR_F32, 4, 3, 1);
    make_drop_tensor(m, B "ffn_up_exps.weight");
    make_add_tensor(m, B "ffn_up_exps.weight", TENSOR_F32, 4, 1, 3);
    make_drop_tensor(m, B "ffn_down_exps.weight");
    make_add_tensor(m, B "ffn_down_exps.weight", TENSOR_F32, 1, 4, 3);
    for (size_t i = 0; i < m->tensor_count; i++)
        if (strstr(m->tensors[i].name, "_shexp.weight"))
            make_resize(m, m->tensors[i].name, strstr(m->tensors[i].name, "down") ? 1 : 4,
                        strstr(m->tensors[i].name, "down") ? 4 : 1);
}

#define EDITS(X)                                                                                   \
    X(dots1, experts_flat, "ffn_gate_exps.weight is 4 x 3 x 1 x 1; 4 x 1 x 3", flat_experts(m))    \
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
    X(mistral4, several_groups, "expert_group_count' is 3: not between 0 and 1",                   \
      make_u32(m, "mistral4.expert_group_count", 3))                                               \
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
      make_resize(m, B "attn_v_b.weight", 4, 8))                                                   \
    X(deepseek2, norm_missing, "tensor blk.0.attn_kv_a_norm.weight is missing",                    \
      make_drop_tensor(m, B "attn_kv_a_norm.weight"))                                              \
    X(deepseek2, scaling_dynamic, "rope.scaling.type' is 'dynamic', which is not supported",       \
      make_text(m, "deepseek2.rope.scaling.type", "dynamic"))                                      \
    X(deepseek2, extrapolation, "yarn_ext_factor' is 0.5; only 1",                                 \
      make_f32(m, "deepseek2.rope.scaling.yarn_ext_factor", 0.5f))                                 \
    X(deepseek2, temperature, "attention.temperature_scale is -1: not between",                    \
      make_f32(m, MLA "temperature_scale", -1))                                                    \
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
    X(hunyuan_moe, scaled, "rope.scaling.type' is 'longrope', which is not supported",             \
      make_text(m, "hunyuan-moe.rope.scaling.type", "longrope"))                                   \
    X(phimoe, norm_bias_missing, "tensor blk.0.attn_norm.bias is missing",                         \
      make_drop_tensor(m, B "attn_norm.bias"))                                                     \
    X(phimoe, output_norm_bias_missing, "tensor output_norm.bias is missing",                      \
      make_drop_tensor(m, "output_norm.bias"))                                                     \
    X(phimoe, output_bias_shape, "output.bias is 4 x 1 x 1 x 1; 262 x 1",                          \
      make_resize(m, "output.bias", 4, 1))                                                         \
    X(phimoe, three_experts, "expert_used_count' is 3; only 2",                                    \
      make_u32(m, "phimoe.expert_used_count", 3))                                                  \
    X(phimoe, yarn, "rope.scaling.type' is 'yarn', which is not supported",                        \
      make_text(m, "phimoe.rope.scaling.type", "yarn"))                                            \
    X(phimoe, factors_shape, "rope_factors_short.weight is 2 x 1 x 1 x 1; 1 x 1",                  \
      make_add_tensor(m, "rope_factors_short.weight", 0, 2, 1, 1))                                 \
    X(phimoe, window, "sliding_window' is 127; only windows of at least the context length 128",   \
      make_u32(m, "phimoe.attention.sliding_window", 127))                                         \
    X(dbrx, qkv_missing, "tensor blk.0.attn_qkv.weight is missing",                                \
      make_drop_tensor(m, B "attn_qkv.weight"))                                                    \
    X(dbrx, qkv_shape, "attn_qkv.weight is 4 x 6 x 1 x 1; 4 x 8",                                  \
      make_resize(m, B "attn_qkv.weight", 4, 6))                                                   \
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
    X(gpt_oss, pattern, "sliding_window_pattern' is STRING instead of an array",                   \
      make_text(m, "gpt-oss.attention.sliding_window_pattern", "2"))                               \
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
    X(arctic, norm_missing, "tensor blk.0.ffn_norm_exps.weight is missing",                        \
      make_drop_tensor(m, B "ffn_norm_exps.weight"))                                               \
    X(arctic, dense_missing, "tensor blk.0.ffn_up.weight is missing",                              \
      make_drop_tensor(m, B "ffn_up.weight"))                                                      \
    X(arctic, dense_width, "ffn_gate.weight is 4 x 8 x 1 x 1; 4 x 4",                              \
      make_resize(m, B "ffn_gate.weight", 4, 8))                                                   \
    X(arctic, old, "a tensor for each expert (a file of early 2024",                               \
      make_add_tensor(m, B "ffn_gate.0.weight", 0, 4, 4, 1))                                       \
    X(olmoe, q_norm_of_a_head, "attn_q_norm.weight is 2 x 1 x 1 x 1; 4 x 1 x 1",                   \
      make_resize(m, B "attn_q_norm.weight", 2, 1))                                                \
    X(olmoe, k_norm_of_all, "attn_k_norm.weight is 4 x 1 x 1 x 1; 2 x 1 x 1",                      \
      make_resize(m, B "attn_k_norm.weight", 4, 1))                                                \
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
    X(olmoe, linear_scaling, "rope.scaling.factor is 0.5: not 1 or more",                          \
      make_f32(m, "olmoe.rope.scaling.factor", 0.5f))                                              \
    X(olmoe, not_causal, "attention.causal' is 0; only 1",                                         \
      make_bool(m, "olmoe.attention.causal", 0))                                                   \
    X(olmoe, groups, "expert_group_count' is 2; only numbers below 2",                             \
      make_u32(m, "olmoe.expert_group_count", 2))                                                  \
    X(olmoe, biased, "attn_q.bias is not part of architecture olmoe",                              \
      make_add_tensor(m, B "attn_q.bias", 0, 4, 1, 1))                                             \
    X(qwen2moe, shared_gate_missing, "tensor blk.0.ffn_gate_inp_shexp.weight is missing",          \
      make_drop_tensor(m, B "ffn_gate_inp_shexp.weight"))                                          \
    X(qwen2moe, shared_gate_shape, "ffn_gate_inp_shexp.weight is 8 x 1",                           \
      make_resize(m, B "ffn_gate_inp_shexp.weight", 8, 1))                                         \
    X(qwen2moe, shared_down_missing, "tensor blk.0.ffn_down_shexp.weight is missing",              \
      make_drop_tensor(m, B "ffn_down_shexp.weight"))                                              \
    X(qwen2moe, shared_down_turned, "ffn_down_shexp.weight is 4 x 8 x 1 x 1; 8 x 4",               \
      make_resize(m, B "ffn_down_shexp.weight", 4, 8))                                             \
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
    X(qwen2moe, bias_shape, "attn_k.bias is 4 x 1 x 1 x 1; 2 x 1",                                 \
      make_resize(m, B "attn_k.bias", 4, 1))                                                       \
    X(olmoe, scale_for_all, "ffn_gate_exps.scale is 1 x 1 x 1 x 1; 3 x 1",                         \
      make_add_tensor(m, B "ffn_gate_exps.scale", TENSOR_F32, 1, 1, 1))                            \
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
        make_resize(m, B "ffn_gate_up_exps.weight", 4, 4);                                         \
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
    X(gemma4, window_missing, "attention.sliding_window' is missing",                              \
      make_drop_key(m, "gemma4.attention.sliding_window"))                                         \
    X(gemma4, window_0, "attention.sliding_window' is 0: not between 1",                           \
      make_u32(m, "gemma4.attention.sliding_window", 0))                                           \
    X(gemma4, pattern_missing, "sliding_window_pattern' is missing",                               \
      make_drop_key(m, "gemma4.attention.sliding_window_pattern"))                                 \
    X(gemma4, pattern_short, "has 0 numbers for 1 layers",                                         \
      make_array_raw(m, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, 0, 0))               \
    X(gemma4, window_head_odd, "head size 3 is odd", {                                             \
        make_array_raw(m, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, 1, 0);             \
        bytes_add(&make_key(m, "gemma4.attention.sliding_window_pattern")->value, "\1", 1);        \
        make_u32(m, "gemma4.attention.key_length_swa", 3);                                         \
    })                                                                                             \
    X(gemma4, window_without_v, "tensor blk.0.attn_v.weight is missing", {                         \
        make_array_raw(m, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, 1, 0);             \
        bytes_add(&make_key(m, "gemma4.attention.sliding_window_pattern")->value, "\1", 1);        \
        make_drop_tensor(m, B "attn_v.weight");                                                    \
    })                                                                                             \
    X(gemma4, longer_values_without_v, "tensor blk.0.attn_v.weight is missing", {                  \
        make_u32(m, "gemma4.attention.value_length", 4);                                           \
        make_resize(m, B "attn_output.weight", 8, 4);                                              \
        make_drop_tensor(m, B "attn_v.weight");                                                    \
    })                                                                                             \
    X(gemma4, shared_kv, "shared_kv_layers' is 20; only 0",                                        \
      make_u32(m, "gemma4.attention.shared_kv_layers", 20))                                        \
    X(gemma4, layer_embedding_key, "embedding_length_per_layer_input' is 256; only 0",             \
      make_u32(m, "gemma4.embedding_length_per_layer_input", 256))                                 \
    X(gemma4, layer_embedding, "per_layer_token_embd.weight: an embedding per layer (E2B, E4B)",   \
      make_add_tensor(m, "per_layer_token_embd.weight", 0, 4, 4, 1))                               \
    X(gemma4, dense, "gemma4.expert_count' is missing: a model without experts",                   \
      make_drop_key(m, "gemma4.expert_count"))                                                     \
    X(gemma4, cap, "final_logit_softcapping is -1: not between 0",                                 \
      make_f32(m, "gemma4.final_logit_softcapping", -1))                                           \
    X(gemma4, inner_0, "feed_forward_length' is 0: not between 1",                                 \
      make_u32(m, "gemma4.feed_forward_length", 0))                                                \
    X(llama, no_experts, "llama.expert_count' is missing", make_drop_key(m, "llama.expert_count")) \
    X(llama, old_experts, "blk.0.ffn_up.2.weight: a tensor for each expert",                       \
      make_add_tensor(m, B "ffn_up.2.weight", 0, 4, 4, 1))                                         \
    X(llama, old_experts_long, "blk.0.ffn_down.17.weight: a tensor for each expert",               \
      make_add_tensor(m, B "ffn_down.17.weight", 0, 4, 4, 1))                                      \
    X(llama, old_experts_zeros, "ffn_up.02.weight is not part",                                    \
      make_add_tensor(m, B "ffn_up.02.weight", 0, 4, 4, 1))                                        \
    X(llama, freqs_shape, "rope_freqs.weight is 2 x 1 x 1 x 1; 1 x 1",                             \
      make_resize(m, "rope_freqs.weight", 2, 1))                                                   \
    X(llama, window, "sliding_window' is 4096; only 0",                                            \
      make_u32(m, "llama.attention.sliding_window", 4096))                                         \
    X(llama, yarn, "rope.scaling.factor is 0: not 1 or more",                                      \
      make_text(m, "llama.rope.scaling.type", "yarn"))                                             \
    X(llama, sigmoid, "expert_gating_func' is 2; only 1",                                          \
      make_u32(m, "llama.expert_gating_func", 2))                                                  \
    X(llama, shared_expert, "ffn_up_shexp.weight is not part of architecture llama",               \
      make_add_tensor(m, B "ffn_up_shexp.weight", 0, 4, 4, 1))

#include "tests/unit/lib/model/arch/edits.h"

int main(void)
{
    Suite *suite = suite_create("bad models");
    TCase *tcase = tcase_create("edits");
    tcase_add_loop_test(tcase, bad_models_are_rejected, 0, ARRAY_LEN(edits));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
