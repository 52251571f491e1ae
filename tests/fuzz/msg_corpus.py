#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of msg_fuzz into corpus/msg: a valid message of every type, the text of every
call, and slightly invalid variants. Run it again after a change of ipc/channel/messages.h."""
import pathlib
import struct

OUT = pathlib.Path(__file__).resolve().parent / "corpus" / "msg"
HEAD = "<IHHIIQ"
PAGE = 4096


def message(kind, body):
    size = struct.calcsize(HEAD) + len(body)
    return b"\0" + struct.pack(HEAD, 0x43554C53, 2, kind, size, 7, 42) + body


def demand(count):
    return struct.pack("<QQIIIIHHI", 100, 200, 77, 1, 5, 0, 3, count, 0) + b"".join(
        struct.pack("<IIHH", i, 1, i % 4, 0) for i in range(count))


def hint(count):
    return struct.pack("<QIIHHHH", 200, 1, 5, 4, 3, count, 0) + b"".join(
        struct.pack("<If", i, 1.0 / (i + 1)) for i in range(count))


def load(runs):
    body = struct.pack("<QQIHH", 9, 200, 17, 2, len(runs))
    return body + b"".join(struct.pack("<QQQ", *r) for r in runs).ljust(72, b"\0")


def loads(*parts):
    return struct.pack("<IIII", 2, 3, len(parts), 0) + b"".join(load(p) for p in parts)


def dones(*status):
    return struct.pack("<II", 3, len(status)) + b"".join(
        struct.pack("<QQQQIi", 9, PAGE, 10, 20, 17, s) for s in status)


def text(body):
    return b"\1" + body.encode()


def call(op, rest=""):
    return text('{"v":1,"id":"0123456789abcdef","op":"%s"%s}' % (op, rest))


SEEDS = {
    "demand_1": message(1, demand(1)),
    "demand_5": message(1, demand(5)),
    "demand_256": message(1, demand(256)),
    "hint_1": message(2, hint(1)),
    "hint_8": message(2, hint(8)),
    "loads_1": message(9, loads([(PAGE, 2 * PAGE, 3 * PAGE)])),
    "loads_3": message(9, loads([(PAGE, 0, PAGE), (0, PAGE, PAGE), (8 * PAGE, 4 * PAGE, 2 * PAGE)],
                                [(0, 0, PAGE)], [(PAGE, PAGE, PAGE)])),
    "loads_16": message(9, loads(*[[(i * PAGE, i * PAGE, PAGE)] for i in range(16)])),
    "loads_crooked": message(9, loads([(0, 0, PAGE)], [(PAGE + 1, 0, PAGE)])),
    "loads_few": message(9, loads([(0, 0, PAGE)])[:-4]),
    "flush": message(4, struct.pack("<II", 2, 3)),
    "flushed": message(5, struct.pack("<II", 2, 3)),
    "dones": message(10, dones(0)),
    "dones_error": message(10, dones(0, 5, 0)),
    "control": message(7, struct.pack("<QII", 1 << 30, 1, 4)),
    "ack": message(8, struct.pack("<QII", 1 << 30, 1, 4)),
    "head_only": message(7, b""),
    "nothing": b"\0",
    "ping": call("ping"),
    "submit_text": call("submit", ',"request_key":"k","prompt":"Hello","max_tokens":8,'
                        '"ignore_eos":true,"sampling":{"temperature":0,"top_k":1,"seed":-1}'),
    "submit_ids": call("submit", ',"request_key":"k","ids":[1,2,3],"logprobs":1,"score_prompt":true'),
    "next": call("next", ',"sequence":7,"from":3,"wait_ms":250'),
    "cancel": call("cancel", ',"sequence":7'),
    "twice": call("x", ',"a":1,"a":2'),
    "deep": call("x", ',"a":' + "[" * 40 + "]" * 40),
    "numbers": call("x", ',"a":[1e999,99999999999999999999,-0.0,1e-400]'),
    "escapes": call("x", r',"a":"\u0000\ud800\ud83d\ude00\"\\"'),
    "reply": text('{"v":1,"id":"0123456789abcdef","ok":true,"ids":[1],"text":"a"}'),
    "reply_error": text('{"v":1,"id":"0123456789abcdef","ok":false,"error":{"code":"busy","text":"t"}}'),
    "bytes": b"\1\xff\xc3\xa9\xed\xa0\x80\xf0\x9f\x98\x80\0",
}

if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (OUT / name).write_bytes(data)
