/* SPDX-License-Identifier: Apache-2.0 */
/* Every supported architecture, as data. No include guard: include it with the macros below
 * defined; macros not defined expand to nothing, and all are undefined at the end.
 *
 * ARCH(ID, name)
 *     name: general.architecture
 * ARCH_UINT(ID, field, key, min, max, absent)
 *     hyper-parameter from key "<name>.<key>"; absent: REQUIRED, or DERIVED (computed by arch.c)
 * ARCH_FLOAT(ID, field, key, min, max)
 *     the same for a float, always required
 * ARCH_FLOAT_OR_0(ID, field, key, min, max)
 *     the same, 0 if absent
 * ARCH_FLAG(ID, field, key)
 *     the same for a bool: 0 or 1, 0 if absent
 * ARCH_DEFAULT(ID, field, value)
 *     value of a field whose key is absent or 0
 * ARCH_NAME(ID, role, name)
 *     name of a tensor in this architecture, where it is not the one in arch.h
 * ARCH_CONST(ID, field, value)
 *     fixed by the architecture, without a key
 * ARCH_ONLY(ID, key, value)
 *     integer or bool key that must have this value if present
 * ARCH_ONLY_FLOAT(ID, key, value)
 *     the same for a float key
 * ARCH_ONLY_TEXT(ID, key, text)
 *     string key that must have this value if present
 * ARCH_LAYERS(ID, which, mixer, ffn)
 *     what these layers consist of (arch.h); which: LEADING (the first dense_layers), or ALL others.
 *     The first row that fits a layer counts
 * ARCH_DENSE(ID, role, storage, presence, ne0, ne1)
 *     tensor of a role of arch.h; required in, and restricted to, the layers that have its part;
 *     not there if a dimension is 0
 * ARCH_EXPERT(ID, matrix, name, ne0, ne1)
 *     3-D tensor of all experts of a layer; ne2 is EXPERTS
 * ARCH_JOINED(ID, matrix, name, ne0, ne1)
 *     the same for a tensor that replaces two of them: GATE_UP has, for each expert, the rows of
 *     gate and then those of up
 * ARCH_REJECTED(ID, name, why)
 *     known tensor that is not supported; %u in the name: a decimal number
 * ARCH_UNUSED(ID, name)
 *     known tensor that the engine does not need and leaves alone, whatever its shape
 *
 * storage: F32 (norms, biases and most routers) or ANY (every type of tensor_types.tbl.h).
 * presence: REQUIRED or OPTIONAL. Dimensions: enum arch_dim in table.h.
 * Source of keys, names and shapes: the GGUF files that llama.cpp's converter writes, and the
 * model's published configuration. */
#ifndef ARCH
#define ARCH(id, name)
#endif
#ifndef ARCH_UINT
#define ARCH_UINT(id, field, key, min, max, absent)
#endif
#ifndef ARCH_FLOAT
#define ARCH_FLOAT(id, field, key, min, max)
#endif
#ifndef ARCH_FLOAT_OR_0
#define ARCH_FLOAT_OR_0(id, field, key, min, max)
#endif
#ifndef ARCH_FLAG
#define ARCH_FLAG(id, field, key)
#endif
#ifndef ARCH_DEFAULT
#define ARCH_DEFAULT(id, field, value)
#endif
#ifndef ARCH_NAME
#define ARCH_NAME(id, role, name)
#endif
#ifndef ARCH_CONST
#define ARCH_CONST(id, field, value)
#endif
#ifndef ARCH_ONLY
#define ARCH_ONLY(id, key, value)
#endif
#ifndef ARCH_ONLY_FLOAT
#define ARCH_ONLY_FLOAT(id, key, value)
#endif
#ifndef ARCH_ONLY_TEXT
#define ARCH_ONLY_TEXT(id, key, text)
#endif
#ifndef ARCH_LAYERS
#define ARCH_LAYERS(id, which, mixer, ffn)
#endif
#ifndef ARCH_DENSE
#define ARCH_DENSE(id, role, storage, presence, ne0, ne1)
#endif
#ifndef ARCH_EXPERT
#define ARCH_EXPERT(id, matrix, name, ne0, ne1)
#endif
#ifndef ARCH_JOINED
#define ARCH_JOINED(id, matrix, name, ne0, ne1)
#endif
#ifndef ARCH_REJECTED
#define ARCH_REJECTED(id, name, why)
#endif
#ifndef ARCH_UNUSED
#define ARCH_UNUSED(id, name)
#endif

