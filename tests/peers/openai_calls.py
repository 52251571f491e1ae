#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions of OpenAI's Python package with the gateway: calls of tools of every family (README.md).

    openai_calls.sh DIR [BUILD]      makes the environment and calls this:
    openai_calls.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK [--clients 8] [--rounds 3]

Each family: a whole answer, a streamed one, a second turn with the result of the call, and CLIENTS at once, half of them
streamed. Arguments have the types of the schema. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import concurrent.futures
import json
import sys

import openai

from session import Engine, family_models


def client_of(engine):
    return openai.OpenAI(base_url=engine.url + "/v1", api_key="unused", max_retries=0, timeout=120)


def whole(client, **request):
    choice = client.chat.completions.create(**request).choices[0]
    message = choice.message
    calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
    return (message.model_extra or {}).get("reasoning_content") or "", message.content or "", calls, choice.finish_reason


def streamed(client, **request):
    reasoning, content, calls, finish = "", "", {}, None
    for event in client.chat.completions.create(stream=True, **request):
        choice = event.choices[0]
        content += choice.delta.content or ""
        reasoning += (choice.delta.model_extra or {}).get("reasoning_content") or ""
        for c in choice.delta.tool_calls or []:
            one = calls.setdefault(c.index, ["", "", ""])
            one[0] += c.id or ""
            one[1] += c.function.name or ""
            one[2] += c.function.arguments or ""
        finish = choice.finish_reason or finish
    return reasoning, content, [tuple(calls[i]) for i in sorted(calls)], finish


def check(family, seen, doc):
    reasoning, content, calls, finish = seen
    if len(calls) != 1:
        return f"{len(calls)} calls, content {content!r}"
    (number, name, arguments), wanted = calls[0], doc["arguments"]
    if (name, json.loads(arguments)) != ("look", wanted):
        return f"{name}({arguments}) instead of {json.dumps(wanted)}"
    if family["id"] and number != family["id"] or not number:
        return f"id {number!r}"
    got, want = (reasoning, content, finish), (family["reasoning"], family["content"], "tool_calls")
    return None if got == want else f"{got} instead of {want}"


def session(engine, family, doc, stream):
    client = client_of(engine)
    messages = [{"role": "user", "content": doc["ask"]}]
    ask = streamed if stream else whole
    for turn in range(2):
        seen = ask(client, model="m", messages=messages, tools=doc["tools"], temperature=0)
        wrong = check(family, seen, doc)
        if wrong:
            return f"turn {turn + 1}{', streamed' if stream else ''}: {wrong}"
        number, name, arguments = seen[2][0]
        messages += [{"role": "assistant", "content": seen[1] or None, "tool_calls": [
            {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": number, "content": doc["ask"]}]
    return None


def run(family, doc, a):
    engine = Engine(family["path"], a.libexec, a.out)
    try:
        wrong = [session(engine, family, doc, stream) for stream in (False, True)]
        with concurrent.futures.ThreadPoolExecutor(a.clients) as pool:
            wrong += pool.map(lambda i: session(engine, family, doc, i % 2 == 1), range(a.clients * a.rounds))
        wrong += [f"{e['service']} ended: {e['exit_message']}" for e in engine.exits()]
    finally:
        engine.stop()
    wrong = [w for w in wrong if w]
    print(f"{'not ok' if wrong else 'ok'} {family['name']}{': ' if wrong else ''}{'; '.join(wrong[:3])}", flush=True)
    return not wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    doc = family_models(a.models, a.out)
    good = [run(family, doc, a) for family in doc["families"]]
    print(f"openai {openai.__version__}: {sum(good)} of {len(good)} families")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
