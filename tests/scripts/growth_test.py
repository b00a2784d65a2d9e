#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/growth: what it measures is there and makes sense, and what goes wrong is said.

growth_test.py BUILD
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path()


class Growth(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "growth.json")

    def run_growth(self, *options, **environment):
        words = [sys.executable, "-B", ROOT / "scripts/growth", "--build", BUILD, "--json", self.path, *options]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                              env=dict(os.environ, **environment))

    def test_every_number_of_ranks_has_its_figures(self):
        done = self.run_growth("--ranks", "1,2,6", "--rounds", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 4, done.stdout)
        document = json.loads(self.path.read_text(encoding="utf-8"))
        self.assertTrue(document["complete"])
        one, two, six = document["rows"]
        self.assertEqual([row["ranks"] for row in document["rows"]], [1, 2, 6])
        for row in document["rows"]:
            for key, value in row.items():
                self.assertGreater(value, 0, key)
            self.assertGreaterEqual(row["start_ms"], row["join_ms"])
            self.assertGreaterEqual(row["rss_kb"], row["pss_kb"])
        # What a rank holds open does not depend on how many there are; the broker has a few of each.
        self.assertEqual(two["descriptors"], six["descriptors"])
        self.assertLessEqual(six["broker_descriptors"] - two["broker_descriptors"], 3 * (6 - 2))
        self.assertGreater(six["broker_descriptors"], one["broker_descriptors"])

    def test_ranks_that_fail_are_a_failure(self):
        done = self.run_growth("--ranks", "2", "--rounds", "1", TUGLINE_SPIN_US="soon")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("0 of 2 ranks", done.stderr)
        self.assertFalse(json.loads(self.path.read_text(encoding="utf-8"))["complete"])

    def test_wrong_usage(self):
        for options in (("--ranks", "two"), ("--ranks", "0"), ("--rounds", "0"), ("--build", "/nowhere")):
            self.assertEqual(self.run_growth(*options).returncode, 2, options)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
