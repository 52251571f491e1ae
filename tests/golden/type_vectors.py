#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference data of golden_types: for each quantised type of GGUF, blocks and what the Python
package gguf makes of them.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install gguf==0.19.0 numpy==2.4.6
    venv/bin/python tests/golden/type_vectors.py tests/golden/data/types

DIR/NAME.bin is all blocks, then all elements as F32. The first blocks are edge values: every byte 0 and 255
under an ordinary scale; scales that are zero, denormal, the largest, negative, infinite and NaN. The others are
random bytes with a random finite scale. `--random N` sets their number, to compare more of them than the
repository keeps.

That version of the package does not decode Q1_0 and Q2_0. Their elements are computed here as ggml defines them:
d or -d, and d * (code - 1). Everything is seeded: a second run writes the same bytes."""
import argparse
import os

import gguf
import numpy as np

PINNED = "0.19.0"
Q2_0 = ("Q2_0", 64, 18)
SUPER_BLOCKS, SMALL_BLOCKS = 4, 24  # random blocks kept of types of 256 and of fewer elements

# Where a block's F16 scales are; IQ1_M, MXFP4 and NVFP4 have other scales.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
          "Q1_0": [0], "Q2_0": [0]}
ORDINARY = 0x2a66  # 0.05
EDGES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00]


def put_f16(name, block, bits):
    if name == "IQ1_M":
        for i in range(4):
            at = 49 + 2 * i
            block[at] = (int(block[at]) & 15) | (bits >> 4 * i & 15) << 4
        return
    for n, at in enumerate(SCALES[name]):
        value = bits if n == 0 else bits ^ 0x0100  # the minimum differs from the scale
        block[at:at + 2] = np.frombuffer(np.uint16(value).tobytes(), np.uint8)


def edge_blocks(name, size, random):
    blocks = []
    for fill in (0, 255):
        blocks.append(np.full(size, fill, np.uint8))
    if name in SCALES or name == "IQ1_M":
        for block in blocks:
            put_f16(name, block, ORDINARY)
        for bits in EDGES:
            blocks.append(random.integers(0, 256, size, np.uint8))
            put_f16(name, blocks[-1], bits)
    else:
        heads = {"MXFP4": [0, 1, 2, 126, 127, 128, 252, 253, 254, 255],
                 "NVFP4": [0, 1, 7, 8, 0x38, 0x7e, 0x7f, 0x80, 0xfe, 0xff]}[name]
        for head in heads:
            blocks.append(random.integers(0, 256, size, np.uint8))
            blocks[-1][:1 if name == "MXFP4" else 4] = head
    return blocks


def random_blocks(name, size, count, random):
    blocks = random.integers(0, 256, (count, size), np.uint8)
    for block in blocks:
        if name in SCALES or name == "IQ1_M":
            put_f16(name, block, int(random.integers(0, 0x7c00)) | int(random.integers(0, 2)) << 15)
    return list(blocks)


def decode(name, blocks):
    if name not in ("Q1_0", "Q2_0"):
        return gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = 1 if name == "Q1_0" else 2
    codes = (blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (2 ** bits - 1)
    codes = codes.reshape(len(blocks), -1).astype(np.float32)
    return np.where(codes == 1, d, -d) if bits == 1 else d * (codes - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--random", type=int, help="random blocks per type")
    args = parser.parse_args()
    version = __import__("importlib.metadata").metadata.version("gguf")
    if version != PINNED:
        raise SystemExit(f"gguf {version} is installed; these vectors are made with {PINNED}")
    os.makedirs(args.directory, exist_ok=True)
    types = [(t.name, *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType
             if t.name in SCALES or t.name in ("IQ1_M", "MXFP4", "NVFP4")] + [Q2_0]
    for name, elems, size in types:
        random = np.random.default_rng([ord(c) for c in name])
        count = args.random or (SUPER_BLOCKS if elems == 256 else SMALL_BLOCKS)
        blocks = np.array(edge_blocks(name, size, random) + random_blocks(name, size, count, random))
        with np.errstate(all="ignore"):
            values = decode(name, blocks)
        assert values.dtype == np.float32 and values.size == len(blocks) * elems
        with open(os.path.join(args.directory, name.lower() + ".bin"), "wb") as out:
            out.write(blocks.tobytes() + values.tobytes())


main()
