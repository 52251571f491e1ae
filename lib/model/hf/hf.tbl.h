/* SPDX-License-Identifier: Apache-2.0 */
/* Models of Hugging Face, as data: supported values in config.json, and names of the tensors. No
 * include guard: include it with the macros below defined; macros not defined expand to nothing,
 * and all are undefined at the end.
 *
 * HF_ARCH(ID, model_type, arch)
 *     model_type of config.json; arch: general.architecture of GGUF
 * HF_TYPE(ID, model_type)
 *     another model_type with the same rows
 * HF_UINT(ID, field, key, presence)
 * HF_FLOAT(ID, field, key, presence)
 *     number in config.json -> GGUF key "<arch>.<key>"; REQUIRED or OPTIONAL (absent or null). A field a.b is in
 *     the object a; other fields may also be in rope_parameters or rope_scaling. Of several rows with the
 *     same key, the first whose field is there counts
 * HF_BOOL(ID, field, key, presence)
 *     the same of true and false
 * HF_TENTH(ID, field, key)
 *     number / 10, optional
 * HF_NUMBER(ID, key, value)
 *     a float that is the same for all models of the architecture
 * HF_CHOICE(ID, field, key, yes, no)
 *     a number by whether the field is true
 * HF_WITH(ID, other, text, field, key)
 *     a required whole number, of models whose field `other` is that text
 * HF_ALPHA(ID, field, key)
 *     rope_theta * alpha^(n / (n - 2)), n: elements of a head; nothing if the field is absent
 * HF_SUM(ID, a, b, key)
 * HF_PRODUCT(ID, a, b, key)
 *     of two required whole numbers
 * HF_EQUAL(ID, a, b)
 *     two fields that must be the same or both absent
 * HF_KEY(ID, key, value)
 *     a GGUF key that is the same for all models of the architecture
 * HF_LEADING(ID, field, key)
 *     the number of first layers without experts; without the field, that of leading "dense" in mlp_layer_types,
 *     which must be "sparse" behind them
 * HF_ROTATED(ID, field, key)
 *     the part of a head that is rotated, as a fraction -> its number of elements
 * HF_MUST(ID, field, accepted)
 *     the field, if present, must be one of these JSON values, in compact form, separated by spaces; "*": any
 * HF_HAS(ID, field, accepted)
 *     the same of a field that must be there
 * HF_QUANTISED(ID, method)
 *     quant_method that rows of tensors have forms for; FP8 with a scale per block is always accepted
 * HF_ROPE(ID, home, type, scaling, needs)
 *     a type of rotary embedding besides "default", and rope.scaling.type of GGUF. home "": of all layers; else the
 *     path of an object that must have this type. needs: a field that must be there, ""
 * HF_OTHER(ID, kind)
 *     of layer_types, besides "full_attention"
 * HF_FIXED(ID, period, at)
 *     layers with number % period == at attend to all positions, the others are of the other kind
 * HF_INTERVAL(ID, field, otherwise)
 *     without layer_types: each layer of that number attends to all positions; the field, or its default
 * HF_LAYER_FLAGS(ID, key)
 *     array of bool, true: a layer of the other kind
 * HF_LAYER_UINTS(ID, full, other, key)
 *     array of numbers: the field for layers that attend to all positions, and for the others; "": 0
 * HF_LAYOUT(ID, windows, rotated, period, at, size, key)
 *     arrays of 0 and 1, an element per layer. Layers with a window, and those that are rotated: all but number %
 *     period == at, then the key gets `size`; or no layer has a window and all are rotated
 * HF_FULL(ID, field, global, gate, key)
 *     the number of layers that attend to all positions: field `global` if the flag `gate` is not false, else that of
 *     these layers in per_layer_config, else the field
 * HF_EACH(ID, field, global, gate, key)
 *     array of these numbers; the other layers have that of the field
 * HF_NUMBERS(ID, gguf, field)
 *     a tensor of the numbers of an optional array, which are positive
 * HF_UNROTATED(ID, gguf, field, global, part)
 *     a tensor of the divisors of the frequencies: 1 for the first part of the elements of a head (HF_FULL), then
 *     numbers that make their rotation 0
 * HF_DENSE(ID, name, gguf, form, presence)
 *     tensor; %u: layer. form: rows.tbl.h. presence: REQUIRED, OPTIONAL; DENSE and EXPERTS: required in layers
 *     without and with experts, not looked for in the others; FULL and OTHER: the same of layers with attention
 *     over all positions and of the architecture's other kind (HF_OTHER)
 * HF_EXPERT(ID, name, gguf)
 *     matrix of one expert; first %u: layer, second %u: expert
 * HF_EXPERTS(ID, name, gguf, form)
 *     the matrices of all experts of a layer in one tensor. Of several rows with the same `gguf`, the first whose
 *     tensor is there counts
 * HF_VISIBLE(text)
 *     a control token that GGUF has as one of text, so that programs see it
 * HF_TIKTOKEN(file, pre, count, named, numbered, by_id, bos)
 *     a vocabulary of tiktoken, read if there is no tokenizer.json; its pre-tokenizer. Behind the ranks are `count`
 *     special tokens: those of tokenizer_config.json; else, in this order, `named`, then `numbered` with its id or
 *     from 0 on. bos: where tokenizer_config.json names none
 * HF_UNUSED(end)
 *     end of the name of a tensor that is no weight; all other tensors of a layer must have a row
 * HF_REJECTED(ID, name, why)
 *     a tensor that identifies a known, unsupported form of the model
 *
 * Sources: the published configurations and checkpoints of the models, the documentation of the
 * transformers package, and the output of llama.cpp's converter. */
