# SPDX-License-Identifier: Apache-2.0
"""Inputs for the parts of measure.py, made on first request and stored in DIR/assets."""
import json
import os

import measuring as m

DEMO = os.path.join(m.ROOT, "launch", "demo", "tiny-books-moe-q8_0.gguf")
CALIB = os.path.join(m.ROOT, "launch", "demo", "calib.txt")
HELDOUT = os.path.join(m.ROOT, "tests", "golden", "data", "heldout")
TEXTS = ("drama", "novel", "science", "tales")

# Shapes of the models with random weights. plain: lossless presets, one file. precisions: a store whose lower
# precisions have about a half and a quarter of the bytes of native, as HOBBIT's rule needs.
SHAPES = {
    "short": {"plain": ("Q4_0", "olmoe-1b-7b", "layers=10"), "precisions": ("Q8_0", "olmoe-1b-7b", "layers=3")},
    "long": {"plain": ("Q4_0", "olmoe-1b-7b", "layers=16"), "precisions": ("Q8_0", "olmoe-1b-7b", "layers=5")},
    "try": {kind: (quant, "tiny", "layers=4", "experts=32", "hidden=256", "expert_inner=512")
            for kind, quant in (("plain", "Q4_0"), ("precisions", "Q8_0"))},
}

# Key: loss in percent. Shares of accesses per precision in plans of the demo model at that loss (docs/lab/quality.md),
# because random weights have no meaningful loss. HOBBIT and Fate were not planned at 5 %: their 1 % plans are used.
SHARES = {
    1: (("edgemoe", "int4=0.953,int2=0.047", 1), ("hobbit", "native=0.478,int2=0.402,skip=0.12", 1),
        ("fate", "int4=0.75,int2=0.25", 1), ("uniform", "int4=1", 0.65)),
    5: (("edgemoe", "int4=0.406,int2=0.594", 5), ("hobbit", "native=0.478,int2=0.402,skip=0.12", 1),
        ("fate", "int4=0.75,int2=0.25", 1), ("uniform", "int4=1", 0.65)),
}


class Assets:
    def __init__(self, a):
        self.a = a
        self.folder = os.path.join(a.out, "assets")
        self.models = {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def made(self, name, make):
        """Path of a file; calls make(path) if it does not exist or was not finished."""
        path = self.path(name)
        if not os.path.exists(path + ".done"):
            m.say(f"making {name}")
            make(path)
            with open(path + ".done", "w", encoding="ascii"):
                pass
        return path

    def synth(self, kind):
        quant, *shape = SHAPES[self.a.form][kind]
        name = "-".join(shape[:2]).replace("=", "") + f"-{quant}.gguf"
        return self.made(name, lambda path: m.run([m.program("synth"), "-q", "-o", path, *shape, "--type", quant, "--pure"]))

    def store(self):
        """Packing resumes after an interruption: the store has a journal."""
        source = self.synth("precisions")
        path = source[:-len(".gguf")] + ".store"
        if not os.path.exists(os.path.join(path, "manifest.json")):
            m.say("packing a store with native, int4 and int2: minutes")
            m.run([m.program("pack"), "-m", source, "-o", path, "--precisions", "native,int4,int2", "--method",
                   "channel", "--quiet"])
        return path

    def profile(self):
        tokens = {"short": "512", "long": "2048", "try": "512"}[self.a.form]
        return self.made("synth.profile", lambda path: m.run(
            [m.program("profile"), "-m", self.synth("precisions"), "--synthetic", "--tokens", tokens, "-o", path]))

    def plan(self, loss):
        """A plan with the shares of the demo model at that loss in percent; 0: only what auto needs."""
        return self.made(f"synth-{loss:g}.plan", lambda path: self.make_plan(path, loss))

    def make_plan(self, path, loss):
        """The decisions with their losses, then the predictions for auto."""
        base = [m.program("plan"), "-m", self.synth("precisions")]
        profile = self.profile()
        for preset, shares, stands_for in SHARES.get(loss, ()):
            m.run(base + ["--profile", profile, "--preset", preset, "--shares", shares, "--max-loss",
                          f"{stands_for}%", "-o", path])
            profile = path
        m.run(base + ["--profile", profile, "--preset", "auto", "-o", path])

    def scalars(self, path):
        with open(path, encoding="utf-8") as f:
            return json.load(f).get("scalars", {})

    def synth_trace(self):
        """Accesses of the random model with predictions, from which sim selects the baselines of auto."""
        tokens = 160 if self.a.form == "long" else 80
        return self.made("synth.trace", lambda path: m.sluice(
            "bench", "-m", self.store(), "-p", 0, "-n", tokens, "-r", 1, "--warmup", 0, "--deterministic", "on",
            "--preset", "hobbit", "--policy", "precision=lossless,allocation=shared,lookahead=2", "--threads",
            self.a.threads, "--trace", path, "-o", "json"))

    def model(self, path):
        if path not in self.models:
            self.models[path] = m.model_of(path)
        return self.models[path]

    # ---- traces of the demo model ----

    def demo_forced(self, text, preset):
        """Held-out text as forced tokens, four sequences, with the predictions of `preset`."""
        tokens = 100 if self.a.form == "try" else 1100
        knobs = "eviction=learned,precision=lossless,allocation=shared" + (",lookahead=4" if preset == "hobbit" else "")
        return self.made(f"{text}-{preset}-{tokens}.trace", lambda path: m.sluice(
            "bench", "-m", DEMO, "--budget", "64MiB", "-p", 0, "-n", tokens, "-r", 1, "--warmup", 3, "--text",
            os.path.join(HELDOUT, text + ".txt"), "--deterministic", "on", "--preset", preset, "--policy", knobs,
            "--trace", path, "-o", "json"))

    def demo_sampled(self, seed):
        tokens = 200 if self.a.form == "try" else 2000
        prompt = ("It was a dark and stormy night, and", "The origin of species", "Once upon a time")[seed % 3]
        return self.made(f"sampled-{seed}-{tokens}.trace", lambda path: m.sluice(
            "generate", "-m", DEMO, "--budget", "64MiB", "--preset", "lod", "--eviction", "learned", "--trace", path, "-p",
            prompt, "-n", tokens, "--temp", 0.8, "--seed", seed, "--ignore-eos", "--output", "json", "-q"))
