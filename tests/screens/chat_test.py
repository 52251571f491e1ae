#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_test.py LIBEXEC MODEL FOLDER: the gateway's page in Chromium.

With an engine of 128 tokens of context: something is shown between Send and the first token; an answer that fills the
context states it; a message that is too long goes back to the box and is no turn; a reload keeps the conversation. With a
slow device: how far the prompt is, and the queue before that of a second page, until the first token; both in the list
of requests, with what limits the speed. With answers that this test writes, in place of the engine: Markdown, thoughts,
calls of tools, several conversations, settings. The views on a phone and in the dark, the axes of the charts. At last it
takes the pictures of docs/screens into FOLDER."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from page import CHARTS, IDLE, SEND, TEXT, Browser, Page, pictures

SLOW = ["--parallel=1", "--resident-experts=20", "--prefill-chunk=16", "--throttle=24MiB", "--warm-start=off", "--prefault=off"]
TURNS = "store.here().turns"
WIDE = "document.documentElement.scrollWidth"


def check(holds, what):
    if not holds:
        raise SystemExit(f"not ok chat: {what}")


def converse(page):
    check(page.until(IDLE), "the page does not start")
    check("Type a message below" in page.value(TEXT), "the first screen does not say what to do")
    at_once, answer = page.say("Once there was an old man")
    check("The prompt is computed" in at_once, f"nothing is shown before the first token: {at_once!r}")
    check("the context is full" in answer and re.search(r"\d+ tokens", answer), f"the end is not explained: {answer!r}")
    _, failed = page.say("x " * 2000)
    check("Not sent:" in failed and "xxx" not in failed, f"a message that is too long: {failed[-200:]!r}")
    check(page.value("document.querySelector('#talk form textarea').value.length") == 4000, "it is not in the box again")
    check(page.value(f"{TURNS}.length") == 2, "it is a turn")
    page.browser.call("Page.reload", page.session)
    kept = page.until("document.readyState === 'complete' && " + IDLE)
    check(kept.strip() == answer.strip(), f"a reload changed the conversation: {kept[:200]!r}")
    page.value("document.getElementById('fresh').click()")
    _, answer = page.say("A dog")
    check("Not sent" not in answer and "A dog" in answer, f"a new conversation fails: {answer!r}")


NOTE = "[...document.querySelectorAll('#conversation .note')].at(-1).innerText"


def requests_are_listed(browser, url):
    """A request that is computed and one that waits, on a phone: who asks, how far each is, and what limits the speed."""
    phone = Page(browser, url + "#engine", 390, 844)
    rows = "[...document.querySelectorAll('#requests tr')].slice(1).map(r => [...r.cells].map(c => c.innerText))"
    shown = phone.until(f"(r => r.length === 2 && /^\\d/.test(r[0][4]) && r)({rows})")
    check(shown, f"no two requests: {phone.value(rows)}")
    client = "127.0.0.1 /v1/chat/completions"
    check([r[:2] for r in shown] == [[client, "answer"], [client, "waits, 1 before it"]], f"who asks: {shown}")
    check(re.fullmatch(r"\d+", shown[0][2]) and int(shown[0][3]) > 0, f"how far the first is: {shown}")
    check(re.fullmatch(r"0 of \d+, 0 %", shown[1][2]) and shown[1][3:5] == ["0", ""], f"how far the second is: {shown}")
    limit = phone.value("document.getElementById('limit').innerText")
    check(re.match(r"What limits the speed now: storage: compute waits \d+% of the time, disk busy \d+% \(throttled", limit), f"the limit: {limit!r}")
    check(phone.value(WIDE) <= 390 and phone.value("[...document.querySelectorAll('#requests :is(td, th)')]"
          ".every(c => c.scrollWidth <= c.clientWidth)"), "the requests are wider than a phone")


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
    requests_are_listed(browser, url)
    check(first.until(f"!{NOTE}.includes('Prompt:')"), f"the progress stays: {first.value(NOTE)!r}")
    first.value("document.getElementById('stop').click()")
    check(second.until(f"!{NOTE}.includes('before')"), f"the queue stays: {second.value(NOTE)!r}")
    second.value("document.getElementById('stop').click()")


