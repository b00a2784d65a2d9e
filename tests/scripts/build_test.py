#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/build_errors on what Ninja writes, and what the Makefile's targets build."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("build_errors", str(ROOT / "scripts/build_errors"))
build_errors = importlib.util.module_from_spec(importlib.util.spec_from_loader("build_errors", LOADER))
LOADER.exec_module(build_errors)

LOG = """-- Configuring done
[1/9] Building CXX object src/base/CMakeFiles/b.dir/error.cpp.o
[2/9] Building CXX object src/base/CMakeFiles/b.dir/a.cpp.o
FAILED: src/base/CMakeFiles/b.dir/a.cpp.o
/usr/bin/c++ -Werror=error -o a.cpp.o -c error.cpp
a.cpp:1:2: warning: unused variable 'x'
    1 | int x;
a.cpp: In function 'int f()':
a.cpp:3:9: error: expected ';' before 'g'
    3 |   f() g();
      |      ^
[3/9] Building CXX object src/base/CMakeFiles/b.dir/error_names.cpp.o
[4/9] Linking CXX executable bin/tool
FAILED: bin/tool
: && /usr/bin/c++ -O2 main.cpp.o -o bin/tool && :
/usr/bin/ld: main.cpp.o: in function `main':
main.cpp:4: undefined reference to `g()'
collect2: error: ld returned 1 exit status
ninja: build stopped: subcommand failed.
"""


class BuildErrors(unittest.TestCase):
    def test_only_errors_and_the_first_one_first(self):
        self.assertEqual(build_errors.errors_of(LOG), [
            "FAILED: src/base/CMakeFiles/b.dir/a.cpp.o",
            "a.cpp:3:9: error: expected ';' before 'g'",
            "    3 |   f() g();",
            "      |      ^",
            "FAILED: bin/tool",
            "main.cpp:4: undefined reference to `g()'",
            "collect2: error: ld returned 1 exit status",
        ])

    def test_a_block_without_a_known_error_is_shown_whole(self):
        log = "[1/2] Generating x\nFAILED: x\ncd / && ./make_x\nmake_x: no input\nninja: build stopped: sub.\n"
        self.assertEqual(build_errors.errors_of(log), ["FAILED: x", "make_x: no input"])

    def test_a_build_that_went_well_has_none(self):
        self.assertEqual(build_errors.errors_of("[1/1] Building CXX object error.cpp.o\n"), [])


class Targets(unittest.TestCase):
    """What is built before a script runs: named, and without tests where it is no test itself."""
    WANTED = {
        "demo": {"tugline_command", "train_fashion"},
        "bench": {"tugline_command", "benchmarks"},
        "bench-peers": {"tugline_command", "tugline_peer"},
        "chaos": {"tugline_command", "process_worker"},
        "soak": {"tugline_command", "soak_ranks"},
    }

    def test_each_builds_only_what_it_runs(self):
        for target, wanted in self.WANTED.items():
            with self.subTest(target=target):
                lines = subprocess.run(["make", "-n", "--no-print-directory", "-C", ROOT, target], check=True,
                                       capture_output=True, text=True).stdout.splitlines()
                builds = [line.split() for line in lines if line.startswith("scripts/build ")]
                presets = ["cpu-tsan", "cpu-asan"] if target == "soak" else ["release"]
                self.assertEqual([build[:2] for build in builds], [["scripts/build", preset] for preset in presets])
                for build in builds:
                    self.assertEqual(set(build[2:]), wanted)


if __name__ == "__main__":
    unittest.main()
