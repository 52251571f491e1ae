#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/mixes.json: the tensor types that llama.cpp's quantiser chooses for small models of several shapes,
for the unit test of sluice synth's mixes.

    venv: tests/peers/README.md
    venv/bin/python tests/golden/mix_vectors.py build/libexec/sluice-synth tests/golden/data/mixes.json

Models are random F16 files of sluice synth; the quantiser runs dry and logs its choice. Where a mix needs an
importance matrix, one of ones is given."""
import ctypes
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

PINNED = "0.3.36"
SHAPES = [  # one condition of the rules each: key heads, 8 experts, a shared expert, rows that blocks do not divide
    ["tiny", "layers=16", "hidden=256", "heads=4", "kv_heads=1", "head_size=64", "vocab=600", "experts=4",
     "expert_inner=256"],
    ["tiny", "arch=llama", "layers=8", "hidden=256", "heads=4", "kv_heads=4", "head_size=64", "vocab=600", "experts=8",
     "expert_inner=256"],
    ["tiny", "arch=qwen2moe", "layers=8", "hidden=256", "heads=4", "kv_heads=2", "head_size=64", "vocab=600",
     "experts=4", "expert_inner=256", "shared_inner=512"],
    ["tiny", "arch=olmoe", "layers=2", "hidden=128", "heads=2", "kv_heads=2", "head_size=64", "vocab=600", "experts=4",
     "expert_inner=96"],
    ["tiny", "arch=glm4moe", "layers=16", "hidden=256", "heads=4", "kv_heads=2", "head_size=64", "vocab=600",
     "experts=4", "expert_inner=256", "dense_layers=3", "dense_inner=512", "shared_count=1"],
]
MIXES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13,
         "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21,
         "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29,
         "IQ4_XS": 30, "IQ1_M": 31, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "Q1_0": 40, "Q2_0": 41}
NEEDS_MATRIX = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S")


def matrix_of_ones(tensors):
    """An importance matrix: one number per column and expert."""
    entries, keep = [], []
    for t in tensors:
        if len(t.shape) < 2 or not t.name.endswith("weight"):
            continue
        size = int(t.shape[0]) * (int(t.shape[2]) if len(t.shape) > 2 else 1)
        ones = np.ones(size, np.float32)
        keep.append(ones)
        entries.append((t.name.encode(), ones.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), size))
    array = (llama_cpp.llama_model_imatrix_data * (len(entries) + 1))(*entries)
    return array, keep


LINE = re.compile(r"\] +(\S+) +- \[[^]]*\], type = +(\S+), size = .*?(?:\((\w+)\))?$", re.M)


def chosen(source, file_type, needs_matrix, log):
    """Types by name with the layer's number left out: one type, or a list of all layers'."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.dry_run = file_type, True
    if needs_matrix:
        matrix, keep = matrix_of_ones(gguf.GGUFReader(source).tensors)
        params.imatrix = ctypes.cast(matrix, ctypes.POINTER(llama_cpp.llama_model_imatrix_data))
    log.clear()
    status = llama_cpp.llama_model_quantize(source.encode(), b"/dev/null", ctypes.byref(params))
    if status != 0:
        raise SystemExit(f"llama_model_quantize: {status}\n" + "".join(log)[-400:])
    types = {}
    for name, source_type, kind in LINE.findall("".join(log)):
        layer = re.match(r"blk\.(\d+)\.", name)
        if source_type != "f32":
            listed = types.setdefault(re.sub(r"^blk\.\d+\.", "blk.N.", name), {})
            listed[int(layer.group(1)) if layer else 0] = (kind or source_type).upper()
    listed = {name: [layers[i] for i in sorted(layers)] for name, layers in types.items()}
    return {name: kinds[0] if len(set(kinds)) == 1 else kinds for name, kinds in sorted(listed.items())}


def main():
    synth, target = sys.argv[1:]
    version = importlib.metadata.version("llama_cpp_python")
    if version != PINNED:
        raise SystemExit(f"llama_cpp_python {version} is installed; these vectors are made with {PINNED}")
    models, log = [], []
    collect = llama_cpp.llama_log_callback(lambda level, text, data: log.append(text.decode()))
    llama_cpp.llama_log_set(collect, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as directory:
        for shape in SHAPES:
            source = directory + "/source.gguf"
            subprocess.run([synth, "-q", "-o", source, *shape, "--type", "F16"], check=True, stdout=subprocess.DEVNULL)
            # the quantiser has no other type for rows of olmoe that do not fit Q1_0
            wanted = [name for name in MIXES if name != "Q1_0" or "arch=olmoe" not in shape]
            mixes = {name: chosen(source, MIXES[name], name in NEEDS_MATRIX, log) for name in wanted}
            models.append({"shape": shape, "mixes": mixes})
    with open(target, "w", encoding="ascii") as out:
        json.dump({"llama_cpp_python": version, "models": models}, out, indent=None, separators=(",", ":"))
        out.write("\n")


main()
