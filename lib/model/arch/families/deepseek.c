/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of DeepSeek-V2 and what followed it, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* DeepSeek-MoE of 16 billion parameters: the K weights are not renormalised; adjacent elements are
 * rotated together. */
static const struct arch_row deepseek[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_softmax),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    CONST(rope_kind, ROPE_PAIRS),
    CONST(norm_top_k, 0),
    ONLY("expert_weights_norm", 0),
    END,
};
const struct arch arch_deepseek = {"deepseek", deepseek};

/* MLA, whose matrices of keys and values are absorbed: per head, attn_k_b makes a query for latents
 * and attn_v_b makes the result from their sum. The cache has one key head (latent and rotated
 * key); the values are the latents. Adjacent elements are rotated together. */
static const struct arch_row mla[] = {
    GROUP(arch_transformer),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    FLOAT_ELSE(rope_log_multiplier, "rope.scaling.yarn_log_multiplier", 0, 10, 0),
    CONST(rope_kind, ROPE_PAIRS),
    UINT(q_rank, "attention.q_lora_rank", 0, 16384, DERIVED),
    UINT(kv_rank, "attention.kv_lora_rank", 1, 1024, REQUIRED),
    UINT(mla_key_size, "attention.key_length_mla", 2, 1024, REQUIRED),
    UINT(mla_value_size, "attention.value_length_mla", 1, 1024, REQUIRED),
    MISSING("attention.key_length_mla",
            "a file of an old converter, with attn_kv_b; convert the model again"),
    ONLY("attention.head_count_kv", 1),
    LAYERS(LEADING, MLA, DENSE),
    LAYERS(ALL, MLA, EXPERTS),
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_Q, ANY, REQUIRED, HIDDEN, MLA_Q_ONE),
    SCALE(ATTN_Q, "blk.%u.attn_q", ONE),
    DENSE(ATTN_Q_A, ANY, REQUIRED, HIDDEN, Q_RANK),
    DENSE(ATTN_Q_A_NORM, FLOAT, REQUIRED, Q_RANK, ONE),
    DENSE(ATTN_Q_B, ANY, REQUIRED, Q_RANK, MLA_Q),
    DENSE(ATTN_KV_A, ANY, REQUIRED, HIDDEN, KV),
    DENSE(ATTN_KV_A_NORM, FLOAT, REQUIRED, KV_RANK, ONE),
    DENSE_3D(ATTN_K_B, ANY, REQUIRED, MLA_NOPE, KV_RANK, HEADS),
    DENSE_3D(ATTN_V_B, ANY, REQUIRED, KV_RANK, MLA_VALUE, HEADS),
    DENSE(ATTN_OUT, ANY, REQUIRED, MLA_MIX, HIDDEN),
    SCALE(ATTN_OUT, "blk.%u.attn_output", ONE),
    REJECTED("blk.%u.attn_kv_b.weight", "the form of an old converter"),
    GROUP(arch_dense_ffn),
    GROUP(arch_expert_ffn),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    UINT(gating, "expert_gating_func", 1, 2, DERIVED),
    FLAG(norm_top_k, "expert_weights_norm"),
    FLOAT_ELSE(expert_scale, "expert_weights_scale", 0, 1000, 0),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    UINT(query_context, "attention.temperature_length", 0, MODEL_CONTEXT_MAX, DERIVED),
    END,
};

/* DeepSeek-V2, V3 and R1, Kimi-K2, GLM-4.7-Flash, Mistral-Large-3. GLM-4.7-Flash (154880 tokens)
 * lacks the key of its router's function. Queries of Mistral-Large-3 grow with their position. */
static const struct arch_row deepseek2[] = {
    GROUP(mla),
    UINT(groups, "expert_group_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    DEFAULT_OF(gating, 47, 154880, ROUTER_SIGMOID),
    DEFAULT_OF(gating, 48, 154880, ROUTER_SIGMOID),
    DEFAULT(gating, ROUTER_SOFTMAX),
    FLOAT_ELSE(query_scale, "attention.temperature_scale", 0, 100, 0),
    END,
};
const struct arch arch_deepseek2 = {"deepseek2", deepseek2};

/* Mistral-Small-4: one group of experts; several would be chosen by another score than in deepseek2
 * with softmax. Queries grow with their position. The converter leaves out the keys of that, so
 * they have the values of the published model: 0.1, from YaRN's original context length on.
 * llama.cpp computes such files without it. */
static const struct arch_row mistral4[] = {
    GROUP(mla),
    UINT(groups, "expert_group_count", 0, 1, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, 1, DERIVED),
    DEFAULT(gating, ROUTER_SOFTMAX),
    FLOAT_ELSE(query_scale, "attention.temperature_scale", 0, 100, 0.1),
    ELSE(query_context, "rope.scaling.original_context_length"),
    END,
};
const struct arch arch_mistral4 = {"mistral4", mistral4};
