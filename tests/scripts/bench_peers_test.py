#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench_peers: goals, verdicts, the table, and that a rank which fails or hangs gives no figure."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from peerslib import cases, contender, results, rivals  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("bench_peers", str(ROOT / "scripts/bench_peers"))
bench_peers = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_peers", LOADER))
LOADER.exec_module(bench_peers)

Case, KIB, MIB = cases.Case, cases.KIB, cases.MIB


def goal(collective, size, against, buffers="private", ranks=2, cores=2, call="blocking"):
    return cases.goal_of(Case(collective, ranks, size), cores, buffers, call, against)


class Goals(unittest.TestCase):
    def test_all_reduce_of_two_ranks(self):
        wanted = {8: (0.8, 0.8, 0.005), KIB: (0.7, 0.7, 0.005), 16 * KIB: (None, None, None),
                  64 * KIB: (0.35, 0.15, 0.03), MIB: (0.6, 0.2, 0.15), 16 * MIB: (None, None, None),
                  64 * MIB: (0.5, 0.2, 0.35)}
        for size, (private, library, gloo) in wanted.items():
            with self.subTest(size=size):
                self.assertEqual(goal("all_reduce", size, "mpi"), private)
                self.assertEqual(goal("all_reduce", size, "mpi", "library"), library)
                self.assertEqual(goal("all_reduce", size, "gloo"), gloo)
                self.assertEqual(goal("all_reduce", size, "gloo", "library"), gloo)

    def test_barrier_and_the_crowd(self):
        self.assertEqual(goal("barrier", 0, "mpi", "none"), 0.8)
        self.assertEqual(goal("barrier", 0, "gloo", "none"), 0.005)
        self.assertEqual(goal("all_reduce", 8, "mpi", ranks=8), 0.5)
        self.assertEqual(goal("all_reduce", 64 * KIB, "mpi", ranks=8), 0.6)
        self.assertEqual(goal("all_reduce", 64 * KIB, "gloo", ranks=8), 0.01)
        self.assertIsNone(goal("barrier", 0, "mpi", "none", ranks=8))

    def test_the_others_have_goals_against_mpi(self):
        for collective in ("all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"):
            with self.subTest(collective=collective):
                self.assertEqual([goal(collective, size, "mpi") for size in (8, KIB, 16 * KIB, 64 * MIB)],
                                 [1.0, 1.0, 0.8, 0.8])
                self.assertIsNone(goal(collective, 8, "gloo"))

    def test_none_for_streams_and_other_numbers_of_cores(self):
        self.assertIsNone(goal("all_reduce", 8, "mpi", call="stream"))
        self.assertIsNone(goal("all_reduce", 8, "mpi", cores=1))


