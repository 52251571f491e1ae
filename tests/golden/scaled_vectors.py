#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for granitemoe, hunyuan-moe, phimoe and dbrx: small random models as GGUF
files, and the results of the Python package `transformers` with the same weights in float32. A sibling of
router_vectors.py, with a version of the package that has these models:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/scaled_vectors.py tests/golden/data/arch scaled.json

Biases, norms, scales and clamps have values that matter: dbrx's clamp cuts half of q, k and v and more. phimoe's router is
SparseMixer as the package has it: two choices, each weighed by a softmax over the logits near the largest one. Files ending
in _f32 have F32 matrices, others F16; keys and values are rounded to F16 here, too, as in sluice's cache."""
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import vectors
from vectors import VOCAB, half, layer_of, pairs_first

LAYERS = 2
COMMON = dict(vocab_size=VOCAB, attn_implementation="eager", pad_token_id=None, bos_token_id=None, eos_token_id=256)
PLAIN = dict(num_hidden_layers=LAYERS, max_position_embeddings=256, hidden_size=48, **COMMON)
NARROW = {**PLAIN, "hidden_size": 32}  # F32 matrices


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


# Phi-3.5-MoE's LongRoPE: short factors up to the original context
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 128, "short_mscale": 1.2,
        "long_mscale": 1.3, "short_factor": [1.0, 1.1, 1.3, 1.7, 2.5, 4.0], "long_factor": [2.0] * 6}


def dbrx(hidden, heads, kv_heads, inner, experts, used, clip, theta):
    return transformers.DbrxConfig(
        d_model=hidden, n_heads=heads, n_layers=LAYERS, max_seq_len=256, resid_pdrop=0.0, emb_pdrop=0.0, tie_word_embeddings=False,
        attn_config=dict(clip_qkv=clip, kv_n_heads=kv_heads, rope_theta=theta, attn_pdrop=0.0),
        ffn_config=dict(ffn_hidden_size=inner, moe_num_experts=experts, moe_top_k=used, moe_normalize_expert_weights=1.0,
                        hidden_size=hidden), rope_parameters=rope(theta), **COMMON)


# name, architecture in GGUF, configuration
MODELS = [
    ("granitemoe_a", "granitemoe", transformers.GraniteMoeConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=3, intermediate_size=32,
        embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.15, logits_scaling=2.5,
        rms_norm_eps=1e-5, rope_parameters=rope(1e4), tie_word_embeddings=True, **PLAIN)),
    ("granitemoe_b_f32", "granitemoe", transformers.GraniteMoeSharedConfig(
        num_attention_heads=4, num_key_value_heads=1, num_local_experts=6, num_experts_per_tok=2, intermediate_size=24,
        shared_intermediate_size=40, embedding_multiplier=2.0, residual_multiplier=0.8, attention_multiplier=0.5,
        logits_scaling=0.5, rms_norm_eps=1e-6, rope_parameters=rope(1e5), tie_word_embeddings=False, **NARROW)),
    ("hunyuan_a", "hunyuan-moe", transformers.HunYuanMoEV1Config(
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8, moe_topk=3, intermediate_size=32,
        rms_norm_eps=1e-5, rope_parameters=rope(1e4), tie_word_embeddings=True, **PLAIN)),
    ("hunyuan_b_f32", "hunyuan-moe", transformers.HunYuanMoEV1Config(
        num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_experts=5, moe_topk=2, intermediate_size=24,
        rms_norm_eps=1e-6, rope_parameters=rope(1e6), tie_word_embeddings=False, **NARROW)),
    ("phimoe_a", "phimoe", transformers.PhimoeConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, intermediate_size=32,
        attention_bias=True, lm_head_bias=True, router_jitter_noise=0.01, rms_norm_eps=1e-5, rope_parameters=LONG,
        tie_word_embeddings=False, **PLAIN)),
    ("phimoe_b_f32", "phimoe", transformers.PhimoeConfig(
        num_attention_heads=2, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, intermediate_size=24,
        attention_bias=True, lm_head_bias=True, router_jitter_noise=0.01, rms_norm_eps=1e-5, rope_parameters=rope(1e5),
        tie_word_embeddings=False, **NARROW)),
    ("dbrx_a", "dbrx", dbrx(48, 4, 2, 32, 8, 3, 1.0, 1e4)),
    ("dbrx_b_f32", "dbrx", dbrx(32, 2, 1, 24, 6, 2, 0.7, 5e5)),
]
# endings of names in the package, and names in GGUF
NAMES = {
    "embed_tokens.weight": "token_embd.weight", "wte.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias", "norm_f.weight": "output_norm.weight", "lm_head.weight": "output.weight",
    "lm_head.bias": "output.bias", "q_proj.weight": "attn_q.weight", "k_proj.weight": "attn_k.weight",
    "v_proj.weight": "attn_v.weight", "o_proj.weight": "attn_output.weight", "q_proj.bias": "attn_q.bias",
    "k_proj.bias": "attn_k.bias", "v_proj.bias": "attn_v.bias", "o_proj.bias": "attn_output.bias",
    "query_layernorm.weight": "attn_q_norm.weight", "key_layernorm.weight": "attn_k_norm.weight",
    "input_layernorm.weight": "attn_norm.weight", "input_layernorm.bias": "attn_norm.bias",
    "post_attention_layernorm.weight": "ffn_norm.weight", "post_attention_layernorm.bias": "ffn_norm.bias",
    "attn.Wqkv.weight": "attn_qkv.weight", "attn.out_proj.weight": "attn_output.weight",
    "norm_attn_norm.norm_1.weight": "attn_norm.weight", "norm_attn_norm.norm_2.weight": "attn_output_norm.weight",
    "router.weight": "ffn_gate_inp.weight", "router.layer.weight": "ffn_gate_inp.weight", "gate.wg.weight": "ffn_gate_inp.weight",
    "experts.down_proj": "ffn_down_exps.weight", "mlp.w1": "ffn_gate_exps.weight", "mlp.v1": "ffn_up_exps.weight",
    "mlp.w2": "ffn_down_exps.weight", "shared_mlp.gate_proj.weight": "ffn_gate_shexp.weight",
    "shared_mlp.up_proj.weight": "ffn_up_shexp.weight", "shared_mlp.down_proj.weight": "ffn_down_shexp.weight",
    "shared_mlp.output_linear.weight": "ffn_down_shexp.weight",
}


