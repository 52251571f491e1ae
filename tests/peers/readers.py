# SPDX-License-Identifier: Apache-2.0
"""A part of replays.py: readers of streams that are as strict as those of the clients (order of events, ids, required
members, deltas that add up to the whole). Each returns a dictionary: reasoning, content, calls [(id, name, arguments)],
finish, usage, and `items`, what the client sends back."""
import http.client
import json
import urllib.parse

from session import Wrong, holds, same


def request(engine, method, path, body=None, headers=None):
    """(status, headers, text)."""
    at = urllib.parse.urlsplit(engine.url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=300)
    try:
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read().decode()
    finally:
        connection.close()


def call(engine, method, path, body=None, headers=None):
    status, _, text = request(engine, method, path, body, headers)
    if status != 200:
        raise Wrong(f"{method} {path}: {status} {text[:300]}")
    return json.loads(text)


def refusal(engine, path, body, status=400):
    got, _, text = request(engine, "POST", path, body)
    same(f"the status of {path}: {text[:200]}", got, status)
    return json.loads(text)


def events(engine, path, body, headers=None):
    """[(name or None, data)] of a stream; comments are skipped."""
    status, head, text = request(engine, "POST", path, body, headers)
    same(f"the status of {path}: {text[:300]}", status, 200)
    same("the type", head["content-type"].split(";")[0], "text/event-stream")
    same("caches", head.get("cache-control"), "no-cache")
    holds("the last event is not ended", text.endswith("\n\n"))
    out = []
    for block in text[:-2].split("\n\n"):
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                holds("an event has two lines of data", data is None)
                data = line[6:]
            else:
                holds(f"not a line of an event: {line!r}", line.startswith(":"))
        if data is not None:
            out.append((name, data))
    return out


def has(what, value, **members):
    """The members are there and have these types; of an object other members may be there."""
    holds(f"{what} is no object: {value!r}", isinstance(value, dict))
    for name, kind in members.items():
        got = value.get(name)
        holds(f"{what}: {name} is {got!r}",
              name in value and isinstance(got, kind) and not (kind is int and isinstance(got, bool)))


# ---- OpenAI: chat ----


def chat_delta(out, delta, state):
    """Reasoning, then content, then calls; one call per event."""
    order = ["reasoning_content", "content", "tool_calls"]
    parts = [name for name in order if delta.get(name)]
    holds(f"several parts in an event: {delta}", len(parts) <= 1)
    for name in parts:
        holds(f"{name} after {state['part']}", order.index(name) >= order.index(state["part"]))
        state["part"] = name
    out["reasoning"] += delta.get("reasoning_content") or ""
    out["content"] += delta.get("content") or ""
    calls = delta.get("tool_calls") or []
    holds(f"several calls in an event: {delta}", len(calls) <= 1)
    for c in calls:
        has("a call", c, index=int, function=dict)
        if c["index"] == len(out["calls"]):
            has("a call's first event", c, id=str, type=str)
            has("a call's function", c["function"], name=str, arguments=str)
            same("a call's type", c["type"], "function")
            out["calls"].append([c["id"], c["function"]["name"], ""])
        else:
            same("the index of a call", c["index"], len(out["calls"]) - 1)
            same("a name or id that is repeated", ("id" in c, "name" in c["function"]), (False, False))
        out["calls"][-1][2] += c["function"]["arguments"]


