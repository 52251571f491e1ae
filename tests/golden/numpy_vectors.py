#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for bailingmoe2 (Ling and Ring 2.0) and smallthinker, which the package
transformers does not have: small random models as GGUF files, and their results in double precision, computed here after
the models' published code (modeling_bailing_moe_v2.py, modeling_smallthinker.py). It also computes bailingmoe (Ling and Ring 1,
modeling_bailing_moe.py), deepseek (DeepSeek-MoE, modeling_deepseek.py) and arctic (modeling_arctic.py) for converter_vectors.py,
whose files are llama.cpp's.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/numpy_vectors.py tests/golden/data/arch numpy.json

bailingmoe2: q, k and v in one matrix; an RMSNorm of each q and k head, then the first half of each head rotated; sigmoid
router with a bias for the choice and groups; the first layer dense; a shared expert. bailing_b has no groups and rotates whole
heads. smallthinker: the router reads the input of the layer, before its norm; experts with ReLU; every fourth layer attends to
all positions and does not rotate, the others have a window of 16 (smallthinker_b: no window, all rotate; softmax of the chosen
k). maple (sglang's maple.py): every second layer attends to all positions and does not rotate; limits of gate and up. bailingmoe, deepseek: softmax over all experts, whole heads rotated, shared experts. Files ending in _f32 have F32 matrices, others F16; for all, keys and values are rounded to F16, as in sluice's cache."""
import math
import sys

import gguf
import numpy as np

import vectors
from vectors import GREEDY, POSITIONS, VOCAB

JOINED = ("bailingmoe", "bailingmoe2")  # q, k and v in one matrix, as published

# name, architecture in GGUF, sizes
MODELS = [
    ("bailing_a", "bailingmoe2", dict(layers=3, heads=4, kv_heads=2, head=12, experts=8, used=3, inner=24, groups=4,
                                      groups_used=2, dense=1, dense_inner=64, shared=40, rope=6, theta=1e5, scale=2.5)),
    ("bailing_b_f32", "bailingmoe2", dict(hidden=32, layers=2, heads=2, kv_heads=1, head=16, experts=5, used=2, inner=24, groups=1,
                                          groups_used=1, dense=0, dense_inner=64, shared=24, rope=16, theta=1e4, scale=1.0)),
    ("smallthinker_a", "smallthinker", dict(layers=5, heads=4, kv_heads=2, head=16, experts=6, used=3, inner=16, window=16,
                                            theta=1e4, softmax=False)),
    ("smallthinker_b_f32", "smallthinker", dict(hidden=32, layers=2, heads=2, kv_heads=1, head=16, experts=6, used=2, inner=24,
                                                window=0, theta=1e5, softmax=True)),
]


def hidden_of(c):
    return c.get("hidden", 48)


def half(x):
    return x.astype(np.float16).astype(np.float64)


def weights(arch, c, seed, f32):
    """Tensors by their names in GGUF, rows first; large enough that a wrong step moves the logits far beyond the
    tolerance."""
    draw = np.random.default_rng(seed)
    t = {}

    def matrix(name, *shape, gain=1.0):
        a = gain * draw.standard_normal(shape) / math.sqrt(shape[-1])
        t[name] = a.astype(np.float32).astype(np.float64) if f32 or "gate_inp" in name else half(a)

    def vector(name, n, mean, spread):
        t[name] = (mean + spread * draw.standard_normal(n)).astype(np.float32).astype(np.float64)

    q, kv, inner, hidden = c["heads"] * c["head"], c["kv_heads"] * c["head"], c["inner"], hidden_of(c)
    matrix("token_embd.weight", VOCAB, hidden, gain=math.sqrt(hidden))
    matrix("output.weight", VOCAB, hidden, gain=1.5)
    vector("output_norm.weight", hidden, 1, 0.2)
    for layer in range(c["layers"]):
        b = f"blk.{layer}."
        vector(b + "attn_norm.weight", hidden, 1, 0.2)
        vector(b + "ffn_norm.weight", hidden, 1, 0.2)
        matrix(b + "attn_output.weight", hidden, q)
        if arch in JOINED:
            matrix(b + "attn_qkv.weight", q + 2 * kv, hidden)
        if arch in ("bailingmoe2", "maple"):
            vector(b + "attn_q_norm.weight", c["head"], 1.3, 0.3)
            vector(b + "attn_k_norm.weight", c["head"], 1.3, 0.3)
        if arch not in JOINED:
            matrix(b + "attn_q.weight", q, hidden, gain=1.5)
            matrix(b + "attn_k.weight", kv, hidden, gain=1.5)
            matrix(b + "attn_v.weight", kv, hidden)
        if arch == "arctic":
            vector(b + "ffn_norm_exps.weight", hidden, 1, 0.2)
            for name in ("gate", "up", "down"):
                matrix(b + f"ffn_{name}.weight", hidden, hidden)
        if layer < c.get("dense", 0):
            for name, shape in (("gate", (c["dense_inner"], hidden)), ("up", (c["dense_inner"], hidden)),
                                ("down", (hidden, c["dense_inner"]))):
                matrix(b + f"ffn_{name}.weight", *shape)
            continue
        matrix(b + "ffn_gate_inp.weight", c["experts"], hidden, gain=1.5)
        gains = (4, 4, 0.1) if arch == "maple" else (1, 1, 1)  # beyond the limits
        for name, shape, gain in zip(("gate", "up", "down"), ((inner, hidden), (inner, hidden), (hidden, inner)), gains):
            matrix(b + f"ffn_{name}_exps.weight", c["experts"], *shape, gain=gain)
        if arch == "bailingmoe2":
            vector(b + "exp_probs_b.bias", c["experts"], 0, 0.4)
        if arch not in ("smallthinker", "maple", "arctic"):
            for name, shape in (("gate", (c["shared"], hidden)), ("up", (c["shared"], hidden)), ("down", (hidden, c["shared"]))):
                matrix(b + f"ffn_{name}_shexp.weight", *shape)
    return t


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rotate(x, dims, theta):
    """The first `dims` elements of each head, halves."""
    n = dims // 2
    angle = np.arange(len(x))[:, None] * theta ** (-2.0 * np.arange(n) / dims)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :n], x[..., n:dims]
    return np.concatenate([a * c - b * s, a * s + b * c, x[..., dims:]], axis=-1)


def attend(q, k, v, window):
    n, group = len(q), q.shape[1] // k.shape[1]
    k, v = np.repeat(half(k), group, axis=1), np.repeat(half(v), group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    at = np.arange(n)
    hidden = at[None, :] > at[:, None]
    if window:
        hidden |= at[None, :] <= at[:, None] - window
    scores[:, hidden] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v).reshape(n, -1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def network(x, t, b, kind, activation, expert=None, limit=np.inf):
    gate, up, down = (t[f"{b}ffn_{m}{kind}.weight"] for m in ("gate", "up", "down"))
    if expert is not None:
        gate, up, down = gate[expert], up[expert], down[expert]
    return (activation(np.minimum(x @ gate.T, limit)) * np.clip(x @ up.T, -limit, limit)) @ down.T


def silu(x):
    return x * sigmoid(x)


def relu(x):
    return np.maximum(x, 0)


def bailing_choice(z, bias, c):
    """Experts by falling score, their weights, and the gap to the first score not chosen."""
    p = sigmoid(z)
    s = p + bias
    if c["groups"] > 1:
        groups = s.reshape(len(s), c["groups"], -1)
        score = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
        kept = np.argsort(-score, axis=-1, kind="stable")[:, :c["groups_used"]]
        mask = np.ones_like(score, bool)
        np.put_along_axis(mask, kept, False, axis=1)
        s = np.where(mask[..., None], -np.inf, groups).reshape(s.shape)
    order = np.argsort(-s, axis=-1, kind="stable")
    top = np.take_along_axis(s, order, axis=1)
    w = np.take_along_axis(p, order[:, :c["used"]], axis=1)
    return order[:, :c["used"]], w / w.sum(axis=1, keepdims=True) * c["scale"], top[:, c["used"] - 1] - top[:, c["used"]]


def softmax_choice(z, c):
    order = np.argsort(-z, axis=-1, kind="stable")
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    p = np.take_along_axis(e / e.sum(axis=-1, keepdims=True), order, axis=1)
    w = p[:, :c["used"]]
    return order[:, :c["used"]], w / w.sum(axis=1, keepdims=True) if c["norm"] else w, p[:, c["used"] - 1] - p[:, c["used"]]


def smallthinker_choice(z, c):
    order = np.argsort(-z, axis=-1, kind="stable")
    top = np.take_along_axis(z, order, axis=1)
    w = np.exp(top[:, :c["used"]] - top[:, :1]) if c["softmax"] else sigmoid(top[:, :c["used"]])
    return order[:, :c["used"]], w / w.sum(axis=1, keepdims=True), top[:, c["used"] - 1] - top[:, c["used"]]


def experts(x, chosen, w, t, b, activation, limit=np.inf):
    out = np.zeros_like(x)
    for e in np.unique(chosen):
        row, rank = np.nonzero(chosen == e)
        out[row] += w[row, rank][:, None] * network(x[row], t, b, "_exps", activation, e, limit)
    return out


def split_heads(x, t, b, c):
    if b + "attn_qkv.weight" not in t:
        return tuple((x @ t[f"{b}attn_{m}.weight"].T).reshape(len(x), -1, c["head"]) for m in "qkv")
    h, g = c["heads"], c["kv_heads"]
    both = (x @ t[b + "attn_qkv.weight"].T).reshape(len(x), h + 2 * g, c["head"])
    return both[:, :h], both[:, h:h + g], both[:, h + g:]


def maple_attention(x, t, b, c, layer, eps):
    q, k, v = split_heads(x, t, b, c)
    q, k = norm(q, t[b + "attn_q_norm.weight"], eps), norm(k, t[b + "attn_k_norm.weight"], eps)
    if layer % 2 == 0:
        q, k = rotate(q, c["rope"], c["theta"]), rotate(k, c["rope"], c["theta"])
    return attend(q, k, v, c["window"] if layer % 2 == 0 else 0) @ t[b + "attn_output.weight"].T


def full_attention(x, t, b, c, layer, eps):
    q, k, v = split_heads(x, t, b, c)
    if b + "attn_q_norm.weight" in t:
        q, k = norm(q, t[b + "attn_q_norm.weight"], eps), norm(k, t[b + "attn_k_norm.weight"], eps)
    return attend(rotate(q, c["rope"], c["theta"]), rotate(k, c["rope"], c["theta"]), v, 0) @ t[b + "attn_output.weight"].T


def smallthinker_attention(x, t, b, c, layer, eps):
    q, k, v = split_heads(x, t, b, c)
    window = c["window"] if layer % 4 != 0 else 0
    if not c["window"] or layer % 4 != 0:
        q, k = rotate(q, c["head"], c["theta"]), rotate(k, c["head"], c["theta"])
    return attend(q, k, v, window) @ t[b + "attn_output.weight"].T


def run(arch, t, c, ids, eps=1e-5):
    """Logits, and per layer the routing (None without experts)."""
    x = t["token_embd.weight"][ids]
    layers = []
    for layer in range(c["layers"]):
        b = f"blk.{layer}."
        start = x
        attention = {"smallthinker": smallthinker_attention, "maple": maple_attention}.get(arch, full_attention)
        x = x + attention(norm(x, t[b + "attn_norm.weight"], eps), t, b, c, layer, eps)
        y = norm(x, t[b + "ffn_norm.weight"], eps)
        if layer < c.get("dense", 0):
            x = x + network(y, t, b, "", silu)
            layers.append(None)
            continue
        router = t[b + "ffn_gate_inp.weight"].T
        if arch == "smallthinker":
            chosen = smallthinker_choice(start @ router, c)
            x = x + experts(y, chosen[0], chosen[1], t, b, relu)
        elif arch == "arctic":
            x = x + network(y, t, b, "", silu)
            y = norm(start, t[b + "ffn_norm_exps.weight"], eps)
            chosen = softmax_choice(y @ router, c)
            x = x + experts(y, chosen[0], chosen[1], t, b, silu)
        elif arch == "maple":
            chosen = softmax_choice(y @ router, c)
            x = x + experts(y, chosen[0], chosen[1], t, b, silu, 7.0)
        else:
            z = y @ router
            chosen = bailing_choice(z, t[b + "exp_probs_b.bias"], c) if arch == "bailingmoe2" else softmax_choice(z, c)
            x = x + experts(y, chosen[0], chosen[1], t, b, silu) + network(y, t, b, "_shexp", silu)
        layers.append({"experts": chosen[0].tolist(), "weights": np.round(chosen[1], 6).tolist(),
                       "gap": np.round(chosen[2], 6).tolist()})
    head = t["output.weight"]
    if c.get("norm_head"):
        head = head / (np.linalg.norm(head, axis=0) + 1e-7)
    return norm(x, t["output_norm.weight"], eps) @ head.T, layers


def write_gguf(path, name, arch, t, c):
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    w.add_block_count(c["layers"])
    w.add_context_length(256)
    w.add_embedding_length(hidden_of(c))
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["kv_heads"])
    w.add_key_length(c["head"])
    w.add_value_length(c["head"])
    w.add_rope_freq_base(c["theta"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_expert_count(c["experts"])
    w.add_expert_used_count(c["used"])
    w.add_expert_feed_forward_length(c["inner"])
    if arch == "bailingmoe2":
        w.add_feed_forward_length(c["dense_inner"])
        w.add_rope_dimension_count(c["rope"])
        w.add_leading_dense_block_count(c["dense"])
        w.add_expert_shared_feed_forward_length(c["shared"])
        w.add_expert_shared_count(1)
        w.add_expert_weights_scale(c["scale"])
        w.add_expert_weights_norm(True)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_group_count(c["groups"])
        w.add_expert_group_used_count(c["groups_used"])
        w.add_nextn_predict_layers(0)
    else:
        w.add_feed_forward_length(c["inner"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if c["softmax"] else gguf.ExpertGatingFuncType.SIGMOID)
        if c["window"]:
            w.add_sliding_window(c["window"])
    vectors.write_byte_level(w, arch)
    vectors.add_tensors(w, name, t.items())
    vectors.finish(w)


def greedy(arch, t, c, ids):
    more, margin = [], math.inf
    for _ in range(GREEDY):
        last = run(arch, t, c, np.concatenate([ids, np.array(more, int)]))[0][-1]
        top = np.sort(last)
        margin = min(margin, top[-1] - top[-2])
        more.append(int(last.argmax()))
    return more, margin


def main(out, list_name):
    index = []
    for seed, (name, arch, c) in enumerate(MODELS):
        f32 = name.endswith("_f32")
        t = weights(arch, c, 7000 + seed, f32)
        ids = np.random.default_rng(300 + seed).integers(0, VOCAB, POSITIONS)
        logits, layers = run(arch, t, c, ids)
        write_gguf(f"{out}/{name}.gguf", name, arch, t, c)
        vectors.save_logits(f"{out}/{name}.npy", logits)
        more, margin = greedy(arch, t, c, ids)
        index.append(vectors.entry(name, ids.tolist(), layers, more, margin))
    vectors.write_list(f"{out}/{list_name}", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
