"""The parts of measure.py that time one question each: bound, llama, hobbit, fate, swapmoe."""
import argparse
import os
import subprocess
import tempfile

import bound
import llama_compare
import measuring as m

MIB = 2**20
HELD, NOT_HELD, NOT_MEASURED, SHOWN = "held", "not held", "not measured", "measured"

# tokens, repetitions (where it can be, a multiple of the arms: measuring.turn_ratio), and what else differs between the
# forms
FORMS = {
    "short": {"bound": (32, 3), "llama": (2, 2), "hobbit": (12, 6), "fate": (8, 2), "swapmoe": (24, 6),
              "hobbit_shares": (25,), "fate_shares": (50,), "swap_shares": (50,)},
    "long": {"bound": (64, 9), "llama": (8, 5), "hobbit": (32, 9), "fate": (24, 5), "swapmoe": (128, 8),
             "hobbit_shares": (25, 50), "fate_shares": (25, 50, 75), "swap_shares": (25, 50, 75)},
    "try": {"bound": (8, 2), "llama": (2, 1), "hobbit": (8, 2), "fate": (8, 2), "swapmoe": (8, 2),
            "hobbit_shares": (50,), "fate_shares": (50,), "swap_shares": (50,)},
}
TURN = 4 # tokens that an arm decodes before it is the next one's turn
WARMUP = 12 # tokens: enough to fill the room, little enough to be worth it on a slow drive
DRIVES = {"200 MB/s": 200_000_000, "1 GB/s": 1_000_000_000, "unthrottled": 0}


def key_of(*words):
    return "-".join(str(w).replace(" ", "").replace("/", "p") for w in words)


def state(held):
    return HELD if held else NOT_HELD


def missing(what, a, part):
    why = "" if part in a.parts else " (not asked for)"
    return (what, NOT_MEASURED, f"no figures{why}")


def bench(a, tokens, repetitions, arms, *more, warmup_tokens=None):
    argv = ["bench", "-m", a.assets.store(), "-p", 0, "-n", tokens, "-r", repetitions, "--threads", a.threads,
            "-o", "json", "--turns", TURN, *more]
    if warmup_tokens:
        argv += ["--warmup-tokens", warmup_tokens]
    for label, settings in arms.items():
        argv += ["--arm", f"label={label};" + ";".join(settings)]
    return m.sluice(*argv)


def arm_figures(doc, label):
    """What a table wants of an arm, and all its samples."""
    t = m.arm_test(doc, label)
    hinted, missed = m.counter(t, "cache.hint_entries"), m.counter(t, "cache.hints_missing")
    return {"tps": t["tps_median"], "rates": m.rates(t), "read_bytes": t["bytes_read_per_token"],
            "hit": t["hit_percent"], "late": t["late_percent"], "miss": t["miss_percent"],
            "skipped": t["skipped_percent"], "low": t["low_tier_percent"], "hinted": hinted, "hints_missing": missed,
            "sent": m.counter(t, "cache.prefetches"), "in_time": m.counter(t, "cache.hints_in_time"),
            "late_hints": m.counter(t, "cache.hints_late"), "expired": m.counter(t, "cache.hints_expired"),
            "recall_hits": m.counter(t, "predictor.recall_hits"),
            "recall_uses": m.counter(t, "predictor.recall_uses"),
            "ran": sorted({s["system"] for s in t["samples"]}), "samples": t["samples"]}


def share_of(a, b):
    return f"{100 * a / b:.1f} %" if b else "-"


# ---- bound ----------------------------------------------------------------------------------------


