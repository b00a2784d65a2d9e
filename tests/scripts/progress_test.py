#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nobody waits long without a line: scripts/progress for builds, StepLines for the demo's training."""
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
LOADER = importlib.machinery.SourceFileLoader("demo", str(SCRIPTS / "demo"))
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", LOADER))
LOADER.exec_module(demo)


class Progress(unittest.TestCase):
    def start(self, log, script):
        return subprocess.Popen([SCRIPTS / "progress", "build: x", log, "sh", "-c", script], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env=dict(os.environ, PROGRESS_S="0.05"))

    def test_says_how_far_it_is_while_the_command_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.write_text("configured\n", encoding="utf-8")
            # It ends only after a line about it was read.
            with self.start(log, "echo '[3/9] Building'; read end; echo last; exit 7") as process:
                lines = iter(process.stdout.readline, "")
                line = next(line for line in lines if "[" in line)
                self.assertRegex(line, r"^build: x \[3/9\] after \d+ s\n$")
                process.stdin.write("end\n")
                process.stdin.flush()
                process.stdout.read()
                self.assertEqual(process.wait(), 7)
            self.assertEqual(log.read_text(encoding="utf-8"), "configured\n[3/9] Building\nlast\n")

    def test_says_that_something_runs_which_counts_no_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.start(pathlib.Path(folder) / "log", "read end") as process:
                self.assertRegex(process.stdout.readline(), r"^build: x after \d+ s\n$")
                process.stdin.write("end\n")
                process.stdin.flush()
                process.stdout.read()
                self.assertEqual(process.wait(), 0)


class StepLines(unittest.TestCase):
    def test_a_file_gets_one_every_few_seconds(self):
        now = 0
        stream = io.StringIO()
        steps = demo.StepLines(stream, lambda: now)
        for now in range(0, 2 * demo.PROGRESS_S + 1):
            steps.show(f"step {now}/99\n")
            steps.show("loading\n")
        steps.clear()
        self.assertEqual(stream.getvalue(), f"demo: step {demo.PROGRESS_S}/99\ndemo: step {2 * demo.PROGRESS_S}/99\n")

    def test_a_terminal_sees_all_in_one_line(self):
        stream = io.StringIO()
        stream.isatty = lambda: True
        steps = demo.StepLines(stream, lambda: 0)
        steps.show("step 1/99\n")
        steps.show("step 2/99\n")
        self.assertEqual([part.strip() for part in stream.getvalue().split("\r")], ["", "step 1/99", "step 2/99"])


if __name__ == "__main__":
    unittest.main()
