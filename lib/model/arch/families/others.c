/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures with one model each, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* dots.llm1: an RMSNorm on each q and k head. */
static const struct arch_row dots1[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    GROUP(arch_biases),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    GROUP(arch_head_norms),
    END,
};
const struct arch arch_dots1 = {"dots1", dots1};

/* K-EXAONE: dots.llm1 with layers that have a window; the others do not rotate. The block for
 * drafting after the last layer has no experts. */
static const struct arch_row exaone_moe[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    GROUP(arch_window),
    FULL_EVERY(4, 3),
    UNROTATED(FULL),
    CONST(rope_scale_window, 1),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_head_norms),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    END,
};
const struct arch arch_exaone_moe = {"exaone-moe", exaone_moe};

/* Hy3 and Hy-MT2: as dots.llm1. Files lack the number of layers without experts, which is 1, and
 * the number of shared experts; the bias of the router has no suffix in those of llama.cpp's
 * converter. */
static const struct arch_row hy_v3[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    TENSOR(dense_layers, "blk.0.ffn_gate.weight", 1),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    NAME(ROUTER_BIAS, "blk.%u.exp_probs_b"),
    ALIAS(ROUTER_BIAS, "blk.%u.exp_probs_b.bias"),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_head_norms),
    END,
};
const struct arch arch_hy_v3 = {"hy_v3", hy_v3};

/* Gates of heads, which are products with a matrix of their own. */
static const struct arch_row gates[] = {
    DENSE(ATTN_GATE, ANY, REQUIRED, HIDDEN, GATES),
    SCALE(ATTN_GATE, "blk.%u.attn_gate", ONE),
    END,
};

/* Step-3.5: one gate per query head; other numbers of heads in layers with a window, which rotate
 * the whole head, the others half of it, with divisors of the file; networks with limits in some
 * layers. rope.dimension_count, which files lack, is that of layers with a window. */
static const struct arch_row step35[] = {
    FLOAT(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1),
    GROUP(arch_counts),
    GROUP(arch_ends),
    UINT(rope_dims_window, "rope.dimension_count", 2, 1024, DERIVED),
    SHARE(rope_dims_window, head_size, 1),
    SHARE(rope_dims, rope_dims_window, 2),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(gates),
    GROUP(arch_expert_ffn),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    GROUP(arch_shared_width),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 1, 1e12, 10000),
    WINDOW_KEY("attention.sliding_window_pattern"),
    ARRAY(heads),
    ARRAY(kv_heads),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    LIMITS(dense_limits, "swiglu_clamp_shexp"),
    CONST(limit_result, 1),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_HEAD),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    ONLY("moe_every_n_layers", 1),
    CONST(qk_norm, QK_NORM_HEAD),
    DENSE(ATTN_Q_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF_MOST, ONE),
    END,
};
const struct arch arch_step35 = {"step35", step35};

/* Laguna: one gate per query head or, in M.1, per element of its result, as the matrix says; other
 * numbers of heads in layers with a window, which M.1 lacks; they rotate the whole head, the others
 * a part of it, with YaRN. */
static const struct arch_row laguna[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(gates),
    GROUP(arch_expert_ffn),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    DEFAULT(shared_count, 1),
    GROUP(arch_window),
    FULL_EVERY(4, 0),
    ARRAY(heads),
    ARRAY(kv_heads),
    UINT(rope_dims_window, "rope.dimension_count_swa", 0, 1024, DERIVED),
    CONST(head_gate, HEAD_GATE_SOFTPLUS),
    DEFAULT(gate_form, GATE_OF_HEAD),
    WIDTH(gate_form, "blk.0.attn_gate.weight", MIX, GATE_OF_ELEMENT),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    GROUP(arch_head_norms),
    END,
};
const struct arch arch_laguna = {"laguna", laguna};

/* Trinity: a gate per element; norms before and after both parts of a layer; of four layers, three
 * have a window, and the other one does not rotate. */
