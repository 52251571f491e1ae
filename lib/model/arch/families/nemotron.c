/* SPDX-License-Identifier: Apache-2.0 */
/* The architecture of Nemotron 3, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* A layer is one of three: Mamba-2, attention without rotation, or experts of two matrices with the
 * square of ReLU, which some models compute in a latent. It has one norm. */
static const struct arch_row nemotron_h_moe[] = {
    LAYERS(RECURRENT, MAMBA2, NONE),
    LAYERS(PLAIN, NONE, EXPERTS),
    LAYERS(ALL, ATTENTION, NONE),
    GROUP(arch_sizes),
    FLOAT_ELSE(rms_eps, "attention.layer_norm_epsilon", 1e-12, 0.1, 0), /* llama.cpp needs it */
    FLOAT_ELSE(rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, 0),
    UINT(skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    GROUP(arch_no_window),
    FLOAT_ELSE(score_scale, "attention.scale", 0, 1000, 0),
    UNROTATED(ALL),
    GROUP(arch_attention),
    GROUP(arch_biases),
    GROUP(arch_mamba2),
    RECURRENT_KEY("attention.head_count_kv", HEADS),
    NETWORK_KEY("feed_forward_length"),
    GROUP(arch_sigmoid),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, DERIVED),
    SAME(expert_inner),
    SAME(experts_used),
    UINT(expert_width, "moe_latent_size", 0, 65536, DERIVED),
    UINT(shared_count, "expert_shared_count", 0, 64, DERIVED),
    UINT(shared_inner, "expert_shared_feed_forward_length", 0, 65536, DERIVED),
    CONST(activation, ACTIVATION_RELU),
    CONST(two_matrices, 1),
    DENSE(FFN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    NAME(FFN_NORM, "blk.%u.attn_norm.weight"),
    DENSE(ROUTER, FLOAT, REQUIRED, HIDDEN, EXPERTS),
    DENSE(ROUTER_BIAS, FLOAT, REQUIRED, EXPERTS, ONE),
    DENSE(LATENT_DOWN, ANY, REQUIRED, HIDDEN, LATENT),
    DENSE(LATENT_UP, ANY, REQUIRED, LATENT, HIDDEN),
    SCALE(LATENT_DOWN, "blk.%u.ffn_latent_down", ONE),
    SCALE(LATENT_UP, "blk.%u.ffn_latent_up", ONE),
    EXPERT(GATE, "blk.%u.ffn_up_exps.weight", WIDTH, INNER),
    EXPERT(DOWN, "blk.%u.ffn_down_exps.weight", INNER, WIDTH),
    NAME(EXPERT_GATE_SCALES, "blk.%u.ffn_up_exps.scale"),
    SCALES(EXPERT_GATE, "blk.%u.ffn_up_exps", EXPERTS),
    SCALES(EXPERT_DOWN, "blk.%u.ffn_down_exps", EXPERTS),
    DENSE(SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED),
    DENSE(SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN),
    NAME(SHARED_GATE, "blk.%u.ffn_up_shexp.weight"),
    NAME(SHARED_GATE_SCALE, "blk.%u.ffn_up_shexp.scale"),
    SCALE(SHARED_GATE, "blk.%u.ffn_up_shexp", ONE),
    SCALE(SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE),
    END,
};
const struct arch arch_nemotron_h_moe = {"nemotron_h_moe", nemotron_h_moe};
