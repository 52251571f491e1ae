# SPDX-License-Identifier: Apache-2.0
"""Small random checkpoints as the package transformers saves them, and what that package computes from them, in float32.
Matrices hold numbers that F32, F16 and BF16 have alike; keys and values are rounded to F16, as in sluice's cache, but for
EXACT."""
import json
import math
import os
import re

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import deepseek4
import glm5
import hf_directory
import hf_vectors
import hy4
import indexed
import kimi3
import minimax01
import numpy_vectors
import step
import vectors
import vocabulary

ROUTER = re.compile(r"(router|mixer\.gate|mlp\.gate|moe\.gate|feed_forward\.gate|gate\.wg|router\.(layer|proj|gate))(\.weight)?$")


def value(name, shape, draw, tied, centred, turned):
    """A tensor's numbers: large enough that a wrong step moves the losses far beyond the tolerance. turned: experts have their
    inputs as rows."""
    r = torch.randn(shape, generator=draw)
    if name.endswith("A_log") and len(shape) == 2:  # elements of a channel differ
        steps = torch.log(torch.linspace(0.01, 2.5, math.prod(shape)))
        return steps[torch.randperm(len(steps), generator=draw)].reshape(shape)
    if name.endswith("A_log"):
        return torch.log(torch.linspace(0.01, 2.5, math.prod(shape))).reshape(shape)
    if name.endswith("_hc.base"):  # of a matrix that converges slowly
        return torch.where(torch.arange(shape[0]) < 8, 0.7, 2.5) * r
    if "correction_bias" in name or "expert_bias" in name:
        return (0.02 if "moe_statics" in name else 0.15) * r.abs()  # positive: the package makes scores of excluded groups 0
    if name.endswith(("router.scale", "per_expert_scale", "layer_scalar")):
        return (1 + 0.2 * r) * (math.sqrt(shape[0]) if name.endswith("router.scale") else 1)
    if "sinks" in name:
        return 1 + r
    if len(shape) == 1 and name.endswith("bias") or name.endswith("_bias"):
        return 0.3 * r
    if len(shape) == 1:
        return 0.2 * r if centred and "linear_attn.norm" not in name else 1 + 0.2 * r
    if "embed" in name or "wte" in name:
        return rounded((0.15 if tied else 1.0) * r)
    inputs = shape[-1]
    if len(shape) == 3:
        inputs = shape[1] if "gpt" in name or turned else shape[-1]
    if "conv" in name and "proj" not in name:
        return rounded(0.6 * r)
    gain = 1.0
    if re.search(r"(block_inject|input_mix_weight)", name):  # of streams: sigmoids far from 1/2
        return rounded((2.0 if "weight_up" in name else 4.0) * r / math.sqrt(inputs))
    if "lm_head" in name or ROUTER.search(name):
        gain = 2.0
    elif re.search(r"(q_proj|k_proj|q_b_proj|kv_a_proj|qkv)", name):
        gain = 1.5
    elif re.search(r"(down|w2|output_linear)", name):
        gain = 1.6
    return rounded(gain * r / math.sqrt(inputs))


def rounded(x):
    return x.bfloat16().float()


def fill(model, seed):
    draw = torch.Generator().manual_seed(seed)
    kind = model.config.model_type
    centred = "qwen3_5" in kind or kind in ("qwen3_next", "step3p5", "minimax_m3_vl_text", "qwen4_exp_text")
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            own = deepseek4.value(name, tuple(p.shape), draw) if kind == "deepseek_v4" else None
            if own is not None:
                p.copy_(own)
            elif p.is_floating_point() and not re.search("inv_freq|embed_scale|slope_rate|_decay$", name):
                p.copy_(value(name, tuple(p.shape), draw, tied, centred, model.config.model_type == "llama4_text"))


def strengthen(model, gains):
    """Other sizes of some matrices: pairs of an expression and a power of two."""
    with torch.no_grad():
        for pattern, factor in gains:
            for name, p in model.named_parameters():
                if re.search(pattern, name):
                    p.mul_(factor)


def build(config_name, settings, special, vocabularies):
    ids = vocabularies.special_ids(special["VOCAB"])
    if config_name == "KimiK3":
        return kimi3.Model(settings, vocabulary.SIZE)
    if config_name == "Step3p7TextConfig":
        return step.build(dict(settings, vocab_size=vocabulary.SIZE), ids)
    classes = {"Qwen3VLMoeTextConfig": hf_directory.with_vision, "Mistral4Config": transformers.Mistral4ForCausalLM,
               "MiniMaxM3VLTextConfig": transformers.MiniMaxM3VLForCausalLM, "Glm5NextTextConfig": glm5.build}
    config = getattr(transformers, config_name)(
        vocab_size=vocabulary.SIZE, pad_token_id=None, attn_implementation="eager", **ids, **settings)
    if config_name in classes:  # the package does not find them by their configuration
        return classes[config_name](config).float().eval()
    if config_name == "MiniMaxConfig":
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        minimax01.rotate_part(model, special["ROTATED"])
        return model
    if config_name.startswith("Gemma4"):
        return transformers.Gemma4ForCausalLM._from_config(config, attn_implementation="eager").float().eval()
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()


