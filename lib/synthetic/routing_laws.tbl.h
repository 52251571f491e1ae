/* SPDX-License-Identifier: Apache-2.0 */
/* LAW(experts, used, skew, locality, weights_skew, weights_locality): routing_law.h. Fitted, with
 * TOKEN_STREAM_STAY, to the misses of LRU in the recordings of tests/traces: docs/lab/routing.md.
 * Rows of one number of experts are in ascending order of those used. */
LAW(64, 8, 0.6f, 0.9f, 0.3f, 0.95f)    /* OLMoE-1B-7B */
LAW(128, 2, 0.75f, 0.9f, 0.75f, 0.9f)  /* gpt-oss-120b, with 2 used instead of 4 */
LAW(128, 6, 1.1f, 0.5f, 0.97f, 0.6f)   /* Qwen3-30B-A3B and Gemma-4-26B-A4B, with 6 instead of 8 */
LAW(256, 8, 0.58f, 0.93f, 0.5f, 0.99f) /* Kimi-Linear-48B-A3B */
#undef LAW