def gguf_name(name):
    found = [v for k, v in NAMES.items() if name == k or name.endswith("." + k)]
    assert len(found) == 1, f"{len(found)} names for {name}"
    parts = name.split(".")
    layer = [p for p in parts if p.isdigit()]
    return (f"blk.{layer[0]}." if layer else "") + found[0]


def fill(model, seed, f32):
    """Weights large enough that a wrong step moves the logits far beyond the tolerance."""
    def value_of(name, p, r):
        if p.dim() == 1 and name.endswith(".weight"):  # of a norm
            return 1 + 0.2 * r
        if name.endswith(".bias"):
            return 0.4 * r
        if is_router(name):
            return 2 * r / math.sqrt(p.shape[1])
        gain = 1.5 if any(x in name for x in ("lm_head", "q_proj", "k_proj", "Wqkv")) else 1.0
        if "embed" in name or "wte" in name:
            gain = math.sqrt(p.shape[-1]) * (0.3 if model.config.tie_word_embeddings else 1)
        inputs = p.shape[0] // model.config.ffn_config.moe_num_experts if name.endswith("mlp.w2") else p.shape[-1]
        value = gain * r / math.sqrt(inputs)
        return value if f32 else half(value)

    vectors.fill(model, seed, value_of)


def is_router(name):
    return name.endswith(("router.weight", "router.layer.weight", "gate.wg.weight"))


