#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small tokenizers as GGUF files, and the token ids that the packages they were trained with give for
some texts: the reference of unit_tokenizer_models.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install sentencepiece tokenizers==0.23.3 gguf numpy unicodedata2==16.0.0
    venv/bin/python tests/golden/tokenizer_vectors.py tests/golden/data
    venv/bin/python tests/golden/tokenizer_vectors.py tests/golden/data nfc    # olmo and nfc only

DATA/heldout/*.txt is the training text. Written to DATA/tokenizers: NAME.gguf (a model with
minimal weights, so that the reader accepts it) and vectors.json.

    spm         SentencePiece BPE as in Llama and Mixtral: byte fallback, a space prepended, runs of spaces are
                pieces, single digits
    spm_across  the same with pieces across spaces, and without the prepended space
    olmo        byte-level BPE as in OLMo (GPT-NeoX): NFC, runs of spaces are added tokens
    nfc         byte-level BPE as in Qwen2: NFC, its expression, control tokens; on random texts of characters that
                NFC changes, of characters that are newer than PCRE2's Unicode, and of Vietnamese and Korean

and spm.json, spm_across.json: the first two as tokenizer.json, with the ids of the package `tokenizers`
(vectors_hf.json; texts without special and added tokens, which it matches first)."""
import glob
import io
import json
import os
import random
import sys
import unicodedata

import gguf
import numpy as np
import sentencepiece
import tokenizers
import unicodedata2
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "Hello world", "Hello  world", "   leading", "trailing   ",
    "\n", "\n\n", "a\nb", "\ttab\tand\r\nreturn", "1234567890", "3.14 and 1,000", "don't, I'll, we've",
    "It's HELLO, hell and HE'LL", "na\u00efve caf\u00e9 \u00dcber", "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2581literal\u2581lower one eighth block", "<s>not a token</s> <0x41> <unk>", "x<tag>y <tag> z",
    "<tag>", "<tag><tag>", "def f(x):\n        return x  # eight spaces\n", "e\u0301 combining",
    "\u00a0no-break\u3000ideographic\u2003em", "aaaaaaaaaaaaaaaaaaaaaaaa", "=======------=======",
    "http://example.org/a?b=c&d=%20", "\u0000nul", "\ufffd\ufeff", "mixed \u4e2d text\u6587 here",
]


def sample_texts(corpus):
    rng = random.Random(7)
    texts = list(TEXTS)
    for _ in range(24):
        at = rng.randrange(len(corpus) - 400)
        texts.append(corpus[at:at + rng.randrange(5, 300)])
    alphabet = [" ", " ", "a", "b", "th", "e", "\n", "\u2581", "7", ".", "\u00e9", "\u4e2d", "\U0001f600", "<tag>", "  "]
    for _ in range(24):
        texts.append("".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 40))))
    return texts


def write_gguf(path, name, fill):
    """A minimal model; fill writes the tokenizer's keys and returns the number of tokens."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    for add, value in ((w.add_block_count, 1), (w.add_context_length, 64), (w.add_embedding_length, 4),
                       (w.add_feed_forward_length, 4), (w.add_head_count, 2), (w.add_head_count_kv, 2),
                       (w.add_rope_freq_base, 10000.0), (w.add_layer_norm_rms_eps, 1e-5),
                       (w.add_expert_count, 1), (w.add_expert_used_count, 1)):
        add(value)
    vocab = fill(w)
    shapes = {"token_embd": (vocab, 4), "output_norm": (4,)}
    for name, shape in (("attn_norm", (4,)), ("attn_q", (4, 4)), ("attn_k", (4, 4)), ("attn_v", (4, 4)),
                        ("attn_output", (4, 4)), ("ffn_norm", (4,)), ("ffn_gate_inp", (1, 4)),
                        ("ffn_gate_exps", (1, 4, 4)), ("ffn_up_exps", (1, 4, 4)), ("ffn_down_exps", (1, 4, 4))):
        shapes[f"blk.0.{name}"] = shape
    for name, shape in shapes.items():
        f16 = name == "token_embd"
        w.add_tensor(f"{name}.weight", np.zeros(shape, np.float16 if f16 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def spm_model(corpus, **more):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.splitlines()), model_writer=out, model_type="bpe", byte_fallback=True,
        character_coverage=0.9995, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, split_digits=True, user_defined_symbols=["<tag>"],
        num_threads=1, minloglevel=2, **more)
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def fill_spm(sp, prefix):
    def kind(i):
        for test, value in ((sp.is_unknown, gguf.TokenType.UNKNOWN), (sp.is_control, gguf.TokenType.CONTROL),
                            (sp.is_byte, gguf.TokenType.BYTE), (sp.is_unused, gguf.TokenType.UNUSED)):
            if test(i):
                return value
        return gguf.TokenType.USER_DEFINED if sp.id_to_piece(i) == "<tag>" else gguf.TokenType.NORMAL

    def fill(w):
        n = sp.vocab_size()
        w.add_tokenizer_model("llama")
        w.add_tokenizer_pre("default")
        w.add_token_list([sp.id_to_piece(i) for i in range(n)])
        w.add_token_scores([sp.get_score(i) for i in range(n)])
        w.add_token_types([kind(i) for i in range(n)])
        w.add_bos_token_id(sp.bos_id())
        w.add_eos_token_id(sp.eos_id())
        if not prefix:
            w.add_add_space_prefix(False)
        return n
    return fill


def hf_json(sp, prefix):
    """The vocabulary as Hugging Face's conversion writes it: every split of a piece into two pieces is a
    merge; pieces by falling score."""
    vocab = {sp.id_to_piece(i): i for i in range(sp.vocab_size())}
    pieces = [i for i in range(sp.vocab_size())
              if not (sp.is_unknown(i) or sp.is_control(i) or sp.is_byte(i)) and sp.id_to_piece(i) != "<tag>"]
    merges = []
    for i in sorted(pieces, key=lambda i: -sp.get_score(i)):
        p = sp.id_to_piece(i)
        merges += [(p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
    t = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prefix:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never", split=False)
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    t.add_tokens([tokenizers.AddedToken("<tag>", normalized=False)])
    return t


def olmo_model(corpus):
    t = tokenizers.Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    t.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    t.add_tokens(["<tag>"] + [" " * n for n in range(8, 1, -1)])
    return t


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def nfc_model(corpus):
    t = tokenizers.Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    t.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    return t


def sorted_alike(c):
    """Whether the package sorts this mark as Unicode does: its tables are of Unicode 9."""
    around = "\u0301\u0323\u0334\u05b0\u3099\u094d"
    return all(normalizers.NFC().normalize_str(x) == unicodedata2.normalize("NFC", x)
               for m in around for x in ("a" + c + m, "a" + m + c))


def nfc_texts(corpus):
    rng = random.Random(21)
    every = [chr(c) for c in range(0x110000) if unicodedata2.category(chr(c)) not in ("Cn", "Cs", "Co")]
    changed = [c for c in every if unicodedata2.normalize("NFC", c) != c or unicodedata2.normalize("NFD", c) != c]
    marks = [c for c in every if unicodedata2.combining(c) and sorted_alike(c)]
    newer = [c for c in every if unicodedata.category(c) == "Cn" and not unicodedata2.combining(c)]
    jamo = [chr(c) for c in list(range(0x1100, 0x1113)) + list(range(0x1161, 0x1176)) + list(range(0x11a7, 0x11c3))]
    kinds = [marks, marks, changed, newer, jamo, jamo, list("aeoucnAEO <>=~.1\n"), list("\u0301\u0300\u0323\u0309\u031b\u0302")]
    texts = ["e\u0301", "\u212b\u2126", "\u1112\u1161\u11ab", ">\u0338", "<|endoftext|>\u0338", "a" + "\u0323\u0301" * 40]
    for _ in range(240):
        texts.append("".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 30))))
    for form in ("NFD", "NFC", "NFKD"):
        for _ in range(20):
            at = rng.randrange(len(corpus) - 200)
            texts.append(unicodedata2.normalize(form, corpus[at:at + rng.randrange(10, 80)]))
    return texts


def write_nfc(data, corpus):
    corpus += "\n" + open(f"{data}/../../../launch/calibration/languages.txt", encoding="utf-8").read()
    t = nfc_model(corpus)
    write_gguf(f"{data}/tokenizers/nfc.gguf", "nfc", fill_bpe(t, "qwen2"))
    foreign = "".join(x for x in corpus.splitlines(keepends=True) if not x.isascii())
    return {"name": "nfc", "special": True,
            "vectors": [{"text": x, "ids": t.encode(x).ids} for x in nfc_texts(foreign)]}


def fill_bpe(t, pre):
    def fill(w):
        state = json.loads(t.to_str())["model"]
        added = {a["id"]: a for a in json.loads(t.to_str())["added_tokens"]}
        names = {i: name for name, i in t.get_vocab().items()}
        kinds = [gguf.TokenType.NORMAL if i not in added else gguf.TokenType.CONTROL
                 if added[i]["special"] else gguf.TokenType.USER_DEFINED for i in range(len(names))]
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_list([names[i] for i in range(len(names))])
        w.add_token_types(kinds)
        w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in state["merges"]])
        w.add_eos_token_id(t.token_to_id("<|endoftext|>"))
        return len(names)
    return fill


def write_vectors(data, file, vectors):
    with open(f"{data}/tokenizers/{file}.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in vectors) + "\n]\n")


def main(data, only=None):
    corpus = "\n".join(open(f, encoding="utf-8").read() for f in sorted(glob.glob(f"{data}/heldout/*.txt")))
    texts = sample_texts(corpus)
    os.makedirs(f"{data}/tokenizers", exist_ok=True)
    result, result_hf = [], []
    if only == "nfc":
        result = json.load(open(f"{data}/tokenizers/vectors.json"))[:2]
        return write_normalised(data, corpus, texts, result)
    plain = [x for x in texts if "<tag>" not in x and "<s>" not in x]
    for name, sp, prefix in (("spm", spm_model(corpus, vocab_size=900), True),
                             ("spm_across", spm_model(corpus, vocab_size=700, split_by_whitespace=False,
                                                      add_dummy_prefix=False), False)):
        write_gguf(f"{data}/tokenizers/{name}.gguf", name, fill_spm(sp, prefix))
        # the package ends a text at a NUL byte
        result.append({"name": name, "vectors": [{"text": x, "ids": sp.encode(x)} for x in texts if "\0" not in x]})
        h = hf_json(sp, prefix)
        h.save(f"{data}/tokenizers/{name}.json", pretty=False)
        result_hf.append({"name": name, "vectors": [{"text": x, "ids": h.encode(x, add_special_tokens=False).ids}
                                                    for x in plain]})
    write_normalised(data, corpus, texts, result)
    write_vectors(data, "vectors_hf", result_hf)


def write_normalised(data, corpus, texts, result):
    t = olmo_model(corpus)
    write_gguf(f"{data}/tokenizers/olmo.gguf", "olmo", fill_bpe(t, "olmo"))
    result.append({"name": "olmo", "vectors": [{"text": x, "ids": t.encode(x).ids} for x in texts]})
    result.append(write_nfc(data, corpus))
    write_vectors(data, "vectors", result)


if __name__ == "__main__":
    main(*sys.argv[1:])
