/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Hugging Face, as data: supported values in config.json, and names of the tensors. No
 * include guard: include it with the macros below defined; macros not defined expand to nothing,
 * and all are undefined at the end.
 *
 * HF_ARCH(ID, model_type, arch)
 *     model_type of config.json; arch: general.architecture of GGUF
 * HF_UINT(ID, field, key, presence)
 * HF_FLOAT(ID, field, key, presence)
 *     number in config.json -> GGUF key "<arch>.<key>"; REQUIRED or OPTIONAL (absent or null)
 * HF_MUST(ID, field, accepted)
 *     the field, if present, must be one of these JSON values, in compact form, separated by spaces
 * HF_DENSE(ID, name, gguf, form, presence)
 *     tensor; %u: layer. form: MATRIX (type unchanged), F32 (converted), Q_ROWS or K_ROWS (hf.h:
 *     HF_HEAD_PAIRS)
 * HF_EXPERT(ID, name, gguf)
 *     matrix of one expert; first %u: layer, second %u: expert
 * HF_REJECTED(ID, name, why)
 *     a tensor that identifies a known, unsupported form of the model
 *
 * Sources: the published configurations and checkpoints of the models, the documentation of the
 * transformers package, and the output of llama.cpp's converter. */
#ifndef HF_ARCH
#define HF_ARCH(id, model_type, arch)
#endif
#ifndef HF_UINT
#define HF_UINT(id, field, key, presence)
#endif
#ifndef HF_FLOAT
#define HF_FLOAT(id, field, key, presence)
#endif
#ifndef HF_MUST
#define HF_MUST(id, field, accepted)
#endif
#ifndef HF_DENSE
#define HF_DENSE(id, name, gguf, form, presence)
#endif
#ifndef HF_EXPERT
#define HF_EXPERT(id, name, gguf)
#endif
#ifndef HF_REJECTED
#define HF_REJECTED(id, name, why)
#endif

