# SPDX-License-Identifier: Apache-2.0
"""Hy4 as published: neighbours are rotated, as llama.cpp, vLLM and sglang do it with the published weights; the package
rotates halves, and saves other names of tensors."""
import sys

import torch

from indexed import FEW
from parts import deepseek_like, mla, plain

# of tensors: pairs of an expression and its replacement
NAMES = [(r"\.hc_pre\.hc_head\.", ".hc_head."), (r"\.hc_pre\.hc_(attn|mlp)_layer\.hc_", r".hc_\1_layer.hc_pre.hc_"),
         (r"(\.mlp\..*?)linear_gate", r"\1gate_proj")]


def hy_v4(s):
    """The second layer takes the choice of the first one. Limits are small enough to matter."""
    base = {**plain(s), **deepseek_like(s), **mla(s)}
    base.update(num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "sparse"], indexer_types=["full", "shared", "full"],
                q_lora_rank=s.rank, routed_scaling_factor=2.827, hc_mult=4, hc_magnitude=2.0, hc_eps=1e-6, index_topk=2048,
                index_head_dim=2 * s.head, index_n_heads=4, swiglu_limit=0.8, rms_norm_eps=1e-5, NAMES=NAMES,
                SAVE=dict(num_nextn_predict_layers=0))
    base.pop("first_k_dense_replace")
    base["SAVE"]["first_k_dense_replace"] = 1
    return "HYV4Config", base, {
        "few": dict(index_topk=FEW, index_n_heads=32, EXACT=True), "magnitude": dict(hc_magnitude=1.5),
        "epsilon": dict(hc_eps=1e-3), "no_norm_topk": dict(norm_topk_prob=False), "two_shared": dict(n_shared_experts=2),
        "two_dense": dict(mlp_layer_types=["dense", "dense", "sparse"],
                          SAVE=dict(num_nextn_predict_layers=0, first_k_dense_replace=2))}


def neighbours(q, k, cos, sin, unsqueeze_dim=1):
    half = cos.shape[-1] // 2
    cos, sin = cos[..., :half].unsqueeze(unsqueeze_dim), sin[..., :half].unsqueeze(unsqueeze_dim)

    def turned(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    return turned(q), turned(k)


def rotate_neighbours(model):
    sys.modules[type(model).__module__].apply_rotary_pos_emb = neighbours
