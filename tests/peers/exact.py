#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is nearer to the exact result: sluice or llama.cpp (README.md of this directory).

    tests/peers/exact.py --peer DIR -o WORK [--types Q4_0,Q5_0] [--windows 4]

The exact result is the demo model in double precision (NumPy): the same file, its quantised weights as the numbers that
they stand for, activations and keys not rounded. Both engines round activations to int8 and keys and values to F16.

Per file, over all scored tokens of the held-out texts: the median of the root mean square error of a token's
log-probabilities, and the median error of its loss. Then, along sluice's greedy texts: how far sluice's token is at most
below llama.cpp's best, by llama.cpp's logits; there, the same by sluice's and by the exact ones; and how far sluice's
token, and llama.cpp's best, are at most below the exact best. Markdown on stdout. Exit status: 1 if sluice's error is
more than 1.1 times llama.cpp's."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, GREEDY, WINDOW = 16, 64, 512
FARTHER = 1.1  # of llama.cpp's error


def decode(tensor):
    """A tensor's numbers in double, rows first."""
    import gguf
    import numpy as np
    shape = [int(n) for n in reversed(tensor.shape)]
    name = tensor.tensor_type.name
    if name not in ("Q1_0", "Q2_0"):
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64).reshape(shape)
    blocks = tensor.data.reshape(-1, 18)
    bits = 1 if name == "Q1_0" else 2
    d = blocks[:, :2].copy().view(np.float16).astype(np.float64)
    codes = (blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2 ** bits - 1)
    codes = codes.reshape(len(blocks), -1).astype(np.float64)
    return (np.where(codes == 1, d, -d) if bits == 1 else d * (codes - 1)).reshape(shape)


class Exact:
    """A qwen3moe model in double."""

    def __init__(self, path):
        import gguf
        reader = gguf.GGUFReader(path)
        self.t = {t.name: decode(t) for t in reader.tensors}
        key = lambda name: reader.fields["qwen3moe." + name].contents()
        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads, self.size = key("attention.head_count_kv"), key("attention.key_length")
        self.eps, self.theta = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base")
        self.used = key("expert_used_count")

    def norm(self, x, name):
        import numpy as np
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * self.t[name]

    def rotate(self, x):
        import numpy as np
        half = self.size // 2
        angle = np.arange(len(x))[:, None] * self.theta ** (-2.0 * np.arange(half) / self.size)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)

    def attention(self, x, blk):
        import numpy as np
        n = len(x)
        q = (x @ self.t[blk + "attn_q.weight"].T).reshape(n, self.heads, self.size)
        k = (x @ self.t[blk + "attn_k.weight"].T).reshape(n, self.kv_heads, self.size)
        v = (x @ self.t[blk + "attn_v.weight"].T).reshape(n, self.kv_heads, self.size)
        q = self.rotate(self.norm(q, blk + "attn_q_norm.weight"))
        k = self.rotate(self.norm(k, blk + "attn_k_norm.weight"))
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.size)
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", p, v).reshape(n, -1) @ self.t[blk + "attn_output.weight"].T

    def experts(self, x, blk):
        import numpy as np
        logits = x @ self.t[blk + "ffn_gate_inp.weight"].T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        chosen = np.argsort(-logits, axis=1, kind="stable")[:, :self.used]
        weight = np.take_along_axis(p, chosen, axis=1)
        weight /= weight.sum(axis=1, keepdims=True)
        gate, up, down = (self.t[f"{blk}ffn_{m}_exps.weight"] for m in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for e in np.unique(chosen):
            row, rank = np.nonzero(chosen == e)
            g = x[row] @ gate[e].T
            inner = g / (1 + np.exp(-g)) * (x[row] @ up[e].T)
            out[row] += weight[row, rank][:, None] * (inner @ down[e].T)
        return out

    def log_p(self, ids):
        """Log-probabilities [len(ids)][vocabulary]."""
        import numpy as np
        x = self.t["token_embd.weight"][ids]
        for layer in range(self.layers):
            blk = f"blk.{layer}."
            x = x + self.attention(self.norm(x, blk + "attn_norm.weight"), blk)
            x = x + self.experts(self.norm(x, blk + "ffn_norm.weight"), blk)
        out = self.t.get("output.weight", self.t["token_embd.weight"])
        return log_softmax(self.norm(x, "output_norm.weight") @ out.T)


def log_softmax(logits):
    import numpy as np
    top = logits.max(axis=1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))