#ifndef HF_ARCH
#define HF_ARCH(id, model_type, arch)
#endif
#ifndef HF_TYPE
#define HF_TYPE(id, model_type)
#endif
#ifndef HF_TENTH
#define HF_TENTH(id, field, key)
#endif
#ifndef HF_SUM
#define HF_SUM(id, a, b, key)
#endif
#ifndef HF_PRODUCT
#define HF_PRODUCT(id, a, b, key)
#endif
#ifndef HF_EQUAL
#define HF_EQUAL(id, a, b)
#endif
#ifndef HF_WITH
#define HF_WITH(id, other, text, field, key)
#endif
#ifndef HF_HAS
#define HF_HAS(id, field, accepted)
#endif
#ifndef HF_QUANTISED
#define HF_QUANTISED(id, method)
#endif
#ifndef HF_ROPE
#define HF_ROPE(id, home, type, scaling, needs)
#endif
#ifndef HF_OTHER
#define HF_OTHER(id, kind)
#endif
#ifndef HF_FIXED
#define HF_FIXED(id, period, at)
#endif
#ifndef HF_INTERVAL
#define HF_INTERVAL(id, field, otherwise)
#endif
#ifndef HF_LAYER_FLAGS
#define HF_LAYER_FLAGS(id, key)
#endif
#ifndef HF_LAYER_UINTS
#define HF_LAYER_UINTS(id, full, other, key)
#endif
#ifndef HF_LEADING
#define HF_LEADING(id, field, key)
#endif
#ifndef HF_FULL
#define HF_FULL(id, field, global, gate, key)
#endif
#ifndef HF_EACH
#define HF_EACH(id, field, global, gate, key)
#endif
#ifndef HF_NUMBERS
#define HF_NUMBERS(id, gguf, field)
#endif
#ifndef HF_UNROTATED
#define HF_UNROTATED(id, gguf, field, global, part)
#endif
#ifndef HF_NUMBER
#define HF_NUMBER(id, key, value)
#endif
#ifndef HF_ALPHA
#define HF_ALPHA(id, field, key)
#endif
#ifndef HF_VISIBLE
#define HF_VISIBLE(text)
#endif
#ifndef HF_TIKTOKEN
#define HF_TIKTOKEN(file, pre, count, named, numbered, by_id, bos)
#endif
#ifndef HF_LAYOUT
#define HF_LAYOUT(id, windows, rotated, period, at, size, key)
#endif
#ifndef HF_CHOICE
#define HF_CHOICE(id, field, key, yes, no)
#endif
#ifndef HF_UNUSED
#define HF_UNUSED(end)
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
#ifndef HF_EXPERTS
#define HF_EXPERTS(id, name, gguf, form)
#endif
#ifndef HF_REJECTED
#define HF_REJECTED(id, name, why)
#endif

