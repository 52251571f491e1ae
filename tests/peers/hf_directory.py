#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small random models of the Python package transformers, saved with save_pretrained, packed by sluice from
the directory, and compared token by token: the negative log-likelihoods differ by at most 2e-2 (the
engine keeps keys and values in F16); those of the golden data's models, with keys and values rounded here, too, by at most
2e-3, and their tensors have the same bytes. FP8 made Q8_0 is compared with the same model whose weights and activations are
rounded here: the median by at most 4e-2, as for some tokens other experts are chosen. Experts that the package
compressed-tensors packed (--only packed) are compared with the same model with the values that it decompresses.

    VENV/bin/python tests/peers/hf_directory.py --libexec build/libexec [--only TYPE]

VENV has torch and transformers 5, and compressed-tensors, else nothing is packed. Biases, norms and scales have values that matter."""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

for folder in ("../golden", "convert"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
import gemma_vectors  # noqa: E402
import hf_vectors  # noqa: E402
import indexed  # noqa: E402
import mla_vectors  # noqa: E402
import numpy_vectors  # noqa: E402
import oss_vectors  # noqa: E402
import recurrent_vectors  # noqa: E402
import scaled_vectors  # noqa: E402
import vectors  # noqa: E402

VOCAB, TOKENS = 264, 96
IDS = [(7 * i * i + 3 * i) % 256 for i in range(TOKENS)]
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, pad_token_id=None, bos_token_id=None,
              eos_token_id=256, attn_implementation="eager")
SIZES = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
MOE = dict(n_routed_experts=8, num_experts_per_tok=3, norm_topk_prob=True, intermediate_size=96,
           moe_intermediate_size=32)

WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=32)

INDEXED = dict(q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, index_topk=TOKENS,
               index_n_heads=4, index_head_dim=16)

MODELS = {
    "qwen3_moe": ("Qwen3MoeConfig", dict(
        SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
        intermediate_size=96)),
    "mixtral": ("MixtralConfig", dict(
        SIZES, num_local_experts=8, num_experts_per_tok=2, intermediate_size=32, sliding_window=None)),
    "glm4_moe": ("Glm4MoeConfig", dict(
        SIZES, **MOE, n_shared_experts=1, n_group=4, topk_group=2, first_k_dense_replace=1,
        routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True)),
    "glm4_moe_plain": ("Glm4MoeConfig", dict(
        SIZES, **MOE, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=2,
        routed_scaling_factor=1.0, use_qk_norm=False, attention_bias=False, tie_word_embeddings=True)),
    "dots1": ("Dots1Config", dict(
        SIZES, **MOE, n_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        routed_scaling_factor=2.5)),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(
        {k: v for k, v in SIZES.items() if k != "head_dim"}, intermediate_size=96, moe_intermediate_size=32,
        moe_num_experts=8, moe_num_shared_experts=2, moe_k=3, moe_layer_start_index=1, use_bias=False)),
    "minimax_m2": ("MiniMaxM2Config", dict(
        SIZES, intermediate_size=32, num_local_experts=8, num_experts_per_tok=3)),
    "minimax_m2_rotary": ("MiniMaxM2Config", dict(
        SIZES, intermediate_size=32, num_local_experts=8, num_experts_per_tok=3, rotary_dim=8,
        rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))),
    "qwen3_vl_moe": ("Qwen3VLMoeTextConfig", dict(
        SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, intermediate_size=96,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[4, 2, 2],
                                                        mrope_interleaved=True))),
    "mellum": ("MellumConfig", dict(
        SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, intermediate_size=96, sliding_window=16,
        layer_types=WINDOWS, rope_parameters=dict(
            full_attention=dict(YARN, attention_factor=1.2, beta_fast=8.0), sliding_attention=dict(
                rope_type="default", rope_theta=500.0)))),
    "exaone_moe": ("ExaoneMoeConfig", dict(
        SIZES, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, intermediate_size=96, num_shared_experts=1,
        norm_topk_prob=True, routed_scaling_factor=1.5, mlp_layer_types=["dense", "sparse", "sparse"], sliding_window=16,
        layer_types=WINDOWS)),
    "hy_v3": ("HYV3Config", dict(
        SIZES, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, intermediate_size=96, num_shared_experts=1,
        router_scaling_factor=1.5, mlp_layer_types=["dense", "sparse", "sparse"])),
    "deepseek_v32": ("DeepseekV32Config", dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, **MOE, n_shared_experts=1,
        n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.5, **INDEXED,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "glm_moe_dsa": ("GlmMoeDsaConfig", dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, **MOE, n_shared_experts=1,
        n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, **INDEXED,
        indexer_types=["full", "full", "shared"], rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    "minimax_m3": ("MiniMaxM3VLTextConfig", dict(
        SIZES, num_local_experts=8, num_experts_per_tok=3, intermediate_size=32, dense_intermediate_size=96,
        shared_intermediate_size=32, routed_scaling_factor=2.0, rotary_dim=8, rms_norm_eps=1e-6,
        mlp_layer_types=["dense", "sparse", "sparse"], index_n_heads=2, index_head_dim=16, index_block_size=16,
        index_topk_blocks=TOKENS // 16, index_local_blocks=1, tie_word_embeddings=False,
        layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))),
    "mistral4": ("Mistral4Config", dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, **MOE, n_shared_experts=1,
        n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.0, q_lora_rank=32, kv_lora_rank=32,
        qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, rope_interleave=True,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
}

NUMPY_MODELS = [*numpy_vectors.MODELS, ("deepseek", "deepseek", dict(
    layers=3, heads=4, kv_heads=2, head=12, experts=8, used=3, inner=24, dense_inner=64, shared=48, rope=12, theta=1e4, dense=1,
    norm=False)), ("arctic", "arctic", dict(layers=3, heads=4, kv_heads=2, head=12, experts=8, used=2, inner=24, rope=12,
                                            theta=1e4, norm=True))]


def fill(model, seed):
    """Weights with an effect: matrices of a common size, norms around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if not tensor.is_floating_point() or "inv_freq" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        with torch.no_grad():
            if "correction_bias" in name:
                tensor.copy_(0.3 * noise if "ernie" not in type(model).__name__.lower() else 0.05 * noise)
            elif name.endswith("norm.weight") or "layernorm" in name:
                tensor.copy_(0.2 * noise + (0 if "MiniMaxM3" in type(model).__name__ else 1))
            elif name.endswith("bias"):
                tensor.copy_(0.2 * noise)
            else:
                tensor.copy_(noise * (1.5 / tensor.shape[-1] ** 0.5))