def converted(model, arch):
    """(name in GGUF, float32 array) of every tensor."""
    config = model.config
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith("experts.gate_up_proj"):
            for matrix, part in zip(("gate", "up"), np.split(a, 2, axis=1)):
                yield f"blk.{name.split('.layers.')[1].split('.')[0]}.ffn_{matrix}_exps.weight", part
            continue
        if name.endswith("shared_mlp.input_linear.weight"):
            for matrix, part in zip(("gate", "up"), np.split(a, 2, axis=0)):
                yield f"blk.{name.split('.layers.')[1].split('.')[0]}.ffn_{matrix}_shexp.weight", part
            continue
        if arch == "dbrx" and ".mlp." in name:
            a = a.reshape(config.ffn_config.moe_num_experts, -1, config.d_model)
            a = a.transpose(0, 2, 1) if name.endswith("w2") else a
        if arch == "granitemoe" and name.endswith(("q_proj.weight", "k_proj.weight")):
            a = pairs_first(a, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        yield gguf_name(name), a


def write_keys(w, arch, config):
    hidden = config.hidden_size if arch != "dbrx" else config.d_model
    heads = config.num_attention_heads if arch != "dbrx" else config.n_heads
    w.add_block_count(LAYERS)
    w.add_context_length(256)
    w.add_embedding_length(hidden)
    w.add_head_count(heads)
    w.add_head_count_kv(config.attn_config.kv_n_heads if arch == "dbrx" else config.num_key_value_heads)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if arch == "dbrx":
        w.add_feed_forward_length(config.ffn_config.ffn_hidden_size)
        w.add_clamp_kqv(config.attn_config.clip_qkv)
        w.add_expert_count(config.ffn_config.moe_num_experts)
        w.add_expert_used_count(config.ffn_config.moe_top_k)
        w.add_layer_norm_eps(1e-5)
        return
    w.add_feed_forward_length(config.intermediate_size)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_expert_count(getattr(config, "num_experts", None) or config.num_local_experts)
    w.add_expert_used_count(getattr(config, "moe_topk", None) or config.num_experts_per_tok)
    w.add_vocab_size(VOCAB)
    if arch == "granitemoe":
        w.add_rope_dimension_count(hidden // heads)
        w.add_attention_scale(config.attention_multiplier)
        w.add_embedding_scale(config.embedding_multiplier)
        w.add_residual_scale(config.residual_multiplier)
        w.add_logit_scale(config.logits_scaling)
        if hasattr(config, "shared_intermediate_size"):
            w.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    elif arch == "phimoe":
        w.add_rope_dimension_count(hidden // heads)
        w.add_sliding_window(256)
        if "short_factor" in config.rope_parameters:
            w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
            w.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
            w.add_rope_scaling_attn_factors(config.rope_parameters["short_mscale"])
            for which in ("short", "long"):
                w.add_tensor(f"rope_factors_{which}.weight", np.array(config.rope_parameters[f"{which}_factor"], np.float32))
    else:
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
        w.add_expert_feed_forward_length(config.intermediate_size)
        w.add_expert_shared_feed_forward_length(config.intermediate_size)
        w.add_expert_shared_count(1)


def write_gguf(path, name, arch, model):
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    write_keys(w, arch, model.config)
    vectors.write_byte_level(w, arch)
    vectors.add_tensors(w, name, converted(model, arch))
    vectors.finish(w)


def routing(arch, config, logits):
    """Per layer: the experts, their weights, and the smallest gap between scores whose order matters."""
    layers = []
    for z in logits:
        top, order = z.sort(dim=-1, descending=True, stable=True)
        if arch == "phimoe":
            sparsemixer = sys.modules["transformers.models.phimoe.modeling_phimoe"].sparsemixer
            w, chosen = sparsemixer(z, config.router_jitter_noise, False)
            gap = torch.minimum(top[:, 0] - top[:, 1], top[:, 1] - top[:, 2])
        else:
            k = getattr(config, "moe_topk", None) or getattr(config, "num_experts_per_tok", None) or config.ffn_config.moe_top_k
            chosen = order[:, :k]
            w = torch.softmax(z, dim=-1).gather(1, chosen)
            w, gap = w / w.sum(dim=-1, keepdim=True), top[:, k - 1] - top[:, k]
        layers.append(layer_of(chosen, w, gap))
    return layers


def run(model, ids):
    """Logits of the tokens, and of the routers."""
    routers = [m for name, m in model.named_modules()
               if name.endswith(("moe.router", "mlp.router", "ffn.router", "mlp.gate"))]
    assert len(routers) == LAYERS, len(routers)
    logits, inputs = vectors.run(model, ids, routers)
    with torch.no_grad():
        return logits, [x @ router_weight(m).T for x, m in zip(inputs, routers)]


def router_weight(m):
    return m.weight if hasattr(m, "weight") else m.layer.weight if hasattr(m, "layer") else m.wg.weight


def main(out, list_name):
    index = []
    for seed, (name, arch, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, 5000 + seed, vectors.is_f32(name))
        ids = vectors.random_ids(200 + seed)
        restore = vectors.round_cache(model)
        logits, routers = run(model, ids)
        layers = routing(arch, model.config, routers)
        write_gguf(f"{out}/{name}.gguf", name, arch, model)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        restore()
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/{list_name}", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
