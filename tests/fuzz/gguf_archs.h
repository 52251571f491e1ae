/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of the gguf target by architecture: as make_arch makes it, or with one change. */
#ifndef SLUICE_TESTS_FUZZ_GGUF_ARCHS_H
#define SLUICE_TESTS_FUZZ_GGUF_ARCHS_H

#include "lib/model/gguf/gguf.h"
#include "tests/unit/lib/model/gguf_make.h"

/* A model of the architecture as make_arch makes it. */
#define UNCHANGED(X)                                                                               \
    X(olmoe, "olmoe")                                                                              \
    X(qwen2moe, "qwen2moe")                                                                        \
    X(llama, "llama")                                                                              \
    X(ernie, "ernie4_5-moe")                                                                       \
    X(minimax, "minimax-m2")                                                                       \
    X(granite, "granitemoe")                                                                       \
    X(hunyuan, "hunyuan-moe")                                                                      \
    X(phimoe, "phimoe")                                                                            \
    X(dbrx, "dbrx")                                                                                \
    X(gpt_oss, "gpt-oss")                                                                          \
    X(deepseek2, "deepseek2")                                                                      \
    X(qwen35moe, "qwen35moe")                                                                      \
    X(qwen3next, "qwen3next")                                                                      \
    X(lfm2moe, "lfm2moe")

