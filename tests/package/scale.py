#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three engines, each in a network namespace, whose experts come from one server, with the HAProxy of
launch/scale/haproxy.cfg before them: conversations keep to an engine, and survive when it stops.

    scale.py ROOT BUILD
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT, BUILD = sys.argv[1], sys.argv[2]
NODES = 3
NET = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
TAG = f"sl{os.getpid() % 100000}"
KEY = "a-key-of-this-test"
STORIES = ["a dog", "the sea", "my aunt", "a storm", "an inn", "the king"]
LIMIT_S = 180


def missing():
    if not os.environ.get("SLUICE_LONG"):
        return "it runs with --long"
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "haproxy", "nbdkit"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if not os.path.exists(f"{BUILD}/libexec/sluice-loader-nbd"):
        return "this build has no loader for nbd"
    made = subprocess.run(["ip", "netns", "add", TAG], stderr=subprocess.PIPE, check=False)
    if made.returncode:
        return "no network namespace can be made: " + made.stderr.decode().strip()
    subprocess.run(["ip", "netns", "del", TAG], check=True)
    return None


def run(*command):
    subprocess.run(command, check=True)


def free_port(address):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


def network():
    run("ip", "link", "add", TAG, "type", "bridge")
    run("ip", "address", "add", f"{NET}.1/24", "dev", TAG)
    run("ip", "link", "set", TAG, "up")
    for i in range(NODES):
        name, end = f"{TAG}-{i}", f"{TAG}v{i}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", end, "master", TAG, "up")
        run("ip", "-n", name, "address", "add", f"{NET}.{10 + i}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")


def remove_network():
    for i in range(NODES):
        subprocess.run(["ip", "netns", "del", f"{TAG}-{i}"], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["ip", "link", "del", TAG], stderr=subprocess.DEVNULL, check=False)


class Cluster:
    def __init__(self, work):
        self.work, self.children, self.engines = work, [], {}
        self.demo = f"{ROOT}/launch/demo/tiny-books-moe-q8_0.gguf"
        self.store_port = free_port(f"{NET}.1")
        self.port = free_port("127.0.0.1")
        with open(f"{work}/key", "w", encoding="ascii") as f:
            f.write(KEY + "\n")
        self.start(["nbdkit", "-f", "-r", "-i", f"{NET}.1", "-p", str(self.store_port), "file", self.demo], "nbdkit")
        for i in range(NODES):
            self.start_engine(i)
        for i in range(NODES):
            self.wait_engine(i)
        with open(f"{ROOT}/launch/scale/haproxy.cfg", encoding="utf-8") as f:
            config = f.read()
        assert config.count("10.0.0.1") == NODES, "the example has other addresses than this test expects"
        with open(f"{work}/haproxy.cfg", "w", encoding="utf-8") as f:
            f.write(config.replace("10.0.0.", f"{NET}."))
        self.start(["haproxy", "-db", "-f", f"{work}/haproxy.cfg"], "haproxy", SLUICE_BIND=f"127.0.0.1:{self.port}")
        self.wait(lambda: get(self.url("/health")), "the router")

    def url(self, path, node=None):
        return f"http://127.0.0.1:{self.port}{path}" if node is None else f"http://{NET}.{10 + node}:8080{path}"

    def start(self, command, name, **environment):
        with open(f"{self.work}/{name}.log", "ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        self.children.append(child)
        return child

    def start_engine(self, i):
        self.engines[i] = self.start(
            ["ip", "netns", "exec", f"{TAG}-{i}", f"{BUILD}/libexec/sluice-run", "-m", self.demo, "--name", f"node{i}",
             "--http", "0.0.0.0:8080", "--http-key-file", f"{self.work}/key", "--ctx-size", "1024",
             "--devices", f"nbd://{NET}.1:{self.store_port}/"], f"node{i}", SLUICE_RUN_DIR=f"{self.work}/run{i}")

    def wait_engine(self, i):
        self.wait(lambda: get(self.url("/health", i)), f"engine {i}")

    def wait(self, ready, name):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if ready():
                return
            time.sleep(0.1)
        raise AssertionError(f"{name} was not ready within {LIMIT_S} s")

    def stop(self):
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as r:
            return r.status == 200
    except OSError:
        return False


def chat(url, messages):
    """The answer, the number of tokens that were reused, and the engine that answered."""
    body = {"messages": messages, "max_tokens": 12, "temperature": 0}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {
        "Content-Type": "application/json", "Authorization": "Bearer " + KEY})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as r:
        reply, node = json.load(r), r.headers.get("X-Sluice-Node")
    return reply["choices"][0]["message"]["content"], reply["usage"]["prompt_tokens_details"]["cached_tokens"], node


class Conversations:
    """One for each story; all have the same first message, the system's."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.messages = {s: [{"role": "system", "content": "You tell stories."}] for s in STORIES}
        self.nodes, self.cached = {}, {}

    def turn(self, text):
        for story in STORIES:
            self.messages[story].append({"role": "user", "content": f"{text} {story}."})
            answer, self.cached[story], self.nodes[story] = chat(self.cluster.url(""), self.messages[story])
            self.messages[story].append({"role": "assistant", "content": answer})

    def differing(self, node):
        """Stories whose latest answer is another one of this engine alone."""
        return [s for s in STORIES if chat(self.cluster.url("", node), self.messages[s][:-1])[0] != self.messages[s][-1]["content"]]


def check(cluster):
    talk = Conversations(cluster)
    talk.turn("Tell me about")
    first = dict(talk.nodes)
    assert len(set(first.values())) > 1, f"all conversations are at one engine: {first}"
    talk.turn("Say more about")
    assert talk.nodes == first, f"conversations moved from {first} to {talk.nodes}"
    assert all(talk.cached.values()), f"a conversation was computed anew: {talk.cached}"

    stopped = first[STORIES[0]]
    number = int(stopped[len("node"):])
    cluster.engines[number].terminate()
    cluster.engines[number].wait(60)
    talk.turn("What became of")
    for story in STORIES:
        assert (talk.nodes[story] == first[story]) == (first[story] != stopped), f"{story}: {first[story]}, then {talk.nodes[story]}"
        assert talk.cached[story] or first[story] == stopped, f"{story} was computed anew"
    other = next(i for i in range(NODES) if i != number)
    assert not talk.differing(other), f"the text depends on the engine: {talk.differing(other)}"

    cluster.start_engine(number)
    cluster.wait_engine(number)
    cluster.wait(lambda: returns(talk, stopped), "the engine that came back")


def returns(talk, node):
    """Whether the conversations of an engine are there again; the router looks every two seconds."""
    story = STORIES[0]
    return chat(talk.cluster.url(""), talk.messages[story][:-1])[2] == node


def main():
    reason = missing()
    if reason:
        print(f"SKIP scale_engines: {reason}")
        return 0
    work, cluster = tempfile.mkdtemp(prefix="sluice-scale-"), None
    try:
        network()
        cluster = Cluster.__new__(Cluster)
        cluster.__init__(work)
        check(cluster)
        print("ok scale_engines")
        return 0
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"    {error}")
        for log in sorted(os.listdir(work)):
            if log.endswith(".log"):
                with open(f"{work}/{log}", encoding="utf-8", errors="replace") as f:
                    print("".join(f"    {log}: {line}" for line in f.readlines()[-5:]), end="")
        print("not ok scale_engines")
        return 1
    finally:
        if cluster is not None:
            cluster.stop()
        remove_network()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
