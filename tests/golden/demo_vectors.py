#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of the demo model: logits, routing, greedy continuations and perplexities of the Python
package `transformers`, in float32, with the weights of the F16 file that the build makes of the demo model.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6 tokenizers==0.23.3
    venv/bin/python tests/golden/demo_vectors.py build/tests/golden/tiny-books-moe-f16.gguf tests/golden/data

First it compares every weight with what the package gguf decodes of the demo model, rounded to F16. Prompts and texts
are those of the data. It takes some minutes, and writes the same tokens, experts and rounded figures at each run."""
import json
import os
import sys

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from vectors import save_logits

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "launch", "demo", "tiny-books-moe-q8_0.gguf")
DOMAINS, WINDOW, NEW, USED = ("novel", "tales", "drama", "science"), 512, 64, 4
PARTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp"}


def weights_of(path):
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
            for t in gguf.GGUFReader(path).tensors}


def check_weights(f16, demo):
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(DEMO).tensors}
    assert f16.keys() == demo.keys()
    for name, w in demo.items():
        want = w if types[name] == "F32" else w.astype(np.float16).astype(np.float32)
        assert np.array_equal(f16[name], want), name


def source_of(parameter, w):
    """The array of a parameter of the package."""
    if not parameter.startswith("model.layers."):
        return w["output_norm.weight" if parameter == "model.norm.weight" else "token_embd.weight"]
    layer, part = parameter.removeprefix("model.layers.").split(".", 1)
    block = f"blk.{layer}."
    if part == "mlp.experts.gate_up_proj":
        return np.concatenate([w[block + "ffn_gate_exps.weight"], w[block + "ffn_up_exps.weight"]], axis=1)
    if part == "mlp.experts.down_proj":
        return w[block + "ffn_down_exps.weight"]
    return w[f"{block}{PARTS[part.removesuffix('.weight')]}.weight"]


def model_of(fields, w):
    def of(key):
        return fields["qwen3moe." + key].contents()
    config = transformers.Qwen3MoeConfig(
        vocab_size=of("vocab_size"), hidden_size=of("embedding_length"), num_hidden_layers=of("block_count"),
        num_attention_heads=of("attention.head_count"), num_key_value_heads=of("attention.head_count_kv"),
        head_dim=of("attention.key_length"), num_experts=of("expert_count"), num_experts_per_tok=USED,
        moe_intermediate_size=of("expert_feed_forward_length"), intermediate_size=of("feed_forward_length"),
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": of("rope.freq_base")}, tie_word_embeddings=True,
        max_position_embeddings=of("context_length"), attn_implementation="eager")
    assert of("expert_used_count") == USED
    model = transformers.Qwen3MoeForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            a = source_of(name, w)
            assert p.shape == a.shape, (name, p.shape, a.shape)
            p.copy_(torch.from_numpy(a))
    return model


def run(model, ids):
    """The logits of a text, and per layer the router's logits, computed here from the router's inputs."""
    inputs, hooks = {}, []
    for i, layer in enumerate(model.model.layers):
        def keep(_, args, i=i):
            inputs[i] = args[0].reshape(-1, args[0].shape[-1])
        hooks.append(layer.mlp.gate.register_forward_pre_hook(keep))
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        routers = [inputs[i] @ layer.mlp.gate.weight.T for i, layer in enumerate(model.model.layers)]
    for h in hooks:
        h.remove()
    return logits, routers


def gaps_of(router):
    top = torch.topk(router, USED + 1, dim=1).values
    return top[:, USED - 1] - top[:, USED]


def rounded(values, digits):
    return [round(float(x), digits) for x in values]


def routing_layer(i, router):
    top = torch.topk(router, USED, dim=1)
    weights = torch.softmax(top.values, dim=1)  # as over all experts, then normalised
    return {"layer": i, "experts": top.indices.tolist(), "weights": [rounded(row, 6) for row in weights],
            "gap_4th_5th_logit": rounded(gaps_of(router), 5)}


def write(out, name, value, **form):
    with open(os.path.join(out, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, **form)
        f.write("\n")


def write_logits(model, out):
    with open(os.path.join(out, "logits.json"), encoding="utf-8") as f:
        prompts = json.load(f)
    for i, p in enumerate(prompts):
        logits, routers = run(model, p["ids"])
        save_logits(os.path.join(out, p["file"]), logits)
        write(out, f"routing_{i}.json", {"text": p["text"], "ids": p["ids"],
                                         "layers": [routing_layer(n, r) for n, r in enumerate(routers)]})


def continued(model, tokenizer, prompt, ids):
    whole, margins = list(ids), []
    for _ in range(NEW):
        top = torch.topk(run(model, whole)[0][-1], 2)
        margins.append(round(float(top.values[0] - top.values[1]), 4))
        whole.append(int(top.indices[0]))
    gaps = torch.stack([gaps_of(r) for r in run(model, whole[:-1])[1]]).min(dim=0).values
    print(f"greedy: least margin {min(margins)}, least gap {float(gaps.min()):.2g}", flush=True)
    return {"prompt": prompt, "prompt_ids": ids, "continuation_ids": whole[len(ids):],
            "continuation": tokenizer.decode(whole[len(ids):]), "top1_minus_top2_logit": margins,
            "router_gap": rounded(gaps, 5)}


def write_greedy(model, tokenizer, out):
    with open(os.path.join(out, "greedy.json"), encoding="utf-8") as f:
        doc = json.load(f)
    doc["prompts"] = [continued(model, tokenizer, p["prompt"], p["prompt_ids"]) for p in doc["prompts"]]
    write(out, "greedy.json", doc, indent=0)


def losses_of(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1].double()
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))


def write_perplexity(model, tokenizer, out):
    with open(os.path.join(out, "perplexity.json"), encoding="utf-8") as f:
        doc = json.load(f)
    doc["precision"] = "fp32 arithmetic, weights of the F16 file that demo_vectors.py names"
    total = count = 0
    for domain in DOMAINS:
        with open(os.path.join(out, "heldout", domain + ".txt"), encoding="utf-8", newline="") as f:
            ids = tokenizer.encode(f.read()).ids
        d = doc["domains"][domain]
        assert len(ids) == d["tokens_in_file"], (domain, len(ids))
        nll = [losses_of(model, ids[at:at + WINDOW]) for at in range(0, len(ids) - WINDOW + 1, WINDOW)]
        scored = len(nll) * (WINDOW - 1)
        assert scored == d["scored_tokens"] and len(nll) == d["windows"]
        d["mean_nll"] = sum(nll) / scored
        d["perplexity"] = float(np.exp(d["mean_nll"]))
        d["nll_of_windows"] = rounded([x / (WINDOW - 1) for x in nll], 6)
        d["bits_per_byte"] = float(sum(nll) / np.log(2) / d["bytes"] * len(ids) / scored)
        print(domain, d["perplexity"], d["bits_per_byte"], flush=True)
        total, count = total + sum(nll), count + scored
    assert count == doc["domains"]["all"]["scored_tokens"]
    doc["domains"]["all"].update(mean_nll=total / count, perplexity=float(np.exp(total / count)))
    write(out, "perplexity.json", doc, indent=1)


def tokenizer_of(fields):
    tokens, merges = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.merges"].contents()
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=[tuple(x.split(" ")) for x in merges]))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def main(path, out):
    fields, w = gguf.GGUFReader(DEMO).fields, weights_of(path)
    check_weights(w, weights_of(DEMO))
    model, tokenizer = model_of(fields, w), tokenizer_of(fields)
    write_logits(model, out)
    write_greedy(model, tokenizer, out)
    write_perplexity(model, tokenizer, out)


if __name__ == "__main__":
    torch.set_num_threads(1)  # the same sums everywhere
    main(sys.argv[1], sys.argv[2])
