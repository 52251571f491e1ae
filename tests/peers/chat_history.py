#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat_history.py PROGRAM DIR: conversations as OpenAI's clients send them (arguments of calls as text, content null or
empty, a last message of the assistant) through real chat templates (DIR/*.jinja), by PROGRAM (peer_history) and by jinja2.

Templates take calls in several shapes: the text must be that of jinja2 for one of them, and have the call if it has it in
any. The same for reasoning, a member of the message or a part of its content. A continued message: the text of
transformers' apply_chat_template(continue_final_message=True)."""
import calendar
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import chat_templates  # noqa: E402

ARGUMENTS = {"city": "Oslo", "days": 2}
TEXT = json.dumps(ARGUMENTS)
USER = {"role": "user", "content": "Where is it warm?"}
LONG = "call_abc_1"  # an id that not every template takes
TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def called(content, arguments, number="call00001"):
    call = {"id": number, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": number, "name": "get_weather", "content": "sunny"}]


def render(template, messages, tools, prompt):
    """The text; None if jinja2 fails."""
    own = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": prompt}
    try:
        return template.render(messages=messages, **({"tools": tools} if tools else {}), **own)
    except Exception:  # whatever Python raises, the template failed
        return None


def has_call(text):
    """Name and argument are there, not as Python prints them, nor as JSON within JSON."""
    tail = text.split(USER["content"])[-1]
    return all(part in tail for part in ("get_weather", "city", "Oslo")) and not any(
        part in tail for part in ("'city'", '\\"city', "None"))


def judge_call(template, content, tools, got, numbers=("call00001",)):
    """numbers: ids of the call, the later ones only where the template rejects the first."""
    for number in numbers:
        ways = [render(template, called(c, a, number), tools, True) for c in ([None, ""] if not content else [content])
                for a in (ARGUMENTS, TEXT)]
        if any(ways):
            break
    if got is None:
        return "rejected" if not any(ways) else "an error, where jinja2 has a text"
    if got not in ways:
        return "another text"
    return "equal" if has_call(got) or not any(w and has_call(w) for w in ways) else "the call is left out"


def reasoned(content):
    thought = {"reasoning_content": "two and two"}
    return [USER, {"role": "assistant", "content": content, **thought}, dict(USER, content="Sure?")]


def judge_reasoned(template, got):
    ways = [render(template, reasoned(c), None, True) for c in
            ("It is 4.", [{"type": "thinking", "thinking": "two and two"}, {"type": "text", "text": "It is 4."}])]
    if got is None:
        return "rejected" if not any(ways) else "an error, where jinja2 has a text"
    has = [w and "two and two" in w and "'two and two'" not in w and '"two and two"' not in w for w in ways]
    if got not in ways:
        return "another text"
    return "equal" if not any(has) or has[ways.index(got)] else "the reasoning is left out"


def judge_continued(template, messages, got):
    marked = messages[:-1] + [dict(messages[-1], content=messages[-1]["content"] + TAG)]
    text = render(template, marked, None, False)
    at = text.rfind(TAG.strip()) if text else -1
    if at < 0:
        return "rejected" if got is None else "a text, where transformers has an error"
    want = text[:at] if text[at:at + len(TAG)] == TAG else text[:at].rstrip()
    return "equal" if got == want else "another text"


def numbers(case):
    return (LONG, "id0000000") if LONG in json.dumps(case["messages"]) else ("call00001",)


def main():
    program, directory = sys.argv[1:3]
    env, cases, counts = chat_templates.environment(), [], {}
    now = calendar.timegm(chat_templates.NOW)
    for path in sorted(glob.glob(os.path.join(directory, "*.jinja"))):
        with open(path, newline="", encoding="utf-8") as f:
            text = f.read()
        for content in (None, "", "Let me look."):
            cases.append((path, content, {"template": text, "messages": called(content, TEXT), "now": now,
                                          "tools": [chat_templates.WEATHER]}))
        cases.append((path, "Let me look.", {"template": text, "messages": called("Let me look.", TEXT, LONG), "now": now,
                                             "tools": [chat_templates.WEATHER]}))
        cases.append((path, None, {"template": text, "messages": reasoned("It is 4."), "now": now}))
        for answer in ("It is", "It is "):
            cases.append((path, None, {"template": text, "now": now, "continues": True,
                                       "messages": [USER, {"role": "assistant", "content": answer}]}))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump([case for _, _, case in cases], f)
        f.flush()
        done = subprocess.run([program, f.name], stdout=subprocess.PIPE, check=True)
    wrong = 0
    for (path, content, case), got in zip(cases, json.loads(done.stdout), strict=True):
        try:
            template = env.from_string(case["template"])
        except chat_templates.jinja2.TemplateError:
            continue
        verdict = (judge_continued(template, case["messages"], got.get("text")) if case.get("continues")
                   else judge_call(template, content, case["tools"], got.get("text"), numbers(case)) if case.get("tools")
                   else judge_reasoned(template, got.get("text")))
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict not in ("equal", "rejected"):
            wrong += 1
            print(f"{os.path.basename(path)}: {'continued' if case.get('continues') else repr(content)}: {verdict} "
                  f"{got.get('error', '')}")
    print(f"{len(cases)} conversations: {counts}")
    sys.exit(wrong > 0 or not counts.get("equal"))


if __name__ == "__main__":
    main()
