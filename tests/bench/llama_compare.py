#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares sluice and llama.cpp on one file, in memory cgroups of the same size:

    tests/bench/llama_compare.py -m MODEL [--python VENV/bin/python] [--shares 50,25 | --limits 4GiB,8GiB]
                                 [-p 16 -n 16 -r 3] [--llama-tokens 4] [--lazy]

llama.cpp is the package llama-cpp-python of the Python given (default: this one), with the file mapped. It runs
without repacking, which copies the model to private memory and would exceed the limit.
Both variants get the same tokens, threads and limit: the budget of sluice with that share of the experts
resident, or one of --limits. --lazy: llama.cpp in that mode, too (llama_variant.py). The file is dropped from the page cache before each run; variants alternate. Markdown on stdout, progress on
stderr."""
import argparse
import os
import re
import statistics
import sys
import tempfile
import time

import measuring as m


def limits(text):
    """Pairs of a label and the bytes of the cgroup."""
    if not all(re.fullmatch(r"[0-9]+(\.[0-9]+)?GiB", part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text}: sizes in GiB expected, as in 4GiB,8GiB")
    return [(part, int(float(part.removesuffix("GiB")) * 2**30)) for part in text.split(",")]


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--python", default=sys.executable, help="a Python with llama_cpp")
    size = p.add_mutually_exclusive_group()
    size.add_argument("--shares", default="50,25", help="percent of the experts' bytes")
    size.add_argument("--limits", type=limits, help="sizes of the cgroup instead of --shares, in GiB: 4GiB,8GiB")
    p.add_argument("-p", "--prompt", type=int, default=16)
    p.add_argument("-n", "--tokens", type=int, default=16)
    p.add_argument("--llama-tokens", type=int, help="decoded tokens of llama.cpp (default: as -n)")
    p.add_argument("--lazy", action="store_true", help="llama.cpp's lazy mode, too")
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--slack", type=float, default=3,
                   help="percent by which sluice's budget is below the limit: for memory that the kernel "
                        "and the client charge to the group")
    p.add_argument("engine", nargs="*", help="after --: more options of the engine")
    return p.parse_args()


def run_sluice(a, ids, limit, group):
    budget = int(limit * (1 - a.slack / 100))
    doc = m.sluice("bench", "-m", a.model, "-p", a.prompt, "-n", a.tokens, "-r", 1, "--ids", ids,
                   "--budget", budget, "--threads", a.threads, "-o", "json", *a.engine,
                   preexec_fn=group.enter)
    tests = {t["test"][:2]: t for t in doc["variants"][0]["tests"]}
    decode = tests["tg"]
    return {"decode_tps": decode["tps_mean"], "bytes_read_per_token": decode["bytes_read_per_token"],
            "prefill_tps": tests["pp"]["tps_mean"] if "pp" in tests else 0,
            "hit": decode["hit_percent"]}


def run_llama(a, ids, _limit, group, mode="mapped"):
    here = os.path.dirname(os.path.abspath(__file__))
    result = m.run_json([a.python, os.path.join(here, "llama_variant.py"), a.model, ids, str(a.prompt),
                         str(a.llama_tokens or a.tokens), str(a.threads), mode], preexec_fn=group.enter)
    result["hit"] = None
    return result


def run_lazy(*args):
    return run_llama(*args, mode="lazy")


VARIANTS = {"sluice": run_sluice, "llama.cpp": run_llama, "llama.cpp, lazy": run_lazy}


def measure(a, ids, limit, variant):
    m.drop_cache(a.model)
    group = m.Cgroup(f"sluice-compare-{os.getpid()}", limit)
    try:
        result = VARIANTS[variant](a, ids, limit, group)
        # For the whole run, including programs, warm-up and prompt.
        result["group_majflt"] = group.stat("pgmajfault")
        result["group_peak"] = group.peak()
    finally:
        group.remove()
    return result


def limits_of(a, model):
    """Pairs of a label and the bytes of the cgroup."""
    if a.limits:
        return a.limits
    return [(f"{share:g} %", m.budget_for(model, share)) for share in map(float, a.shares.split(","))]


def limit_figures(a, model, label, limit, scratch):
    """Samples of both variants, alternating, their medians, and the ratio of decode."""
    results = {variant: [] for variant in VARIANTS if a.lazy or variant != "llama.cpp, lazy"}
    for repetition in range(a.repetitions):
        ids = os.path.join(scratch, f"ids-{limit}-{repetition}")
        need = (a.prompt + 1 if a.prompt else 0) + a.tokens + 2
        m.write_ids(ids, repetition + 1, model["vocab"], 3 * need)
        order = list(results) if repetition % 2 == 0 else list(reversed(results))
        for variant in order:
            results[variant].append(measure(a, ids, limit, variant))
            m.say(f"{label}, repetition {repetition + 1} of {a.repetitions}: {variant} "
                  f"{results[variant][-1]['decode_tps']:.3f} tokens/s")
    return {"label": label, "limit": limit, "samples": results,
            "ratios": {other: m.median_ratio([r["decode_tps"] for r in results["sluice"]],
                                             [r["decode_tps"] for r in results[other]])
                       for other in results if other != "sluice"}}


HEADS = ("variant", "limit", "MiB", "decode t/s", "prefill t/s", "read MiB/token", "hit", "majflt/token",
         "majflt of whole run", "peak MiB")


def rows_of(figures):
    out = []
    for variant, rows in figures["samples"].items():
        def middle(key, rows=rows):
            return statistics.median(r.get(key) or 0 for r in rows)
        hit = f"{middle('hit'):.1f} %" if rows[0]["hit"] is not None else "-"
        in_decode = f"{middle('majflt_per_token'):.0f}" if "majflt_per_token" in rows[0] else "-"
        out.append((variant, figures["label"], f"{figures['limit'] / 2**20:.0f}",
                    f"{middle('decode_tps'):.3f}", f"{middle('prefill_tps'):.2f}",
                    f"{middle('bytes_read_per_token') / 2**20:.1f}", hit, in_decode,
                    f"{middle('group_majflt'):.0f}", f"{middle('group_peak') / 2**20:.0f}"))
    return out


def main():
    a = arguments()
    a.model = os.path.abspath(a.model)
    model = m.model_of(a.model)
    print(f"{model['name']}, {model['expert_bytes'] / 2**30:.2f} GiB of experts; {a.threads} threads, prompt "
          f"of {a.prompt}, {a.tokens} decoded tokens, {a.repetitions} repetitions, "
          f"{time.strftime('%Y-%m-%d %H:%M')}\n")
    with tempfile.TemporaryDirectory(prefix="sluice-compare.") as scratch:
        figures = [limit_figures(a, model, label, limit, scratch) for label, limit in limits_of(a, model)]
    print("\n".join(m.table(HEADS, [row for f in figures for row in rows_of(f)])) + "\n")
    for f in figures:
        for other, ratio in f["ratios"].items():
            print(f"decode at {f['label']}: sluice/{other} {m.ratio_text(ratio)}")


if __name__ == "__main__":
    main()
