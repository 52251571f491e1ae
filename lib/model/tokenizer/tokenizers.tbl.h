/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers of byte-level BPE: the rules that split text into words before merging.
 * PRETOKENIZER(name, ignore_merges, expression)
 *   name           value of tokenizer.ggml.pre
 *   ignore_merges  1: a word that is a token is not merged
 *   expression     the original one of the model's tokenizer.json (PCRE2 with UTF and UCP)
 * Append only: row numbers are stored in model segments. Do not use versions of the expressions
 * that were rewritten for engines with fewer features: some differ, some need unbounded stack. No
 * include guard: include it with PRETOKENIZER defined. */
#define EXPR_GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define EXPR_CL100K(digits)                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
PRETOKENIZER("default", 0, EXPR_GPT2)
PRETOKENIZER("gpt-2", 0, EXPR_GPT2)
PRETOKENIZER("qwen2", 0, EXPR_CL100K("\\p{N}"))
PRETOKENIZER("deepseek-r1-qwen", 0, EXPR_CL100K("\\p{N}"))
PRETOKENIZER("llama-bpe", 1, EXPR_CL100K("\\p{N}{1,3}"))
PRETOKENIZER("llama3", 1, EXPR_CL100K("\\p{N}{1,3}"))
PRETOKENIZER("llama-v3", 1, EXPR_CL100K("\\p{N}{1,3}"))
PRETOKENIZER("dbrx", 0, EXPR_CL100K("\\p{N}{1,3}"))
PRETOKENIZER("olmo", 0, EXPR_GPT2)
#undef EXPR_GPT2
#undef EXPR_CL100K
#undef PRETOKENIZER
