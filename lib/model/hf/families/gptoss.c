/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss, as rows (rows.h). */
#include "lib/model/hf/families/common.h"

/* gpt-oss: experts of a layer in two tensors, rows of gate and up in turn: MXFP4, or floats with
 * outputs as columns. Layers with a window first. */
static const struct hf_row gpt_oss[] = {
    GROUP(hf_sizes),
    GROUP(hf_rms),
    GROUP(hf_heads),
    GROUP(hf_yarn),
    UINT(sliding_window, "attention.sliding_window", REQUIRED),
    UINT(num_local_experts, "expert_count", REQUIRED),
    UINT(num_experts_per_tok, "expert_used_count", REQUIRED),
    UINT(intermediate_size, "expert_feed_forward_length", REQUIRED),
    OTHER("sliding_attention"),
    FIXED(2, 1),
    HAS(truncate, "false"),
    MUST(attention_factor, "null"),
    MUST(mscale, "null"),
    MUST(swiglu_limit, "7 7.0"),
    MUST(swiglu_alpha, "1.702"),
    QUANTISED("mxfp4"),
    ENDS(F32),
    NORMS("blk.%u.post_attention_norm.weight", F32),
    ATTENTION(MATRIX, MATRIX, REQUIRED),
    QKV_BIASES(REQUIRED),
    DENSE("model.layers.%u.self_attn.o_proj.bias", "blk.%u.attn_output.bias", F32, REQUIRED),
    DENSE("model.layers.%u.self_attn.sinks", "blk.%u.attn_sinks.weight", F32, REQUIRED),
    DENSE("model.layers.%u.mlp.router.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED),
    DENSE("model.layers.%u.mlp.router.bias", "blk.%u.ffn_gate_inp.bias", F32, REQUIRED),
    DENSE("model.layers.%u.mlp.experts.gate_up_proj_bias", "blk.%u.ffn_gate_exps.bias",
          EVEN_COLUMNS, REQUIRED),
    DENSE("model.layers.%u.mlp.experts.gate_up_proj_bias", "blk.%u.ffn_up_exps.bias", ODD_COLUMNS,
          REQUIRED),
    DENSE("model.layers.%u.mlp.experts.down_proj_bias", "blk.%u.ffn_down_exps.bias", F32, REQUIRED),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj_blocks", "blk.%u.ffn_gate_exps.weight",
            MXFP4_EVEN),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj_blocks", "blk.%u.ffn_up_exps.weight",
            MXFP4_ODD),
    EXPERTS("model.layers.%u.mlp.experts.down_proj_blocks", "blk.%u.ffn_down_exps.weight", MXFP4),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight",
            STACK_TURNED_EVEN),
    EXPERTS("model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_up_exps.weight",
            STACK_TURNED_ODD),
    EXPERTS("model.layers.%u.mlp.experts.down_proj", "blk.%u.ffn_down_exps.weight", STACK_TURNED),
    END,
};
const struct hf_arch hf_gpt_oss = {{"gpt_oss"}, "gpt-oss", gpt_oss};
