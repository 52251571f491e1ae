# SPDX-License-Identifier: Apache-2.0
"""Studies with `sluice sim` on recorded traces of the demo model: nothing is timed, so any machine will do. Texts are
the four held-out ones as forced tokens, and text sampled by the model; results are means over them with minimum and
maximum. The first quarter of a trace warms the cache. One study replays recordings of real models (tests/traces)."""
import bz2
import pathlib
import shutil
import statistics

import measuring as m
from measure_assets import CALIB, DEMO, TEXTS

PASS, FAIL, NOT_MEASURED, SHOWN = "pass", "fail", "not measured", "measured"
BUDGETS = ("12.5%", "18.75%", "25%", "37.5%", "50%", "75%")
EVICTIONS = ("fifo", "lru", "lfu", "random", "edgemoe", "edgemoe-printed", "hobbit", "arc", "s3-fifo",
             "decayed-frequency", "learned", "belady")
# Compute times of the demo model with everything resident, and a device with a proportionate bandwidth.
TIMES = ("--layer-us", "45", "--expert-us", "12", "--read-bandwidth", "1GB/s")
LOW = ("--precisions", "int2=25.5%") # size of an expert at int2 relative to q8_0
QUIET = "prediction=none,prefetch=none"
FITTED = ("novel", "science")
SAMPLED = (0, 1, 2)
RECORDED = pathlib.Path(__file__).parent.parent / "traces"
RECORDINGS = {"Qwen3-30B-A3B": ("qwen.route.csv", ""), "Gemma-4-26B-A4B": ("gemma.route.csv", ""),
              "gpt-oss-120b": ("gptoss.route.csv", ""), "OLMoE-1B-7B": ("olmoe_299.jsonl", "=experts=64"),
              "Kimi-Linear-48B-A3B": ("kimi_300.jsonl", "=experts=256,dense=1")}
RECORDED_BUDGETS = ("12.5%", "25%", "50%")


def simulate(trace, *more, budgets=BUDGETS):
    return m.sluice("sim", trace, "--budgets", ",".join(budgets), *TIMES, "--output", "json", *more)["results"]


def traces(a):
    out = {text: a.assets.demo_forced(text, "hobbit") for text in TEXTS}
    sampled = SAMPLED if a.form == "long" else SAMPLED[:1]
    out.update({f"sampled {seed}": a.assets.demo_sampled(seed) for seed in sampled})
    return out


def by_cell(rows, value, name=None):
    return {f"{name or r['preset']} {r['budget_percent']:g}%": value(r) for r in rows}


def gather(results):
    """{text: {what: value}} -> {what: [value per text]}"""
    out = {}
    for figures in results.values():
        for what, x in figures.items():
            out.setdefault(what, []).append(x)
    return out


def spread(xs, scale=100, digits=1):
    low, high = min(xs) * scale, max(xs) * scale
    return f"{statistics.mean(xs) * scale:.{digits}f} ({low:.{digits}f} .. {high:.{digits}f})"


# ---- the cells ------------------------------------------------------------------------------------


def evictions(a):
    return {text: by_cell(simulate(path, "--evictions", ",".join(EVICTIONS)), lambda r: r["hit_rate"])
            for text, path in traces(a).items()}


def fitted_plan(a, text):
    """HOBBIT planned for 1 % on calibration text, its eviction fitted on the trace of a held-out text."""
    tokens = {"try": "1024", "short": "4096", "long": "8176"}[a.form]
    profile = a.assets.made("demo.profile", lambda path: m.run(
        [m.program("profile"), "-m", DEMO, "--text", CALIB, "--importance-tokens", "0", "--tokens", tokens,
         "-o", path]))
    base = [m.program("plan"), "-m", DEMO, "--text", CALIB, "--max-loss", "5%" if a.form == "try" else "1%",
            "--preset", "hobbit", "--tokens", tokens]
    first = a.assets.made(f"demo-{FITTED[0]}.plan", lambda path: m.run(
        base + ["--profile", profile, "--trace", a.assets.demo_forced(FITTED[0], "hobbit"), "-o", path]))
    if text == FITTED[0]:
        return first
    return a.assets.made(f"demo-{text}.plan", lambda path: m.run(
        base + ["--profile", first, "--eviction-only", "--trace", a.assets.demo_forced(text, "hobbit"),
                "-o", path]))