/* Common to all architectures: RMSNorm before attention and before the feed-forward part,
 * grouped-query attention with rotary embedding, SwiGLU experts. */
#define ARCH_COMMON(id)                                                                            \
    ARCH_UINT(id, layers, "block_count", 1, MODEL_LAYERS_MAX, REQUIRED)                            \
    ARCH_UINT(id, hidden, "embedding_length", 1, 65536, REQUIRED)                                  \
    ARCH_UINT(id, heads, "attention.head_count", 1, 1024, REQUIRED)                                \
    ARCH_UINT(id, kv_heads, "attention.head_count_kv", 1, 1024, DERIVED)                           \
    ARCH_UINT(id, head_size, "attention.key_length", 2, 1024, DERIVED)                             \
    ARCH_UINT(id, vocab, "vocab_size", 1, MODEL_VOCAB_MAX, DERIVED)                                \
    ARCH_UINT(id, context, "context_length", 1, MODEL_CONTEXT_MAX, REQUIRED)                       \
    ARCH_UINT(id, experts, "expert_count", 1, MODEL_EXPERTS_MAX, REQUIRED)                         \
    ARCH_UINT(id, experts_used, "expert_used_count", 1, MODEL_TOP_K_MAX, REQUIRED)                 \
    ARCH_UINT(id, rope_dims, "rope.dimension_count", 2, 1024, DERIVED)                             \
    ARCH_FLOAT(id, rms_eps, "attention.layer_norm_rms_epsilon", 1e-12, 0.1)                        \
    ARCH_FLOAT(id, rope_theta, "rope.freq_base", 1, 1e12)                                          \
    ARCH_ONLY(id, "attention.sliding_window", 0)                                                   \
    ARCH_ONLY_TEXT(id, "rope.scaling.type", "none")                                                \
    ARCH_ONLY_FLOAT(id, "rope.scaling.factor", 1)                                                  \
    ARCH_DENSE(id, TOKEN_EMBD, ANY, REQUIRED, HIDDEN, VOCAB)                                       \
    ARCH_DENSE(id, OUTPUT_NORM, F32, REQUIRED, HIDDEN, ONE)                                        \
    ARCH_DENSE(id, OUTPUT, ANY, OPTIONAL, HIDDEN, VOCAB) /* absent: tied to the embedding */       \
    ARCH_DENSE(id, ATTN_NORM, F32, REQUIRED, HIDDEN, ONE)                                          \
    ARCH_DENSE(id, ATTN_Q, ANY, REQUIRED, HIDDEN, Q)                                               \
    ARCH_DENSE(id, ATTN_K, ANY, REQUIRED, HIDDEN, KV)                                              \
    ARCH_DENSE(id, ATTN_V, ANY, REQUIRED, HIDDEN, KV)                                              \
    ARCH_DENSE(id, ATTN_OUT, ANY, REQUIRED, Q, HIDDEN)                                             \
    ARCH_DENSE(id, FFN_NORM, F32, REQUIRED, HIDDEN, ONE)                                           \
    ARCH_DENSE(id, ROUTER, F32, REQUIRED, HIDDEN, EXPERTS)                                         \
    ARCH_EXPERT(id, GATE, "blk.%u.ffn_gate_exps.weight", HIDDEN, INNER)                            \
    ARCH_EXPERT(id, UP, "blk.%u.ffn_up_exps.weight", HIDDEN, INNER)                                \
    ARCH_EXPERT(id, DOWN, "blk.%u.ffn_down_exps.weight", INNER, HIDDEN)                            \
    ARCH_JOINED(id, GATE_UP, "blk.%u.ffn_gate_up_exps.weight", HIDDEN, INNER_TWICE)                \
    ARCH_SCALE(id, OUTPUT, "output", ONE)                                                          \
    ARCH_SCALE(id, ATTN_Q, "blk.%u.attn_q", ONE)                                                   \
    ARCH_SCALE(id, ATTN_K, "blk.%u.attn_k", ONE)                                                   \
    ARCH_SCALE(id, ATTN_V, "blk.%u.attn_v", ONE)                                                   \
    ARCH_SCALE(id, ATTN_OUT, "blk.%u.attn_output", ONE)                                            \
    ARCH_SCALES(id, EXPERT_GATE, "blk.%u.ffn_gate_exps", EXPERTS)                                  \
    ARCH_SCALES(id, EXPERT_UP, "blk.%u.ffn_up_exps", EXPERTS)                                      \
    ARCH_SCALES(id, EXPERT_DOWN, "blk.%u.ffn_down_exps", EXPERTS)

