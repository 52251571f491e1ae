#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives the gateway's page in Chromium, and takes its pictures, when its charts have enough samples:

    page.py CHROMIUM URL SAMPLES FOLDER

The browser is controlled over a pipe (--remote-debugging-pipe): --screenshot would capture the page on load, before
it has fetched stats twice, and virtual time would make its rates wrong."""
import base64
import json
import os
import subprocess
import sys
import tempfile

DEADLINE_S = 240


class Browser:
    def __init__(self, program, profile):
        to_it, self.write = os.pipe()
        self.read, from_it = os.pipe()
        # The browser reads commands from descriptor 3 and writes replies to 4.
        script = f'exec "$@" 3<&{to_it} 4>&{from_it}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--hide-scrollbars", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_it, from_it), stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.rest, self.number = b"", 0

    def message(self):
        while b"\0" not in self.rest:
            block = os.read(self.read, 1 << 20)
            if not block:
                raise SystemExit("page.py: the browser has exited")
            self.rest += block
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        while True:
            reply = self.message()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise SystemExit(f"page.py: {method}: {reply['error']['message']}")
                return reply["result"]

    def close(self):
        self.call("Browser.close")
        self.process.wait()


def open_page(browser, url, width, height):
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    browser.call("Emulation.setDeviceMetricsOverride", session, width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)
    browser.call("Page.navigate", session, url=url)
    return session


# Fulfilled with the value of an expression once it is true. A timer, because a tab in the background has no frames.
UNTIL = """new Promise(done => {
  const until = performance.now() + %d, check = () => {
    let value = null;
    try { value = %s; } catch (e) { /* the page is not there yet */ }
    if (value || performance.now() > until) done(value);
    else setTimeout(check, 20);
  };
  check();
})"""
SEND = """(() => { const box = document.querySelector("#talk form textarea"); box.value = %s; box.form.requestSubmit();
  return document.getElementById("conversation").innerText; })()"""
TEXT = "document.getElementById('conversation').innerText"
IDLE = "document.body.classList.contains('on') && document.getElementById('stop').hidden && (" + TEXT + " || ' ')"


class Page:
    def __init__(self, browser, url, width=1000, height=800):
        self.browser = browser
        self.session = open_page(browser, url, width, height)

    def value(self, expression):
        result = self.browser.call("Runtime.evaluate", self.session, returnByValue=True, awaitPromise=True,
                                   expression=expression)
        if "exceptionDetails" in result:
            raise SystemExit(f"page.py: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def until(self, expression):
        return self.value(UNTIL % (1000 * DEADLINE_S, expression))

    def say(self, text):
        """What is shown at once, and in the end."""
        return self.value(SEND % json.dumps(text)), self.until(IDLE)

    def set(self, field, value):
        """As a person changes a field."""
        self.value(f"(() => {{ const e = document.getElementById({json.dumps(field)}); e.value = {json.dumps(value)}; "
                   "e.dispatchEvent(new Event('change')); })()")

    def media(self, scheme):
        self.browser.call("Emulation.setEmulatedMedia", self.session,
                          features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        whole = os.environ.get("WHOLE_PAGE") == "1"
        shot = self.browser.call("Page.captureScreenshot", self.session, format="png", captureBeyondViewport=whole,
                                 optimizeForSpeed=False)
        with open(path, "wb") as out:
            out.write(base64.b64decode(shot["data"]))


PROMPTS = ("It was a dark and stormy night, and", "The next morning, the captain")
CHARTS = "kept['chart-tokens'] && kept['chart-tokens'][0].length >= %d"


def pictures(browser, url, samples, folder):
    """The pictures of the page in docs/screens."""
    phone = Page(browser, url, 390, 844)
    if not phone.until(IDLE):
        raise SystemExit(f"page.py: the page shows nothing after {DEADLINE_S} s")
    for field, value in (("temperature", "0.6"), ("longest", "40")):
        phone.set(field, value)
    for prompt in PROMPTS:
        phone.say(prompt)
    phone.picture(f"{folder}/page-phone.png")
    chat = Page(browser, url, 1280, 720)
    chat.media("dark")
    chat.until(IDLE)
    chat.set("chats", chat.value("store.newest()[0].id"))
    chat.picture(f"{folder}/page-chat.png")
    engine = Page(browser, url + "#engine", 1280, 800)
    if not engine.until(CHARTS % samples):
        raise SystemExit(f"page.py: no charts after {DEADLINE_S} s")
    engine.picture(f"{folder}/page-desktop.png")
    small = Page(browser, url + "#engine", 390, 844)
    small.media("dark")
    if not small.until(f"document.getElementById('limit').innerText && {CHARTS % 3}"):
        raise SystemExit(f"page.py: no charts on a phone after {DEADLINE_S} s")
    small.picture(f"{folder}/page-phone-engine.png")


def main(program, url, samples, folder):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        pictures(browser, url, int(samples), folder)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
