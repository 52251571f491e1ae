/* SPDX-License-Identifier: Apache-2.0 */
/* The list of all tensor types.
 * TENSOR_TYPE(NAME, id, block_elems, block_bytes, row_head_bytes, computed)
 *   id              type number in GGUF files; from TENSOR_TYPE_OWN_FIRST on: a type of sluice,
 *                   which occurs only in stores
 *   block_elems     elements per block along the row
 *   block_bytes     bytes per block
 *   row_head_bytes  bytes at the start of every row, before its blocks
 *   computed        lib/kernels has its product; a model with another type is rejected
 * Source of the numbers below 1000: the GGUF specification and the Python package gguf. Contents of
 * GGUF's blocks: unpack/unpack.tbl.h; blocks of sluice's types: lib/quant/quant.h. No include
 * guard: define TENSOR_TYPE, then include it. */
TENSOR_TYPE(F32, 0, 1, 4, 0, true)
TENSOR_TYPE(F16, 1, 1, 2, 0, true)
TENSOR_TYPE(Q4_0, 2, 32, 18, 0, true)
TENSOR_TYPE(Q4_1, 3, 32, 20, 0, true)
TENSOR_TYPE(Q5_0, 6, 32, 22, 0, true)
TENSOR_TYPE(Q5_1, 7, 32, 24, 0, true)
TENSOR_TYPE(Q8_0, 8, 32, 34, 0, true)
TENSOR_TYPE(Q2_K, 10, 256, 84, 0, true)
TENSOR_TYPE(Q3_K, 11, 256, 110, 0, true)
TENSOR_TYPE(Q4_K, 12, 256, 144, 0, true)
TENSOR_TYPE(Q5_K, 13, 256, 176, 0, true)
TENSOR_TYPE(Q6_K, 14, 256, 210, 0, true)
TENSOR_TYPE(IQ2_XXS, 16, 256, 66, 0, true)
TENSOR_TYPE(IQ2_XS, 17, 256, 74, 0, true)
TENSOR_TYPE(IQ3_XXS, 18, 256, 98, 0, true)
TENSOR_TYPE(IQ1_S, 19, 256, 50, 0, true)
TENSOR_TYPE(IQ4_NL, 20, 32, 18, 0, true)
TENSOR_TYPE(IQ3_S, 21, 256, 110, 0, true)
TENSOR_TYPE(IQ2_S, 22, 256, 82, 0, true)
TENSOR_TYPE(IQ4_XS, 23, 256, 136, 0, true)
TENSOR_TYPE(IQ1_M, 29, 256, 56, 0, true)
TENSOR_TYPE(BF16, 30, 1, 2, 0, true)
TENSOR_TYPE(TQ1_0, 34, 256, 54, 0, true)
TENSOR_TYPE(TQ2_0, 35, 256, 66, 0, true)
TENSOR_TYPE(MXFP4, 39, 32, 17, 0, true)
TENSOR_TYPE(NVFP4, 40, 64, 36, 0, true)
TENSOR_TYPE(Q1_0, 41, 128, 18, 0, true)
TENSOR_TYPE(Q2_0, 42, 64, 18, 0, true)
TENSOR_TYPE(C8, 1000, 64, 64, 4, true)
TENSOR_TYPE(C4, 1001, 64, 32, 4, true)
TENSOR_TYPE(C2, 1002, 64, 16, 4, true)
TENSOR_TYPE(G4, 1003, 64, 36, 0, true)
TENSOR_TYPE(G2, 1004, 64, 20, 0, true)
#undef TENSOR_TYPE
