#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A conversation of two turns in Open WebUI, driven in Chromium, in Ollama's API and in OpenAI's (README.md). The
model is picked in its list, the answer is that of the engine, the second turn continues the first, and the program's
own request for a title is in the access log as a side request. It asks for no login. Tools are off: the demo model
takes none.

    open_webui.py --program PROGRAM --chromium CHROMIUM --libexec LIBEXEC -o WORK

Prints a line "ok NAME" or "not ok NAME: reason" per API. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from session import DEMO_MODEL, ROOT, Engine, holds, report, same

sys.path.insert(0, os.path.join(ROOT, "tests", "screens"))
from page import Browser, Page  # noqa: E402

START_S = 900  # it makes its database first
END_S = 180
ASKED = "It was a dark and stormy night, and", "The next morning, the captain"
PARAMS = {"temperature": 0, "max_tokens": 120}  # up to 100 it would be a side request
INPUT = "document.getElementById('chat-input')"
ANSWERS = "[...document.querySelectorAll('#response-content-container')].map(e => e.innerText)"


def click(page, element):
    """Waits for an element and clicks it."""
    clicked = page.until(f"(e => e && !e.disabled && (e.click(), true))({element})")
    holds(f"there is nothing to click: {element}", clicked)


def button(words):
    return f"[...document.querySelectorAll('button')].find(b => b.innerText.includes({json.dumps(words)}))"


class WebUI:
    """The program, whose data are in `work`."""

    def __init__(self, program, work, ollama, openai):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = dict(os.environ, DATA_DIR=work, WEBUI_AUTH="False", WEBUI_SECRET_KEY="unused", OFFLINE_MODE="True",
                   HF_HUB_OFFLINE="1", RAG_EMBEDDING_ENGINE="ollama", AUDIO_STT_ENGINE="openai", DO_NOT_TRACK="True",
                   ANONYMIZED_TELEMETRY="False", ENABLE_TAGS_GENERATION="False",
                   ENABLE_FOLLOW_UP_GENERATION="False", OLLAMA_BASE_URLS=ollama, OPENAI_API_BASE_URLS=openai + "/v1",
                   OPENAI_API_KEYS="unused", DEFAULT_MODEL_PARAMS=json.dumps(PARAMS),
                   DEFAULT_MODEL_METADATA=json.dumps({"capabilities": {"builtin_tools": False}}))
        self.url = f"http://127.0.0.1:{port}"
        self.log = os.path.join(work, "log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=env,
                                            stdout=log, stderr=log)
        if not self.serves():
            self.stop()
            with open(self.log, encoding="utf-8") as log:
                raise SystemExit("open_webui: it does not start: " + log.read()[-500:])

    def serves(self):
        """Its log does not say when it listens: it is asked, each second unless it ends."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=END_S).close()
                return True
            except (urllib.error.URLError, OSError):
                pass
            try:
                self.process.wait(timeout=1)
                return False
            except subprocess.TimeoutExpired:
                pass
        return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


def lines(log, path, kind):
    """Of requests of that class in the access log: status and tokens of the prompt."""
    with open(log, encoding="utf-8") as f:
        rows = [line.split() for line in f]
    return [(r[4], int(r[7])) for r in rows if r[2:4] == ["POST", path] and r[-1] == kind]


def wait_for_lines(log, path, kind, count):
    """tail writes a line for each one that the engine adds."""
    with subprocess.Popen(["timeout", str(END_S), "tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as tail:
        while len(lines(log, path, kind)) < count and tail.stdout.readline():
            pass
        tail.terminate()
    found = lines(log, path, kind)
    holds(f"{len(found)} requests of the class '{kind}'", len(found) >= count)
    same(f"'{kind}'", {status for status, _ in found}, {"200"})
    return found


def say(page, text, turn, wanted):
    """Sends a message. The answer is to have these words; None: some."""
    page.value(f"{INPUT}.focus(); 0")
    page.browser.call("Input.insertText", page.session, text=text)
    click(page, "document.getElementById('send-message-button')")
    answer = f"(({ANSWERS})[{turn - 1}].match(/\\w+/g) || []).join(' ')"
    shown = page.until(f"{answer} === {json.dumps(' '.join(wanted))}" if wanted else answer)
    holds(f"turn {turn} shows {page.value(ANSWERS)}, and not {wanted or 'an answer'}", shown)


def converse(other, browser, url, name, path, log):
    """The engine `other` has the same model, and another log."""
    page = Page(browser, url, 1200, 900)
    holds("the page does not start", page.until(INPUT + " && true"))
    if page.value("!localStorage.version"):  # what is new in this version
        click(page, button("Let's Go"))
    click(page, "document.getElementById('model-selector-model-button')")
    click(page, f"document.querySelector('[role=option][aria-label*=\"{name}\"]')")
    message = {"role": "user", "content": ASKED[0]}
    own = other.post("/v1/chat/completions", dict(PARAMS, messages=[message]))["choices"][0]["message"]["content"]
    before = len(lines(log, path, "conversation"))
    say(page, ASKED[0], 1, re.findall(r"[A-Za-z0-9_]+", own))
    wait_for_lines(log, path, "side", 1)  # the title
    say(page, ASKED[1], 2, None)
    found = wait_for_lines(log, path, "conversation", before + 2)[before:]
    holds(f"the second turn does not have the first: {found}", found[1][1] > found[0][1] + PARAMS["max_tokens"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--chromium", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    paths = {"ollama": "/api/chat", "openai": "/v1/chat/completions"}
    logs = {api: os.path.join(a.out, api, "access") for api in paths}
    for log in logs.values():
        os.makedirs(os.path.dirname(log), mode=0o700)
    engines = {api: Engine(DEMO_MODEL, a.libexec, os.path.dirname(log), f"--alias=by-{api}", f"--http-log={log}")
               for api, log in logs.items()}
    webui = WebUI(a.program, a.out, engines["ollama"].url, engines["openai"].url)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(a.chromium, profile)
        good = all([report(f"open_webui_{api}", converse, other, browser, webui.url, f"by-{api}", paths[api], logs[api])
                    for api, other in zip(engines, reversed(engines.values()))])
        browser.close()
    webui.stop()
    for api, engine in engines.items():
        for e in engine.exits():
            print(f"not ok open_webui_{api}: {e['service']} ended: {e['exit_message']}")
            good = False
        engine.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
