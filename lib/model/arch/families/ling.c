/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Ling and Ring, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* Ling and Ring 1 (lite, plus, Coder): adjacent elements are rotated together. */
static const struct arch_row bailingmoe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_softmax),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    CONST(rope_kind, ROPE_PAIRS),
    FLAG(norm_top_k, "expert_weights_norm"),
    END,
};
const struct arch arch_bailingmoe = {"bailingmoe", bailingmoe};

/* Ling and Ring 2.0: q, k and v in one matrix; an RMSNorm on each q and k head; the first half of
 * each head is rotated; a block for drafting after the last layer in some models. */
static const struct arch_row bailingmoe2[] = {
    GROUP(arch_transformer),
    GROUP(arch_no_window),
    GROUP(arch_scaling),
    GROUP(arch_joined_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, OPTIONAL, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_head_norms),
    END,
};
const struct arch arch_bailingmoe2 = {"bailingmoe2", bailingmoe2};

/* Ling 3: matrices of decays and gates without factors, a bound of the decays, one gate per head of
 * MLA; networks with limits in some layers of the larger model. */
static const struct arch_row bailingmoe3[] = {
    GROUP(arch_kda),
    GROUP(arch_kda_gates),
    FLOAT_ELSE(decay_bound, "kda.gate_lower_bound", -100, 0, -5),
    DEFAULT(shared_count, 1),
    GROUP(arch_sigmoid),
    CONST(rope_kind, ROPE_PAIRS),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_HEAD),
    DENSE(ATTN_GATE, ANY, REQUIRED, HIDDEN, GATES),
    LIMITS(expert_limits, "swiglu_clamp_exp"),
    LIMITS(dense_limits, "swiglu_clamp_shexp"),
    CONST(limit_result, 1),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    ONLY("kda.safe_gate", 1),
    END,
};
const struct arch arch_bailingmoe3 = {"bailingmoe3", bailingmoe3};
