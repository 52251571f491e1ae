# SPDX-License-Identifier: Apache-2.0
"""auto's predicted time per token (plan) against the measured one: demo model, every point of the plan's grid, the
choice without loss and the one within LOSS percent."""
import os
import statistics

import measuring as m
from measure_assets import CALIB, DEMO, HELDOUT, SHARES as PLANNED
from papers import common as c

RESIDENT = (12.5, 18.75, 25, 37.5, 50, 75, 100)
RATES = {"100 MB/s": 100_000_000, "200 MB/s": 200_000_000, "500 MB/s": 500_000_000, "1 GB/s": 1_000_000_000,
         "2 GB/s": 2_000_000_000, "4 GB/s": 4_000_000_000}
LOSS = 5 # percent
FORMS = {"short": (510, 1), "long": (510, 5), "try": (40, 1)} # tokens, repetitions
TEXT = os.path.join(HELDOUT, "novel.txt")
MEDIAN_MAX, WORST_MAX = 0.10, 0.25


def store(a):
    path = a.assets.path("demo.store")
    if not os.path.exists(os.path.join(path, "manifest.json")):
        m.run([m.program("pack"), "-m", DEMO, "-o", path, "--precisions", "native,int8,int4,int2", "--method",
               "channel", "--quiet"])
    return path


def profile(a):
    tokens = "1022" if a.form == "try" else "8176"
    return a.assets.made("demo.profile", lambda path: m.run(
        [m.program("profile"), "-m", DEMO, "--text", CALIB, "--tokens", tokens, "-o", path]))


def planned(a):
    """A plan of the lossy presets: the shares of precisions that keep to LOSS, without the hours of their search."""
    def make(path):
        source = profile(a)
        for preset, shares, stands_for in PLANNED[LOSS]:
            m.run([m.program("plan"), "-m", DEMO, "--profile", source, "--preset", preset, "--shares", shares,
                   "--max-loss", f"{stands_for}%", "--text", CALIB, "-o", path])
            source = path
    return a.assets.made("demo-lossy.plan", make)


def predictions(a):
    """The cells of the plan for TEXT: presets and times per token."""
    plan = a.assets.path("demo-novel.plan")
    path = a.assets.made("demo-novel.json", lambda path: m.write_json(path, m.sluice(
        "plan", "-m", DEMO, "--profile", planned(a), "--preset", "auto", "--max-loss", f"{LOSS}%", "--text", TEXT,
        "--output", "json", "-o", plan)))
    return plan, m.read_json(path)["auto"]


def measure(a, share, rate):
    tokens, repetitions = FORMS[a.form]
    plan, cells_of_plan = predictions(a)
    cell = next(x for x in cells_of_plan if abs(x["share"] - share / 100) < 1e-6 and x["bytes_per_s"] == RATES[rate])
    kinds = [kind for kind in ("lossless", "lossy") if kind == "lossless" or cell["lossy"] != cell["lossless"]]
    argv = ["bench", "-m", store(a), "-p", 0, "-n", tokens, "-r", repetitions, "--threads", a.threads, "--text", TEXT,
            "--throttle", RATES[rate], "--warmup-tokens", tokens, "-o", "json"]
    for kind in kinds:
        argv += ["--variant", f"label={kind};preset={cell[kind]};plan={plan};resident_experts={share}"]
    doc = m.sluice(*argv)
    return {"share": share, "device": rate, "choices": [choice(cell, kind, m.variant_test(doc, kind)) for kind in kinds]}


def choice(cell, kind, test):
    ms = statistics.median(s["ms"] / s["tokens"] for s in test["samples"])
    predicted = cell[kind + "_ns"] / 1e6
    return {"kind": kind, "preset": cell[kind], "predicted_ms": predicted, "measured_ms": ms,
            "error": ms / predicted - 1, "hit": test["hit_percent"], "compute_ms": test["compute_ms_per_token"],
            "stall_ms": test["stall_ms_per_token"]}


def cells(a):
    tokens, repetitions = FORMS[a.form]
    return [(c.key_of(share, rate), 2 * (repetitions + 1) * (3 + 0.01 * tokens),
             lambda share=share, rate=rate: measure(a, share, rate)) for rate in RATES for share in RESIDENT]


def in_order(results):
    """(cell, choice) pairs, those without loss first."""
    ordered = sorted(results.values(), key=lambda f: (list(RATES).index(f["device"]), f["share"]))
    return [(f, x) for kind in ("lossless", "lossy") for f in ordered for x in f["choices"] if x["kind"] == kind]


def tables(_a, results):
    rows = [(x["kind"], c.cell(f), x["preset"], f"{x['predicted_ms']:.2f}", f"{x['measured_ms']:.2f}",
             f"{100 * x['error']:+.1f} %", f"{x['hit']:.1f}", f"{x['compute_ms']:.2f}", f"{x['stall_ms']:.2f}")
            for f, x in in_order(results)]
    return m.table(("choice", "cell", "preset", "predicted ms", "measured ms", "error", "hits, %", "compute ms",
                    "stall ms"), rows)


def verdicts(_a, results):
    out = []
    for kind in ("lossless", "lossy"):
        errors = sorted(abs(x["error"]) for _, x in in_order(results) if x["kind"] == kind)
        if not errors:
            continue
        median = statistics.median(errors)
        good = median <= MEDIAN_MAX and errors[-1] <= WORST_MAX
        out.append((f"auto, {kind}: predicted time per token, median error at most 10 %, worst at most 25 %",
                    "pass" if good else "fail",
                    f"median {100 * median:.1f} %, worst {100 * errors[-1]:.1f} %, "
                    f"{sum(e > WORST_MAX for e in errors)} above 25 %, {len(errors)} cells"))
    return out
