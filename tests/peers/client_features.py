#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that keep to a schema, forced calls, alternatives and stored responses, by the Python packages anthropic, ollama
and openai (README.md). pydantic, which these packages use, validates each answer.

    clients.sh ROOT BUILD            makes the environment and calls this:
    client_features.py --models FAMILY_MODELS --libexec LIBEXEC -o WORK

Prints a line "ok NAME" or "not ok NAME: reason" per session. Exit status: 0 all as expected and no process ended, 1 not."""
import argparse
import functools
import json
import sys
from typing import List, Literal, Optional

import anthropic
import ollama
import openai
from pydantic import BaseModel, Field

from clients import refused
from openai_calls import client_of
from session import DEMO_MODEL, Engine, family_models, holds, same, with_engine

# Arguments without quotes, with and without line feeds around them; with quotes; names among marks; a list of calls.
FAMILIES = "coder", "mimo", "hermes", "kimi", "cohere"


class Size(BaseModel):
    width: int = Field(ge=1, le=99)
    unit: Literal["m", "km"]


class Place(BaseModel):
    name: str = Field(max_length=12)
    kind: Literal["town", "village", "house"]
    people: int = Field(ge=0, le=999)
    open: bool
    tags: List[Literal["red", "green"]] = Field(min_length=1, max_length=3)
    size: Optional[Size]


class Visit(BaseModel):
    """Without lengths and numbers of elements, which Anthropic's package moves into descriptions."""
    kind: Literal["town", "village", "house"]
    people: int
    open: bool
    unit: Optional[Literal["m", "km"]]


class Other(BaseModel):
    text: str = Field(max_length=4)


HARD = {"type": "object", "properties": {"age": {"type": "integer", "not": {}}}, "required": ["age"],
        "additionalProperties": False}
WAYS = {"temperature": 0}, {"temperature": 1, "seed": 5}, {"temperature": 1.5, "seed": 6}


def is_a(kind, what, value):
    holds(f"{what}: {value!r} is no {kind.__name__}", isinstance(value, kind))


# ---- OpenAI: chat ----


def openai_schema(family, doc, engine):
    client = client_of(engine)
    ask = dict(model="any", messages=[{"role": "user", "content": doc["ask"]}], response_format=Place)
    for way in WAYS:
        whole = client.chat.completions.parse(**ask, **way)
        choice = whole.choices[0]
        is_a(Place, f"parse, {way}", choice.message.parsed)
        same("finish", (choice.finish_reason, choice.message.tool_calls), ("stop", None))
        with client.chat.completions.stream(**ask, **way) as stream:
            types = {event.type for event in stream}
            last = stream.get_final_completion().choices[0]
        holds(f"events: {types}", {"content.delta", "content.done"} <= types)
        same("streamed", (last.message.content, last.message.parsed), (choice.message.content, choice.message.parsed))
    same("thoughts are before it", (whole.choices[0].message.model_extra or {}).get("reasoning_content") or "",
         family["reasoning"])
    several = client.chat.completions.parse(n=3, seed=1, temperature=1, **ask)
    same("n", [c.index for c in several.choices], [0, 1, 2])
    for choice in several.choices:
        is_a(Place, "n", choice.message.parsed)
    hard = {"type": "json_schema", "json_schema": {"name": "hard", "strict": True, "schema": HARD}}
    refused("a keyword", openai.BadRequestError, 400, "$.properties.age",
            lambda: client.chat.completions.create(**dict(ask, response_format=hard)))


def openai_calls(family, doc, engine):
    del family
    client = client_of(engine)
    tools = [openai.pydantic_function_tool(Other, name="other"), openai.pydantic_function_tool(Place, name="place")]
    named = {"type": "function", "function": {"name": "place"}}
    ask = dict(model="any", messages=[{"role": "user", "content": doc["ask"]}], tools=tools, max_tokens=1000,
               parallel_tool_calls=False)  # the models would never end
    for choice in "required", named:
        for way in WAYS:
            whole = client.chat.completions.parse(tool_choice=choice, **ask, **way).choices[0]
            same(f"{choice}, {way}", whole.finish_reason, "tool_calls")
            calls = whole.message.tool_calls
            same(f"{choice}: calls", len(calls), 1)
            kind = {"other": Other, "place": Place}[calls[0].function.name]
            holds(f"{choice}: {calls}", isinstance(calls[0].function.parsed_arguments, kind))
            holds("the named one", choice == "required" or kind is Place)
            with client.chat.completions.stream(tool_choice=choice, **ask, **way) as stream:
                last = stream.get_final_completion().choices[0]
            same(f"{choice}, {way}, streamed", [c.function.model_dump() for c in last.message.tool_calls],
                 [c.function.model_dump() for c in calls])
    bad = openai.BadRequestError
    tools[1]["function"] = {"name": "place", "strict": True, "parameters": HARD}
    refused("strict", bad, 400, "'place'", lambda: client.chat.completions.create(**ask))
    refused("no such function", bad, 400, "'none'", lambda: client.chat.completions.create(
        tool_choice={"type": "function", "function": {"name": "none"}}, **ask))


