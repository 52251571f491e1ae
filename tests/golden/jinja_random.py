#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random templates, rendered by lib/jinja and by jinja2 with the settings of transformers, and compared byte by byte.

    jinja_random.py compare PROGRAM [COUNT [SEED]]   PROGRAM: build/tests/golden_jinja; prints what differs
    jinja_random.py write DIR [COUNT [SEED]]         a sample with jinja2's texts: data/jinja_random.json of unit_jinja

Needs jinja2 3.1. What lib/jinja leaves out by intention is not counted: integers of more than 64 bits, addresses in the
text of functions and generators, and templates that exceed its limits."""
import copy
import json
import random
import re
import subprocess
import sys
import tempfile
import warnings

import jinja2
from chat_templates import NOW, environment
from jinja_vectors import VARIABLES

# By the type that they mostly have: templates of a random mix of types are nearly all errors.
ATOMS = {
    "text": ["s", "t", "empty", "q", "lines", "csv", "spaced", "num", "fl", "uni", "html", "''", "'a'", "' '", "'b c'", "','", "'a,b,,c'", "'\u00e9'",
             "'Ab'", "'12'", "'x\\ny'", "'1.5'", "'aaa'", "'name'"],
    "number": ["n", "neg", "f", "0", "1", "2", "-1", "3", "7", "1.5", "0.5", "-2.0", "yes", "no", "true"],
    "list": ["l", "w", "pairs", "people", "mixed", "dup", "[]", "[1, 2]", "['a', 'b']", "(1, 'x')", "()", "[3, 1, 2]", "range(3)",
             "range(5, 0, -2)", "range(2, 0)", "['b', 'A']", "[none, 1]", "[1.5, 2]", "[[1, 2], [3]]"],
    "dict": ["d", "deep", "{}", "{'k': 1}", "{'a': [1]}", "people[0]", "{'b': 2, 'a': 1}", "{1: 'x', 'y': 2.5}"],
    "other": ["nil", "missing", "none", "x", "y", "d.zz"]}
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]
# Of a type: name, the types of the arguments, how many must be given.
METHODS = {
    "text": {"strip": ("text",), "lstrip": ("text",), "rstrip": ("text",), "upper": (), "lower": (), "capitalize": (), "title": (),
             "split": ("text", "number"), "rsplit": ("text", "number"), "splitlines": ("number",), "partition": ("text",),
             "rpartition": ("text",), "startswith": ("text", "number", "number"), "endswith": ("text", "number", "number"),
             "find": ("text", "number", "number"), "rfind": ("text", "number", "number"), "index": ("text",), "rindex": ("text",),
             "count": ("text", "number"), "replace": ("text", "text", "number"), "removeprefix": ("text",), "removesuffix": ("text",),
             "join": ("list",), "isdigit": (), "isalpha": (), "isalnum": (), "isspace": (), "isupper": (), "islower": ()},
    "list": {"count": ("any",), "index": ("any",)},
    "dict": {"get": ("text", "any"), "items": (), "keys": (), "values": (), "copy": ()}}
NEEDED = {"partition", "rpartition", "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "replace", "removeprefix",
          "removesuffix", "join", "get", "divisibleby", "batch", "attr", "groupby"}
FILTERS = {
    "text": {"trim": ("text",), "upper": (), "lower": (), "capitalize": (), "title": (), "replace": ("text", "text", "number"),
             "float": ("any",), "int": ("any", "number"), "wordcount": (), "escape": (), "e": (), "forceescape": (),
             "indent": ("number", "number", "number"), "safe": (), "list": (), "first": (), "last": (), "reverse": (), "length": ()},
    "number": {"abs": (), "round": ("number",), "int": (), "float": (), "string": ()},
    "list": {"length": (), "count": (), "list": (), "first": (), "last": (), "reverse": (), "join": ("text",), "sort": ("number", "number"),
             "min": (), "max": (), "sum": (), "unique": (), "batch": ("number", "any"), "map": (), "select": (), "reject": (),
             "selectattr": (), "rejectattr": (), "groupby": ()},
    "dict": {"items": (), "dictsort": ("number",), "length": (), "list": (), "attr": ("text",), "tojson": ()},
    "any": {"string": (), "default": ("any", "number"), "d": ("any",), "tojson": (), "upper": (), "trim": (), "replace": ("text", "text"),
            "escape": ()}}
TESTS = {
    "any": {"defined": (), "undefined": (), "none": (), "string": (), "number": (), "integer": (), "float": (), "boolean": (), "true": (),
            "false": (), "mapping": (), "iterable": (), "sequence": (), "callable": (), "eq": ("any",), "ne": ("any",), "sameas": ("any",),
            "escaped": (), "lower": (), "upper": (), "in": ("list",)},
    "number": {"odd": (), "even": (), "divisibleby": ("number",), "lt": ("number",), "ge": ("number",), "gt": ("number",), "le": ("number",)},
    "text": {"lower": (), "upper": (), "filter": (), "test": (), "in": ("text",), "lt": ("text",)}}
FORMS = ["'%s'", "'%d'", "'%5s|'", "'%-5s|'", "'%05d'", "'%.2f'", "'%x'", "'%+d'", "'%r'", "'%e'", "'%s %s'", "'%%'", "'%i'", "'%.1s'"]
BRACES = ["'{}'", "'{0}'", "'{:>5}'", "'{:<5}|'", "'{:^5}|'", "'{:05}'", "'{:.2f}'", "'{:x}'", "'{:+}'", "'{!r}'", "'{}{}'", "'{{}}'",
          "'{:d}'", "'{:*^7}'", "'{:s}'", "'{:.1}'", "'{0}{0}'", "'{:e}'"]
LOOPS = ["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth"]


class Maker:
    """Templates of a seed."""
    def __init__(self, seed):
        self.r = random.Random(seed)

    def some(self, of):
        return self.r.choice(of)

    def kind(self, wanted):
        """The type that is wanted, and sometimes another."""
        if wanted == "any" or self.r.random() < 0.04:
            return self.r.choices(["text", "number", "list", "dict", "other"], (5, 4, 4, 2, 1))[0]
        return wanted

    def arguments(self, name, types, depth):
        fewest = {"replace": 2}.get(name, 1 if name in NEEDED and types else 0)
        count = self.r.randint(fewest, len(types))
        return ", ".join(self.expression(depth - 2, kind) for kind in types[:count])

    def by_name(self, name):
        """Arguments of map, select and their kin."""
        if name == "map" and self.r.random() < 0.4:
            return self.some(["attribute='name'", "attribute='age', default=0", "attribute='tag'", "attribute=0", "attribute='x.y'"])
        if name == "groupby":
            return self.some(["'age'", "'tag'", "'tag', default='-'", "0"])
        kind = self.some(["any", "text", "number"])
        of = self.some([n for n, types in (FILTERS if name == "map" else TESTS)[kind].items() if name == "map" or not types])
        return ("'age', " if name.endswith("attr") else "") + f"'{of}'"

    def filtered(self, depth, kind):
        name, types = self.some(list(FILTERS.get(kind, FILTERS["any"]).items()))
        of = self.expression(depth - 1, kind)
        if name in ("map", "select", "reject", "selectattr", "rejectattr", "groupby"):
            of = "people" if self.r.random() < 0.5 else of
            return f"({of} | {name}({self.by_name(name)}){' | list' if self.r.random() < 0.8 else ''})"
        if name in ("sort", "min", "max", "unique", "join", "sum") and self.r.random() < 0.3:
            of = "people" if self.r.random() < 0.7 else "pairs"
            arguments = "attribute=" + self.some(["0", "'name'", "'age'", "'age,name'"] if name == "sort" else ["0", "'name'", "'age'"])
        elif name == "tojson":
            arguments = self.some(["", "", "indent=2", "ensure_ascii=true", "sort_keys=true", "separators=(',', ':')", "indent=0", "none, 1"])
        else:
            arguments = self.arguments(name, types, depth)
        return f"({of} | {name}{'(' + arguments + ')' if arguments or self.r.random() < 0.1 else ''})"

    def formatted(self, depth):
        kind = self.some(["any", "number", "text"])
        if self.r.random() < 0.5:
            return f"({self.some(FORMS)} % {self.expression(depth - 1, kind)})"
        return f"{self.some(BRACES)}.format({self.expression(depth - 1, kind)}, {self.expression(depth - 1, kind)})"

    def call(self, depth, kind):
        name, types = self.some(list(METHODS[kind].items()))
        return f"{self.expression(depth - 1, kind)}.{name}({self.arguments(name, types, depth)})"

    def index(self, depth):
        kind = self.kind(self.some(["text", "list"]))
        of = self.expression(depth - 1, kind)
        if self.r.random() < 0.4:
            return f"{of}[{self.expression(depth - 2, 'number')}]"
        bounds = [self.some(["", "", "0", "1", "2", "-1", "-2", "5", "none", "n"]) for _ in range(2)]
        return f"{of}[{':'.join(bounds)}{self.some(['', '', ':', ':2', ':-1', ':-2', ':1'])}]"

    def binary(self, depth):
        kind = self.kind(self.some(["text", "number", "number", "list"]))
        op = self.some({"number": BINARY, "text": ["+", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"],
                        "list": ["+", "~", "==", "and", "or", "!="]}.get(kind, ["~", "and", "or", "==", "!=", "in"]))
        right = "list" if op in ("in", "not in") and kind != "text" else self.kind(kind)
        return f"({self.expression(depth - 1, kind)} {op} {self.expression(depth - 1, right)})"

    def other(self, depth):
        a, b = self.expression(depth - 1, "any"), self.expression(depth - 2, "any")
        number = self.expression(depth - 1, "number")
        return self.some([f"({a} if {b} else {self.expression(depth - 2, 'any')})", f"[{a}, {b}]", f"({a}, {b})", f"{{'k': {a}}}",
                          f"{{{self.expression(0, 'any')}: {a}}}", f"(-{number})", f"(not {a})", f"(+{number})", f"(5[0:2] is defined)",
                          f"dict(a={a})", f"namespace(x={a}).x", f"(range({number}) | list)", f"range({number})", f"({a}).name",
                          f"dict(**{self.expression(0, 'dict')})", f"m({a})", f"m(**{self.expression(0, 'dict')})",
                          f"m(*{self.expression(0, 'list')})", f"({self.expression(depth - 1, 'text')} * {number})"])

    def test(self, depth):
        kind = self.some(list(TESTS))
        name, types = self.some(list(TESTS[kind].items()))
        arguments = ", ".join(self.expression(depth - 2, t) for t in types)
        return f"({self.expression(depth - 1, kind)} is {self.some(['', '', 'not '])}{name}{'(' + arguments + ')' if arguments else ''})"

    def expression(self, depth, wanted="any"):
        kind = self.kind(wanted)
        if depth <= 0 or self.r.random() < 0.15:
            return self.some(ATOMS[kind])
        made = self.compound(depth, kind)
        if kind == wanted and self.r.random() < 0.75:  # what it gives may be of any type
            made = {"text": f"({made} | string)", "number": f"({made} | string | length)", "list": f"[{made}]",
                    "dict": f"{{'k': {made}}}"}.get(kind, made)
        return made

    def compound(self, depth, kind):
        choice = self.r.random()
        if kind in METHODS and choice < 0.3:
            return self.call(depth, kind)
        if choice < 0.55:
            return self.filtered(depth, kind)
        if choice < 0.65:
            return self.index(depth)
        if choice < 0.77:
            return self.binary(depth)
        if choice < 0.84:
            return self.test(depth)
        return self.formatted(depth) if choice < 0.9 else self.other(depth)

    def loop(self, depth):
        target = self.some(["x", "x", "x", "x, y", "y"])
        condition = self.some(["", "", "", f" if {self.expression(2)}"])
        body = self.statements(depth - 1) + self.some(
            ["{{ x }}", f"{{{{ loop.{self.some(LOOPS)} }}}}", "{% continue %}", "{% break %}",
             f"{{% if {self.expression(1)} %}}{{% {self.some(['break', 'continue'])} %}}{{% endif %}}{{{{ y }}}}", ",",
             "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}"])
        other = f"{{% else %}}{self.statements(depth - 1)}E" if self.r.random() < 0.4 else ""
        return f"{{% for {target} in {self.expression(2, 'list')}{condition} %}}{body}{other}{{% endfor %}}"

    def statement(self, depth):
        kind = self.r.randrange(12) if depth > 0 else 0
        e = self.expression(3)
        if kind < 3:
            return f"[{{{{ {e} }}}}]"
        if kind < 6:
            return self.loop(depth)
        if kind == 6:
            return f"{{% if {e} %}}{self.statements(depth - 1)}{{% elif {self.expression(1)} %}}b{{% else %}}{self.statements(depth - 1)}{{% endif %}}"
        if kind == 7:
            return f"{{% set {self.some(['x', 'y', 'x', 'ns.x', 'ns.k', 'x, y'])} = {e} %}}"
        if kind == 8:
            return f"{{% set x{self.some(['', ' | upper', ' | trim'])} %}}{self.statements(depth - 1)} a {{% endset %}}{{{{ x }}}}"
        if kind == 9:
            return f"{{% with x = {e} %}}{{{{ x }}}}{self.statements(depth - 1)}{{% endwith %}}"
        if kind == 10:
            return f"{{% filter {self.some(['upper', 'trim', 'title', 'e', 'indent'])} %}}" \
                   f"{self.statements(depth - 1)}{{% endfilter %}}"
        return f"{{% call m({self.expression(1)}) %}}{self.statements(depth - 1)}{{% endcall %}}"

    def statements(self, depth):
        return self.some(["", " ", "\n", ""]).join(self.statement(depth) for _ in range(self.r.randint(1, 2)))

    def template(self):
        head = ""
        if self.r.random() < 0.9:
            head += "{% set ns = namespace(x=1) %}"
        if self.r.random() < 0.9:
            head += self.some(["{% macro m(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}",
                               "{% macro m(a) %}{{ a }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}"])
        return head + self.statements(self.r.randint(0, 2))


class NotCompared(Exception):
    """What only Python has: the text of a generator has its address."""


class Generator:
    """The result of a filter that is a generator."""
    def __init__(self, of):
        self.of = of

    def __iter__(self):
        return self.of

    def __str__(self):
        raise NotCompared

    __repr__ = __str__


def comparable(env):
    """The environment with generators whose text is noticed."""
    def wrapped(filter):
        def call(*args, **kwargs):
            result = filter(*args, **kwargs)
            return result if isinstance(result, (str, list)) else Generator(result)
        for name in ("jinja_pass_arg", "jinja_async_variant"):  # jinja2's marks of what it passes to a filter
            if hasattr(filter, name):
                setattr(call, name, getattr(filter, name))
        return call
    for name in ("map", "select", "reject", "selectattr", "rejectattr", "items", "batch", "unique", "reverse"):
        env.filters[name] = wrapped(env.filters[name])
    return env


def expected(env, text):
    """jinja2's text, None for an error."""
    try:
        return env.from_string(text).render(**copy.deepcopy(VARIABLES))  # list | indent changes its list
    except (jinja2.TemplateError, SyntaxError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError):
        return None


