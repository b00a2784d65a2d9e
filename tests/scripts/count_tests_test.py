#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/count_tests on the texts that CTest writes for every kind of end."""
import importlib.machinery
import importlib.util
import pathlib
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "count_tests"
LOADER = importlib.machinery.SourceFileLoader("count_tests", str(SCRIPT))
count_tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("count_tests", LOADER))
LOADER.exec_module(count_tests)

CASES = """Command: "x" "[       OK ] Not.output (0 ms)"
Output:
----------------------------------------------------------
[ RUN      ] A.b
[       OK ] A.b (0 ms)
"""


def entry(name, output):
    return f"1/1 Testing: {name}\n1/1 Test: {name}\n{output}<end of output>\n"


class CountTest(unittest.TestCase):
    def expect(self, log, output, passed, failed, skipped):
        total = count_tests.count(log, output)
        self.assertEqual((total["passed"], total["failed"], total["skipped"]), (passed, failed, skipped))

    def test_cases_of_a_program(self):
        log = entry("one", CASES + "[       OK ] A.c/3, where GetParam() = 3 (12 ms)\n[  SKIPPED ] A.d (1 ms)\n"
                                   "[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.d\n")
        self.expect(log, "1/1 Test  #1: one ....   Passed    0.02 sec\n", 2, 0, 1)

    def test_failed_cases(self):
        log = entry("one", CASES + "[  FAILED  ] A.c (0 ms)\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.c\n")
        self.expect(log, "1/1 Test #1: one ....***Failed    0.02 sec\n", 1, 1, 0)

    def test_crash_and_time_out_are_failures(self):
        log = entry("one", CASES)
        for end in ("***Exception: SegFault", "***Timeout", "***Failed", "Subprocess aborted***Exception:"):
            self.expect(log, f"1/1 Test #1: one ....{end}  0.02 sec\n", 1, 1, 0)

    def test_program_that_cannot_run(self):
        self.expect("", "1/1 Test #1: one ....***Not Run   0.00 sec\n", 0, 1, 0)

    def test_other_programs_count_as_one(self):
        log = entry("plain", "Output:\nhello\n")
        self.expect(log, "1/1 Test #1: plain ....   Passed    0.02 sec\n", 1, 0, 0)
        self.expect(log, "1/1 Test #1: plain ....***Failed    0.02 sec\n", 0, 1, 0)
        self.expect(log, "1/1 Test #1: plain ....***Skipped   0.02 sec\n", 0, 0, 1)

    def test_two_entries_do_not_mix(self):
        log = entry("one", CASES) + entry("two", CASES + CASES)
        self.expect(log, "1/2 Test #2: two ....   Passed    0.02 sec\n2/2 Test #1: one ....   Passed    1.00 sec\n",
                    3, 0, 0)


if __name__ == "__main__":
    unittest.main()
