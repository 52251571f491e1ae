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
some biased scores are negative. glm4moe_a has a block for drafting after its last layer, as published files have:
its tensors hold noise. dots1_a has groups; there the biased scores are positive, because transformers replaces the
scores of excluded groups by 0 and not by -infinity. Files ending in _f32 have F32 matrices, others F16; for the former, keys
and values are rounded to F16 here, too, as in sluice's cache, so that little else than the order of sums differs."""
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import vectors
from vectors import VOCAB, gguf_name, half, layer_of

LAYERS = 3
COMMON = dict(vocab_size=VOCAB, num_hidden_layers=LAYERS, max_position_embeddings=256, attn_implementation="eager",
              pad_token_id=None, bos_token_id=None, eos_token_id=256, hidden_size=64, tie_word_embeddings=False)
DEEPSEEK_LIKE = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, intermediate_size=96,
                     first_k_dense_replace=1, rms_norm_eps=1e-5)
NARROW = dict(COMMON, hidden_size=32)
NARROW_LIKE = dict(DEEPSEEK_LIKE, moe_intermediate_size=16, intermediate_size=48)

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
        routed_scaling_factor=2.5, rope_theta=1e6, **NARROW_LIKE, **NARROW)),
    ("glm4moe_b_f32", "glm4moe", transformers.Glm4MoeConfig(
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=True, use_qk_norm=False,
        partial_rotary_factor=0.5, n_shared_experts=2, n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.0, rope_theta=1e4, **NARROW_LIKE, **NARROW)),
    ("dots1_a", "dots1", transformers.Dots1Config(
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, n_shared_experts=2, n_group=4, topk_group=2,
        norm_topk_prob=True, routed_scaling_factor=2.5, rope_theta=1e5, **DEEPSEEK_LIKE, **NARROW)),
    ("dots1_b_f32", "dots1", transformers.Dots1Config(
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=1.5, rope_theta=1e4, **NARROW_LIKE, **NARROW)),
    ("ernie4_5_a", "ernie4_5-moe", transformers.Ernie4_5_MoeConfig(
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, moe_num_experts=8, moe_k=3,
        moe_intermediate_size=32, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=LAYERS - 1,
        moe_layer_interval=1, rope_theta=5e5, rms_norm_eps=1e-5, **NARROW)),
    ("ernie4_5_b_f32", "ernie4_5-moe", transformers.Ernie4_5_MoeConfig(
        num_attention_heads=4, num_key_value_heads=1, intermediate_size=48, moe_num_experts=6, moe_k=2,
        moe_intermediate_size=16, moe_num_shared_experts=0, moe_layer_start_index=2, moe_layer_end_index=LAYERS - 1,
        moe_layer_interval=1, rope_theta=1e4, rms_norm_eps=1e-5, **NARROW)),
]


def fill(model, seed, positive):
    """As in arch_vectors.py: weights large enough that a wrong step moves the logits far beyond the tolerance."""
    def value_of(name, p, r):
        if "correction_bias" in name:
            small = 0.15 if "moe_statics" in name else 0.5
            return small * (r.abs() if positive else r)
        if "norm" in name:
            return 1 + 0.2 * r
        if name.endswith(".bias"):
            return 0.5 * r
        if name.endswith("mlp.gate.weight"):
            return 2 * r / math.sqrt(p.shape[1])
        gain = 1.5 if any(x in name for x in ("lm_head", "q_proj", "k_proj")) else 1.0
        gain = math.sqrt(p.shape[1]) if "embed" in name else gain
        return half(gain * r / math.sqrt(p.shape[1]))

    vectors.fill(model, seed, value_of, "correction")


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
    vectors.write_common_keys(w, config, LAYERS + drafting)
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
    vectors.write_byte_level(w, arch)


def write_gguf(path, name, arch, model, config):
    drafting = name == "glm4moe_a"
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    write_keys(w, arch, config, int(drafting))
    vectors.add_tensors(w, name, converted(model, arch))
    if drafting:
        vectors.add_drafting(w, LAYERS, (("nextn.eh_proj", (64, 128)), ("nextn.enorm", (64,)), ("attn_q", (128, 64)),
                                         ("ffn_gate_exps", (8, 32, 64))))
    vectors.finish(w)


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
        layers.append(layer_of(order[:, :k], w, top[:, k - 1] - top[:, k]))
    return layers


def run(model, ids):
    """Logits, and the input of each router."""
    return vectors.run(model, ids, [getattr(layer.mlp, "gate", None) for layer in model.model.layers])


def main(out, list_name):
    index = []
    for seed, (name, arch, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, 3000 + seed, name == "dots1_a")
        ids = vectors.random_ids(100 + seed)
        restore = vectors.round_cache(model) if vectors.is_f32(name) else lambda: None
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, config, inputs)
        write_gguf(f"{out}/{name}.gguf", name, arch, model, config)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        restore()
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/{list_name}", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
