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
 * HF_BOOL(ID, field, key, presence)
 *     the same of true and false
 * HF_KEY(ID, key, value)
 *     a GGUF key that is the same for all models of the architecture
 * HF_ROTATED(ID, field, key)
 *     the part of a head that is rotated, as a fraction -> its number of elements
 * HF_MUST(ID, field, accepted)
 *     the field, if present, must be one of these JSON values, in compact form, separated by spaces
 * HF_DENSE(ID, name, gguf, form, presence)
 *     tensor; %u: layer. presence: REQUIRED, OPTIONAL; DENSE and EXPERTS: required in layers without and
 *     with experts, not looked for in the others. form: MATRIX (type unchanged), F32 (converted), Q_ROWS or K_ROWS (hf.h:
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
#ifndef HF_BOOL
#define HF_BOOL(id, field, key, presence)
#endif
#ifndef HF_KEY
#define HF_KEY(id, key, value)
#endif
#ifndef HF_ROTATED
#define HF_ROTATED(id, field, key)
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
#define HF_CORE(id, q, k, norm)                                                                    \
    HF_UINT(id, num_hidden_layers, "block_count", REQUIRED)                                        \
    HF_UINT(id, max_position_embeddings, "context_length", REQUIRED)                               \
    HF_UINT(id, hidden_size, "embedding_length", REQUIRED)                                         \
    HF_UINT(id, intermediate_size, "feed_forward_length", OPTIONAL)                                \
    HF_UINT(id, num_attention_heads, "attention.head_count", REQUIRED)                             \
    HF_UINT(id, num_key_value_heads, "attention.head_count_kv", OPTIONAL)                          \
    HF_UINT(id, head_dim, "attention.key_length", OPTIONAL)                                        \
    HF_UINT(id, head_dim, "attention.value_length", OPTIONAL)                                      \
    HF_UINT(id, vocab_size, "vocab_size", REQUIRED)                                                \
    HF_FLOAT(id, rms_norm_eps, "attention.layer_norm_rms_epsilon", REQUIRED)                       \
    HF_FLOAT(id, rope_theta, "rope.freq_base", REQUIRED)                                           \
    HF_MUST(id, hidden_act, "\"silu\"")                                                            \
    HF_MUST(id, use_sliding_window, "false null")                                                  \
    HF_MUST(id, decoder_sparse_step, "1")                                                          \
    HF_MUST(id, mlp_only_layers, "[] null")                                                        \
    HF_MUST(id, clip_qkv, "null")                                                                  \
    HF_MUST(id, quantization_config, "null")                                                       \
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
    HF_DENSE(id, "model.layers.%u.post_attention_layernorm.weight", norm, F32, REQUIRED)

#define HF_FFN_NORM "blk.%u.ffn_norm.weight"

#define HF_COMMON(id, q, k)                                                                        \
    HF_CORE(id, q, k, HF_FFN_NORM)                                                                 \
    HF_UINT(id, head_dim, "rope.dimension_count", OPTIONAL)                                        \
    HF_UINT(id, num_experts_per_tok, "expert_used_count", REQUIRED)                                \
    HF_MUST(id, attention_bias, "false null")                                                      \
    HF_MUST(id, partial_rotary_factor, "1 1.0 null")

#define HF_QKV_BIASES(id, presence)                                                                \
    HF_DENSE(id, "model.layers.%u.self_attn.q_proj.bias", "blk.%u.attn_q.bias", F32, presence)     \
    HF_DENSE(id, "model.layers.%u.self_attn.k_proj.bias", "blk.%u.attn_k.bias", F32, presence)     \
    HF_DENSE(id, "model.layers.%u.self_attn.v_proj.bias", "blk.%u.attn_v.bias", F32, presence)

/* The first layers have a feed-forward network, the others experts and shared ones. */
#define HF_LEADING_DENSE(id, bias)                                                                 \
    HF_UINT(id, moe_intermediate_size, "expert_feed_forward_length", REQUIRED)                     \
    HF_DENSE(id, "model.layers.%u.mlp.gate_proj.weight", "blk.%u.ffn_gate.weight", MATRIX, DENSE)  \
    HF_DENSE(id, "model.layers.%u.mlp.up_proj.weight", "blk.%u.ffn_up.weight", MATRIX, DENSE)      \
    HF_DENSE(id, "model.layers.%u.mlp.down_proj.weight", "blk.%u.ffn_down.weight", MATRIX, DENSE)  \
    HF_DENSE(id, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS)    \
    HF_DENSE(id, "model.layers.%u.mlp." bias, "blk.%u.exp_probs_b.bias", F32, EXPERTS)             \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.gate_proj.weight",                            \
             "blk.%u.ffn_gate_shexp.weight", MATRIX, EXPERTS)                                      \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.up_proj.weight",                              \
             "blk.%u.ffn_up_shexp.weight", MATRIX, EXPERTS)                                        \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.down_proj.weight",                            \
             "blk.%u.ffn_down_shexp.weight", MATRIX, EXPERTS)                                      \
    HF_EXPERTS_OF_MLP(id)

