#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for `deepseek2`, multi-head latent attention: small random models as GGUF
files, and the results of the Python package `transformers` with the same weights in float32. The sibling of
router_vectors.py:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/mla_vectors.py tests/golden/data/arch

Each model has a layer without experts, then one with experts. The tensors are those of llama.cpp's converter: of
kv_b_proj, the rows for keys are transposed (attn_k_b), those for values are not (attn_v_b), one matrix per head. The
names say which model they follow: deepseek_v2 has no low rank of queries and a softmax without normalising; deepseek_v3
has groups of experts; kimi_k2 has a YaRN whose correction range is empty; glm4_7_flash has no YaRN, and a block for
drafting behind its last layer whose tensors hold noise. Files ending in _f32 have F32 matrices, others F16; for the
former, the latents are rounded to F16 here, too, as in sluice's cache, so that little else than the order of sums
differs: sluice multiplies queries and sums by attn_k_b and attn_v_b, this reference every key and value."""
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

POSITIONS, LAYERS, GREEDY, HIDDEN = 70, 2, 12, 48


def yarn(factor, fast, slow, mscale):
    return dict(rope_type="yarn", rope_theta=1e4, factor=factor, original_max_position_embeddings=4096, beta_fast=fast,
                beta_slow=slow, mscale=mscale, mscale_all_dim=mscale)


def config_of(kind, rank, sizes, experts, **more):
    """rank: of queries (None: one matrix) and of keys and values. sizes of a head: nope, rope, value."""
    common = dict(vocab_size=VOCAB, num_hidden_layers=LAYERS, max_position_embeddings=65536, pad_token_id=None,
                  bos_token_id=None, eos_token_id=256, hidden_size=HIDDEN, tie_word_embeddings=False,
                  intermediate_size=64, q_lora_rank=rank[0], kv_lora_rank=rank[1], qk_nope_head_dim=sizes[0],
                  qk_rope_head_dim=sizes[1], v_head_dim=sizes[2], n_routed_experts=experts)
    return getattr(transformers, kind)(**common, **more)


def sigmoid(**more):
    return dict(first_k_dense_replace=1, norm_topk_prob=True, **more)


# name, seed of the weights (no choice of experts is near a tie), configuration
MODELS = [
    ("deepseek_v2", 6007, config_of(
        "DeepseekV2Config", (None, 48), (32, 16, 24), 8, num_attention_heads=4, num_key_value_heads=4,
        num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=24, first_k_dense_replace=1, rms_norm_eps=1e-6,
        routed_scaling_factor=1.0, topk_method="greedy", norm_topk_prob=False,
        rope_parameters=yarn(40, 32, 1, 0.707))),
    ("deepseek_v3_f32", 6100, config_of(
        "DeepseekV3Config", (40, 32), (24, 8, 16), 8, num_attention_heads=6, num_key_value_heads=6,
        num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=16, rms_norm_eps=1e-6,
        **sigmoid(routed_scaling_factor=2.5, n_group=4, topk_group=2), rope_parameters=yarn(40, 32, 1, 1.0))),
    ("kimi_k2", 6218, config_of(
        "DeepseekV3Config", (32, 64), (16, 16, 32), 8, num_attention_heads=2, num_key_value_heads=2,
        num_experts_per_tok=3,
        n_shared_experts=1, moe_intermediate_size=24, rms_norm_eps=1e-6,
        **sigmoid(routed_scaling_factor=2.827, n_group=1, topk_group=1), rope_parameters=yarn(32, 1, 1, 1.0))),
    ("glm4_7_flash_f32", 6313, config_of(
        "Glm4MoeLiteConfig", (24, 40), (24, 8, 32), 6, num_attention_heads=5, num_key_value_heads=5,
        num_experts_per_tok=3,
        n_shared_experts=1, moe_intermediate_size=16, rms_norm_eps=1e-5,
        mlp_layer_types=["dense"] + ["sparse"] * (LAYERS - 1), norm_topk_prob=True, routed_scaling_factor=1.8,
        n_group=1, topk_group=1, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
]


def fill(model, seed):
    """As in router_vectors.py: weights large enough that a wrong step moves the logits far beyond the tolerance."""
    gen = torch.Generator().manual_seed(seed)
    tensors = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "correction" in n]
    with torch.no_grad():
        for name, p in sorted(tensors, key=lambda x: x[0]):
            r = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if "correction_bias" in name:
                p.copy_(0.5 * r)
            elif "norm" in name:
                p.copy_(1 + 0.2 * r)
            elif name.endswith("mlp.gate.weight"):
                p.copy_(2 * r / math.sqrt(p.shape[1]))
            else:
                strong = ("lm_head", "q_proj", "q_b_proj", "kv_a_proj")
                gain = 1.5 if any(x in name for x in strong) else 1.0
                gain = math.sqrt(p.shape[1]) if "embed" in name else gain
                p.copy_((gain * r / math.sqrt(p.shape[-1])).half().float())


def round_cache(model):
    for layer in model.model.layers:
        plain = layer.self_attn.expand_kv
        layer.self_attn.expand_kv = lambda c, pe, plain=plain: plain(c.half().float(), pe.half().float())


def converted(model, config):
    """(name in GGUF, float32 array) of every tensor."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.DEEPSEEK2, LAYERS)
    nope, value = config.qk_nope_head_dim, config.v_head_dim
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if name.endswith("experts.gate_up_proj"):
            for matrix, part in zip(("gate", "up"), np.split(a, 2, axis=1)):
                yield gguf_name(names, name.replace("gate_up_proj", f"{matrix}_proj.weight")), part
        elif name.endswith("experts.down_proj"):
            yield gguf_name(names, name + ".weight"), a
        elif name.endswith("kv_b_proj.weight"):
            heads = a.reshape(config.num_attention_heads, nope + value, config.kv_lora_rank)
            yield gguf_name(names, name.replace("kv_b", "k_b")), heads[:, :nope].swapaxes(1, 2)
            yield gguf_name(names, name.replace("kv_b", "v_b")), heads[:, nope:]
        elif name.endswith("e_score_correction_bias"):
            yield gguf_name(names, name.replace("_bias", ".bias")), a
        else:
            yield gguf_name(names, name), a


