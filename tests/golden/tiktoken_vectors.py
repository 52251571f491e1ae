#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Token ids of the package tiktoken: the reference of unit_hf_tiktoken.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install tiktoken==0.14.0 regex==2025.9.18
    venv/bin/python tests/golden/tiktoken_vectors.py tests/golden/data

writes DATA/tokenizers/ranks.tiktoken, a vocabulary of bytes trained on DATA/heldout and texts of other languages, with
tokens that its own ranks do not reach, and tiktoken.json: texts and ids with the expressions of Kimi-K2 and Hunyuan.

    venv/bin/python tests/golden/tiktoken_vectors.py --of FILE.gguf DIR

writes the same of a vocabulary that a GGUF file has, DIR/ranks.tiktoken and DIR/tiktoken.json; further texts are the
lines of FILE.gguf.inp. Needs the package gguf."""
import base64
import collections
import glob
import json
import random
import sys

import regex
import tiktoken

END = "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
KIMI = ("[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" + UPPER + "*" + LOWER + "+" + SHORT + "?|[^\\r\\n\\p{L}\\p{N}]?" + UPPER +
        "+" + LOWER + "*" + SHORT + "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
EXPRESSIONS = [KIMI, SHORT + END]  # in the order of HF_TIKTOKEN
LANGUAGES = [
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430 \u0441\u0435\u0433\u043e\u0434\u043d\u044f? ",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u5427\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0643\u064a\u0641 \u062d\u0627\u0644\u0643\u061f ",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e, \u0906\u092a \u0915\u0948\u0938\u0947 \u0939\u0948\u0902? ",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4, \uc624\ub298 \ub0a0\uc528\uac00 \uc88b\ub124\uc694. ",
    "Gr\u00fc\u00dfe aus K\u00f6ln, \u00e7a va tr\u00e8s bien, \u00bfqu\u00e9 tal? ",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 = 1234567 * 3.25e-7;\n\n\tif (x) {\n        return;\n}\r\n",
]
EDGES = ["", " ", "a", "aaaaaaaaaaaaaaaaaaaaa", "aaa aaaa", "   x", "x   ", "\n\n \n", "\u00a0\u3000", "don't WE'LL they'RE",
         "1234567890", "abababababababab", "HelloWorldFOO\u4f60\u597dBar", "e\u0301e\u0301", "\u0000\u0001", "=" * 70, " " * 90]


def train(corpus, count):
    """Ranks of bytes, then of pairs of neighbours in words, by frequency."""
    ranks = {bytes([b]): i for i, b in enumerate(random.Random(5).sample(range(256), 256))}
    words = collections.Counter(tuple(bytes([b]) for b in w.encode()) for w in regex.findall(EXPRESSIONS[1], corpus))
    while len(ranks) < count:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = max(pairs, key=lambda p: (pairs[p], p))
        ranks[best[0] + best[1]] = len(ranks)
        merged = collections.Counter()
        for word, n in words.items():
            out = []
            for part in word:
                out.append(part)
                while len(out) > 1 and (out[-2], out[-1]) == best:
                    out[-2:] = [out[-2] + out[-1]]
                    break
            merged[tuple(out)] += n
        words = merged
    return ranks


def texts_of(corpus, count, seed):
    rng = random.Random(seed)
    letters = "".join(LANGUAGES) + corpus[:2000] + " \n'\u0e01\u0e34\u17d2\U00010400\ufffd"
    texts = list(EDGES) + LANGUAGES
    for _ in range(count):
        at = rng.randrange(max(1, len(corpus) - 200))
        texts.append(corpus[at:at + rng.randrange(1, 200)])
        texts.append("".join(rng.choice(letters) for _ in range(rng.randrange(1, 60))))
        texts.append("".join(chr(c) for c in (rng.choice((rng.randrange(32, 0x3000), rng.randrange(0x3400, 0xd000),
                     rng.randrange(0xe000, 0x110000))) for _ in range(rng.randrange(1, 25)))))
    return texts


def write(folder, ranks, texts):
    with open(f"{folder}/ranks.tiktoken", "wb") as f:
        for token, rank in sorted(ranks.items(), key=lambda r: r[1]):
            f.write(base64.b64encode(token) + b" %d\n" % rank)
    vectors = []
    for row, expression in enumerate(EXPRESSIONS):
        encoding = tiktoken.Encoding("ours", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
        vectors += [{"row": row, "text": t, "ids": encoding.encode_ordinary(t)} for t in texts]
    with open(f"{folder}/tiktoken.json", "w") as f:
        f.write("[" + ",\n ".join(json.dumps(v, separators=(",", ":")) for v in vectors) + "]\n")
    print(f"{len(ranks)} tokens, {len(vectors)} texts")


def alphabet():
    printable = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or 0xae <= b]
    rest = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(rest)}


def of_gguf(path, folder):
    import gguf
    fields = gguf.GGUFReader(path).fields
    names, types = (fields["tokenizer.ggml." + k] for k in ("tokens", "token_type"))
    codes, ranks = alphabet(), {}
    for i, n in enumerate(names.data):
        if types.parts[types.data[i]][0] == 1:
            ranks.setdefault(bytes(codes[c] for c in bytes(names.parts[n]).decode()), len(ranks))
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        lines = f.read()
    write(folder, ranks, texts_of(lines, 300, 11) + lines.split("__ggml_vocab_test__"))


def main():
    if sys.argv[1] == "--of":
        return of_gguf(sys.argv[2], sys.argv[3])
    corpus = ""
    for path in sorted(glob.glob(f"{sys.argv[1]}/heldout/*.txt")):
        with open(path, encoding="utf-8") as f:
            corpus += f.read()[:20000]
    ranks = train(corpus + "".join(LANGUAGES) * 30, 700)
    # Tokens that the ranks do not reach, and one that has a part of higher rank.
    for token in ("qzxj".encode(), "\u4f60\u6c34".encode(), b"  zzq", b"zzq"):
        ranks.setdefault(token, len(ranks))
    ranks.setdefault(b"xyzzyx", len(ranks))
    ranks.setdefault(b"xyzz", len(ranks))
    ranks.setdefault(b"xy", len(ranks))
    ranks.setdefault(b"zz", len(ranks))
    extra = ["qzxj", "aqzxjb", " zzq", "  zzq zzqzzq", "xyzzyx xyzzy xxyzzyxx", "zzzzyxyx", "\u4f60\u6c34\u4f60"]
    write(f"{sys.argv[1]}/tokenizers", ranks, texts_of(corpus, 25, 3) + extra)


main()
