#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the whole measurement:

    tests/bench/measure.sh --short|--long [--only PART,...] -o DIR [--python VENV/bin/python]

Parts: sim, bound, llama, hobbit, fate, swapmoe, auto; and only if --only names them, those of docs/lab/papers.md:
papers-edgemoe, papers-prefill, papers-fate, papers-swapmoe, papers-predictions. Their inputs (models with random weights, a store, a profile,
plans, traces) are made once under DIR/assets. Each part has cells; a finished cell is a file under DIR/cells and is
not measured again, so after an interruption the same command resumes. At the end DIR/report.md has tables, and one
line per target: pass, fail, measured (no limit), or not measured; DIR/report.json has all results.

--short takes a quarter of an hour, --long a few hours; --try tests the script itself on a tiny model, with
meaningless results. Variants of a cell alternate; ratios have a 95 % bootstrap interval (measuring.py).
Needs an idle machine (except `sim`), 16 GiB of free disk, and 8 GiB of memory."""
import argparse
import json
import os
import shutil
import signal
import sys
import time
import traceback

import measure_auto
import measure_sim
import measure_speed
import measuring as m
import papers.edgemoe
import papers.fate
import papers.predictions
import papers.prefill
import papers.swapmoe
from measure_assets import Assets

PARTS = {"sim": measure_sim, "bound": measure_speed.Bound, "llama": measure_speed.Llama,
         "hobbit": measure_speed.Hobbit, "fate": measure_speed.Fate, "swapmoe": measure_speed.Swapmoe,
         "auto": measure_auto}
PAPERS = {"papers-edgemoe": papers.edgemoe, "papers-prefill": papers.prefill, "papers-fate": papers.fate,
          "papers-swapmoe": papers.swapmoe, "papers-predictions": papers.predictions}
ALL_PARTS = {**PARTS, **PAPERS}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    form = p.add_mutually_exclusive_group(required=True)
    for name in ("short", "long", "try"):
        form.add_argument("--" + name, dest="form", action="store_const", const=name)
    p.add_argument("--only", help="parts, separated by commas: " + ",".join(ALL_PARTS))
    p.add_argument("--cells", help="only cells with one of these strings in their name, comma-separated: 200MBps,50")
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--python", help="a Python with llama_cpp; without it the part llama is skipped")
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--report", action="store_true", help="only write the report of the finished cells")
    a = p.parse_args()
    a.parts = a.only.split(",") if a.only else list(PARTS)
    for part in a.parts:
        if part not in ALL_PARTS:
            p.error(f"--only: '{part}' is not one of {','.join(ALL_PARTS)}")
    return a


class Progress:
    """Cells with an estimate of their seconds; the times of finished cells correct the estimates of the others."""

    def __init__(self, cells):
        self.left = sum(seconds for _, _, seconds, _ in cells)
        self.estimated = self.took = 0
        self.count, self.at = len(cells), 0

    def begin(self, part, key):
        self.at += 1
        factor = self.took / self.estimated if self.estimated > 30 else 1
        m.say(f"{self.at} of {self.count}: {part} {key}; about {self.left * factor / 60:.0f} min left")

    def end(self, seconds, took):
        self.left -= seconds
        if took is not None:
            self.estimated += seconds
            self.took += took


def cell_path(a, part, key):
    return os.path.join(a.out, "cells", f"{part}-{key}-{a.form}.json")


def one_cell(a, part, key, work):
    """The results of a cell and the seconds it took; None and the reason if it could not be measured."""
    began = time.monotonic()
    try:
        figures = work()
    except SystemExit as e: # a program failed; has its error message
        return None, str(e.code)
    except Exception as e: # pylint: disable=broad-except # one cell must not end an unattended run
        traceback.print_exc()
        return None, repr(e)
    took = time.monotonic() - began
    m.write_json(cell_path(a, part, key), {"part": part, "key": key, "form": a.form, "figures": figures,
                                           "seconds": took, "when": time.strftime("%Y-%m-%d %H:%M")})
    return took, None


def measure(a, cells):
    failed, progress = {}, Progress(cells)
    for part, key, seconds, work in cells:
        if os.path.exists(cell_path(a, part, key)):
            progress.end(seconds, None)
            progress.at += 1
            continue
        progress.begin(part, key)
        took, reason = one_cell(a, part, key, work)
        progress.end(seconds, took)
        if reason:
            failed[f"{part} {key}"] = reason
            m.say(f"{part} {key} could not be measured: {reason.strip().splitlines()[-1][:300]}")
    return failed


def results_of(a, part):
    """{key: results} of the finished cells of a part."""
    folder, out = os.path.join(a.out, "cells"), {}
    for name in sorted(os.listdir(folder)):
        if name.startswith(part + "-") and name.endswith(f"-{a.form}.json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                cell = json.load(f)
            out[cell["key"]] = dict(cell["figures"], when=cell["when"])
    return out


def heading(a):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown")
    return (f"`tests/bench/measure.sh --{a.form} -o DIR`, {time.strftime('%Y-%m-%d %H:%M')}; {a.threads} of "
            f"{os.cpu_count()} cores ({cpu}), load before the report {os.getloadavg()[1]:.1f}\n")


def report(a, failed):
    lines, verdicts, everything = [heading(a)], [], {}
    for part in ALL_PARTS:
        results = results_of(a, part)
        everything[part] = results
        try:
            tables = ALL_PARTS[part].tables(a, results)
            verdicts += ALL_PARTS[part].verdicts(a, results)
        except Exception as e: # pylint: disable=broad-except # a failed table must not lose the results
            traceback.print_exc()
            tables = [f"{part}: the table could not be made: {e!r}"]
        if results:
            lines += [f"## {part}", ""] + tables + [""]
    lines += ["## Targets", "", "| target | | results |", "|---|---|---|"]
    lines += [f"| {what} | **{state}** | {figures} |" for what, state, figures in verdicts]
    if failed:
        lines += ["", "Could not be measured:", ""]
        lines += [f"- {what}: {reason.strip().splitlines()[-1][:300]}" for what, reason in failed.items()]
    with open(os.path.join(a.out, "report.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    m.write_json(os.path.join(a.out, "report.json"),
                 {"form": a.form, "when": time.strftime("%Y-%m-%d %H:%M"), "failed": failed,
                  "verdicts": [dict(zip(("what", "state", "figures"), v)) for v in verdicts],
                  "parts": everything})
    print("\n".join(lines))


def main():
    a = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler) # so that kernel settings are restored
    began = time.monotonic()
    a.out = os.path.abspath(a.out)
    for folder in ("cells", "assets", "run"):
        os.makedirs(os.path.join(a.out, folder), exist_ok=True)
    os.environ["SLUICE_RUN_DIR"] = os.path.join(a.out, "run")
    a.assets, failed = Assets(a), {}
    try:
        if not a.report:
            cells = [(part, *cell) for part in ALL_PARTS if part in a.parts
                     for cell in ALL_PARTS[part].cells(a)
                     if not a.cells or any(word in cell[0] for word in a.cells.split(","))]
            m.say(f"{len(cells)} cells, about {sum(c[2] for c in cells) / 60:.0f} min without what is made first")
            with m.PageLists() as lists:
                m.say(f"lists of freed pages: {lists.state}")
                failed = measure(a, cells)
    finally:
        report(a, failed)
        if not a.report: # keeps the run directories of a running measurement
            shutil.rmtree(os.path.join(a.out, "run"), ignore_errors=True)
    m.say(f"done in {(time.monotonic() - began) / 60:.1f} min: {os.path.join(a.out, 'report.md')}")
    return 1 if failed else 0


sys.exit(main())
