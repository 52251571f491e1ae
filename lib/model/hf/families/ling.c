/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Ling and Ring, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

#define LAYER "model.layers.%u.attention."

/* Tensors outside of the layers. */
#define LING_ENDS                                                                                  \
    DENSE("model.word_embeddings.weight", "token_embd.weight", MATRIX, REQUIRED),                  \
        DENSE("model.norm.weight", "output_norm.weight", F32, REQUIRED),                           \
        DENSE("lm_head.weight", "output.weight", MATRIX, OPTIONAL)

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
    LING_ENDS,
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "query_key_value.weight", "blk.%u.attn_qkv.weight", MATRIX, REQUIRED),
    DENSE(LAYER "dense.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    DENSE(LAYER "query_layernorm.weight", "blk.%u.attn_q_norm.weight", F32, REQUIRED),
    DENSE(LAYER "key_layernorm.weight", "blk.%u.attn_k_norm.weight", F32, REQUIRED),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.expert_bias"),
    END,
};
const struct hf_arch hf_bailingmoe2 = {{"bailing_moe_v2"}, "bailingmoe2", bailingmoe2};

/* Ling 3.0: Kimi delta attention with whole matrices of decays and gates, beside MLA with a gate
 * for each head; blocks for drafting, after the last layer, are left out. */
static const struct hf_row bailingmoe3[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_mla_sizes),
    UINT(q_lora_rank, "attention.q_lora_rank", OPTIONAL),
    UINT(short_conv_kernel_size, "ssm.conv_kernel", REQUIRED),
    UINT(head_dim, "kda.head_dim", REQUIRED),
    FLOAT(kda_lower_bound, "kda.gate_lower_bound", REQUIRED),
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
    LIMITS(expert_swiglu_limit_list, "swiglu_clamp_exp"),
    LIMITS(share_expert_swiglu_limit_list, "swiglu_clamp_shexp"),
    KEY("expert_gating_func", 2),
    SET("kda.safe_gate"),
    OTHER("linear_attention"),
    INTERVAL_REST(layer_group_size, 6),
    LAYER_ONES("attention.head_count_kv"),
    HAS(kda_safe_gate, "true"),
    HAS(no_kda_lora, "true"),
    HAS(gated_attention_proj_granularity_type, "\"head_wise\""),
    MUST(score_function, "\"sigmoid\" null"),
    MUST(attention_bias, "false null"),
    MUST(rope_interleave, "true null"),
    LING_ENDS,
    NORMS(FFN_NORM, F32),
    DENSE(LAYER "q_proj.weight", "blk.%u.attn_q.weight", MATRIX, OPTIONAL),
    DENSE(LAYER "q_a_proj.weight", "blk.%u.attn_q_a.weight", MATRIX, OPTIONAL),
    DENSE(LAYER "q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight", F32, OPTIONAL),
    DENSE(LAYER "q_b_proj.weight", "blk.%u.attn_q_b.weight", MATRIX, OPTIONAL),
    DENSE(LAYER "dense.weight", "blk.%u.attn_output.weight", MATRIX, REQUIRED),
    MLA_TENSORS(LAYER, FULL),
    DENSE(LAYER "g_proj.weight", "blk.%u.attn_gate.weight", MATRIX, FULL),
    KDA_TENSORS(LAYER, STATE_RATE),
    DENSE(LAYER "f_proj.weight", "blk.%u.ssm_f_a.weight", MATRIX, OTHER),
    DENSE(LAYER "g_proj.weight", "blk.%u.ssm_g_a.weight", MATRIX, OTHER),
    GROUP(hf_leading_dense),
    ROUTER_BIAS("gate.expert_bias"),
    END,
};
const struct hf_arch hf_bailingmoe3 = {{"bailing_hybrid"}, "bailingmoe3", bailingmoe3};