static const struct arch_row afmoe[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(gates),
    GROUP(arch_expert_ffn),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    GROUP(arch_window),
    FULL_EVERY(4, 3),
    UNROTATED(FULL),
    CONST(rope_scale_window, 1),
    ROOT(embedding_scale, hidden),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_ELEMENT),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    GROUP(arch_head_norms),
    DENSE(ATTN_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(FFN_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    END,
};
const struct arch arch_afmoe = {"afmoe", afmoe};

/* MiMo-V2: layers with a window have other key heads, a sink per head and a base of their own; the
 * values have a factor. V2.5 has q, k and v in one matrix. Files do not state which layers have no
 * experts: published models, the first one. */
static const struct arch_row mimo2[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_Q, ANY, REQUIRED, HIDDEN, Q_APART),
    DENSE(ATTN_K, ANY, REQUIRED, HIDDEN, KV_APART),
    DENSE(ATTN_V, ANY, REQUIRED, HIDDEN, VALUES_APART),
    DENSE(ATTN_QKV, ANY, REQUIRED, HIDDEN, QKV_JOINED),
    TENSOR(joined_qkv, "blk.0.attn_qkv.weight", 1),
    GROUP(arch_attention_out),
    SCALE(ATTN_Q, "blk.%u.attn_q", ONE),
    SCALE(ATTN_K, "blk.%u.attn_k", ONE),
    SCALE(ATTN_V, "blk.%u.attn_v", ONE),
    SCALE(ATTN_QKV, "blk.%u.attn_qkv", ONE),
    DENSE(ATTN_SINKS, FLOAT, OPTIONAL, HEADS, ONE),
    FLOAT_ELSE(value_scale, "attention.value_scale", 0, 1000, 0),
    GROUP(arch_window),
    WINDOW_KEY("attention.sliding_window_pattern"),
    ARRAY(kv_heads),
    GROUP(arch_expert_ffn),
    LAYERS(UNROUTED, ATTENTION, DENSE),
    GROUP(arch_leading_dense),
    ROUTER_NAME("blk.%u.ffn_gate_inp.weight"),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    CONST(gating, ROUTER_SIGMOID),
    CONST(norm_top_k, 1),
    ONLY("expert_gating_func", 2),
    ONLY("expert_weights_norm", 1),
    ONLY_FLOAT("expert_weights_scale", 1),
    BELOW("expert_group_count", 2),
    ONLY("expert_shared_count", 0),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    END,
};
const struct arch arch_mimo2 = {"mimo2", mimo2};

/* ERNIE 4.5 MoE: softmax with a bias for the choice, normalised; adjacent elements are rotated
 * together. */
static const struct arch_row ernie4_5_moe[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_softmax),
    GROUP(arch_ungated_shared),
    GROUP(arch_biases),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    CONST(norm_top_k, 1),
    CONST(rope_kind, ROPE_PAIRS),
    ONLY("interleave_moe_layer_step", 1),
    ALSO("interleave_moe_layer_step", 1),
    ONLY("expert_weights_norm", 1),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    END,
};
const struct arch arch_ernie4_5_moe = {"ernie4_5-moe", ernie4_5_moe};

/* MiniMax-M2: an RMSNorm on the whole rows of q and k; the first half of each head is rotated. */
static const struct arch_row minimax_m2[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    ALSO_FIELD("feed_forward_length", expert_inner),
    UINT(gating, "expert_gating_func", 2, 2, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_ROW),
    BELOW("expert_group_count", 2),
    ONLY("expert_weights_norm", 1),
    ONLY_FLOAT("expert_weights_scale", 1),
    ONLY("expert_shared_count", 0),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, Q, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, KV, ONE),
    END,
};
const struct arch arch_minimax_m2 = {"minimax-m2", minimax_m2};

/* An indexer that chooses blocks of positions, in the layers with experts. Its queries are made of
 * what attention reads, one for each key head, and normed and rotated as those of attention are.
 * Files of the first converter lack its keys and tensors; stores that sluice packed without the
 * tensors have the first two keys. */
