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

/* MLA in every layer. Adjacent elements are rotated together. */
static const struct arch_row mla[] = {
    GROUP(arch_transformer),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    FLOAT_ELSE(rope_log_multiplier, "rope.scaling.yarn_log_multiplier", 0, 10, 0),
    CONST(rope_kind, ROPE_PAIRS),
    GROUP(arch_mla_sizes),
    ONLY("attention.head_count_kv", 1),
    LAYERS(LEADING, MLA, DENSE),
    LAYERS(ALL, MLA, EXPERTS),
    GROUP(arch_mla),
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
 * lacks the key of its router's function. Queries of Mistral-Large-3 grow with their position. Some
 * files of DeepSeek-V3.2 have this architecture, and tensors of the indexer. */
static const struct arch_row deepseek2[] = {
    GROUP(mla),
    GROUP(arch_mla_indexer_unused),
    UINT(index_top_k, "attention.indexer.top_k", 0, MODEL_CONTEXT_MAX, DERIVED),
    TENSOR(index_top_k, "blk.0.indexer.attn_k.weight", 2048),
    UINT(groups, "expert_group_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    DEFAULT_OF(gating, 47, 154880, ROUTER_SIGMOID),
    DEFAULT_OF(gating, 48, 154880, ROUTER_SIGMOID),
    DEFAULT(gating, ROUTER_SOFTMAX),
    FLOAT_ELSE(query_scale, "attention.temperature_scale", 0, 100, 0),
    END,
};
const struct arch arch_deepseek2 = {"deepseek2", deepseek2};

static const struct arch_row indexer[] = {
    UINT(index_top_k, "attention.indexer.top_k", 1, MODEL_CONTEXT_MAX, REQUIRED),
    CONST_FLOAT(index_eps, 1e-6),
    GROUP(arch_mla_indexer),
    END,
};

/* DeepSeek-V3.2, whose indexer is in every layer; GLM-5 to 5.3, in which some layers take the
 * choice of one before them. Files of GLM lack the key of the router's function. The indexer
 * rotates as attention does in the latter alone. */
static const struct arch_row sparse_mla[] = {
    GROUP(mla),
    GROUP(indexer),
    UINT(groups, "expert_group_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    END,
};

static const struct arch_row deepseek32[] = {
    GROUP(sparse_mla),
    CONST(index_rope, ROPE_HALVES),
    END,
};
const struct arch arch_deepseek32 = {"deepseek32", deepseek32};

static const struct arch_row glm_dsa[] = {
    GROUP(sparse_mla),
    CONST(index_rope, ROPE_PAIRS),
    INDEXED("attention.indexer.types", 1048576),
    END,
};
const struct arch arch_glm_dsa = {"glm-dsa", glm_dsa};

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
