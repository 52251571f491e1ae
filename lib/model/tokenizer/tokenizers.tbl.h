/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers of byte-level BPE: the rules that split text into words before merging.
 * PRETOKENIZER(name, ignore_merges, add_bos, nfc, expression...)
 *   name           value of tokenizer.ggml.pre
 *   ignore_merges  1: a word that is a token is not merged. GGUF has no key for it: the key
 *                  tokenizer.ggml.ignore_merges, which "sluice pack" writes where tokenizer.json
 *                  differs from the row, overrides it
 *   add_bos        1: a text starts with the BOS token where tokenizer.ggml.add_bos_token is
 *                  missing
 *   nfc            1: the normalizer of the model's tokenizer.json is NFC; GGUF has no key for it.
 *                  The classes of transformers state it: Qwen2Tokenizer (qwen2, and DeepSeek's
 *                  models that are made from Qwen's), Qwen3_5Tokenizer (qwen35), GPTNeoXTokenizer
 *                  (olmo, mpt) and CohereTokenizer (command-r). No other row is known to have a
 *                  normalizer; the key tokenizer.ggml.normalizer.nfc overrides it in the same way
 *   expression...  the original ones of the model's tokenizer.json (PCRE2 with UTF and UCP), at
 *                  most TOKENIZER_EXPRESSIONS_MAX: the first splits the text into its matches and
 *                  the stretches between them, the next one splits each of these parts, and so on.
 *                  Digits (tokenizers' "individual_digits") is an expression, too.
 * kimi-k2 and hunyuan are tiktoken's, which does not merge a word that is a token. That is the only
 * difference of these flags from llama.cpp's (src/llama-vocab.cpp), which has 0 for the two; its
 * own code for kimi-k2 keeps neither the rule of the letters' case nor marks with their letters:
 * here it is the published expression.
 * PUBLISHED(here, published...)  the text in tokenizer.json of an expression that is another one
 *                         here, with the same matches; or several, one step each
 * CHARACTERS(name)        value of tokenizer.ggml.pre that makes a "gpt2" model one of characters,
 *                         as "gemma4" is
 * STRIP_AFTER(key, text)  SentencePiece models whose control tokens take the blanks after them
 *                         (`rstrip` of tokenizer.json, which GGUF does not have): the value of the
 *                         key, in lower case, contains the text
 * STRIP_NONE(piece)       control tokens of these models that do not
 * ANSWER_END(token, with)  a token that ends an answer, in addition to those that the file names,
 *                         if the vocabulary has the other one, too. At most TOKENIZER_ENDS - 2
 *                         rows. Both are control tokens or user-defined ones: converters make
 *                         control tokens only of those that the model's files call special, or that
 *                         look so, which <|tool_response> does not
 * ANSWER_END_NAME(token)  a control token that ends an answer wherever a vocabulary has it: files
 *                         name only one end, often that of documents and not that of turns, or the
 *                         reverse. The first rows, up to what TOKENIZER_ENDS leaves
 * ANSWER_GOES_ON(token, with)  a token that does not, although the file names it, if the
 *                         vocabulary has the other one, too; the other one is the end where the
 *                         file has this one as EOS
 *
 * Append only: row numbers are stored in model segments. Do not use versions of the expressions
 * that were rewritten for engines with fewer features: some differ, some need unbounded stack. No
 * include guard: include it with PRETOKENIZER, CHARACTERS, with STRIP_AFTER and STRIP_NONE, with
 * ANSWER_END, with ANSWER_END_NAME, or with ANSWER_GOES_ON defined. */
#ifndef PRETOKENIZER
#define PRETOKENIZER(...)
#endif
#ifndef PUBLISHED
#define PUBLISHED(...)
#endif
#ifndef CHARACTERS
#define CHARACTERS(...)
#endif
#ifndef STRIP_AFTER
#define STRIP_AFTER(...)
#define STRIP_NONE(...)
#endif
#ifndef ANSWER_END
#define ANSWER_END(...)
#endif
#ifndef ANSWER_END_NAME
#define ANSWER_END_NAME(...)
#endif
#ifndef ANSWER_GOES_ON
#define ANSWER_GOES_ON(...)
#endif
#define EXPR_GPT2        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define EXPR_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define EXPR_CL100K(digits)                                                                        \
    EXPR_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                      \
                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define EXPR_QWEN35                                                                                \
    EXPR_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"   \
                     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define EXPR_O200K(after, digits)                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER   \
    "*" after "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* PCRE2 has no intersection of classes: [...&&[^\p{Han}]] is a class after a negative lookahead. */
#define NOT_HAN(class) "(?:(?!\\p{sc:Han})" class ")"
#define EXPR_KIMI                                                                                  \
    "\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "*" NOT_HAN(                              \
        LOWER) "+" EXPR_CONTRACTION                                                                \
               "?|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(UPPER) "+" NOT_HAN(                              \
                   LOWER) "*" EXPR_CONTRACTION "?|\\p{N}{1,3}| "                                   \
                          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define EXPR_DEEPSEEK_HAN "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define EXPR_DEEPSEEK_WORDS                                                                        \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^"                                     \
    "\r\n"                                                                                         \
    "\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                                                          \
    "| ?[\\p{P}\\p{S}]+["                                                                          \
    "\r\n"                                                                                         \
    "]*|\\s*["                                                                                     \
    "\r\n"                                                                                         \
    "]+|\\s+(?!\\S)|\\s+"
#define EXPR_DEEPSEEK_CJK "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
/* The letters of alphabets with two cases. */
#define EXPR_DEEPSEEK_LETTERS                                                                      \
    "\\s?["                                                                                        \
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"                \
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"           \
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"               \
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"               \
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"         \
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"          \
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"                \
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"           \
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"          \
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"                \
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"                            \
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"         \
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"                              \
    "]+"
#define EXPR_DEEPSEEK_SIGNS "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
#define EXPR_BAILING                                                                               \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "                                \
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]"                                                  \
    "|\\s+(?!\\S)|\\s+"