static const struct arch_row block_indexer[] = {
    INDEXED_ROUTED,
    UINT(index_top_k, "attention.indexer.top_k", 1, MODEL_CONTEXT_MAX, DERIVED),
    UINT(index_block, "attention.indexer.block_size", 1, MODEL_CONTEXT_MAX, DERIVED),
    UINT(index_local, "attention.indexer.local_blocks", 1, MODEL_CONTEXT_MAX, DERIVED),
    UINT(index_heads, "attention.indexer.head_count", 0, 256, DERIVED),
    UINT(index_size, "attention.indexer.key_length", 0, 256, DERIVED),
    DEFAULT(index_top_k, 16),
    DEFAULT(index_block, 128),
    DEFAULT(index_local, 1),
    CONST(index_rope, ROPE_HALVES),
    DENSE(INDEX_Q, KEPT, REQUIRED, HIDDEN, INDEX_Q),
    DENSE(INDEX_K, KEPT, REQUIRED, HIDDEN, INDEX_KEY),
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

/* MiniMax-M3: an RMSNorm on each q and k head; half of each head is rotated; gpt-oss's SwiGLU
 * without biases in all networks. */
static const struct arch_row minimax_m3[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    CONST(activation, ACTIVATION_SWIGLU_CLAMPED),
    GROUP(arch_head_norms),
    GROUP(block_indexer),
    END,
};
const struct arch arch_minimax_m3 = {"minimax-m3", minimax_m3};

/* MiniMax-Text-01 and M1: lightning attention in seven of eight layers; each part adds to its
 * normed input. The norm of that attention has an epsilon of its own, which is the default of the
 * published code; llama.cpp takes that of the file. */
static const struct arch_row minimax_01[] = {
    LAYERS(RECURRENT, LIGHTNING, EXPERTS),
    LAYERS(ALL, ATTENTION, EXPERTS),
    GROUP(arch_common),
    GROUP(arch_softmax),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    FLOAT(normed_scale, "residual_scale", 1e-3, 1000),
    RECURRENT_KEY("attention.recurrent_layers", FLAGS),
    UINT(attention_step, "full_attention_interval", 1, MODEL_LAYERS_MAX, DERIVED),
    DEFAULT(attention_step, 8),
    CONST_FLOAT(recurrent_eps, 1e-6),
    CONST(norm_top_k, 1),
    ONLY("expert_weights_norm", 1),
    ONLY("expert_shared_count", 0),
    ONLY("leading_dense_block_count", 0),
    DENSE(DELTA_QKV, ANY, REQUIRED, HIDDEN, CHANNELS),
    DENSE(DELTA_GATE, ANY, REQUIRED, HIDDEN, MIXED),
    DENSE(DELTA_NORM, FLOAT, REQUIRED, STATE_NORM, STATE_NORMS),
    DENSE(DELTA_OUT, ANY, REQUIRED, MIXED, HIDDEN),
    NAME(DELTA_NORM, "blk.%u.attn_norm_2.weight"),
    NAME(DELTA_OUT, "blk.%u.attn_output.weight"),
    NAME(DELTA_OUT_SCALE, "blk.%u.attn_output.scale"),
    SCALE(DELTA_QKV, "blk.%u.attn_qkv", ONE),
    SCALE(DELTA_GATE, "blk.%u.attn_gate", ONE),
    SCALE(DELTA_OUT, "blk.%u.attn_output", ONE),
    END,
};
const struct arch arch_minimax_01 = {"minimax-01", minimax_01};

/* Hunyuan-A13B: an RMSNorm on each q and k head after its rotation; the K weights are renormalised.
 */
static const struct arch_row hunyuan_moe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(arch_ungated_shared),
    ELSE(shared_inner, "feed_forward_length"),
    GROUP(arch_biases),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    ALSO_FIELD("feed_forward_length", expert_inner),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD_AFTER),
    ONLY("expert_weights_norm", 1),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    END,
};
const struct arch arch_hunyuan_moe = {"hunyuan-moe", hunyuan_moe};

/* Phi-3.5-MoE: LayerNorm with a bias; biases on q, k, v, on attention's output and on the logits;
 * the router is SparseMixer. LongRoPE, which files of llama.cpp's converter state by their factors
 * alone; up to the original context length, so with the short factors: the context is limited to
 * it. */