def recorded(path):
    """sluice's log-probabilities [windows][scored][vocabulary] (lib/offline/measure/logits.h)."""
    import numpy as np
    with open(path, "rb") as f:
        data = f.read()
    header, vocab, _, windows, scored = np.frombuffer(data, np.uint32, 5, 12)
    row = np.dtype([("top", "<f4"), ("step", "<f4"), ("below", "<u2", vocab)])
    rows = np.frombuffer(data, np.uint8, offset=header)
    rows = rows.reshape(windows * scored, -1)[:, :row.itemsize].copy().view(row)[:, 0]
    p = rows["top"].astype(np.float64)[:, None] - rows["step"].astype(np.float64)[:, None] * rows["below"]
    return p.reshape(windows, scored, vocab)


class Llama:
    def __init__(self, path, threads):
        import ctypes
        import llama_cpp
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        self.model = llama_cpp.Llama(path, n_ctx=WINDOW, n_batch=WINDOW, n_threads=threads, n_threads_batch=threads,
                                     n_gpu_layers=0, logits_all=True, verbose=False)

    def log_p(self, ids):
        import numpy as np
        self.model.reset()
        self.model.eval(ids)
        return log_softmax(np.array(self.model.scores[:len(ids)], np.float64))


def errors(got, want, ids):
    """Per scored token: root mean square error of the log-probabilities, error of the loss."""
    import numpy as np
    each = got - want
    at = np.arange(len(ids) - 1)
    return np.sqrt((each[:-1] ** 2).mean(axis=1)), np.abs(each[at, ids[1:]])


