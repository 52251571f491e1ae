/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of gpt-oss, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* gpt-oss: windows on even layers; a sink per head; biases of attention, router and experts;
 * softmax of the chosen logits; a clamped SwiGLU; YaRN whose correction range is not rounded (the
 * published configuration has truncate = false). The norm before the experts has another name. */
static const struct arch_row gpt_oss[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling_keys),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    FULL_EVERY(2, 1),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 0, 1e12, 0),
    CONST(rope_truncate, 0),
    CONST(rope_scale_window, 1),
    CONST(gating, ROUTER_SOFTMAX_AFTER),
    CONST(norm_top_k, 0),
    CONST(activation, ACTIVATION_SWIGLU_CLAMPED),
    ONLY("expert_gating_func", 3),
    BELOW("expert_group_count", 2),
    ONLY("expert_shared_count", 0),
    ONLY_FLOAT("expert_weights_scale", 1),
    NAME(FFN_NORM, "blk.%u.post_attention_norm.weight"),
    DENSE(ATTN_Q_BIAS, FLOAT, OPTIONAL, Q, ONE),
    DENSE(ATTN_K_BIAS, FLOAT, OPTIONAL, KV, ONE),
    DENSE(ATTN_V_BIAS, FLOAT, OPTIONAL, VALUES, ONE),
    DENSE(ATTN_OUT_BIAS, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_SINKS, FLOAT, REQUIRED, HEADS, ONE),
    DENSE(ROUTER_LOGIT_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    DENSE(EXPERT_GATE_BIAS, FLOAT, REQUIRED, INNER, EXPERTS),
    DENSE(EXPERT_UP_BIAS, FLOAT, REQUIRED, INNER, EXPERTS),
    DENSE(EXPERT_DOWN_BIAS, FLOAT, REQUIRED, HIDDEN, EXPERTS),
    END,
};
const struct arch arch_gpt_oss = {"gpt-oss", gpt_oss};