def write_keys(w, config, drafting):
    rope = config.rope_parameters
    config.rope_theta, config.num_key_value_heads = rope["rope_theta"], 1
    arch_vectors.write_common_keys(w, config, LAYERS + drafting)
    w.add_leading_dense_block_count(1)
    w.add_vocab_size(VOCAB)
    if config.q_lora_rank:
        w.add_q_lora_rank(config.q_lora_rank)
    w.add_kv_lora_rank(config.kv_lora_rank)
    w.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    w.add_value_length(config.kv_lora_rank)
    w.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    w.add_value_length_mla(config.v_head_dim)
    w.add_rope_dimension_count(config.qk_rope_head_dim)
    w.add_expert_feed_forward_length(config.moe_intermediate_size)
    w.add_expert_count(config.n_routed_experts)
    w.add_expert_used_count(config.num_experts_per_tok)
    w.add_expert_shared_count(config.n_shared_experts)
    w.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob:
        w.add_expert_weights_norm(True)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_group_count(config.n_group)
        w.add_expert_group_used_count(config.topk_group)
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if drafting:
        w.add_nextn_predict_layers(1)
    arch_vectors.write_byte_level(w, "deepseek2")


def write_gguf(path, name, model, config):
    drafting = name.startswith("glm")
    w = gguf.GGUFWriter(path, "deepseek2")
    w.add_name(name)
    write_keys(w, config, int(drafting))
    for tensor, a in converted(model, config):
        a = np.ascontiguousarray(a)
        half = a.ndim > 1 and "ffn_gate_inp" not in tensor and not name.endswith("_f32")
        w.add_tensor(tensor, a.astype(np.float16) if half else a)
    for tensor, shape in (("nextn.eh_proj", (HIDDEN, 2 * HIDDEN)), ("nextn.enorm", (HIDDEN,)),
                          ("attn_k_b", (5, 40, 24)), ("ffn_gate_exps", (6, 16, HIDDEN))) if drafting else ():
        w.add_tensor(f"blk.{LAYERS}.{tensor}.weight", np.full(shape, np.nan, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def router_rule(config, z, bias):
    """Scores for the choice and gate weights of all experts before normalising; the published definition."""
    if bias is None:
        p = torch.softmax(z.float(), dim=-1)
        return p, p
    p = z.float().sigmoid()
    s = p + bias
    if config.n_group > 1:
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
        gate = model.model.layers[number].mlp.gate
        z = torch.nn.functional.linear(x, gate.weight)
        s, p = router_rule(config, z, getattr(gate, "e_score_correction_bias", None))
        k = config.num_experts_per_tok
        top, order = s.sort(dim=-1, descending=True, stable=True)
        w = p.gather(1, order[:, :k])
        if config.norm_topk_prob:
            w = w / w.sum(dim=-1, keepdim=True)
        w = w * config.routed_scaling_factor
        _, weights, chosen = gate(x)  # what the package itself chose
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


def greedy(model, ids):
    """The continuation, and the minimum margin between the best and the second logit in it."""
    more, margin = [], math.inf
    for _ in range(GREEDY):
        logits = run(model, torch.cat([ids, torch.tensor([more], dtype=ids.dtype)], dim=1))[0][-1]
        top = logits.topk(2)
        margin = min(margin, (top[0][0] - top[0][1]).item())
        more.append(top[1][0].item())
    return more, margin


def main(out):
    index = []
    for number, (name, seed, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, seed)
        ids = torch.randint(0, VOCAB, (1, POSITIONS), generator=torch.Generator().manual_seed(200 + number))
        if name.endswith("_f32"):
            round_cache(model)
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, config, inputs)
        more, margin = greedy(model, ids)
        write_gguf(f"{out}/{name}.gguf", name, model, config)
        save_logits(f"{out}/{name}.npy", logits)
        gap = min(min(x["gap"]) for x in layers if x)
        size = os.path.getsize(f"{out}/{name}.gguf")
        print(f"{name}: {size} bytes, minimum gap {gap:.2g}, minimum greedy margin {margin:.2g}")
        index.append({"name": name, "q8": False, "f32": name.endswith("_f32"), "ids": ids[0].tolist(), "layers": layers,
                      "greedy": more, "greedy_margin": round(margin, 6)})
    with open(f"{out}/mla.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x) for x in index) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
