# SPDX-License-Identifier: Apache-2.0
"""Compares auto with the two best presets of every cell: budgets x devices x allowed losses. `sluice sim` selects
these baselines on a trace of the same model, with the compute times of the profile and the device of the cell."""
import measuring as m
from measure_speed import DEVICES, MIB, WARMUP, variant_results, bench, key_of, missing, state

REPETITIONS = 3 # or a multiple: see measuring.interleaved_ratio

# tokens, repetitions, cells: experts resident in percent, device, loss in percent
FORMS = {
    "short": (8, REPETITIONS, [(18.75, "200 MB/s", 1), (75, "200 MB/s", 0), (18.75, "unthrottled", 0),
                     (75, "unthrottled", 1)]),
    # quick cells first
    "long": (32, 6, [(share, device, loss) for device in reversed(DEVICES) for share in (75, 50, 25, 18.75)
                     for loss in (5, 1, 0)]),
    "try": (8, REPETITIONS, [(50, "200 MB/s", 0), (50, "unthrottled", 1)]),
}
# If sim expects faster tokens than FAST_MS, a repetition of the long form has FAST_TOKENS: 32 would take less than a
# second, and the interval would be too wide for the target.
FAST_MS, FAST_TOKENS = 25, 128
LOSSLESS = ("lod-nocache", "lod", "default", "eap", "layerwise")
LOSSY = {"edgemoe": "edgemoe_loss_high", "hobbit": "hobbit_loss_high", "fate": "fate_loss_high",
         "iq8": "uniform_int8_loss_high", "iq4": "uniform_int4_loss_high", "iq2": "uniform_int2_loss_high"}


def device_rate(a):
    """Read bandwidth by `sluice doctor` on the model, measured once per run."""
    def measure(path):
        model = a.assets.synth("precisions")
        m.write_json(path, m.sluice("doctor", "--path", model, "--seconds", 5, "-o", "json")["device"])
    return m.read_json(a.assets.made("device.json", measure))["bytes_per_s"]


def presets(a, loss):
    """Presets within this loss, by the plan of the demo model: random weights have no meaningful loss."""
    if loss == 0:
        return list(LOSSLESS)
    known = a.assets.scalars(a.assets.plan(loss))
    return list(LOSSLESS) + [name for name, scalar in LOSSY.items() if known.get(scalar, 1e9) <= loss / 100]


def rivals(a, share, device, loss):
    """The two presets with the shortest time per token in the simulator, and all simulated ones."""
    times = a.assets.scalars(a.assets.profile())
    layer = (times["layer_attention_ns"] + times["layer_router_ns"]) / 1e3
    expert = times["layer_experts_ns"] / 1e3 / a.assets.model(a.assets.synth("precisions"))["experts_used"]
    doc = m.sluice("sim", a.assets.synth_trace(), "--plan", a.assets.plan(loss), "--presets",
                   ",".join(presets(a, loss)), "--budgets", f"{share:g}%", "--read-bandwidth",
                   f"{DEVICES[device] or device_rate(a):.0f}", "--layer-us", f"{layer:.1f}", "--expert-us",
                   f"{expert:.1f}", "--output", "json")
    simulated = sorted((r["token_ms"], r["preset"]) for r in doc["results"])
    return [preset for _, preset in simulated[:2]], simulated


def repetitions_at(a, device, loss):
    """Three repetitions suffice for lossy presets at 200 MB/s: they are long and their tokens are similar."""
    return REPETITIONS if device == "200 MB/s" and loss > 0 else FORMS[a.form][1]


def tokens_of(a, simulated):
    return FAST_TOKENS if a.form == "long" and simulated[0][0] < FAST_MS else FORMS[a.form][0]


def cell(a, share, device, loss):
    chosen, simulated = rivals(a, share, device, loss)
    tokens, repetitions = tokens_of(a, simulated), repetitions_at(a, device, loss)
    plan = a.assets.plan(loss)
    common = [f"plan={plan}", f"resident_experts={share:g}"]
    variants = {"auto": ["preset=auto", *common, *([f"max_loss={loss:g}"] if loss else [])]}
    variants.update({preset: [f"preset={preset}", *common] for preset in chosen})
    doc = bench(a, tokens, repetitions, variants, "--throttle", DEVICES[device], warmup_tokens=WARMUP)
    figures = {label: variant_results(doc, label) for label in variants}
    best = max(chosen, key=lambda s: figures[s]["tps"])
    return {"share": share, "device": device, "loss": loss, "sim": simulated, "rivals": chosen, "best": best,
            "variants": figures, "ratio": m.interleaved_ratio(figures["auto"]["samples"], figures[best]["samples"])}


def cells(a):
    tokens, _, grid = FORMS[a.form]
    cost = {"200 MB/s": 0.5, "1 GB/s": 0.15, "unthrottled": 0.12}
    return [(key_of(f"{share:g}", device, f"{loss}%"), 3 * repetitions_at(a, device, loss) * (3 + cost[device] * (tokens + WARMUP)),
             lambda share=share, device=device, loss=loss: cell(a, share, device, loss))
            for share, device, loss in grid]


def in_order(results):
    return sorted(results.values(), key=lambda f: (list(DEVICES).index(f["device"]), f["share"], f["loss"]))


def tables(_a, results):
    rows = []
    for f in in_order(results):
        variants = f["variants"]
        others = ", ".join(f"{s} {variants[s]['tps']:.3f}" for s in f["rivals"])
        rows.append((f["device"], f"{f['share']:g} %", f"{f['loss']} %", f"{variants['auto']['tps']:.3f}",
                     ", ".join(variants["auto"]["ran"]), others,
                     m.ratio_text(f["ratio"]), f"{variants['auto']['read_bytes'] / MIB:.1f}",
                     f"{variants[f['best']]['read_bytes'] / MIB:.1f}"))
    return m.table(("device", "experts", "loss", "auto t/s", "auto ran", "baselines by sim, t/s", "auto/best baseline",
                    "auto MiB/token", "baseline MiB/token"), rows)


def verdicts(a, results):
    what = ("auto: lower end of the ratio to the best rival > 0.95 in 90 % of the cells",
            "auto: no cell whose upper end is < 0.97")
    if not results:
        return [missing(w, a, "auto") for w in what]
    good = sum(f["ratio"][1] > 0.95 for f in results.values())
    bad = [f"{f['share']:g} %, {f['device']}, {f['loss']} %: {m.ratio_text(f['ratio'])}"
           for f in in_order(results) if f["ratio"][2] < 0.97]
    wanted = len(FORMS[a.form][2])
    of = f"{len(results)} cells" + (f" of {wanted}: the rest is not measured" if len(results) < wanted else "")
    if a.form != "long":
        of += "; the whole grid is the long form's"
    return [(what[0], state(good >= 0.9 * len(results)), f"{good} of {of}"),
            (what[1], state(not bad), "; ".join(bad) or of)]
