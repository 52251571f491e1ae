/* SPDX-License-Identifier: Apache-2.0 */
/* The forms in which an indexer makes scores of the products of its queries with its keys.
 * INDEX_FORM(NAME, relu, weighted, own)
 *   relu      products below 0 count as 0
 *   weighted  the heads of a row have weights; else each counts once
 *   own       every head has scores of its own; else the heads are added, in ascending order
 * No include guard. */
INDEX_FORM(WEIGHTED, true, true, false) /* DeepSeek-V3.2, GLM-5: sum of w relu(q k) */
INDEX_FORM(PLAIN, true, false, false)   /* Qwen3.8: sum of relu(q k) */
INDEX_FORM(HEADS, false, false, true)   /* MiniMax-M3: q k, for each key head of attention */
#undef INDEX_FORM
