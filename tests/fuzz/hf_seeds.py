#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds of the target hf: vocabularies of tiktoken, good and bad, and kinds of layers.

    python3 tests/fuzz/hf_seeds.py tests/fuzz/corpus/hf"""
import base64
import json
import sys

BASE = {"model_type": "qwen3_moe", "num_hidden_layers": 2, "max_position_embeddings": 256, "hidden_size": 64,
        "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "num_experts_per_tok": 2, "num_experts": 4, "vocab_size": 300, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
        "moe_intermediate_size": 32, "norm_topk_prob": True, "eos_token_id": [3]}
BYTES = [bytes([b]) for b in range(256)]


def lines(tokens, end="\n"):
    return "".join(f"{base64.b64encode(t).decode()} {i}{end}" for i, t in enumerate(tokens))


def write(name, document):
    with open(f"{sys.argv[1]}/{name}", "w") as f:
        json.dump(document, f)


def tiktoken(name, row, text, settings=None, vocab=300):
    document = {"config": dict(BASE, vocab_size=vocab), "tiktoken": [row, text]}
    if settings is not None:
        document["settings"] = settings
    write("tiktoken_" + name, document)


def main():
    words = [b"ab", b"abc", b"bc", b" a", b"aa", b"aaaa", b"\xe4\xbd", b"\xe4\xbd\xa0", b"xyzzyx", b"xyzz", b"xy", b"zz"]
    special = {"268": {"content": "[BOS]", "special": True}, "269": {"content": "<|im_end|>", "special": False}}
    tiktoken("kimi", 0, lines(BYTES + words), {"added_tokens_decoder": special, "eos_token": "<|im_end|>",
                                               "bos_token": {"content": "[BOS]"}, "chat_template": "{{ x }}"})
    tiktoken("hunyuan", 1, lines(BYTES + words, "\r\n"), vocab=300)
    tiktoken("all_special", 1, lines(BYTES), vocab=500)
    tiktoken("reserved", 0, lines(BYTES), vocab=520)
    tiktoken("short", 0, lines(BYTES[:90] + words))
    tiktoken("too_many", 0, lines(BYTES + words), vocab=200)
    tiktoken("twice", 0, lines(BYTES + [b"a"]))
    tiktoken("rank", 0, lines(BYTES) + "YWI= 258\n")
    tiktoken("digits", 0, "Y*I= 0\n")
    tiktoken("padding", 0, "YWI 0\n")
    tiktoken("text_rank", 0, "YWI= x\n")
    tiktoken("long", 0, lines([b"a" * 513]))
    tiktoken("longest", 0, lines(BYTES + [b"a" * (1 << k) for k in range(1, 10)]))
    tiktoken("added_low", 0, lines(BYTES), {"added_tokens_decoder": {"7": {"content": "x"}}})
    tiktoken("added_name", 0, lines(BYTES), {"added_tokens_decoder": {"x": {"content": "x"}}})
    tiktoken("added_empty", 0, lines(BYTES), {"added_tokens_decoder": {"280": {}}})
    tiktoken("empty", 0, "\n\n")


main()
