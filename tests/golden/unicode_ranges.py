#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes lib/model/tokenizer/unicode.tbl.h: characters of Unicode 16 that Unicode 14 does not have, each with
one of Unicode 14 that the expressions of pre-tokenizers treat alike.

    python3 -m venv venv            # anywhere outside the repository
    venv/bin/pip install unicodedata2==16.0.0
    venv/bin/python tests/golden/unicode_ranges.py lib/model/tokenizer/unicode.tbl.h

Unicode 14 is that of PCRE2 10.42 and of Python 3.11, with which the script runs; Unicode 16 that of the package
tokenizers 0.23 (Oniguruma) and of tiktoken."""
import re
import sys
import unicodedata

import unicodedata2

from expression_vectors import CJK, DEEPSEEK_LLM, DEEPSEEK_V3

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of Unicode 16 that Unicode 14 (PCRE2 10.42) does not have; the packages that models'
 * tokenizers come from know them. Written by tests/golden/unicode_ranges.py from the package
 * unicodedata2 16.0.0.
 * NEWER(first, last, as)  the expressions of tokenizers.tbl.h treat the characters first to last
 *                         like `as`: the same general category, both Han or neither, in the same
 *                         sets of characters that an expression lists, as many bytes in UTF-8.
 * Ascending, without overlaps. No include guard: include it with NEWER defined. */
"""
SETS = [re.compile(s) for s in (CJK, DEEPSEEK_V3[1], DEEPSEEK_LLM[1], DEEPSEEK_LLM[2])]


def all_characters():
    return [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]


def kind(database, c):
    """What the expressions distinguish. Of the new characters, the ideographs and strokes are Han."""
    name = database.name(chr(c), "")
    han = name.startswith(("CJK UNIFIED", "CJK COMPAT", "CJK RADICAL", "KANGXI RADICAL"))
    listed = tuple(s.fullmatch(chr(c)) is not None for s in SETS)
    return database.category(chr(c)), han, listed, len(chr(c).encode())


def main(path):
    assert unicodedata.unidata_version == "14.0.0" and unicodedata2.unidata_version == "16.0.0"
    stands = {}
    for c in all_characters():
        if unicodedata.category(chr(c)) not in ("Cn", "Co"):
            stands.setdefault(kind(unicodedata, c), c)
    rows = []
    for c in all_characters():
        if unicodedata.category(chr(c)) != "Cn" or unicodedata2.category(chr(c)) == "Cn":
            continue
        stand = stands[kind(unicodedata2, c)]
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == stand:
            rows[-1][1] = c
        else:
            rows.append([c, c, stand])
    with open(path, "w") as f:
        f.write(HEAD)
        for first, last, stand in rows:
            f.write(f"NEWER(0x{first:04x}, 0x{last:04x}, 0x{stand:04x})\n")
        f.write("#undef NEWER\n")


if __name__ == "__main__":
    main(sys.argv[1])