def chunks(stream, count):
    """The texts of the answers of a stream."""
    texts, ends = [""] * count, [None] * count
    for event in stream:
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    holds(f"ends: {ends}", all(ends))
    return texts


def openai_several(family, doc, engine):
    """Without a template's reasoning: the demo model."""
    del family, doc
    client = client_of(engine)
    ask = dict(model="any", messages=[{"role": "user", "content": "Who came to the house?"}], max_tokens=12)
    several = client.chat.completions.create(n=3, seed=7, temperature=1, **ask)
    texts = [c.message.content for c in several.choices]
    same("n, streamed", chunks(client.chat.completions.create(n=3, seed=7, temperature=1, stream=True, **ask), 3), texts)
    holds(f"n: {texts}", len(set(texts)) == 3)
    single = client.chat.completions.create(seed=8, temperature=1, **ask)
    same("seeds follow one another", single.choices[0].message.content, texts[1])
    choice = client.chat.completions.create(logprobs=True, top_logprobs=5, temperature=0, **ask).choices[0]
    tokens = choice.logprobs.content
    same("the tokens", b"".join(bytes(t.bytes) for t in tokens).decode(), choice.message.content)
    for token in tokens:
        values = [t.logprob for t in token.top_logprobs]
        same("alternatives", (len(values), values), (5, sorted(values, reverse=True)))
        same("the most probable one", (token.top_logprobs[0].token, values[0]), (token.token, token.logprob))
        same("different ones", len({tuple(t.bytes) for t in token.top_logprobs}), 5)


def openai_text(family, doc, engine):
    del family, doc
    client = client_of(engine)
    ask = dict(model="any", prompt="Once upon a time", max_tokens=8, temperature=0)
    plain = client.completions.create(**ask, logprobs=2).choices[0]
    echo = client.completions.create(echo=True, **ask).choices[0]
    same("echo", echo.text, ask["prompt"] + plain.text)
    same("logprobs", ("".join(plain.logprobs.tokens), [len(t) for t in plain.logprobs.top_logprobs]),
         (plain.text, [2] * len(plain.logprobs.tokens)))
    forbidden = engine.post("/tokenize", {"content": plain.logprobs.tokens[0], "add_special": False})["tokens"]
    same("one token", len(forbidden), 1)
    other = client.completions.create(logit_bias={str(forbidden[0]): -100}, logprobs=2, **ask).choices[0]
    same("the second best", other.logprobs.tokens[0], sorted(plain.logprobs.top_logprobs[0].items(),
                                                             key=lambda t: -t[1])[1][0])
    best = client.completions.create(**dict(ask, temperature=1), n=2, best_of=4, seed=2)
    same("best_of", (len(best.choices), best.usage.completion_tokens > 16), (2, True))
    refused("suffix", openai.BadRequestError, 400, "suffix", lambda: client.completions.create(suffix="x", **ask))
    refused("bias", openai.BadRequestError, 400, "logit_bias",
            lambda: client.completions.create(logit_bias={"1": 101}, **ask))


# ---- OpenAI: responses ----


def openai_responses(family, doc, engine):
    del family
    client = client_of(engine)
    ask = dict(model="any", input=doc["ask"])
    for way in {"temperature": 0}, {"temperature": 1}:
        whole = client.responses.parse(text_format=Place, **ask, **way)
        is_a(Place, f"responses, {way}", whole.output_parsed)
    with client.responses.stream(text_format=Place, temperature=0, **ask) as stream:
        last = stream.get_final_response()
    is_a(Place, "responses, streamed", last.output_parsed)
    tool = {"type": "function", "name": "place", "strict": True,
            "parameters": openai.pydantic_function_tool(Place)["function"]["parameters"]}
    for choice in "required", {"type": "function", "name": "place"}:
        answer = client.responses.create(tools=[tool], tool_choice=choice, temperature=0, parallel_tool_calls=False,
                                         **ask)
        calls = [Place.model_validate_json(i.arguments) for i in answer.output if i.type == "function_call"]
        same(f"{choice}", len(calls), 1)
    refused("a keyword", openai.BadRequestError, 400, "$.properties.age", lambda: client.responses.create(
        text={"format": {"type": "json_schema", "name": "n", "schema": HARD}}, **ask))