class Limited(torch.nn.Module):
    """SiLU with a limit above, as the published engines compute it; the package leaves the limits out."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        return torch.nn.functional.silu(x).clamp(max=self.limit)


def limit_networks(model, experts_limits, shared_limits):
    """A limit per layer; 0 or None: none."""
    for layer, limit, shared_limit in zip(model.model.layers, experts_limits, shared_limits):
        if not hasattr(layer.mlp, "experts"):
            continue
        limit, shared_limit = limit or math.inf, shared_limit or math.inf
        shared, experts = layer.mlp.shared_experts, layer.mlp.experts
        shared.act_fn = Limited(shared_limit)
        shared.up_proj.register_forward_hook(lambda module, args, out, limit=shared_limit: out.clamp(-limit, limit))

        def run(x, chosen, weights, experts=experts, act=Limited(limit), limit=limit):
            y = torch.zeros_like(x)
            for t, e in ((t, e) for t in range(len(x)) for e in range(chosen.shape[1])):
                gate, up = torch.nn.functional.linear(x[t], experts.gate_up_proj[chosen[t, e]]).chunk(2, -1)
                y[t] += weights[t, e] * torch.nn.functional.linear(
                    act(gate) * up.clamp(-limit, limit), experts.down_proj[chosen[t, e]])
            return y

        experts.forward = run


def rewrite_config(directory, changes):
    path = os.path.join(directory, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config.update(changes)
    config = {key: value for key, value in config.items() if value is not None or key not in changes}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)


def rename(directory, names):
    """Names that published checkpoints have and the package does not write: pairs of an expression and its replacement."""
    path = os.path.join(directory, "model.safetensors")
    tensors = load_file(path)
    for pattern, replacement in names:
        tensors = {re.sub(pattern, replacement, name): tensor for name, tensor in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def add_drafting(directory, kind, layers):
    """A block for drafting after the last layer, as in published checkpoints: the tensors of the last layer with
    attention (dense: of the first layer), with other numbers."""
    path = os.path.join(directory, "model.safetensors")
    tensors = load_file(path)
    full = max(int(m[1]) for m in (re.match(r"model\.layers\.(\d+)\.self_attn|model\.layers\.(\d+)\.attention\.", n)
                                   for n in tensors) if m and m[1]) if kind == "mtp" else 0 if kind == "dense" else layers - 1
    prefix, hidden = f"model.layers.{full}.", tensors["model.norm.weight"].shape[0] if "model.norm.weight" in tensors else 0
    block = f"model.layers.{layers}." if kind == "layers" else "mtp.layers.0."
    for name, tensor in list(tensors.items()):
        if name.startswith(prefix):
            tensors[block + name.removeprefix(prefix)] = tensor.flip(0).contiguous()
    more = dict(eh_proj="fc", enorm="pre_fc_norm_embedding", hnorm="pre_fc_norm_hidden")
    for name, other in more.items():
        shape = (hidden, 2 * hidden) if name == "eh_proj" else (hidden,)
        tensors[(block + name if kind == "layers" else "mtp." + other) + ".weight"] = torch.full(shape, 0.5)
    tensors[block + "shared_head.norm.weight" if kind == "layers" else "mtp.norm.weight"] = torch.ones(hidden)
    save_file(tensors, path, metadata={"format": "pt"})


def join_qkv(directory):
    """q, k and v of each layer in one matrix."""
    path = os.path.join(directory, "model.safetensors")
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith("self_attn.q_proj.weight")]:
        parts = [tensors.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        tensors[name.replace("q_proj", "qkv_proj")] = torch.cat(parts).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def add_nemotron_drafting(directory):
    """The same as published: mtp.layers.0 has attention, mtp.layers.1 experts."""
    path = os.path.join(directory, "model.safetensors")
    tensors = load_file(path)
    hidden = tensors["backbone.norm_f.weight"].shape[0]
    for number, part in enumerate(("q_proj", "gate")):
        layer = next(n for n in tensors if n.endswith(f"mixer.{part}.weight")).split(".mixer.")[0] + "."
        for name, tensor in list(tensors.items()):
            if name.startswith(layer):
                tensors[f"mtp.layers.{number}." + name.removeprefix(layer)] = tensor.flip(0).contiguous()
    tensors["mtp.layers.0.eh_proj.weight"] = torch.full((hidden, 2 * hidden), 0.5)
    for name in ("0.enorm", "0.hnorm", "1.final_layernorm"):
        tensors[f"mtp.layers.{name}.weight"] = torch.ones(hidden)
    save_file(tensors, path, metadata={"format": "pt"})


def minimax_losses(model, rounded):
    """MiniMax-M3, whose indexer has a cache, too; `rounded` unless a call says otherwise."""
    def losses(ids, rounded=rounded):
        undo = [vectors.round_cache(model), vectors.round_rotated(model)] if rounded else []
        found = hf_directory.losses_of(model, ids)
        for each in undo:
            each()
        return found

    return losses


def with_transformers(case, directory, vocabularies, seed):
    """Saves the checkpoint; returns what computes losses of ids."""
    config_name, settings, special = case
    model = build(config_name, settings, special, vocabularies)
    fill(model, seed)
    strengthen(model, special.get("GAIN", ()))
    if config_name == "MiniMaxM3VLTextConfig":
        indexed.save(model, dict(settings, vocab_size=vocabulary.SIZE), directory,
                     vocabularies.special_ids(special["VOCAB"])["eos_token_id"])
        return minimax_losses(model, not special.get("EXACT"))
    if config_name == "DeepseekV4Config":
        deepseek4.save(model, settings, directory, vocabularies.special_ids(special["VOCAB"]), seed)
        return lambda ids: hf_directory.losses_of(model, ids)
    if config_name == "Step3p7TextConfig":
        step.save(model, dict(settings, vocab_size=vocabulary.SIZE), directory, special.get("MTP", 0),
                  vocabularies.special_ids(special["VOCAB"])["eos_token_id"])
        vectors.round_cache(model.model)
        return lambda ids: hf_directory.losses_of(model, ids)
    if config_name == "KimiK3":
        kimi3.save(model, directory, vocabulary.SIZE, vocabularies.special_ids(special["VOCAB"])["eos_token_id"])
        vectors.round_cache(model)
        return lambda ids: hf_directory.losses_of(model, ids)
    model.save_pretrained(directory)
    if config_name == "MiniMaxConfig":
        minimax01.drop_buffers(directory)
    if config_name == "Glm5NextTextConfig":
        glm5.publish(directory, settings, int("MTP" in special))
    if "LIMITS" in special:
        limit_networks(model, *special["LIMITS"])
    rewrite_config(directory, special.get("SAVE", {}))
    if special.get("TURNED"):
        hf_directory.turn_experts(directory)
    if special.get("JOINED"):
        join_qkv(directory)
    if special.get("MTP") == "nemotron":
        add_nemotron_drafting(directory)
    elif special.get("MTP") == "glm5":
        glm5.add_drafting(directory, settings)
    elif special.get("MTP"):
        add_drafting(directory, special["MTP"], settings["num_hidden_layers"])
    if special.get("NAMES"):
        rename(directory, special["NAMES"])
    if config_name == "HYV4Config":
        hy4.rotate_neighbours(model)
    if not special.get("EXACT"):
        vectors.round_cache(model)
    losses = hf_directory.losses_of
    if config_name in ("Qwen4ExpTextConfig", "Glm5NextTextConfig"):
        losses = indexed.lower_first(losses)
    return lambda ids: losses(model, ids)


def with_numpy(architecture, case, directory, vocabularies, hidden, seed):
    """The same for models that the package does not have, with the golden data's reference."""
    _, sizes, special = case
    sizes = {**sizes, "hidden": hidden}
    numpy_vectors.VOCAB = vocabulary.SIZE
    arrays = {k: rounded(torch.tensor(v)).double().numpy() if v.ndim > 1 else v
              for k, v in numpy_vectors.weights(architecture, sizes, seed, True).items()}
    config, shapes = hf_vectors.MAKERS[architecture](sizes)
    names = {"bailingmoe2": "BailingMoeV2ForCausalLM", "smallthinker": "SmallThinkerForCausalLM",
             "bailingmoe": "BailingMoeForCausalLM", "deepseek": "DeepseekForCausalLM", "maple": "MapleForCausalLM",
             "arctic": "ArcticForCausalLM"}
    end = vocabularies.special_ids(special["VOCAB"])["eos_token_id"]
    config.update(dict(architectures=[names[architecture]], eos_token_id=end, head_dim=sizes["head"]))
    if "architectures" in special.get("SAVE", {}):  # sarvam: the converter takes the mean from the bias
        for name in arrays:
            if name.endswith("exp_probs_b.bias"):
                arrays[name] = arrays[name] - arrays[name].mean()
    tensors = {name: torch.tensor(np.ascontiguousarray(hf_directory.numpy_array(arrays, name), dtype=np.float32))
               for name in shapes}
    save_file(tensors, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    rewrite_config(directory, special.get("SAVE", {}))
    if special.get("MTP"):
        add_drafting(directory, special["MTP"], sizes["layers"])

    def losses(ids):
        logits = torch.tensor(numpy_vectors.run(architecture, arrays, sizes, np.array(ids))[0])
        return hf_directory.losses_from(logits, ids)

    return losses


def make(architecture, case, directory, vocabularies, hidden, seed=1):
    os.makedirs(directory, exist_ok=True)
    vocabularies.write(case[2]["VOCAB"], directory, case[2].get("TOKENIZER_CLASS"))
    if case[0] is None:
        return with_numpy(architecture, case, directory, vocabularies, hidden, seed)
    return with_transformers(case, directory, vocabularies, seed)
