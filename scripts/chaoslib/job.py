# SPDX-License-Identifier: Apache-2.0
"""One job: started, some of its ranks killed, compared, looked after."""
import collections
import os
import random
import signal
import subprocess
import time

from chaoslib import histories
from chaoslib.machine import GONE_LIMIT_S, Broken, processes_with, wait_until
from chaoslib.rank import PLACES, WORDS, Rank
from ending import dies_with_me

END_LIMIT_S = 60  # for a job to end after the kill; a hang ends it
START_LIMIT_S = 60
SIZES_MIB = (0, 64, 256, 1024)
MARK = "TUGLINE_CHAOS_MARK"


class Job:
    """One job: what happens in it follows from its seed alone, but for the machine's timing."""

    def __init__(self, seed, harness):
        draw = random.Random(seed)
        self.seed = seed
        self.harness = harness
        self.folder = harness.folder / f"job-{seed}"
        self.name = f"chaos-{os.getpid()}-{seed}"
        self.size = draw.randint(2, 5)
        self.launcher = draw.choice(("standing", "standing", "spawned", "run"))
        self.victims = draw.sample(range(self.size), 2 if self.size > 2 and draw.random() < 0.25 else 1)
        self.dumps_core = draw.random() < 0.1
        self.moment_s = draw.uniform(0, 0.25)
        self.between_s = draw.choice((0, draw.uniform(0, 0.02)))
        self.in_bootstrap = draw.random() < 0.2
        self.bootstrap_s = 0.05 * draw.random() ** 3  # joining takes a few milliseconds
        self.max_bytes = draw.choice((4096, 1 << 16, 1 << 20, 4 << 20))
        self.steps_after = 20
        if harness.quick:
            self.max_bytes = min(self.max_bytes, 1 << 16)
            self.steps_after = 5
        sizes = SIZES_MIB[:2] if harness.quick else SIZES_MIB
        self.folder.mkdir()
        self.runtime = self.folder / "runtime"
        core = self.folder / "core"
        self.skipped = ""
        if self.dumps_core:
            self.skipped = harness.no_core
            self.dumps_core = not self.skipped
            core.mkdir()
        if self.dumps_core:
            self.in_bootstrap = False
        self.ranks = []
        for number in range(self.size):
            victim = number in self.victims
            first = victim and number == self.victims[0]
            self.ranks.append(Rank(self, number, draw.choice(sizes) if victim else 0,
                                   core if first and self.dumps_core else None))
        self.launched = None
        self.latencies = collections.defaultdict(list)
        self.inside = False
        self.in_agreement = False

    def __str__(self):
        how = "core dump" if self.dumps_core else "SIGKILL"
        when = "while it starts" if self.in_bootstrap else "in its loop"
        sizes = "+".join(str(self.ranks[number].touch_mib) for number in self.victims)
        return (f"seed {self.seed}: {self.size} ranks, {self.launcher}, {how} of "
                f"{','.join(map(str, self.victims))} {when} ({sizes} MiB), up to {self.max_bytes} B")

    def environment(self):
        own = {name: value for name, value in os.environ.items()
               if not name.startswith("TUGLINE_") or name == "TUGLINE_KERNEL"}
        own.update({MARK: self.name, "TUGLINE_RUNTIME_DIR": str(self.runtime), "TUGLINE_JOB": self.name})
        return own

    def start(self):
        worker = self.harness.programs["process_worker"]
        environment = self.environment()
        if self.launcher == "run":
            # A shell picks each rank's own arguments.
            cases = " ".join(f"{rank.number}) exec {worker} {' '.join(rank.arguments(self))} 2>{rank.error_path} ;;"
                             for rank in self.ranks)
            self.launched = subprocess.Popen(
                dies_with_me([self.harness.programs["tugline"], "run", "-n", str(self.size), "--allow-lost", "--", "sh",
                              "-c", f"case $TUGLINE_RANK in {cases} esac"]), env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=open(self.folder / "run.error", "w", encoding="utf-8"))
            return
        if self.launcher == "standing":
            environment.update({"TUGLINE_JOB": self.harness.broker.name,
                                "TUGLINE_SOCKET_PATH": str(self.harness.broker.socket)})
        for rank in self.ranks:
            own = dict(environment, TUGLINE_RANK=str(rank.number), TUGLINE_SIZE=str(self.size))
            with open(rank.error_path, "w", encoding="utf-8") as error:
                command = dies_with_me([worker, *rank.arguments(self)], "KILL")
                rank.process = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL, stderr=error)

    def check_that_all_run(self):
        for rank in self.ranks:
            if rank.process and rank.process.poll() is not None and rank.killed_ns is None:
                raise Broken(f"rank {rank.number} ended before its time: {self.error_of(rank)}")
        if self.launched and self.launched.poll() is not None:
            raise Broken("tugline run ended before its time: " + " ".join(map(self.error_of, self.ranks)))

    def error_of(self, rank):
        return rank.error_path.read_text(encoding="utf-8").strip() if rank.error_path.exists() else "(no text)"

    def reached(self, ranks, place):
        self.check_that_all_run()
        return all(rank.monitor.has_reached(place) for rank in ranks)

    def kill_victims(self):
        victims = [self.ranks[number] for number in self.victims]
        if self.in_bootstrap:
            # From the call of join() to the first step.
            wait_until(lambda: self.reached(victims, "joining"), START_LIMIT_S, "joining")
            time.sleep(self.bootstrap_s)
        else:
            wait_until(lambda: self.reached(self.ranks, "in_loop"), START_LIMIT_S, "the loop of all ranks")
            time.sleep(self.moment_s)
        for rank in victims:
            rank.kill(signal.SIGABRT if rank.core_directory else signal.SIGKILL)
            if rank is not victims[-1] and self.between_s:
                time.sleep(self.between_s)

    def joined_before_death(self, victim):
        return victim.monitor.has_reached("joined")

    def wait_for_end(self):
        """Waits for all ranks. False when the victims died before they were members: then nobody could know."""
        end = time.monotonic() + END_LIMIT_S
        unknown = [self.ranks[number] for number in self.victims if not self.joined_before_death(self.ranks[number])]
        if unknown:
            end = time.monotonic() + 2  # the others may wait for it for ever
        survivors = [rank for rank in self.ranks if rank.killed_ns is None]
        while not all(rank.monitor.has_reached("ended") for rank in survivors):
            self.check_survivors(survivors)
            if time.monotonic() > end:
                if unknown:
                    self.end_by_force()
                    return False
                raise Broken("survivors did not end: " + self.state())
            time.sleep(0.002)
        for rank in self.ranks:
            if rank.process:
                code = rank.process.wait(END_LIMIT_S)
                if rank.killed_ns is None and code != 0:
                    raise Broken(f"rank {rank.number} ended with {code}: {self.error_of(rank)}")
        if self.launched:
            code = self.launched.wait(END_LIMIT_S)
            if code != 0:
                raise Broken(f"tugline run ended with {code}: "
                             f"{(self.folder / 'run.error').read_text(encoding='utf-8')}")
        return True

    def check_survivors(self, survivors):
        for rank in survivors:
            if rank.process and rank.process.poll() not in (None, 0):
                raise Broken(f"rank {rank.number} ended with {rank.process.poll()}: {self.error_of(rank)}")
            if rank.error_path.exists() and "tugline: " in self.error_of(rank):
                raise Broken(f"rank {rank.number}: {self.error_of(rank)}")
        if self.launched and self.launched.poll() is not None and self.launched.poll() != 0:
            raise Broken(f"tugline run ended with {self.launched.poll()}: " + self.state())

    def state(self):
        parts = []
        for rank in self.ranks:
            words = {name: getattr(rank.monitor, name) for name in WORDS}
            words["place"] = PLACES[words["place"]]
            parts.append(f"rank {rank.number} {'killed ' if rank.killed_ns else ''}{words} {self.error_of(rank)}")
        return "\n    ".join(["", *parts])

    def end_by_force(self):
        """Ends what this job started, and nothing else."""
        for rank in self.ranks:
            if rank.process and rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()
        if self.launched and self.launched.poll() is None:
            self.launched.terminate()
            try:
                self.launched.wait(GONE_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.launched.kill()
                self.launched.wait()
        for pid in processes_with(f"{MARK}={self.name}\0".encode(), "environ"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def compare(self):
        lines = {rank.number: rank.lines() for rank in self.ranks}
        histories.check(lines, self.victims)
        killed_ns = {rank.number: rank.killed_ns for rank in self.ranks}
        for rank in self.ranks:
            if rank.killed_ns is not None:
                self.inside = self.inside or rank.monitor.operations_entered != rank.monitor.operations_left
                self.in_agreement |= rank.monitor.agreements_entered != rank.monitor.agreements_left
                continue
            for name, values in histories.latencies(lines[rank.number], killed_ns).items():
                self.latencies[name] += values
                self.inside = self.inside or name == "to peer_lost"

    # What is left.

    def nothing_left(self):
        if processes_with(f"{MARK}={self.name}\0".encode(), "environ"):
            return False
        if processes_with(f"\0{self.name}\0".encode(), "cmdline"):
            return False  # its broker
        return not self.runtime.exists() or not list(self.runtime.rglob("*"))

    def check_leftovers(self):
        end = time.monotonic() + GONE_LIMIT_S
        while not self.nothing_left():
            if time.monotonic() > end:
                left = list(map(str, self.runtime.rglob("*"))) if self.runtime.exists() else []
                pids = processes_with(f"{MARK}={self.name}\0".encode(), "environ")
                brokers = processes_with(f"\0{self.name}\0".encode(), "cmdline")
                raise Broken(f"left behind: files {left}, processes {pids}, brokers {brokers}")
            time.sleep(0.01)

    def run(self):
        try:
            self.start()
            self.kill_victims()
            ended = self.wait_for_end()
            if ended:
                self.compare()
            self.check_leftovers()
            return ended
        finally:
            self.end_by_force()