/* Numbers that most architectures have. */
#define HF_SIZES(id)                                                                               \
    HF_SIZES_WITHOUT_ROPE(id)                                                                      \
    HF_FLOAT(id, rope_theta, "rope.freq_base", REQUIRED)
#define HF_SIZES_WITHOUT_ROPE(id)                                                                  \
    HF_UINT(id, num_hidden_layers, "block_count", REQUIRED)                                        \
    HF_UINT(id, max_position_embeddings, "context_length", REQUIRED)                               \
    HF_UINT(id, hidden_size, "embedding_length", REQUIRED)                                         \
    HF_UINT(id, num_attention_heads, "attention.head_count", REQUIRED)                             \
    HF_UINT(id, vocab_size, "vocab_size", REQUIRED)                                                \
    HF_MUST(id, hidden_act, "\"silu\"")                                                            \
    HF_MUST(id, use_sliding_window, "false null")                                                  \
    HF_MUST(id, decoder_sparse_step, "1")                                                          \
    HF_MUST(id, mlp_only_layers, "[] null")                                                        \
    HF_MUST(id, clip_qkv, "null")
#define HF_RMS(id) HF_FLOAT(id, rms_norm_eps, "attention.layer_norm_rms_epsilon", REQUIRED)
#define HF_HEADS(id)                                                                               \
    HF_UINT(id, num_key_value_heads, "attention.head_count_kv", OPTIONAL)                          \
    HF_UINT(id, head_dim, "attention.key_length", OPTIONAL)                                        \
    HF_UINT(id, head_dim, "attention.value_length", OPTIONAL)

#define HF_ENDS(id, norm)                                                                          \
    HF_DENSE(id, "model.embed_tokens.weight", "token_embd.weight", MATRIX, REQUIRED)               \
    HF_DENSE(id, "model.norm.weight", "output_norm.weight", norm, REQUIRED)                        \
    HF_DENSE(id, "lm_head.weight", "output.weight", MATRIX, OPTIONAL) /* absent: tied */

#define HF_ATTENTION(id, q, k, presence)                                                           \
    HF_DENSE(id, "model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight", q, presence)   \
    HF_DENSE(id, "model.layers.%u.self_attn.k_proj.weight", "blk.%u.attn_k.weight", k, presence)   \
    HF_DENSE(id, "model.layers.%u.self_attn.v_proj.weight", "blk.%u.attn_v.weight", MATRIX,        \
             presence)                                                                             \
    HF_DENSE(id, "model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight", MATRIX,   \
             presence)
#define HF_NORMS(id, norm, form)                                                                   \
    HF_DENSE(id, "model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", form,        \
             REQUIRED)                                                                             \
    HF_DENSE(id, "model.layers.%u.post_attention_layernorm.weight", norm, form, REQUIRED)

/* rope_theta may also be in rope_parameters; config.c checks rope_scaling. */
#define HF_CORE(id, q, k, norm)                                                                    \
    HF_SIZES(id)                                                                                   \
    HF_RMS(id)                                                                                     \
    HF_HEADS(id)                                                                                   \
    HF_UINT(id, intermediate_size, "feed_forward_length", OPTIONAL)                                \
    HF_ENDS(id, F32)                                                                               \
    HF_NORMS(id, norm, F32)                                                                        \
    HF_ATTENTION(id, q, k, REQUIRED)

