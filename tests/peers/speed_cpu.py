#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of sluice and llama.cpp by the CPU time of one thread, for machines that do other work, too:

    tests/peers/speed_cpu.py --peer DIR -m FILE [--chunks 256,512] [-d 4096] [-p 512] [-n 32] [-r 3]

An engine per chunk size, all experts resident, and llama.cpp mapped and repacked, with flash attention, take turns. A rate is
tokens per second of CPU time: of all threads of compute (the increase in /proc) or of llama.cpp's process. Each repetition has other
tokens. Memory and caches are shared with the other work, so decode is known less well than prefill. Medians and ranges on stdout."""
import argparse
import glob
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(os.path.dirname(HERE), "bench")
sys.path.insert(0, BENCH)
import measuring as m  # noqa: E402

TESTS = ("prefill_cpu_tps", "decode_cpu_tps")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", required=True, help="the directory that setup.sh made")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--chunks", default="256,512", help="--prefill-chunk of the engines")
    p.add_argument("-d", "--depth", type=int, default=0, help="tokens of context before both tests")
    p.add_argument("-p", "--prompt", type=int, default=512)
    p.add_argument("-n", "--tokens", type=int, default=32)
    p.add_argument("-r", "--repetitions", type=int, default=3)
    return p.parse_args()


class Engine:
    """`sluice run` with one thread."""

    def __init__(self, a, chunk):
        self.name, self.context = f"speed-cpu-{os.getpid()}-{chunk}", a.depth + a.prompt + a.tokens + 16
        options = {"--threads": 1, "--preset": "resident", "--prefill-chunk": chunk, "--ctx-size": self.context,
                   "--heartbeat-timeout": 120000}
        argv = [m.program("run"), "-m", a.model, "--name", self.name, *(str(x) for pair in options.items() for x in pair)]
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(os.path.join(folder, "notify"))
            notices.settimeout(1)
            self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                            env=dict(os.environ, NOTIFY_SOCKET=os.path.join(folder, "notify")))
            self.wait_until_ready(notices)

    def wait_until_ready(self, notices):
        """Until the engine sends what it sends to a service manager."""
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the engine ended with {self.process.returncode}")
            try:
                if b"READY=1" in notices.recv(4096):
                    return
            except TimeoutError:
                pass

    def compute(self):
        children = m.run(["pgrep", "-P", str(self.process.pid), "sluice-compute"]).split()
        return children[0]

    def cpu(self):
        total = 0
        for path in glob.glob(f"/proc/{self.compute()}/task/*/schedstat"):
            with open(path, encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def generate(self, ids, tokens):
        """Seconds of CPU time."""
        before = self.cpu()
        m.run([m.program("generate"), "--name", self.name, "--ids", ",".join(ids), "-n", str(tokens), "--ignore-eos",
               "--temperature", "0", "-q", "--output", "ids"])
        return self.cpu() - before

    def measure(self, a, ids):
        """The prompt's context is kept from the call before, and the prompt from that of the first token."""
        context, prompt = ids[:a.depth], ids[:a.depth + a.prompt]
        if context:
            self.generate(context, 1)
        prefill = self.generate(prompt, 1)
        self.generate(prompt, a.tokens + 1)  # experts are read and mapped on first use
        decode = self.generate(prompt, a.tokens + 1) - self.generate(prompt, 1)
        return {"prefill_cpu_tps": a.prompt / prefill, "decode_cpu_tps": a.tokens / decode}

    def stop(self):
        m.run([m.program("ctl"), "--name", self.name, "stop"])
        self.process.wait()


def run_llama(a, form, ids):
    return m.run_json([os.path.join(a.peer, "venv", "bin", "python"), os.path.join(BENCH, "llama_variant.py"), a.model, ids,
                       str(a.prompt), str(a.tokens), "1", form, str(a.depth), "flash"])


def main():
    a = arguments()
    engines = {f"sluice, chunks of {c}": Engine(a, c) for c in a.chunks.split(",")}
    runs = {name: lambda ids, e=e: e.measure(a, read_ids(ids)) for name, e in engines.items()}
    runs.update({f"llama.cpp {form}": lambda ids, form=form: run_llama(a, form, ids) for form in ("mapped", "repacked")})
    results = {name: [] for name in runs}
    try:
        for r in range(a.repetitions + 1):
            ids = f"/tmp/speed-cpu-{os.getpid()}"
            m.write_ids(ids, r + 1, 32000, a.depth + 2 * (a.prompt + a.tokens + 3))
            for name in runs if r % 2 == 0 else reversed(runs):
                if r > 0 or name in engines:  # llama_variant.py has a warm-up round of its own
                    results[name].append(runs[name](ids))
                    m.say(name, {t: round(results[name][-1][t], 1) for t in TESTS})
            os.unlink(ids)
    finally:
        for e in engines.values():
            e.stop()
    rows = []
    for name, all_runs in results.items():
        samples = all_runs[1:] if name in engines else all_runs
        values = [[x[t] for x in samples] for t in TESTS]
        rows.append([name] + [f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in values])
    print("\n".join(m.table(("", f"prefill of {a.prompt} at {a.depth}, tokens per CPU second", "decode"), rows)))


def read_ids(path):
    with open(path, encoding="ascii") as f:
        return f.read().split()


sys.exit(main())
