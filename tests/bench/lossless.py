#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lossless presets side by side: tokens/s and MB read per token, or their model by `sluice sim`.

    tests/bench/lossless.py -d DIR [--rounds 3] [-n 128] [--throttle 0,200MB] [--shares 12.5,25,50,75] [MODEL...]
    tests/bench/lossless.py --sim [--read-bandwidth 200MB/s,1GB/s] [--shares ...] TRACE...

Without MODEL: the demo model and two shapes that `sluice synth` writes to DIR (3 GiB): GLM-4.7-Flash's with skewed
routing, 13 layers, and OLMoE's with nearly uniform routing, 8 layers, both Q4_0. The presets of one share and one limit of the bandwidth
alternate, each in an engine of its own; a throttle of 0 is the machine's storage device. Run it on a quiet machine. A trace
needs predictions (`sluice generate --deterministic on --trace`), else nothing is prefetched. Markdown on stdout."""
import argparse
import os
import statistics
import sys

import measuring as m

DEMO = os.path.join(m.ROOT, "launch", "demo", "tiny-books-moe-q8_0.gguf")
SHAPES = {"glm": ["glm-4.7-flash", "layers=13", "skew=1", "locality=0.8"], "olmoe": ["olmoe-1b-7b", "layers=8"]}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--sim", action="store_true", help="model traces instead of measuring models")
    p.add_argument("-d", "--directory", help="where the models of shapes are written, and kept")
    p.add_argument("--presets", default="default,lod,auto")
    p.add_argument("--shares", default="12.5,25,50,75", help="percent of the experts that are resident")
    p.add_argument("--throttle", default="0,200MB", help="of the device; 0: none")
    p.add_argument("--read-bandwidth", default="200MB/s,1GB/s", help="of the device, with --sim")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("-n", "--tokens", type=int, default=128)
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    if a.sim and not a.files:
        p.error("--sim needs traces")
    if not a.sim and not a.files and not a.directory:
        p.error("-d DIR or a model is needed")
    return a


def models(a):
    if a.files:
        return a.files
    os.makedirs(a.directory, exist_ok=True)
    paths = [DEMO]
    for name, shape in SHAPES.items():
        path = os.path.join(a.directory, name + "-q4_0.gguf")
        if not os.path.exists(path):
            m.say("writing", path)
            m.run([m.program("synth"), "-q", "-o", path + ".part", *shape, "--type", "Q4_0"])
            os.replace(path + ".part", path)
        paths.append(path)
    return paths


def megabytes_per_token(test, tokens):
    return m.counter(test, "loader.bytes_read") / 1e6 / tokens / len(test["samples"])


def cells_of_model(a, path, share, throttle):
    """A cell per preset: the rate of each round, and the bytes of a token."""
    doc = m.sluice("bench", "-m", path, "-p", 0, "-n", a.tokens, "-r", a.rounds, "--resident-experts", share,
                   "--throttle", throttle, "--preset", a.presets, "-o", "json", timeout=36000)
    cells = []
    for i, _ in enumerate(a.presets.split(",")):
        test = m.variant_test(doc, i)
        rates = sorted(m.rates(test))
        cells.append(f"{statistics.median(rates):.2f} ({rates[0]:.2f} to {rates[-1]:.2f}), "
                     f"{megabytes_per_token(test, a.tokens):.2f}")
    return cells


def measured(a):
    rows = []
    for path in models(a):
        for throttle in a.throttle.split(","):
            for share in a.shares.split(","):
                m.say(os.path.basename(path), throttle, share)
                cells = cells_of_model(a, path, share, throttle)
                rows.append([os.path.basename(path), throttle if throttle != "0" else "none", share + " %", *cells])
    return ["tokens/s (range of rounds), MB per token"], ["model", "throttle", "resident"], rows


def cells_of_trace(a, path, share, bandwidth):
    doc = m.sluice("sim", path, "--presets", a.presets, "--budgets", share + "%", "--read-bandwidth", bandwidth,
                   "--output", "json")
    return [f"{r['token_ms']:.1f}, {r['mib_per_token'] * 2**20 / 1e6:.1f}" for r in doc["results"]]


def modelled(a):
    rows = []
    for path in a.files:
        for bandwidth in a.read_bandwidth.split(","):
            for share in a.shares.split(","):
                cells = cells_of_trace(a, path, share, bandwidth)
                rows.append([os.path.basename(path), bandwidth, share + " %", *cells])
    return ["ms per token, MB per token"], ["trace", "bandwidth", "resident"], rows


def main():
    a = arguments()
    what, heads, rows = modelled(a) if a.sim else measured(a)
    print("\n".join([*what, "", *m.table([*heads, *a.presets.split(",")], rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
