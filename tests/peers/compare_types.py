#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares sluice with llama.cpp on files of every tensor type (README.md of this directory).

    tests/peers/compare_types.py --peer DIR -o WORK [--types Q4_K_M,Q6_K] [--models demo,wide] [--windows 8] [--json FILE]

Markdown on stdout, progress on stderr. Exit status: 0 all bounds hold, 1 one is exceeded. A type that this build of
sluice cannot compute with is a row without figures."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "bench"))
import measuring as m  # noqa: E402

DATA = os.path.join(m.ROOT, "tests", "golden", "data")
F16 = os.path.join(os.path.dirname(m.LIBEXEC), "tests", "golden", "tiny-books-moe-f16.gguf")
TEXTS = ("drama", "novel", "science", "tales")
# number of the mix in llama.h, and whether it needs an importance matrix
TYPES = {"F16": (1, 0), "BF16": (32, 0), "Q8_0": (7, 0), "Q4_0": (2, 0), "Q4_1": (3, 0), "Q5_0": (8, 0), "Q5_1": (9, 0),
         "Q2_K": (10, 0), "Q3_K_S": (11, 0), "Q3_K_M": (12, 0), "Q3_K_L": (13, 0), "Q4_K_S": (14, 0), "Q4_K_M": (15, 0),
         "Q5_K_S": (16, 0), "Q5_K_M": (17, 0), "Q6_K": (18, 0), "IQ1_S": (24, 1), "IQ1_M": (31, 1), "IQ2_XXS": (19, 1),
         "IQ2_XS": (20, 1), "IQ2_S": (28, 1), "IQ2_M": (29, 1), "IQ3_XXS": (23, 1), "IQ3_XS": (22, 1), "IQ3_S": (26, 0),
         "IQ3_M": (27, 0), "IQ4_NL": (25, 0), "IQ4_XS": (30, 0), "TQ1_0": (36, 0), "TQ2_0": (37, 0), "Q1_0": (40, 0),
         "Q2_0": (41, 0), "MXFP4": (38, 0), "NVFP4": (7, 0)}
# every matrix in this type, which has no mix there: its number in ggml, and no scales per matrix
OVERRIDES = {"NVFP4": 40}
WIDE = ("qwen3-30b-a3b", "layers=2", "experts=16", "vocab=4096")  # rows of 2048, 768 and 4096
PERPLEXITY, MEDIAN, MARGIN = 0.003, 0.02, 0.05
GREEDY_TOKENS = 64


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-o", "--out", required=True, help="for models; complete ones are used again")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--models", default="demo,wide")
    p.add_argument("--pure", action="store_true", help="every matrix of one type, where the quantiser can")
    p.add_argument("--windows", type=int, default=8, help="of 512 tokens, per text (0: all)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--json", help="also write the figures to this file")
    return p.parse_args()


def llama(a, *words):
    return m.run_json([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(HERE, "llama.py"), *map(str, words)])


def model_file(a, model, kind):
    path = os.path.join(a.out, f"{model}-{kind}{'-pure' if a.pure else ''}.gguf")
    if os.path.exists(path):
        return path
    part = path + ".making"
    pure = ["--pure"] if a.pure else []
    if model == "wide":
        m.run([m.program("synth"), "-q", "-o", part, *WIDE, "--type", kind, *pure])
    else:
        number, matrix = TYPES[kind]
        llama(a, "quantise", F16, part, number, matrix, "pure" if a.pure else "", OVERRIDES.get(kind, ""))
    os.replace(part, path)
    return path


def ids_file(a, name, ids):
    path = os.path.join(a.out, name + ".ids.json")
    m.write_json(path, {"ids": ids})
    return path


def eval_argv(a, path, source, windows):
    limit = ["--max-windows", str(windows)] if windows else []
    return [m.program("eval"), "-m", path, *source, "--ctx-size", "512", *limit, "--threads", str(a.threads),
            "--per-token", "--output", "json"]


def evaluate(a, path, source, windows):
    """The JSON of sluice eval, or its one line of rejection."""
    done = subprocess.run(eval_argv(a, path, source, windows), capture_output=True, text=True, check=False)
    if done.returncode == 2 and "cannot compute with" in done.stderr:
        return None, done.stderr.strip().splitlines()[-1]
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr[-2000:]}")
    return json.loads(done.stdout), ""


def sources(a, model):
    if model == "demo":
        return [["--text", os.path.join(DATA, "heldout", t + ".txt")] for t in TEXTS]
    path = os.path.join(a.out, "wide.ids")
    m.write_ids(path, 1, 4096, 512 * max(a.windows, 1))
    with open(path, encoding="ascii") as f:
        return [["--ids", ids_file(a, "wide", [int(x) for x in f.read().split()])]]


def greedy(a, path, ids):
    """Continues the first tokens; the largest distance of a token from llama.cpp's best, and how many are not it."""
    prompt = ids[:16]
    doc = m.sluice("generate", "-m", path, "--ids", ",".join(map(str, prompt)), "-n", GREEDY_TOKENS, "--temperature", 0,
                   "--ignore-eos", "--output", "json", "-q", "--threads", a.threads)
    below = llama(a, "greedy", path, ids_file(a, "greedy", prompt + doc["ids"]), len(prompt), a.threads)["below_best"]
    return max(below), sum(x > 0 for x in below)


def compare(a, model, kind):
    path = model_file(a, model, kind)
    ours, theirs, below, other = [], [], [], 0
    for source in sources(a, model):
        doc, rejection = evaluate(a, path, source, a.windows)
        if doc is None:
            return {"model": model, "type": kind, "rejected": rejection}
        ours += doc["nll_per_token"]
        theirs += llama(a, "score", path, ids_file(a, "score", doc["ids"]), 512, a.threads)["nll_per_token"]
        worst, count = greedy(a, path, doc["ids"])
        below.append(worst)
        other += count
    gaps = [abs(x - y) for x, y in zip(ours, theirs, strict=True)]
    row = {"model": model, "type": kind, "tokens": len(ours), "perplexity": math.exp(statistics.fmean(ours)),
           "perplexity_llama": math.exp(statistics.fmean(theirs)), "median": statistics.median(gaps),
           "mean": statistics.fmean(gaps), "below_best": max(below), "other_tokens": other}
    row["ratio"] = row["perplexity"] / row["perplexity_llama"] - 1
    row["good"] = (row["median"] <= MEDIAN and row["below_best"] < MARGIN
                   and (model != "demo" or abs(row["ratio"]) <= PERPLEXITY))
    return row


def line(r):
    if "rejected" in r:
        return [f"{r['model']} {r['type']}", "", "", "", "", "", "", "not computed"]
    return [f"{r['model']} {r['type']}", r["tokens"], f"{r['perplexity']:.4f}", f"{r['perplexity_llama']:.4f}",
            f"{100 * r['ratio']:+.3f} %", f"{r['median']:.5f}", f"{r['below_best']:.4f}", "yes" if r["good"] else "NO"]


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    rows = []
    for model in a.models.split(","):
        for kind in a.types.split(","):
            if kind not in TYPES:
                sys.exit(f"unknown type {kind}; known: {', '.join(TYPES)}")
            rows.append(compare(a, model, kind))
            m.say(model, kind, rows[-1].get("rejected") or "median %.5f" % rows[-1]["median"])
    print("\n".join(m.table(["file", "tokens", "perplexity", "llama.cpp", "difference", "median per token",
                             "greedy below best", "within bounds"], map(line, rows))))
    if a.json:
        m.write_json(a.json, rows)
    return 0 if all(r.get("good", True) for r in rows) else 1


sys.exit(main())
