#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/tidy skips what has passed, and nothing else."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(shutil.which("clang-tidy") and shutil.which("clang++"), "clang-tidy or clang++ is missing")
class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(ROOT / ".clang-tidy", self.folder)
        (self.folder / "src").mkdir()
        self.source, self.header = self.folder / "src/a.cpp", self.folder / "src/a.h"
        self.source.write_text('#include "a.h"\nint good_name() { return 0; }\n', encoding="utf-8")
        self.header.write_text("#pragma once\n", encoding="utf-8")
        self.compile_with("")

    def compile_with(self, flag):
        entry = {"directory": str(self.folder), "file": str(self.source), "command": f"c++ {flag} -c {self.source} -o a.o"}
        (self.folder / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")

    def expect(self, code, skipped):
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts/tidy", "--build", self.folder, "--cache",
                               self.folder / "cache", self.source], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(f"1 files, {skipped} as before", done.stdout)
        return done.stdout

    def test_what_has_passed_is_skipped_until_something_changes(self):
        self.expect(0, skipped=0)
        self.expect(0, skipped=1)
        self.header.write_text("#pragma once\n// a comment\n", encoding="utf-8")
        self.expect(0, skipped=0)
        self.compile_with("-DNDEBUG")
        self.expect(0, skipped=0)
        self.expect(0, skipped=1)

    def test_findings_are_found_every_time(self):
        self.expect(0, skipped=0)
        self.header.write_text("#pragma once\nclass bad_name {};\n", encoding="utf-8")
        for _ in range(2):
            self.assertIn("bad_name", self.expect(1, skipped=0))


if __name__ == "__main__":
    unittest.main()
