# SPDX-License-Identifier: Apache-2.0
"""What the machine shows: processes, brokers, and a promise that was not kept."""
import os
import pathlib
import subprocess
import time

from ending import dies_with_me

GONE_LIMIT_S = 10  # for sockets, directories and brokers to go after a job


class Broken(Exception):
    """A promise was not kept; the text says which."""


def wait_until(condition, limit_s, what):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise Broken(f"{what} did not happen within {limit_s} s")
        time.sleep(0.001)


def processes_with(text, where):
    """Processes of this machine whose /proc/PID/`where` contains `text`."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if text in pathlib.Path(entry.path, where).read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return found


def shared_memory_kib():
    """Shared memory of the whole machine, other programs' included."""
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1])
    return 0


class Broker:
    """`tugline broker`, which serves many jobs in a row."""

    def __init__(self, folder, programs):
        self.name = f"chaos-{os.getpid()}"
        self.socket = folder / "broker" / "broker.sock"
        self.error = open(folder / "broker.error", "w", encoding="utf-8")
        command = dies_with_me([programs["tugline"], "broker", "--job", self.name, "--socket", self.socket])
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.error,
                                        text=True)
        line = self.process.stdout.readline().strip()
        if line != str(self.socket):
            raise Broken(f"the broker did not start: {(folder / 'broker.error').read_text(encoding='utf-8')}")

    def descriptors(self):
        links = []
        folder = pathlib.Path(f"/proc/{self.process.pid}/fd")
        for entry in folder.iterdir():
            try:
                links.append(os.readlink(entry))
            except OSError:
                continue
        return sorted(links)

    def memory_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def end(self):
        self.process.terminate()
        code = self.process.wait(GONE_LIMIT_S)
        self.error.close()
        if code != 0:
            raise Broken(f"the broker ended with {code}")
        if self.socket.exists():
            raise Broken(f"the broker left {self.socket} behind")
