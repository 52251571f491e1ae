# SPDX-License-Identifier: Apache-2.0
"""Step-3.5: the package transformers has its text part only within a model with vision, and with other names than the
published checkpoints, which the converter reads."""
import json
import os
import re

import torch
from safetensors.torch import save_file

THETA_FULL, THETA_WINDOW = 1e4, 500.0


class TextModel(torch.nn.Module):
    """The text part with its output matrix."""

    def __init__(self, config):
        super().__init__()
        from transformers.models.step3p7 import modeling_step3p7
        self.config = config
        self.model = modeling_step3p7.Step3p7TextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, ids, **_):
        hidden = self.model(input_ids=ids, use_cache=False).last_hidden_state
        return type("Output", (), dict(logits=self.lm_head(hidden)))


def build(settings, ids):
    from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
    more = dict({k: v for k, v in ids.items() if v is not None}, pad_token_id=1)
    config = Step3p7TextConfig(**settings, **more)
    config._attn_implementation = "eager"
    return TextModel(config).float().eval()


def published(tensors):
    out = {}
    for name, x in tensors.items():
        name = re.sub(r"\.mlp\.shared_experts\.", ".share_expert.", name)
        name = name.replace(".mlp.gate.e_score_correction_bias", ".moe.router_bias").replace(".mlp.gate.", ".moe.gate.")
        name = re.sub(r"\.mlp\.experts\.down_proj$", ".moe.down_proj.weight", name)
        if name.endswith(".mlp.experts.gate_up_proj"):
            half, prefix = x.shape[1] // 2, name.replace(".mlp.experts.gate_up_proj", ".moe.")
            out[prefix + "gate_proj.weight"], out[prefix + "up_proj.weight"] = x[:, :half], x[:, half:]
        elif "inv_freq" not in name:
            out[name] = x
    return out


def drafting(tensors, s, number):
    """A block for drafting after the last layer, with a window and without experts."""
    layers, window = s["num_hidden_layers"], s["layer_types"].index("sliding_attention")
    old, new = f"model.layers.{window}.", f"model.layers.{layers + number}."
    out = {new + n.removeprefix(old): x.flip(0).contiguous() for n, x in tensors.items()
           if n.startswith(old) and ".moe." not in n and ".share_expert." not in n}
    wide, narrow = (s["intermediate_size"], s["hidden_size"]), (s["hidden_size"], s["intermediate_size"])
    for name, shape in (("mlp.gate_proj", wide), ("mlp.up_proj", wide), ("mlp.down_proj", narrow),
                        ("eh_proj", (s["hidden_size"], 2 * s["hidden_size"])), ("enorm", (s["hidden_size"],)),
                        ("hnorm", (s["hidden_size"],)), ("transformer.shared_head.norm", (s["hidden_size"],))):
        out[f"{new}{name}.weight"] = torch.full(shape, 0.25)
    return out


def config_of(s, blocks, eos):
    """config.json; blocks: for drafting."""
    n, full = s["num_hidden_layers"], s["rope_parameters"]["full_attention"]
    kinds = s["layer_types"] + ["sliding_attention"] * blocks
    dense = s["mlp_layer_types"].count("dense")
    config = dict(
        architectures=["Step3p5ForCausalLM"], model_type="step3p5", eos_token_id=eos, layer_types=kinds,
        num_attention_groups=s["num_key_value_heads"], attention_other_setting=dict(
            attention_type="sliding_attention", num_attention_heads=s["num_sliding_attention_heads"],
            num_attention_groups=s["num_key_value_heads"], head_dim=s["head_dim"]),
        rope_theta=[THETA_FULL if k == "full_attention" else THETA_WINDOW for k in kinds],
        partial_rotary_factors=[0.5 if k == "full_attention" else 1.0 for k in kinds],
        moe_num_experts=s["n_routed_experts"], moe_top_k=s["num_experts_per_tok"], moe_router_activation="sigmoid",
        norm_expert_weight=True, use_moe_router_bias=True, use_head_wise_attn_gate=True, moe_every_n_layer=1,
        moe_layers_enum=",".join(str(i) for i in range(dense, n)), use_qk_norm=True, tie_word_embeddings=False,
        num_nextn_predict_layers=blocks)
    for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
                  "max_position_embeddings", "rms_norm_eps", "sliding_window", "moe_intermediate_size", "share_expert_dim",
                  "moe_router_scaling_factor", "vocab_size"):
        config[field] = s[field]
    if s["swiglu_limits"]:
        config.update(swiglu_limits=s["swiglu_limits"] + [0.0] * blocks,
                      swiglu_limits_shared=s["swiglu_limits_shared"] + [0.0] * blocks)
    if full["rope_type"] != "default":
        config.update(yarn_only_types=["full_attention"], rope_scaling={
            k: v for k, v in full.items() if k not in ("rope_theta", "partial_rotary_factor")})
    return config


def save(model, settings, directory, blocks, eos):
    tensors = published(model.state_dict())
    for number in range(blocks):
        tensors.update(drafting(tensors, settings, number))
    save_file({n: x.contiguous() for n, x in tensors.items()}, os.path.join(directory, "model.safetensors"),
              metadata={"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config_of(settings, blocks, eos), f, indent=1)
