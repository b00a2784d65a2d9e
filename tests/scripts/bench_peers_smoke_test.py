#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench_peers with the rivals that are installed: every program gives right results and figures, however slow.

bench_peers_smoke_test.py BUILD. Exits with 77, which is a skip, where no rival is installed.
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from peerslib import cases, rivals  # noqa: E402

BUILD = pathlib.Path()
SKIPPED = 77
LIMIT_S = 120


def command(path, *options):
    words = [sys.executable, "-B", ROOT / "scripts/bench_peers", "--quick", "--no-install", "--build", BUILD, "--json",
             path, "--limit", LIMIT_S, *options]
    return [str(word) for word in words]


class Smoke(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "peers.json")

    def test_every_collective_of_every_rival(self):
        done = subprocess.run(command(self.path, "--rounds", "1", "--ranks", "2", "--sizes", "8,64K"),
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        document = json.loads(self.path.read_text(encoding="utf-8"))
        self.assertTrue(document["complete"])
        present = {rival.name for rival in rivals.RIVALS.values()} - set(document["skipped"])
        self.assertEqual({row["peer"] for row in document["rows"]}, present)
        self.assertEqual({row["collective"] for row in document["rows"]}, set(cases.COLLECTIVES))
        forms = 2 + 6 * 2 * 4  # calls of barrier; of the others at two sizes, calls by buffers
        self.assertEqual(len(document["rows"]), forms * len(present))
        for row in document["rows"]:
            self.assertGreater(min(row["tugline_us"], row["peer_us"]), 0)

    def test_what_an_interrupted_run_has_is_written(self):
        script = subprocess.Popen(command(self.path, "--rounds", "1000", "--ranks", "2", "--collectives", "barrier"),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(script.kill)
        for line in script.stderr:
            if "round 1 of 1000 done" in line:
                break
        script.send_signal(signal.SIGINT)
        output, _ = script.communicate(timeout=LIMIT_S)
        self.assertEqual(script.returncode, 128 + signal.SIGINT)
        self.assertIn("INCOMPLETE", output)
        document = json.loads(self.path.read_text(encoding="utf-8"))
        self.assertFalse(document["complete"])
        self.assertTrue(document["rows"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    try:
        missing = {rival.name: rivals.missing_packages(rival) for rival in rivals.RIVALS.values()}
    except rivals.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    if all(missing.values()):
        needs = (f"{name} needs {' '.join(packages)}" for name, packages in missing.items())
        print("skipped: no rival is installed:", "; ".join(needs))
        sys.exit(SKIPPED)
    unittest.main()
