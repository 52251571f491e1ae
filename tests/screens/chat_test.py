#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_test.py LIBEXEC MODEL: the chat of the gateway's page, in Chromium, with an engine of 128 tokens of context. It is
the first card; something is shown between Send and the first token; an answer that fills the context states it; a
message that is too long goes back to the box and is no turn; a reload keeps the conversation."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from page import DEADLINE_S, Browser, open_page

# Fulfilled with the value of an expression once it is true; checked once per frame.
UNTIL = """new Promise(done => {
  const until = performance.now() + %d, check = () => {
    let value = null;
    try { value = %s; } catch (e) { /* the page is not there yet */ }
    if (value || performance.now() > until) done(value);
    else requestAnimationFrame(check);
  };
  check();
})"""
SEND = """(() => { const box = document.querySelector("#talk textarea"); box.value = %s; box.form.requestSubmit();
  return document.getElementById("conversation").innerText; })()"""
TEXT = "document.getElementById('conversation').innerText"
IDLE = "document.body.classList.contains('on') && document.getElementById('stop').disabled && (" + TEXT + " || ' ')"


class Page:
    def __init__(self, browser, url):
        self.browser = browser
        self.session = open_page(browser, url, 1000, 800)

    def value(self, expression):
        result = self.browser.call("Runtime.evaluate", self.session, returnByValue=True, awaitPromise=True,
                                   expression=expression)
        return result["result"].get("value")

    def until(self, expression):
        return self.value(UNTIL % (1000 * DEADLINE_S, expression))

    def say(self, text):
        """What is shown at once, and in the end."""
        return self.value(SEND % json.dumps(text)), self.until(IDLE)


def check(holds, what):
    if not holds:
        raise SystemExit(f"not ok chat: {what}")


def converse(page):
    check(page.until(IDLE), "the page does not start")
    check(page.value("document.querySelector('main section').id") == "talk", "the chat is not the first card")
    at_once, answer = page.say("Once there was an old man")
    check("The prompt is computed" in at_once, f"nothing is shown before the first token: {at_once!r}")
    check("the context is full" in answer and re.search(r"\d+ tokens", answer), f"the end is not explained: {answer!r}")
    _, failed = page.say("x " * 2000)
    check("Not sent:" in failed and "xxx" not in failed, f"a message that is too long: {failed[-200:]!r}")
    check(page.value("document.querySelector('#talk textarea').value.length") == 4000, "it is not in the box again")
    check(page.value("JSON.parse(sessionStorage.getItem('sluice.chat')).length") == 2, "it is a turn")
    page.browser.call("Page.reload", page.session)
    kept = page.until("document.readyState === 'complete' && " + IDLE)
    check(kept.strip() == answer.strip(), f"a reload changed the conversation: {kept[:200]!r}")
    page.value("document.getElementById('fresh').click()")
    _, answer = page.say("A dog")
    check("Not sent" not in answer and "A dog" in answer, f"a new conversation fails: {answer!r}")


def main(libexec, model):
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        print("SKIP screens_chat: Chromium is not installed")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as run, \
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        engine = subprocess.Popen([f"{libexec}/sluice-run", "-m", model, "--http", "0", "--ctx-size", "128"],
                                  env=dict(os.environ, SLUICE_RUN_DIR=run, XDG_STATE_HOME=run), stderr=subprocess.PIPE, text=True)
        try:
            url = next((m.group(0) for m in (re.search(r"http://127\.0\.0\.1:\d+", line) for line in engine.stderr) if m), None)
            check(url, "the engine does not start")
            browser = Browser(chromium, profile)
            try:
                converse(Page(browser, url))
            finally:
                browser.close()
        finally:
            engine.terminate()
            engine.communicate()
    print("ok chat")


if __name__ == "__main__":
    main(*sys.argv[1:])
