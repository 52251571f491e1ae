#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for gpt-oss: small random models as GGUF files, and the results of the
Python package `transformers` with the same weights in float32. The sibling of router_vectors.py:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/oss_vectors.py tests/golden/data/arch

Layers with a window and without; sinks, biases of attention, router and experts that matter; inputs of the experts' activation
beyond its limits; YaRN whose correction range is far from integers."""
import math
import sys

import gguf
import torch
import transformers

import vectors
from vectors import VOCAB, half, layer_of

SEEDS = (7018, 7015)  # whose greedy continuations have no near ties
COMMON = dict(vocab_size=VOCAB, attn_implementation="eager", pad_token_id=None, bos_token_id=None, eos_token_id=256,
              tie_word_embeddings=False, rms_norm_eps=1e-5, max_position_embeddings=256)
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 64}
MODELS = [
    ("oss_a", transformers.GptOssConfig(
        num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_local_experts=5,
        num_experts_per_tok=3, intermediate_size=32, sliding_window=16, rope_parameters=YARN, **COMMON)),
    ("oss_b_f32", transformers.GptOssConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=4, head_dim=16, num_local_experts=4,
        num_experts_per_tok=2, intermediate_size=32, sliding_window=7,
        rope_parameters={**YARN, "rope_theta": 150000.0, "factor": 4.0, "original_max_position_embeddings": 128}, **COMMON)),
]


def fill(model, seed):
    def value_of(name, p, r):
        if "norm" in name:
            return 1 + 0.2 * r
        if name.endswith("sinks"):
            return 1 + r
        if name.endswith("bias"):
            return (2.0 if "gate_up" in name else 0.5) * r
        if name.endswith("router.weight"):
            return 2 * r / math.sqrt(p.shape[1])
        if ".experts." in name:  # [expert][in][out]
            return half((4.0 if "gate_up" in name else 0.3) * r / math.sqrt(p.shape[1]))
        gain = 1.5 if any(x in name for x in ("lm_head", "q_proj", "k_proj")) else 1.0
        gain = math.sqrt(p.shape[1]) if "embed" in name else gain
        return half(gain * r / math.sqrt(p.shape[1]))

    vectors.fill(model, seed, value_of)


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"}


def converted(model):
    """(name in GGUF, float32 array) of every tensor, as the converter names them."""
    for name, p in model.state_dict().items():
        a = p.detach().float().numpy()
        if not name.startswith("model.layers."):
            yield {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                   "lm_head.weight": "output.weight"}[name], a
            continue
        number, rest = name.removeprefix("model.layers.").split(".", 1)
        head, tail = rest.rsplit(".", 1)
        if tail == "sinks":
            yield f"blk.{number}.attn_sinks.weight", a
        elif tail in ("gate_up_proj", "gate_up_proj_bias"):  # even outputs: gate, odd: up
            kind = "bias" if tail.endswith("bias") else "weight"
            for i, matrix in enumerate(("gate", "up")):
                part = a[..., i::2]
                yield f"blk.{number}.ffn_{matrix}_exps.{kind}", part if kind == "bias" else part.swapaxes(1, 2)
        elif tail in ("down_proj", "down_proj_bias"):
            yield (f"blk.{number}.ffn_down_exps.bias", a) if tail.endswith("bias") else \
                (f"blk.{number}.ffn_down_exps.weight", a.swapaxes(1, 2))
        else:
            yield f"blk.{number}.{NAMES[head]}.{tail}", a


def write_gguf(path, name, model, config):
    w = gguf.GGUFWriter(path, "gpt-oss")
    rope = config.rope_parameters
    config.rope_theta = rope["rope_theta"]
    w.add_name(name)
    vectors.write_common_keys(w, config, config.num_hidden_layers)
    w.add_key_length(config.head_dim)
    w.add_value_length(config.head_dim)
    w.add_sliding_window(config.sliding_window)
    w.add_expert_count(config.num_local_experts)
    w.add_expert_used_count(config.num_experts_per_tok)
    w.add_expert_feed_forward_length(config.intermediate_size)
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    vectors.write_byte_level(w, "gpt-oss")
    vectors.add_tensors(w, name, converted(model))
    vectors.finish(w)


def run(model, ids):
    """Logits, and the input of each router."""
    return vectors.run(model, ids, [layer.mlp.router for layer in model.model.layers])


def routing(model, inputs):
    layers = []
    for layer, x in zip(model.model.layers, inputs):
        router, k = layer.mlp.router, model.config.num_experts_per_tok
        top, order = torch.nn.functional.linear(x, router.weight, router.bias).sort(dim=-1, descending=True, stable=True)
        layers.append(layer_of(order[:, :k], torch.softmax(top[:, :k], dim=-1), top[:, k - 1] - top[:, k]))
    return layers


def main(out):
    index = []
    for seed, (name, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, SEEDS[seed])
        ids = vectors.random_ids(700 + seed)
        restore = vectors.round_cache(model) if vectors.is_f32(name) else lambda: None
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, inputs)
        write_gguf(f"{out}/{name}.gguf", name, model, config)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        restore()
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/oss.json", index)


if __name__ == "__main__":
    main(sys.argv[1])
