# SPDX-License-Identifier: Apache-2.0
"""The timed parts of measure.py: bound, llama, hobbit, fate, swapmoe."""
import argparse
import os
import subprocess
import tempfile

import bound
import llama_compare
import measuring as m

MIB = 2**20
PASS, FAIL, NOT_MEASURED, SHOWN = "pass", "fail", "not measured", "measured"

# tokens, repetitions (if possible a multiple of the number of variants: see measuring.interleaved_ratio), and other
# differences between the forms
FORMS = {
    "short": {"bound": (32, 3), "llama": (2, 2), "hobbit": (12, 6), "fate": (8, 2), "swapmoe": (24, 6),
              "hobbit_shares": (25,), "fate_shares": (50,), "swap_shares": (50,)},
    "long": {"bound": (64, 9), "llama": (8, 5), "hobbit": (32, 9), "fate": (24, 5), "swapmoe": (128, 8),
             "hobbit_shares": (25, 50), "fate_shares": (25, 50, 75), "swap_shares": (25, 50, 75)},
    "try": {"bound": (8, 2), "llama": (2, 1), "hobbit": (8, 2), "fate": (8, 2), "swapmoe": (8, 2),
            "hobbit_shares": (50,), "fate_shares": (50,), "swap_shares": (50,)},
}
SLICE_TOKENS = 4 # tokens that a variant decodes per slice
WARMUP = 12 # tokens: enough to fill the capacity, few enough for a slow device
DEVICES = {"200 MB/s": 200_000_000, "1 GB/s": 1_000_000_000, "unthrottled": 0}


def key_of(*words):
    return "-".join(str(w).replace(" ", "").replace("/", "p") for w in words)


def state(held):
    return PASS if held else FAIL


def missing(what, a, part):
    why = "" if part in a.parts else " (not requested)"
    return (what, NOT_MEASURED, f"no figures{why}")


def bench(a, tokens, repetitions, variants, *more, warmup_tokens=None):
    argv = ["bench", "-m", a.assets.store(), "-p", 0, "-n", tokens, "-r", repetitions, "--threads", a.threads,
            "-o", "json", "--interleave", SLICE_TOKENS, *more]
    if warmup_tokens:
        argv += ["--warmup-tokens", warmup_tokens]
    for label, settings in variants.items():
        argv += ["--variant", f"label={label};" + ";".join(settings)]
    return m.sluice(*argv)


def variant_results(doc, label):
    """The values of a variant for tables, and all its samples."""
    t = m.variant_test(doc, label)
    hinted, missed = m.counter(t, "cache.hint_entries"), m.counter(t, "cache.predicted_absent")
    return {"tps": t["tps_median"], "rates": m.rates(t), "read_bytes": t["bytes_read_per_token"],
            "hit": t["hit_percent"], "late": t["inflight_percent"], "miss": t["miss_percent"],
            "skipped": t["skipped_percent"], "low": t["low_precision_percent"], "hinted": hinted, "predicted_absent": missed,
            "sent": m.counter(t, "cache.prefetches"), "prefetches_timely": m.counter(t, "cache.prefetches_timely"),
            "prefetches_late": m.counter(t, "cache.prefetches_late"), "expired": m.counter(t, "cache.hints_expired"),
            "recall_hits": m.counter(t, "predictor.recall_hits"),
            "recall_accesses": m.counter(t, "predictor.recall_accesses"),
            "ran": sorted({s["preset"] for s in t["samples"]}), "samples": t["samples"]}


def share_of(a, b):
    return f"{100 * a / b:.1f} %" if b else "-"


# ---- bound ----------------------------------------------------------------------------------------


