# SPDX-License-Identifier: Apache-2.0
"""Measures EdgeMoE (its figures 12, 13, 18) against load on demand, uniform precisions and whole layers; its ablation; its
memory."""
import measuring as m
from papers import common as c

FORMS = {"short": (24, 2, (18.75, 25, 50)), "long": (32, 5, (18.75, 25, 50)), "try": (96, 2, (50,))}
BASELINES = ("lod", "iq4", "iq2")
# Q: mixed precision alone; +P preloading, +C EdgeMoE's eviction and first content of the cache
ABLATION = {"Q": c.policy(prediction="none", prefetch="none", eviction="lru", preload="none"),
            "Q+P": c.policy(eviction="lru", preload="none"), "Q+C": c.policy(prediction="none", prefetch="none")}
LAYERWISE_TOKENS = {"short": 4, "long": 8, "try": 96}


def variants_of(a, share):
    common = [f"resident_experts={share}"]
    out = {name: [f"preset={name}", *common, f"plan={c.plan(a, 5)}"] for name in BASELINES}
    for loss in c.EDGEMOE:
        out[f"P={loss}"] = ["preset=edgemoe", *common, f"plan={c.plan(a, loss)}"]
    for label, settings in ABLATION.items():
        out[label] = ["preset=edgemoe", *common, f"plan={c.plan(a, 5)}", settings]
    return out


def measure(a, share, device):
    tokens, repetitions, _ = FORMS[a.form]
    f = c.decode(a, variants_of(a, share), repetitions, tokens, device)
    whole = {"layerwise": ["preset=layerwise", f"resident_experts={share}"],
             "P=5": ["preset=edgemoe", f"resident_experts={share}", f"plan={c.plan(a, 5)}"]}
    streamed = c.decode(a, whole, 2, LAYERWISE_TOKENS[a.form], device, slices=1, warmup=2)
    ratios = {f"P={loss}/{base}": c.ratio(f, f"P={loss}", base) for loss in c.EDGEMOE for base in BASELINES}
    ratios["P=5/layerwise"] = c.ratio(streamed, "P=5", "layerwise")
    ratios.update({"Q+P/Q": c.ratio(f, "Q+P", "Q"), "Q+C/Q": c.ratio(f, "Q+C", "Q"),
                   "P=5/Q+C": c.ratio(f, "P=5", "Q+C"), "P=5/Q": c.ratio(f, "P=5", "Q")})
    f["layerwise"] = streamed["layerwise"]
    return {"share": share, "device": device, "variants": f, "ratios": ratios}


def cells(a):
    cost = {"200 MB/s": 0.3, "1 GB/s": 0.1, "unthrottled": 0.08}
    return c.decode_cells(FORMS, a.form, 9, cost, lambda share, device: measure(a, share, device))


def tables(_a, results):
    ordered = c.in_order(results)
    if not ordered:
        return []
    rates = [(c.cell(f), *(f"{v['tps']:.1f}" for v in f["variants"].values())) for f in ordered]
    ratios = [(c.cell(f), *(m.ratio_text(r) for r in f["ratios"].values())) for f in ordered]
    memory = [(c.cell(f), *(f"{v['peak_mib']:.0f}" for v in f["variants"].values())) for f in ordered]
    names = list(ordered[0]["variants"])
    return (["Tokens/s:", ""] + m.table(("cell", *names), rates) + ["", "Ratios of decode rates:", ""] +
            m.table(("cell", *ordered[0]["ratios"]), ratios) + ["", "Peak memory of all processes, MiB:", ""] +
            m.table(("cell", *names), memory))


def verdicts(_a, _results):
    return []
