#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SwapMoE's locality study: the loss of masked routing on the same sentences in three orders.

    tests/bench/locality.py -m MODEL --plan PLAN [--resident-experts 50] [--bytes 22000] [--presets swapmoe,pruned-freq] TEXT...

Every text is one domain. Its first --bytes are split at ends of sentences into units of about --unit bytes.
Orders: domain: one text after the other; mixed: a unit of each text in turn; shuffled: all units in random order
(--seed). Losses are relative to the lossless model on the same order. Markdown on stdout."""
import argparse
import itertools
import random
import re
import sys
import tempfile

import measuring as m


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--plan", required=True)
    p.add_argument("--resident-experts", default="50", help="percent of the experts that are resident")
    p.add_argument("--bytes", type=int, default=22000)
    p.add_argument("--unit", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--presets", default="swapmoe,pruned-freq")
    p.add_argument("texts", nargs="+")
    return p.parse_args()


def units_of(path, size, unit):
    with open(path, encoding="utf-8") as f:
        text = f.read()[:size]
    units, now = [], ""
    for sentence in re.split(r"(?<=[.!?])\s+", text)[:-1]:
        now += sentence + " "
        if len(now) >= unit:
            units.append(now)
            now = ""
    return units


def orders(domains, seed):
    everything = [u for d in domains for u in d]
    shuffled = everything[:]
    random.Random(seed).shuffle(shuffled)
    in_order = [u for row in itertools.zip_longest(*domains) for u in row if u]
    return {"domain": everything, "mixed": in_order, "shuffled": shuffled}


def evaluate(a, preset, path):
    return m.sluice("eval", "-m", a.model, "--text", path, "--offline", "--prefill-chunk", "1",
                    "--plan", a.plan, "--preset", preset,
                    "--resident-experts", a.resident_experts + "%", "--threads", a.threads, "--output", "json")


def main():
    a = arguments()
    presets = a.presets.split(",")
    print("| order | " + " | ".join(f"{s}: loss (95 %) | expert swaps per token" for s in presets) + " | tokens |")
    print("|---|" + "---:|---:|" * len(presets) + "---:|", flush=True)
    for name, units in orders([units_of(t, a.bytes, a.unit) for t in a.texts], a.seed).items():
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
            f.write("\n".join(units))
            f.flush()
            row = [evaluate(a, s, f.name) for s in presets]
        cells = [f"+{100 * r['loss']:.0f} % ({100 * r['loss_low']:.0f} .. {100 * r['loss_high']:.0f}) | "
                 f"{r['swaps'] / (r['windows'] * r['ctx']):.2f}" for r in row]
        print(f"| {name} | " + " | ".join(cells) + f" | {row[0]['tokens']} |", flush=True)
        print(f"locality: {name} done", file=sys.stderr)


if __name__ == "__main__":
    main()
