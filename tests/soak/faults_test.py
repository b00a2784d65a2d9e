#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A soak finds what is put in on purpose: a wrong element, and each thing that is kept once in every round.

faults_test.py BUILD-DIRECTORY
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)) / "bin"
# Small rounds, and for what is an amount rather than a count enough of them.
FAULTS = {
    "element": (8, "the result is wrong"),
    "descriptor": (8, "something is left of the round: descriptors"),
    "thread": (8, "something is left of the round: threads"),
    "buffer": (8, "something is left of the round: shared mappings"),
    "mapping": (60, "more and more: mappings from"),
    "heap": (600, "more and more: heap bytes from"),
}


class Faults(unittest.TestCase):
    def soak(self, kind, rounds, fault):
        words = [BIN / "soak_ranks", "--rounds", rounds, "--steps", 2, "--lanes", 1, "--settle", 1, "--fault", fault]
        words = words + ["--threads", 2] if kind == "threads" else [BIN / "tugline", "run", "-n", 2, "--"] + words
        with tempfile.TemporaryDirectory() as runtime:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("TUGLINE_")}
            return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120,
                                  env=dict(environment, TUGLINE_RUNTIME_DIR=runtime + "/run"))

    def test_each_is_found(self):
        for kind in ("threads", "processes"):
            for fault, (rounds, wanted) in FAULTS.items():
                with self.subTest(kind=kind, fault=fault):
                    done = self.soak(kind, rounds, fault)
                    said = done.stdout + done.stderr
                    self.assertEqual(done.returncode, 1, said)
                    self.assertIn(wanted, said)
                    self.assertIn("soak: again: ", said)

    def test_without_one_nothing_is_found(self):
        for kind in ("threads", "processes"):
            with self.subTest(kind=kind):
                done = self.soak(kind, 60, "none")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("soak: PASS", done.stdout)

    def test_wrong_words_are_usage(self):
        for words in (["--rounds", "x"], ["--fault", "nothing"], ["--seconds"], ["--what", "1"]):
            done = subprocess.run([BIN / "soak_ranks", *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
