#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gateway_memory.py PORT PID: sends the requests that take most memory of those that the gateway accepts, to an engine on
127.0.0.1:PORT whose gateway has this PID; prints the largest private memory during each, and its limit in the ledger
(`sluice stats --json`: reserved_bytes). With a template of the model that fills its heap, the sum is the worst case.

The kernel keeps the largest resident size (VmHWM), which is reset before each request; what is mapped of files is
subtracted, as it is after the request."""
import http.client
import json
import sys

VALUES = 6000  # of two marks each: API_VALUES_MAX counts marks
TOKENS = 1200  # whose log-probabilities, with 20 alternatives each, fit into --http-buffer
CHAT = "/v1/chat/completions"


def requests():
    user = {"role": "user", "content": "x"}
    call = json.dumps({"a": [{"k": 0}] * (VALUES - 200)}, separators=(",", ":"))
    yield "text", CHAT, {"messages": [dict(user, content="a" * 500000)]}
    yield "empty objects", CHAT, {"messages": [dict(user, z=[{}] * VALUES)]}
    yield "objects of one text", CHAT, {"messages": [dict(user, z=[{"k": "x" * 120}] * VALUES)]}
    yield "tools", CHAT, {"messages": [user], "tools": [{"k": "x" * 140}] * VALUES}
    properties = {f"argument{i}": {"type": "integer"} for i in range(VALUES // 3)}
    yield "arguments of a tool", CHAT, {"messages": [user], "tool_choice": "required", "tools": [
        {"type": "function", "function": {"name": "n" * 256, "parameters": {"properties": properties}}}]}
    yield "arguments of a call", CHAT, {"messages": [{"role": "assistant", "content": "x" * 900000, "tool_calls": [
        {"function": {"name": "f", "arguments": call}}]}]}


def long_answers():
    """Whole answers with log-probabilities. A schema keeps the model from ending them."""
    user = [{"role": "user", "content": "x"}]
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": TOKENS}
    named = {"type": "json_schema", "name": "n", "schema": schema}
    yield "logprobs, chat", CHAT, {
        "messages": user, "logprobs": True, "top_logprobs": 20, "max_tokens": TOKENS,
        "response_format": {"type": "json_schema", "json_schema": named}}
    yield "logprobs, responses", "/v1/responses", {
        "input": user, "include": ["message.output_text.logprobs"], "top_logprobs": 20, "text": {"format": named},
        "max_output_tokens": TOKENS}
    yield "logprobs, Ollama", "/api/chat", {
        "messages": user, "logprobs": True, "top_logprobs": 20, "stream": False, "format": schema,
        "options": {"num_predict": TOKENS}}


def reset_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
    return kib["VmHWM"] - kib["RssFile"] - kib["RssShmem"]


def main():
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    rows = [(name, path, dict(body, max_tokens=1)) for name, path, body in requests()]
    for name, path, body in rows + list(long_answers()):
        text = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        reset_peak(pid)
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        print(f"{name:24s} body {len(text) >> 10:5d} KiB  status {response.status}  answer {len(answer) >> 10:5d} KiB  "
              f"peak {peak_kib(pid):6d} KiB")


if __name__ == "__main__":
    main()
