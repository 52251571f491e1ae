/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows that architectures share (common.h). */
#include "lib/model/arch/families/common.h"

/* RMSNorm before attention and before the feed-forward part, grouped-query attention over all
 * positions with rotary embedding, SwiGLU experts. */
const struct arch_row arch_common[] = {
    GROUP(arch_transformer), GROUP(arch_no_window),  GROUP(arch_scaling),
    GROUP(arch_attention),   GROUP(arch_expert_ffn), END,
};

/* Sizes, and the tensors outside the layers. */
const struct arch_row arch_transformer[] = {
    FLOAT(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1),
    GROUP(arch_sizes),
    END,
};

const struct arch_row arch_sizes[] = {
    GROUP(arch_counts),
    UINT(rope_dims, "rope.dimension_count", 2, 1024, DERIVED),
    GROUP(arch_ends),
    END,
};

const struct arch_row arch_counts[] = {
    UINT(layers, "block_count", 1, MODEL_LAYERS_MAX, REQUIRED),
    UINT(hidden, "embedding_length", 1, 65536, REQUIRED),
    UINT(heads, "attention.head_count", 1, 1024, REQUIRED),
    UINT(kv_heads, "attention.head_count_kv", 1, 1024, DERIVED),
    UINT(head_size, "attention.key_length", 2, 1024, DERIVED),
    UINT(value_size, "attention.value_length", 2, 1024, DERIVED),
    UINT(vocab, "vocab_size", 1, MODEL_VOCAB_MAX, DERIVED),
    UINT(context, "context_length", 1, MODEL_TRAINED_MAX, REQUIRED),
    UINT(experts, "expert_count", 1, MODEL_EXPERTS_MAX, REQUIRED),
    UINT(experts_used, "expert_used_count", 1, MODEL_TOP_K_MAX, REQUIRED),
    END,
};

const struct arch_row arch_ends[] = {
    GROUP(arch_embedding),
    DENSE(OUTPUT_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    GROUP(arch_output),
    END,
};

const struct arch_row arch_embedding[] = {
    FLOAT_ELSE(rope_theta, "rope.freq_base", 1, 1e12, 10000),
    ONLY("attention.causal", 1),
    DENSE(TOKEN_EMBD, ANY, REQUIRED, HIDDEN, VOCAB),
    END,
};

const struct arch_row arch_output[] = {
    DENSE(OUTPUT, ANY, OPTIONAL, HIDDEN, VOCAB), /* absent: tied to the embedding */
    SCALE(OUTPUT, "output", ONE),
    END,
};

const struct arch_row arch_no_window[] = {
    ONLY("attention.sliding_window", 0),
    END,
};

/* Some layers have a window, whose rotations have their own base. An architecture has a row for the
 * kinds of its layers. */
const struct arch_row arch_window[] = {
    UINT(window, "attention.sliding_window", 0, MODEL_CONTEXT_MAX, DERIVED),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 0, 1e12, 0),
    END,
};

/* Rotations of longer contexts: linear, YaRN, or none, as the keys say. Linear without a type is
 * the form of old files, and so is rope.scale_linear. yarn_attn_factor replaces YaRN's own factor
 * of cos and sin (transformers: attention_factor); attn_factor is one more. */
const struct arch_row arch_scaling[] = {
    GROUP(arch_scaling_keys),
    CONST(rope_truncate, 1),
    END,
};

const struct arch_row arch_scaling_keys[] = {
    TEXT(rope_scaling, "rope.scaling.type", "yarn", ROPE_YARN),
    TEXT(rope_scaling, "rope.scaling.type", "linear", ROPE_LINEAR),
    FLOAT_OLD(rope_factor, "rope.scale_linear", 0, 1000),
    FLOAT_ELSE(rope_factor, "rope.scaling.factor", 0, 1000, 0),
    UINT(rope_context, "rope.scaling.original_context_length", 0, MODEL_TRAINED_MAX, DERIVED),
    FLOAT_ELSE(rope_beta_fast, "rope.scaling.yarn_beta_fast", 0, 1000, 0),
    FLOAT_ELSE(rope_beta_slow, "rope.scaling.yarn_beta_slow", 0, 1000, 0),
    FLOAT_ELSE(rope_magnitude, "rope.scaling.yarn_attn_factor", 0, 100, 0),
    FLOAT_ELSE(rope_attention, "rope.scaling.attn_factor", 0, 100, 0),
    ONLY_FLOAT("rope.scaling.yarn_ext_factor", 1),
    END,
};

