#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_arch for files as llama.cpp's own converter makes them: small random models, saved
as the Python package `transformers` saves them, converted by convert_hf_to_gguf.py, and the results of that package with
the same weights in float32. A sibling of scaled_vectors.py, with llama.cpp's sources, which are part of
llama-cpp-python's source distribution (0.3.36):

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/converted_vectors.py tests/golden/data/arch LLAMA_CPP_DIR

phimoe_c: the converter states LongRoPE by its factors and rope.scaling.attn_factor, without rope.scaling.type; the package
has the same factor as short_mscale. qwen3moe_c: YaRN as in files for 128K, with a factor of cos and sin and betas of its
own. granitemoe_c: biases of q, k, v and output. mixtral_c: linear scaling. The other two are not converted: mistral_large_c has the keys of MistralMoeModel (conversion/mistral.py), which needs a published tokenizer,
and the tensors of mla_vectors.py; its queries grow with their position. oss_c has every bias, norm, sink and router in BF16."""
import json
import math
import shutil
import subprocess
import sys
import tempfile

import gguf
import torch
import transformers

import mla_vectors
import oss_vectors
import scaled_vectors
import vectors
from vectors import VOCAB

SCALE = math.sqrt(1 + math.log(2) / math.log(128))  # as the converter computes it from 256 and 128 positions
LONG = dict(scaled_vectors.LONG, short_mscale=SCALE, long_mscale=SCALE)
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0,
        "beta_slow": 2.0, "attention_factor": 1.3}
PLAIN = scaled_vectors.PLAIN
PUBLISHED = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}  # names of architectures

# The converter recognises pre-tokenizers by hashes of published ones.
CONVERT = """
import sys
llama, pre = sys.argv[1:3]
del sys.argv[1:3]
sys.path.insert(0, llama)
import convert_hf_to_gguf
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
convert_hf_to_gguf.main()
"""

# name, architecture in GGUF, pre-tokenizer, seed, configuration
MODELS = [
    ("phimoe_c", "phimoe", "gpt-2", 5101, transformers.PhimoeConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, intermediate_size=24,
        attention_bias=True, lm_head_bias=True, router_jitter_noise=0.01, rms_norm_eps=1e-5, rope_parameters=LONG,
        tie_word_embeddings=False, **PLAIN)),
    ("qwen3moe_c", "qwen3moe", "qwen2", 5103, transformers.Qwen3MoeConfig(
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6, num_experts_per_tok=2,
        intermediate_size=64, moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        rms_norm_eps=1e-6, rope_parameters=YARN, tie_word_embeddings=False, **PLAIN)),
    ("granitemoe_c", "granitemoe", "refact", 5105, transformers.GraniteMoeConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, intermediate_size=24,
        attention_bias=True, embedding_multiplier=2.0, residual_multiplier=0.7, attention_multiplier=0.2, logits_scaling=1.5,
        rms_norm_eps=1e-5, rope_parameters=scaled_vectors.rope(1e4), tie_word_embeddings=False, **PLAIN)),
    ("mixtral_c", "llama", "gpt-2", 5104, transformers.MixtralConfig(
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, intermediate_size=24,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5},
        tie_word_embeddings=False, **PLAIN)),
]


def save_tokenizer(folder):
    """The GPT-2 alphabet of bytes, one merge, an end token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    vocab = {letter: b for b, letter in enumerate(vectors.byte_letters())} | {"he": 256}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e")]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.save(f"{folder}/tokenizer.json")
    data = json.load(open(f"{folder}/tokenizer.json", encoding="utf-8"))
    data["added_tokens"] = [{"id": 257, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                             "normalized": False, "special": True}]
    json.dump(data, open(f"{folder}/tokenizer.json", "w", encoding="utf-8"))
    json.dump({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|end|>"},
              open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8"))


def convert(llama, arch, pre, model, out):
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    c = model.config.to_dict()
    c["architectures"] = [PUBLISHED.get(type(model).__name__, type(model).__name__)]
    json.dump(c, open(f"{folder}/config.json", "w", encoding="utf-8"), default=str)
    save_tokenizer(folder)
    subprocess.run([sys.executable, "-c", CONVERT, llama, pre, folder, "--outfile", out, "--outtype", "f16", "--model-name",
                    "model"], check=True)
    shutil.rmtree(folder)


def reference(name, arch, model, seed):
    ids = vectors.random_ids(seed)
    restore = vectors.round_cache(model)
    logits, routers = scaled_vectors.run(model, ids)
    layers = scaled_vectors.routing(arch, model.config, routers)
    more, margin = vectors.greedy(lambda x: scaled_vectors.run(model, x)[0], ids)
    restore()
    return logits, vectors.entry(name, ids[0].tolist(), layers, more, margin)


def mistral_large(out, seed):
    """Queries times 1 + 0.5 log(1 + floor(position / 32))."""
    name = "mistral_large_c"
    rope = dict(mla_vectors.yarn(8, 32, 1, 1.0), original_max_position_embeddings=32, llama_4_scaling_beta=0.5)
    config = transformers.Mistral4Config(
        vocab_size=VOCAB, num_hidden_layers=mla_vectors.LAYERS, max_position_embeddings=256, pad_token_id=None,
        bos_token_id=None, eos_token_id=256, hidden_size=mla_vectors.HIDDEN, intermediate_size=48, moe_intermediate_size=24,
        q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=1, num_attention_heads=4, num_key_value_heads=4, first_k_dense_replace=1,
        rms_norm_eps=1e-6, tie_word_embeddings=False, rope_parameters=rope, attn_implementation="eager")
    model = transformers.Mistral4ForCausalLM(config).float().eval()
    mla_vectors.fill(model, seed)
    ids = vectors.random_ids(seed)
    logits, inputs = mla_vectors.run(model, ids)
    with torch.no_grad():
        layers = mla_vectors.routing(model, config, inputs)
    more, margin = vectors.greedy(lambda x: mla_vectors.run(model, x)[0], ids)
    w = gguf.GGUFWriter(f"{out}/{name}.gguf", "deepseek2")
    w.add_name(name)
    config.norm_topk_prob = False  # a softmax, whatever is normalised
    mla_vectors.write_keys(w, config, 0)
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    w.add_attn_temperature_length(rope["original_max_position_embeddings"])
    vectors.add_tensors(w, name, mla_vectors.converted(model, config))
    vectors.finish(w)
    vectors.save_logits(f"{out}/{name}.npy", logits)
    return vectors.entry(name, ids[0].tolist(), layers, more, margin)


def is_small(name):
    return "norm" in name or name.endswith(("bias", "sinks", "router.weight"))


def oss_bf16(out, seed):
    name = "oss_c"
    config = transformers.GptOssConfig(
        num_hidden_layers=2, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=4,
        num_experts_per_tok=2, intermediate_size=32, sliding_window=16, rope_parameters=oss_vectors.YARN,
        **oss_vectors.COMMON)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    oss_vectors.fill(model, seed)
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            if is_small(parameter):
                p.copy_(p.bfloat16().float())
    ids = vectors.random_ids(seed)
    logits, inputs = oss_vectors.run(model, ids)
    with torch.no_grad():
        layers = oss_vectors.routing(model, inputs)
    more, margin = vectors.greedy(lambda x: oss_vectors.run(model, x)[0], ids)
    plain, kind = gguf.GGUFWriter.add_tensor, gguf.GGMLQuantizationType.BF16

    def add(self, tensor, a):
        if a.dtype == np.float32:
            plain(self, tensor, gguf.quants.quantize(a, kind), raw_dtype=kind)
        else:
            plain(self, tensor, a)
    gguf.GGUFWriter.add_tensor = add
    oss_vectors.write_gguf(f"{out}/{name}.gguf", name, model, config)
    gguf.GGUFWriter.add_tensor = plain
    vectors.save_logits(f"{out}/{name}.npy", logits)
    return vectors.entry(name, ids[0].tolist(), layers, more, margin)


def main(out, llama):
    index = []
    for name, arch, pre, seed, config in MODELS:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        scaled_vectors.fill(model, seed, False)
        logits, item = reference(name, arch, model, seed)
        convert(llama, arch, pre, model, f"{out}/{name}.gguf")
        vectors.save_logits(f"{out}/{name}.npy", logits)
        index.append(item)
    index += [mistral_large(out, 5106), oss_bf16(out, 5107)]
    vectors.write_list(f"{out}/converted.json", index)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
