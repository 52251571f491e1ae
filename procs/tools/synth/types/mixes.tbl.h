/* SPDX-License-Identifier: Apache-2.0 */
/* The mixes of tensor types that llama-quantize makes: which tensor gets which type. Facts from
 * llama.cpp's src/llama-quant.cpp; tests/golden/data/mixes.json has what it chose.
 * MIX(NAME, base, file_type, family)
 *   base        type of the matrices that no rule names
 *   file_type   value of general.file_type
 *   family      its rules apply, too; PLAIN has none
 * MIX_WHEN(mix or family, role, when, type)   where the condition holds
 * MIX_RULE(mix or family, role, type)         always
 *   The first rule that applies is used, so exceptions come first.
 *   role   OUTPUT (or the embedding, if it is tied), EMBD, V, K, Q, O of attention (not the
 *          matrices of MLA), GATE, UP, DOWN of experts, shared experts and dense networks, EXPERTS:
 *          the stacked ones only, MATRIX: every one
 *   when   of the layer: FIRST_2, FIRST_4, FIRST_16TH, FIRST_8TH, MIDDLE (not the first or last
 *          eighth), MORE (both ends and every third); FIRST_TENSORS: of all DOWN matrices in order,
 *          shared ones counted, the first eighth of the layers' number;
 *          of the model: GQA4 (four or more query heads per key head), GQA4_EXPERTS4 (or four or
 *          more experts), EXPERTS8, NOT_EXPERTS8; FIRST_8TH_OR_MORE: MORE only with EXPERTS8;
 *          ROW: the row is no multiple of the base's block
 * Those that need an importance matrix there (IQ1, IQ2, IQ3_XXS, IQ3_XS, Q2_K_S) are made as with
 * one, the others as without. NVFP4, which llama-quantize does not make, is as the converter makes
 * it from a model of that type with --outtype q8_0: every matrix has a scale (weights.c). Not here:
 * what depends on a model's name (70B). No include guard: define MIX, MIX_WHEN or MIX_RULE, then
 * include it. */
#ifndef MIX
#define MIX(name, base, file_type, family)
#endif
#ifndef MIX_WHEN
#define MIX_WHEN(mix, role, when, type)
#endif
#ifndef MIX_RULE
#define MIX_RULE(mix, role, type)
#endif

MIX(F16, F16, 1, PLAIN)
MIX(BF16, BF16, 32, PLAIN)
MIX(Q4_0, Q4_0, 2, ALL)
MIX(Q4_1, Q4_1, 3, ALL)
MIX(Q5_0, Q5_0, 8, ALL)
MIX(Q5_1, Q5_1, 9, ALL)
MIX(Q8_0, Q8_0, 7, ALL)
MIX(Q2_K, Q2_K, 10, ALL)
MIX(Q2_K_S, Q2_K, 21, ALL)
MIX(Q3_K_S, Q3_K, 11, ALL)
MIX(Q3_K_M, Q3_K, 12, ALL)
MIX(Q3_K_L, Q3_K, 13, ALL)
MIX(Q4_K_S, Q4_K, 14, ALL)
MIX(Q4_K_M, Q4_K, 15, ALL)
MIX(Q5_K_S, Q5_K, 16, ALL)
MIX(Q5_K_M, Q5_K, 17, ALL)
MIX(Q6_K, Q6_K, 18, ALL)
MIX(IQ1_S, IQ1_S, 24, LOW)
MIX(IQ1_M, IQ1_M, 31, LOW)
MIX(IQ2_XXS, IQ2_XXS, 19, LOW)
MIX(IQ2_XS, IQ2_XS, 20, LOW)
MIX(IQ2_S, IQ2_XS, 28, LOW)
MIX(IQ2_M, IQ2_S, 29, LOW)
MIX(IQ3_XXS, IQ3_XXS, 23, ALL)
MIX(IQ3_XS, IQ3_S, 22, ALL)
MIX(IQ3_S, IQ3_S, 26, ALL)
MIX(IQ3_M, IQ3_S, 27, ALL)
MIX(IQ4_NL, IQ4_NL, 25, ALL)
MIX(IQ4_XS, IQ4_XS, 30, ALL)
MIX(TQ1_0, TQ1_0, 36, ALL)
MIX(TQ2_0, TQ2_0, 37, ALL)
MIX(Q1_0, Q1_0, 40, ALL)
MIX(Q2_0, Q2_0, 41, ALL)
MIX(MXFP4, MXFP4, 38, FP4)
MIX(NVFP4, NVFP4, 39, PLAIN)

MIX_RULE(FP4, EXPERTS, MXFP4)
MIX_RULE(FP4, MATRIX, Q8_0)

MIX_RULE(NVFP4, OUTPUT, Q8_0)
MIX_RULE(NVFP4, EMBD, Q8_0)

