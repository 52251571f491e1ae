/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Nemotron 3 and Jamba, as rows (rows.h). */
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

/* The sizes and tensors of Mamba-1, whose steps, k and q have norms. */
static const struct arch_row mamba1[] = {
    UINT(conv_taps, "ssm.conv_kernel", 2, MODEL_TAPS_MAX, REQUIRED),
    UINT(delta_size, "ssm.state_size", 1, 256, REQUIRED),
    UINT(step_rank, "ssm.time_step_rank", 1, 65536, REQUIRED),
    UINT(delta_inner, "ssm.inner_size", 1, 65536, REQUIRED),
    DENSE(MAMBA_IN, ANY, REQUIRED, HIDDEN, MIXED_TWICE),
    DENSE(DELTA_CONV, FLOAT, REQUIRED, TAPS, CHANNELS),
    DENSE(CONV_BIAS, FLOAT, OPTIONAL, CHANNELS, ONE),
    DENSE(MAMBA_SELECT, ANY, REQUIRED, MIXED, SELECTED),
    DENSE(MAMBA_STEP_NORM, FLOAT, REQUIRED, STEP_RANK, ONE),
    DENSE(MAMBA_K_NORM, FLOAT, REQUIRED, STATE_KEY, ONE),
    DENSE(MAMBA_Q_NORM, FLOAT, REQUIRED, STATE_KEY, ONE),
    DENSE(MAMBA_STEP, ANY, REQUIRED, STEP_RANK, MIXED),
    DENSE(DELTA_DT, FLOAT, REQUIRED, MIXED, ONE),
    DENSE(MAMBA_A, FLOAT, REQUIRED, STATE_KEY, MIXED),
    DENSE(RECURRENT_D, FLOAT, REQUIRED, MIXED, ONE),
    DENSE(DELTA_OUT, ANY, REQUIRED, MIXED, HIDDEN),
    SCALE(MAMBA_IN, "blk.%u.ssm_in", ONE),
    SCALE(DELTA_OUT, "blk.%u.ssm_out", ONE),
    END,
};

/* Jamba: Mamba-1 in most layers, else attention without rotation; experts in some of both, and in
 * the others one network of the same width. */
static const struct arch_row jamba[] = {
    LAYERS(UNROUTED_RECURRENT, MAMBA1, DENSE),
    LAYERS(LEADING_RECURRENT, MAMBA1, DENSE),
    LAYERS(UNROUTED, ATTENTION, DENSE),
    LAYERS(LEADING, ATTENTION, DENSE),
    LAYERS(RECURRENT, MAMBA1, EXPERTS),
    LAYERS(ALL, ATTENTION, EXPERTS),
    GROUP(arch_transformer),
    GROUP(arch_no_window),
    UNROTATED(ALL),
    GROUP(arch_attention),
    GROUP(mamba1),
    RECURRENT_KEY("attention.head_count_kv", HEADS),
    /* Published files have the array, and no layers by number. */
    UINT(attention_step, "full_attention_interval", 0, MODEL_LAYERS_MAX, DERIVED),
    UINT(dense_layers, "leading_dense_block_count", 0, MODEL_LAYERS_MAX - 1, DERIVED),
    ROUTER_NAME("blk.%u.ffn_gate_inp.weight"),
    UINT(dense_inner, "feed_forward_length", 1, 65536, REQUIRED),
    SHARE(expert_inner, dense_inner, 1),
    GROUP(arch_dense_matrices),
    GROUP(arch_expert_ffn),
    GROUP(arch_softmax),
    ONLY("expert_weights_norm", 0),
    END,
};
const struct arch arch_jamba = {"jamba", jamba};
