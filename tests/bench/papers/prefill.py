# SPDX-License-Identifier: Apache-2.0
"""Cold prefill of every preset: time to first token of a new engine with an empty cache (HOBBIT §5.5.2, Fate Fig. 11)."""
import measuring as m
from papers import common as c

FORMS = {"short": (2, (16, 128, 512), (25, 50)), "long": (4, (16, 128, 512), (25, 50)), "try": (1, (16,), (50,))}
PRESETS = ("lod", "lod-nocache", "eap", "edgemoe", "hobbit", "fate", "default")
DEVICES = ("200 MB/s", "unthrottled")


def measure(a, share, device, tokens):
    repetitions = FORMS[a.form][0]
    variants = {p: [f"preset={p}", f"resident_experts={share}", f"plan={c.plan(a, 5)}", c.policy(preload="none")]
                for p in PRESETS}
    doc = c.bench(a, variants, "-p", tokens, "-n", 0, "-r", repetitions, "--warmup", 0, "--cold", "--throttle",
                  c.DEVICES[device])
    f = {label: c.figures(m.variant_test(doc, label, "pp")) for label in variants}
    ratios = {p: m.median_ratio(m.rates({"samples": f["lod"]["samples"]}), m.rates({"samples": f[p]["samples"]}))
              for p in PRESETS if p != "lod"}
    return {"share": share, "device": device, "tokens": tokens, "variants": f, "ratios": ratios}


def cells(a):
    repetitions, lengths, shares = FORMS[a.form]
    cost = {"200 MB/s": 7, "unthrottled": 4}
    return [(c.key_of(share, device, tokens), len(PRESETS) * repetitions * cost[device],
             lambda share=share, device=device, tokens=tokens: measure(a, share, device, tokens))
            for device in DEVICES for share in shares for tokens in lengths]


def tables(_a, results):
    rows = []
    for f in c.in_order(results):
        ms = {p: 1e3 * f["tokens"] / v["tps"] for p, v in f["variants"].items()}
        rows.append((f"{c.cell(f)}, {f['tokens']} tokens", *(f"{ms[p]:.0f}" for p in PRESETS),
                     *(m.ratio_text(f["ratios"][p]) for p in ("hobbit", "fate"))))
    return ["Milliseconds, median; time of the preset/time of lod.", ""] + m.table(
        ("cell", *PRESETS, "hobbit/lod", "fate/lod"), rows)


def verdicts(_a, _results):
    return []