class Bound:
    @staticmethod
    def settings(a):
        tokens, repetitions = FORMS[a.form]["bound"]
        return argparse.Namespace(model=a.assets.synth("plain"), python=a.python, systems="default",
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
            with tempfile.TemporaryDirectory(dir=a.out) as scratch:
                return bound.share_figures(s, a.assets.model(s.model), share, compute, scratch)

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
            what = f"bound: lossless decode at {share} % reaches 0.8 of 1/max(t_compute, b ÷ drive)"
            f = results.get(share)
            out.append(missing(what, a, "bound") if not f else
                       (what, state(f["reached"] >= 0.8),
                        f"{f['reached']:.3f} ({f['reached_low']:.3f} to {f['reached_high']:.3f}), drive "
                        f"{min(f['drives']) / 1e6:.0f} to {max(f['drives']) / 1e6:.0f} MB/s"))
        return out


# ---- llama ----------------------------------------------------------------------------------------


class Llama:
    @staticmethod
    def reason(a):
        """Why it cannot be measured here; None when it can."""
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
                                   repetitions=repetitions, threads=a.threads)
            with tempfile.TemporaryDirectory(dir=a.out) as scratch:
                return llama_compare.share_figures(s, a.assets.model(model), share, scratch)

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
                out.append((what, state(f["ratio"][1] > 8), m.ratio_text(f["ratio"])))
            else:
                out.append((what, NOT_MEASURED, Llama.reason(a) or "no figures"))
        return out


# ---- hobbit ---------------------------------------------------------------------------------------

# on: as planned. off: everything else alike, only that every use wants the better tier. off, whole room: the
# part of the room that is the lower tier's is given to the better one, so that off is not robbed of it.
HOBBIT_ARMS = {"on": "", "off": "knobs=precision=lossless",
               "off, whole room": "knobs=precision=lossless,allocation=shared"}


class Hobbit:
    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["hobbit"]

        def at(share):
            plan = a.assets.plan(1)
            arms = {label: ["system=hobbit", f"plan={plan}", f"experts={share}", *([knobs] if knobs else [])]
                    for label, knobs in HOBBIT_ARMS.items()}
            doc = bench(a, tokens, repetitions, arms, "--throttle", 500_000_000, warmup_tokens=WARMUP)
            out = {label: arm_figures(doc, label) for label in arms}
            out["share"] = share
            out["ratios"] = {label: m.turn_ratio(out["on"]["samples"], out[label]["samples"])
                             for label in arms if label != "on"}
            return out

        return [(key_of(share), 3 * repetitions * (3 + 0.3 * (tokens + WARMUP)), lambda share=share: at(share))
                for share in FORMS[a.form]["hobbit_shares"]]

    @staticmethod
    def tables(_a, results):
        rows = []
        for f in results.values():
            for label in HOBBIT_ARMS:
                r = f[label]
                rows.append((label, f"{f['share']} %", f"{r['tps']:.3f}", f"{r['read_bytes'] / MIB:.1f}",
                             f"{r['hit']:.1f} %", f"{r['low']:.1f} %", f"{r['skipped']:.1f} %",
                             m.ratio_text(f["ratios"][label]) if label != "on" else "-"))
        return ["Dynamic loading (native and int2 by gate weight) at 500 MB/s; `on by it` is the ratio of decode.",
                "", *m.table(("arm", "experts", "decode t/s", "read MiB/token", "hits", "low tier", "skipped",
                              "on by it"), rows)]

    @staticmethod
    def verdicts(a, results):
        what = "hobbit: decode with dynamic loading by without, at 500 MB/s, lower end > 1.10"
        if not results:
            return [missing(what, a, "hobbit")]
        least = {k: min(f["ratios"].values(), key=lambda r: r[1]) for k, f in results.items()}
        text = "; ".join(f"{k} %: {m.ratio_text(r)}, {results[k]['on']['read_bytes'] / MIB:.1f} against "
                         f"{results[k]['off']['read_bytes'] / MIB:.1f} MiB a token" for k, r in least.items())
        return [(what, state(all(r[1] > 1.10 for r in least.values())), text)]


# ---- fate -----------------------------------------------------------------------------------------

FATE_ARMS = {"fate": ["system=fate"], "fate, native": ["system=fate", "knobs=precision=lossless"],
             "lod-nocache": ["system=lod-nocache"], "lod": ["system=lod"], "eap": ["system=eap"]}