/* A sigmoid router with a bias for the choice, as in DeepSeek-V3. */
#define HF_SIGMOID(id)                                                                             \
    HF_UINT(id, n_routed_experts, "expert_count", REQUIRED)                                        \
    HF_UINT(id, n_shared_experts, "expert_shared_count", REQUIRED)                                 \
    HF_UINT(id, num_experts_per_tok, "expert_used_count", REQUIRED)                                \
    HF_UINT(id, first_k_dense_replace, "leading_dense_block_count", REQUIRED)                      \
    HF_UINT(id, n_group, "expert_group_count", OPTIONAL)                                           \
    HF_UINT(id, topk_group, "expert_group_used_count", OPTIONAL)                                   \
    HF_FLOAT(id, routed_scaling_factor, "expert_weights_scale", OPTIONAL)                          \
    HF_BOOL(id, norm_topk_prob, "expert_weights_norm", REQUIRED)                                   \
    HF_KEY(id, "expert_gating_func", 2)                                                            \
    HF_MUST(id, scoring_func, "\"sigmoid\"")                                                       \
    HF_MUST(id, topk_method, "\"noaux_tc\"")                                                       \
    HF_MUST(id, moe_layer_freq, "1")

#define HF_QK_NORMS(id)                                                                            \
    HF_DENSE(id, "model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32,      \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32,      \
             REQUIRED)

#define HF_EXPERTS_OF_MLP(id)                                                                      \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.gate_proj.weight",                               \
              "blk.%u.ffn_gate_exps.weight")                                                       \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight")    \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.down_proj.weight",                               \
              "blk.%u.ffn_down_exps.weight")                                                       \
    HF_REJECTED(id, "model.layers.0.mlp.experts.gate_up_proj",                                     \
                "the experts of a layer in one tensor")

/* Names of experts in Qwen and OLMoE. */
#define HF_MLP_EXPERTS(id)                                                                         \
    HF_UINT(id, num_experts, "expert_count", REQUIRED)                                             \
    HF_DENSE(id, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED)   \
    HF_EXPERTS_OF_MLP(id)

#define HF_MIXTRAL_EXPERTS(id)                                                                     \
    HF_DENSE(id, "model.layers.%u.block_sparse_moe.gate.weight", "blk.%u.ffn_gate_inp.weight",     \
             F32, REQUIRED)                                                                        \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w1.weight",                         \
              "blk.%u.ffn_gate_exps.weight")                                                       \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w3.weight",                         \
              "blk.%u.ffn_up_exps.weight")                                                         \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w2.weight",                         \
              "blk.%u.ffn_down_exps.weight")

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
HF_QKV_BIASES(QWEN2MOE, REQUIRED)
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
HF_MIXTRAL_EXPERTS(LLAMA)