/* Grouped-query attention. The order of tensors is that of files which sluice synth made before. */
const struct arch_row arch_attention[] = {
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    GROUP(arch_attention_matrices),
    END,
};

const struct arch_row arch_attention_matrices[] = {
    DENSE(ATTN_Q, ANY, REQUIRED, HIDDEN, Q),      DENSE(ATTN_K, ANY, REQUIRED, HIDDEN, KV),
    DENSE(ATTN_V, ANY, REQUIRED, HIDDEN, VALUES), GROUP(arch_attention_out),
    SCALE(ATTN_Q, "blk.%u.attn_q", ONE),          SCALE(ATTN_K, "blk.%u.attn_k", ONE),
    SCALE(ATTN_V, "blk.%u.attn_v", ONE),          END,
};

/* The same with the rows of q, k and v in one matrix. */
const struct arch_row arch_joined_attention[] = {
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_QKV, ANY, REQUIRED, HIDDEN, QKV),
    GROUP(arch_attention_out),
    SCALE(ATTN_QKV, "blk.%u.attn_qkv", ONE),
    END,
};

const struct arch_row arch_attention_out[] = {
    DENSE(ATTN_OUT, ANY, REQUIRED, MIX, HIDDEN),
    SCALE(ATTN_OUT, "blk.%u.attn_output", ONE),
    END,
};

/* Biases of some models of an architecture. */
const struct arch_row arch_biases[] = {
    DENSE(ATTN_Q_BIAS, FLOAT, ACCEPTED, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, ACCEPTED, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, ACCEPTED, VALUES, ONE),
    DENSE(ATTN_OUT_BIAS, FLOAT, ACCEPTED, HIDDEN, ONE),
    END,
};

