#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words of every pre-tokenizer by the Python package regex, from the expressions as the models' tokenizer.json
(tiktoken's source for kimi-k2) have them, on random Unicode text.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install regex==2025.9.18 unicodedata2==16.0.0
    venv/bin/python tests/golden/expression_vectors.py tests/golden/data/tokenizers/expressions.json    # unit_tokenizer_words
    venv/bin/python tests/golden/expression_vectors.py --compare build/tests/peer_tokens 2000      # texts per pre-tokenizer

The characters are those of Unicode 16, with which regex agrees; those that PCRE2's Unicode 14 lacks are more frequent
than others."""
import json
import random
import subprocess
import sys
import unicodedata

import regex
import unicodedata2

GPT2 = [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"]
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ONE_DIGIT, THREE_DIGITS = [CL100K % r"\p{N}"], [CL100K % r"\p{N}{1,3}"]
QWEN35 = [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]"


def cased(without, after):
    upper, lower = UPPER % without, LOWER % without
    return rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{after}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{after}"


REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = [cased("", CONTRACTION + "?") + r"|\p{N}{1,3}|" + REST]
TEKKEN = [cased("", "") + r"|\p{N}|" + REST]
KIMI = [r"(?V1)[\p{Han}]+|" + cased(r"&&[^\p{Han}]", CONTRACTION + "?") + r"|\p{N}{1,3}|" + REST.replace("\\n/", "\\n")]
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943")
# \b after a digit, as the package tokenizers has it; that of regex has other letters of words.
WORD_END = r"(?![\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xb2\xb3\xb9\xbc-\xbe])"
# As in the tokenizer.json of Trinity: runs of more than 510 digits, the digits that are left over, and threes.
AFMOE_DIGITS = [r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
                r"\A\p{Nd}{3}|\G\p{Nd}{3}"]
AFMOE_SCRIPTS = (r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+"
                 r"|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+"
                 r"|[\uAC00-\uD7AF\u1100-\u11FF]+)")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_LLM = [r"[\r\n]", r"\s?[" + LETTERS + "]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK, r"\p{N}"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"]
BAILING = [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"]

EXAONE = [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"]

EXPRESSIONS = [
    (GPT2, "default gpt-2 olmo mpt phi-2 gigachat mellum"),
    (ONE_DIGIT, "qwen2 deepseek-r1-qwen hunyuan megrez stablelm2 grok-2 solar-open"),
    (THREE_DIGITS, "llama-bpe llama3 llama-v3 dbrx glm4 glm5 chatglm-bpe lfm2 smaug-bpe pixtral falcon3"),
    (QWEN35, "qwen35"),
    (GPT4O, "gpt-4o llama4 minimax-m2 kanana2"),
    (TEKKEN, "tekken"),
    (KIMI, "kimi-k2"),
    (DEEPSEEK_LLM, "deepseek-llm"),
    (DEEPSEEK_CODER, "deepseek-coder"),
    (DEEPSEEK_V3, "deepseek-v3 hunyuan-dense hy_v4 joyai-llm"),
    (BAILING, "bailingmoe bailingmoe2 llada-moe"),
    ([r"\p{N}"] + GPT2, "refact starcoder command-r smollm mellum2"),
    (EXAONE, "exaone-moe"),
    # Published: (?:\r?\n)+(?!\r?\n), merged with the text behind each match.
    ([r"(?:\r?\n)++(?:[^\r\n]|\r(?!\n))*+", *ONE_DIGIT], "laguna"),
    ([*AFMOE_DIGITS, AFMOE_SCRIPTS, DEEPSEEK_V3[2]], "afmoe"),
    ([r"\d{1,3}(?=(?:\d{3})*" + WORD_END + ")"] + GPT4O, "tiny_aya cohere2moe"),
]

# What the expressions distinguish: more frequent than other characters.
NOTABLE = list(" \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2003\u2028\u200b\u202f\u3000\ufeff\x1c\x1f'\u2019sStTrReEvVmMlLdD"
               "\u017f\u212a09\u0663\u00b2\u2167\u0301\u093e\u01c5\u02b0\u4e00\u3042\u30a2\u30fc\uac00\U0001f600"
               "\u200d\ufe0f\u3005\u3007\u2f00\u2e80\u309b!/$+<=>^`|~_-\\[]{}()#@%&*.,:;?\"\u00e4\u00c4\u0434\u0414\u05d0\u0e01")
RUNS = [" ", "  ", "\n", "\r\n", "'s", "'LL", "'re", "abc", "Abc", "ABC", "a", "123", "4567", " x", "\u4e2d\u6587", "\u00e9"]


def characters():
    """All, and after them once more those of Unicode 15 and 16, so that they are a third."""
    every = [chr(c) for c in range(0x110000) if unicodedata2.category(chr(c)) not in ("Cn", "Cs", "Co")]
    newer = [c for c in every if unicodedata.category(c) == "Cn"]
    assert unicodedata2.unidata_version == "16.0.0"
    return every + [newer[i % len(newer)] for i in range(len(every) // 2 if newer else 0)]


def random_text(rng, everything):
    out = []
    for _ in range(rng.randrange(1, 40)):
        kind = rng.random()
        out.append(rng.choice(NOTABLE) if kind < 0.5 else rng.choice(RUNS) if kind < 0.75 else
                   rng.choice(everything) if kind < 0.95 else chr(rng.randrange(32, 127)))
    return "".join(out)


def compiled_of(expressions):
    """In Oniguruma, a plus after {3} repeats it, and \\z is the end."""
    return [regex.compile(e.replace("{3}+\\z", "{3})+\\Z").replace("(?=\\p{Nd}{3})+", "(?=(?:\\p{Nd}{3})+")) for e in expressions]


def words(text, expressions):
    """Each expression splits every part into its matches and the stretches between them."""
    parts = [text]
    for e in expressions:
        split = []
        for part in parts:
            at = 0
            for m in e.finditer(part):
                split += [part[at:m.start()], m.group()]
                at = m.end()
            split.append(part[at:])
        parts = [p for p in split if p]
    return [len(p.encode()) for p in parts]


def compare(program, count):
    rng, everything, wrong = random.Random(11), characters(), 0
    for expressions, names in EXPRESSIONS:
        compiled = compiled_of(expressions)
        texts = [random_text(rng, everything) for _ in range(count)]
        want = [words(t, compiled) for t in texts]
        given = b"".join(b"%d\n%s" % (len(t.encode()), t.encode()) for t in texts)
        for name in names.split():
            out = subprocess.run([program, "split", name], input=given, stdout=subprocess.PIPE, check=True).stdout
            got = [[int(n) for n in line.split()] for line in out.decode().splitlines()]
            bad = [i for i in range(count) if i >= len(got) or got[i] != want[i]]
            print(f"{name}: {count - len(bad)} of {count} texts")
            for i in bad[:3]:
                print(f"  {texts[i]!r}: {got[i] if i < len(got) else None}, not {want[i]}")
            wrong += len(bad)
    return 1 if wrong else 0


def vectors(path):
    assert unicodedata.unidata_version == "14.0.0" # of Python 3.11, as PCRE2's
    rng, everything, rows = random.Random(12), characters(), []
    for expressions, names in EXPRESSIONS:
        compiled = compiled_of(expressions)
        texts = [random_text(rng, everything) for _ in range(30)]
        rows.append({"names": names.split(), "vectors": [{"text": t, "words": words(t, compiled)} for t in texts]})
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--compare":
        sys.exit(compare(sys.argv[2], int(sys.argv[3])))
    vectors(sys.argv[1])
