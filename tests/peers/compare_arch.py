#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares sluice with llama.cpp token by token on GGUF files of any architecture (README.md of this directory).

    tests/peers/compare_arch.py --peer DIR -o WORK [MODEL ...] [--tokens 512] [--window 256] [--mean 0.02] [--json FILE]

MODEL: a GGUF file; the name of a random model of tests/golden/data/arch (dots1_a); or a shape of sluice synth with its
keys, separated by commas (tiny,arch=glm4moe,layers=2), written in F16. Without MODEL: all of tests/golden/data/arch that
have reference values of another package and that llama.cpp opens.

Both get the same random token ids, in windows, and keep keys and values in F16. Differences: of the negative
log-likelihood of each token. Markdown on stdout, progress on stderr. Exit status: 0 the mean of every file is within the
bound, 1 one is not, or llama.cpp does not open a MODEL."""
import argparse
import glob
import json
import os
import random
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "bench"))
import measuring as m  # noqa: E402

ARCH = os.path.join(m.ROOT, "tests", "golden", "data", "arch")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL")
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-o", "--out", required=True, help="for models of shapes; complete ones are used again")
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--window", type=int, default=256, help="tokens that are computed together; scored: all but the first")
    p.add_argument("--seed", type=int, default=1, help="of the token ids")
    p.add_argument("--mean", type=float, default=0.02, help="bound of the mean difference")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--json", help="also write the figures to this file")
    return p.parse_args()


def model_file(a, name):
    """The path of a model, and the name of its row."""
    if os.path.exists(name):
        return name, os.path.basename(name).removesuffix(".gguf")
    path = os.path.join(ARCH, name + ".gguf")
    if os.path.exists(path):
        return path, name
    path = os.path.join(a.out, name.replace(",", "-").replace("=", "") + ".gguf")
    if not os.path.exists(path):
        m.run([m.program("synth"), "-q", "-o", path, *name.split(","), "--type", "F16"])
    return path, name


def sluice_side(a, path, ids):
    """Losses from an engine, in chunks; best tokens from the core in one process, token by token."""
    doc = m.sluice("eval", "-m", path, "--ids", ids, "--ctx-size", a.window, "--threads", a.threads, "--prefill-chunk", 64,
                   "--per-token", "--output", "json")
    text = " ".join(map(str, m.read_json(ids)["ids"]))
    best = m.run([os.path.join(os.path.dirname(m.LIBEXEC), "tests", "peer_best"), path, str(a.window)], input=text)
    best = [int(x) for x in best.split()]
    return doc["nll_per_token"], [b for i, b in enumerate(best) if i % a.window != a.window - 1]


def llama_side(a, path, ids):
    """What llama.py prints, or why llama.cpp does not open the file."""
    done = subprocess.run([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(HERE, "llama.py"), "score", path, ids,
                           str(a.window), str(a.threads)], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        return next((x for x in done.stderr.splitlines() if "error" in x), done.stderr[-300:]).split("error loading model: ")[-1]
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def compare(a, name):
    path, label = model_file(a, name)
    model = m.run_json([m.program("inspect"), path, "--json"])
    draw = random.Random(a.seed)
    ids = os.path.join(a.out, "compare.ids.json")
    m.write_json(ids, {"ids": [draw.randrange(model["hparams"]["vocab"]) for _ in range(a.tokens // a.window * a.window)]})
    ours, best = sluice_side(a, path, ids)
    theirs = llama_side(a, path, ids)
    if isinstance(theirs, str):
        return {"model": label, "architecture": model["arch"], "not_opened": theirs, "good": not a.models}
    gaps = [abs(x - y) for x, y in zip(ours, theirs["nll_per_token"], strict=True)]
    equal = sum(x == y for x, y in zip(theirs["best"], best, strict=True))
    return {"model": label, "architecture": model["arch"], "tokens": len(gaps), "nll": statistics.fmean(ours),
            "spread": statistics.pstdev(ours), "mean": statistics.fmean(gaps), "median": statistics.median(gaps),
            "maximum": max(gaps), "equal_best": equal / len(gaps), "good": statistics.fmean(gaps) <= a.mean}


def line(r):
    if "not_opened" in r:
        return [f"{r['model']} ({r['architecture']})", "", "", "", "", "", "", "", "not opened: " + r["not_opened"]]
    return [f"{r['model']} ({r['architecture']})", r["tokens"], f"{r['nll']:.3f}", f"{r['spread']:.3f}", f"{r['mean']:.5f}",
            f"{r['median']:.5f}", f"{r['maximum']:.5f}", f"{100 * r['equal_best']:.1f} %", "yes" if r["good"] else "NO"]


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    every = sorted(os.path.basename(p).removesuffix(".npy") for p in glob.glob(os.path.join(ARCH, "*.npy")))
    rows = []
    for name in a.models or every:
        rows.append(compare(a, name))
        m.say(name, json.dumps(rows[-1]))
    print("\n".join(m.table(["model", "tokens", "mean loss", "its deviation", "mean difference", "median", "maximum",
                             "same best token", "within the bound"], map(line, rows))))
    if a.json:
        m.write_json(a.json, rows)
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
