/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of the gguf target by tensor type: a valid model of one layer with experts of the type. */
#ifndef SLUICE_TESTS_FUZZ_GGUF_TYPES_H
#define SLUICE_TESTS_FUZZ_GGUF_TYPES_H

#include <stdbool.h>

#include "lib/base/bytes.h"
#include "lib/tensor/tensor_type.h"
#include "tests/unit/lib/model/gguf_make.h"

/* The type with the smallest rows, for what the seed is not about. */
static inline uint32_t smallest_type(uint64_t row)
{
    if (row % 128 == 0)
        return TENSOR_Q1_0;
    if (row % 64 == 0)
        return TENSOR_Q2_0;
    return row % 32 == 0 ? TENSOR_Q4_0 : TENSOR_F16;
}

/* As small as the type allows, because the fuzzer cuts inputs at -max_len (run_fuzz.sh): `down`:
 * the down projections are of the type, and the hidden size is 4; else those of gate and up, and
 * the hidden size is a block. The last tensor of the file is of the type. */
static inline void make_typed(struct make *m, uint32_t type, bool down)
{
    uint32_t block = tensor_type_info(type)->block_elems;
    uint64_t row = block < 4 ? 4 : block, h = down ? 4 : row, inner = down ? row : 2;
    uint32_t small = smallest_type(h);
    make_tiny(m, 1, false);
    make_drop_key(m, "tokenizer.ggml.token_type");
    make_u32(m, "qwen3moe.embedding_length", (uint32_t)h);
    make_u32(m, "qwen3moe.attention.head_count", 1);
    make_u32(m, "qwen3moe.expert_count", 2);
    make_u32(m, "qwen3moe.expert_feed_forward_length", (uint32_t)inner);
    m->tensor_count = 0;
    make_add_tensor(m, "token_embd.weight", small, h, TINY_VOCAB, 1);
    make_add_tensor(m, "output_norm.weight", TENSOR_F32, h, 1, 1);
    make_add_tensor(m, "blk.0.attn_norm.weight", TENSOR_F32, h, 1, 1);
    make_add_tensor(m, "blk.0.attn_q.weight", small, h, 2, 1);
    make_add_tensor(m, "blk.0.attn_k.weight", small, h, 2, 1);
    make_add_tensor(m, "blk.0.attn_v.weight", small, h, 2, 1);
    make_add_tensor(m, "blk.0.attn_output.weight", TENSOR_F16, 2, h, 1);
    make_add_tensor(m, "blk.0.attn_q_norm.weight", TENSOR_F32, 2, 1, 1);
    make_add_tensor(m, "blk.0.attn_k_norm.weight", TENSOR_F32, 2, 1, 1);
    make_add_tensor(m, "blk.0.ffn_norm.weight", TENSOR_F32, h, 1, 1);
    make_add_tensor(m, "blk.0.ffn_gate_inp.weight", TENSOR_F32, h, 2, 1);
    if (!down)
        make_add_tensor(m, "blk.0.ffn_down_exps.weight", TENSOR_F16, inner, h, 2);
    make_add_tensor(m, "blk.0.ffn_gate_exps.weight", down ? TENSOR_F16 : type, h, inner, 2);
    make_add_tensor(m, "blk.0.ffn_up_exps.weight", down ? TENSOR_F16 : type, h, inner, 2);
    if (down)
        make_add_tensor(m, "blk.0.ffn_down_exps.weight", type, inner, h, 2);
}

#endif