/* Words that single spaces separate are one part: possessive here, which matches the same and needs
 * no stack for each word. */
#define EXPR_EXAONE                                                                                \
    EXPR_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| "   \
                     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
/* Runs of digits are cut in threes from their end. The first part may have fewer: it is only looked
 * for at the start of a run, so that a long one does not take long. The published tokenizer does
 * that in three steps. llama.cpp does it with all numbers, \p{N}. */
#define EXPR_DIGITS_FROM_END "(?<!\\p{Nd})\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})*+(?!\\p{Nd}))|\\p{Nd}{3}"
PUBLISHED(EXPR_DIGITS_FROM_END, "\\p{Nd}{1,510}(?=(?>\\p{Nd}{510})*(?:\\P{Nd}|$))|\\G\\p{Nd}{510}",
          "\\A\\p{Nd}{1,2}(?=\\p{Nd}{3}+\\z)", "\\A\\p{Nd}{3}|\\G\\p{Nd}{3}")
/* Han and kana, Thai, Lao, Khmer, Myanmar, Hangul. llama.cpp has one class of all of them, with
 * U+8C48 for U+F900, to which its text was normalised, and Thai from U+0E40 on. */
#define EXPR_AFMOE_SCRIPTS                                                                         \
    "[\u4e00-\u9fff\u3040-\u309f\u30a0-\u30ff\u3400-\u4dbf\uf900-\ufaff\uff65-\uff9f\u2f00-"       \
    "\u2fdf]+"                                                                                     \
    "|[\\x{e00}-\\x{e7f}]+|[\\x{e80}-\\x{eff}]+|[\u1780-\u17ff]+"                                  \
    "|[\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff]+|[\uac00-\ud7af\u1100-\u11ff]+"
PUBLISHED(EXPR_AFMOE_SCRIPTS,
          "(?:[\\u4E00-\\u9FFF\\u3040-\\u309F\\u30A0-\\u30FF\\u3400-\\u4DBF\\uf900-\\uFAFF"
          "\\uFF65-\\uFF9F\\u2F00-\\u2FDF]+|[\\u0E00-\\u0E7F]+|[\\u0E80-\\u0EFF]+"
          "|[\\u1780-\\u17FF]+|[\\u1000-\\u109F\\uAA60-\\uAA7F\\uA9E0-\\uA9FF]+"
          "|[\\uAC00-\\uD7AF\\u1100-\\u11FF]+)")
/* Line feeds with the text behind them, which the published tokenizer merges with it. llama.cpp has
 * them apart from it, and so cuts CR LF. */
