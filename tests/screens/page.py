#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes screenshots of the gateway's page at several sizes, when its charts have enough samples:

    page.py CHROMIUM URL SAMPLES WIDTHxHEIGHT:FILE.png ...

The browser is controlled over a pipe (--remote-debugging-pipe): --screenshot would capture the page on load, before
it has fetched stats twice, and virtual time would make its rates wrong."""
import base64
import json
import os
import subprocess
import sys
import tempfile

DEADLINE_S = 90


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


# Fulfilled when the token chart has enough values; checked once per frame.
CHARTS = """new Promise(done => {
  const until = performance.now() + %d;
  const look = () => {
    if (typeof kept === 'object' && kept['chart-tokens'] && kept['chart-tokens'].length >= %d) done(true);
    else if (performance.now() > until) done(false);
    else requestAnimationFrame(look);
  };
  look();
})"""


def take(browser, url, wanted, size, path):
    width, height = (int(n) for n in size.split("x"))
    session = open_page(browser, url, width, height)
    result = browser.call("Runtime.evaluate", session, returnByValue=True, awaitPromise=True,
                          expression=CHARTS % (1000 * DEADLINE_S, wanted))
    if not result["result"].get("value"):
        raise SystemExit(f"page.py: the page shows nothing after {DEADLINE_S} s")
    whole = os.environ.get("WHOLE_PAGE") == "1"
    picture = browser.call("Page.captureScreenshot", session, format="png", captureBeyondViewport=whole,
                           optimizeForSpeed=False)
    with open(path, "wb") as out:
        out.write(base64.b64decode(picture["data"]))


def main(program, url, wanted, *shots):
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        for shot in shots:
            take(browser, url, int(wanted), *shot.split(":", 1))
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
