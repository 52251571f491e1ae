#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for architectures with recurrent layers: small random models as GGUF files,
and the results of the Python package `transformers` with the same weights in float32. The sibling of
router_vectors.py, with a version of the package that has these models:

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/recurrent_vectors.py tests/golden/data/arch recurrent.json

qwen35moe and qwen3next: one model with two v heads per k head, one with as many; the kinds of layers by an interval
or by an array. The v heads of qwen35moe are in llama.cpp's order (h % k heads), those of qwen3next in that of the
checkpoint. Decays are from 0.2 to almost 1. qwen35moe_b_f32 has a q and a k head near zero (shrink).
qwen35moe_a has a block for drafting after its last layer: noise. Files ending in _f32 have F32 matrices, others F16; for the former, keys and values are rounded to F16 here, too, as in sluice's cache."""
import math
import sys

import gguf
import numpy as np
import torch
import transformers

import vectors
from vectors import VOCAB, half, layer_of

COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, attn_implementation="eager", pad_token_id=None,
              bos_token_id=None, eos_token_id=256, hidden_size=64, moe_intermediate_size=32, num_experts_per_tok=3)
# Of the models with F32 matrices, which take twice the bytes per weight.
NARROW = dict(COMMON, hidden_size=32, moe_intermediate_size=16)


def qwen(kind, interval, layer_types, heads, linear, common, **more):
    """heads: of q, of k, size; linear: k heads, v heads, size, taps."""
    config = getattr(transformers, kind)(
        num_hidden_layers=len(layer_types), layer_types=layer_types, num_attention_heads=heads[0],
        num_key_value_heads=heads[1], head_dim=heads[2], linear_num_key_heads=linear[0],
        linear_num_value_heads=linear[1], linear_key_head_dim=linear[2], linear_value_head_dim=linear[2],
        linear_conv_kernel_dim=linear[3], rms_norm_eps=1e-6, num_experts=6, **more, **common)
    config.interval = interval
    return config


def rope(theta, part):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": part}


L, F = "linear_attention", "full_attention"
# name, architecture in GGUF, configuration
MODELS = [
    ("qwen35moe_a", "qwen35moe", qwen(
        "Qwen3_5MoeTextConfig", 2, [L, F, L], (4, 2, 32), (2, 4, 16, 4), COMMON, shared_expert_intermediate_size=48,
        rope_parameters=rope(1e5, 0.25), tie_word_embeddings=False)),
    ("qwen35moe_b_f32", "qwen35moe", qwen(
        "Qwen3_5MoeTextConfig", 0, [F, L], (2, 1, 32), (2, 2, 16, 3), NARROW, shared_expert_intermediate_size=32,
        rope_parameters=rope(1e4, 0.5), tie_word_embeddings=True)),
    ("qwen3next_a", "qwen3next", qwen(
        "Qwen3NextConfig", 2, [L, F, L], (4, 2, 32), (2, 4, 16, 4), COMMON, shared_expert_intermediate_size=48,
        intermediate_size=64, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
        rope_parameters=rope(1e5, 0.25), tie_word_embeddings=False)),
    ("qwen3next_b_f32", "qwen3next", qwen(
        "Qwen3NextConfig", 0, [F, L], (2, 1, 32), (1, 3, 16, 4), NARROW, shared_expert_intermediate_size=32,
        intermediate_size=64, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
        rope_parameters=rope(1e4, 0.5), tie_word_embeddings=True)),
    ("lfm2moe_a", "lfm2moe", transformers.Lfm2MoeConfig(
        num_hidden_layers=4, layer_types=["conv", F, "conv", F], num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, conv_L_cache=3, num_dense_layers=2, num_experts=8, norm_eps=1e-5, rope_parameters={
            "rope_type": "default", "rope_theta": 1e5}, tie_word_embeddings=True, **COMMON)),
    ("lfm2moe_b_f32", "lfm2moe", transformers.Lfm2MoeConfig(
        num_hidden_layers=3, layer_types=[F, "conv", "conv"], num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=64, conv_L_cache=4, num_dense_layers=1, num_experts=6, norm_eps=1e-5, rope_parameters={
            "rope_type": "default", "rope_theta": 1e4}, tie_word_embeddings=True, **NARROW)),
]


def fill(model, seed):
    """Weights large enough that a wrong step moves the logits far beyond the tolerance."""
    qwen_like = model.config.model_type != "lfm2_moe"

    def value_of(name, p, r):
        if name.endswith("A_log"):
            return torch.log(torch.linspace(0.01, 2.5, len(p)))
        if name.endswith("dt_bias") or "expert_bias" in name:
            return 0.5 * r
        if "norm" in name:
            centred = qwen_like and "linear_attn.norm" not in name
            return 0.2 * r if centred else 1 + 0.2 * r
        if "conv" in name and p.ndim == 3:
            return 0.6 * r
        if name.endswith(".gate.weight"):
            return 2 * r / math.sqrt(p.shape[1])
        gain = 1.5 if any(x in name for x in ("lm_head", "q_proj", "k_proj")) else 1.0
        tied = 2.0 if model.config.tie_word_embeddings else math.sqrt(p.shape[-1])
        gain = tied if "embed" in name else gain
        return half(gain * r / math.sqrt(p.shape[-1]))

    vectors.fill(model, seed, value_of, "expert_bias")


