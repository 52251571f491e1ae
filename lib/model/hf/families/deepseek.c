/* SPDX-License-Identifier: Apache-2.0 */
/* Models of DeepSeek-V2 and what followed it, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

/* MLA: of each head in kv_b_proj, rows for keys (turned in GGUF), then rows for values. Elements 2i
 * and 2i + 1 are rotated together in the checkpoint, too. One key head in GGUF: the latent and the
 * rotated key. Blocks for drafting, after the last layer, are left out. */
static const struct hf_row mla[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_yarn),
    TENTH(mscale_all_dim, "rope.scaling.yarn_log_multiplier"),
    EQUAL(mscale, mscale_all_dim),
    MUST(truncate, "true null"),
    MUST(attention_factor, "null"),
    MUST(attention_bias, "false null"),
    MUST(rope_interleave, "true null"),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    KEY("attention.head_count_kv", 1),
    UINT(q_lora_rank, "attention.q_lora_rank", OPTIONAL),
    UINT(kv_lora_rank, "attention.value_length", REQUIRED),
    GROUP(hf_mla_sizes),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    DENSE("model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight", MATRIX, OPTIONAL),
    DENSE("model.layers.%u.self_attn.q_a_proj.weight", "blk.%u.attn_q_a.weight", MATRIX, OPTIONAL),
    DENSE("model.layers.%u.self_attn.q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight", F32,
          OPTIONAL),
    DENSE("model.layers.%u.self_attn.q_b_proj.weight", "blk.%u.attn_q_b.weight", MATRIX, OPTIONAL),
    MLA_TENSORS("model.layers.%u.self_attn.", REQUIRED),
    DENSE("model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    END,
};

/* DeepSeek-MoE: grouped or not, heads of hidden_size / num_attention_heads. */
static const struct hf_row deepseek[] = {
    CORE(Q_ROWS, K_ROWS, FFN_NORM),
    GROUP(hf_leading_dense),
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(first_k_dense_replace, "leading_dense_block_count", REQUIRED),
    KEY("expert_gating_func", 1),
    MUST(scoring_func, "\"softmax\" null"),
    MUST(norm_topk_prob, "false null"),
    MUST(moe_layer_freq, "1"),
    MUST(attention_bias, "false null"),
    END,
};
const struct hf_arch hf_deepseek = {{"deepseek"}, "deepseek", deepseek};

/* DeepSeek-V2, and Lite. Larger models choose the groups with the largest scores first; Lite has
 * one group. */
