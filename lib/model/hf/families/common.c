/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows that several models share (common.h). */
#include "lib/model/hf/families/common.h"

/* Numbers that most architectures have. */
const struct hf_row hf_sizes[] = {
    GROUP(hf_sizes_without_rope),
    FLOAT(rope_theta, "rope.freq_base", REQUIRED),
    END,
};

const struct hf_row hf_sizes_without_rope[] = {
    UINT(num_hidden_layers, "block_count", REQUIRED),
    UINT(max_position_embeddings, "context_length", REQUIRED),
    UINT(hidden_size, "embedding_length", REQUIRED),
    UINT(num_attention_heads, "attention.head_count", REQUIRED),
    UINT(vocab_size, "vocab_size", REQUIRED),
    MUST(hidden_act, "\"silu\""),
    MUST(use_sliding_window, "false null"),
    MUST(decoder_sparse_step, "1"),
    MUST(mlp_only_layers, "[] null"),
    MUST(clip_qkv, "null"),
    END,
};

const struct hf_row hf_rms[] = {
    FLOAT(rms_norm_eps, "attention.layer_norm_rms_epsilon", REQUIRED),
    END,
};

const struct hf_row hf_heads[] = {
    UINT(num_key_value_heads, "attention.head_count_kv", OPTIONAL),
    UINT(head_dim, "attention.key_length", OPTIONAL),
    UINT(head_dim, "attention.value_length", OPTIONAL),
    END,
};

/* YaRN, or none. */
const struct hf_row hf_yarn[] = {
    ROPE("", "yarn", "yarn", "factor"),
    FLOAT(factor, "rope.scaling.factor", OPTIONAL),
    UINT(original_max_position_embeddings, "rope.scaling.original_context_length", OPTIONAL),
    FLOAT(beta_fast, "rope.scaling.yarn_beta_fast", OPTIONAL),
    FLOAT(beta_slow, "rope.scaling.yarn_beta_slow", OPTIONAL),
    END,
};

/* YaRN of layers that attend to all positions. */
const struct hf_row hf_yarn_full[] = {
    FLOAT(rope_parameters.full_attention.factor, "rope.scaling.factor", OPTIONAL),
    UINT(rope_parameters.full_attention.original_max_position_embeddings,
         "rope.scaling.original_context_length", OPTIONAL),
    FLOAT(rope_parameters.full_attention.beta_fast, "rope.scaling.yarn_beta_fast", OPTIONAL),
    FLOAT(rope_parameters.full_attention.beta_slow, "rope.scaling.yarn_beta_slow", OPTIONAL),
    FLOAT(rope_parameters.full_attention.attention_factor, "rope.scaling.yarn_attn_factor",
          OPTIONAL),
    MUST(rope_parameters.full_attention.truncate, "true null"),
    END,
};

/* Numbers of the models whose tensors CORE has; rope_theta may also be in rope_parameters. */
const struct hf_row hf_core[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(intermediate_size, "feed_forward_length", OPTIONAL),
    END,
};

const struct hf_row hf_common[] = {
    UINT(head_dim, "rope.dimension_count", OPTIONAL),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    MUST(attention_bias, "false null"),
    MUST(partial_rotary_factor, "1 1.0 null"),
    END,
};

/* The feed-forward network of the first layers, without experts. */
const struct hf_row hf_dense_ffn[] = {
    DENSE("model.layers.%u.mlp.gate_proj.weight", "blk.%u.ffn_gate.weight", MATRIX, DENSE),
    DENSE("model.layers.%u.mlp.up_proj.weight", "blk.%u.ffn_up.weight", MATRIX, DENSE),
    DENSE("model.layers.%u.mlp.down_proj.weight", "blk.%u.ffn_down.weight", MATRIX, DENSE),
    END,
};

/* The first layers have a feed-forward network, the others experts and shared ones. */
const struct hf_row hf_leading_dense[] = {
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_of_mlp),
    END,
};

/* The same without the experts. */
const struct hf_row hf_leading_dense_shared[] = {
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    GROUP(hf_leading_dense_shared_tensors),
    END,
};

