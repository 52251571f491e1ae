#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of a conversation that continues after a restart of the engine, with its rows on storage
(--prefix-dir) and without:

    tests/bench/restart.py -m FILE [--words 300] [-n 16] [-r 3] [-- ENGINE-OPTIONS...]

Each repetition asks an engine a question of that many words and waits until its prefix is written; then an engine that
has the directory and one that has none get the same continuation. Prints a table."""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading

import measuring as m
import turns

def stored(stats):
    """Of a line of `sluice stats --json --watch`."""
    compute = next(p for p in json.loads(stats)["processes"] if p["service"] == "compute")
    return compute["counters"]["prefixes_stored"]


def wait_written(engine, seconds=300):
    """Until the counter of compute says so."""
    command = [m.program("stats"), "--name", engine.name, "--json", "--watch", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        limit = threading.Timer(seconds, watch.terminate)
        limit.start()
        written = any(stored(line) > 0 for line in watch.stdout)
        limit.cancel()
        watch.terminate()
    if not written:
        sys.exit(f"no prefix was written within {seconds} s: it is too short to be worth it")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--words", type=int, default=300, help="of the first message")
    p.add_argument("-n", "--tokens", type=int, default=16, help="of an answer")
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("engine", nargs="*", help="options of the engine, after --")
    return p.parse_args()


def repetition(a, seed):
    chosen = random.Random(seed)
    messages = [{"role": "user", "content": " ".join(chosen.choices(turns.WORDS, k=a.words))}]
    with tempfile.TemporaryDirectory() as directory:
        stored = [*a.engine, f"--prefix-dir={directory}"]
        with turns.Engine(a.model, stored) as engine:
            _, text, _, _ = engine.answer(messages, a.tokens)
            wait_written(engine)
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": " ".join(chosen.choices(turns.WORDS, k=10))})
        with turns.Engine(a.model, stored) as engine:
            read_s, text, prompt, cached = engine.answer(messages, a.tokens)
        with turns.Engine(a.model, a.engine) as engine:
            computed_s, same, _, _ = engine.answer(messages, a.tokens)
    if text != same:
        sys.exit("the answers differ")
    return prompt, cached, 1e3 * computed_s, 1e3 * read_s


def main():
    a = arguments()
    results = [repetition(a, i) for i in range(a.repetitions)]
    prompt, cached, computed, read = zip(*results)
    ratios = [r / c for r, c in zip(read, computed)]
    print("\n".join(m.table(("prompt tokens", "of them read", "ms computed", "ms read", "read/computed"), [
        (str(prompt[0]), str(cached[0]), f"{statistics.median(computed):.0f}", f"{statistics.median(read):.0f}",
         f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")])))


if __name__ == "__main__":
    main()