static const struct arch_row phimoe[] = {
    GROUP(arch_transformer),
    WIDE("attention.sliding_window"),
    TENSOR(rope_scaling, "rope_factors_short.weight", ROPE_SHORT),
    TEXT(rope_scaling, "rope.scaling.type", "longrope", ROPE_SHORT),
    ONLY_FLOAT("rope.scaling.factor", 1),
    UINT(rope_context, "rope.scaling.original_context_length", 0, MODEL_CONTEXT_MAX, DERIVED),
    FLOAT_ELSE(rope_attention, "rope.scaling.attn_factor", 0, 100, 0),
    NAME(ROPE_FREQS, "rope_factors_short.weight"),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    UNUSED("rope_factors_long.weight"),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    CONST(gating, ROUTER_SPARSE_MIXER),
    CONST(norm, NORM_LAYER),
    ONLY("expert_used_count", 2),
    ONLY("expert_shared_count", 0),
    BELOW("expert_group_count", 2),
    ONLY_FLOAT("expert_weights_scale", 1),
    DENSE(ATTN_NORM_BIAS, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(FFN_NORM_BIAS, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(OUTPUT_NORM_BIAS, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(OUTPUT_BIAS, FLOAT, OPTIONAL, VOCAB, ONE),
    DENSE(ATTN_Q_BIAS, FLOAT, OPTIONAL, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, OPTIONAL, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, OPTIONAL, VALUES, ONE),
    DENSE(ATTN_OUT_BIAS, FLOAT, OPTIONAL, HIDDEN, ONE),
    END,
};
const struct arch arch_phimoe = {"phimoe", phimoe};

/* North-Mini-Code and Command A+: attention and the feed-forward part read the same normed input,
 * so the experts are known before attention. Layers with a window rotate, and the first ones
 * without experts. The norm is an RMSNorm if its epsilon is there, else a LayerNorm without bias. A
 * softmax is one of the chosen logits. */
static const struct arch_row cohere2moe[] = {
    GROUP(arch_sizes),
    FLOAT_OLD(rms_eps, "attention.layer_norm_epsilon", 1e-12, 0.1),
    FLOAT_ELSE(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, 0),
    LACKS(norm, "attention.layer_norm_rms_epsilon", NORM_LAYER),
    GROUP(arch_scaling),
    CONST(rope_scale_window, 1),
    CONST(rope_kind, ROPE_PAIRS),
    GROUP(arch_window),
    FULL_EVERY(4, 0),
    UNROTATED(FULL_ROUTED),
    GROUP(arch_attention),
    DENSE(ROUTER, FLOAT, REQUIRED, HIDDEN, EXPERTS),
    GROUP(arch_experts),
    GROUP(arch_leading_dense),
    GROUP(arch_ungated_shared),
    CONST(shared_average, 1),
    CONST(parallel, 1),
    CONST(router_first, 1),
    UINT(gating, "expert_gating_func", 1, 2, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    FLAG(norm_top_k, "expert_weights_norm"),
    WHERE(norm_top_k, 1, gating, ROUTER_SOFTMAX),
    FLOAT_ELSE(expert_scale, "expert_weights_scale", 0, 1000, 0),
    BELOW("expert_group_count", 2),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    FLOAT_ELSE(logit_scale, "logit_scale", 0, 1000, 0),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    END,
};
const struct arch arch_cohere2moe = {"cohere2moe", cohere2moe};

/* DBRX: LayerNorm without a bias; q, k and v in one matrix, limited in size; the K weights are
 * renormalised. llama.cpp's converter writes the router in the type of the other matrices. */
static const struct arch_row dbrx[] = {
    GROUP(arch_sizes),
    FLOAT(rms_eps, "attention.layer_norm_epsilon", 1e-12, 0.1),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    GROUP(arch_joined_attention),
    DENSE(FFN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ROUTER, KEPT, REQUIRED, HIDDEN, EXPERTS),
    GROUP(arch_experts),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    FLOAT_ELSE(clamp_qkv, "attention.clamp_kqv", 0, 1e6, 0),
    CONST(norm_top_k, 1),
    CONST(norm, NORM_LAYER),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 1),
    NAME(FFN_NORM, "blk.%u.attn_output_norm.weight"),
    END,
};
const struct arch arch_dbrx = {"dbrx", dbrx};

/* Maple: layers with a window rotate a part of each head, the others do not rotate; limits of gate
 * and up, before the activation. */
static const struct arch_row maple[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    CONST(rope_scale_window, 1),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 0, 1e12, 0),
    WINDOW_KEY("attention.sliding_window_pattern"),
    UNROTATED(FULL),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    ONLY("expert_weights_norm", 1),
    ONLY("expert_shared_count", 0),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    END,
};
const struct arch arch_maple = {"maple", maple};

/* SmallThinker: the router reads the input of the layer, so the experts are known before attention;
 * experts with ReLU. With a window, every fourth layer attends to all positions and does not
 * rotate. */
static const struct arch_row smallthinker[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(arch_biases),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    UINT(window, "attention.sliding_window", 0, MODEL_CONTEXT_MAX, DERIVED),
    FULL_EVERY(4, 0),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 0, 1e12, 0),
    CONST(rope_scale_window, 1),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(gating, "expert_gating_func", 1, 2, REQUIRED),
    CONST(norm_top_k, 1),
    UNROTATED(FULL),
    CONST(router_first, 1),
    CONST(activation, ACTIVATION_RELU),
    ONLY("expert_shared_count", 0),
    BELOW("expert_group_count", 2),
    ONLY("expert_weights_norm", 1),
    ONLY_FLOAT("expert_weights_scale", 1),
    END,
};
const struct arch arch_smallthinker = {"smallthinker", smallthinker};
