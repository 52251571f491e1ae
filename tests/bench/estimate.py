#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the estimates of `sluice doctor` with what `sluice bench` measures:

    tests/bench/estimate.py MODEL... [--shares 100,50,25] [-p 512 -n 128 -r 2] [--rounds 2] [--warmup-tokens N] [--budgets]

Each round runs doctor, then bench; the table has the medians over rounds, and estimate/measured. A second one has what a decoded
token consists of: bytes read, computing (also beside reads) and waiting. --budgets: also an engine with the minimum and with the
recommended budget, each in a memory cgroup of that size, and one with 2 % less than the minimum, which must not start. Exit
status 1 if a ratio is outside 0.8 to 1.25, or a budget does not hold. Markdown on stdout, progress on stderr."""
import argparse
import os
import statistics
import subprocess
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
    p.add_argument("--warmup-tokens", type=int, default=0, help="0: as bench")
    p.add_argument("--budgets", action="store_true")
    return p.parse_args()


def one_round(a, model):
    """[(share, estimate, measured)] of decode, then of prefill; and GiB/s that memory streams."""
    doc = m.sluice("doctor", "-m", model, "--json")
    shares = [float(x) for x in a.shares.split(",")]
    bench = m.sluice("bench", "-m", model, "-p", a.prompt, "-n", a.tokens, "-r", a.repetitions, "--resident-experts",
                     a.shares, *(["--warmup-tokens", a.warmup_tokens] if a.warmup_tokens else []), "-o", "json")
    rows = {}
    for i, share in enumerate(shares):
        estimate = next(e for e in doc["model"]["estimates"] if abs(100 * e["share"] - share) < 0.5)
        for name, key in (("tg", "decode_tps"), ("pp", "prefill_tps")):
            rows[share, name] = estimate[key], m.variant_test(bench, i, name)["tps_median"]
        test = m.variant_test(bench, i, "tg")
        rows[share, "parts"] = [(estimate["read_bytes"] / 2**20, test["bytes_read_per_token"] / 2**20),
                                (1e3 * (estimate["compute_s"] + estimate["load_s"]), test["compute_ms_per_token"]),
                                (1e3 * estimate["stall_s"], test["stall_ms_per_token"])]
        rows[share, "slowdown"] = doc["model"]["measured"]["slowdown"]
    m.say(os.path.basename(model), {f"{s:g} {n}": f"{x[0] / x[1]:.2f}" for (s, n), x in rows.items() if n in ("tg", "pp")})
    if a.budgets:
        least = doc["model"]["min_budget"]
        a.held += [held(model, least, "minimum"), held(model, doc["model"]["budget"], "recommended"), too_small(model, least)]
    return rows, doc["memory"]["read_all_threads"] / 2**30, doc["cpu"]["model"]


def held(model, budget, name):
    """(model, what, budget, peak of a cgroup of that size, whether it holds): an engine that decodes with it."""
    group = m.Cgroup(f"sluice-estimate-{os.getpid()}", budget)
    try:
        m.sluice("bench", "-m", model, "-p", 0, "-n", 8, "-r", 1, "--budget", budget, "-o", "json", preexec_fn=group.enter)
        peak, good = group.peak(), group.oom_kills() == 0
    finally:
        group.remove()
    return os.path.basename(model), name, f"{budget / 2**20:.0f}", f"{peak / 2**20:.0f}", good and peak <= budget


def too_small(model, minimum):
    budget = minimum * 98 // 100
    done = subprocess.run([m.program("generate"), "-m", model, "--ids", "1", "-n", "1", "--budget", str(budget), "-q"],
                          capture_output=True, text=True, check=False, timeout=600)
    return os.path.basename(model), "98 % of the minimum is refused", f"{budget / 2**20:.0f}", "", done.returncode != 0


def parts_of(model, rounds):
    """Rows of the second table: medians, "estimate, measured"."""
    out = []
    for share in sorted({s for s, name in rounds[0] if name == "parts"}, reverse=True):
        medians = [[statistics.median(r[share, "parts"][i][k] for r in rounds) for k in range(2)] for i in range(3)]
        slower = statistics.median(r[share, "slowdown"] for r in rounds)
        out.append((model, f"{share:g} %", *(f"{e:.1f}, {x:.1f}" for e, x in medians), f"{slower:.2f}"))
    return out


def main():
    a = arguments()
    a.held = []
    out, parts, bad, streams, cpu = [], [], False, [], ""
    for model in a.models:
        rounds = []
        for _ in range(a.rounds):
            rows, stream, cpu = one_round(a, model)
            rounds.append(rows)
            streams.append(stream)
        parts += parts_of(os.path.basename(model), rounds)
        for share, name in sorted((x for x in rounds[0] if x[1] in ("tg", "pp")), key=lambda x: (x[1] == "pp", -x[0])):
            estimate, measured = (statistics.median(r[share, name][i] for r in rounds) for i in range(2))
            bad = bad or not LOW <= estimate / measured <= HIGH
            out.append((f"{os.path.basename(model)}, {'decode' if name == 'tg' else 'prefill'}", f"{share:g} %",
                        f"{estimate:.1f}", f"{measured:.1f}", f"{estimate / measured:.2f}"))
    print(f"{cpu}, {os.cpu_count()} CPUs, memory streams {min(streams):.1f} to {max(streams):.1f} GiB/s; "
          f"{time.strftime('%Y-%m-%d')}\n")
    print("\n".join(m.table(["model", "experts resident", "estimate, tokens/s", "measured", "estimate/measured"], out)))
    print("\n" + "\n".join(m.table(["model", "experts resident", "MiB read", "ms computing", "ms waiting", "slower beside reads"],
                                  parts)))
    if a.held:
        print("\n" + "\n".join(m.table(["model", "budget", "MiB", "peak MiB", "holds"],
                                      [(*row[:-1], "yes" if row[-1] else "NO") for row in a.held])))
    return 1 if bad or not all(row[-1] for row in a.held) else 0


sys.exit(main())
