# SPDX-License-Identifier: Apache-2.0
"""Model, store, plans and tables of the papers' parts."""
import os

import measuring as m

# A model of OLMoE's routing (64 experts, 8 used) with small matrices, so that one machine measures all cells in an
# hour; Q8_0, so that int4 and int2 are about a half and a quarter of it. 0.86 GB of experts.
SHAPE = ("olmoe-1b-7b", "layers=8", "hidden=1024", "heads=8", "kv_heads=8", "expert_inner=512", "vocab=8192")
TRY_SHAPE = ("tiny", "layers=4", "experts=32", "hidden=256", "expert_inner=512")

# Shares of experts per precision that the demo model keeps to at each allowed loss (docs/lab/quality.md); random weights
# have no meaningful loss. HOBBIT's and Fate's: as planned for the demo model, and as the paper has it.
EDGEMOE = {2: "int4=0.715,int2=0.285", 5: "int4=0.406,int2=0.594", 20: "int2=1"}
HOBBIT = "native=0.478,int2=0.402,skip=0.12"
FATE = "int4=0.75,int2=0.25"

DEVICES = {"200 MB/s": 200_000_000, "1 GB/s": 1_000_000_000, "unthrottled": 0}
WARMUP = 12 # tokens
MIB = 2**20


def model(a):
    shape = TRY_SHAPE if a.form == "try" else SHAPE
    return a.assets.made("papers.gguf", lambda path: m.run(
        [m.program("synth"), "-q", "-o", path, *shape, "--type", "Q8_0", "--pure"]))


def store(a):
    source = model(a)
    path = source[:-len(".gguf")] + ".store"
    if not os.path.exists(os.path.join(path, "manifest.json")):
        m.run([m.program("pack"), "-m", source, "-o", path, "--precisions", "native,int4,int2", "--method", "channel",
               "--quiet"])
    return path


def profile(a):
    return a.assets.made("papers.profile", lambda path: m.run(
        [m.program("profile"), "-m", model(a), "--synthetic", "--tokens", "2048", "-o", path]))


def plan(a, loss):
    """Plan with edgemoe's precisions for this loss, and hobbit and fate."""
    def make(path):
        base, source = [m.program("plan"), "-m", model(a)], profile(a)
        for preset, shares in (("edgemoe", EDGEMOE[loss]), ("hobbit", HOBBIT), ("fate", FATE)):
            m.run(base + ["--profile", source, "--preset", preset, "--shares", shares, "--max-loss", f"{loss}%",
                          "-o", path])
            source = path
    return a.assets.made(f"papers-{loss}.plan", make)


def bench(a, variants, *options):
    """variants: {label: [NAME=VALUE, ...]}. The rates of each, paired by repetition or slice."""
    argv = ["bench", "-m", store(a), "--threads", a.threads, "-o", "json", *options]
    for label, settings in variants.items():
        argv += ["--variant", f"label={label};" + ";".join(settings)]
    return m.sluice(*argv)


def policy(**settings):
    return "policy=" + ",".join(f"{k}={v}" for k, v in settings.items())


def decode(a, variants, repetitions, tokens, device, slices=4, warmup=WARMUP):
    doc = bench(a, variants, "-p", 0, "-n", tokens, "-r", repetitions, "--interleave", slices, "--throttle",
                DEVICES[device], "--warmup-tokens", warmup)
    return {label: figures(m.variant_test(doc, label)) for label in variants}


def figures(test):
    samples = test["samples"]
    return {"tps": test["tps_median"], "samples": samples, "hit": test["hit_percent"],
            "read_mib": test["bytes_read_per_token"] / MIB, "peak_mib": test["peak_mib"],
            "prefetches": m.counter(test, "cache.prefetches"), "used": m.counter(test, "cache.prefetches_used")}


def ratio(f, one, other):
    return m.interleaved_ratio(f[one]["samples"], f[other]["samples"])


def key_of(*words):
    return "-".join(str(w).replace(" ", "").replace("/", "p") for w in words)


def decode_cells(forms, form, variants, cost, measure):
    """A cell per device and share; cost: seconds per token by device. measure(share, device)."""
    tokens, repetitions, shares = forms[form]
    return [(key_of(share, device), variants * repetitions * (3 + cost[device] * (tokens + WARMUP)),
             lambda share=share, device=device: measure(share, device)) for device in DEVICES for share in shares]


def in_order(results):
    return sorted(results.values(), key=lambda f: (list(DEVICES).index(f["device"]), f["share"], f.get("tokens", 0)))


def cell(f):
    return f"{f['share']} %, {f['device']}"
