#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how a cold cache in front of a server fills (--device-cache), against time:

    tests/bench/cache_fill.py [-m FILE] [--rate 64M] [--cache DIR:SIZE] [--seconds 60] [--step 5] [-o DIR]
                              [-- ENGINE-OPTIONS...]
    tests/bench/cache_fill.py --plot cache_fill.json

nbdkit serves the model with its filter `rate` (--rate: bits per second). A client generates text after text through the
gateway, the same for each variant: the server alone, the server with a cold cache, and the local file. Every step
prints tokens/s of decode, MB of the device without its cache, hits of the cache, and how full it is; all rows are in
DIR/cache_fill.json. At the end, a plot in text shows tokens/s against time (--plot: only that, of the rows of a file).
docs/lab/servers.md has what was measured."""
import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import measuring as m
from turns import WORDS, Engine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLOT_LEVELS = 8
PLOT_COLUMNS = 72
DEMO = os.path.join(ROOT, "launch/demo/tiny-books-moe-q8_0.gguf")


def counters(name):
    text = subprocess.run([m.program("stats"), "--name", name, "--json"], check=True, capture_output=True, text=True)
    sums = {}
    for row in json.loads(text.stdout)["processes"]:
        for key, value in row.get("counters", {}).items():
            key = f"{row['service']}.{key}"
            sums[key] = sums.get(key, 0) + value
    return sums


def generate(port, stop, tokens):
    """Texts one after the other, always in the same order; each from another beginning."""
    order = random.Random(1)
    while not stop.is_set():
        prompt = " ".join(order.choice(WORDS) for _ in range(20))
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0})
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        link.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        link.getresponse().read()
        link.close()


def row_of(now, before, at, seconds):
    def grown(key):
        return now.get(key, 0) - before.get(key, 0)

    cached = grown("loader.cache_bytes_read")
    return {"s": round(at, 1), "tokens_per_s": round(grown("compute.tokens_decode") / seconds, 2),
            "device_mb": round((grown("loader.bytes_read") - cached) / 1e6, 2), "hits": grown("loader.cache_hits"),
            "written_mb": round(grown("loader.cache_bytes_written") / 1e6, 2),
            "used": now.get("loader.cache_used", 0), "slots": now.get("loader.cache_slots", 0)}


def run(variant, options, args):
    rows, stop = [], threading.Event()
    with Engine(args.model, options + args.engine) as engine:
        client = threading.Thread(target=generate, args=(engine.port, stop, args.tokens))
        before, start, last = counters(engine.name), time.monotonic(), time.monotonic()
        client.start()
        while time.monotonic() - start < args.seconds:
            time.sleep(args.step)
            now, at = counters(engine.name), time.monotonic()
            rows.append(row_of(now, before, at - start, at - last))
            print(f"{variant:12} {rows[-1]}", flush=True)
            before, last = now, at
        stop.set()
        client.join()
    return rows


def plot(result):
    """Tokens/s against time, a letter per variant; `*` where several are in one place. At most 12 lines."""
    marks = {name: name[0] for name in result}
    rows = [(name, row["s"], row["tokens_per_s"]) for name in result for row in result[name]]
    if not rows:
        return ""
    end, top = max(at for _, at, _ in rows), max(1, max(rate for _, _, rate in rows))
    grid = [[" "] * PLOT_COLUMNS for _ in range(PLOT_LEVELS)]
    for name, at, rate in rows:
        x = round(at / end * (PLOT_COLUMNS - 1))
        y = min(PLOT_LEVELS - 1, int(rate / top * PLOT_LEVELS))
        grid[y][x] = marks[name] if grid[y][x] in (" ", marks[name]) else "*"
    key = ", ".join(f"{mark}: {name}" for name, mark in marks.items())
    lines = [f"tokens/s ({key}; *: several)"]
    for y in reversed(range(PLOT_LEVELS)):
        lines.append(f"{top * y / PLOT_LEVELS:6.3g} |{''.join(grid[y])}".rstrip())
    lines.append("       +" + "-" * PLOT_COLUMNS)
    lines.append("        0 s" + f"{end:.3g} s".rjust(PLOT_COLUMNS - 3))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default=DEMO)
    parser.add_argument("--rate", default="64M")
    parser.add_argument("--cache", help="DIR:SIZE; default: 1GiB in a new directory here")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--step", type=float, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("-o", "--output", default=".")
    parser.add_argument("--plot", metavar="FILE", help="draw the rows of an earlier run, and measure nothing")
    parser.add_argument("engine", nargs="*")
    args = parser.parse_args()
    if args.plot:
        print(plot(m.read_json(args.plot)))
        return
    if not shutil.which("nbdkit"):
        sys.exit("there is no nbdkit")
    with tempfile.TemporaryDirectory(dir=".") as scratch, tempfile.TemporaryDirectory() as place:
        server = os.path.join(place, "nbd")
        kit = subprocess.Popen(["nbdkit", "-f", "-U", server, "--filter=rate", "file", f"file={args.model}",
                                f"rate={args.rate}"])
        m.wait_for_socket(server, kit)
        device = f"--devices=nbd+unix:///?socket={server}"
        cache = args.cache or f"{os.path.abspath(scratch)}:1GiB"
        variants = {"server": [device], "cold cache": [device, f"--device-cache={cache}"],
                    "full cache": [device, f"--device-cache={cache}"], "local file": []}
        result = {name: run(name, options, args) for name, options in variants.items()}
        kit.terminate()
    m.write_json(os.path.join(args.output, "cache_fill.json"), result)
    print(plot(result))


if __name__ == "__main__":
    main()