class Bound:
    @staticmethod
    def settings(a):
        tokens, repetitions = FORMS[a.form]["bound"]
        return argparse.Namespace(model=a.assets.synth("plain"), python=a.python, presets="default",
                                  tokens=tokens, repetitions=repetitions, threads=a.threads, warmup=2,
                                  doctor_seconds=1 if a.form == "try" else 3, engine=[])

    @staticmethod
    def cells(a):
        def resident():
            s = Bound.settings(a)
            with tempfile.TemporaryDirectory(dir=a.out) as scratch:
                return bound.resident(s, a.assets.model(s.model), scratch)

        def at(share):
            s = Bound.settings(a)
            compute = results(a)["resident"]["compute_s"]
            return bound.share_figures(s, a.assets.model(s.model), share, compute)

        def results(a):
            path = os.path.join(a.out, "cells", f"bound-resident-{a.form}.json")
            if not os.path.exists(path):
                raise RuntimeError("the resident decode was not measured")
            return {"resident": m.read_json(path)["figures"]}

        long = a.form == "long"
        return [("resident", 120 if long else 30, resident)] + [
            (key_of(share), 330 if long else 75, lambda share=share: at(share)) for share in (50, 25)]

    @staticmethod
    def tables(_a, results):
        if "resident" not in results:
            return []
        r = results["resident"]
        other = f"{r['llama.cpp']:.2f}" if r["llama.cpp"] else "not measured"
        rows = [bound.row_of(results[k]) for k in ("50", "25") if k in results]
        return [f"Resident decode: sluice {r['sluice']:.2f} tokens/s, llama.cpp {other}.", "",
                *m.table(bound.HEADS, rows)]

    @staticmethod
    def verdicts(a, results):
        out = []
        for share in ("50", "25"):
            what = f"bound: lossless decode at {share} % reaches 0.8 of 1/max(t_compute, b ÷ device)"
            f = results.get(share)
            out.append(missing(what, a, "bound") if not f else
                       (what, state(f["reached"] >= 0.8),
                        f"{f['reached']:.3f} ({f['reached_low']:.3f} to {f['reached_high']:.3f}), device "
                        f"{min(f['devices']) / 1e6:.0f} to {max(f['devices']) / 1e6:.0f} MB/s"))
        return out


# ---- llama ----------------------------------------------------------------------------------------


class Llama:
    @staticmethod
    def reason(a):
        """Why this cannot be measured here; None: it can."""
        if not a.python:
            return "needs --python VENV/bin/python with llama-cpp-python"
        if subprocess.run([a.python, "-c", "import llama_cpp"], check=False, capture_output=True).returncode:
            return f"{a.python} has no llama_cpp"
        return None

    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["llama"]
        if Llama.reason(a):
            m.say("llama is left out:", Llama.reason(a))
            return []

        def at(share):
            model = a.assets.synth("plain")
            s = argparse.Namespace(model=model, python=a.python, prompt=4, tokens=tokens, slack=3, engine=[],
                                   repetitions=repetitions, threads=a.threads, limits=None, llama_tokens=None,
                                   shares=str(share), lazy=False)
            with tempfile.TemporaryDirectory(dir=a.out) as scratch:
                known = a.assets.model(model)
                [(label, limit)] = llama_compare.limits_of(s, known)
                return llama_compare.limit_figures(s, known, label, limit, scratch)

        return [(key_of(share), repetitions * (25 + 12 * tokens), lambda share=share: at(share))
                for share in (50, 25)]

    @staticmethod
    def tables(_a, results):
        return m.table(llama_compare.HEADS, [row for f in results.values() for row in llama_compare.rows_of(f)])

    @staticmethod
    def verdicts(a, results):
        out = []
        for share in ("50", "25"):
            what = f"llama.cpp: decode at {share} %, lower end of the ratio > 8"
            f = results.get(share)
            if f:
                ratio = f["ratios"]["llama.cpp"]
                out.append((what, state(ratio[1] > 8), m.ratio_text(ratio)))
            else:
                out.append((what, NOT_MEASURED, Llama.reason(a) or "no figures"))
        return out


# ---- hobbit ---------------------------------------------------------------------------------------

# on: as planned. off: the same, but every access requests the higher precision. off, whole capacity: also gives the
# capacity reserved for the lower precision to the higher one.
HOBBIT_VARIANTS = {"on": "", "off": "policy=precision=lossless",
               "off, whole capacity": "policy=precision=lossless,allocation=shared"}


