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


def requests():
    user = {"role": "user", "content": "x"}
    call = json.dumps({"a": [{"k": 0}] * (VALUES - 200)}, separators=(",", ":"))
    yield "text", {"messages": [dict(user, content="a" * 500000)]}
    yield "empty objects", {"messages": [dict(user, z=[{}] * VALUES)]}
    yield "objects of one text", {"messages": [dict(user, z=[{"k": "x" * 120}] * VALUES)]}
    yield "tools", {"messages": [user], "tools": [{"k": "x" * 140}] * VALUES}
    yield "arguments of a call", {"messages": [{"role": "assistant", "content": "x" * 900000, "tool_calls": [
        {"function": {"name": "f", "arguments": call}}]}]}


def reset_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
    return kib["VmHWM"] - kib["RssFile"] - kib["RssShmem"]


def main():
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    for name, body in requests():
        text = json.dumps(dict(body, max_tokens=1))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        reset_peak(pid)
        connection.request("POST", "/v1/chat/completions", text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        print(f"{name:24s} body {len(text) >> 10:5d} KiB  status {response.status}  peak {peak_kib(pid):6d} KiB")


if __name__ == "__main__":
    main()
