#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a table on storage costs: rows, pages, bytes and the wait for them per token, with `sluice bench` in a cgroup.

    tests/bench/table_rows.py -m MODEL [--share 50] [-n 64 -r 3] [--delay MS] [--rate BYTES] [-- ENGINE OPTION ...]

--delay: reads are from a copy on a server of this machine (nbdkit), which answers after that many milliseconds; --rate:
the engine's throttle, bytes per second. The cgroup has the budget as its limit. Markdown on stdout; exit status 1 if a
token reads other numbers of rows than doctor predicts, or if the cgroup's peak is above the budget."""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import measuring as m

PAGE = 4096


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--share", type=float, default=50, help="percent of the experts in memory")
    p.add_argument("-n", "--tokens", type=int, default=64)
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rows", type=int, default=16, help="rows of a token, as doctor says (default 16)")
    p.add_argument("--delay", type=int, default=0)
    p.add_argument("--rate", type=int, default=0)
    p.add_argument("engine", nargs="*", help="after --: more options of the engine")
    return p.parse_args()


class Server:
    """nbdkit with the model, on a Unix socket; None if no delay is wanted."""

    def __init__(self, model, delay, directory):
        self.socket, self.process = os.path.join(directory, "nbd.sock"), None
        if delay == 0:
            return
        if not shutil.which("nbdkit"):
            sys.exit("--delay needs nbdkit")
        self.process = subprocess.Popen(["nbdkit", "-f", "-r", "-t", "64", "-U", self.socket, "--filter=delay", "file", model,
                                         f"delay-read={delay}ms"])
        m.wait_for_socket(self.socket, self.process)

    def options(self):
        return ["--devices", f"nbd+unix:///?socket={self.socket}"] if self.process else []

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def per_token(a, doc):
    test = m.variant_test(doc, 0)
    tokens = (a.tokens + 1) * len(test["samples"])  # with the one that is computed before
    of = {name: m.counter(test, f"compute.table_{name}") / tokens for name in ("rows", "pages", "misses", "wait_ns")}
    of["bytes"] = of["misses"] * PAGE
    token_s = statistics.median(1 / s["tps"] for s in test["samples"])
    return {**of, "token_s": token_s, "wait_s": of["wait_ns"] * 1e-9, "tps": test["tps_median"]}


def main():
    a = arguments()
    budget = m.budget_for(m.model_of(a.model), a.share)
    group = m.Cgroup(f"sluice-table-{os.getpid()}", budget)
    with tempfile.TemporaryDirectory(prefix="sluice-table.") as directory:
        server = Server(os.path.abspath(a.model), a.delay, directory)
        try:
            m.drop_cache(a.model)
            doc = m.sluice("bench", "-m", a.model, "-p", 0, "-n", a.tokens, "-r", a.repetitions, "--budget", budget, "--threads",
                           a.threads, "-o", "json", *server.options(), *(["--throttle", a.rate] if a.rate else []), *a.engine,
                           preexec_fn=group.enter)
            peak, killed = group.peak(), group.oom_kills()
        finally:
            server.stop()
            group.remove()
    t = per_token(a, doc)
    print("\n".join(m.table(
        ["delay ms, throttle MB/s", "tokens/s", "rows", "pages", "read", "KiB", "wait us", "of a token", "peak/budget MiB"],
        [(f"{a.delay or '-'}, {a.rate / 1e6:g}" if a.rate else f"{a.delay or '-'}, -", f"{t['tps']:.2f}", f"{t['rows']:.2f}",
          f"{t['pages']:.2f}", f"{t['misses']:.2f}", f"{t['bytes'] / 1024:.1f}", f"{t['wait_s'] * 1e6:.0f}",
          f"{100 * t['wait_s'] / t['token_s']:.2f} %", f"{peak / 2**20:.0f}/{budget / 2**20:.0f}")])))
    return 0 if round(t["rows"]) == a.rows and peak <= budget and killed == 0 else 1


sys.exit(main())
