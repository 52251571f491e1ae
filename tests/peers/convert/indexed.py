# SPDX-License-Identifier: Apache-2.0
"""Architectures whose attention is over positions that an indexer chooses: as many as the text has tokens (`chosen` of the
sizes), so that it chooses all of them, or FEW, by keys that are not rounded; models.py has the others."""
import json
import os
import re

import torch
from safetensors.torch import save_file

from parts import ORIGINAL, deepseek_like, mla, plain, rope

BLOCKS = 10
FEW = 16
YARN = rope("yarn", factor=8.0, original_max_position_embeddings=ORIGINAL, mscale=1.0, mscale_all_dim=1.0)


def indexed(s, config, **more):
    save = dict(scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=0)
    base = plain(s, q_lora_rank=s.rank, index_topk=s.chosen, index_n_heads=4, index_head_dim=s.head, SAVE=save,
                 **deepseek_like(s), **more)
    base.update(mla(s))
    return config, base, {
        "mtp": dict(MTP="layers", SAVE={**save, "num_nextn_predict_layers": 1}),
        "no_norm_topk": dict(norm_topk_prob=False), "all_experts": dict(first_k_dense_replace=0),
        "two_shared": dict(n_shared_experts=2)}


def deepseek32(s):
    """With YaRN, as published."""
    config, base, variants = indexed(s, "DeepseekV32Config", rms_norm_eps=1e-6, rope_parameters=YARN)
    return config, base, {**variants, "groups": dict(n_group=s.experts // 2, topk_group=2),
                          "default": dict(rope_parameters=rope()), "few": dict(index_topk=FEW, index_n_heads=32, EXACT=True)}


def glm_dsa(s):
    """In `shared`, as in GLM-5.2, layers take the choice of the one before them."""
    config, base, variants = indexed(s, "GlmMoeDsaConfig", rms_norm_eps=1e-5)
    kinds = (["full", "full", "shared"] * s.layers)[:s.layers]
    few = dict(EXACT=True, index_topk=FEW, index_n_heads=32, num_hidden_layers=4, indexer_types=["full", "full", "shared", "full"])
    return config, base, {**variants, "shared": dict(indexer_types=kinds), "yarn_mscale": dict(rope_parameters=YARN),
                          "few": few}


def minimax_m3(s):
    """Gate and up are large enough for the limits of the activation."""
    base = plain(s, head_dim=s.head, num_local_experts=s.experts, num_experts_per_tok=3, intermediate_size=s.inner,
                 dense_intermediate_size=s.dense, shared_intermediate_size=s.inner, routed_scaling_factor=2.0,
                 rotary_dim=s.head // 2, mlp_layer_types=["dense"] + ["sparse"] * (s.layers - 1), rms_norm_eps=1e-6,
                 layer_types=["full_attention"] + ["minimax_m3_sparse"] * (s.layers - 1), index_n_heads=s.kv,
                 index_head_dim=s.head, index_block_size=s.chosen // BLOCKS, index_topk_blocks=BLOCKS,
                 index_local_blocks=1, rope_parameters=rope(theta=5e6, partial_rotary_factor=0.5),
                 GAIN=((r"gate_up_proj", 4.0),))
    return "MiniMaxM3VLTextConfig", base, {
        "rotary": dict(rotary_dim=s.head, rope_parameters=rope(theta=5e6, partial_rotary_factor=1.0)),
        "no_scale": dict(routed_scaling_factor=1.0),
        "two_dense": dict(mlp_layer_types=["dense"] * (s.layers - 1) + ["sparse"],
                          layer_types=["full_attention"] * (s.layers - 1) + ["minimax_m3_sparse"]),
        "few": dict(EXACT=True, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, index_n_heads=2,
                    index_head_dim=2 * s.head, index_block_size=5, index_topk_blocks=4, index_local_blocks=2,
                    mlp_layer_types=["dense"] + ["sparse"] * 3, layer_types=["full_attention"] + ["minimax_m3_sparse"] * 3)}


def lower_first(losses):
    """The same function with the rule of sluice for equal scores, which the package leaves open: of pools, many have 0."""
    def first(scores, k, dim):
        order = scores.sort(dim=dim, descending=True, stable=True)
        return torch.return_types.topk((order.values.narrow(dim, 0, k), order.indices.narrow(dim, 0, k)))

    def ruled(model, ids):
        plain, torch.Tensor.topk = torch.Tensor.topk, first
        try:
            return losses(model, ids)
        finally:
            torch.Tensor.topk = plain

    return ruled


def published(tensors):
    """The names of the published checkpoint of MiniMax-M3."""
    out = {}
    for name, x in tensors.items():
        if "inv_freq" in name:
            continue
        name = name.replace(".self_attn.indexer.", ".self_attn.index_")
        name = name.replace(".mlp.gate.e_score", ".block_sparse_moe.e_score")
        name = re.sub(r"\.mlp\.(gate\.|experts\.|shared_experts\.)", r".block_sparse_moe.\1", name)
        if name.endswith(".experts.gate_up_proj"):
            prefix, half = name.removesuffix("gate_up_proj"), x.shape[1] // 2
            for e, both in enumerate(x):
                out[f"{prefix}{e}.w1.weight"], out[f"{prefix}{e}.w3.weight"] = both[:half], both[half:]
        elif name.endswith(".experts.down_proj"):
            out.update({f"{name.removesuffix('down_proj')}{e}.w2.weight": one for e, one in enumerate(x)})
        elif name.endswith("gate_up_proj.weight"):
            gate, up = x.chunk(2, 0)
            out[name.replace("gate_up", "gate")], out[name.replace("gate_up", "up")] = gate, up
        else:
            out[name] = x
    return {name: x.contiguous() for name, x in out.items()}


def save(model, settings, directory, eos):
    """MiniMax-M3 as published: the package has other names of tensors and of some fields."""
    s = dict(settings)
    sparse = [int(kind == "sparse") for kind in s.pop("mlp_layer_types")]
    s.pop("layer_types")
    theta = s.pop("rope_parameters")
    part = {"use_sparse_attention": True, "sparse_init_block": 0, "sparse_score_type": "max", "sparse_attention_freq": sparse}
    for field, old in (("sparse_num_index_heads", "index_n_heads"), ("sparse_index_dim", "index_head_dim"),
                       ("sparse_block_size", "index_block_size"), ("sparse_topk_blocks", "index_topk_blocks"),
                       ("sparse_local_block", "index_local_blocks")):
        part[field] = s.pop(old)
    config = dict(s, architectures=["MiniMaxM3SparseForCausalLM"], model_type="minimax_m3", eos_token_id=eos,
                  rope_theta=theta["rope_theta"], partial_rotary_factor=theta["partial_rotary_factor"], n_shared_experts=1,
                  moe_layer_freq=sparse, scoring_func="sigmoid", use_routing_bias=True, swiglu_alpha=1.702,
                  swiglu_limit=7.0, hidden_act="swigluoai", sparse_attention_config=part)
    save_file(published(model.state_dict()), os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