# What a model writes, and what it becomes.
MARKDOWN = [
    ("a *b* **c** `d*e*` ~~f~~ 2*3*4", "<p>a <em>b</em> <strong>c</strong> <code>d*e*</code> <del>f</del> 2<em>3</em>4</p>"),
    ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
    ("snake_case_name and _so_", "<p>snake_case_name and <em>so</em></p>"),
    ("# T\n### U #", "<h3>T</h3><h5>U</h5>"),
    ("- a\n- b\n  - c\n\n1. x\n2. y", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul>"
                                      "<ol start=\"1\"><li><p>x</p></li><li><p>y</p></li></ol>"),
    ("3) x\n\n   more\n4) y", "<ol start=\"3\"><li><p>x</p><p>more</p></li><li><p>y</p></li></ol>"),
    ("> a\n> > b\n\n---", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>"),
    ("| a | b |\n|---|:-:|\n| `x` | 1\\|2 |",
     "<div class=\"scrolls\"><table><tr><th>a</th><th>b</th></tr><tr><td><code>x</code></td><td>1|2</td></tr></table></div>"),
    ("see https://a.example/b. And [it](https://c.example/d \"t\")",
     "<p>see <a href=\"https://a.example/b\" target=\"_blank\" rel=\"noopener noreferrer\">https://a.example/b</a>. And "
     "<a href=\"https://c.example/d\" target=\"_blank\" rel=\"noopener noreferrer\">it</a></p>"),
    ("\\*no\\* \\<b\\>", "<p>*no* &lt;b&gt;</p>"),
]
CODE = [("```c\nint <b>x</b>;\n\n  y*z*\n```\nafter", "int <b>x</b>;\n\n  y*z*", "c"), ("~~~\nopen", "open", "code")]
# Nothing of these becomes an element, an attribute or a link.
HOSTILE = ["<script>window.hurt = 1</script>", "<img src=x onerror='window.hurt = 1'>", "[a](javascript:window.hurt=1)",
           "![a](data:text/html,<script>window.hurt=1</script>)", "[a](https://x.example/\"onclick=\"window.hurt=1)",
           "<https://x.example/\" onmouseover=\"window.hurt=1\">", "```<img onerror=window.hurt=1>\n<script>\n```",
           "| <b>a</b> |\n|---|\n| <i onclick=x>b</i> |", "> <style>*{display:none}</style>", "- <iframe src=//x.example>"]


def html_of(text):
    return f"(() => {{ const e = el('div'); e.append(markdown({json.dumps(text)})); return e.innerHTML; }})()"


def markdown_is_safe(page):
    check(page.until(IDLE), "the page does not start")
    for text, expected in MARKDOWN:
        got = page.value(html_of(text)).replace(' href="https://a.example/b"', ' href="https://a.example/b"')
        check(got == expected, f"Markdown {text!r}: {got}")
    for text, code, language in CODE:
        got = page.value(f"(() => {{ const e = markdown({json.dumps(text)}); const b = e.querySelector('.code'); "
                         "return [b.querySelector('code').textContent, b.querySelector('p').firstChild.textContent]; })()")
        check(got == [code, language], f"code {text!r}: {got}")
    for text in HOSTILE:
        page.value(f"document.body.append(el('section')); document.body.lastChild.append(markdown({json.dumps(text)})); 0")
        found = page.value("[...document.body.lastChild.querySelectorAll('script, img, iframe, style, b, i, [onclick], "
                           "[onerror], [onmouseover]')].length + [...document.body.lastChild.querySelectorAll('a')]"
                           ".filter(a => !/^https?:/.test(a.href)).length")
        check(found == 0, f"{text!r} became {page.value('document.body.lastChild.innerHTML')}")
        page.value("document.body.lastChild.remove()")
    for part in ("**a ", "* ", "[a](", "`", "> ", "_a ", "| a "):  # marks without an end: no time without an end
        check(page.value(f"{html_of(part * 3000)}.length") > 0, f"many {part!r}")
    check(page.value("window.hurt") is None, "a script of an answer ran")


# In place of the engine: the next answer, and what was sent. An answer whose last event is "wait" does not end.
SCRIPT = """window.sent = []; window.answers = []; window.ask_engine = window.ask_engine || window.fetch;
window.fetch = (url, options) => {
  if (!String(url).includes('/v1/')) return window.ask_engine(url, options);
  window.sent.push(JSON.parse(options.body));
  const events = window.answers.shift(), waits = events.at(-1) === 'wait';
  const lines = events.filter(e => e !== 'wait').map(e => 'data: ' + JSON.stringify(e) + '\\n\\n').join('');
  const bytes = new TextEncoder().encode(lines);
  return Promise.resolve(new Response(new ReadableStream({ start(c) {
    for (let i = 0; i < bytes.length; i += 7) c.enqueue(bytes.slice(i, i + 7)); /* in the middle of letters, too */
    options.signal.addEventListener('abort', () => c.error(new DOMException('', 'AbortError')));
    if (!waits) c.close();
  } })));
}; 0"""


def delta(**what):
    return {"choices": [{"delta": what, "finish_reason": None}]}


def answers(page, *events):
    page.value(f"window.answers.push({json.dumps(list(events))})")


def last_sent(page):
    return page.value("window.sent.at(-1)")


def thoughts_and_calls(page):
    check(page.until(IDLE), "the page does not start")
    page.value(SCRIPT)
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    page.set("system", "Be brief.")
    page.set("temperature", "0.3")
    page.set("thinking", "on")
    page.set("tools", "[{")
    check(page.value("document.getElementById('tools-wrong').textContent").startswith("Tools: "), "wrong tools are not named")
    page.set("tools", json.dumps([tool]))
    answers(page, delta(reasoning_content="I wonder "), delta(reasoning_content="…"), delta(content="Let me **look**."),
            delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": "{\"ci"}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": "ty\": \"Köln\"}"}}]),
            delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "weather", "arguments": "{}"}}]))
    _, text = page.say("Does it rain?")
    sent = last_sent(page)
    check(sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Does it rain?"}] and
          sent["temperature"] == 0.3 and sent["tools"] == [tool] and sent["chat_template_kwargs"]["enable_thinking"] is True,
          f"settings are not sent: {sent}")
    check("Calls weather" in text and '"city": "Köln"' in text and "Let me look." in text, f"no call: {text!r}")
    thought = "document.querySelector('.assistant details')"
    check(page.value(f"{thought}.textContent") == "ThoughtsI wonder …" and not page.value(f"{thought}.open"),
          "thoughts are not folded")
    # The results of both calls are typed, and then the model answers.
    check(page.value("document.querySelector('#talk form textarea').placeholder") == "Type the result of weather",
          "the result of a call is not asked for")
    page.say("dry")
    check(page.value("window.sent.length") == 1, "the first of two results was sent alone")
    answers(page, delta(content="No."), {"choices": [{"delta": {}, "finish_reason": "stop"}],
                                         "usage": {"completion_tokens": 2}})
    page.say("rain")
    roles = [(m["role"], m["content"], m.get("tool_call_id")) for m in last_sent(page)["messages"][2:]]
    check(roles == [("assistant", "Let me **look**.", None), ("tool", "dry", "c1"), ("tool", "rain", "c2")],
          f"results are not sent: {roles}")
    check([c["function"]["arguments"] for c in last_sent(page)["messages"][2]["tool_calls"]] ==
          ['{"city": "Köln"}', "{}"], "calls are not sent")