def hobbit_fit(a):
    out = {}
    for fitted in FITTED:
        plan = fitted_plan(a, fitted)
        weights = {k: v for k, v in a.assets.scalars(plan).items() if k.startswith(("hobbit_w", "hobbit_fld",
                                                                                  "hobbit_t"))}
        judged = {}
        for text, path in traces(a).items():
            if text == fitted:
                continue
            judged[text] = {}
            for name, knobs in (("fitted", ""), ("lru", ",eviction=lru"), ("lfu", ",eviction=lfu")):
                rows = simulate(path, *LOW, "--plan", plan, "--presets", "hobbit", "--policy", QUIET + knobs)
                judged[text].update(by_cell(rows, lambda r: r["penalty_per_token"], name))
        out[fitted] = {"weights": weights, "judged": judged}
    return out


ONLY = ",w_lru={},w_lfu={},w_lhu=0,w_fld={}" # of the four weights
VARIANTS = {"four weights, records of the sequence": "", "four weights, records of the model": ",records=model",
            "uses of the sequence alone": ONLY.format(0, 1, 0),
            "uses of the model alone": ONLY.format(0, 1, 0) + ",records=model",
            "distance alone, as printed": ONLY.format(0, 0, 1),
            "distance alone, next layer nearest": ONLY.format(0, 0, 1) + ",fld_next=on",
            "four weights, next layer nearest": ",fld_next=on"}


def variants(a):
    """Effect of the parts of HOBBIT's eviction, in one pool with native experts only."""
    out = {}
    for text, path in traces(a).items():
        out[text] = {}
        for name, knobs in VARIANTS.items():
            rows = simulate(path, "--presets", "hobbit", "--policy",
                            f"{QUIET},precision=lossless,allocation=shared{knobs}")
            out[text].update(by_cell(rows, lambda r: r["hit_rate"], name))
    return out


def ahead(a):
    """Lookahead of p layers, with two precisions and with native experts only."""
    out = {}
    plan = fitted_plan(a, FITTED[0])
    for text in TEXTS:
        path = a.assets.demo_forced(text, "hobbit")
        out[text] = {}
        for precision, knobs in (("two tiers", ""), ("native", ",precision=lossless,allocation=shared")):
            for p in range(5):
                prediction = f"lookahead={p}" if p else QUIET
                rows = simulate(path, *LOW, "--plan", plan, "--presets", "hobbit", "--policy", prediction + knobs,
                                budgets=("25%", "50%"))
                for what, key in (("hits", "hit_rate"), ("ms", "token_ms"), ("MiB", "mib_per_token")):
                    out[text].update(by_cell(rows, lambda r, key=key: r[key], f"{precision} {p} {what}"))
    return out


def fate(a):
    """Hits at equal capacity with and without predictions, and how many accesses were predicted."""
    out = {}
    for text in TEXTS:
        out[text] = {}
        for preset, prediction in (("fate", "fate"), ("lod-nocache", "fate"), ("lod", "fate"), ("eap", "fate"),
                                ("default", "hobbit")):
            rows = simulate(a.assets.demo_forced(text, prediction), "--presets", preset, "--policy",
                            "precision=lossless", budgets=("25%", "50%", "75%"))
            out[text].update(by_cell(rows, lambda r: r["hit_rate"], preset + " hits"))
            out[text].update(by_cell(rows, lambda r: r["decode"]["predicted_hits"] /
                                     max(1, r["decode"]["predicted_accesses"]), preset + " recall"))
    return out


def unpacked(a, name):
    def unpack(path):
        with bz2.open(RECORDED / f"{name}.bz2") as packed, open(path, "wb") as out:
            shutil.copyfileobj(packed, out)
    return a.assets.made(name, unpack)


def recorded(a):
    """Hits on routing that others recorded on real models; those files have no logits, and some no gate weights."""
    return {model: by_cell(m.sluice("sim", f"--import{settings}", unpacked(a, name), "--budgets",
                                    ",".join(RECORDED_BUDGETS), "--evictions", "all", "--output", "json")["results"],
                           lambda r: r["hit_rate"])
            for model, (name, settings) in RECORDINGS.items()}


CELLS = {"recorded": (recorded, 20), "evictions": (evictions, 40), "hobbit-fit": (hobbit_fit, 90), "variants": (variants, 20),
         "ahead": (ahead, 20), "fate": (fate, 10)}


def cells(a):
    return [(key, 10 if a.form == "try" else seconds, lambda work=work: {"texts": work(a)})
            for key, (work, seconds) in CELLS.items()]


# ---- tables ---------------------------------------------------------------------------------------


def budget_table(figures, names, head, scale=100, digits=1, budgets=BUDGETS):
    rows = [(name, *(spread(figures[f"{name} {b}"], scale, digits) if f"{name} {b}" in figures else "-"
                     for b in budgets)) for name in names]
    return m.table((head, *budgets), rows)


