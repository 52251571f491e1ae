/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of GLM, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* GLM-4.5, 4.6, 4.7: the first half of each head is rotated; biases on q, k and v, and norms of
 * each q and k head, in some models; a block for drafting after the last layer. */
static const struct arch_row glm4moe[] = {
    GROUP(arch_common),
    GROUP(arch_leading_dense),
    GROUP(arch_sigmoid),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    GROUP(arch_ungated_shared),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    CONST(qk_norm, QK_NORM_HEAD),
    NAME(FFN_NORM, "blk.%u.post_attention_norm.weight"),
    DENSE(ATTN_Q_BIAS, FLOAT, OPTIONAL, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, OPTIONAL, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, OPTIONAL, VALUES, ONE),
    DENSE(ATTN_Q_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, OPTIONAL, HEAD, ONE),
    END,
};
const struct arch arch_glm4moe = {"glm4moe", glm4moe};