#define EXPR_LAGUNA_LINES "(?:\\r?\\n)++(?:[^\\r\\n]|\\r(?!\\n))*+"
PUBLISHED(EXPR_LAGUNA_LINES, "(?:\\r?\\n)+(?!\\r?\\n) MergedWithNext")
/* Digits in threes from the end, of a run that ends where a word does. The published expression
 * looks for that end again from each digit: here it is done once per run, and its other groups
 * follow each other. The class is that of \b in tokenizers, PCRE2 has another one. */
#define WORD_CLASS   "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define EXPR_GROUPED "(?<!\\d)\\d{1,3}(?=(?:\\d{3})*+(?!" WORD_CLASS "))|(?<=\\d)\\G\\d{3}"
PUBLISHED(EXPR_GROUPED, "\\d{1,3}(?=(?:\\d{3})*\\b)")

#define DIGIT  "\\p{N}"
#define DIGITS "\\p{N}{1,3}"
PRETOKENIZER("default", 0, 0, 0, EXPR_GPT2)
PRETOKENIZER("gpt-2", 0, 0, 0, EXPR_GPT2)
PRETOKENIZER("qwen2", 0, 0, 1, EXPR_CL100K(DIGIT))
PRETOKENIZER("deepseek-r1-qwen", 0, 0, 1, EXPR_CL100K(DIGIT))
PRETOKENIZER("llama-bpe", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("llama3", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("llama-v3", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("dbrx", 0, 0, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("olmo", 0, 0, 1, EXPR_GPT2)
PRETOKENIZER("qwen35", 0, 0, 1, EXPR_QWEN35)
PRETOKENIZER("gpt-4o", 0, 0, 0, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
PRETOKENIZER("llama4", 0, 0, 0, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
PRETOKENIZER("minimax-m2", 0, 0, 0, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
PRETOKENIZER("tekken", 1, 1, 0, EXPR_O200K("", DIGIT))
PRETOKENIZER("kimi-k2", 1, 0, 0, EXPR_KIMI)
PRETOKENIZER("deepseek-llm", 0, 0, 0, "[\r\n]", EXPR_DEEPSEEK_LETTERS, EXPR_DEEPSEEK_SIGNS, "\\s+$",
             EXPR_DEEPSEEK_CJK, DIGIT)
PRETOKENIZER("deepseek-coder", 0, 0, 0, "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EXPR_DEEPSEEK_CJK,
             DIGIT)
PRETOKENIZER("deepseek-v3", 0, 0, 0, DIGITS, EXPR_DEEPSEEK_HAN, EXPR_DEEPSEEK_WORDS)
PRETOKENIZER("hunyuan-dense", 0, 0, 0, DIGITS, EXPR_DEEPSEEK_HAN, EXPR_DEEPSEEK_WORDS)
PRETOKENIZER("hy_v4", 0, 0, 0, DIGITS, EXPR_DEEPSEEK_HAN, EXPR_DEEPSEEK_WORDS)
PRETOKENIZER("joyai-llm", 0, 0, 0, DIGITS, EXPR_DEEPSEEK_HAN, EXPR_DEEPSEEK_WORDS)
PRETOKENIZER("hunyuan", 1, 0, 0, EXPR_CL100K(DIGIT))
PRETOKENIZER("glm4", 1, 0, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("glm5", 1, 0, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("chatglm-bpe", 0, 0, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("lfm2", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("bailingmoe", 0, 0, 0, EXPR_BAILING)
PRETOKENIZER("bailingmoe2", 0, 0, 0, EXPR_BAILING)
PRETOKENIZER("llada-moe", 0, 0, 0, EXPR_BAILING)
PRETOKENIZER("refact", 0, 0, 0, DIGIT, EXPR_GPT2)
PRETOKENIZER("starcoder", 0, 0, 0, DIGIT, EXPR_GPT2)
PRETOKENIZER("command-r", 0, 0, 1, DIGIT, EXPR_GPT2)
PRETOKENIZER("smollm", 0, 0, 0, DIGIT, EXPR_GPT2)
PRETOKENIZER("mellum2", 0, 0, 0, DIGIT, EXPR_GPT2)
PRETOKENIZER("mpt", 0, 0, 1, EXPR_GPT2)
PRETOKENIZER("phi-2", 0, 0, 0, EXPR_GPT2)
PRETOKENIZER("gigachat", 0, 0, 0, EXPR_GPT2)
PRETOKENIZER("mellum", 0, 0, 0, EXPR_GPT2)
PRETOKENIZER("megrez", 0, 0, 0, EXPR_CL100K(DIGIT))
PRETOKENIZER("stablelm2", 0, 0, 0, EXPR_CL100K(DIGIT))
PRETOKENIZER("grok-2", 0, 0, 0, EXPR_CL100K(DIGIT))
PRETOKENIZER("solar-open", 0, 0, 0, EXPR_CL100K(DIGIT))
PRETOKENIZER("smaug-bpe", 0, 0, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("pixtral", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("falcon3", 1, 1, 0, EXPR_CL100K(DIGITS))
PRETOKENIZER("exaone-moe", 0, 0, 0, EXPR_EXAONE)
PRETOKENIZER("laguna", 0, 0, 0, EXPR_LAGUNA_LINES, EXPR_CL100K(DIGIT))
PRETOKENIZER("afmoe", 0, 0, 0, EXPR_DIGITS_FROM_END, EXPR_AFMOE_SCRIPTS, EXPR_DEEPSEEK_WORDS)
PRETOKENIZER("tiny_aya", 0, 0, 0, EXPR_GROUPED, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
PRETOKENIZER("cohere2moe", 0, 0, 0, EXPR_GROUPED, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
PRETOKENIZER("kanana2", 0, 0, 0, EXPR_O200K(EXPR_CONTRACTION "?", DIGITS))
CHARACTERS("sarvam-moe")
STRIP_AFTER("general.name", "phi-3")
STRIP_AFTER("general.name", "phi3")
STRIP_AFTER("general.name", "phi 3")
STRIP_AFTER("general.architecture", "phimoe")
STRIP_NONE("<s>")
STRIP_NONE("<|endoftext|>")
/* Harmony (gpt-oss): a call of a tool ends the turn, the end of a message does not. */
ANSWER_END("<|call|>", "<|return|>")
ANSWER_END("<|return|>", "<|end|>")
ANSWER_GOES_ON("<|end|>", "<|return|>")
/* Solar Open: calls of tools, or the text, end the turn; <|end|> ends the thoughts before it. */
ANSWER_END("<|flush|>", "<|calls|>")
ANSWER_END("<|calls|>", "<|flush|>")
ANSWER_GOES_ON("<|end|>", "<|flush|>")
/* Gemma 4: the response of a tool, which follows its call, is not the model's. */
ANSWER_END("<|tool_response>", "<turn|>")
ANSWER_END("<eos>", "<turn|>")
/* These names are those of llama.cpp. */
ANSWER_END_NAME("<|eot_id|>")
ANSWER_END_NAME("<|im_end|>")
ANSWER_END_NAME("<|end|>")
ANSWER_END_NAME("<end_of_turn>")
ANSWER_END_NAME("<turn|>")
ANSWER_END_NAME("<|endoftext|>")
ANSWER_END_NAME("<|end_of_text|>")
ANSWER_END_NAME("<|eom_id|>")
#undef EXPR_GPT2
#undef EXPR_CONTRACTION
#undef EXPR_CL100K
#undef EXPR_QWEN35
#undef UPPER
#undef LOWER
#undef EXPR_O200K
#undef NOT_HAN
#undef EXPR_KIMI
#undef EXPR_DIGITS_FROM_END
#undef EXPR_AFMOE_SCRIPTS
#undef EXPR_LAGUNA_LINES
#undef WORD_CLASS
#undef EXPR_GROUPED
#undef EXPR_DEEPSEEK_HAN
#undef EXPR_DEEPSEEK_WORDS
#undef EXPR_DEEPSEEK_CJK
#undef EXPR_DEEPSEEK_LETTERS
#undef EXPR_DEEPSEEK_SIGNS
#undef EXPR_BAILING
#undef EXPR_EXAONE
#undef DIGIT
#undef DIGITS
#undef PRETOKENIZER
#undef PUBLISHED
#undef CHARACTERS
#undef STRIP_AFTER
#undef STRIP_NONE
#undef ANSWER_END
#undef ANSWER_END_NAME
#undef ANSWER_GOES_ON