def fit_table(results):
    lines = []
    for fitted, f in results.items():
        w = f["weights"]
        lines += ["", f"Fitted on {fitted}: " + ", ".join(f"{k[7:]} {v:.3g}" for k, v in w.items()) +
                  "; miss penalty per token on the others:", ""]
        lines += budget_table(gather(f["judged"]), ("fitted", "lru", "lfu"), "eviction", 1, 3)
    return lines


def ahead_table(figures):
    rows = []
    for precision in ("two tiers", "native"):
        for p in range(5):
            rows.append((f"{precision}, p = {p}", *(spread(figures[f"{precision} {p} {what} {b}"], scale, digits)
                                                    for b in ("25%", "50%")
                                                    for what, scale, digits in (("hits", 100, 1), ("ms", 1, 3),
                                                                                ("MiB", 1, 2)))))
    return m.table(("", "hits % at 25 %", "ms/token", "MiB/token", "hits % at 50 %", "ms/token", "MiB/token"), rows)


def recorded_table(models):
    names = [cell.removesuffix(" 25%") for cell in next(iter(models.values())) if cell.endswith(" 25%")]
    return m.table(("hits %", *models),
                   [(name, *(" ".join(f"{100 * f[f'{name} {b}']:.1f}" for b in RECORDED_BUDGETS)
                             for f in models.values())) for name in names])


def tables(_a, results):
    lines = []
    if "recorded" in results:
        lines += [f"Hits in percent on recordings of real models, at {', '.join(RECORDED_BUDGETS)} of the experts:", ""]
        lines += recorded_table(results["recorded"]["texts"]) + [""]
    if "evictions" in results:
        n = len(results["evictions"]["texts"])
        lines += [f"Hits in percent by eviction and capacity, {n} texts:", ""]
        lines += budget_table(gather(results["evictions"]["texts"]), EVICTIONS, "hits %")
    if "variants" in results:
        lines += ["", "HOBBIT's eviction, one pool, native experts; hits in percent:", ""]
        lines += budget_table(gather(results["variants"]["texts"]), VARIANTS, "hits %")
    if "hobbit-fit" in results:
        lines += fit_table(results["hobbit-fit"]["texts"])
    if "ahead" in results:
        lines += ["", "Layers looked ahead (device 1 GB/s):", ""] + ahead_table(gather(results["ahead"]["texts"]))
    if "fate" in results:
        figures, presets = gather(results["fate"]["texts"]), ("lod-nocache", "lod", "eap", "default", "fate")
        lines += ["", "Hits in percent at equal capacity, native experts (device 1 GB/s):", ""]
        lines += budget_table(figures, [s + " hits" for s in presets], "hits %", budgets=("25%", "50%", "75%"))
        lines += ["", "Predicted accesses, of the layers that had predictions: top-K of the next layer's router "
                  f"{spread(figures['default recall 50%'])} %, Fate's list {spread(figures['fate recall 50%'])} %, "
                  f"paths (eap) {spread(figures['eap recall 50%'])} %."]
    return lines


def fit_verdict(results):
    what = "hobbit: miss penalty of its fitted eviction not worse than the better of lru and lfu on other text"
    if "hobbit-fit" not in results:
        return (what, NOT_MEASURED, "no figures")
    worst, cells_count, good = 0, 0, 0
    for fit in results["hobbit-fit"]["texts"].values():
        for judged in fit["judged"].values():
            for b in ("25%", "50%"): # the capacities it was fitted for
                ratio = judged[f"fitted {b}"] / min(judged[f"lru {b}"], judged[f"lfu {b}"])
                worst, cells_count, good = max(worst, ratio), cells_count + 1, good + (ratio <= 1)
    return (what, PASS if good == cells_count else FAIL,
            f"{good} of {cells_count} cells of text and capacity (25, 50 %); the worst ratio {worst:.3f}")


def verdicts(_a, results):
    def shown(what, key, text):
        return (what, SHOWN, text(gather(results[key]["texts"]))) if key in results else (what, NOT_MEASURED, "")
    return [fit_verdict(results),
            shown("edgemoe: eviction table", "evictions",
                  lambda f: "at 25 %: " + ", ".join(f"{e} {spread(f[f'{e} 25%'])}" for e in EVICTIONS)),
            shown("hobbit: p = 0..4, ms per token at 25 %", "ahead",
                  lambda f: ", ".join(f"p = {p}: {spread(f[f'two tiers {p} ms 25%'], 1, 3)}" for p in range(5))),
            shown("fate: hit rate at 25, 50, 75 %", "fate",
                  lambda f: ", ".join(f"{b}: {spread(f[f'fate hits {b}'])} % (lod {spread(f[f'lod hits {b}'])})"
                                      for b in ("25%", "50%", "75%")))]
