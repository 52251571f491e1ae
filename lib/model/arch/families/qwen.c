/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Qwen, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* The width of experts; of the first files, the key of dense layers, which is that of all experts
 * of a token. */
static const struct arch_row expert_inner[] = {
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, DERIVED),
    ELSE_SHARE(expert_inner, "feed_forward_length", experts_used),
    END,
};

/* Qwen3-MoE: an RMSNorm on each q and k head; the K weights are renormalised. */
static const struct arch_row qwen3moe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(expert_inner),
    GROUP(arch_biases),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 1),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    END,
};
const struct arch arch_qwen3moe = {"qwen3moe", qwen3moe};

/* The text part of Qwen3-VL and of Qwen3-Omni's thinker. Rotations have three axes, which are one
 * in texts; what n_deepstack_layers adds behind the first layers belongs to images. */
static const struct arch_row qwen3vlmoe[] = {
    GROUP(qwen3moe),
    SECTIONS("rope.dimension_sections"),
    ALSO("n_deepstack_layers", 0),
    END,
};
const struct arch arch_qwen3vlmoe = {"qwen3vlmoe", qwen3vlmoe};

/* Mellum 2: Qwen3-MoE with layers that have a window; YaRN only in those that have none. */
static const struct arch_row mellum[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(arch_window),
    WINDOW_KEY("attention.sliding_window_pattern"),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 1),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    END,
};
const struct arch arch_mellum = {"mellum", mellum};

/* Qwen2-MoE (also Qwen1.5-MoE): biases on q, k and v; a shared expert, which every token uses,
 * times the sigmoid of its own gate; the K weights are not renormalised. */
static const struct arch_row qwen2moe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(expert_inner),
    UINT(shared_inner, "expert_shared_feed_forward_length", 1, 65536, DERIVED),
    ELSE(shared_inner, "feed_forward_length"),
    CONST(norm_top_k, 0),
    CONST(qk_norm, QK_NORM_NONE),
    ONLY("expert_shared_count", 1),
    ONLY("expert_weights_norm", 0),
    DENSE(ATTN_Q_BIAS, FLOAT, OPTIONAL, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, OPTIONAL, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, OPTIONAL, VALUES, ONE),
    DENSE(SHARED_ROUTER, ANY, REQUIRED, HIDDEN, ONE),
    DENSE(SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN),
    SCALE(SHARED_GATE, "blk.%u.ffn_gate_shexp", ONE),
    SCALE(SHARED_UP, "blk.%u.ffn_up_shexp", ONE),
    SCALE(SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE),
    END,
};
const struct arch arch_qwen2moe = {"qwen2moe", qwen2moe};

/* A shared expert, which every token uses, times the sigmoid of its own gate. */
static const struct arch_row gated_shared[] = {
    UINT(shared_inner, "expert_shared_feed_forward_length", 1, 65536, DERIVED),
    ELSE(shared_inner, "feed_forward_length"),
    DENSE(SHARED_ROUTER, ANY, REQUIRED, HIDDEN, ONE),
    DENSE(SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN),
    SCALE(SHARED_GATE, "blk.%u.ffn_gate_shexp", ONE),
    SCALE(SHARED_UP, "blk.%u.ffn_up_shexp", ONE),
    SCALE(SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE),
    END,
};

/* Gated DeltaNet in three of four layers, else gated attention; the first part of each head is
 * rotated. Without norms. */
