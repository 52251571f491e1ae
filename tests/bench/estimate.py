#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the estimates of `sluice doctor` with what `sluice bench` measures:

    tests/bench/estimate.py MODEL... [--shares 100,50,25] [-p 512 -n 128 -r 2] [--rounds 2]

Each round runs doctor, then bench; the table has the medians over rounds, and estimate/measured. Exit status 1 if a
ratio is outside 0.8 to 1.25. Markdown on stdout, progress on stderr."""
import argparse
import os
import statistics
import sys
import time

import measuring as m

LOW, HIGH = 0.8, 1.25


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("models", nargs="+")
    p.add_argument("--shares", default="100,50,25", help="percent of the experts: 100, 50 or 25")
    p.add_argument("-p", "--prompt", type=int, default=512)
    p.add_argument("-n", "--tokens", type=int, default=128)
    p.add_argument("-r", "--repetitions", type=int, default=2)
    p.add_argument("--rounds", type=int, default=2)
    return p.parse_args()


def one_round(a, model):
    """[(share, estimate, measured)] of decode, then of prefill; and GiB/s that memory streams."""
    doc = m.sluice("doctor", "-m", model, "--json")
    shares = [float(x) for x in a.shares.split(",")]
    bench = m.sluice("bench", "-m", model, "-p", a.prompt, "-n", a.tokens, "-r", a.repetitions, "--resident-experts",
                     a.shares, "-o", "json")
    rows = {}
    for i, share in enumerate(shares):
        estimate = next(e for e in doc["model"]["estimates"] if abs(100 * e["share"] - share) < 0.5)
        for name, key in (("tg", "decode_tps"), ("pp", "prefill_tps")):
            rows[share, name] = estimate[key], m.variant_test(bench, i, name)["tps_median"]
    m.say(os.path.basename(model), {f"{s:g} {n}": f"{e / b:.2f}" for (s, n), (e, b) in rows.items()})
    return rows, doc["memory"]["read_all_threads"] / 2**30, doc["cpu"]["model"]


def main():
    a = arguments()
    out, bad, streams, cpu = [], False, [], ""
    for model in a.models:
        rounds = []
        for _ in range(a.rounds):
            rows, stream, cpu = one_round(a, model)
            rounds.append(rows)
            streams.append(stream)
        for share, name in sorted(rounds[0], key=lambda x: (x[1] == "pp", -x[0])):
            estimate, measured = (statistics.median(r[share, name][i] for r in rounds) for i in range(2))
            bad = bad or not LOW <= estimate / measured <= HIGH
            out.append((f"{os.path.basename(model)}, {'decode' if name == 'tg' else 'prefill'}", f"{share:g} %",
                        f"{estimate:.1f}", f"{measured:.1f}", f"{estimate / measured:.2f}"))
    print(f"{cpu}, {os.cpu_count()} CPUs, memory streams {min(streams):.1f} to {max(streams):.1f} GiB/s; "
          f"{time.strftime('%Y-%m-%d')}\n")
    print("\n".join(m.table(["model", "experts resident", "estimate, tokens/s", "measured", "estimate/measured"], out)))
    return 1 if bad else 0


sys.exit(main())
