#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a model file to responses with a tuning, each step in a memory cgroup of the budget's size:

    tests/bench/one_command.py -m MODEL --budget 2GiB|25% [--max-loss 1] [--minutes 60] [-n 64] [-o DIR]

Steps: a lossless response; `sluice tune`; a first and a second response with the tuning. A budget in percent is that with
this share of the experts resident. The cgroup is as large as the budget and --slack percent, for memory that the kernel
charges to the group: it counts, unlike the ledger, the page cache of files, which the kernel reclaims when the group is
full, so its peak may reach the limit. Failures at the limit must be 0 kills. The model file is dropped from the page
cache before each step. Tunings and stores are made in DIR (default: a temporary directory, removed at the end); with a
DIR that exists an interrupted tuning continues. Markdown on stdout, progress on stderr."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import measuring as m

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
PROMPT = "It was a dark and stormy night, and"


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--budget", required=True, help="bytes (2GiB), or percent of the experts (25%%)")
    p.add_argument("--max-loss", type=float, default=1, help="percent")
    p.add_argument("--minutes", type=int, help="time that tune may take (default: tune's)")
    p.add_argument("--tokens", type=int, help="maximum tokens of text for tune (default: tune's)")
    p.add_argument("-c", "--ctx-size", type=int, default=512, help="of the responses; a budget in percent is for 512")
    p.add_argument("-n", type=int, default=64, help="tokens of a response")
    p.add_argument("--slack", type=float, default=5, help="percent by which the cgroup is larger than the budget")
    p.add_argument("-o", "--output", help="directory of tunings and stores")
    return p.parse_args()


def budget_bytes(a):
    share = re.fullmatch(r"([0-9.]+)%", a.budget)
    if share:
        return m.budget_for(m.model_of(a.model), float(share[1]))
    size = re.fullmatch(r"([0-9.]+)(KiB|MiB|GiB)", a.budget)
    if not size:
        sys.exit(f"--budget {a.budget}: 2GiB, 45MiB or 25% expected")
    return int(float(size[1]) * UNITS[size[2]])


def directory_bytes(path):
    return sum(os.stat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)


class Steps:
    """Runs programs in cgroups of the same limit, and keeps a row for each."""

    def __init__(self, a, directory, budget):
        self.a, self.directory, self.budget = a, directory, budget
        self.limit = int(budget * (1 + a.slack / 100))
        self.env = dict(os.environ, XDG_CACHE_HOME=os.path.join(directory, "cache"))
        self.rows, self.kills = [], 0

    def run(self, name, argv):
        """stdout as JSON. The peak is the cgroup's; bytes read are those of the program and its descendants."""
        m.say(name)
        m.drop_cache(self.a.model)
        group = m.Cgroup(f"sluice-one-command-{os.getpid()}", self.limit)
        before, begun = directory_bytes(self.directory), time.monotonic()
        try:
            child = subprocess.Popen([str(x) for x in argv], stdout=subprocess.PIPE, env=self.env,
                                     preexec_fn=group.enter)
            out = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.monotonic() - begun
            self.kills += group.oom_kills()
            if status:
                sys.exit(f"{name}: {argv[0]} ended with status {status:#x}, {self.kills} kills at the limit")
            doc = json.loads(out)
            self.rows.append((name, f"{seconds:.1f}", f"{usage.ru_inblock * 512 / 1e6:.0f}",
                              f"{(directory_bytes(self.directory) - before) / 1e6:.1f}",
                              f"{group.peak() / 2**20:.1f}", *response(doc)))
            return doc
        finally:
            group.remove()

    def generate(self, name, *more):
        return self.run(name, [m.program("generate"), "-m", self.a.model, "-p", PROMPT, "-n", self.a.n, "--ignore-eos",
                               "--temperature", 0, "--budget", self.budget, "--ctx-size", self.a.ctx_size, "--output", "json", "-q",
                               *more])

    def tune(self):
        a = self.a
        store = os.path.join(self.directory, "stores")
        os.makedirs(store, exist_ok=True)
        argv = [m.program("tune"), "-m", a.model, "--budget", self.budget, "--max-loss", f"{a.max_loss:g}%",
                "--store-dir", store, "--yes", "--output", "json"]
        argv += ["--minutes", a.minutes] if a.minutes else []
        argv += ["--tokens", a.tokens] if a.tokens else []
        return self.run("tune", argv)


def response(doc):
    """The columns that only a response has."""
    if "ttft_ms" not in doc:
        return "", "", "", ""
    return (doc["preset"], f"{doc['ttft_ms']:.0f}", f"{doc['decode_tps']:.1f}",
            f"{doc['peak_memory_bytes'] / 2**20:.1f}")


def report(a, steps, tuned):
    print(f"{os.path.basename(a.model)}, {os.stat(a.model).st_size / 2**20:.0f} MiB; budget {steps.budget / 2**20:.1f} "
          f"MiB, cgroup {steps.limit / 2**20:.1f} MiB, {steps.kills} kills at its limit; loss at most {a.max_loss:g} %; "
          f"{os.cpu_count()} CPUs; {time.strftime('%Y-%m-%d')}\n")
    print("\n".join(m.table(["step", "s", "MB read", "MB written and kept", "peak of the cgroup, MiB", "preset",
                             "first token, ms", "decode, tokens/s", "peak of the ledger, MiB"], steps.rows)))
    print("\n```\n" + json.dumps(tuned, indent=1) + "\n```")


def main():
    a = arguments()
    directory = a.output or tempfile.mkdtemp(prefix="sluice-one-command.")
    os.makedirs(directory, exist_ok=True)
    try:
        steps = Steps(a, directory, budget_bytes(a))
        loss = ["--max-loss", f"{a.max_loss:g}%"]
        steps.generate("lossless", "--no-tune")
        tuned = steps.tune()
        steps.generate("first response", *loss)
        steps.generate("second response", *loss)
        report(a, steps, tuned)
        return 1 if steps.kills else 0
    finally:
        if not a.output:
            shutil.rmtree(directory)


sys.exit(main())