static const struct arch_row deltanet_layers[] = {
    LAYERS(RECURRENT, DELTANET, EXPERTS),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(gated_shared),
    GROUP(expert_inner),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    RECURRENT_KEY("attention.recurrent_layers", FLAGS),
    UINT(attention_step, "full_attention_interval", 1, MODEL_LAYERS_MAX, DERIVED),
    DEFAULT(attention_step, 4),
    UINT(conv_taps, "ssm.conv_kernel", 2, MODEL_TAPS_MAX, REQUIRED),
    UINT(delta_size, "ssm.state_size", 2, 256, REQUIRED),
    UINT(delta_k_heads, "ssm.group_count", 1, 1024, REQUIRED),
    UINT(delta_v_heads, "ssm.time_step_rank", 1, 1024, REQUIRED),
    UINT(delta_inner, "ssm.inner_size", 2, 65536, REQUIRED),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_IN_Q),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    ONLY("expert_weights_norm", 1),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(DELTA_QKV, ANY, REQUIRED, HIDDEN, CHANNELS),
    DENSE(DELTA_GATE, ANY, REQUIRED, HIDDEN, MIXED),
    DENSE(DELTA_CONV, FLOAT, REQUIRED, TAPS, CHANNELS),
    DENSE(DELTA_DT, FLOAT, REQUIRED, STATE_HEADS, ONE),
    DENSE(DELTA_A, FLOAT, REQUIRED, STATE_HEADS, ONE),
    DENSE(DELTA_NORM, FLOAT, REQUIRED, STATE_VALUE, ONE),
    DENSE(DELTA_OUT, ANY, REQUIRED, MIXED, HIDDEN),
    SCALE(DELTA_QKV, "blk.%u.attn_qkv", ONE),
    SCALE(DELTA_GATE, "blk.%u.attn_gate", ONE),
    SCALE(DELTA_OUT, "blk.%u.ssm_out", ONE),
    END,
};

static const struct arch_row deltanet[] = {
    GROUP(arch_common),
    GROUP(deltanet_layers),
    NAME(FFN_NORM, "blk.%u.post_attention_norm.weight"),
    END,
};

/* Qwen3.5, 3.6: the v heads are in the order of their number within a k head. */
static const struct arch_row interleaved[] = {
    CONST(delta_order, DELTA_INTERLEAVED),
    SECTIONS("rope.dimension_sections"),
    DENSE(DELTA_BETA, ANY, REQUIRED, HIDDEN, STATE_HEADS),
    DENSE(DELTA_ALPHA, ANY, REQUIRED, HIDDEN, STATE_HEADS),
    SCALE(DELTA_BETA, "blk.%u.ssm_beta", ONE),
    SCALE(DELTA_ALPHA, "blk.%u.ssm_alpha", ONE),
    END,
};

static const struct arch_row qwen35moe[] = {
    GROUP(deltanet),
    GROUP(interleaved),
    END,
};
const struct arch arch_qwen35moe = {"qwen35moe", qwen35moe};

/* A residual of several streams, whose gates have two factors: the norms of the streams are the
 * only ones of a layer, and of the output. */
