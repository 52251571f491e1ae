#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for architectures whose router has a bias: small random models as GGUF
files, and the results of the Python package `transformers` with the same weights in float32. The sibling of
arch_vectors.py, with a later version of the package that has these models:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.5.1 transformers==4.57.3 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/router_vectors.py tests/golden/data/arch router.json

MiniMax-M2 needs transformers==5.0.0; with it, and minimax_m2.json as the name, only that model is written.

Each model has a layer without experts before those with experts. Biases, norms and scales have values that matter;
some biased scores are negative. glm4moe_a has a block for drafting behind its last layer, as published files have:
its tensors hold noise. dots1_a has groups; there the biased scores are positive, because transformers replaces the
scores of excluded groups by 0 and not by -infinity. Files ending in _f32 have F32 matrices, others F16; for the former, keys
and values are rounded to F16 here, too, as in sluice's cache, so that little else than the order of sums differs."""
import json
import math
import os
import sys

import gguf
import numpy as np
import torch
import transformers

import arch_vectors
from arch_vectors import VOCAB, gguf_name
from vectors import save_logits

POSITIONS, LAYERS, GREEDY = 70, 3, 12
COMMON = dict(vocab_size=VOCAB, num_hidden_layers=LAYERS, max_position_embeddings=256, attn_implementation="eager",
              pad_token_id=None, bos_token_id=None, eos_token_id=256, hidden_size=64, tie_word_embeddings=False)
DEEPSEEK_LIKE = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, intermediate_size=96,
                     first_k_dense_replace=1, rms_norm_eps=1e-5)

def minimax():
    """The configuration of MiniMax-M2, which only version 5 of the package has."""
    config = transformers.MiniMaxM2Config(
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_local_experts=8, num_experts_per_tok=3,
        intermediate_size=32, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5}, **COMMON)
    config.rope_theta, config.partial_rotary_factor = 1e5, 0.5
    return [("minimax_m2_a", "minimax-m2", config)]


# name, architecture in GGUF, configuration
MODELS = minimax() if hasattr(transformers, "MiniMaxM2Config") else [
    ("glm4moe_a", "glm4moe", transformers.Glm4MoeConfig(
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=True, use_qk_norm=True,
        partial_rotary_factor=0.5, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, rope_theta=1e6, **DEEPSEEK_LIKE, **COMMON)),
    ("glm4moe_b_f32", "glm4moe", transformers.Glm4MoeConfig(
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=True, use_qk_norm=False,
        partial_rotary_factor=0.5, n_shared_experts=2, n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.0, rope_theta=1e4, **DEEPSEEK_LIKE, **COMMON)),
    ("dots1_a", "dots1", transformers.Dots1Config(
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, n_shared_experts=2, n_group=4, topk_group=2,
        norm_topk_prob=True, routed_scaling_factor=2.5, rope_theta=1e5, **DEEPSEEK_LIKE, **COMMON)),
    ("dots1_b_f32", "dots1", transformers.Dots1Config(
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=1.5, rope_theta=1e4, **DEEPSEEK_LIKE, **COMMON)),
    ("ernie4_5_a", "ernie4_5-moe", transformers.Ernie4_5_MoeConfig(
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, moe_num_experts=8, moe_k=3,
        moe_intermediate_size=32, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=LAYERS - 1,
        moe_layer_interval=1, rope_theta=5e5, rms_norm_eps=1e-5, **COMMON)),
    ("ernie4_5_b_f32", "ernie4_5-moe", transformers.Ernie4_5_MoeConfig(
        num_attention_heads=4, num_key_value_heads=1, intermediate_size=64, moe_num_experts=6, moe_k=2,
        moe_intermediate_size=32, moe_num_shared_experts=0, moe_layer_start_index=2, moe_layer_end_index=LAYERS - 1,
        moe_layer_interval=1, rope_theta=1e4, rms_norm_eps=1e-5, **COMMON)),
]


