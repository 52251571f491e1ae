# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V4: the names of the published checkpoint, and experts in MXFP4, which its converter moves as they are."""
import json
import os
import re

import torch
from safetensors.torch import save_file

LEVELS = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
# names of the package -> those of the published checkpoint
NAMES = [(r"^model\.embed_tokens\.", "embed."), (r"^lm_head\.", "head."), (r"^model\.norm\.", "norm."),
         (r"^model\.hc_head\.hc_", "hc_head_"), (r"^model\.", ""), (r"\.attn_hc\.", ".hc_attn_"), (r"\.ffn_hc\.", ".hc_ffn_"),
         (r"\.input_layernorm\.", ".attn_norm."), (r"\.post_attention_layernorm\.", ".ffn_norm."),
         (r"\.self_attn\.compressor\.indexer\.scorer\.weights_proj", ".attn.indexer.weights_proj"),
         (r"\.self_attn\.compressor\.indexer\.q_b_proj", ".attn.indexer.wq_b"),
         (r"\.self_attn\.compressor\.indexer\.", ".attn.indexer.compressor."), (r"\.self_attn\.", ".attn."),
         (r"compressor\.kv_proj", "compressor.wkv"), (r"compressor\.gate_proj", "compressor.wgate"),
         (r"compressor\.position_bias", "compressor.ape"), (r"compressor\.kv_norm", "compressor.norm"),
         (r"\.sinks$", ".attn_sink"), (r"\.q_a_proj", ".wq_a"), (r"\.q_b_proj", ".wq_b"), (r"\.q_a_norm", ".q_norm"),
         (r"attn\.kv_proj", "attn.wkv"), (r"\.o_a_proj", ".wo_a"), (r"\.o_b_proj", ".wo_b"), (r"\.mlp\.", ".ffn."),
         (r"\.e_score_correction_bias", ".bias"), (r"shared_experts\.gate_proj", "shared_experts.w1"),
         (r"shared_experts\.down_proj", "shared_experts.w2"), (r"shared_experts\.up_proj", "shared_experts.w3")]


def deepseek4(s):
    """Entries of 4 positions, of which few are chosen, and of 128, which the text completes once; a table of experts in the
    first layer. MXFP4 has blocks of 32. Limits are small enough to matter."""
    def layers(*ratios, tables=1):
        return dict(num_hidden_layers=len(ratios), compress_ratios=list(ratios), num_hash_layers=tables)

    size = max(s.hidden, 32)
    base = dict(hidden_size=size, num_attention_heads=4, num_key_value_heads=1, head_dim=16, qk_rope_head_dim=8,
                max_position_embeddings=s.context, tie_word_embeddings=False, q_lora_rank=s.rank, o_groups=2, o_lora_rank=12,
                n_routed_experts=s.experts, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=size,
                scoring_func="sqrtsoftplus", topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=1.5,
                compress_rope_theta=160000, rope_theta=10000, hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6, swiglu_limit=2.0,
                sliding_window=24, index_topk=8, index_n_heads=8, index_head_dim=32, num_nextn_predict_layers=0,
                rms_norm_eps=1e-6, EXACT=True, **layers(4, 128, 0),
                rope_scaling=dict(type="yarn", factor=16, original_max_position_embeddings=64, beta_fast=32, beta_slow=1))
    return "DeepseekV4Config", base, {
        "few": dict(index_topk=4), "wide_keys": dict(index_head_dim=64), "one_group": dict(o_groups=1),
        "no_tables": layers(4, 128, 0, tables=0), "no_entries": layers(0, 0)}


def value(name, shape, draw):
    """None: as of any tensor."""
    r = torch.randn(shape, generator=draw)
    if name.endswith("position_bias"):
        return 0.7 * r
    if name.endswith(".scale") and "hc" in name:
        return 1 + 0.3 * r
    if name.endswith(".base") or name.endswith("hc_base"):
        return torch.where(torch.arange(shape[0]) < 8, 0.7, 2.5) * r
    return None


def fill_tables(model, seed):
    """Different experts of each token."""
    draw, config = torch.Generator().manual_seed(seed), model.config
    for name, table in [*model.named_parameters(), *model.named_buffers()]:
        if "tid2eid" in name:
            rows = [torch.randperm(config.n_routed_experts, generator=draw)[:config.num_experts_per_tok] for _ in table]
            table.data.copy_(torch.stack(rows).to(table.dtype))


def packed(shape, draw):
    """Codes and scales of MXFP4, and the numbers."""
    *lead, n = shape
    codes = torch.randint(0, 256, (*lead, n // 32, 16), generator=draw, dtype=torch.uint8)
    scales = torch.randint(122, 125, (*lead, n // 32), generator=draw, dtype=torch.uint8)
    both = torch.stack([LEVELS[(codes & 15).long()], LEVELS[(codes >> 4).long()]], -1)
    numbers = both.reshape(*lead, n // 32, 32) * torch.exp2(scales.float() - 127)[..., None]
    return codes.reshape(*lead, n // 2), scales, numbers.reshape(*lead, n)


def save(model, settings, directory, special_ids, seed):
    """Gives the experts their numbers, and writes the checkpoint as published."""
    fill_tables(model, seed)
    draw, tensors = torch.Generator().manual_seed(seed), {}
    e, inner, hidden = (settings[x] for x in ("n_routed_experts", "moe_intermediate_size", "hidden_size"))
    for i, layer in enumerate(model.model.layers):
        both, down = packed((e, 2 * inner, hidden), draw), packed((e, hidden, inner), draw)
        layer.mlp.experts.gate_up_proj.data.copy_(both[2])
        layer.mlp.experts.down_proj.data.copy_(down[2])
        for x in range(e):
            parts = dict(w1=(both[0][x, :inner], both[1][x, :inner]), w3=(both[0][x, inner:], both[1][x, inner:]),
                         w2=(down[0][x], down[1][x]))
            for name, (codes, scales) in parts.items():
                expert = f"layers.{i}.ffn.experts.{x}.{name}"
                tensors[expert + ".weight"] = codes.contiguous().view(torch.int8)
                tensors[expert + ".scale"] = scales.contiguous().view(torch.float8_e8m0fnu)
    for name, x in model.state_dict().items():
        if ".experts." in name and "shared" not in name:
            continue
        for pattern, other in NAMES:
            name = re.sub(pattern, other, name)
        tensors[name] = (x.to(torch.int32) if name.endswith("tid2eid") else x).clone().contiguous()
    save_file(tensors, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    config = dict(settings, **special_ids, model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"],
                  vocab_size=model.config.vocab_size)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)


def unpacked(shapes):
    """Shapes of a checkpoint whose experts are no MXFP4."""
    return {name: [shape[0], 2 * shape[1]] if ".experts." in name else shape for name, shape in shapes.items()
            if not name.endswith(".scale")}


def unpack(path):
    """The converted file with experts in F16, which has the same numbers: products with MXFP4 round their inputs."""
    import gguf
    import numpy as np
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path + ".new", reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "tokenizer.chat_template"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    for t in reader.tensors:
        shape = [int(x) for x in t.shape][::-1]
        if t.tensor_type.name == "I32":
            writer.add_tensor(t.name, np.array(t.data).reshape(shape))
            continue
        numbers = gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape)
        small = "_exps" in t.name or ("hc_" not in t.name and len(shape) == 2 and "ape" not in t.name
                                      and (numbers.astype(np.float16) == numbers).all())
        writer.add_tensor(t.name, numbers.astype(np.float16 if small else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".new", path)