MIX_WHEN(LOW, OUTPUT, ROW, Q8_0)
MIX_RULE(LOW, OUTPUT, Q5_K)
MIX_RULE(IQ2_S, EMBD, IQ3_S)
MIX_RULE(IQ2_M, EMBD, IQ3_S)
MIX_RULE(LOW, EMBD, Q2_K)
MIX_WHEN(LOW, V, GQA4_EXPERTS4, Q4_K)
MIX_RULE(IQ2_S, V, IQ3_S)
MIX_RULE(IQ2_M, V, IQ3_S)
MIX_RULE(LOW, V, Q2_K)
MIX_WHEN(LOW, K, EXPERTS8, Q4_K)
MIX_WHEN(IQ2_S, DOWN, FIRST_TENSORS, IQ3_S)
MIX_WHEN(IQ2_M, DOWN, FIRST_TENSORS, IQ3_S)
MIX_WHEN(LOW, DOWN, FIRST_TENSORS, Q2_K)
MIX_WHEN(LOW, O, EXPERTS8, Q5_K)
MIX_RULE(IQ1_S, O, IQ2_XXS)
MIX_RULE(IQ1_M, O, IQ2_XXS)
MIX_RULE(IQ2_S, O, IQ3_S)
MIX_RULE(IQ2_M, O, IQ3_S)

MIX_WHEN(ALL, OUTPUT, ROW, Q8_0)
MIX_RULE(IQ3_XXS, OUTPUT, Q5_K)
MIX_RULE(Q8_0, OUTPUT, Q8_0)
MIX_RULE(ALL, OUTPUT, Q6_K)
MIX_RULE(IQ3_XXS, EMBD, IQ3_S)
MIX_RULE(TQ1_0, EMBD, Q4_K)
MIX_RULE(TQ2_0, EMBD, Q4_K)
MIX_RULE(Q2_0, EMBD, Q4_K)

MIX_WHEN(ALL, V, EXPERTS8, Q8_0)
MIX_WHEN(Q2_K, V, GQA4, Q4_K)
MIX_RULE(Q2_K, V, Q3_K)
MIX_WHEN(Q2_K_S, V, GQA4, Q4_K)
MIX_WHEN(IQ3_XXS, V, GQA4, Q4_K)
MIX_WHEN(IQ3_XS, V, GQA4, Q4_K)
MIX_WHEN(IQ3_S, V, GQA4, Q4_K)
MIX_RULE(IQ3_M, V, Q4_K)
MIX_WHEN(Q3_K_M, V, FIRST_2, Q5_K)
MIX_RULE(Q3_K_M, V, Q4_K)
MIX_RULE(Q3_K_L, V, Q5_K)
MIX_WHEN(IQ4_NL, V, GQA4, Q5_K)
MIX_WHEN(IQ4_XS, V, GQA4, Q5_K)
MIX_WHEN(Q4_K_M, V, MORE, Q6_K)
MIX_WHEN(Q5_K_M, V, MORE, Q6_K)
MIX_WHEN(Q4_K_S, V, FIRST_4, Q5_K)

MIX_WHEN(ALL, K, EXPERTS8, Q8_0)
MIX_RULE(IQ3_XS, K, IQ3_XXS)
MIX_RULE(IQ3_XXS, K, IQ2_S)
MIX_RULE(IQ3_XS, Q, IQ3_XXS)
MIX_RULE(IQ3_XXS, Q, IQ2_S)

MIX_RULE(Q2_K, DOWN, Q3_K)
MIX_WHEN(Q2_K_S, DOWN, FIRST_8TH, Q4_K)
MIX_WHEN(Q3_K_M, DOWN, FIRST_16TH, Q5_K)
MIX_RULE(Q3_K_M, DOWN, Q4_K)
MIX_WHEN(IQ3_M, DOWN, FIRST_8TH_OR_MORE, Q4_K)
MIX_RULE(Q3_K_L, DOWN, Q5_K)
MIX_WHEN(Q4_K_M, DOWN, MORE, Q6_K)
MIX_WHEN(Q5_K_M, DOWN, MORE, Q6_K)
MIX_WHEN(IQ4_NL, DOWN, FIRST_8TH, Q5_K)
MIX_WHEN(IQ4_XS, DOWN, FIRST_8TH, Q5_K)
MIX_WHEN(Q4_K_S, DOWN, FIRST_8TH, Q5_K)

MIX_WHEN(Q2_K, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ3_XS, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ3_XXS, O, EXPERTS8, Q5_K)
MIX_WHEN(Q3_K_S, O, EXPERTS8, Q5_K)
MIX_WHEN(Q3_K_M, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ4_NL, O, EXPERTS8, Q5_K)
MIX_WHEN(Q4_K_S, O, EXPERTS8, Q5_K)
MIX_WHEN(Q4_K_M, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ3_S, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ3_M, O, EXPERTS8, Q5_K)
MIX_WHEN(IQ4_XS, O, EXPERTS8, Q5_K)
MIX_RULE(Q2_K, O, Q3_K)
MIX_RULE(IQ3_XXS, O, IQ3_S)
MIX_RULE(Q3_K_M, O, Q4_K)
MIX_WHEN(Q3_K_L, O, NOT_EXPERTS8, Q5_K)
MIX_RULE(IQ3_M, O, Q4_K)

MIX_WHEN(IQ3_XS, GATE, MIDDLE, IQ3_XXS)
MIX_WHEN(IQ3_XS, UP, MIDDLE, IQ3_XXS)

#undef MIX
#undef MIX_WHEN
#undef MIX_RULE
