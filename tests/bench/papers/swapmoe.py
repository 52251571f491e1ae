# SPDX-License-Identifier: Apache-2.0
"""SwapMoE's latency over the interval of updates (§3.4: the highest frequency before latency bends)."""
import measuring as m
from papers import common as c

INTERVALS = (4, 12, 24, 48, 96, 192, 384)
FORMS = {"short": (96, 3), "long": (448, 4), "try": (160, 2)}


def measure(a, share):
    tokens, repetitions = FORMS[a.form]
    common = [f"resident_experts={share}", f"plan={c.profile(a)}"]
    variants = {f"{i}": ["preset=swapmoe", *common, f"policy=interval={i}"] for i in INTERVALS}
    variants["pruned"] = ["preset=pruned", *common]
    doc = c.bench(a, variants, "-p", 0, "-n", tokens, "-r", repetitions, "--interleave", 16, "--warmup-tokens", 64)
    tests = {label: m.variant_test(doc, label) for label in variants}
    f = {label: c.figures(t) for label, t in tests.items()}
    for label, t in tests.items():
        f[label]["swaps"] = m.counter(t, "cache.expert_swaps")
        f[label]["waited"] = sum(s["misses"] + s["hits_inflight"] for s in t["samples"])
    return {"share": share, "device": "unthrottled", "variants": f, "tokens_all": tokens * repetitions,
            "ratios": {label: c.ratio(f, "pruned", label) for label in variants if label != "pruned"}}


def cells(a):
    tokens, repetitions = FORMS[a.form]
    return [(c.key_of(50), 8 * repetitions * (4 + 0.03 * tokens), lambda: measure(a, 50))]


def tables(_a, results):
    rows = []
    for f in results.values():
        for i in map(str, INTERVALS):
            v = f["variants"][i]
            rows.append((i, f"{v['tps']:.1f}", m.ratio_text(f["ratios"][i]), f"{v['swaps'] / f['tokens_all']:.2f}",
                         f"{v['waited']:.0f}"))
    return m.table(("interval, tokens", "tokens/s", "time per token/pruned", "swaps per token", "accesses that waited"),
                   rows)


def verdicts(_a, _results):
    return []
