#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every shape of sluice synth in the types of a real file, with llama.cpp (README.md of this directory).

    tests/peers/compare_shapes.py --peer DIR -o WORK [SHAPE ...] [--type Q4_K_M] [--tokens 256] [--window 128]

Few layers of each shape, all kinds among them. Q4_K_M, and MXFP4 for gpt-oss. Per row: the types of the tensors are those
that llama.cpp's quantiser chooses, llama.cpp opens the file, and the losses of the tokens agree (compare_arch.py). The rows
are kept in WORK/shapes.json: the same call resumes, one with other options computes its own. A file is removed after its row; the largest has 6 GB. Markdown on
stdout, progress on stderr. SHAPE may have keys that replace some of the shape's (dbrx,layers=1,vocab=32768). Exit status: 0 all rows within the bounds, 1 one is not."""
import argparse
import json
import os
import statistics
import sys

import compare_arch
from compare_arch import m

FILE_TYPES = {"Q4_K_M": 15, "MXFP4": 38}
# what is cut; a shape of shapes.tbl.h that is not here has 2 layers
CUT = {
    "gemma-4-26b-a4b": ["layers=2", "full_every=2"],   # one with a window, one without
    "qwen3.6-35b-a3b": ["layers=4"],                   # three recurrent ones, one with attention
    "qwen3-next-80b": ["layers=4"],
    "lfm2-8b-a1b": ["layers=4"],                       # two dense, two with experts; three convolutions, one attention
    "smallthinker-21b-a3b": ["layers=5"],              # one without a window
    "deepseek-v2-lite": ["experts=12"],                # llama.cpp takes it for V2-Lite by its 27 layers
    "deepseek-v3": ["layers=2", "dense_layers=1", "experts=64"],
    "kimi-k2": ["layers=2", "experts=64"],
    "granite-4.0-h-tiny": ["layers=3", "attention_step=3"],   # two recurrent ones, one with attention
    "granite-4.0-h-small": ["layers=3", "attention_step=3"],
    "nemotron-3-nano": ["layers=4", "pattern=ME*E"],
    "kimi-linear-48b": ["layers=4"],                   # one dense; three recurrent ones, one with latents
    "ling-3.0-tiny": ["layers=4"],
    "ling-3.0-flash": ["layers=6", "dense_layers=5"],
    "step-3.5-flash": ["layers=2", "dense_layers=1", "full_every=2"],
    "laguna-xs.2": ["layers=4"],
    "trinity-mini": ["layers=4", "dense_layers=2"],
    "maple-20b": ["layers=4"],
    "mellum2-12b": ["layers=4"],
    "mimo-v2-flash": ["layers=3", "dense_layers=1", "full_every=3"],
    "north-mini-code": ["layers=4"],
    "k-exaone-236b": ["layers=4", "dense_layers=2"],
    "hy3-295b": ["layers=2"],
    "mistral-small-4": ["layers=2"],
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shapes", nargs="*", metavar="SHAPE")
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-o", "--out", required=True, help="for a model at a time, and the finished rows")
    p.add_argument("--exact", action="store_true", help="also how far both are from the same weights in F32, a larger file")
    p.add_argument("--type", choices=FILE_TYPES, help="instead of each shape's own")
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--window", type=int, default=128, help="tokens that are computed together; scored: all but the first")
    p.add_argument("--seed", type=int, default=1, help="of the token ids")
    p.add_argument("--median", type=float, default=0.02, help="bound of the median difference")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = p.parse_args()
    a.models, a.mean = ["a shape"], float("inf")  # of compare_arch: a file that is not opened is an error
    return a


def every_shape():
    """The names in the help text of synth, which has a line per shape."""
    lines = m.run([m.program("synth"), "--help"]).split("\nShapes:\n")[1].split("\n\n")[0].splitlines()
    return [x.split()[0] for x in lines]


def peer(a, *words):
    return m.run_json([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(compare_arch.HERE, "llama.py"), *words])


def errors(a, path):
    """Median differences of the losses of sluice and of llama.cpp from those of the same weights in F32."""
    ids = os.path.join(a.out, "compare.ids.json")
    both = [compare_arch.sluice_side(a, path, ids)[0], compare_arch.llama_side(a, path, ids)["nll_per_token"]]
    peer(a, "dequantise", path, path + ".f32")
    try:
        exact = compare_arch.sluice_side(a, path + ".f32", ids)[0]
    finally:
        os.remove(path + ".f32")
    return [statistics.median(abs(x - y) for x, y in zip(losses, exact, strict=True)) for losses in both]


def compare(a, name):
    shape, *keys = name.split(",")
    arch = m.run_json([m.program("synth"), "--dry-run", "--output", "json", shape])["arch"]
    kind = a.type or ("MXFP4" if arch == "gpt-oss" else "Q4_K_M")
    cut = CUT.get(shape, ["layers=2"]) + keys
    path = os.path.join(a.out, shape + ".gguf")
    made = m.run_json([m.program("synth"), "-q", "-o", path, shape, *cut, "--type", kind, "--output", "json"])
    try:
        types = peer(a, "types", path, str(FILE_TYPES[kind]), path + ".f16")
        row = compare_arch.compare(a, path)
        if a.exact:
            row["errors"] = errors(a, path)
    finally:
        os.remove(path)
    row |= {"model": shape, "type": kind, "cut": " ".join(cut), "bytes": made["bytes"], "tensors": types["tensors"],
            "other_types": types["others"]}
    row["good"] = not row["other_types"] and row.get("median", a.median + 1) <= a.median
    return row


def line(r):
    types = "equal" if not r["other_types"] else f"{len(r['other_types'])} of {r['tensors']} differ"
    head = [f"`{r['model']}`", f"{r['type']}, {r['cut']}", f"{r['bytes'] / 1e9:.2f}", types]
    if "not_opened" in r:
        return [*head, "", "", "", "", "", "not opened: " + r["not_opened"], ""]
    return [*head, f"{r['nll']:.2f}", f"{r['median']:.4f}", f"{r['mean']:.4f}", f"{r['maximum']:.3f}",
            f"{100 * r['equal_best']:.1f} %", "yes" if r["good"] else "NO",
            ", ".join(f"{x:.4f}" for x in r.get("errors", []))]


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    store = os.path.join(a.out, "shapes.json")
    rows = m.read_json(store) if os.path.exists(store) else {}
    shown = []
    for shape in a.shapes or every_shape():
        options = [f"{name}={getattr(a, name)}" for name in ("type", "tokens", "window", "seed", "median", "exact")]
        key = " ".join([shape, *CUT.get(shape.split(",")[0], []), *options])
        if key not in rows:
            rows[key] = compare(a, shape)
            m.write_json(store, rows)
        shown.append(rows[key])
        m.say(shape, json.dumps(rows[key]))
    print("\n".join(m.table(["shape", "type, cut", "GB", "types", "mean loss", "median difference", "mean", "maximum",
                             "same best token", "within the bounds", "from exact: sluice, llama.cpp"], map(line, shown))))
    return 0 if all(r["good"] for r in shown) else 1


sys.exit(main())
