#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of sluice and llama.cpp on the same files, tokens and threads, everything in memory:

    tests/peers/speed.py --peer DIR -o WORK [--types Q4_0,Q8_0] [--shapes olmoe,qwen] [--depths 0,4096] [-r 3]
                         [--modes mapped-flash,repacked-plain]

Files are made by sluice synth: layers of the models in SHAPES. Runs alternate. llama.cpp runs mapped and
repacked, with and without flash attention; after the first repetition only the mode that was best at decode and the
one that was best at prefill run again. Before each repetition the memory is measured by sluice doctor: same threads,
over four times the last-level caches. Every run is a file in WORK/cells, and the same command resumes; with --limit it
starts no run after that many seconds and exits with 3. --report measures nothing. One Markdown table on stdout."""
import argparse
import glob
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(os.path.dirname(HERE), "bench")
sys.path.insert(0, BENCH)
import measuring as m  # noqa: E402

TYPES = ("Q4_0", "Q8_0", "Q4_K_M", "Q6_K", "IQ4_XS", "MXFP4")
# synth's shape, its layers and other fields, bytes of keys and values per position (F16), and bytes of recurrent states
# that a token reads and writes
SHAPES = {"olmoe": ("olmoe-1b-7b", ["layers=8"], 8 * 2 * 2 * 16 * 128, 0),
          "qwen": ("qwen3-30b-a3b", ["layers=6"], 6 * 2 * 2 * 4 * 128, 0),
          "qwen35": ("qwen3.6-35b-a3b", ["layers=8"], 2 * 2 * 2 * 2 * 256, 6 * 2 * 4096 * 128 * 4),
          "gpt-oss": ("gpt-oss-20b", ["layers=6"], 6 * 2 * 2 * 8 * 64, 0),
          "nano": ("nemotron-3-nano", ["layers=9", "pattern=MEMEM*EME"], 2 * 2 * 2 * 128, 4 * 2 * 4096 * 128 * 4),
          "jamba": ("jamba-mini", ["layers=4", "attention_step=4"], 2 * 2 * 8 * 128, 3 * 2 * 8192 * 16 * 4),
          "kimi": ("kimi-linear-48b", ["layers=5"], 2 * (512 + 64), 4 * 2 * 4096 * 128 * 4),
          "granite": ("granite-4.0-h-small", ["layers=5", "attention_step=5"], 2 * 2 * 8 * 128, 4 * 2 * 8192 * 128 * 4),
          "step": ("step-3.5-flash", ["layers=4", "dense_layers=1"], 2 * 2 * 8 * 128, 0)}
MODES = tuple(f"{form}-{flash}" for form in ("mapped", "repacked") for flash in ("plain", "flash"))
TESTS = ("decode_tps", "prefill_tps")
AGAIN = 3  # exit status: time is over, call again


class TimeOver(Exception):
    pass


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-o", "--out", required=True, help="models and finished runs")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--shapes", default="olmoe,qwen", help=f"of {', '.join(SHAPES)}")
    p.add_argument("--depths", default="0,4096", help="tokens of context before both tests")
    p.add_argument("--modes", default=",".join(MODES), help="of llama.cpp (default: all four)")
    p.add_argument("-p", "--prompt", type=int, default=512)
    p.add_argument("-n", "--tokens", type=int, default=128)
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("--isa", default="auto", help="sluice's instruction set; llama.cpp: setup.sh DIR ISA")
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--limit", type=float, help="seconds after which no run is started")
    p.add_argument("--report", action="store_true", help="only print what was measured")
    return p.parse_args()


class Cells:
    """Finished runs: files, so that an interrupted comparison continues."""

    def __init__(self, a):
        self.folder = os.path.join(a.out, "cells")
        self.until = time.monotonic() + a.limit if a.limit else None
        os.makedirs(self.folder, exist_ok=True)

    def read(self, name):
        """None: not measured yet."""
        path = os.path.join(self.folder, name + ".json")
        return m.read_json(path) if os.path.exists(path) else None

    def get(self, name, measure):
        result = self.read(name)
        if result:
            return result
        if self.until and time.monotonic() > self.until:
            raise TimeOver
        result = measure()
        m.write_json(os.path.join(self.folder, name + ".json"), result)
        m.say(name, " ".join(f"{k} {v:.2f}" for k, v in result.items() if k in TESTS or k == "stream"))
        return result


def model_file(a, shape, kind):
    path = os.path.join(a.out, f"{shape}-{kind}.gguf")
    if not os.path.exists(path):
        name, fields = SHAPES[shape][:2]
        m.run([m.program("synth"), "-q", "-o", path + ".making", name, *fields, "--type", kind])
        os.replace(path + ".making", path)
    return path


def ids_file(a, depth, repetition):
    """Tokens of a repetition and of a warm-up, for both engines."""
    ids = os.path.join(a.out, f"ids-{depth}-{repetition}")
    m.write_ids(ids, repetition + 1, 50304, depth + 2 * (a.prompt + a.tokens + 3))
    return ids


def token_bytes(path):
    """Bytes of weights that a token of decode touches."""
    doc = m.run_json([m.program("run"), "-m", path, "--print-memory"])
    return doc["dense_read_bytes"] + doc["expert_layers"] * doc["experts_used"] * doc["expert_bytes"] / doc["expert_count"]


def run_stream(a):
    doc = m.sluice("doctor", "--no-device", "--threads", a.threads, "--json")
    return {"stream": doc["memory"]["read_all_threads"], "array": doc["memory"]["read_array_bytes"],
            "cpu": doc["cpu"]["model"], "cache": doc["cpu"]["cache"]}


def run_sluice(a, path, depth, ids):
    deep = ["-d", depth] if depth else []
    doc = m.sluice("bench", "-m", path, "-p", a.prompt, "-n", a.tokens, "-r", 1, "--preset", "resident", "--threads",
                   a.threads, "--ids", ids, "-o", "json", "--isa", a.isa, *deep)
    return {"decode_tps": m.variant_test(doc, 0)["tps_median"],
            "prefill_tps": m.variant_test(doc, 0, "pp")["tps_median"], "token_bytes": token_bytes(path)}


def run_llama(a, path, depth, ids, mode):
    form, flash = mode.split("-")
    return m.run_json([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(BENCH, "llama_variant.py"), path, ids,
                       str(a.prompt), str(a.tokens), str(a.threads), form, str(depth), flash])


def best_modes(a, cells, prefix):
    """The modes that were best in the first repetition, by test; None: not all of them ran."""
    first = {mode: cells.read(f"{prefix}-llama-{mode}-0") for mode in a.modes}
    if not all(first.values()):
        return None
    return {test: max(a.modes, key=lambda mode, test=test: first[mode][test]) for test in TESTS}


def measure(a, cells, shape, kind, depth):
    prefix = f"{shape}-{kind}-d{depth}"
    path = model_file(a, shape, kind)
    for r in range(a.repetitions):
        ids = ids_file(a, depth, r)
        modes = a.modes if r == 0 else tuple(dict.fromkeys(best_modes(a, cells, prefix).values()))
        runs = [(f"{prefix}-sluice-{r}", lambda ids=ids: run_sluice(a, path, depth, ids))]
        runs += [(f"{prefix}-llama-{mode}-{r}", lambda ids=ids, mode=mode: run_llama(a, path, depth, ids, mode))
                 for mode in modes]
        cells.get(f"{prefix}-stream-{r}", lambda: run_stream(a))
        for name, run in runs if r % 2 == 0 else reversed(runs):
            cells.get(name, run)


def samples(cells, pattern, key):
    return [m.read_json(path)[key] for path in sorted(glob.glob(os.path.join(cells.folder, pattern + ".json")))]


def best_median(cells, prefix, test, modes):
    """Mode and median of the mode that was best at a test, of those that ran as often as any."""
    runs = {mode: samples(cells, f"{prefix}-llama-{mode}-*", test) for mode in modes}
    most = max(map(len, runs.values()))
    medians = {mode: statistics.median(took) for mode, took in runs.items() if len(took) == most}
    return max(medians.items(), key=lambda item: item[1])


def row(a, cells, shape, kind, depth):
    prefix = f"{shape}-{kind}-d{depth}"
    modes, ours = best_modes(a, cells, prefix), samples(cells, prefix + "-sluice-*", "decode_tps")
    stream = samples(cells, prefix + "-stream-*", "stream")
    if not modes or not ours or not stream:
        return None
    out = [f"{shape} {kind}", depth]
    position, states = SHAPES[shape][2:]
    touched = samples(cells, prefix + "-sluice-*", "token_bytes")[0] + position * (depth + a.tokens / 2) + states
    for test in TESTS:
        mine = statistics.median(samples(cells, prefix + "-sluice-*", test))
        mode, other = best_median(cells, prefix, test, a.modes)
        out += [f"{mine:.1f}", f"{other:.1f} ({mode.replace('-', ', ')})", f"{mine / other:.2f}"]
        if test == "decode_tps":
            share = touched / statistics.median(stream)
            out += [f"{100 * mine * share:.0f} %", f"{100 * other * share:.0f} %"]
    return out + [f"{statistics.median(stream) / 2**30:.1f}", len(ours)]


HEADS = ("file", "depth", "decode: sluice, tokens/s", "llama.cpp (mode)", "ratio", "of the memory's rate", "llama.cpp",
         "prefill: sluice", "llama.cpp (mode)", "ratio", "memory GiB/s", "runs")


def report(a, cells, grid):
    rows = [x for x in (row(a, cells, *cell) for cell in grid) if x]
    machine = [m.read_json(p) for p in sorted(glob.glob(os.path.join(cells.folder, "*-stream-*.json")))]
    if machine:
        rates = [x["stream"] / 2**30 for x in machine]
        print(f"{machine[0]['cpu']}, {a.threads} threads, last-level caches {machine[0]['cache'] / 2**20:.0f} MiB; memory "
              f"streams {min(rates):.1f} to {max(rates):.1f} GiB/s over {machine[0]['array'] / 2**20:.0f} MiB; prefill of "
              f"{a.prompt}, decode of {a.tokens}; {time.strftime('%Y-%m-%d')}\n")
    print("\n".join(m.table(HEADS, rows)))


def main():
    a = arguments()
    a.modes = a.modes.split(",")
    cells = Cells(a)
    grid = [(shape, kind, int(depth)) for depth in a.depths.split(",") for shape in a.shapes.split(",")
            for kind in a.types.split(",")]
    for what, given, known in (("shape", [x[0] for x in grid], SHAPES), ("mode", a.modes, MODES)):
        unknown = [x for x in given if x not in known]
        if unknown:
            sys.exit(f"unknown {what} {unknown[0]}; known: {', '.join(known)}")
    status = 0
    try:
        for cell in grid if not a.report else ():
            measure(a, cells, *cell)
    except TimeOver:
        status = AGAIN
    report(a, cells, grid)
    return status


sys.exit(main())