def chat(engine, body, headers=None):
    out = {"reasoning": "", "content": "", "calls": [], "finish": None, "usage": None}
    usage_wanted = (body.get("stream_options") or {}).get("include_usage", False)
    state, equal = {"part": "reasoning_content"}, None
    got = events(engine, "/v1/chat/completions", dict(body, stream=True), headers)
    same("the last event", got[-1], (None, "[DONE]"))
    for number, (name, data) in enumerate(got[:-1]):
        chunk = json.loads(data)
        same("an event's name", name, None)
        has("a chunk", chunk, id=str, object=str, created=int, model=str, choices=list)
        same("object", chunk["object"], "chat.completion.chunk")
        equal = equal or (chunk["id"], chunk["created"], chunk["model"])
        same("id, created and model", (chunk["id"], chunk["created"], chunk["model"]), equal)
        last = number == len(got) - 2
        if usage_wanted and last:
            same("choices of the usage", chunk["choices"], [])
            out["usage"] = chunk["usage"]
            continue
        same("usage", chunk.get("usage"), None)
        same("choices", len(chunk["choices"]), 1)
        choice = chunk["choices"][0]
        has("a choice", choice, index=int, delta=dict)
        same("index", choice["index"], 0)
        holds("there is no finish_reason", "finish_reason" in choice)
        holds(f"an event after finish_reason: {data}", out["finish"] is None)
        same("role", choice["delta"].get("role"), None if number else "assistant")
        chat_delta(out, choice["delta"], state)
        out["finish"] = choice["finish_reason"]
    holds("there is no finish_reason", out["finish"] in ("stop", "length", "tool_calls"))
    for c in out["calls"]:
        c[2] = json.loads(c[2])
    out["items"] = [{"role": "assistant", "content": out["content"] or None, **(
        {"tool_calls": [{"id": c[0], "type": "function", "function": {"name": c[1], "arguments": json.dumps(c[2])}}
                        for c in out["calls"]]} if out["calls"] else {})}]
    return out


# ---- OpenAI: responses ----


def response_item(item, parts, state):
    """What was sent of an item is what its end says."""
    has("an item", item, id=str, type=str, status=str)
    same("the item's id", item["id"], state["id"])
    same("its status", item["status"], "completed")
    if item["type"] == "function_call":
        has("a call", item, call_id=str, name=str, arguments=str)
        same("the call's parts", parts, [item["arguments"]])
    else:
        same("the item's parts", parts, [part["text"] for part in item["content"]])


def response_text(kind, event, state):
    """An event of a text in an item."""
    has(kind, event, item_id=str, output_index=int)
    same(f"{kind}: item", (event["item_id"], event["output_index"]), (state["id"], state["index"]))
    what = kind.rsplit(".", 1)[1]
    if "content_part" in kind or "text" in kind:
        same(f"{kind}: content_index", event["content_index"], len(state["parts"]) - (kind[-5:] != "added"))
    if kind == "response.content_part.added":
        state["parts"].append("")
    elif what == "delta":
        if "arguments" in kind and not state["parts"]:
            state["parts"].append("")
        state["parts"][-1] += event["delta"]
    elif kind != "response.content_part.done":
        same(kind, event["arguments" if "arguments" in kind else "text"], state["parts"][-1])
    else:
        same(kind, event["part"]["text"], state["parts"][-1])


def responses(engine, body, headers=None):
    items, state, identity, end = [], None, None, None
    for number, (name, data) in enumerate(events(engine, "/v1/responses", dict(body, stream=True), headers)):
        event = json.loads(data)
        holds(f"an event after the last one: {data}", end is None)
        same("type, number", (event.get("type"), event.get("sequence_number")), (name, number))
        if number < 2:
            same("the first events", name, ("response.created", "response.in_progress")[number])
        if "response" in event:
            has("the response", event["response"], id=str, object=str, status=str, output=list, model=str)
            identity = identity or event["response"]["id"]
            same("the response's id", event["response"]["id"], identity)
        if name == "response.output_item.added":
            holds("two items at once", state is None)
            same("output_index", event["output_index"], len(items))
            state = {"id": event["item"]["id"], "index": len(items), "parts": []}
        elif name == "response.output_item.done":
            response_item(event["item"], state["parts"], state)
            items.append(event["item"])
            state = None
        elif name in ("response.completed", "response.incomplete", "response.failed"):
            end = event["response"]
        elif name not in ("response.created", "response.in_progress"):
            holds(f"{name} outside of an item", state is not None)
            response_text(name, event, state)
    holds("the stream was closed before response.completed", end is not None and state is None)
    same("the items at the end", end["output"], items)
    same("ids that occur twice", len({i["id"] for i in items}), len(items))
    has("usage", end["usage"], input_tokens=int, output_tokens=int, total_tokens=int)
    texts = {kind: "".join(p["text"] for i in items if i["type"] == kind for p in i["content"])
             for kind in ("reasoning", "message")}
    return {"reasoning": texts["reasoning"], "content": texts["message"], "finish": end["status"], "usage": end["usage"],
            "calls": [[i["call_id"], i["name"], json.loads(i["arguments"])] for i in items
                      if i["type"] == "function_call"], "items": items}


# ---- Anthropic ----