def text_errors(a, m, path, exact, llama, work):
    sums = {"sluice": ([], []), "llama.cpp": ([], [])}
    prompts = []
    for text in a.texts:
        record = os.path.join(work, "record")
        source = ["-m", path, "--text", text, "--ctx-size", WINDOW, "--max-windows", a.windows]
        doc = m.sluice("eval", *source, "--per-token", "--output", "json", "--threads", a.threads)
        m.run([m.program("eval"), *map(str, source), "--offline", "--record", record, "--threads", str(a.threads)])
        ours = recorded(record)
        prompts.append(doc["ids"][:PROMPT])
        for w in range(len(doc["ids"]) // WINDOW):
            ids = doc["ids"][w * WINDOW:(w + 1) * WINDOW]
            want = exact.log_p(ids)
            pad = want[-1:]  # the last token of a window is not scored
            import numpy as np
            for name, got in (("sluice", np.concatenate([ours[w], pad])), ("llama.cpp", llama.log_p(ids))):
                rms, loss = errors(got, want, ids)
                sums[name][0].extend(rms.tolist())
                sums[name][1].extend(loss.tolist())
    return {n: [statistics.median(x) for x in s] for n, s in sums.items()}, prompts


def sluice_gap(a, m, path, ids, other, work):
    """How far sluice's logit of the last token is below that of `other`."""
    loss = []
    for last in (ids[-1], other):
        m.write_json(os.path.join(work, "gap.json"), {"ids": ids[:-1] + [last]})
        doc = m.sluice("eval", "-m", path, "--ids", os.path.join(work, "gap.json"), "--ctx-size", len(ids), "--per-token",
                       "--output", "json", "--threads", a.threads)
        loss.append(doc["nll_per_token"][-1])
    return loss[0] - loss[1]


def greedy_gaps(a, m, path, exact, llama, prompts, work):
    """Of the token that is farthest below llama.cpp's best: the distance by llama.cpp, by sluice and exactly; of all
    tokens: how far sluice's and llama.cpp's choices are at most below the exact best."""
    worst, ours, other = (-1.0, 0.0, 0.0), 0.0, 0.0
    for prompt in prompts:
        doc = m.sluice("generate", "-m", path, "--ids", ",".join(map(str, prompt)), "-n", GREEDY, "--temperature", 0,
                       "--ignore-eos", "--output", "json", "-q", "--threads", a.threads)
        ids = prompt + doc["ids"]
        theirs, want = llama.log_p(ids), exact.log_p(ids)
        found = (-1.0, 0, 0)
        for at in range(PROMPT, len(ids)):
            t, w, token = theirs[at - 1], want[at - 1], ids[at]
            best = int(t.argmax())
            ours, other = max(ours, w.max() - w[token]), max(other, w.max() - w[best])
            found = max(found, (t[best] - t[token], at, best))
        if found[0] > worst[0]:
            below, at, best = found
            gap = sluice_gap(a, m, path, ids[:at + 1], best, work) if best != ids[at] else 0.0
            worst = (below, gap, want[at - 1][best] - want[at - 1][ids[at]])
    return {"llama.cpp": worst[0], "sluice": worst[1], "exact": worst[2], "ours": ours, "other": other}


def compare(a, m, kind):
    path = os.path.join(a.out, f"demo-{kind}.gguf")
    if not os.path.exists(path):
        sys.exit(f"{path}: made by compare_types.py with the same -o")
    exact, llama = Exact(path), Llama(path, a.threads)
    medians, prompts = text_errors(a, m, path, exact, llama, a.out)
    gaps = greedy_gaps(a, m, path, exact, llama, prompts, a.out)
    m.say(kind, json.dumps(medians), json.dumps(gaps))
    return {"type": kind, "medians": medians, "gaps": gaps}


def row_of(r):
    s, t, g = r["medians"]["sluice"], r["medians"]["llama.cpp"], r["gaps"]
    return [r["type"], f"{s[0]:.4f}", f"{t[0]:.4f}", f"{s[1]:.4f}", f"{t[1]:.4f}",
            *(f"{g[k]:.3f}" for k in ("llama.cpp", "sluice", "exact", "ours", "other"))]


def inside(argv):
    """Runs in the environment of setup.sh. True: sluice is not farther from the exact result."""
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "bench"))
    import measuring as m
    a = arguments(argv)
    data = os.path.join(m.ROOT, "tests", "golden", "data", "heldout")
    a.texts = [os.path.join(data, t + ".txt") for t in ("drama", "novel", "science", "tales")]
    results = [compare(a, m, kind) for kind in a.types.split(",")]
    print("\n".join(m.table(["type", "rms error: sluice", "llama.cpp", "error of the loss: sluice", "llama.cpp",
                             "farthest token below llama.cpp's best: by llama.cpp", "by sluice", "exactly",
                             "below the exact best: sluice", "llama.cpp"], map(row_of, results))))
    if a.json:
        m.write_json(a.json, results)
    medians = [r["medians"] for r in results]
    return all(x["sluice"][i] <= FARTHER * x["llama.cpp"][i] for x in medians for i in (0, 1))


def arguments(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-o", "--out", required=True, help="where compare_types.py made its models")
    p.add_argument("--types", default="Q4_0,Q5_0,Q4_K_M,Q8_0")
    p.add_argument("--windows", type=int, default=4, help="of 512 tokens, per text")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--json", help="also write the figures to this file")
    return p.parse_args(argv)


if __name__ == "__main__":
    options = arguments(sys.argv[1:])
    python = os.path.join(os.path.abspath(options.peer), "venv", "bin", "python")
    if os.environ.get("SLUICE_EXACT_INSIDE") != "1":
        os.environ["SLUICE_EXACT_INSIDE"] = "1"
        sys.exit(subprocess.run([python, os.path.abspath(__file__), *sys.argv[1:]], check=False).returncode)
    sys.exit(0 if inside(sys.argv[1:]) else 1)
