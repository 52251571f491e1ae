# SPDX-License-Identifier: Apache-2.0
"""GLM-5.3-Flash as published: the text model is part of one with vision, and fields of its configuration have other names
than in the package."""
import json
import os

import torch
import transformers
from safetensors.torch import load_file, save_file

from indexed import FEW
from parts import deepseek_like, mla, plain

LINEAR, FULL = "linear_attention", "indexed_attention"


def glm5_next(s):
    """The indexer chooses all positions of the texts, or, in `few`, four pools and the rest, by keys that are not rounded;
    the last layer takes the choice of the one before it. With many heads (`few_heads`) no scores are equal. Limits are
    small enough to matter."""
    def kinds(*names):
        return dict(num_hidden_layers=len(names), layer_types=list(names), indexer_types=["full"] * len(names),
                    mlp_layer_types=["dense"] + ["sparse"] * (len(names) - 1))

    def decays(bound=-5.0, taps=4, state=s.state):
        return dict(linear_attn_config=dict(head_dim=state, num_heads=s.heads, short_conv_kernel_size=taps,
                                            gate_lower_bound=bound, safe_gate=bound is not None),
                    linear_lower_bound=bound)

    base = {**plain(s), **deepseek_like(s), **mla(s), **kinds(LINEAR, FULL, LINEAR), **decays()}
    for name in ("rope_parameters", "first_k_dense_replace"):
        base.pop(name)
    base.update(q_lora_rank=s.rank, qk_rope_head_dim=0, routed_scaling_factor=2.5, swiglu_limit=1.0, hc_mult=4, hc_eps=1e-6,
                hc_sinkhorn_iters=20, index_topk=2048, index_n_heads=4, index_head_dim=2 * s.head, index_kpool=4,
                index_kpool_always_select_tail=True, rms_norm_eps=1e-5)
    few = dict(kinds(FULL, LINEAR, FULL, FULL), indexer_types=["full"] * 3 + ["shared"], index_topk=FEW, EXACT=True)
    return "Glm5NextTextConfig", base, {
        "free": decays(None), "taps": decays(taps=3), "wide_state": decays(state=2 * s.state),
        "steps": dict(hc_sinkhorn_iters=3), "epsilon": dict(hc_eps=1e-3), "two_shared": dict(n_shared_experts=2),
        "no_norm_topk": dict(norm_topk_prob=False), "first_full": kinds(FULL, LINEAR, FULL),
        "groups": dict(n_group=2, topk_group=1), "mtp": dict(MTP="glm5"),
        "few": few, "few_heads": dict(few, index_n_heads=32)}


def build(config):
    """With a tower of one layer that texts do not use."""
    tower = dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=32, out_hidden_size=config.hidden_size,
                 projection_intermediate_size=32, image_size=28, patch_size=14)
    both = transformers.Glm5NextConfig(text_config=config.to_dict(), vision_config=tower,
                                       tie_word_embeddings=config.tie_word_embeddings, attn_implementation="eager",
                                       architectures=["Glm5NextForConditionalGeneration"])
    return transformers.Glm5NextForConditionalGeneration(both)


def add_drafting(directory, settings):
    """A block after the last layer as published: the tensors of a layer with attention, one stream, other numbers."""
    path, layers = os.path.join(directory, "model.safetensors"), settings["num_hidden_layers"]
    tensors, hidden = load_file(path), settings["hidden_size"]
    prefix = f"model.language_model.layers.{settings['layer_types'].index(FULL)}."
    block = f"model.language_model.layers.{layers}."
    for name, tensor in list(tensors.items()):
        if name.startswith(prefix) and ".hc_" not in name:
            tensors[block + name.removeprefix(prefix)] = tensor.flip(0).contiguous()
    tensors[block + "eh_proj.weight"] = torch.full((hidden, 2 * hidden), 0.5)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[block + name + ".weight"] = torch.ones(hidden)
    save_file(tensors, path, metadata={"format": "pt"})


def publish(directory, settings, drafts):
    path = os.path.join(directory, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    text = config["text_config"]
    text.update(linear_attn_config=settings["linear_attn_config"], mla_use_nope=True, mhc=True, scoring_func="sigmoid",
                topk_method="noaux_tc", num_nextn_predict_layers=drafts,
                first_k_dense_replace=settings["mlp_layer_types"].count("dense"))
    text = {name: value for name, value in text.items() if not name.startswith("linear_") or name == "linear_attn_config"}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dict(config, text_config=text), f, indent=1)