/* Scale of a matrix, or one for each expert's; the scale of its inputs is for hardware with FP4. */
#define ARCH_SCALE(id, matrix, name, ne)                                                           \
    ARCH_DENSE(id, matrix##_SCALE, F32, OPTIONAL, ne, ONE)                                         \
    ARCH_UNUSED(id, name ".input_scale")
#define ARCH_SCALES(id, matrix, name, ne)                                                          \
    ARCH_DENSE(id, matrix##_SCALES, F32, OPTIONAL, ne, ONE)                                        \
    ARCH_UNUSED(id, name ".input_scale")

/* Every layer has experts. */
#define ARCH_ALL_EXPERTS(id)                                                                       \
    ARCH_LAYERS(id, ALL, ATTENTION, EXPERTS)                                                       \
    ARCH_ONLY(id, "leading_dense_block_count", 0)                                                  \
    ARCH_REJECTED(id, "blk.%u.ffn_gate.weight", "a layer without experts")

/* The router: softmax over all experts, then the top-k. */
#define ARCH_SOFTMAX(id)                                                                           \
    ARCH_CONST(id, gating, ROUTER_SOFTMAX)                                                         \
    ARCH_ONLY(id, "expert_group_count", 0)                                                         \
    ARCH_ONLY(id, "expert_gating_func", 1)                                                         \
    ARCH_ONLY_FLOAT(id, "expert_weights_scale", 1)

/* The first layers have a dense feed-forward part. */
#define ARCH_LEADING_DENSE(id)                                                                     \
    ARCH_LAYERS(id, LEADING, ATTENTION, DENSE)                                                     \
    ARCH_LAYERS(id, ALL, ATTENTION, EXPERTS)                                                       \
    ARCH_UINT(id, dense_layers, "leading_dense_block_count", 0, MODEL_LAYERS_MAX - 1, DERIVED)     \
    ARCH_UINT(id, dense_inner, "feed_forward_length", 1, 65536, REQUIRED)                          \
    ARCH_DENSE(id, FFN_GATE, ANY, REQUIRED, HIDDEN, DENSE)                                         \
    ARCH_DENSE(id, FFN_UP, ANY, REQUIRED, HIDDEN, DENSE)                                           \
    ARCH_DENSE(id, FFN_DOWN, ANY, REQUIRED, DENSE, HIDDEN)                                         \
    ARCH_SCALE(id, FFN_GATE, "blk.%u.ffn_gate", ONE)                                               \
    ARCH_SCALE(id, FFN_UP, "blk.%u.ffn_up", ONE)                                                   \
    ARCH_SCALE(id, FFN_DOWN, "blk.%u.ffn_down", ONE)

/* Shared experts without a gate; their width is a key, or follows from their number. */
#define ARCH_UNGATED_SHARED(id)                                                                    \
    ARCH_UINT(id, shared_count, "expert_shared_count", 0, 64, DERIVED)                             \
    ARCH_UINT(id, shared_inner, "expert_shared_feed_forward_length", 0, 65536, DERIVED)            \
    ARCH_DENSE(id, SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED)                                     \
    ARCH_DENSE(id, SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED)                                       \
    ARCH_DENSE(id, SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN)                                     \
    ARCH_SCALE(id, SHARED_GATE, "blk.%u.ffn_gate_shexp", ONE)                                      \
    ARCH_SCALE(id, SHARED_UP, "blk.%u.ffn_up_shexp", ONE)                                          \
    ARCH_SCALE(id, SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE)

/* The router: sigmoid of each logit, a bias for the choice, groups, normalising and scale by keys. */
#define ARCH_SIGMOID(id)                                                                           \
    ARCH_UINT(id, gating, "expert_gating_func", 1, 2, DERIVED)                                     \
    ARCH_DEFAULT(id, gating, ROUTER_SIGMOID)                                                       \
    ARCH_FLAG(id, norm_top_k, "expert_weights_norm")                                               \
    ARCH_FLOAT_OR_0(id, expert_scale, "expert_weights_scale", 0, 1000)                             \
    ARCH_UINT(id, groups, "expert_group_count", 0, MODEL_EXPERTS_MAX, DERIVED)                     \
    ARCH_UINT(id, groups_used, "expert_group_used_count", 0, MODEL_EXPERTS_MAX, DERIVED)           \
    ARCH_DENSE(id, ROUTER_BIAS, F32, REQUIRED, EXPERTS, ONE)

#define OLD_EXPERTS "a tensor for each expert (a file of early 2024, to be converted again)"

/* Qwen3-MoE: an RMSNorm on each q and k head; the K weights are renormalised. */
ARCH(QWEN3MOE, "qwen3moe")
ARCH_COMMON(QWEN3MOE)
ARCH_ALL_EXPERTS(QWEN3MOE)
ARCH_SOFTMAX(QWEN3MOE)
ARCH_UINT(QWEN3MOE, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(QWEN3MOE, norm_top_k, 1)
ARCH_CONST(QWEN3MOE, qk_norm, QK_NORM_HEAD)
ARCH_ONLY(QWEN3MOE, "expert_shared_count", 0)
ARCH_ONLY(QWEN3MOE, "expert_weights_norm", 1)
ARCH_DENSE(QWEN3MOE, ATTN_Q_NORM, F32, REQUIRED, HEAD, ONE)
ARCH_DENSE(QWEN3MOE, ATTN_K_NORM, F32, REQUIRED, HEAD, ONE)

/* OLMoE: an RMSNorm on the whole rows of q and k; the K weights are not renormalised. */
ARCH(OLMOE, "olmoe")
ARCH_COMMON(OLMOE)
ARCH_ALL_EXPERTS(OLMOE)
ARCH_SOFTMAX(OLMOE)
ARCH_UINT(OLMOE, expert_inner, "feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(OLMOE, norm_top_k, 0)
ARCH_CONST(OLMOE, qk_norm, QK_NORM_ROW)
ARCH_ONLY(OLMOE, "expert_shared_count", 0)
ARCH_ONLY(OLMOE, "expert_weights_norm", 0)
ARCH_ONLY_FLOAT(OLMOE, "attention.clamp_kqv", 0)
ARCH_DENSE(OLMOE, ATTN_Q_NORM, F32, REQUIRED, Q, ONE)
ARCH_DENSE(OLMOE, ATTN_K_NORM, F32, REQUIRED, KV, ONE)

/* Qwen2-MoE (also Qwen1.5-MoE): biases on q, k and v; a shared expert, which every token uses,
 * times the sigmoid of its own gate; the K weights are not renormalised. */
ARCH(QWEN2MOE, "qwen2moe")
ARCH_COMMON(QWEN2MOE)
ARCH_ALL_EXPERTS(QWEN2MOE)
ARCH_SOFTMAX(QWEN2MOE)
ARCH_UINT(QWEN2MOE, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_UINT(QWEN2MOE, shared_inner, "expert_shared_feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(QWEN2MOE, norm_top_k, 0)
ARCH_CONST(QWEN2MOE, qk_norm, QK_NORM_NONE)
ARCH_ONLY(QWEN2MOE, "expert_shared_count", 1)
ARCH_ONLY(QWEN2MOE, "expert_weights_norm", 0)
ARCH_DENSE(QWEN2MOE, ATTN_Q_BIAS, F32, REQUIRED, Q, ONE)
ARCH_DENSE(QWEN2MOE, ATTN_K_BIAS, F32, REQUIRED, KV, ONE)
ARCH_DENSE(QWEN2MOE, ATTN_V_BIAS, F32, REQUIRED, KV, ONE)
ARCH_DENSE(QWEN2MOE, SHARED_ROUTER, ANY, REQUIRED, HIDDEN, ONE)
ARCH_DENSE(QWEN2MOE, SHARED_GATE, ANY, REQUIRED, HIDDEN, SHARED)
ARCH_DENSE(QWEN2MOE, SHARED_UP, ANY, REQUIRED, HIDDEN, SHARED)
ARCH_DENSE(QWEN2MOE, SHARED_DOWN, ANY, REQUIRED, SHARED, HIDDEN)
ARCH_SCALE(QWEN2MOE, SHARED_GATE, "blk.%u.ffn_gate_shexp", ONE)
ARCH_SCALE(QWEN2MOE, SHARED_UP, "blk.%u.ffn_up_shexp", ONE)
ARCH_SCALE(QWEN2MOE, SHARED_DOWN, "blk.%u.ffn_down_shexp", ONE)

/* Llama with experts (Mixtral): the converter reorders the rows of q and k, so that adjacent
 * elements are rotated together; the K weights are renormalised, which equals Mixtral's softmax
 * over the K largest logits. */
ARCH(LLAMA, "llama")
ARCH_COMMON(LLAMA)
ARCH_ALL_EXPERTS(LLAMA)
ARCH_SOFTMAX(LLAMA)
ARCH_UINT(LLAMA, expert_inner, "feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(LLAMA, norm_top_k, 1)
ARCH_CONST(LLAMA, rope_kind, ROPE_PAIRS)
ARCH_ONLY(LLAMA, "expert_shared_count", 0)
ARCH_ONLY(LLAMA, "expert_weights_norm", 1)
ARCH_ONLY(LLAMA, "interleave_moe_layer_step", 1)
ARCH_DENSE(LLAMA, ROPE_FREQS, F32, OPTIONAL, HALF, ONE) /* divisors of the frequencies */
ARCH_REJECTED(LLAMA, "blk.%u.ffn_gate.%u.weight", OLD_EXPERTS)
ARCH_REJECTED(LLAMA, "blk.%u.ffn_up.%u.weight", OLD_EXPERTS)
ARCH_REJECTED(LLAMA, "blk.%u.ffn_down.%u.weight", OLD_EXPERTS)

/* GLM-4.5, 4.6, 4.7: the first half of each head is rotated; biases on q, k and v, and norms of each
 * q and k head, in some models; a block for drafting behind the last layer. */
ARCH(GLM4MOE, "glm4moe")
ARCH_COMMON(GLM4MOE)
ARCH_LEADING_DENSE(GLM4MOE)
ARCH_SIGMOID(GLM4MOE)
ARCH_UNGATED_SHARED(GLM4MOE)
ARCH_UINT(GLM4MOE, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_UINT(GLM4MOE, skipped_layers, "nextn_predict_layers", 0, MODEL_LAYERS_MAX - 1, DERIVED)
ARCH_CONST(GLM4MOE, qk_norm, QK_NORM_HEAD)
ARCH_NAME(GLM4MOE, FFN_NORM, "blk.%u.post_attention_norm.weight")
ARCH_DENSE(GLM4MOE, ATTN_Q_BIAS, F32, OPTIONAL, Q, ONE)
ARCH_DENSE(GLM4MOE, ATTN_K_BIAS, F32, OPTIONAL, KV, ONE)
ARCH_DENSE(GLM4MOE, ATTN_V_BIAS, F32, OPTIONAL, KV, ONE)
ARCH_DENSE(GLM4MOE, ATTN_Q_NORM, F32, OPTIONAL, HEAD, ONE)
ARCH_DENSE(GLM4MOE, ATTN_K_NORM, F32, OPTIONAL, HEAD, ONE)

/* dots.llm1: an RMSNorm on each q and k head. */
ARCH(DOTS1, "dots1")
ARCH_COMMON(DOTS1)
ARCH_LEADING_DENSE(DOTS1)
ARCH_SIGMOID(DOTS1)
ARCH_UNGATED_SHARED(DOTS1)
ARCH_UINT(DOTS1, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(DOTS1, qk_norm, QK_NORM_HEAD)
ARCH_DENSE(DOTS1, ATTN_Q_NORM, F32, REQUIRED, HEAD, ONE)
ARCH_DENSE(DOTS1, ATTN_K_NORM, F32, REQUIRED, HEAD, ONE)

/* ERNIE 4.5 MoE: softmax with a bias for the choice, normalised; adjacent elements are rotated
 * together. */
ARCH(ERNIE4_5_MOE, "ernie4_5-moe")
ARCH_COMMON(ERNIE4_5_MOE)
ARCH_LEADING_DENSE(ERNIE4_5_MOE)
ARCH_SOFTMAX(ERNIE4_5_MOE)
ARCH_UNGATED_SHARED(ERNIE4_5_MOE)
ARCH_UINT(ERNIE4_5_MOE, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_CONST(ERNIE4_5_MOE, norm_top_k, 1)
ARCH_CONST(ERNIE4_5_MOE, rope_kind, ROPE_PAIRS)
ARCH_ONLY(ERNIE4_5_MOE, "interleave_moe_layer_step", 1)
ARCH_ONLY(ERNIE4_5_MOE, "expert_weights_norm", 1)
ARCH_DENSE(ERNIE4_5_MOE, ROUTER_BIAS, F32, OPTIONAL, EXPERTS, ONE)

/* MiniMax-M2: an RMSNorm on the whole rows of q and k; the first half of each head is rotated. */
ARCH(MINIMAX_M2, "minimax-m2")
ARCH_COMMON(MINIMAX_M2)
ARCH_ALL_EXPERTS(MINIMAX_M2)
ARCH_UINT(MINIMAX_M2, expert_inner, "expert_feed_forward_length", 1, 65536, REQUIRED)
ARCH_UINT(MINIMAX_M2, gating, "expert_gating_func", 2, 2, DERIVED)
ARCH_DEFAULT(MINIMAX_M2, gating, ROUTER_SIGMOID)
ARCH_CONST(MINIMAX_M2, norm_top_k, 1)
ARCH_CONST(MINIMAX_M2, qk_norm, QK_NORM_ROW)
ARCH_ONLY(MINIMAX_M2, "expert_group_count", 0)
ARCH_ONLY(MINIMAX_M2, "expert_weights_norm", 1)
ARCH_ONLY_FLOAT(MINIMAX_M2, "expert_weights_scale", 1)
ARCH_ONLY(MINIMAX_M2, "expert_shared_count", 0)
ARCH_DENSE(MINIMAX_M2, ROUTER_BIAS, F32, REQUIRED, EXPERTS, ONE)
ARCH_DENSE(MINIMAX_M2, ATTN_Q_NORM, F32, REQUIRED, Q, ONE)
ARCH_DENSE(MINIMAX_M2, ATTN_K_NORM, F32, REQUIRED, KV, ONE)

#undef ARCH_LEADING_DENSE
#undef ARCH_UNGATED_SHARED
#undef ARCH_SIGMOID
#undef ARCH_FLOAT_OR_0
#undef ARCH_FLAG
#undef ARCH_DEFAULT
#undef ARCH_NAME
#undef ARCH_COMMON
#undef ARCH_SCALE
#undef ARCH_SCALES
#undef ARCH_ALL_EXPERTS
#undef ARCH_SOFTMAX
#undef OLD_EXPERTS
#undef ARCH
#undef ARCH_UINT
#undef ARCH_FLOAT
#undef ARCH_CONST
#undef ARCH_ONLY
#undef ARCH_ONLY_FLOAT
#undef ARCH_ONLY_TEXT
#undef ARCH_LAYERS
#undef ARCH_DENSE
#undef ARCH_EXPERT
#undef ARCH_JOINED
#undef ARCH_REJECTED
#undef ARCH_UNUSED