def fill(model, seed, positive):
    """As in arch_vectors.py: weights large enough that a wrong step moves the logits far beyond the tolerance."""
    gen = torch.Generator().manual_seed(seed)
    tensors = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "correction" in n]
    with torch.no_grad():
        for name, p in sorted(tensors, key=lambda x: x[0]):
            r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if "correction_bias" in name:
                small = 0.15 if "moe_statics" in name else 0.5
                p.copy_(small * (r.abs() if positive else r))
            elif "norm" in name:
                p.copy_(1 + 0.2 * r)
            elif name.endswith(".bias"):
                p.copy_(0.5 * r)
            elif name.endswith("mlp.gate.weight"):
                p.copy_(2 * r / math.sqrt(p.shape[1]))
            else:
                gain = 1.5 if any(x in name for x in ("lm_head", "q_proj", "k_proj")) else 1.0
                gain = math.sqrt(p.shape[1]) if "embed" in name else gain
                p.copy_((gain * r / math.sqrt(p.shape[1])).half().float())


def round_cache(model):
    module = sys.modules[type(model).__module__]
    plain = module.eager_attention_forward

    def rounded(attention, query, key, value, *more, **named):
        return plain(attention, query, key.half().float(), value.half().float(), *more, **named)

    module.eager_attention_forward = rounded
    return lambda: setattr(module, "eager_attention_forward", plain)


def dense_layers(config):
    if config.model_type == "minimax_m2":
        return 0
    return getattr(config, "first_k_dense_replace", None) or config.moe_layer_start_index


def converted(model, arch):
    """(name in GGUF, float32 array) of every tensor."""
    ids = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], LAYERS)
    experts = {}
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if name.endswith("experts.gate_up_proj"):
            for matrix, part in zip(("gate", "up"), np.split(a, 2, axis=1)):
                yield gguf_name(names, name.replace("gate_up_proj", f"{matrix}_proj.weight")), part
        elif name.endswith("experts.down_proj"):
            yield gguf_name(names, name + ".weight"), a
        elif ".experts." in name:  # model.layers.0.mlp.experts.3.up_proj.weight
            head, tail = name.split(".experts.")
            number, matrix = tail.split(".", 1)
            experts.setdefault(f"{head}.experts.{matrix}", []).append((int(number), a))
        elif name.endswith("e_score_correction_bias"):
            if arch == "minimax-m2":  # as in the published checkpoints
                name = name.replace("mlp.", "block_sparse_moe.")
            yield gguf_name(names, name.replace("_bias", ".bias")), a.reshape(-1)
        else:
            yield gguf_name(names, name), a
    for name, parts in experts.items():
        yield gguf_name(names, name), np.stack([a for _, a in sorted(parts, key=lambda x: x[0])])


def write_keys(w, arch, config, drafting):
    arch_vectors.write_common_keys(w, config, LAYERS + drafting)
    if dense_layers(config):
        w.add_leading_dense_block_count(dense_layers(config))
    w.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    w.add_key_length(head)
    w.add_value_length(head)
    if arch == "ernie4_5-moe":
        w.add_expert_count(config.moe_num_experts)
        w.add_expert_used_count(config.moe_k)
        w.add_interleave_moe_layer_step(config.moe_layer_interval)
        if config.moe_num_shared_experts:
            w.add_expert_shared_count(config.moe_num_shared_experts)
    elif arch == "minimax-m2":
        w.add_expert_count(config.num_local_experts)
        w.add_expert_used_count(config.num_experts_per_tok)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    else:
        w.add_expert_count(config.n_routed_experts)
        w.add_expert_used_count(config.num_experts_per_tok)
        w.add_expert_shared_count(config.n_shared_experts)
        w.add_expert_weights_scale(config.routed_scaling_factor)
        w.add_expert_weights_norm(config.norm_topk_prob)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_group_count(config.n_group)
        w.add_expert_group_used_count(config.topk_group)
    if hasattr(config, "partial_rotary_factor"):
        w.add_rope_dimension_count(int(head * config.partial_rotary_factor))
    if drafting:
        w.add_nextn_predict_layers(1)
    arch_vectors.write_byte_level(w, arch)


