/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Granite, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* Factors of the embedding, of what each part of a layer adds, of attention scores, and a divisor
 * of the logits; softmax over the K; a shared expert in some models. */
static const struct arch_row granite[] = {
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
    END,
};

/* Granite 3.0 and 3.1 MoE: the converter reorders the rows of q and k, so that adjacent elements
 * are rotated together. */
static const struct arch_row granitemoe[] = {
    GROUP(granite),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    END,
};
const struct arch arch_granitemoe = {"granitemoe", granitemoe};

/* Granite 4.0 H: Mamba-2 in most layers, else attention without rotations; the array of key heads
 * says which layer has which. */
#define NO_ATTENTION                                                                               \
    "the converter did not know the kinds of layers in config.json, which must be 'mamba' and "    \
    "'attention' (transformers 5 writes other names); convert the model again"
static const struct arch_row granitehybrid[] = {
    LAYERS(RECURRENT, MAMBA2, EXPERTS),
    GROUP(granite),
    GROUP(arch_mamba2),
    RECURRENT_SOME("attention.head_count_kv", NO_ATTENTION),
    /* Published files have the array instead. */
    UINT(attention_step, "full_attention_interval", 0, MODEL_LAYERS_MAX, DERIVED),
    ONLY_FLAG("rope.scaling.finetuned", 0),
    UNROTATED(ALL),
    END,
};
const struct arch arch_granitehybrid = {"granitehybrid", granitehybrid};
