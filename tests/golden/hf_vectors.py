#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what unit_hf needs to turn GGUF files of the golden data back into Hugging Face directories: the configuration,
and the names and shapes of the tensors, as the Python package transformers saves them.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/hf_vectors.py tests/golden/data/hf

bailing_a and smallthinker_a, which the package does not have, have the names of their published checkpoints; bailingmoe and
deepseek are for ../peers/convert_arch.py."""
import json
import os
import sys
import tempfile

import transformers
from safetensors import safe_open

import gemma_vectors
import mla_vectors
import numpy_vectors
import oss_vectors
import recurrent_vectors
import scaled_vectors

WANTED = ("qwen35moe_a", "qwen35moe_b_f32", "qwen3next_a", "oss_a", "deepseek_v2", "deepseek_v3_f32", "kimi_k2",
          "glm4_7_flash_f32", "gemma4_a", "gemma4_b_f32", "lfm2moe_a", "granitemoe_a", "granitemoe_b_f32", "hunyuan_a",
          "phimoe_a", "dbrx_a")


def saved(config):
    build = transformers.Gemma4ForCausalLM._from_config if "gemma4" in config.model_type else \
        transformers.AutoModelForCausalLM.from_config
    with tempfile.TemporaryDirectory() as directory:
        build(config).save_pretrained(directory)
        with open(os.path.join(directory, "config.json")) as file:
            read = json.load(file)
        with safe_open(os.path.join(directory, "model.safetensors"), "pt") as file:
            return read, {name: file.get_slice(name).get_shape() for name in file.keys()}


def first_config(c):
    return dict(num_hidden_layers=c["layers"], hidden_size=numpy_vectors.hidden_of(c), num_attention_heads=c["heads"],
                num_key_value_heads=c["kv_heads"], vocab_size=numpy_vectors.VOCAB, max_position_embeddings=256,
                rope_theta=c["theta"], rope_scaling=None, rms_norm_eps=1e-5, intermediate_size=c["dense_inner"],
                moe_intermediate_size=c["inner"], num_experts_per_tok=c["used"], first_k_dense_replace=c["dense"],
                hidden_act="silu", tie_word_embeddings=False, eos_token_id=256)


def with_shared(c, embedding, attention):
    """Shapes of a model whose first layers are dense and whose others have experts and shared ones; attention: of a layer,
    name -> shape."""
    hidden = numpy_vectors.hidden_of(c)
    shapes = {embedding: [numpy_vectors.VOCAB, hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [numpy_vectors.VOCAB, hidden]}
    for layer in range(c["layers"]):
        def put(name, *shape, layer=layer):
            shapes["model.layers.%d.%s" % (layer, name)] = list(shape)

        def network(prefix, width):
            put(prefix + "gate_proj.weight", width, hidden)
            put(prefix + "up_proj.weight", width, hidden)
            put(prefix + "down_proj.weight", hidden, width)

        for name in ("input_layernorm", "post_attention_layernorm"):
            put(name + ".weight", hidden)
        for name, shape in attention.items():
            put(name, *shape)
        if layer < c["dense"]:
            network("mlp.", c["dense_inner"])
            continue
        put("mlp.gate.weight", c["experts"], hidden)
        network("mlp.shared_experts.", c["shared"])
        for expert in range(c["experts"]):
            network("mlp.experts.%d." % expert, c["inner"])
    return shapes


def joined(c):
    heads, head, hidden = c["heads"], c["head"], numpy_vectors.hidden_of(c)
    return {"attention.query_key_value.weight": ((heads + 2 * c["kv_heads"]) * head, hidden),
            "attention.dense.weight": (hidden, heads * head)}


def bailing(c):
    head = c["head"]
    config = dict(
        first_config(c), model_type="bailing_moe_v2", head_dim=head, partial_rotary_factor=c["rope"] / head,
        num_experts=c["experts"], num_shared_experts=1, moe_shared_expert_intermediate_size=c["shared"],
        n_group=c["groups"], topk_group=c["groups_used"], norm_topk_prob=True, routed_scaling_factor=c["scale"],
        score_function="sigmoid", moe_router_enable_expert_bias=True, use_qk_norm=True, use_qkv_bias=False, use_bias=False,
        norm_head=False, num_nextn_predict_layers=0)
    norms = {"attention.query_layernorm.weight": (head,), "attention.key_layernorm.weight": (head,)}
    shapes = with_shared(c, "model.word_embeddings.weight", {**joined(c), **norms})
    for layer in range(c["dense"], c["layers"]):
        shapes["model.layers.%d.mlp.gate.expert_bias" % layer] = [c["experts"]]
    return config, shapes


def bailing_1(c):
    config = dict(first_config(c), model_type="bailing_moe", head_dim=c["head"], num_experts=c["experts"],
                  num_shared_experts=c["shared"] // c["inner"], norm_topk_prob=c["norm"], norm_head=c["norm_head"],
                  use_bias=False, use_qkv_bias=False)
    return config, with_shared(c, "model.word_embeddings.weight", joined(c))


def deepseek(c):
    heads, head, hidden = c["heads"], c["head"], numpy_vectors.hidden_of(c)
    config = dict(first_config(c), model_type="deepseek", n_routed_experts=c["experts"], moe_layer_freq=1,
                  n_shared_experts=c["shared"] // c["inner"], norm_topk_prob=c["norm"], scoring_func="softmax")
    attention = {"self_attn.%s_proj.weight" % name: (rows * head, hidden)
                 for name, rows in (("q", heads), ("k", c["kv_heads"]), ("v", c["kv_heads"]))}
    attention["self_attn.o_proj.weight"] = (hidden, heads * head)
    return config, with_shared(c, "model.embed_tokens.weight", attention)


def smallthinker(c):
    heads, head, hidden = c["heads"], c["head"], numpy_vectors.hidden_of(c)
    windows = [int(c["window"] > 0 and i % 4 != 0) for i in range(c["layers"])]
    rotated = windows if c["window"] > 0 else [1] * c["layers"]
    config = dict(
        model_type="smallthinker", num_hidden_layers=c["layers"], hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=c["kv_heads"], head_dim=head, vocab_size=numpy_vectors.VOCAB, max_position_embeddings=256,
        rope_theta=c["theta"], rope_scaling=None, rms_norm_eps=1e-5, moe_num_primary_experts=c["experts"],
        moe_num_active_primary_experts=c["used"], moe_ffn_hidden_size=c["inner"], norm_topk_prob=True,
        moe_primary_router_apply_softmax=c["softmax"], moe_enable_secondary_experts=False, moe_enable_early_router=True,
        sliding_window_size=c["window"], sliding_window_layout=windows, rope_layout=rotated, tie_word_embeddings=False,
        eos_token_id=256)
    shapes = {"model.embed_tokens.weight": [numpy_vectors.VOCAB, hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [numpy_vectors.VOCAB, hidden]}
    for layer in range(c["layers"]):
        b = "model.layers.%d." % layer
        shapes[b + "input_layernorm.weight"] = shapes[b + "post_attention_layernorm.weight"] = [hidden]
        for name, rows in (("q", heads * head), ("k", c["kv_heads"] * head), ("v", c["kv_heads"] * head)):
            shapes[b + "self_attn.%s_proj.weight" % name] = [rows, hidden]
        shapes[b + "self_attn.o_proj.weight"] = [hidden, heads * head]
        shapes[b + "block_sparse_moe.primary_router.weight"] = [c["experts"], hidden]
        for expert in range(c["experts"]):
            e = b + "block_sparse_moe.experts.%d." % expert
            shapes[e + "gate.weight"] = shapes[e + "up.weight"] = [c["inner"], hidden]
            shapes[e + "down.weight"] = [hidden, c["inner"]]
    return config, shapes


def arctic(c):
    heads, head, hidden = c["heads"], c["head"], numpy_vectors.hidden_of(c)
    config = dict(
        model_type="arctic", num_hidden_layers=c["layers"], hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=c["kv_heads"], vocab_size=numpy_vectors.VOCAB, max_position_embeddings=256,
        rope_theta=c["theta"], rms_norm_eps=1e-5, num_local_experts=c["experts"], num_experts_per_tok=c["used"],
        intermediate_size=c["inner"], moe_layer_frequency=1, parallel_attn_mlp_res=True, use_residual=True,
        hidden_act="silu", attention_bias=False, sliding_window=None, tie_word_embeddings=False, eos_token_id=256)
    shapes = {"model.embed_tokens.weight": [numpy_vectors.VOCAB, hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [numpy_vectors.VOCAB, hidden]}
    for layer in range(c["layers"]):
        b = "model.layers.%d." % layer
        for name in ("input_layernorm", "post_attention_layernorm", "residual_layernorm"):
            shapes[b + name + ".weight"] = [hidden]
        for name, rows in (("q", heads * head), ("k", c["kv_heads"] * head), ("v", c["kv_heads"] * head)):
            shapes[b + "self_attn.%s_proj.weight" % name] = [rows, hidden]
        shapes[b + "self_attn.o_proj.weight"] = [hidden, heads * head]
        for name in ("w1", "w2", "w3"):
            shapes[b + "residual_mlp.%s.weight" % name] = [hidden, hidden]
        shapes[b + "block_sparse_moe.gate.weight"] = [c["experts"], hidden]
        for expert in range(c["experts"]):
            e = b + "block_sparse_moe.experts.%d." % expert
            shapes[e + "w1.weight"] = shapes[e + "w3.weight"] = [c["inner"], hidden]
            shapes[e + "w2.weight"] = [hidden, c["inner"]]
    return config, shapes


def maple(c):
    heads, head, hidden = c["heads"], c["head"], numpy_vectors.hidden_of(c)
    rope = dict(rope_type="default", rope_theta=c["theta"], partial_rotary_factor=c["rope"] / head)
    config = dict(
        model_type="maple", num_hidden_layers=c["layers"], hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=c["kv_heads"], head_dim=head, vocab_size=numpy_vectors.VOCAB, max_position_embeddings=256,
        rope_theta=c["theta"], rope_parameters=rope, partial_rotary_factor=c["rope"] / head, rms_norm_eps=1e-5,
        num_experts=c["experts"], num_experts_per_tok=c["used"], num_shared_experts=0, moe_intermediate_size=c["inner"],
        intermediate_size=2 * c["inner"], norm_topk_prob=True, nope_on_global_attention=True, hidden_act="silu",
        sliding_window=c["window"], tie_word_embeddings=False, eos_token_id=256,
        layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(c["layers"])])
    shapes = {"model.embed_tokens.weight": [numpy_vectors.VOCAB, hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [numpy_vectors.VOCAB, hidden]}
    for layer in range(c["layers"]):
        b = "model.layers.%d." % layer
        shapes[b + "input_layernorm.weight"] = shapes[b + "post_attention_layernorm.weight"] = [hidden]
        shapes[b + "self_attn.q_norm.weight"] = shapes[b + "self_attn.k_norm.weight"] = [head]
        for name, rows in (("q", heads * head), ("k", c["kv_heads"] * head), ("v", c["kv_heads"] * head)):
            shapes[b + "self_attn.%s_proj.weight" % name] = [rows, hidden]
        shapes[b + "self_attn.o_proj.weight"] = [hidden, heads * head]
        shapes[b + "mlp.gate.weight"] = [c["experts"], hidden]
        for expert in range(c["experts"]):
            e = b + "mlp.experts.%d." % expert
            shapes[e + "gate_proj.weight"] = shapes[e + "up_proj.weight"] = [c["inner"], hidden]
            shapes[e + "down_proj.weight"] = [hidden, c["inner"]]
    return config, shapes


MAKERS = {"bailingmoe2": bailing, "smallthinker": smallthinker, "bailingmoe": bailing_1, "deepseek": deepseek, "maple": maple,
          "arctic": arctic}


def main(out):
    os.makedirs(out, exist_ok=True)
    found = [(m[0], m[-1]) for m in recurrent_vectors.MODELS + oss_vectors.MODELS + mla_vectors.MODELS +
             gemma_vectors.MODELS + scaled_vectors.MODELS]
    all_of = [(name, *saved(config)) for name, config in found if name in WANTED]
    assert len(all_of) == len(WANTED)
    all_of += [(name, *MAKERS[arch](c)) for name, arch, c in numpy_vectors.MODELS if name.endswith("_a")]
    for name, config, shapes in all_of:
        for field in ("transformers_version", "architectures", "dtype", "id2label", "label2id"):
            config.pop(field, None)
        with open(os.path.join(out, name + ".json"), "w", encoding="ascii") as file:
            json.dump({"config": config, "tensors": shapes}, file, sort_keys=True, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
