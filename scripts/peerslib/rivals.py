# SPDX-License-Identifier: Apache-2.0
"""The rivals: which packages they need, how their programs are compiled and started."""
import dataclasses
import functools
import os
import pathlib
import shutil
import subprocess

from ending import run
from peerslib.contender import Contender

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "bench/peers"
FLAGS = ["-std=c++20", "-O2", "-Wall", "-Wextra", f"-I{ROOT / 'bench'}"]
INSTALL_LIMIT_S = 900
BUILD_LIMIT_S = 300


class Unavailable(Exception):
    """A rival cannot take part; the text says why."""


@dataclasses.dataclass(frozen=True)
class Rival:
    name: str
    packages: tuple
    compile: tuple  # compiler and what follows the source
    source: str
    package: str  # the one whose version is told


# Both MPIs by their own names, never by the names that Debian's alternatives lead to one of them.
RIVALS = {
    "openmpi": Rival("Open MPI", ("libopenmpi-dev", "openmpi-bin"), ("mpicxx.openmpi",), "mpi_peer.cpp",
                     "libopenmpi-dev"),
    "mpich": Rival("MPICH", ("libmpich-dev", "mpich"), ("mpicxx.mpich",), "mpi_peer.cpp", "libmpich-dev"),
    "gloo": Rival("Gloo", ("libgloo-dev",), ("g++", "-lgloo", "-pthread"), "gloo_peer.cpp", "libgloo-dev"),
}


def open_mpi(program, cores, _folder, ranks, words):
    """With more ranks than cores Open MPI is told so, so that ranks that wait yield."""
    slots = [f"localhost:{min(ranks, len(cores))}"] + (["--oversubscribe"] if ranks > len(cores) else [])
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun.openmpi", *as_root, "-np", ranks, "--host", *slots, "--bind-to", "none", program, *words]


def mpich(program, _cores, _folder, ranks, words):
    return ["mpirun.mpich", "-bind-to", "none", "-np", ranks, program, *words]


def gloo(program, _cores, folder, ranks, words):
    meeting = folder / "gloo"  # empty for every job
    shutil.rmtree(meeting, ignore_errors=True)
    meeting.mkdir()
    return [program, ranks, meeting, *words]


COMMANDS = {"openmpi": open_mpi, "mpich": mpich, "gloo": gloo}


def last_lines(text, number=5):
    return "\n".join(text.strip().splitlines()[-number:])


def installed_version(package):
    """None when the package is not installed."""
    done = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package], capture_output=True,
                          text=True, check=False)
    status, _, version = done.stdout.partition(" ")
    return version if status == "installed" else None


def missing_packages(rival):
    if not shutil.which("dpkg-query"):
        raise Unavailable(f"this is no Debian system: {' '.join(rival.packages)} cannot be looked for")
    return [package for package in rival.packages if installed_version(package) is None]


def alternatives():
    """What Debian's names of MPI programs lead to: {name: path}."""
    done = subprocess.run(["update-alternatives", "--get-selections"], capture_output=True, text=True, check=False)
    words = (line.split() for line in done.stdout.splitlines())
    return {word[0]: word[2] for word in words if len(word) == 3 and word[0].startswith("mpi")}


class Installer:
    """apt-get as root; its list of packages is brought up to date once."""

    def __init__(self, say):
        self.say = say
        self.prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
        self.updated = False

    def apt_get(self, *arguments):
        try:
            done = run([*self.prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o",
                        "DPkg::Lock::Timeout=120", *arguments], timeout=INSTALL_LIMIT_S)
        except FileNotFoundError as error:
            raise Unavailable(f"{error.filename} is missing, and installing needs it") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(f"apt-get {arguments[0]} did not end within {INSTALL_LIMIT_S} s") from None
        if done.returncode != 0:
            raise Unavailable(f"apt-get {' '.join(arguments)} failed: {last_lines(done.stderr or done.stdout)}")

    def install(self, rival):
        wanted = missing_packages(rival)
        if not wanted:
            return
        self.say(f"installing {' '.join(wanted)}")
        before = alternatives()
        if not self.updated:
            self.apt_get("update", "-q")
            self.updated = True
        try:
            self.apt_get("install", "-y", "-q", "--no-install-recommends", *wanted)
        finally:
            self.restore(before)

    def restore(self, before):
        """A second MPI's installation may move mpicc and mpirun to it; they stay where they were."""
        now = alternatives()
        for name, path in before.items():
            if now.get(name, path) == path:
                continue
            done = subprocess.run([*self.prefix, "update-alternatives", "--set", name, path], capture_output=True,
                                  text=True, check=False)
            self.say(f"the alternative {name} leads to {path} again" if done.returncode == 0 else
                     f"the alternative {name} leads to {now[name]} now, was {path}: {last_lines(done.stderr)}")


def build(key, out):
    """The rival's program, compiled when it is older than its sources."""
    rival = RIVALS[key]
    program = out / f"{key}_peer"
    source = SOURCES / rival.source
    newest = max(path.stat().st_mtime for path in (source, SOURCES / "timing_loop.h"))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    fresh = out / f"{key}_peer.{os.getpid()}"
    command = [rival.compile[0], *FLAGS, source, "-o", fresh, *rival.compile[1:]]
    try:
        done = run(command, timeout=BUILD_LIMIT_S)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is missing") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"compiling it did not end within {BUILD_LIMIT_S} s") from None
    if done.returncode != 0:
        raise Unavailable(f"compiling it failed: {last_lines(done.stderr)}")
    fresh.replace(program)
    return program


def contender(key, out, cores, folder, installer):
    """The rival, ready to be measured. Throws Unavailable. Without an installer it has to be there."""
    rival = RIVALS[key]
    missing = missing_packages(rival)
    if missing and installer is None:
        raise Unavailable(f"not installed: {' '.join(missing)}")
    if installer is not None:
        installer.install(rival)
    program = build(key, out)
    return Contender(rival.name, functools.partial(COMMANDS[key], program, cores, folder),
                     package=f"{rival.package} {installed_version(rival.package)}")


def tugline_contenders(binaries):
    """tugline with each kind of buffers and call."""
    def start(buffers, call, ranks, words):
        return [binaries / "tugline", "run", "-n", ranks, "--no-prefix", "--kill-on-failure", "--",
                binaries / "tugline_peer", buffers, call, *words]

    return [Contender("tugline", functools.partial(start, buffers, call), buffers, call)
            for buffers in ("private", "library") for call in ("blocking", "stream")]
