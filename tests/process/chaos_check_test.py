#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checker of scripts/chaos: passes a right set of histories and refuses each that is damaged in one place."""
import copy
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from chaoslib import histories  # noqa: E402
from chaoslib.machine import Broken  # noqa: E402


def line(agreement, step, epoch, members, verdict, lost="", noticed="", times=(0, 0, 0)):
    return (f"agreement={agreement} step={step} operations=1 epoch={epoch} members={members} verdict={verdict} "
            f"lost={lost} noticed={noticed} noticed_ns={times[0]} agreed_ns={times[1]} first_done_ns={times[2]} "
            f"hash=00ff\n")


SURVIVOR = (line(1, 0, 0, "0,1,2", "committed", times=(0, 1_000_000, 500_000)) +
            line(2, 1, 1, "0,2", "aborted", "1", "1", (3_000_000, 4_000_000, 0)) +
            line(3, 1, 1, "0,2", "committed", times=(0, 6_000_000, 5_000_000)))
VICTIM = line(1, 0, 0, "0,1,2", "committed", times=(0, 1_000_000, 500_000)) + "agreement=2 st"


class Check(unittest.TestCase):
    def setUp(self):
        self.histories = {0: histories.lines_of(SURVIVOR), 1: histories.lines_of(VICTIM),
                          2: histories.lines_of(SURVIVOR)}

    def refused(self, change, text, killed=(1,)):
        damaged = copy.deepcopy(self.histories)
        change(damaged)
        with self.assertRaisesRegex(Broken, text):
            histories.check(damaged, killed)

    def test_right_ones_pass(self):
        histories.check(self.histories, (1,))
        self.assertEqual(len(self.histories[1]), 1)  # the cut line does not count

    def test_another_verdict(self):
        self.refused(lambda all: all[2][1].update(verdict="committed"), "was told")

    def test_another_epoch(self):
        self.refused(lambda all: all[2][2].update(epoch="2"), "was told")

    def test_another_result(self):
        self.refused(lambda all: all[0][2].update(hash="1"), "was told")

    def test_results_of_an_aborted_step_may_differ(self):
        self.histories[0][1]["hash"] = "1"
        histories.check(self.histories, (1,))

    def test_a_victim_that_was_told_something_else(self):
        self.refused(lambda all: all[1][0].update(verdict="aborted"), "was told")

    def test_a_missing_agreement(self):
        self.refused(lambda all: all[0].pop(1), "is missing")

    def test_an_agreement_less(self):
        self.refused(lambda all: all[0].pop(), "different numbers")

    def test_a_member_that_comes_back(self):
        self.refused(lambda all: all[0][2].update(members="0,1,2"), "became")

    def test_a_loss_in_the_same_epoch(self):
        def change(all):
            for rank in (0, 2):
                for number in (1, 2):
                    all[rank][number]["epoch"] = "0"
        self.refused(change, "epoch 0 became 0")

    def test_a_loss_of_one_that_lives(self):
        self.refused(lambda all: None, "which was not killed", killed=())

    def test_an_error_that_names_one_that_lives(self):
        self.refused(lambda all: all[0][1].update(noticed="2"), "which was not killed")

    def test_a_death_that_was_never_told(self):
        def change(all):
            for rank in (0, 2):
                del all[rank][1:]
        self.refused(change, "ended with members")

    def test_latencies(self):
        found = histories.latencies(self.histories[0], {0: None, 1: 2_000_000, 2: None})
        self.assertEqual(dict(found), {"to peer_lost": [1.0], "to the agreement": [2.0], "to the next all-reduce": [3.0]})


if __name__ == "__main__":
    unittest.main()