/* rope_theta may also be in rope_parameters; config.c checks rope_scaling. */
#define HF_COMMON(id, q, k)                                                                        \
    HF_UINT(id, num_hidden_layers, "block_count", REQUIRED)                                        \
    HF_UINT(id, max_position_embeddings, "context_length", REQUIRED)                               \
    HF_UINT(id, hidden_size, "embedding_length", REQUIRED)                                         \
    HF_UINT(id, intermediate_size, "feed_forward_length", OPTIONAL)                                \
    HF_UINT(id, num_attention_heads, "attention.head_count", REQUIRED)                             \
    HF_UINT(id, num_key_value_heads, "attention.head_count_kv", OPTIONAL)                          \
    HF_UINT(id, head_dim, "attention.key_length", OPTIONAL)                                        \
    HF_UINT(id, head_dim, "attention.value_length", OPTIONAL)                                      \
    HF_UINT(id, head_dim, "rope.dimension_count", OPTIONAL)                                        \
    HF_UINT(id, num_experts_per_tok, "expert_used_count", REQUIRED)                                \
    HF_UINT(id, vocab_size, "vocab_size", REQUIRED)                                                \
    HF_FLOAT(id, rms_norm_eps, "attention.layer_norm_rms_epsilon", REQUIRED)                       \
    HF_FLOAT(id, rope_theta, "rope.freq_base", REQUIRED)                                           \
    HF_MUST(id, hidden_act, "\"silu\"")                                                            \
    HF_MUST(id, attention_bias, "false null")                                                      \
    HF_MUST(id, use_sliding_window, "false null")                                                  \
    HF_MUST(id, decoder_sparse_step, "1")                                                          \
    HF_MUST(id, mlp_only_layers, "[] null")                                                        \
    HF_MUST(id, clip_qkv, "null")                                                                  \
    HF_MUST(id, quantization_config, "null")                                                       \
    HF_MUST(id, partial_rotary_factor, "1 1.0 null")                                               \
    HF_DENSE(id, "model.embed_tokens.weight", "token_embd.weight", MATRIX, REQUIRED)               \
    HF_DENSE(id, "model.norm.weight", "output_norm.weight", F32, REQUIRED)                         \
    HF_DENSE(id, "lm_head.weight", "output.weight", MATRIX, OPTIONAL) /* absent: tied */           \
    HF_DENSE(id, "model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", F32,         \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight", q, REQUIRED)   \
    HF_DENSE(id, "model.layers.%u.self_attn.k_proj.weight", "blk.%u.attn_k.weight", k, REQUIRED)   \
    HF_DENSE(id, "model.layers.%u.self_attn.v_proj.weight", "blk.%u.attn_v.weight", MATRIX,        \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight", MATRIX,   \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.post_attention_layernorm.weight", "blk.%u.ffn_norm.weight", F32, \
             REQUIRED)

#define HF_QK_NORMS(id)                                                                            \
    HF_DENSE(id, "model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32,      \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32,      \
             REQUIRED)

/* Names of experts in Qwen and OLMoE. */
#define HF_MLP_EXPERTS(id)                                                                         \
    HF_UINT(id, num_experts, "expert_count", REQUIRED)                                             \
    HF_DENSE(id, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED)   \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.gate_proj.weight",                               \
              "blk.%u.ffn_gate_exps.weight")                                                       \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight")    \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.down_proj.weight",                               \
              "blk.%u.ffn_down_exps.weight")                                                       \
    HF_REJECTED(id, "model.layers.0.mlp.experts.gate_up_proj",                                     \
                "the experts of a layer in one tensor")

HF_ARCH(QWEN3MOE, "qwen3_moe", "qwen3moe")
HF_COMMON(QWEN3MOE, MATRIX, MATRIX)
HF_QK_NORMS(QWEN3MOE)
HF_MLP_EXPERTS(QWEN3MOE)
HF_UINT(QWEN3MOE, moe_intermediate_size, "expert_feed_forward_length", REQUIRED)
HF_MUST(QWEN3MOE, norm_topk_prob, "true")

HF_ARCH(OLMOE, "olmoe", "olmoe")
HF_COMMON(OLMOE, MATRIX, MATRIX)
HF_QK_NORMS(OLMOE)
HF_MLP_EXPERTS(OLMOE)
HF_MUST(OLMOE, norm_topk_prob, "false")

HF_ARCH(QWEN2MOE, "qwen2_moe", "qwen2moe")
HF_COMMON(QWEN2MOE, MATRIX, MATRIX)
HF_MLP_EXPERTS(QWEN2MOE)
HF_UINT(QWEN2MOE, moe_intermediate_size, "expert_feed_forward_length", REQUIRED)
HF_UINT(QWEN2MOE, shared_expert_intermediate_size, "expert_shared_feed_forward_length", REQUIRED)
HF_MUST(QWEN2MOE, norm_topk_prob, "false")
HF_DENSE(QWEN2MOE, "model.layers.%u.self_attn.q_proj.bias", "blk.%u.attn_q.bias", F32, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.self_attn.k_proj.bias", "blk.%u.attn_k.bias", F32, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.self_attn.v_proj.bias", "blk.%u.attn_v.bias", F32, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.mlp.shared_expert_gate.weight",
         "blk.%u.ffn_gate_inp_shexp.weight", F32, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.mlp.shared_expert.gate_proj.weight",
         "blk.%u.ffn_gate_shexp.weight", MATRIX, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.mlp.shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight",
         MATRIX, REQUIRED)
HF_DENSE(QWEN2MOE, "model.layers.%u.mlp.shared_expert.down_proj.weight",
         "blk.%u.ffn_down_shexp.weight", MATRIX, REQUIRED)

/* Mixtral. */
HF_ARCH(LLAMA, "mixtral", "llama")
HF_COMMON(LLAMA, Q_ROWS, K_ROWS)
HF_UINT(LLAMA, num_local_experts, "expert_count", REQUIRED)
HF_MUST(LLAMA, sliding_window, "null")
HF_DENSE(LLAMA, "model.layers.%u.block_sparse_moe.gate.weight", "blk.%u.ffn_gate_inp.weight", F32,
         REQUIRED)
HF_EXPERT(LLAMA, "model.layers.%u.block_sparse_moe.experts.%u.w1.weight",
          "blk.%u.ffn_gate_exps.weight")
HF_EXPERT(LLAMA, "model.layers.%u.block_sparse_moe.experts.%u.w3.weight",
          "blk.%u.ffn_up_exps.weight")
HF_EXPERT(LLAMA, "model.layers.%u.block_sparse_moe.experts.%u.w2.weight",
          "blk.%u.ffn_down_exps.weight")

#undef HF_COMMON
#undef HF_QK_NORMS
#undef HF_MLP_EXPERTS
#undef HF_ARCH
#undef HF_UINT
#undef HF_FLOAT
#undef HF_MUST
#undef HF_DENSE
#undef HF_EXPERT
#undef HF_REJECTED
