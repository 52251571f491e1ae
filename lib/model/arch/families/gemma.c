/* SPDX-License-Identifier: Apache-2.0 */
/* The architectures of Gemma, as rows (rows.h). */
#include "lib/model/arch/families/common.h"

/* Gemma 4 with experts (26B-A4B): a dense network next to the experts of every layer, each part
 * between two norms; the router has a norm without weights and a scale of its own. */
static const struct arch_row gemma4[] = {
    GROUP(arch_transformer),
    GROUP(arch_scaling),
    GROUP(arch_expert_ffn),
    LAYERS(ALL, ATTENTION, DENSE_AND_EXPERTS),
    GROUP(arch_softmax),
    UINT(expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED),
    UINT(dense_inner, "feed_forward_length", 1, 65536, REQUIRED),
    UINT(window, "attention.sliding_window", 1, MODEL_CONTEXT_MAX, REQUIRED),
    WINDOW_KEY("attention.sliding_window_pattern"),
    ARRAY(kv_heads),
    UINT(head_size_window, "attention.key_length_swa", 2, 1024, REQUIRED),
    UINT(value_size_window, "attention.value_length_swa", 2, 1024, REQUIRED),
    UINT(rope_dims_window, "rope.dimension_count_swa", 0, 1024, DERIVED),
    FLOAT_ELSE(rope_theta_window, "rope.freq_base_swa", 1, 1e12, 10000),
    ONLY("attention.shared_kv_layers", 0),
    ONLY("embedding_length_per_layer_input", 0),
    ALSO("embedding_length_per_layer_input", 0),
    FLOAT_ELSE(logit_cap, "final_logit_softcapping", 0, 1e6, 0),
    ROOT(embedding_scale, hidden),
    CONST_FLOAT(score_scale, 1),
    CONST(norm_top_k, 1),
    CONST(qk_norm, QK_NORM_HEAD),
    CONST(v_norm, 1),
    CONST(activation, ACTIVATION_GELU),
    DENSE(ROPE_FREQS, FLOAT, REQUIRED, HALF,
          ONE), /* of full layers: 1, or very large: not rotated */
    DENSE(ATTN_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ATTN_Q, ANY, REQUIRED, HIDDEN, Q),
    DENSE(ATTN_K, ANY, REQUIRED, HIDDEN, KV),
    DENSE(ATTN_V, ANY, WINDOW, HIDDEN,
          VALUES), /* absent: the values are the keys before norm and rotation */
    DENSE(ATTN_OUT, ANY, REQUIRED, MIX, HIDDEN),
    SCALE(ATTN_Q, "blk.%u.attn_q", ONE),
    SCALE(ATTN_K, "blk.%u.attn_k", ONE),
    SCALE(ATTN_V, "blk.%u.attn_v", ONE),
    SCALE(ATTN_OUT, "blk.%u.attn_output", ONE),
    DENSE(ATTN_Q_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_K_NORM, FLOAT, REQUIRED, HEAD, ONE),
    DENSE(ATTN_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    GROUP(arch_dense_matrices),
    DENSE(DENSE_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(EXPERTS_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(EXPERTS_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(FFN_POST_NORM, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(ROUTER_SCALE, FLOAT, REQUIRED, HIDDEN, ONE),
    DENSE(LAYER_SCALE, FLOAT, OPTIONAL, ONE, ONE),
    REJECTED("per_layer_token_embd.weight", "an embedding per layer (E2B, E4B)"),
    REJECTED("blk.%u.attn_qkv.weight", "one tensor of q, k and v"),
    END,
};
const struct arch arch_gemma4 = {"gemma4", gemma4};
