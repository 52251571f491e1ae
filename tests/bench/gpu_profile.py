#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time on the GPU by kernel, as Markdown, from what `ncu --csv` wrote: docs/gpu.md."""
import csv
import re
import sys

UNITS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6}
BYTES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
NAME_MAX = 70
CASTS = re.compile(r"\((?:int|unsigned int|bool)\)")  # of template arguments


def rows(path):
    """Of the table, which follows lines that begin with ==."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in file if line.startswith('"')]
    return csv.DictReader(lines)


def number(row):
    return float(row["Metric Value"].replace(",", ""))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_profile.py FILE")
    kernels = {}
    for row in rows(sys.argv[1]):
        name = CASTS.sub("", row["Kernel Name"]).split("(")[0].removeprefix("void ")[:NAME_MAX]
        of = kernels.setdefault(name, {"launches": 0, "us": 0.0, "bytes": 0.0})
        if row["Metric Name"] == "gpu__time_duration.sum":
            of["launches"] += 1
            of["us"] += number(row) * UNITS[row["Metric Unit"]]
        elif row["Metric Name"] == "dram__bytes_read.sum":
            of["bytes"] += number(row) * BYTES[row["Metric Unit"]]
    if not kernels:
        sys.exit("no kernel was measured")
    total = sum(of["us"] for of in kernels.values())
    print("| kernel | launches | us | us each | share % | GB/s read |\n|---|---:|---:|---:|---:|---:|")
    for name, of in sorted(kernels.items(), key=lambda item: -item[1]["us"]):
        us = max(of["us"], 1e-3)
        print(f"| {name} | {of['launches']} | {us:.0f} | {us / max(of['launches'], 1):.1f} | "
              f"{100 * us / max(total, 1e-3):.1f} | {of['bytes'] / us / 1e3:.0f} |")


main()
