/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Kimi, as rows (rows.h). Kimi-K2 is one of DeepSeek-V3. */
#include "lib/model/hf/families/common.h"

#define LAYER "model.layers.%u.self_attn."
#define MOE   "model.layers.%u.block_sparse_moe."

/* Layers with Kimi delta attention beside layers with MLA, in which nothing is rotated. */
static const struct hf_row kimi[] = {
    UINT(num_hidden_layers, "block_count", REQUIRED),
    UINT(hidden_size, "embedding_length", REQUIRED),
    UINT(num_attention_heads, "attention.head_count", REQUIRED),
    UINT(vocab_size, "vocab_size", REQUIRED),
    GROUP(hf_rms),
    GROUP(hf_mla_sizes),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(linear_attn_config.short_conv_kernel_size, "ssm.conv_kernel", REQUIRED),
    UINT(linear_attn_config.head_dim, "kda.head_dim", REQUIRED),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_token, "expert_used_count", REQUIRED),
    UINT(num_shared_experts, "expert_shared_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(first_k_dense_replace, "leading_dense_block_count", REQUIRED),
    FLOAT(routed_scaling_factor, "expert_weights_scale", REQUIRED),
    KEY("expert_gating_func", 2),
    OTHER("linear_attention"),
    FULL_LISTED(linear_attn_config.full_attn_layers),
    LAYER_ONES("attention.head_count_kv"),
    EQUAL(linear_attn_config.num_heads, num_attention_heads),
    HAS(mla_use_nope, "true"),
    MUST(moe_router_activation_func, "\"sigmoid\""),
    MUST(moe_layer_freq, "1"),
    MUST(num_expert_group, "1 null"),
    MUST(num_nextn_predict_layers, "0 null"),
    MUST(tie_word_embeddings, "false"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "o_proj.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    MLA_TENSORS(LAYER, FULL),
    DENSE(LAYER "f_a_proj.weight", "blk.%u.ssm_f_a.weight", MATRIX, OTHER),
    DENSE(LAYER "f_b_proj.weight", "blk.%u.ssm_f_b.weight", MATRIX, OTHER),
    GROUP(hf_dense_ffn),
    DENSE(MOE "gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE(MOE "gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias", F32, EXPERTS),
    DENSE(MOE "shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX, SHARED),
    DENSE(MOE "shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX, SHARED),
    DENSE(MOE "shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX, SHARED),
    END,
};

static const struct hf_row kimi_linear[] = {
    GROUP(kimi),
    UINT(model_max_length, "context_length", REQUIRED),
    MUST(hidden_act, "\"silu\""),
    MUST(moe_renormalize, "true"),
    MUST(q_lora_rank, "null"),
    KDA_TENSORS(LAYER, STATE_A),
    DENSE(LAYER "q_proj.weight", "blk.%u.attn_q.weight", MATRIX, REQUIRED),
    DENSE(LAYER "g_a_proj.weight", "blk.%u.ssm_g_a.weight", MATRIX, OTHER),
    DENSE(LAYER "g_b_proj.weight", "blk.%u.ssm_g_b.weight", MATRIX, OTHER),
    GROUP(hf_mixtral_matrices),
    END,
};
const struct hf_arch hf_kimi_linear = {{"kimi_linear"}, "kimi-linear", kimi_linear};

/* Scores of the sources of a residual: the norm of a source and its projection are one vector. */
static const struct hf_row k3_bank[] = {
    UINT(attn_res_block_size, "attn_res.block_size", REQUIRED),
    DENSE_TIMES("model.layers.%u.self_attention_res_norm.weight",
                "model.layers.%u.self_attention_res_proj.weight", "blk.%u.attn_res_score.weight",
                REQUIRED),
    DENSE_TIMES("model.layers.%u.mlp_res_norm.weight", "model.layers.%u.mlp_res_proj.weight",
                "blk.%u.ffn_res_score.weight", REQUIRED),
    DENSE_TIMES("model.output_attn_res_norm.weight", "model.output_attn_res_proj.weight",
                "output_res_score.weight", REQUIRED),
    END,
};

/* Experts in a latent: MXFP4 of compressed-tensors, or floats. */
static const struct hf_row k3_experts[] = {
    UINT(routed_expert_hidden_size, "expert_latent_length", REQUIRED),
    QUANTISED("compressed-tensors"),
    MUST(quantization_config.format, "\"mxfp4-pack-quantized\""),
    DENSE(MOE "routed_expert_down_proj.weight", "blk.%u.ffn_routed_down.weight", MATRIX, EXPERTS),
    DENSE(MOE "routed_expert_up_proj.weight", "blk.%u.ffn_routed_up.weight", MATRIX, EXPERTS),
    DENSE(MOE "routed_expert_norm.weight", "blk.%u.ffn_routed_norm.weight", F32, OPTIONAL),
    EXPERT_AS(MOE "experts.%u.w1.weight_packed", "blk.%u.ffn_gate_exps.weight", PACKED),
    EXPERT_AS(MOE "experts.%u.w3.weight_packed", "blk.%u.ffn_up_exps.weight", PACKED),
    EXPERT_AS(MOE "experts.%u.w2.weight_packed", "blk.%u.ffn_down_exps.weight", PACKED),
    GROUP(hf_mixtral_matrices),
    END,
};

/* Kimi K3, whose text model has the type of Kimi-Linear: the outer type says which it is. */
static const struct hf_row kimi_k3[] = {
    GROUP(kimi),
    UINT(max_position_embeddings, "context_length", REQUIRED),
    UINT(kv_lora_rank, "attention.value_length", REQUIRED),
    UINT(q_lora_rank, "attention.q_lora_rank", REQUIRED),
    FLOAT(linear_attn_config.gate_lower_bound, "kda.gate_lower_bound", OPTIONAL),
    UINT(topk_group, "expert_group_used_count", OPTIONAL),
    BOOL(moe_renormalize, "expert_weights_norm", REQUIRED),
    FLOAT(activation_situ_beta, "activation.situ_beta", REQUIRED),
    FLOAT(activation_situ_linear_beta, "activation.situ_linear_beta", REQUIRED),
    HAS(hidden_act, "\"situ\""),
    MUST(mla_use_output_gate, "true null"),
    MUST(linear_attn_config.use_full_rank_gate, "true null"),
    MUST(topk_method, "\"noaux_tc\" null"),
    KDA_TENSORS(LAYER, DELTA_A_HEADS),
    DENSE(LAYER "q_proj.weight", "blk.%u.attn_q.weight", MATRIX, OTHER),
    DENSE(LAYER "q_a_proj.weight", "blk.%u.attn_q_a.weight", MATRIX, FULL),
    DENSE(LAYER "q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight", F32, FULL),
    DENSE(LAYER "q_b_proj.weight", "blk.%u.attn_q_b.weight", MATRIX, FULL),
    DENSE(LAYER "g_proj.weight", "blk.%u.ssm_g.weight", MATRIX, OTHER),
    DENSE(LAYER "g_proj.weight", "blk.%u.attn_gate.weight", MATRIX, FULL),
    GROUP(k3_bank),
    GROUP(k3_experts),
    END,
};
const struct hf_arch hf_kimi_k3 = {{"kimi_k3"}, "kimi-k3", kimi_k3};