class Hobbit:
    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["hobbit"]

        def at(share):
            plan = a.assets.plan(1)
            variants = {label: ["preset=hobbit", f"plan={plan}", f"resident_experts={share}",
                                *([knobs] if knobs else [])]
                    for label, knobs in HOBBIT_VARIANTS.items()}
            doc = bench(a, tokens, repetitions, variants, "--throttle", 500_000_000, warmup_tokens=WARMUP)
            out = {label: variant_results(doc, label) for label in variants}
            out["share"] = share
            out["ratios"] = {label: m.interleaved_ratio(out["on"]["samples"], out[label]["samples"])
                             for label in variants if label != "on"}
            return out

        return [(key_of(share), 3 * repetitions * (3 + 0.3 * (tokens + WARMUP)), lambda share=share: at(share))
                for share in FORMS[a.form]["hobbit_shares"]]

    @staticmethod
    def tables(_a, results):
        rows = []
        for f in results.values():
            for label in HOBBIT_VARIANTS:
                r = f[label]
                rows.append((label, f"{f['share']} %", f"{r['tps']:.3f}", f"{r['read_bytes'] / MIB:.1f}",
                             f"{r['hit']:.1f} %", f"{r['low']:.1f} %", f"{r['skipped']:.1f} %",
                             m.ratio_text(f["ratios"][label]) if label != "on" else "-"))
        return ["Dynamic loading (native and int2 by gate weight) at 500 MB/s; `on/variant`: ratio of decode rates.",
                "", *m.table(("variant", "experts", "decode t/s", "read MiB/token", "hits", "low precision", "skipped",
                              "on/variant"), rows)]

    @staticmethod
    def verdicts(a, results):
        what = "hobbit: decode with dynamic loading by without, at 500 MB/s, lower end > 1.10"
        if not results:
            return [missing(what, a, "hobbit")]
        minimum = {k: min(f["ratios"].values(), key=lambda r: r[1]) for k, f in results.items()}
        text = "; ".join(f"{k} %: {m.ratio_text(r)}, {results[k]['on']['read_bytes'] / MIB:.1f} against "
                         f"{results[k]['off']['read_bytes'] / MIB:.1f} MiB per token" for k, r in minimum.items())
        return [(what, state(all(r[1] > 1.10 for r in minimum.values())), text)]


# ---- fate -----------------------------------------------------------------------------------------

FATE_VARIANTS = {"fate": ["preset=fate"], "fate, native": ["preset=fate", "policy=precision=lossless"],
             "lod-nocache": ["preset=lod-nocache"], "lod": ["preset=lod"], "eap": ["preset=eap"]}


