#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests for measure.py (intervals, tables, verdicts, resuming) and loss_bound.py (what is kept)."""
import argparse
import os
import random
import statistics
import tempfile
import unittest
from unittest import mock

import bound
import cache_fill
import loss_bound
import measure_auto
import measure_speed
import measuring as m


def options(**more):
    return argparse.Namespace(**{"form": "long", "parts": ["auto"], "python": None, **more})


class LossBound(unittest.TestCase):
    def test_every_setting_of_dense_weights_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            for program, line in (("plan", "echo '{}'"), ("eval", "echo '{\"loss\": 0.001}'")):
                path = os.path.join(folder, "sluice-" + program)
                with open(path, "w", encoding="ascii") as f:
                    f.write("#!/bin/sh\necho \"$@\" >> %s/calls\n%s\n" % (folder, line))
                os.chmod(path, 0o700)
            os.mkdir(os.path.join(folder, "texts"))
            with open(os.path.join(folder, "texts", "law-a.txt"), "w", encoding="ascii") as f:
                f.write("a")
            out = os.path.join(folder, "out")
            with mock.patch("builtins.print"):
                for case in ("edgemoe:1", "edgemoe:1:native", "edgemoe:1:int8", "edgemoe:1:native"):
                    loss_bound.judge(folder, "m", "p", os.path.join(folder, "texts"), out, case)
            self.assertEqual(sorted(n for n in os.listdir(out) if n.endswith(".json")), [
                "edgemoe-1-auto.json", "edgemoe-1-int8.json", "edgemoe-1-native.json"])
            with open(os.path.join(folder, "calls"), encoding="ascii") as f:
                calls = f.read()
            self.assertEqual([calls.count("--dense " + d) for d in ("auto", "int8", "native")], [1, 1, 1])


class FreedPages(unittest.TestCase):
    def test_what_was_set_is_put_back(self):
        with tempfile.TemporaryDirectory() as folder:
            lists = m.PageLists()
            lists.PATH = os.path.join(folder, "high_fraction")
            with open(lists.PATH, "w", encoding="ascii") as f:
                f.write("8\n")
            with self.assertRaises(KeyboardInterrupt):
                with lists:
                    with open(lists.PATH, encoding="ascii") as f:
                        self.assertEqual(f.read(), lists.MINIMUM)
                    raise KeyboardInterrupt
            with open(lists.PATH, encoding="ascii") as f:
                self.assertEqual(f.read(), "8")

    def test_nothing_is_changed_where_it_cannot_be(self):
        lists = m.PageLists()
        lists.PATH = "/nowhere/high_fraction"
        with lists:
            self.assertIn("not root", lists.state)


class Ratios(unittest.TestCase):
    def test_interval_holds_the_ratio(self):
        ratio, low, high = m.median_ratio([2, 2, 2], [1, 1, 1])
        self.assertEqual((ratio, low, high), (2, 2, 2))

    def test_interval_covers_as_often_as_it_says(self):
        draw, inside = random.Random(5), 0
        for _ in range(120):
            a = [draw.gauss(1.2, 0.1) for _ in range(15)]
            b = [draw.gauss(1.0, 0.1) for _ in range(15)]
            _, low, high = m.median_ratio(a, b, rounds=300)
            inside += low <= 1.2 <= high
        self.assertGreater(inside, 100)

    def test_noise_is_no_win(self):
        draw = random.Random(6)
        a, b = ([draw.gauss(1, 0.2) for _ in range(9)] for _ in range(2))
        _, low, _ = m.median_ratio(a, b)
        self.assertLess(low, 1.1)
        self.assertGreater(statistics.median(a), 0)


def side_by_side(draw, ratio, repetitions, slices):
    """Two variants: slices differ and the machine drifts, equally for both; each slice has independent noise."""
    variants = [], []
    for _ in range(repetitions):
        runs = [], []
        for _ in range(slices):
            common = 4 * draw.uniform(20, 60)
            for run, faster in zip(runs, (ratio, 1)):
                run.append([4, common / faster * draw.uniform(0.8, 1.2)])
        for variant, run in zip(variants, runs):
            variant.append({"slices": run})
    return variants


class Turns(unittest.TestCase):
    def test_all_turns_count(self):
        a = [{"slices": [[4, 40], [4, 20]]}, {"slices": [[5, 40]]}]
        b = [{"slices": [[4, 80], [4, 40]]}, {"slices": [[5, 80]]}]
        for got, wanted in zip(m.interleaved_ratio(a, b), (2, 2, 2)):
            self.assertAlmostEqual(got, wanted)

    def test_covers_as_often_as_it_says_and_is_narrow(self):
        draw, inside, widths = random.Random(7), 0, []
        for _ in range(100):
            _, low, high = m.interleaved_ratio(*side_by_side(draw, 1.1, 3, 8), rounds=300)
            inside += low <= 1.1 <= high
            widths.append(high - low)
        self.assertGreater(inside, 84)
        self.assertLess(statistics.median(widths), 0.2)


