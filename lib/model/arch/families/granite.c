/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Granite, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* Granite 3.0 and 3.1 MoE: factors of the embedding, of what each part of a layer adds, of
 * attention scores, and a divisor of the logits; softmax over the K; the converter reorders the
 * rows of q and k, so that adjacent elements are rotated together; a shared expert in some models.
 */
static const struct arch_row granitemoe[] = {
    GROUP(arch_common),
    GROUP(arch_all_experts),
    GROUP(arch_biases),
    GROUP(arch_shared_width),
    UINT(expert_inner, "feed_forward_length", 1, 65536, REQUIRED),
    FLOAT_ELSE(embedding_scale, "embedding_scale", 0, 1000, 0),
    FLOAT_ELSE(residual_scale, "residual_scale", 0, 1000, 0),
    FLOAT_ELSE(score_scale, "attention.scale", 0, 1000, 0),
    FLOAT_ELSE(logit_divisor, "logit_scale", 0, 1000, 0),
    CONST(gating, ROUTER_SOFTMAX_AFTER),
    CONST(rope_kind, ROPE_PAIRS),
    BELOW("expert_group_count", 2),
    ONLY_FLOAT("expert_weights_scale", 1),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    END,
};
const struct arch arch_granitemoe = {"granitemoe", granitemoe};
