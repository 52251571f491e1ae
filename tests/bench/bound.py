#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures lossless decode relative to its bound, on an unthrottled device:

    tests/bench/bound.sh -m MODEL [--shares 50,25] [-n 64 -r 5] [--presets default] [--python VENV/bin/python]

The lower bound of the time per token is max(t_compute, b / device):
  t_compute  resident decode of sluice, or of llama.cpp if faster (package llama-cpp-python of the Python given by
             --python, mapped and repacked): same file, tokens and threads
  b          bytes that the preset itself reads per token, demands and prefetches. Every repetition has other tokens
             (its number is the seed), and so another b and another bound
  device     read bandwidth by `sluice doctor` on the model file: the mean of measurements before and after each
             repetition, because it changes from minute to minute
Reports the fraction of the bound reached: the median over repetitions, with a 95 % bootstrap interval. Markdown on
stdout, progress on stderr."""
import argparse
import os
import statistics
import tempfile
import time

import measuring as m

RESIDENT_WARMUP = 320  # tokens: until nearly every page has been touched


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--python", help="a Python with llama_cpp; without it t_compute is that of sluice")
    p.add_argument("--shares", default="50,25", help="percent of the experts' bytes")
    p.add_argument("--presets", default="default", help="lossless presets; the fastest one is reported")
    p.add_argument("-n", "--tokens", type=int, default=64)
    p.add_argument("-r", "--repetitions", type=int, default=5)
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--doctor-seconds", type=int, default=3, help="duration of each measurement of the device")
    p.add_argument("engine", nargs="*", help="after --: more options of the engine")
    return p.parse_args()


def device_rate(a, model):
    expert = min(16 << 20, max(4096, model["one_expert"]))
    doc = m.sluice("doctor", "--path", a.model, "--expert-bytes", expert, "--seconds",
                   a.doctor_seconds, "-o", "json")
    return doc["device"]["bytes_per_s"]


def bench(a, *more, warmup=0):
    return m.sluice("bench", "-m", a.model, "-p", 0, "-n", a.tokens, "--threads", a.threads,
                    "--warmup", max(warmup, a.warmup), "-o", "json", *more, *a.engine)


def llama_resident(a, model, scratch):
    """llama.cpp with everything in memory, tokens per second, the faster of both forms; None without it."""
    if not a.python:
        return None
    ids = os.path.join(scratch, "ids")
    here = os.path.dirname(os.path.abspath(__file__))
    m.write_ids(ids, 1, model["vocab"], 3 * (a.tokens + 2))
    rates = {}
    for form in ("mapped", "repacked"):
        rates[form] = m.run_json([a.python, os.path.join(here, "llama_variant.py"), a.model, ids, "0",
                                  str(a.tokens), str(a.threads), form])["decode_tps"]
        m.say(f"llama.cpp resident, {form}: {rates[form]:.2f} tokens/s")
    return max(rates.values())


def resident(a, model, scratch):
    """Decode with everything in memory, tokens per second: sluice, and llama.cpp (None without it)."""
    budget = int(model["resident_budget"] * 1.02) + (8 << 20)
    own = m.variant_test(bench(a, "-r", a.repetitions, "--resident-experts", 100, "--budget", budget,
                           warmup=RESIDENT_WARMUP // a.tokens), 0)["tps_median"]
    m.say(f"sluice resident: {own:.2f} tokens/s")
    other = llama_resident(a, model, scratch)
    return {"sluice": own, "llama.cpp": other, "compute_s": 1 / max(own, other or 0)}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def seeds(a):
    return range(1, 1 + a.repetitions)


def repeat(a, model, share, preset):
    """[(test of one repetition, bytes per second of the device around it)]."""
    rates, tests = [device_rate(a, model)], []
    for seed in seeds(a):
        doc = bench(a, "-r", 1, "--seed", seed, "--resident-experts", share, "--preset", preset)
        rates.append(device_rate(a, model))
        tests.append(m.variant_test(doc, 0))
        m.say(f"{share:g} %: {tests[-1]['tps_median']:.2f} tokens/s, device {rates[-2] / 1e6:.0f} and "
              f"{rates[-1] / 1e6:.0f} MB/s")
    return [(test, mean(rates[i:i + 2])) for i, test in enumerate(tests)]


def busy(tests):
    """Milliseconds per token with a read in flight, and bytes per second during that time."""
    tokens = sum(s["tokens"] for t in tests for s in t["samples"])
    ns, read = (sum(m.counter(t, "loader." + name) for t in tests) for name in ("busy_ns", "bytes_read"))
    return ns / 1e6 / tokens, 1e9 * read / ns if ns else 0


def reached_of(done, bounds):
    """The fraction of its bound that each repetition reached, as median, low and high; done: from repeat."""
    return m.median_ratio([test["tps_median"] * bound for (test, _), bound in zip(done, bounds)],
                          [1] * len(done))


def share_figures(a, model, share, compute_s):
    best = None
    for preset in a.presets.split(","):
        done = repeat(a, model, share, preset)
        read = [t["bytes_read_per_token"] for t, _ in done]
        bounds = [max(compute_s, b / device) for b, (_, device) in zip(read, done)]
        tps = statistics.median(t["tps_median"] for t, _ in done)
        if not best or tps > best["tps"]:
            busy_ms, busy_rate = busy([t for t, _ in done])
            middle, low, high = reached_of(done, bounds)
            best = {"share": share, "preset": preset, "bound_tps": 1 / statistics.median(bounds), "tps": tps,
                    "reached": middle, "reached_low": low, "reached_high": high, "compute_s": compute_s,
                    "device_s": statistics.median(b / device for b, (_, device) in zip(read, done)),
                    "read_bytes": mean(read), "read_each": read,
                    "device_bytes_s": statistics.median(d for _, d in done),
                    "busy_ms": busy_ms, "busy_bytes_s": busy_rate, "devices": [d for _, d in done],
                    "compute_ms": mean(t["compute_ms_per_token"] for t, _ in done),
                    "stall_ms": mean(t["stall_ms_per_token"] for t, _ in done),
                    "hit": mean(t["hit_percent"] for t, _ in done)}
    return best


HEADS = ("experts", "preset", "bound t/s", "decode t/s", "reached", "t_compute ms", "b / device ms", "b MiB",
         "device MB/s", "compute ms", "stall ms", "reading ms", "MB/s then", "hit %")


def row_of(f):
    return (f"{f['share']:g} %", f["preset"], f"{f['bound_tps']:.2f}", f"{f['tps']:.2f}",
            f"{f['reached']:.3f} ({f['reached_low']:.3f} to {f['reached_high']:.3f})",
            f"{1e3 * f['compute_s']:.1f}", f"{1e3 * f['device_s']:.1f}", f"{f['read_bytes'] / 2**20:.1f}",
            f"{f['device_bytes_s'] / 1e6:.0f}", f"{f['compute_ms']:.1f}", f"{f['stall_ms']:.1f}",
            f"{f['busy_ms']:.1f}", f"{f['busy_bytes_s'] / 1e6:.0f}", f"{f['hit']:.1f}")


def main():
    a = arguments()
    a.model = os.path.abspath(a.model)
    model = m.model_of(a.model)
    with tempfile.TemporaryDirectory(prefix="sluice-bound.") as scratch:
        full = resident(a, model, scratch)
        other = full["llama.cpp"]
        print(f"{model['name']}, {model['expert_bytes'] / 2**30:.2f} GiB of experts; {a.threads} threads, "
              f"{a.tokens} decoded tokens, {a.repetitions} repetitions, {time.strftime('%Y-%m-%d %H:%M')}; "
              f"resident decode: sluice {full['sluice']:.2f} tokens/s, llama.cpp "
              f"{f'{other:.2f}' if other else 'not measured'}\n")
        rows = [row_of(share_figures(a, model, share, full["compute_s"]))
                for share in map(float, a.shares.split(","))]
        print("\n".join(m.table(HEADS, rows)))


if __name__ == "__main__":
    main()
