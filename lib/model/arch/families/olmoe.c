/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of OLMoE, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

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
