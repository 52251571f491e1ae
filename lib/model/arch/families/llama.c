/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Llama with experts, Llama 4, Arctic and OLMoE, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

#define OLD_EXPERTS "a tensor for each expert (a file of early 2024, to be converted again)"

/* Llama with experts (Mixtral): the converter reorders the rows of q and k, so that adjacent
 * elements are rotated together; the K weights are renormalised, which equals Mixtral's softmax
 * over the K largest logits. */
static const struct arch_row llama[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(arch_biases),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    CONST(norm_top_k, 1),
    CONST(rope_kind, ROPE_PAIRS),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 1),
    ONLY("interleave_moe_layer_step", 1),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE), /* divisors of the frequencies */
    REJECTED("blk.%u.ffn_gate.%u.weight", OLD_EXPERTS),
    REJECTED("blk.%u.ffn_up.%u.weight", OLD_EXPERTS),
    REJECTED("blk.%u.ffn_down.%u.weight", OLD_EXPERTS),
    END,
};
const struct arch arch_llama = {"llama", llama};

/* Llama 4: of four layers, three rotate and attend to the chunk of their position, and the other
 * one does neither; its queries grow with their position. An expert reads its input times its gate
 * weight. Models of 128 experts (Maverick) have no norm of q and k. The key of a window, which
 * files of the converter lack, has the size of a chunk; 0: all layers rotate and attend to all
 * positions. */
static const struct arch_row llama4[] = {
    LAYERS(UNROUTED, ATTENTION, DENSE),
    LAYERS(ALL, ATTENTION, EXPERTS),
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    CONST(rope_scale_window, 1),
    CONST(rope_kind, ROPE_PAIRS),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    GROUP(arch_window),
    LACKS(window, "attention.sliding_window", 8192),
    CONST(window_chunks, 1),
    FULL_EVERY(4, 3),
    UNROTATED(FULL),
    FLOAT_ELSE(query_scale, "attention.temperature_scale", 0, 100, 0.1),
    UINT(query_context, "attention.temperature_length", 0, MODEL_TRAINED_MAX, DERIVED),
    DEFAULT(query_context, 8192),
    CONST(query_first, 1),
    GROUP(arch_attention),
    GROUP(arch_biases),
    DEFAULT(qk_norm, QK_NORM_ROTATED),
    WHERE(qk_norm, QK_NORM_NONE, experts, 128),
    GROUP(arch_expert_ffn),
    GROUP(arch_dense_network),
    UINT(expert_step, "interleave_moe_layer_step", 1, MODEL_LAYERS_MAX, REQUIRED),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    GROUP(arch_ungated_shared),
    DEFAULT(shared_count, 1),
    CONST(weighted_input, 1),
    CONST(gating, ROUTER_SIGMOID_AFTER),
    CONST(norm_top_k, 0),
    ONLY("expert_gating_func", 2),
    ONLY("expert_weights_norm", 0),
    ONLY_FLOAT("expert_weights_scale", 1),
    BELOW("expert_group_count", 2),
    END,
};
const struct arch arch_llama4 = {"llama4", llama4};

/* Snowflake Arctic: as Llama with a dense network after attention; router and experts read the
 * input of the layer, with a norm of their own, so the experts are known before attention. */
static const struct arch_row arctic[] = {
    GROUP(arch_common),
    LAYERS(ALL, ATTENTION, DENSE_THEN_EXPERTS),
    GROUP(arch_softmax),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    SHARE(dense_inner, hidden, 1),
    GROUP(arch_dense_matrices),
    DENSE(EXPERTS_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    NAME(EXPERTS_NORM, "blk.%u.ffn_norm_exps.weight"),
    CONST(router_first, 1),
    CONST(norm_top_k, 1),
    CONST(rope_kind, ROPE_PAIRS),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 1),
    ONLY("leading_dense_block_count", 0),
    REJECTED("blk.%u.ffn_gate.%u.weight", OLD_EXPERTS),
    REJECTED("blk.%u.ffn_up.%u.weight", OLD_EXPERTS),
    REJECTED("blk.%u.ffn_down.%u.weight", OLD_EXPERTS),
    END,
};
const struct arch arch_arctic = {"arctic", arctic};

/* OLMoE: an RMSNorm on the whole rows of q and k; the K weights are not renormalised. */
static const struct arch_row olmoe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    CONST(norm_top_k, 0),
    CONST(qk_norm, QK_NORM_ROW),
    ONLY("expert_shared_count", 0),
    ONLY("expert_weights_norm", 0),
    ONLY_FLOAT("attention.clamp_kqv", 0),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, Q, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, KV, ONE),
    END,
};
const struct arch arch_olmoe = {"olmoe", olmoe};