def write_gguf(path, name, arch, model, config):
    drafting = name == "glm4moe_a"
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    write_keys(w, arch, config, int(drafting))
    for tensor, a in converted(model, arch):
        a = np.ascontiguousarray(a)
        half = a.ndim > 1 and "ffn_gate_inp" not in tensor and not name.endswith("_f32")
        w.add_tensor(tensor, a.astype(np.float16) if half else a)
    for tensor, shape in (("nextn.eh_proj", (64, 128)), ("nextn.enorm", (64,)), ("attn_q", (128, 64)),
                          ("ffn_gate_exps", (8, 32, 64))) if drafting else ():
        w.add_tensor(f"blk.{LAYERS}.{tensor}.weight", np.full(shape, np.nan, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def router_rule(config, z, bias):
    """Scores for the choice and gate weights of all experts before normalising; the published definition."""
    if hasattr(config, "moe_k"):
        p = torch.softmax(z.float(), dim=-1)
        return p + bias, p
    p = z.float().sigmoid()
    s = (p + bias).clone()
    if getattr(config, "n_group", 1) > 1:
        groups = s.view(len(s), config.n_group, -1)
        best = groups.topk(2, dim=-1)[0].sum(dim=-1).topk(config.topk_group, dim=-1)[1]
        mask = torch.ones(len(s), config.n_group, dtype=torch.bool).scatter_(1, best, False)
        s = groups.masked_fill(mask.unsqueeze(-1), -torch.inf).reshape(s.shape)
    return s, p


def routing(model, config, inputs):
    """Per layer, null without experts: the experts, their weights, and the gap between the last chosen score and the
    first one not chosen."""
    layers = []
    for number, x in enumerate(inputs):
        if x is None:
            layers.append(None)
            continue
        mlp = model.model.layers[number].mlp
        bias = mlp.moe_statics.e_score_correction_bias[0] if hasattr(mlp, "moe_statics") \
            else getattr(mlp, "e_score_correction_bias", getattr(mlp.gate, "e_score_correction_bias", None))
        s, p = router_rule(config, torch.nn.functional.linear(x, mlp.gate.weight), bias)
        k = getattr(config, "moe_k", None) or config.num_experts_per_tok
        top, order = s.sort(dim=-1, descending=True, stable=True)
        w = p.gather(1, order[:, :k])
        if getattr(config, "norm_topk_prob", True):
            w = w / w.sum(dim=-1, keepdim=True)
        w = w * getattr(config, "routed_scaling_factor", 1.0)
        if hasattr(mlp.gate, "e_score_correction_bias"):  # what the package itself chose
            chosen, weights = mlp.gate(x.unsqueeze(0))
            assert torch.equal(chosen.sort(dim=-1)[0], order[:, :k].sort(dim=-1)[0])
            assert torch.allclose(weights.sort(dim=-1)[0], w.sort(dim=-1)[0], atol=1e-6)
        layers.append({"experts": order[:, :k].tolist(), "weights": [[round(v, 6) for v in row] for row in w.tolist()],
                       "gap": [round(v, 6) for v in (top[:, k - 1] - top[:, k]).tolist()]})
    return layers


def run(model, ids):
    """Logits, and the input of each router."""
    inputs = [None] * LAYERS
    hooks = []
    for number, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_pre_hook(
                lambda _, x, n=number: inputs.__setitem__(n, x[0].reshape(-1, x[0].shape[-1]).float())))
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, inputs


def greedy_of(logits_of, ids):
    """The continuation, and the minimum margin between the best and the second logit in it."""
    more, margin = [], math.inf
    for _ in range(GREEDY):
        logits = logits_of(torch.cat([ids, torch.tensor([more], dtype=ids.dtype)], dim=1))[-1]
        top = logits.topk(2)
        margin = min(margin, (top[0][0] - top[0][1]).item())
        more.append(top[1][0].item())
    return more, margin


def main(out, list_name):
    index = []
    for seed, (name, arch, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, 3000 + seed, name == "dots1_a")
        ids = torch.randint(0, VOCAB, (1, POSITIONS), generator=torch.Generator().manual_seed(100 + seed))
        restore = round_cache(model) if name.endswith("_f32") else lambda: None
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, config, inputs)
        write_gguf(f"{out}/{name}.gguf", name, arch, model, config)
        save_logits(f"{out}/{name}.npy", logits)
        more, margin = greedy_of(lambda x: run(model, x)[0], ids)
        restore()
        gap = min(min(x["gap"]) for x in layers if x)
        print(f"{name}: minimum gap {gap:.2g}, minimum greedy margin {margin:.2g}")
        index.append({"name": name, "q8": False, "f32": name.endswith("_f32"), "ids": ids[0].tolist(), "layers": layers,
                      "greedy": more, "greedy_margin": round(margin, 6)})
    with open(f"{out}/{list_name}", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x) for x in index) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