class Groups(unittest.TestCase):
    def test_what_is_measured(self):
        groups = cases.groups(cases.COLLECTIVES, cases.SIZES, [2, 8])
        self.assertEqual([cases.name_of(group) for group in groups[-2:]], ["barrier, 8 ranks", "all_reduce, 8 ranks"])
        self.assertEqual([case.bytes for case in groups[0]], [0])
        self.assertEqual([case.bytes for case in groups[1]], [8, KIB, 16 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB])
        self.assertEqual([case.bytes for case in groups[-1]], [8, 64 * KIB])

    def test_in_one_go_it_is_the_same(self):
        apart = cases.groups(cases.COLLECTIVES, cases.SIZES, [2, 8])
        whole = cases.groups(cases.COLLECTIVES, cases.SIZES, [2, 8], whole=True)
        self.assertEqual([group[0].ranks for group in whole], [2, 8])
        self.assertEqual(sum(whole, []), sum(apart, []))

    def test_sizes_that_nobody_has_leave_nothing(self):
        self.assertEqual(cases.groups(["all_reduce"], (MIB,), [8], whole=True), [])

    def test_sizes_as_they_are_written(self):
        self.assertEqual([cases.size_of(text) for text in ("8", "64K", "1m")], [8, 64 * KIB, MIB])
        for text in ("", "K", "0", "-8", "8x"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                cases.size_of(text)
        self.assertEqual([cases.human(size) for size in (8, 64 * KIB, MIB, KIB + 8)],
                         ["8 B", "64 KiB", "1 MiB", "1032 B"])


def ran(library, figures, buffers="private", call="blocking", version="1.2"):
    """A contender with its figures of one round."""
    return contender.Contender(library, None, buffers, call, version=version), figures


CASE = Case("all_reduce", 2, 64 * KIB)


def some_results():
    found = results.Results(cores=2)
    for us in (10, 30, 14):  # median 14
        found.add(*ran("tugline", {CASE: us}))
        found.add(*ran("tugline", {CASE: us / 4}, "library"))
        found.add(*ran("tugline", {CASE: us * 9}, call="stream"))
        found.add(*ran("Open MPI", {CASE: us * 4}))
        found.add(*ran("MPICH", {CASE: us * 2}, version="4.0.2"))
        found.add(*ran("Gloo", {CASE: us * 100}))
    return found


class Verdicts(unittest.TestCase):
    def test_rows_compare_medians_with_every_rival(self):
        rows = some_results().rows()
        self.assertEqual(len(rows), 3 * 3)
        row = next(row for row in rows if (row["peer"], row["buffers"]) == ("MPICH", "library"))
        self.assertEqual({key: row[key] for key in ("collective", "ranks", "cores", "bytes", "buffers", "call", "peer",
                                                    "peer_version", "tugline_us", "peer_us", "ratio")},
                         {"collective": "all_reduce", "ranks": 2, "cores": 2, "bytes": 64 * KIB, "buffers": "library",
                          "call": "blocking", "peer": "MPICH", "peer_version": "4.0.2", "tugline_us": 3.5,
                          "peer_us": 28, "ratio": 0.125})

    def test_goals_are_judged_against_the_faster_mpi_and_gloo(self):
        found = {(v["buffers"], v["against"]): v for v in some_results().verdicts()}
        self.assertEqual(set(found), {("private", "faster MPI"), ("private", "Gloo"), ("library", "faster MPI"),
                                      ("library", "Gloo")})
        private = found["private", "faster MPI"]
        self.assertEqual((private["peer"], private["ratio"], private["met"]), ("MPICH", 0.5, False))  # 0.5 > 0.35
        self.assertTrue(found["library", "faster MPI"]["met"])  # 0.125 <= 0.15
        self.assertTrue(found["private", "Gloo"]["met"])  # 0.01 <= 0.03

    def test_a_ratio_equal_to_the_goal_meets_it(self):
        found = results.Results(cores=2)
        found.add(*ran("tugline", {Case("barrier", 2, 0): 0.8}))
        found.add(*ran("Open MPI", {Case("barrier", 2, 0): 1.0}))
        self.assertEqual([(v["buffers"], v["met"]) for v in found.verdicts()], [("none", True)])

    def test_without_a_rival_nothing_is_judged(self):
        found = results.Results(cores=2)
        found.add(*ran("tugline", {CASE: 1}))
        self.assertEqual((found.rows(), found.verdicts()), ([], []))
        self.assertEqual(len(results.table(found)), 2)

    def test_the_table_marks_what_is_missed(self):
        lines = results.table(some_results())
        self.assertEqual(len(lines), 4)
        self.assertRegex(lines[1], r"private +blocking +14\.00 +56\.00 +28\.00 +1400\.0 +0\.50 <= 0\.35 MISS "
                                   r"+0\.0100 <= 0\.03 ok$")
        self.assertRegex(lines[2], r"private +stream .* 4\.50 +0\.0900$")
        self.assertRegex(lines[3], r"library +blocking .* 0\.12 <= 0\.15 ok")
        self.assertIn("3 met, 1 missed", results.summary(some_results()))


def started(script):
    return contender.Contender("fake", lambda ranks, words: ["sh", "-c", script, "fake", *words])


class Measuring(unittest.TestCase):
    GOOD = "echo peers: version 7.1; echo noise; echo peers: all_reduce 65536 1.5"

    def measure(self, script, limit=60):
        return contender.measure(started(script), [CASE], [0, 1], 20, limit)

    def expect_failure(self, script, text, limit=60):
        with self.assertRaises(contender.Failed) as caught:
            self.measure(script, limit)
        self.assertIn(text, str(caught.exception))
        self.assertIn("\n  where: fake (private buffers, blocking call), all_reduce, 2 ranks on cores 0,1",
                      str(caught.exception))
        self.assertIn("\n  do: ", str(caught.exception))

    def test_figures_are_read(self):
        self.assertEqual(self.measure(self.GOOD), {CASE: 1.5})

    def test_the_program_is_told_what_to_do(self):
        self.assertEqual(self.measure('[ "$*" = "20 60 0,1 all_reduce:65536" ] && ' + self.GOOD.replace(";", " &&")),
                         {CASE: 1.5})

    def test_a_failure_after_a_figure_gives_none(self):
        self.expect_failure(self.GOOD + "; echo element 3 is wrong >&2; exit 3", "it ended with 3")
        self.expect_failure(self.GOOD + "; echo element 3 is wrong >&2; exit 3", "element 3 is wrong")
        self.expect_failure(self.GOOD + "; kill -9 $$", "it ended with -9")

    def test_output_that_is_not_what_was_asked_for_gives_none(self):
        for script, text in (("true", "its version is missing"), ("echo peers: version 1", "no figure for all_reduce"),
                             (self.GOOD.replace("65536", "8"), "nobody asked for"),
                             (self.GOOD.replace("1.5", "0"), "no figure for"),
                             (self.GOOD.replace("1.5", "-1"), "no figure for"),
                             (self.GOOD.replace("1.5", "nan"), "no figure for"),
                             (self.GOOD.replace("1.5", "x"), "could not convert")):
            with self.subTest(script=script):
                self.expect_failure(script, text)

    def test_a_hang_ends_at_the_limit(self):
        with unittest.mock.patch.object(contender, "GRACE_S", 0):
            self.expect_failure("exec sleep 1000", "it did not end within 1 s", limit=1)

    def test_settings_of_the_user_do_not_reach_the_programs(self):
        settings = {"OMPI_MCA_btl": "tcp", "TUGLINE_CHECK": "off", "TUGLINE_RUNTIME_DIR": "/r"}
        with unittest.mock.patch.dict(os.environ, settings):
            self.assertEqual(self.measure('[ -z "$OMPI_MCA_btl$TUGLINE_CHECK" ] && [ "$TUGLINE_RUNTIME_DIR" = /r ] && '
                                          + self.GOOD.replace(";", " &&")), {CASE: 1.5})

    def test_each_round_begins_with_another_one(self):
        order = []

        def note(each, group, *_):
            order.append((cases.name_of(group), each.library))
            return {}
        options = argparse.Namespace(rounds=3, groups=[[CASE]], cores=[0, 1], budget_ms=1, limit=1)
        with unittest.mock.patch.object(contender, "measure", note), contextlib.redirect_stderr(io.StringIO()):
            bench_peers.measure(options, [ran(name, {})[0] for name in "abc"], results.Results(2))
        self.assertEqual("".join(name for _, name in order), "abcbcacab")


class Rivals(unittest.TestCase):
    def test_alternatives_that_an_installation_moved_are_put_back(self):
        before, after = {"mpirun": "/a", "mpi": "/m"}, {"mpirun": "/b", "mpi": "/m", "mpi-new": "/n"}
        said = []
        done = subprocess.CompletedProcess([], 0, "", "")
        with unittest.mock.patch.object(rivals, "alternatives", return_value=after), \
                unittest.mock.patch.object(rivals.subprocess, "run", return_value=done) as ran_command:
            rivals.Installer(said.append).restore(before)
        self.assertEqual([call.args[0][-4:] for call in ran_command.call_args_list],
                         [["update-alternatives", "--set", "mpirun", "/a"]])
        self.assertEqual(said, ["the alternative mpirun leads to /a again"])

    def test_a_rival_that_cannot_be_installed_is_skipped_and_the_rest_goes_on(self):
        def take(key, *_):
            if key == "mpich":
                raise rivals.Unavailable("apt-get install failed: no such package")
            return ran(key, {})[0]
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()), \
                unittest.mock.patch.object(rivals, "contender", take):
            options = argparse.Namespace(no_install=True, build=pathlib.Path(folder, "release"),
                                         rivals=list(rivals.RIVALS), cores=[0, 1])
            skipped = {}
            found = bench_peers.invite(options, folder, skipped)
            self.assertEqual([each.library for each in found], ["openmpi", "gloo"])
            self.assertEqual(skipped, {"MPICH": "apt-get install failed: no such package"})
            options.rivals = ["mpich"]
            with self.assertRaises(contender.Failed):
                bench_peers.invite(options, folder, {})

    def test_a_program_that_does_not_compile_makes_its_rival_unavailable(self):
        broken = rivals.Rival("Broken", (), ("g++", "-lthere-is-no-such-library"), "gloo_peer.cpp", "")
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sources, \
                unittest.mock.patch.dict(rivals.RIVALS, {"broken": broken}), \
                unittest.mock.patch.object(rivals, "SOURCES", pathlib.Path(sources)):
            for name in ("gloo_peer.cpp", "timing_loop.h"):
                pathlib.Path(sources, name).write_text("int main() {}\n", encoding="utf-8")
            with self.assertRaisesRegex(rivals.Unavailable, "compiling it failed"):
                rivals.build("broken", pathlib.Path(folder))
            self.assertEqual(os.listdir(folder), [])


