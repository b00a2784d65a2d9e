# SPDX-License-Identifier: Apache-2.0
"""One rank of a job, as the harness sees it."""
import mmap
import os
import struct
import time

from chaoslib.histories import lines_of

# Words of tests/process/monitor.h.
WORDS = ("pid", "place", "step", "operations_entered", "operations_left", "agreements_entered", "agreements_left")
PLACES = ("starting", "joining", "joined", "has_communicator", "in_loop", "ended")
MONITOR_BYTES = 8 * len(WORDS)


class Monitor:
    """A rank's words in a file that both have mapped."""

    def __init__(self, path):
        path.write_bytes(bytes(MONITOR_BYTES))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), MONITOR_BYTES)

    def __getattr__(self, name):
        return struct.unpack_from("<Q", self.memory, 8 * WORDS.index(name))[0]

    def has_reached(self, place):
        return self.place >= PLACES.index(place)


class Rank:
    """One rank of a job, as the harness sees it."""

    def __init__(self, job, number, touch_mib, core_directory):
        self.number = number
        self.touch_mib = touch_mib
        self.core_directory = core_directory
        self.history_path = job.folder / f"history.{number}"
        self.error_path = job.folder / f"error.{number}"
        self.monitor = Monitor(job.folder / f"monitor.{number}")
        self.process = None
        self.killed_ns = None
        self.place_at_death = None

    def arguments(self, job):
        words = ["--history", self.history_path, "--monitor", job.folder / f"monitor.{self.number}",
                 "--seed", job.seed, "--losses", len(job.victims), "--after", job.steps_after,
                 "--max-bytes", job.max_bytes, "--touch", self.touch_mib]
        if self.core_directory:
            words += ["--core", self.core_directory]
        return [str(word) for word in words]

    def kill(self, number):
        self.killed_ns = time.monotonic_ns()
        os.kill(self.monitor.pid, number)

    def lines(self):
        if not self.history_path.exists():
            return []
        return lines_of(self.history_path.read_text(encoding="utf-8"))
