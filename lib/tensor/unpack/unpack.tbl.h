/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF's quantised tensor types as integers with scales (unpack.h).
 * UNPACK(NAME, unit, sub, minimums, code_max, scale_max, min_max, function)
 *   unit       elements per struct unpacked: the type's block, or a part of it
 *   sub        elements that share a scale and a minimum; the unit: it has one scale
 *   minimums   dmin and min[] are not always zero
 *   code_max, scale_max, min_max   largest magnitudes of code[], scale[], min[]
 *   function   fills a struct unpacked from a block
 * Source: the Python package gguf and ggml's definitions of the blocks. No include guard: define
 * UNPACK, then include it. */
UNPACK(Q4_0, 32, 32, false, 8, 1, 0, unpack_q4_0)
UNPACK(Q4_1, 32, 32, true, 15, 1, 1, unpack_q4_1)
UNPACK(Q5_0, 32, 32, false, 16, 1, 0, unpack_q5_0)
UNPACK(Q5_1, 32, 32, true, 31, 1, 1, unpack_q5_1)
UNPACK(Q8_0, 32, 32, false, 128, 1, 0, unpack_q8_0)
UNPACK(Q2_K, 256, 16, true, 3, 15, 15, unpack_q2_k)
UNPACK(Q3_K, 256, 16, false, 4, 32, 0, unpack_q3_k)
UNPACK(Q4_K, 256, 32, true, 15, 63, 63, unpack_q4_k)
UNPACK(Q5_K, 256, 32, true, 31, 63, 63, unpack_q5_k)
UNPACK(Q6_K, 256, 16, false, 32, 128, 0, unpack_q6_k)
UNPACK(IQ2_XXS, 256, 32, false, 43, 31, 0, unpack_iq2_xxs)
UNPACK(IQ2_XS, 256, 16, false, 43, 31, 0, unpack_iq2_xs)
UNPACK(IQ3_XXS, 256, 32, false, 62, 31, 0, unpack_iq3_xxs)
UNPACK(IQ1_S, 256, 32, false, 9, 15, 0, unpack_iq1_s)
UNPACK(IQ4_NL, 32, 32, false, 127, 1, 0, unpack_iq4_nl)
UNPACK(IQ3_S, 256, 32, false, 15, 31, 0, unpack_iq3_s)
UNPACK(IQ2_S, 256, 16, false, 43, 31, 0, unpack_iq2_s)
UNPACK(IQ4_XS, 256, 32, false, 127, 32, 0, unpack_iq4_xs)
UNPACK(IQ1_M, 256, 16, false, 9, 15, 0, unpack_iq1_m)
UNPACK(TQ1_0, 256, 256, false, 1, 1, 0, unpack_tq1_0)
UNPACK(TQ2_0, 256, 256, false, 2, 1, 0, unpack_tq2_0)
UNPACK(MXFP4, 32, 32, false, 12, 1, 0, unpack_mxfp4)
UNPACK(NVFP4, 16, 16, false, 12, 1, 0, unpack_nvfp4)
UNPACK(Q1_0, 128, 128, false, 1, 1, 0, unpack_q1_0)
UNPACK(Q2_0, 64, 64, false, 2, 1, 0, unpack_q2_0)
#undef UNPACK
