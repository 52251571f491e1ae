#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random schemas in every API, greedy and sampled: each complete answer of the demo model, and of one with random weights,
is valid for the Python package jsonschema; and schemas that are refused, which are malformed, cannot be enforced or would
explode (README.md).

    schemas.py --libexec LIBEXEC -o WORK [--count COUNT] [--first SEED]

With SLUICE_LONG=1 there are 300 schemas. Prints a line "ok NAME" or "not ok NAME: reason" per session. Exit status: 0
all as expected and no process ended, 1 not; 0 with a line SKIP without the package."""
import argparse
import concurrent.futures
import functools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

try:
    import jsonschema
except ImportError:
    print("SKIP schemas: the Python package jsonschema is not installed")
    sys.exit(0)

from session import DEMO_MODEL, ROOT, Engine, Wrong, holds, same, with_engine

sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import schema_random  # noqa: E402

TOKENS = 300
EVERY = 2  # one schema in two may have answers without an end
CLIENTS = 4
SECONDS = 60  # of a request, which has the machine for a quarter
ASK = [{"role": "user", "content": "Who came to the house, and why?"}]
NESTED = functools.reduce(lambda inner, _: {"type": "array", "items": inner}, range(400), {"type": "null"})


def named(names, **more):
    return dict({"type": "object", "properties": {n: {"type": "string"} for n in names}}, **more)


# What is refused, with the JSON path and the keyword that the message names.
REFUSED = [
    (named(["a"], patternProperties={"^x": {}}), "$", "patternProperties"),
    ({"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 3}}}}, "$.properties.a", "not"),
    ({"type": "array", "items": {"type": "object", "propertyNames": {"maxLength": 3}}}, "$.items", "propertyNames"),
    ({"type": "array", "items": {"type": "array", "uniqueItems": True}}, "$.items", "uniqueItems"),
    ({"anyOf": [{"type": "null"}, {"type": "array", "contains": {"const": 1}}]}, "$.anyOf[1]", "contains"),
    ({"if": {"type": "string"}, "then": {"maxLength": 3}}, "$", "if"),
    (named(["a", "b"], dependentRequired={"a": ["b"]}), "$", "dependentRequired"),
    (named(["a"], unevaluatedProperties=False), "$", "unevaluatedProperties"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "$", "oneOf"),
    ({"$ref": "https://example.org/schema.json"}, "$", "$ref"),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "$.properties.a", "$ref"),
    ({"$ref": "#"}, "$", "$ref"),
    ({"type": "strin"}, "$", "type"),
    ({"type": "object", "properties": []}, "$", "properties"),
    ({"enum": []}, "$", "enum"),
    ({"type": "string", "pattern": "(a"}, "$", "pattern"),
    ({"type": "string", "pattern": "^(?!a)b$"}, "$", "pattern"),
    ({"type": "string", "minLength": 5, "maxLength": 4}, "$", "minLength"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "$", "minimum"),
    ({"type": "string", "minLength": -1}, "$", "minLength"),
]
# Each would have more states than there is memory: it is refused, or its answer fits.
EXPLOSIVE = [
    {"type": "string", "pattern": "^(((a{1,999}b){1,999}c){1,999}d){1,999}$"},
    {"allOf": [{"anyOf": [{"properties": {f"p{i}": {"const": k}}} for k in range(4)]} for i in range(20)]},
    NESTED,
    {"enum": [f"value {i} of many" for i in range(11000)]},
    named([f"name{i}" for i in range(3000)], required=[f"name{i}" for i in range(3000)]),
    {"type": "array", "items": {"type": "string", "minLength": 65000, "maxLength": 65536}, "minItems": 1000000},
    {"$defs": {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 3} for i in range(60)} | {"60": {"type": "null"}},
     "$ref": "#/$defs/0"},
]


def post(engine, path, body):
    """Status and document."""
    asked = urllib.request.Request(engine.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def passes(engine):
    """Of the model, so far."""
    with urllib.request.urlopen(engine.url + "/metrics", timeout=SECONDS) as reply:
        lines = [line.split() for line in reply.read().decode().splitlines() if not line.startswith("#")]
    return sum(float(words[-1]) for words in lines if words[0].startswith("sluice_passes_total"))


def chat(schema, way):
    return "/v1/chat/completions", dict(way, messages=ASK, max_tokens=TOKENS, response_format={
        "type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}})


def responses(schema, way):
    return "/v1/responses", dict(way, input=ASK, max_output_tokens=TOKENS, store=False, text={
        "format": {"type": "json_schema", "name": "n", "schema": schema}})


def messages(schema, way):
    return "/v1/messages", dict(way, messages=ASK, max_tokens=TOKENS, output_config={
        "format": {"type": "json_schema", "schema": schema}})


def ollama(schema, way):
    return "/api/chat", {"messages": ASK, "format": schema, "stream": False, "options": dict(way, num_predict=TOKENS)}


def complete(reply):
    """The text of an answer of any API; None: its tokens ended before."""
    if "choices" in reply:
        choice = reply["choices"][0]
        return choice["message"]["content"] if choice["finish_reason"] == "stop" else None
    if "output" in reply:
        return reply["output"][-1]["content"][0]["text"] if reply["status"] == "completed" else None
    if "stop_reason" in reply:
        return reply["content"][0]["text"] if reply["stop_reason"] == "end_turn" else None
    return reply["message"]["content"] if reply["done_reason"] == "stop" else None


APIS = chat, responses, messages, ollama


def check(schema, text):
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    try:
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator, format_checker=checker)
    except (ValueError, jsonschema.ValidationError) as error:
        raise Wrong(f"{text!r} for {json.dumps(schema)}: {str(error)[:200]}") from error


def answer(engine, api, schema, way):
    """Whether an answer is complete, and then valid."""
    status, reply = post(engine, *api(schema, way))
    if status != 200:
        raise Wrong(f"{api.__name__}: status {status}: {str(reply)[:300]} for {json.dumps(schema)[:300]}")
    text = complete(reply)
    if text is not None:
        check(schema, text)
    return text is not None


def random_session(first, count, engine):
    def both(seed):
        schema = schema_random.maker(seed, EVERY).document()[0]
        ways = {"temperature": 0}, {"temperature": 1, "seed": seed}
        return sum(answer(engine, APIS[(seed + i) % len(APIS)], schema, way) for i, way in enumerate(ways))

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        done = sum(pool.map(both, range(first, first + count)))
    print(f"{count} schemas, 2 answers each: {done} are complete and valid", flush=True)
    holds(f"only {done} of {2 * count} answers are complete", 4 * done >= 3 * 2 * count)


def refused_session(engine):
    before = passes(engine)
    for schema, path, keyword in REFUSED:
        for api in APIS:
            status, reply = post(engine, *api(schema, {}))
            error = reply["error"]
            words = error if isinstance(error, str) else error["message"]
            holds(f"{api.__name__}, {json.dumps(schema)}: {status}, {words}",
                  status == 400 and f"at {path}, {keyword}" in words)
    same("passes of the model", passes(engine), before)


def explosive_session(engine):
    for i, schema in enumerate(EXPLOSIVE):
        api = APIS[i % len(APIS)]
        status, reply = post(engine, *api(schema, {"temperature": 0}))
        holds(f"{i}: status {status}: {str(reply)[:300]}", status in (200, 400))
        if status == 200 and complete(reply) is not None:
            check(schema, complete(reply))


def random_weights(libexec, work):
    """The path of a small model whose weights are random."""
    path = os.path.join(work, "random.gguf")
    subprocess.run([os.path.join(libexec, "sluice-synth"), "-q", "-o", path, "tiny", "--type", "Q8_0"], check=True,
                   capture_output=True)
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", help="unused")
    p.add_argument("--libexec", required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("--count", type=int, default=300 if os.environ.get("SLUICE_LONG") == "1" else 20)
    p.add_argument("--first", type=int, default=0)
    a = p.parse_args()

    def start(model):
        return functools.partial(Engine, model, a.libexec, a.out, f"--parallel={CLIENTS}", "--ctx-size=1024")

    random = functools.partial(random_session, a.first, a.count)
    good = with_engine("schemas", start(DEMO_MODEL),
                       {"refused": refused_session, "explosive": explosive_session, "random": random})
    good &= with_engine("schemas", start(random_weights(a.libexec, a.out)), {"random_weights": random})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
