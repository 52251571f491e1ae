#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions of the Python packages anthropic, ollama and openai with the gateway (README.md).

    clients.sh ROOT BUILD            makes the environment and calls this:
    clients.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

The packages read what the gateway sends; the model's answers are known (tests/scenario/families.h). Prints a line
"ok NAME" or "not ok NAME: reason" per session. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import functools
import json
import sys

import anthropic
import ollama
import openai

from openai_calls import client_of
from session import Engine, Wrong, family_models, same, with_engine

FAMILIES = "coder", "hermes", "kimi"  # with thoughts; without; with ids of its own


def refused(what, kind, status, words, call):
    try:
        call()
    except kind as error:
        code = getattr(error, "status_code", None)
        if code != status or words not in str(error):
            raise Wrong(f"{what}: status {code}, {error}") from error
    else:
        raise Wrong(f"{what}: nothing was refused")


# ---- Anthropic ----


def blocks(message):
    thinking = "".join(b.thinking for b in message.content if b.type == "thinking")
    text = "".join(b.text for b in message.content if b.type == "text")
    uses = [(b.name, b.input) for b in message.content if b.type == "tool_use"]
    return thinking, text, uses, message.stop_reason


def anthropic_session(family, doc, engine):
    client = anthropic.Anthropic(base_url=engine.url, api_key="unused", max_retries=0, timeout=120)
    tools = [{"name": t["function"]["name"], "description": t["function"]["description"],
              "input_schema": t["function"]["parameters"]} for t in doc["tools"]]
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "Be brief."}]
    messages = [{"role": "user", "content": [{"type": "text", "text": doc["ask"]}]}]
    ask = dict(model="claude-any", max_tokens=128000, system=system, tools=tools,
               extra_headers={"anthropic-beta": "new-1,new-2"},
               extra_body={"temperature": 0, "context_management": {"edits": []}})
    expected = family["reasoning"], family["content"], [("look", doc["arguments"])], "tool_use"
    for turn in range(2):
        whole = client.messages.create(messages=messages, **ask)
        same(f"turn {turn}", blocks(whole), expected)
        with client.messages.stream(messages=messages, **ask) as stream:
            names = [e.type for e in stream]
            streamed = stream.get_final_message()
        same(f"turn {turn}, streamed", blocks(streamed), expected)
        same("first and last event", (names[0], names[-1]), ("message_start", "message_stop"))
        if not streamed.usage.cache_read_input_tokens:
            raise Wrong(f"nothing of the prompt was kept: {streamed.usage}")
        counted = client.messages.count_tokens(model="claude-any", system=system, tools=tools, messages=messages)
        same("count_tokens", counted.input_tokens,
             streamed.usage.input_tokens + streamed.usage.cache_read_input_tokens)
        use = next(b for b in whole.content if b.type == "tool_use")
        messages += [{"role": "assistant", "content": [b.model_dump() for b in whole.content]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                   "content": [{"type": "text", "text": doc["ask"]}]}]}]
    stopped = client.messages.create(messages=messages[:1], **dict(ask, tools=[]), stop_sequences=["never", "ure."])
    same("stop sequence", (stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "ure."))
    beta = client.beta.messages.create(messages=messages[:1], betas=["context-management-2025-06-27"],
                                       thinking={"type": "adaptive"}, output_config={"effort": "high"}, **ask)
    same("beta", beta.stop_reason, "tool_use")
    one = client.messages.create(messages=messages[:1], tool_choice={"type": "auto", "disable_parallel_tool_use": True},
                                 **ask)
    same("one call", [b.type for b in one.content][-1:], ["tool_use"])
    bad = anthropic.BadRequestError
    odd = json.loads(json.dumps(ask["tools"]))
    odd[0]["input_schema"]["properties"]["list"]["uniqueItems"] = True
    refused("a call that cannot be enforced", bad, 400, "uniqueItems",
            lambda: client.messages.create(messages=messages[:1], tool_choice={"type": "any"}, **dict(ask, tools=odd)))
    refused("an image", bad, 400, "'image'", lambda: client.messages.create(messages=[
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/"}}]}], **ask))
    refused("a long prompt", bad, 400, "prompt is too long: ", lambda: client.messages.create(
        messages=[{"role": "user", "content": "x" * 20000}], **ask))


# ---- Ollama ----


def ollama_parts(message):
    calls = [(c.function.name, dict(c.function.arguments)) for c in message.tool_calls or []]
    for _, arguments in calls:  # the package leaves anyOf out of the schema that it sends
        if isinstance(arguments["where"], str):
            arguments["where"] = json.loads(arguments["where"])
    return message.thinking or "", message.content or "", calls


def ollama_session(family, doc, engine):
    client = ollama.Client(host=engine.url, timeout=120)
    model = client.list().models[0]
    same("one model", (model.details.format, len(client.ps().models)), ("gguf", 1))
    shown = client.show(model.model)
    same("capabilities", "tools" in shown.capabilities, True)
    expected = family["reasoning"], family["content"], [("look", doc["arguments"])]
    messages = [{"role": "user", "content": doc["ask"]}]
    ask = dict(model=model.model, tools=doc["tools"], options={"temperature": 0, "num_ctx": 99999}, keep_alive="5m")
    for turn in range(2):
        whole = client.chat(messages=messages, **ask)
        same(f"turn {turn}", ollama_parts(whole.message), expected)
        same("the end", (whole.done, whole.done_reason, whole.eval_count > 0), (True, "stop", True))
        thinking, content, calls = "", "", []
        for part in client.chat(messages=messages, stream=True, **ask):
            t, c, more = ollama_parts(part.message)
            thinking, content, calls = thinking + t, content + c, calls + more
        same(f"turn {turn}, streamed", (thinking, content, calls), expected)
        same("the last line", (part.done, part.prompt_eval_count), (True, whole.prompt_eval_count))
        messages += [whole.message, {"role": "tool", "tool_name": "look", "content": doc["ask"]}]
    text = client.generate(model=model.model, prompt=doc["ask"], options={"temperature": 0})
    same("generate", text.response.startswith(family["content"]), True)
    raw = client.generate(model=model.model, prompt="A", raw=True, options={"temperature": 0, "num_predict": 1})
    same("raw", (raw.prompt_eval_count, raw.eval_count, raw.done_reason), (1, 1, "length"))
    same("load", client.generate(model=model.model).done_reason, "load")
    refused("embed", ollama.ResponseError, 501, "embeddings", lambda: client.embed(model.model, "x"))
    refused("format", ollama.ResponseError, 400, "contains",
            lambda: client.chat(model.model, messages=messages[:1], format={"type": "object", "contains": {}}))
    refused("a long prompt", ollama.ResponseError, 400, "prompt is too long: ",
            lambda: client.generate(model.model, "x" * 20000))


# ---- OpenAI ----


def response_parts(response):
    parts = {"reasoning": "", "message": "", "function_call": []}
    for item in response.output:
        if item.type == "function_call":
            parts[item.type].append((item.name, json.loads(item.arguments)))
        else:
            parts[item.type] += "".join(part.text for part in item.content or [])
    return parts["reasoning"], parts["message"], parts["function_call"], response.status


def openai_session(family, doc, engine):
    client = client_of(engine)
    model = client.models.list().data[0].id
    same("the model", client.models.retrieve(model).id, model)
    refused("another model", openai.NotFoundError, 404, model, lambda: client.models.retrieve("other"))
    tools = [dict(t["function"], type="function") for t in doc["tools"]] + [{"type": "web_search"}]
    expected = family["reasoning"], family["content"], [("look", doc["arguments"])], "completed"
    given = [{"role": "user", "content": [{"type": "input_text", "text": doc["ask"]}]}]
    ask = dict(model="any", instructions="Be brief.", tools=tools, temperature=0, store=False)
    for turn in range(2):
        whole = client.responses.create(input=given, **ask)
        same(f"turn {turn}", response_parts(whole), expected)
        done, last = [], None
        for event in client.responses.create(input=given, stream=True, **ask):
            done += [event.item] if event.type == "response.output_item.done" else []
            last = event
        same(f"turn {turn}, streamed", (last.type, response_parts(last.response)), ("response.completed", expected))
        same("items", [i.model_dump() for i in done], [i.model_dump() for i in last.response.output])
        given += [i.model_dump(exclude_none=True) for i in whole.output]
        given += [{"type": "function_call_output", "call_id": whole.output[-1].call_id, "output": doc["ask"]}]
    # The package gathers the events itself; a tool in a namespace is one of the client by both names.
    spaced = dict(ask, tools=[{"type": "namespace", "name": "n", "description": "d", "tools": tools}])
    with client.responses.stream(input=given, **spaced) as stream:
        last = stream.get_final_response()
    same("gathered", response_parts(last), expected)
    same("namespace", [i.to_dict().get("namespace") for i in last.output if i.type == "function_call"], ["n"])
    refused("a schema", openai.BadRequestError, 400, "contains", lambda: client.responses.create(
        input="x", text={"format": {"type": "json_schema", "name": "n", "schema": {"contains": {}}}}, **dict(ask, tools=[])))
    try:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "x" * 20000}])
        raise Wrong("a long prompt was not refused")
    except openai.BadRequestError as error:
        same("a long prompt", error.code, "context_length_exceeded")


SESSIONS = {"anthropic": anthropic_session, "ollama": ollama_session, "openai": openai_session}


def run(family, doc, a):
    return with_engine(family["name"], lambda: Engine(family["path"], a.libexec, a.out),
                       {name: functools.partial(session, family, doc) for name, session in SESSIONS.items()})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    doc = family_models(a.models, a.out)
    good = [run(f, doc, a) for f in doc["families"] if f["name"] in FAMILIES]
    print(f"anthropic {anthropic.__version__}, openai {openai.__version__}: {sum(good)} of {len(good)} models")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