def messages(engine, body, headers=None):
    got = events(engine, "/v1/messages?beta=true", dict(body, stream=True), headers)
    blocks, open_block, finish, usage = [], None, None, {}
    for number, (name, data) in enumerate(got):
        event = json.loads(data)
        same("type", event.get("type"), name)
        same("message_start is the first event", name == "message_start", number == 0)
        same("message_stop is the last one", name == "message_stop", number == len(got) - 1)
        if name == "message_start":
            has("a message", event["message"], id=str, type=str, role=str, model=str, content=list, usage=dict)
            same("content", (event["message"]["content"], event["message"]["stop_reason"]), ([], None))
            usage.update(event["message"]["usage"])
        elif name == "content_block_start":
            holds("two blocks at once", open_block is None)
            same("index", event["index"], len(blocks))
            open_block = dict(event["content_block"], json="", deltas=[])
        elif name == "content_block_delta":
            same("index", event["index"], len(blocks))
            kind = event["delta"]["type"]
            member = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature",
                      "input_json_delta": "partial_json"}[kind]
            holds(f"{kind} in {open_block}", {"partial_json": "input", "signature": "thinking"}.get(member, member) in
                  open_block)
            open_block["deltas"].append(kind)
            to = "json" if member == "partial_json" else member
            open_block[to] += event["delta"][member]
        elif name == "content_block_stop":
            same("index", event["index"], len(blocks))
            if open_block["type"] == "tool_use":
                has("a call", open_block, id=str, name=str)
                same("input before its deltas", open_block["input"], {})
                open_block["input"] = json.loads(open_block["json"] or "{}")
                has("a call", open_block, input=dict)
            signed = open_block["deltas"].count("signature_delta"), open_block["deltas"][-1:] == ["signature_delta"]
            same("signatures, at the end", signed, (1, True) if open_block["type"] == "thinking" else (0, False))
            del open_block["json"], open_block["deltas"]
            blocks.append(open_block)
            open_block = None
        elif name == "message_delta":
            holds("message_delta in a block", open_block is None and finish is None)
            finish = event["delta"]["stop_reason"]
            holds("stop_sequence is missing", "stop_sequence" in event["delta"])
            has("usage", event["usage"], output_tokens=int)
            usage.update(event["usage"])
        else:
            holds(f"an unknown event: {name}", name in ("ping", "message_stop"))
    has("usage", usage, input_tokens=int, output_tokens=int, cache_read_input_tokens=int, cache_creation_input_tokens=int)
    return {"reasoning": "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
            "content": "".join(b["text"] for b in blocks if b["type"] == "text"), "finish": finish, "usage": usage,
            "calls": [[b["id"], b["name"], b["input"]] for b in blocks if b["type"] == "tool_use"], "items": blocks}


# ---- Ollama ----


def ollama(engine, body, path="/api/chat"):
    status, head, text = request(engine, "POST", path, body)
    same(f"the status of {path}: {text[:300]}", status, 200)
    same("the type", head["content-type"].split(";")[0], "application/x-ndjson")
    holds("the last line is not ended", text.endswith("\n"))
    out = {"reasoning": "", "content": "", "calls": [], "finish": None, "usage": None}
    lines = [json.loads(line) for line in text[:-1].split("\n")]
    for number, line in enumerate(lines):
        has("a line", line, model=str, created_at=str, done=bool)
        same("the last line is done", line["done"], number == len(lines) - 1)
        if path == "/api/chat":
            has("a message", line["message"], role=str, content=str)
            same("role", line["message"]["role"], "assistant")
        message = line["message"] if path == "/api/chat" else {"content": line["response"],
                                                              "thinking": line.get("thinking")}
        out["content"] += message["content"]
        out["reasoning"] += message.get("thinking") or ""
        for c in message.get("tool_calls") or []:
            has("a call", c["function"], name=str, arguments=dict)
            out["calls"].append([None, c["function"]["name"], c["function"]["arguments"]])
    last = lines[-1]
    has("the last line", last, done_reason=str, total_duration=int, load_duration=int, prompt_eval_count=int,
        prompt_eval_duration=int, eval_count=int, eval_duration=int)
    out["finish"], out["usage"] = last["done_reason"], last
    calls = [{"function": {"name": c[1], "arguments": c[2]}} for c in out["calls"]]
    out["items"] = [{"role": "assistant", "content": out["content"], **({"tool_calls": calls} if calls else {})}]
    return out