def with_vision(config):
    """Qwen3-VL, with a tower of one layer that texts do not use."""
    tower = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=config.hidden_size,
                 deepstack_visual_indexes=[0], num_position_embeddings=16)
    first = config.vocab_size - 4
    both = transformers.Qwen3VLMoeConfig(
        text_config=config.to_dict(), vision_config=tower, image_token_id=first, video_token_id=first + 1,
        vision_start_token_id=first + 2, vision_end_token_id=first + 3, tie_word_embeddings=config.tie_word_embeddings,
        attn_implementation="eager")
    return transformers.Qwen3VLMoeForConditionalGeneration(both)


def turn_experts(directory):
    """Published checkpoints have the experts as [expert, inputs, outputs]; the package turns them only when it reads."""
    from safetensors.torch import load_file, save_file
    path = os.path.join(directory, "model.safetensors")
    tensors = {name: x.transpose(1, 2).contiguous() if ".mlp.experts." in name and x.dim() == 3 else x
               for name, x in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def byte_tokenizer():
    """A token per byte and a few others; GPT-2's splitting."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    vocab = {c: i for i, c in enumerate(bytes_to_unicode().values())}
    added = [{"id": i, "content": "<|%d|>" % i, "special": True} for i in range(256, VOCAB)]
    return {"added_tokens": added,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                      "merges": []}}


def losses_of(model, ids):
    with torch.no_grad():
        return losses_from(model(torch.tensor([ids])).logits[0].double(), ids)


def losses_from(logits, ids):
    chosen = torch.tensor(ids[1:])
    return (-torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), chosen]).tolist()


def q8_0(x):
    """Rounded as Q8_0 has it: per 32 elements of a row a scale in F16, |x| up to 127 times it."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    ratio = blocks * inverse
    whole = torch.sign(ratio) * torch.floor(ratio.abs() + 0.5)
    return (whole * scale.half().float()).reshape(x.shape)


def losses_of_q8_0(model, ids, weights=True, activations=True):
    """The same with the matrices of layers in Q8_0, and what they are multiplied by."""
    functional, plain = torch.nn.functional, torch.nn.functional.linear
    kept = (VOCAB, model.config.num_local_experts)  # output and router

    def linear(x, weight, bias=None):
        if weight.shape[0] in kept:
            return plain(x, weight, bias)
        return plain(q8_0(x) if activations else x, q8_0(weight) if weights else weight, bias)

    functional.linear = linear
    try:
        return losses_of(model, ids)
    finally:
        functional.linear = plain


def run(libexec, program, *args):
    path = os.path.join(libexec, "sluice-" + program)
    done = subprocess.run([path, *args], capture_output=True, text=True,
                          env=dict(os.environ, SLUICE_LIBEXEC=libexec))
    if done.returncode != 0:
        raise AssertionError("%s: %s" % (program, done.stderr.strip()))
    return done.stdout


def to_fp8(model, directory, scale_type, rows=32, columns=48):
    """Rewrites the saved model with the matrices of layers in FP8 with a scale per block, a power of two, so
    that BF16 holds the products exactly, and scale_type the scales. Returns the model with these weights."""
    from safetensors.torch import load_file, save_file
    path = os.path.join(directory, "model.safetensors")
    saved, out, values = load_file(path), {}, {}
    for name, tensor in saved.items():
        if tensor.dim() != 2 or "_proj." not in name and ".experts." not in name:
            out[name] = values[name] = tensor
            continue
        n, k = tensor.shape
        scales = torch.zeros(-(-n // rows), -(-k // columns))
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                block = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
                scales[i, j] = 2.0 ** torch.ceil(torch.log2(tensor[block].abs().max() / 448))
        wide = scales.repeat_interleave(rows, 0)[:n].repeat_interleave(columns, 1)[:, :k]
        out[name] = (tensor / wide).to(torch.float8_e4m3fn)
        out[name + "_scale_inv"] = scales.to(scale_type)
        values[name] = out[name].float() * wide
    with tempfile.TemporaryDirectory() as rounded:
        model.save_pretrained(rounded)
        save_file(values, os.path.join(rounded, "model.safetensors"), metadata={"format": "pt"})
        model = type(model).from_pretrained(rounded, attn_implementation="eager").float().eval()
    save_file(out, path, metadata={"format": "pt"})
    config_path = os.path.join(directory, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                     "weight_block_size": [rows, columns]}
    with open(config_path, "w") as file:
        json.dump(config, file)
    return model


def to_packed(model, directory, bits, group):
    """Rewrites the saved model with experts packed by compressed-tensors (pack-quantized), a scale per group or row (0).
    Returns the model with the values that the package decompresses, of BF16 scales, which F16 holds exactly."""
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor as Compressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from safetensors.torch import load_file, save_file
    weights = QuantizationArgs(num_bits=bits, type="int", symmetric=True, strategy="group" if group else "channel",
                               group_size=group or None)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    path = os.path.join(directory, "model.safetensors")
    out, values = {}, {}
    for name, tensor in load_file(path).items():
        if ".experts." not in name:
            out[name] = values[name] = tensor
            continue
        top = tensor.view(tensor.shape[0], -1, group or tensor.shape[1]).abs().amax(-1)
        state = Compressor.compress({"weight": tensor.to(torch.bfloat16),
                                     "weight_scale": (top / (2 ** (bits - 1) - 0.5)).to(torch.bfloat16)}, scheme)
        for part, packed in state.items():
            out[name.removesuffix("weight") + part] = packed.contiguous()
        whole = Compressor.decompress({**state, "weight_scale": state["weight_scale"].float()}, scheme)
        values[name] = whole["weight"].float().contiguous()
    with tempfile.TemporaryDirectory() as rounded:
        model.save_pretrained(rounded)
        save_file(values, os.path.join(rounded, "model.safetensors"), metadata={"format": "pt"})
        model = type(model).from_pretrained(rounded, attn_implementation="eager").float().eval()
    save_file(out, path, metadata={"format": "pt"})
    config_path = os.path.join(directory, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    group_0 = json.loads(scheme.model_dump_json())
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "pack-quantized",
                                     "quantization_status": "compressed", "kv_cache_scheme": None, "ignore": ["lm_head"],
                                     "config_groups": {"group_0": group_0}}
    with open(config_path, "w") as file:
        json.dump(config, file)
    return model


def gguf_mxfp4(blocks, scales):
    """GGUF's bytes: per block the exponent, then byte j with elements j (low bits) and j + 16."""
    elements = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    packed = elements[..., :16] | elements[..., 16:] << 4
    return np.concatenate([scales[..., None], packed], axis=-1)


def to_mxfp4(model, directory):
    """Rewrites the saved gpt-oss with experts of MXFP4: ..._blocks [expert][output][block][16 bytes], the first element
    in the low bits, and ..._scales. The model gets these weights, as the package itself reads them. Returns the matrices of experts as GGUF has them."""
    from safetensors.torch import load_file, save_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    path = os.path.join(directory, "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    out, made = {}, {}
    for name, tensor in load_file(path).items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            out[name] = tensor
            continue
        experts, inputs, outputs = tensor.shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 127, blocks.shape[:3], generator=generator, dtype=torch.uint8)
        out[name + "_blocks"], out[name + "_scales"] = blocks, scales
        values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        assert values.shape == tensor.shape, (values.shape, tensor.shape)
        with torch.no_grad():
            model.get_parameter(name).copy_(values)
        layer, rows = name.split(".")[2], gguf_mxfp4(blocks.numpy(), scales.numpy())
        parts = {"down": rows} if "down" in name else {"gate": rows[:, 0::2], "up": rows[:, 1::2]}
        made.update({"blk.%s.ffn_%s_exps.weight" % (layer, k): v for k, v in parts.items()})
    save_file(out, path, metadata={"format": "pt"})
    config_path = os.path.join(directory, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    with open(config_path, "w") as file:
        json.dump(config, file)
    return made


def golden_models():
    """The models of the golden data: name -> configuration, function that fills the weights, function that makes
    arrays by their names in GGUF. Their weights are larger."""
    for name, arch, config in recurrent_vectors.MODELS:
        yield name, config, recurrent_vectors.fill, lambda m, a=arch: recurrent_vectors.converted(m, a)
    for name, config in oss_vectors.MODELS:
        yield name, config, oss_vectors.fill, oss_vectors.converted
    for name, _, config in mla_vectors.MODELS:
        yield name, config, mla_vectors.fill, lambda m, c=config: mla_vectors.converted(m, c)
    for name, config in gemma_vectors.MODELS:
        yield name, config, gemma_vectors.fill, gemma_vectors.converted
    for name, arch, config in scaled_vectors.MODELS:
        yield (name, config, lambda m, s, f=name.endswith("_f32"): scaled_vectors.fill(m, s, f),
               lambda m, a=arch: scaled_vectors.converted(m, a))


def same_tensors(store, arrays):
    """The tensors in the store are those that the golden data's converter makes; matrices of experts are looked for
    in all of the experts' bytes."""
    from gguf import GGUFReader
    wanted = dict(arrays)
    compared = 0
    for tensor in GGUFReader(os.path.join(store, "model.gguf")).tensors:
        if tensor.tensor_type.name not in ("F32", "F16"):
            continue
        if tensor.name == "rope_freqs.weight" or tensor.name.startswith("rope_factors"):
            continue
        want = np.ascontiguousarray(wanted.pop(tensor.name), dtype=np.float32).reshape(-1)
        got = tensor.data.astype(np.float32).reshape(-1)
        tolerance = 1e-6 if tensor.name.endswith("ssm_a") else 0  # of exp()
        assert got.shape == want.shape, (tensor.name, got.shape, want.shape)
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max(), tensor.name
        compared += 1
    with open(os.path.join(store, "experts.0.bin"), "rb") as file:
        experts = file.read()
    for name, array in wanted.items():
        assert "_exps.weight" in name, name
        for number, matrix in enumerate(array):
            assert np.ascontiguousarray(matrix).tobytes() in experts, (name, number)
        compared += 1
    return compared


def compare_golden(libexec, kind, config, fill_weights, converted, directory, mxfp4=False):
    build = transformers.Gemma4ForCausalLM._from_config if "gemma4" in config.model_type else \
        transformers.AutoModelForCausalLM.from_config
    model = build(config, attn_implementation="eager").float().eval()
    fill_weights(model, 77)
    model.save_pretrained(directory)
    made = to_mxfp4(model, directory) if mxfp4 else {}
    store = pack(libexec, directory)
    count = same_tensors(store, {**dict(converted(model)), **made})
    vectors.round_cache(model)
    worst, median = differences(libexec, model, directory, store)
    print("%-20s %d tensors the same; differences at most %.5f, median %.5f" % (kind + (" mxfp4" if mxfp4 else ""), count, worst, median))
    return median <= 0.05 if mxfp4 else worst <= 2e-3  # products of MXFP4 round the activations to 8 bits


NUMPY_NAMES = {
    **recurrent_vectors.NAMES, "model.word_embeddings.weight": "token_embd.weight",
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "attention.query_key_value.weight": "attn_qkv.weight", "attention.dense.weight": "attn_output.weight",
    "attention.query_layernorm.weight": "attn_q_norm.weight", "attention.key_layernorm.weight": "attn_k_norm.weight",
    "mlp.gate.expert_bias": "exp_probs_b.bias", "block_sparse_moe.primary_router.weight": "ffn_gate_inp.weight"}


# arctic: the norm before the experts, and a network beside them
ARCTIC_NAMES = {"post_attention_layernorm.weight": "ffn_norm_exps.weight", "residual_layernorm.weight": "ffn_norm.weight",
                "residual_mlp.w1.weight": "ffn_gate.weight", "residual_mlp.w3.weight": "ffn_up.weight",
                "residual_mlp.w2.weight": "ffn_down.weight", "block_sparse_moe.gate.weight": "ffn_gate_inp.weight"}
MATRICES = {"w1": "gate", "w3": "up", "w2": "down"}


def numpy_array(arrays, name):
    """The array of a tensor of the checkpoint: by its name, or a network's matrix."""
    names = {**NUMPY_NAMES, **ARCTIC_NAMES} if "blk.0.ffn_norm_exps.weight" in arrays else NUMPY_NAMES
    if name in names:
        return arrays[names[name]]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    if rest in names:
        return arrays["blk.%s.%s" % (layer, names[rest])]
    parts = rest.split(".")
    matrix = MATRICES.get(parts[-2], parts[-2].removesuffix("_proj"))
    if parts[1] == "experts":
        return arrays["blk.%s.ffn_%s_exps.weight" % (layer, matrix)][int(parts[2])]
    return arrays["blk.%s.ffn_%s%s.weight" % (layer, matrix, "_shexp" if parts[1] == "shared_experts" else "")]


def compare_numpy(libexec, kind, arch, sizes, directory):
    """Models that the package does not have, against the golden data's reference in NumPy."""
    from safetensors.numpy import save_file
    arrays = numpy_vectors.weights(arch, sizes, 7077, True)
    config, shapes = hf_vectors.MAKERS[arch](sizes)
    tensors = {name: np.ascontiguousarray(numpy_array(arrays, name), dtype=np.float32) for name in shapes}
    assert all(list(tensors[name].shape) == shape for name, shape in shapes.items())
    save_file(tensors, os.path.join(directory, "model.safetensors"))
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)
    store = pack(libexec, directory)
    made = {k: np.asarray(v, dtype=np.float32) for k, v in arrays.items()}
    for name in made:
        if arch in ("deepseek", "arctic") and name.endswith(("attn_q.weight", "attn_k.weight")):
            made[name] = vectors.pairs_first(made[name], sizes["heads" if "attn_q" in name else "kv_heads"])
    count = same_tensors(store, made)
    logits = torch.tensor(numpy_vectors.run(arch, arrays, sizes, np.array(IDS))[0])
    want = losses_from(logits, IDS)
    worst, median = differences(libexec, None, directory, store, lambda *_: want)
    print("%-20s %d tensors the same; differences at most %.5f, median %.5f" % (kind, count, worst, median))
    return worst <= 2e-3


def compare(libexec, kind, directory, fp8=None, packed=None):
    name, settings = MODELS[kind]
    config = getattr(transformers, name)(**COMMON, **settings)
    build = {"qwen3_vl_moe": with_vision, "mistral4": transformers.Mistral4ForCausalLM,
             "minimax_m3": transformers.MiniMaxM3VLForCausalLM}.get(kind, transformers.AutoModelForCausalLM.from_config)
    model = build(config).float().eval()
    fill(model, 1)
    if kind == "minimax_m3":
        indexed.save(model, {**COMMON, **settings}, directory, COMMON["eos_token_id"])
    else:
        model.save_pretrained(directory)
    if kind == "qwen3_vl_moe":
        turn_experts(directory)
    if fp8:
        # Both types of scales are published: DeepSeek's are F32, Qwen's BF16.
        model = to_fp8(model, directory, torch.bfloat16 if fp8 == "Q8_0" else torch.float32)
    if packed:
        model = to_packed(model, directory, *packed)
    store = pack(libexec, directory, *(["--fp8", fp8] if fp8 else []))
    worst, median = differences(libexec, model, directory, store)
    print("%-20s differences at most %.5f, median %.5f, over %d tokens" %
          (kind + (" " + fp8 if fp8 else "") + (" int%d/%d" % packed if packed else ""), worst, median, TOKENS - 1))
    if packed:
        return median <= 5e-2  # products of such blocks round the activations to 8 bits
    if fp8 != "Q8_0":
        return worst <= 2e-2
    model.set_experts_implementation("eager")
    plain, middle = losses_of(model, IDS), (TOKENS - 1) // 2
    for text, which in (("weights", dict(activations=False)), ("activations", dict(weights=False)), ("both", {})):
        moved = sorted(abs(a - b) for a, b in zip(losses_of_q8_0(model, IDS, **which), plain))
        print("    rounding of %s moves the losses by a median of %.5f" % (text, moved[middle]))
    worst, median = differences(libexec, model, directory, store, lambda m, ids: losses_of_q8_0(m, ids))
    print("    from that model: differences at most %.5f, median %.5f" % (worst, median))
    return median <= 4e-2


def pack(libexec, directory, *options):
    with open(os.path.join(directory, "tokenizer.json"), "w") as file:
        json.dump(byte_tokenizer(), file)
    store = os.path.join(directory, "store")
    run(libexec, "pack", "-m", directory, "-o", store, "--quiet", "--verify", *options)
    return store


def differences(libexec, model, directory, store, losses=losses_of):
    """The largest and the median difference of the tokens' negative log-likelihoods."""
    with open(os.path.join(directory, "ids.json"), "w") as file:
        json.dump({"ids": IDS}, file)
    out = json.loads(run(libexec, "eval", "-m", store, "--ids", os.path.join(directory, "ids.json"),
                         "--ctx-size", str(TOKENS), "--per-token", "--output", "json"))
    got, want = out["nll_per_token"], losses(model, IDS)
    assert len(got) == len(want), (len(got), len(want))
    all_of = sorted(abs(a - b) for a, b in zip(got, want))
    return all_of[-1], all_of[len(all_of) // 2]


def attempt(function, libexec, kind, *rest):
    """The other models are compared, too, if one cannot be."""
    try:
        return function(libexec, kind, *rest)
    except AssertionError as why:
        print("%-20s %s" % (kind, why))
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libexec", required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    good = True
    for kind in MODELS:
        if options.only in (None, kind):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare, os.path.abspath(options.libexec), kind, directory)
    for kind, config, fill_weights, converted in golden_models():
        if options.only in (None, kind):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare_golden, os.path.abspath(options.libexec), kind, config, fill_weights,
                                converted, directory)
        if options.only in (None, "mxfp4") and kind.startswith("oss_a"):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare_golden, os.path.abspath(options.libexec), kind, config, fill_weights,
                                converted, directory, True)
    for kind, arch, sizes in NUMPY_MODELS:
        if options.only in (None, kind):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare_numpy, os.path.abspath(options.libexec), kind, arch, sizes, directory)
    for fp8 in ("BF16", "Q8_0"):
        if options.only in (None, "fp8"):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare, os.path.abspath(options.libexec), "minimax_m2", directory, fp8)
    for packed in ((4, 32), (4, 0), (8, 32)):
        if options.only == "packed" or (options.only is None and importlib.util.find_spec("compressed_tensors")):
            with tempfile.TemporaryDirectory() as directory:
                good &= attempt(compare, os.path.abspath(options.libexec), "minimax_m2", directory, None, packed)
    sys.exit(0 if good else "a model differs")


if __name__ == "__main__":
    main()
