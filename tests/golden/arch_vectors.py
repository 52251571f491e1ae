#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch: small random models of every architecture as GGUF files,
and the results of the Python package `transformers` with the same (F16-rounded) weights in float32.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.5.1 transformers==4.51.3 gguf numpy
    venv/bin/python tests/golden/arch_vectors.py tests/golden/data/arch

Keys and tensor names are the `gguf` package's; the layout of the files is what llama.cpp's converter
writes: matrices F16, norms, biases and routers F32, the experts of a layer stacked, and the rows of
q and k of a `llama` model reordered so that rotated elements are adjacent. The build makes models with
Q8_0 matrices of those with "q8", which have no reference values: they are for comparing sluice with
itself. The tokenizers have a token per byte and few others.

llama.cpp loads all of them except two shapes that no published model has: olmoe_b (fewer key heads than query
heads) and qwen2moe_b (output tied to the embedding). Only later versions load qwen3moe_a, whose experts have gate
and up in one tensor.

Everything is seeded: a second run writes the same bytes with the same versions of the packages."""
import math
import os
import sys

import gguf
import numpy as np
import torch
import transformers

from vectors import (VOCAB, finish, gguf_name, layer_of, padded, pairs_first, save_logits, write_byte_level,
                     write_common_keys, write_list)

POSITIONS, LAYERS = 40, 2
FREQ_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}


def config_of(kind, **more):
    common = dict(vocab_size=VOCAB, num_hidden_layers=LAYERS, max_position_embeddings=256,
                  attn_implementation="eager", pad_token_id=None, bos_token_id=None,
                  eos_token_id=256, **more)
    return getattr(transformers, kind)(**common)


JOINED = ("qwen3moe_a",)

# name, architecture in GGUF, configuration
MODELS = [
    ("olmoe_a", "olmoe", config_of(
        "OlmoeConfig", hidden_size=64, num_attention_heads=4, num_key_value_heads=4, num_experts=6,
        num_experts_per_tok=2, intermediate_size=32, norm_topk_prob=False, rms_norm_eps=1e-5)),
    ("olmoe_b", "olmoe", config_of(
        "OlmoeConfig", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_experts=5,
        num_experts_per_tok=3, intermediate_size=32, norm_topk_prob=False, rms_norm_eps=1e-5,
        tie_word_embeddings=True)),
    ("qwen2moe_a", "qwen2moe", config_of(
        "Qwen2MoeConfig", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=96,
        intermediate_size=128, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[],
        rms_norm_eps=1e-6, rope_theta=1e6)),
    ("qwen2moe_b", "qwen2moe", config_of(
        "Qwen2MoeConfig", hidden_size=64, num_attention_heads=2, num_key_value_heads=1,
        num_experts=5, num_experts_per_tok=4, moe_intermediate_size=64,
        shared_expert_intermediate_size=32, intermediate_size=128, norm_topk_prob=False,
        decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6, tie_word_embeddings=True)),
    ("mixtral_a", "llama", config_of(
        "MixtralConfig", hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=6, num_experts_per_tok=2, intermediate_size=32, rms_norm_eps=1e-5,
        rope_theta=1e6)),
    ("mixtral_b", "llama", config_of(
        "MixtralConfig", hidden_size=64, num_attention_heads=3, num_key_value_heads=3, head_dim=32,
        num_local_experts=5, num_experts_per_tok=2, intermediate_size=32, rms_norm_eps=1e-5,
        rope_theta=1e4, tie_word_embeddings=True)),
    ("mixtral_llama3", "llama", config_of(
        "MixtralConfig", hidden_size=64, num_attention_heads=2, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=3, intermediate_size=32, rms_norm_eps=1e-5,
        rope_theta=5e5, rope_scaling=FREQ_LLAMA3, tie_word_embeddings=True)),
    ("qwen3moe_a", "qwen3moe", config_of(
        "Qwen3MoeConfig", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6, tie_word_embeddings=True)),
]


def fill(model, seed):
    """Weights large enough that a wrong rotation, norm or gate moves the logits far beyond the
    tolerance. Matrices are rounded to F16; routers stay float32."""
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if "norm" in name:
                p.copy_(1 + 0.2 * r)
            elif name.endswith(".bias"):
                p.copy_(0.5 * r)
            elif is_router(name):
                p.copy_(2 * r / math.sqrt(p.shape[1]))
            else:
                gain = 2.0 if "lm_head" in name else 1.5 if "q_proj" in name or "k_proj" in name else 1.0
                if "embed" in name:
                    gain = 2.0 if model.config.tie_word_embeddings else math.sqrt(p.shape[1])
                p.copy_((gain * r / math.sqrt(p.shape[1])).half().float())


def is_router(name):
    return name.endswith((".mlp.gate.weight", ".block_sparse_moe.gate.weight"))


def converted(model, arch, config, joined):
    """(name in GGUF, float32 array) of every tensor. joined: gate and up of the experts in one tensor."""
    ids = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], LAYERS)
    tied = config.tie_word_embeddings
    experts = {}
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if name == "lm_head.weight" and tied:
            continue
        if ".experts." in name:  # model.layers.0.mlp.experts.3.up_proj.weight
            head, tail = name.split(".experts.")
            number, matrix = tail.split(".", 1)
            if arch == "llama":
                head = head.replace("model.layers", "layers").replace("block_sparse_moe", "feed_forward")
            experts.setdefault(f"{head}.experts.{matrix}", []).append((int(number), a))
            continue
        if arch == "llama" and "q_proj" in name:
            a = pairs_first(a, config.num_attention_heads)
        if arch == "llama" and "k_proj" in name:
            a = pairs_first(a, config.num_key_value_heads)
        yield gguf_name(names, name), a
    stacked = {gguf_name(names, name): np.stack([a for _, a in sorted(parts, key=lambda x: x[0])])
               for name, parts in experts.items()}
    for layer in range(LAYERS) if joined else ():
        gate_up = [stacked.pop(f"blk.{layer}.ffn_{m}_exps.weight") for m in ("gate", "up")]
        stacked[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate(gate_up, axis=1)
    yield from stacked.items()


def write_sentencepiece(w):
    kind = gguf.TokenType
    names, kinds = padded(
        ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", "e", "\u2581e"],
        [kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256 + [kind.NORMAL] * 3)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(names)
    w.add_token_scores([-float(i) for i in range(VOCAB)])
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)


def write_keys(w, arch, config):
    write_common_keys(w, config, LAYERS)
    w.add_expert_count(experts_of(config))
    w.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "head_dim", None):
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
    if getattr(config, "moe_intermediate_size", None):
        w.add_expert_feed_forward_length(config.moe_intermediate_size)
    if getattr(config, "shared_expert_intermediate_size", None):
        w.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if arch == "llama":
        w.add_vocab_size(VOCAB)
        w.add_rope_dimension_count(head_size(config))
        write_sentencepiece(w)
    else:
        write_byte_level(w, arch)


def experts_of(config):
    return getattr(config, "num_experts", None) or config.num_local_experts


def head_size(config):
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rope_factors(model):
    """Divisors of the RoPE frequencies of a scaled model."""
    config = model.config
    n = head_size(config)
    plain = 1.0 / config.rope_theta ** (torch.arange(0, n, 2, dtype=torch.float64) / n)
    return (plain / model.model.rotary_emb.inv_freq.double()).float().numpy()


def write_gguf(path, name, arch, model, config):
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    write_keys(w, arch, config)
    if getattr(config, "rope_scaling", None):
        w.add_tensor("rope_freqs.weight", rope_factors(model))
    for tensor, a in converted(model, arch, config, name in JOINED):
        a = np.ascontiguousarray(a)
        if a.ndim == 1 or "ffn_gate_inp" in tensor:
            w.add_tensor(tensor, a)
        else:
            w.add_tensor(tensor, a.astype(np.float16))
    finish(w)


def routing(logits, config, renormalise):
    """Per layer: experts by falling weight, their weights, and the gap between the last chosen router
    logit and the first one not chosen."""
    layers = []
    for x in logits:
        k = config.num_experts_per_tok
        order = torch.argsort(x, dim=-1, descending=True, stable=True)
        sorted_logits = torch.gather(x, 1, order)
        weights = torch.gather(torch.softmax(x.float(), dim=-1), 1, order[:, :k])
        if renormalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        layers.append(layer_of(order[:, :k], weights, sorted_logits[:, k - 1] - sorted_logits[:, k]))
    return layers


def main(out):
    os.makedirs(out, exist_ok=True)
    index = []
    for seed, (name, arch, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, 1000 + seed)
        ids = torch.randint(0, VOCAB, (1, POSITIONS), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            result = model(ids, output_router_logits=True, use_cache=False)
        renormalise = arch == "llama" or config.norm_topk_prob
        write_gguf(f"{out}/{name}.gguf", name, arch, model, config)
        save_logits(f"{out}/{name}.npy", result.logits[0])
        quantised = name in ("olmoe_a", "qwen2moe_a")
        index.append({"name": name, "q8": quantised, "ids": ids[0].tolist(),
                      "layers": routing(result.router_logits, config, renormalise)})
    write_list(f"{out}/arch.json", index)


if __name__ == "__main__":
    main(sys.argv[1])
