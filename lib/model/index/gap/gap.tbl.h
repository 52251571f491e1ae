/* SPDX-License-Identifier: Apache-2.0 */
/* Control tokens of prompts with a gap, by which models are recognised that name none in their
 * file. GAP(before, after, fill): before the text that precedes the gap, before the text that
 * follows it, and before what the model writes. No include guard. The names are those of the
 * models' vocabularies. */
GAP("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
GAP("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
GAP("<fim-prefix>", "<fim-suffix>", "<fim-middle>")
GAP("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")
GAP("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>")
GAP("▁<PRE>", "▁<SUF>", "▁<MID>")
#undef GAP
