#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tugline run` on a terminal: rank 0 reads it, and Ctrl-C, Ctrl-Z, fg, bg and & are what they are elsewhere."""
import os
import pathlib
import pty
import re
import select
import signal
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
TUGLINE = str(BUILD / "bin/tugline")
PATIENCE_S = 30

# Says how often it was interrupted; rank 0 also what it read, and how often it was interrupted until then.
PROGRAM = """
import os, signal, sys
interrupted = 0
def on_interrupt(*_):
    global interrupted
    interrupted += 1
    print(f"interrupted {interrupted}", flush=True)
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGINT, on_interrupt)
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        print("got", line.strip(), "after", interrupted, flush=True)
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    print("ready", os.getpid(), sys.stdin.read(), flush=True)
    while True:
        signal.sigwait([signal.SIGINT])
        on_interrupt()
"""


class Session:
    """A program that leads a session with a terminal of its own, as in a terminal emulator."""

    def __init__(self, *command):
        self.seen = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, {**os.environ, "PS1": "$ ", "TERM": "dumb", "NO_COLOR": "1", "PROGRAM": PROGRAM})

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, pattern, times=1):
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, self.seen)) < times:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self.terminal], [], [], left)[0]
            try:
                block = os.read(self.terminal, 65536) if ready else b""
            except OSError:  # EIO: everybody has closed it
                block = b""
            if not block:
                raise AssertionError(f"no {times} x {pattern!r} in:\n{self.seen}")
            self.seen += block.decode()
        return re.findall(pattern, self.seen)

    def exit_code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        """Closing its terminal sends SIGHUP to a session."""
        os.close(self.terminal)


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


class Terminal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tugline-terminal-test-")
        self.addCleanup(self.folder.cleanup)
        os.environ["TUGLINE_RUNTIME_DIR"] = self.folder.name

    def start(self, *command):
        session = Session(*command)
        self.addCleanup(session.close)
        return session

    def shell(self):
        session = self.start("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
        session.wait_for(r"\$ ")
        session.type("set -b\n")  # says at once that a job has stopped
        session.wait_for(r"\$ ", 2)
        return session

    def wait_until_stopped(self, pids, stopped):
        deadline = time.monotonic() + PATIENCE_S
        while any((state_of(pid) == "T") != stopped for pid in pids):
            self.assertLess(time.monotonic(), deadline, [state_of(pid) for pid in pids])
            time.sleep(0.001)

    def test_rank_0_reads_it_and_the_others_nothing(self):
        run = self.start(TUGLINE, "run", "-n", "3", "--", "sh", "-c", "cat; echo end")
        run.wait_for(r"\[[12]\] end", 2)
        run.type("hello\n")
        run.wait_for(r"\[0\] hello")
        run.type("\x04")
        run.wait_for(r"\[0\] end")
        self.assertEqual(run.exit_code(), 0)

    def test_ctrl_c_interrupts_every_rank_once(self):
        run = self.start(TUGLINE, "run", "-n", "4", "--grace", "3600", "--", sys.executable, "-c", PROGRAM)
        run.wait_for("ready", 4)
        run.type("\x03")
        run.wait_for("interrupted 1", 4)
        run.type("hello\n")
        run.wait_for("got hello after 1")
        self.assertNotIn("interrupted 2", run.seen)
        run.type("\x03")  # asked twice
        run.wait_for("the job was ended by signal 2")
        self.assertEqual(run.exit_code(), 1)

    def test_ctrl_z_fg_and_bg(self):
        shell = self.shell()
        shell.type(f'{TUGLINE} run -n 3 -- {sys.executable} -c "$PROGRAM"\n')
        ranks = [int(pid) for pid in shell.wait_for(r"ready (\d+)", 3)]
        shell.type("\x1a")
        shell.wait_for("Stopped  ", 1)
        self.wait_until_stopped(ranks, True)
        shell.type("fg\n")
        self.wait_until_stopped(ranks, False)
        shell.type("one\n")
        shell.wait_for("got one after 0")
        # In the background it runs until rank 0 reads: here at once.
        shell.type("\x1a")
        shell.wait_for("Stopped  ", 2)
        shell.type("bg\n")
        shell.wait_for("Stopped  ", 3)
        self.wait_until_stopped(ranks, True)
        shell.type("fg\n")
        self.wait_until_stopped(ranks, False)
        shell.type("two\n")
        shell.wait_for("got two after 0")
        shell.type("\x03")
        shell.wait_for("interrupted 1", 3)
        shell.type("\x03")
        shell.wait_for("the job was ended by signal 2")
        shell.type("echo code $?\n")
        shell.wait_for("code 1")

    def test_ctrl_z_without_a_shell_is_nothing(self):
        run = self.start(TUGLINE, "run", "-n", "2", "--", sys.executable, "-c", PROGRAM)
        run.wait_for("ready", 2)
        run.type("\x1a")
        run.type("hello\n")
        run.wait_for("got hello after 0")
        run.type("\x03\x03")
        run.wait_for("the job was ended by signal 2")

    def test_in_the_background_it_is_not_read(self):
        shell = self.shell()
        shell.type(f"{TUGLINE} run -n 2 -- sh -c 'read line; echo got $?' &\n")
        shell.wait_for(r"\] got 1", 2)
        shell.type("echo still $((40 + 2))\n")
        shell.wait_for("still 42")

    def test_sigterm_reaches_every_rank_with_its_children_and_nobody_else(self):
        shell = self.shell()
        # The child says ready, so its parent has to be by then.
        shell.type(f"{TUGLINE} run -n 2 -- sh -c 'trap \"echo asked\" TERM; (trap \"echo asked; exit\" TERM; echo ready "
                   "$PPID; while :; do sleep 1000 & wait; done) & wait; wait' | (cat; echo reader went on)\n")
        launcher = int(shell.wait_for(r"ready (\d+)", 2)[0])
        os.kill(launcher, signal.SIGTERM)
        shell.wait_for(r"\[0\] asked", 2)
        shell.wait_for(r"\[1\] asked", 2)
        shell.wait_for("reader went on", 2)

    def test_a_killed_reader_leaves_it_as_it_was(self):
        shell = self.shell()
        shell.type(f"{TUGLINE} run -n 2 -- sh -c '[ $RANK = 1 ] || {{ stty raw -echo; kill -9 $$; }}'; stty -a\n")
        self.assertEqual(shell.wait_for("-?echo "), ["echo "])


if __name__ == "__main__":
    unittest.main()
