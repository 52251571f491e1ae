#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of each turn of a conversation, with the keys and values of the previous turn kept (--keep-kv)
and without:

    tests/bench/turns.py -m FILE [--turns 5] [--words 60] [-n 64] [-r 3] [-o DIR] [-- ENGINE-OPTIONS...]

A client talks to the gateway (`sluice run --http`): every turn sends the whole conversation and reads the answer as a
stream. The two engines alternate; each repetition starts a new engine. Prints a table and writes DIR/turns.json."""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

import measuring as m

WORDS = ("the of and to a in was he that it his her you as had with for she not but at is on be him they were have "
         "which still from one all there this when me would so been if then out no up").split()
VARIANTS = {"kept": [], "not kept": ["--keep-kv=0"]}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Engine:
    def __init__(self, model, options):
        self.port = free_port()
        self.name = f"turns-{os.getpid()}"
        self.process = subprocess.Popen([m.program("run"), "-m", model, "--name", self.name, "--http", str(self.port),
                                         *options],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("ready:"):
                return
        sys.exit(f"the engine did not start (status {self.process.wait()})")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=30)

    def answer(self, messages, tokens):
        """Seconds to the first token, the answer, tokens of the prompt, and how many of them were not computed."""
        body = json.dumps({"messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True,
                           "stream_options": {"include_usage": True}})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        started = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"the gateway answered {response.status}: {response.read()[:500]}")
        first, text, usage = None, "", {}
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                content = choice["delta"].get("content")
                if content:
                    first = first or time.monotonic() - started
                    text += content
        connection.close()
        if first is None:
            sys.exit("an answer without a token: choose another model or seed")
        return first, text, usage["prompt_tokens"], usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)


def conversation(engine, a, seed):
    chosen, messages, turns = random.Random(seed), [], []
    for _ in range(a.turns):
        messages.append({"role": "user", "content": " ".join(chosen.choices(WORDS, k=a.words))})
        first_s, text, prompt, cached = engine.answer(messages, a.tokens)
        messages.append({"role": "assistant", "content": text})
        turns.append({"first_s": first_s, "prompt_tokens": prompt, "cached_tokens": cached})
    return turns


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--words", type=int, default=60, help="of a message")
    p.add_argument("-n", "--tokens", type=int, default=64, help="of an answer")
    p.add_argument("-r", "--repetitions", type=int, default=3)
    p.add_argument("-o", "--out", help="directory for turns.json")
    p.add_argument("engine", nargs="*", help="options of the engine, after --")
    return p.parse_args()


def main():
    a = arguments()
    results = {name: [] for name in VARIANTS}
    for i in range(a.repetitions):
        for name, options in VARIANTS.items():
            m.say(f"repetition {i + 1} of {a.repetitions}, {name}")
            with Engine(a.model, [*a.engine, *options]) as engine:
                results[name].append(conversation(engine, a, i))
    rows = []
    for turn in range(a.turns):
        ms = {name: [1e3 * c[turn]["first_s"] for c in results[name]] for name in VARIANTS}
        ratios = [k / n for k, n in zip(ms["kept"], ms["not kept"])]
        kept = results["kept"][0][turn]
        rows.append((str(turn + 1), str(kept["prompt_tokens"]), str(kept["cached_tokens"]),
                     *(f"{statistics.median(ms[name]):.0f}" for name in ("not kept", "kept")),
                     f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"))
    print("\n".join(m.table(("turn", "prompt tokens", "of them kept", "ms without", "ms with", "with/without"), rows)))
    if a.out:
        os.makedirs(a.out, exist_ok=True)
        m.write_json(os.path.join(a.out, "turns.json"), {"arguments": vars(a), "results": results})


if __name__ == "__main__":
    main()
