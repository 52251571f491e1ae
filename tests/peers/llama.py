#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The side of llama.cpp (package llama-cpp-python) in comparisons; runs in the environment of setup.sh.

    llama.py quantise SOURCE TARGET FILE_TYPE MATRIX PURE TYPE
        MATRIX: 1 gives an importance matrix of ones; PURE: pure or empty; TYPE: number of the type of layers' matrices or empty
    llama.py score MODEL IDS_JSON WINDOW THREADS [f32]         losses of the ids and the best tokens, window by window; f32:
                                                               the type of keys and values, else F16
    llama.py greedy MODEL IDS_JSON PROMPT THREADS              how far each token after the prompt is below the best
    llama.py dequantise MODEL TARGET                           the same weights in F32
    llama.py types MODEL FILE_TYPE SCRATCH
        Tensors whose type its quantiser would choose otherwise, in a dry run on MODEL's keys and F16 matrices without data

IDS_JSON: {"ids": [...]}. Results are one JSON object on stdout."""
import ctypes
import json
import os
import re
import sys

import gguf
import llama_cpp
import numpy as np

LOG = llama_cpp.llama_log_callback(
    lambda level, text, data: sys.stderr.write(text.decode(errors="replace")) if level == 4 else None)
NOT_OPENED = 3  # exit status: llama.cpp's log on stderr has the reason


def matrix_of_ones(source):
    """An importance matrix: one number per column and expert. The second result keeps it alive."""
    entries, keep = [], []
    for t in gguf.GGUFReader(source).tensors:
        if len(t.shape) < 2:
            continue
        size = int(t.shape[0]) * (int(t.shape[2]) if len(t.shape) > 2 else 1)
        ones = np.ones(size, np.float32)
        keep.append(ones)
        entries.append((t.name.encode(), ones.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), size))
    return (llama_cpp.llama_model_imatrix_data * (len(entries) + 1))(*entries), keep


def quantise(source, target, file_type, matrix, pure, override):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.pure = int(file_type), 2, pure == "pure"
    if matrix == "1":
        array, keep = matrix_of_ones(source)
        params.imatrix = ctypes.cast(array, ctypes.POINTER(llama_cpp.llama_model_imatrix_data))
    if override:
        overrides = (llama_cpp.llama_model_tensor_override * 2)()
        overrides[0].pattern, overrides[0].type = rb"blk\..*\.(attn_[qkvo]|ffn_.*_exps).*\.weight", int(override)
        params.tt_overrides = overrides
    status = llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params))
    if status != 0:
        raise SystemExit(f"llama_model_quantize: {status}")
    return {}


def open_model(path, context, threads, cache="f16"):
    kind = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}[cache]
    try:
        return llama_cpp.Llama(path, n_ctx=context, n_batch=context, n_threads=int(threads), n_threads_batch=int(threads),
                               n_gpu_layers=0, logits_all=True, verbose=True, type_k=kind, type_v=kind)
    except ValueError:
        sys.exit(NOT_OPENED)


def ids_of(path):
    with open(path, encoding="ascii") as f:
        return json.load(f)["ids"]


def logits_of(llama, ids):
    llama.reset()
    llama.eval(ids)
    return np.array(llama.scores[:len(ids)], np.float64)


def score(path, ids_path, window, threads, cache="f16"):
    window, ids = int(window), ids_of(ids_path)
    llama = open_model(path, window, threads, cache)
    losses, best = [], []
    for at in range(0, len(ids) - window + 1, window):
        part = ids[at:at + window]
        logits = logits_of(llama, part)[:-1]
        top = logits.max(axis=1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        losses += (total - logits[np.arange(window - 1), part[1:]]).tolist()
        best += logits.argmax(axis=1).tolist()
    return {"nll_per_token": losses, "best": best}


def greedy(path, ids_path, prompt, threads):
    prompt, ids = int(prompt), ids_of(ids_path)
    logits = logits_of(open_model(path, max(len(ids), 64), threads), ids)[prompt - 1:-1]
    chosen = logits[np.arange(len(logits)), ids[prompt:]]
    return {"below_best": (logits.max(axis=1) - chosen).tolist()}


CHOSEN = re.compile(r"\] +(\S+) +- \[[^]]*\], type = +(\S+), size = .*?(?:\((\w+)\))?$", re.M)


def types(path, file_type, scratch):
    f32, f16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
    reader, offset = gguf.GGUFReader(path, "c"), 0
    for t in reader.tensors:
        kind = f32 if t.tensor_type == f32 else f16
        t.field.parts[4][0], t.field.parts[5][0] = kind, offset
        offset += -int(np.prod(t.shape)) * (4 if kind == f32 else 2) // reader.alignment * -reader.alignment
    with open(scratch, "wb") as f:
        f.write(reader.data[:reader.data_offset].tobytes())
        f.truncate(reader.data_offset + offset)
    log = []
    collect = llama_cpp.llama_log_callback(lambda level, text, data: log.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(collect, ctypes.c_void_p(0))
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.dry_run = int(file_type), True
    status = llama_cpp.llama_model_quantize(scratch.encode(), b"/dev/null", ctypes.byref(params))
    llama_cpp.llama_log_set(LOG, ctypes.c_void_p(0))
    os.remove(scratch)
    if status != 0:
        raise SystemExit(f"llama_model_quantize: {status}\n" + "".join(log)[-400:])
    chosen = {name: (kind or source).upper() for name, source, kind in CHOSEN.findall("".join(log))}
    ours = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    if set(chosen) != set(ours):
        raise SystemExit(f"other tensors: {sorted(set(chosen) ^ set(ours))[:4]}")
    return {"tensors": len(ours), "others": {n: [ours[n], kind] for n, kind in chosen.items() if kind != ours[n]}}


def dequantise(path, target):
    source, reader, offset = gguf.GGUFReader(path), gguf.GGUFReader(path, "c"), 0
    for t in reader.tensors:
        t.field.parts[4][0], t.field.parts[5][0] = gguf.GGMLQuantizationType.F32, offset
        offset += -int(np.prod(t.shape)) * 4 // reader.alignment * -reader.alignment
    with open(target, "wb") as f:
        f.write(reader.data[:reader.data_offset].tobytes())
        for t in source.tensors:  # a header ends at a multiple of the alignment
            data = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).tobytes()
            f.write(data + b"\0" * (-len(data) % reader.alignment))
    return {}


llama_cpp.llama_log_set(LOG, ctypes.c_void_p(0))
json.dump({"quantise": quantise, "score": score, "greedy": greedy, "types": types,
           "dequantise": dequantise}[sys.argv[1]](*sys.argv[2:]), sys.stdout)