/* Router and experts, which are gated. */
const struct arch_row arch_expert_ffn[] = {
    DENSE(FFN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    GROUP(arch_routed),
    END,
};

const struct arch_row arch_routed[] = {
    DENSE(ROUTER, FLOAT, REQUIRED, HIDDEN, EXPERTS),
    GROUP(arch_experts),
    END,
};

const struct arch_row arch_experts[] = {
    EXPERT(GATE, "blk.%u.ffn_gate_exps.weight", WIDTH, INNER),
    EXPERT(UP, "blk.%u.ffn_up_exps.weight", WIDTH, INNER),
    EXPERT(DOWN, "blk.%u.ffn_down_exps.weight", INNER, WIDTH),
    EXPERT(GATE_UP, "blk.%u.ffn_gate_up_exps.weight", WIDTH, INNER_TWICE),
    SCALES(EXPERT_GATE, "blk.%u.ffn_gate_exps", EXPERTS),
    SCALES(EXPERT_UP, "blk.%u.ffn_up_exps", EXPERTS),
    SCALES(EXPERT_DOWN, "blk.%u.ffn_down_exps", EXPERTS),
    END,
};

/* Every layer has experts. */
const struct arch_row arch_all_experts[] = {
    LAYERS(ALL, ATTENTION, EXPERTS),
    ONLY("leading_dense_block_count", 0),
    REJECTED("blk.%u.ffn_gate.weight", "a layer without experts"),
    END,
};

/* The router: softmax over all experts, then the top-k. */
const struct arch_row arch_softmax[] = {
    CONST(gating, ROUTER_SOFTMAX),
    BELOW("expert_group_count", 2),
    ONLY("expert_gating_func", 1),
    ONLY_FLOAT("expert_weights_scale", 1),
    END,
};

/* The first layers have a dense feed-forward part. */
const struct arch_row arch_leading_dense[] = {
    LAYERS(LEADING, ATTENTION, DENSE),
    LAYERS(ALL, ATTENTION, EXPERTS),
    GROUP(arch_dense_ffn),
    END,
};

/* Its sizes and tensors. */
const struct arch_row arch_dense_ffn[] = {
    UINT(dense_layers, "leading_dense_block_count", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_dense_network),
    END,
};

const struct arch_row arch_dense_network[] = {
    UINT(dense_inner, "feed_forward_length", 0, 65536, DERIVED),
    GROUP(arch_dense_matrices),
    END,
};

const struct arch_row arch_dense_matrices[] = {
    DENSE(FFN_GATE, ANY, REQUIRED, HIDDEN, DENSE),
    DENSE(FFN_UP, ANY, REQUIRED, HIDDEN, DENSE),
    DENSE(FFN_DOWN, ANY, REQUIRED, DENSE, HIDDEN),
    SCALE(FFN_GATE, "blk.%u.ffn_gate", ONE),
    SCALE(FFN_UP, "blk.%u.ffn_up", ONE),
    SCALE(FFN_DOWN, "blk.%u.ffn_down", ONE),
    END,
};

/* Shared experts without a gate; their width is a key, or follows from their number. */
const struct arch_row arch_ungated_shared[] = {
    UINT(shared_count, "expert_shared_count", 0, 64, DERIVED),
    GROUP(arch_shared_width),
    END,
};

const struct arch_row arch_shared_width[] = {
    UINT(shared_inner, "expert_shared_feed_forward_length", 0, 65536, DERIVED),
    DENSE(SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN),
    SCALE(SHARED_GATE, "blk.%u.ffn_gate_shexp", ONE),
    SCALE(SHARED_UP, "blk.%u.ffn_up_shexp", ONE),
    SCALE(SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE),
    END,
};

/* The router: sigmoid of each logit; groups, normalising and scale by keys. Each architecture has a
 * row for the bias of the choice. */
const struct arch_row arch_sigmoid[] = {
    UINT(gating, "expert_gating_func", 1, 2, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    FLAG(norm_top_k, "expert_weights_norm"),
    FLOAT_ELSE(expert_scale, "expert_weights_scale", 0, 1000, 0),
    UINT(groups, "expert_group_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    UINT(groups_used, "expert_group_used_count", 0, MODEL_EXPERTS_MAX, DERIVED),
    END,
};

/* An RMSNorm of each head of q and k. */
const struct arch_row arch_head_norms[] = {
    CONST(qk_norm, QK_NORM_HEAD),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    END,
};

/* The sizes of MLA, whose matrices of keys and values are absorbed: per head, attn_k_b makes a
 * query for latents and attn_v_b makes the result from their sum. The cache has one key head
 * (latent and rotated key); the values are the latents. */
const struct arch_row arch_mla_sizes[] = {
    UINT(q_rank, "attention.q_lora_rank", 0, 16384, DERIVED),
    UINT(kv_rank, "attention.kv_lora_rank", 1, 1024, REQUIRED),
    UINT(mla_key_size, "attention.key_length_mla", 2, 1024, REQUIRED),
    UINT(mla_value_size, "attention.value_length_mla", 1, 1024, REQUIRED),
    MISSING("attention.key_length_mla",
            "a file of an old converter, with attn_kv_b; convert the model again"),
    END,
};

/* Its tensors. */
const struct arch_row arch_mla[] = {
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_Q, ANY, REQUIRED, HIDDEN, MLA_Q_ONE),
    SCALE(ATTN_Q, "blk.%u.attn_q", ONE),
    DENSE(ATTN_Q_A, ANY, REQUIRED, HIDDEN, Q_RANK),
    DENSE(ATTN_Q_A_NORM, FLOAT, REQUIRED, Q_RANK, ONE),
    DENSE(ATTN_Q_B, ANY, REQUIRED, Q_RANK, MLA_Q),
    DENSE(ATTN_KV_A, ANY, REQUIRED, HIDDEN, KV),
    DENSE(ATTN_KV_A_NORM, FLOAT, REQUIRED, KV_RANK, ONE),
    DENSE_3D(ATTN_K_B, ANY, REQUIRED, MLA_NOPE, KV_RANK, HEADS),
    DENSE_3D(ATTN_V_B, ANY, REQUIRED, KV_RANK, MLA_VALUE, HEADS),
    DENSE(ATTN_OUT, ANY, REQUIRED, MLA_MIX, HIDDEN),
    SCALE(ATTN_OUT, "blk.%u.attn_output", ONE),
    REJECTED("blk.%u.attn_kv_b.weight", "the form of an old converter"),
    END,
};

/* Layers with Kimi delta attention beside layers with MLA, which the array of key heads names,
 * after leading dense layers. An architecture has the row low_rank. */
const struct arch_row arch_kda[] = {
    GROUP(arch_transformer),
    GROUP(arch_kda_layers),
    END,
};

/* The same without what is outside of the layers. */
const struct arch_row arch_kda_layers[] = {
    LAYERS(LEADING_RECURRENT, KDA, DENSE),
    LAYERS(LEADING, MLA, DENSE),
    LAYERS(RECURRENT, KDA, EXPERTS),
    LAYERS(ALL, MLA, EXPERTS),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    GROUP(arch_mla_sizes),
    UNREAD("attention.value_length"),
    RECURRENT_KEY("attention.head_count_kv", HEADS),
    /* Published files have the array instead. */
    UINT(attention_step, "full_attention_interval", 0, MODEL_LAYERS_MAX, DERIVED),
    UINT(conv_taps, "ssm.conv_kernel", 2, MODEL_TAPS_MAX, REQUIRED),
    UINT(delta_size, "kda.head_dim", 2, 256, REQUIRED),
    GROUP(arch_mla),
    DENSE(KDA_Q, ANY, REQUIRED, HIDDEN, MIXED),
    DENSE(KDA_K, ANY, REQUIRED, HIDDEN, MIXED),
    DENSE(KDA_V, ANY, REQUIRED, HIDDEN, MIXED),
    DENSE_3D(KDA_Q_CONV, FLOAT, REQUIRED, TAPS, ONE, MIXED),
    DENSE_3D(KDA_K_CONV, FLOAT, REQUIRED, TAPS, ONE, MIXED),
    DENSE_3D(KDA_V_CONV, FLOAT, REQUIRED, TAPS, ONE, MIXED),
    DENSE(KDA_DECAY, ANY, REQUIRED, HIDDEN, STATE_FIRST),
    DENSE(KDA_DECAY_B, ANY, REQUIRED, STATE_RANK, STATE_DECAYS),
    DENSE(DELTA_BETA, ANY, REQUIRED, HIDDEN, STATE_HEADS),
    DENSE(DELTA_DT, FLOAT, REQUIRED, STATE_DECAYS, ONE),
    DENSE(DELTA_NORM, FLOAT, REQUIRED, STATE_VALUE, ONE),
    DENSE(DELTA_OUT, ANY, REQUIRED, MIXED, HIDDEN),
    NAME(DELTA_OUT, "blk.%u.attn_output.weight"),
    GROUP(arch_dense_ffn),
    GROUP(arch_expert_ffn),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    END,
};

/* Its gates, in as many factors as decays have. */
const struct arch_row arch_kda_gates[] = {
    DENSE(KDA_GATE, ANY, REQUIRED, HIDDEN, STATE_FIRST),
    DENSE(KDA_GATE_B, ANY, REQUIRED, STATE_RANK, MIXED),
    DENSE(DELTA_A, FLOAT, REQUIRED, ONE, STATE_HEADS),
    END,
};

/* A residual of several streams, which are mixed. An architecture whose output weighs them has the
 * row stream_head. */
const struct arch_row arch_mixed_streams[] = {
    GROUP(arch_weighed_streams),
    UINT(stream_steps, "hyper_connection.sinkhorn_iterations", 1, 1000, REQUIRED),
    END,
};

/* The same without what mixes them. */
const struct arch_row arch_weighed_streams[] = {
    CONST(residual, RESIDUAL_MIXED),
    UINT(streams, "hyper_connection.count", 2, MODEL_STREAMS_MAX, REQUIRED),
    FLOAT(stream_eps, "hyper_connection.epsilon", 0, 0.1),
    DENSE(OUTPUT_MIX, ANY, REQUIRED, RESIDUAL, STREAM_HEAD),
    DENSE(OUTPUT_MIX_BASE, FLOAT, REQUIRED, STREAM_HEAD, ONE),
    DENSE(OUTPUT_MIX_SCALE, FLOAT, REQUIRED, STREAM_HEAD_ONE, ONE),
    DENSE(MIXER_MIX, ANY, REQUIRED, RESIDUAL, STREAM_WEIGHTS),
    DENSE(MIXER_MIX_BASE, FLOAT, REQUIRED, STREAM_WEIGHTS, ONE),
    DENSE(MIXER_MIX_SCALE, FLOAT, REQUIRED, STREAM_SCALES, ONE),
    DENSE(FFN_MIX, ANY, REQUIRED, RESIDUAL, STREAM_WEIGHTS),
    DENSE(FFN_MIX_BASE, FLOAT, REQUIRED, STREAM_WEIGHTS, ONE),
    DENSE(FFN_MIX_SCALE, FLOAT, REQUIRED, STREAM_SCALES, ONE),
    END,
};

/* Tensors of an indexer of MLA, where they are left alone. */
const struct arch_row arch_mla_indexer_unused[] = {
    UNUSED("blk.%u.indexer.attn_q_b.weight"), UNUSED("blk.%u.indexer.attn_k.weight"),
    UNUSED("blk.%u.indexer.k_norm.weight"),   UNUSED("blk.%u.indexer.k_norm.bias"),
    UNUSED("blk.%u.indexer.proj.weight"),     END,
};

/* The same, where they are computed: queries from the first factor of those of attention, one key
 * of a position, and the weights of the heads. Files that sluice wrote without them lack the heads.
 * A layer that takes the choice of another one may have tensors, which are not used. */
const struct arch_row arch_mla_indexer[] = {
    UINT(index_heads, "attention.indexer.head_count", 0, 256, DERIVED),
    UINT(index_size, "attention.indexer.key_length", 0, 256, DERIVED),
    DENSE(INDEX_Q, ANY, REQUIRED, Q_RANK, INDEX_Q),
    DENSE(INDEX_K, ANY, REQUIRED, HIDDEN, INDEX_KEY),
    DENSE(INDEX_K_NORM, FLOAT, REQUIRED, INDEX_KEY, ONE),
    DENSE(INDEX_K_NORM_BIAS, FLOAT, REQUIRED, INDEX_KEY, ONE),
    DENSE(INDEX_WEIGHTS, ANY, REQUIRED, HIDDEN, INDEX_HEADS),
    GROUP(arch_mla_indexer_unused),
    END,
};

/* The sizes and tensors of Mamba-2; its layers are those of kind LAYER_RECURRENT. */
const struct arch_row arch_mamba2[] = {
    UINT(conv_taps, "ssm.conv_kernel", 2, MODEL_TAPS_MAX, REQUIRED),
    UINT(delta_size, "ssm.state_size", 2, 256, REQUIRED),
    UINT(delta_k_heads, "ssm.group_count", 1, 1024, REQUIRED),
    UINT(delta_v_heads, "ssm.time_step_rank", 1, 1024, REQUIRED),
    UINT(delta_inner, "ssm.inner_size", 2, 65536, REQUIRED),
    DENSE(MAMBA_IN, ANY, REQUIRED, HIDDEN, PROJECTED),
    DENSE(DELTA_CONV, FLOAT, REQUIRED, TAPS, CHANNELS),
    DENSE(CONV_BIAS, FLOAT, OPTIONAL, CHANNELS, ONE),
    DENSE(DELTA_DT, FLOAT, REQUIRED, STATE_HEADS, ONE),
    DENSE(DELTA_A, FLOAT, REQUIRED, ONE, STATE_HEADS),
    DENSE(RECURRENT_D, FLOAT, REQUIRED, ONE, STATE_HEADS),
    DENSE(DELTA_NORM, FLOAT, REQUIRED, STATE_NORM, STATE_NORMS),
    DENSE(DELTA_OUT, ANY, REQUIRED, MIXED, HIDDEN),
    SCALE(MAMBA_IN, "blk.%u.ssm_in", ONE),
    SCALE(DELTA_OUT, "blk.%u.ssm_out", ONE),
    END,
};
