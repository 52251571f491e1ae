/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows that several models share: common.c says what each one is, and those below, of
 * which parts differ between models. */
#ifndef SLUICE_MODEL_HF_FAMILIES_COMMON_H
#define SLUICE_MODEL_HF_FAMILIES_COMMON_H

#include "lib/model/hf/families/rows.h"

extern const struct hf_row hf_sizes[], hf_sizes_without_rope[], hf_rms[], hf_heads[], hf_yarn[],
    hf_yarn_full[], hf_core[], hf_common[], hf_dense_ffn[], hf_leading_dense[],
    hf_leading_dense_shared[], hf_leading_dense_shared_tensors[], hf_sigmoid[], hf_qk_norms[],
    hf_experts_of_mlp[], hf_experts_either[], hf_mlp_experts[], hf_gated_shared[],
    hf_mixtral_experts[], hf_mixtral_matrices[], hf_mla_sizes[];

#define FFN_NORM "blk.%u.ffn_norm.weight"

/* Tensors outside of the layers; without lm_head the output matrix is the embedding. */
#define ENDS(norm)                                                                                 \
    DENSE("model.embed_tokens.weight", "token_embd.weight", MATRIX, REQUIRED),                     \
        DENSE("model.norm.weight", "output_norm.weight", norm, REQUIRED),                          \
        DENSE("lm_head.weight", "output.weight", MATRIX, OPTIONAL)
#define ATTENTION(q, k, presence)                                                                  \
    DENSE("model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight", q, presence),         \
        DENSE("model.layers.%u.self_attn.k_proj.weight", "blk.%u.attn_k.weight", k, presence),     \
        DENSE("model.layers.%u.self_attn.v_proj.weight", "blk.%u.attn_v.weight", MATRIX,           \
              presence),                                                                           \
        DENSE("model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight", MATRIX,      \
              presence)
#define NORMS(norm, form)                                                                          \
    DENSE("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", form, REQUIRED),    \
        DENSE("model.layers.%u.post_attention_layernorm.weight", norm, form, REQUIRED)
/* Of MLA: latents, and rows of each head for keys and values. layer: where the names begin. */
#define MLA_TENSORS(layer, presence)                                                               \
    DENSE(layer "kv_a_proj_with_mqa.weight", "blk.%u.attn_kv_a_mqa.weight", MATRIX, presence),     \
        DENSE(layer "kv_a_layernorm.weight", "blk.%u.attn_kv_a_norm.weight", F32, presence),       \
        DENSE(layer "kv_b_proj.weight", "blk.%u.attn_k_b.weight", MLA_K, presence),                \
        DENSE(layer "kv_b_proj.weight", "blk.%u.attn_v_b.weight", MLA_V, presence)
/* Of Kimi delta attention, in layers of the other kind; values: form of A_log. */
#define KDA_TENSORS(layer, values)                                                                 \
    DENSE(layer "k_proj.weight", "blk.%u.attn_k.weight", MATRIX, OTHER),                           \
        DENSE(layer "v_proj.weight", "blk.%u.attn_v.weight", MATRIX, OTHER),                       \
        DENSE(layer "q_conv1d.weight", "blk.%u.ssm_conv1d_q.weight", F32, OTHER),                  \
        DENSE(layer "k_conv1d.weight", "blk.%u.ssm_conv1d_k.weight", F32, OTHER),                  \
        DENSE(layer "v_conv1d.weight", "blk.%u.ssm_conv1d_v.weight", F32, OTHER),                  \
        DENSE(layer "b_proj.weight", "blk.%u.ssm_beta.weight", MATRIX, OTHER),                     \
        DENSE(layer "dt_bias", "blk.%u.ssm_dt.bias", F32, OTHER),                                  \
        DENSE(layer "A_log", "blk.%u.ssm_a", values, OTHER),                                       \
        DENSE(layer "o_norm.weight", "blk.%u.ssm_norm.weight", F32, OTHER)
#define QKV_BIASES(presence)                                                                       \
    DENSE("model.layers.%u.self_attn.q_proj.bias", "blk.%u.attn_q.bias", F32, presence),           \
        DENSE("model.layers.%u.self_attn.k_proj.bias", "blk.%u.attn_k.bias", F32, presence),       \
        DENSE("model.layers.%u.self_attn.v_proj.bias", "blk.%u.attn_v.bias", F32, presence)
#define ROUTER_BIAS(bias)                                                                          \
    DENSE("model.layers.%u.mlp." bias, "blk.%u.exp_probs_b.bias", F32, EXPERTS)

/* Numbers and tensors of most architectures, and of those of Qwen, OLMoE and Mixtral. */
#define CORE(q, k, norm) GROUP(hf_core), ENDS(F32), NORMS(norm, F32), ATTENTION(q, k, REQUIRED)
#define COMMON(q, k)     CORE(q, k, FFN_NORM), GROUP(hf_common)

#endif