def shrink(model):
    """The last q and k head of every DeltaNet layer so near to zero that the 1e-6 of their L2 norm decides: of k, whose
    length matters for the state, about as large as the sum of its squares; of q far larger, so that the norm after the
    rule does not undo it."""
    config = model.config
    size, heads = config.linear_key_head_dim, config.linear_num_key_heads
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "linear_attn.conv1d" in name:
                p[(heads - 1) * size:heads * size] *= 2.0 ** -19
                p[(2 * heads - 1) * size:2 * heads * size] *= 2.0 ** -11


def tiled(a, config, size, axis=0):
    """Rows (or columns) of v heads from the order of the checkpoint, grouped by k head, to llama.cpp's."""
    k, share = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    order = np.arange(k * share * size).reshape(k, share, size).swapaxes(0, 1).reshape(-1)
    return np.take(a, order, axis=axis)


def delta_tensors(part, a, config, reorder):
    """(name in GGUF, array) of one tensor of a DeltaNet layer."""
    size, hk = config.linear_key_head_dim, config.linear_num_key_heads
    share = config.linear_num_value_heads // hk
    v = (lambda x, n, axis=0: tiled(x, config, n, axis)) if reorder else (lambda x, n, axis=0: x)
    qk = 2 * hk * size
    if part == "in_proj_qkv.weight":
        yield "attn_qkv.weight", np.concatenate([a[:qk], v(a[qk:], size)])
    elif part == "in_proj_qkvz.weight":  # per k head: q, k, its v heads, their z
        q, k, values, z = np.split(a.reshape(hk, -1, a.shape[1]), [size, 2 * size, (2 + share) * size], axis=1)
        flat = [x.reshape(-1, a.shape[1]) for x in (q, k, values, z)]
        yield "attn_qkv.weight", np.concatenate(flat[:3])
        yield "attn_gate.weight", flat[3]
    elif part == "in_proj_z.weight":
        yield "attn_gate.weight", v(a, size)
    elif part == "conv1d.weight":
        a = a.squeeze(1)
        yield "ssm_conv1d.weight", np.concatenate([a[:qk], v(a[qk:], size)])
    elif part == "A_log":
        yield "ssm_a", v(-np.exp(a), 1)
    elif part == "out_proj.weight":
        yield "ssm_out.weight", v(a, size, 1)
    else:
        name = {"in_proj_b.weight": "ssm_beta.weight", "in_proj_a.weight": "ssm_alpha.weight", "dt_bias": "ssm_dt.bias",
                "in_proj_ba.weight": "ssm_ba.weight", "norm.weight": "ssm_norm.weight"}[part]
        yield name, a if part in ("norm.weight", "in_proj_ba.weight") else v(a, 1)


NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
    "operator_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.out_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight", "self_attn.q_layernorm.weight": "attn_q_norm.weight",
    "self_attn.k_layernorm.weight": "attn_k_norm.weight", "mlp.gate.weight": "ffn_gate_inp.weight",
    "feed_forward.gate.weight": "ffn_gate_inp.weight", "feed_forward.expert_bias": "exp_probs_b.bias",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight", "feed_forward.w1.weight": "ffn_gate.weight",
    "feed_forward.w3.weight": "ffn_up.weight", "feed_forward.w2.weight": "ffn_down.weight",
    "conv.conv.weight": "shortconv.conv.weight", "conv.in_proj.weight": "shortconv.in_proj.weight",
    "conv.out_proj.weight": "shortconv.out_proj.weight", "mlp.experts.down_proj": "ffn_down_exps.weight",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight"}


def converted(model, arch):
    """(name in GGUF, float32 array) of every tensor."""
    config = model.config
    for name, p in model.state_dict().items():
        a = p.detach().numpy()
        if arch != "lfm2moe" and "norm" in name and "linear_attn.norm" not in name:
            a = a + 1
        if not name.startswith("model.layers."):
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            yield {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
                   "model.norm.weight": "output_norm.weight",
                   "model.embedding_norm.weight": "token_embd_norm.weight"}[name], a
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        if rest.startswith("linear_attn."):
            parts = delta_tensors(rest.removeprefix("linear_attn."), a, config, arch == "qwen35moe")
        elif rest.endswith("experts.gate_up_proj"):
            gate, up = np.split(a, 2, axis=1)
            parts = [("ffn_gate_exps.weight", gate), ("ffn_up_exps.weight", up)]
        else:
            parts = [(NAMES[rest], a.squeeze(1) if "conv.conv" in rest else a)]
        for part, array in parts:
            yield f"blk.{layer}.{part}", array


