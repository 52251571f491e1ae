/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Kimi, as rows (rows.h). Kimi-K2 is deepseek2. */
#include "lib/model/arch/families/common.h"

/* Kimi-Linear: nothing is rotated, although files have sizes and a base of rotations. The norms of
 * latents have an epsilon of their own, which is the default of the published code; llama.cpp takes
 * that of the file. */
static const struct arch_row kimi_linear[] = {
    GROUP(arch_kda),
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
