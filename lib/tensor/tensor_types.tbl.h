/* SPDX-License-Identifier: Apache-2.0 */
/* The supported tensor types.
 * TENSOR_TYPE(NAME, id, block_elems, block_bytes, row_head_bytes)
 *   id              type number in GGUF files; from TENSOR_TYPE_OWN_FIRST on: a type of sluice,
 *                   which occurs only in stores
 *   block_elems     elements per block along the row
 *   block_bytes     bytes per block
 *   row_head_bytes  bytes at the start of every row, before its blocks
 * Source of the numbers below 1000: the GGUF specification. Blocks of sluice's types:
 * lib/quant/quant.h. No include guard: define TENSOR_TYPE, then include it. */
TENSOR_TYPE(F32, 0, 1, 4, 0)
TENSOR_TYPE(F16, 1, 1, 2, 0)
TENSOR_TYPE(Q4_0, 2, 32, 18, 0)
TENSOR_TYPE(Q8_0, 8, 32, 34, 0)
TENSOR_TYPE(BF16, 30, 1, 2, 0)
TENSOR_TYPE(C8, 1000, 64, 64, 4)
TENSOR_TYPE(C4, 1001, 64, 32, 4)
TENSOR_TYPE(C2, 1002, 64, 16, 4)
TENSOR_TYPE(G4, 1003, 64, 36, 0)
TENSOR_TYPE(G2, 1004, 64, 20, 0)
#undef TENSOR_TYPE
