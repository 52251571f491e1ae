/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Llama with experts and of OLMoE, as rows (rows.h). */
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
