# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks: running sluice's programs, tokens, memory cgroups, confidence intervals."""
import json
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBEXEC = os.environ.get("SLUICE_LIBEXEC", os.path.join(ROOT, "build", "libexec"))
GROUP = 64  # token ids with the same routing in models of synth
STAY = 0.5


def program(command):
    return os.path.join(LIBEXEC, "sluice-" + command)


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


def run(argv, timeout=3600, **kwargs):
    """Runs a program to its end; returns its stdout. If it fails, exits with its stderr."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                              timeout=timeout, **kwargs)
    except subprocess.TimeoutExpired:
        sys.exit(f"{argv[0]} did not end within {timeout} s")
    if done.returncode != 0:
        sys.exit(f"{argv[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def wait_for_socket(path, server, seconds=10):
    """Returns when the process `server` has made its socket; exits if it ends, or takes longer."""
    until = time.monotonic() + seconds
    while not os.path.exists(path):
        if server.poll() is not None or time.monotonic() > until:
            server.kill()
            sys.exit(f"{server.args[0]} did not start")
        time.sleep(0.05)


def run_json(argv, **kwargs):
    """Runs a program that prints one JSON object."""
    return json.loads(run(argv, **kwargs))


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_json(path, value):
    """Writes atomically."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
    os.replace(path + ".part", path)


def sluice(command, *argv, **kwargs):
    return run_json([program(command), *map(str, argv)], **kwargs)


def model_of(path):
    """Sizes of a model, and its budget with all experts resident, from an engine that generates one token."""
    doc = sluice("bench", "-m", path, "-p", 0, "-n", 1, "-r", 1, "--warmup", 0, "-o", "json")
    one = sluice("generate", "-m", path, "--ids", 1, "-n", 1, "--ctx-size", 512, "--output", "json", "-q")
    model = doc["model"]
    model["resident_budget"] = one["resident_budget_bytes"]
    model["one_expert"] = model["expert_bytes"] // (model["layers"] * model["experts"])
    return model


def variant_test(doc, variant, name="tg"):
    """A variant's test whose name starts with `name`, in the JSON of bench; variant: number or label."""
    rows = doc["variants"]
    row = rows[variant] if isinstance(variant, int) else next(x for x in rows if x["label"] == variant)
    return next(t for t in row["tests"] if t["test"].startswith(name))


def rates(test):
    return [s["tps"] for s in test["samples"]]


def counter(test, path):
    """Increase of "service.counter", summed over the samples."""
    service, name = path.split(".")
    return sum(s["counters"].get(service, {}).get(name, 0) for s in test["samples"])


def ratio_text(r):
    return f"{r[0]:.3f} ({r[1]:.3f} to {r[2]:.3f})"


