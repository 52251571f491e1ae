# SPDX-License-Identifier: Apache-2.0
"""Router logits, chosen experts and gate inputs of a trace recorded with --trace-logits and --trace-inputs
(docs/trace.md). Prints their shapes, and the share of chosen experts that are those of the largest logits."""
import sys

import numpy as np

head = np.fromfile(sys.argv[1], [("magic", "S8"), ("version", "<u4"), ("bytes", "<u4"), ("record", "<u4"),
                                 ("layers", "<u4"), ("experts", "<u4"), ("top_k", "<u4"), ("more", "V120"),
                                 ("hidden", "<u4")], 1)[0]
records = np.fromfile(sys.argv[1], [("sequence", "<u4"), ("position", "<u4"), ("low", "V8"), ("layer", "<u2"),
                                    ("expert", "<u2"), ("kind", "u1"), ("outcome", "u1"), ("rank", "u1"),
                                    ("need", "u1"), ("high", "V8")], offset=int(head["bytes"]))


def values(kind, type_, per_row):
    """[row][per_row] of the records of a kind; a row is a token in a layer."""
    of = records[records["kind"] == kind]
    bytes_ = np.stack([of["low"], of["high"]], axis=1).copy().view("u1").reshape(len(of), 16)
    of_record = 16 // np.dtype(type_).itemsize
    rows = -(-per_row // of_record) # records of a row
    step = 4 if kind == 19 else 1 # `expert` is the first element of logits, and counts records of inputs
    if len(of) % rows or not (of["expert"].reshape(-1, rows) == step * np.arange(rows)).all():
        sys.exit(f"{sys.argv[1]}: records of kind {kind} are missing (the recorder dropped some)")
    return bytes_.view(type_).reshape(len(of) // rows, rows * of_record)[:, :per_row], of[::rows]


logits, row = values(19, "<f4", int(head["experts"]))
inputs, _ = values(21, "<f2", int(head["hidden"]))
used = records[(records["kind"] == 1)]
chosen = {}
for r in used:
    chosen.setdefault((r["sequence"], r["position"], r["layer"]), set()).add(int(r["expert"]))
top = np.argsort(-logits, axis=1, kind="stable")[:, :int(head["top_k"])]
same = [len(chosen[r["sequence"], r["position"], r["layer"]] & set(t.tolist())) for r, t in zip(row, top)]
print(f"logits {logits.shape}, inputs {inputs.shape}, {np.mean(same) / head['top_k']:.4f} of the choice, "
      f"{np.abs(inputs.astype('f4')).mean() if inputs.size else 0:.3f}")
