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
static const struct arch_row mla_layers[] = {
    GROUP(arch_transformer),
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
    END,
};

/* The same where all layers are alike. */
static const struct arch_row mla[] = {
    GROUP(mla_layers),
    GROUP(arch_no_window),
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

/* Hy4: an indexer in some layers, which rotates the last elements of its heads; a gate of each
 * element and a sink of each head of attention; streams that are weighed and not mixed. The norms
 * of latents have an epsilon of their own, which is the default of the published code; llama.cpp
 * takes that of the file. */
static const struct arch_row hy_v4[] = {
    GROUP(mla),
    DEFAULT(gating, ROUTER_SIGMOID),
    CONST_FLOAT(latent_eps, 1e-6),
    UINT(index_top_k, "attention.indexer.top_k", 0, MODEL_CONTEXT_MAX, DERIVED),
    INDEXED("attention.indexer.types", 0),
    CONST(index_rope, ROPE_PAIRS),
    CONST(index_last, 1),
    GROUP(arch_mla_indexer),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_ELEMENT),
    DENSE(ATTN_GATE, ANY, REQUIRED, HIDDEN, GATES),
    DENSE(ATTN_SINKS, FLOAT, REQUIRED, HEADS, ONE),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    GROUP(arch_weighed_streams),
    FLOAT(stream_magnitude, "hyper_connection.magnitude", 1e-3, 1000),
    CONST(stream_head, 1),
    END,
};
const struct arch arch_hy_v4 = {"hy_v4", hy_v4};

/* dots3-note: most layers attend to a window, with sizes of MLA and rotations of their own; the
 * others have an indexer, which rotates adjacent elements as attention does (transformers and vLLM;
 * llama.cpp rotates its halves). Rotated keys have a norm, and the result of each head a gate. The
 * factors sqrt(hidden / rank) of latents are part of the weights of their norms. */
static const struct arch_row dots3note[] = {
    GROUP(mla_layers),
    GROUP(indexer),
    DEFAULT(gating, ROUTER_SIGMOID),
    UINT(groups, "expert_group_count", 0, 1, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, 1, DERIVED),
    CONST(index_rope, ROPE_PAIRS),
    INDEXED("attention.indexer.types", 0),
    GROUP(arch_window),
    WINDOW_KEY("attention.sliding_window_pattern"),
    ARRAY(heads),
    UINT(kv_rank_window, "attention.kv_lora_rank_swa", 1, 1024, REQUIRED),
    UINT(head_size_window, "attention.key_length_swa", 2, 2048, DERIVED),
    UINT(value_size_window, "attention.value_length_swa", 1, 1024, DERIVED),
    UINT(mla_key_size_window, "attention.key_length_mla_swa", 2, 1024, REQUIRED),
    UINT(mla_value_size_window, "attention.value_length_mla_swa", 1, 1024, REQUIRED),
    DENSE(MLA_K_NORM, FLOAT, REQUIRED, ROPE, ONE),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_HEAD),
    DENSE(ATTN_GATE, ANY, REQUIRED, HIDDEN, GATES),
    END,
};
const struct arch arch_dots3note = {"dots3note", dots3note};

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

/* DeepSeek-V4: attention over a window of keys that are values, too, with sinks, and over entries
 * of 4 or 128 positions, of which an indexer chooses where they are many; two matrices of the
 * results of heads, the first one by groups; four streams that are mixed, which the output weighs;
 * experts that a table names by the token in the first layers. Layers without entries have
 * rotations of their own, which are not scaled. The limits of shared experts are those of the
 * others, where the file does not state them. */
static const struct arch_row entry_tensors[] = {
    NAME(ATTN_KV_A, "blk.%u.attn_kv.weight"),
    NAME(ATTN_OUT, "blk.%u.attn_output_b.weight"),
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_SINKS, FLOAT, REQUIRED, HEADS, ONE),
    DENSE(ATTN_Q_A, ANY, REQUIRED, HIDDEN, Q_RANK),
    DENSE(ATTN_Q_A_NORM, FLOAT, REQUIRED, Q_RANK, ONE),
    DENSE(ATTN_Q_B, ANY, REQUIRED, Q_RANK, Q),
    DENSE(ATTN_KV_A, ANY, REQUIRED, HIDDEN, KV),
    DENSE(ATTN_KV_A_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_OUT_A, ANY, REQUIRED, GROUP, GROUP_RANKS),
    DENSE(ATTN_OUT, ANY, REQUIRED, GROUP_RANKS, HIDDEN),
    DENSE(ENTRY_VALUES, ANY, REQUIRED, HIDDEN, ENTRY_PARTS),
    DENSE(ENTRY_GATES, ANY, REQUIRED, HIDDEN, ENTRY_PARTS),
    DENSE(ENTRY_BIAS, KEPT, REQUIRED, ENTRY_PARTS, ENTRY_UNIT),
    DENSE(ENTRY_NORM, FLOAT, REQUIRED, ENTRY, ONE),
    DENSE(INDEX_Q, ANY, REQUIRED, Q_RANK, INDEX_Q),
    DENSE(INDEX_WEIGHTS, ANY, REQUIRED, HIDDEN, INDEX_HEADS),
    DENSE(INDEX_VALUES, ANY, REQUIRED, HIDDEN, INDEX_PARTS),
    DENSE(INDEX_GATES, ANY, REQUIRED, HIDDEN, INDEX_PARTS),
    DENSE(INDEX_BIAS, KEPT, REQUIRED, INDEX_PARTS, ENTRY_UNIT),
    DENSE(INDEX_NORM, FLOAT, REQUIRED, INDEX_KEY, ONE),
    END,
};

