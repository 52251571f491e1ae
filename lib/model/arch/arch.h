/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures described as data: the GGUF keys of the hyper-parameters, and the tensors with
 * their shapes. A new architecture is a set of rows in arch.tbl.h (CONTRIBUTING.md). */
#ifndef SLUICE_MODEL_ARCH_ARCH_H
#define SLUICE_MODEL_ARCH_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/model/limits.h"

/* Hyper-parameters after validation; every field is in the range given in arch.tbl.h. */
struct model_hparams {
    uint32_t layers;
    uint32_t hidden; /* embedding length */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size; /* the same for q, k and v */
    uint32_t vocab;
    uint32_t context;      /* trained context length */
    uint32_t experts;      /* E */
    uint32_t experts_used; /* K (top-k) */
    uint32_t expert_inner; /* inner size of one expert's SwiGLU */
    float rms_eps;
    float rope_theta;
    uint32_t rope_dims;    /* == head_size */
    uint32_t norm_top_k;   /* 1: the K gate weights are renormalised to sum 1 */
    uint32_t qk_norm;      /* enum qk_norm */
    uint32_t tied_output;  /* 1: output matrix is the token embedding */
    uint32_t rope_kind;    /* enum rope_kind */
    uint32_t shared_inner; /* inner size of the shared expert, which every token uses; 0: none */
    uint32_t reserved[4];
};

#define MODEL_KV_TILE 64 /* positions that lie together: keys and values are in whole tiles */

/* Elements, F16 each, of one position's keys of a layer; its values have as many. */
static inline uint64_t model_kv_elements(const struct model_hparams *h)
{
    return (uint64_t)h->kv_heads * h->head_size;
}

/* Positions of the whole tiles that hold `positions`. */
static inline uint64_t model_kv_positions(uint64_t positions)
{
    return (positions + MODEL_KV_TILE - 1) / MODEL_KV_TILE * MODEL_KV_TILE;
}

/* To how many rows the state of a sequence of `rows` tokens can be cut back, at most `wanted`: the
 * first rows of a kept sequence serve a prompt that begins with the same tokens. Attention over all
 * positions: any number, as a row depends on earlier tokens only. A recurrent state, or a window
 * whose older rows were overwritten, allows fewer. */
static inline uint32_t model_state_cut(const struct model_hparams *h, uint32_t rows,
                                       uint32_t wanted)
{
    (void)h;
    return wanted < rows ? wanted : rows;
}

/* What the RMSNorm of q and k covers. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* every head separately, one weight for all */
    QK_NORM_ROW,  /* all heads of a token together, before they are split */
};

/* Which elements of a head are rotated together. */
enum rope_kind {
    ROPE_HALVES, /* i and i + head_size / 2 */
    ROPE_PAIRS,  /* 2i and 2i + 1 */
};

/* Roles of dense tensors: one row per tensor that the engine uses.
 * DENSE_GLOBAL(role, name)  DENSE_LAYER(role, name with %u)
 * The scales of matrices are dense, also those of experts, one number per matrix: a slot stays the file's
 * bytes, and all precisions of an expert share its scale. */
#define DENSE_ROLES(G, L)                                                                          \
    G(TOKEN_EMBD, "token_embd.weight")                                                             \
    G(OUTPUT_NORM, "output_norm.weight")                                                           \
    G(OUTPUT, "output.weight")                                                                     \
    L(ATTN_NORM, "blk.%u.attn_norm.weight")                                                        \
    L(ATTN_Q, "blk.%u.attn_q.weight")                                                              \
    L(ATTN_K, "blk.%u.attn_k.weight")                                                              \
    L(ATTN_V, "blk.%u.attn_v.weight")                                                              \
    L(ATTN_Q_NORM, "blk.%u.attn_q_norm.weight")                                                    \
    L(ATTN_K_NORM, "blk.%u.attn_k_norm.weight")                                                    \
    L(ATTN_OUT, "blk.%u.attn_output.weight")                                                       \
    L(FFN_NORM, "blk.%u.ffn_norm.weight")                                                          \
    L(ROUTER, "blk.%u.ffn_gate_inp.weight")                                                        \
    L(ATTN_Q_BIAS, "blk.%u.attn_q.bias")                                                           \
    L(ATTN_K_BIAS, "blk.%u.attn_k.bias")                                                           \
    L(ATTN_V_BIAS, "blk.%u.attn_v.bias")                                                           \
    L(SHARED_ROUTER, "blk.%u.ffn_gate_inp_shexp.weight")                                           \
    L(SHARED_GATE, "blk.%u.ffn_gate_shexp.weight")                                                 \
    L(SHARED_UP, "blk.%u.ffn_up_shexp.weight")                                                     \
    L(SHARED_DOWN, "blk.%u.ffn_down_shexp.weight")                                                 \
    G(ROPE_FREQS, "rope_freqs.weight")                                                             \
    G(OUTPUT_SCALE, "output.scale")                                                                \
    L(ATTN_Q_SCALE, "blk.%u.attn_q.scale")                                                         \
    L(ATTN_K_SCALE, "blk.%u.attn_k.scale")                                                         \
    L(ATTN_V_SCALE, "blk.%u.attn_v.scale")                                                         \
    L(ATTN_OUT_SCALE, "blk.%u.attn_output.scale")                                                  \
    L(SHARED_GATE_SCALE, "blk.%u.ffn_gate_shexp.scale")                                            \
    L(SHARED_UP_SCALE, "blk.%u.ffn_up_shexp.scale")                                                \
    L(SHARED_DOWN_SCALE, "blk.%u.ffn_down_shexp.scale")                                            \
    L(EXPERT_GATE_SCALES, "blk.%u.ffn_gate_exps.scale")                                            \
    L(EXPERT_UP_SCALES, "blk.%u.ffn_up_exps.scale")                                                \
    L(EXPERT_DOWN_SCALES, "blk.%u.ffn_down_exps.scale")

enum dense_role {
#define R(role, name) DENSE_##role,
    DENSE_ROLES(R, R)
#undef R
        DENSE__COUNT
};

/* The three matrices of an expert, in the order of an entry's parts. */
enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT__COUNT };

#endif
