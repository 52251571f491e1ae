# SPDX-License-Identifier: Apache-2.0
"""Cold prefill of every preset: time to first token of a new engine with an empty cache (HOBBIT §5.5.2, Fate Fig. 11)."""
import measuring as m
from papers import common as c

FORMS = {"short": (2, (16, 128, 512), (25, 50)), "long": (4, (16, 128, 512), (25, 50)), "try": (1, (16,), (50,))}
# Each group has lod as its baseline: one benchmark per group and cell, so that none needs more than a few minutes.
GROUPS = {"": ("lod", "lod-nocache", "eap", "edgemoe", "hobbit", "fate", "default"),
          "others": ("lod", "iq4", "iq2", "layerwise", "swapmoe", "mixtral-offload", "moe-infinity"),
          "rest": ("lod", "pruned", "pruned-freq", "auto", "auto-mixed", "auto-two-precision", "auto-int4"),
          "parts": ("lod", "auto-int2", "auto-prefetch", "auto-noprefetch", "auto-hobbit-eviction", "auto-mixed-noprefetch")}
# They route only to resident experts: the cache is filled before the first prompt, in the profile's order.
MASKED = ("swapmoe", "pruned", "pruned-freq")
DEVICES = ("200 MB/s", "unthrottled")


def settings(a, preset, share):
    out = [f"preset={preset}", f"resident_experts={share}"]
    out.append(f"plan={c.profile(a) if preset in MASKED else c.plan(a, 5)}")
    return out if preset in MASKED else [*out, c.policy(preload="none")]


def measure(a, group, share, device, tokens):
    repetitions = FORMS[a.form][0]
    variants = {p: settings(a, p, share) for p in GROUPS[group]}
    doc = c.bench(a, variants, "-p", tokens, "-n", 0, "-r", repetitions, "--warmup", 0, "--cold", "--throttle",
                  c.DEVICES[device])
    f = {label: c.figures(m.variant_test(doc, label, "pp")) for label in variants}
    ratios = {p: m.median_ratio(m.rates({"samples": f["lod"]["samples"]}), m.rates({"samples": f[p]["samples"]}))
              for p in f if p != "lod"}
    return {"group": group, "share": share, "device": device, "tokens": tokens, "variants": f, "ratios": ratios}


def cells(a):
    repetitions, lengths, shares = FORMS[a.form]
    cost = {"200 MB/s": 7, "unthrottled": 4}
    return [(c.key_of(share, device, tokens, *filter(None, [group])), len(presets) * repetitions * cost[device],
             lambda group=group, share=share, device=device, tokens=tokens: measure(a, group, share, device, tokens))
            for group, presets in GROUPS.items() for device in DEVICES for share in shares for tokens in lengths]


def tables(_a, results):
    lines = ["Milliseconds, median; time of the preset/time of lod."]
    for group, presets in GROUPS.items():
        rows = []
        for f in c.in_order({k: r for k, r in results.items() if r.get("group", "") == group}):
            ms = {p: 1e3 * f["tokens"] / v["tps"] for p, v in f["variants"].items()}
            rows.append((f"{c.cell(f)}, {f['tokens']} tokens", *(f"{ms[p]:.0f}" for p in presets),
                         *(m.ratio_text(f["ratios"][p]) for p in presets if p != "lod")))
        lines += [""] + m.table(("cell", *presets, *(f"{p}/lod" for p in presets if p != "lod")), rows)
    return lines


def verdicts(_a, _results):
    return []