def table(heads, rows):
    """Lines of a Markdown table; the first column is text."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return lines + ["| " + " | ".join(str(x) for x in row) + " |" for row in rows]


def budget_for(model, share):
    """The budget for all processes with that percentage of the experts resident."""
    return int(model["resident_budget"] - (1 - share / 100) * model["expert_slot_bytes"])


def write_ids(path, seed, vocab, count):
    """Token ids like those of lib/synthetic/token_stream.h: groups, changed with probability 1 - STAY."""
    draw = random.Random(seed)
    ids, group = [], 0
    for i in range(count):
        if i == 0 or draw.random() >= STAY:
            group = draw.randrange((vocab + GROUP - 1) // GROUP)
        ids.append(min(vocab - 1, group * GROUP + draw.randrange(GROUP)))
    with open(path, "w", encoding="ascii") as f:
        f.write(" ".join(map(str, ids)) + "\n")


def drop_cache(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class PageLists:
    """Limits the kernel's per-CPU lists of free pages while measuring (as root; otherwise nothing is changed). Linux
    since 6.7 keeps up to an eighth of the memory in them, unordered: the first engine started after another has ended
    gets scattered pages instead of contiguous ones, and all its reads are slower by a third (docs/tuning.md). This
    would affect one variant only."""
    PATH = "/proc/sys/vm/percpu_pagelist_high_fraction"
    MINIMUM = "1000000"

    def __enter__(self):
        self.before, self.state = None, "as the kernel has them (not root)"
        try:
            with open(self.PATH, encoding="ascii") as f:
                before = f.read().strip()
            with open(self.PATH, "w", encoding="ascii") as f:
                f.write(self.MINIMUM)
            self.before, self.state = before, f"short (vm.percpu_pagelist_high_fraction={self.MINIMUM})"
        except OSError:
            pass
        return self

    def __exit__(self, *_):
        if self.before is not None:
            with open(self.PATH, "w", encoding="ascii") as f:
                f.write(self.before)


def median_ratio(a, b, rounds=2000):
    """Ratio of medians of paired samples, and its 95 % interval (percentile bootstrap over pairs)."""
    draw = random.Random(1)
    drawn = []
    for _ in range(rounds):
        at = [draw.randrange(len(a)) for _ in a]
        drawn.append(statistics.median(a[i] for i in at) / statistics.median(b[i] for i in at))
    drawn.sort()
    return (statistics.median(a) / statistics.median(b), drawn[int(rounds * 0.025)],
            drawn[int(rounds * 0.975) - 1])


def drawn_slices(draw, run):
    """Sums over slices of a run, resampled with replacement: (tokens of a, ms of a, tokens of b, ms of b)."""
    return [sum(column) for column in zip(*(run[draw.randrange(len(run))] for _ in run))]


def interleaved_ratio(a, b, rounds=2000):
    """Ratio of the rates of two interleaved variants (`bench --interleave`) over all their slices, and its 95 %
    interval: percentile bootstrap over pairs of slices, within each repetition. a, b: the samples of the variants.
    Repetitions are not resampled, because the order in which engines are started is not random: if the number of
    repetitions is a multiple of the number of variants, every variant is first equally often."""
    runs = [[(*x, *y) for x, y in zip(s["slices"], t["slices"])] for s, t in zip(a, b)]

    def ratio(sums):
        tokens_a, ms_a, tokens_b, ms_b = (sum(column) for column in zip(*sums))
        return tokens_a / ms_a / (tokens_b / ms_b)

    draw = random.Random(1)
    drawn = sorted(ratio([drawn_slices(draw, run) for run in runs]) for _ in range(rounds))
    return (ratio([[sum(column) for column in zip(*run)] for run in runs]), drawn[int(rounds * 0.025)],
            drawn[int(rounds * 0.975) - 1])


class Cgroup:
    """A memory cgroup inside that of this process, version 2 or 1; children enter it before exec."""

    def __init__(self, name, limit):
        self.v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        places = dict((line.split(":", 2)[1], line.rstrip("\n").split(":", 2)[2])
                      for line in open("/proc/self/cgroup", encoding="ascii"))
        root = "/sys/fs/cgroup" if self.v2 else "/sys/fs/cgroup/memory"
        self.path = os.path.join(root + places["" if self.v2 else "memory"].rstrip("/"), name)
        try:
            os.makedirs(self.path, exist_ok=True)
            self.write("memory.max" if self.v2 else "memory.limit_in_bytes", limit)
        except OSError as e:
            sys.exit(f"cannot create a memory cgroup ({e}); needs root or a delegated group")

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def enter(self):
        """For preexec_fn."""
        self.write("cgroup.procs", os.getpid())

    def stat(self, key):
        with open(os.path.join(self.path, "memory.stat"), encoding="ascii") as f:
            values = dict(line.split() for line in f)
        return int(values.get(key if self.v2 else "total_" + key, 0))

    def peak(self):
        name = "memory.peak" if self.v2 else "memory.max_usage_in_bytes"
        try:
            with open(os.path.join(self.path, name), encoding="ascii") as f:
                return int(f.read())
        except OSError:
            return 0

    def oom_kills(self):
        """Processes that the kernel killed at the limit."""
        name = "memory.events" if self.v2 else "memory.oom_control"
        with open(os.path.join(self.path, name), encoding="ascii") as f:
            return int(dict(line.split() for line in f).get("oom_kill", 0))

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError as e:
            print(f"cannot remove {self.path}: {e}", file=sys.stderr)
