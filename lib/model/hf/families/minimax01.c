/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-Text-01 and M1, as rows (rows.h). The class `minimax` of the package transformers has another
 * rotation than the published models. */
#include "lib/model/hf/families/common.h"

#define LAYER "model.layers.%u.self_attn."

static const struct hf_row minimax_01[] = {
    GROUP(hf_core),
    UINT(rotary_dim, "rope.dimension_count", REQUIRED),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    OTHER("linear_attention"),
    FULL_FLAGS(attn_type_list),
    LAYER_FLAGS("attention.recurrent_layers"),
    FLOAT(layernorm_mlp_alpha, "residual_scale", REQUIRED),
    EQUAL(layernorm_full_attention_alpha, layernorm_mlp_alpha),
    EQUAL(layernorm_linear_attention_alpha, layernorm_mlp_alpha),
    HAS(layernorm_full_attention_beta, "1 1.0"),
    HAS(layernorm_linear_attention_beta, "1 1.0"),
    HAS(layernorm_mlp_beta, "1 1.0"),
    HAS(postnorm, "true"),
    MUST(shared_intermediate_size, "0 null"),
    MUST(sliding_window, "null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, FULL),
    DENSE(LAYER "qkv_proj.weight", "blk.%u.attn_qkv.weight", MATRIX, OTHER),
    DENSE(LAYER "output_gate.weight", "blk.%u.attn_gate.weight", MATRIX, OTHER),
    DENSE(LAYER "norm.weight", "blk.%u.attn_norm_2.weight", F32, OTHER),
    DENSE(LAYER "out_proj.weight", "blk.%u.attn_output.weight", MATRIX, OTHER),
    GROUP(hf_mixtral_experts),
    END,
};
const struct hf_arch hf_minimax_01 = {{"minimax_text_01", "minimax_m1"}, "minimax-01", minimax_01};
