#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for gemma4: small random models as GGUF files, and the results of the Python
package `transformers` with the same weights in float32. The sibling of router_vectors.py, with a later version of the
package that has this model:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/gemma_vectors.py tests/golden/data/arch gemma4.json

Layers with a window and full ones, of different head sizes, numbers of key heads and rotations; in gemma4_a the full
layers have no values of their own. Norms, scales of routers, experts and layers have values that matter; the logits
reach the cap. Keys, names and layout are those of llama.cpp's converter. A file ending in _f32 has F32 matrices and
keys and values rounded to F16, as in sluice's cache."""
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import vectors
from vectors import VOCAB, half, layer_of

LAYERS, FULL, WINDOW = 3, 0, 1  # the first full layer, the first with a window


def config_of(**more):
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    rope = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e5}}
    return transformers.Gemma4TextConfig(
        vocab_size=VOCAB, num_hidden_layers=LAYERS, layer_types=kinds, rope_parameters=rope,
        intermediate_size=64, moe_intermediate_size=32, enable_moe_block=True, num_experts=6, top_k_experts=3,
        num_attention_heads=4, sliding_window=16, max_position_embeddings=256, rms_norm_eps=1e-6,
        hidden_size_per_layer_input=0, tie_word_embeddings=True, attn_implementation="eager", pad_token_id=None,
        bos_token_id=None, eos_token_id=256, **more)


MODELS = [
    ("gemma4_a", config_of(hidden_size=48, head_dim=16, global_head_dim=32, num_key_value_heads=2,
                           num_global_key_value_heads=1, attention_k_eq_v=True, final_logit_softcapping=30.0)),
    ("gemma4_b_f32", config_of(hidden_size=32, head_dim=8, global_head_dim=16, num_key_value_heads=2,
                               attention_k_eq_v=False, final_logit_softcapping=12.0)),
]


def fill(model, seed):
    """As in router_vectors.py: weights large enough that a wrong step moves the logits far beyond the tolerance."""
    def value_of(name, p, r):
        if "norm" in name:
            return 1 + 0.2 * r
        if name.endswith("router.scale"):
            return (1 + 0.4 * r) * math.sqrt(len(p))
        if name.endswith("per_expert_scale"):
            return 1 + 0.4 * r
        if name.endswith("layer_scalar"):
            return 1 + 0.15 * r
        if name.endswith("router.proj.weight"):
            return 2 * r / math.sqrt(p.shape[1])
        if "embed" in name:  # scaled by sqrt(d) in the model, and the output matrix
            return half(2 * r / math.sqrt(p.shape[1]))
        # the attention has no scale 1/sqrt(head size)
        gain = 0.7 if "q_norm" in name or "k_norm" in name else 1.0
        return half(gain * r / math.sqrt(p.shape[-1]))

    vectors.fill(model, seed, value_of, "layer_scalar")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                p.mul_(0.6)


def converted(model):
    """(name in GGUF, float32 array) of every tensor."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, LAYERS)
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if name == "lm_head.weight":
            continue
        if name.endswith("router.scale"):
            yield names.get_name(name.replace(".scale", ".proj")) + ".scale", a
        elif name.endswith("per_expert_scale"):
            layer = name.split(".")[2]
            yield f"blk.{layer}.ffn_down_exps.scale", a
        else:
            stem = name.removesuffix(".weight")
            found = names.get_name(stem)
            assert found, f"no name for {name}"
            yield found + ".weight", a


def write_keys(w, config):
    window = [kind == "sliding_attention" for kind in config.layer_types]
    local, full = config.per_layer_config[WINDOW], config.per_layer_config[FULL]
    w.add_block_count(LAYERS)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_expert_feed_forward_length(config.moe_intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv([local.num_key_value_heads if x else full.num_key_value_heads for x in window])
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_expert_count(config.num_experts)
    w.add_expert_used_count(config.top_k_experts)
    w.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_rope_dimension_count(full.head_dim)
    w.add_rope_dimension_count_swa(local.head_dim)
    w.add_key_length(full.head_dim)
    w.add_value_length(full.head_dim)
    w.add_key_length_swa(local.head_dim)
    w.add_value_length_swa(local.head_dim)
    w.add_sliding_window(config.sliding_window)
    w.add_sliding_window_pattern(window)
    w.add_final_logit_softcapping(config.final_logit_softcapping)
    w.add_shared_kv_layers(0)
    w.add_embedding_length_per_layer_input(0)
    vectors.write_byte_level(w, "gemma4")


def write_gguf(path, name, model, config):
    w = gguf.GGUFWriter(path, "gemma4")
    w.add_name(name)
    write_keys(w, config)
    half = config.per_layer_config[FULL].head_dim // 2
    rotated = int(2 * half * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (half - rotated), dtype=np.float32))
    vectors.add_tensors(w, name, converted(model))
    vectors.finish(w)


def run(model, ids):
    """Logits, and what each router returned: probabilities, weights with the scales of the experts, experts."""
    routed = [None] * LAYERS
    hooks = [layer.router.register_forward_hook(lambda _, x, y, n=n: routed.__setitem__(n, y))
             for n, layer in enumerate(model.model.layers)]
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, routed


def routing(routed):
    """Per layer: the experts, their weights before the scale of the expert, and the gap between the last chosen
    logit and the first one not chosen."""
    layers = []
    for p, _, chosen in routed:
        k = chosen.shape[-1]
        top, order = p.log().sort(dim=-1, descending=True, stable=True)
        assert torch.equal(order[:, :k], chosen)
        w = p.gather(1, chosen)
        w = w / w.sum(dim=-1, keepdim=True)
        layers.append(layer_of(chosen, w, top[:, k - 1] - top[:, k]))
    return layers


def main(out, list_name):
    index = []
    for seed, (name, config) in enumerate(MODELS):
        model = transformers.Gemma4ForCausalLM._from_config(config, attn_implementation="eager").float().eval()
        fill(model, 4000 + seed)
        ids = vectors.random_ids(200 + seed)
        restore = vectors.round_cache(model) if vectors.is_f32(name) else lambda: None
        logits, routed = run(model, ids)
        layers = routing(routed)
        write_gguf(f"{out}/{name}.gguf", name, model, config)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        restore()
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/{list_name}", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
