# SPDX-License-Identifier: Apache-2.0
"""auto's predicted time per token (plan) against the measured one, demo model, at points of the plan's grid."""
import os
import statistics

import measuring as m
from measure_assets import CALIB, DEMO, HELDOUT
from papers import common as c

SHARES = (18.75, 25, 50)
RATES = {"200 MB/s": 200_000_000, "500 MB/s": 500_000_000, "1 GB/s": 1_000_000_000}
FORMS = {"short": (510, 3), "long": (510, 5), "try": (40, 1)}
TEXT = os.path.join(HELDOUT, "novel.txt")
MEDIAN_MAX, WORST_MAX = 0.10, 0.25


def predictions(a):
    """The cells of the plan for TEXT: preset and time per token."""
    tokens = "1022" if a.form == "try" else "8176"
    profile = a.assets.made("demo.profile", lambda path: m.run(
        [m.program("profile"), "-m", DEMO, "--text", CALIB, "--tokens", tokens, "-o", path]))
    plan = a.assets.path("demo-novel.plan")
    path = a.assets.made("demo-novel.json", lambda path: m.write_json(path, m.sluice(
        "plan", "-m", DEMO, "--profile", profile, "--preset", "auto", "--text", TEXT, "--output", "json", "-o", plan)))
    return plan, m.read_json(path)["auto"]


def measure(a, share, rate):
    tokens, repetitions = FORMS[a.form]
    plan, cells_of_plan = predictions(a)
    cell = next(x for x in cells_of_plan if abs(x["share"] - share / 100) < 1e-6 and x["bytes_per_s"] == RATES[rate])
    doc = m.sluice("bench", "-m", DEMO, "-p", 0, "-n", tokens, "-r", repetitions, "--threads", a.threads, "--text",
                   TEXT, "--throttle", RATES[rate], "--warmup-tokens", tokens, "--resident-experts", share, "--plan",
                   plan, "--preset", cell["lossless"], "-o", "json")
    test = m.variant_test(doc, 0)
    ms = statistics.median(s["ms"] / s["tokens"] for s in test["samples"])
    predicted = cell["lossless_ns"] / 1e6
    return {"share": share, "device": rate, "preset": cell["lossless"], "predicted_ms": predicted, "measured_ms": ms,
            "error": ms / predicted - 1, "hit": test["hit_percent"], "compute_ms": test["compute_ms_per_token"],
            "stall_ms": test["stall_ms_per_token"]}


def cells(a):
    tokens, repetitions = FORMS[a.form]
    return [(c.key_of(share, rate), repetitions * (3 + 0.02 * tokens),
             lambda share=share, rate=rate: measure(a, share, rate)) for rate in RATES for share in SHARES]


def in_order(results):
    return sorted(results.values(), key=lambda f: (list(RATES).index(f["device"]), f["share"]))


def tables(_a, results):
    rows = [(c.cell(f), f["preset"], f"{f['predicted_ms']:.2f}", f"{f['measured_ms']:.2f}", f"{100 * f['error']:+.1f} %",
             f"{f['hit']:.1f}", f"{f['compute_ms']:.2f}", f"{f['stall_ms']:.2f}") for f in in_order(results)]
    return m.table(("cell", "preset", "predicted ms", "measured ms", "error", "hits, %", "compute ms", "stall ms"), rows)


def verdicts(_a, results):
    if not results:
        return []
    errors = sorted(abs(f["error"]) for f in results.values())
    median = statistics.median(errors)
    good = median <= MEDIAN_MAX and errors[-1] <= WORST_MAX
    return [("auto: predicted time per token, median error at most 10 %, worst at most 25 %", "pass" if good else "fail",
             f"median {100 * median:.1f} %, worst {100 * errors[-1]:.1f} %, {len(errors)} cells")]
