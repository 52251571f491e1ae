/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Qwen, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

static const struct hf_row qwen3moe[] = {
    COMMON(MATRIX, MATRIX),
    GROUP(hf_qk_norms),
    GROUP(hf_mlp_experts),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    MUST(norm_topk_prob, "true"),
    END,
};
const struct hf_arch hf_qwen3moe = {{"qwen3_moe"}, "qwen3moe", qwen3moe};

/* The text part of Qwen3-VL: the experts of a layer in two tensors, turned; for texts the three
 * axes of rotations are one. */
static const struct hf_row qwen3vlmoe[] = {
    COMMON(MATRIX, MATRIX),
    GROUP(hf_qk_norms),
    UINT(num_experts, "expert_count", OPTIONAL),
    UINT(num_local_experts, "expert_count", OPTIONAL),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    KEY("n_deepstack_layers", 0),
    MUST(norm_topk_prob, "true null"),
    DENSE("model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight",
            STACK_TURNED_FIRST),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_up_exps.weight",
            STACK_TURNED_SECOND),
    EXPERTS("model.layers.%u.mlp.experts.down_proj", "blk.%u.ffn_down_exps.weight", STACK_TURNED),
    END,
};
const struct hf_arch hf_qwen3vlmoe = {
    {"qwen3_vl_moe", "qwen3_vl_moe_text"}, "qwen3vlmoe", qwen3vlmoe};

