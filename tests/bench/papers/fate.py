# SPDX-License-Identifier: Apache-2.0
"""Measures Fate's ablation (its figure 13): load on demand, + prefetch, + its cache, + int4, all of it; the baselines in
decode."""
import measuring as m
from papers import common as c

FORMS = {"short": (24, 2, (25, 50)), "long": (32, 5, (25, 50)), "try": (96, 2, (50,))}
STEPS = {"+prefetch": c.policy(precision="lossless", allocation="shared", eviction="lru"),
         "+cache": c.policy(precision="lossless"), "+int4": c.policy(precision="uniform-int4"), "fate": None}
BASELINES = ("lod-nocache", "lod", "eap", "mixtral-offload", "moe-infinity", "default")


def measure(a, share, device):
    tokens, repetitions, _ = FORMS[a.form]
    common = [f"resident_experts={share}", f"plan={c.plan(a, 5)}"]
    variants = {p: [f"preset={p}", *common] for p in BASELINES}
    variants.update({label: ["preset=fate", *common, *([s] if s else [])] for label, s in STEPS.items()})
    f = c.decode(a, variants, repetitions, tokens, device)
    pairs = (("+prefetch", "lod-nocache"), ("+prefetch", "lod"), ("+cache", "+prefetch"), ("+int4", "+cache"),
             ("fate", "lod-nocache"), ("fate", "eap"), ("+cache", "eap"), ("mixtral-offload", "lod"),
             ("moe-infinity", "lod"), ("default", "mixtral-offload"), ("default", "moe-infinity"))
    return {"share": share, "device": device, "variants": f,
            "ratios": {f"{x}/{y}": c.ratio(f, x, y) for x, y in pairs}}


def cells(a):
    cost = {"200 MB/s": 0.5, "1 GB/s": 0.15, "unthrottled": 0.1}
    return c.decode_cells(FORMS, a.form, 10, cost, lambda share, device: measure(a, share, device))


def tables(_a, results):
    ordered = c.in_order(results)
    if not ordered:
        return []
    names = list(ordered[0]["variants"])
    rates = [(c.cell(f), *(f"{f['variants'][n]['tps']:.1f}" for n in names)) for f in ordered]
    hits = [(c.cell(f), *(f"{f['variants'][n]['hit']:.1f}" for n in names)) for f in ordered]
    ratios = [(c.cell(f), *(m.ratio_text(r) for r in f["ratios"].values())) for f in ordered]
    return (["Tokens/s:", ""] + m.table(("cell", *names), rates) + ["", "Hits, %:", ""] +
            m.table(("cell", *names), hits) + ["", "Ratios of decode rates:", ""] +
            m.table(("cell", *ordered[0]["ratios"]), ratios))


def verdicts(_a, _results):
    return []