/* Others with one change. */
#define CHANGED(X)                                                                                 \
    X(granitehybrid, "granitehybrid", 2, (void)0)                                                  \
    X(granitehybrid_kinds, "granitehybrid", 2,                                                     \
      make_i32s(m, "granitehybrid.attention.head_count_kv", (const int32_t[]){0, 0}, 2))           \
    X(arctic, "arctic", 2, (void)0)                                                                \
    X(arctic_dense, "arctic", 2, make_u32(m, "arctic.leading_dense_block_count", 1))               \
    X(minimax_01, "minimax-01", 2, (void)0)                                                        \
    X(minimax_01_heads, "minimax-01", 2, make_u32(m, "minimax-01.attention.head_count", 3))        \
    X(minimax_01_kinds, "minimax-01", 2,                                                           \
      make_array_raw(m, "minimax-01.attention.recurrent_layers", GGUF_BOOL, 2, 2))                 \
    X(kimi_linear, "kimi-linear", 2, (void)0)                                                      \
    X(kimi_linear_kinds, "kimi-linear", 2,                                                         \
      make_i32s(m, "kimi-linear.attention.head_count_kv", (const int32_t[]){1, 0}, 2))             \
    X(kimi_linear_bound, "kimi-linear", 2, make_f32(m, "kimi-linear.kda.gate_lower_bound", -5))    \
    X(kimi_k3, "kimi-k3", 2, (void)0)                                                              \
    X(kimi_k3_block, "kimi-k3", 2, make_u32(m, "kimi-k3.attn_res.block_size", 1))                  \
    X(glm5_next, "glm5-next", 2, make_u32(m, "glm5-next.attention.indexer.top_k", 8))              \
    X(glm5_next_pools, "glm5-next", 2, make_u32(m, "glm5-next.attention.indexer.kpool", 3))        \
    X(glm5_next_steps, "glm5-next", 2,                                                             \
      make_u32(m, "glm5-next.hyper_connection.sinkhorn_iterations", 0))                            \
    X(glm5_next_streams, "glm5-next", 2, make_u32(m, "glm5-next.hyper_connection.count", 3))       \
    X(deepseek4, "deepseek4", 2, (void)0)                                                          \
    X(deepseek4_ratios, "deepseek4", 2,                                                            \
      make_i32s(m, "deepseek4.attention.compress_ratios", (const int32_t[]){128, 3}, 2))           \
    X(deepseek4_groups, "deepseek4", 2, make_u32(m, "deepseek4.attention.output_group_count", 4))  \
    X(deepseek4_tables, "deepseek4", 2, make_u32(m, "deepseek4.hash_layer_count", 2))              \
    X(hy_v4, "hy_v4", 2, make_u32(m, "hy_v4.attention.indexer.top_k", 8))                          \
    X(hy_v4_types, "hy_v4", 2,                                                                     \
      make_array_raw(m, "hy_v4.attention.indexer.types", GGUF_BOOL, 2, 2))                         \
    X(hy_v4_streams, "hy_v4", 2, make_u32(m, "hy_v4.hyper_connection.count", 3))                   \
    X(hy_v4_magnitude, "hy_v4", 2, make_f32(m, "hy_v4.hyper_connection.magnitude", 0))             \
    X(bailingmoe3, "bailingmoe3", 2, (void)0)                                                      \
    X(granitehybrid_groups, "granitehybrid", 2, make_u32(m, "granitehybrid.ssm.group_count", 3))   \
    X(nemotron, "nemotron_h_moe", 2, (void)0)                                                      \
    X(jamba, "jamba", 2, (void)0)                                                                  \
    X(jamba_kinds, "jamba", 4,                                                                     \
      make_i32s(m, "jamba.attention.head_count_kv", (const int32_t[]){0, 0, 1, 0}, 4))             \
    X(jamba_rank, "jamba", 2, make_u32(m, "jamba.ssm.time_step_rank", 3))                          \
    X(nemotron_used, "nemotron_h_moe", 4,                                                          \
      make_i32s(m, "nemotron_h_moe.expert_used_count", (const int32_t[]){0, 2, 0, 1}, 4))          \
    X(nemotron_latent, "nemotron_h_moe", 2, make_u32(m, "nemotron_h_moe.moe_latent_size", 4))      \
    X(gemma4_heads, "gemma4", 2,                                                                   \
      make_i32s(m, "gemma4.attention.head_count_kv", (const int32_t[]){1, 2}, 2))                  \
    X(gemma4_heads_many, "gemma4", 2,                                                              \
      make_i32s(m, "gemma4.attention.head_count_kv", (const int32_t[]){1, 4096}, 2))               \
    X(gemma4_heads_few, "gemma4", 2,                                                               \
      make_i32s(m, "gemma4.attention.head_count_kv", (const int32_t[]){1}, 1))                     \
    X(gemma4_kinds_few, "gemma4", 2,                                                               \
      make_array_raw(m, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, 1, 1))               \
    X(gemma4_kinds_type, "gemma4", 2, make_u32(m, "gemma4.attention.sliding_window_pattern", 6))   \
    X(gemma4_rotated, "gemma4", 2, make_u32(m, "gemma4.rope.dimension_count_swa", 3))              \
    X(gemma4_odd, "gemma4", 2, make_u32(m, "gemma4.attention.key_length_swa", 3))                  \
    X(yarn_default, "gpt-oss", 2, {                                                                \
        make_text(m, "gpt-oss.rope.scaling.type", "yarn");                                         \
        make_f32(m, "gpt-oss.rope.scaling.factor", 8);                                             \
    })                                                                                             \
    X(yarn_factor, "gpt-oss", 2, {                                                                 \
        make_text(m, "gpt-oss.rope.scaling.type", "yarn");                                         \
        make_f32(m, "gpt-oss.rope.scaling.factor", 0.5f);                                          \
    })                                                                                             \
    X(yarn_betas, "gpt-oss", 2, {                                                                  \
        make_text(m, "gpt-oss.rope.scaling.type", "yarn");                                         \
        make_f32(m, "gpt-oss.rope.scaling.factor", 8);                                             \
        make_f32(m, "gpt-oss.rope.scaling.yarn_beta_fast", 1);                                     \
        make_f32(m, "gpt-oss.rope.scaling.yarn_beta_slow", 32);                                    \
    })                                                                                             \
    X(factor_alone, "gpt-oss", 2, make_f32(m, "gpt-oss.rope.scaling.factor", 8))                   \
    X(deepseek2_heads, "deepseek2", 2, make_u32(m, "deepseek2.attention.head_count_kv", 2))        \
    X(deepseek2_values, "deepseek2", 2, make_u32(m, "deepseek2.attention.value_length", 2))        \
    X(deepseek2_derived, "deepseek2", 2, {                                                         \
        make_drop_key(m, "deepseek2.attention.head_count_kv");                                     \
        make_drop_key(m, "deepseek2.attention.key_length");                                        \
        make_drop_key(m, "deepseek2.attention.value_length");                                      \
    })                                                                                             \
    X(deepseek2_rotated, "deepseek2", 2, make_u32(m, "deepseek2.attention.key_length_mla", 2))     \
    X(minimax_m3, "minimax-m3", 2, (void)0)                                                        \
    X(minimax_m3_blocks, "minimax-m3", 2,                                                          \
      make_u32(m, "minimax-m3.attention.indexer.block_size", 0))                                   \
    X(deepseek32, "deepseek32", 2, (void)0)                                                        \
    X(deepseek2_indexer, "deepseek2", 2, make_indexer(m, "deepseek2", 0, 4))                       \
    X(glm_dsa_types, "glm-dsa", 2,                                                                 \
      make_array_raw(m, "glm-dsa.attention.indexer.types", GGUF_BOOL, 3, 2))                       \
    X(lfm2moe_heads, "lfm2moe", 2,                                                                 \
      make_i32s(m, "lfm2moe.attention.head_count_kv", (const int32_t[]){-1, 1}, 2))                \
    X(lfm2moe_heads_differ, "lfm2moe", 2,                                                          \
      make_i32s(m, "lfm2moe.attention.head_count_kv", (const int32_t[]){1, 2}, 2))                 \
    X(lfm2moe_heads_few, "lfm2moe", 2, make_i32s(m, "lfm2moe.attention.head_count_kv", NULL, 0))   \
    X(qwen35moe_interval, "qwen35moe", 2, make_u32(m, "qwen35moe.full_attention_interval", 1))     \
    X(qwen35moe_sizes, "qwen35moe", 2, make_u32(m, "qwen35moe.ssm.inner_size", 6))                 \
    X(qwen35moe_groups, "qwen35moe", 2, make_u32(m, "qwen35moe.ssm.group_count", 3))               \
    X(qwen4exp, "qwen4exp", 2, make_u32(m, "qwen4exp.attention.indexer.top_k", 8))                 \
    X(qwen4exp_pools, "qwen4exp", 2,                                                               \
      make_i32s(m, "qwen4exp.attention.compress_ratios", (const int32_t[]){0, -4}, 2))             \
    X(qwen4exp_parts, "qwen4exp", 2,                                                               \
      make_i32s(m, "qwen4exp.ple.head_vocab_sizes", (const int32_t[]){0, -1}, 2))                  \
    X(qwen4exp_layers, "qwen4exp", 2,                                                              \
      make_i32s(m, "qwen4exp.ple.layers", (const int32_t[]){1}, 1))                                \
    X(qwen4exp_rank, "qwen4exp", 2, make_u32(m, "qwen4exp.hyper_connection.low_rank", 0))          \
    X(qwen3vlmoe_turned, "qwen3vlmoe", 1, make_tensor(m, "blk.0.ffn_down_exps.weight")->ne[1] = 2) \
    X(maple, "maple", 2, (void)0)                                                                  \
    X(mellum_kinds_few, "mellum", 2,                                                               \
      make_array_raw(m, "mellum.attention.sliding_window_pattern", GGUF_BOOL, 1, 1))               \
    X(granite_swa, "granite_swa", 2, (void)0)                                                      \
    X(granite_swa_few, "granite_swa", 2,                                                           \
      make_array_raw(m, "granite_swa.attention.rope_pattern", GGUF_BOOL, 1, 1))                    \
    X(mimo2, "mimo2", 2, (void)0)                                                                  \
    X(mimo2_kinds, "mimo2", 2,                                                                     \
      make_i32s(m, "mimo2.attention.sliding_window_pattern", (const int32_t[]){-1, 2}, 2))         \
    X(mimo2_routers, "mimo2", 3, make_drop_tensor(m, "blk.2.ffn_gate_inp.weight"))                 \
    X(llama4, "llama4", 4, (void)0)                                                                \
    X(llama4_chunk, "llama4", 2, make_u32(m, "llama4.attention.sliding_window", 1))                \
    X(llama4_step, "llama4", 3, make_u32(m, "llama4.interleave_moe_layer_step", 0))                \
    X(cohere2moe, "cohere2moe", 2, (void)0)                                                        \
    X(cohere2moe_eps, "cohere2moe", 2,                                                             \
      make_drop_key(m, "cohere2moe.attention.layer_norm_rms_epsilon"))                             \
    X(exaone_moe_skipped, "exaone-moe", 2, make_u32(m, "exaone-moe.nextn_predict_layers", 1))      \
    X(hy_v3_two_biases, "hy_v3", 2,                                                                \
      make_add_tensor(m, "blk.1.exp_probs_b.bias", TENSOR_F32, 3, 1, 1))                           \
    X(step35_limits, "step35", 2, {                                                                \
        make_drop_key(m, "step35.swiglu_clamp_shexp");                                             \
        make_array_raw(m, "step35.swiglu_clamp_shexp", GGUF_F32, 1, 4);                            \
    })                                                                                             \
    X(step35_heads, "step35", 2, {                                                                 \
        make_drop_key(m, "step35.attention.head_count");                                           \
        make_i32s(m, "step35.attention.head_count", (const int32_t[]){3, 2}, 2);                   \
    })                                                                                             \
    X(laguna_gates, "laguna", 2, make_tensor(m, "blk.0.attn_gate.weight")->ne[1] = 3)              \
    X(afmoe_kinds, "afmoe", 2, make_u32(m, "afmoe.attention.sliding_window_pattern", 0))           \
    X(mistral4_no_context, "mistral4", 2,                                                          \
      make_drop_key(m, "mistral4.rope.scaling.original_context_length"))                           \
    X(deepseek_normalised, "deepseek", 2, make_bool(m, "deepseek.expert_weights_norm", 1))         \
    X(bailingmoe_no_shared, "bailingmoe", 1, make_drop_tensor(m, "blk.0.ffn_up_shexp.weight"))     \
    X(dense_arch, "qwen3moe", 1, make_text(m, "general.architecture", "qwen3"))                    \
    X(t5_experts, "qwen3moe", 1, {                                                                 \
        make_text(m, "general.architecture", "t5");                                                \
        make_u32(m, "t5.expert_count", 8);                                                         \
    })

#endif
