#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes read per token and loss of each lossy lever, alone and together, by resident share and by
what `sluice plan --max-loss P` grants. Everything is counted with a simulated cache, so it does not
depend on the machine. An interrupted run continues. A cell has MiB per token; loss of perplexity
(95 % interval); mean KL divergence; share of the same best tokens; with --cloze also the items that
are right, in points over the lossless model (95 % interval), and the share of the same answers.

    levers.py -m MODEL --profile PROFILE --calib TEXT --text HELD_OUT... -o DIR
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

# preset that is planned, preset that is evaluated; without a plan: lossless
ROWS = [(None, "auto-noprefetch"),
        ("edgemoe", "auto-mixed-noprefetch"),
        ("mixed-two", "mixed-two"),
        ("resident-first", "auto-resident-first-noprefetch"),
        ("mixed-two-resident-first", "mixed-two-resident-first")]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--profile", required=True)
    p.add_argument("--calib", required=True)
    p.add_argument("--text", action="append", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--programs", default="build/libexec")
    p.add_argument("--losses", default="0.5,1,2,5", help="P in %%")
    p.add_argument("--shares", default="12.5,25,50", help="resident, in %%")
    p.add_argument("--tokens", default="16384", help="of plan")
    p.add_argument("--bytes", type=int, default=7000, help="of each text, of eval: 3 or 4 windows of 512 tokens")
    p.add_argument("--cloze", help="items of a cloze task from the whole texts")
    p.add_argument("--plans", default=",".join(r[0] for r in ROWS if r[0]), help="which to make")
    return p.parse_args()


def run(a, name, options, log):
    """stdout, or None if no plan keeps the loss."""
    with open(log, "a", encoding="utf-8") as errors:
        r = subprocess.run([os.path.join(a.programs, "sluice-" + name)] + options,
                           stdout=subprocess.PIPE, stderr=errors, check=False)
    if r.returncode == 4:
        return None
    if r.returncode != 0:
        sys.exit(f"{name} failed with {r.returncode}: see {log}")
    return r.stdout.decode()


def plan(a, loss, preset):
    """Extends the plan of this loss; a mark says that it was tried. All are made under one name,
    so that each knows what the others measured."""
    path, made = os.path.join(a.out, f"{loss}.plan"), os.path.join(a.out, "made.plan")
    done = f"{path}.{preset}"
    if not os.path.exists(done):
        options = ["-m", a.model, "--profile", path if os.path.exists(path) else a.profile,
                   "--text", a.calib, "--tokens", a.tokens, "--dense", "native", "--max-loss",
                   f"{loss}%", "--preset", preset, "-o", made, "--output", "json"]
        out = run(a, "plan", options, path + ".log")
        if out:
            shutil.copy(made, path)
        with open(done, "w", encoding="utf-8") as f:
            f.write(out or "null")
    with open(done, encoding="utf-8") as f:
        return path if json.load(f) is not None else None


def evaluate(a, path, preset, share, name):
    out = os.path.join(a.out, f"{name}.{preset}.{share}.json")
    if not os.path.exists(out):
        options = ["-m", a.model, "--kld", "--read-bandwidth", "500MB/s", "--resident-experts",
                   share + "%", "--preset", preset, "--output", "json"]
        options += ["--plan", path] if path else []
        result = json.loads(run(a, "eval", options + ["--ctx-size", "512"] + cut(a), out + ".log"))
        if a.cloze:
            whole = [x for text in a.text for x in ("--text", text)]
            items = json.loads(run(a, "eval", options + ["--cloze", a.cloze] + whole, out + ".log"))
            result.update({k: v for k, v in items.items() if k.startswith("cloze_")})
        with open(out, "w", encoding="utf-8") as f:
            json.dump(result, f)
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def cut(a):
    """Options that name the first bytes of all texts, whatever their number of tokens is."""
    options = []
    for text in a.text:
        path = os.path.join(a.out, f"{a.bytes}-{os.path.basename(text)}")
        with open(text, "rb") as f, open(path, "wb") as g:
            g.write(f.read(a.bytes).decode("utf-8", "ignore").encode())
        options += ["--text", path]
    return options


def cell(e):
    text = (f"{e['bytes_per_token'] / (1 << 20):.2f}; {100 * e['loss']:.2f} % "
            f"({100 * e['loss_low']:.2f} .. {100 * e['loss_high']:.2f}); {e['kld_mean']:.4f}; "
            f"{100 * e['top1_same']:.1f} %")
    if e.get("cloze_same") is not None:
        text += (f"; {100 * (e['cloze_right'] - e['cloze_right_lossless']):+.1f} "
                 f"({100 * e['cloze_low']:.1f} .. {100 * e['cloze_high']:.1f}); {100 * e['cloze_same']:.1f} %")
    return text


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    shares = a.shares.split(",")
    print("| P, preset | " + " | ".join(f"{s} %" for s in shares) + " |")
    print("|---|" + "---|" * len(shares))
    for loss in [None] + a.losses.split(","):
        for planned, preset in ROWS:
            if (loss is None) != (planned is None) or planned and planned not in a.plans.split(","):
                continue
            path = plan(a, loss, planned) if planned else None
            name = f"{loss} %, `{preset}`" if loss else f"lossless, `{preset}`"
            cells = ["not planned"] * len(shares)
            if path or not planned:
                cells = [cell(evaluate(a, path, preset, s, loss or "none")) for s in shares]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
