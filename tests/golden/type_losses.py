#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/type_losses.json: losses per token of llama.cpp on small random models of every mix of sluice synth, for
the scenario types, which makes the same models.

    tests/peers/setup.sh DIR
    DIR/venv/bin/python tests/golden/type_losses.py build/libexec/sluice-synth tests/golden/data/type_losses.json

Models are not stored, because synth's files are a function of its arguments: after a change of synth's random numbers
these losses must be written again."""
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PINNED = "0.3.36"
SHAPE = ["tiny", "layers=2", "hidden=256", "heads=4", "kv_heads=2", "head_size=64", "vocab=600", "experts=6",
         "experts_used=2", "expert_inner=256", "skew=0.3", "locality=0.4"]
MIXES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L",
         "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M",
         "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0", "MXFP4", "NVFP4", "Q8_0,IQ2_XXS"]
WINDOW, TOKENS = 64, 128


def losses(path, ids_path):
    script = os.path.join(os.path.dirname(HERE), "peers", "llama.py")
    done = subprocess.run([sys.executable, script, "score", path, ids_path, str(WINDOW), "2"], check=True,
                          stdout=subprocess.PIPE)
    return [round(x, 5) for x in json.loads(done.stdout)["nll_per_token"]]


def main():
    synth, target = sys.argv[1:]
    version = importlib.metadata.version("llama_cpp_python")
    if version != PINNED:
        raise SystemExit(f"llama_cpp_python {version} is installed; these vectors are made with {PINNED}")
    draw = random.Random(24)
    ids = [draw.randrange(600) for _ in range(TOKENS)]
    mixes = {}
    with tempfile.TemporaryDirectory() as directory:
        path, ids_path = directory + "/model.gguf", directory + "/ids.json"
        with open(ids_path, "w", encoding="ascii") as f:
            json.dump({"ids": ids}, f)
        for name in MIXES:
            subprocess.run([synth, "-q", "-o", path, *SHAPE, "--type", name], check=True, stdout=subprocess.DEVNULL)
            mixes[name] = losses(path, ids_path)
    with open(target, "w", encoding="ascii") as out:
        json.dump({"llama_cpp_python": version, "shape": SHAPE, "window": WINDOW, "ids": ids, "mixes": mixes}, out,
                  separators=(",", ":"))
        out.write("\n")


main()
