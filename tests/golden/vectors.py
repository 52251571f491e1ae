# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts that write small random models and what another implementation computes with them
(*_vectors.py): weights, a small vocabulary, files, routing, greedy continuations, logits."""
import json
import math
import sys

import gguf
import numpy as np
import torch

VOCAB, POSITIONS, GREEDY = 264, 70, 12
STRIDE = 8  # GOLDEN_STRIDE in compare.h


# ---- weights ----

def fill(model, seed, value_of, buffers=None):
    """Sets every parameter, by name, to value_of(name, parameter, normally distributed numbers of its shape), and the
    buffers with `buffers` in their names."""
    gen = torch.Generator().manual_seed(seed)
    tensors = list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if buffers and buffers in n]
    with torch.no_grad():
        for name, p in sorted(tensors, key=lambda x: x[0]):
            p.copy_(value_of(name, p, torch.randn(p.shape, generator=gen, dtype=torch.float32)))


def half(x):
    """Rounded to F16."""
    return x.half().float()


def random_ids(seed):
    return torch.randint(0, VOCAB, (1, POSITIONS), generator=torch.Generator().manual_seed(seed))


# ---- files ----

def gguf_name(names, name):
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found, f"no name for {name}"
    return found


def pairs_first(w, heads):
    """Element i and i + n/2 of a head become neighbours, as the `llama` architecture rotates."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def padded(names, kinds):
    while len(names) < VOCAB:
        names.append(f"[PAD{len(names)}]")
        kinds.append(gguf.TokenType.UNUSED)
    return names, kinds


def byte_letters():
    """The GPT-2 alphabet: the letter of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    codes, extra = {}, 256
    for b in range(256):
        codes[b] = b if b in plain else extra
        extra += b not in plain
    return [chr(codes[b]) for b in range(256)]


def write_byte_level(w, arch):
    """The GPT-2 alphabet of bytes, an end token, one merge."""
    names, kinds = padded(byte_letters() + ["<|end|>", "he"],
                          [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("olmo" if arch == "olmoe" else "qwen2")
    w.add_token_list(names)
    w.add_token_types(kinds)
    w.add_token_merges(["h e"])
    w.add_eos_token_id(256)


def write_common_keys(w, config, layers):
    w.add_block_count(layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_rope_freq_base(config.rope_theta)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)


def is_f32(name):
    """Is it a model with F32 matrices?"""
    return name.endswith("_f32")


def is_matrix(tensor, a):
    """Is it none of a router, and no vector?"""
    return a.ndim > 1 and tensor.endswith("weight") and "ffn_gate_inp" not in tensor


def add_tensors(w, name, tensors, in_f16=is_matrix):
    """Those `in_f16` in F16, or in F32 if the model's name says so; the others in F32."""
    for tensor, a in tensors:
        kind = np.float16 if in_f16(tensor, a) and not is_f32(name) else np.float32
        w.add_tensor(tensor, np.ascontiguousarray(a, dtype=kind))


def add_drafting(w, layer, shapes):
    """Tensors of a block for drafting, as published files have it after the last layer: noise."""
    for tensor, shape in shapes:
        w.add_tensor(f"blk.{layer}.{tensor}.weight", np.full(shape, np.nan, dtype=np.float32))


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- what the model computes ----

def round_cache(model):
    """Keys and values rounded to F16, as in sluice's cache, until the function that it returns is called."""
    layers = [m for m in model.modules() if hasattr(m, "expand_kv")]
    if layers:
        kept = [m.expand_kv for m in layers]
        for m, plain in zip(layers, kept):
            m.expand_kv = lambda c, pe, plain=plain: plain(half(c), half(pe))
        return lambda: [setattr(m, "expand_kv", plain) for m, plain in zip(layers, kept)]
    module = sys.modules[type(model).__module__]
    plain = module.eager_attention_forward

    def rounded(attention, query, key, value, *more, **named):
        return plain(attention, query, half(key), half(value), *more, **named)

    module.eager_attention_forward = rounded
    return lambda: setattr(module, "eager_attention_forward", plain)


def round_rotated(model):
    """Rotated keys rounded to F16, also those of MiniMax-M3's indexer."""
    module = sys.modules[type(model).__module__]
    plain = module.apply_rotary_pos_emb

    def rounded(*arguments, **named):
        q, k = plain(*arguments, **named)
        return q, half(k)

    module.apply_rotary_pos_emb = rounded
    return lambda: setattr(module, "apply_rotary_pos_emb", plain)


def run(model, ids, routers):
    """Logits, and the input of each router (None: a layer without experts)."""
    inputs = [None] * len(routers)
    hooks = [router.register_forward_pre_hook(
        lambda _, x, n=n: inputs.__setitem__(n, x[0].reshape(-1, x[0].shape[-1]).float()))
        for n, router in enumerate(routers) if router is not None]
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, inputs


def layer_of(experts, weights, gap):
    """A layer in the list of a model: experts by falling weight, their weights, the gap to the first one not chosen."""
    return {"experts": experts.tolist(), "weights": [[round(v, 6) for v in row] for row in weights.tolist()],
            "gap": [round(v, 6) for v in gap.tolist()]}


def greedy(logits_of, ids):
    """The continuation, and the minimum margin between the best and the second logit in it."""
    more, margin = [], math.inf
    for _ in range(GREEDY):
        top = logits_of(torch.cat([ids, torch.tensor([more], dtype=ids.dtype)], dim=1))[-1].topk(2)
        margin = min(margin, (top[0][0] - top[0][1]).item())
        more.append(top[1][0].item())
    return more, margin


# ---- what is stored ----

def save_logits(path, logits):
    """Writes what golden_compare reads of the logits [positions][vocabulary], as float32. Of each position: the best
    token and its margin over the second, of the whole vocabulary; then every eighth logit, those of the tokens v with
    v % STRIDE == position % STRIDE, so that any eight positions have all tokens."""
    logits = np.asarray(logits, dtype="<f4")
    positions, vocab = logits.shape
    assert vocab % STRIDE == 0
    second, first = np.sort(logits, axis=1)[:, -2:].T
    rows = [np.concatenate([[logits[t].argmax(), first[t] - second[t]], logits[t, t % STRIDE::STRIDE]])
            for t in range(positions)]
    np.save(path, np.stack(rows).astype("<f4"))


def entry(name, ids, layers, more, margin):
    """Prints the narrowest choices of a model and returns its entry in the list."""
    gap = min(min(x["gap"]) for x in layers if x)
    print(f"{name}: minimum gap {gap:.2g}, minimum greedy margin {margin:.2g}")
    return {"name": name, "q8": False, "f32": is_f32(name), "ids": ids, "layers": layers, "greedy": more,
            "greedy_margin": round(margin, 6)}


def write_list(path, index):
    with open(path, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in index) + "\n]\n")
