#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a turn of a conversation costs, and how long a running stream waits while a prompt arrives:

    tests/bench/conversation.py -m FILE [--turns 10] [--answer 48] [-r 3] [-o DIR] [-- OPTIONS...]

Conversation: `--turns` turns of 100 tokens, `--answer` of them the model's, after `--system` tokens of system prompt
and tools; between two turns two other clients take one, too, and each turn is followed by a request for a title. For
each turn: tokens of the prompt, those that were reused, those that could be, the time to the first token, and that of a
prompt of the new tokens alone, which is asked right after it; with `--answer 1` their processor times compare, too,
which other programs on the machine change little. Gap: times between the tokens of a stream while a prompt
of 4,000 tokens arrives. Prompts are token ids of a model of synth, whose control token ends each message; the answers
are those of the model. Prints tables and writes DIR/conversation.json."""
import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

import measuring as m

END = 262  # the control token of models of synth
TITLE = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Engine:
    def __init__(self, model, options):
        self.name = f"conversation-{os.getpid()}"
        self.port = free_port()
        self.process = subprocess.Popen([m.program("run"), "-m", model, "--name", self.name,
                                         "--http", str(self.port), *options],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("ready:"):
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        sys.exit(f"the engine did not start (status {self.process.wait()})")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)

    def command(self, ids, tokens, output):
        return [m.program("generate"), "--name", self.name, "--ids", ",".join(map(str, ids)), "-n", str(tokens),
                "--ignore-eos", "--temperature", "0", "-q", "--output", output]

    def compute_ms(self):
        """Processor time of the process compute, all threads."""
        processes = m.sluice("stats", "--name", self.name, "--json")["processes"]
        pid = next(p["pid"] for p in processes if p["service"] == "compute")
        total = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e6

    def ask(self, ids, tokens):
        """The answer and its statistics; cpu_ms: processor time of compute meanwhile."""
        before = self.compute_ms()
        got = json.loads(m.run(self.command(ids, tokens, "json")))
        return {**got, "cpu_ms": self.compute_ms() - before}

    def ask_beside(self, ids, tokens, header, **fields):
        """A request over HTTP, for what `generate` has no options for. Its time, and the processor time, in ms."""
        body = {"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **fields}
        before, started = self.compute_ms(), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"X-Sluice-Class": header})
        response = connection.getresponse()
        reply = response.read()
        if response.status != 200:
            sys.exit(f"the gateway answered {response.status}: {reply[:500]}")
        return 1e3 * (time.monotonic() - started), self.compute_ms() - before

    def stream(self, ids, tokens, times, before, reached):
        """Appends the times at which the tokens of an answer arrive. Sets `reached` after `before` of them, and at the
        end."""
        process = subprocess.Popen(self.command(ids, tokens, "ids"), stdout=subprocess.PIPE)
        while piece := os.read(process.stdout.fileno(), 4096):
            times += [time.monotonic()] * piece.count(b" ")
            if len(times) >= before:
                reached.set()
        reached.set()
        process.wait()


class Client:
    def __init__(self, number, system, seed):
        self.draw = random.Random(seed * 1000 + number)
        self.log = [*system, END, 10]
        self.known = []

    def words(self, count):
        return [263 + self.draw.randrange(20000) for _ in range(count)]


def common(a, b):
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n


def turn(engine, clients, client, answer):
    client.log += [*client.words(96 - answer), END, 20]
    could = max(common(client.log[:-1], other.known) for other in clients)
    got = engine.ask(client.log, answer)
    client.known = client.log + got["ids"][:-1]
    client.log = client.log + got["ids"] + [END, 10]
    return {"prompt": got["prompt_tokens"], "cached": got["cached_tokens"], "could": could, "first_ms": got["ttft_ms"],
            "cpu_ms": got["cpu_ms"]}


def alone(engine, client, tokens):
    """A prompt of so many tokens, which neither uses nor leaves anything."""
    return engine.ask_beside(client.words(tokens), 1, "conversation", cache_prompt=False)


def conversation(engine, a, seed):
    draw = random.Random(seed)
    system = [263 + draw.randrange(20000) for _ in range(a.system)]
    clients = [Client(i, system, seed) for i in range(3)]
    turns = []
    for number in range(a.turns):
        row = turn(engine, clients, clients[0], a.answer)
        row["alone_ms"], row["alone_cpu_ms"] = alone(engine, clients[0], row["prompt"] - row["could"])
        turns.append(row)
        m.say(f"turn {number + 1}: {row}")
        for other in clients[1:]:
            turn(engine, clients, other, a.answer)
            engine.ask_beside([263 + (number * 31 + i * 7) % 20000 for i in range(TITLE)], 8, "side")
    return turns


def gap(engine, a, seed):
    """Times between the tokens of a stream before and while a prompt arrives, in ms."""
    draw = random.Random(seed)
    times, reached = [], threading.Event()
    prompt = [263 + draw.randrange(20000) for _ in range(64)]
    thread = threading.Thread(target=engine.stream, args=(prompt, a.stream, times, a.before, reached))
    thread.start()
    reached.wait()
    started = time.monotonic()
    engine.ask([263 + draw.randrange(20000) for _ in range(a.prompt)], 1)
    ended = time.monotonic()
    if not thread.is_alive():
        m.say("the stream ended before the prompt was read: more --stream tokens are needed")
    thread.join()
    between = [(t, 1e3 * (t - s)) for s, t in zip(times, times[1:])]
    return ([ms for t, ms in between if t <= started], [ms for t, ms in between if started < t <= ended])


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def median(values):
    return quantile(values, 0.5)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--answer", type=int, default=48, help="tokens of an answer")
    p.add_argument("--system", type=int, default=2000)
    p.add_argument("--prompt", type=int, default=4000, help="tokens of the prompt that arrives beside a stream")
    p.add_argument("--stream", type=int, default=400, help="tokens of the stream")
    p.add_argument("--before", type=int, default=40, help="tokens of it before the prompt arrives")
    p.add_argument("--gap-ms", type=int, default=500)
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("-o", "--out", help="directory for conversation.json")
    p.add_argument("engine", nargs="*", help="options of the engine, after --")
    return p.parse_args()


def table_of_turns(repetitions):
    rows = []
    for number, turns in enumerate(zip(*repetitions)):
        ratios = [t["first_ms"] / t["alone_ms"] for t in turns]
        cpu = [t["cpu_ms"] / t["alone_cpu_ms"] for t in turns]
        rows.append((str(number + 1), turns[0]["prompt"], turns[0]["cached"], turns[0]["could"],
                     f"{median([t['first_ms'] for t in turns]):.0f}", f"{median([t['alone_ms'] for t in turns]):.0f}",
                     f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", f"{median(cpu):.2f}"))
    return m.table(("turn", "prompt tokens", "reused", "could be", "ms", "ms of new tokens alone", "ratio",
                    "ratio of processor time"), rows)


def table_of_gaps(gaps, limit_ms):
    rows = [(name, len(values), f"{median(values):.0f}", f"{quantile(values, 0.99):.0f}", f"{max(values):.0f}",
             f"{quantile(values, 0.99) / limit_ms:.2f}") for name, values in
            (("alone", [ms for g in gaps for ms in g[0]]), ("beside a prompt", [ms for g in gaps for ms in g[1]]))
            if values]
    return m.table(("stream", "gaps", "median ms", "99th percentile ms", "longest ms", "of --max-token-gap"), rows)


def main():
    a = arguments()
    options = ["--ctx-size=16384", f"--max-token-gap={a.gap_ms}", *a.engine]
    repetitions, gaps = [], []
    for i in range(a.repetitions):
        m.say(f"repetition {i + 1} of {a.repetitions}")
        with Engine(a.model, options) as engine:
            if a.turns > 0:
                repetitions.append(conversation(engine, a, i))
            if a.prompt > 0:
                gaps.append(gap(engine, a, 100 + i))
    if repetitions:
        print("\n".join(table_of_turns(repetitions)))
    if gaps:
        print("\n".join(table_of_gaps(gaps, a.gap_ms)))
    if a.out:
        os.makedirs(a.out, exist_ok=True)
        m.write_json(os.path.join(a.out, "conversation.json"),
                     {"arguments": vars(a), "turns": repetitions, "gaps": gaps})


if __name__ == "__main__":
    main()
