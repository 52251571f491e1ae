#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/jinja.json: small templates of every feature of lib/jinja, and what jinja2 renders them to with the
settings of transformers: the reference of unit_jinja.

    python3 tests/golden/jinja_vectors.py tests/golden/data       # needs jinja2 3.1

The text of a template that fails is null."""
import json
import sys

import jinja2
from chat_templates import environment, expected

VARIABLES = {
    "s": "Hello, W\u00f6rld", "t": "  pad \t\n", "empty": "", "n": 42, "neg": -7, "f": 2.5, "big": 1e20, "small": 1.5e-7,
    "yes": True, "no": False, "nil": None, "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"b": 1, "a": 2, "C": None},
    "deep": {"x": {"y": [1, {"z": "found"}]}}, "pairs": [["k", 1], ["v", 2]],
    "people": [{"name": "Ann", "age": 30, "tag": "x"}, {"name": "bob", "age": 25}, {"name": "Cid", "age": 30, "tag": "y"}],
    "q": "it's \"quoted\" \\ back\nline\ttab \u00e9 \u0007 \U0001f600 \u200b", "lines": "one\ntwo\r\nthree\n\nfour\u2028five",
    "html": "<a href=\"x\">&'</a>", "csv": "a,b,,c", "spaced": " a  b c ", "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "items": "shadow", "num": "12", "fl": "3.75", "bad": "x1", "ff": "0xff", "long": "word " * 6,
    "control": "\x00\x1f\x7f\u00a0\u00ad", "uni": "\u00c4\u00d6\u03a9\u0416 stra\u00dfe \u0142", "dup": ["a", "B", "b", "A", "c"]}

PLAIN = r"""
{{ s }}|{{ n }}|{{ f }}|{{ big }}|{{ small }}|{{ yes }}|{{ no }}|{{ nil }}|{{ l }}|{{ d }}|{{ mixed }}|{{ missing }}
{{ q }}{{ [q] }}{{ {'k': q} }}{{ [control] }}
{{ [1.0, 100000.0, 1e15, 1e16, 1e17, 0.0001, 0.00001, -0.5, 1/3, 123456789.125, 5e-324] }}
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2.0 ** 3 }} {{ 1.5 + 1 }} {{ 3 * 1.5 }} {{ -n }} {{ +n }} {{ - f }} {{ true + 1 }} {{ 2 ** 3 ** 2 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'x' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2, 3) }} {{ 'a' ~ 1 ~ none ~ [1] }}
{{ 'a' 'b' "c" }} {{ 'esc\n\t\\\'\"\x41\u00e9\101\q' }} {{ "it's" }} {{ 'multi
line' }}
{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e3 }} {{ 2e-3 }} {{ 1_0.5 }} {{ 12.0 }} {{ 1E2 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ 'a' != 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }}
{{ 2 >= 2 }} {{ 2 <= 1 }} {{ 'B' > 'a' }} {{ none == none }} {{ {'a': 1} == {'a': 1.0} }} {{ [] < [1] }}
{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in d }} {{ 'zz' in missing }} {{ 2 in (1, 2) }} {{ 'a' in d.keys() }}
{{ yes and 'x' }} {{ no or 'y' }} {{ not yes }} {{ not not 1 }} {{ nil or empty or 0 or 'last' }} {{ 1 and 0 and 2 }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} [{{ 'a' if no }}] {{ 1 if no else 2 if no else 3 }}
{{ not 1 in [2] }} {{ -1 | abs }} {{ 1 + 2 | abs }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }}
{{ deep.x.y[1].z }} {{ deep['x']['y'][0] }} {{ deep.x['y'][-1]['z'] }} {{ l.0 }} {{ l[-1] }} {{ l[9] }}| {{ s[0] }}{{ s[-1] }}{{ s[99] }}| {{ deep.nope }}|
{{ d.items() | list }} {{ d['items'] is defined }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('a') }} {{ d.get('x') }} {{ d.get('x', 7) }} {{ d.items() }} {{ d.keys() }} {{ d.values() }}
{{ s[1:4] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ s[8:2:-2] }} {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[5:] }} {{ (1, 2, 3)[1:] }} {{ s[:] }} {{ l[-9:2] }} {{ s[4:1] }} {{ l[::9] }}
{{ () }} {{ (1,) }} {{ (1, 2) }} {{ [] }} {{ {} }} {{ [1, 2,] }} {{ {'a': 1, 'a': 2, 'b': [1],} }} {{ {1: 'x', none: 2, true: 3, (1, 2): 4} }}
{{ 1, 2 }} {{ range(3) | list }} {{ range(1, 10, 3) | list }} {{ range(3, 0, -1) | list }} {{ range(3) }} {{ range(0, 6, 2) }} {{ range(5)[1] }} {{ range(0) | list }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([('x', 1)]) }} {{ dict() }}
{# comment #}a{#- c -#} b {#
more #}c
{% raw %}{{ x }}{% if %}{# n #}{% endraw %}|{%- raw -%} {{ y }} {%- endraw -%} |
{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a']['b'] }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }}
{{ t.strip() }}|{{ t.lstrip() }}|{{ t.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ '\u00a0\u3000a\u2003'.strip() }}|{{ 'xyxa'.strip('yx') }}
{{ csv.split(',') }} {{ csv.split(',', 1) }} {{ spaced.split() }} {{ spaced.split(none, 1) }} {{ csv.rsplit(',', 1) }} {{ spaced.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ spaced.rsplit() }} {{ spaced.split(maxsplit=1) }} {{ 'a b c '.rsplit(none, 0) }} {{ csv.rsplit(',') }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ s.startswith('Hell') }} {{ s.startswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.endswith(('z', 'd')) }} {{ s.startswith('ello', 1) }} {{ s.endswith('H', 0, 1) }} {{ s.startswith('', 99) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aaa'.replace('aa', 'b') }} {{ ''.replace('', 'x') }} {{ 'abc'.replace('', '-', 2) }}
{{ s.upper() }} {{ s.lower() }} {{ 'hELLO wORLD'.title() }} {{ "they're 3rd".title() }} {{ 'hELLO'.capitalize() }} {{ uni.upper() }} {{ uni.lower() }} {{ uni | title }}
{{ s.find('o') }} {{ s.find('zz') }} {{ s.rfind('l') }} {{ s.index('W') }} {{ s.rindex('l') }} {{ s.count('l') }} {{ s.find('l', 4) }} {{ s.find('l', -3) }} {{ 'aaa'.count('') }} {{ s.find('', 99) }} {{ s.count('l', 0, 3) }}
{{ ', '.join(['a', 'b']) }} {{ ''.join(w) }} {{ '-'.join('abc') }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ 'Ab'.isupper() }} {{ '\u00e9'.isalpha() }}
{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}-{y}'.format(x=1, y=2) }} {{ '{{}}{}'.format(3) }} {{ '{:5}|{:<5}|{:>5}|{:^5}|'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:.2f} {:x} {:+d} {:*^7}'.format(42, 3.14159, 255, 5, 'm') }} {{ '{!r}'.format('q') }} {{ '{:4}|'.format(7) }}
{{ '%s %d %r' % ('a', 3, 'b') }} {{ '%s' % 'x' }} {{ '%05d|%-5s|%5s|%.2f|%%|%x' % (42, 'a', 'b', 3.14159, 255) }} {{ '%(k)s' % {'k': 1} }} {{ '%s and %s' | format('a', 'b') }} {{ '%(a)s' | format(a=1) }} {{ '%+d % d' % (3, 4) }} {{ '%s' % (none,) }}
{{ l.index(1) }} {{ l.count(3) }} {{ (1, 2).index(2) }} {{ l.copy() }} {{ d.copy() }}
{{ t | trim }}| {{ 'xax' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ 'hello wORLD' | title }} {{ 'a-b (c) [d]' | title }} {{ 'hELLO' | capitalize }} {{ 5 | string }} {{ nil | string }} {{ missing | trim }}| {{ missing | upper }}|
{{ missing | default('x') }} {{ empty | default('x') }}| {{ empty | default('x', true) }} {{ nil | d('x') }} {{ nil | default('x', boolean=true) }} {{ missing | default }}| {{ deep.a | default('y') }}
{{ l | join }} {{ l | join(', ') }} {{ people | join(', ', attribute='name') }} {{ 'abc' | join('.') }} {{ missing | join }}| {{ mixed | join('/') }}
{{ l | length }} {{ s | length }} {{ d | count }} {{ missing | length }} {{ '\u4f60\u597d' | length }} {{ 'a b  c-d' | wordcount }}
{{ l | first }} {{ l | last }} {{ [] | first }}| {{ [] | last }}| {{ s | first }} {{ s | last }} {{ d | first }} {{ l | list }} {{ 'ab' | list }} {{ d | list }} {{ missing | list }} {{ (1, 2) | list }}
{{ l | reverse | list }} {{ 'abc' | reverse }} {{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(attribute='age', reverse=true) | map(attribute='name') | list }}
{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ {'x': 2, 'y': 1} | dictsort(false, 'value', true) }}
{{ d | items | list }} {{ missing | items | list }} {{ dup | unique | list }} {{ dup | unique(true) | list }} {{ people | unique(attribute='age') | map(attribute='name') | join }}
{{ l | sum }} {{ people | sum(attribute='age') }} {{ l | sum(start=10) }} {{ l | min }} {{ l | max }} {{ w | min }} {{ w | max }} {{ people | min(attribute='age') }} {{ [] | max }}|
{{ range(7) | batch(3) | list }} {{ range(7) | batch(3, 'x') | list }}
{{ [1, 2] | batch(0) | list }} {{ [1, 2] | batch(false) | list }} {{ [1, 2] | batch(0.0, 'x') | list }} {{ [] | batch(0) | list }} {{ [] | batch('a', 'x') | list }} {{ [1, 2] | batch(-1, 'x') | list }} {{ [1, 2] | batch(true) | list }} {{ [1, 2, 3] | batch(1.5) | list }} {{ [1, 2, 3] | batch(1.0, 'x') | list }} {{ [1, 2] | batch(none) | list }} {{ [1, 2] | batch('a') | list }} {{ [1, 2] | batch(missing) | list }} {{ [1, 2] | batch(2, none) | list }}
{{ [1, 2] | batch('a', 'x') | list }}
{{ [1, 2] | batch(4.0, 'x') | list }}
{{ [1, 2] | batch(missing, 'x') | list }}
{{ people | map(attribute='name') | list }} {{ w | map('upper') | list }} {{ people | map(attribute='tag', default='none') | list }} {{ [' a ', 'b '] | map('trim') | join('|') }} {{ [[1, 2], [3]] | map('length') | list }} {{ ['ab'] | map('replace', 'a', 'x') | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }} {{ pairs | map(attribute=0) | list }}
{{ l | select('gt', 1) | list }} {{ l | select('odd') | list }} {{ l | reject('equalto', 1) | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1] | reject | list }} {{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | selectattr('tag', 'defined') | list | length }} {{ people | rejectattr('tag', 'undefined') | map(attribute='name') | join(',') }} {{ people | selectattr('tag') | list | length }} {{ people | selectattr('name', 'in', ['Ann', 'Cid']) | list | length }} {{ mixed | select('string') | list }}
{% for g in people | groupby('age') %}{{ g[0] }}:{{ g[1] | map(attribute='name') | join(',') }};{% endfor %}{% for k, v in people | groupby('tag', default='-') %}{{ k }}={{ v | length }} {% endfor %}
{{ num | int }} {{ fl | int }} {{ bad | int }} {{ bad | int(9) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ ff | int(base=16) }} {{ yes | int }} {{ nil | int }} {{ ' 5 ' | int }} {{ fl | float }} {{ bad | float }} {{ 3 | float }} {{ bad | float(1.5) }} {{ '1e3' | float }} {{ '101' | int(0, 2) }}
{{ -3 | abs }} {{ f | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 7 | round }} {{ 2.675 | round(2) }} {{ 1234.5 | round(-2) }} {{ 2.123 | round(1, 'ceil') }}
{{ html | escape }} {{ html | e }} {{ html | safe }} {{ html | safe + '<b>' }} {{ '<i>' + html | safe }} {{ (html | safe) ~ '<b>' }} {{ html | e | e }} {{ html | e | forceescape }} {{ (html | safe).upper() + '<' }} {{ (html | safe) | replace('a', '<') }} {{ (html | safe).replace('a', '<') }} {{ ('-' | safe).join(['<', '>']) }} {{ ('%s' | safe) % '<' }} {{ ('{}' | safe).format('<') }} {{ (html | safe)[1:3] + '&' }} {{ html | safe | trim + '&' }} {{ html | safe is escaped }} {{ html is escaped }}
{{ d | tojson }} {{ mixed | tojson }} {{ q | tojson }} {{ q | tojson(ensure_ascii=true) }} {{ deep | tojson(indent=2) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ nil | tojson }} {{ yes | tojson }} {{ f | tojson }} {{ big | tojson }} {{ (1, 2) | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ deep | tojson(indent='--') }} {{ control | tojson }} {{ [1, [2]] | tojson(indent=0) }} {{ control | tojson(ensure_ascii=true) }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb\n\nc' | indent(2, true) }} {{ 'a\nb\n\nc' | indent(2, blank=true) }} {{ 'a\nb' | indent('> ') }} {{ 'a\n' | indent(first=true) }} {{ '' | indent(3, true) }}|
{{ 'aXbX' | replace('X', '-') }} {{ 'aXbX' | replace('X', '-', 1) }} {{ 5 | replace('5', '6') }}
{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nil is none }} {{ s is string }} {{ n is number }} {{ f is float }} {{ n is integer }} {{ yes is integer }} {{ yes is boolean }} {{ yes is number }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ missing is sequence }} {{ (l | map('abs')) is sequence }} {{ range is callable }} {{ n is callable }} {{ d.items() is sequence }} {{ missing is iterable }} {{ range(3) is sequence }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby(3) }} {{ 9 is divisibleby 3 }} {{ n is eq 42 }} {{ n is equalto(42) }} {{ n is ne 42 }} {{ n is gt 3 }} {{ n is lt(3) }} {{ n is ge 42 }} {{ n is le 42 }} {{ 'a' is in 'abc' }} {{ 'a' is in ['a'] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ n is not none }} {{ n is not odd }} {{ nil is sameas none }} {{ 'trim' is filter }} {{ 'zz' is filter }} {{ 'odd' is test }} {{ n is greaterthan 1 }} {{ n is lessthan 1 }} {{ n is sameas 42 }}
{{ s is defined and s is string or no }} {{ 'x' if s is string else 'y' }} {{ s is string | string }} {{ d.a is defined and d.zz is not defined }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ x }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.last }}{{ loop.revindex }} {% endfor %}{% for x in l if x > 9 %}{% else %}none{% endfor %}{% for x in l if x > 1 %}{{ x }}{{ loop.last }}{{ loop.nextitem }}{{ loop.length }} {% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for (a, b) in pairs %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in missing %}x{% else %}empty{% endfor %}{% for c in 'a\u00e9b' %}{{ c }}.{% endfor %}{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% set b %}<{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}>{% endset %}{{ b }}!{% endfor %}{{ b }}|{% for x in l %}{% filter upper %}a{% if x == 1 %}{% break %}{% endif %}b{% endfilter %}c{% endfor %}|{% for x in l %}{% with y = x %}{% if y == 1 %}{% continue %}{% endif %}{{ y }}{% endwith %}{% endfor %}
{% set ns = namespace(f=false, n=0) %}{% for i in range(9) %}{% if not ns.f %}{% set ns.n = ns.n + 1 %}{% if i == 3 %}{% set ns.f = true %}{% endif %}{% endif %}{% endfor %}{{ ns.n }}{% for i in range(4) %}{% if ns.f %}{% elif i %}x{% endif %}{% else %}e{% endfor %}{% for i in range(4) %}{% if no %}{% elif nil %}{% elif i %}x{% else %}y{% endif %}{% endfor %}{% for i in range(8, 0, -3) %}{{ i }}{{ loop.last }}{{ loop.revindex }}{{ loop.nextitem }}{% endfor %}
{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }}{% endfor %}{% for x in [1, 2] %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in 1, 2, 3 %}{{ x }}{% endfor %}{% for x in (l if yes else w) %}{{ x }}{% endfor %}{% for x in l | sort %}{{ x }}{% endfor %}{% for x in l[1:] %}{{ x }}{% endfor %}
{% if no %}a{% elif nil %}b{% elif n %}c{% else %}d{% endif %}{% if missing %}a{% else %}b{% endif %}{% if l and d %}x{% endif %}{% if l | select('gt', 99) %}generator is true{% endif %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if yes %}{% set x = 9 %}{% endif %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set z = 1, 2 %}{{ z }}{% set (c, e) = [3, 4] %}{{ c }}{{ e }}
{% set ns = namespace(x=0, y=[]) %}{% for i in l %}{% set ns.x = ns.x + i %}{% set ns.y = ns.y + [i] %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.zz }}|{{ ns['x'] }}{{ ns }}{% set ns.new = 1 %}{{ ns.new }}{% set m = namespace({'a': 1}) %}{{ m.a }}
{% set b %}block {{ n }}{% endset %}[{{ b }}]{% set u | upper %}up {{ s }}{% endset %}{{ u }}{% set u | replace('a', 'b') | trim %} aa {% endset %}[{{ u }}]{% set v = 1 %}{% set w2 %}{% set v = 2 %}{{ v }}{% endset %}{{ w2 }}{{ v }}
{% filter upper %}text {{ s }}{% endfilter %}{% filter replace('a', 'b') | trim %} aaa {% endfilter %}|{% filter indent(2) %}a
b{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a }}|{{ c }}{% with %}{% set q2 = 1 %}{% endwith %}{{ q2 }}{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}
{% macro m(a, b=2, c='x') %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(a=5) }}{{ m() }}{{ m(*[7, 8]) }}{{ m(**{'a': 9}) }}{{ m(1, *[2], **{'c': 3}) }}
{% macro r(x) %}{{ x }}{% if x > 0 %}{{ r(x - 1) }}{% endif %}{% endmacro %}{{ r(3) }}{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, k=3) }}{% macro d2(a, b=a) %}{{ b }}{% endmacro %}{{ d2(4) }}
{% macro wrap(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call wrap(1) %}body {{ n }}{% endcall %}{% macro each() %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each() %}[{{ i }}]{% endcall %}{% macro opt() %}{% if caller %}c{% else %}none{% endif %}{% endmacro %}{{ opt() }}{% call opt() %}{% endcall %}
{% set g = 1 %}{% macro reads() %}{{ g }}{% endmacro %}{{ reads() }}{% set g = 2 %}{{ reads() }}{% for g in [5] %}{{ reads() }}{% endfor %}{% macro sets() %}{% set g = 7 %}{{ g }}{% endmacro %}{{ sets() }}{{ g }}
{% generation %}answer{% set inner = 1 %}{% endgeneration %}{{ inner }}|{% print n %}{% print(s) %}
{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %j') }} {{ strftime_now('') }}|
{{ raise_exception('stop') }}
{{ missing.x }}
{{ missing + 1 }}
{{ missing() }}
{{ missing[0] }}
{{ missing[1:] }}
{{ missing < 1 }}
{{ n() }}
{{ n + s }}
{{ [1] + (2,) }}
{{ n < s }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ n | length }}
{{ (l | map('abs')) | length }}
{{ (l | map('abs'))[0] }}|{{ n[0] }}|{{ d[0] }}|{{ l['x'] }}|{{ s['x'] }}|{{ nil.x }}|{{ n.x }}
{{ l.append(1) }}
{{ l.pop() }}
{{ d.update({'a': 1}) }}
{{ d.pop('a') }}
{{ l | nofilter }}
{{ l is notest }}
{% if no %}{{ l | nofilter }}{% endif %}
{{ missing | tojson }}
{{ range | tojson }}
{{ {'a': missing} | tojson }}
{{ {[1]: 2} }}
{{ 'a' in 5 }}
{{ 5 in 'a' }}
{{ s.split('') }}
{{ s.index('zz') }}
{{ l.index(99) }}
{{ range(100001) | length }}
{{ range(1, 2, 0) }}
{{ range() }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % (1, 2) }}
{{ '{} {}'.format(1) }}
{{ '{x}'.format(1) }}
{{ '{'.format(1) }}
{{ s.startswith(1) }}
{{ s.nomethod() }}
{{ ', '.join([1]) }}
{{ l | sum(attribute='x') }}
{{ mixed | sort }}
{{ m(1, 2, 3) }}{% macro m(a) %}{% endmacro %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% for a, b in l %}{% endfor %}
{% for x in n %}{% endfor %}
{% for x in nil %}{% endfor %}
{% set a, b = l %}
{% set d.x = 1 %}
{% set q.x = 1 %}
{% if %}{% endif %}
{% if n %}
{% endif %}
{% for x %}{% endfor %}
{% unknown %}
{% break %}
{% set 1 = 2 %}
{% set true = 2 %}
{% macro %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% call n %}{% endcall %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1 }}
{{ {1} }}
{{ 'open }}
{{ n
{% if n
{# open
{% raw %} open
{{ a b }}
{{ 1 2 }}
{{ n | }}
{{ n is }}
{{ n. }}
{{ n! }}
{{ ) }}
{{ (] }}
{{ f(a=1, 2) }}
{{ dict(**n) }}
{{ dict(*n) }}
{{ l[1:2, 3] }}
{{ l[::0] }}
{{ n is string is string }}
{{ 'a' is defined is string }}
{% include 'x' %}
{% do 1 %}
{{ s.strip(1) }}
{{ 5 | round(1, 'up') }}
{{ [] | groupby('x') }}{{ [1] | groupby('x') }}
{{ [1, 2] | map('nofilter') | list }}
{{ [] | map('nofilter') | list }}
{{ [1] | select('notest') | list }}
{{ l | selectattr | list }}
{{ d | dictsort(by='x') }}
{{ n | items | list }}
{{ f | tojson(5, 6, 7, 8, 9) }}
{{ l | first(1) }}
{{ 9223372036854775807 }}
{{ s | attr('upper') is defined }}{{ d | attr('a') }}|
{{ l | last | string ~ 'x' }}{{ (l | reverse) | first }}
"""

BLOCKS = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "  {% if yes %}  \n  b  {% endif %}\n  c", "x {%- if yes -%} \n y \n {%- endif -%} z",
    "a\n  {%+ if yes %}b{% endif %}\n", "{% if yes +%}\nb{% endif %}\n", "{{ n }}\n\n{{ n }}\n", "  {{- n -}}  \n {{ n }} ",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "  {# c #}\nb\n  {#- c -#}\n  d", "{# c #}\n{# d #}\nx", "\n\n{%- if yes %}\n\na{% endif %}",
    "a\r\n{% if yes %}\r\nb{% endif %}\rc\r\n", "{%- set x = 1 -%}\n\n  {{- x -}}\n\n", "line\n    {% if yes %}text{% endif %}\n",
    "\t{% set x = 1 %}\t\n{{ x }}", "a {% raw %}\n {{ x }}\n {% endraw %}\nb", "a  {%- raw %}  b  {% endraw -%}  c", "{{ n +}}", "{{+ n }}",
    "{{-1}}|{{- 1}}|{{ -1 }}", "a\n \u00a0{% if yes %}b{% endif %}", "x{% if yes %}\n\n{% endif %}y", "{%if yes%}tight{%endif%}{{n}}",
    "{% if yes %}{% endif %}\n\n", "\n", "", " ", "{", "{ {", "}}", "%}", "{{ '{{' }}", "#{{ n }}#", "{%\tif yes\n%}tab{% endif\t%}",
    "{% macro m() -%}\n  a\n{%- endmacro %}\n[{{ m() }}]\n", "{{ l\n|\nlist }}", "{%- for x in l -%}\n {{ x }} \n{%- endfor -%}\n",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in l if not ns.stop %}{{ x }}{% if x == 1 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% for x in l %}{% macro q() %}{{ x }}{% endmacro %}{{ q() }}{% endfor %}", "{% raw %}\n{% endraw %}\n{{ n }}", "   {% raw %}x{% endraw %}",
    "{% for x in [] %}{% else %}{% set e = 1 %}{{ e }}{% endfor %}{{ e }}", "{% for loop2 in [1] %}{{ loop.index }}{% endfor %}{{ loop is defined }}",
    "{{ {'a':1}.a }}{{ {'items': 5}.items is callable }}{{ {'items': 5}['items'] }}", "{% if not (l is string) and l is iterable %}x{% endif %}",
    "{{ (['a'] + ['b'])[0] ~ ('c' if yes) }}", "{{ 'a' if l else 'b' if d else 'c' }}", "{% set x %}\n a\n{% endset %}\n[{{ x }}]",
]


def main():
    env = environment()
    templates = [line for line in PLAIN.strip("\n").split("\n")]
    joined = []  # lines inside a string, comment or block belong together
    for line in templates:
        if joined and joined[-1].endswith(("{{ 'multi", "{#", "indent(2) %}a")):
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    cases = []
    for text in joined + BLOCKS:
        case = {"template": text, "own": {}, "messages": VARIABLES}
        try:
            compiled = env.from_string(text)
        except (jinja2.TemplateError, SyntaxError):  # Python's own of `break` outside of a loop
            compiled = None
        cases.append({"template": text, "text": expected(compiled, case)})
    with open(f"{sys.argv[1]}/jinja.json", "w", encoding="utf-8") as out:
        json.dump({"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases}, out, indent=0)
        out.write("\n")
    print(f"{len(cases)} cases, {sum(c['text'] is None for c in cases)} fail")


if __name__ == "__main__":
    main()
