/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Kimi, as rows (rows.h). Kimi-K2 is one of DeepSeek-V3. */
#include "lib/model/hf/families/common.h"

#define LAYER "model.layers.%u.self_attn."
#define MOE   "model.layers.%u.block_sparse_moe."

/* Kimi-Linear: layers with Kimi delta attention beside layers with MLA, in which nothing is
 * rotated. */
static const struct hf_row kimi_linear[] = {
    UINT(num_hidden_layers, "block_count", REQUIRED),
    UINT(model_max_length, "context_length", REQUIRED),
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
    MUST(hidden_act, "\"silu\""),
    HAS(mla_use_nope, "true"),
    MUST(moe_router_activation_func, "\"sigmoid\""),
    MUST(moe_renormalize, "true"),
    MUST(moe_layer_freq, "1"),
    MUST(num_expert_group, "1 null"),
    MUST(num_nextn_predict_layers, "0 null"),
    MUST(q_lora_rank, "null"),
    MUST(tie_word_embeddings, "false"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "q_proj.weight", "blk.%u.attn_q.weight", MATRIX, REQUIRED),
    DENSE(LAYER "o_proj.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    MLA_TENSORS(LAYER, FULL),
    KDA_TENSORS(LAYER, STATE_A),
    DENSE(LAYER "f_a_proj.weight", "blk.%u.ssm_f_a.weight", MATRIX, OTHER),
    DENSE(LAYER "f_b_proj.weight", "blk.%u.ssm_f_b.weight", MATRIX, OTHER),
    DENSE(LAYER "g_a_proj.weight", "blk.%u.ssm_g_a.weight", MATRIX, OTHER),
    DENSE(LAYER "g_b_proj.weight", "blk.%u.ssm_g_b.weight", MATRIX, OTHER),
    GROUP(hf_dense_ffn),
    DENSE(MOE "gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE(MOE "gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias", F32, EXPERTS),
    DENSE(MOE "shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX, EXPERTS),
    DENSE(MOE "shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX, EXPERTS),
    DENSE(MOE "shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX, EXPERTS),
    GROUP(hf_mixtral_matrices),
    END,
};
const struct hf_arch hf_kimi_linear = {{"kimi_linear"}, "kimi-linear", kimi_linear};
