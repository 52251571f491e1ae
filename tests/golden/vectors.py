# SPDX-License-Identifier: Apache-2.0
"""What the scripts that write golden data share."""
import numpy as np

STRIDE = 8  # GOLDEN_STRIDE in compare.h


def save_logits(path, logits):
    """Writes what golden_compare reads of the logits [positions][vocabulary], as float32. Of each position: the best
    token and its margin over the second, of the whole vocabulary; then every eighth logit, those of the tokens v with
    v % STRIDE == position % STRIDE, so that any eight positions have all tokens."""
    logits = np.asarray(logits, dtype="<f4")
    positions, vocab = logits.shape
    assert vocab % STRIDE == 0
    second, first = np.sort(logits, axis=1)[:, -2:].T
    rows = [np.concatenate([[logits[t].argmax(), first[t] - second[t]], logits[t, t % STRIDE::STRIDE]])
            for t in range(positions)]
    np.save(path, np.stack(rows).astype("<f4"))
