/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Kimi, as rows (rows.h). Kimi-K2 is deepseek2. */
#include "lib/model/arch/families/common.h"

/* Kimi-Linear: nothing is rotated, although files have sizes and a base of rotations. The norms of
 * latents have an epsilon of their own, which is the default of the published code; llama.cpp takes
 * that of the file. */
static const struct arch_row kimi_linear[] = {
    GROUP(arch_kda),
    GROUP(arch_kda_gates),
    FLOAT_ELSE(decay_bound, "kda.gate_lower_bound", -100, 0, 0),
    CONST(low_rank, 1),
    UNROTATED(ALL),
    CONST_FLOAT(latent_eps, 1e-6),
    UINT(gating, "expert_gating_func", 2, 2, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    CONST(norm_top_k, 1),
    ONLY("expert_weights_norm", 1),
    FLOAT_ELSE(expert_scale, "expert_weights_scale", 0, 1000, 0),
    BELOW("expert_group_count", 2),
    ONLY("nextn_predict_layers", 0),
    REJECTED("blk.%u.attn_qkv.weight", "q, k and v in one matrix (an option of the converter)"),
    END,
};
const struct arch arch_kimi_linear = {"kimi-linear", kimi_linear};

/* The gates of Kimi K3, of one matrix each, and its decays in two factors. */
static const struct arch_row k3_gates[] = {
    DENSE(KDA_GATE, ANY, REQUIRED, HIDDEN, MIXED),
    NAME(KDA_GATE, "blk.%u.ssm_g.weight"),
    DENSE(DELTA_A, FLOAT, REQUIRED, STATE_HEADS, ONE),
    FLOAT_ELSE(decay_bound, "kda.gate_lower_bound", -100, 0, 0),
    CONST(low_rank, 1),
    CONST(head_gate, HEAD_GATE_SIGMOID),
    CONST(gate_form, GATE_OF_ELEMENT),
    DENSE(ATTN_GATE, ANY, REQUIRED, HIDDEN, GATES),
    END,
};

/* Experts in a latent, whose sum may have a norm. */
static const struct arch_row k3_experts[] = {
    UINT(expert_width, "expert_latent_length", 0, 65536, DERIVED),
    DENSE(LATENT_DOWN, ANY, REQUIRED, HIDDEN, LATENT),
    DENSE(LATENT_UP, ANY, REQUIRED, LATENT, HIDDEN),
    DENSE(LATENT_NORM, FLOAT, OPTIONAL, LATENT, ONE),
    NAME(LATENT_DOWN, "blk.%u.ffn_routed_down.weight"),
    NAME(LATENT_UP, "blk.%u.ffn_routed_up.weight"),
    SCALE(LATENT_DOWN, "blk.%u.ffn_routed_down", ONE),
    SCALE(LATENT_UP, "blk.%u.ffn_routed_up", ONE),
    CONST(activation, ACTIVATION_SITU),
    FLOAT(cap_gate, "activation.situ_beta", 1e-3, 1e6),
    FLOAT(cap_up, "activation.situ_linear_beta", 0, 1e6),
    END,
};

/* Kimi K3: the layers of Kimi-Linear, whose residual is a bank of the sums of blocks. */
static const struct arch_row kimi_k3[] = {
    GROUP(arch_kda),
    GROUP(k3_gates),
    UNROTATED(ALL),
    CONST_FLOAT(latent_eps, 1e-6),
    GROUP(arch_sigmoid),
    GROUP(k3_experts),
    CONST(residual, RESIDUAL_BANK),
    UINT(bank_block, "attn_res.block_size", 1, MODEL_LAYERS_MAX, REQUIRED),
    DENSE(MIXER_BANK_SCORE, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(FFN_BANK_SCORE, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(OUTPUT_BANK_SCORE, FLOAT, REQUIRED, HIDDEN, ONE),
    ONLY("nextn_predict_layers", 0),
    END,
};
const struct arch arch_kimi_k3 = {"kimi-k3", kimi_k3};
