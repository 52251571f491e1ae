#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the automaton of a JSON Schema with the package jsonschema, over random schemas.

usage: schema_random.py SCHEMA_TEXTS [COUNT [SEED]]: what walks through the automaton write must be valid; values that
were made for the schema must be accepted in compact form; changed ones that are not valid must not be accepted.
Exit status: 0 all agree, 1 a difference, 77 the package is not installed.
"""
import json
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("SKIP schema_random: the Python package jsonschema is not installed")
    sys.exit(77)

PATTERNS = [("^[a-z]{2,5}$", "abc"), (r"^\d+-[A-F]*$", "12-AF"), ("^(ab|c)+x?$", "abcx"), ("foo", "a foo b"),
            ("^[^a-c\"]{1,3}$", "xé😀"), (r"^\w+\s\S$", "ab é"), (r"^a|b$", "xb"), (r"^\"\\.$", "\"\\z"),
            (r"^[\d-]+$", "1-2"), (r"^[\w-]{1,9}$", "a-_1"), (r"^[\s\-_]*$", " -_")]
FORMATS = {"date": "2024-03-31", "date-time": "2024-03-31T10:00:00Z", "uuid": "01234567-89ab-cdef-0123-456789abcdef",
           "email": "a.b@example.org", "ipv4": "10.0.255.1", "time": "10:00:00+01:00", "hostname": "a-b.example",
           "ipv6": "fe80::1", "duration": "P3D", "uri": "https://example.org/a?b=c"}
LETTERS = "ab\"\\\n\té€😀/ "


class Maker:
    """Makes a schema and, for the same one, values."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self, low=0, high=6):
        return "".join(self.r.choice(LETTERS) for _ in range(self.r.randint(low, high)))

    def scalar(self):
        return self.r.choice([None, True, False, 0, -7, 12345, 0.5, -2.25, self.text(), "x"])

    def any(self, depth=2):
        kind = self.r.randint(0, 3) if depth else 0
        if kind == 2:
            return [self.any(depth - 1) for _ in range(self.r.randint(0, 3))]
        if kind == 3:
            return {self.text(): self.any(depth - 1) for _ in range(self.r.randint(0, 3))}
        return self.scalar()

    def make(self, depth):
        """A schema and a function that makes values of it."""
        kinds = [self.string, self.number, self.integer, self.enum, self.simple, self.formatted, self.pattern]
        if depth:
            kinds += [self.object, self.object, self.array, self.tuple, self.any_of, self.one_of, self.all_of, self.map]
        return self.r.choice(kinds)(depth - 1)

    def document(self):
        """A whole schema, with what $ref names, and a function that makes values of it."""
        tree = {"type": "object", "properties": {"name": {"type": "string"}, "children": {
            "type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["name"], "additionalProperties": False}
        schema, value = self.make(3)
        schema = schema if isinstance(schema, dict) else {"allOf": [schema]}
        return dict(schema, **{"$defs": {"tree": tree}}), value

    def simple(self, _):
        return self.r.choice([({"type": "null"}, lambda: None), ({"type": "boolean"}, lambda: self.r.random() < .5),
                              ({"type": "number"}, lambda: self.r.choice([1e-07, 1.5e+20, -0.1])),
                              ({}, self.any), (True, self.any), ({"const": {"a": [1, "é"]}}, lambda: {"a": [1, "é"]}),
                              ({"type": ["string", "null"], "maxLength": 3},
                               lambda: self.r.choice([None, self.text(0, 3)])),
                              ({"$ref": "#/$defs/tree"}, self.tree),
                              ({"type": "integer", "multipleOf": 7}, lambda: 7 * self.r.randint(-99, 99)),
                              ({"type": "integer", "multipleOf": 40}, lambda: 40 * self.r.randint(-99, 99)),
                              ({"enum": ["a", 1], "x-names": ["A", "B"]}, lambda: "a")])

    def tree(self, depth=3):
        value = {"name": self.text()}
        if depth and self.r.random() < .7:
            value["children"] = [self.tree(depth - 1) for _ in range(self.r.randint(0, 2))]
        return value

    def string(self, _):
        low, high = sorted(self.r.randint(0, 9) for _ in range(2))
        schema = {"type": "string"}
        if self.r.random() < .5:
            schema["minLength"] = low
        if self.r.random() < .5:
            schema["maxLength"] = high
        return schema, lambda: self.text(low, high)

    def formatted(self, _):
        name = self.r.choice(list(FORMATS))
        return {"type": "string", "format": name}, lambda: FORMATS[name]

    def pattern(self, _):
        pattern, value = self.r.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: value

    def bounds(self, span):
        low, high = sorted(self.r.randint(-span, span) for _ in range(2))
        schema = {}
        if self.r.random() < .6:
            schema["minimum"] = low
        if self.r.random() < .6:
            schema["maximum"] = high
        if self.r.random() < .3:
            schema["exclusiveMinimum"] = low - 1
        if self.r.random() < .3:
            schema["exclusiveMaximum"] = high + 1
        return schema, low, high

    def integer(self, _):
        schema, low, high = self.bounds(self.r.choice([3, 20, 1000, 10**9, 10**14]))
        schema["type"] = "integer"
        return schema, lambda: self.r.choice([low, high, self.r.randint(low, high)])

    def number(self, _):
        schema, low, high = self.bounds(self.r.choice([1, 20, 1000]))
        schema["type"] = "number"
        return schema, lambda: self.r.choice([low, high, round(self.r.uniform(low, high), 3)])

    def enum(self, _):
        values = [self.any(1) for _ in range(self.r.randint(1, 8))]
        return {"enum": values}, lambda: self.r.choice(values)

    def object(self, depth):
        names = list({self.text(1, 3) for _ in range(self.r.randint(0, 5))})
        members = {n: self.make(depth) for n in names}
        required = [n for n in names if self.r.random() < .6]
        more = self.make(depth) if self.r.random() < .4 else None
        schema = {"type": "object", "properties": {n: m[0] for n, m in members.items()}, "required": required}
        schema["additionalProperties"] = more[0] if more else False

        def value():
            made = {n: m[1]() for n, m in members.items() if n in required or self.r.random() < .5}
            for _ in range(self.r.randint(0, 2) if more else 0):
                name = self.text(1, 4)
                if name not in names:
                    made[name] = more[1]()
            return made
        return schema, value

    def map(self, depth):
        schema, value = self.make(depth)
        return ({"type": "object", "additionalProperties": schema},
                lambda: {self.text(): value() for _ in range(self.r.randint(0, 4))})

    def array(self, depth):
        schema, value = self.make(depth)
        low, high = sorted(self.r.randint(0, 4) for _ in range(2))
        return ({"type": "array", "items": schema, "minItems": low, "maxItems": high},
                lambda: [value() for _ in range(self.r.randint(low, high))])

    def tuple(self, depth):
        parts = [self.make(depth) for _ in range(self.r.randint(1, 3))]
        low = self.r.randint(0, len(parts))
        return ({"type": "array", "prefixItems": [p[0] for p in parts], "minItems": low, "items": False},
                lambda: [p[1]() for p in parts[:self.r.randint(low, len(parts))]])

    def any_of(self, depth):
        parts = [self.make(depth) for _ in range(self.r.randint(1, 3))]
        return {"anyOf": [p[0] for p in parts]}, lambda: self.r.choice(parts)[1]()

    def one_of(self, depth):
        kinds = [self.make(depth) for _ in range(2)]
        parts = [({"type": "object", "required": ["kind", "value"], "additionalProperties": False,
                   "properties": {"kind": {"const": str(i)}, "value": k[0]}}, k[1]) for i, k in enumerate(kinds)]

        def value():
            i = self.r.randrange(2)
            return {"kind": str(i), "value": parts[i][1]()}
        return {"oneOf": [p[0] for p in parts]}, value

    def all_of(self, depth):
        a, b = self.make(depth), self.make(depth)
        return ({"type": "object", "required": ["a"], "allOf": [
            {"type": "object", "properties": {"a": a[0]}},
            {"properties": {"b": b[0]}, "required": ["b"]}]}, lambda: {"a": a[1](), "b": b[1]()})


class ShortMaker(Maker):
    """Makes schemas of the same kinds, of which no value is long: a model that repeats itself reaches the end."""

    PATTERNS = [("^[a-z]{2,5}$", "abc"), (r"^\d{1,4}-[A-F]{0,3}$", "12-AF"), ("^(ab|c){1,4}x?$", "abcx"),
                ("^[^a-c\"]{1,3}$", "xé😀"), (r"^\w{1,4}\s\S$", "ab é"), (r"^\"\\.$", "\"\\z")]
    FORMATS = "date", "uuid", "ipv4", "ipv6"

    def string(self, depth):
        schema, value = super().string(depth)
        return dict({"maxLength": max(9, schema.get("minLength", 0))}, **schema), value

    def formatted(self, _):
        name = self.r.choice(self.FORMATS)
        return {"type": "string", "format": name}, lambda: FORMATS[name]

    def pattern(self, _):
        pattern, value = self.r.choice(self.PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: value

    def simple(self, _):
        return self.r.choice([({"type": "null"}, lambda: None), ({"type": "boolean"}, lambda: True),
                              ({"const": {"a": [1, "é"]}}, lambda: {"a": [1, "é"]}),
                              ({"type": ["string", "null"], "maxLength": 3}, lambda: None)])

    def bounds(self, span):
        schema, low, high = super().bounds(span)
        return dict({"minimum": low, "maximum": high}, **schema), low, high

    number = Maker.integer  # a number may have digits without an end

    def map(self, depth):  # so may a name
        return self.array(depth)

    def object(self, depth):
        schema, value = super().object(depth)
        return (dict(schema, additionalProperties=False),
                lambda: {n: v for n, v in value().items() if n in schema["properties"]})

    def all_of(self, depth):
        schema, value = super().all_of(depth)
        first, second = schema["allOf"]
        first = dict(first, properties=dict(first["properties"], b=True), additionalProperties=False)
        return dict(schema, allOf=[first, second]), value


def maker(seed, every):
    """One schema in `every` may have values without an end."""
    return Maker(seed) if seed % every == 0 else ShortMaker(seed)


def changed(r, text):
    """The text with a change that leaves it JSON, more often than not."""
    i = r.randrange(len(text))
    change = r.randrange(4)
    if change == 0:
        return text[:i] + text[i + 1:]
    if change == 1:
        return text[:i] + r.choice("0a\"{}[],:1 ") + text[i:]
    if change == 2:
        return text[:i] + r.choice("05xé") + text[i + 1:]
    return re.sub(r"\d+", lambda m: str(int(m.group()) * r.choice([10, 2]) + 1), text)


def is_valid(validator, text):
    try:
        return validator.is_valid(json.loads(text))
    except ValueError:
        return False


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    texts = walks = faults = refused = mutants = 0
    for seed in range(first, first + count):
        maker = Maker(seed)
        schema, value = maker.document()
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        values = [json.dumps(value(), ensure_ascii=False, separators=maker.r.choice([(",", ":"), (", ", ": ")]))
                  for _ in range(20)]
        bad = [t for t in (changed(maker.r, v) for v in values for _ in range(5)) if not is_valid(validator, t)]
        program.stdin.write(json.dumps({"schema": json.dumps(schema), "texts": values + bad, "walks": 20,
                                        "seed": seed}) + "\n")
        program.stdin.flush()
        reply = json.loads(program.stdout.readline())
        if "error" in reply:
            refused += 1
            print(f"refused, seed {seed}: {reply['error']}: {json.dumps(schema)}")
            continue
        problems = [("not accepted", t) for t, fits in zip(values, reply["fits"])
                    if not fits and is_valid(validator, t)]
        problems += [("accepted", t) for t, fits in zip(bad, reply["fits"][len(values):]) if fits]
        written = [w for w in reply["walks"] if w is not None]
        problems += [("written", w) for w in written if not is_valid(validator, w)]
        texts, walks, mutants = texts + len(values), walks + len(written), mutants + len(bad)
        for what, text in problems[:3]:
            print(f"{what}, seed {seed}: {text}\n    {json.dumps(schema, ensure_ascii=False)}")
        faults += len(problems)
    print(f"{count} schemas: {texts} values, {mutants} invalid ones, {walks} walks; {refused} refused, {faults} faults")
    sys.exit(1 if faults or refused else 0)


if __name__ == "__main__":
    main()