/* YaRN, or none. */
#define HF_YARN(id)                                                                                \
    HF_ROPE(id, "", "yarn", "yarn", "factor")                                                      \
    HF_FLOAT(id, factor, "rope.scaling.factor", OPTIONAL)                                          \
    HF_UINT(id, original_max_position_embeddings, "rope.scaling.original_context_length",          \
            OPTIONAL)                                                                              \
    HF_FLOAT(id, beta_fast, "rope.scaling.yarn_beta_fast", OPTIONAL)                               \
    HF_FLOAT(id, beta_slow, "rope.scaling.yarn_beta_slow", OPTIONAL)

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
#define HF_LEADING_DENSE(id)                                                                       \
    HF_UINT(id, moe_intermediate_size, "expert_feed_forward_length", REQUIRED)                     \
    HF_DENSE(id, "model.layers.%u.mlp.gate_proj.weight", "blk.%u.ffn_gate.weight", MATRIX, DENSE)  \
    HF_DENSE(id, "model.layers.%u.mlp.up_proj.weight", "blk.%u.ffn_up.weight", MATRIX, DENSE)      \
    HF_DENSE(id, "model.layers.%u.mlp.down_proj.weight", "blk.%u.ffn_down.weight", MATRIX, DENSE)  \
    HF_DENSE(id, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, EXPERTS)    \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.gate_proj.weight",                            \
             "blk.%u.ffn_gate_shexp.weight", MATRIX, EXPERTS)                                      \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.up_proj.weight",                              \
             "blk.%u.ffn_up_shexp.weight", MATRIX, EXPERTS)                                        \
    HF_DENSE(id, "model.layers.%u.mlp.shared_experts.down_proj.weight",                            \
             "blk.%u.ffn_down_shexp.weight", MATRIX, EXPERTS)                                      \
    HF_EXPERTS_OF_MLP(id)

#define HF_ROUTER_BIAS(id, bias)                                                                   \
    HF_DENSE(id, "model.layers.%u.mlp." bias, "blk.%u.exp_probs_b.bias", F32, EXPERTS)

/* A sigmoid router with a bias for the choice, as in DeepSeek-V3. */
#define HF_SIGMOID(id)                                                                             \
    HF_UINT(id, n_routed_experts, "expert_count", REQUIRED)                                        \
    HF_UINT(id, n_shared_experts, "expert_shared_count", REQUIRED)                                 \
    HF_UINT(id, num_experts_per_tok, "expert_used_count", REQUIRED)                                \
    HF_LEADING(id, first_k_dense_replace, "leading_dense_block_count")                             \
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

/* The same, or the experts of a layer in two tensors. */
#define HF_EXPERTS_EITHER(id)                                                                      \
    HF_EXPERTS(id, "model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight",      \
               STACK_FIRST)                                                                        \
    HF_EXPERTS(id, "model.layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_up_exps.weight",        \
               STACK_SECOND)                                                                       \
    HF_EXPERTS(id, "model.layers.%u.mlp.experts.down_proj", "blk.%u.ffn_down_exps.weight", STACK)  \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.gate_proj.weight",                               \
              "blk.%u.ffn_gate_exps.weight")                                                       \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight")    \
    HF_EXPERT(id, "model.layers.%u.mlp.experts.%u.down_proj.weight", "blk.%u.ffn_down_exps.weight")

/* Names of experts in Qwen and OLMoE. */
#define HF_MLP_EXPERTS(id)                                                                         \
    HF_UINT(id, num_experts, "expert_count", REQUIRED)                                             \
    HF_DENSE(id, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", F32, REQUIRED)   \
    HF_EXPERTS_OF_MLP(id)

/* A shared expert with a gate of its own. */
#define HF_GATED_SHARED(id)                                                                        \
    HF_UINT(id, shared_expert_intermediate_size, "expert_shared_feed_forward_length", REQUIRED)    \
    HF_DENSE(id, "model.layers.%u.mlp.shared_expert_gate.weight",                                  \
             "blk.%u.ffn_gate_inp_shexp.weight", F32, REQUIRED)                                    \
    HF_DENSE(id, "model.layers.%u.mlp.shared_expert.gate_proj.weight",                             \
             "blk.%u.ffn_gate_shexp.weight", MATRIX, REQUIRED)                                     \
    HF_DENSE(id, "model.layers.%u.mlp.shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight", \
             MATRIX, REQUIRED)                                                                     \
    HF_DENSE(id, "model.layers.%u.mlp.shared_expert.down_proj.weight",                             \
             "blk.%u.ffn_down_shexp.weight", MATRIX, REQUIRED)

#define HF_MIXTRAL_EXPERTS(id)                                                                     \
    HF_DENSE(id, "model.layers.%u.block_sparse_moe.gate.weight", "blk.%u.ffn_gate_inp.weight",     \
             F32, REQUIRED)                                                                        \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w1.weight",                         \
              "blk.%u.ffn_gate_exps.weight")                                                       \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w3.weight",                         \
              "blk.%u.ffn_up_exps.weight")                                                         \
    HF_EXPERT(id, "model.layers.%u.block_sparse_moe.experts.%u.w2.weight",                         \
              "blk.%u.ffn_down_exps.weight")