def write_keys(w, arch, config, drafting):
    layers = config.num_hidden_layers
    w.add_block_count(layers + drafting)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_head_count(config.num_attention_heads)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    w.add_expert_count(config.num_experts)
    w.add_expert_used_count(config.num_experts_per_tok)
    w.add_expert_feed_forward_length(config.moe_intermediate_size)
    if arch == "lfm2moe":
        w.add_feed_forward_length(config.intermediate_size)
        w.add_head_count_kv([config.num_key_value_heads if t == F else 0 for t in config.layer_types])
        w.add_layer_norm_rms_eps(config.norm_eps)
        w.add_leading_dense_block_count(config.num_dense_layers)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_uint32("lfm2moe.shortconv.l_cache", config.conv_L_cache)
        w.add_vocab_size(VOCAB)
    else:
        w.add_head_count_kv(config.num_key_value_heads)
        w.add_layer_norm_rms_eps(config.rms_norm_eps)
        w.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
        turned = int(config.head_dim * config.rope_parameters["partial_rotary_factor"])
        w.add_rope_dimension_count(turned)
        if arch == "qwen35moe":
            pairs = turned // 2  # take turns; llama.cpp does not rotate a pair beyond its axis's number
            w.add_rope_dimension_sections([(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0])
        w.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        w.add_ssm_state_size(config.linear_key_head_dim)
        w.add_ssm_group_count(config.linear_num_key_heads)
        w.add_ssm_time_step_rank(config.linear_num_value_heads)
        w.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
        if config.interval:
            w.add_uint32(f"{arch}.full_attention_interval", config.interval)
        else:
            w.add_array(f"{arch}.attention.recurrent_layers", [t == L for t in config.layer_types])
    if drafting:
        w.add_uint32(f"{arch}.nextn_predict_layers", 1)
    vectors.write_byte_level(w, arch)


def file_tensors(model, arch):
    for tensor, a in converted(model, arch):
        yield tensor, a.reshape(-1) if "ffn_gate_inp_shexp" in tensor else a


def in_f16(tensor, a):
    convolution = "conv" in tensor and "proj" not in tensor
    return "ffn_gate_inp_shexp" in tensor or vectors.is_matrix(tensor, a) and not convolution


def write_gguf(path, name, arch, model):
    drafting = name == "qwen35moe_a"
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    write_keys(w, arch, model.config, int(drafting))
    vectors.add_tensors(w, name, file_tensors(model, arch), in_f16)
    if drafting:
        vectors.add_drafting(w, model.config.num_hidden_layers, (
            ("nextn.eh_proj", (64, 128)), ("nextn.enorm", (64,)), ("attn_q", (256, 64)), ("ffn_gate_exps", (1, 32, 64))))
    vectors.finish(w)


def routing(model, inputs):
    """Per layer, null without experts: the experts, their weights, and the gap between the last chosen score and the
    first one not chosen."""
    layers, k = [], model.config.num_experts_per_tok
    for layer, x in zip(model.model.layers, inputs):
        if x is None:
            layers.append(None)
            continue
        block = block_of(layer)
        z = torch.nn.functional.linear(x, block.gate.weight)
        if hasattr(block, "expert_bias"):
            p = z.sigmoid()
            s = p + block.expert_bias
        else:
            p, s = torch.softmax(z, dim=-1), z
        top, order = s.sort(dim=-1, descending=True, stable=True)
        w = p.gather(1, order[:, :k])
        w = w / w.sum(dim=-1, keepdim=True)
        layers.append(layer_of(order[:, :k], w, top[:, k - 1] - top[:, k]))
    return layers


def block_of(layer):
    return layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp


def run(model, ids):
    """Logits, and the input of each router."""
    return vectors.run(model, ids, [getattr(block_of(layer), "gate", None) for layer in model.model.layers])


def main(out, list_name):
    index = []
    for seed, (name, arch, config) in enumerate(MODELS):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        fill(model, 5000 + seed)
        if name == "qwen35moe_b_f32":
            shrink(model)
        ids = vectors.random_ids(200 + seed)
        restore = vectors.round_cache(model) if vectors.is_f32(name) else lambda: None
        logits, inputs = run(model, ids)
        with torch.no_grad():
            layers = routing(model, inputs)
        write_gguf(f"{out}/{name}.gguf", name, arch, model)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = vectors.greedy(lambda x: run(model, x)[0], ids)
        restore()
        index.append(vectors.entry(name, ids[0].tolist(), layers, more, margin))
    vectors.write_list(f"{out}/{list_name}", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