def openai_stored(family, doc, engine):
    del family
    client = client_of(engine)
    ask = dict(model="any", temperature=0, max_output_tokens=8)
    first = client.responses.create(input="Say: B", **ask)
    same("stored", client.responses.retrieve(first.id).to_dict(), first.to_dict())
    *_, last = client.responses.create(input="Again: B", previous_response_id=first.id, stream=True, **ask)
    second = last.response
    same("the one before", second.previous_response_id, first.id)
    holds(f"the first turn is in the prompt: {second.usage}", second.usage.input_tokens > first.usage.input_tokens)
    whole = client.responses.create(**ask, input=[
        {"role": "user", "content": "Say: B"}, *[i.to_dict() for i in first.output],
        {"role": "user", "content": "Again: B"}])
    same("as if all had been sent", (second.usage.input_tokens, second.output_text),
         (whole.usage.input_tokens, whole.output_text))
    client.responses.delete(first.id)
    missing = openai.NotFoundError
    for what, call in {
            "deleted": lambda: client.responses.retrieve(first.id),
            "deleted twice": lambda: client.responses.delete(first.id),
            "continued": lambda: client.responses.create(input="B", previous_response_id=first.id, **ask),
            "unknown": lambda: client.responses.retrieve("resp_unknown")}.items():
        refused(what, missing, 404, "resp_", call)
    third = client.responses.create(input="Then: B", previous_response_id=second.id, **ask)
    holds("the second one holds what it continues", third.usage.input_tokens > second.usage.input_tokens)
    gone = client.responses.create(input="B", store=False, **ask)
    refused("not stored", missing, 404, "resp_", lambda: client.responses.retrieve(gone.id))


# ---- Anthropic ----


def anthropic_features(family, doc, engine):
    del family
    client = anthropic.Anthropic(base_url=engine.url, api_key="unused", max_retries=0, timeout=120)
    ask = dict(model="any", max_tokens=1000, messages=[{"role": "user", "content": doc["ask"]}])
    for way in {"temperature": 0}, {"temperature": 1}:
        parsed = client.messages.parse(output_format=Visit, extra_body=way, **ask)
        is_a(Visit, f"parse, {way}", parsed.parsed_output)
        with client.messages.stream(output_format=Visit, extra_body=way, **ask) as stream:
            last = stream.get_final_message()
        is_a(Visit, f"parse, streamed, {way}", last.parsed_output)
        made = client.messages.create(output_config={"format": {
            "type": "json_schema", "schema": Place.model_json_schema()}}, extra_body=way, **ask)
        Place.model_validate_json("".join(b.text for b in made.content if b.type == "text"))
    tools = [{"name": kind.__name__.lower(), "input_schema": kind.model_json_schema()} for kind in (Other, Place)]
    for choice in {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "place"}:
        more = dict(ask, tools=tools, tool_choice=choice, extra_body={"temperature": 0})
        made = client.messages.create(**more)
        with client.messages.stream(**more) as stream:
            last = stream.get_final_message()
        uses = [(b.name, b.input) for b in made.content if b.type == "tool_use"]
        same(f"{choice}", (made.stop_reason, len(uses)), ("tool_use", 1))
        same(f"{choice}, streamed", [(b.name, b.input) for b in last.content if b.type == "tool_use"], uses)
        {"other": Other, "place": Place}[uses[0][0]].model_validate(uses[0][1])
        holds("the named one", choice["type"] == "any" or uses[0][0] == "place")
    refused("a keyword", anthropic.BadRequestError, 400, "$.properties.age", lambda: client.messages.create(
        output_config={"format": {"type": "json_schema", "schema": HARD}}, **ask))


# ---- Ollama ----


def ollama_features(family, doc, engine):
    client = ollama.Client(host=engine.url, timeout=120)
    messages = [{"role": "user", "content": doc["ask"]}]
    for way in WAYS:
        ask = dict(model="any", messages=messages, format=Place.model_json_schema(), options=way)
        whole = client.chat(**ask)
        Place.model_validate_json(whole.message.content)
        parts = list(client.chat(stream=True, **ask))
        same("streamed", "".join(p.message.content or "" for p in parts), whole.message.content)
        same("the end", parts[-1].done_reason, "stop")
        text = client.generate(model="any", prompt=doc["ask"], format=Place.model_json_schema(), options=way)
        Place.model_validate_json(text.response)
        free = client.chat(model="any", messages=messages, format="json", options=dict(way, num_predict=300))
        same("it begins as an object", free.message.content[:1], "{")
        if free.done_reason == "stop":
            holds("an object", isinstance(json.loads(free.message.content), dict))
    same("thoughts are before it", whole.message.thinking or "", family["reasoning"])
    refused("a keyword", ollama.ResponseError, 400, "$.properties.age",
            lambda: client.chat("any", messages=messages, format=HARD))


SESSIONS = {"openai_schema": openai_schema, "openai_calls": openai_calls, "openai_responses": openai_responses,
            "openai_stored": openai_stored, "anthropic": anthropic_features, "ollama": ollama_features}
DEMO = {"openai_several": openai_several, "openai_text": openai_text}


def bound(sessions, family, doc):
    return {f"features_{name}": functools.partial(session, family, doc) for name, session in sessions.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    doc = family_models(a.models, a.out)
    good = [with_engine(f["name"], lambda f=f: Engine(f["path"], a.libexec, a.out), bound(SESSIONS, f, doc))
            for f in doc["families"] if f["name"] in FAMILIES]
    good.append(with_engine("demo", lambda: Engine(DEMO_MODEL, a.libexec, a.out), bound(DEMO, None, doc)))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