/* GLM-4.5, 4.6, 4.7. Blocks for drafting, behind the last layer, are left out. */
HF_ARCH(GLM4MOE, "glm4_moe", "glm4moe")
HF_CORE(GLM4MOE, MATRIX, MATRIX, "blk.%u.post_attention_norm.weight")
HF_QKV_BIASES(GLM4MOE, OPTIONAL)
HF_LEADING_DENSE(GLM4MOE, "gate.e_score_correction_bias")
HF_SIGMOID(GLM4MOE)
HF_ROTATED(GLM4MOE, partial_rotary_factor, "rope.dimension_count")
HF_DENSE(GLM4MOE, "model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight", F32,
         OPTIONAL)
HF_DENSE(GLM4MOE, "model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight", F32,
         OPTIONAL)

/* dots.llm1 */
HF_ARCH(DOTS1, "dots1", "dots1")
HF_CORE(DOTS1, MATRIX, MATRIX, HF_FFN_NORM)
HF_QK_NORMS(DOTS1)
HF_LEADING_DENSE(DOTS1, "gate.e_score_correction_bias")
HF_SIGMOID(DOTS1)
HF_MUST(DOTS1, attention_bias, "false null")
HF_MUST(DOTS1, partial_rotary_factor, "1 1.0 null")

/* ERNIE 4.5 */
HF_ARCH(ERNIE4_5_MOE, "ernie4_5_moe", "ernie4_5-moe")
HF_CORE(ERNIE4_5_MOE, MATRIX, MATRIX, HF_FFN_NORM)
HF_LEADING_DENSE(ERNIE4_5_MOE, "moe_statics.e_score_correction_bias")
HF_UINT(ERNIE4_5_MOE, moe_num_experts, "expert_count", REQUIRED)
HF_UINT(ERNIE4_5_MOE, moe_num_shared_experts, "expert_shared_count", REQUIRED)
HF_UINT(ERNIE4_5_MOE, moe_k, "expert_used_count", REQUIRED)
HF_UINT(ERNIE4_5_MOE, moe_layer_start_index, "leading_dense_block_count", REQUIRED)
HF_KEY(ERNIE4_5_MOE, "interleave_moe_layer_step", 1)
HF_MUST(ERNIE4_5_MOE, moe_layer_interval, "1")
HF_MUST(ERNIE4_5_MOE, use_bias, "false")
HF_MUST(ERNIE4_5_MOE, partial_rotary_factor, "1 1.0 null")

/* MiniMax-M2: experts as in Mixtral. */
HF_ARCH(MINIMAX_M2, "minimax_m2", "minimax-m2")
HF_CORE(MINIMAX_M2, MATRIX, MATRIX, HF_FFN_NORM)
HF_QK_NORMS(MINIMAX_M2)
HF_UINT(MINIMAX_M2, intermediate_size, "expert_feed_forward_length", REQUIRED)
HF_UINT(MINIMAX_M2, num_experts_per_tok, "expert_used_count", REQUIRED)
HF_UINT(MINIMAX_M2, num_local_experts, "expert_count", REQUIRED)
HF_UINT(MINIMAX_M2, rotary_dim, "rope.dimension_count", OPTIONAL)
HF_ROTATED(MINIMAX_M2, partial_rotary_factor, "rope.dimension_count")
HF_KEY(MINIMAX_M2, "expert_gating_func", 2)
HF_MUST(MINIMAX_M2, scoring_func, "\"sigmoid\"")
HF_MUST(MINIMAX_M2, use_routing_bias, "true")
HF_MUST(MINIMAX_M2, qk_norm_type, "\"per_layer\"")
HF_MUST(MINIMAX_M2, shared_intermediate_size, "0 null")
HF_MIXTRAL_EXPERTS(MINIMAX_M2)
HF_DENSE(MINIMAX_M2, "model.layers.%u.block_sparse_moe.e_score_correction_bias",
         "blk.%u.exp_probs_b.bias", F32, REQUIRED)

#undef HF_CORE
#undef HF_FFN_NORM
#undef HF_QKV_BIASES
#undef HF_LEADING_DENSE
#undef HF_SIGMOID
#undef HF_EXPERTS_OF_MLP
#undef HF_MIXTRAL_EXPERTS
#undef HF_BOOL
#undef HF_KEY
#undef HF_ROTATED
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
