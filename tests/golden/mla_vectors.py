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
drafting after its last layer whose tensors hold noise. Files ending in _f32 have F32 matrices, others F16; for the
former, the latents are rounded to F16 here, too, as in sluice's cache, so that little else than the order of sums
differs: sluice multiplies queries and sums by attn_k_b and attn_v_b, this reference every key and value."""
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import vectors
from vectors import VOCAB, gguf_name, half, layer_of

LAYERS, HIDDEN, NARROW = 2, 48, 32  # the narrow ones have F32 matrices


def yarn(factor, fast, slow, mscale):
    return dict(rope_type="yarn", rope_theta=1e4, factor=factor, original_max_position_embeddings=4096, beta_fast=fast,
                beta_slow=slow, mscale=mscale, mscale_all_dim=mscale)


def config_of(kind, rank, sizes, experts, **more):
    """rank: of queries (None: one matrix) and of keys and values. sizes of a head: nope, rope, value."""
    common = dict(vocab_size=VOCAB, num_hidden_layers=LAYERS, max_position_embeddings=65536, pad_token_id=None,
                  bos_token_id=None, eos_token_id=256, hidden_size=more.pop("hidden", HIDDEN), tie_word_embeddings=False,
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
    ("deepseek_v3_f32", 6113, config_of(
        "DeepseekV3Config", (40, 32), (24, 8, 16), 8, num_attention_heads=6, num_key_value_heads=6,
        num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=16, rms_norm_eps=1e-6,
        **sigmoid(routed_scaling_factor=2.5, n_group=4, topk_group=2), rope_parameters=yarn(40, 32, 1, 1.0), hidden=NARROW)),
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
        n_group=1, topk_group=1, rope_parameters=dict(rope_type="default", rope_theta=1e6), hidden=NARROW)),
]


def fill(model, seed):
    """As in router_vectors.py: weights large enough that a wrong step moves the logits far beyond the tolerance."""
    def value_of(name, p, r):
        if "correction_bias" in name:
            return 0.5 * r
        if "norm" in name:
            return 1 + 0.2 * r
        if name.endswith("mlp.gate.weight"):
            return 2 * r / math.sqrt(p.shape[1])
        strong = ("lm_head", "q_proj", "q_b_proj", "kv_a_proj")
        gain = 1.5 if any(x in name for x in strong) else 1.0
        gain = math.sqrt(p.shape[1]) if "embed" in name else gain
        return half(gain * r / math.sqrt(p.shape[-1]))

    vectors.fill(model, seed, value_of, "correction")


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
    vectors.write_common_keys(w, config, LAYERS + drafting)
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
    vectors.write_byte_level(w, "deepseek2")


def write_gguf(path, name, model, config):
    drafting = name.startswith("glm")
    w = gguf.GGUFWriter(path, "deepseek2")
    w.add_name(name)
    write_keys(w, config, int(drafting))
    vectors.add_tensors(w, name, converted(model, config))
    if drafting:
        vectors.add_drafting(w, LAYERS, (("nextn.eh_proj", (NARROW, 2 * NARROW)), ("nextn.enorm", (NARROW,)),
                                         ("attn_k_b", (5, 40, 24)), ("ffn_gate_exps", (6, 16, NARROW))))
    vectors.finish(w)


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
        layers.append(layer_of(order[:, :k], w, top[:, k - 1] - top[:, k]))
    return layers


def run(model, ids):
    """Logits, and the input of each router."""
    return vectors.run(model, ids, [getattr(layer.mlp, "gate", None) for layer in model.model.layers])


def main(out):
    index = []
    for number, (name, seed, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, seed)
        ids = vectors.random_ids(200 + number)
        if vectors.is_f32(name):
            vectors.round_cache(model)
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, config, inputs)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        write_gguf(f"{out}/{name}.gguf", name, model, config)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/mla.json", index)


if __name__ == "__main__":
    main(sys.argv[1])
