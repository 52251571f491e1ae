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
import json
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import arch_vectors
from arch_vectors import VOCAB
from router_vectors import POSITIONS, greedy_of, round_cache
from vectors import save_logits

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
    gen = torch.Generator().manual_seed(seed)
    tensors = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if n.endswith("layer_scalar")]
    with torch.no_grad():
        for name, p in sorted(tensors, key=lambda x: x[0]):
            r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if "norm" in name:
                p.copy_(1 + 0.2 * r)
            elif name.endswith("router.scale"):
                p.copy_((1 + 0.4 * r) * math.sqrt(len(p)))
            elif name.endswith("per_expert_scale"):
                p.copy_(1 + 0.4 * r)
            elif name.endswith("layer_scalar"):
                p.copy_(1 + 0.15 * r)
            elif name.endswith("router.proj.weight"):
                p.copy_(2 * r / math.sqrt(p.shape[1]))
            elif "embed" in name:  # scaled by sqrt(d) in the model, and the output matrix
                p.copy_((2 * r / math.sqrt(p.shape[1])).half().float())
            else:  # the attention has no scale 1/sqrt(head size)
                gain = 0.7 if "q_norm" in name or "k_norm" in name else 1.0
                p.copy_((gain * r / math.sqrt(p.shape[-1])).half().float())
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
    arch_vectors.write_byte_level(w, "gemma4")


def write_gguf(path, name, model, config):
    w = gguf.GGUFWriter(path, "gemma4")
    w.add_name(name)
    write_keys(w, config)
    half = config.per_layer_config[FULL].head_dim // 2
    rotated = int(2 * half * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    w.add_tensor("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (half - rotated), dtype=np.float32))
    for tensor, a in converted(model):
        a = np.ascontiguousarray(a)
        f16 = a.ndim > 1 and "ffn_gate_inp" not in tensor and not name.endswith("_f32")
        w.add_tensor(tensor, a.astype(np.float16) if f16 else a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


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
        layers.append({"experts": chosen.tolist(), "weights": [[round(v, 6) for v in row] for row in w.tolist()],
                       "gap": [round(v, 6) for v in (top[:, k - 1] - top[:, k]).tolist()]})
    return layers


def main(out, list_name):
    index = []
    for seed, (name, config) in enumerate(MODELS):
        model = transformers.Gemma4ForCausalLM._from_config(config, attn_implementation="eager").float().eval()
        fill(model, 4000 + seed)
        ids = torch.randint(0, VOCAB, (1, POSITIONS), generator=torch.Generator().manual_seed(200 + seed))
        restore = round_cache(model) if name.endswith("_f32") else lambda: None
        logits, routed = run(model, ids)
        layers = routing(routed)
        write_gguf(f"{out}/{name}.gguf", name, model, config)
        save_logits(f"{out}/{name}.npy", logits)
        more, margin = greedy_of(lambda x: run(model, x)[0], ids)
        restore()
        gap = min(min(x["gap"]) for x in layers)
        print(f"{name}: minimum gap {gap:.2g}, minimum greedy margin {margin:.2g}, largest logit {logits.abs().max():.3g}")
        index.append({"name": name, "q8": False, "f32": name.endswith("_f32"), "ids": ids[0].tolist(), "layers": layers,
                      "greedy": more, "greedy_margin": round(margin, 6)})
    with open(f"{out}/{list_name}", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x) for x in index) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
