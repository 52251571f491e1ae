#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds of the targets hf and hfdir: tiny models whose tensors are split, turned, stacked and ordered, as the
Python package transformers names them (the versions: tests/golden/hf_vectors.py). Data is zeros, so that a seed is little
more than names and shapes (fuzz_dir.h).

    venv/bin/python tests/fuzz/hf_moved_seeds.py tests/fuzz/corpus"""
import json
import os
import struct
import sys
import tempfile

import transformers
from safetensors import safe_open

VOCAB = 260
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=256,
              tie_word_embeddings=True)
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, moe_intermediate_size=32)
QWEN = dict(COMMON, **SIZES, head_dim=16, num_experts=2, num_experts_per_tok=1, shared_expert_intermediate_size=32,
            layer_types=["linear_attention", "full_attention"], linear_num_key_heads=1, linear_num_value_heads=2,
            linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
PLAIN = {k: v for k, v in SIZES.items() if k != "moe_intermediate_size"}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False}
MLA = dict(COMMON, **SIZES, n_routed_experts=2, num_experts_per_tok=1, n_shared_experts=1, intermediate_size=32,
           kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
           first_k_dense_replace=1, n_group=1, topk_group=1)
ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e5}}
MODELS = {
    "qwen3next": lambda: transformers.Qwen3NextConfig(**QWEN, intermediate_size=32, mlp_only_layers=[], norm_topk_prob=True),
    "qwen35moe": lambda: transformers.Qwen3_5MoeTextConfig(**QWEN),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **COMMON, **PLAIN, head_dim=16, num_local_experts=2, num_experts_per_tok=1, intermediate_size=32, sliding_window=8,
        rope_parameters=YARN),
    "deepseek3": lambda: transformers.DeepseekV3Config(
        **MLA, rope_parameters={**YARN, "truncate": True, "mscale": 1.0, "mscale_all_dim": 1.0}),
    "gemma4": lambda: transformers.Gemma4TextConfig(
        **COMMON, **SIZES, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True,
        intermediate_size=32, enable_moe_block=True, num_experts=2, top_k_experts=1, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"], rope_parameters=ROPE, hidden_size_per_layer_input=0,
        final_logit_softcapping=30.0),
    "lfm2moe": lambda: transformers.Lfm2MoeConfig(
        **COMMON, **SIZES, layer_types=["conv", "full_attention"], intermediate_size=32, num_dense_layers=1, num_experts=2,
        num_experts_per_tok=1, conv_L_cache=3),
    "granitemoe": lambda: transformers.GraniteMoeSharedConfig(
        **COMMON, **PLAIN, num_local_experts=2, num_experts_per_tok=1, intermediate_size=32, shared_intermediate_size=32),
    "phimoe": lambda: transformers.PhimoeConfig(
        **COMMON, **PLAIN, num_local_experts=2, num_experts_per_tok=2, intermediate_size=32, attention_bias=True,
        lm_head_bias=True, router_jitter_noise=0.01, rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32, "short_mscale": 1.2,
            "long_mscale": 1.3, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}),
    "hunyuan-moe": lambda: transformers.HunYuanMoEV1Config(
        **COMMON, **PLAIN, head_dim=16, num_experts=2, moe_topk=1, intermediate_size=32,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0}),
    "dbrx": lambda: transformers.DbrxConfig(
        d_model=32, n_heads=2, n_layers=1, max_seq_len=64, vocab_size=VOCAB, tie_word_embeddings=False,
        attn_config=dict(clip_qkv=1.0, kv_n_heads=1, rope_theta=1e4),
        ffn_config=dict(ffn_hidden_size=32, moe_num_experts=2, moe_top_k=1, hidden_size=32)),
}

CONVERTED = ("qwen3vlmoe-base", "mellum-window_theta", "exaone-moe-base", "hy_v3-base", "mistral4-base", "deepseek-base",
             "step35-mtp", "laguna-base", "laguna-element", "afmoe-base", "llama4-base", "minimax-m3-base",
             "glm-dsa-base", "qwen4exp-base")


def tokenizer():
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    vocab = {c: i for i, c in enumerate(bytes_to_unicode().values())}
    return {"added_tokens": [{"id": i, "content": "<|%d|>" % i, "special": True} for i in range(256, VOCAB)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []}}


def saved(config):
    build = transformers.Gemma4ForCausalLM._from_config if "gemma4" in config.model_type else \
        transformers.AutoModelForCausalLM.from_config
    with tempfile.TemporaryDirectory() as directory:
        build(config).save_pretrained(directory)
        with open(os.path.join(directory, "config.json")) as file:
            read = json.load(file)
        with safe_open(os.path.join(directory, "model.safetensors"), "pt") as file:
            return read, {name: ("F16", file.get_slice(name).get_shape()) for name in file.keys()}


def mxfp4(config, tensors):
    """gpt-oss with experts of blocks and scales."""
    out = {}
    for name, (kind, shape) in tensors.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = shape
            out[name + "_blocks"] = ("U8", [experts, outputs, inputs // 32, 16])
            out[name + "_scales"] = ("U8", [experts, outputs, inputs // 32])
        else:
            out[name] = (kind, shape)
    return {**config, "quantization_config": {"quant_method": "mxfp4"}}, out


def fp8(config, tensors):
    """MLA with matrices of FP8."""
    out = {}
    for name, (kind, shape) in tensors.items():
        if "_proj" in name and len(shape) == 2:
            out[name] = ("F8_E4M3", shape)
            out[name + "_scale_inv"] = ("F32", [-(-n // 16) for n in shape])
        else:
            out[name] = (kind, shape)
    return {**config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}, out


def packed(config, tensors, bits=4, group=32):
    """Experts and outputs of attention of compressed-tensors, with a scale per group, or per row."""
    out = {}
    for name, (kind, shape) in tensors.items():
        if ".experts." in name or "o_proj" in name:
            out[name + "_packed"] = ("I32", [shape[0], 64 * bits // 32])
            out[name + "_scale"] = ("BF16", [shape[0], 64 // group if group else 1])
            out[name + "_shape"] = ("I64", [2])
        else:
            out[name] = (kind, shape)
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group" if group else "channel",
               "group_size": group or None, "actorder": None}
    return {**config, "quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "kv_cache_scheme": None,
        "config_groups": {"group_0": {"weights": weights, "input_activations": None, "targets": ["Linear"]}}}}, out


def changed(config, *path):
    """A copy of a configuration with another value at the end of the path in quantization_config."""
    *path, name, value = path
    config = json.loads(json.dumps(config))
    place = config["quantization_config"]
    for step in path:
        place = place[step]
    place[name] = value
    return config


def whole(config, tensors):
    """A text model inside of one with towers."""
    text = {**config, "model_type": config["model_type"]}
    return ({"model_type": "outer", "text_config": text},
            {k.replace("model.", "model.language_model.", 1): v for k, v in tensors.items()})


def golden_file(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/data/hf", name + ".json")
    with open(path) as file:
        return json.load(file)


def converted(name):
    """A checkpoint of the golden data, with fewer tokens."""
    read = golden_file(name)
    vocab = read["config"]["vocab_size"]
    return ({**read["config"], "vocab_size": VOCAB, "eos_token_id": 256},
            {k: ("I64" if ".ple_embedding." in k and "shard_" not in k else "F16",
                 [VOCAB if n == vocab else n for n in shape]) for k, shape in read["tensors"].items()})


def kimi_k3():
    """Experts of MXFP4 of compressed-tensors."""
    config, tensors = converted("kimi-k3-base")
    config.update(num_hidden_layers=3, num_experts=2)  # fewer, for a small seed
    config["linear_attn_config"] = {**config["linear_attn_config"], "full_attn_layers": [3]}
    tensors = {k: v for k, v in tensors.items() if not any(x in k for x in ("layers.3", "layers.4", "experts.2", "experts.3"))}
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    for name in [k for k in tensors if ".experts." in k]:
        del tensors[name]
        tensors[name + "_packed"], tensors[name + "_scale"] = ("U8", [16, 16]), ("U8", [16, 1])
    return {"model_type": "kimi_k3", "text_config": config}, {"language_model." + k: v for k, v in tensors.items()}


def configurations(models):
    """Kinds of layers that are stated in other ways, and wrong ones: (name, configuration, tokenizer)."""
    def golden(name, **changed):
        return {**golden_file(name)["config"], **changed, "vocab_size": VOCAB}

    linear = {k: v for k, v in models["qwen3next"][0].items() if k != "layer_types"}
    oss, gemma = models["gpt-oss"][0], golden("gemma4_a")
    full, other = "full_attention", "sliding_attention"
    yield "layouts", golden("smallthinker_a"), {}
    yield "layouts_plain", golden("smallthinker_a", sliding_window_layout=[0] * 5, rope_layout=[1] * 5), {}
    yield "layouts_differ", golden("smallthinker_a", rope_layout=[0, 1, 1, 1, 1]), {}
    yield "layouts_short", golden("smallthinker_a", sliding_window_layout=[0], rope_layout=[1]), {}
    yield "window_large", golden("smallthinker_a", sliding_window_size=65536), {}
    yield "interval", {**linear, "full_attention_interval": 2}, {}
    yield "interval_default", linear, {}
    yield "interval_zero", {**linear, "full_attention_interval": 0}, {}
    yield "layers_few", {**oss, "layer_types": [other]}, {}
    yield "layers_turned", {**oss, "layer_types": [full, other]}, {}
    yield "layers_absent", {k: v for k, v in oss.items() if k != "layer_types"}, {}
    yield "layers_needed", {k: v for k, v in gemma.items() if k != "layer_types"}, {}
    yield "layers_windowed", {**models["deepseek3"][0], "layer_types": [full, other]}, {}
    yield "per_layer", gemma, characters()
    yield "per_layer_differs", {**gemma, "per_layer_config": {"0": {"head_dim": 32}}}, {}
    yield "per_layer_text", {**gemma, "per_layer_config": {k: {"head_dim": "x"} for k in "02"}}, {}
    yield "dense_listed", golden("glm4_7_flash_f32"), {}
    yield "dense_last", golden("glm4_7_flash_f32", mlp_layer_types=["sparse", "dense"]), {}
    yield "dense_short", golden("glm4_7_flash_f32", mlp_layer_types=["dense"]), {}
    plain = {"rope_type": "default", "rope_theta": 1e4}
    yield "ropes_plain", golden("mellum-window_theta", rope_parameters={full: plain, other: plain}), {}
    yield "ropes_one", golden("mellum-window_theta", rope_parameters={other: plain}), {}
    yield "experts_gap", golden("step35-mtp", moe_layers_enum="0,2"), {}
    yield "numbers_differ", golden("step35-mtp", rope_theta=[1e4, 1e4, 5e2], layer_types=[full] * 3), {}
    yield "experts_spaced", golden("llama4-base", interleave_moe_layer_step=2, no_rope_layers=[]), {}
    yield "rotated_others", golden("llama4-maverick", no_rope_layers=[0, 1, 1, 1], use_qk_norm=True), {}
    yield "limits_null", golden("step35-mtp", swiglu_limits=[None, 7.0, 0.0], partial_rotary_factors=[0.25] * 3), {}
    yield "heads_none", golden("laguna-base", num_attention_heads_per_layer=[]), {}
    yield "indexed", golden("glm-dsa-base", layer_types=["indexed_attention", "sliding_attention"]), {}
    packs, group = models["deepseek_packed"][0], ("config_groups", "group_0")
    yield "packed_bits", changed(packs, *group, "weights", "num_bits", 3), {}
    yield "packed_group", changed(packs, *group, "weights", "group_size", 40), {}
    yield "packed_channel", changed(packs, *group, "weights", "strategy", "channel"), {}
    second = models["deepseek_packed8"][0]["quantization_config"]["config_groups"]["group_0"]
    yield "packed_other", changed(packs, "config_groups", "group_1", second), {}
    yield "packed_none", changed(packs, "config_groups", {}), {}
    yield "packed_not", changed(packs, "quant_method", "gptq"), {}
    yield "packed_format", changed(packs, "format", "int-quantized"), {}
    yield "groups_several", golden("mistral4-base", n_group=2, topk_group=1), {}


def characters():
    """BPE of characters."""
    texts = ["<unk>", "<eos>", "a", "b", "ab", "\u2581", "<|channel>"] + ["<0x%02X>" % i for i in range(VOCAB - 7)]
    return {"added_tokens": [{"id": i, "content": texts[i], "special": True} for i in (0, 1, 6)],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "ignore_merges": False,
                      "vocab": {text: i for i, text in enumerate(texts)}, "merges": [["a", "b"]]}}


def record(number, text, zeros=0):
    assert zeros % 4 == 0 and zeros // 4 < 65536, zeros
    return struct.pack("<B", number) + len(text).to_bytes(3, "little") + struct.pack("<H", zeros // 4) + text


def seed(config, tensors):
    header, at = {}, 0
    for name, (kind, shape) in tensors.items():
        bytes_ = {"F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}.get(kind, 1)
        for n in shape:
            bytes_ *= n
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + bytes_]}
        at += bytes_
    if at % 4:
        header["rest"] = {"dtype": "U8", "shape": [4 - at % 4], "data_offsets": [at, at + 4 - at % 4]}
        at += 4 - at % 4
    small = dict(separators=(",", ":"), ensure_ascii=True)
    return (record(0, json.dumps(config, **small).encode()) + record(1, json.dumps(tokenizer(), **small).encode()) +
            record(4, json.dumps(header, **small).encode(), at))


def main(corpus):
    models = {}
    for name, make in MODELS.items():
        config, tensors = saved(make())
        for field in ("transformers_version", "architectures", "dtype", "id2label", "label2id"):
            config.pop(field, None)
        models[name] = (config, tensors)
    models["gpt-oss_mxfp4"] = mxfp4(*models["gpt-oss"])
    models["deepseek3_fp8"] = fp8(*models["deepseek3"])
    models["qwen35moe_towers"] = whole(*models["qwen35moe"])
    for name in CONVERTED:
        models[name.split("-base")[0]] = converted(name)
    models["kimi-k3"] = kimi_k3()
    models["deepseek_packed"] = packed(*converted("deepseek-base"))
    models["deepseek_packed8"] = packed(*converted("deepseek-base"), 8, 0)
    for name, (config, tensors) in models.items():
        data = seed(config, tensors)
        with open(os.path.join(corpus, "hfdir", "moved_" + name), "wb") as file:
            file.write(data)
        with open(os.path.join(corpus, "hf", "moved_" + name), "w", encoding="ascii") as file:
            json.dump({"config": {**config, "vocab_size": VOCAB}, "tokenizer": {}, "settings": {}}, file)
    for name, config, tokens in configurations(models):
        with open(os.path.join(corpus, "hf", "kinds_" + name), "w", encoding="ascii") as file:
            json.dump({"config": config, "tokenizer": tokens, "settings": {}}, file)


main(sys.argv[1])
