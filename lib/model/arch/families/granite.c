/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Granite, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* Factors of the embedding, of what each part of a layer adds, of attention scores, and a divisor
 * of the logits; softmax over the K. */
static const struct arch_row granite_factors[] = {
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

/* With a shared expert in some models. */
static const struct arch_row granite[] = {
    GROUP(arch_common),       GROUP(arch_all_experts), GROUP(arch_biases),
    GROUP(arch_shared_width), GROUP(granite_factors),  END,
};

/* Granite 3.0 and 3.1 MoE: the converter reorders the rows of q and k, so that adjacent elements
 * are rotated together. */
static const struct arch_row granitemoe[] = {
    GROUP(granite),
    DENSE(ROPE_FREQS, FLOAT, OPTIONAL, HALF, ONE),
    END,
};
const struct arch arch_granitemoe = {"granitemoe", granitemoe};

/* Granite swash: windows in most layers, a sink per head; the file states which layers rotate. Gate
 * and up of the shared expert are one matrix. */
static const struct arch_row granite_swa[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_attention),
    GROUP(arch_expert_ffn),
    GROUP(arch_all_experts),
    SAME(experts_used),
    GROUP(arch_biases),
    GROUP(granite_factors),
    UINT(shared_inner, "expert_shared_feed_forward_length", 0, 65536, DERIVED),
    DENSE(SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED_TWICE),
    DENSE(SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN),
    SCALE(SHARED_UP, "blk.%u.ffn_up_shexp", ONE),
    SCALE(SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    WINDOW_KEY("attention.sliding_window_pattern"),
    ROTATED_KEY("attention.rope_pattern"),
    CONST(rope_scale_window, 1),
    DENSE(ATTN_SINKS, FLOAT, REQUIRED, HEADS, ONE),
    END,
};
const struct arch arch_granite_swa = {"granite_swa", granite_swa};

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
