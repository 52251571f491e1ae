/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures with one or two models each, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

static const struct hf_row olmoe[] = {
    COMMON(MATRIX, MATRIX),
    GROUP(hf_qk_norms),
    GROUP(hf_mlp_experts),
    MUST(norm_topk_prob, "false"),
    END,
};
const struct hf_arch hf_olmoe = {{"olmoe"}, "olmoe", olmoe};

/* Mixtral. */
static const struct hf_row llama[] = {
    COMMON(Q_ROWS, K_ROWS),
    UINT(num_local_experts, "expert_count", REQUIRED),
    MUST(sliding_window, "null"),
    GROUP(hf_mixtral_experts),
    END,
};
const struct hf_arch hf_llama = {{"mixtral"}, "llama", llama};

/* GLM-4.5, 4.6, 4.7. Blocks for drafting, after the last layer, are left out. */
static const struct hf_row glm4moe[] = {
    CORE(MATRIX, MATRIX, "blk.%u.post_attention_norm.weight"),
    QKV_BIASES(OPTIONAL),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    GROUP(hf_sigmoid),
    ROTATED(partial_rotary_factor, "rope.dimension_count"),
    DENSE("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32, OPTIONAL),
    DENSE("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32, OPTIONAL),
    END,
};
const struct hf_arch hf_glm4moe = {{"glm4_moe"}, "glm4moe", glm4moe};

/* dots.llm1 */
static const struct hf_row dots1[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    GROUP(hf_qk_norms),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    GROUP(hf_sigmoid),
    MUST(attention_bias, "false null"),
    MUST(partial_rotary_factor, "1 1.0 null"),
    END,
};
const struct hf_arch hf_dots1 = {{"dots1"}, "dots1", dots1};

/* K-EXAONE: layers with a window rotate, the others do not. A block for drafting (mtp.) is left
 * out. */
static const struct hf_row exaone_moe[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    GROUP(hf_qk_norms),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("e_score_correction_bias"),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_shared_experts, "expert_shared_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    UINT(n_group, "expert_group_count", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    FLOAT(routed_scaling_factor, "expert_weights_scale", REQUIRED),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    OTHER("sliding_attention"),
    LAYER_FLAGS("attention.sliding_window_pattern"),
    KEY("expert_gating_func", 2),
    MUST(scoring_func, "\"sigmoid\" null"),
    MUST(attention_bias, "false null"),
    END,
};
const struct hf_arch hf_exaone_moe = {{"exaone_moe"}, "exaone-moe", exaone_moe};

/* Hy3 and Hy-MT2. Blocks for drafting, after the last layer, are left out. */
static const struct hf_row hy_v3[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    GROUP(hf_qk_norms),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(num_experts, "expert_count", REQUIRED),
    PRODUCT(moe_intermediate_size, num_shared_experts, "expert_shared_feed_forward_length"),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    FLOAT(router_scaling_factor, "expert_weights_scale", REQUIRED),
    KEY("expert_gating_func", 2),
    SET("expert_weights_norm"),
    MUST(route_norm, "true null"),
    MUST(attention_bias, "false null"),
    MUST(mlp_bias, "false null"),
    GROUP(hf_dense_ffn),
    DENSE("model.layers.%u.mlp.router.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE("model.layers.%u.mlp.expert_bias", "blk.%u.exp_probs_b", F32, EXPERTS),
    DENSE("model.layers.%u.mlp.shared_mlp.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX,
          EXPERTS),
    DENSE("model.layers.%u.mlp.shared_mlp.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          EXPERTS),
    DENSE("model.layers.%u.mlp.shared_mlp.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX,
          EXPERTS),
    GROUP(hf_experts_of_mlp),
    END,
};
const struct hf_arch hf_hy_v3 = {{"hy_v3"}, "hy_v3", hy_v3};

/* Laguna: a gate per head or, in M.1, per element. */
static const struct hf_row laguna[] = {
    GROUP(hf_sizes_without_rope),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(shared_expert_intermediate_size, "expert_shared_feed_forward_length", REQUIRED),
    FLOAT(moe_routed_scaling_factor, "expert_weights_scale", OPTIONAL),
    LEADING(first_k_dense_replace, "leading_dense_block_count"),
    UINT(sliding_window, "attention.sliding_window", OPTIONAL),
    OTHER("sliding_attention"),
    LAYER_FLAGS("attention.sliding_window_pattern"),
    FLOAT(rope_parameters.full_attention.rope_theta, "rope.freq_base", REQUIRED),
    FLOAT(rope_parameters.sliding_attention.rope_theta, "rope.freq_base_swa", OPTIONAL),
    ROTATED(rope_parameters.full_attention.partial_rotary_factor, "rope.dimension_count"),
    ROTATED(rope_parameters.sliding_attention.partial_rotary_factor, "rope.dimension_count_swa"),
    ROPE("rope_parameters.full_attention", "yarn", "yarn", ""),
    ROPE("rope_parameters.full_attention", "default", "", ""),
    ROPE("rope_parameters.sliding_attention", "default", "", ""),
    GROUP(hf_yarn_full),
    KEY("expert_gating_func", 2),
    SET("expert_weights_norm"),
    MUST(gating, "true \"per-head\" \"per-element\""),
    MUST(moe_router_logit_softcapping, "0 0.0 null"),
    MUST(moe_apply_router_weight_on_input, "false null"),
    MUST(attention_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    GROUP(hf_qk_norms),
    DENSE("model.layers.%u.self_attn.g_proj.weight", "blk.%u.attn_gate.weight", MATRIX, REQUIRED),
    ROUTER_BIAS("gate.e_score_correction_bias"),
    ROUTER_BIAS("experts.e_score_correction_bias"),
    GROUP(hf_leading_dense),
    DENSE("model.layers.%u.mlp.shared_expert.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight",
          MATRIX, EXPERTS),
    DENSE("model.layers.%u.mlp.shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          EXPERTS),
    DENSE("model.layers.%u.mlp.shared_expert.down_proj.weight", "blk.%u.ffn_down_shexp.weight",
          MATRIX, EXPERTS),
    END,
};
/* XS and S state the heads of each layer. */
static const struct hf_row laguna_heads[] = {
    LISTED(num_attention_heads_per_layer, "attention.head_count"),
    GROUP(laguna),
    END,
};
const struct hf_arch hf_laguna = {{"laguna"}, "laguna", laguna_heads};

/* Trinity: of four layers, three have a window. */
static const struct hf_row afmoe[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(num_shared_experts, "expert_shared_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(num_dense_layers, "leading_dense_block_count", REQUIRED),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    FLOAT(route_scale, "expert_weights_scale", REQUIRED),
    OTHER("sliding_attention"),
    FIXED(4, 3),
    KEY("expert_gating_func", 2),
    SET("expert_weights_norm"),
    MUST(score_func, "\"sigmoid\" null"),
    MUST(route_norm, "true null"),
    HAS(mup_enabled, "true"),
    UINT(n_group, "expert_group_count", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    MUST(n_group, "1 null"),
    MUST(attention_bias, "false null"),
    MUST(partial_rotary_factor, "1 1.0 null"),
    ENDS(F32),
    DENSE("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", F32, REQUIRED),
    DENSE("model.layers.%u.post_attention_layernorm.weight", "blk.%u.post_attention_norm.weight",
          F32, REQUIRED),
    DENSE("model.layers.%u.pre_mlp_layernorm.weight", FFN_NORM, F32, REQUIRED),
    DENSE("model.layers.%u.post_mlp_layernorm.weight", "blk.%u.post_ffw_norm.weight", F32,
          REQUIRED),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    GROUP(hf_qk_norms),
    DENSE("model.layers.%u.self_attn.gate_proj.weight", "blk.%u.attn_gate.weight", MATRIX,
          REQUIRED),
    GROUP(hf_dense_ffn),
    DENSE("model.layers.%u.mlp.router.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    ROUTER_BIAS("expert_bias"),
    DENSE("model.layers.%u.mlp.shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight",
          MATRIX, EXPERTS),
    DENSE("model.layers.%u.mlp.shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          EXPERTS),
    DENSE("model.layers.%u.mlp.shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight",
          MATRIX, EXPERTS),
    GROUP(hf_experts_of_mlp),
    END,
};
const struct hf_arch hf_afmoe = {{"afmoe"}, "afmoe", afmoe};

/* ERNIE 4.5 */
static const struct hf_row ernie4_5_moe[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("moe_statics.e_score_correction_bias"),
    UINT(moe_num_experts, "expert_count", REQUIRED),
    UINT(moe_num_shared_experts, "expert_shared_count", REQUIRED),
    UINT(moe_k, "expert_used_count", REQUIRED),
    UINT(moe_layer_start_index, "leading_dense_block_count", REQUIRED),
    KEY("interleave_moe_layer_step", 1),
    MUST(moe_layer_interval, "1"),
    MUST(use_bias, "false"),
    MUST(partial_rotary_factor, "1 1.0 null"),
    END,
};
const struct hf_arch hf_ernie4_5_moe = {{"ernie4_5_moe"}, "ernie4_5-moe", ernie4_5_moe};

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

/* Ling and Ring 2.0: q, k and v in one matrix, as in GGUF; blocks for drafting, after the last
 * layer, are left out. */
static const struct hf_row bailingmoe2[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    ROTATED(partial_rotary_factor, "rope.dimension_count"),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_shared_experts, "expert_shared_count", REQUIRED),
    UINT(moe_shared_expert_intermediate_size, "expert_shared_feed_forward_length", OPTIONAL),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(first_k_dense_replace, "leading_dense_block_count", REQUIRED),
    UINT(n_group, "expert_group_count", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    FLOAT(routed_scaling_factor, "expert_weights_scale", REQUIRED),
    BOOL(norm_topk_prob, "expert_weights_norm", REQUIRED),
    KEY("expert_gating_func", 2),
    HAS(partial_rotary_factor, "*"),
    MUST(score_function, "\"sigmoid\""),
    MUST(moe_router_enable_expert_bias, "true"),
    HAS(use_qk_norm, "true"),
    MUST(use_qkv_bias, "false null"),
    MUST(use_bias, "false null"),
    MUST(norm_head, "false null"),
    MUST(attention_bias, "false null"),
    DENSE("model.word_embeddings.weight", "token_embd.weight", MATRIX, REQUIRED),
    DENSE("model.norm.weight", "output_norm.weight", F32, REQUIRED),
    DENSE("lm_head.weight", "output.weight", MATRIX, OPTIONAL),
    NORMS(FFN_NORM, F32),
    DENSE("model.layers.%u.attention.query_key_value.weight", "blk.%u.attn_qkv.weight", MATRIX,
          REQUIRED),
    DENSE("model.layers.%u.attention.dense.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    DENSE("model.layers.%u.attention.query_layernorm.weight", "blk.%u.attn_q_norm.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.attention.key_layernorm.weight", "blk.%u.attn_k_norm.weight", F32,
          REQUIRED),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.expert_bias"),
    END,
};
const struct hf_arch hf_bailingmoe2 = {{"bailing_moe_v2"}, "bailingmoe2", bailingmoe2};

/* Phi-3.5-MoE: LongRoPE with its short factors, up to the original context. */
static const struct hf_row phimoe[] = {
    CORE(MATRIX, MATRIX, FFN_NORM),
    UINT(sliding_window, "attention.sliding_window", OPTIONAL),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    ROPE("", "longrope", "longrope", "short_factor"),
    UINT(original_max_position_embeddings, "rope.scaling.original_context_length", OPTIONAL),
    FLOAT(short_mscale, "rope.scaling.attn_factor", OPTIONAL),
    NUMBERS("rope_factors_short.weight", short_factor),
    NUMBERS("rope_factors_long.weight", long_factor),
    MUST(router_jitter_noise, "0.01"),
    DENSE("model.norm.bias", "output_norm.bias", F32, REQUIRED),
    DENSE("lm_head.bias", "output.bias", F32, OPTIONAL),
    DENSE("model.layers.%u.input_layernorm.bias", "blk.%u.attn_norm.bias", F32, REQUIRED),
    DENSE("model.layers.%u.post_attention_layernorm.bias", "blk.%u.ffn_norm.bias", F32, REQUIRED),
    QKV_BIASES(OPTIONAL),
    DENSE("model.layers.%u.self_attn.o_proj.bias", "blk.%u.attn_output.bias", F32, OPTIONAL),
    GROUP(hf_mixtral_experts),
    END,
};
const struct hf_arch hf_phimoe = {{"phimoe"}, "phimoe", phimoe};

/* Hunyuan-A13B. */
static const struct hf_row hunyuan_moe[] = {
    ALPHA(alpha, "rope.freq_base"),
    CORE(MATRIX, MATRIX, FFN_NORM),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(moe_topk, "expert_used_count", REQUIRED),
    KEY("expert_shared_count", 1),
    UINT(moe_intermediate_size, "expert_feed_forward_length", OPTIONAL),
    UINT(intermediate_size, "expert_feed_forward_length", OPTIONAL),
    UINT(intermediate_size, "expert_shared_feed_forward_length", REQUIRED),
    ROPE("", "dynamic", "none", "alpha"),
    MUST(use_qk_norm, "true"),
    MUST(use_cla, "false null"),
    MUST(attention_bias, "false null"),
    MUST(mlp_bias, "false null"),
    MUST(use_mixed_mlp_moe, "true"),
    MUST(moe_layer_num_skipped, "0"),
    DENSE("model.layers.%u.self_attn.query_layernorm.weight", "blk.%u.attn_q_norm.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.self_attn.key_layernorm.weight", "blk.%u.attn_k_norm.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.mlp.gate.wg.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    DENSE("model.layers.%u.mlp.shared_mlp.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX,
          REQUIRED),
    DENSE("model.layers.%u.mlp.shared_mlp.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          REQUIRED),
    DENSE("model.layers.%u.mlp.shared_mlp.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX,
          REQUIRED),
    GROUP(hf_experts_of_mlp),
    END,
};
const struct hf_arch hf_hunyuan_moe = {{"hunyuan_v1_moe"}, "hunyuan-moe", hunyuan_moe};

/* DBRX: of all experts, the rows of w1 and v1, and the columns of w2, one after the other. */
static const struct hf_row dbrx[] = {
    UINT(n_layers, "block_count", REQUIRED),
    UINT(max_seq_len, "context_length", REQUIRED),
    UINT(d_model, "embedding_length", REQUIRED),
    UINT(n_heads, "attention.head_count", REQUIRED),
    UINT(vocab_size, "vocab_size", REQUIRED),
    UINT(attn_config.kv_n_heads, "attention.head_count_kv", REQUIRED),
    FLOAT(attn_config.rope_theta, "rope.freq_base", REQUIRED),
    FLOAT(attn_config.clip_qkv, "attention.clamp_kqv", OPTIONAL),
    UINT(ffn_config.ffn_hidden_size, "feed_forward_length", REQUIRED),
    UINT(ffn_config.moe_num_experts, "expert_count", REQUIRED),
    UINT(ffn_config.moe_top_k, "expert_used_count", REQUIRED),
    NUMBER("attention.layer_norm_epsilon", 1e-5f),
    MUST(ffn_config.moe_normalize_expert_weights, "1 1.0"),
    MUST(ffn_config.ffn_act_fn.name, "\"silu\""),
    DENSE("transformer.wte.weight", "token_embd.weight", MATRIX, REQUIRED),
    DENSE("transformer.norm_f.weight", "output_norm.weight", F32, REQUIRED),
    DENSE("lm_head.weight", "output.weight", MATRIX, OPTIONAL),
    DENSE("transformer.blocks.%u.norm_attn_norm.norm_1.weight", "blk.%u.attn_norm.weight", F32,
          REQUIRED),
    DENSE("transformer.blocks.%u.norm_attn_norm.norm_2.weight", "blk.%u.attn_output_norm.weight",
          F32, REQUIRED),
    DENSE("transformer.blocks.%u.norm_attn_norm.attn.Wqkv.weight", "blk.%u.attn_qkv.weight", MATRIX,
          REQUIRED),
    DENSE("transformer.blocks.%u.norm_attn_norm.attn.out_proj.weight", "blk.%u.attn_output.weight",
          MATRIX, REQUIRED),
    DENSE("transformer.blocks.%u.ffn.router.layer.weight", "blk.%u.ffn_gate_inp.weight", F32,
          REQUIRED),
    EXPERTS("transformer.blocks.%u.ffn.experts.mlp.w1", "blk.%u.ffn_gate_exps.weight", STACK),
    EXPERTS("transformer.blocks.%u.ffn.experts.mlp.v1", "blk.%u.ffn_up_exps.weight", STACK),
    EXPERTS("transformer.blocks.%u.ffn.experts.mlp.w2", "blk.%u.ffn_down_exps.weight",
            STACK_TURNED),
    END,
};
const struct hf_arch hf_dbrx = {{"dbrx"}, "dbrx", dbrx};

/* SmallThinker. */
static const struct hf_row smallthinker[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(moe_num_primary_experts, "expert_count", REQUIRED),
    UINT(moe_num_active_primary_experts, "expert_used_count", REQUIRED),
    UINT(moe_ffn_hidden_size, "expert_feed_forward_length", REQUIRED),
    CHOICE(moe_primary_router_apply_softmax, "expert_gating_func", 1, 2),
    LAYOUT(sliding_window_layout, rope_layout, 4, 0, sliding_window_size,
           "attention.sliding_window"),
    MUST(norm_topk_prob, "true"),
    MUST(moe_enable_secondary_experts, "false null"),
    MUST(moe_enable_early_router, "true"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    DENSE("model.layers.%u.block_sparse_moe.primary_router.weight", "blk.%u.ffn_gate_inp.weight",
          F32, REQUIRED),
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.gate.weight",
           "blk.%u.ffn_gate_exps.weight"),
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.up.weight", "blk.%u.ffn_up_exps.weight"),
    EXPERT("model.layers.%u.block_sparse_moe.experts.%u.down.weight",
           "blk.%u.ffn_down_exps.weight"),
    END,
};
const struct hf_arch hf_smallthinker = {{"smallthinker"}, "smallthinker", smallthinker};