static const struct arch_row gated_streams[] = {
    CONST(residual, RESIDUAL_GATED),
    UINT(streams, "hyper_connection.count", 2, MODEL_STREAMS_MAX, REQUIRED),
    UINT(stream_rank, "hyper_connection.low_rank", 1, 16384, REQUIRED),
    DENSE(OUTPUT_STREAM_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(OUTPUT_STREAM_DOWN, ANY, REQUIRED, RESIDUAL, STREAM_RANK),
    DENSE(OUTPUT_STREAM_UP, ANY, REQUIRED, STREAM_RANK, RESIDUAL),
    DENSE(MIXER_STREAM_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(MIXER_STREAM_DOWN, ANY, REQUIRED, RESIDUAL, STREAM_RANK),
    DENSE(MIXER_STREAM_UP, ANY, REQUIRED, STREAM_RANK, RESIDUAL),
    DENSE(MIXER_STREAM_INJECT, ANY, REQUIRED, RESIDUAL, STREAMS),
    DENSE(FFN_STREAM_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(FFN_STREAM_DOWN, ANY, REQUIRED, RESIDUAL, STREAM_RANK),
    DENSE(FFN_STREAM_UP, ANY, REQUIRED, STREAM_RANK, RESIDUAL),
    DENSE(FFN_STREAM_INJECT, ANY, REQUIRED, RESIDUAL, STREAMS),
    END,
};

/* A layer with rows of a table by n-grams. */
static const struct arch_row ngrams[] = {
    NGRAMS("ple.layers"),
    UINT(ngram_size, "ple.ngram_size", 0, NGRAM_SIZE_MAX, DERIVED),
    UINT(ngram_heads, "ple.heads_per_ngram", 0, NGRAM_ROWS_MAX, DERIVED),
    UINT(ngram_taps, "ple.conv_kernel", 0, MODEL_TAPS_MAX, DERIVED),
    UINT(ngram_end, "ple.eos_token_id", 0, MODEL_VOCAB_MAX, DERIVED),
    UINT(ngram_width, "embedding_length_per_layer_input", 0, 65536, DERIVED),
    DENSE(NGRAM_TABLE, ANY, REQUIRED, NGRAM_WIDTH, NGRAM_ROWS),
    DENSE(NGRAM_KEY, ANY, REQUIRED, NGRAM_INPUTS, RESIDUAL),
    DENSE(NGRAM_VALUE, ANY, REQUIRED, NGRAM_INPUTS, HIDDEN),
    DENSE(NGRAM_KEY_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(NGRAM_QUERY_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(NGRAM_CONV_NORM, FLOAT, REQUIRED, RESIDUAL, ONE),
    DENSE(NGRAM_CONV, FLOAT, REQUIRED, NGRAM_TAPS, RESIDUAL),
    END,
};

/* An indexer over pools: queries of what the mixer reads, and one key of each complete pool, with
 * norms of both. */
static const struct arch_row pools[] = {
    CHOICE("attention.compress_ratios", "attention.indexer.top_k"),
    UINT(index_top_k, "attention.indexer.top_k", 0, MODEL_CONTEXT_MAX, DERIVED),
    UINT(index_heads, "attention.indexer.head_count", 0, 64, DERIVED),
    UINT(index_size, "attention.indexer.key_length", 0, 256, DERIVED),
    CONST(index_rope, ROPE_HALVES),
    DENSE(INDEX_Q, ANY, REQUIRED, HIDDEN, INDEX_Q),
    DENSE(INDEX_K, ANY, REQUIRED, HIDDEN, INDEX_KEY),
    DENSE(INDEX_Q_NORM, FLOAT, REQUIRED, INDEX_KEY, ONE),
    DENSE(INDEX_K_NORM, FLOAT, REQUIRED, INDEX_KEY, ONE),
    NAME(INDEX_Q, "blk.%u.indexer.q_proj.weight"),
    NAME(INDEX_K, "blk.%u.indexer.k_proj.weight"),
    UNUSED("blk.%u.indexer.q_proj.weight"),
    UNUSED("blk.%u.indexer.k_proj.weight"),
    UNUSED("blk.%u.indexer.q_norm.weight"),
    UNUSED("blk.%u.indexer.k_norm.weight"),
    END,
};

/* Qwen3.8-Flash-Next: the layers of Qwen3.5 with four streams and n-grams. In layers with
 * attention, an indexer chooses blocks of positions. */
static const struct arch_row qwen4exp[] = {
    FLOAT(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1),
    GROUP(arch_counts),
    UINT(rope_dims, "rope.dimension_count", 2, 1024, DERIVED),
    GROUP(arch_embedding),
    GROUP(arch_output),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    GROUP(arch_attention_matrices),
    GROUP(arch_routed),
    GROUP(deltanet_layers),
    GROUP(interleaved),
    CONST(delta_sigmoid, 1),
    GROUP(gated_streams),
    GROUP(ngrams),
    GROUP(pools),
    END,
};
const struct arch arch_qwen4exp = {"qwen4exp", qwen4exp};

/* Qwen3-Next, Qwen3-Coder-Next: the v heads of a k head are next to each other; beta and alpha are
 * one matrix. */
#define OLD_DELTANET "a matrix of q, k, v and z (a file of 2025, to be converted again)"
static const struct arch_row qwen3next[] = {
    GROUP(deltanet),
    CONST(delta_order, DELTA_GROUPED),
    DENSE(DELTA_BETA_ALPHA, ANY, REQUIRED, HIDDEN, STATE_HEADS_TWICE),
    REJECTED("blk.%u.ssm_in.weight", OLD_DELTANET),
    END,
};
const struct arch arch_qwen3next = {"qwen3next", qwen3next};
