#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/hf/packed: matrices that the Python package compressed-tensors packed (pack-quantized), two of each kind, and
their values as that package decompresses them, in F32, so that products of scales and numbers are exact.

    VENV/bin/python tests/golden/packed_vectors.py

Versions: compressed-tensors 0.20.1, torch 2.15."""
import os

import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

ROWS = 4
KINDS = {"i4_32_bf16": (4, 32, torch.bfloat16, 64), "i4_128_f16": (4, 128, torch.float16, 256),
         "i4_0_f32": (4, 0, torch.float32, 96), "i8_32_bf16": (8, 32, torch.bfloat16, 64),
         "i8_0_bf16": (8, 0, torch.bfloat16, 64)}


def scheme_of(bits, group):
    weights = QuantizationArgs(num_bits=bits, type="int", symmetric=True, strategy="group" if group else "channel",
                               group_size=group or None)
    return QuantizationScheme(targets=["Linear"], weights=weights)


def main():
    generator = torch.Generator().manual_seed(17)
    out = {}
    for kind, (bits, group, dtype, columns) in KINDS.items():
        scheme, each = scheme_of(bits, group), group or columns
        for i in range(2):
            weight = torch.randn(ROWS, columns, generator=generator) * 0.05
            top = weight.view(ROWS, -1, each).abs().amax(-1)
            # Numbers of F16, so that the block of GGUF has the same scale
            scale = (top / (2 ** (bits - 1) - 0.5)).to(torch.bfloat16 if dtype is torch.bfloat16 else torch.float16).to(dtype)
            packed = PackedQuantizationCompressor.compress({"weight": weight.to(dtype), "weight_scale": scale}, scheme)
            whole = PackedQuantizationCompressor.decompress({**packed, "weight_scale": scale.float()}, scheme)
            for name, tensor in packed.items():
                out["%s.%d.%s" % (kind, i, name)] = tensor.contiguous()
            out["%s.%d.weight" % (kind, i)] = whole["weight"].float().contiguous()
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "hf", "packed")
    os.makedirs(folder, exist_ok=True)
    save_file(out, os.path.join(folder, "model.safetensors"))


main()
