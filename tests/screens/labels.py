#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests whether the pictures of docs/screens show the words of this version:

    labels.py MADE KEPT      two directories of make.sh; prints what differs

Figures differ from run to run, so only the lines that consist of names are compared, without their figures: of top its
head and the headings of its tables, of repl everything except the map."""
import html
import pathlib
import re
import sys

TEXT = re.compile(r'<text x="([0-9.]+)" y="([0-9.]+)"[^>]*>([^<]*)</text>')
FIGURE = re.compile(r"[0-9][0-9.:]*[KMGTB]?(?![a-z])")
HEADS = ("sluice", "limit", "decode", "passes", "experts", "predicted", "budget", "A", "A=arena", "REQUEST", "PROCESS",
         "DEVICE", "LAYER,", "every")
PICTURES = ("top.svg", "top-wide.svg", "repl.svg")


def lines(svg):
    """The lines of a picture, from left to right and from top to bottom."""
    rows = {}
    for x, y, text in TEXT.findall(svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text)))
    return [" ".join(text for _, text in sorted(row)) for _, row in sorted(rows.items())]


def labels(name, svg):
    """The lines that are compared, with "#" for every figure."""
    out = []
    for line in lines(svg):
        line = re.sub(r"\[[A-Za-z. ]{20,}\]", "[]", line)  # the bar of the budget
        words = line.split()
        if name.startswith("top"):
            if not words or words[0] not in HEADS:
                continue
            line = re.sub(r"^(limit) .*|(token gap) .*", r"\1\2", line)  # a limit, a time
            line = re.sub(r"(BACKEND|TIME|RST DOING).*", r"\1", line)  # the map is next to it
        elif re.match(r"\s*[0-9]+\s+[0-9]+/[0-9]+\s", line):
            continue
        out.append(" ".join(FIGURE.sub("#", line).split()))
    return out if name.startswith("top") else " ".join(out).split(">>> ")  # where lines break depends on figures


def main(made, kept):
    wrong = 0
    for name in PICTURES:
        new, old = (labels(name, (pathlib.Path(d) / name).read_text()) for d in (made, kept))
        for line in [x for x in new if x not in old]:
            print(f"docs/screens/{name} lacks: {line}")
            wrong += 1
        for line in [x for x in old if x not in new]:
            print(f"docs/screens/{name} has: {line}")
            wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1], sys.argv[2]) else 0)