/* Mellum 2: YaRN in the layers without a window. */
static const struct hf_row mellum[] = {
    GROUP(hf_sizes_without_rope),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(num_experts, "expert_count", OPTIONAL),
    UINT(num_local_experts, "expert_count", OPTIONAL),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    OTHER("sliding_attention"),
    LAYER_FLAGS("attention.sliding_window_pattern"),
    FLOAT(rope_parameters.full_attention.rope_theta, "rope.freq_base", REQUIRED),
    FLOAT(rope_parameters.sliding_attention.rope_theta, "rope.freq_base_swa", REQUIRED),
    ROPE("rope_parameters.full_attention", "yarn", "yarn", ""),
    ROPE("rope_parameters.sliding_attention", "default", "", ""),
    HAS(rope_parameters.full_attention.factor, "*"),
    HAS(rope_parameters.full_attention.original_max_position_embeddings, "*"),
    HAS(rope_parameters.sliding_attention, "*"),
    GROUP(hf_yarn_full),
    MUST(norm_topk_prob, "true null"),
    MUST(attention_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    GROUP(hf_qk_norms),
    DENSE("model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    GROUP(hf_experts_of_mlp),
    END,
};
const struct hf_arch hf_mellum = {{"mellum"}, "mellum", mellum};

static const struct hf_row qwen2moe[] = {
    COMMON(MATRIX, MATRIX),
    GROUP(hf_mlp_experts),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    MUST(norm_topk_prob, "false"),
    QKV_BIASES(REQUIRED),
    GROUP(hf_gated_shared),
    END,
};
const struct hf_arch hf_qwen2moe = {{"qwen2_moe"}, "qwen2moe", qwen2moe};

/* Gated DeltaNet in most layers, gated attention in the others; norms are stored minus 1. A block
 * for drafting (mtp.) is left out. */
static const struct hf_row deltanet_layers[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    ROTATED(partial_rotary_factor, "rope.dimension_count"),
    UINT(num_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(moe_intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(linear_conv_kernel_dim, "ssm.conv_kernel", REQUIRED),
    UINT(linear_key_head_dim, "ssm.state_size", REQUIRED),
    UINT(linear_num_key_heads, "ssm.group_count", REQUIRED),
    UINT(linear_num_value_heads, "ssm.time_step_rank", REQUIRED),
    PRODUCT(linear_value_head_dim, linear_num_value_heads, "ssm.inner_size"),
    EQUAL(linear_key_head_dim, linear_value_head_dim),
    OTHER("linear_attention"),
    INTERVAL(full_attention_interval, 4),
    LAYER_FLAGS("attention.recurrent_layers"),
    HAS(partial_rotary_factor, "*"),
    MUST(attention_bias, "false null"),
    MUST(attn_output_gate, "true"),
    MUST(norm_topk_prob, "true"),
    ATTENTION(MATRIX, MATRIX, FULL),
    DENSE("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32_PLUS_1, FULL),
    DENSE("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32_PLUS_1, FULL),
    END,
};

static const struct hf_row deltanet[] = {
    GROUP(deltanet_layers),
    ENDS(F32_PLUS_1),
    NORMS("blk.%u.post_attention_norm.weight", F32_PLUS_1),
    END,
};

/* The feed-forward part of their layers. */
static const struct hf_row deltanet_ffn[] = {
    DENSE("model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    GROUP(hf_gated_shared),
    GROUP(hf_experts_either),
    END,
};

/* Qwen3-Next: q, k, v and z in one matrix, next to each other for each k head; so are beta and
 * alpha, also in GGUF. */
static const struct hf_row qwen3next[] = {
    GROUP(deltanet),
    DENSE("model.layers.%u.linear_attn.conv1d.weight", "blk.%u.ssm_conv1d.weight", F32, OTHER),
    DENSE("model.layers.%u.linear_attn.dt_bias", "blk.%u.ssm_dt.bias", F32, OTHER),
    DENSE("model.layers.%u.linear_attn.A_log", "blk.%u.ssm_a", DELTA_A_GROUPED, OTHER),
    DENSE("model.layers.%u.linear_attn.norm.weight", "blk.%u.ssm_norm.weight", F32, OTHER),
    DENSE("model.layers.%u.linear_attn.out_proj.weight", "blk.%u.ssm_out.weight", MATRIX, OTHER),
    GROUP(deltanet_ffn),
    DENSE("model.layers.%u.linear_attn.in_proj_qkvz.weight", "blk.%u.attn_qkv.weight",
          DELTA_QKV_GROUPED, OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_qkvz.weight", "blk.%u.attn_gate.weight",
          DELTA_Z_GROUPED, OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_ba.weight", "blk.%u.ssm_ba.weight", MATRIX, OTHER),
    END,
};
const struct hf_arch hf_qwen3next = {{"qwen3_next"}, "qwen3next", qwen3next};

/* The layers of Qwen3.5 with Gated DeltaNet. */
static const struct hf_row tiled[] = {
    DENSE("model.layers.%u.linear_attn.conv1d.weight", "blk.%u.ssm_conv1d.weight", DELTA_CONV,
          OTHER),
    DENSE("model.layers.%u.linear_attn.dt_bias", "blk.%u.ssm_dt.bias", DELTA_DT, OTHER),
    DENSE("model.layers.%u.linear_attn.A_log", "blk.%u.ssm_a", DELTA_A, OTHER),
    DENSE("model.layers.%u.linear_attn.norm.weight", "blk.%u.ssm_norm.weight", F32, OTHER),
    DENSE("model.layers.%u.linear_attn.out_proj.weight", "blk.%u.ssm_out.weight", DELTA_V_COLUMNS,
          OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_qkv.weight", "blk.%u.attn_qkv.weight", DELTA_QKV,
          OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_z.weight", "blk.%u.attn_gate.weight", DELTA_V_ROWS,
          OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_b.weight", "blk.%u.ssm_beta.weight", DELTA_GATE_ROWS,
          OTHER),
    DENSE("model.layers.%u.linear_attn.in_proj_a.weight", "blk.%u.ssm_alpha.weight",
          DELTA_GATE_ROWS, OTHER),
    END,
};

/* Qwen3.5, 3.6. */
static const struct hf_row qwen35moe[] = {
    GROUP(deltanet),
    GROUP(tiled),
    GROUP(deltanet_ffn),
    END,
};
const struct hf_arch hf_qwen35moe = {{"qwen3_5_moe", "qwen3_5_moe_text"}, "qwen35moe", qwen35moe};

/* Streams that are mixed before each part of a layer and at the end, instead of norms. */
#define STREAMS(name, gguf)                                                                        \
    DENSE(name "hc_norm.weight", gguf "_norm.weight", F32_PLUS_1, REQUIRED),                       \
        DENSE(name "input_mix_weight_down.weight", gguf "_down.weight", MATRIX, REQUIRED),         \
        DENSE(name "input_mix_weight_up.weight", gguf "_up.weight", MATRIX, REQUIRED)
#define INJECTED(name, gguf)                                                                       \
    STREAMS(name, gguf),                                                                           \
        DENSE(name "block_inject_weight.weight", gguf "_inject.weight", MATRIX, REQUIRED)

static const struct hf_row streams[] = {
    UINT(hc_count, "hyper_connection.count", REQUIRED),
    UINT(hc_lowrank, "hyper_connection.low_rank", REQUIRED),
    DENSE("model.embed_tokens.weight", "token_embd.weight", MATRIX, REQUIRED),
    DENSE("lm_head.weight", "output.weight", MATRIX, OPTIONAL),
    STREAMS("model.hyper_connection_mixer.", "output_hc"),
    INJECTED("model.layers.%u.attn_hyper_connection.", "blk.%u.hc_attn"),
    INJECTED("model.layers.%u.mlp_hyper_connection.", "blk.%u.hc_ffn"),
    END,
};

#define PLE "model.layers.%u.ple."

/* Rows of a table by the last tokens, added to the streams of one layer. */
static const struct hf_row ngrams[] = {
    UINT(ngram_size, "ple.ngram_size", OPTIONAL),
    UINT(heads_per_ngram, "ple.heads_per_ngram", OPTIONAL),
    UINT(ple_conv_kernel_size, "ple.conv_kernel", OPTIONAL),
    NGRAMS(ple_layer_ids, split_ngram_parts, PLE "ple_embedding."),
    DENSE(PLE "key_proj.weight", "blk.%u.ple_key.weight", MATRIX, OPTIONAL),
    DENSE(PLE "value_proj.weight", "blk.%u.ple_value.weight", MATRIX, OPTIONAL),
    DENSE(PLE "norm_key.weight", "blk.%u.ple_norm_key.weight", F32_PLUS_1, OPTIONAL),
    DENSE(PLE "norm_query.weight", "blk.%u.ple_norm_query.weight", F32_PLUS_1, OPTIONAL),
    DENSE(PLE "norm_conv.weight", "blk.%u.ple_norm_conv.weight", F32_PLUS_1, OPTIONAL),
    DENSE(PLE "conv1d.weight", "blk.%u.ple_conv1d.weight", MATRIX, OPTIONAL),
    END,
};

#define INDEX "model.layers.%u.self_attn.indexer."

/* An indexer over pools, in layers with attention, which newer files name otherwise. */
static const struct hf_row pools[] = {
    OTHER_NAMED("linear_attention", "indexed_attention"),
    OTHER_NAMED("linear_attention", "qwen_sparse_attention"),
    UINT(indexer_n_heads, "attention.indexer.head_count", REQUIRED),
    UINT(indexer_head_dim, "attention.indexer.key_length", REQUIRED),
    UINT(indexer_budget, "attention.indexer.top_k", REQUIRED),
    LAYER_UINTS("indexer_compress_ratio", "", "attention.compress_ratios"),
    MUST(indexer_kv_heads, "1 null"),
    DENSE(INDEX "index_qk_proj.weight", "blk.%u.indexer.q_proj.weight", INDEX_Q, FULL),
    DENSE(INDEX "index_qk_proj.weight", "blk.%u.indexer.k_proj.weight", INDEX_K, FULL),
    DENSE(INDEX "q_layernorm.weight", "blk.%u.indexer.q_norm.weight", F32_PLUS_1, FULL),
    DENSE(INDEX "k_layernorm.weight", "blk.%u.indexer.k_norm.weight", F32_PLUS_1, FULL),
    END,
};

/* Qwen3.8-Flash-Next. */
static const struct hf_row qwen4exp[] = {
    GROUP(deltanet_layers),
    GROUP(tiled),
    GROUP(deltanet_ffn),
    GROUP(streams),
    GROUP(ngrams),
    GROUP(pools),
    HAS(output_gate_type, "\"sigmoid\""),
    END,
};
const struct hf_arch hf_qwen4exp = {{"qwen4_exp", "qwen4_exp_text"}, "qwen4exp", qwen4exp};