def auto_cell(low, high):
    return {"share": 50, "device": "1 GB/s", "loss": 0, "ratio": (1.0, low, high)}


class Verdicts(unittest.TestCase):
    def test_auto(self):
        nine = {str(i): auto_cell(0.96, 1.04) for i in range(9)}
        held = measure_auto.verdicts(options(), {**nine, "9": auto_cell(0.9, 1.0)})
        self.assertEqual([v[1] for v in held], ["pass", "pass"])
        self.assertIn("of 36: the rest is not measured", held[0][2])
        lost = measure_auto.verdicts(options(), {**nine, "9": auto_cell(0.8, 0.96), "a": auto_cell(0.9, 1)})
        self.assertEqual([v[1] for v in lost], ["fail", "fail"])
        self.assertEqual([v[1] for v in measure_auto.verdicts(options(), {})], ["not measured"] * 2)

    def test_hobbit_takes_the_stronger_rival(self):
        def cell(off, whole):
            variant = {"read_bytes": 1 << 20}
            return {"25": {"on": variant, "off": variant, "ratios": {"off": (1.3, off, 1.5),
                                                             "off, whole capacity": (1.2, whole, 1.4)}}}
        self.assertEqual(measure_speed.Hobbit.verdicts(options(), cell(1.2, 1.15))[0][1], "pass")
        self.assertEqual(measure_speed.Hobbit.verdicts(options(), cell(1.2, 1.05))[0][1], "fail")

    def test_swapmoe_may_not_wait(self):
        def states(waits, low, high):
            results = {"50": {"share": 50, "waits": waits, "latency": (1, low, high)}}
            return [v[1] for v in measure_speed.Swapmoe.verdicts(options(), results)]
        self.assertEqual(states(0, 0.97, 1.03), ["pass", "pass"])
        self.assertEqual(states(1, 0.97, 1.06), ["fail", "fail"])

    def test_bound_and_llama(self):
        f = {"reached": 0.79, "reached_low": 0.7, "reached_high": 0.9, "devices": [1e9, 2e9]}
        verdicts = measure_speed.Bound.verdicts(options(), {"50": f})
        self.assertEqual([v[1] for v in verdicts], ["fail", "not measured"])
        self.assertIn("needs --python", measure_speed.Llama.verdicts(options(), {})[0][2])

    def test_every_repetition_has_its_own_bound(self):
        # Repetition 2 reads twice as many bytes as repetition 1: its bound is twice as long.
        read = [1e7, 2e7, 1e5]
        done = [({"tps_median": tps, "compute_ms_per_token": 1, "stall_ms_per_token": 1,
                  "bytes_read_per_token": b, "hit_percent": 80}, 1e9) for tps, b in zip((80, 40, 800), read)]
        repeated = mock.patch.object(bound, "repeat", lambda *_: done)
        busy = mock.patch.object(bound, "busy", lambda _: (1, 1))
        a = argparse.Namespace(repetitions=3, presets="default")
        with repeated, busy:
            f = bound.share_figures(a, None, 50, 1e-3)
        self.assertAlmostEqual(f["reached"], 0.8)
        self.assertAlmostEqual(f["reached_low"], 0.8)
        self.assertAlmostEqual(f["reached_high"], 0.8)  # repetition 3 is bound by compute
        self.assertEqual(f["read_each"], read)


class Files(unittest.TestCase):
    def test_all_or_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cell.json")
            m.write_json(path, {"a": [1, 2]})
            with self.assertRaises(TypeError):
                m.write_json(path, {"a": object()})
            self.assertEqual(m.read_json(path), {"a": [1, 2]})

    def test_failed_program_has_its_last_words(self):
        with self.assertRaises(SystemExit) as e:
            m.run(["sh", "-c", "echo no space >&2; exit 3"])
        self.assertIn("no space", str(e.exception.code))


class FillPlot(unittest.TestCase):
    def rows(self, *rates):
        return [{"s": 6.0 * (i + 1), "tokens_per_s": rate} for i, rate in enumerate(rates)]

    def test_rates_are_at_their_heights(self):
        lines = cache_fill.plot({"server": self.rows(1, 1), "cold cache": self.rows(1, 80),
                                 "local file": self.rows(79, 40)}).split("\n")
        self.assertLessEqual(len(lines), 12)
        self.assertEqual(lines[0], "tokens/s (s: server, c: cold cache, l: local file; *: several)")
        bars = [line.split("|", 1)[1] for line in lines[1:9]]
        self.assertEqual(bars[0].replace(" ", ""), "lc")
        self.assertEqual(bars[3].rstrip()[-1], "l")  # half of the height
        self.assertEqual(bars[7].replace(" ", ""), "*s")
        self.assertIn("12 s", lines[-1])

    def test_nothing_was_measured(self):
        self.assertEqual(cache_fill.plot({"server": []}), "")


if __name__ == "__main__":
    unittest.main()