static const struct hf_row deepseek2[] = {
    GROUP(mla),
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(first_k_dense_replace, "leading_dense_block_count", REQUIRED),
    FLOAT(routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    KEY("expert_gating_func", 1),
    MUST(scoring_func, "\"softmax\""),
    HAS(topk_method, "\"greedy\" \"group_limited_greedy\""),
    WITH(topk_method, "group_limited_greedy", n_group, "expert_group_count"),
    WITH(topk_method, "group_limited_greedy", topk_group, "expert_group_used_count"),
    MUST(norm_topk_prob, "false null"),
    MUST(moe_layer_freq, "1"),
    GROUP(hf_leading_dense),
    END,
};
const struct hf_arch hf_deepseek2 = {{"deepseek_v2"}, "deepseek2", deepseek2};

/* DeepSeek-V3 and R1, Kimi-K2. */
static const struct hf_row deepseek3[] = {
    GROUP(mla),
    GROUP(hf_sigmoid),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_deepseek3 = {{"deepseek_v3", "kimi_k2"}, "deepseek2", deepseek3};

#define INDEXER "model.layers.%u.self_attn.indexer."

/* An indexer in MLA: its heads are rotated as they are in GGUF. */
static const struct hf_row indexer[] = {
    UINT(index_topk, "attention.indexer.top_k", REQUIRED),
    UINT(index_n_heads, "attention.indexer.head_count", REQUIRED),
    UINT(index_head_dim, "attention.indexer.key_length", REQUIRED),
    DENSE(INDEXER "wq_b.weight", "blk.%u.indexer.attn_q_b.weight", MATRIX, OPTIONAL),
    DENSE(INDEXER "wk.weight", "blk.%u.indexer.attn_k.weight", MATRIX, OPTIONAL),
    DENSE(INDEXER "k_norm.weight", "blk.%u.indexer.k_norm.weight", F32, OPTIONAL),
    DENSE(INDEXER "k_norm.bias", "blk.%u.indexer.k_norm.bias", F32, OPTIONAL),
    DENSE(INDEXER "weights_proj.weight", "blk.%u.indexer.proj.weight", MATRIX, OPTIONAL),
    END,
};

/* DeepSeek-V3.2, GLM-5 to 5.3. */
static const struct hf_row sparse_mla[] = {
    GROUP(mla),
    GROUP(hf_sigmoid),
    ALIKE("indexed_attention"),
    GROUP(indexer),
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_either),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_deepseek32 = {{"deepseek_v32"}, "deepseek32", sparse_mla};

static const struct hf_row glm_dsa[] = {
    GROUP(sparse_mla),
    INDEXERS(indexer_types, index_topk_pattern, "attention.indexer.types"),
    END,
};
const struct hf_arch hf_glm_dsa = {{"glm_moe_dsa"}, "glm-dsa", glm_dsa};

#define LAYER "model.layers.%u.self_attn."

/* GLM-5.3-Flash: Kimi delta attention beside MLA without rotations, an indexer over pools, and
 * streams that are mixed. */
static const struct hf_row glm5_next[] = {
    GROUP(hf_sizes_without_rope),
    GROUP(hf_rms),
    GROUP(hf_mla_sizes),
    GROUP(hf_sigmoid),
    UINT(kv_lora_rank, "attention.value_length", REQUIRED),
    UINT(q_lora_rank, "attention.q_lora_rank", REQUIRED),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(linear_attn_config.short_conv_kernel_size, "ssm.conv_kernel", REQUIRED),
    UINT(linear_attn_config.head_dim, "kda.head_dim", REQUIRED),
    FLOAT(linear_attn_config.gate_lower_bound, "kda.gate_lower_bound", REQUIRED),
    UINT(hc_mult, "hyper_connection.count", REQUIRED),
    UINT(hc_sinkhorn_iters, "hyper_connection.sinkhorn_iterations", REQUIRED),
    FLOAT(hc_eps, "hyper_connection.epsilon", REQUIRED),
    FLOAT(swiglu_limit, "swiglu_clamp_exp", OPTIONAL),
    FLOAT(swiglu_limit, "swiglu_clamp_shexp", OPTIONAL),
    GROUP(indexer),
    UINT(index_kpool, "attention.indexer.kpool", REQUIRED),
    INDEXERS(indexer_types, index_topk_pattern, "attention.indexer.types"),
    OTHER_NAMED("linear_attention", "indexed_attention"),
    LAYER_ONES("attention.head_count_kv"),
    EQUAL(linear_attn_config.num_heads, num_attention_heads),
    HAS(mla_use_nope, "true"),
    MUST(qk_rope_head_dim, "0"),
    MUST(mhc, "true null"),
    MUST(index_kpool_always_select_tail, "true null"),
    MUST(attention_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "q_a_proj.weight", "blk.%u.attn_q_a.weight", MATRIX, FULL),
    DENSE(LAYER "q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight", F32, FULL),
    DENSE(LAYER "q_b_proj.weight", "blk.%u.attn_q_b.weight", MATRIX, FULL),
    MLA_TENSORS(LAYER, FULL),
    DENSE(LAYER "q_proj.weight", "blk.%u.attn_q.weight", MATRIX, OTHER),
    KDA_TENSORS(LAYER, DELTA_A_GROUPED),
    DENSE(LAYER "f_a_proj.weight", "blk.%u.ssm_f_a.weight", MATRIX, OTHER),
    DENSE(LAYER "f_b_proj.weight", "blk.%u.ssm_f_b.weight", MATRIX, OTHER),
    DENSE(LAYER "g_a_proj.weight", "blk.%u.ssm_g_a.weight", MATRIX, OTHER),
    DENSE(LAYER "g_b_proj.weight", "blk.%u.ssm_g_b.weight", MATRIX, OTHER),
    DENSE(LAYER "o_proj.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    DENSE(INDEXER "index_kpool_compress_gate", "blk.%u.indexer_compressor_gate.weight", F32,
          OPTIONAL),
    DENSE(INDEXER "index_kpool_compress_ape", "blk.%u.indexer_compressor_ape.weight", F32,
          OPTIONAL),
    DENSE("model.layers.%u.hc_attn_fn", "blk.%u.hc_attn_fn.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_attn_base", "blk.%u.hc_attn_base.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_attn_scale", "blk.%u.hc_attn_scale.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_ffn_fn", "blk.%u.hc_ffn_fn.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_ffn_base", "blk.%u.hc_ffn_base.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_ffn_scale", "blk.%u.hc_ffn_scale.weight", F32, REQUIRED),
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_either),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_glm5_next = {{"glm5_next", "glm5_next_text"}, "glm5-next", glm5_next};

/* Hy4: gates, sinks, and streams that are weighed. */
static const struct hf_row hy_v4[] = {
    GROUP(mla),
    ALIKE("indexed_attention"),
    GROUP(indexer),
    INDEXERS(indexer_types, index_topk_pattern, "attention.indexer.types"),
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    FLOAT(routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    KEY("expert_gating_func", 2),
    MUST(n_group, "1 null"),
    MUST(topk_group, "1 null"),
    FLOAT(swiglu_limit, "swiglu_clamp_exp", OPTIONAL),
    UINT(hc_mult, "hyper_connection.count", REQUIRED),
    FLOAT(hc_eps, "hyper_connection.epsilon", REQUIRED),
    FLOAT(hc_magnitude, "hyper_connection.magnitude", REQUIRED),
    DENSE(LAYER "linear_gate.weight", "blk.%u.attn_gate.weight", MATRIX, REQUIRED),
    DENSE(LAYER "learnable_sink_param", "blk.%u.attn_sinks.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_attn_layer.hc_pre.hc_fn", "blk.%u.hc_attn_fn.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_attn_layer.hc_pre.hc_base", "blk.%u.hc_attn_base.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.hc_attn_layer.hc_pre.hc_scale", "blk.%u.hc_attn_scale.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.hc_mlp_layer.hc_pre.hc_fn", "blk.%u.hc_ffn_fn.weight", F32, REQUIRED),
    DENSE("model.layers.%u.hc_mlp_layer.hc_pre.hc_base", "blk.%u.hc_ffn_base.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.hc_mlp_layer.hc_pre.hc_scale", "blk.%u.hc_ffn_scale.weight", F32,
          REQUIRED),
    DENSE("model.hc_head.hc_head_fn", "output_hc_fn.weight", F32, REQUIRED),
    DENSE("model.hc_head.hc_head_base", "output_hc_base.weight", F32, REQUIRED),
    DENSE("model.hc_head.hc_head_scale", "output_hc_scale.weight", F32, REQUIRED),
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_either),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_hy_v4 = {{"hy_v4"}, "hy_v4", hy_v4};

/* dots3-note: MLA in two geometries. Latents have factors, which GGUF has in the weights of their
 * norms. Towers of images and sounds are not read. */
static const struct hf_row dots3note[] = {
    UINT(num_hidden_layers, "block_count", REQUIRED),
    UINT(max_position_embeddings, "context_length", REQUIRED),
    UINT(hidden_size, "embedding_length", REQUIRED),
    UINT(vocab_size, "vocab_size", REQUIRED),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    GROUP(hf_rms),
    GROUP(hf_mla_sizes),
    GROUP(hf_sigmoid),
    UINT(kv_lora_rank, "attention.value_length", REQUIRED),
    UINT(q_lora_rank, "attention.q_lora_rank", REQUIRED),
    KEY("attention.head_count_kv", 1),
    FLOAT(rope_theta, "rope.freq_base", REQUIRED),
    FLOAT(swa_rope_theta, "rope.freq_base_swa", REQUIRED),
    UINT(sliding_window_size, "attention.sliding_window", REQUIRED),
    OTHER("sliding_attention"),
    LAYER_FLAGS("attention.sliding_window_pattern"),
    LAYER_UINTS("num_attention_heads", "swa_num_attention_heads", "attention.head_count"),
    UINT(swa_kv_lora_rank, "attention.kv_lora_rank_swa", REQUIRED),
    UINT(swa_kv_lora_rank, "attention.value_length_swa", REQUIRED),
    SUM(swa_kv_lora_rank, swa_qk_rope_head_dim, "attention.key_length_swa"),
    SUM(swa_qk_nope_head_dim, swa_qk_rope_head_dim, "attention.key_length_mla_swa"),
    UINT(swa_v_head_dim, "attention.value_length_mla_swa", REQUIRED),
    EQUAL(q_lora_rank, swa_q_lora_rank),
    EQUAL(qk_rope_head_dim, swa_qk_rope_head_dim),
    GROUP(indexer),
    MUST(hidden_act, "\"silu\""),
    MUST(use_dsa, "true null"),
    MUST(normalization, "\"RMSNorm\" null"),
    MUST(k_rope_only_layernorm, "true null"),
    HAS(apply_mla_qkv_lora_rescale, "true"),
    MUST(attention_gate_type, "\"headwise\" null"),
    MUST(swa_attention_gate_type, "\"headwise\" null"),
    MUST(attention_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "q_a_proj.weight", "blk.%u.attn_q_a.weight", MATRIX, REQUIRED),
    DENSE(LAYER "q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight", F32_OF_LATENT, REQUIRED),
    DENSE(LAYER "q_b_proj.weight", "blk.%u.attn_q_b.weight", MATRIX, REQUIRED),
    DENSE(LAYER "kv_a_proj_with_mqa.weight", "blk.%u.attn_kv_a_mqa.weight", MATRIX, REQUIRED),
    DENSE(LAYER "kv_a_layernorm.weight", "blk.%u.attn_kv_a_norm.weight", F32_OF_LATENT, REQUIRED),
    DENSE(LAYER "k_rope_only_layernorm.weight", "blk.%u.attn_k_norm.weight", F32, REQUIRED),
    DENSE(LAYER "kv_b_proj.weight", "blk.%u.attn_k_b.weight", MLA_K, FULL),
    DENSE(LAYER "kv_b_proj.weight", "blk.%u.attn_v_b.weight", MLA_V, FULL),
    DENSE(LAYER "kv_b_proj.weight", "blk.%u.attn_k_b.weight", MLA_K_WINDOW, OTHER),
    DENSE(LAYER "kv_b_proj.weight", "blk.%u.attn_v_b.weight", MLA_V_WINDOW, OTHER),
    DENSE(LAYER "g_proj.weight", "blk.%u.attn_gate.weight", MATRIX, REQUIRED),
    DENSE(LAYER "o_proj.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_either),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_dots3note = {{"dots3_note", "dots3_note_text"}, "dots3note", dots3note};

#define PART "layers.%u.attn."
#define HEAD "layers.%u.ffn."

/* DeepSeek-V4, with the names of its checkpoints: experts of MXFP4, other matrices of FP8, both
 * with exponents as scales. Blocks for drafting (mtp.) are left out. */
static const struct hf_row deepseek4_attention[] = {
    DENSE("layers.%u.attn_norm.weight", "blk.%u.attn_norm.weight", F32, REQUIRED),
    DENSE(PART "attn_sink", "blk.%u.attn_sinks.weight", F32, REQUIRED),
    DENSE(PART "wq_a.weight", "blk.%u.attn_q_a.weight", MATRIX, REQUIRED),
    DENSE(PART "q_norm.weight", "blk.%u.attn_q_a_norm.weight", F32, REQUIRED),
    DENSE(PART "wq_b.weight", "blk.%u.attn_q_b.weight", MATRIX, REQUIRED),
    DENSE(PART "wkv.weight", "blk.%u.attn_kv.weight", MATRIX, REQUIRED),
    DENSE(PART "kv_norm.weight", "blk.%u.attn_kv_a_norm.weight", F32, REQUIRED),
    DENSE(PART "wo_a.weight", "blk.%u.attn_output_a.weight", MATRIX, REQUIRED),
    DENSE(PART "wo_b.weight", "blk.%u.attn_output_b.weight", MATRIX, REQUIRED),
    DENSE(PART "compressor.wkv.weight", "blk.%u.attn_compressor_kv.weight", MATRIX, OPTIONAL),
    DENSE(PART "compressor.wgate.weight", "blk.%u.attn_compressor_gate.weight", MATRIX, OPTIONAL),
    DENSE(PART "compressor.ape", "blk.%u.attn_compressor_ape.weight", F32, OPTIONAL),
    DENSE(PART "compressor.norm.weight", "blk.%u.attn_compressor_norm.weight", F32, OPTIONAL),
    DENSE(PART "indexer.wq_b.weight", "blk.%u.indexer.attn_q_b.weight", MATRIX, OPTIONAL),
    DENSE(PART "indexer.weights_proj.weight", "blk.%u.indexer.proj.weight", MATRIX, OPTIONAL),
    DENSE(PART "indexer.compressor.wkv.weight", "blk.%u.indexer_compressor_kv.weight", MATRIX,
          OPTIONAL),
    DENSE(PART "indexer.compressor.wgate.weight", "blk.%u.indexer_compressor_gate.weight", MATRIX,
          OPTIONAL),
    DENSE(PART "indexer.compressor.ape", "blk.%u.indexer_compressor_ape.weight", F32, OPTIONAL),
    DENSE(PART "indexer.compressor.norm.weight", "blk.%u.indexer_compressor_norm.weight", F32,
          OPTIONAL),
    END,
};

static const struct hf_row deepseek4_streams[] = {
    UINT(hc_mult, "hyper_connection.count", REQUIRED),
    UINT(hc_sinkhorn_iters, "hyper_connection.sinkhorn_iterations", REQUIRED),
    FLOAT(hc_eps, "hyper_connection.epsilon", REQUIRED),
    DENSE("layers.%u.hc_attn_fn", "blk.%u.hc_attn_fn.weight", F32, REQUIRED),
    DENSE("layers.%u.hc_attn_base", "blk.%u.hc_attn_base.weight", F32, REQUIRED),
    DENSE("layers.%u.hc_attn_scale", "blk.%u.hc_attn_scale.weight", F32, REQUIRED),
    DENSE("layers.%u.hc_ffn_fn", "blk.%u.hc_ffn_fn.weight", F32, REQUIRED),
    DENSE("layers.%u.hc_ffn_base", "blk.%u.hc_ffn_base.weight", F32, REQUIRED),
    DENSE("layers.%u.hc_ffn_scale", "blk.%u.hc_ffn_scale.weight", F32, REQUIRED),
    DENSE("hc_head_fn", "output_hc_fn.weight", F32, REQUIRED),
    DENSE("hc_head_base", "output_hc_base.weight", F32, REQUIRED),
    DENSE("hc_head_scale", "output_hc_scale.weight", F32, REQUIRED),
    END,
};

static const struct hf_row deepseek4_experts[] = {
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    LEADING_OF("hash_moe", "moe", num_hash_layers, "hash_layer_count"),
    FLOAT(routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    FLOAT(swiglu_limit, "swiglu_clamp_exp", REQUIRED),
    KEY("expert_gating_func", 4),
    MUST(scoring_func, "\"sqrtsoftplus\""),
    DENSE("layers.%u.ffn_norm.weight", "blk.%u.ffn_norm.weight", F32, REQUIRED),
    DENSE(HEAD "gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    DENSE(HEAD "gate.tid2eid", "blk.%u.ffn_gate_tid2eid.weight", IDS, OPTIONAL),
    DENSE(HEAD "gate.bias", "blk.%u.exp_probs_b.bias", F32, OPTIONAL),
    DENSE(HEAD "shared_experts.w1.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX, REQUIRED),
    DENSE(HEAD "shared_experts.w3.weight", "blk.%u.ffn_up_shexp.weight", MATRIX, REQUIRED),
    DENSE(HEAD "shared_experts.w2.weight", "blk.%u.ffn_down_shexp.weight", MATRIX, REQUIRED),
    EXPERT(HEAD "experts.%u.w1.weight", "blk.%u.ffn_gate_exps.weight"),
    EXPERT(HEAD "experts.%u.w3.weight", "blk.%u.ffn_up_exps.weight"),
    EXPERT(HEAD "experts.%u.w2.weight", "blk.%u.ffn_down_exps.weight"),
    END,
};

#define V4_MAIN     "rope_parameters.main"
#define V4_COMPRESS "rope_parameters.compress"
#define V4_PART     ".partial_rotary_factor"

/* The published files have layer_types as numbers, and one rope_scaling; those that transformers
 * writes have names, and YaRN for layers with entries alone, as it is computed for both. In these
 * only the bases and parts of both rotations count (DeepseekV4Config): the fields that published
 * files have are written with their defaults. transformers ignores one rotation without the other,
 * and rotates whole heads without a part: both are rejected. */
static const struct hf_row deepseek4_rotation[] = {
    GROUP(hf_yarn),
    ROPE(V4_MAIN, "default", "", V4_MAIN V4_PART),
    ROPE(V4_COMPRESS, "yarn", "yarn", V4_COMPRESS V4_PART),
    ROPE(V4_COMPRESS, "default", "", V4_COMPRESS V4_PART),
    EQUAL(rope_parameters.main.partial_rotary_factor,
          rope_parameters.compress.partial_rotary_factor),
    ROTATED(rope_parameters.main.partial_rotary_factor, "rope.dimension_count"),
    UINT(qk_rope_head_dim, "rope.dimension_count", REQUIRED),
    FLOAT(rope_parameters.main.rope_theta, "rope.freq_base", OPTIONAL),
    FLOAT(rope_parameters.compress.rope_theta, "attention.compress_rope_freq_base", OPTIONAL),
    FLOAT(compress_rope_theta, "attention.compress_rope_freq_base", REQUIRED),
    FLOAT(rope_parameters.compress.factor, "rope.scaling.factor", OPTIONAL),
    UINT(rope_parameters.compress.original_max_position_embeddings,
         "rope.scaling.original_context_length", OPTIONAL),
    FLOAT(rope_parameters.compress.beta_fast, "rope.scaling.yarn_beta_fast", OPTIONAL),
    FLOAT(rope_parameters.compress.beta_slow, "rope.scaling.yarn_beta_slow", OPTIONAL),
    MUST(rope_parameters.compress.attention_factor, "1 1.0 null"),
    END,
};

static const struct hf_row deepseek4[] = {
    GROUP(deepseek4_rotation),
    GROUP(hf_sizes),
    GROUP(hf_rms),
    UINT(num_key_value_heads, "attention.head_count_kv", REQUIRED),
    UINT(head_dim, "attention.key_length", REQUIRED),
    UINT(head_dim, "attention.value_length", REQUIRED),
    UINT(q_lora_rank, "attention.q_lora_rank", REQUIRED),
    UINT(o_groups, "attention.output_group_count", REQUIRED),
    UINT(o_lora_rank, "attention.output_lora_rank", REQUIRED),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    LISTED(compress_ratios, "attention.compress_ratios"),
    TYPED("sliding_attention", compress_rates.sliding_attention, 0, "attention.compress_ratios"),
    TYPED("compressed_sparse_attention", compress_rates.compressed_sparse_attention, 4,
          "attention.compress_ratios"),
    TYPED("heavily_compressed_attention", compress_rates.heavily_compressed_attention, 128,
          "attention.compress_ratios"),
    UINT(index_topk, "attention.indexer.top_k", REQUIRED),
    UINT(index_n_heads, "attention.indexer.head_count", REQUIRED),
    UINT(index_head_dim, "attention.indexer.key_length", REQUIRED),
    MUST(attention_factor, "1 1.0 null"),
    MUST(attention_bias, "false null"),
    MUST(tie_word_embeddings, "false null"),
    DENSE("embed.weight", "token_embd.weight", MATRIX, REQUIRED),
    DENSE("norm.weight", "output_norm.weight", F32, REQUIRED),
    DENSE("head.weight", "output.weight", MATRIX, REQUIRED),
    GROUP(deepseek4_attention),
    GROUP(deepseek4_streams),
    GROUP(deepseek4_experts),
    END,
};
const struct hf_arch hf_deepseek4 = {{"deepseek_v4"}, "deepseek4", deepseek4};

/* GLM-4.7-Flash. */
static const struct hf_row glm4_lite[] = {
    GROUP(mla),
    GROUP(hf_sigmoid),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    END,
};
const struct hf_arch hf_glm4_lite = {{"glm4_moe_lite"}, "deepseek2", glm4_lite};

/* Mistral-Small-4: queries grow with their position, from YaRN's original context on. */
static const struct hf_row mistral4[] = {
    GROUP(mla),
    UINT(n_routed_experts, "expert_count", REQUIRED),
    UINT(n_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    FLOAT(routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    FLOAT(llama_4_scaling_beta, "attention.temperature_scale", REQUIRED),
    UINT(original_max_position_embeddings, "attention.temperature_length", REQUIRED),
    KEY("expert_gating_func", 1),
    UINT(n_group, "expert_group_count", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    MUST(n_group, "1 null"),
    GROUP(hf_leading_dense_shared),
    GROUP(hf_experts_either),
    END,
};
const struct hf_arch hf_mistral4 = {{"mistral4"}, "mistral4", mistral4};
