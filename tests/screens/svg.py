#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a terminal screen, as `tmux capture-pane -e` writes it, to SVG:

    svg.py COLUMNS ROWS < capture > screen.svg

Supports characters, SGR colours (16, 256, 24 bits), bold, faint, italic, underline, reverse. Words are stretched to
their cells, so that columns align in any font."""
import html
import re
import sys

CELL, LINE, PAD, SIZE = 8.4, 18, 12, 14
GROUND, INK = "#12161c", "#d8dee9"
BASIC = ["#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
         "#6b7486", "#f28b82", "#b5e08a", "#f7d98c", "#8cc8ff", "#dfa0f0", "#7fd8e0", "#ffffff"]
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)([A-Za-z])|\x1b[()].|[\x0e\x0f]")


def colour_256(n):
    if n < 16:
        return BASIC[n]
    if n < 232:
        steps = (0, 95, 135, 175, 215, 255)
        n -= 16
        return "#%02x%02x%02x" % (steps[n // 36], steps[n // 6 % 6], steps[n % 6])
    grey = 8 + 10 * (n - 232)
    return "#%02x%02x%02x" % (grey, grey, grey)


class Look:
    """Attributes that SGR sets for the characters that follow."""

    MARKS = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "reverse"}
    ENDS = {22: ("bold", "faint"), 23: ("italic",), 24: ("underline",), 27: ("reverse",)}

    def __init__(self):
        self.reset()

    def reset(self):
        self.ink = self.ground = None
        self.marks = frozenset()

    def extended(self, codes):
        """The colour after code 38 or 48; consumes its codes."""
        kind = codes.pop(0) if codes else 0
        if kind == 5 and codes:
            return colour_256(min(codes.pop(0), 255))
        if kind == 2 and len(codes) >= 3:
            return "#%02x%02x%02x" % tuple(min(codes.pop(0), 255) for _ in range(3))
        return None

    def obey(self, text):
        codes = [int(c or 0) for c in re.split("[;:]", text)]
        while codes:
            c = codes.pop(0)
            if c == 0:
                self.reset()
            elif c in self.MARKS:
                self.marks |= {self.MARKS[c]}
            elif c in self.ENDS:
                self.marks -= set(self.ENDS[c])
            elif c in (38, 48):
                found = self.extended(codes)
                if c == 38:
                    self.ink = found
                else:
                    self.ground = found
            elif c in (39, 49):
                if c == 39:
                    self.ink = None
                else:
                    self.ground = None
            elif 30 <= c <= 37 or 90 <= c <= 97:
                self.ink = BASIC[c - 30 if c < 90 else c - 82]
            elif 40 <= c <= 47 or 100 <= c <= 107:
                self.ground = BASIC[c - 40 if c < 100 else c - 92]

    def now(self):
        ink, ground = self.ink or INK, self.ground
        if "reverse" in self.marks:
            ink, ground = ground or GROUND, ink
        return ink, ground, self.marks - {"reverse"}


def runs(line, look):
    """(column, text, look) of one line; attributes carry over to the next line."""
    found, at, column = [], 0, 0
    for match in list(SEQUENCE.finditer(line)) + [None]:
        text = line[at:match.start() if match else len(line)]
        if text:
            found.append((column, text, look.now()))
            column += len(text)
        if match:
            at = match.end()
            if match.group(2) == "m":
                look.obey(match.group(1))
    return found


def style(ink, marks):
    attributes = f' fill="{ink}"' if ink != INK else ""
    attributes += ' font-weight="700"' if "bold" in marks else ""
    attributes += ' opacity=".6"' if "faint" in marks else ""
    attributes += ' font-style="italic"' if "italic" in marks else ""
    return attributes + (' text-decoration="underline"' if "underline" in marks else "")


def draw_run(column, text, look, row):
    ink, ground, marks = look
    x, y = PAD + column * CELL, PAD + row * LINE
    if ground:
        yield f'<rect x="{x:.1f}" y="{y}" width="{len(text) * CELL:.1f}" height="{LINE}" fill="{ground}"/>'
    # Many renderers merge consecutive spaces, so each word is placed separately.
    for words in re.finditer(r"\S+(?: \S+)*", text):
        yield (f'<text x="{x + words.start() * CELL:.1f}" y="{y + 13.5}" '
               f'textLength="{len(words.group()) * CELL:.1f}"{style(ink, marks)}>'
               f"{html.escape(words.group(), quote=False)}</text>")


def render(capture, columns, rows):
    width, height = columns * CELL + 2 * PAD, rows * LINE + 2 * PAD
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
           f'viewBox="0 0 {width:.0f} {height}" font-family="{FONT}" font-size="{SIZE}" fill="{INK}">',
           f'<rect width="100%" height="100%" rx="6" fill="{GROUND}"/>']
    look = Look()
    for row, line in enumerate(capture.split("\n")[:rows]):
        for column, text, shown in runs(line, look):
            out.extend(draw_run(column, text, shown, row))
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(render(sys.stdin.read(), int(sys.argv[1]), int(sys.argv[2])))