class Publishing(unittest.TestCase):
    def test_an_incomplete_run_says_so_in_the_table_and_in_the_file(self):
        for complete in (True, False):
            with self.subTest(complete=complete), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "peers.json")
                options = argparse.Namespace(quick=False, cores=[0, 1], rounds=7, json=path)
                document = {"complete": complete, "reason": "signal 2", "commit": "0123456789abcdef+changes",
                            "skipped": {}, "machine": {"processor": "p"}, "load_before": 1.0}
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    bench_peers.publish(options, some_results(), document)
                self.assertIn("commit 0123456789ab+changes;", output.getvalue())
                self.assertEqual("INCOMPLETE, signal 2" in output.getvalue(), not complete)
                written = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual((written["complete"], len(written["rows"]), len(written["goals"])), (complete, 9, 4))

    def test_a_run_without_any_figure_leaves_no_older_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "peers.json")
            path.write_text('{"complete": true}', encoding="utf-8")
            for name in ("tugline", "tugline_peer"):
                pathlib.Path(folder, "release/bin").mkdir(parents=True, exist_ok=True)
                pathlib.Path(folder, "release/bin", name).touch()
            arguments = ["bench_peers", "--no-install", "--build", f"{folder}/release", "--json", str(path)]
            reason = rivals.Unavailable("not installed")
            with unittest.mock.patch.object(sys, "argv", arguments), \
                    unittest.mock.patch.object(rivals, "contender", side_effect=reason), \
                    contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as error:
                self.assertEqual(bench_peers.main(), 1)
            self.assertIn("INCOMPLETE, there is no rival", output.getvalue())
            self.assertRegex(error.getvalue(), "(?s)there is no rival.*\n  where: .*\n  do: ")
            written = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual((written["complete"], written["rows"]), (False, []))
            self.assertEqual(set(written["skipped"]), {"Open MPI", "MPICH", "Gloo"})


if __name__ == "__main__":
    unittest.main()