# What only Python has: addresses, its words for types; a random order; texts of numbers beyond 64 bits.
NOT_COMPARED = re.compile(r"(?i) at 0x|<class |<function |<built-in |<bound |<generator|Macro|Namespace|<dict_|"
                          r"Undefined|LoopContext|-?\d{19,}|\bnan\b")


def cases(count, seed):
    env = comparable(environment())
    made = Maker(seed)
    for _ in range(count):
        text = made.template()
        try:
            wanted = expected(env, text)
        except (MemoryError, NotCompared):
            continue
        if wanted is None or (len(wanted) < 20000 and not NOT_COMPARED.search(wanted)):
            yield text, wanted


def rendered(program, texts):
    made = [{"template": text, "own": {}, "messages": VARIABLES, "now": list(NOW)} for text in texts]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
        json.dump(made, out)
        out.flush()
        return json.loads(subprocess.run([program, out.name], check=True, capture_output=True).stdout)


def compare(program, count, seed):
    differ = compared = 0
    every = list(cases(count, seed))
    for (text, wanted), got in zip(every, rendered(program, [c[0] for c in every])):
        if re.search("too large|too many steps|too much memory|nested too deeply|more than 100000", got.get("error", "")):
            continue
        compared += 1
        if got.get("text") != wanted:
            differ += 1
            print(f"{text!r}\n  jinja2 {wanted!r}\n  sluice {got.get('text', got.get('error'))!r}")
    print(f"{compared} of {count} compared, {differ} differ")
    return differ > 0


def write(directory, count, seed):
    """Templates begin with the same macros: "begins" has their beginnings, and each case the number of its own."""
    kept = [{"template": text, "text": wanted} for i, (text, wanted) in enumerate(cases(count, seed)) if wanted is not None or i % 4 == 0]
    with open(f"{directory}/jinja_random.json", "w", encoding="utf-8") as out:
        json.dump({"jinja2": jinja2.__version__, "variables": VARIABLES, **shared(kept)}, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    print(f"{len(kept)} cases, {sum(c['text'] is None for c in kept)} fail")


END = "{% endmacro %}"


def shared(made):
    begins, rest = [], []
    for case in made:
        begin, found, after = case["template"].partition(END)
        if not found:
            begin, after = "", case["template"]
        if begin + found not in begins:
            begins.append(begin + found)
        rest.append({"begin": begins.index(begin + found), "template": after, "text": case["text"]})
    return {"begins": begins, "cases": rest}


def main():
    warnings.simplefilter("ignore")
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    if sys.argv[1] == "write":
        write(sys.argv[2], count, seed)
        return 0
    return compare(sys.argv[2], count, seed)


if __name__ == "__main__":
    sys.exit(main())
