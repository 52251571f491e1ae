/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 4, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

#define FFN "model.layers.%u.feed_forward."

/* The text part: adjacent elements of heads are rotated together in the checkpoint, too; experts of
 * a layer are in two tensors, turned. The norm of q and k is not in GGUF, where it follows from the
 * number of experts. */
static const struct hf_row llama4[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    UINT(head_dim, "rope.dimension_count", OPTIONAL),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(intermediate_size, "expert_feed_forward_length", REQUIRED),
    UINT(intermediate_size_mlp, "feed_forward_length", REQUIRED),
    UINT(interleave_moe_layer_step, "interleave_moe_layer_step", REQUIRED),
    UINT(attention_chunk_size, "attention.sliding_window", REQUIRED),
    FLOAT(attn_scale, "attention.temperature_scale", OPTIONAL),
    UINT(floor_scale, "attention.temperature_length", OPTIONAL),
    OTHER("chunked_attention"),
    FIXED(4, 3),
    ROTATES(no_rope_layers, 4, 3),
    UNLESS(use_qk_norm, num_local_experts, 128),
    ROPE("", "llama3", "none", "factor"),
    LLAMA3("rope_freqs.weight", rope_theta, 1.0f),
    MUST(attn_temperature_tuning, "true 4 null"),
    MUST(attention_bias, "false null"),
    ENDS(F32),
    NORMS(FFN_NORM, F32),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    DENSE(FFN "gate_proj.weight", "blk.%u.ffn_gate.weight", MATRIX, DENSE),
    DENSE(FFN "up_proj.weight", "blk.%u.ffn_up.weight", MATRIX, DENSE),
    DENSE(FFN "down_proj.weight", "blk.%u.ffn_down.weight", MATRIX, DENSE),
    DENSE(FFN "router.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS),
    DENSE(FFN "shared_expert.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight", MATRIX, EXPERTS),
    DENSE(FFN "shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight", MATRIX, EXPERTS),
    DENSE(FFN "shared_expert.down_proj.weight", "blk.%u.ffn_down_shexp.weight", MATRIX, EXPERTS),
    EXPERTS(FFN "experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight", STACK_TURNED_FIRST),
    EXPERTS(FFN "experts.gate_up_proj", "blk.%u.ffn_up_exps.weight", STACK_TURNED_SECOND),
    EXPERTS(FFN "experts.down_proj", "blk.%u.ffn_down_exps.weight", STACK_TURNED),
    END,
};
const struct hf_arch hf_llama4 = {{"llama4", "llama4_text"}, "llama4", llama4};
