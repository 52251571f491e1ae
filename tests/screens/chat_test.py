#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_test.py LIBEXEC MODEL: the chat of the gateway's page, in Chromium, with an engine of 128 tokens of context. It is
the first card; something is shown between Send and the first token; an answer that fills the context states it; a
message that is too long goes back to the box and is no turn; a reload keeps the conversation. With a slow device: how far
the prompt is, and the queue before that of a second page, until the first token."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from page import DEADLINE_S, Browser, open_page

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
SEND = """(() => { const box = document.querySelector("#talk textarea"); box.value = %s; box.form.requestSubmit();
  return document.getElementById("conversation").innerText; })()"""
TEXT = "document.getElementById('conversation').innerText"
SLOW = ["--parallel=1", "--resident-experts=20", "--prefill-chunk=16", "--throttle=24MiB", "--warm-start=off", "--prefault=off"]
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


NOTE = "[...document.querySelectorAll('#conversation .note')].at(-1).innerText"


def wait_for_a_prompt(browser, url):
    first = Page(browser, url)
    check(first.until(IDLE), "the page does not start")
    first.value(SEND % json.dumps("Once there was an old man. " * 40))
    shown = first.until(f"/^Prompt: \\d+ of \\d{{3}} tokens, \\d+ s left$/.test({NOTE}) && {NOTE}")
    check(shown, f"no progress of the prompt: {first.value(NOTE)!r}")
    second = Page(browser, url)  # the first one is in the background now
    check(second.until(IDLE), "a second page does not start")
    second.value(SEND % json.dumps("A dog"))
    shown = second.until(f"{NOTE} === '1 request before this one'")
    check(shown, f"no queue: {second.value(NOTE)!r}")
    check(first.until(f"!{NOTE}.includes('Prompt:')"), f"the progress stays: {first.value(NOTE)!r}")
    first.value("document.getElementById('stop').click()")
    check(second.until(f"!{NOTE}.includes('before')"), f"the queue stays: {second.value(NOTE)!r}")
    second.value("document.getElementById('stop').click()")


def with_engine(libexec, model, options, use):
    """Calls use with the URL of an engine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as run:
        engine = subprocess.Popen([f"{libexec}/sluice-run", "-m", model, "--http", "0", *options],
                                  env=dict(os.environ, SLUICE_RUN_DIR=run, XDG_STATE_HOME=run), stderr=subprocess.PIPE, text=True)
        try:
            url = next((m.group(0) for m in (re.search(r"http://127\.0\.0\.1:\d+", line) for line in engine.stderr) if m), None)
            check(url, "the engine does not start")
            use(url)
        finally:
            engine.terminate()
            engine.communicate()


def main(libexec, model):
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        print("SKIP screens_chat: Chromium is not installed")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(chromium, profile)
        try:
            with_engine(libexec, model, ["--ctx-size", "128"], lambda url: converse(Page(browser, url)))
            with_engine(libexec, model, SLOW, lambda url: wait_for_a_prompt(browser, url))
        finally:
            browser.close()
    print("ok chat")


if __name__ == "__main__":
    main(*sys.argv[1:])
