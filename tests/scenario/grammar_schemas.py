#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Schemas for answers of an engine, and their check by the package jsonschema.

usage: grammar_schemas.py make COUNT SEED: prints that many schemas, a line each.
       grammar_schemas.py check FILE: a line of FILE is {"schema": text, "answer": text}; each answer must be valid.
Exit status: 0, 1 an answer that is not valid, 77 the package is not installed.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))

try:
    import jsonschema
except ImportError:
    print("the Python package jsonschema is not installed")
    sys.exit(77)

EVERY = 2  # one schema in two may have answers without an end


def make(count, seed):
    import schema_random
    for number in range(seed, seed + count):
        print(json.dumps(schema_random.maker(number, EVERY).document()[0]))


def check(path):
    bad = 0
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    with open(path, encoding="utf-8") as f:
        for line in f:
            case = json.loads(line)
            try:
                jsonschema.validate(json.loads(case["answer"]), json.loads(case["schema"]),
                                    cls=jsonschema.Draft202012Validator, format_checker=checker)
            except (ValueError, jsonschema.ValidationError) as e:
                print(f"not valid: {case['answer']!r} for {case['schema']}: {str(e)[:200]}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(make(int(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == "make" else check(sys.argv[2]))