HF_UNUSED(".rotary_emb.inv_freq")

/* The bos_token_id of Hunyuan's config.json is another token. */
HF_TIKTOKEN("tiktoken.model", "kimi-k2", 256, "", "<|reserved_token_", true, "[BOS]")
HF_TIKTOKEN("hy.tiktoken", "hunyuan", 210, "<|endoftext|> <|startoftext|> <|bos|> <|eos|> <|pad|>",
            "<|extra_", false, "<|bos|>")

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
HF_MUST(QWEN2MOE, norm_topk_prob, "false")
HF_QKV_BIASES(QWEN2MOE, REQUIRED)
HF_GATED_SHARED(QWEN2MOE)

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
HF_LEADING_DENSE(GLM4MOE)
HF_ROUTER_BIAS(GLM4MOE, "gate.e_score_correction_bias")
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
HF_LEADING_DENSE(DOTS1)
HF_ROUTER_BIAS(DOTS1, "gate.e_score_correction_bias")
HF_SIGMOID(DOTS1)
HF_MUST(DOTS1, attention_bias, "false null")
HF_MUST(DOTS1, partial_rotary_factor, "1 1.0 null")

/* ERNIE 4.5 */
HF_ARCH(ERNIE4_5_MOE, "ernie4_5_moe", "ernie4_5-moe")
HF_CORE(ERNIE4_5_MOE, MATRIX, MATRIX, HF_FFN_NORM)
HF_LEADING_DENSE(ERNIE4_5_MOE)
HF_ROUTER_BIAS(ERNIE4_5_MOE, "moe_statics.e_score_correction_bias")
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

#include "lib/model/hf/families/deepseek.rows"
#include "lib/model/hf/families/gemma.rows"
#include "lib/model/hf/families/gptoss.rows"
#include "lib/model/hf/families/lfm.rows"
#include "lib/model/hf/families/others.rows"
#include "lib/model/hf/families/qwen.rows"

#undef HF_SIZES
#undef HF_SIZES_WITHOUT_ROPE
#undef HF_RMS
#undef HF_HEADS
#undef HF_ENDS
#undef HF_ATTENTION
#undef HF_NORMS
#undef HF_GATED_SHARED
#undef HF_EXPERTS_EITHER
#undef HF_DELTANET
#undef HF_YARN
#undef HF_MLA
#undef HF_ROUTER_BIAS
#undef HF_CORE
#undef HF_FFN_NORM
#undef HF_QKV_BIASES
#undef HF_LEADING_DENSE
#undef HF_SIGMOID
#undef HF_EXPERTS_OF_MLP
#undef HF_MIXTRAL_EXPERTS
#undef HF_BOOL
#undef HF_UNUSED
#undef HF_CHOICE
#undef HF_WITH
#undef HF_LAYOUT
#undef HF_TIKTOKEN
#undef HF_VISIBLE
#undef HF_ALPHA
#undef HF_NUMBER
#undef HF_UNROTATED
#undef HF_NUMBERS
#undef HF_EACH
#undef HF_FULL
#undef HF_LEADING
#undef HF_LAYER_UINTS
#undef HF_LAYER_FLAGS
#undef HF_INTERVAL
#undef HF_FIXED
#undef HF_OTHER
#undef HF_ROPE
#undef HF_QUANTISED
#undef HF_HAS
#undef HF_EQUAL
#undef HF_PRODUCT
#undef HF_SUM
#undef HF_TENTH
#undef HF_TYPE
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
#undef HF_EXPERTS
#undef HF_REJECTED
