/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Granite, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

static const struct hf_row granite_numbers[] = {
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(shared_intermediate_size, "expert_shared_feed_forward_length", OPTIONAL),
    FLOAT(embedding_multiplier, "embedding_scale", OPTIONAL),
    FLOAT(residual_multiplier, "residual_scale", OPTIONAL),
    FLOAT(attention_multiplier, "attention.scale", REQUIRED),
    FLOAT(logits_scaling, "logit_scale", OPTIONAL),
    MUST(attention_bias, "false null"),
    END,
};

/* Factors, and experts in two tensors, with a shared expert or without. */
static const struct hf_row granite[] = {
    GROUP(granite_numbers),
    DENSE("model.layers.%u.block_sparse_moe.router.layer.weight", "blk.%u.ffn_gate_inp.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.shared_mlp.input_linear.weight", "blk.%u.ffn_gate_shexp.weight",
          FIRST_ROWS, OPTIONAL),
    DENSE("model.layers.%u.shared_mlp.input_linear.weight", "blk.%u.ffn_up_shexp.weight",
          SECOND_ROWS, OPTIONAL),
    DENSE("model.layers.%u.shared_mlp.output_linear.weight", "blk.%u.ffn_down_shexp.weight", MATRIX,
          OPTIONAL),
    EXPERTS("model.layers.%u.block_sparse_moe.input_linear.weight", "blk.%u.ffn_gate_exps.weight",
            STACK_FIRST),
    EXPERTS("model.layers.%u.block_sparse_moe.input_linear.weight", "blk.%u.ffn_up_exps.weight",
            STACK_SECOND),
    EXPERTS("model.layers.%u.block_sparse_moe.output_linear.weight", "blk.%u.ffn_down_exps.weight",
            STACK),
    END,
};

/* Granite 3 MoE. */
static const struct hf_row granitemoe[] = {
    CORE(Q_ROWS, K_ROWS, FFN_NORM),
    GROUP(granite),
    MUST(position_embedding_type, "\"rope\" null"),
    END,
};
const struct hf_arch hf_granitemoe = {{"granitemoe", "granitemoeshared"}, "granitemoe", granitemoe};

/* Granite swash: windows, sinks, and layers without rotations. */
static const struct hf_row granitemoe_swa[] = {
    CORE(Q_ROWS, K_ROWS, FFN_NORM),
    GROUP(granite_numbers),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    OTHER("sliding_attention"),
    LAYER_FLAGS("attention.sliding_window_pattern"),
    LAYER_ROTATED(no_rope_layers, layer_rope_theta, "attention.rope_pattern"),
    DENSE("model.layers.%u.self_attn.sinks", "blk.%u.attn_sinks.weight", F32, REQUIRED),
    DENSE("model.layers.%u.block_sparse_moe.router.weight", "blk.%u.ffn_gate_inp.weight", F32,
          REQUIRED),
    DENSE("model.layers.%u.shared_mlp.input_linear.weight", "blk.%u.ffn_up_shexp.weight", MATRIX,
          OPTIONAL),
    DENSE("model.layers.%u.shared_mlp.output_linear.weight", "blk.%u.ffn_down_shexp.weight", MATRIX,
          OPTIONAL),
    EXPERTS("model.layers.%u.block_sparse_moe.experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight",
            STACK_FIRST),
    EXPERTS("model.layers.%u.block_sparse_moe.experts.gate_up_proj", "blk.%u.ffn_up_exps.weight",
            STACK_SECOND),
    EXPERTS("model.layers.%u.block_sparse_moe.experts.down_proj", "blk.%u.ffn_down_exps.weight",
            STACK),
    END,
};
const struct hf_arch hf_granitemoe_swa = {{"granitemoe_swa"}, "granite_swa", granitemoe_swa};

/* Granite 4 H: Mamba-2 in most layers, else attention without rotations. Published models have one
 * group of B and C. */
static const struct hf_row granitemoehybrid[] = {
    GROUP(hf_sizes_without_rope),
    GROUP(hf_rms),
    UINT(head_dim, "attention.key_length", OPTIONAL),
    UINT(head_dim, "attention.value_length", OPTIONAL),
    UINT(intermediate_size, "feed_forward_length", REQUIRED),
    UINT(mamba_d_conv, "ssm.conv_kernel", REQUIRED),
    UINT(mamba_d_state, "ssm.state_size", REQUIRED),
    UINT(mamba_n_groups, "ssm.group_count", REQUIRED),
    UINT(mamba_n_heads, "ssm.time_step_rank", REQUIRED),
    PRODUCT(mamba_expand, hidden_size, "ssm.inner_size"),
    KEY("rope.scaling.finetuned", 0),
    OTHER_NAMED("mamba", "attention"),
    OTHER("linear_attention"),
    LAYER_UINTS("num_key_value_heads", "", "attention.head_count_kv"),
    GROUP(granite),
    HAS(position_embedding_type, "\"nope\" null"),
    MUST(mamba_n_groups, "1"),
    MUST(mamba_proj_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, FULL),
    DENSE("model.layers.%u.mamba.in_proj.weight", "blk.%u.ssm_in.weight", MATRIX, OTHER),
    DENSE("model.layers.%u.mamba.conv1d.weight", "blk.%u.ssm_conv1d.weight", F32, OTHER),
    DENSE("model.layers.%u.mamba.conv1d.bias", "blk.%u.ssm_conv1d.bias", F32, OPTIONAL),
    DENSE("model.layers.%u.mamba.dt_bias", "blk.%u.ssm_dt.bias", F32, OTHER),
    DENSE("model.layers.%u.mamba.A_log", "blk.%u.ssm_a", STATE_A, OTHER),
    DENSE("model.layers.%u.mamba.D", "blk.%u.ssm_d", STATE_D, OTHER),
    DENSE("model.layers.%u.mamba.norm.weight", "blk.%u.ssm_norm.weight", F32, OTHER),
    DENSE("model.layers.%u.mamba.out_proj.weight", "blk.%u.ssm_out.weight", MATRIX, OTHER),
    END,
};
const struct hf_arch hf_granitemoehybrid = {
    {"granitemoehybrid"}, "granitehybrid", granitemoehybrid};
