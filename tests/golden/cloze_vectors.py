#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The answers of the Python package transformers, in float32, to the items of `sluice eval --cloze N` on the demo model
(procs/clients/eval/cloze.h has the rule by which they are made; here it is written again):

    venv/bin/python tests/golden/cloze_vectors.py SLUICE_TOKENIZE TEXT N [WINDOW]

The environment is that of demo_vectors.py. Prints how many items are right, their number, the perplexity of the true
continuations, and how many items are right or wrong by less than 0.05 nats."""
import math
import subprocess
import sys

import gguf
import torch

import demo_vectors as demo

CHOICES = 4


def windows_of(ids, n, window):
    """At most n windows of the text, evenly spread."""
    count = len(ids) // window
    chosen = [i * count // n for i in range(n)] if n < count else range(count)
    return [ids[i * window:(i + 1) * window] for i in chosen]


def items_of(windows, context):
    """Of each item the choices, and the place of the true one."""
    n = len(windows)
    for i, w in enumerate(windows):
        turns = [(c - i % CHOICES) % CHOICES for c in range(CHOICES)]
        yield [w[:context] + windows[(i + t * n // CHOICES) % n][context:] for t in turns], i % CHOICES


def nats(model, choices, context):
    ids = torch.tensor(choices)
    with torch.no_grad():
        p = torch.log_softmax(model(ids, use_cache=False).logits[:, context - 1:-1].double(), dim=-1)
    return (-p.gather(2, ids[:, context:, None]).sum(dim=(1, 2))).tolist()


def main(tokenize, path, n, window=64):
    context, model = window - window // 4, demo.model_of(gguf.GGUFReader(demo.DEMO).fields, demo.weights_of(demo.DEMO))
    ids = [int(i) for i in subprocess.run([tokenize, "-m", demo.DEMO, "--text", path, "--ids"], check=True,
                                          stdout=subprocess.PIPE).stdout.replace(b",", b" ").split()]
    right = near = count = 0
    total = 0.0
    for choices, place in items_of(windows_of(ids, n, window), context):
        x = nats(model, choices, context)
        margin = min(x[c] for c in range(CHOICES) if c != place) - x[place]
        right += margin > 0
        near += abs(margin) < 0.05
        total += x[place]
        count += 1
    print(f"{right} of {count} right, perplexity {math.exp(total / count / (window - context)):.4f}, near {near}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(x) for x in sys.argv[3:]))
