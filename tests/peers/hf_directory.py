#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small random models of the Python package transformers, saved with save_pretrained, packed by sluice from
the directory, and compared token by token: the negative log-likelihoods differ by at most 2e-2 (the
engine keeps keys and values in F16).

    VENV/bin/python tests/peers/hf_directory.py --libexec build/libexec [--only TYPE]

VENV has torch and transformers 5. Biases, norms and scales have values that matter."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

VOCAB, TOKENS = 264, 96
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, pad_token_id=None, bos_token_id=None,
              eos_token_id=256, attn_implementation="eager")
SIZES = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
MOE = dict(n_routed_experts=8, num_experts_per_tok=3, norm_topk_prob=True, intermediate_size=96,
           moe_intermediate_size=32)

MODELS = {
    "qwen3_moe": ("Qwen3MoeConfig", dict(
        SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
        intermediate_size=96)),
    "mixtral": ("MixtralConfig", dict(
        SIZES, num_local_experts=8, num_experts_per_tok=2, intermediate_size=32, sliding_window=None)),
    "glm4_moe": ("Glm4MoeConfig", dict(
        SIZES, **MOE, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
        routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True)),
    "glm4_moe_plain": ("Glm4MoeConfig", dict(
        SIZES, **MOE, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=2,
        routed_scaling_factor=1.0, use_qk_norm=False, attention_bias=False, tie_word_embeddings=True)),
    "dots1": ("Dots1Config", dict(
        SIZES, **MOE, n_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        routed_scaling_factor=2.5)),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(
        {k: v for k, v in SIZES.items() if k != "head_dim"}, intermediate_size=96, moe_intermediate_size=32,
        moe_num_experts=8, moe_num_shared_experts=2, moe_k=3, moe_layer_start_index=1, use_bias=False)),
    "minimax_m2": ("MiniMaxM2Config", dict(
        SIZES, intermediate_size=32, num_local_experts=8, num_experts_per_tok=3)),
    "minimax_m2_rotary": ("MiniMaxM2Config", dict(
        SIZES, intermediate_size=32, num_local_experts=8, num_experts_per_tok=3, rotary_dim=8,
        rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))),
}


def fill(model, seed):
    """Weights with an effect: matrices of a common size, norms around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if not tensor.is_floating_point() or "inv_freq" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        with torch.no_grad():
            if "correction_bias" in name:
                tensor.copy_(0.3 * noise if "ernie" not in type(model).__name__.lower() else 0.05 * noise)
            elif name.endswith("norm.weight") or "layernorm" in name:
                tensor.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                tensor.copy_(0.2 * noise)
            else:
                tensor.copy_(noise * (1.5 / tensor.shape[-1] ** 0.5))


def byte_tokenizer():
    """A token per byte and a few others; GPT-2's splitting."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    vocab = {c: i for i, c in enumerate(bytes_to_unicode().values())}
    added = [{"id": i, "content": "<|%d|>" % i, "special": True} for i in range(256, VOCAB)]
    return {"added_tokens": added,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                      "merges": []}}


def losses_of(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    chosen = torch.tensor(ids[1:])
    return (-torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), chosen]).tolist()


def run(libexec, program, *args):
    path = os.path.join(libexec, "sluice-" + program)
    done = subprocess.run([path, *args], capture_output=True, text=True,
                          env=dict(os.environ, SLUICE_LIBEXEC=libexec))
    if done.returncode != 0:
        sys.exit("%s: %s" % (program, done.stderr.strip()))
    return done.stdout


def compare(libexec, kind, directory):
    name, settings = MODELS[kind]
    config = getattr(transformers, name)(**COMMON, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    fill(model, 1)
    model.save_pretrained(directory)
    with open(os.path.join(directory, "tokenizer.json"), "w") as file:
        json.dump(byte_tokenizer(), file)
    ids = [(7 * i * i + 3 * i) % 256 for i in range(TOKENS)]
    with open(os.path.join(directory, "ids.json"), "w") as file:
        json.dump({"ids": ids}, file)
    store = os.path.join(directory, "store")
    run(libexec, "pack", "-m", directory, "-o", store, "--quiet", "--verify")
    out = json.loads(run(libexec, "eval", "-m", store, "--ids", os.path.join(directory, "ids.json"),
                         "--ctx-size", str(TOKENS), "--per-token", "--output", "json"))
    got, want = out["nll_per_token"], losses_of(model, ids)
    assert len(got) == len(want), (len(got), len(want))
    worst = max(abs(a - b) for a, b in zip(got, want))
    print("%-20s largest difference %.5f over %d tokens" % (kind, worst, len(want)))
    return worst <= 2e-2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libexec", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    good = True
    for kind in MODELS:
        if options.only in (None, kind):
            with tempfile.TemporaryDirectory() as directory:
                good &= compare(os.path.abspath(options.libexec), kind, directory)
    sys.exit(0 if good else "a model differs")


main()
