#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/ending.py and scripts/endings.sh: signals end a script, what it started, and what it made."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Makes a folder, starts a child that says when it runs, and waits for it.
PYTHON = """
import pathlib, subprocess, sys
sys.path.insert(0, sys.argv[1])
from ending import dies_with_me, end, exit_code_of, run, scratch
def main():
    with scratch("tugline-ending-test-") as folder:
        print(folder, flush=True)
        if sys.argv[2] == "run":
            run(["sh", "-c", "echo $$ >&9; exec sleep 1000"], pass_fds=(9,))
        else:
            child = subprocess.Popen(dies_with_me(["sh", "-c", "echo $$ >&9; exec sleep 1000"]), pass_fds=(9,))
            try:
                child.wait()
            finally:
                end(child)
sys.exit(exit_code_of(main))
"""
BASH = """
cd "$1/.."
. scripts/endings.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "$folder"
run sh -c 'sh -c "echo \\$\\$ >&9; exec sleep 1000"; exit 0'
"""


def gone(pid):
    """Waits until the process runs no more; it is no child of this one."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        import select
        return bool(select.select([watch], [], [], 20)[0])
    finally:
        os.close(watch)


class Endings(unittest.TestCase):
    def start(self, command, temporary):
        """The script, its folder, and the pid of its child, which has begun."""
        reader, writer = os.pipe()
        os.dup2(writer, 9)
        script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=(9,),
                                  env=dict(os.environ, TMPDIR=temporary))
        os.close(9)
        os.close(writer)
        folder = pathlib.Path(script.stdout.readline().strip())
        self.assertTrue(folder.is_dir())
        with os.fdopen(reader) as child:
            return script, folder, int(child.readline())

    def each_script(self):
        yield [sys.executable, "-B", "-c", PYTHON, str(SCRIPTS), "run"]
        yield [sys.executable, "-B", "-c", PYTHON, str(SCRIPTS), "popen"]
        yield ["bash", "-c", BASH, "script", str(SCRIPTS)]

    def test_every_signal_ends_everything(self):
        for command in self.each_script():
            for number in SIGNALS:
                with self.subTest(command=command[0], signal=number), tempfile.TemporaryDirectory() as temporary:
                    script, folder, child = self.start(command, temporary)
                    script.send_signal(number)
                    error = script.communicate(timeout=30)[1]
                    self.assertEqual(script.returncode, 128 + number, error)
                    self.assertNotIn("Traceback", error)
                    self.assertIn(f"ended by {number.name}", error)
                    self.assertTrue(gone(child), "the child runs on")
                    self.assertFalse(folder.exists())

    def test_kill_takes_children_and_the_next_start_takes_the_folder(self):
        command = [sys.executable, "-B", "-c", PYTHON, str(SCRIPTS), "popen"]
        with tempfile.TemporaryDirectory() as temporary:
            first, abandoned, child = self.start(command, temporary)
            second, living, other_child = self.start(command, temporary)
            first.kill()
            first.communicate()
            self.assertTrue(gone(child), "the child runs on")
            self.assertTrue(abandoned.exists())
            kept = pathlib.Path(temporary, "tugline-ending-test-kept")
            kept.mkdir()
            third, _, _ = self.start(command, temporary)
            self.assertFalse(abandoned.exists())
            self.assertTrue(living.exists(), "its script lives")
            self.assertTrue(kept.exists(), "nobody knows whose it is")
            for script in (second, third):
                script.terminate()
                script.communicate()
            self.assertTrue(gone(other_child))


if __name__ == "__main__":
    unittest.main()