def conversations(page):
    """Another answer; a second conversation, which has the settings of the first; both after a reload; one is deleted."""
    answers(page, delta(content="Yes."), {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    page.value("document.getElementById('again').click()")
    text = page.until(f"{TEXT}.includes('Yes.') && {IDLE}")
    check(text and "No." not in text, f"no other answer: {text!r}")
    page.value("document.getElementById('fresh').click()")
    answers(page, delta(content="Second."))
    page.say("Another matter")
    check(len(last_sent(page)["messages"]) == 2 and last_sent(page)["temperature"] == 0.3, "the second one has other settings")
    page.browser.call("Page.reload", page.session)
    page.until("document.readyState === 'complete' && " + IDLE)
    titles = page.value("[...document.getElementById('chats').options].map(o => o.text)")
    check(titles[:2] == ["Another matter", "Does it rain?"], f"conversations are lost: {titles}")
    check("Second." in page.value(TEXT), "a reload shows another conversation")
    page.set("chats", page.value("document.getElementById('chats').options[1].value"))
    check("Yes." in page.value(TEXT) and page.value("document.getElementById('system').value") == "Be brief.",
          "the first conversation is not shown")
    page.value("window.confirm = () => true; document.getElementById('remove').click()")
    check("Second." in page.value(TEXT) and page.value("store.newest().some(c => store.title(c) === 'Does it rain?')") is False,
          "the conversation is not deleted")


def answers_that_break(page):
    """One that is stopped, one that fails, one in the middle of which the page is loaded again: what came stays."""
    page.value(SCRIPT)
    page.value("document.getElementById('fresh').click()")
    answers(page, delta(content="First half"), "wait")
    page.value(SEND % json.dumps("Tell me"))
    check(page.until(f"{TEXT}.includes('First half')"), "an answer that has not ended is not shown")
    page.value("document.getElementById('stop').click()")
    text = page.until(IDLE)
    check("First half" in text and "stopped" in text, f"a stopped answer: {text!r}")
    answers(page, delta(content="Broken"), {"error": {"message": "compute crashed"}})
    _, text = page.say("Again")
    check("Broken" in text and "The answer is incomplete: compute crashed" in text, f"an answer that fails: {text!r}")
    answers(page, {"error": {"message": "queue full"}})
    _, text = page.say("And now")
    check("Not sent: queue full" in text and page.value("document.querySelector('#talk form textarea').value") == "And now",
          f"a request that fails: {text!r}")
    answers(page, delta(content="Until here"), "wait")
    page.value(SEND % json.dumps("More"))
    page.until(f"{TEXT}.includes('Until here')")
    page.browser.call("Page.reload", page.session)
    text = page.until("document.readyState === 'complete' && " + IDLE)
    check("Until here" in text and "The page was left before the answer ended." in text, f"after a reload: {text!r}")
    check(page.value(f"{TURNS}.map(t => t.role[0]).join('')") == "uauaua", "turns are lost")


def fits(browser, url):
    """Nothing is wider than a phone; the box is in sight; the charts have axes with units; the dark is dark."""
    phone = Page(browser, url, 390, 700)
    check(phone.until(IDLE), "the page does not start")
    phone.value(SCRIPT)
    answers(phone, delta(content="```\n" + "wide " * 60 + "\n```\n| " + "wide | " * 40 + "\n|" + "-|" * 40 + "\n" + "w" * 300))
    phone.say("x" * 300)
    box = phone.value("(() => { const r = document.getElementById('send').getBoundingClientRect(); return [r.right, r.bottom]; })()")
    check(phone.value(WIDE) <= 390 and box[0] <= 390 and box[1] <= 700, f"the chat is wider than a phone: {box}")
    phone.value("location.hash = 'engine'")
    check(phone.until(CHARTS % 3), "no charts")
    check(phone.value(WIDE) <= 390, "the engine's view is wider than a phone")
    text = phone.until("document.getElementById('chart-drive').querySelectorAll('svg text').length > 5 && "
                       "[...document.querySelectorAll('#charts svg text')].map(t => t.textContent)")
    for label in ("0 B/s", "now", "2 min ago", "100 %", "0 ms"):
        check(label in text, f"no axis has {label!r}: {text}")
    check("kept in" in phone.value("document.getElementById('prefixes').innerText"), "no prefixes")
    light = phone.value("getComputedStyle(document.body).backgroundColor")
    phone.media("dark")
    check(phone.value("getComputedStyle(document.body).backgroundColor") != light, "the dark is as light as the day")


def with_engine(libexec, model, options, use):
    """Calls use with the URL of an engine."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as run:
        engine = subprocess.Popen([f"{libexec}/sluice-run", "-m", model, "--http", "0", *options],
                                  env=dict(os.environ, SLUICE_RUN_DIR=run, XDG_STATE_HOME=run), stderr=subprocess.PIPE, text=True)
        try:
            url = next((m.group(0) for m in (re.search(r"http://127\.0\.0\.1:\d+", line) for line in engine.stderr) if m), None)
            check(url, "the engine does not start")
            use(url + "/")
        finally:
            engine.terminate()
            engine.communicate()


def main(libexec, model, folder):
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        print("SKIP screens_chat: Chromium is not installed")
        return
    os.makedirs(folder, exist_ok=True)

    def scripted(url):
        markdown_is_safe(Page(browser, url))
        page = Page(browser, url)
        thoughts_and_calls(page)
        conversations(page)
        answers_that_break(page)
        fits(browser, url)
        pictures(browser, url, 3, folder)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(chromium, profile)
        try:
            with_engine(libexec, model, ["--ctx-size", "128"], lambda url: converse(Page(browser, url)))
            with_engine(libexec, model, SLOW, lambda url: wait_for_a_prompt(browser, url))
            with_engine(libexec, model, [], scripted)
        finally:
            browser.close()
    print("ok chat")


if __name__ == "__main__":
    main(*sys.argv[1:])