class Fate:
    @staticmethod
    def cells(a):
        tokens, repetitions = FORMS[a.form]["fate"]

        def at(share, drive):
            plan = a.assets.plan(1)
            arms = {label: [*s, f"plan={plan}", f"experts={share}"] for label, s in FATE_ARMS.items()}
            doc = bench(a, tokens, repetitions, arms, "--throttle", DRIVES[drive], warmup_tokens=WARMUP)
            out = {label: arm_figures(doc, label) for label in arms}
            out.update(share=share, drive=drive, ratios={
                f"{fate} by {label}": m.turn_ratio(out[fate]["samples"], out[label]["samples"])
                for fate in ("fate", "fate, native") for label in ("lod-nocache", "lod", "eap")})
            return out

        cost = {"200 MB/s": 0.7, "1 GB/s": 0.2, "unthrottled": 0.15}
        return [(key_of(share, drive), len(FATE_ARMS) * repetitions * (3 + cost[drive] * (tokens + WARMUP)),
                 lambda share=share, drive=drive: at(share, drive))
                for share in FORMS[a.form]["fate_shares"] for drive in DRIVES]

    @staticmethod
    def in_order(results):
        return sorted(results.values(), key=lambda f: (f["share"], list(DRIVES).index(f["drive"])))

    @staticmethod
    def tables(_a, results):
        rows, ratios = [], []
        for f in Fate.in_order(results):
            for label in FATE_ARMS:
                r = f[label]
                rows.append((label, f"{f['share']} %", f["drive"], f"{r['tps']:.3f}", f"{r['hit']:.1f} %",
                             f"{r['read_bytes'] / MIB:.1f}", share_of(r["recall_hits"], r["recall_uses"]),
                             r["hints_missing"], r["sent"], share_of(r["in_time"], r["hints_missing"]),
                             r["late_hints"], r["expired"]))
            ratios.append((f"{f['share']} %, {f['drive']}", *(m.ratio_text(r) for r in f["ratios"].values())))
        first = next(iter(results.values()), None)
        return m.table(("arm", "experts", "drive", "decode t/s", "hits", "read MiB/token", "recall", "missing of "
                        "the lists", "sent", "in time, of missing", "late", "expired"), rows) + [""] + (
                            m.table(("decode", *first["ratios"]), ratios) if first else [])

    @staticmethod
    def verdicts(a, results):
        what = "fate: share of the list fetched in time under n at 200 MB/s, 1 GB/s, unthrottled"
        if not results:
            return [missing(what, a, "fate")]
        named = {f"{f['share']} %, {f['drive']}: ": f for f in Fate.in_order(results)}
        text = "; ".join(k + share_of(f["fate, native"]["in_time"], f["fate, native"]["hints_missing"])
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
            arms = {s: [f"system={s}", f"plan={plan}", f"experts={share}"] for s in ("swapmoe", "pruned")}
            arms["swapmoe"].append(f"knobs=interval={SWAP_INTERVAL[a.form]}")
            doc = bench(a, tokens, repetitions, arms, "--warmup", 2, warmup_tokens=48)
            out = {label: arm_figures(doc, label) for label in arms}
            test = m.arm_test(doc, "swapmoe")
            seconds = sum(s["ms"] for s in test["samples"]) / 1e3
            out.update(share=share, latency=m.turn_ratio(out["pruned"]["samples"], out["swapmoe"]["samples"]),
                       waits=sum(s["misses"] + s["late"] for s in test["samples"]),
                       swaps=m.counter(test, "cache.swaps"),
                       traffic_mib_s=m.counter(test, "loader.bytes_read") / MIB / seconds)
            return out

        return [(key_of(share), 2 * repetitions * (6 + 0.05 * tokens), lambda share=share: at(share))
                for share in FORMS[a.form]["swap_shares"]]

    @staticmethod
    def tables(_a, results):
        rows = [(f"{f['share']} %", f"{f['swapmoe']['tps']:.2f}", f"{f['pruned']['tps']:.2f}",
                 m.ratio_text(f["latency"]), f["waits"], f["swaps"],
                 f"{f['traffic_mib_s']:.1f}") for f in sorted(results.values(), key=lambda f: f["share"])]
        return m.table(("experts", "swapmoe t/s", "pruned t/s", "time of a token, swapmoe by pruned", "uses that "
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
