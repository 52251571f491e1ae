#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the conversion of escape sequences by svg.py."""
import re
import unittest
import xml.etree.ElementTree as tree

import svg


def shapes(capture, columns=20, rows=2):
    return [(e.tag.split("}")[1], e.attrib, e.text)
            for e in tree.fromstring(svg.render(capture, columns, rows))][1:]


class Screens(unittest.TestCase):
    def test_plain_text_stands_in_its_cells(self):
        ((tag, at, text),) = shapes("  ab & <c>")
        self.assertEqual((tag, text), ("text", "ab & <c>"))
        self.assertEqual(float(at["x"]), round(svg.PAD + 2 * svg.CELL, 1))
        self.assertEqual(float(at["textLength"]), round(8 * svg.CELL, 1))

    def test_columns_stand_by_themselves(self):
        looks = shapes("a b   c")
        self.assertEqual([t for _, _, t in looks], ["a b", "c"])
        self.assertEqual(float(looks[1][1]["x"]), round(svg.PAD + 6 * svg.CELL, 1))

    def test_colours(self):
        for code, ink in (("31", svg.BASIC[1]), ("92", svg.BASIC[10]), ("38;5;196", "#ff0000"),
                          ("38;5;7", svg.BASIC[7]), ("38;5;244", "#808080"), ("38;2;1;2;255", "#0102ff"),
                          ("38:5:46", "#00ff00")):
            ((_, at, _),) = shapes(f"\x1b[{code}mx")
            self.assertEqual(at.get("fill", svg.INK), ink, code)

    def test_ground_and_reverse(self):
        (rect, text) = shapes("\x1b[44mx\x1b[49m")
        self.assertEqual((rect[0], rect[1]["fill"]), ("rect", svg.BASIC[4]))
        (rect, text) = shapes("\x1b[31;7mx")
        self.assertEqual((rect[1]["fill"], text[1]["fill"]), (svg.BASIC[1], svg.GROUND))
        self.assertEqual(shapes("\x1b[41;7mx\x1b[0;27m")[1][1]["fill"], svg.BASIC[1])

    def test_marks_end(self):
        looks = shapes("\x1b[1mb\x1b[22mn\x1b[4mu\x1b[0mn")
        self.assertEqual(["font-weight" in at for _, at, _ in looks], [True, False, False, False])
        self.assertEqual(["text-decoration" in at for _, at, _ in looks], [False, False, True, False])

    def test_a_look_goes_on_in_the_next_line(self):
        looks = shapes("\x1b[32ma\nb\x1b[0m")
        self.assertEqual([at["fill"] for _, at, _ in looks], [svg.BASIC[2]] * 2)
        self.assertEqual(float(looks[1][1]["y"]) - float(looks[0][1]["y"]), svg.LINE)

    def test_other_sequences_are_no_text(self):
        self.assertEqual([t for _, _, t in shapes("\x1b(Ba\x1b[Kb\x0f")], ["a", "b"])

    def test_no_more_rows_than_there_are(self):
        self.assertEqual(len(shapes("a\nb\nc", rows=2)), 2)

    def test_broken_colours_are_no_error(self):
        for code in ("38;5", "48;2;1", "38", "38;5;999", ";;"):
            self.assertEqual([t for tag, _, t in shapes(f"\x1b[{code}mx") if tag == "text"], ["x"], code)

    def test_cube(self):
        self.assertEqual([svg.colour_256(n) for n in (16, 21, 231, 232, 255)],
                         ["#000000", "#0000ff", "#ffffff", "#080808", "#eeeeee"])
        self.assertTrue(all(re.fullmatch("#[0-9a-f]{6}", svg.colour_256(n)) for n in range(256)))


if __name__ == "__main__":
    unittest.main()