/* Of longer contexts, cos and sin have no factor if the file states none. */
static const struct arch_row unscaled_yarn[] = {
    TEXT(rope_scaling, "rope.scaling.type", "yarn", ROPE_YARN),
    TEXT(rope_scaling, "rope.scaling.type", "linear", ROPE_LINEAR),
    FLOAT_OLD(rope_factor, "rope.scale_linear", 0, 1000),
    FLOAT_ELSE(rope_factor, "rope.scaling.factor", 0, 1000, 0),
    UINT(rope_context, "rope.scaling.original_context_length", 0, MODEL_TRAINED_MAX, DERIVED),
    FLOAT_ELSE(rope_beta_fast, "rope.scaling.yarn_beta_fast", 0, 1000, 0),
    FLOAT_ELSE(rope_beta_slow, "rope.scaling.yarn_beta_slow", 0, 1000, 0),
    FLOAT_ELSE(rope_magnitude, "rope.scaling.yarn_attn_factor", 0, 100, 1),
    FLOAT_ELSE(rope_attention, "rope.scaling.attn_factor", 0, 100, 0),
    ONLY_FLOAT("rope.scaling.yarn_ext_factor", 1),
    CONST(rope_truncate, 1),
    END,
};

static const struct arch_row deepseek4[] = {
    FLOAT(rms_eps, "attention.layer_norm_rms_epsilon", 1e-20, 0.1),
    GROUP(arch_counts),
    UINT(rope_dims, "rope.dimension_count", 2, 256, REQUIRED),
    FLOAT(rope_theta, "attention.compress_rope_freq_base", 1, 1e12),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base", 1, 1e12, 10000),
    GROUP(unscaled_yarn),
    CONST(rope_kind, ROPE_PAIRS),
    ONLY("attention.causal", 1),
    DENSE(TOKEN_EMBD, ANY, REQUIRED, HIDDEN, VOCAB),
    DENSE(OUTPUT_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    GROUP(arch_output),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    FULL_EVERY(0, 0),
    LAYERS(ALL, ENTRIES, EXPERTS),
    UINT(q_rank, "attention.q_lora_rank", 1, 16384, REQUIRED),
    UINT(output_groups, "attention.output_group_count", 1, 1024, REQUIRED),
    UINT(output_rank, "attention.output_lora_rank", 1, 16384, REQUIRED),
    ENTRIES("attention.compress_ratios"),
    UINT(index_heads, "attention.indexer.head_count", 0, 256, DERIVED),
    UINT(index_size, "attention.indexer.key_length", 0, 256, DERIVED),
    UINT(index_top_k, "attention.indexer.top_k", 0, MODEL_CONTEXT_MAX / 8, DERIVED),
    CONST(index_block, MODEL_ENTRY_FEW),
    CONST(index_tail, MODEL_ENTRY_FEW - 1),
    CONST(index_rope, ROPE_PAIRS),
    GROUP(entry_tensors),
    GROUP(arch_mixed_streams),
    CONST(stream_head, 1),
    GROUP(arch_expert_ffn),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    SAME(expert_inner),
    UINT(gating, "expert_gating_func", ROUTER_SQRT_SOFTPLUS, ROUTER_SQRT_SOFTPLUS, REQUIRED),
    FLAG(norm_top_k, "expert_weights_norm"),
    FLOAT_ELSE(expert_scale, "expert_weights_scale", 0, 1000, 0),
    BELOW("expert_group_count", 2),
    UINT(table_layers, "hash_layer_count", 0, MODEL_LAYERS_MAX, DERIVED),
    DENSE(EXPERT_TABLE, IDS, REQUIRED, TABLE_USED, VOCAB),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, SCORED, ONE),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    LIMITS(dense_limits, "swiglu_clamp_exp"),
    LIMITS(dense_limits, "swiglu_clamp_shexp"),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    SKIPPED_NAME("blk.%u.nextn.eh_proj.weight"),
    UNUSED("blk.%u.exp_probs_b_vl.bias"),
    END,
};
const struct arch arch_deepseek4 = {"deepseek4", deepseek4};
