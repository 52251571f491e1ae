#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that a proxy and the gateway might divide differently, behind nginx and haproxy (README.md).

    proxies.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

Each proxy keeps its connections to the gateway. An attacker sends bytes that hide a second request, /smuggled; then
other clients ask for the list of models, and each gets it. The gateway sees /smuggled only as often as the attacker got
its own answer (404). Streams and bodies in chunks pass through, too. SKIP of a proxy that is not installed. Exit status:
0 as expected and no process ended, 1 not."""
import argparse
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import readers
from session import Engine, family_models, holds, same, with_engine

VICTIMS = 6
GET = "GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
NGINX = """daemon off; pid {work}/nginx.pid; error_log {work}/error.log;
events {{ }}
http {{
  access_log off; client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f;
  uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
  upstream gateway {{ server {gateway}; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://gateway; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_set_header Host 127.0.0.1; proxy_buffering off; proxy_request_buffering off;
                  proxy_ignore_client_abort on; }}
  }}
}}
"""
HAPROXY = """defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  http-request set-header Host 127.0.0.1
  default_backend engine
backend engine
  server gateway {gateway}
"""
PROXIES = {"nginx": (NGINX, ["-p", "{work}", "-c", "{work}/config"]), "haproxy": (HAPROXY, ["-db", "-f", "{work}/config"])}


def attacks():
    body = "0\r\n\r\n" + GET
    for name, value in (("Content-Length", len(body)), ("content-length", len(body)), ("Content-Length ", len(body))):
        yield POST + f"{name}: {value}\r\n" + CHUNKED + "\r\n" + body
        yield POST + CHUNKED + f"{name}: {value}\r\n\r\n" + body
    for header in ("Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding:\tchunked",
                   "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
                   " Transfer-Encoding: chunked", "X: y\r\n Transfer-Encoding: chunked", "Transfer-Encoding: \x0bchunked",
                   "Transfer-Encoding: \"chunked\"", "X: y\nTransfer-Encoding: chunked", "Transfer_Encoding: chunked"):
        yield POST + f"Content-Length: {len(body)}\r\n{header}\r\n\r\n" + body
        yield POST + f"Content-Length: 3\r\n{header}\r\n\r\n" + body
    for lengths in (("0", str(len(GET))), (str(len(GET)), "0"), ("0, " + str(len(GET)),), ("+" + str(len(GET)),),
                    ("0x2",), ("2 ",), ("-1",), (str(1 << 64),), ("0\x0b",), ("",)):
        yield POST + "".join(f"Content-Length: {n}\r\n" for n in lengths) + "\r\n" + GET
    for size in ("0;" + "x" * 30, "00000000000000000000", "0x0", "0\n", " 0", "-0", "1\r\nx\r\n0", "ffffffffffffffff1", "2\r\n{}0"):
        yield POST + CHUNKED + f"\r\n{size}\r\n\r\n" + GET
    for head in ("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n", "GET /health HTTP/0.9\r\n", "GET /health\r\n",
                 "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n",
                 "HEAD /health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                 "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Content-Length, close\r\nContent-Length: 60\r\n",
                 "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 60\r\n",
                 "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"):
        yield head + "\r\n" + GET


def exchange(port, payload):
    """What comes back until the connection is closed, or nothing more comes."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(payload.encode("latin-1"))
        s.shutdown(socket.SHUT_WR)
        try:
            while data := s.recv(65536):
                got += data
        except OSError:  # reset
            pass
    return got.decode("latin-1")


def start_proxy(name, work, gateway):
    with socket.socket() as s:  # a free port
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    text, words = PROXIES[name]
    os.makedirs(work, exist_ok=True)
    with open(os.path.join(work, "config"), "w") as f:
        f.write(text.format(work=work, port=port, gateway=gateway))
    process = subprocess.Popen([program(name), *(w.format(work=work) for w in words)], cwd=work, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return process, port
        except OSError:
            holds(f"{name} does not start", time.monotonic() < until and process.poll() is None)


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")


class Behind:
    """For readers: an engine at the proxy's address."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"


def requests_of(log, path):
    with open(log) as f:
        return sum(line.split()[3] == path for line in f)


def attack(port, log, engine):
    asked, before, own = requests_of(log, "/v1/models") + 1, requests_of(log, "/smuggled"), 0
    models = engine.get("/v1/models")
    for number, payload in enumerate(attacks()):
        what = f"attack {number}, {payload[:120]!r}"
        own += exchange(port, payload).count("HTTP/1.1 404")
        for _ in range(VICTIMS):
            same(f"{what}: another client's answer", readers.call(Behind(port), "GET", "/v1/models"), models)
        asked += VICTIMS
        until = time.monotonic() + 30  # the log has a request at its end; the attacker's has ended
        while requests_of(log, "/v1/models") < asked:
            holds("the log lacks requests", time.monotonic() < until)
        seen = requests_of(log, "/smuggled") - before
        holds(f"{what}: /smuggled was seen {seen} times, its client got {own} answers", seen <= own)


def proxied(name, family, doc, work, log, engine):
    process, port = start_proxy(name, os.path.join(work, name), urllib.parse.urlsplit(engine.url).netloc)
    try:
        ask = {"model": "any", "temperature": 0, "tools": doc["tools"], "messages": [{"role": "user", "content": doc["ask"]}]}
        for read, body in ((readers.chat, ask), (readers.ollama, ask),
                           (readers.responses, {"input": "B", "temperature": 0})):
            holds("a stream is not whole", read(Behind(port), body)["content"] in (family["content"], doc["done"]))
        text = json.dumps({"prompt": "B", "max_tokens": 2, "temperature": 0})
        answer = exchange(port, POST + CHUNKED + f"Connection: close\r\n\r\n{len(text):x}\r\n{text}\r\n0\r\n\r\n")
        holds(f"a body in chunks: {answer[:200]}", doc["done"] in answer)
        attack(port, log, engine)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    work, sessions = os.path.abspath(a.out), {}
    doc = family_models(a.models, work)
    family = next(f for f in doc["families"] if f["name"] == "coder")
    log = os.path.join(work, "http.log")
    for name in PROXIES:
        if program(name):
            sessions[name] = functools.partial(proxied, name, family, doc, work, log)
        else:
            print(f"SKIP behind_{name}: it is not installed")
    good = not sessions or with_engine("behind", lambda: Engine(family["path"], a.libexec, work, f"--http-log={log}"),
                                       sessions)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
