/* SPDX-License-Identifier: Apache-2.0 */
/* Models of MiniMax, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

#define MOE   "model.layers.%u.block_sparse_moe."
#define INDEX "model.layers.%u.self_attn.index_"

/* MiniMax-M2: experts as in Mixtral. */
static const struct hf_row minimax_m2[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    GROUP(hf_qk_norms),
    UINT(intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(rotary_dim, "rope.dimension_count", OPTIONAL),
    ROTATED(partial_rotary_factor, "rope.dimension_count"),
    KEY("expert_gating_func", 2),
    MUST(scoring_func, "\"sigmoid\""),
    MUST(use_routing_bias, "true"),
    MUST(qk_norm_type, "\"per_layer\""),
    MUST(shared_intermediate_size, "0 null"),
    GROUP(hf_mixtral_experts),
    DENSE("model.layers.%u.block_sparse_moe.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
          F32, REQUIRED),
    END,
};
const struct hf_arch hf_minimax_m2 = {{"minimax_m2"}, "minimax-m2", minimax_m2};

/* MiniMax-M3: norms are stored minus 1, those of the indexer, too, which the layers with experts
 * have. */
static const struct hf_row minimax_m3[] = {
    UINT(num_hidden_layers, "block_count", REQUIRED),
    UINT(max_position_embeddings, "context_length", REQUIRED),
    UINT(hidden_size, "embedding_length", REQUIRED),
    UINT(num_attention_heads, "attention.head_count", REQUIRED),
    UINT(vocab_size, "vocab_size", REQUIRED),
    FLOAT(rope_theta, "rope.freq_base", REQUIRED),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(rotary_dim, "rope.dimension_count", OPTIONAL),
    ROTATED(partial_rotary_factor, "rope.dimension_count"),
    UINT(dense_intermediate_size, "feed_forward_length", REQUIRED),
    UINT(intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(shared_intermediate_size, "expert_shared_feed_forward_length", OPTIONAL),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    FLOAT(routed_scaling_factor, "expert_weights_scale", REQUIRED),
    SET("expert_weights_norm"),
    KEY("expert_gating_func", 2),
    UINT(sparse_attention_config.sparse_topk_blocks, "attention.indexer.top_k", REQUIRED),
    UINT(sparse_attention_config.sparse_block_size, "attention.indexer.block_size", REQUIRED),
    UINT(sparse_attention_config.sparse_local_block, "attention.indexer.local_blocks", REQUIRED),
    UINT(sparse_attention_config.sparse_num_index_heads, "attention.indexer.head_count", REQUIRED),
    UINT(sparse_attention_config.sparse_index_dim, "attention.indexer.key_length", REQUIRED),
    MUST(sparse_attention_config.sparse_init_block, "0 null"),
    MUST(sparse_attention_config.sparse_score_type, "\"max\" null"),
    EQUAL(sparse_attention_config.sparse_attention_freq, moe_layer_freq),
    MUST(hidden_act, "\"silu\" \"swigluoai\" null"),
    MUST(swiglu_alpha, "1.702 null"),
    MUST(swiglu_limit, "7.0 7 null"),
    MUST(scoring_func, "\"sigmoid\" null"),
    MUST(use_routing_bias, "true null"),
    MUST(attention_bias, "false null"),
    ENDS(F32_PLUS_1),
    NORMS(FFN_NORM, F32_PLUS_1),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    DENSE("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32_PLUS_1,
          REQUIRED),
    DENSE("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32_PLUS_1,
          REQUIRED),
    DENSE(INDEX "q_proj.weight", "blk.%u.indexer.q_proj.weight", MATRIX, EXPERTS),
    DENSE(INDEX "k_proj.weight", "blk.%u.indexer.k_proj.weight", MATRIX, EXPERTS),
    DENSE(INDEX "q_norm.weight", "blk.%u.indexer.q_norm.weight", F32_PLUS_1, EXPERTS),
    DENSE(INDEX "k_norm.weight", "blk.%u.indexer.k_norm.weight", F32_PLUS_1, EXPERTS),
    GROUP(hf_dense_ffn),
    DENSE(MOE "gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE(MOE "e_score_correction_bias", "blk.%u.exp_probs_b.bias", F32, EXPERTS),
    DENSE(MOE "shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX, SHARED),
    DENSE(MOE "shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX, SHARED),
    DENSE(MOE "shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX, SHARED),
    GROUP(hf_mixtral_matrices),
    END,
};
const struct hf_arch hf_minimax_m3 = {
    {"minimax_m3", "minimax_m3_vl_text"}, "minimax-m3", minimax_m3};

/* MiniMax-Text-01 and M1. The class `minimax` of the package transformers has another rotation
 * than the published models. */
#define LAYER "model.layers.%u.self_attn."

static const struct hf_row minimax_01[] = {
    GROUP(hf_core),
    UINT(rotary_dim, "rope.dimension_count", REQUIRED),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    OTHER("linear_attention"),
    FULL_FLAGS(attn_type_list),
    LAYER_FLAGS("attention.recurrent_layers"),
    FLOAT(layernorm_mlp_alpha, "residual_scale", REQUIRED),
    EQUAL(layernorm_full_attention_alpha, layernorm_mlp_alpha),
    EQUAL(layernorm_linear_attention_alpha, layernorm_mlp_alpha),
    HAS(layernorm_full_attention_beta, "1 1.0"),
    HAS(layernorm_linear_attention_beta, "1 1.0"),
    HAS(layernorm_mlp_beta, "1 1.0"),
    HAS(postnorm, "true"),
    MUST(shared_intermediate_size, "0 null"),
    MUST(sliding_window, "null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, FULL),
    DENSE(LAYER "qkv_proj.weight", "blk.%u.attn_qkv.weight", MATRIX, OTHER),
    DENSE(LAYER "output_gate.weight", "blk.%u.attn_gate.weight", MATRIX, OTHER),
    DENSE(LAYER "norm.weight", "blk.%u.attn_norm_2.weight", F32, OTHER),
    DENSE(LAYER "out_proj.weight", "blk.%u.attn_output.weight", MATRIX, OTHER),
    GROUP(hf_mixtral_experts),
    END,
};
const struct hf_arch hf_minimax_01 = {{"minimax_text_01", "minimax_m1"}, "minimax-01", minimax_01};