class Fate:
    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["fate"]

        def at(share, device):
            plan = a.assets.plan(1)
            variants = {label: [*s, f"plan={plan}", f"resident_experts={share}"] for label, s in FATE_VARIANTS.items()}
            doc = bench(a, tokens, repetitions, variants, "--throttle", DEVICES[device], warmup_tokens=WARMUP)
            out = {label: variant_results(doc, label) for label in variants}
            out.update(share=share, device=device, ratios={
                f"{fate} by {label}": m.interleaved_ratio(out[fate]["samples"], out[label]["samples"])
                for fate in ("fate", "fate, native") for label in ("lod-nocache", "lod", "eap")})
            return out

        cost = {"200 MB/s": 0.7, "1 GB/s": 0.2, "unthrottled": 0.15}
        return [(key_of(share, device), len(FATE_VARIANTS) * repetitions * (3 + cost[device] * (tokens + WARMUP)),
                 lambda share=share, device=device: at(share, device))
                for share in FORMS[a.form]["fate_shares"] for device in DEVICES]

    @staticmethod
    def in_order(results):
        return sorted(results.values(), key=lambda f: (f["share"], list(DEVICES).index(f["device"])))

    @staticmethod
    def tables(_a, results):
        rows, ratios = [], []
        for f in Fate.in_order(results):
            for label in FATE_VARIANTS:
                r = f[label]
                rows.append((label, f"{f['share']} %", f["device"], f"{r['tps']:.3f}", f"{r['hit']:.1f} %",
                             f"{r['read_bytes'] / MIB:.1f}", share_of(r["recall_hits"], r["recall_accesses"]),
                             r["predicted_absent"], r["sent"], share_of(r["prefetches_timely"], r["predicted_absent"]),
                             r["prefetches_late"], r["expired"]))
            ratios.append((f"{f['share']} %, {f['device']}", *(m.ratio_text(r) for r in f["ratios"].values())))
        first = next(iter(results.values()), None)
        return m.table(("variant", "experts", "device", "decode t/s", "hits", "read MiB/token", "recall", "missing of "
                        "the lists", "sent", "in time, of missing", "late", "expired"), rows) + [""] + (
                            m.table(("decode", *first["ratios"]), ratios) if first else [])

    @staticmethod
    def verdicts(a, results):
        what = "fate: share of the list fetched in time under n at 200 MB/s, 1 GB/s, unthrottled"
        if not results:
            return [missing(what, a, "fate")]
        named = {f"{f['share']} %, {f['device']}: ": f for f in Fate.in_order(results)}
        text = "; ".join(k + share_of(f["fate, native"]["prefetches_timely"], f["fate, native"]["predicted_absent"])
                         for k, f in named.items())
        lod = "; ".join(k + m.ratio_text(f["ratios"]["fate, native by lod"]) for k, f in named.items())
        return [(what, SHOWN, text), ("fate: decode by lod at equal budget (native experts)", SHOWN, lod)]


# ---- swapmoe --------------------------------------------------------------------------------------


SWAP_INTERVAL = {"short": 16, "long": 96, "try": 16} # tokens; long has the default


class Swapmoe:
    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["swapmoe"]

        def at(share):
            plan = a.assets.profile()
            variants = {s: [f"preset={s}", f"plan={plan}", f"resident_experts={share}"] for s in ("swapmoe", "pruned")}
            variants["swapmoe"].append(f"policy=interval={SWAP_INTERVAL[a.form]}")
            doc = bench(a, tokens, repetitions, variants, "--warmup", 2, warmup_tokens=48)
            out = {label: variant_results(doc, label) for label in variants}
            test = m.variant_test(doc, "swapmoe")
            seconds = sum(s["ms"] for s in test["samples"]) / 1e3
            out.update(share=share, latency=m.interleaved_ratio(out["pruned"]["samples"], out["swapmoe"]["samples"]),
                       waits=sum(s["misses"] + s["hits_inflight"] for s in test["samples"]),
                       swaps=m.counter(test, "cache.expert_swaps"),
                       traffic_mib_s=m.counter(test, "loader.bytes_read") / MIB / seconds)
            return out

        return [(key_of(share), 2 * repetitions * (6 + 0.05 * tokens), lambda share=share: at(share))
                for share in FORMS[a.form]["swap_shares"]]

    @staticmethod
    def tables(_a, results):
        rows = [(f"{f['share']} %", f"{f['swapmoe']['tps']:.2f}", f"{f['pruned']['tps']:.2f}",
                 m.ratio_text(f["latency"]), f["waits"], f["swaps"],
                 f"{f['traffic_mib_s']:.1f}") for f in sorted(results.values(), key=lambda f: f["share"])]
        return m.table(("experts", "swapmoe t/s", "pruned t/s", "time per token, swapmoe/pruned", "accesses that "
                        "waited", "swaps", "swap traffic MiB/s"), rows)

    @staticmethod
    def verdicts(a, results):
        whats = ("swapmoe: decode never waits for storage", "swapmoe: latency within 5 % of pruned of the same size")
        if not results:
            return [missing(w, a, "swapmoe") for w in whats]
        waits = sum(f["waits"] for f in results.values())
        inside = all(f["latency"][1] > 0.95 and f["latency"][2] < 1.05 for f in results.values())
        return [(whats[0], state(waits == 0), f"{waits:.0f} uses that waited"),
                (whats[1], state(inside),
                 "; ".join(f"{f['share']} %: {m.ratio_text(f['latency'])}" for f in results.values()))]