/* The tensors of that. */
const struct hf_row hf_leading_dense_shared_tensors[] = {
    GROUP(hf_dense_ffn),
    DENSE("model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE("model.layers.%u.mlp.shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight",
          MATRIX, SHARED),
    DENSE("model.layers.%u.mlp.shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          SHARED),
    DENSE("model.layers.%u.mlp.shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight",
          MATRIX, SHARED),
    END,
};

/* A sigmoid router with a bias for the choice, as in DeepSeek-V3. */
const struct hf_row hf_sigmoid[] = {
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    UINT(n_group, "expert_group_count", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    FLOAT(routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    KEY("expert_gating_func", 2),
    MUST(scoring_func, "\"sigmoid\""),
    MUST(topk_method, "\"noaux_tc\""),
    MUST(moe_layer_freq, "1"),
    END,
};

const struct hf_row hf_qk_norms[] = {
    DENSE("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32, REQUIRED),
    DENSE("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32, REQUIRED),
    END,
};

const struct hf_row hf_experts_of_mlp[] = {
    EXPERT("model.layers.%u.mlp.experts.%u.gate_proj.weight", "blk.%u.ffn_gate_exps.weight"),
    EXPERT("model.layers.%u.mlp.experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight"),
    EXPERT("model.layers.%u.mlp.experts.%u.down_proj.weight", "blk.%u.ffn_down_exps.weight"),
    REJECTED("model.layers.0.mlp.experts.gate_up_proj", "the experts of a layer in one tensor"),
    END,
};

/* The same, or the experts of a layer in two tensors. */
const struct hf_row hf_experts_either[] = {
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight", STACK_FIRST),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_up_exps.weight", STACK_SECOND),
    EXPERTS("model.layers.%u.mlp.experts.down_proj", "blk.%u.ffn_down_exps.weight", STACK),
    EXPERT("model.layers.%u.mlp.experts.%u.gate_proj.weight", "blk.%u.ffn_gate_exps.weight"),
    EXPERT("model.layers.%u.mlp.experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight"),
    EXPERT("model.layers.%u.mlp.experts.%u.down_proj.weight", "blk.%u.ffn_down_exps.weight"),
    END,
};

/* Names of experts in Qwen and OLMoE. */
const struct hf_row hf_mlp_experts[] = {
    UINT(num_experts, "expert_count", REQUIRED),
    DENSE("model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    GROUP(hf_experts_of_mlp),
    END,
};

/* A shared expert with a gate of its own. */
const struct hf_row hf_gated_shared[] = {
    UINT(shared_expert_intermediate_size, "expert_shared_feed_forward_length", REQUIRED),
    DENSE("model.layers.%u.mlp.shared_expert_gate.weight", "blk.%u.ffn_gate_inp_shexp.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.mlp.shared_expert.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight",
          MATRIX, REQUIRED),
    DENSE("model.layers.%u.mlp.shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          REQUIRED),
    DENSE("model.layers.%u.mlp.shared_expert.down_proj.weight", "blk.%u.ffn_down_shexp.weight",
          MATRIX, REQUIRED),
    END,
};

const struct hf_row hf_mixtral_experts[] = {
    DENSE("model.layers.%u.block_sparse_moe.gate.weight", "blk.%u.ffn_gate_inp.weight", F32,
          REQUIRED),
    GROUP(hf_mixtral_matrices),
    END,
};

/* The same without the router. */
const struct hf_row hf_mixtral_matrices[] = {
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.w1.weight", "blk.%u.ffn_gate_exps.weight"),
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.w3.weight", "blk.%u.ffn_up_exps.weight"),
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.w2.weight", "blk.%u.ffn_down_exps.weight"),
    END,
};

/* Sizes of MLA. One key head in GGUF: the latent and the rotated key. */
const struct hf_row hf_mla_sizes[] = {
    UINT(kv_lora_rank, "attention.kv_lora_rank", REQUIRED),
    SUM(kv_lora_rank, qk_rope_head_dim, "attention.key_length"),
    SUM(qk_nope_head_dim, qk_rope_head_dim, "attention.key_length_mla"),
    UINT(v_head_dim, "attention.value_length_mla", REQUIRED),
    UINT(qk_rope_head_dim, "rope.dimension_count", REQUIRED),
    END,
};
