/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of LFM2, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* LFM2 with experts: gated short convolutions, and attention with an RMSNorm on each q and k head;
 * the array of key heads says which layer has which. The norm after the last layer has the name of
 * another one. */
static const struct arch_row lfm2moe[] = {
    GROUP(arch_common),
    LAYERS(LEADING_RECURRENT, SHORTCONV, DENSE),
    LAYERS(LEADING, ATTENTION, DENSE),
    LAYERS(RECURRENT, SHORTCONV, EXPERTS),
    GROUP(arch_leading_dense),
    RECURRENT_KEY("attention.head_count_kv", HEADS),
    /* Published files have the array instead. */
    UINT(attention_step, "full_attention_interval", 0, MODEL_LAYERS_MAX, DERIVED),
    UINT(conv_taps, "shortconv.l_cache", 2, MODEL_TAPS_MAX, REQUIRED),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(gating, "expert_gating_func", 2, 2, DERIVED),
    DEFAULT(gating, ROUTER_SIGMOID),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    BELOW("expert_group_count", 2),
    ONLY("expert_weights_norm", 1),
    ONLY_FLOAT("expert_weights_scale", 1),
    ONLY("expert_shared_count", 0),
    NAME(OUTPUT_NORM, "token_embd_norm.weight"),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(SHORTCONV_IN, ANY, REQUIRED, HIDDEN, PROJECTED),
    DENSE(SHORTCONV_CONV, FLOAT, REQUIRED, TAPS, CHANNELS),
    DENSE(SHORTCONV_OUT, ANY, REQUIRED, HIDDEN, HIDDEN),
    END,
};
const struct arch arch_lfm2moe = {"lfm2moe", lfm2moe};
